//! Databases that are damaged or not what they seem: each is refused with an error that says what, where, and what to do,
//! and nothing is lost by trying.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::{FileExt, PermissionsExt},
    path::{Path, PathBuf},
};

use crate::common::{make_database, small, tantalum};

const REMEDIES: [&str; 6] = ["restore", "use", "give", "put", "check", "remove"];

struct Database {
    _dir: tempfile::TempDir,
    path: PathBuf,
}

impl Database {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("db");
        make_database(&path);
        Self { _dir: dir, path }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// `db check` must fail with one line that has all `words`; after `mend` everything must be there again.
    #[track_caller]
    fn refuses(&self, words: &[&str]) -> String {
        tantalum(&["db", "check", &self.path.display().to_string()]).fails(words)
    }

    #[track_caller]
    fn is_whole(&self) {
        let dump = tantalum(&["db", "dump", &self.path.display().to_string()]).ok();
        assert!(dump.ends_with(b"\n") && dump.windows(8).any(|window| window == b"end 2 21"));
    }
}

/// Overwrites bytes of a file; returns the old ones.
fn overwrite(path: &Path, offset: u64, bytes: &[u8]) -> Vec<u8> {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut old = vec![0; bytes.len()];
    file.read_exact_at(&mut old, offset).unwrap();
    file.write_all_at(bytes, offset).unwrap();
    old
}

#[test]
fn wrong_magic_in_both_superblocks() {
    let db = Database::new();
    for (name, copy_at) in [("data", 4096), ("log-0", 4096)] {
        let path = db.file(name);
        let old = [0, copy_at].map(|at| overwrite(&path, at, b"ELEPHANT"));
        let line = db.refuses(&[name]);
        assert!(REMEDIES.iter().any(|remedy| line.contains(remedy)), "{line}");
        [0, copy_at].into_iter().zip(old).for_each(|(at, old)| drop(overwrite(&path, at, &old)));
        db.is_whole();
    }
}

#[test]
fn one_damaged_superblock_is_survived() {
    for name in ["data", "log-0"] {
        let db = Database::new();
        overwrite(&db.file(name), 0, b"ELEPHANT");
        db.is_whole();
    }
}

#[test]
fn a_newer_format_version() {
    let db = Database::new();
    for (name, copy_at) in [("data", 4096), ("log-0", 4096)] {
        let path = db.file(name);
        let old = [0, copy_at].map(|at| overwrite(&path, at + 8, &[200, 0]));
        db.refuses(&[name, "version"]);
        [0, copy_at].into_iter().zip(old).for_each(|(at, old)| drop(overwrite(&path, at + 8, &old)));
        db.is_whole();
    }
}

#[test]
fn another_page_size() {
    let db = Database::new();
    let error = small().page_size(8192).open(&db.path).unwrap_err().to_string();
    assert!(error.contains("4096") && error.contains("8192"), "{error}");
    db.is_whole();
}

#[test]
fn truncated_files() {
    // The data file is cut where rows are: the database would not miss zeros that it never used.
    for (name, blocks) in [("data", 5), ("log-0", 100), ("log-0", 1), ("data", 0)] {
        let db = Database::new();
        let path = db.file(name);
        let whole = fs::read(&path).unwrap();
        OpenOptions::new().write(true).open(&path).unwrap().set_len(blocks * 4096).unwrap();
        db.refuses(&[name]);
        fs::write(&path, &whole).unwrap();
        db.is_whole();
    }
}

#[test]
fn a_missing_file() {
    for name in ["data", "log-0"] {
        let db = Database::new();
        let (path, aside) = (db.file(name), db.file("aside"));
        fs::rename(&path, &aside).unwrap();
        db.refuses(&[name]);
        fs::rename(&aside, &path).unwrap();
        db.is_whole();
    }
}

#[test]
fn a_log_of_another_database() {
    let (db, other) = (Database::new(), Database::new());
    let (mine, aside) = (db.file("log-0"), db.file("aside"));
    fs::rename(&mine, &aside).unwrap();
    fs::copy(other.file("log-0"), &mine).unwrap();
    db.refuses(&["log"]);
    fs::rename(&aside, &mine).unwrap();
    db.is_whole();
}

#[test]
fn log_devices_in_another_order_simply_work() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let (first, second) = (dir.path().join("first"), dir.path().join("second"));
    let open = |devices: [&PathBuf; 2]| small().log_devices(devices).open(&path).unwrap();
    let db = open([&first, &second]);
    let table = db.table("t").unwrap();
    for n in 0..50u8 {
        let mut transaction = db.begin().unwrap();
        transaction.put(&table, [n], b"value").unwrap();
        transaction.commit().unwrap();
    }
    drop((db, table));
    let db = open([&second, &first]);
    let table = db.table("t").unwrap();
    assert_eq!(db.snapshot().unwrap().range(&table, ..).unwrap().count(), 50);
    db.close().unwrap();
}

#[test]
fn settings_that_cannot_be_understood() {
    let db = Database::new();
    let path = db.file("tantalum.toml");
    let whole = fs::read_to_string(&path).unwrap();
    for (text, key) in
        [("page_sise = 4096", "page_sise"), ("isolation = 7", "isolation"), ("lock_timeout_ms = -1", "lock_timeout_ms")]
    {
        fs::write(&path, format!("# first\n# second\n{text}\n")).unwrap();
        let line = db.refuses(&["tantalum.toml", "3"]);
        assert!(line.contains(key) || line.contains("invalid"), "{line}");
    }
    fs::write(&path, "page_size = = 3\n").unwrap();
    db.refuses(&["tantalum.toml", "1"]);
    fs::write(&path, whole).unwrap();
    db.is_whole();
}

#[test]
fn a_directory_that_is_no_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().display().to_string();
    for command in ["check", "stat", "tables", "dump"] {
        tantalum(&["db", command, &path]).fails(&[&path]);
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing was created");
    tantalum(&["log", "verify", &path]).fails(&[&path, "there is no database here"]);
    tantalum(&["db", "check", "/nowhere/at/all"]).fails(&["/nowhere/at/all"]);
}

#[test]
fn a_read_only_directory() {
    // The superuser may write anywhere.
    if rustix_is_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o555)).unwrap();
    let db = dir.path().join("db").display().to_string();
    tantalum(&["db", "load", &db]).fails(&["db"]);
}

fn rustix_is_root() -> bool {
    // The owner of our own process's directory is its effective user.
    std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0
}

#[test]
fn a_database_in_use_names_the_process() {
    let db = Database::new();
    let held = small().open(&db.path).unwrap();
    db.refuses(&[&std::process::id().to_string()]);
    held.close().unwrap();
    db.is_whole();
}

#[test]
fn verify_names_the_damaged_request() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = small().log_partitions(1).open(&path).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..20u8 {
        let mut transaction = db.begin().unwrap();
        transaction.put(&table, [n], [7; 100]).unwrap();
        transaction.commit().unwrap();
    }
    // As after kill -9: without the checkpoint of an orderly end.
    std::mem::forget((db, table));
    let copy = dir.path().join("log-copy");
    fs::copy(path.join("log-0"), &copy).unwrap();
    let copy = copy.display().to_string();
    let inspection = tantalum(&["log", "inspect", &copy, "--json"]).ok();
    let inspection: serde_json::Value = serde_json::from_slice(&inspection).unwrap();
    let requests = inspection["devices"][0]["requests"].as_array().unwrap();
    let live: Vec<_> = requests.iter().filter(|request| request["state"] == "live").collect();
    assert!(live.len() >= 10);
    let damaged = live[live.len() / 2]["offset"].as_u64().unwrap();
    overwrite(Path::new(&copy), damaged + 200, b"rot");
    let run = tantalum(&["log", "verify", &copy]);
    let listed = String::from_utf8_lossy(&run.out).into_owned();
    assert!(listed.contains(&copy) && listed.contains(&damaged.to_string()), "{listed}");
    run.fails(&["damaged"]);
}
