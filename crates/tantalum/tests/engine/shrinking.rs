//! The log gives back what it has grown by.

use std::{fs, path::Path, time::Duration};

use tantalum::{Builder, Db, ErrorKind, StoreKind, Table};
use tantalum_device::{Access, files};
use tantalum_rt::{now, sleep, spawn};

use crate::support::{check, get, put, rows, simulate_files};

const INITIAL_BYTES: u64 = 512 << 10;

fn growing() -> Builder {
    Db::builder()
        .buffer_pool_bytes(256 * 4096)
        .log_bytes(8 << 20)
        .expert(|expert| expert.log_initial_bytes(INITIAL_BYTES))
}

fn fill(db: &Db, table: &Table, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut tx = db.begin().unwrap();
        tx.put(table, number.to_be_bytes(), [7; 2000]).unwrap();
        tx.commit().unwrap();
    }
}

/// Returns how many bytes the log gives back.
fn compact(db: &Db) -> tantalum::Result<u64> {
    db.compact(&mut |_| {}).map(|report| report.log_bytes_given_back)
}

fn log_bytes(db: &Db) -> u64 {
    db.stats().unwrap().log.capacity_bytes
}

/// Commits until the log has its full size. Returns how many rows there are then.
fn fill_until_grown(db: &Db, table: &Table, first: u32) -> u32 {
    let mut count = first;
    while log_bytes(db) <= 4 << 20 || log_files(Path::new("/db")).len() > 1 {
        assert!(count < first + 10_000, "the log does not grow: {:?}", db.stats().unwrap().log);
        fill(db, table, count..count + 20);
        count += 20;
    }
    count
}

fn log_files(path: &Path) -> Vec<String> {
    let names = files::list(path).unwrap().into_iter().map(|name| name.into_string().unwrap());
    names.filter(|name| name.starts_with("log-0")).collect()
}

/// A value that only a log that has grown takes in one record.
fn put_large(db: &Db, table: &Table, key: &str) {
    let mut tx = db.begin().unwrap();
    tx.put(table, key, vec![1; 200_000]).unwrap();
    tx.commit().unwrap();
}

#[test]
fn the_log_is_small_again_and_grows_when_a_record_needs_it() {
    simulate_files(6, |_| {
        let db = growing().open("/db").unwrap();
        let table = db.table("t").unwrap();
        let initial = log_bytes(&db);
        assert_eq!(compact(&db).unwrap(), 0, "it has not grown");
        let mut count = 0;
        for round in 0..3 {
            count = fill_until_grown(&db, &table, count);
            assert_eq!(compact(&db).unwrap(), (8 << 20) - INITIAL_BYTES);
            assert_eq!(log_bytes(&db), initial);
            assert_eq!(log_files(Path::new("/db")).len(), 1);
            assert_eq!(compact(&db).unwrap(), 0, "it is small");
            // As large a record as ever: it waits until the log has grown.
            put_large(&db, &table, &format!("large {round}"));
            assert!(log_bytes(&db) > 2 * initial);
            assert!(compact(&db).unwrap() > 0);
            sleep(Duration::from_secs(20));
        }
        check(&db);
        db.close().unwrap();
        let db = growing().open("/db").unwrap();
        assert_eq!(log_bytes(&db), initial);
        let table = db.table("t").unwrap();
        assert_eq!(rows(&db.snapshot().unwrap(), &table).len(), count as usize + 3);
        assert_eq!(get(&db, &table, "large 2").unwrap(), vec![1; 200_000][..]);
        check(&db);
    });
}

#[test]
fn what_fills_the_log_does_not_let_it_grow_right_after_it_has_shrunk() {
    simulate_files(4, |_| {
        let db = growing().open("/db").unwrap();
        let table = db.table("t").unwrap();
        let initial = log_bytes(&db);
        let count = fill_until_grown(&db, &table, 0);
        assert!(compact(&db).unwrap() > 0);
        let shrunk = now();
        let mut count = count;
        while log_bytes(&db) == initial {
            fill(&db, &table, count..count + 1);
            count += 1;
            assert!(shrunk.elapsed() < Duration::from_secs(40), "it does not grow any more");
            sleep(Duration::from_millis(5));
        }
        assert!(shrunk.elapsed() > Duration::from_secs(10), "{:?}", shrunk.elapsed());
        check(&db);
    });
}

#[test]
fn commits_of_any_size_go_on_while_the_log_shrinks() {
    simulate_files(12, |_| {
        let db = growing().open("/db").unwrap();
        let table = db.table("t").unwrap();
        let before = fill_until_grown(&db, &table, 0);
        let small = {
            let (db, table) = (db.clone(), table.clone());
            spawn("small", move || fill(&db, &table, before..before + 600))
        };
        let large = {
            let (db, table) = (db.clone(), table.clone());
            spawn("large", move || {
                for number in 0..4 {
                    sleep(Duration::from_millis(10));
                    put_large(&db, &table, &number.to_string());
                }
            })
        };
        let mut times = 0;
        while !small.is_finished() || !large.is_finished() {
            times += u32::from(compact(&db).unwrap() > 0);
            sleep(Duration::from_millis(3));
        }
        small.join().unwrap();
        large.join().unwrap();
        assert!(times > 0, "it never shrinks");
        check(&db);
        db.close().unwrap();
        assert_eq!(log_files(Path::new("/db")).len(), 1);
        let db = growing().open("/db").unwrap();
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), before as usize + 604);
        check(&db);
    });
}

#[test]
fn on_a_full_disk_the_log_stays_as_it_is() {
    simulate_files(4, |system| {
        let db = growing().open("/db").unwrap();
        let table = db.table("t").unwrap();
        let count = fill_until_grown(&db, &table, 0);
        let before = (log_bytes(&db), log_files(Path::new("/db")));
        system.fill_disk(true);
        let refused = compact(&db);
        assert!(
            matches!(&refused, Err(error) if error.kind() == ErrorKind::NoSpace
                && error.to_string().contains("the log could not shrink")),
            "{refused:?}"
        );
        assert_eq!((log_bytes(&db), log_files(Path::new("/db"))), before);
        put_large(&db, &table, "large");
        system.fill_disk(false);
        assert!(compact(&db).unwrap() > 0);
        assert_eq!(rows(&db.snapshot().unwrap(), &table).len(), count as usize + 1);
        check(&db);
    });
}

#[test]
fn the_database_is_closed_while_its_log_shrinks() {
    simulate_files(10, |_| {
        let mut count = 0;
        for _ in 0..4 {
            let db = growing().open("/db").unwrap();
            let table = db.table("t").unwrap();
            if log_bytes(&db) <= 4 << 20 {
                count = fill_until_grown(&db, &table, count);
            }
            let compaction = {
                let db = db.clone();
                spawn("compaction", move || compact(&db))
            };
            sleep(Duration::from_micros(300 * u64::from(count % 7)));
            db.close().unwrap();
            let ended = compaction.join().unwrap();
            assert!(!matches!(&ended, Err(error) if error.kind() != ErrorKind::Closed), "{ended:?}");
            assert_eq!(log_files(Path::new("/db")).len(), 1);
        }
        let db = growing().open("/db").unwrap();
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), count as usize);
        check(&db);
    });
}

#[test]
fn an_operator_changes_devices_while_the_log_shrinks() {
    simulate_files(6, |_| {
        let db = growing().open("/db").unwrap();
        let table = db.table("t").unwrap();
        let mut count = fill_until_grown(&db, &table, 0);
        let compactions = {
            let db = db.clone();
            spawn("compactions", move || (0..6).map(|_| compact(&db).unwrap()).filter(|&bytes| bytes > 0).count())
        };
        let mut changes = 0;
        while changes < 4 {
            let change = match changes % 2 {
                0 => db.add_log_device("mine"),
                _ => db.remove_log_device("mine"),
            };
            match change {
                Ok(()) => changes += 1,
                Err(error) => assert_eq!(error.kind(), ErrorKind::Busy, "{error}"),
            }
            if changes == 2 {
                files::remove(Path::new("/db/mine")).unwrap();
                changes += 2;
            }
            fill(&db, &table, count..count + 5);
            count += 5;
        }
        assert!(compactions.join().unwrap() > 0);
        // A device of the operator's does not shrink.
        let own = db.stats().unwrap().log.devices[0].ordinal.to_string();
        db.replace_log_device(&own, "mine").unwrap();
        assert_eq!((compact(&db).unwrap(), db.stats().unwrap().log.devices.len()), (0, 1));
        assert_eq!(files::list(Path::new("/db")).unwrap().iter().filter(|name| *name == "mine").count(), 1);
        assert_eq!(rows(&db.snapshot().unwrap(), &table).len(), count as usize);
        check(&db);
    });
}

/// Beside the log's own file there is a device of the operator's, which has the second copies and keeps its size.
#[test]
fn a_log_with_two_copies_keeps_both_while_its_file_shrinks() {
    simulate_files(6, |_| {
        let db = growing().open("/db").unwrap();
        db.add_log_device("mine").unwrap();
        db.close().unwrap();
        let two_copies = || growing().log_copies(2);
        let db = two_copies().open("/db").unwrap();
        let table = db.table("t").unwrap();
        let own_bytes = || {
            let [name] = &log_files(Path::new("/db"))[..] else { return 0 };
            files::open(&Path::new("/db").join(name), Access::ReadOnly).unwrap().capacity_bytes()
        };
        let mut count = 0;
        for round in 0..2 {
            while own_bytes() <= 4 << 20 {
                assert!(count < 20_000, "the log does not grow: {:?}", db.stats().unwrap().log);
                fill(&db, &table, count..count + 20);
                count += 20;
            }
            assert_eq!(compact(&db).unwrap(), (8 << 20) - INITIAL_BYTES);
            assert_eq!(own_bytes(), INITIAL_BYTES);
            fill(&db, &table, count..count + 20);
            count += 20;
            let log = db.stats().unwrap().log;
            assert!(log.keeps_copies && log.may_lose_a_device && log.single_copies == 0, "{log:?}");
            put_large(&db, &table, &format!("large {round}"));
            sleep(Duration::from_secs(20));
        }
        check(&db);
        db.close().unwrap();
        // All is on the other device too.
        let name = log_files(Path::new("/db")).pop().unwrap();
        files::remove(&Path::new("/db").join(name)).unwrap();
        let db = two_copies().open("/db").unwrap();
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), count as usize + 2);
        check(&db);
    });
}

#[test]
fn logs_that_do_not_grow_do_not_shrink_and_readers_change_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let named = Db::builder().log_bytes(4 << 20).log_devices(["mine"]).open(path("named")).unwrap();
    let full = Db::builder().log_bytes(1 << 20).open(path("full")).unwrap();
    let single = Db::builder().log_bytes(4 << 20).expert(|expert| expert.log_layout(tantalum::LogLayout::Single));
    for db in [named, full, single.open(path("single")).unwrap()] {
        assert_eq!(compact(&db).unwrap(), 0);
        put(&db, &db.table("t").unwrap(), &[("a", "1")]);
        db.close().unwrap();
    }
    let reader = Db::builder().read_only(true).open(path("named")).unwrap();
    assert!(matches!(compact(&reader), Err(error) if error.kind() == ErrorKind::ReadOnly));
}

#[test]
fn the_log_shrinks_on_every_store_with_partitions_and_an_archive() {
    let dir = tempfile::tempdir().unwrap();
    for store in [StoreKind::InPlace, StoreKind::LogStructured, StoreKind::InPageLogging] {
        let path = dir.path().join(store.to_string());
        let mut builder = Db::builder().page_store(store).log_bytes(16 << 20).log_partitions(2);
        if store != StoreKind::InPageLogging {
            builder = builder.log_archive("archive");
        }
        let db = builder.open(&path).unwrap();
        let table = db.table("t").unwrap();
        let initial = log_bytes(&db);
        // A log of statuses grows for no load: a device that replaces the file makes it large.
        let files = || log_files(&path);
        let mut count = 0;
        while store != StoreKind::InPageLogging && (log_bytes(&db) < 12 << 20 || files().len() > 1) {
            let mut tx = db.begin().unwrap();
            (0..10).for_each(|n| tx.put(&table, u32::to_be_bytes(count + n), [3; 8000]).unwrap());
            tx.commit().unwrap();
            count += 10;
        }
        let expected = if count > 0 { 14 << 20 } else { 0 };
        assert_eq!(compact(&db).unwrap(), expected, "{store}");
        assert_eq!(log_bytes(&db), initial);
        drop(db);
        let db = Db::open(&path).unwrap();
        let names = files();
        assert_eq!(fs::metadata(path.join(&names[0])).unwrap().len(), 2 << 20);
        assert_eq!((names.len(), log_bytes(&db)), (1, initial));
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), count as usize);
        check(&db);
    }
}
