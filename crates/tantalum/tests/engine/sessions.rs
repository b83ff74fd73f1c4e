//! Files of a database are noted with the session that they belong to: an old copy of one is refused, all of them together are not.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use tantalum::{Builder, Db, Devices, ErrorKind, Restore, StoreKind, TornPageProtection};
use tantalum_device::{Device, MemoryDevice};

fn builder(store: StoreKind) -> Builder {
    Db::builder().page_store(store).log_bytes(1 << 20).log_devices(["log-a", "log-b"]).buffer_pool_bytes(64 * 4096)
}

fn put(db: &Db, rows: std::ops::Range<u32>) {
    let table = db.table("rows").unwrap();
    for rows in rows.collect::<Vec<_>>().chunks(100) {
        let mut tx = db.begin().unwrap();
        rows.iter().for_each(|row| tx.put(&table, row.to_be_bytes(), [*row as u8; 100]).unwrap());
        tx.commit().unwrap();
    }
}

fn rows(db: &Db) -> usize {
    let table = db.table("rows").unwrap();
    assert_eq!(db.check().unwrap().problems(), [] as [&str; 0]);
    db.snapshot().unwrap().range(&table, ..).unwrap().map(Result::unwrap).count()
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        match from.is_dir() {
            true => copy(&from, &to),
            false if from.is_file() => _ = fs::copy(from, to).unwrap(),
            false => {}
        }
    }
}

fn replace(from: &Path, to: &Path) {
    match from.is_dir() {
        true => {
            fs::remove_dir_all(to).unwrap();
            copy(from, to);
        }
        false => _ = fs::copy(from, to).unwrap(),
    }
}

/// The file that is refused, its session, and the one that it should have.
fn stale(opened: tantalum::Result<Db>) -> (String, u64, u64) {
    let error = opened.map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Stale, "{error}");
    let (file, message) = (error.about().expect("it names the file").to_owned(), error.to_string());
    let (_, rest) = message.split_once(": is a copy from session ").unwrap_or_else(|| panic!("{message}"));
    let (_, expected) = rest.rsplit_once(" session ").unwrap_or_else(|| panic!("{message}"));
    let number = |text: &str| text.split(|c: char| !c.is_ascii_digit()).next().unwrap().parse().unwrap();
    (file, number(rest), number(expected))
}

/// After a clean close the log needs nothing to be repeated: an old copy of the pages would be taken for the present ones.
#[test]
fn an_old_copy_of_any_file_is_refused_with_both_sessions() {
    for store in StoreKind::ALL {
        for is_closed in [true, false] {
            let dir = tempfile::tempdir().unwrap();
            let at = |name: &str| -> PathBuf { dir.path().join(name) };
            let builder = || match store {
                StoreKind::InPageLogging => builder(store),
                _ => builder(store).log_archive("archive"),
            };
            let db = builder().open(at("db")).unwrap();
            put(&db, 0..100);
            db.close().unwrap();
            copy(&at("db"), &at("old"));
            let db = builder().open(at("db")).unwrap();
            put(&db, 100..2200);
            if is_closed {
                db.close().unwrap();
                copy(&at("db"), &at("present"));
            } else {
                copy(&at("db"), &at("present"));
                drop(db);
            }
            let mut names = vec!["data", "log-a", "log-b", "log-devices.toml"];
            match store {
                StoreKind::InPlace => names.extend(["doublewrite", "archive"]),
                StoreKind::InPageLogging => {}
                StoreKind::LogStructured => names.push("archive"),
            }
            for (number, name) in names.into_iter().enumerate() {
                let copied = at(&format!("with-old-{number}"));
                copy(&at("present"), &copied);
                replace(&at("old").join(name), &copied.join(name));
                let (file, session, expected) = stale(builder().open(&copied));
                assert!(file.ends_with(name), "{store}, {is_closed}: {file} is refused, not {name}");
                assert_eq!((session, expected), (2, 3), "{store}, {is_closed}: {name}");
                // Nothing was changed by that.
                replace(&at("present").join(name), &copied.join(name));
                assert_eq!(rows(&builder().open(&copied).unwrap()), 2200, "{store}: {name}");
            }
            assert_eq!(rows(&builder().open(at("old")).unwrap()), 100, "{store}: all of one session");
        }
    }
}

/// With a log of one device that lies all in one old file, the others are what tells.
#[test]
fn an_old_copy_of_the_whole_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let builder = || Db::builder().log_bytes(1 << 20).log_partitions(2).buffer_pool_bytes(64 * 4096);
    let (path, log) = (dir.path().join("db"), dir.path().join("db/log-0"));
    let db = builder().open(&path).unwrap();
    put(&db, 0..10);
    db.close().unwrap();
    let old = fs::read(&log).unwrap();
    let db = builder().open(&path).unwrap();
    put(&db, 10..20);
    db.close().unwrap();
    let present = fs::read(&log).unwrap();
    fs::write(&log, old).unwrap();
    let (file, session, expected) = stale(builder().open(&path));
    assert!(file.contains("log-0") && (session, expected) == (2, 3), "{file}");
    fs::write(&log, present).unwrap();
    assert_eq!(rows(&builder().open(&path).unwrap()), 20);
}

/// Sessions that end before everything is noted, one after another, leave a database that opens.
#[test]
fn a_session_that_ends_before_it_is_noted_everywhere_does_no_harm() {
    use tantalum_device::Fault;
    let device = |name: &str| MemoryDevice::new(name, 4 << 20);
    let (data, area, logs) = (device("data"), device("double-write"), [device("log-0"), device("log-1")]);
    let open = || {
        let log = logs.iter().map(|log| Arc::clone(log) as Arc<dyn Device>).collect();
        Db::builder()
            .buffer_pool_bytes(64 * 4096)
            .expert(|expert| expert.torn_page_protection(TornPageProtection::DoubleWrite))
            .open_on(Devices { data: data.clone(), double_write: Some(area.clone()), log })
    };
    let db = open().unwrap();
    put(&db, 0..10);
    db.close().unwrap();
    for after in 0..6 {
        for device in [&data, &area, &logs[0], &logs[1]] {
            device.inject(Fault::FailWrites { after });
            let opened = open();
            device.clear_faults();
            // Later writes may be those of closing.
            drop(opened);
        }
    }
    assert_eq!(rows(&open().unwrap()), 10);
}

#[test]
fn what_is_restored_and_what_is_made_anew_has_sessions_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let builder = || builder(StoreKind::InPlace).log_archive(at("archive"));
    let db = builder().open(at("db")).unwrap();
    put(&db, 0..10);
    db.base_backup(at("backup"), &mut |_| {}).unwrap();
    db.close().unwrap();
    for session in 1..4 {
        let db = builder().open(at("db")).unwrap();
        put(&db, session * 10..session * 10 + 10);
        db.close().unwrap();
    }
    Restore::new(at("backup"), at("archive")).run(at("restored")).unwrap();
    for _ in 0..2 {
        let db = Db::open(at("restored")).unwrap();
        assert_eq!(rows(&db), 40);
        db.close().unwrap();
    }
    copy(&at("db"), &at("old"));
    let db = builder().open(at("db")).unwrap();
    put(&db, 40..50);
    db.close().unwrap();
    // The log's devices are lost: the archive tells what is old.
    for name in ["log-a", "log-b"] {
        fs::remove_file(at("db").join(name)).unwrap();
    }
    copy(&at("db"), &at("with-old-data"));
    replace(&at("old").join("data"), &at("with-old-data").join("data"));
    let rebuild = |name: &str| builder().expert(|expert| expert.rebuild_log()).open(at(name));
    let archive = at("archive");
    copy(&archive, &at("kept"));
    let (file, session, expected) = stale(rebuild("with-old-data"));
    assert!(file.ends_with("data") && session < expected, "{file}");
    assert_eq!(rows(&rebuild("db").unwrap()), 50);
    assert_eq!(rows(&builder().open(at("db")).unwrap()), 50);
}
