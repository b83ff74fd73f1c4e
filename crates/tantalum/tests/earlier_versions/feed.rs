//! Databases with change feeds: what their versions logged for readers is read, and the feeds go on.

use std::{fs, path::PathBuf};

use tantalum::{Change, Db, FeedPosition, StoreKind};

use super::{FIXTURES, Fixture, key, pack, put_one, sparse_value, unpack, value};

/// A transaction of a change feed: the table, the key and the new value of each row; without a key, the feed of the table was ended.
type Fed = Vec<(&'static str, String, Option<Vec<u8>>)>;

/// What the feed has of the two sessions: rows, deletions, a large value, a large transaction, and the end of a table's feed.
fn fed(session: usize) -> Vec<Fed> {
    let put = |n: u32| ("rows", key(n), Some(value(n, session).into_bytes()));
    let staged = |n: u32| ("rows", key(n), (n % 10 != 7).then(|| [value(n, 0).as_bytes(), &[0; 400]].concat()));
    match session {
        0 => vec![
            (0..20).map(put).collect(),
            vec![("others", key(0), None), ("rows", key(7), None), ("rows", key(90), None)],
            vec![("rows", "large".into(), Some(sparse_value(100_000, 1)))],
            (5..150).map(staged).collect(),
            vec![("others", String::new(), None)],
        ],
        _ => vec![vec![put(3)], vec![("rows", key(8), None), put(200)]],
    }
}

/// Writes what the feed has of a session, and more.
fn fill_fed(db: &Db, session: usize) {
    let tables = ["others", "rows"].map(|name| db.table(name).unwrap());
    if session == 0 {
        db.put(&tables[1], "before", "the feed").unwrap();
        tables.iter().for_each(|table| _ = db.start_change_feed(table).unwrap());
    }
    for transaction in fed(session) {
        if transaction[0].1.is_empty() {
            db.end_change_feed(&tables[0]).unwrap();
            continue;
        }
        let mut tx = db.begin().unwrap();
        for (name, key, value) in transaction {
            let table = &tables[usize::from(name == "rows")];
            match value {
                Some(value) => tx.put(table, key, value).unwrap(),
                None => tx.blind_delete(table, key).unwrap(),
            }
        }
        tx.commit().unwrap();
    }
    put_one(db, &tables[0], "behind", b"the end of its feed");
}

/// What the feed has behind a position.
fn read_feed(db: &Db, from: FeedPosition) -> Vec<Fed> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let name = |table: &str| if table == "rows" { "rows" } else { "others" };
    let describe = |change: tantalum::Result<Change>| match change.unwrap() {
        Change::Put { table, key, value } => (name(&table), text(&key), Some(value.read().unwrap().unwrap().to_vec())),
        Change::Delete { table, key } => (name(&table), text(&key), None),
        Change::EndFeed { table } => (name(&table), String::new(), None),
        other => panic!("{other:?}"),
    };
    let mut feed = db.changes(&from).unwrap();
    std::iter::from_fn(|| feed.try_next().unwrap()).map(|of| of.changes().map(describe).collect()).collect()
}

fn fixtures_with_feeds() -> impl Iterator<Item = &'static Fixture> {
    FIXTURES.iter().filter(|fixture| fixture.store != StoreKind::InPageLogging)
}

#[test]
fn change_feeds_are_read_from_the_beginning_and_go_on() {
    for fixture in fixtures_with_feeds() {
        let dir = tempfile::tempdir().unwrap();
        let packed = fs::read(fixture.path("feed")).unwrap();
        unpack(&packed, dir.path());
        let mut expected = [fed(0), fed(1)].concat();
        let check = |db: &Db, expected: &[Fed]| {
            let [(_, start)] = db.change_feeds().unwrap().try_into().unwrap();
            assert!(read_feed(db, start) == expected, "{}", fixture.name);
            assert_eq!(db.check().unwrap().problems(), [] as [&str; 0], "{}", fixture.name);
            let tables = ["others", "rows"].map(|name| db.open_table(name).unwrap().has_change_feed());
            assert_eq!(tables, [false, true], "{}", fixture.name);
        };
        let reader = Db::builder().read_only(true).open(dir.path()).unwrap();
        check(&reader, &expected);
        reader.close().unwrap();
        assert!(pack(dir.path()) == packed, "{}: a reader has changed it", fixture.name);
        for _ in 0..2 {
            let db = Db::builder().create_if_missing(false).open(dir.path()).unwrap();
            check(&db, &expected);
            let position = db.feed_position().unwrap();
            db.put(&db.open_table("rows").unwrap(), "more", "of it").unwrap();
            expected.push(vec![("rows", "more".into(), Some(b"of it".to_vec()))]);
            assert!(read_feed(&db, position) == expected[expected.len() - 1..], "{}", fixture.name);
            check(&db, &expected);
            db.close().unwrap();
        }
    }
}

#[test]
#[ignore = "makes the fixtures with change feeds, in a directory named by the variable FIXTURES"]
fn make_feed_fixtures() {
    let to = PathBuf::from(std::env::var_os("FIXTURES").unwrap()).join("feed");
    fs::create_dir_all(&to).unwrap();
    for fixture in fixtures_with_feeds() {
        let dir = tempfile::tempdir().unwrap();
        for session in 0..2 {
            let db = fixture.builder().transaction_memory_bytes(16 << 10).open(dir.path()).unwrap();
            fill_fed(&db, session);
            if session == 0 || fixture.is_closed {
                db.close().unwrap();
            }
        }
        fs::write(to.join(fixture.name), pack(dir.path())).unwrap();
    }
}
