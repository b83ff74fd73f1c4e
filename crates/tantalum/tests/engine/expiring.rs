//! Rows with a time to live, under a virtual clock.

use std::time::Duration;

use tantalum::{Db, ErrorKind, ExpiringTable};
use tantalum_rt::{Random, sleep, spawn};

use crate::support::{check, open, simulate, small};

type Sessions = ExpiringTable<u32, String>;

const SECOND: Duration = Duration::from_secs(1);

fn put(db: &Db, sessions: &Sessions, key: u32, value: &str, seconds: u32) {
    db.transact(|tx| sessions.put(tx, key, value, SECOND * seconds)).unwrap();
}

fn shown(db: &Db, sessions: &Sessions) -> Vec<u32> {
    let rows: Vec<_> = sessions.range(db, ..).unwrap().map(|row| row.unwrap().0).collect();
    let mut backward: Vec<_> = sessions.range(db, ..).unwrap().rev().map(|row| row.unwrap().0).collect();
    backward.reverse();
    assert_eq!(rows, backward);
    rows
}

/// Rows as they lie in the tables, shown or not, and entries of the queue.
fn stored(db: &Db) -> (usize, usize) {
    let count = |name| db.range(&db.table(name).unwrap(), ..).unwrap().count();
    (count("sessions"), count("sessions-deadlines"))
}

#[test]
fn rows_end_at_their_deadline_and_are_removed_then() {
    simulate(0..3, |_, devices| {
        let db = small().open_on(devices).unwrap();
        let sessions = db.expiring_table::<u32, String>("sessions").unwrap();
        (1..=4).for_each(|n| put(&db, &sessions, n, "begun", n * 10));
        let before = db.snapshot().unwrap();
        sleep(SECOND * 15);
        assert_eq!(shown(&db, &sessions), [2, 3, 4]);
        assert_eq!(sessions.get(&db, 1).unwrap(), None);
        assert_eq!(sessions.get(&before, 1).unwrap(), None, "also in the past");
        assert_eq!(stored(&db), (4, 4));
        // One lives on, one goes, and their entries stay.
        put(&db, &sessions, 2, "renewed", 30);
        assert!(db.transact(|tx| sessions.delete(tx, 3)).unwrap());
        assert!(!db.transact(|tx| sessions.delete(tx, 1)).unwrap(), "it had ended");
        sleep(SECOND * 20);
        assert_eq!(sessions.remove_expired(&db).unwrap(), 0);
        assert_eq!(shown(&db, &sessions), [2, 4]);
        assert_eq!(stored(&db), (2, 2));
        assert_eq!(sessions.get(&db, 2).unwrap().as_deref(), Some("renewed"));
        sleep(SECOND * 20);
        assert_eq!(sessions.remove_expired(&db).unwrap(), 2);
        assert_eq!(stored(&db), (0, 0));
        check(&db);
    });
}

/// More than one transaction removes, beside clients that renew rows: what is written later is not removed with what was there before.
#[test]
fn rows_are_removed_beside_writers() {
    simulate(0..5, |seed, devices| {
        let db = small().open_on(devices).unwrap();
        let sessions = db.expiring_table::<u32, String>("sessions").unwrap();
        db.transact(|tx| (0..700).try_for_each(|n| sessions.put(tx, n, "begun", SECOND))).unwrap();
        sleep(SECOND * 2);
        let renewed: Vec<_> = (0..3)
            .map(|client| {
                let (db, sessions) = (db.clone(), sessions.clone());
                spawn(format!("client-{client}"), move || {
                    let mut random = Random::with_seed(seed * 10 + client);
                    let keys: Vec<u32> = (0..20).map(|_| random.u32(0..700)).collect();
                    keys.iter().for_each(|&key| put(&db, &sessions, key, "renewed", 1000));
                    keys
                })
            })
            .collect();
        let removed = sessions.remove_expired(&db).unwrap();
        let mut renewed: Vec<u32> = renewed.into_iter().flat_map(|client| client.join_or_panic()).collect();
        renewed.sort_unstable();
        renewed.dedup();
        assert!(removed <= 700);
        assert_eq!(shown(&db, &sessions), renewed);
        sessions.remove_expired(&db).unwrap();
        assert_eq!(stored(&db).0, renewed.len());
        check(&db);
    });
}

#[test]
fn a_task_removes_rows_until_the_database_closes() {
    simulate(0..5, |seed, devices| {
        let db = small().open_on(devices).unwrap();
        let sessions = db.expiring_table::<u32, String>("sessions").unwrap();
        sessions.remove_in_background(&db, SECOND * 10);
        (0..50).for_each(|n| put(&db, &sessions, n, "begun", n));
        sleep(SECOND * 25);
        let (left, entries) = stored(&db);
        assert!((25..35).contains(&left) && left == entries, "{left} {entries}");
        sleep(SECOND * 40);
        assert_eq!(stored(&db), (0, 0));
        // By the last handle, or for all.
        if seed % 2 == 0 { drop(db) } else { db.close().unwrap() }
    });
}

#[test]
fn a_time_to_live_that_is_too_long_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let sessions = db.expiring_table::<u32, String>("sessions").unwrap();
    let mut tx = db.begin().unwrap();
    let error = sessions.put(&mut tx, 1, "for ever", Duration::MAX).unwrap_err();
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().contains("sessions"), "{error}");
    sessions.put(&mut tx, 1, "for a century", SECOND * 3600 * 24 * 36500).unwrap();
    tx.commit().unwrap();
    assert_eq!(sessions.get(&db, 1).unwrap().as_deref(), Some("for a century"));
}
