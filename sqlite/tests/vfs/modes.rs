//! Each way in which a transaction can end, in each journal mode, with and without a lock that is kept.

use crate::directory::{Directory, check_integrity, query, run};
use rusqlite::Connection;

const JOURNAL_MODES: [&str; 5] = ["delete", "truncate", "persist", "memory", "off"];
const LOCKING_MODES: [&str; 2] = ["normal", "exclusive"];
const SYNCHRONOUS: [&str; 3] = ["full", "normal", "off"];

/// All rows of a database.
const CONTENT: &str = "SELECT count(*) || group_concat(id || hex(value)) FROM t";

/// Runs a test in every mode, closes the database, and opens it again. There is a table with 100 rows of 500 bytes.
fn in_every_mode(test: impl Fn(&Directory, &Connection, &str)) {
    for journal_mode in JOURNAL_MODES {
        for locking_mode in LOCKING_MODES {
            for synchronous in SYNCHRONOUS {
                let directory = Directory::new();
                let connection = directory.connect("app.db");
                assert_eq!(query::<String>(&connection, &format!("PRAGMA locking_mode={locking_mode}")), locking_mode);
                assert_eq!(query::<String>(&connection, &format!("PRAGMA journal_mode={journal_mode}")), journal_mode);
                run(&connection, &format!("PRAGMA synchronous={synchronous}"));
                run(&connection, "CREATE TABLE t (id INTEGER PRIMARY KEY, value)");
                run(
                    &connection,
                    "WITH n(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM n WHERE i < 100) INSERT INTO t SELECT i, zeroblob(500) FROM n",
                );
                test(&directory, &connection, journal_mode);
                check_integrity(&connection);
                assert!(connection.is_autocommit());
                // The last connection closes the Tantalum database, and the next one opens it.
                let before: String = query(&connection, CONTENT);
                drop(connection);
                let reopened = directory.connect("app.db");
                assert_eq!(query::<String>(&reopened, CONTENT), before);
                check_integrity(&reopened);
            }
        }
    }
}

fn rows(connection: &Connection) -> i64 {
    query(connection, "SELECT count(*) FROM t")
}

#[test]
fn what_is_committed_is_there() {
    in_every_mode(|directory, connection, _| {
        run(connection, "BEGIN; INSERT INTO t VALUES (1000, 'a'); UPDATE t SET value = 'b' WHERE id < 10; COMMIT");
        run(connection, "DELETE FROM t WHERE id = 50");
        for connection in [connection, &directory.connect("app.db")] {
            let changes: i64 = query(connection, "SELECT count(*) FROM t WHERE value = 'b'");
            assert_eq!((rows(connection), changes), (100, 9));
        }
    });
}

#[test]
fn what_is_rolled_back_is_gone() {
    in_every_mode(|directory, connection, journal_mode| {
        // Without a journal, SQLite cannot take back what it has changed in its cache: the connection fails, and begins anew.
        run(connection, "BEGIN; INSERT INTO t VALUES (1000, 'a'); DELETE FROM t WHERE id < 50");
        drop(connection.execute_batch("ROLLBACK"));
        if journal_mode != "off" {
            assert_eq!(rows(connection), 100);
            run(connection, "BEGIN; INSERT INTO t VALUES (1000, 'a'); COMMIT");
            assert_eq!(rows(connection), 101);
            assert_eq!(rows(&directory.connect("app.db")), 101);
        }
    });
}

#[test]
fn what_was_spilled_from_the_cache_is_rolled_back() {
    in_every_mode(|directory, connection, journal_mode| {
        if journal_mode == "off" {
            return;
        }
        run(connection, "PRAGMA cache_size=5; PRAGMA cache_spill=1");
        let before: String = query(connection, "SELECT group_concat(hex(value)) FROM t");
        run(
            connection,
            "BEGIN; UPDATE t SET value = randomblob(3000); INSERT INTO t SELECT id + 1000, randomblob(2000) FROM t",
        );
        assert_eq!(rows(connection), 200);
        assert_eq!(rows(&directory.connect("app.db")), 100, "a reader sees what is committed");
        run(connection, "ROLLBACK");
        assert_eq!(query::<String>(connection, "SELECT group_concat(hex(value)) FROM t"), before);
        check_integrity(connection);
        run(connection, "BEGIN; UPDATE t SET value = randomblob(3000); COMMIT");
        check_integrity(&directory.connect("app.db"));
    });
}

#[test]
fn savepoints_and_failed_statements_take_back_their_part() {
    in_every_mode(|directory, connection, journal_mode| {
        if journal_mode == "off" {
            return;
        }
        run(
            connection,
            "PRAGMA cache_size=5; PRAGMA cache_spill=1; BEGIN; INSERT INTO t VALUES (500, 'kept'); SAVEPOINT s",
        );
        run(connection, "UPDATE t SET value = randomblob(3000); ROLLBACK TO s");
        run(connection, "INSERT INTO t SELECT id + 1000, randomblob(1000) FROM t WHERE id < 10");
        // Fails at its last row, and takes back those before.
        let conflict = "INSERT INTO t SELECT 700 + i, 'x' FROM (VALUES (1), (2), (3), (-200)) AS v(i)";
        let conflict = conflict.replace("AS v(i)", "").replace("SELECT 700 + i", "SELECT 700 + column1");
        assert!(connection.execute_batch(&conflict).is_err());
        run(connection, "RELEASE s; COMMIT");
        assert_eq!(rows(connection), 110);
        let reader = directory.connect("app.db");
        assert_eq!(rows(&reader), 110);
        assert_eq!(query::<i64>(&reader, "SELECT count(*) FROM t WHERE value = zeroblob(500)"), 100);
    });
}

#[test]
fn a_database_shrinks_and_grows_again() {
    in_every_mode(|directory, connection, _| {
        run(connection, "PRAGMA auto_vacuum=full; VACUUM");
        run(connection, "INSERT INTO t SELECT id + 1000, randomblob(3000) FROM t");
        let large: i64 = query(connection, "PRAGMA page_count");
        run(connection, "DELETE FROM t WHERE id > 1000");
        let small: i64 = query(connection, "PRAGMA page_count");
        assert!(small < large / 2, "{small} of {large}");
        check_integrity(&directory.connect("app.db"));
        run(
            connection,
            "INSERT INTO t SELECT id + 1000, zeroblob(3000) FROM t; DELETE FROM t WHERE id % 3 = 0; VACUUM",
        );
        check_integrity(&directory.connect("app.db"));
        assert_eq!(rows(connection), 200 - 33 - 33);
    });
}

#[test]
fn the_locking_mode_can_be_changed() {
    for journal_mode in JOURNAL_MODES {
        let directory = Directory::new();
        let (one, other) = (directory.connect("app.db"), directory.connect("app.db"));
        run(&one, &format!("PRAGMA journal_mode={journal_mode}; CREATE TABLE t (value)"));
        run(&other, "INSERT INTO t VALUES (1)");
        run(&one, "PRAGMA locking_mode=exclusive; INSERT INTO t VALUES (2)");
        assert_eq!(query::<i64>(&other, "SELECT count(*) FROM t"), 2, "readers do not wait");
        for value in 3..20 {
            run(&one, &format!("INSERT INTO t VALUES ({value})"));
            assert_eq!(query::<i64>(&other, "SELECT count(*) FROM t"), value, "they see each commit");
        }
        other.busy_timeout(std::time::Duration::ZERO).unwrap();
        assert_eq!(crate::directory::failure(&other, "INSERT INTO t VALUES (0)"), rusqlite::ffi::SQLITE_BUSY);
        run(&one, "PRAGMA locking_mode=normal; SELECT count(*) FROM t");
        run(&other, "INSERT INTO t VALUES (20)");
        assert_eq!(query::<i64>(&one, "SELECT count(*) FROM t"), 20);
        check_integrity(&one);
    }
}
