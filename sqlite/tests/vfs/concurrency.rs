//! Connections beside each other: what they see, which of them waits for which, and what is refused.

use std::time::Duration;

use crate::directory::{Directory, check_integrity, failure, query, run};
use rusqlite::{TransactionBehavior, ffi};

#[test]
fn readers_do_not_block_the_writer_nor_it_them() {
    let directory = Directory::new();
    let (reader, writer) = (directory.connect("app.db"), directory.connect("app.db"));
    run(&writer, "CREATE TABLE t (value); INSERT INTO t VALUES (1)");
    run(&reader, "BEGIN");
    assert_eq!(query::<i64>(&reader, "SELECT sum(value) FROM t"), 1);
    for _ in 0..3 {
        run(&writer, "BEGIN EXCLUSIVE; INSERT INTO t VALUES (10)");
        assert_eq!(query::<i64>(&reader, "SELECT sum(value) FROM t"), 1);
        run(&writer, "COMMIT");
    }
    assert_eq!(query::<i64>(&reader, "SELECT sum(value) FROM t"), 1, "of the moment when it began");
    run(&reader, "COMMIT");
    assert_eq!(query::<i64>(&reader, "SELECT sum(value) FROM t"), 31);
}

#[test]
fn two_connections_of_one_thread_do_not_wait_for_ever() {
    let directory = Directory::new();
    let (one, other) = (directory.connect("app.db"), directory.connect("app.db"));
    run(&one, "CREATE TABLE t (value); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)");
    other.busy_timeout(Duration::from_millis(20)).unwrap();
    assert_eq!(failure(&other, "INSERT INTO t VALUES (2)"), ffi::SQLITE_BUSY);
    assert_eq!(failure(&other, "BEGIN IMMEDIATE"), ffi::SQLITE_BUSY);
    run(&one, "COMMIT");
    run(&other, "INSERT INTO t VALUES (2)");
    assert_eq!(query::<i64>(&one, "SELECT sum(value) FROM t"), 3);
}

#[test]
fn a_transaction_that_read_an_older_state_cannot_write() {
    let directory = Directory::new();
    let (one, other) = (directory.connect("app.db"), directory.connect("app.db"));
    run(&one, "CREATE TABLE t (value); INSERT INTO t VALUES (1)");
    run(&one, "BEGIN");
    assert_eq!(query::<i64>(&one, "SELECT sum(value) FROM t"), 1);
    run(&other, "INSERT INTO t VALUES (2)");
    assert_eq!(failure(&one, "INSERT INTO t VALUES (4)"), ffi::SQLITE_BUSY_SNAPSHOT);
    assert_eq!(query::<i64>(&one, "SELECT sum(value) FROM t"), 1, "it goes on reading");
    run(&one, "ROLLBACK; BEGIN");
    assert_eq!(query::<i64>(&one, "SELECT sum(value) FROM t"), 3);
    run(&one, "INSERT INTO t VALUES (4); COMMIT");
    assert_eq!(query::<i64>(&other, "SELECT sum(value) FROM t"), 7);
}

#[test]
fn a_connection_that_keeps_its_lock_only_while_reading_refuses_it_if_others_have_written() {
    let directory = Directory::new();
    let (one, other) = (directory.connect("app.db"), directory.connect("app.db"));
    run(&one, "CREATE TABLE t (value); BEGIN");
    assert_eq!(query::<i64>(&one, "SELECT count(*) FROM t"), 0);
    run(&other, "INSERT INTO t VALUES (2)");
    let refused = one.execute_batch("PRAGMA locking_mode=exclusive");
    assert!(refused.is_err(), "SQLite would keep the old state for ever");
    run(&one, "COMMIT; INSERT INTO t VALUES (3)");
    assert_eq!(query::<i64>(&one, "SELECT sum(value) FROM t"), 5);
}

/// An attached database, of whose locking mode the VFS does not hear, since the main one is not in Tantalum.
#[test]
fn a_lock_that_is_kept_in_secret_is_noticed() {
    let directory = Directory::new();
    let other = directory.connect("app.db");
    run(&other, "CREATE TABLE t (value)");
    let one = rusqlite::Connection::open_in_memory().unwrap();
    run(&one, &format!("ATTACH '{}' AS app", directory.uri("app.db")));
    run(&one, "PRAGMA locking_mode=exclusive; INSERT INTO app.t VALUES (1); INSERT INTO app.t VALUES (2)");
    assert_eq!(query::<i64>(&other, "SELECT sum(value) FROM t"), 3);
    other.busy_timeout(Duration::ZERO).unwrap();
    // It has the lock since its second transaction.
    assert_eq!(failure(&other, "INSERT INTO t VALUES (4)"), ffi::SQLITE_BUSY);
    drop(one);
    run(&other, "INSERT INTO t VALUES (4)");

    let one = rusqlite::Connection::open_in_memory().unwrap();
    run(&one, &format!("ATTACH '{}' AS app", directory.uri("app.db")));
    run(&one, "PRAGMA locking_mode=exclusive; INSERT INTO app.t VALUES (8)");
    run(&other, "INSERT INTO t VALUES (16)");
    for _ in 0..3 {
        assert_eq!(failure(&one, "INSERT INTO app.t VALUES (32)") & 0xff, ffi::SQLITE_IOERR);
    }
    assert!(tantalum_sqlite::last_error().unwrap().contains("close this one"));
    drop(one);
    assert_eq!(query::<i64>(&other, "SELECT sum(value) FROM t"), 31);
    check_integrity(&other);
}

/// No statement fails with `SQLITE_BUSY`, and every one that was acknowledged is there.
#[test]
fn updates_of_many_threads_are_all_counted() {
    const THREADS: i64 = 12;
    const ROUNDS: i64 = 60;
    for journal_mode in ["delete", "persist", "memory"] {
        let directory = Directory::new();
        let first = directory.connect("app.db");
        run(&first, "CREATE TABLE t (id INTEGER PRIMARY KEY, value INTEGER, padding)");
        for id in 0..THREADS {
            run(&first, &format!("INSERT INTO t VALUES ({id}, 0, zeroblob(2000))"));
        }
        let tasks = (0..THREADS).map(|id| {
            let mut connection = directory.connect("app.db");
            run(&connection, &format!("PRAGMA journal_mode={journal_mode}"));
            tantalum_rt::spawn("client", move || {
                for round in 0..ROUNDS {
                    match round % 3 {
                        0 => run(&connection, &format!("UPDATE t SET value = value + 1 WHERE id = {id}")),
                        1 => {
                            let behavior = TransactionBehavior::Immediate;
                            let transaction = connection.transaction_with_behavior(behavior).unwrap();
                            let value: i64 = query(&transaction, "SELECT value FROM t WHERE id = 0");
                            run(&transaction, &format!("UPDATE t SET value = {} WHERE id = 0", value + 1));
                            transaction.commit().unwrap();
                        }
                        _ => {
                            run(&connection, "BEGIN IMMEDIATE; UPDATE t SET value = value + 100; ROLLBACK");
                            let sum: i64 = query(&connection, "SELECT sum(value) FROM t");
                            assert!(sum >= round / 3 * 2, "what this thread wrote is there");
                        }
                    }
                }
            })
        });
        tasks.collect::<Vec<_>>().into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(query::<i64>(&first, "SELECT sum(value) FROM t"), THREADS * ROUNDS / 3 * 2);
        check_integrity(&first);
    }
}

#[test]
fn connections_may_come_and_go_while_the_database_is_opened_and_closed() {
    let directory = Directory::new();
    run(&directory.connect("app.db"), "CREATE TABLE t (value)");
    let tasks = (0..4).map(|_| {
        let path = directory.uri("app.db");
        tantalum_rt::spawn("client", move || {
            for _ in 0..10 {
                let connection = rusqlite::Connection::open(&path)
                    .unwrap_or_else(|error| panic!("{error}: {:?}", tantalum_sqlite::last_error()));
                connection.busy_timeout(Duration::from_secs(60)).unwrap();
                run(&connection, "INSERT INTO t VALUES (1)");
            }
        })
    });
    tasks.collect::<Vec<_>>().into_iter().for_each(|task| task.join().unwrap());
    assert_eq!(query::<i64>(&directory.connect("app.db"), "SELECT count(*) FROM t"), 40);
}

#[test]
fn connections_with_a_shared_cache_share_what_the_vfs_has() {
    let directory = Directory::new();
    let uri = format!("{}&cache=shared", directory.uri("app.db"));
    let [one, other] = [(); 2].map(|()| rusqlite::Connection::open(&uri).unwrap());
    run(&one, "CREATE TABLE t (value); BEGIN; INSERT INTO t VALUES (1); COMMIT");
    assert_eq!(query::<i64>(&other, "SELECT count(*) FROM t"), 1);
    run(&other, "INSERT INTO t VALUES (2)");
    check_integrity(&one);
}
