//! Commands on values that are larger than the memory that they take.

use std::{
    fs,
    io::{self, Read},
    path::Path,
    process::{Child, Command, Stdio},
};

use crate::common::small;

const VALUE_BYTES: u64 = 96 << 20;
const MOST_MEMORY_BYTES: u64 = 48 << 20;

/// Runs the program, which must succeed. Returns the most memory that it was seen to have.
fn memory_of(arguments: &[&str]) -> u64 {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tantalum"));
    let mut child = command.args(arguments).stdout(Stdio::null()).spawn().unwrap();
    let mut most = 0;
    loop {
        most = peak_of(&child).max(most);
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success() && most > 0, "{arguments:?}");
            return most;
        }
    }
}

/// The most memory that a process has had since it began; 0 when it has ended.
fn peak_of(child: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap_or_default();
    let peak =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    peak.unwrap_or(0) << 10
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

#[test]
fn a_large_value_of_an_open_database_takes_little_memory_in_both_processes() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
    let (open, other, file) = (path("open"), path("other"), path("file"));
    small().open(Path::new(&open)).unwrap().close().unwrap();
    io::copy(&mut io::repeat(b'v').take(VALUE_BYTES), &mut fs::File::create(&file).unwrap()).unwrap();
    let mut shell = Command::new(env!("CARGO_BIN_EXE_tantalum"));
    let mut shell = shell.args(["shell", &open]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    while !Path::new(&open).join("control.sock").exists() {
        assert!(shell.try_wait().unwrap().is_none());
    }
    for command in [
        &["put", &open, "films", "b", "--create", "--file", &file][..],
        &["get", &open, "films", "b", "--raw"],
        &["dump", &open],
        &["copy", &open, "films", "copies"],
        &["copy", &open, "films", "films", "--into", &other],
    ] {
        let bytes = memory_of(&[&["db"], command].concat());
        println!("{command:?}: {bytes} bytes of memory");
        assert!(bytes < MOST_MEMORY_BYTES, "{command:?}: {bytes} bytes");
    }
    let bytes = peak_of(&shell);
    println!("the process that has it open: {bytes} bytes of memory");
    assert!((1..MOST_MEMORY_BYTES).contains(&bytes), "{bytes} bytes");
    drop(shell.stdin.take());
    assert!(shell.wait().unwrap().success());
    let db = small().open(Path::new(&other)).unwrap();
    let mut reader = db.reader(&db.open_table("films").unwrap(), "b").unwrap().unwrap();
    assert_eq!(io::copy(&mut reader, &mut io::sink()).unwrap(), VALUE_BYTES);
    db.close().unwrap();
}
