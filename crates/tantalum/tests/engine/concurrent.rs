//! Several clients at once, under many schedules: what isolation promises.

use std::sync::Arc;

use tantalum::{Builder, Db, Devices, Error, ErrorKind, Isolation, RangeIter, Result, Table, Transaction};
use tantalum_device::{MemoryDevice, MemoryProfile};
use tantalum_rt::{JoinHandle, Mutex, Random, now, sleep, spawn};

use crate::support::{Rows, check, get, put, rows, simulate};

fn builder() -> Builder {
    Db::builder().buffer_pool_bytes(64 * 4096)
}

/// Runs a transaction until it is not the loser of a conflict.
fn transact<T>(db: &Db, isolation: Isolation, f: impl Fn(&mut Transaction) -> Result<T>) -> T {
    loop {
        let mut tx = db.begin_with(isolation).unwrap();
        match f(&mut tx).and_then(|result| tx.commit().map(|_| result)) {
            Ok(result) => return result,
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
        // The transaction in the way may need a device to be done, and time for that.
        sleep(std::time::Duration::from_micros(20));
    }
}

fn join(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.join().unwrap();
    }
}

const ACCOUNTS: u8 = 8;
const TOTAL: u64 = ACCOUNTS as u64 * 100;

fn balance(value: &[u8]) -> u64 {
    u64::from_le_bytes(value.try_into().unwrap())
}

fn total(rows: impl Iterator<Item = Result<(tantalum::Value, tantalum::Value)>>) -> Result<u64> {
    rows.map(|row| Ok(balance(&row?.1))).sum()
}

/// Transfers, and readers that must always see the same total: by scans, by single reads, and in snapshots.
fn bank(seed: u64, devices: Devices, isolation: Isolation, early_lock_release: bool) {
    let db = builder().expert(|expert| expert.early_lock_release(early_lock_release)).open_on(devices.clone()).unwrap();
    let table = db.table("accounts").unwrap();
    let mut tx = db.begin().unwrap();
    for account in 0..ACCOUNTS {
        tx.put(&table, [account], 100u64.to_le_bytes()).unwrap();
    }
    tx.commit().unwrap();
    let client = |number: u64, f: fn(&Db, &Table, Isolation, &mut Random)| {
        let (db, table, mut random) = (db.clone(), table.clone(), Random::with_seed(seed * 100 + number));
        spawn(format!("client-{number}"), move || (0..8).for_each(|_| f(&db, &table, isolation, &mut random)))
    };
    join(vec![
        client(0, transfer),
        client(1, transfer),
        client(2, transfer),
        client(3, |db, table, isolation, _| {
            assert_eq!(transact(db, isolation, |tx| total(tx.range(table, ..)?)), TOTAL);
        }),
        client(4, |db, table, _, random| {
            let snapshot = db.snapshot().unwrap();
            assert_eq!(total(snapshot.range(table, ..).unwrap()).unwrap(), TOTAL);
            sleep(std::time::Duration::from_micros(random.u64(0..500)));
            let backwards = total(snapshot.range(table, ..).unwrap().rev()).unwrap();
            assert_eq!(backwards, TOTAL, "a snapshot does not change");
        }),
    ]);
    check(&db);
    assert_eq!(total(db.snapshot().unwrap().range(&table, ..).unwrap()).unwrap(), TOTAL);
    let stats = db.stats().unwrap().transactions;
    assert_eq!((stats.snapshots, stats.versions), (0, 0), "nothing is kept for snapshots that are gone");
    let before = rows(&db.snapshot().unwrap(), &table);
    db.close().unwrap();
    let db = builder().open_on(devices).unwrap();
    assert_eq!(rows(&db.snapshot().unwrap(), &db.table("accounts").unwrap()), before);
}

fn transfer(db: &Db, table: &Table, isolation: Isolation, random: &mut Random) {
    let (from, to, amount) = (random.u8(0..ACCOUNTS), random.u8(0..ACCOUNTS), random.u64(1..30));
    let locks_first = random.bool();
    transact(db, isolation, |tx| {
        let read = |tx: &mut Transaction, account: u8| {
            let value = if locks_first { tx.get_for_update(table, [account]) } else { tx.get(table, [account]) };
            // An account without money has no row.
            Ok::<u64, Error>(value?.map_or(0, |value| balance(&value)))
        };
        let before = read(tx, from)?;
        if from == to || before < amount {
            return Ok(());
        }
        if before == amount {
            assert!(tx.delete(table, [from])?);
        } else {
            tx.put(table, [from], (before - amount).to_le_bytes())?;
        }
        let before = read(tx, to)?;
        tx.put(table, [to], (before + amount).to_le_bytes())
    });
}

#[test]
fn transfers_keep_the_total() {
    simulate(0..12, |seed, devices| bank(seed, devices, Isolation::Serializable, true));
}

#[test]
fn transfers_keep_the_total_with_late_lock_release() {
    simulate(100..108, |seed, devices| bank(seed, devices, Isolation::Serializable, false));
}

#[test]
fn transfers_keep_the_total_under_snapshot_isolation() {
    simulate(200..212, |seed, devices| bank(seed, devices, Isolation::SnapshotIsolation, true));
}

/// Each client inserts a row if it counts fewer than four. No phantom must let a fifth in.
#[test]
fn no_row_appears_in_a_range_that_was_read() {
    simulate(0..15, |seed, devices| {
        let db = builder().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", ""), ("z", "")]);
        join(
            (0..6u8)
                .map(|number| {
                    let (db, table, mut random) =
                        (db.clone(), table.clone(), Random::with_seed(seed * 10 + u64::from(number)));
                    spawn(format!("client-{number}"), move || {
                        let (key, backwards) = ([b'm', random.u8(..), number], random.bool());
                        transact(&db, Isolation::Serializable, |tx| {
                            let range = tx.range(&table, "b".."y")?;
                            let rows: Result<Vec<_>> = if backwards { range.rev().collect() } else { range.collect() };
                            if rows?.len() < 4 { tx.insert(&table, key, "") } else { Ok(()) }
                        });
                    })
                })
                .collect(),
        );
        assert_eq!(db.snapshot().unwrap().range(&table, "b".."y").unwrap().count(), 4);
        check(&db);
    });
}

/// Two write what the other has read: one of them must see it.
#[test]
fn write_skew_is_possible_only_under_snapshot_isolation() {
    let skews = Arc::new(Mutex::new([0; 2]));
    for (kind, isolation) in [Isolation::Serializable, Isolation::SnapshotIsolation].into_iter().enumerate() {
        let skews = Arc::clone(&skews);
        simulate(0..15, move |_, devices| {
            let db = builder().open_on(devices).unwrap();
            let table = db.table("on-call").unwrap();
            put(&db, &table, &[("alice", "on"), ("bob", "on")]);
            join(
                [("alice", "bob"), ("bob", "alice")]
                    .map(|(own, other)| {
                        let (db, table) = (db.clone(), table.clone());
                        spawn(own, move || {
                            transact(&db, isolation, |tx| {
                                if tx.get(&table, other)?.is_some_and(|state| state == b"on") {
                                    tx.put(&table, own, "off")?;
                                }
                                Ok(())
                            });
                        })
                    })
                    .into(),
            );
            let off = ["alice", "bob"].into_iter().filter(|name| get(&db, &table, name).unwrap() == b"off").count();
            skews.lock()[kind] += usize::from(off == 2);
        });
    }
    let skews = *skews.lock();
    assert_eq!(skews[0], 0);
    assert!(skews[1] > 0, "the schedules are such that it happens");
}

#[test]
fn a_deadlock_costs_the_youngest_and_is_found_at_once() {
    simulate(0..20, |_, devices| {
        let db = builder().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let (mut old, mut young) = (db.begin().unwrap(), db.begin().unwrap());
        old.put(&table, "a", "old").unwrap();
        young.put(&table, "b", "young").unwrap();
        let waits = spawn("old", {
            let table = table.clone();
            move || {
                old.put(&table, "b", "old").unwrap();
                old.commit().unwrap();
            }
        });
        sleep(std::time::Duration::from_millis(1));
        let before = tantalum_rt::now();
        let error = young.put(&table, "a", "young").unwrap_err();
        assert!(error.kind() == ErrorKind::Deadlock, "{error}");
        assert!(before.elapsed().as_millis() < 100);
        assert!(matches!(young.put(&table, "c", ""), Err(error) if error.kind() == ErrorKind::Aborted));
        waits.join().unwrap();
        drop(young);
        assert_eq!(get(&db, &table, "b").unwrap(), b"old");
        assert_eq!(db.stats().unwrap().transactions.deadlocks, 1);
    });
}

#[test]
fn a_lock_is_waited_for_only_so_long() {
    simulate(0..5, |_, devices| {
        let db = builder().lock_timeout(std::time::Duration::from_millis(50)).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let mut holder = db.begin().unwrap();
        holder.put(&table, "a", "1").unwrap();
        let waiter = db.begin().unwrap();
        let error = waiter.get(&table, "a").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LockTimeout, "{error}");
        let (_, holders) =
            error.to_string().split_once("held by transactions [").map(|(a, b)| (a.to_owned(), b.to_owned())).unwrap();
        assert!(!holders.split_once(']').unwrap().0.contains(','), "there is one: {error}");
        holder.commit().unwrap();
    });
}

#[test]
fn the_first_committer_wins_under_snapshot_isolation() {
    simulate(0..10, |_, devices| {
        let db = builder().isolation(Isolation::SnapshotIsolation).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "0")]);
        let (mut first, mut second) = (db.begin().unwrap(), db.begin().unwrap());
        first.put(&table, "a", "1").unwrap();
        first.commit().unwrap();
        assert_eq!(second.get(&table, "a").unwrap().unwrap(), b"0", "it reads as of its beginning");
        let error = second.put(&table, "a", "2").unwrap_err();
        assert!(error.kind() == ErrorKind::WriteConflict && error.is_retryable());
        drop(second);
        assert_eq!(get(&db, &table, "a").unwrap(), b"1");
    });
}

/// What a range lends, now from one end and now from the other.
fn lent_from_both_ends(mut range: RangeIter<'_>, random: &mut Random) -> Rows {
    let (mut front, mut back) = (Rows::new(), Rows::new());
    loop {
        let (row, rows) = match random.bool() {
            true => (range.next_borrowed(), &mut front),
            false => (range.next_back_borrowed(), &mut back),
        };
        let Some(row) = row else { break };
        let (key, value) = row.unwrap();
        rows.push((key.into(), value.into()));
    }
    back.reverse();
    [front, back].concat()
}

/// What is read is durable, and nothing else is waited for.
#[test]
fn a_read_waits_only_until_what_it_shows_is_durable() {
    let read = |way: usize, db: &Db, table: &Table, key: [u8; 2]| match way {
        0 => db.get(table, key).unwrap(),
        1 => db.snapshot().unwrap().get(table, key).unwrap(),
        _ => {
            let snapshot = db.snapshot().unwrap();
            let row = snapshot.range(table, key..).unwrap().next().unwrap().unwrap();
            assert_eq!(row.0, key);
            Some(row.1)
        }
    };
    simulate(0..8, move |_, devices| {
        let db = builder().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        for first in (0..200u16).step_by(50) {
            let mut tx = db.begin().unwrap();
            (first..first + 50).for_each(|key| tx.put(&table, key.to_be_bytes(), [0; 100]).unwrap());
            tx.commit().unwrap();
        }
        for way in 0..3 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, 0u16.to_be_bytes(), [1 + way as u8]).unwrap();
            let ticket = tx.commit_async().unwrap();
            let begun = now();
            assert_eq!(read(way, &db, &table, 199u16.to_be_bytes()).unwrap(), [0; 100]);
            assert!(now() == begun && ticket.try_wait().is_none(), "way {way} waited for another leaf");
            assert_eq!(read(way, &db, &table, 0u16.to_be_bytes()).unwrap(), [1 + way as u8]);
            assert!(
                ticket.try_wait().is_some_and(|done| done.unwrap().position() == ticket.position()),
                "way {way} showed what could still be lost"
            );
        }
    });
}

/// A snapshot stays what it was while rows, also large ones, are written, deleted, split and merged around it.
#[test]
fn snapshots_are_stable() {
    simulate(0..8, |seed, devices| {
        let db = builder().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let mut random = Random::with_seed(seed);
        let mut write = |rounds| {
            for _ in 0..rounds {
                let mut tx = db.begin().unwrap();
                for _ in 0..8 {
                    let key = vec![random.u8(0..40); random.usize(1..12)];
                    if random.u8(0..3) == 0 {
                        tx.delete(&table, key).unwrap();
                    } else {
                        tx.put(&table, key, vec![random.u8(..); random.usize(0..1500)]).unwrap();
                    }
                }
                tx.commit().unwrap();
            }
        };
        write(10);
        let snapshots: Vec<_> = (0..4)
            .map(|_| {
                let snapshot = db.snapshot().unwrap();
                let seen = rows(&snapshot, &table);
                write(10);
                (snapshot, seen)
            })
            .collect();
        for (snapshot, seen) in snapshots {
            assert!(rows(&snapshot, &table) == seen);
            let mut backwards = snapshot.range(&table, ..).unwrap().rev().collect::<Result<Vec<_>>>().unwrap();
            backwards.reverse();
            assert!(backwards == seen);
            assert!(lent_from_both_ends(snapshot.range(&table, ..).unwrap(), &mut random) == seen);
            for (key, value) in seen {
                assert_eq!(snapshot.get(&table, &key).unwrap(), Some(value));
            }
        }
        check(&db);
        assert_eq!(db.stats().unwrap().transactions.versions, 0);
    });
}

/// Such a read does not keep the table from being dropped, not even while it waits for the table's pages.
#[test]
fn a_read_without_a_transaction_beside_a_drop_sees_the_table_or_that_it_is_dropped() {
    simulate(0..40, |seed, devices| {
        let us = std::time::Duration::from_micros;
        let profile = MemoryProfile { read_latency: us(500)..us(900), seed, ..MemoryProfile::default() };
        let data = MemoryDevice::with_profile("data", 4 << 20, profile);
        let db = Db::builder().buffer_pool_bytes(160 * 4096).open_on(Devices { data, ..devices }).unwrap();
        let rows: Vec<_> = (0..400).map(|number| (format!("{number:04}"), "x".repeat(900))).collect();
        // What was written last is in the pool.
        for name in ["dropped", "other", "another"] {
            let table = db.table(name).unwrap();
            for rows in rows.chunks(20) {
                put(&db, &table, &rows.iter().map(|(key, value)| (&key[..], &value[..])).collect::<Vec<_>>());
            }
        }
        let table = db.table("dropped").unwrap();
        let reader = {
            let (db, key) = (db.clone(), rows[rows.len() - 1 - seed as usize].0.clone());
            spawn("reader", move || {
                let read = db.get(&table, key);
                assert!(
                    read.as_ref().map_or_else(|error| error.kind() == ErrorKind::NotFound, Option::is_some),
                    "{read:?}"
                );
            })
        };
        sleep(us(10));
        db.drop_table("dropped").unwrap();
        join(vec![reader]);
        check(&db);
    });
}
