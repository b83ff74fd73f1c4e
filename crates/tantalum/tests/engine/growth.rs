//! Databases begin small, and grow ahead of need.

use std::{
    fs,
    os::unix::fs::{FileExt, MetadataExt},
    path::Path,
    time::Duration,
};

use tantalum::{Builder, Db, ErrorKind, StoreKind, Table};
use tantalum_device::files;
use tantalum_rt::{now, sleep, spawn};

use crate::support::{check, get, put, rows, simulate_files};

/// What a directory takes on disk.
fn disk_bytes(path: &Path) -> u64 {
    let bytes = |entry: fs::DirEntry| match entry.metadata().unwrap() {
        directory if directory.is_dir() => disk_bytes(&entry.path()),
        file => file.blocks() * 512,
    };
    fs::read_dir(path).unwrap().map(|entry| bytes(entry.unwrap())).sum()
}

/// The files of the log, and what is left of some.
fn log_files(path: &Path) -> Vec<String> {
    let names = files::list(path).unwrap().into_iter().map(|name| name.into_string().unwrap());
    let mut names: Vec<_> = names.filter(|name| name.starts_with("log-0")).collect();
    names.sort();
    names
}

fn fill(db: &Db, table: &Table, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let mut tx = db.begin().unwrap();
        tx.put(table, number.to_be_bytes(), [7; 8000]).unwrap();
        tx.commit().unwrap();
    }
}

/// Commits until the log has `bytes`. Returns how many rows there are.
fn fill_until(db: &Db, table: &Table, bytes: u64) -> u32 {
    let mut count = 0;
    while db.stats().unwrap().log.capacity_bytes < bytes {
        assert!(count < 100_000, "the log does not grow");
        fill(db, table, count..count + 20);
        count += 20;
    }
    count
}

#[test]
fn a_new_database_takes_little_on_disk_and_so_do_its_backups() {
    let limits =
        [(StoreKind::InPlace, 2 << 20), (StoreKind::LogStructured, 2 << 20), (StoreKind::InPageLogging, 6 << 20)];
    for (store, limit) in limits {
        let dir = tempfile::tempdir().unwrap();
        let (path, backup) = (dir.path().join("db"), dir.path().join("backup"));
        let db = Db::builder().page_store(store).open(&path).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "1")]);
        db.backup(&backup).unwrap();
        db.close().unwrap();
        for path in [path, backup] {
            let bytes = disk_bytes(&path);
            assert!(bytes < limit, "{store}: {} has {bytes} bytes", path.display());
            let db = Db::open(&path).unwrap();
            assert_eq!(get(&db, &db.table("t").unwrap(), "a").unwrap(), b"1");
            check(&db);
        }
    }
}

#[test]
fn the_log_grows_with_the_load_and_one_file_remains() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(20 << 20).log_partitions(2).open(dir.path()).unwrap();
    assert!(disk_bytes(dir.path()) < 3 << 20);
    let table = db.table("t").unwrap();
    let count = fill_until(&db, &table, 16 << 20);
    let start = now();
    while log_files(dir.path()).len() > 1 {
        assert!(start.elapsed() < Duration::from_secs(60), "{:?}", log_files(dir.path()));
        sleep(Duration::from_millis(10));
    }
    let names = log_files(dir.path());
    assert!(names[0].starts_with("log-0."), "{names:?}");
    assert_eq!(fs::metadata(dir.path().join(&names[0])).unwrap().len(), 20 << 20);
    drop(db);
    for _ in 0..2 {
        let db = Db::open(dir.path()).unwrap();
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), count as usize);
        check(&db);
    }
    assert_eq!(log_files(dir.path()), names);
    // Without the record the files are found, and what is left over of them is not taken for the log.
    fs::remove_file(dir.path().join("log-devices.toml")).unwrap();
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), count as usize);
}

#[test]
fn a_log_that_may_be_larger_than_before_grows_and_one_that_may_be_smaller_stays() {
    let dir = tempfile::tempdir().unwrap();
    let open = |bytes| Db::builder().log_bytes(bytes).open(dir.path()).unwrap();
    let full = |db: &Db| db.stats().unwrap().log.capacity_bytes;
    let before = full(&open(1 << 20));
    let db = open(16 << 20);
    let count = fill_until(&db, &db.table("t").unwrap(), 12 << 20);
    drop(db);
    let db = open(1 << 20);
    assert!(full(&db) > 4 * before);
    assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), count as usize);
    check(&db);
}

#[test]
fn the_first_commit_may_be_as_large_as_any() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(64 << 20).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let value = vec![3; 1 << 20];
    let mut tx = db.begin().unwrap();
    tx.put(&table, "large", &value).unwrap();
    tx.commit().unwrap();
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(get(&db, &db.table("t").unwrap(), "large").unwrap(), value[..]);
    check(&db);
}

#[test]
fn an_operator_changes_devices_while_the_log_grows() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(40 << 20).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let load = {
        let (db, table) = (db.clone(), table.clone());
        spawn("load", move || fill(&db, &table, 0..1500))
    };
    for _ in 0..3 {
        // The log's file may have another name by now, but not another number of devices.
        db.add_log_device("mine").unwrap();
        db.remove_log_device("mine").unwrap();
        fs::remove_file(dir.path().join("mine")).unwrap();
    }
    load.join().unwrap();
    // It may go on to grow, and replace the device that was just named.
    loop {
        let last = db.stats().unwrap().log.devices[0].ordinal.to_string();
        match db.replace_log_device(&last, "mine") {
            Err(error) if error.to_string().contains("no device of the log") => {}
            replaced => break replaced.unwrap(),
        }
    }
    assert_eq!(db.stats().unwrap().log.devices.len(), 1);
    drop(db);
    let db = Db::open(dir.path()).unwrap();
    assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), 1500);
    check(&db);
}

#[test]
fn a_database_is_closed_while_its_log_grows() {
    let dir = tempfile::tempdir().unwrap();
    let builder = || Db::builder().log_bytes(200 << 20);
    let mut count = 0;
    for round in 0..6 {
        let db = builder().open(dir.path()).unwrap();
        let table = db.table("t").unwrap();
        fill(&db, &table, count..count + 30 * (round + 1));
        count += 30 * (round + 1);
        db.close().unwrap();
        assert!(log_files(dir.path()).len() <= 2, "{:?}", log_files(dir.path()));
    }
    let db = builder().open(dir.path()).unwrap();
    assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), count as usize);
    check(&db);
}

/// The file that the log is to have next, if it is begun.
fn begun(path: &Path) -> Option<fs::File> {
    let name = log_files(path).into_iter().find(|name| name.ends_with(".partial"))?;
    // It may be whole by now.
    fs::File::options().read(true).write(true).open(path.join(name)).ok()
}

fn length(file: &fs::File) -> u64 {
    file.metadata().unwrap().len()
}

/// Where tests write into a file that is begun: not where a log begins, nor in the file's last piece.
const MARKED: u64 = 1 << 20;

/// Closes a database while its log grows, and lets it grow on. `None` if it has grown before it is closed.
fn interrupt_growth() -> Option<()> {
    let dir = tempfile::tempdir().unwrap();
    let open = || {
        let builder = Db::builder().log_bytes(400 << 20).expert(|expert| expert.log_initial_bytes(16 << 20));
        builder.open(dir.path()).unwrap()
    };
    let mut count = 0;
    let mut fill_until_begun = |db: &Db, bytes: u64| {
        let (table, full) = (db.table("t").unwrap(), db.stats().unwrap().log.capacity_bytes);
        loop {
            assert!(count < 100_000, "the log does not grow");
            fill(db, &table, count..count + 20);
            count += 20;
            match begun(dir.path()) {
                Some(file) if length(&file) >= bytes => return Some(file),
                _ if db.stats().unwrap().log.capacity_bytes > full => return None,
                _ => {}
            }
        }
    };
    let db = open();
    fill_until_begun(&db, 3 << 20)?;
    db.close().unwrap();
    let before = begun(dir.path())?;
    assert!(length(&before) >= 3 << 20);
    // Another file would have zeros there.
    before.write_all_at(&[0xaa; 4096], MARKED).unwrap();
    let db = open();
    let after = fill_until_begun(&db, length(&before) + (3 << 20))?;
    let mut there = [0; 4096];
    after.read_exact_at(&mut there, MARKED).unwrap();
    assert!(there == [0xaa; 4096], "growth began anew");
    let table = db.table("t").unwrap();
    assert_eq!(rows(&db.snapshot().unwrap(), &table).len(), count as usize);
    check(&db);
    Some(())
}

#[test]
fn growth_goes_on_with_a_file_that_was_begun() {
    assert!((0..5).any(|_| interrupt_growth().is_some()), "the log has always grown before the database is closed");
}

#[test]
fn what_is_no_beginning_of_the_next_file_is_removed() {
    for bytes in [0, 100, 1 << 20, 3 << 20, 64 << 20] {
        let dir = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let file = fs::File::create(dir.path().join(name)).unwrap();
            file.set_len(bytes).unwrap();
            // As nothing does that makes a file for the log.
            if bytes == 3 << 20 {
                file.write_all_at(&[0xaa; 4096], 0).unwrap();
                file.write_all_at(&[0xaa; 4096], MARKED).unwrap();
            }
        };
        let open = || growing().open(dir.path()).unwrap();
        drop(open());
        make("log-0.1.partial");
        make("log-0.7.partial");
        let db = open();
        let table = db.table("t").unwrap();
        let count = fill_until(&db, &table, 2 << 20);
        let log = fs::File::open(dir.path().join("log-0.1")).unwrap();
        assert_eq!(log.metadata().unwrap().len(), 4 << 20, "with {bytes} bytes");
        let mut there = [0; 4096];
        log.read_exact_at(&mut there, MARKED).unwrap();
        assert!(there != [0xaa; 4096], "it goes on with what something else has written");
        assert_eq!(rows(&db.snapshot().unwrap(), &table).len(), count as usize);
        check(&db);
        // To give back space, what was begun goes as well.
        make("log-0.2.partial");
        db.compact(&mut |_| {}).unwrap();
        assert_eq!(log_files(dir.path()).len(), 1, "{:?}", log_files(dir.path()));
    }
}

fn growing() -> Builder {
    Db::builder().buffer_pool_bytes(256 * 4096).log_bytes(8 << 20).expert(|expert| expert.log_initial_bytes(512 << 10))
}

#[test]
fn on_a_full_disk_the_log_goes_on_as_it_is_and_grows_later() {
    simulate_files(6, |system| {
        let db = growing().open("/db").unwrap();
        let table = db.table("t").unwrap();
        let before = db.stats().unwrap().log.capacity_bytes;
        system.fill_disk(true);
        fill(&db, &table, 0..400);
        assert_eq!(db.stats().unwrap().log.capacity_bytes, before);
        // What does not fit says why.
        let mut tx = db.begin().unwrap();
        let refused = tx.put(&table, "large", vec![1; 200_000]);
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::NoSpace), "{refused:?}");
        tx.rollback();
        system.fill_disk(false);
        let mut count = 400;
        let start = now();
        while db.stats().unwrap().log.capacity_bytes == before {
            assert!(start.elapsed() < Duration::from_secs(3000), "growth is not tried again");
            fill(&db, &table, count..count + 20);
            count += 20;
            sleep(Duration::from_millis(100));
        }
        assert_eq!(rows(&db.snapshot().unwrap(), &table).len(), count as usize);
        check(&db);
        db.close().unwrap();
        assert_eq!(log_files(Path::new("/db")).len(), 1);
    });
}

#[test]
fn small_commits_do_not_wait_while_a_large_one_lets_the_log_grow() {
    simulate_files(6, |_| {
        let db = growing().open("/db").unwrap();
        let table = db.table("t").unwrap();
        let large = {
            let (db, table) = (db.clone(), table.clone());
            spawn("large", move || {
                let mut tx = db.begin().unwrap();
                tx.put(&table, "large", vec![1; 200_000]).unwrap();
                tx.commit().unwrap();
            })
        };
        let mut count = 0;
        while !large.is_finished() {
            let start = now();
            put(&db, &table, &[(&count.to_string(), "small")]);
            assert!(start.elapsed() < Duration::from_millis(20), "{:?}", start.elapsed());
            count += 1;
        }
        large.join().unwrap();
        assert!(db.stats().unwrap().log.capacity_bytes > 1 << 20);
        check(&db);
    });
}

/// Where neither the data nor the log can grow, space is made by deleting rows and dropping tables, and both grow when the disk has
/// space again.
#[test]
fn rows_are_deleted_and_tables_dropped_on_a_full_disk() {
    for store in [StoreKind::InPlace, StoreKind::LogStructured, StoreKind::InPageLogging] {
        simulate_files(3, move |system| {
            let builder = || {
                let builder = growing().page_store(store);
                if store == StoreKind::LogStructured {
                    builder.expert(|expert| expert.segment_bytes(64 << 10))
                } else {
                    builder
                }
            };
            let db = builder().open("/db").unwrap();
            let insert = |table: &Table, number: u32, bytes: usize| {
                let mut tx = db.begin()?;
                tx.put(table, number.to_be_bytes(), vec![number as u8; bytes])?;
                tx.commit().map(drop)
            };
            let (first, second) = (db.table("first").unwrap(), db.table("second").unwrap());
            for number in 0..200 {
                insert(&first, number, 3000).unwrap();
                insert(&second, number, 700).unwrap();
            }
            let is_log_full = system.operations().is_multiple_of(2);
            system.fill_disk(is_log_full);
            system.refuse_growth(true);
            let mut count = 200;
            let refused = loop {
                match insert(&first, count, 3000) {
                    Ok(()) => count += 1,
                    Err(error) => break error,
                }
                assert!(count < 10_000, "the disk is never full");
            };
            assert!(matches!(refused.kind(), ErrorKind::StoreFull | ErrorKind::NoSpace), "{store}: {refused}");
            check(&db);
            for number in 0..100_u32 {
                let mut tx = db.begin().unwrap();
                assert!(tx.delete(&second, number.to_be_bytes()).unwrap());
                tx.commit().unwrap_or_else(|error| panic!("{store}: a row cannot be deleted: {error}"));
            }
            assert_eq!(rows(&db.snapshot().unwrap(), &first).len(), count as usize);
            drop(first);
            db.drop_table("first").unwrap_or_else(|error| panic!("{store}: a table cannot be dropped: {error}"));
            check(&db);
            for number in 1000..1100 {
                insert(&second, number, 3000).unwrap_or_else(|error| panic!("{store}: nothing was freed: {error}"));
            }
            check(&db);
            system.fill_disk(false);
            system.refuse_growth(false);
            for number in 2000..4000 {
                insert(&second, number, 3000).unwrap();
            }
            assert_eq!(rows(&db.snapshot().unwrap(), &second).len(), 100 + 100 + 2000);
            check(&db);
        });
    }
}

#[test]
fn a_backup_of_a_database_most_of_whose_rows_were_deleted_is_small() {
    let limits =
        [(StoreKind::InPlace, 2 << 20), (StoreKind::LogStructured, 2 << 20), (StoreKind::InPageLogging, 6 << 20)];
    for (store, limit) in limits {
        let dir = tempfile::tempdir().unwrap();
        let (path, backup) = (dir.path().join("db"), dir.path().join("backup"));
        let db = Db::builder().page_store(store).open(&path).unwrap();
        let table = db.table("t").unwrap();
        // Rows in leaves, and large values beside them.
        let bytes = |number: u32| if number.is_multiple_of(10) { 20_000 } else { 1_000 };
        let count = 21_000_u32;
        for first in (0..count).step_by(500) {
            let mut tx = db.begin().unwrap();
            (first..first + 500).for_each(|n| tx.put(&table, n.to_be_bytes(), vec![7; bytes(n)]).unwrap());
            tx.commit().unwrap();
        }
        for first in (0..count).step_by(500) {
            let mut tx = db.begin().unwrap();
            (first + 1..first + 500).for_each(|n| assert!(tx.delete(&table, n.to_be_bytes()).unwrap()));
            tx.commit().unwrap();
        }
        assert!(disk_bytes(&path) > 60 << 20);
        db.backup(&backup).unwrap();
        let (kept, taken) = (u64::from(count) / 500 * 20_000, disk_bytes(&backup));
        assert!(taken < limit + 2 * kept, "{store}: the backup has {taken} bytes for {kept}");
        let copy = Db::open(&backup).unwrap();
        assert_eq!(rows(&copy.snapshot().unwrap(), &copy.table("t").unwrap()).len(), count as usize / 500);
        check(&copy);
    }
}
