//! Transactions larger than their memory, and than one record of the log: staged, committed in one group, and moved in the background.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use tantalum::{Devices, ErrorKind, Isolation, StoreKind, Table, Transaction};
use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::support::{
    Model, check, committed, contents, cut_power_after, put, rows, simulate_stores, slow_devices_of,
    wait_until_applied, with_little_memory,
};

/// Writes a number of rows at random, some of them several times, and deletes some.
fn write_some(tx: &mut Transaction, table: &Table, model: &mut Model, random: &mut Random, count: usize) {
    for _ in 0..count {
        let key = format!("{:05}", random.u32(0..400)).into_bytes();
        if random.u8(0..5) == 0 {
            assert_eq!(tx.delete(table, &key).unwrap(), model.remove(&key).is_some());
        } else {
            let bytes = if random.u8(0..40) == 0 { random.usize(1000..9000) } else { random.usize(0..120) };
            let value = vec![random.u8(..); bytes];
            tx.put(table, &key, &value).unwrap();
            model.insert(key, value);
        }
    }
}

fn own(tx: &mut Transaction, table: &Table, reverse: bool) -> Model {
    let range = tx.range(table, ..).unwrap();
    let row = |row: tantalum::Result<(tantalum::Value, tantalum::Value)>| {
        let (key, value) = row.unwrap();
        (key.to_vec(), value.to_vec())
    };
    if reverse { range.rev().map(row).collect() } else { range.map(row).collect() }
}

/// Own reads, ranges in both directions and savepoints across spills; readers see nothing of it before, and all of it after, the commit,
/// while it is moved and afterwards.
#[test]
fn a_large_transaction_is_one_like_any_other() {
    simulate_stores(0..9, |seed, store, devices| {
        let db = with_little_memory(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let mut random = Random::with_seed(seed);
        let mut before = Model::new();
        let mut tx = db.begin().unwrap();
        write_some(&mut tx, &table, &mut before, &mut random, 60);
        tx.commit().unwrap();
        let old = db.snapshot().unwrap();
        let mut model = before.clone();
        let mut tx = db.begin().unwrap();
        for _ in 0..4 {
            write_some(&mut tx, &table, &mut model, &mut random, 100);
            let (savepoint, at_savepoint) = (tx.savepoint(), model.clone());
            write_some(&mut tx, &table, &mut model, &mut random, 90);
            if random.bool() {
                tx.rollback_to(&savepoint).unwrap();
                model = at_savepoint;
            }
            let reverse = random.bool();
            assert_eq!(own(&mut tx, &table, reverse), model);
            let key = format!("{:05}", random.u32(0..400));
            assert_eq!(tx.get(&table, &key).unwrap().map(|value| value.to_vec()), model.get(key.as_bytes()).cloned());
            assert_eq!(committed(&db, &table), before);
        }
        tx.commit().unwrap();
        assert!(db.stats().unwrap().transactions.staged_commits > 0);
        for wait in [0, 1, 1, 3, 10, 1000] {
            assert_eq!(committed(&db, &table), model);
            let key = format!("{:05}", random.u32(0..400));
            assert_eq!(db.get(&table, &key).unwrap().map(|value| value.to_vec()), model.get(key.as_bytes()).cloned());
            let seen: Model =
                rows(&old, &table).into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
            assert_eq!(seen, before);
            assert_eq!(old.get(&table, &key).unwrap().map(|value| value.to_vec()), before.get(key.as_bytes()).cloned());
            // A later commit overwrites what is still staged.
            let mut tx = db.begin().unwrap();
            write_some(&mut tx, &table, &mut model, &mut random, 3);
            assert_eq!(own(&mut tx, &table, wait % 2 == 0), model);
            tx.commit().unwrap();
            sleep(Duration::from_millis(wait));
        }
        wait_until_applied(&db);
        assert_eq!(committed(&db, &table), model);
        check(&db);
        db.close().unwrap();
    });
}

/// What is rolled back leaves nothing, and closing leaves the rest to the next open.
#[test]
fn what_is_not_moved_when_the_database_is_closed_is_moved_later() {
    for store in [StoreKind::InPlace, StoreKind::InPageLogging, StoreKind::LogStructured] {
        let dir = tempfile::tempdir().unwrap();
        let builder = || with_little_memory(store).log_bytes(4 << 20);
        let (mut random, mut model) = (Random::with_seed(1), Model::new());
        {
            let db = builder().open(dir.path()).unwrap();
            let table = db.table("t").unwrap();
            let mut tx = db.begin().unwrap();
            write_some(&mut tx, &table, &mut Model::new(), &mut random, 900);
            tx.rollback();
            let mut tx = db.begin().unwrap();
            write_some(&mut tx, &table, &mut model, &mut random, 2000);
            tx.commit().unwrap();
            db.close().unwrap();
        }
        for is_read_only in [true, false, true] {
            let db = builder().read_only(is_read_only).open(dir.path()).unwrap();
            let table = db.table("t").unwrap();
            assert_eq!(db.tables().unwrap(), ["t"]);
            assert_eq!(committed(&db, &table), model);
            check(&db);
            if !is_read_only {
                let copy = dir.path().join("copy");
                db.backup(&copy).unwrap();
                assert_eq!(contents(&db).unwrap(), contents(&builder().open(&copy).unwrap()).unwrap());
                wait_until_applied(&db);
                assert_eq!(committed(&db, &table), model);
                check(&db);
            }
            db.close().unwrap();
        }
    }
}

/// Keys are locked by being staged: writers, locking readers and ranges wait, and a deadlock is found.
#[test]
fn staged_keys_are_locked() {
    simulate_stores(0..9, |_, store, devices| {
        let db = with_little_memory(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("0100", "before"), ("9999", "apart")]);
        let mut large = db.begin().unwrap();
        for key in 0..400 {
            large.put(&table, format!("{key:04}"), [7; 60]).unwrap();
        }
        let waits = |what: fn(&mut Transaction, &Table) -> tantalum::Result<Option<Vec<u8>>>| {
            let (db, table) = (db.clone(), table.clone());
            spawn("waits", move || {
                let mut tx = db.begin().unwrap();
                let read = what(&mut tx, &table)?;
                tx.commit()?;
                Ok::<_, tantalum::Error>(read)
            })
        };
        let to_vec = |value: tantalum::Value| value.to_vec();
        let tasks = [
            waits(|tx, table| Ok(tx.get(table, "0100")?.map(|value| value.to_vec()))),
            waits(|tx, table| Ok(tx.get_for_update(table, "0101")?.map(|value| value.to_vec()))),
            waits(|tx, table| {
                Ok(tx.range(table, "0102".."0103")?.next().transpose()?.map(|(_, value)| value.to_vec()))
            }),
        ];
        sleep(Duration::from_millis(200));
        assert!(tasks.iter().all(|task| !task.is_finished()));
        assert_eq!(db.get(&table, "0100").unwrap().map(to_vec), Some(b"before".to_vec()));
        // Of a circle the younger transaction ends.
        let mut small = db.begin().unwrap();
        small.put(&table, "9999", "small").unwrap();
        let circle = spawn("circle", {
            let table = table.clone();
            move || small.put(&table, "0003", "small").unwrap_err().kind()
        });
        sleep(Duration::from_millis(200));
        assert!(!circle.is_finished());
        large.put(&table, "9999", [7; 60]).unwrap();
        assert_eq!(circle.join().unwrap(), ErrorKind::Deadlock);
        // What is undone stays locked.
        large.commit().unwrap();
        for task in tasks {
            assert_eq!(task.join().unwrap().unwrap(), Some(vec![7; 60]));
        }
        wait_until_applied(&db);
        check(&db);
        db.close().unwrap();
    });
}

/// A transaction under snapshot isolation does not overwrite what a large one has committed since it began.
#[test]
fn the_first_committer_wins_against_staged_rows() {
    simulate_stores(0..6, |_, store, devices| {
        let db = with_little_memory(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let mut early = db.begin_with(Isolation::SnapshotIsolation).unwrap();
        let mut late = db.begin_with(Isolation::SnapshotIsolation).unwrap();
        let mut large = db.begin_with(Isolation::SnapshotIsolation).unwrap();
        (0..400).for_each(|key| large.put(&table, format!("{key:04}"), [7; 60]).unwrap());
        large.commit().unwrap();
        let refused = early.put(&table, "0300", "").unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WriteConflict);
        assert_eq!(late.get(&table, "0001").unwrap(), None);
        wait_until_applied(&db);
        assert_eq!(late.get(&table, "0002").unwrap(), None);
        assert_eq!(late.put(&table, "0001", "").unwrap_err().kind(), ErrorKind::WriteConflict);
        drop((early, late));
        check(&db);
        db.close().unwrap();
    });
}

/// Of transactions that stage the same keys, the one that committed later counts.
#[test]
fn staged_rows_are_moved_in_the_order_of_commits() {
    simulate_stores(0..6, |_, store, devices| {
        let db = with_little_memory(store).open_on(devices).unwrap();
        let tables = ["t", "u"].map(|name| db.table(name).unwrap());
        let mut snapshots = Vec::new();
        for round in 1..4u8 {
            let mut tx = db.begin().unwrap();
            for key in 0..150 * u32::from(round) {
                // The second table is written first in some rounds.
                for at in [usize::from(round % 2), usize::from(round % 2 == 0)] {
                    tx.put(&tables[at], key.to_be_bytes(), [round; 50]).unwrap();
                }
            }
            tx.commit().unwrap();
            snapshots.push((round, db.snapshot().unwrap()));
        }
        for _ in 0..2 {
            for (round, snapshot) in &snapshots {
                for table in &tables {
                    let all = rows(snapshot, table);
                    assert_eq!(all.len(), 150 * usize::from(*round));
                    assert!(all.iter().all(|(_, value)| *value == [*round; 50]));
                }
            }
            wait_until_applied(&db);
        }
        drop(snapshots);
        check(&db);
        db.close().unwrap();
    });
}

#[test]
fn a_table_with_staged_rows_is_dropped() {
    simulate_stores(0..6, |seed, store, devices| {
        let db = with_little_memory(store).open_on(devices).unwrap();
        for round in 0..3 {
            let table = db.table("t").unwrap();
            let mut tx = db.begin().unwrap();
            (0..500u32).for_each(|key| tx.put(&table, key.to_be_bytes(), [7; 60]).unwrap());
            assert_eq!(db.drop_table("t").unwrap_err().kind(), ErrorKind::InUse);
            tx.commit().unwrap();
            sleep(Duration::from_micros(300 * (seed + 5 * round)));
            db.drop_table("t").unwrap();
            assert_eq!(db.get(&table, 0u32.to_be_bytes()).unwrap_err().kind(), ErrorKind::NotFound);
        }
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()), []);
        wait_until_applied(&db);
        check(&db);
        db.close().unwrap();
    });
}

/// A log that has failed moves no rows, and holds up neither a drop nor closing.
#[test]
fn a_failed_log_holds_up_no_drop() {
    Simulation::new(1)
        .time_limit(Duration::from_secs(60))
        .run(|| {
            let log = MemoryDevice::new("log", 4 << 20);
            let devices = Devices {
                data: MemoryDevice::new("data", 16 << 20),
                double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
                log: vec![Arc::clone(&log) as Arc<dyn Device>],
            };
            let db = with_little_memory(StoreKind::InPlace).open_on(devices).unwrap();
            let table = db.table("t").unwrap();
            let mut tx = db.begin().unwrap();
            (0..2000u32).for_each(|key| tx.put(&table, key.to_be_bytes(), [7; 60]).unwrap());
            tx.commit().unwrap();
            log.inject(Fault::FailWrites { after: 0 });
            drop(table);
            assert!(db.drop_table("t").is_err());
            assert!(db.close().is_err());
        })
        .expect_finished();
}

/// The power goes while a transaction spills, commits, is moved, and while what the last cut left is moved: it is there whole, or not at
/// all.
#[test]
fn a_power_cut_leaves_all_or_nothing() {
    // Openings that found nothing, something, and something of which rows were still staged.
    let found_of = Arc::new([0u64; 3].map(AtomicU64::new));
    for seed in 0..30u64 {
        let store = [StoreKind::InPlace, StoreKind::InPageLogging, StoreKind::LogStructured][seed as usize % 3];
        let mut random = Random::with_seed(seed);
        let device = |name: &str, bytes, salt| {
            let us = Duration::from_micros;
            let latency = us(20)..us(200);
            let profile = MemoryProfile { write_latency: latency, seed: seed * 16 + salt, ..MemoryProfile::default() };
            MemoryDevice::with_profile(name, bytes, profile)
        };
        let data = device("data", 16 << 20, 0);
        let double_write = (store == StoreKind::InPlace).then(|| device("doublewrite", 1 << 20, 1));
        let log = device("log", 4 << 20, 2);
        // The last transaction that was acknowledged, and the last that was begun.
        let rounds = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
        for life in 1..=5u64 {
            let cut_at = (life < 5).then(|| Duration::from_micros(random.u64(1..[8000, 60_000][life as usize % 2])));
            let devices = Devices {
                data: data.clone(),
                double_write: double_write.clone().map(|device| device as Arc<dyn Device>),
                log: vec![log.clone()],
            };
            let (rounds, found_of) = (Arc::clone(&rounds), Arc::clone(&found_of));
            let run = move || {
                cut_at.into_iter().for_each(cut_power_after);
                let db = with_little_memory(store).open_on(devices).unwrap();
                let table = db.table("t").unwrap();
                let [acknowledged, begun] = &*rounds;
                let found = committed(&db, &table);
                let round = found.values().next().map_or(0, |value| u64::from(value[0]));
                let expected = if round == 0 { 0 } else { 300 + round as usize };
                assert_eq!(found.len(), expected, "round {round} of {rounds:?}");
                assert!(found.values().all(|value| *value == [round as u8; 60]), "rows of one transaction");
                assert!((acknowledged.load(Relaxed)..=begun.load(Relaxed)).contains(&round));
                let is_staged = round > 0 && db.stats().unwrap().transactions.staging_tables > 0;
                found_of[usize::from(round > 0) + usize::from(is_staged)].fetch_add(1, Relaxed);
                check(&db);
                if cut_at.is_none() {
                    wait_until_applied(&db);
                    assert_eq!(committed(&db, &table), found);
                    check(&db);
                    return;
                }
                for round in round + 1..round + 50 {
                    begun.store(round, Relaxed);
                    let mut tx = db.begin().unwrap();
                    // A row more each time, and a wrong one that is undone.
                    (0..300 + round as u32)
                        .for_each(|key| tx.put(&table, key.to_be_bytes(), [round as u8; 60]).unwrap());
                    let savepoint = tx.savepoint();
                    (200..500u32).for_each(|key| tx.put(&table, key.to_be_bytes(), [255; 60]).unwrap());
                    tx.rollback_to(&savepoint).unwrap();
                    tx.commit().unwrap();
                    acknowledged.store(round, Relaxed);
                }
            };
            let simulation = Simulation::new(seed * 8 + life).time_limit(Duration::from_secs(600));
            let (Outcome::PowerCut { .. } | Outcome::Finished(())) = simulation.run(run);
            for device in [Some(&data), double_write.as_ref(), Some(&log)].into_iter().flatten() {
                device.power_cut(&mut random);
            }
        }
    }
    assert!(found_of.iter().all(|found| found.load(Relaxed) > 0), "{found_of:?}");
}

/// A full device refuses the transaction before its commit, and what is there is untouched.
#[test]
fn a_full_device_refuses_a_large_transaction() {
    simulate_stores(0..6, |seed, store, _| {
        let devices = slow_devices_of(seed, 4 << 20);
        let double_write = devices.double_write.filter(|_| store == StoreKind::InPlace);
        let data = MemoryDevice::new("data", 4 << 20);
        let db =
            with_little_memory(store).open_on(Devices { data: data.clone(), double_write, log: devices.log }).unwrap();
        data.inject(Fault::NoSpaceOnGrow);
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "1")]);
        let mut tx = db.begin().unwrap();
        let mut refused = None;
        for key in 0..60_000u32 {
            if let Err(error) = tx.put(&table, key.to_be_bytes(), [7; 100]) {
                refused = Some(error);
                break;
            }
        }
        let refused = refused.unwrap_or_else(|| tx.commit().unwrap_err());
        assert_eq!(refused.kind(), ErrorKind::StoreFull, "{refused}");
        wait_until_applied(&db);
        assert_eq!(committed(&db, &table).len(), 1);
        put(&db, &table, &[("a", "2")]);
        check(&db);
        db.close().unwrap();
    });
}

/// Rows that cannot be moved for a while are read where they are staged, and are moved later.
#[test]
fn what_cannot_be_moved_stays_staged() {
    simulate_stores(0..6, |seed, store, devices| {
        let data = MemoryDevice::new("data", 16 << 20);
        // Otherwise rows are moved while the commit is made durable.
        let builder = with_little_memory(store).expert(|expert| expert.early_lock_release(false));
        let db = builder.open_on(Devices { data: data.clone(), ..devices }).unwrap();
        let table = db.table("t").unwrap();
        let (mut random, mut model) = (Random::with_seed(seed), Model::new());
        // More than the pool holds.
        for key in 0..900u32 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, key.to_be_bytes(), [1; 900]).unwrap();
            tx.commit_async().unwrap();
            model.insert(key.to_be_bytes().to_vec(), vec![1; 900]);
        }
        let mut tx = db.begin().unwrap();
        for _ in 0..200 {
            let key = random.u32(0..900).to_be_bytes();
            tx.put(&table, key, [2; 60]).unwrap();
            model.insert(key.to_vec(), vec![2; 60]);
        }
        tx.commit().unwrap();
        data.inject(Fault::FailReads { after: 3 });
        sleep(Duration::from_secs(5));
        assert_eq!(db.stats().unwrap().transactions.staging_tables, 1);
        data.clear_faults();
        assert_eq!(committed(&db, &table), model);
        wait_until_applied(&db);
        assert_eq!(committed(&db, &table), model);
        check(&db);
        db.close().unwrap();
    });
}

/// Clients that commit large transactions without a pause leave no more behind than the applier is allowed to be late.
#[test]
fn staging_tables_do_not_accumulate() {
    simulate_stores(0..3, |_, store, devices| {
        let db = with_little_memory(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let clients: Vec<_> = (0..4_u32)
            .map(|client| {
                let (db, table) = (db.clone(), table.clone());
                spawn("client", move || {
                    let mut most = 0;
                    for value in 0..60_u32 {
                        let mut tx = db.begin().unwrap();
                        for key in 0..200_u32 {
                            tx.put(&table, (client * 1000 + key).to_be_bytes(), value.to_be_bytes().repeat(20))
                                .unwrap();
                        }
                        drop(tx.commit_async().unwrap());
                        most = db.stats().unwrap().transactions.staging_tables.max(most);
                    }
                    most
                })
            })
            .collect();
        for client in clients {
            // With those of transactions under way, and those that were about to commit.
            assert!(client.join().unwrap() <= 16 + 2 * 4);
        }
        wait_until_applied(&db);
        let rows = committed(&db, &table);
        assert_eq!(rows.len(), 800);
        assert!(rows.values().all(|value| *value == 59_u32.to_be_bytes().repeat(20)));
        check(&db);
    });
}
