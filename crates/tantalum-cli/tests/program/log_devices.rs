//! `tantalum log add-device`, `remove-device` and `replace-device`: on a closed database, and on one that another process
//! has open while it commits.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::common::{make_database, small, tantalum};
use tantalum::Db;

fn text(path: &Path) -> String {
    path.display().to_string()
}

/// The names of the log's devices, from what a command printed as JSON.
fn names(output: &[u8]) -> Vec<String> {
    let devices: serde_json::Value = serde_json::from_slice(output).unwrap();
    let name = |device: &serde_json::Value| device["name"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
    devices.as_array().unwrap().iter().map(name).collect()
}

#[test]
fn the_devices_of_a_closed_database_change() {
    let dir = tempfile::tempdir().unwrap();
    let db = text(&dir.path().join("db"));
    make_database(&dir.path().join("db"));
    let dump = tantalum(&["db", "dump", &db]).ok();

    let table = String::from_utf8(tantalum(&["log", "add-device", &db, "log-1"]).ok()).unwrap();
    assert!(table.contains("log-0") && table.contains("log-1") && table.contains("healthy"), "{table}");
    let elsewhere = text(&dir.path().join("elsewhere"));
    assert_eq!(
        names(&tantalum(&["log", "replace-device", &db, "log-0", &elsewhere, "--json"]).ok()),
        ["log-1", "elsewhere"]
    );
    assert_eq!(names(&tantalum(&["log", "replace-device", &db, &elsewhere, &elsewhere, "--json"]).ok()).len(), 2);
    let stat = tantalum(&["db", "stat", &db, "--json"]).ok();
    let stat: serde_json::Value = serde_json::from_slice(&stat).unwrap();
    assert_eq!(stat["log"]["devices"].as_array().unwrap().len(), 2);
    tantalum(&["log", "verify", &db]).ok();
    let inspection = tantalum(&["log", "inspect", &db, "--json"]).ok();
    let inspection: serde_json::Value = serde_json::from_slice(&inspection).unwrap();
    assert_eq!(inspection["device_count"], 2);
    assert_eq!(names(&tantalum(&["log", "remove-device", &db, "1", "--json"]).ok()).len(), 1);
    assert_eq!(tantalum(&["db", "dump", &db]).ok(), dump);
    tantalum(&["db", "check", &db]).ok();

    // What was removed is no part of the log, whatever it holds.
    let removed = text(&dir.path().join("db/log-0"));
    tantalum(&["log", "verify", &removed, &elsewhere]).fails(&["log-0", "no device of log"]);
}

#[test]
fn what_cannot_be_done_is_said_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (db, missing) = (text(&dir.path().join("db")), text(&dir.path().join("missing")));
    make_database(&dir.path().join("db"));
    tantalum(&["log", "remove-device", &db, "log-0"]).fails(&["log-0", "no other device of the log is healthy"]);
    tantalum(&["log", "remove-device", &db, "log-9"]).fails(&["log-9", "is no device of the log", "log-0"]);
    tantalum(&["log", "add-device", &db, "data"]).fails(&["data"]);
    tantalum(&["log", "add-device", &missing, "log-1"]).fails(&["missing"]);
    assert!(!dir.path().join("missing").exists());
    fs::write(dir.path().join("db/letters"), vec![7; 2 << 20]).unwrap();
    tantalum(&["log", "replace-device", &db, "log-0", "letters"]).fails(&["letters", "not blank"]);
    assert_eq!(fs::read(dir.path().join("db/letters")).unwrap(), vec![7; 2 << 20]);
    tantalum(&["db", "check", &db]).ok();
}

#[test]
fn a_device_that_is_gone_is_given_up_if_the_database_was_closed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    let db = text(&path);
    make_database(&path);
    tantalum(&["log", "add-device", &db, "log-1"]).ok();
    let dump = tantalum(&["db", "dump", &db]).ok();
    tantalum(&["log", "remove-device", &db, "log-1", "--lost"]).fails(&["log-1", "is there"]);
    // As a crash would leave it.
    let open = Db::open(&path).unwrap();
    let table = open.table("late").unwrap();
    for key in 0..50u8 {
        let mut tx = open.begin().unwrap();
        tx.put(&table, [key], [key]).unwrap();
        tx.commit().unwrap();
    }
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&path).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() && entry.file_name() != "log-1" {
            fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
        }
    }
    open.drop_table("late").unwrap();
    open.close().unwrap();
    tantalum(&["log", "remove-device", &text(&copy), "log-1", "--lost"]).fails(&["log-1", "LSN"]);

    fs::remove_file(path.join("log-1")).unwrap();
    tantalum(&["db", "check", &db]).fails(&["log-1", "nothing that is needed", "give up"]);
    tantalum(&["log", "remove-device", &db, "log-0", "--lost"]).fails(&["log-0", "is there"]);
    assert_eq!(names(&tantalum(&["log", "remove-device", &db, "log-1", "--lost", "--json"]).ok()), ["log-0"]);
    assert_eq!(tantalum(&["db", "dump", &db]).ok(), dump);
}

/// Commits until told to stop. Returns how often.
fn commit(db: &Db, stop: &AtomicBool) -> u64 {
    let table = db.table("counter").unwrap();
    let mut count = 0u64;
    while !stop.load(Ordering::Relaxed) {
        count += 1;
        let mut tx = db.begin().unwrap();
        tx.put(&table, b"count", count.to_be_bytes()).unwrap();
        tx.commit().unwrap();
    }
    count
}

#[test]
fn a_database_that_is_open_is_asked_through_its_socket() {
    let dir = tempfile::tempdir().unwrap();
    let path = text(dir.path());
    // As small as it begins: a file that it grows into would have another name.
    let db = small().log_bytes(1 << 20).control_socket(true).open(dir.path()).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let client = {
        let (db, stop) = (db.clone(), Arc::clone(&stop));
        tantalum_rt::spawn("client", move || commit(&db, &stop))
    };
    assert_eq!(names(&tantalum(&["log", "add-device", &path, "log-1", "--json"]).ok()), ["log-0", "log-1"]);
    assert_eq!(
        names(&tantalum(&["log", "replace-device", &path, "log-0", "log-2", "--json"]).ok()),
        ["log-1", "log-2"]
    );
    let stat = String::from_utf8(tantalum(&["db", "stat", &path]).ok()).unwrap();
    assert!(stat.contains("log.devices.1.name") && stat.contains("log-2"), "{stat}");
    assert_eq!(names(&tantalum(&["log", "remove-device", &path, "log-1", "--json"]).ok()), ["log-2"]);
    tantalum(&["log", "remove-device", &path, "log-2"])
        .fails(&["control.sock", "no other device of the log is healthy"]);
    stop.store(true, Ordering::Relaxed);
    let count = client.join().unwrap();
    assert!(count > 0);
    drop(db);

    let db = Db::open(dir.path()).unwrap();
    let value = db.begin().unwrap().get(&db.table("counter").unwrap(), b"count").unwrap();
    assert_eq!(value.as_deref(), Some(&count.to_be_bytes()[..]));
}

#[test]
fn a_database_that_is_open_without_a_socket_is_not_touched() {
    let dir = tempfile::tempdir().unwrap();
    let path = text(dir.path());
    let db = small().open(dir.path()).unwrap();
    let pid = std::process::id().to_string();
    let error = tantalum(&["log", "add-device", &path, "log-1"]).fails(&[&pid, "control.sock", "no process answers"]);
    assert!(error.contains("control_socket = true"), "{error}");
    assert_eq!(db.stats().unwrap().log.devices.len(), 1);
}
