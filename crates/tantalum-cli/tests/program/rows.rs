//! `db put`, `get`, `scan`, `count`, `delete` and `copy`, of a closed database and of one that another process has open; and
//! `db dump` and `db load` as JSON lines and CSV.

use std::{fs, path::Path};

use crate::common::{Run, small, tantalum, tantalum_with_input};
use tantalum::Db;

/// Runs a command on the database, with the words of one string as arguments.
fn run(dir: &Path, command: &str, arguments: &str) -> Run {
    let arguments = arguments.split_whitespace();
    tantalum(&[&["db", command, dir.to_str().unwrap()], &arguments.collect::<Vec<_>>()[..]].concat())
}

/// What the command prints, which must succeed.
#[track_caller]
fn shown(dir: &Path, command: &str, arguments: &str) -> String {
    String::from_utf8(run(dir, command, arguments).ok()).unwrap()
}

/// Calls `look` for a closed database, and for one that this process has open.
fn closed_and_open(look: fn(&Path)) {
    let dir = tempfile::tempdir().unwrap();
    let (closed, open) = (dir.path().join("closed"), dir.path().join("open"));
    small().open(&closed).unwrap().close().unwrap();
    look(&closed);
    let db = small().control_socket(true).open(&open).unwrap();
    look(&open);
    assert!(db.check().unwrap().is_sound());
    db.close().unwrap();
    let dump = |dir: &Path| tantalum(&["db", "dump", dir.to_str().unwrap()]).ok();
    assert_eq!(dump(&closed), dump(&open), "the same commands, the same rows");
}

#[test]
fn rows_are_written_read_counted_and_deleted() {
    closed_and_open(|dir| {
        run(dir, "put", "fruit apple 3").fails(&["no table \"fruit\"", "--create"]);
        assert_eq!(shown(dir, "put", "fruit apple 3 --create"), "");
        run(dir, "put", "fruit apple 4").ok();
        run(dir, "put", "fruit bä\\x00 -5").ok();
        run(dir, "put", "fruit -c \\xff\\\\").ok();
        assert_eq!(shown(dir, "get", "fruit apple"), "4\n");
        assert_eq!(shown(dir, "scan", "fruit"), "-c \\xff\\\\\napple 4\nbä\\x00 -5\n");
        assert_eq!(shown(dir, "scan", "fruit --reverse --limit 1 --keys-only"), "bä\\x00\n");
        assert_eq!(shown(dir, "count", "fruit"), "3\n");
        assert_eq!(shown(dir, "count", "fruit --prefix b"), "1\n");
        assert_eq!(shown(dir, "delete", "fruit apple nothing"), "1 row deleted\n");
        run(dir, "get", "fruit apple").fails(&["apple", "fruit"]);
        assert_eq!(shown(dir, "delete", "fruit --from b --to c"), "1 row deleted\n");
        assert_eq!(shown(dir, "delete", "fruit --prefix z"), "0 rows deleted\n");
        assert_eq!(shown(dir, "count", "fruit"), "1\n");
        for (command, arguments) in
            [("count", "nuts"), ("scan", "nuts"), ("delete", "nuts a"), ("get", "nuts a"), ("copy", "nuts more")]
        {
            run(dir, command, arguments).fails(&["nuts"]);
        }
    });
}

#[test]
fn keys_and_values_are_written_in_many_ways() {
    closed_and_open(|dir| {
        for number in ["-7", "300", "2"] {
            run(dir, "put", &format!("n {number} {{\"of\":{number}}} --create --key-as i64 --value-as json")).ok();
        }
        let scan = |more: &str| shown(dir, "scan", &format!("n {more}"));
        assert_eq!(scan("--key-as i64 --keys-only"), "-7\n2\n300\n");
        assert_eq!(scan("--key-as i64 --value-as json --from 0 --to 100"), "2 {\"of\":2}\n");
        assert_eq!(
            scan("--key-as i64 --value-as json --limit 1 --json"),
            "{\"key\":-7,\"value\":{\"of\":-7}}\n",
            "numbers and JSON are no strings"
        );
        assert_eq!(scan("--key-as hex --limit 1 --keys-only"), "7ffffffffffffff9\n");
        assert_eq!(shown(dir, "get", "n 8000000000000002 --key-as hex --value-as hex"), "7b226f66223a327d\n");
        run(dir, "scan", "n --value-as u64 --key-as hex").fails(&["value of the key", "has 9 bytes", "has 8", "text"]);
        let delete = shown(dir, "delete", "n 2 --key-as i64");
        assert_eq!(delete, "1 row deleted\n");

        for usage in ["put n x y --key-as u64", "put n 1 { --key-as u64 --value-as json", "get n zz --key-as hex"] {
            let (command, arguments) = usage.split_once(' ').unwrap();
            let refused = run(dir, command, arguments);
            assert_eq!(refused.code, Some(2), "{usage}: {}", refused.err);
        }
        for usage in ["put n k", "put n k v --file f", "delete n", "delete n k --from a", "scan n --limit x"] {
            let (command, arguments) = usage.split_once(' ').unwrap();
            assert_eq!(run(dir, command, arguments).code, Some(2), "{usage}");
        }
    });
}

#[test]
fn a_value_is_taken_from_a_file() {
    closed_and_open(|dir| {
        let value: Vec<u8> = (0..60_000_u32).map(|n| n as u8 | 1).collect();
        let name = dir.join("../value").display().to_string();
        fs::write(&name, &value).unwrap();
        run(dir, "put", &format!("t file --file {name} --create")).ok();
        tantalum_with_input(&["db", "put", dir.to_str().unwrap(), "t", "stdin", "--file", "-"], &value).ok();
        for key in ["file", "stdin"] {
            assert!(run(dir, "get", &format!("t {key} --raw")).ok() == value);
        }
        run(dir, "put", "t k --file nothing/here").fails(&["nothing/here"]);
    });
}

/// Also where one line of the control socket cannot carry them.
#[test]
fn large_values_are_written_read_and_copied() {
    closed_and_open(|dir| {
        let value: Vec<u8> = (0..3 << 20_u32).map(|n| (n / 5) as u8).collect();
        let put = ["db", "put", dir.to_str().unwrap(), "t", "k", "--create", "--file", "-"];
        tantalum_with_input(&put, &value).ok();
        assert!(run(dir, "get", "t k --raw").ok() == value);
        let hex = shown(dir, "scan", "t --value-as hex");
        assert_eq!(hex.len(), "k \n".len() + value.len() * 2);
        assert_eq!(shown(dir, "copy", "t u"), "1 rows copied\n");
        assert!(run(dir, "get", "u k --raw").ok() == value);
    });
}

#[test]
fn tables_are_copied() {
    closed_and_open(|dir| {
        let rows: String = (0..500).map(|n| format!(" k{n:03} v{n}\n")).collect();
        let load = |input: &str, more: &[&str]| {
            let load = [&["db", "load", dir.to_str().unwrap()], more].concat();
            tantalum_with_input(&load, input.as_bytes())
        };
        let csv: String = rows.lines().map(|row| format!("{}\n", row.trim().replace(' ', ","))).collect();
        let loaded = load(&format!("key,value\n{csv}"), &["--format", "csv", "--table", "all"]).ok();
        assert_eq!(loaded, b"500 rows in 1 tables loaded\n");
        assert_eq!(shown(dir, "copy", "all some --from k100 --to k200 --limit 50"), "50 rows copied\n");
        assert_eq!(shown(dir, "scan", "some --limit 2"), "k100 v100\nk101 v101\n");
        run(dir, "copy", "all some").fails(&["\"some\" exists", "--merge"]);
        assert_eq!(shown(dir, "copy", "all some --merge --prefix k4"), "100 rows copied\n");
        assert_eq!(shown(dir, "count", "some"), "150\n");
        assert_eq!(run(dir, "copy", "all all").code, Some(2));
        let other = dir.join("../other");
        let into = format!("all copy --into {} --merge", other.display());
        assert_eq!(shown(dir, "copy", &into), "500 rows copied\n");
        assert_eq!(shown(&other, "count", "copy"), "500\n");
    });
}

/// Bytes of any kind, in three tables, one of them empty.
fn many_rows(dir: &Path) {
    let db = small().control_socket(true).open(dir).unwrap();
    let (bytes, numbers) = (db.table("by\"tes,").unwrap(), db.table("numbers").unwrap());
    db.table("empty").unwrap();
    let every_byte: Vec<u8> = (0..=255).collect();
    db.put(&bytes, &every_byte, "ä,\"b\"\n\\").unwrap();
    db.put(&bytes, "", &every_byte).unwrap();
    db.put(&bytes, "empty", "").unwrap();
    (0..300_u32).for_each(|n| db.put(&numbers, n.to_be_bytes(), format!("{{\"n\": {n}}}")).unwrap());
    db.close().unwrap();
}

#[test]
fn json_lines_and_csv_are_written_and_read_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    many_rows(Path::new(&path("db")));
    let dump = |db: &str| String::from_utf8(tantalum(&["db", "dump", &path(db)]).ok()).unwrap();
    let before = dump("db");
    for format in ["jsonl", "csv"] {
        let file = path(format);
        tantalum(&["db", "dump", &path("db"), "--format", format, "--output", &file]).ok();
        let (copy, open) = (format!("copy of {format}"), format!("open for {format}"));
        tantalum(&["db", "load", &path(&copy), "--format", format, "--input", &file]).ok();
        let db = small().control_socket(true).open(path(&open)).unwrap();
        tantalum(&["db", "load", &path(&open), "--format", format, "--input", &file]).ok();
        db.close().unwrap();
        for copy in [copy, open] {
            if format == "csv" {
                // A table without rows has none to stand for it.
                let db = Db::open(path(&copy)).unwrap();
                assert_eq!(db.tables().unwrap(), ["by\"tes,", "numbers"]);
                db.table("empty").unwrap();
                db.close().unwrap();
            }
            assert_eq!(dump(&copy), before, "{copy}");
        }
    }
    let of_table = ["db", "dump", &path("db"), "--table", "numbers", "--key-as", "u32", "--value-as", "json"];
    let shown = |format| String::from_utf8(tantalum(&[&of_table[..], &["--format", format]].concat()).ok()).unwrap();
    let (jsonl, csv) = (shown("jsonl"), shown("csv"));
    assert!(jsonl.starts_with("{\"table\":\"numbers\",\"key\":0,\"value\":{\"n\":0}}\n"), "{jsonl:.200}");
    assert!(csv.starts_with("table,key,value\nnumbers,0,\"{\"\"n\"\":0}\"\n"), "{csv:.200}");
    let empty = tantalum(&["db", "dump", &path("db"), "--table", "empty", "--format", "jsonl"]).ok();
    assert_eq!(empty, b"{\"table\":\"empty\"}\n");
    assert_eq!(tantalum(&of_table).code, Some(2), "a dump has its own encoding");
}

#[test]
fn rows_that_are_none_are_refused_with_their_line() {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db").display().to_string();
    let refused = |format: &str, more: &[&str], input: &str, words: &[&str]| {
        let file = dir.path().join("input").display().to_string();
        fs::write(&file, input).unwrap();
        let load = ["db", "load", &db, "--format", format];
        tantalum(&[&load[..], &["--input", &file], more].concat()).fails(words);
        assert!(!Path::new(&db).exists(), "{input}: nothing was loaded");
        tantalum_with_input(&[&load[..], more].concat(), input.as_bytes()).fails(words);
        let _ = fs::remove_dir_all(&db);
    };
    let table = ["--table", "t"];
    for (input, words) in [
        ("{\"key\":\"a\",\"value\":\"b\"}\n", &["line 1", "--table"][..]),
        ("{\"table\":\"t\",\"key\":\"a\"}\n", &["line 1", "a key and a value"]),
        ("\n{\"table\":\"t\",\"key\":\"a\",\"value\":1}\n", &["line 2", "the value", "no string"]),
        ("{\"table\":\"t\",\"name\":\"a\"}\n", &["line 1", "name"]),
        ("[1]\n", &["line 1"]),
        ("{\"table\":\"t\",\"key\":\"a\",\"value\":\"b\"", &["line 1"]),
    ] {
        refused("jsonl", &[], input, words);
    }
    for (input, words) in [
        ("a,b\n", &["line 1", "no column \"a\""][..]),
        ("key,table\na,b\n", &["line 1", "key and value"]),
        ("", &["line 1", "key and value"]),
        ("key,value\na\n", &["line: 2"]),
        ("key,value\na,\\q\n", &["line 2", "the value", "backslash"]),
        ("key,value\na,\u{e4}\\x0\n", &["line 2", "\\x"]),
    ] {
        refused("csv", &table, input, words);
    }
    refused("csv", &[], "key,value\na,b\n", &["line 2", "--table"]);
    refused("csv", &[&table[..], &["--key-as", "u64"]].concat(), "key,value\na,b\n", &["line 2", "the key", "integer"]);

    // Out of order, and a table in two parts.
    let rows = "{\"table\":\"t\",\"key\":\"b\",\"value\":\"1\"}\n{\"table\":\"t\",\"key\":\"a\",\"value\":\"2\"}\n";
    let load = ["db", "load", &db, "--format", "jsonl"];
    tantalum_with_input(&load, rows.as_bytes()).fails(&["row 2", "--merge"]);
    tantalum_with_input(&[&load[..], &["--merge"]].concat(), rows.as_bytes()).ok();
    assert_eq!(shown(Path::new(&db), "scan", "t"), "a 2\nb 1\n");
}
