//! The table `tantalum_status`.

use crate::directory::{Directory, failure, query, run};
use rusqlite::{Connection, ffi};

#[test]
fn the_statistics_of_what_is_open_are_rows() {
    let directory = Directory::new();
    let connection = directory.connect("app.db");
    run(&connection, "CREATE TABLE t (value); INSERT INTO t VALUES (1)");
    let tantalum = directory.path("tantalum-sqlite").canonicalize().unwrap();
    let here = format!("database = '{}'", tantalum.display());
    let number = |connection: &Connection, condition: &str| {
        query::<i64>(connection, &format!("SELECT value FROM tantalum_status WHERE {here} AND {condition}"))
    };
    let before = number(&connection, "name = 'transactions.commits'");
    run(&connection, "INSERT INTO t VALUES (2)");
    assert_eq!(number(&connection, "name = 'transactions.commits'"), before + 1);
    assert_eq!(number(&connection, "name = 'page_bytes' AND device IS NULL"), 4096);
    for name in ["bytes", "hiding.outliers", "hiding.won"] {
        let name = format!("name = 'log.devices.{name}'");
        assert!(number(&connection, &format!("{name} AND device LIKE '%log-0'")) >= 0, "{name}");
    }
    // From any connection, within a transaction, and joined with other tables.
    let other = Connection::open_in_memory().unwrap();
    run(
        &other,
        "CREATE TABLE names AS SELECT 'log.records' AS name; BEGIN; INSERT INTO names VALUES ('store.capacity_bytes')",
    );
    let sql = format!("SELECT count(*) FROM names JOIN tantalum_status USING (name) WHERE {here}");
    assert_eq!(query::<i64>(&other, &sql), 2);
    for sql in ["DELETE FROM tantalum_status", "CREATE VIRTUAL TABLE s USING tantalum_status"] {
        assert_eq!(failure(&other, sql), ffi::SQLITE_ERROR);
    }
    drop(connection);
    let sql = format!("SELECT count(*) FROM tantalum_status WHERE {here}");
    assert_eq!(query::<i64>(&other, &sql), 0, "it is closed");
}
