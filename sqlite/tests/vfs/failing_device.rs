//! What a connection does when the data device fails in the midst of its transaction, and works again later.

use std::sync::Arc;

use crate::directory::{Directory, check_integrity, failure, query, run};
use rusqlite::Connection;
use tantalum::{Db, Devices};
use tantalum_device::{Fault, MemoryDevice};
use tantalum_sqlite::Engine;

/// Which changes the rows show.
const CONTENT: &str = "SELECT CAST(sum(n) AS TEXT) FROM {}.t";

/// Changes rows, and makes the database smaller. Of what SQLite cuts off, behind the end of its journal, it has read nothing.
const CHANGES: &str = "UPDATE {}.t SET n = n + 1 WHERE id % 3 = 0; DELETE FROM {}.filling";

/// A database on a device that can fail, in an engine with little memory, so that it reads from the device.
fn open(directory: &Directory) -> (Arc<MemoryDevice>, Engine) {
    let data = MemoryDevice::new("data", 8 << 20);
    let devices = Devices {
        data: Arc::clone(&data) as _,
        double_write: Some(MemoryDevice::new("double-write", 1 << 20)),
        log: vec![MemoryDevice::new("log", 16 << 20)],
    };
    let db = Db::builder().buffer_pool_bytes(64 * 4096).transaction_memory_bytes(16 << 10).open_on(devices).unwrap();
    std::fs::create_dir(directory.path("tantalum-sqlite")).unwrap();
    (data, Engine::of(db, directory.path("tantalum-sqlite")).unwrap())
}

/// Runs a statement, and again when its view was given up. That is the oldest one there is when a task of the engine finds no place for row
/// versions: often that of another connection, but not if that was given up already, or has ended.
fn patiently<T>(statement: impl Fn() -> rusqlite::Result<T>) -> T {
    // The second is what a call says that comes behind the first.
    let reasons = ["the snapshot is too old", "was aborted by an earlier failure"];
    let is_given_up = || {
        let last = tantalum_sqlite::last_error().unwrap_or_default();
        reasons.iter().any(|reason| last.contains(reason))
    };
    for _ in 0..10 {
        match statement() {
            Ok(done) => return done,
            Err(rusqlite::Error::SqliteFailure(..)) if is_given_up() => {}
            Err(error) => panic!("{error} ({:?})", tantalum_sqlite::last_error()),
        }
    }
    panic!("views are given up again and again")
}

/// What a connection does with one database or two.
struct Setting {
    schemas: &'static [&'static str],
    journal_mode: &'static str,
    locking_mode: &'static str,
    cache_pages: u32,
}

impl Setting {
    /// The statements for each of its databases, with its name in place of `{}`.
    fn each(&self, sql: &str) -> String {
        self.schemas.iter().map(|schema| sql.replace("{}", schema)).collect::<Vec<_>>().join(";")
    }

    fn connect(&self, directory: &Directory) -> Connection {
        let connection = directory.connect("main.db");
        if self.schemas.len() == 2 {
            run(&connection, &format!("ATTACH '{}' AS other", directory.uri("other.db")));
        }
        connection
    }

    fn make(&self, connection: &Connection) {
        run(
            connection,
            &self.each(
                "PRAGMA {}.page_size=1024; PRAGMA {}.auto_vacuum=full;
                CREATE TABLE {}.t (id INTEGER PRIMARY KEY, n, value); CREATE TABLE {}.filling (value);
                WITH i(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM i WHERE i < 200) INSERT INTO {}.t SELECT i, i, randomblob(1000) FROM i;
                INSERT INTO {}.filling VALUES (randomblob(300000))",
            ),
        );
        run(connection, &self.each(&format!("PRAGMA {{}}.cache_size={}", self.cache_pages)));
        for schema in self.schemas {
            for (name, mode) in [("journal_mode", self.journal_mode), ("locking_mode", self.locking_mode)] {
                assert_eq!(query::<String>(connection, &format!("PRAGMA {schema}.{name}={mode}")), mode);
            }
        }
    }

    /// Which changes each of its databases shows.
    fn content(&self, connection: &Connection) -> Vec<String> {
        let of =
            |schema: &&str| patiently(|| connection.query_row(&CONTENT.replace("{}", schema), [], |row| row.get(0)));
        self.schemas.iter().map(of).collect()
    }

    /// Runs the transaction with a device that fails after so many reads. Returns whether it has committed.
    fn commits(&self, connection: &Connection, data: &MemoryDevice, reads: u64) -> bool {
        data.inject(Fault::FailReads { after: reads });
        let outcome = connection.execute_batch(&format!("BEGIN; {}; COMMIT", self.each(CHANGES)));
        if !connection.is_autocommit() {
            drop(connection.execute_batch("ROLLBACK"));
        }
        data.clear_faults();
        outcome.is_ok()
    }

    /// Fails the transaction at many of its reads from the device, from the first on, until it commits.
    fn fail_everywhere(&self) {
        let place = format!("{} {} {} {:?}", self.journal_mode, self.locking_mode, self.cache_pages, self.schemas);
        let directory = Directory::new();
        let (data, _engine) = open(&directory);
        let [connection, reader] = [(); 2].map(|()| self.connect(&directory));
        self.make(&connection);
        for reads in (0..).step_by(7) {
            let before = self.content(&reader);
            let has_committed = self.commits(&connection, &data, reads);
            let after = self.content(&connection);
            for (before, after) in before.iter().zip(&after) {
                assert_eq!(before != after, has_committed, "{place}: failed after {reads} reads");
            }
            assert_eq!(self.content(&reader), after, "{place}: {reads} reads");
            // What comes next has nothing of the transaction that failed.
            for schema in self.schemas {
                patiently(|| connection.execute_batch(&format!("UPDATE {schema}.t SET n = n + 1000")));
            }
            let n = |content: &String| content.parse::<u64>().unwrap();
            let next: Vec<_> = after.iter().map(|content| (n(content) + 200_000).to_string()).collect();
            assert_eq!(self.content(&reader), next, "{place}: {reads} reads");
            check_integrity(&reader);
            if has_committed {
                assert!(reads > 7, "{place}: the device never failed");
                return;
            }
        }
    }
}

#[test]
fn a_transaction_that_failed_is_not_seen_by_the_next_one() {
    for cache_pages in [5, 2000] {
        for journal_mode in ["delete", "truncate", "persist", "memory"] {
            for locking_mode in ["normal", "exclusive"] {
                Setting { schemas: &["main"], journal_mode, locking_mode, cache_pages }.fail_everywhere();
            }
        }
    }
}

#[test]
fn a_transaction_over_two_databases_that_failed_is_not_seen_by_the_next_one() {
    for cache_pages in [5, 2000] {
        for locking_mode in ["normal", "exclusive"] {
            let schemas = &["main", "other"];
            Setting { schemas, journal_mode: "delete", locking_mode, cache_pages }.fail_everywhere();
        }
    }
}

/// The engine gives up old versions that it has no place for.
#[test]
fn a_reader_that_took_too_long_reads_again_later() {
    let directory = Directory::new();
    let (data, _engine) = open(&directory);
    data.inject(Fault::NoSpaceOnGrow);
    let [writer, reader] = [(); 2].map(|()| directory.connect("app.db"));
    run(&writer, "CREATE TABLE t (id INTEGER PRIMARY KEY, value); PRAGMA cache_size=20");
    let insert = "WITH i(i) AS (VALUES (1) UNION ALL SELECT i + 1 FROM i WHERE i < 200) INSERT INTO t SELECT NULL, randomblob(1000) FROM i";
    while writer.execute_batch(insert).is_ok() {}
    let rows = query::<i64>(&writer, "SELECT count(*) FROM t");
    run(&reader, "BEGIN; SELECT value FROM t WHERE id = 1");
    for id in (0..rows).step_by(10) {
        let update = format!("UPDATE t SET value = randomblob(1000) WHERE id BETWEEN {id} AND {id} + 9");
        patiently(|| writer.execute_batch(&update));
    }
    let code = failure(&reader, "SELECT sum(length(value)) FROM t");
    assert_eq!(code & 0xff, rusqlite::ffi::SQLITE_IOERR);
    assert!(tantalum_sqlite::last_error().unwrap().contains("the snapshot is too old"));
    if !reader.is_autocommit() {
        run(&reader, "ROLLBACK");
    }
    assert_eq!(query::<i64>(&reader, "SELECT count(*) FROM t"), rows);
}
