//! Dumps and loads of values that are larger than the memory that they take.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

mod common;

use std::{
    fs,
    io::{self, Read},
    path::Path,
    process::{Command, Stdio},
};

use common::small;

const VALUE_BYTES: u64 = 96 << 20;
const MOST_MEMORY_BYTES: u64 = 48 << 20;

/// Runs the program, which must succeed. Returns the most memory that it was seen to have.
fn memory_of(arguments: &[&str]) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tantalum"));
    let mut child = command.args(arguments).stdout(Stdio::null()).spawn().unwrap();
    let status = format!("/proc/{}/status", child.id());
    let mut most_kib = 0;
    loop {
        // The most since the program began; there is none when it has ended.
        let peak = fs::read_to_string(&status).unwrap_or_default();
        let peak = peak.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse().ok());
        most_kib = peak.unwrap_or(0).max(most_kib);
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success() && most_kib > 0, "{arguments:?}");
            return most_kib << 10;
        }
    }
}

#[test]
fn a_large_value_is_dumped_and_loaded_in_little_memory() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (from, to, dump) = (path("from"), path("to"), path("dump"));
    let db = small().open(Path::new(&from)).unwrap();
    let films = db.table("films").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&films, "a", "short").unwrap();
    tx.put_from(&films, "b", io::repeat(b'v').take(VALUE_BYTES)).unwrap();
    tx.put(&films, "c", "short").unwrap();
    tx.commit().unwrap();
    drop(films);
    db.close().unwrap();
    small().open(Path::new(&to)).unwrap().close().unwrap();
    let dumped = memory_of(&["db", "dump", &from, "--output", &dump]);
    let loaded = memory_of(&["db", "load", &to, "--input", &dump]);
    for (what, bytes) in [("dump", dumped), ("load", loaded)] {
        println!("{what}: {bytes} bytes of memory");
        assert!(bytes < MOST_MEMORY_BYTES, "{what}: {bytes} bytes");
    }
    let db = small().open(Path::new(&to)).unwrap();
    let films = db.table("films").unwrap();
    assert_eq!(db.get(&films, "c").unwrap().unwrap(), *b"short");
    let (mut reader, mut piece, mut bytes) = (db.reader(&films, "b").unwrap().unwrap(), vec![0; 1 << 20], 0);
    while let read @ 1.. = reader.read(&mut piece).unwrap() {
        assert!(piece[..read].iter().all(|byte| *byte == b'v'));
        bytes += read as u64;
    }
    assert_eq!(bytes, VALUE_BYTES);
}
