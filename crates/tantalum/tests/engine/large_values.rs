//! Values larger than their leaf, and than a record of the log: written, read in parts, replaced and freed.

use std::{
    io::{self, Read, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use tantalum::{Db, Devices, ErrorKind, Isolation, StoreKind, Table, limits::MAX_VALUE_BYTES};
use tantalum_device::{Fault, MemoryDevice};
use tantalum_rt::{Random, sleep, spawn};

use crate::support::{check, contents, on_store, simulate, simulate_stores, wait_until_applied, with_little_memory};

const STORES: [StoreKind; 3] = [StoreKind::InPlace, StoreKind::InPageLogging, StoreKind::LogStructured];

fn wait_until_freed(db: &Db) {
    while {
        let stats = db.stats().unwrap().transactions;
        stats.staging_tables + stats.dead_values > 0
    } {
        sleep(Duration::from_millis(5));
    }
}

fn put(db: &Db, table: &Table, key: &str, value: &[u8]) {
    let mut tx = db.begin().unwrap();
    tx.put(table, key, value).unwrap();
    tx.commit().unwrap();
}

/// Bytes that tell where they are.
fn film(bytes: usize, salt: u64) -> Vec<u8> {
    let mut random = Random::with_seed(salt);
    let mut film: Vec<u8> =
        (0..bytes as u32 / 4 + 1).flat_map(|at| (at ^ random.u32(0..2) << 31).to_le_bytes()).collect();
    film.truncate(bytes);
    film
}

fn pages(db: &Db) -> u64 {
    db.check().unwrap().pages_used
}

/// Of every length about the bounds of a leaf, a page and a record, and beyond what a transaction has of memory: as it was written,
/// whole, in parts, in ranges from both ends, in a snapshot and in another session.
#[test]
fn values_of_all_sizes_are_what_was_written() {
    for store in STORES {
        let dir = tempfile::tempdir().unwrap();
        let builder = || on_store(store).log_bytes(4 << 20).transaction_memory_bytes(256 << 10);
        let mut expected = Vec::new();
        {
            let db = builder().open(dir.path()).unwrap();
            let table = db.table("films").unwrap();
            let around = [1000, 1010, 1020, 2040, 3990, 4096, 8100, 65_500];
            let sizes = around.into_iter().flat_map(|size| size..size + 40).step_by(3);
            let mut random = Random::with_seed(3);
            for size in sizes.chain([0, 1, 300_000, 1 << 20, (1 << 20) + 1, 3 << 20]) {
                let (key, value) = (format!("{size:08}"), film(size, size as u64));
                let mut tx = db.begin().unwrap();
                if random.bool() {
                    tx.put(&table, &key, &value).unwrap();
                } else {
                    assert_eq!(tx.put_from(&table, &key, &value[..]).unwrap(), size as u64);
                }
                assert!(tx.get(&table, &key).unwrap().unwrap() == value[..]);
                tx.commit().unwrap();
                expected.push((key, value));
            }
            wait_until_freed(&db);
            expected.sort();
            expected.dedup();
            look(&db, &expected);
            check(&db);
            db.close().unwrap();
        }
        let db = builder().open(dir.path()).unwrap();
        look(&db, &expected);
        check(&db);
        let copy = dir.path().join("copy");
        db.backup(&copy).unwrap();
        assert!(contents(&db).unwrap() == contents(&builder().open(&copy).unwrap()).unwrap());
        let used = pages(&db);
        db.drop_table("films").unwrap();
        wait_until_freed(&db);
        assert!(pages(&db) < 10 && used > 800, "{used} pages, and then {}", pages(&db));
        check(&db);
    }
}

fn look(db: &Db, expected: &[(String, Vec<u8>)]) {
    let table = db.table("films").unwrap();
    let snapshot = db.snapshot().unwrap();
    let mut random = Random::with_seed(5);
    for (key, value) in expected {
        assert!(db.get(&table, key).unwrap().unwrap() == value[..], "{key}");
        assert!(snapshot.get(&table, key).unwrap().unwrap() == value[..]);
        let bounds = [random.usize(0..value.len() + 9), random.usize(0..value.len() + 9)];
        let (from, to) = (bounds[0].min(bounds[1]), bounds[0].max(bounds[1]));
        let part = &value[from.min(value.len())..to.min(value.len())];
        assert!(db.get_range(&table, key, from as u64..to as u64).unwrap().unwrap() == part);
        let mut reader = snapshot.reader(&table, key).unwrap().unwrap();
        assert_eq!(reader.length(), value.len() as u64);
        let mut read = Vec::new();
        reader.seek(SeekFrom::Start(from as u64)).unwrap();
        reader.by_ref().take((to - from) as u64).read_to_end(&mut read).unwrap();
        assert!(read == part);
        reader.seek(SeekFrom::End(-(value.len() as i64))).unwrap();
        read.clear();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == *value);
        assert_eq!(reader.seek(SeekFrom::Current(-1)).is_err(), value.is_empty());
    }
    assert_eq!(db.get_range(&table, "none", ..).unwrap(), None);
    assert!(db.reader(&table, "none").unwrap().is_none());
    assert_eq!(
        db.get_range(&table, &expected[1].0, 5..=9).unwrap().unwrap(),
        expected[1].1.get(5..10).unwrap_or_default()
    );
    let rows: Vec<_> = snapshot.range(&table, ..).unwrap().rev().map(Result::unwrap).collect();
    assert!(
        rows.iter()
            .rev()
            .map(|(key, value)| (&key[..], &value[..]))
            .eq(expected.iter().map(|(key, value)| (key.as_bytes(), &value[..])))
    );
    let (mut range, mut count) = (snapshot.range(&table, ..).unwrap(), 0);
    while let Some(row) = range.next_borrowed() {
        let (key, value) = row.unwrap();
        assert!((key, value) == (expected[count].0.as_bytes(), &expected[count].1[..]));
        count += 1;
    }
    assert_eq!(count, expected.len());
}

/// Replaced, deleted, rolled back to a savepoint or altogether: what a snapshot sees stays, and when that has gone, the pages are free.
#[test]
fn a_value_takes_no_page_when_no_row_and_no_snapshot_has_it() {
    simulate_stores(0..9, |seed, store, devices| {
        let db = on_store(store).transaction_memory_bytes(64 << 10).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let mut random = Random::with_seed(seed);
        put(&db, &table, "small", b"value");
        put(&db, &table, "first", &film(9000, 1));
        let empty = pages(&db);
        for round in 0..4 {
            let old = film(random.usize(5000..90_000), 2);
            put(&db, &table, "a", &old);
            put(&db, &table, "b", &old);
            let snapshot = db.snapshot().unwrap();
            let reader = db.reader(&table, "b").unwrap().unwrap();
            let mut tx = db.begin().unwrap();
            tx.put(&table, "a", film(random.usize(5000..90_000), 3)).unwrap();
            let savepoint = tx.savepoint();
            tx.put(&table, "a", film(random.usize(5000..150_000), 4)).unwrap();
            assert!(tx.delete(&table, "b").unwrap());
            if random.bool() {
                tx.rollback_to(&savepoint).unwrap();
                assert!(tx.get(&table, "b").unwrap().unwrap() == old[..]);
                tx.put_from(&table, "a", io::repeat(8).take(100_000)).unwrap();
                assert!(tx.get(&table, "a").unwrap().unwrap() == [8; 100_000]);
                tx.delete(&table, "b").unwrap();
            }
            if round % 2 == 0 {
                tx.commit().unwrap();
                assert_eq!(db.get(&table, "b").unwrap(), None);
            } else {
                tx.rollback();
                assert!(db.get(&table, "b").unwrap().unwrap() == old[..]);
            }
            for _ in 0..random.u32(0..3) {
                put(&db, &table, "a", &film(random.usize(0..70_000), 5));
            }
            sleep(Duration::from_millis(random.u64(0..30)));
            assert!(snapshot.get(&table, "a").unwrap().unwrap() == old[..]);
            check(&db);
            drop(snapshot);
            sleep(Duration::from_millis(random.u64(0..30)));
            let (mut reader, mut read) = (reader, Vec::new());
            reader.read_to_end(&mut read).unwrap();
            assert!(read == old);
            drop(reader);
            let mut tx = db.begin().unwrap();
            for key in ["a", "b"] {
                tx.delete(&table, key).unwrap();
            }
            tx.commit().unwrap();
            wait_until_freed(&db);
            // Marks may have taken a leaf more.
            assert!((empty..=empty + 1).contains(&pages(&db)), "{} pages, {empty} before", pages(&db));
            check(&db);
        }
        assert!(db.get(&table, "first").unwrap().unwrap() == film(9000, 1)[..]);
        db.close().unwrap();
    });
}

/// A reader of what its transaction has written and not committed, and then rolled back; the pages go with the reader.
#[test]
fn a_reader_keeps_a_value_that_is_rolled_back() {
    simulate_stores(0..6, |seed, store, devices| {
        let db = on_store(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, "a", &film(9000, 1));
        let used = pages(&db);
        let mut tx = db.begin().unwrap();
        let value = film(150_000, seed);
        tx.put_from(&table, "b", &value[..]).unwrap();
        let mut reader = tx.reader(&table, "b").unwrap().unwrap();
        assert!(tx.get_range(&table, "b", 140_000..).unwrap().unwrap() == value[140_000..]);
        tx.rollback();
        sleep(Duration::from_millis(100));
        let mut read = Vec::new();
        reader.read_to_end(&mut read).unwrap();
        assert!(read == value);
        assert_eq!(db.drop_table("t").unwrap_err().kind(), ErrorKind::InUse);
        drop(reader);
        wait_until_freed(&db);
        assert!(pages(&db) <= used + 1);
        check(&db);
        db.drop_table("t").unwrap();
        db.close().unwrap();
    });
}

/// Commits on a full device wait until the pages of deleted values are free, and deleting needs none.
#[test]
fn on_a_full_device_deleted_values_make_room() {
    for store in [StoreKind::InPlace, StoreKind::LogStructured] {
        let data = MemoryDevice::new("data", 8 << 20);
        data.inject(Fault::NoSpaceOnGrow);
        let double_write = (store == StoreKind::InPlace).then(|| MemoryDevice::new("area", 1 << 20) as _);
        let devices = Devices { data, double_write, log: vec![MemoryDevice::new("log", 8 << 20)] };
        let db = on_store(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let mut counts = Vec::new();
        for round in 0..4 {
            let mut count = 0;
            loop {
                let mut tx = db.begin().unwrap();
                let value = film(30_000 + 90_000 * (count % 3), round);
                let written = tx.put(&table, format!("{count}"), value).and_then(|()| tx.commit());
                match written {
                    Ok(_) => count += 1,
                    Err(error) => break assert_eq!(error.kind(), ErrorKind::StoreFull, "{error}"),
                }
            }
            for key in 0..count {
                let mut tx = db.begin().unwrap();
                assert!(tx.delete(&table, format!("{key}")).unwrap());
                tx.commit().unwrap();
            }
            counts.push(count);
        }
        assert!(counts[0] > 20 && counts.iter().all(|count| count + 5 > counts[0]), "{store}: {counts:?}");
        // Nor does a snapshot keep the pages then. The log-structured store has not as much room.
        if store == StoreKind::InPlace {
            put(&db, &table, "seen", &film(4 << 20, 1));
            let snapshot = db.snapshot().unwrap();
            for salt in 0..4 {
                put(&db, &table, "seen", &film(2 << 20, salt));
            }
            assert_eq!(snapshot.get(&table, "seen").unwrap_err().kind(), ErrorKind::SnapshotTooOld);
        }
        wait_until_freed(&db);
        check(&db);
    }
}

/// Transactions that are rolled back leave values only as fast as these are deleted, also beside others whose rows are moved.
#[test]
fn values_of_transactions_rolled_back_do_not_pile_up() {
    simulate_stores(0..6, |seed, store, devices| {
        let db = with_little_memory(store).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let tasks = (0..6).map(|client| {
            let (db, table) = (db.clone(), table.clone());
            spawn("client", move || {
                let mut random = Random::with_seed(seed * 8 + client);
                let mut most = 0;
                for _ in 0..150 {
                    let mut tx = db.begin().unwrap();
                    let value = io::repeat(1).take(random.u64(30_000..120_000));
                    tx.put_from(&table, format!("{client} {}", random.u8(0..4)), value).unwrap();
                    if random.bool() {
                        tx.commit().unwrap();
                    } else {
                        tx.rollback();
                    }
                    most = most.max(db.stats().unwrap().transactions.dead_values);
                }
                most
            })
        });
        let most = tasks.collect::<Vec<_>>().into_iter().map(|task| task.join().unwrap()).max().unwrap();
        assert!(most < 100, "seed {seed}, {store}: {most} dead values waited at a time");
        wait_until_freed(&db);
        check(&db);
        db.close().unwrap();
    });
}

/// When a deletion has failed, commits on a full device wait until it is tried again.
#[test]
fn on_a_full_device_a_deletion_that_failed_is_waited_for() {
    simulate(0..8, |seed, _| {
        let data = MemoryDevice::new("data", 8 << 20);
        data.inject(Fault::NoSpaceOnGrow);
        let double_write = Some(MemoryDevice::new("area", 1 << 20) as _);
        let devices = Devices { data: data.clone(), double_write, log: vec![MemoryDevice::new("log", 8 << 20)] };
        let db = on_store(StoreKind::InPlace).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, "a", &film(5 << 20, seed));
        let snapshot = db.snapshot().unwrap();
        let mut tx = db.begin().unwrap();
        tx.delete(&table, "a").unwrap();
        tx.commit().unwrap();
        data.inject(Fault::FailReads { after: 0 });
        drop(snapshot);
        sleep(Duration::from_millis(100));
        data.clear_faults();
        data.inject(Fault::NoSpaceOnGrow);
        assert!(db.stats().unwrap().transactions.dead_values > 0, "its deletion failed");
        put(&db, &table, "b", &film(5 << 20, seed));
        wait_until_freed(&db);
        check(&db);
        db.close().unwrap();
    });
}

/// What a source fails to give, or gives beyond the limit, is not written, and the transaction goes on.
#[test]
fn a_source_that_fails_changes_nothing() {
    struct Failing(usize);
    impl Read for Failing {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let bytes = self.0.min(buffer.len());
            self.0 -= bytes;
            if bytes == 0 { Err(io::Error::other("the film is torn")) } else { Ok(bytes) }
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(8 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("films").unwrap();
    put(&db, &table, "a", b"before");
    let used = pages(&db);
    let mut tx = db.begin().unwrap();
    for bytes in [10, 70_000, 1_000_000] {
        let error = tx.put_from(&table, "a", Failing(bytes)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Io);
        assert!(
            error.to_string().contains(&format!("failed after {}", if bytes == 10 { 0 } else { bytes })),
            "{error}"
        );
    }
    assert_eq!(tx.get(&table, "a").unwrap().unwrap(), b"before");
    tx.put(&table, "b", "after").unwrap();
    tx.commit().unwrap();
    assert_eq!(db.get(&table, "a").unwrap().unwrap(), b"before");
    wait_until_freed(&db);
    check(&db);
    assert!(pages(&db) <= used + 4, "a value tree and its catalog's row");
}

/// 1 GiB, and a byte more.
#[test]
fn the_largest_value_is_written_and_read_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().page_size(16 << 10).buffer_pool_bytes(64 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("films").unwrap();
    let mut tx = db.begin().unwrap();
    let limit = MAX_VALUE_BYTES as u64;
    let error = tx.put_from(&table, "a", io::repeat(1).take(limit + 1)).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    tx.rollback();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.put_from(&table, "a", io::repeat(7).take(limit)).unwrap(), limit);
    tx.commit().unwrap();
    let mut reader = db.reader(&table, "a").unwrap().unwrap();
    assert_eq!(reader.length(), limit);
    let (mut buffer, mut bytes) = (vec![0; 1 << 20], 0);
    while let read @ 1.. = reader.read(&mut buffer).unwrap() {
        assert!(buffer[..read].iter().all(|byte| *byte == 7));
        bytes += read as u64;
    }
    assert_eq!(bytes, limit);
    assert_eq!(db.get_range(&table, "a", limit - 2..).unwrap().unwrap(), [7, 7]);
    assert_eq!(db.get_range(&table, "a", limit..).unwrap().unwrap(), []);
}

/// The walk through the value tree sees all pieces; for a row, the end of its value is looked up.
#[test]
fn a_check_reads_large_values_once() {
    let dir = tempfile::tempdir().unwrap();
    let open = || Db::builder().buffer_pool_bytes(64 * 4096).open(dir.path().join("db")).unwrap();
    let db = open();
    let table = db.table("t").unwrap();
    for key in ["a", "b", "c", "d"] {
        let mut tx = db.begin().unwrap();
        tx.put(&table, key, vec![7; 1_000_000]).unwrap();
        tx.commit().unwrap();
    }
    wait_until_applied(&db);
    drop(table);
    db.close().unwrap();
    let db = open();
    let before = db.stats().unwrap().pool.misses;
    let pages = db.check().unwrap().pages_used;
    let read = db.stats().unwrap().pool.misses - before;
    assert!(pages > 900 && read < pages + pages / 4, "{read} pages are read, of {pages}");
    db.close().unwrap();
}

/// A page for a value that just does not fit in one.
#[test]
fn a_value_of_a_page_takes_about_a_page() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(64 << 20).open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    for first in (0..10_000u32).step_by(100) {
        let mut tx = db.begin().unwrap();
        (first..first + 100).for_each(|key| tx.put(&table, key.to_be_bytes(), film(4096, 1)).unwrap());
        tx.commit().unwrap();
    }
    let used = pages(&db);
    assert!(used <= 10_600, "{used} pages of 4 KiB");
}

/// Readers of all kinds beside writers that replace the value again and again see one of the values, whole.
#[test]
fn a_value_is_whole_beside_writers_that_replace_it() {
    simulate_stores(0..12, |seed, store, devices| {
        let db = on_store(store).transaction_memory_bytes(64 << 10).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, "a", &[1; 9000]);
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for client in 0..2 {
            let (db, table, stop) = (db.clone(), table.clone(), Arc::clone(&stop));
            tasks.push(spawn("writer", move || {
                let mut random = Random::with_seed(seed * 2 + client);
                for _ in 0..25 {
                    let value = vec![random.u8(..); random.usize(1..40_000)];
                    let mut tx = db.begin().unwrap();
                    if random.u8(0..4) == 0 {
                        tx.put_from(&table, "a", io::repeat(value[0]).take(90_000)).unwrap();
                    } else {
                        tx.put(&table, "a", value).unwrap();
                    }
                    if random.u8(0..4) == 0 {
                        tx.rollback();
                    } else {
                        tx.commit().unwrap();
                    }
                }
                stop.store(true, Relaxed);
            }));
        }
        for client in 0..2 {
            let (db, table, stop) = (db.clone(), table.clone(), Arc::clone(&stop));
            tasks.push(spawn("reader", move || {
                let mut random = Random::with_seed(seed * 2 + client);
                let is_whole = |value: &[u8]| assert!(!value.is_empty() && value.iter().all(|byte| *byte == value[0]));
                while !stop.load(Relaxed) {
                    match random.u8(0..4) {
                        0 => is_whole(&db.get(&table, "a").unwrap().unwrap()),
                        1 => is_whole(&db.snapshot().unwrap().range(&table, ..).unwrap().next().unwrap().unwrap().1),
                        2 => {
                            let isolation = Isolation::SnapshotIsolation;
                            let tx = db.begin_with(isolation).unwrap();
                            is_whole(&tx.get(&table, "a").unwrap().unwrap());
                        }
                        _ => {
                            let mut reader = db.reader(&table, "a").unwrap().unwrap();
                            let mut value = vec![0; 3000];
                            let read = reader.read(&mut value).unwrap();
                            sleep(Duration::from_micros(random.u64(0..3000)));
                            reader.read_to_end(&mut value).unwrap();
                            value.drain(read..3000);
                            is_whole(&value);
                            assert_eq!(value.len() as u64, reader.length());
                        }
                    }
                }
            }));
        }
        tasks.into_iter().for_each(|task| task.join().unwrap());
        wait_until_freed(&db);
        check(&db);
        assert!(pages(&db) < 40, "{}", pages(&db));
        db.close().unwrap();
    });
}
