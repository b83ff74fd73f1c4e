//! `db backup --base`, `db restore` and `log rebuild`.

use std::{fs, path::Path};

use crate::common::{make_database, tantalum};

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

fn json(output: &[u8]) -> serde_json::Value {
    serde_json::from_slice(output).unwrap()
}

/// A closed database that is archived, and where.
fn archived(dir: &Path) -> (String, String) {
    let (db, archive) = (dir.join("db"), dir.join("archive"));
    make_database(&db);
    let settings = fs::read_to_string(db.join("tantalum.toml")).unwrap();
    fs::write(db.join("tantalum.toml"), format!("{settings}log_archive = {:?}\n", text(&archive))).unwrap();
    (text(&db), text(&archive))
}

fn put(db: &tantalum::Db, key: &str) -> u64 {
    let table = db.table("names").unwrap();
    let mut transaction = db.begin().unwrap();
    transaction.put(&table, key, "value").unwrap();
    transaction.commit().unwrap();
    db.stats().unwrap().log.durable_lsn.get()
}

fn dump(db: &str) -> Vec<u8> {
    tantalum(&["db", "dump", db]).ok()
}

#[test]
fn an_open_database_is_backed_up_and_restored_to_any_moment() {
    let dir = tempfile::tempdir().unwrap();
    let (db, archive) = archived(dir.path());
    let at = |name: &str| text(&dir.path().join(name));
    let unchanged = dump(&db);
    let open = tantalum::Db::builder().control_socket(true).open(&db).unwrap();
    let made = json(&tantalum(&["db", "backup", &db, &at("backup"), "--base", "--json"]).ok());
    assert!(made["start_lsn"].as_u64() <= made["end_lsn"].as_u64());
    let first = put(&open, "first");
    let second = put(&open, "second");
    open.checkpoint().unwrap();
    drop(open);
    let restore = |to: &str, more: &[&str]| {
        let (backup, to) = (at("backup"), at(to));
        tantalum(&[&["db", "restore", &backup, &to, "--archive", &archive][..], more].concat())
    };
    let restored = json(&restore("to-first", &["--to-lsn", &first.to_string(), "--json"]).ok());
    assert_eq!(restored["end_lsn"].as_u64(), Some(first));
    restore("to-second", &["--to-lsn", &second.to_string()]).ok();
    restore("to-end", &[]).ok();
    restore("to-backup", &["--to-lsn", &made["end_lsn"].to_string()]).ok();
    assert_eq!(dump(&at("to-backup")), unchanged);
    let lines = |name: &str| String::from_utf8(dump(&at(name))).unwrap();
    assert!(lines("to-first").contains(" first ") && !lines("to-first").contains(" second "));
    assert!(lines("to-second").contains(" second "));
    assert_eq!(dump(&at("to-end")), dump(&db));
    tantalum(&["db", "check", &at("to-end")]).ok();
    let time = restored["time"].as_str().unwrap();
    restore("to-time", &["--to-time", time]).ok();
    restore("x", &["--to-time", "2001-01-01T00:00:00Z"]).fails(&["earlier backup"]);
    restore("x", &["--to-lsn", "99999999999"]).fails(&["lacks", "99999999999"]);
    restore("to-end", &[]).fails(&["to-end"]);
    assert_eq!(restore("x", &["--to-time", "yesterday"]).code, Some(2));
    tantalum(&["db", "backup", &db, &at("closed"), "--base"]).ok();
    let without = dir.path().join("without");
    make_database(&without);
    tantalum(&["db", "backup", &text(&without), &at("y"), "--base"]).fails(&["log_archive"]);
}

#[test]
fn a_log_that_is_lost_is_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let (db, archive) = archived(dir.path());
    put(&tantalum::Db::open(&db).unwrap(), "last");
    let before = dump(&db);
    tantalum(&["log", "rebuild", &db]).fails(&["log-0", "not lost"]);
    fs::remove_file(dir.path().join("db/log-0")).unwrap();
    tantalum(&["db", "check", &db]).fails(&["log-0"]);
    fs::rename(&archive, dir.path().join("moved")).unwrap();
    tantalum(&["log", "rebuild", &db]).fails(&["archive"]);
    let moved = text(&dir.path().join("moved"));
    let rebuilt = json(&tantalum(&["log", "rebuild", &db, "--archive", &moved, "--log", "new-log", "--json"]).ok());
    assert!(rebuilt["end_lsn"].as_u64().unwrap() > 0);
    fs::rename(moved, &archive).unwrap();
    assert_eq!(dump(&db), before);
    assert!(dir.path().join("db/new-log").exists());
}
