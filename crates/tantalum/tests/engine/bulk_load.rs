//! Rows in key order become the contents of an empty table, all at once or not at all.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tantalum::{Builder, BulkLoadReport, Db, Devices, ErrorKind, Isolation, StoreKind, Table, TornPageProtection};
use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::support::{
    self, Model, check, committed, cut_power_after, on_store, rows, simulate_stores, small, wait_until_applied,
};

/// Random rows: mostly small ones, some large values, keys of all lengths.
fn some_rows(seed: u64, count: usize) -> Model {
    let mut random = Random::with_seed(seed);
    (0..count)
        .map(|_| {
            let length = if random.u8(..8) == 0 { 0..300 } else { 1..9 };
            let key = (0..random.usize(length)).map(|_| random.u8(..4)).collect();
            let value = match random.u8(..30) {
                0 => random.usize(1000..20_000),
                1..4 => 0,
                _ => random.usize(1..300),
            };
            (key, vec![random.u8(..); value])
        })
        .collect()
}

fn load(db: &Db, name: &str, model: &Model) -> BulkLoadReport {
    let report = db.bulk_load(name, model).unwrap();
    assert_eq!(report.rows, model.len() as u64);
    assert_eq!(report.row_bytes, model.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>());
    report
}

/// Numbered rows.
fn numbers(range: std::ops::Range<u32>) -> impl Iterator<Item = ([u8; 4], [u8; 100])> {
    range.map(|number| (number.to_be_bytes(), [number as u8; 100]))
}

/// The rows are there, can be changed as any, and are found again.
fn loads_and_goes_on(db: Db, reopen: impl Fn() -> Db, seed: u64, builds: bool) {
    let mut model = some_rows(seed, 3000);
    let table = db.table("rows").unwrap();
    let report = load(&db, "rows", &model);
    assert_eq!(report.pages > 0, builds, "{report:?}");
    check(&db);
    assert_eq!(committed(&db, &table), model);
    let mut random = Random::with_seed(seed);
    for _ in 0..300 {
        let mut tx = db.begin().unwrap();
        for (key, value) in some_rows(random.u64(..), 3) {
            if random.bool() {
                tx.put(&table, &key, &value).unwrap();
                model.insert(key, value);
            } else if let Some((key, _)) = model.range(key..).next().map(|(key, value)| (key.clone(), value.clone())) {
                assert!(tx.delete(&table, &key).unwrap());
                model.remove(&key);
            }
        }
        tx.commit().unwrap();
    }
    wait_until_applied(&db);
    check(&db);
    assert_eq!(committed(&db, &table), model);
    db.close().unwrap();
    let db = reopen();
    check(&db);
    assert_eq!(committed(&db, &db.table("rows").unwrap()), model);
}

#[test]
fn a_loaded_table_is_one_like_any_other() {
    for (seed, page_bytes) in [(1, 4096), (2, 8192), (3, 16384), (4, 4096)] {
        let dir = tempfile::tempdir().unwrap();
        let open =
            || small().page_size(page_bytes).buffer_pool_bytes(64 * u64::from(page_bytes)).open(dir.path()).unwrap();
        loads_and_goes_on(open(), open, seed, true);
    }
}

#[test]
fn every_store_loads() {
    for store in [StoreKind::InPlace, StoreKind::LogStructured, StoreKind::InPageLogging] {
        let dir = tempfile::tempdir().unwrap();
        let open = || on_store(store).log_bytes(8 << 20).open(dir.path()).unwrap();
        loads_and_goes_on(open(), open, 5, store != StoreKind::InPageLogging);
    }
}

#[test]
fn with_an_archive_the_log_has_all_rows() {
    let dir = tempfile::tempdir().unwrap();
    let open = || small().log_archive(dir.path().join("archive")).open(dir.path().join("db")).unwrap();
    loads_and_goes_on(open(), open, 6, false);
}

/// No leaf but the last has room for a row that follows.
#[test]
fn pages_are_full_and_written_once() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let before = db.stats().unwrap();
    let report = db.bulk_load("rows", numbers(0..50_000)).unwrap();
    let after = db.stats().unwrap();
    let found = db.check().unwrap();
    assert!(found.is_sound(), "{:?}", found.problems());
    assert!(found.tables[0].fill > 0.95 && found.tables[0].height == 3, "{:?}", found.tables[0]);
    assert_eq!((found.tables[0].rows, found.tables[0].pages), (50_000, report.pages + 1));
    let logged = after.log.end_lsn.bytes_since(before.log.end_lsn);
    assert!(logged < 20_000, "{logged} bytes were logged");
    let stored = after.store.pages_stored - before.store.pages_stored;
    assert!((report.pages..report.pages + 20).contains(&stored), "{stored} pages were stored, {} built", report.pages);
    assert_eq!(after.transactions.bulk_loads, 1);
}

#[test]
fn few_rows_or_none_are_one_page() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    for (name, count) in [("none", 0), ("one", 1), ("some", 20)] {
        let report = db.bulk_load(name, numbers(0..count)).unwrap();
        assert_eq!((report.rows, report.pages), (count.into(), 0));
        assert_eq!(committed(&db, &db.table(name).unwrap()).len(), count as usize);
    }
    // A table stays empty after an empty load, so it can be loaded again.
    assert_eq!(db.bulk_load("none", numbers(0..3)).unwrap().rows, 3);
    check(&db);
}

#[test]
fn rows_out_of_order_are_named_and_nothing_remains() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    db.table("rows").unwrap();
    let used = db.check().unwrap().pages_used;
    for (wrong, named) in [(5u32, "\\x00\\x00\\x00\\x05"), (9_999, "\\x00\\x00\\'\\x0f")] {
        let error = db.bulk_load("rows", numbers(0..10_000).chain(numbers(wrong..wrong + 1))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        let what = error.to_string();
        assert!(what.contains("row 10001") && what.contains(named) && what.contains("\\x00\\x00\\'\\x0f"), "{what}");
        assert!(committed(&db, &db.table("rows").unwrap()).is_empty());
        assert_eq!(db.check().unwrap().pages_used, used);
    }
    let mut load = db.begin_bulk_load("rows").unwrap();
    load.add("b", "1").unwrap();
    assert_eq!(load.add("b", "2").unwrap_err().kind(), ErrorKind::InvalidInput);
    assert_eq!(load.add("c", "3").unwrap_err().kind(), ErrorKind::Aborted, "it is over");
    assert_eq!(load.finish().unwrap_err().kind(), ErrorKind::Aborted);
    assert_eq!(db.begin_bulk_load("rows").unwrap().add([0; 513], "").unwrap_err().kind(), ErrorKind::TooLarge);
    // Given up without an error.
    let mut load = db.begin_bulk_load("rows").unwrap();
    numbers(0..5000).for_each(|(key, value)| load.add(key, value).unwrap());
    drop(load);
    assert_eq!(db.check().unwrap().pages_used, used);
    assert_eq!(db.bulk_load("rows", numbers(0..100)).unwrap().rows, 100);
    check(&db);
}

#[test]
fn tables_with_rows_are_refused() {
    for archived in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let builder = if archived { small().log_archive(dir.path().join("archive")) } else { small() };
        let db = builder.open(dir.path().join("db")).unwrap();
        let table = db.table("rows").unwrap();
        support::put(&db, &table, &[("key", "value")]);
        let error = db.bulk_load("rows", numbers(0..10)).unwrap_err();
        assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("has rows"), "{error}");
        // One that has become empty is as good as new, however high its tree is.
        let mut tx = db.begin().unwrap();
        numbers(0..500).for_each(|(key, value)| tx.put(&table, key, value).unwrap());
        tx.put(&table, "large", [1; 50_000]).unwrap();
        tx.commit().unwrap();
        let mut tx = db.begin().unwrap();
        let keys: Vec<_> = tx.range(&table, ..).unwrap().map(|row| row.unwrap().0).collect();
        keys.iter().for_each(|key| assert!(tx.delete(&table, key).unwrap()));
        tx.commit().unwrap();
        assert_eq!(load(&db, "rows", &some_rows(7, 500)).rows, some_rows(7, 500).len() as u64);
        assert_eq!(committed(&db, &table), some_rows(7, 500));
        check(&db);
    }
}

#[test]
fn a_table_in_use_is_refused_and_a_table_being_loaded_is_in_use() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let table = db.table("rows").unwrap();
    let in_use = |result: tantalum::Result<()>| assert_eq!(result.unwrap_err().kind(), ErrorKind::InUse);
    let tx = db.begin().unwrap();
    assert_eq!(tx.get(&table, "a").unwrap(), None);
    in_use(db.begin_bulk_load("rows").map(drop));
    drop(tx);
    let snapshot = db.snapshot().unwrap();
    let mut load = db.begin_bulk_load("rows").unwrap();
    numbers(0..1000).for_each(|(key, value)| load.add(key, value).unwrap());
    in_use(snapshot.get(&table, "a").map(drop));
    in_use(db.begin().unwrap().put(&table, "a", "b"));
    in_use(db.drop_table("rows"));
    in_use(db.begin_bulk_load("rows").map(drop));
    assert_eq!(db.get(&table, 7u32.to_be_bytes()).unwrap(), None);
    // Others are not concerned, nor is what reads all tables' pages.
    support::put(&db, &db.table("others").unwrap(), &[("a", "b")]);
    check(&db);
    db.compact(&mut |_| {}).unwrap();
    numbers(1000..20_000).for_each(|(key, value)| load.add(key, value).unwrap());
    load.finish().unwrap();
    assert_eq!(db.get(&table, 7u32.to_be_bytes()).unwrap().unwrap(), [7; 100]);
    check(&db);
    db.drop_table("rows").unwrap();
    check(&db);
    assert_eq!(db.bulk_load("rows", numbers(0..100)).unwrap().rows, 100);
    db.close().unwrap();
    let db = small().read_only(true).open(dir.path()).unwrap();
    assert_eq!(db.bulk_load("rows", numbers(0..1)).unwrap_err().kind(), ErrorKind::ReadOnly);
}

/// Whatever became of the rows since, and of rows that the table had before.
#[test]
fn earlier_snapshots_see_no_row_of_a_load() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let table = db.table("rows").unwrap();
    support::put(&db, &table, &[("\0\0\0\u{5}", "of old")]);
    let oldest = db.snapshot().unwrap();
    db.begin().and_then(|mut tx| tx.delete(&table, 5u32.to_be_bytes()).and_then(|_| tx.commit())).unwrap();
    let mut writer = db.begin_with(Isolation::SnapshotIsolation).unwrap();
    let empty = db.snapshot().unwrap();
    db.bulk_load("rows", numbers(0..2000)).unwrap();
    let loaded = db.snapshot().unwrap();
    let mut tx = db.begin().unwrap();
    for number in 0..1000u32 {
        tx.put(&table, number.to_be_bytes(), "new").unwrap();
    }
    tx.delete(&table, 1500u32.to_be_bytes()).unwrap();
    tx.commit().unwrap();
    for number in [0, 5, 1500, 1999u32] {
        let key = number.to_be_bytes();
        assert_eq!(empty.get(&table, key).unwrap(), None);
        assert_eq!(oldest.get(&table, key).unwrap().is_some(), number == 5);
        assert_eq!(loaded.get(&table, key).unwrap().unwrap(), [number as u8; 100]);
    }
    assert_eq!(rows(&empty, &table).len(), 0);
    assert_eq!(rows(&oldest, &table), [(5u32.to_be_bytes()[..].into(), b"of old"[..].into())]);
    assert!(rows(&loaded, &table).iter().map(|(_, value)| &value[..]).eq(numbers(0..2000).map(|(_, value)| value)));
    assert_eq!(committed(&db, &table).len(), 1999);
    // What began before does not overwrite what it cannot see.
    assert_eq!(writer.put(&table, 3u32.to_be_bytes(), "lost").unwrap_err().kind(), ErrorKind::WriteConflict);
}

/// A disk that fills up: the load fails, and leaves all space to others.
#[test]
fn a_full_disk_ends_a_load_and_nothing_else() {
    let run = || {
        let device = |name: &str, bytes| MemoryDevice::new(name, bytes);
        let data = device("data", 1 << 20);
        let devices = || Devices {
            data: data.clone(),
            double_write: Some(device("area", 1 << 20)),
            log: vec![device("log", 4 << 20)],
        };
        let db = small().open_on(devices()).unwrap();
        data.inject(Fault::NoSpaceOnGrow);
        for _ in 0..3 {
            let error = db.bulk_load("rows", numbers(0..100_000)).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StoreFull, "{error}");
        }
        assert_eq!(db.bulk_load("rows", numbers(0..5000)).unwrap().rows, 5000);
        support::put(&db, &db.table("others").unwrap(), &[("a", "b")]);
        check(&db);
        db.close().unwrap();
    };
    Simulation::new(1).run(run).expect_finished();
}

/// Closing the database ends a load, whose pages are written by nothing afterwards.
#[test]
fn closing_ends_a_load() {
    simulate_stores(0..12, |seed, store, devices| {
        let db = on_store(store).open_on(devices.clone()).unwrap();
        let load = spawn("load", {
            let db = db.clone();
            move || {
                let mut load = db.begin_bulk_load("rows")?;
                for number in 0u32.. {
                    load.add(number.to_be_bytes(), [1; 200])?;
                    if number % 50 == 0 {
                        sleep(Duration::from_micros(10));
                    }
                }
                load.finish()
            }
        });
        sleep(Duration::from_micros(100 + seed * 700));
        db.close().unwrap();
        let db = on_store(store).open_on(devices).unwrap();
        assert!(committed(&db, &db.table("rows").unwrap()).is_empty());
        assert_eq!(load.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        check(&db);
        db.close().unwrap();
    });
}

/// What a round of power cuts has loaded.
struct Loads {
    begun: AtomicU64,
    acknowledged: [AtomicBool; 16],
}

const ROWS: u32 = 1500;
/// Rows that are changed after a load, in most pages of it.
const CHANGED_EVERY: u32 = 14;

fn row(load: u64, number: u32) -> ([u8; 4], Vec<u8>) {
    let bytes = if number.is_multiple_of(500) { 3000 } else { 60 + (load as usize * 7 + number as usize) % 90 };
    (number.to_be_bytes(), vec![load as u8; bytes])
}

/// A load is there whole if it was acknowledged, and whole or not at all if it was not.
fn check_loads(db: &Db, loads: &Loads) {
    check(db);
    for load in 1..=loads.begun.load(SeqCst) {
        let found = committed(db, &db.table(&format!("load {load}")).unwrap());
        if found.is_empty() {
            assert!(!loads.acknowledged[load as usize].load(SeqCst), "load {load} was acknowledged and is gone");
            continue;
        }
        // Some rows were overwritten since, or not.
        assert_eq!(found.len(), ROWS as usize);
        let is_changed = |number: u32, value: &[u8]| value == b"changed" && number.is_multiple_of(CHANGED_EVERY);
        for (number, (key, value)) in (0..ROWS).zip(&found) {
            let expected = row(load, number);
            assert!(
                *key == expected.0 && (*value == expected.1 || is_changed(number, value)),
                "load {load}, row {number}"
            );
        }
    }
}

/// Loads, one after the other, beside a client that changes what was loaded, which takes pages of dropped tables too.
fn load_until_the_end(db: &Db, loads: &Arc<Loads>, life: u64) {
    let changer = |table: Table, db: Db| {
        spawn("changer", move || {
            for number in (0..ROWS).step_by(CHANGED_EVERY as usize) {
                let mut tx = db.begin().unwrap();
                tx.put(&table, number.to_be_bytes(), "changed").unwrap();
                tx.commit().unwrap();
            }
        })
    };
    let mut changers = Vec::new();
    for turn in 0..3 {
        let dropped = format!("dropped {life} {turn}");
        let table = db.table(&dropped).unwrap();
        let mut tx = db.begin().unwrap();
        numbers(0..600).for_each(|(key, value)| tx.put(&table, key, value).unwrap());
        tx.commit().unwrap();
        drop(table);
        db.drop_table(&dropped).unwrap();
        let load = loads.begun.fetch_add(1, SeqCst) + 1;
        let name = format!("load {load}");
        db.bulk_load(&name, (0..ROWS).map(|number| row(load, number))).unwrap();
        loads.acknowledged[load as usize].store(true, SeqCst);
        changers.push(changer(db.table(&name).unwrap(), db.clone()));
        if turn == 1 {
            db.checkpoint().unwrap();
        }
    }
    changers.into_iter().for_each(|changer| changer.join().unwrap());
}

fn search(seeds: std::ops::Range<u64>, builder: impl Fn() -> Builder + Clone + 'static, has_area: bool) {
    let mut acknowledged = 0;
    for seed in seeds {
        let mut random = Random::with_seed(seed);
        let device = |name: &str, bytes, salt| {
            let us = Duration::from_micros;
            let profile = MemoryProfile {
                write_latency: us(20)..us(200),
                flush_latency: us(20)..us(200),
                seed: seed * 16 + salt,
                ..MemoryProfile::default()
            };
            MemoryDevice::with_profile(name, bytes, profile)
        };
        // The file grows by the loads: their pages are new to it.
        let data_bytes = if has_area { 256 << 10 } else { 8 << 20 };
        let (data, area, log) = (device("data", data_bytes, 0), device("area", 1 << 20, 1), device("log", 4 << 20, 2));
        let loads = Arc::new(Loads { begun: AtomicU64::new(0), acknowledged: Default::default() });
        for life in 0..4u64 {
            let cut_at = (life < 3).then(|| Duration::from_micros(random.u64(1..120_000)));
            let double_write = has_area.then(|| area.clone() as Arc<dyn Device>);
            let devices = Devices { data: data.clone(), double_write, log: vec![log.clone()] };
            let (of_run, builder) = (Arc::clone(&loads), builder.clone());
            let run = move || {
                cut_at.into_iter().for_each(cut_power_after);
                let db = builder().open_on(devices).unwrap();
                check_loads(&db, &of_run);
                load_until_the_end(&db, &of_run, life);
                check_loads(&db, &of_run);
                db.close().unwrap();
            };
            let simulation = Simulation::new(seed * 8 + life).cores(2).time_limit(Duration::from_secs(600));
            let (Outcome::PowerCut { .. } | Outcome::Finished(())) = simulation.run(run);
            [&data, &area, &log].into_iter().for_each(|device| device.power_cut(&mut random));
        }
        acknowledged += loads.acknowledged.iter().filter(|is| is.load(SeqCst)).count();
    }
    assert!(acknowledged > 0, "some loads came to their end");
}

#[test]
fn power_cuts_with_a_double_write_area() {
    search(0..40, small, true);
}

#[test]
fn power_cuts_with_page_images_in_the_log() {
    search(20..35, || small().expert(|expert| expert.torn_page_protection(TornPageProtection::FullPageImages)), false);
}

#[test]
fn power_cuts_with_the_log_structured_store() {
    search(40..52, || on_store(StoreKind::LogStructured), false);
}

#[test]
fn power_cuts_with_in_page_logging() {
    search(60..66, || on_store(StoreKind::InPageLogging), false);
}
