//! What the tests share: a directory with databases in Tantalum, and connections to them.

use std::{path::PathBuf, time::Duration};

use rusqlite::Connection;
use tantalum_sqlite::Options;

/// A directory with SQLite databases.
pub struct Directory {
    directory: tempfile::TempDir,
}

impl Directory {
    pub fn new() -> Self {
        let options =
            Options::new().set("log_bytes", "16777216").unwrap().set("buffer_pool_bytes", "33554432").unwrap();
        tantalum_sqlite::register(options).unwrap();
        Self { directory: tempfile::tempdir().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The URI of a database in Tantalum.
    pub fn uri(&self, name: &str) -> String {
        format!("file:{}?vfs=tantalum", self.path(name).display())
    }

    /// A connection to a database in Tantalum, which waits for others.
    pub fn connect(&self, name: &str) -> Connection {
        let connection = Connection::open(self.uri(name)).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection
    }

    /// A connection to an ordinary database.
    pub fn connect_stock(&self, name: &str) -> Connection {
        Connection::open(self.path(name)).unwrap()
    }
}

/// The one value of a query.
pub fn query<T: rusqlite::types::FromSql>(connection: &Connection, sql: &str) -> T {
    connection
        .query_row(sql, [], |row| row.get(0))
        .unwrap_or_else(|error| panic!("{sql}: {error} ({:?})", tantalum_sqlite::last_error()))
}

/// Runs statements.
pub fn run(connection: &Connection, sql: &str) {
    connection
        .execute_batch(sql)
        .unwrap_or_else(|error| panic!("{sql}: {error} ({:?})", tantalum_sqlite::last_error()));
}

pub fn check_integrity(connection: &Connection) {
    assert_eq!(query::<String>(connection, "PRAGMA integrity_check"), "ok");
}

/// The result code that statements fail with.
pub fn failure(connection: &Connection, sql: &str) -> i32 {
    match connection.execute_batch(sql) {
        Err(rusqlite::Error::SqliteFailure(error, _)) => error.extended_code,
        other => panic!("{sql}: {other:?}"),
    }
}
