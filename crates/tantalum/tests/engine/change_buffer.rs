//! Change buffers: writes whose leaves are not in memory wait for no read of them, and are moved to their tables later. To all readers
//! it is as if they were there.

use std::time::Duration;

use tantalum::{Builder, Db, Devices, ErrorKind, Isolation, Table, Transaction};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::support::{Model, check, committed, cut_power_after, simulate, slow_devices_of, small, wait_until_applied};

/// The table has several times as many leaves as the pool has frames.
const KEYS: u32 = 4000;

fn key(number: u32) -> Vec<u8> {
    format!("{number:05}").into_bytes()
}

fn value(of: u32) -> Vec<u8> {
    let mut value = of.to_string().into_bytes();
    value.resize(200, b'.');
    value
}

fn devices(seed: u64) -> Devices {
    slow_devices_of(seed, 16 << 20)
}

fn builder() -> Builder {
    small().lock_timeout(Duration::from_secs(60))
}

/// A table whose rows are not in memory but for a few, and no writes deferred yet.
fn filled(db: &Db) -> (Table, Model) {
    let table = db.table("t").unwrap();
    let model: Model = (0..KEYS).map(|number| (key(number), value(0))).collect();
    db.bulk_load("t", &model).unwrap();
    (table, model)
}

fn deferred(db: &Db) -> u64 {
    db.stats().unwrap().transactions.deferred_writes
}

/// Runs `f` on a filled table.
fn on_filled(seeds: std::ops::Range<u64>, f: impl Fn(u64, &Db, &Table, Model) + Clone + 'static) {
    simulate(seeds, move |seed, _| {
        let db = builder().open_on(devices(seed)).unwrap();
        let (table, model) = filled(&db);
        f(seed, &db, &table, model);
        db.close().unwrap();
    });
}

#[test]
fn deferred_writes_are_read_as_if_they_were_in_their_leaves() {
    on_filled(0..4, |seed, db, table, mut model| {
        let mut random = Random::with_seed(seed);
        for round in 0..150 {
            let mut tx = db.begin().unwrap();
            for _ in 0..random.u32(1..4) {
                let key = key(random.u32(0..KEYS + 200));
                match random.u8(0..4) {
                    0 => {
                        tx.blind_delete(table, &key).unwrap();
                        model.remove(&key);
                    }
                    _ => {
                        tx.put(table, &key, value(round)).unwrap();
                        model.insert(key, value(round));
                    }
                }
            }
            tx.commit().unwrap();
            let key = key(random.u32(0..KEYS + 200));
            assert_eq!(db.get(table, &key).unwrap().as_deref(), model.get(&key).map(|value| &value[..]));
        }
        assert!(deferred(db) > 100, "{} writes were deferred", deferred(db));
        let tx = db.begin().unwrap();
        let backwards: Vec<_> = tx.range(table, ..).unwrap().rev().map(|row| row.unwrap().0.to_vec()).collect();
        assert!(backwards.iter().eq(model.keys().rev()));
        drop(tx);
        assert!(committed(db, table) == model);
        wait_until_applied(db);
        let stats = db.stats().unwrap().transactions;
        assert!(stats.rows_moved > 0 && stats.change_buffer_bytes == 0, "{stats:?}");
        assert!(committed(db, table) == model);
        check(db);
    });
}

/// Clients with keys of their own write beside a client whose transactions are staged, snapshots, and the applier.
#[test]
fn deferred_writes_keep_their_order_beside_large_transactions_and_snapshots() {
    simulate(10..22, |seed, _| {
        let db = builder().transaction_memory_bytes(16 << 10).open_on(devices(seed)).unwrap();
        let (table, model) = filled(&db);
        let clients = (0..4).map(|client| {
            let (db, table, model) = (db.clone(), table.clone(), model.clone());
            spawn(format!("client-{client}"), move || {
                let mut mine: Model = model.into_iter().filter(|(key, _)| client_of(key) == client).collect();
                let mut random = Random::with_seed(16 * seed + u64::from(client));
                for round in 1..25 {
                    let isolation = match random.u8(0..4) {
                        0 => Isolation::SnapshotIsolation,
                        _ => Isolation::Serializable,
                    };
                    let mut tx = db.begin_with(isolation).unwrap();
                    let rows = if random.u8(0..8) == 0 { 100 } else { random.u32(1..6) };
                    for _ in 0..rows {
                        let key = key(4 * random.u32(0..KEYS / 4) + client);
                        if random.u8(0..5) == 0 {
                            tx.blind_delete(&table, &key).unwrap();
                            mine.remove(&key);
                        } else {
                            tx.put(&table, &key, value(round)).unwrap();
                            mine.insert(key, value(round));
                        }
                    }
                    tx.commit().unwrap();
                    if random.u8(0..6) == 0 {
                        assert!(rows_of(&db, &table, client) == mine, "of client {client}");
                    }
                }
                mine
            })
        });
        let clients: Vec<_> = clients.collect();
        let model: Model = clients.into_iter().flat_map(|client| client.join().unwrap()).collect();
        let stats = db.stats().unwrap().transactions;
        assert!(stats.deferred_writes > 0 && stats.staged_commits > 0, "{stats:?}");
        assert!(committed(&db, &table) == model);
        wait_until_applied(&db);
        assert!(committed(&db, &table) == model);
        check(&db);
        db.close().unwrap();
    });
}

fn client_of(key: &[u8]) -> u32 {
    std::str::from_utf8(key).unwrap().parse::<u32>().unwrap() % 4
}

fn rows_of(db: &Db, table: &Table, client: u32) -> Model {
    committed(db, table).into_iter().filter(|(key, _)| client_of(key) == client).collect()
}

#[test]
fn while_a_snapshot_is_alive_no_write_is_deferred_and_it_sees_what_it_saw() {
    on_filled(30..32, |_, db, table, model| {
        let put = |number, of| db.put(table, key(number), value(of)).unwrap();
        (0..KEYS).step_by(100).for_each(|number| put(number, 1));
        let before = deferred(db);
        assert!(before > 10, "{before}");
        let snapshot = db.snapshot().unwrap();
        // Some of these are staged, and replaced in their leaves.
        (0..KEYS).step_by(50).for_each(|number| put(number, 2));
        assert_eq!(deferred(db), before);
        let of = |number: u32| if number.is_multiple_of(100) { value(1) } else { value(0) };
        let seen = |number| snapshot.get(table, key(number)).unwrap().unwrap().to_vec();
        assert!((0..KEYS).step_by(50).all(|number| seen(number) == of(number)));
        wait_until_applied(db);
        assert!((0..KEYS).step_by(50).all(|number| seen(number) == of(number)));
        drop(snapshot);
        let rows = committed(db, table);
        assert_eq!(rows.len(), model.len());
        assert!((0..KEYS).step_by(50).all(|number| rows[&key(number)] == value(2)));
    });
}

#[test]
fn a_transaction_that_began_before_a_deferred_write_does_not_overwrite_it_under_snapshot_isolation() {
    on_filled(33..35, |_, db, table, _| {
        (0..KEYS).step_by(100).for_each(|number| db.put(table, key(number), value(1)).unwrap());
        let mut late: Transaction = db.begin_with(Isolation::SnapshotIsolation).unwrap();
        db.put(table, key(700), value(2)).unwrap();
        let error = late.put(table, key(700), value(3)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WriteConflict);
        drop(late);
        let mut next = db.begin_with(Isolation::SnapshotIsolation).unwrap();
        next.put(table, key(800), value(3)).unwrap();
        next.commit().unwrap();
        assert_eq!(*db.get(table, key(800)).unwrap().unwrap(), *value(3));
        assert_eq!(*db.get(table, key(700)).unwrap().unwrap(), *value(2));
    });
}

/// While some writes are deferred each second, but few of all.
#[test]
fn buffers_that_few_writes_go_to_are_moved() {
    on_filled(61..63, |_, db, table, mut model| {
        let mut put = |number: u32, of: u32| {
            db.put(table, key(number), value(of)).unwrap();
            model.insert(key(number), value(of));
        };
        (0..KEYS).step_by(200).for_each(|number| put(number, 1));
        let (first, stats) = (deferred(db), || db.stats().unwrap().transactions);
        assert!(first > 5 && stats().rows_moved == 0, "{first}");
        for round in 2..22 {
            // Beside one that is deferred, many that go to one leaf, which is in memory.
            put(100 * round + 50, round);
            db.get(table, key(KEYS - 2)).unwrap();
            (0..40).for_each(|of| put(KEYS - 1, of));
            sleep(Duration::from_millis(150));
        }
        assert!(deferred(db) > first + 10, "{} writes were deferred", deferred(db));
        assert!(stats().rows_moved > first, "{:?}", stats());
        assert!(committed(db, table) == model);
    });
}

#[test]
fn writes_are_deferred_only_where_rows_share_leaves_later() {
    // The table has about 220 leaves. Buffers are moved with so many rows that 1.2 of them come to a leaf, or that many do.
    for (change_buffer_bytes, is_deferred) in [(32 << 10, false), (512 << 10, true)] {
        simulate(63..65, move |seed, _| {
            let db = builder().expert(|expert| expert.change_buffer_bytes(change_buffer_bytes));
            let db = db.open_on(devices(seed)).unwrap();
            let (table, mut model) = filled(&db);
            let mut random = Random::with_seed(seed);
            let mut put = |of| {
                let number = random.u32(0..KEYS);
                db.put(&table, key(number), value(of)).unwrap();
                model.insert(key(number), value(of));
            };
            (0..500).for_each(&mut put);
            let (first, at) = (deferred(&db), tantalum_rt::now());
            assert!(first > 20, "{first}");
            (500..1000).for_each(&mut put);
            let later = deferred(&db) - first;
            assert_eq!(later > 200, is_deferred, "{first}, then {later} of 500 writes in {:?}", at.elapsed());
            assert!(is_deferred || later == 0, "{later}");
            assert!(committed(&db, &table) == model);
            db.close().unwrap();
        });
    }
}

/// Keys that are written again and again, so that several of the buffers that wait have a row of each.
#[test]
fn of_the_rows_of_a_key_in_several_buffers_the_newest_is_moved() {
    simulate(65..67, |seed, _| {
        let db = builder().expert(|expert| expert.change_buffer_bytes(512 << 10)).open_on(devices(seed)).unwrap();
        let (table, mut model) = filled(&db);
        let mut random = Random::with_seed(seed);
        let mut most_waiting = 0;
        for of in 1..4000 {
            let key = key(10 * random.u32(0..KEYS / 10));
            db.put(&table, &key, value(of)).unwrap();
            model.insert(key, value(of));
            most_waiting = most_waiting.max(db.stats().unwrap().transactions.staging_tables);
        }
        assert!(most_waiting > 3, "{most_waiting} buffers waited at the same time");
        wait_until_applied(&db);
        assert!(db.stats().unwrap().transactions.rows_moved > 100);
        assert!(committed(&db, &table) == model);
        db.close().unwrap();
    });
}

/// Three writers of rows in key order, as a table is loaded: each comes to a leaf many times, one after the other.
#[test]
fn of_rows_written_in_key_order_few_are_deferred() {
    on_filled(40..42, |_, db, table, _| {
        const PART: u32 = KEYS / 3;
        for number in 0..PART {
            (0..3).for_each(|part| db.put(table, key(part * PART + number), value(1)).unwrap());
        }
        let deferred = deferred(db);
        assert!((1..u64::from(KEYS) / 8).contains(&deferred), "{deferred} of {KEYS}");
    });
}

#[test]
fn rows_that_were_read_are_not_deferred_where_few_share_a_leaf() {
    on_filled(42..44, |seed, db, table, _| {
        let mut random = Random::with_seed(seed);
        let mut write = |reads: bool| {
            for _ in 0..100 {
                let mut tx = db.begin().unwrap();
                let key = key(random.u32(0..KEYS));
                if reads {
                    tx.get_for_update(table, &key).unwrap();
                }
                tx.put(table, &key, value(1)).unwrap();
                tx.commit().unwrap();
            }
            deferred(db)
        };
        assert_eq!(write(true), 0);
        let blind = write(false);
        assert!(blind > 50, "{blind} of 100");
        assert_eq!(write(true), blind);
    });
}

#[test]
fn a_table_with_a_change_buffer_is_dropped_with_it() {
    on_filled(36..38, |_, db, table, _| {
        (0..KEYS).step_by(20).for_each(|number| db.put(table, key(number), value(1)).unwrap());
        assert!(deferred(db) > 0);
        db.drop_table("t").unwrap();
        wait_until_applied(db);
        let report = db.check().unwrap();
        assert_eq!((report.staging_tables, report.tables.len(), report.is_sound()), (0, 0, true), "{report:?}");
    });
}

#[test]
fn nothing_is_deferred_without_change_buffers() {
    simulate(38..39, |seed, _| {
        let db = builder().expert(|expert| expert.change_buffer_bytes(0)).open_on(devices(seed)).unwrap();
        let (table, _) = filled(&db);
        (0..KEYS).step_by(20).for_each(|number| db.put(&table, key(number), value(1)).unwrap());
        assert_eq!(deferred(&db), 0);
        db.close().unwrap();
    });
}

/// All keys, in an order that comes to another leaf nearly each time.
fn scattered() -> Vec<u32> {
    let mut random = Random::with_seed(1);
    let mut numbers: Vec<u32> = (0..KEYS).collect();
    numbers.sort_by_cached_key(|_| random.u32(..));
    numbers
}

/// Deferred writes survive a crash, in the buffer or on their way out of it, and are moved after it.
#[test]
fn deferred_writes_survive_a_crash() {
    let (mut cut, mut staged) = (0, 0);
    for seed in 40..60 {
        let devices = devices(seed);
        let run = {
            let devices = devices.clone();
            move || {
                let db = builder().open_on(devices).unwrap();
                let (table, _) = filled(&db);
                cut_power_after(Duration::from_millis(5 + 40 * (seed - 40)));
                for number in scattered().into_iter().cycle() {
                    db.put(&table, key(number), value(1)).unwrap();
                }
            }
        };
        cut += u32::from(matches!(Simulation::new(seed).run(run), Outcome::PowerCut { .. }));
        let recovered = Simulation::new(seed).run(move || {
            let db = builder().open_on(devices).unwrap();
            let staged = db.stats().unwrap().transactions.staging_tables;
            let table = db.open_table("t").unwrap();
            let before = committed(&db, &table);
            assert_eq!(before.len(), KEYS as usize);
            // The writes that there are were the first.
            let is_written: Vec<bool> = scattered().iter().map(|number| before[&key(*number)] == value(1)).collect();
            assert!(is_written.is_sorted_by(|earlier, later| earlier >= later));
            wait_until_applied(&db);
            assert!(committed(&db, &table) == before);
            check(&db);
            sleep(Duration::from_millis(1));
            db.close().unwrap();
            staged
        });
        staged += u32::from(recovered.expect_finished() > 0);
    }
    assert!(cut > 10 && staged > 3, "{cut} crashes, after {staged} of them rows were staged");
}
