//! What callers would else write by hand: joins while a range is read, transactions that are run again, and operations on rows.

use std::{cell::Cell, ops::Bound};

use tantalum::{Db, Error, ErrorKind, Isolation, KeyRange, Prefix, StoreKind, TransactOptions, Value};
use tantalum_rt::{Random, Simulation, spawn};

use crate::support::{
    Model, check, committed, open, put, simulate, simulate_stores, slow_devices, small, wait_until_applied,
    with_little_memory,
};

const ISOLATIONS: [Isolation; 2] = [Isolation::Serializable, Isolation::SnapshotIsolation];

#[test]
fn rows_are_joined_while_a_range_is_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let (users, by_city) = (db.table("users").unwrap(), db.table("users-by-city").unwrap());
    db.transact(|tx| {
        for user in 0..500u32 {
            tx.put(&users, user.to_be_bytes(), format!("user {user}"))?;
            tx.put(&by_city, format!("city {}/{user:04}", user % 7), user.to_be_bytes())?;
        }
        Ok(())
    })
    .unwrap();
    for isolation in ISOLATIONS {
        let mut tx = db.begin_with(isolation).unwrap();
        tx.put(&users, 10u32.to_be_bytes(), "user 10 renamed").unwrap();
        let mut names = Vec::new();
        for entry in tx.prefix(&by_city, "city 3/").unwrap() {
            let (_, user) = entry.unwrap();
            names.push(tx.get(&users, &user).unwrap().unwrap());
        }
        assert_eq!(names.len(), 71);
        assert!(names[0] == b"user 3" && names[1] == b"user 10 renamed");
        // Two ranges at once, from both ends.
        let (mut front, mut back) = (tx.range(&users, ..).unwrap(), tx.range(&users, ..).unwrap().rev());
        for _ in 0..250 {
            assert!(front.next().unwrap().unwrap().0 < back.next().unwrap().unwrap().0);
        }
    }
}

/// A read that loses a deadlock ends the transaction below the range, which says so, and the winner gets its locks.
#[test]
fn a_deadlock_ends_a_transaction_below_its_ranges() {
    simulate(0..20, |_, devices| {
        let db = small().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "1"), ("b", "1"), ("c", "1")]);
        let losers: u32 = ["b", "c"]
            .map(|first| {
                let (db, table) = (db.clone(), table.clone());
                spawn(first, move || {
                    let mut tx = db.begin().unwrap();
                    tx.put(&table, first, "2").unwrap();
                    tantalum_rt::sleep(std::time::Duration::from_millis(1));
                    let mut rows = tx.range(&table, "a"..).unwrap();
                    let mut seen = Ok(());
                    while let Some(row) = rows.next()
                        && seen.is_ok()
                    {
                        seen = row.map(drop);
                    }
                    let Err(error) = seen else {
                        drop(rows);
                        tx.commit().unwrap();
                        return 0;
                    };
                    assert_eq!(error.kind(), ErrorKind::Deadlock);
                    assert!(rows.next().is_none());
                    assert_eq!(tx.get(&table, "a").unwrap_err().kind(), ErrorKind::Aborted);
                    // It keeps no lock while it lives.
                    db.put(&table, first, "3").unwrap();
                    1
                })
            })
            .map(|task| task.join().unwrap())
            .into_iter()
            .sum();
        assert_eq!(losers, 1);
        check(&db);
    });
}

#[test]
fn a_range_outlives_its_snapshot_and_keeps_the_table() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    put(&db, &table, &[("a", "1"), ("b", "1")]);
    let mut rows = db.range(&table, ..).unwrap();
    db.put(&table, "b", "2").unwrap();
    db.put(&table, "c", "2").unwrap();
    assert_eq!(rows.next_back().unwrap().unwrap().1, b"1");
    assert_eq!(db.drop_table("t").unwrap_err().kind(), ErrorKind::InUse);
    assert_eq!(rows.count(), 1);
    db.drop_table("t").unwrap();
    assert_eq!(db.contains(&table, "a").unwrap_err().kind(), ErrorKind::NotFound);
}

/// Clients add to two counters in opposite orders, so that they lose against each other, and no sum is lost.
fn add_in_both_orders(seed: u64, isolation: Isolation) -> (u64, u64) {
    let db = small().isolation(isolation).open_on(slow_devices(seed)).unwrap();
    let table = db.table("t").unwrap();
    let runs: u64 = (0..4u64)
        .map(|client| {
            let (db, table) = (db.clone(), table.clone());
            spawn(format!("client-{client}"), move || {
                let mut runs = 0;
                for _ in 0..6 {
                    let keys = if client % 2 == 0 { ["a", "b"] } else { ["b", "a"] };
                    db.transact(|tx| {
                        runs += 1;
                        keys.iter().try_for_each(|key| tx.increment(&table, key, 1).map(drop))
                    })
                    .unwrap();
                }
                runs
            })
        })
        .collect::<Vec<_>>()
        .into_iter()
        .map(|task| task.join().unwrap())
        .sum();
    for key in ["a", "b"] {
        assert_eq!(db.increment(&table, key, 0).unwrap(), 24);
    }
    let rollbacks = db.stats().unwrap().transactions.rollbacks;
    assert_eq!(runs, 24 + rollbacks);
    db.close().unwrap();
    (rollbacks, tantalum_rt::now().as_nanos())
}

#[test]
fn a_transaction_that_lost_is_run_again() {
    for isolation in ISOLATIONS {
        let run = |seed| Simulation::new(seed).run(move || add_in_both_orders(seed, isolation)).expect_finished();
        let all: Vec<_> = (0..12).map(run).collect();
        assert!(all.iter().map(|(rollbacks, _)| rollbacks).sum::<u64>() > 12, "transactions lost: {all:?}");
        assert_eq!(run(3), all[3], "pauses are repeated too");
    }
}

#[test]
fn after_the_last_try_the_error_says_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    let options = TransactOptions::default().isolation(Isolation::SnapshotIsolation).tries(3);
    let runs = Cell::new(0);
    let lose = |hide: bool| {
        runs.set(0);
        db.transact_with(options, |tx| {
            runs.set(runs.get() + 1);
            tx.get(&table, "k")?;
            db.put(&table, "k", "of another")?;
            let put = tx.put(&table, "k", "own");
            if hide { Ok(()) } else { put }
        })
    };
    let error = lose(false).unwrap_err();
    assert_eq!((error.kind(), runs.get()), (ErrorKind::WriteConflict, 3));
    assert!(error.to_string().starts_with("gave up after 3 tries: "), "{error}");
    assert_eq!(error.cause::<Error>().unwrap().kind(), ErrorKind::WriteConflict);
    // Also where the error is not passed on.
    assert_eq!((lose(true).unwrap_err().kind(), runs.get()), (ErrorKind::Aborted, 3));
    assert_eq!(db.get(&table, "k").unwrap().unwrap(), b"of another");

    runs.set(0);
    let error = db.transact(|tx| {
        runs.set(runs.get() + 1);
        tx.put(&table, "k", "own")?;
        Err::<(), _>(Error::application("x".parse::<u8>().unwrap_err()))
    });
    let error = error.unwrap_err();
    assert!(error.kind() == ErrorKind::Application && error.cause::<std::num::ParseIntError>().is_some());
    assert_eq!(runs.get(), 1);
    assert_eq!(db.get(&table, "k").unwrap().unwrap(), b"of another");
    assert_eq!(db.read(|snapshot| snapshot.get(&table, "k")).unwrap().unwrap(), b"of another");
}

fn in_model(model: &Model, range: impl KeyRange) -> Vec<Vec<u8>> {
    let (lower, upper) = range.into_bounds();
    let is_empty = match (&lower, &upper) {
        (Bound::Included(lower), Bound::Excluded(upper)) => lower >= upper,
        _ => false,
    };
    if is_empty {
        return Vec::new();
    }
    model.range((lower, upper)).map(|(key, _)| key.clone()).collect()
}

/// Random operations on few keys, in transactions that spill and without, do to a table what they do to an ordered map.
#[test]
fn operations_on_rows_agree_with_an_ordered_map() {
    simulate_stores(0..18, |seed, store, devices| {
        let isolation = ISOLATIONS[seed as usize / 3 % 2];
        let db = with_little_memory(store).isolation(isolation).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let (mut random, mut model) = (Random::with_seed(seed), Model::new());
        for _ in 0..12 {
            let mut after = model.clone();
            let mut tx = db.begin().unwrap();
            for _ in 0..random.u32(1..60) {
                let key = |random: &mut Random| format!("{:03}", random.u32(..200)).into_bytes();
                let (one, other) = (key(&mut random), key(&mut random));
                let value = vec![random.u8(..); random.usize(..1500)];
                match random.u32(..8) {
                    0 | 1 => {
                        tx.put(&table, &one, &value).unwrap();
                        after.insert(one, value);
                    }
                    2 => {
                        let range = one.clone()..other.clone();
                        let expected = in_model(&after, range.clone());
                        assert_eq!(tx.delete_range(&table, range).unwrap(), expected.len() as u64);
                        expected.iter().for_each(|key| drop(after.remove(key)));
                    }
                    3 => {
                        let prefix = &one[..2];
                        let expected = in_model(&after, Prefix(prefix));
                        let found = tx.prefix(&table, prefix).unwrap().map(|row| row.unwrap().0.to_vec());
                        assert_eq!(found.collect::<Vec<_>>(), expected);
                        if random.bool() {
                            let deleted = tx.delete_range(&table, Prefix(prefix)).unwrap();
                            assert_eq!(deleted, expected.len() as u64);
                            expected.iter().for_each(|key| drop(after.remove(key)));
                        }
                    }
                    4 => {
                        let present = after.get(&one).cloned();
                        let expected = if random.bool() { present.clone() } else { after.get(&other).cloned() };
                        let new = random.bool().then_some(value);
                        let is_swapped =
                            tx.compare_and_swap(&table, &one, expected.as_deref(), new.as_deref()).unwrap();
                        assert_eq!(is_swapped, expected == present);
                        if is_swapped {
                            after.remove(&one);
                            new.and_then(|new| after.insert(one, new));
                        }
                    }
                    5 => {
                        let ends =
                            [tx.first(&table), tx.last(&table)].map(|row| row.unwrap().map(|row| row.0.to_vec()));
                        let expected = [after.first_key_value(), after.last_key_value()];
                        assert_eq!(ends, expected.map(|row| row.map(|row| row.0.clone())));
                    }
                    6 => {
                        let found = tx.get_many(&table, [&one, &other]).unwrap();
                        assert_eq!(found, [&one, &other].map(|key| after.get(key).cloned().map(Value::from)));
                        assert_eq!(tx.contains(&table, &one).unwrap(), after.contains_key(&one));
                    }
                    _ => assert_eq!(tx.delete(&table, &one).unwrap(), after.remove(&one).is_some()),
                }
            }
            if random.u32(..4) > 0 {
                tx.commit().unwrap();
                model = after;
            } else {
                drop(tx);
            }
            let (one, snapshot) = (format!("{:03}", random.u32(..200)), db.snapshot().unwrap());
            let expected = model.get(one.as_bytes()).cloned().map(Value::from);
            assert_eq!(db.contains(&table, &one).unwrap(), expected.is_some());
            assert_eq!(snapshot.contains(&table, &one).unwrap(), expected.is_some());
            assert_eq!(db.get_many(&table, [&one, &one]).unwrap(), [expected.clone(), expected]);
            let (first, last) = (db.first(&table).unwrap(), db.last(&table).unwrap());
            assert_eq!(first.map(|row| row.0.to_vec()), model.keys().next().cloned());
            assert_eq!(last.map(|row| row.0.to_vec()), model.keys().next_back().cloned());
            assert_eq!(db.prefix(&table, &one[..2]).unwrap().count(), in_model(&model, Prefix(&one[..2])).len());
        }
        assert_eq!(committed(&db, &table), model);
        assert_eq!(db.delete_range(&table, ..).unwrap(), model.len() as u64);
        wait_until_applied(&db);
        assert_eq!(committed(&db, &table), Model::new());
        check(&db);
    });
}

/// The keys of a large range are staged as they are deleted, in bounded memory.
#[test]
fn a_large_range_is_deleted_by_a_staged_transaction() {
    for isolation in ISOLATIONS {
        let dir = tempfile::tempdir().unwrap();
        let db = with_little_memory(StoreKind::InPlace).isolation(isolation).open(dir.path()).unwrap();
        let rows = 20_000u32;
        db.bulk_load("t", (0..rows).map(|n| (n.to_be_bytes(), [7; 20]))).unwrap();
        let table = db.open_table("t").unwrap();
        assert_eq!(
            db.delete_range(&table, 10u32.to_be_bytes()..(rows - 10).to_be_bytes()).unwrap(),
            u64::from(rows) - 20
        );
        assert_eq!(db.stats().unwrap().transactions.staged_commits, 1);
        assert_eq!(db.range(&table, ..).unwrap().count(), 20);
        assert_eq!(db.delete_range(&table, "b".."a").unwrap(), 0);
        wait_until_applied(&db);
        check(&db);
    }
}

/// A row inserted into a range that another transaction deletes is there before, and deleted, or after.
#[test]
fn a_range_that_is_deleted_is_locked() {
    simulate(0..20, |seed, devices| {
        let db = small().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("b", "1"), ("d", "1")]);
        let inserter = spawn("inserter", {
            let (db, table) = (db.clone(), table.clone());
            move || db.transact(|tx| tx.insert(&table, "c", "1").and_then(|()| tx.increment(&table, "z", 1))).unwrap()
        });
        let (deleted, before) = db
            .transact(|tx| {
                let deleted = tx.delete_range(&table, "a".."e")?;
                tantalum_rt::sleep(std::time::Duration::from_micros(seed * 20));
                Ok((deleted, tx.contains(&table, "z")?))
            })
            .unwrap();
        inserter.join().unwrap();
        assert_eq!(deleted, 2 + u64::from(before));
        assert_eq!(db.contains(&table, "c").unwrap(), !before);
        check(&db);
    });
}

#[test]
fn numbers_and_refusals() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    assert_eq!(db.increment(&table, "n", i64::MAX).unwrap(), i64::MAX);
    let mut tx = db.begin().unwrap();
    let error = tx.increment(&table, "n", 1).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("out of range"), "{error}");
    tx.put(&table, "text", "seven").unwrap();
    let error = tx.increment(&table, "text", 1).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("\"text\""), "{error}");
    assert_eq!(tx.increment(&table, "n", i64::MIN).unwrap(), -1, "the transaction goes on");
    tx.commit().unwrap();
    assert_eq!(db.get(&table, "n").unwrap().unwrap(), (-1i64).to_le_bytes());
    db.close().unwrap();

    let db = small().read_only(true).open(dir.path()).unwrap();
    let table = db.open_table("t").unwrap();
    let kind = |refused: Result<(), Error>| refused.unwrap_err().kind();
    assert_eq!(kind(db.put(&table, "a", "1")), ErrorKind::ReadOnly);
    assert_eq!(kind(db.delete_range(&table, ..).map(drop)), ErrorKind::ReadOnly);
    assert_eq!(kind(db.increment(&table, "n", 1).map(drop)), ErrorKind::ReadOnly);
    assert_eq!(kind(db.compare_and_swap(&table, "n", Some(b"other"), None).map(drop)), ErrorKind::ReadOnly);
    assert_eq!(kind(db.create_table("t").map(drop)), ErrorKind::ReadOnly);
    assert_eq!(kind(db.open_table("u").map(drop)), ErrorKind::NotFound);
}

/// Of tasks that create the same table, one does.
#[test]
fn a_table_is_created_once() {
    simulate(0..10, |_, devices| {
        let db: Db = small().open_on(devices).unwrap();
        let tasks = [0, 1, 2].map(|n| {
            let db = db.clone();
            spawn(format!("creator-{n}"), move || db.create_table("t").map(|table| table.id()))
        });
        let made: Vec<_> = tasks.map(|task| task.join().unwrap()).into_iter().collect();
        let failed: Vec<_> = made.iter().filter_map(|made| Some(made.as_ref().err()?.kind())).collect();
        assert_eq!(failed, [ErrorKind::AlreadyExists; 2]);
        let id = made.into_iter().find_map(Result::ok).unwrap();
        assert!(db.open_table("t").unwrap().id() == id && db.table("t").unwrap().id() == id);
    });
}
