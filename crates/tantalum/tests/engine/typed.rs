//! Typed tables through everything that reads and writes rows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tantalum::{Error, ErrorKind, Prefix, Reader, TypedTable};

use crate::support::open;

type Lines = TypedTable<(String, i32), u64>;

/// What a reader shows of a range, from both ends.
fn shown(lines: &Lines, from: &impl Reader) -> Vec<((String, i32), u64)> {
    let forward = lines.range(from, ..).unwrap().collect::<Result<Vec<_>, Error>>().unwrap();
    let mut backward = lines.range(from, ..).unwrap().rev().collect::<Result<Vec<_>, Error>>().unwrap();
    backward.reverse();
    assert_eq!(forward, backward);
    forward
}

#[test]
fn every_reader_shows_the_rows_in_the_order_of_their_keys() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let lines: Lines = db.table("lines").unwrap().typed();
    let keys = [("", 5), ("a", -300), ("a", -1), ("a", 2), ("a\0", i32::MIN), ("b", i32::MAX)];
    let rows: Vec<_> =
        keys.into_iter().zip(0..).map(|((name, line), value)| ((name.to_owned(), line), value)).collect();
    let before = db.snapshot().unwrap();
    let mut tx = db.begin().unwrap();
    for (key, value) in rows.iter().rev() {
        lines.insert(&mut tx, key, value).unwrap();
    }
    assert_eq!(lines.insert(&mut tx, ("a", 2), &9).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert_eq!(shown(&lines, &tx), rows, "its own writes");
    tx.commit().unwrap();
    assert_eq!(shown(&lines, &db), rows);
    assert_eq!(shown(&lines, &db.snapshot().unwrap()), rows);
    assert_eq!(shown(&lines, &before), []);

    assert_eq!(lines.get(&db, ("a", -1)).unwrap(), Some(2));
    assert!(lines.contains(&db, &("a".to_owned(), 2)).unwrap() && !lines.contains(&db, ("a", 3)).unwrap());
    assert_eq!(lines.first(&db).unwrap().as_ref(), rows.first());
    assert_eq!(lines.last(&db).unwrap().as_ref(), rows.last());
    let of_a = lines.prefix(&db, ("a",)).unwrap().map(|row| row.unwrap().0.1).collect::<Vec<_>>();
    assert_eq!(of_a, [-300, -1, 2], "not those of a\\0");
    assert_eq!(lines.range(&db, ("a", -1)..).unwrap().count(), 4);

    db.transact(|tx| {
        assert_eq!(lines.get_for_update(tx, ("b", i32::MAX))?, Some(5));
        lines.put(tx, ("b", i32::MAX), &50)?;
        assert!(lines.delete(tx, ("", 5))? && !lines.delete(tx, ("", 5))?);
        assert_eq!(lines.delete_range(tx, Prefix(("a",)))?, 3);
        Ok(())
    })
    .unwrap();
    assert_eq!(shown(&lines, &db), [(("a\0".into(), i32::MIN), 4), (("b".into(), i32::MAX), 50)]);
}

#[test]
fn typed_rows_are_rows() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let names: TypedTable<String, String> = db.table("names").unwrap().typed();
    db.put(names.table(), "ada", "Ada").unwrap();
    assert_eq!(names.get(&db, "ada").unwrap().as_deref(), Some("Ada"), "a text is its bytes");
    let times: TypedTable<SystemTime, i64> = db.table("times").unwrap().typed();
    let rows = (0..100).map(|second| (times.key(UNIX_EPOCH + Duration::from_secs(second)), 1i64.to_le_bytes()));
    db.bulk_load("times", rows).unwrap();
    let noon = UNIX_EPOCH + Duration::from_secs(50);
    assert_eq!(db.increment(times.table(), times.key(noon), 2).unwrap(), 3);
    assert_eq!(times.range(&db, noon..).unwrap().map(|row| row.unwrap().1).sum::<i64>(), 52);
}

#[test]
fn a_row_of_another_type_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("users").unwrap();
    db.put(&table, 7u32.to_be_bytes(), "Ada").unwrap();
    db.put(&table, 8u32.to_be_bytes(), [0xff]).unwrap();
    let says = |error: Error, parts: &[&str]| {
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        for part in parts {
            assert!(error.to_string().contains(part), "{error}");
        }
    };
    let users: TypedTable<u64, String> = table.clone().typed();
    says(users.first(&db).unwrap_err(), &["\"users\"", "key", r"\x00\x00\x00\x07", "u64"]);
    let users: TypedTable<u32, u64> = table.clone().typed();
    says(users.get(&db, 7).unwrap_err(), &["\"users\"", "value", r"\x00\x00\x00\x07", "3 bytes", "u64"]);
    let users: TypedTable<u32, String> = table.typed();
    let mut rows = users.range(&db, ..).unwrap();
    assert_eq!(rows.next().unwrap().unwrap(), (7, "Ada".into()));
    says(rows.next().unwrap().unwrap_err(), &["String"]);
    assert!(rows.next().is_none(), "it ends after an error");
    // The transaction goes on.
    let mut tx = db.begin().unwrap();
    says(users.get(&tx, 8).unwrap_err(), &["String"]);
    users.put(&mut tx, 8, "Grace").unwrap();
    tx.commit().unwrap();
    assert_eq!(users.get(&db, 8).unwrap().as_deref(), Some("Grace"));
}
