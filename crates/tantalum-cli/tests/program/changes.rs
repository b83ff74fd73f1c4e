//! `db changes` and `db feed`, of a closed database and of one that another process has open.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::common::{Run, small, tantalum};
use serde_json::Value;
use tantalum::Db;

/// Runs a command on the database, with the words of one string as arguments.
fn run(dir: &Path, command: &str, arguments: &str) -> Run {
    let words = command.split(' ').chain([dir.to_str().unwrap()]).chain(arguments.split_whitespace());
    tantalum(&["db"].into_iter().chain(words).collect::<Vec<_>>())
}

/// The lines of `db changes`, which must succeed.
#[track_caller]
fn changes(dir: &Path, arguments: &str) -> Vec<Value> {
    lines(&String::from_utf8(run(dir, "changes", arguments).ok()).unwrap())
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// What each line says but for its position: the table, what was done, the key, and the value.
fn described(lines: &[Value]) -> Vec<String> {
    let describe = |line: &Value| {
        let words = ["table", "change", "key", "value"].map(|field| line.get(field));
        let words =
            words.into_iter().flatten().map(|word| word.as_str().map_or_else(|| word.to_string(), str::to_owned));
        words.collect::<Vec<_>>().join(" ")
    };
    lines.iter().map(describe).collect()
}

/// Where to go on behind the lines.
fn position(lines: &[Value]) -> String {
    lines.last().unwrap()["position"].as_str().unwrap().to_owned()
}

/// Calls `look` for a closed database, and for one that this process has open. Each command that writes to the closed one opens it anew,
/// which takes a section of the log each time: so it has an archive.
fn closed_and_open(look: fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let (closed, open) = (dir.path().join("closed"), dir.path().join("open"));
    small().log_archive(dir.path().join("archive")).open(&closed).unwrap().close().unwrap();
    look(&closed);
    let db = small().control_socket(true).open(&open).unwrap();
    look(&open);
    db.close().unwrap();
}

#[test]
fn changes_are_printed_and_gone_on_with_behind_a_position() {
    closed_and_open(|dir| {
        run(dir, "feed start", "fruit").fails(&["fruit"]);
        run(dir, "put", "fruit pear 1 --create").ok();
        run(dir, "put", "other x 1 --create").ok();
        run(dir, "changes", "").fails(&["no table has a change feed", "db feed start"]);
        run(dir, "changes", "--table fruit").fails(&["\"fruit\" has no change feed"]);
        let start = String::from_utf8(run(dir, "feed start", "fruit").ok()).unwrap();
        assert_eq!(String::from_utf8(run(dir, "feed start", "fruit").ok()).unwrap().len(), start.len());
        run(dir, "feed start", "other").ok();
        let listed: serde_json::Value = serde_json::from_slice(&run(dir, "feed list", "--json").ok()).unwrap();
        assert_eq!(listed[0]["table"], "fruit");
        assert_eq!((&listed[1]["table"], listed.as_array().unwrap().len()), (&"other".into(), 2));
        let text = String::from_utf8(run(dir, "feed list", "").ok()).unwrap();
        assert!(text.contains("fruit") && text.contains(listed[0]["start"].as_str().unwrap()), "{text}");
        run(dir, "put", "fruit apple 3").ok();
        run(dir, "put", "other y\\x00 \\xff").ok();
        run(dir, "delete", "fruit apple pear").ok();

        let all = changes(dir, "");
        let expected = ["fruit put apple 3", "other put y\\x00 \\xff", "fruit delete apple", "fruit delete pear"];
        assert_eq!(described(&all)[..4], expected);
        assert!(all[2].get("position").is_none(), "the transaction goes on");
        assert_eq!(changes(dir, &format!("--from {}", start.trim()))[..4], all[..4]);
        let behind_first = all[0]["position"].as_str().unwrap();
        let of_fruit = changes(dir, &format!("--from {behind_first} --table fruit"));
        assert_eq!(described(&of_fruit)[..2], expected[2..]);
        assert_eq!(described(&changes(dir, "--limit 2")), expected[..2]);
        let hex = changes(dir, "--limit 1 --key-as hex --value-as json");
        assert_eq!(described(&hex), ["fruit put 6170706c65 3"]);
        assert!(hex[0]["value"].is_number());
        run(dir, "put", "fruit melon sweet").ok();
        let small = changes(dir, "--largest-value 4");
        assert_eq!(described(&small)[..4], expected);
        assert_eq!(small[4]["omitted_bytes"], 5);
        assert!(small[0].get("omitted_bytes").is_none() && small[4].get("value").is_none());

        let now = changes(dir, "--from now");
        assert_eq!(described(&now), [""]);
        run(dir, "put", "fruit fig 1").ok();
        run(dir, "feed end", "fruit").ok();
        run(dir, "put", "fruit fig 2").ok();
        let later = changes(dir, &format!("--from {}", position(&now)));
        assert_eq!(described(&later)[..2], ["fruit put fig 1", "fruit end-feed"]);
        assert_eq!(described(&changes(dir, &format!("--from {}", position(&later)))), [""], "nothing follows");
        run(dir, "feed end", "nuts").fails(&["nuts"]);
        for usage in ["--from yesterday", "--limit x"] {
            assert_eq!(run(dir, "changes", usage).code, Some(2), "{usage}");
        }
        assert_eq!(run(dir, "feed", "").code, Some(2));
    });
}

#[test]
fn a_reader_that_fell_behind_is_told_where_to_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = small().control_socket(true).open(&path).unwrap();
    let table = db.table("t").unwrap();
    let start = db.start_change_feed(&table).unwrap();
    let write = || {
        for n in 0..3000u32 {
            db.put(&table, n.to_be_bytes(), vec![n as u8; 4000]).unwrap();
        }
    };
    write();
    let look = || {
        for from in [String::new(), format!("--from {start}")] {
            let error = run(&path, "changes", &from).fails(&["were overwritten", "the position there is"]);
            let oldest = error.rsplit(' ').next().unwrap();
            let rest = changes(&path, &format!("--from {oldest} --key-as u32"));
            assert_eq!(rest.iter().rev().find_map(|line| line["key"].as_u64()), Some(2999));
        }
    };
    look();
    db.clone().close().unwrap();
    look();
}

/// What a crash has left is read as recovery would leave it.
#[test]
fn a_database_that_was_not_closed_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let (path, copy) = (dir.path().join("db"), dir.path().join("copy"));
    let db = small().open(&path).unwrap();
    let table = db.table("t").unwrap();
    db.start_change_feed(&table).unwrap();
    (0..100u32).for_each(|n| db.put(&table, n.to_string(), "v").unwrap());
    fs::create_dir(&copy).unwrap();
    for entry in fs::read_dir(&path).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), copy.join(entry.file_name())).unwrap();
    }
    db.close().unwrap();
    let read = changes(&copy, "");
    assert_eq!(described(&read)[..100], (0..100).map(|n| format!("t put {n} v")).collect::<Vec<_>>());
    run(&copy, "changes", "--follow").fails(&["no process has the database open", "without --follow"]);
}

/// A running `db changes --follow`.
struct Follower {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Follower {
    fn start(dir: &Path, arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tantalum"));
        command.args(["db", "changes", dir.to_str().unwrap(), "--follow"]).args(arguments);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap());
        Self { child, out }
    }

    /// The next line that has a change.
    fn next(&mut self) -> Value {
        loop {
            let mut line = String::new();
            if self.out.read_line(&mut line).unwrap() == 0 {
                let mut said = String::new();
                self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
                panic!("it ended with {}: {said}", self.child.wait().unwrap());
            }
            let line: Value = serde_json::from_str(&line).unwrap();
            if line.get("change").is_some() {
                return line;
            }
        }
    }

    /// Its exit code, and what it said.
    fn end(mut self) -> (Option<i32>, String) {
        let code = self.child.wait().unwrap().code();
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        (code, said)
    }
}

#[test]
fn an_open_database_is_followed_and_not_held_up() {
    let dir = tempfile::tempdir().unwrap();
    // Its full size from the beginning: a log that has not grown yet would overwrite what a follower has not taken.
    let builder = Db::builder().log_bytes(32 << 20).expert(|expert| expert.log_initial_bytes(32 << 20));
    let db = builder.control_socket(true).transaction_memory_bytes(64 << 10).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let start = db.start_change_feed(&table).unwrap().to_string();
    let mut follower = Follower::start(dir.path(), &["--from", &start]);
    let mut limited = Follower::start(dir.path(), &["--from", &start, "--limit", "2"]);
    db.put(&table, "a", "1").unwrap();
    let line = follower.next();
    assert_eq!(described(std::slice::from_ref(&line)), ["t put a 1"]);

    // More than the transaction's memory, and than is sent at a time: it is one transaction all the same.
    let large = vec![b'v'; 50_000];
    db.transact(|tx| (0..100u8).try_for_each(|n| tx.put(&table, [b'b', n + 100], &large))).unwrap();
    for n in 100..200u8 {
        let line = follower.next();
        assert_eq!(line["value"].as_str().unwrap().len(), large.len());
        assert_eq!(line.get("position").is_some(), n == 199);
    }
    let kept: Vec<Value> = (0..101).map(|_| limited.next()).collect();
    assert_eq!(
        limited.end(),
        (Some(0), format!("{} is open in process {}, which is asked\n", dir.path().display(), std::process::id()))
    );
    assert!(kept[0].get("position").is_some() && kept[100].get("position").is_some());

    // A follower that takes nothing holds no commit up, and misses nothing that the log still has.
    for n in 0..2000u32 {
        db.put(&table, n.to_string(), vec![b'w'; 1000]).unwrap();
    }
    for n in 0..2000u32 {
        assert_eq!(follower.next()["key"], n.to_string());
    }
    db.put(&table, "film", vec![b'f'; 1 << 20]).unwrap();
    assert_eq!(follower.next()["value"].as_str().unwrap().len(), 1 << 20);
    db.clone().close().unwrap();
    let (code, said) = follower.end();
    assert!(code == Some(1) && said.contains("closed"), "{said}");
}
