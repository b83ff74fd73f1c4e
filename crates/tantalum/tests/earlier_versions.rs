//! Databases that earlier versions made, as they are in `fixtures/`: this version opens them, or refuses them by name.
//!
//! Each fixture is a directory's files without their zeros. For one of a new version: run the ignored test in a checkout of that
//! version, and add what it writes. Version 1 is the first one; that named `patches` is the first that logs replaced rows as patches.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::{
    fs,
    path::{Path, PathBuf},
};

use tantalum::{Builder, Db, StoreKind};

/// Of rows that are there from the first session on, and from the second.
const ROWS: [std::ops::Range<u32>; 2] = [0..200, 200..240];

/// How a fixture was made.
struct Fixture {
    name: &'static str,
    store: StoreKind,
    is_archived: bool,
    /// Whether it was closed; else it is as a crash of the process left it.
    is_closed: bool,
}

const FIXTURES: [Fixture; 6] = [
    fixture("in-place", StoreKind::InPlace, true),
    fixture("in-place-crashed", StoreKind::InPlace, false),
    fixture("in-page-logging", StoreKind::InPageLogging, true),
    fixture("in-page-logging-crashed", StoreKind::InPageLogging, false),
    fixture("log-structured", StoreKind::LogStructured, true),
    fixture("log-structured-crashed", StoreKind::LogStructured, false),
];

const fn fixture(name: &'static str, store: StoreKind, is_closed: bool) -> Fixture {
    Fixture { name, store, is_archived: matches!(store, StoreKind::InPlace), is_closed }
}

impl Fixture {
    fn path(&self, version: &str) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(version).join(self.name)
    }

    fn builder(&self) -> Builder {
        let builder = Db::builder()
            .page_store(self.store)
            .log_bytes(1 << 20)
            .log_devices(["log-a", "log-b"])
            .buffer_pool_bytes(64 * 4096);
        if self.is_archived { builder.log_archive("archive") } else { builder }
    }
}

fn key(n: u32) -> String {
    format!("key-{n:05}")
}

fn value(n: u32, session: usize) -> String {
    format!("value {n} of session {session}")
}

/// What the database holds after both sessions.
fn rows() -> Vec<(String, String)> {
    let of_second = |n: u32| n % 10 == 3 || ROWS[1].contains(&n);
    let all = (ROWS[0].start..ROWS[1].end).filter(|n| n % 10 != 7 || ROWS[1].contains(n));
    all.map(|n| (key(n), value(n, usize::from(of_second(n))))).collect()
}

fn fill(db: &Db, session: usize) {
    let table = db.table("rows").unwrap();
    let mut tx = db.begin().unwrap();
    for n in ROWS[session].clone() {
        tx.put(&table, key(n), value(n, session)).unwrap();
    }
    for n in ROWS[0].clone().filter(|_| session == 1) {
        match n % 10 {
            3 => tx.put(&table, key(n), value(n, session)).unwrap(),
            7 => _ = tx.delete(&table, key(n)).unwrap(),
            _ => {}
        }
    }
    tx.commit().unwrap();
}

fn read(db: &Db) -> Vec<(String, String)> {
    let table = db.table("rows").unwrap();
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let snapshot = db.snapshot().unwrap();
    let rows = snapshot.range(&table, ..).unwrap();
    rows.map(|row| row.map(|(key, value)| (text(&key), text(&value))).unwrap()).collect()
}

/// Rows with values in chains of overflow pages, as versions before value trees wrote them, after both sessions. Mostly zeros.
fn rows_in_chains(store: StoreKind) -> Vec<(String, Vec<u8>)> {
    // As many as a record could take.
    let count = if store == StoreKind::InPageLogging { 4 } else { 6 };
    let sizes = [1100, 5000, 10 << 10, 100 << 10, 300 << 10, 1 << 20].into_iter().take(count);
    let rows = sizes.zip(0u32..).map(|(bytes, n)| (key(n), sparse_value(bytes, u64::from(n % 3 == 0))));
    rows.collect()
}

/// A number in each kilobyte.
fn sparse_value(bytes: usize, session: u64) -> Vec<u8> {
    let mut value = vec![0; bytes];
    for (part, number) in value.chunks_exact_mut(1000).zip(1u64..) {
        part[..8].copy_from_slice(&(number | session << 32).to_le_bytes());
    }
    value
}

/// In the first session all rows have the values of the first one, and one more is there, which the second deletes.
fn fill_chains(db: &Db, store: StoreKind, session: usize) {
    let table = db.table("rows").unwrap();
    for ((key, value), n) in rows_in_chains(store).into_iter().zip(0..) {
        if session == 0 || n % 3 == 0 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, key, sparse_value(value.len(), session as u64)).unwrap();
            tx.commit().unwrap();
        }
    }
    let mut tx = db.begin().unwrap();
    match session {
        0 => tx.put(&table, "deleted", sparse_value(20_000, 0)).unwrap(),
        _ => assert!(tx.delete(&table, "deleted").unwrap()),
    }
    tx.commit().unwrap();
}

/// The files in a directory and those below it, by their paths in it.
fn files(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let (path, name) = entry.map(|entry| (entry.path(), PathBuf::from(entry.file_name()))).unwrap();
        match path.is_dir() {
            true => found.extend(files(&path).into_iter().map(|below| name.join(below))),
            false if path.is_file() => found.push(name),
            false => {}
        }
    }
    found.sort();
    found
}

/// Of each file: the bytes of its name (4) and it, its bytes (8), the number of runs (4), and of each run its offset (8), its bytes
/// (4) and them. What lies in no run is zero.
fn pack(directory: &Path) -> Vec<u8> {
    /// So many zeros end a run.
    const GAP: usize = 16;
    let mut packed = Vec::new();
    for name in files(directory).into_iter().filter(|name| name != Path::new("LOCK")) {
        let bytes = fs::read(directory.join(&name)).unwrap();
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for (at, _) in bytes.iter().enumerate().filter(|(_, byte)| **byte != 0) {
            match runs.last_mut() {
                Some(last) if at - last.end < GAP => last.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
        let name = name.to_str().unwrap();
        packed.extend((name.len() as u32).to_le_bytes());
        packed.extend(name.bytes());
        packed.extend((bytes.len() as u64).to_le_bytes());
        packed.extend((runs.len() as u32).to_le_bytes());
        for run in runs {
            packed.extend((run.start as u64).to_le_bytes());
            packed.extend((run.len() as u32).to_le_bytes());
            packed.extend(&bytes[run]);
        }
    }
    packed
}

fn unpack(packed: &[u8], directory: &Path) {
    let mut rest = packed;
    let mut take = |count: usize| {
        let (taken, others) = rest.split_at_checked(count)?;
        rest = others;
        Some(taken)
    };
    let u32_of = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
    let u64_of = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap()) as usize;
    while let Some(length) = take(4) {
        let path = directory.join(std::str::from_utf8(take(u32_of(length)).unwrap()).unwrap());
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let mut bytes = vec![0; u64_of(take(8).unwrap())];
        for _ in 0..u32_of(take(4).unwrap()) {
            let (offset, length) = (u64_of(take(8).unwrap()), u32_of(take(4).unwrap()));
            bytes[offset..offset + length].copy_from_slice(take(length).unwrap());
        }
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn databases_of_earlier_versions_open_and_go_on() {
    for version in ["1", "patches"] {
        for fixture in &FIXTURES {
            let dir = tempfile::tempdir().unwrap();
            let packed = fs::read(fixture.path(version)).unwrap();
            unpack(&packed, dir.path());
            let reader = Db::builder().read_only(true).open(dir.path()).unwrap();
            assert_eq!(read(&reader), rows(), "{version}: {}", fixture.name);
            reader.close().unwrap();
            assert!(pack(dir.path()) == packed, "{version}: {}: a reader has changed it", fixture.name);
            // As the file of settings says, and then again with what this version has made of it.
            for _ in 0..2 {
                let db = Db::builder().create_if_missing(false).open(dir.path()).unwrap();
                assert_eq!(read(&db), rows(), "{version}: {}", fixture.name);
                assert_eq!(db.check().unwrap().problems(), [] as [&str; 0], "{version}: {}", fixture.name);
                let table = db.table("another").unwrap();
                let mut tx = db.begin().unwrap();
                tx.put(&table, "key", "value").unwrap();
                tx.commit().unwrap();
                db.close().unwrap();
            }
        }
    }
}

#[test]
fn chains_of_earlier_versions_are_read_overwritten_deleted_and_dropped() {
    for fixture in &FIXTURES {
        let dir = tempfile::tempdir().unwrap();
        unpack(&fs::read(fixture.path("chains")).unwrap(), dir.path());
        let mut expected = rows_in_chains(fixture.store);
        let check = |db: &Db, expected: &[(String, Vec<u8>)]| {
            let table = db.table("rows").unwrap();
            let snapshot = db.snapshot().unwrap();
            let rows: Vec<_> = snapshot.range(&table, ..).unwrap().map(Result::unwrap).collect();
            assert!(
                rows.iter()
                    .map(|(key, value)| (&key[..], &value[..]))
                    .eq(expected.iter().map(|(key, value)| (key.as_bytes(), &value[..]))),
                "{}",
                fixture.name
            );
            assert_eq!(db.check().unwrap().problems(), [] as [&str; 0], "{}", fixture.name);
        };
        let reader = Db::builder().read_only(true).open(dir.path()).unwrap();
        check(&reader, &expected);
        reader.close().unwrap();
        let db = Db::builder().create_if_missing(false).open(dir.path()).unwrap();
        check(&db, &expected);
        let before = db.snapshot().unwrap();
        let table = db.table("rows").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&table, &expected[1].0, sparse_value(30_000, 7)).unwrap();
        tx.put(&table, &expected[2].0, "short").unwrap();
        assert!(tx.delete(&table, &expected[3].0).unwrap());
        tx.commit().unwrap();
        assert_eq!(before.get(&table, &expected[3].0).unwrap().unwrap(), expected[3].1[..]);
        drop(before);
        (expected[1].1, expected[2].1) = (sparse_value(30_000, 7), b"short".to_vec());
        expected.remove(3);
        check(&db, &expected);
        db.close().unwrap();
        let db = Db::builder().create_if_missing(false).open(dir.path()).unwrap();
        check(&db, &expected);
        drop(table);
        db.drop_table("rows").unwrap();
        assert_eq!(db.check().unwrap().problems(), [] as [&str; 0], "{}", fixture.name);
        db.close().unwrap();
    }
}

#[test]
#[ignore = "makes the fixtures of the version that is checked out, in a directory named by the variable FIXTURES"]
fn make_fixtures() {
    let to = PathBuf::from(std::env::var_os("FIXTURES").unwrap());
    fs::create_dir_all(&to).unwrap();
    for fixture in &FIXTURES {
        let dir = tempfile::tempdir().unwrap();
        let db = fixture.builder().open(dir.path()).unwrap();
        fill(&db, 0);
        db.close().unwrap();
        let db = fixture.builder().open(dir.path()).unwrap();
        fill(&db, 1);
        if fixture.is_closed {
            db.close().unwrap();
        }
        fs::write(to.join(fixture.name), pack(dir.path())).unwrap();
    }
}

#[test]
#[ignore = "makes the fixtures with chains of overflow pages; versions with value trees write none"]
fn make_chain_fixtures() {
    let to = PathBuf::from(std::env::var_os("FIXTURES").unwrap());
    fs::create_dir_all(&to).unwrap();
    for fixture in &FIXTURES {
        let dir = tempfile::tempdir().unwrap();
        for session in 0..2 {
            let db = fixture.builder().log_bytes(40 << 20).buffer_pool_bytes(1024 * 4096).open(dir.path()).unwrap();
            fill_chains(&db, fixture.store, session);
            if session == 0 || fixture.is_closed {
                db.close().unwrap();
            }
        }
        fs::write(to.join(fixture.name), pack(dir.path())).unwrap();
    }
}
