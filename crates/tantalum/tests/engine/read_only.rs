//! A database that is opened for reading only: what a crash left is recovered in memory, and nothing changes.

use std::{collections::BTreeMap, fs, path::Path, sync::Arc};

use tantalum::{Builder, Db, Devices, ErrorKind, Result, StoreKind};
use tantalum_device::{Device, MemoryDevice, MemoryProfile};

use crate::support::{check, contents, on_store, open, put, rows, small};

const STORES: [StoreKind; 3] = [StoreKind::InPlace, StoreKind::InPageLogging, StoreKind::LogStructured];

/// The files below `dir` and what they hold, but for the lock and the socket of the process that has the database open.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            found.extend(files(&entry.path()).into_iter().map(|(inner, bytes)| (format!("{name}/{inner}"), bytes)));
        } else if !["LOCK", "control.sock"].contains(&&*name) {
            found.insert(name, fs::read(entry.path()).unwrap());
        }
    }
    found
}

/// The directory as a crash would leave it now.
fn crashed(from: &Path, to: &Path) {
    for (name, bytes) in files(from) {
        let path = to.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

fn read_only(store: StoreKind) -> Builder {
    on_store(store).read_only(true)
}

/// Rows of which a part is in the log only.
/// The log has its full size from the beginning.
fn full_log(builder: Builder, bytes: u64) -> Builder {
    builder.log_bytes(bytes).expert(|expert| expert.log_initial_bytes(bytes))
}

fn filled(db: &Db) {
    let table = db.table("t").unwrap();
    for round in 0..40_u32 {
        let mut tx = db.begin().unwrap();
        for n in 0..100_u32 {
            tx.put(&table, (n * 40 + round).to_be_bytes(), [round as u8; 100]).unwrap();
        }
        tx.commit().unwrap();
        if round == 20 {
            db.checkpoint().unwrap();
        }
    }
}

#[test]
fn what_a_crash_left_is_read_and_stays_as_it_is() {
    for store in STORES {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        // Nothing goes on in the background while files are copied.
        let builder = full_log(on_store(store), 8 << 20).buffer_pool_bytes(8 << 20);
        // In-page logging has no archive.
        let is_archived = store != StoreKind::InPageLogging;
        let db = if is_archived { builder.log_archive("archive") } else { builder }.open(&first).unwrap();
        filled(&db);
        let expected = contents(&db).unwrap();
        crashed(&first, &second);
        drop(db);

        let before = files(&second);
        for _ in 0..2 {
            let db = read_only(store).open(&second).unwrap();
            assert_eq!(contents(&db).unwrap(), expected, "{store}");
            check(&db);
            assert!(fs::read_dir(&second).unwrap().all(|entry| entry.unwrap().file_name() != "control.sock"));
            db.close().unwrap();
            assert!(files(&second) == before, "{store}: a file has changed");
            assert!(!second.join("LOCK").exists());
        }
        let db = on_store(store).open(&second).unwrap();
        assert_eq!(contents(&db).unwrap(), expected, "{store}");
    }
}

#[test]
fn readers_share_a_database_and_keep_writers_out() {
    let dir = tempfile::tempdir().unwrap();
    // Also where the file LOCK has gone with the copy.
    for has_lock in [true, false] {
        let writer = open(dir.path());
        let error = small().read_only(true).open(dir.path()).unwrap_err();
        assert!(error.kind() == ErrorKind::InUse && error.to_string().contains("this process"), "{error}");
        put(&writer, &writer.table("t").unwrap(), &[("a", "1")]);
        writer.close().unwrap();
        if !has_lock {
            fs::remove_file(dir.path().join("LOCK")).unwrap();
        }
        let readers = [(); 2].map(|()| small().read_only(true).open(dir.path()).unwrap());
        let error = small().open(dir.path()).unwrap_err();
        assert!(error.kind() == ErrorKind::InUse && error.to_string().contains("for reading only"), "{error}");
        for reader in readers {
            assert_eq!(contents(&reader).unwrap().len(), 1);
        }
    }
    check(&open(dir.path()));
}

fn kind<T>(result: Result<T>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}

#[test]
fn what_would_change_it_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    assert_eq!(kind(small().read_only(true).open(&path)), ErrorKind::NotFound);
    let db = open(&path);
    put(&db, &db.table("t").unwrap(), &[("a", "1")]);
    db.close().unwrap();

    let db = small().read_only(true).open(&path).unwrap();
    let table = db.table("t").unwrap();
    let mut tx = db.begin().unwrap();
    assert_eq!(kind(tx.put(&table, "b", "2")), ErrorKind::ReadOnly);
    assert_eq!(kind(tx.insert(&table, "b", "2")), ErrorKind::ReadOnly);
    assert_eq!(kind(tx.delete(&table, "a")), ErrorKind::ReadOnly);
    assert_eq!(tx.get(&table, "a").unwrap().unwrap(), b"1");
    tx.commit().unwrap();
    assert_eq!(kind(db.table("new")), ErrorKind::ReadOnly);
    assert_eq!(kind(db.drop_table("t")), ErrorKind::ReadOnly);
    assert_eq!(kind(db.checkpoint()), ErrorKind::ReadOnly);
    assert_eq!(kind(db.add_log_device("log-1")), ErrorKind::ReadOnly);
    let rebuilding = small().read_only(true).expert(|expert| expert.rebuild_log());
    assert_eq!(kind(rebuilding.open(&path)), ErrorKind::InvalidInput);
    // A copy of the rows is a database of its own.
    db.backup(dir.path().join("copy")).unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(rows(&snapshot, &table).len(), 1);
    assert_eq!(contents(&Db::open(dir.path().join("copy")).unwrap()).unwrap(), contents(&db).unwrap());
}

#[test]
fn a_creation_that_did_not_end_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    open(dir.path()).close().unwrap();
    fs::write(dir.path().join("CREATING"), "").unwrap();
    let before = files(dir.path());
    assert_eq!(kind(small().read_only(true).open(dir.path())), ErrorKind::NotFound);
    assert!(files(dir.path()) == before);
}

#[test]
fn recovery_beyond_the_memory_that_it_may_take_fails_and_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let db = full_log(small(), 32 << 20).buffer_pool_bytes(16 << 20).open(&first).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..100_u32 {
        let mut tx = db.begin().unwrap();
        (0..10_u32).for_each(|m| tx.put(&table, (m * 1000 + n).to_be_bytes(), vec![7; 1000]).unwrap());
        tx.commit().unwrap();
    }
    crashed(&first, &second);
    let bounded = |bytes| small().read_only(true).expert(|expert| expert.read_only_memory_bytes(bytes)).open(&second);
    // Pages are recovered when they are read.
    let error = bounded(64 << 10).and_then(|db| contents(&db)).unwrap_err().to_string();
    assert!(error.contains("read_only_memory_bytes"), "{error}");
    assert_eq!(contents(&bounded(4 << 20).unwrap()).unwrap(), contents(&db).unwrap());
}

/// A database made on blocks of 512 bytes, with a log or sectors that are cut so, is read and copied on blocks of 4,096.
#[test]
fn what_was_made_on_smaller_blocks_is_read_and_copied() {
    for store in [StoreKind::InPlace, StoreKind::InPageLogging] {
        let device = |name: &str, bytes: u64, logical_block: u32| {
            let profile = MemoryProfile { logical_block, ..MemoryProfile::default() };
            MemoryDevice::with_profile(name, bytes, profile)
        };
        let all = |logical_block| {
            [
                device("data", 8 << 20, logical_block),
                device("area", 1 << 20, logical_block),
                device("log", 2 << 20, logical_block),
            ]
        };
        let devices = |[data, area, log]: &[Arc<MemoryDevice>; 3]| Devices {
            data: data.clone(),
            double_write: (store == StoreKind::InPlace).then(|| area.clone() as Arc<dyn Device>),
            log: vec![log.clone()],
        };
        let (small, large) = (all(512), all(4096));
        let builder = || on_store(store).expert(|expert| expert.log_block_bytes(512));
        let db = builder().open_on(devices(&small)).unwrap();
        let table = db.table("t").unwrap();
        for key in 0..500_u32 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, key.to_be_bytes(), [7; 100]).unwrap();
            drop(tx.commit_async().unwrap());
        }
        db.close().unwrap();
        small.iter().zip(&large).for_each(|(from, to)| to.load(&from.image()));

        let error = on_store(store).open_on(devices(&large)).unwrap_err();
        assert!(error.to_string().contains("`tantalum db backup`"), "{error}");
        let before: Vec<_> = large.iter().map(|device| device.image()).collect();
        let db = on_store(store).read_only(true).open_on(devices(&large)).unwrap();
        assert_eq!(rows(&db.snapshot().unwrap(), &db.table("t").unwrap()).len(), 500);
        let dir = tempfile::tempdir().unwrap();
        db.backup(dir.path().join("copy")).unwrap();
        assert_eq!(contents(&Db::open(dir.path().join("copy")).unwrap()).unwrap(), contents(&db).unwrap());
        drop(db);
        assert!(large.iter().map(|device| device.image()).eq(before), "nothing was written");
    }
}
