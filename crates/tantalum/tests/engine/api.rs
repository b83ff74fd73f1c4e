//! What one caller can do, on real files.

use std::collections::BTreeMap;

use tantalum::{Db, ErrorKind, Isolation, StoreKind, Table, TornPageProtection, limits};
use tantalum_rt::Random;

use crate::support::{check, committed, contents, get, open, put, rows, small};

#[test]
fn rows_are_put_read_deleted_and_survive_a_reopen() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("accounts").unwrap();
    let mut tx = db.begin().unwrap();
    assert_eq!(tx.get(&table, "alice").unwrap(), None);
    tx.put(&table, "alice", "100").unwrap();
    tx.insert(&table, "bob", "7").unwrap();
    assert!(matches!(tx.insert(&table, "bob", "8"), Err(error) if error.kind() == ErrorKind::AlreadyExists));
    assert_eq!(tx.get(&table, "alice").unwrap().unwrap(), b"100");
    assert!(tx.delete(&table, "bob").unwrap());
    assert!(!tx.delete(&table, "bob").unwrap());
    tx.insert(&table, "bob", "9").unwrap();
    assert!(tx.commit().unwrap().position().is_some());
    db.close().unwrap();

    let db = open(dir.path());
    let table = db.table("accounts").unwrap();
    assert_eq!(get(&db, &table, "alice").unwrap(), b"100");
    assert_eq!(get(&db, &table, "bob").unwrap(), b"9");
    check(&db);
}

#[test]
fn nothing_of_a_rolled_back_transaction_stays() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    put(&db, &table, &[("a", "1")]);
    let mut tx = db.begin().unwrap();
    tx.put(&table, "a", "2").unwrap();
    tx.put(&table, "b", "2").unwrap();
    tx.rollback();
    let mut tx = db.begin().unwrap();
    tx.delete(&table, "a").unwrap();
    drop(tx);
    assert_eq!(
        rows(&db.snapshot().unwrap(), &table),
        [("a", "1")].map(|(k, v)| (k.as_bytes().into(), v.as_bytes().into()))
    );
    assert_eq!(db.stats().unwrap().transactions.rollbacks, 2);
}

#[test]
fn ranges_see_own_writes_from_both_ends() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    let mut tx = db.begin().unwrap();
    for n in (0..1000u32).step_by(2) {
        tx.put(&table, n.to_be_bytes(), n.to_string()).unwrap();
    }
    tx.commit().unwrap();
    for isolation in [Isolation::Serializable, Isolation::SnapshotIsolation] {
        let mut tx = db.begin_with(isolation).unwrap();
        for n in (1..1000u32).step_by(4) {
            tx.put(&table, n.to_be_bytes(), "own").unwrap();
        }
        for n in (0..1000u32).step_by(10) {
            assert!(tx.delete(&table, n.to_be_bytes()).unwrap());
        }
        let expected: Vec<u32> = (0..1000)
            .filter(|n| if n % 2 == 0 { n % 10 != 0 } else { n % 4 == 1 })
            .filter(|n| (100..900).contains(n))
            .collect();
        let number = |row: tantalum::Result<(tantalum::Value, tantalum::Value)>| {
            u32::from_be_bytes(row.unwrap().0[..].try_into().unwrap())
        };
        let range = 100u32.to_be_bytes()..900u32.to_be_bytes();
        let forwards: Vec<u32> = tx.range(&table, range.clone()).unwrap().map(number).collect();
        assert_eq!(forwards, expected);
        let mut backwards: Vec<u32> = tx.range(&table, range.clone()).unwrap().rev().map(number).collect();
        backwards.reverse();
        assert_eq!(backwards, expected);
        // From both ends in turn: together every row once.
        let (mut front, mut back, mut iter) = (Vec::new(), Vec::new(), tx.range(&table, range).unwrap());
        while let Some(row) = iter.next() {
            front.push(number(row));
            back.extend(iter.next_back().map(number));
        }
        front.extend(back.into_iter().rev());
        assert_eq!(front, expected);
    }
    let tx = db.begin().unwrap();
    for n in (1..1000u32).step_by(2) {
        assert_eq!(tx.get(&table, n.to_be_bytes()).unwrap(), None, "nothing of the above was committed");
    }
}

#[test]
fn savepoints_nest() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&table, "a", "1").unwrap();
    let outer = tx.savepoint();
    tx.put(&table, "a", "2").unwrap();
    let inner = tx.savepoint();
    tx.delete(&table, "a").unwrap();
    tx.rollback_to(&inner).unwrap();
    assert_eq!(tx.get(&table, "a").unwrap().unwrap(), b"2");
    tx.rollback_to(&outer).unwrap();
    assert!(matches!(tx.rollback_to(&inner), Err(error) if error.kind() == ErrorKind::InvalidInput));
    assert!(matches!(db.begin().unwrap().rollback_to(&outer), Err(error) if error.kind() == ErrorKind::InvalidInput));
    tx.rollback_to(&outer).unwrap();
    tx.commit().unwrap();
    assert_eq!(get(&db, &table, "a").unwrap(), b"1");
}

#[test]
fn keys_and_values_have_limits_that_are_reached() {
    let dir = tempfile::tempdir().unwrap();
    let builder = || small().log_bytes(64 << 20).log_partitions(1).buffer_pool_bytes(512 * 4096);
    let db = builder().open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let (longest, value) = (vec![7; limits::max_key_bytes(4096)], vec![9; 3 << 20]);
    let mut tx = db.begin().unwrap();
    tx.put(&table, "", "the empty key").unwrap();
    tx.put(&table, &longest, "").unwrap();
    tx.put(&table, "large", &value).unwrap();
    assert!(
        matches!(tx.put(&table, [&longest[..], b"x"].concat(), ""), Err(error) if error.kind() == ErrorKind::TooLarge && error.to_string().contains("at most 512"))
    );
    let too_long = vec![0; limits::MAX_VALUE_BYTES + 1];
    assert!(matches!(tx.put(&table, "k", &too_long), Err(error) if error.kind() == ErrorKind::TooLarge));
    // The largest is written in `large_values`. More than one record of the log takes:
    tx.put(&table, "large too", &value).unwrap();
    tx.commit().unwrap();
    drop(db);
    let db = builder().open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let snapshot = db.snapshot().unwrap();
    assert_eq!(snapshot.get(&table, "").unwrap().unwrap(), b"the empty key");
    assert_eq!(snapshot.get(&table, &longest).unwrap().unwrap(), b"");
    for key in ["large", "large too"] {
        assert_eq!(snapshot.get(&table, key).unwrap().unwrap()[..], value[..]);
    }
    check(&db);
}

/// A node stores both fences, and a leaf several rows: also where all keys are as long as can be, and differ at their ends only.
#[test]
fn the_longest_keys_are_taken_with_every_page_size() {
    for store in [StoreKind::InPlace, StoreKind::InPageLogging, StoreKind::LogStructured] {
        for page_size in limits::PAGE_SIZES {
            let dir = tempfile::tempdir().unwrap();
            let builder =
                || small().page_store(store).page_size(page_size).buffer_pool_bytes(64 * u64::from(page_size));
            let db = builder().transaction_memory_bytes(64 << 10).open(dir.path()).unwrap();
            let table = db.table("t").unwrap();
            let longest = page_size as usize / 8;
            let key = |number: u32, begins_alike: bool| {
                let mut key = vec![7; longest];
                let at = if begins_alike { longest - 4 } else { 0 };
                key[at..at + 4].copy_from_slice(&number.to_be_bytes());
                key
            };
            let mut expected = BTreeMap::new();
            let mut random = Random::with_seed(1);
            // One by one, and in a large transaction that is taken back in part.
            for rows in [1, 1, 1, 30, 200] {
                let mut tx = db.begin().unwrap();
                for _ in 0..rows {
                    let key = key(random.u32(..), random.bool());
                    let value = vec![1; [0, 10, longest, 3 * longest][random.usize(0..4)]];
                    tx.put(&table, &key, &value).unwrap();
                    expected.insert(key, value);
                }
                let savepoint = tx.savepoint();
                for key in expected.keys() {
                    tx.delete(&table, key).unwrap();
                }
                tx.rollback_to(&savepoint).unwrap();
                let refused = tx.put(&table, vec![7; longest + 1], "").unwrap_err();
                assert!(refused.kind() == ErrorKind::TooLarge && refused.to_string().contains(&longest.to_string()));
                tx.commit().unwrap();
            }
            for number in 0..100 {
                let key = key(random.u32(..), number % 2 == 0);
                put_bytes(&db, &table, &key, &[2; 20]);
                expected.insert(key, vec![2; 20]);
            }
            assert!(committed(&db, &table) == expected, "{store}, {page_size}");
            check(&db);
            db.close().unwrap();
            let db = builder().open(dir.path()).unwrap();
            let table = db.table("t").unwrap();
            assert!(committed(&db, &table) == expected, "{store}, {page_size}");
            for key in expected.keys() {
                let mut tx = db.begin().unwrap();
                assert!(tx.delete(&table, key).unwrap());
                tx.commit().unwrap();
            }
            check(&db);
            db.close().unwrap();
        }
    }
}

fn put_bytes(db: &Db, table: &Table, key: &[u8], value: &[u8]) {
    let mut tx = db.begin().unwrap();
    tx.put(table, key, value).unwrap();
    tx.commit().unwrap();
}

#[test]
fn tables_are_independent_and_can_be_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    assert_eq!(db.tables().unwrap(), [] as [&str; 0]);
    for bad in ["", "a\nb", &"x".repeat(256)] {
        assert!(matches!(db.table(bad), Err(error) if error.kind() == ErrorKind::InvalidInput));
    }
    let longest = "x".repeat(255);
    db.table(&longest).unwrap();
    db.drop_table(&longest).unwrap();
    let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
    put(&db, &one, &[("k", "1")]);
    put(&db, &two, &[("k", "2")]);
    for n in 0..500u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&one, n.to_be_bytes(), vec![1; 2000]).unwrap();
        tx.commit_async().unwrap();
    }
    let used = db.check().unwrap().pages_used;
    {
        let tx = db.begin().unwrap();
        tx.get(&one, "k").unwrap();
        assert!(matches!(db.drop_table("one"), Err(error) if error.kind() == ErrorKind::InUse));
    }
    db.drop_table("one").unwrap();
    assert!(matches!(db.drop_table("one"), Err(error) if error.kind() == ErrorKind::NotFound));
    assert!(matches!(db.begin().unwrap().get(&one, "k"), Err(error) if error.kind() == ErrorKind::NotFound));
    assert!(db.check().unwrap().pages_used < used / 10, "its pages are free again");
    assert_eq!(get(&db, &two, "k").unwrap(), b"2");
    let anew = db.table("one").unwrap();
    assert_eq!(get(&db, &anew, "k"), None);
    assert_eq!(db.tables().unwrap(), ["one", "two"]);
    check(&db);
}

#[test]
fn handles_of_another_or_a_closed_database_are_refused() {
    let (dir, other_dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (db, other) = (open(dir.path()), open(other_dir.path()));
    let foreign = other.table("t").unwrap();
    assert!(matches!(db.begin().unwrap().get(&foreign, "k"), Err(error) if error.kind() == ErrorKind::InvalidInput));
    assert!(matches!(db.snapshot().unwrap().get(&foreign, "k"), Err(error) if error.kind() == ErrorKind::InvalidInput));
    let table = db.table("t").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&table, "k", "v").unwrap();
    let second = db.clone();
    db.close().unwrap();
    assert!(matches!(second.begin(), Err(error) if error.kind() == ErrorKind::Closed));
    assert!(matches!(second.check(), Err(error) if error.kind() == ErrorKind::Closed));
    assert!(tx.commit().is_err());
    drop(second);
    let db = open(dir.path());
    assert_eq!(get(&db, &db.table("t").unwrap(), "k"), None);
}

#[test]
fn many_commits_are_under_way_from_one_thread() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    let mut tickets = Vec::new();
    for n in 0..200u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&table, n.to_be_bytes(), "x").unwrap();
        tickets.push(tx.commit_async().unwrap());
    }
    assert!(tickets.is_sorted_by_key(|ticket| ticket.position()));
    for ticket in tickets {
        ticket.wait().unwrap();
    }
    assert_eq!(db.snapshot().unwrap().range(&table, ..).unwrap().count(), 200);
}

#[test]
fn a_backup_is_a_database_with_the_same_contents() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let db = open(dir.path());
    let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
    for n in 0..300u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&one, n.to_be_bytes(), vec![n as u8; n as usize * 30]).unwrap();
        tx.commit_async().unwrap();
    }
    put(&db, &two, &[("k", "v")]);
    let path = to.path().join("copy");
    db.backup(&path).unwrap();
    assert!(matches!(db.backup(&path), Err(error) if error.kind() == ErrorKind::AlreadyExists));
    assert!(!to.path().join("copy.partial").exists());
    let copy = Db::open(&path).unwrap();
    assert!(contents(&copy).unwrap() == contents(&db).unwrap());
    check(&copy);
}

#[test]
fn page_sizes_and_protections_work_and_are_kept() {
    for (page_size, protection) in [
        (8192, TornPageProtection::FullPageImages),
        (16384, TornPageProtection::DoubleWrite),
        (4096, TornPageProtection::TrustDevice),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let builder = || small().buffer_pool_bytes(64 * 16384);
        let db = builder()
            .page_size(page_size)
            .expert(|expert| expert.torn_page_protection(protection))
            .open(dir.path())
            .unwrap();
        let table = db.table("t").unwrap();
        for n in 0..300u32 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, n.to_be_bytes(), vec![n as u8; 700]).unwrap();
            tx.commit_async().unwrap();
        }
        db.checkpoint().unwrap();
        let before = contents(&db).unwrap();
        drop((table, db));
        let db = builder().open(dir.path()).unwrap();
        assert_eq!(db.stats().unwrap().page_bytes, page_size);
        assert!(contents(&db).unwrap() == before);
        check(&db);
    }
}
