//! How a database ends: beside commits, beside snapshots and transactions that are still held, and when devices fail.

use std::{error::Error as _, time::Duration};

use tantalum::{Builder, Db, Devices, ErrorKind, Isolation, PageCleaning, StoreKind, Value};
use tantalum_device::{Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{Random, Simulation, sleep, spawn};

use crate::support::{check, get, on_store, open, put, simulate, simulate_stores, small};

/// A snapshot, and transactions that are over, keep no database open.
#[test]
fn a_database_is_opened_again_beside_what_is_left_of_it() {
    for closes in [true, false] {
        let dir = tempfile::tempdir().unwrap();
        let db = small().lock_timeout(Duration::from_millis(1)).open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "1"), ("b", "2")]);
        let snapshot = db.snapshot().unwrap();
        assert_eq!(snapshot.get(&table, "a").unwrap().unwrap(), b"1");
        let mut rows = snapshot.range(&table, ..).unwrap();
        let mut holder = db.begin().unwrap();
        holder.put(&table, "a", "3").unwrap();
        let mut aborted = db.begin_with(Isolation::SnapshotIsolation).unwrap();
        assert!(matches!(aborted.put(&table, "a", "4"), Err(error) if error.kind() == ErrorKind::LockTimeout));
        assert!(matches!(aborted.get(&table, "a"), Err(error) if error.kind() == ErrorKind::Aborted));
        let ticket = holder.commit_async().unwrap();
        let running = closes.then(|| {
            let mut running = db.begin().unwrap();
            running.put(&table, "b", "5").unwrap();
            running
        });
        if closes {
            db.close().unwrap();
        } else {
            drop(db);
        }

        let again = open(dir.path());
        check(&again);
        let table_again = again.table("t").unwrap();
        assert_eq!(get(&again, &table_again, "a").unwrap(), b"3");
        put(&again, &table_again, &[("a", "6")]);
        ticket.wait().unwrap();
        assert!(matches!(snapshot.get(&table, "a"), Err(error) if error.kind() == ErrorKind::Closed));
        assert!(matches!(snapshot.range(&table, ..), Err(error) if error.kind() == ErrorKind::Closed));
        assert!(matches!(rows.next(), Some(Err(error)) if error.kind() == ErrorKind::Closed));
        assert!(matches!(aborted.get(&table, "a"), Err(error) if error.kind() == ErrorKind::Closed));
        assert!(matches!(aborted.range(&table, ..).err(), Some(error) if error.kind() == ErrorKind::Closed));
        assert!(matches!(aborted.commit(), Err(error) if error.kind() == ErrorKind::Closed));
        if let Some(mut running) = running {
            assert!(matches!(running.get(&table, "a"), Err(error) if error.kind() == ErrorKind::Closed));
            assert!(matches!(running.put(&table, "a", "7"), Err(error) if error.kind() == ErrorKind::Closed));
            assert!(matches!(running.commit(), Err(error) if error.kind() == ErrorKind::Closed));
        }
        drop(rows);
        drop(snapshot);
        assert_eq!(get(&again, &table_again, "a").unwrap(), b"6");
        again.close().unwrap();
    }
}

/// A transaction that is running may yet commit.
#[test]
fn a_running_transaction_keeps_the_database_open() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    let mut tx = db.begin().unwrap();
    drop(db);
    let error = small().open(dir.path()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::InUse);
    assert!(error.to_string().contains("this process has the database open already"), "{error}");
    tx.put(&table, "a", "1").unwrap();
    tx.commit().unwrap();
    let db = open(dir.path());
    assert_eq!(get(&db, &db.table("t").unwrap(), "a").unwrap(), b"1");
}

/// Clients commit, read, and create and drop tables, until one of them closes the database. Each commit is acknowledged or
/// refused, and the former are there when the database is opened again, at once.
#[test]
fn closing_waits_for_commits_and_refuses_others() {
    simulate_stores(0..60, |seed, store, devices| {
        let db = on_store(store).open_on(devices.clone()).unwrap();
        let table = db.table("t").unwrap();
        let clients: Vec<_> = (0..6u32)
            .map(|client| {
                let (db, table) = (db.clone(), table.clone());
                spawn(format!("client-{client}"), move || {
                    let mut random = Random::with_seed(seed * 100 + u64::from(client));
                    let mut acknowledged = Vec::new();
                    let closed =
                        (0u32..).find_map(|n| work(&db, &table, &mut random, (client, n), &mut acknowledged).err());
                    assert!(matches!(&closed, Some(error) if error.kind() == ErrorKind::Closed), "{closed:?}");
                    acknowledged
                })
            })
            .collect();
        sleep(Duration::from_micros(Random::with_seed(seed).u64(0..30_000)));
        let snapshot = db.snapshot().unwrap();
        db.close().unwrap();
        let again = on_store(store).open_on(devices).unwrap();
        check(&again);
        let table_again = again.table("t").unwrap();
        for client in clients {
            for (key, value) in client.join().unwrap() {
                assert_eq!(get(&again, &table_again, &key).as_deref(), Some(&value[..]), "{key}");
            }
        }
        assert!(matches!(snapshot.get(&table, "1-1"), Err(error) if error.kind() == ErrorKind::Closed));
        check(&again);
    });
}

/// Something that a client does. What it has put is acknowledged if this succeeds.
fn work(
    db: &Db,
    table: &tantalum::Table,
    random: &mut Random,
    (client, n): (u32, u32),
    acknowledged: &mut Vec<(String, Vec<u8>)>,
) -> tantalum::Result<()> {
    match random.u8(0..12) {
        0 => drop(db.get(table, "1-1")?),
        1 => {
            let name = format!("scratch-{client}");
            let scratch = db.table(&name)?;
            let mut tx = db.begin()?;
            (0..10u32).try_for_each(|n| tx.put(&scratch, n.to_be_bytes(), vec![1; 3000]))?;
            tx.commit()?;
            drop(scratch);
            db.drop_table(&name)?;
        }
        _ => {
            let (key, value) = (format!("{client}-{n}"), vec![client as u8; random.usize(0..900)]);
            let mut tx = db.begin()?;
            tx.put(table, &key, &value)?;
            if random.bool() {
                tx.commit()?;
            } else {
                tx.commit_async()?.wait()?;
            }
            acknowledged.push((key, value));
        }
    }
    Ok(())
}

/// Commits that leave large values dead faster than they are deleted wait for that, but not once the database is being closed.
#[test]
fn closing_ends_the_wait_for_dead_values() {
    simulate_stores(0..60, |seed, store, devices| {
        let db = on_store(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let clients: Vec<_> = (0..6u8)
            .map(|client| {
                let (db, table) = (db.clone(), table.clone());
                let replace = move || -> tantalum::Result<()> {
                    let mut tx = db.begin()?;
                    (0..12u8).try_for_each(|n| tx.put(&table, [client, n], vec![n; 6000]))?;
                    tx.commit().map(drop)
                };
                spawn(format!("client-{client}"), move || {
                    let closed = std::iter::repeat_with(replace).find_map(Result::err);
                    assert_eq!(closed.unwrap().kind(), ErrorKind::Closed);
                })
            })
            .collect();
        sleep(Duration::from_millis(Random::with_seed(seed).u64(20..300)));
        db.close().unwrap();
        clients.into_iter().for_each(|client| client.join().unwrap());
    });
}

/// A database whose pages cannot all be stored when it is closed stores none afterwards, whatever task was reading and needed room.
#[test]
fn a_database_that_cannot_be_closed_cleanly_writes_nothing_afterwards() {
    for seed in 0..40 {
        // Beside in-page logging, what was acknowledged is stored already.
        let store = [StoreKind::InPlace, StoreKind::LogStructured][seed as usize % 2];
        let run = move || {
            let us = Duration::from_micros;
            // A read of many pages is under way for longer than closing takes.
            let slow_reads = MemoryProfile { read_latency: us(500)..us(1000), seed, ..MemoryProfile::default() };
            let (data, log) =
                (MemoryDevice::with_profile("data", 8 << 20, slow_reads), MemoryDevice::new("log", 8 << 20));
            let double_write = MemoryDevice::new("doublewrite", 1 << 20);
            let devices = Devices {
                data: data.clone(),
                double_write: (store == StoreKind::InPlace).then_some(double_write as _),
                log: vec![log.clone()],
            };
            let db = on_store(store)
                .expert(|expert| expert.page_cleaning(PageCleaning::OnDemand))
                .open_on(devices.clone())
                .unwrap();
            let table = db.table("t").unwrap();
            let write = |n: u32, bytes: usize| {
                let mut tx = db.begin().unwrap();
                tx.put(&table, n.to_be_bytes(), vec![1; bytes]).unwrap();
                tx.commit_async().unwrap();
            };
            (100..130).for_each(|n| write(n, 40_000));
            db.checkpoint().unwrap();
            (0..100).for_each(|n| write(n, 900));
            let readers: Vec<_> = (0..4u64)
                .map(|reader| {
                    let (db, table) = (db.clone(), table.clone());
                    spawn(format!("reader-{reader}"), move || {
                        let mut random = Random::with_seed(seed * 10 + reader);
                        while !matches!(db.get(&table, random.u32(100..130).to_be_bytes()), Err(error) if error.kind() == ErrorKind::Closed) {
                            sleep(Duration::from_micros(1));
                        }
                    })
                })
                .collect();
            sleep(us(seed * 25));
            data.inject(Fault::FailWrites { after: seed % 4 });
            let error = db.close().unwrap_err();
            assert!(error.first_cause().is_io(), "{error}");
            data.clear_faults();
            let images = (data.image(), log.image());
            readers.into_iter().for_each(|reader| reader.join().unwrap());
            sleep(Duration::from_secs(1));
            assert!(images == (data.image(), log.image()), "nothing is written any more");
            let db = on_store(store).open_on(devices).unwrap();
            let rows = db.snapshot().unwrap().range(&db.table("t").unwrap(), ..).unwrap().count();
            assert_eq!(rows, 130);
            check(&db);
        };
        Simulation::new(seed).cores(2).time_limit(Duration::from_secs(3600)).run(run).expect_finished();
    }
}

/// Both causes are told when pages cannot be stored and the log cannot be ended.
#[test]
fn two_failures_of_closing_are_both_told() {
    let (data, log) = (MemoryDevice::new("data", 12 << 20), MemoryDevice::new("log", 4 << 20));
    let devices = Devices {
        data: data.clone(),
        double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
        log: vec![log.clone()],
    };
    let db = Db::builder().open_on(devices).unwrap();
    let table = db.table("t").unwrap();
    put(&db, &table, &[("a", "1")]);
    data.inject(Fault::FailWrites { after: 0 });
    log.inject(Fault::FailWrites { after: 0 });
    let error = db.close().unwrap_err();
    let text = error.to_string();
    let stored = error.source().unwrap().to_string();
    assert!(
        stored.contains("data") && text.contains(&format!("not all pages could be stored: {stored}; and the log")),
        "{text}"
    );
    let (_, log) = text.split_once("the log could not be ended: ").unwrap();
    assert!(log.contains("log at byte"), "{text}");
}

/// A drop that takes long is left to the next open.
#[test]
fn closing_does_not_wait_for_all_pages_of_a_table_that_is_dropped() {
    simulate_stores(0..12, |_, store, devices| {
        let builder = || -> Builder { on_store(store) };
        let db = builder().open_on(devices.clone()).unwrap();
        let table = db.table("large").unwrap();
        for n in 0..40u32 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, n.to_be_bytes(), vec![7; 60_000]).unwrap();
            tx.commit_async().unwrap();
        }
        db.checkpoint().unwrap();
        drop(table);
        let dropper = spawn("dropper", {
            let db = db.clone();
            move || db.drop_table("large")
        });
        // Until the drop has begun to free pages.
        while !db.tables().unwrap().is_empty() {
            sleep(Duration::from_micros(10));
        }
        db.close().unwrap();
        let dropped = dropper.join().unwrap();
        assert!(matches!(&dropped, Err(error) if error.kind() == ErrorKind::Closed), "{dropped:?}");
        let db = builder().open_on(devices).unwrap();
        assert_eq!(db.tables().unwrap(), [] as [&str; 0]);
        assert_eq!(db.check().unwrap().pages_used, 1, "the catalog's root alone");
        check(&db);
    });
}

/// Tables can be looked up, made and used while another is dropped.
#[test]
fn a_long_drop_holds_up_no_use_of_other_tables() {
    simulate_stores(0..12, |_, store, devices| {
        let db = on_store(store).open_on(devices).unwrap();
        let (table, other) = (db.table("large").unwrap(), db.table("other").unwrap());
        for n in 0..40u32 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, n.to_be_bytes(), vec![7; 60_000]).unwrap();
            tx.commit_async().unwrap();
        }
        db.checkpoint().unwrap();
        drop(table);
        let dropper = spawn("dropper", {
            let db = db.clone();
            move || db.drop_table("large").unwrap()
        });
        while db.tables().unwrap().len() == 2 {
            sleep(Duration::from_micros(10));
        }
        assert_eq!(db.table("other").unwrap().id(), other.id());
        db.table("third").unwrap();
        db.drop_table("third").unwrap();
        assert!(!dropper.is_finished(), "all that was faster than the drop");
        let anew = db.table("large").unwrap();
        assert!(dropper.is_finished(), "the name is free when the drop is over");
        assert_eq!(get(&db, &anew, "k"), None::<Value>);
        dropper.join().unwrap();
        check(&db);
    });
}

/// While the log takes nothing any more, no table can be dropped; so none seems to be.
#[test]
fn a_drop_that_fails_is_not_seen() {
    simulate(0..10, |seed, devices| {
        let log = MemoryDevice::new("failing", 4 << 20);
        let devices = Devices { log: vec![log.clone()], ..devices };
        let db = Db::builder().buffer_pool_bytes(64 * 4096).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "1")]);
        db.checkpoint().unwrap();
        log.inject(Fault::FailWrites { after: 0 });
        let mut tx = db.begin().unwrap();
        tx.put(&db.table("t").unwrap(), "b", "2").unwrap();
        assert!(tx.commit().is_err());
        let readers: Vec<_> = (0..3u64)
            .map(|reader| {
                let (db, table) = (db.clone(), table.clone());
                spawn(format!("reader-{reader}"), move || {
                    let mut random = Random::with_seed(seed * 10 + reader);
                    for _ in 0..20 {
                        let read = db.get(&table, "a");
                        assert!(!matches!(&read, Err(error) if error.kind() == ErrorKind::NotFound), "{read:?}");
                        let tx = db.begin().unwrap();
                        let read = tx.get(&table, "a");
                        assert!(!matches!(&read, Err(error) if error.kind() == ErrorKind::NotFound), "{read:?}");
                        sleep(Duration::from_micros(random.u64(0..50)));
                    }
                })
            })
            .collect();
        while readers.iter().any(|reader| !reader.is_finished()) {
            assert!(db.drop_table("t").is_err());
            sleep(Duration::from_micros(7));
        }
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
}
