//! `db salvage`: what of a database is read in spite of damaged pages, and what it says is skipped.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::{small, tantalum};
use tantalum::Db;

const PAGE_BYTES: usize = 4096;
const ROWS: u32 = 3000;

fn key(n: u32) -> String {
    format!("key-{n:05}")
}

fn value(n: u32) -> String {
    format!("the value of {n:05} {}", "x".repeat(100))
}

/// What stands in the middle of a large value, in pages that no other value has a part of.
fn middle(n: u8) -> String {
    format!("the middle of large value {n}")
}

/// A closed database with a table of many leaves, one of large values, and a small one.
fn make(dir: &Path) {
    let db = small().log_bytes(16 << 20).control_socket(true).open(dir).unwrap();
    db.bulk_load("many", (0..ROWS).map(|n| (key(n), value(n)))).unwrap();
    let large = db.table("large").unwrap();
    for n in 0..5_u8 {
        let half = vec![b'A' + n; 15_000];
        db.put(&large, [b'a' + n], [&half, middle(n).as_bytes(), &half].concat()).unwrap();
    }
    db.put(&db.table("small").unwrap(), "k", "v").unwrap();
    db.checkpoint().unwrap();
    db.close().unwrap();
}

/// Flips a bit in the page of the data file in which `text` stands, and in what the double-write area has of it, from which it would be put
/// back. Returns the page's number.
fn damage(dir: &Path, text: &[u8]) -> usize {
    let spoil = |name: &str| {
        let path = dir.join(name);
        let mut contents = fs::read(&path).unwrap();
        let places = contents.windows(text.len()).enumerate().filter(|(_, window)| *window == text);
        let places: Vec<usize> = places.map(|(at, _)| at).collect();
        places.iter().for_each(|&at| contents[at] ^= 0x20);
        fs::write(&path, contents).unwrap();
        places.last().map(|at| at / PAGE_BYTES)
    };
    spoil("doublewrite");
    spoil("data").expect("it is in the file")
}

/// What is salvaged, by table and key, and what is said of the rest.
fn salvage(dir: &Path) -> (BTreeMap<(String, String), usize>, String) {
    let run = tantalum(&["db", "salvage", dir.to_str().unwrap(), "--format", "jsonl"]);
    let rows = String::from_utf8(run.out.clone()).unwrap();
    let rows = rows.lines().filter_map(|line| {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let key = row.get("key")?.as_str().unwrap().to_owned();
        Some(((row["table"].as_str().unwrap().to_owned(), key), row["value"].as_str().unwrap().len()))
    });
    let (rows, said) = (rows.collect(), run.err.clone());
    run.fails(&["cannot be read", "all other rows were written"]);
    (rows, said)
}

/// How many rows of the table of many are not among `rows`: those of the range that is said to be lost with a page, and no others.
fn skipped_rows(rows: &BTreeMap<(String, String), usize>, said: &str, page: usize, all: u32) -> usize {
    let line = said.lines().find(|line| line.contains(&format!("page {page}:"))).unwrap();
    let bounds: Vec<&str> = line.split('"').filter(|part| part.starts_with("key-")).collect();
    let (from, to) = match bounds[..] {
        [from, to] => (from, Some(to)),
        [to] if line.contains("keys below") => ("", Some(to)),
        [from] => (from, None),
        _ => ("", None),
    };
    let mut skipped = 0;
    for n in 0..all {
        let is_skipped = from <= &key(n)[..] && to.is_none_or(|to| &key(n)[..] < to);
        let found = rows.get(&("many".to_owned(), key(n)));
        assert_eq!(found.copied(), (!is_skipped).then_some(value(n).len()), "{n}: {line}");
        skipped += usize::from(is_skipped);
    }
    skipped
}

#[test]
fn with_an_inner_page_the_rows_below_it_are_lost_and_no_others() {
    const MANY: u32 = 20_000;
    let dir = tempfile::tempdir().unwrap();
    let db = small().log_bytes(16 << 20).control_socket(true).open(dir.path()).unwrap();
    db.bulk_load("many", (0..MANY).map(|n| (key(n), value(n)))).unwrap();
    assert_eq!(db.check().unwrap().tables[0].height, 3, "pages between the root and the leaves");
    db.close().unwrap();
    let path = dir.path().join("data");
    let sound = fs::read(&path).unwrap();
    let is_inner =
        |page: &[u8]| page.iter().any(|&byte| byte != 0) && !page.windows(12).any(|text| text == b"the value of");
    let pages = sound.chunks(PAGE_BYTES).enumerate().filter(|(_, page)| is_inner(page)).map(|(number, _)| number);
    // Those of the catalog and of the space map are among them, and what is put back from the double-write area.
    let mut inner = 0;
    for page in pages {
        let mut damaged = sound.clone();
        damaged[page * PAGE_BYTES + PAGE_BYTES / 2] ^= 1;
        fs::write(&path, damaged).unwrap();
        let said = tantalum(&["db", "salvage", dir.path().to_str().unwrap()]).err;
        if said.contains("table \"many\": keys") && said.contains(&format!("page {page}:")) {
            let (rows, said) = salvage(dir.path());
            let skipped = skipped_rows(&rows, &said, page, MANY);
            assert!((500..MANY as usize).contains(&skipped), "{skipped} {said}");
            inner += 1;
        }
    }
    assert!(inner > 1, "{inner}");
}

#[test]
fn sound_rows_are_written_and_damaged_pages_are_named() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let path = dir.path().to_str().unwrap();
    let sound = tantalum(&["db", "salvage", path]).ok();
    assert!(sound == tantalum(&["db", "dump", path]).ok(), "of a sound database, it is a dump");

    let leaf = damage(dir.path(), value(1500).as_bytes());
    damage(dir.path(), middle(2).as_bytes());
    tantalum(&["db", "dump", path]).fails(&["damaged"]);
    let files = |dir: &Path| fs::read(dir.join("data")).unwrap();
    let before = files(dir.path());
    let (rows, said) = salvage(dir.path());
    assert!(files(dir.path()) == before, "nothing in the database changes");

    assert!(said.contains("1 ranges of keys and 1 large values"), "{said}");
    assert!(said.contains(&format!("page {leaf}")), "{said}");
    assert!(!rows.contains_key(&("many".to_owned(), key(1500))));
    let skipped = skipped_rows(&rows, &said, leaf, ROWS);
    assert!((1..60).contains(&skipped), "one leaf: {skipped}");
    let large: Vec<&str> = rows.keys().filter(|(table, _)| table == "large").map(|(_, key)| &key[..]).collect();
    assert_eq!(large, ["a", "b", "d", "e"]);
    assert!(said.contains("the value of the key \"c\""), "{said}");
    assert!(rows.contains_key(&("small".to_owned(), "k".to_owned())));

    // What was salvaged can be loaded.
    let (dump, copy) = (dir.path().join("salvaged"), dir.path().join("copy").display().to_string());
    tantalum(&["db", "salvage", path, "--output", dump.to_str().unwrap()]).fails(&["cannot be read"]);
    tantalum(&["db", "load", &copy, "--input", dump.to_str().unwrap()]).ok();
    let db = Db::open(&copy).unwrap();
    assert_eq!(db.range(&db.open_table("many").unwrap(), ..).unwrap().count(), ROWS as usize - skipped);
    db.close().unwrap();
}

#[test]
fn a_table_whose_root_is_lost_is_skipped_and_the_others_are_written() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    // The smallest table has a single page.
    let page = damage(dir.path(), b"kv");
    let (rows, said) = salvage(dir.path());
    assert!(said.contains(&format!("table \"small\": all keys, page {page}: ")), "{said}");
    assert_eq!(rows.len(), ROWS as usize + 5);
}

#[test]
fn an_open_database_and_a_missing_table_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    make(dir.path());
    let path = dir.path().to_str().unwrap();
    tantalum(&["db", "salvage", path, "--table", "nuts"]).fails(&["nuts"]);
    let db = Db::open(dir.path()).unwrap();
    tantalum(&["db", "salvage", path]).fails(&["open in process", "end that first"]);
    db.close().unwrap();
}
