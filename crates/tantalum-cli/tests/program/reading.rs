//! Looking at a database: one that another process has open answers for itself, one that is closed is not changed.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::tantalum;
use tantalum::Db;

/// What each command that looks prints, by name.
fn looks(dir: &Path) -> BTreeMap<&'static str, String> {
    let dir = dir.to_str().unwrap();
    let commands = [
        ("tables", vec!["tables", dir, "--json"]),
        ("check", vec!["check", dir, "--json"]),
        ("dump", vec!["dump", dir]),
        ("dump of one", vec!["dump", dir, "--table", "fruit"]),
        ("get", vec!["get", dir, "fruit", "a\\x00 b"]),
        ("scan", vec!["scan", dir, "fruit"]),
        ("scan of a prefix", vec!["scan", dir, "fruit", "--prefix", "k1", "--reverse", "--limit", "3", "--keys-only"]),
        (
            "scan from here to there",
            vec!["scan", dir, "fruit", "--from", "k2", "--to", "k22", "--limit", "0", "--json"],
        ),
    ];
    let run = |command: Vec<&str>| String::from_utf8(tantalum(&[vec!["db"], command].concat()).ok()).unwrap();
    // How full pages are may differ in its last digit, which the JSON between the processes rounds.
    let exact = |shown: String| {
        shown.lines().filter(|line| !line.contains("\"fill\"")).map(|line| format!("{line}\n")).collect()
    };
    commands.into_iter().map(|(name, command)| (name, exact(run(command)))).collect()
}

fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let entries = fs::read_dir(dir).unwrap().map(|entry| entry.unwrap());
    entries.map(|entry| (entry.file_name().into_string().unwrap(), fs::read(entry.path()).unwrap())).collect()
}

#[test]
fn an_open_database_is_asked_and_a_closed_one_is_not_changed() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    let db = Db::builder().log_bytes(16 << 20).control_socket(true).open(&path).unwrap();
    let fruit = db.table("fruit").unwrap();
    db.table("empty").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&fruit, b"a\0 b", b"\xff\\").unwrap();
    // More than is sent at a time.
    (0..3000).for_each(|n| tx.put(&fruit, format!("k{n}"), [b'v'; 30]).unwrap());
    tx.commit().unwrap();

    let asked = looks(&path);
    let process = format!("process {}", std::process::id());
    assert!(tantalum(&["db", "tables", path.to_str().unwrap()]).err.contains(&process));
    tantalum(&["db", "backup", path.to_str().unwrap(), copy.to_str().unwrap()]).ok();
    tantalum(&["db", "get", path.to_str().unwrap(), "fruit", "nothing"]).fails(&["nothing", "fruit"]);
    tantalum(&["db", "scan", path.to_str().unwrap(), "nuts"]).fails(&["nuts"]);
    db.close().unwrap();

    assert_eq!(asked["get"], "\\xff\\\\\n");
    assert_eq!(asked["scan"].lines().count(), 100);
    assert_eq!(asked["scan"].lines().next().unwrap(), "a\\x00\\x20b \\xff\\\\");
    assert_eq!(asked["scan of a prefix"], "k1999\nk1998\nk1997\n");
    assert_eq!(asked["scan from here to there"].lines().count(), 223);
    assert!(asked["scan from here to there"].starts_with("{\"key\":\"k2\",\"value\":\"vvv"));
    assert!(asked["dump"].contains("table empty\n"));
    assert!(asked["tables"].contains("3001"));

    let before = files(&path);
    for (name, shown) in looks(&path) {
        assert!(shown == asked[name], "{name}: {:.2000} was {:.2000}", shown, asked[name]);
    }
    assert!(files(&path) == before, "a file has changed");
    let dump_of_copy = String::from_utf8(tantalum(&["db", "dump", copy.to_str().unwrap()]).ok()).unwrap();
    assert!(dump_of_copy == asked["dump"]);
}

#[test]
fn a_database_that_cannot_be_asked_says_why() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(4 << 20).open(dir.path()).unwrap();
    tantalum(&["db", "dump", dir.path().to_str().unwrap()]).fails(&["in use by process", "control_socket"]);
    drop(db);
    let empty = dir.path().join("nothing");
    tantalum(&["db", "tables", empty.to_str().unwrap()]).fails(&["no database here"]);
    assert!(!empty.exists());
    assert_eq!(tantalum(&["db", "get", dir.path().to_str().unwrap(), "t", "\\x"]).code, Some(2));
}
