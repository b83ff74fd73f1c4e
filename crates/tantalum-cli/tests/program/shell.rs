//! `tantalum shell` with a script on standard input: what it prints, how it fails, and what of it stays.

use std::path::Path;

use crate::common::{Run, small, tantalum, tantalum_with_input};

fn shell(dir: &Path, script: &str) -> Run {
    tantalum_with_input(&["shell", dir.to_str().unwrap()], script.as_bytes())
}

#[track_caller]
fn shown(dir: &Path, script: &str) -> String {
    String::from_utf8(shell(dir, script).ok()).unwrap()
}

#[test]
fn a_script_writes_and_reads_a_closed_database_and_an_open_one() {
    let dir = tempfile::tempdir().unwrap();
    let script = "\
# fruit, and how much of it
put fruit apple 3 --create
put fruit 'red grapes' \"it's 5\"

put fruit pear 7   # the last
scan fruit
get fruit 'red grapes'
count fruit --from b
delete fruit pear
scan fruit --keys-only --reverse --limit 1
tables
";
    let expected = "apple 3\npear 7\nred\\x20grapes it's 5\nit's 5\n2\n1 row deleted\nred\\x20grapes\n";
    let closed = dir.path().join("closed");
    small().open(&closed).unwrap().close().unwrap();
    let said = shown(&closed, script);
    assert!(said.starts_with(expected) && said.contains("fruit     2"), "{said}");
    assert_eq!(tantalum(&["db", "get", closed.to_str().unwrap(), "fruit", "apple"]).ok(), b"3\n");

    let open = dir.path().join("open");
    let db = small().control_socket(true).open(&open).unwrap();
    let run = shell(&open, script);
    assert!(run.err.contains(&format!("process {}", std::process::id())), "{}", run.err);
    assert_eq!(String::from_utf8(run.ok()).unwrap(), said);
    let fruit = db.open_table("fruit").unwrap();
    assert_eq!(db.range(&fruit, ..).unwrap().count(), 2);
    shell(&open, "begin\n").fails(&["line 1", "open", "transaction by itself"]);
}

#[test]
fn a_transaction_is_committed_or_rolled_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().control_socket(true).open(dir.path()).unwrap();
    db.put(&db.table("t").unwrap(), "a", "1").unwrap();
    db.close().unwrap();
    let script = "\
begin
put t b 2
put t c 3
delete t --prefix a
scan t
count t
scan t --reverse --limit 1 --keys-only
get t c
rollback
scan t
begin
put t b 4
commit
";
    assert_eq!(shown(dir.path(), script), "1 row deleted\nb 2\nc 3\n2\nc\n3\na 1\n");
    assert_eq!(shown(dir.path(), "scan t"), "a 1\nb 4\n");
    for (script, words) in [
        ("commit", &["line 1", "no transaction"][..]),
        ("rollback", &["no transaction", "begin"]),
        ("begin\nbegin", &["line 2", "open already"]),
        ("begin\nput t d 5", &["rolled back"]),
        ("begin\nput t d 5\nget t nothing\ncommit", &["line 3", "nothing"]),
    ] {
        shell(dir.path(), script).fails(words);
    }
    assert_eq!(shown(dir.path(), "scan t"), "a 1\nb 4\n", "what was not committed is not there");
}

#[test]
fn a_script_ends_with_the_first_error_which_says_the_line() {
    let dir = tempfile::tempdir().unwrap();
    small().open(dir.path()).unwrap().close().unwrap();
    for (line, words) in [
        ("drop t", &["line 2", "no command \"drop\"", "help"][..]),
        ("put t a", &["line 2", "not provided", "help put"]),
        ("get t a --key-as octal", &["line 2", "octal", "hex"]),
        ("get t 'a", &["line 2", "closing '"]),
        ("get nuts a", &["line 2", "nuts"]),
        ("put nuts a b", &["line 2", "--create"]),
        ("put t a --file -", &["line 2", "standard input"]),
        ("put t x y --key-as u64", &["line 2", "integer"]),
    ] {
        let run = shell(dir.path(), &format!("put t a 1 --create\n{line}\nput t after 1\n"));
        assert_eq!(run.out, b"", "{line}");
        run.fails(words);
    }
    assert_eq!(shown(dir.path(), "count t\nquit\nno command"), "1\n", "nothing ran after an error, nor after the end");
    tantalum_with_input(&["shell", dir.path().to_str().unwrap(), "--read-only"], b"put t a 2").fails(&["reading only"]);
    let missing = dir.path().join("missing");
    shell(&missing, "tables").fails(&["no database here"]);
    tantalum_with_input(&["shell", missing.to_str().unwrap(), "--create"], b"put t a 1 --create").ok();
    assert_eq!(shown(&missing, "count t"), "1\n");
}

#[test]
fn help_lists_the_commands_and_explains_one() {
    let dir = tempfile::tempdir().unwrap();
    small().open(dir.path()).unwrap().close().unwrap();
    let help = shown(dir.path(), "help");
    for command in ["get", "put", "delete", "scan", "count", "tables", "stat", "begin", "commit", "rollback", "quit"] {
        assert!(help.lines().any(|line| line.trim_start().starts_with(command)), "{command}: {help}");
    }
    let scan = shown(dir.path(), "help scan");
    assert!(scan.contains("--keys-only") && scan.contains("i64-le") && !scan.contains("DIR"), "{scan}");
    assert!(help.lines().chain(scan.lines()).all(|line| line.chars().count() <= 100), "{help}{scan}");
    let stat = shown(dir.path(), "stat commits");
    assert!(stat.lines().all(|line| line.contains("commits")) && stat.contains("transactions.commits"), "{stat}");
}
