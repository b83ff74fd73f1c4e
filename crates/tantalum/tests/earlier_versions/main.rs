//! Databases that earlier versions made, as they are in `fixtures/`: this version opens them, or refuses them by name.
//!
//! Each fixture is a directory's files without their zeros. For one of a new version: run the ignored test in a checkout of that
//! version, and add what it writes. Version 1 is the first one; that named `patches` is the first that logs replaced rows as patches.
//! Those named `chains` have large values as versions before value trees wrote them. Those named `spilling` and `moving` have value trees,
//! and a large transaction that was staged, or was being moved, when the power was cut; the ignored test that makes them does it in the
//! simulation, so that it finds such a moment on any machine. Those named `feed` have tables with
//! change feeds.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod compaction;
mod feed;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use tantalum::{Builder, Db, PageCompression, PageStreams, StoreKind, Table};
use tantalum_device::{
    MemoryProfile,
    files::{self as simulated, SimulatedFiles},
};
use tantalum_rt::{Outcome, Random, Simulation, sleep};

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

static FIXTURES: [Fixture; 6] = [
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

/// When the power was cut of a database with large values and a large transaction: the name of its fixtures' directory.
const CRASHES: [&str; 2] = ["spilling", "moving"];

fn staged_value(n: u32, session: usize) -> Vec<u8> {
    match n % 40 {
        0 => sparse_value([1500, 5000, 30_000, 150_000][n as usize / 40 % 4], session as u64),
        _ => [value(n, session).as_bytes(), &[0; 500]].concat(),
    }
}

/// What is there without the large transaction, or with it.
fn rows_around_large(with_it: bool) -> BTreeMap<String, Vec<u8>> {
    let mut rows: BTreeMap<_, _> = (0..100).map(|n| (key(n), staged_value(n, 0))).collect();
    rows.insert("last".into(), b"makes the log durable".to_vec());
    if with_it {
        rows.extend((50..200).map(|n| (key(n), staged_value(n, 1))));
        (50..100).filter(|n| n % 10 == 7).for_each(|n| _ = rows.remove(&key(n)));
    }
    rows
}

fn put_one(db: &Db, table: &Table, key: &str, value: &[u8]) {
    let mut tx = db.begin().unwrap();
    tx.put(table, key, value).unwrap();
    tx.commit().unwrap();
}

/// Waits until no more than so many staging tables and dead values are left.
fn wait_until_moved_but(db: &Db, left: u64) {
    while {
        let stats = db.stats().unwrap().transactions;
        stats.staging_tables + stats.dead_values > left
    } {
        sleep(Duration::from_millis(5));
    }
}

/// The files of a database whose power is cut while a large transaction spills; or after its commit, and once more `delay` after the
/// next open, while its rows are moved. In the first case there is a dead value too, which a snapshot sees.
fn cut_with_large(fixture: &'static Fixture, delay: Option<Duration>) -> Vec<u8> {
    let latency = || Duration::from_micros(20)..Duration::from_micros(50);
    let profile = MemoryProfile { write_latency: latency(), read_latency: latency(), ..MemoryProfile::default() };
    let system = SimulatedFiles::new(profile);
    let _attached = system.attach();
    let open = || fixture.builder().transaction_memory_bytes(8 << 10).open("/db").unwrap();
    cut_after(&system, move || {
        let db = open();
        let table = db.table("rows").unwrap();
        put_one(&db, &table, &key(0), &sparse_value(40_000, 9));
        (1..100).for_each(|n| put_one(&db, &table, &key(n), &staged_value(n, 0)));
        let snapshot = db.snapshot().unwrap();
        put_one(&db, &table, &key(0), &staged_value(0, 0));
        wait_until_moved_but(&db, 1);
        db.checkpoint().unwrap();
        if delay.is_some() {
            put_one(&db, &table, "last", b"makes the log durable");
        }
        let mut tx = db.begin().unwrap();
        for n in 50..200 {
            match n % 10 {
                7 if n < 100 => assert!(tx.delete(&table, key(n)).unwrap()),
                _ => tx.put(&table, key(n), staged_value(n, 1)).unwrap(),
            }
        }
        if delay.is_some() {
            tx.commit().unwrap();
            tantalum_rt::power_cut();
        }
        put_one(&db, &table, "last", b"makes the log durable");
        assert!(snapshot.get(&table, key(0)).unwrap().unwrap() == sparse_value(40_000, 9)[..]);
        tantalum_rt::power_cut();
    });
    if let Some(delay) = delay {
        cut_after(&system, move || {
            let db = open();
            sleep(delay);
            put_one(&db, &db.table("rows").unwrap(), "last", b"makes the log durable");
            tantalum_rt::power_cut();
        });
    }
    let files = system.files().into_iter().map(|path| {
        let bytes = simulated::read(&path).unwrap();
        (path.strip_prefix("/db").unwrap().to_path_buf(), bytes)
    });
    pack_files(files)
}

fn cut_after(system: &SimulatedFiles, run: impl FnOnce() + 'static) {
    assert!(matches!(Simulation::new(1).run(run), Outcome::PowerCut { .. }));
    system.power_cut(&mut Random::with_seed(1));
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
fn pack_files(files: impl IntoIterator<Item = (PathBuf, Vec<u8>)>) -> Vec<u8> {
    /// So many zeros end a run.
    const GAP: usize = 16;
    let mut packed = Vec::new();
    for (name, bytes) in files.into_iter().filter(|(name, _)| name != Path::new("LOCK")) {
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

fn pack(directory: &Path) -> Vec<u8> {
    pack_files(files(directory).into_iter().map(|name| {
        let bytes = fs::read(directory.join(&name)).unwrap();
        (name, bytes)
    }))
}

/// The names and bytes of files that were packed.
fn read_fixture_files(packed: &[u8]) -> Vec<(PathBuf, Vec<u8>)> {
    let (mut files, mut rest) = (Vec::new(), packed);
    let mut take = |count: usize| {
        let (taken, others) = rest.split_at_checked(count)?;
        rest = others;
        Some(taken)
    };
    let u32_of = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().unwrap()) as usize;
    let u64_of = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap()) as usize;
    while let Some(length) = take(4) {
        let name = PathBuf::from(std::str::from_utf8(take(u32_of(length)).unwrap()).unwrap());
        let mut bytes = vec![0; u64_of(take(8).unwrap())];
        for _ in 0..u32_of(take(4).unwrap()) {
            let (offset, length) = (u64_of(take(8).unwrap()), u32_of(take(4).unwrap()));
            bytes[offset..offset + length].copy_from_slice(take(length).unwrap());
        }
        files.push((name, bytes));
    }
    files
}

fn unpack(packed: &[u8], directory: &Path) {
    for (name, bytes) in read_fixture_files(packed) {
        let path = directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

#[test]
fn databases_of_earlier_versions_open_and_go_on() {
    for (version, fixtures) in [("1", &FIXTURES[..]), ("patches", &FIXTURES), ("compressed", &FIXTURES[4..])] {
        for fixture in fixtures {
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

/// The format version that the superblock has, and its copy.
fn format_versions(directory: &Path) -> [u8; 2] {
    let data = fs::read(directory.join("data")).unwrap();
    [data[8], data[4096 + 8]]
}

/// Programs that know no compressed pages open a database as long as it has none, and refuse it by its version from then on.
#[test]
fn a_store_with_new_features_is_of_a_newer_format_from_then_on() {
    let dir = tempfile::tempdir().unwrap();
    unpack(&fs::read(FIXTURES[5].path("1")).unwrap(), dir.path());
    let open = |compression, page_streams| {
        let builder = FIXTURES[5].builder().create_if_missing(false);
        builder
            .expert(|expert| expert.page_compression(compression).page_streams(page_streams))
            .open(dir.path())
            .unwrap()
    };
    let stored = |db: &Db| {
        let found = db.stats().unwrap().store.log_structured.unwrap();
        (found.pages_stored > 0, found.bytes_stored < found.pages_stored * 4096)
    };
    for (compression, page_streams, session, version) in [
        (PageCompression::None, PageStreams::Two, 0, 1),
        (PageCompression::None, PageStreams::One, 1, 1),
        (PageCompression::Lz4, PageStreams::Two, 2, 3),
        (PageCompression::None, PageStreams::One, 3, 3),
        (PageCompression::None, PageStreams::ByLifetime, 4, 4),
        (PageCompression::Lz4, PageStreams::One, 5, 4),
        (PageCompression::None, PageStreams::Two, 6, 4),
    ] {
        let db = open(compression, page_streams);
        assert_eq!(format_versions(dir.path()), [version; 2], "session {session}");
        assert_eq!(read(&db), rows(), "session {session}");
        let table = db.table("another").unwrap();
        for n in 0..1000 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, key(n), value(n, session)).unwrap();
            tx.commit().unwrap();
        }
        db.checkpoint().unwrap();
        assert_eq!(stored(&db), (true, compression == PageCompression::Lz4), "session {session}");
        assert_eq!(db.check().unwrap().problems(), [] as [&str; 0]);
        db.close().unwrap();
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

/// All of a large transaction is there or nothing, and all its rows, with large values among them, are read where they are, by readers
/// too; then rows are moved, and what is dead is freed.
#[test]
fn staged_rows_and_value_trees_are_read_and_completed() {
    for (crash, fixture) in CRASHES.iter().flat_map(|crash| FIXTURES.iter().map(move |fixture| (*crash, fixture))) {
        if fixture.is_closed {
            continue;
        }
        let dir = tempfile::tempdir().unwrap();
        let packed = fs::read(fixture.path(crash)).unwrap();
        unpack(&packed, dir.path());
        let expected = rows_around_large(crash == "moving");
        let check = |db: &Db| {
            let table = db.table("rows").unwrap();
            let rows = db.snapshot().unwrap().range(&table, ..).unwrap().map(Result::unwrap).collect::<Vec<_>>();
            let expected = expected.iter().map(|(key, value)| (key.as_bytes(), &value[..]));
            assert!(rows.iter().map(|(key, value)| (&key[..], &value[..])).eq(expected), "{crash}, {}", fixture.name);
            for (key, value) in rows {
                assert!(db.get(&table, &key).unwrap().unwrap() == value[..]);
            }
            let report = db.check().unwrap();
            assert_eq!(report.problems(), [] as [&str; 0], "{crash}, {}", fixture.name);
            (report.tables[0].rows, report.pages_used)
        };
        let reader = Db::builder().read_only(true).open(dir.path()).unwrap();
        let (rows_in_table, pages) = check(&reader);
        let (before, after) = (rows_around_large(false).len() as u64, expected.len() as u64);
        // Some rows were moved, and others were not.
        assert!(crash != "moving" || (before + 1..after).contains(&rows_in_table), "{rows_in_table}");
        reader.backup(dir.path().join("copy")).unwrap();
        let copy = Db::builder().open(dir.path().join("copy")).unwrap();
        check(&copy);
        wait_until_moved_but(&copy, 0);
        assert_eq!(check(&copy).0, after);
        copy.close().unwrap();
        fs::remove_dir_all(dir.path().join("copy")).unwrap();
        reader.close().unwrap();
        assert!(pack(dir.path()) == packed, "{crash}, {}: a reader has changed it", fixture.name);
        for _ in 0..2 {
            let db = Db::builder().create_if_missing(false).open(dir.path()).unwrap();
            check(&db);
            wait_until_moved_but(&db, 0);
            let (rows_in_table, pages_left) = check(&db);
            // The dead value has gone, and the staging tables.
            assert!(rows_in_table == after && pages_left + 10 < pages, "{pages_left} of {pages} pages are left");
            db.close().unwrap();
        }
    }
}

/// Rows that are in their table, in the database of a fixture.
fn rows_in_table(packed: &[u8]) -> usize {
    let dir = tempfile::tempdir().unwrap();
    unpack(packed, dir.path());
    let db = Db::builder().read_only(true).open(dir.path()).unwrap();
    let rows = db.check().unwrap().tables[0].rows;
    db.close().unwrap();
    rows as usize
}

#[test]
#[ignore = "makes the fixtures with staged rows, in a directory named by the variable FIXTURES"]
fn make_staged_fixtures() {
    let to = PathBuf::from(std::env::var_os("FIXTURES").unwrap());
    for crash in CRASHES {
        fs::create_dir_all(to.join(crash)).unwrap();
        for fixture in FIXTURES.iter().filter(|fixture| !fixture.is_closed) {
            let packed = if crash == "moving" { cut_while_moving(fixture) } else { cut_with_large(fixture, None) };
            fs::write(to.join(crash).join(fixture.name), packed).unwrap();
        }
    }
}

/// A cut that finds some rows moved, and others not.
fn cut_while_moving(fixture: &'static Fixture) -> Vec<u8> {
    let (before, after) = (rows_around_large(false).len(), rows_around_large(true).len());
    let (mut early, mut late) = (Duration::ZERO, Duration::from_secs(1));
    loop {
        let delay = (early + late) / 2;
        assert!(late - early > Duration::from_micros(1), "no moment is found when some rows are moved");
        let packed = cut_with_large(fixture, Some(delay));
        match rows_in_table(&packed) {
            rows if rows >= after => late = delay,
            rows if rows > before => return packed,
            _ => early = delay,
        }
    }
}

#[test]
#[ignore = "makes the fixtures of the version that is checked out, in a directory named by the variable FIXTURES"]
fn make_fixtures() {
    make(&FIXTURES, |fixture| fixture.builder());
}

#[test]
#[ignore = "makes the fixtures with compressed pages, in a directory named by the variable FIXTURES"]
fn make_compressed_fixtures() {
    make(&FIXTURES[4..], |fixture| fixture.builder().expert(|expert| expert.page_compression(PageCompression::Lz4)));
}

fn make(fixtures: &[Fixture], builder: impl Fn(&Fixture) -> Builder) {
    let to = PathBuf::from(std::env::var_os("FIXTURES").unwrap());
    fs::create_dir_all(&to).unwrap();
    for fixture in fixtures {
        let dir = tempfile::tempdir().unwrap();
        let db = builder(fixture).open(dir.path()).unwrap();
        fill(&db, 0);
        db.close().unwrap();
        let db = builder(fixture).open(dir.path()).unwrap();
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
