//! Page sizes, growth, and transactions of any size.

use crate::directory::{Directory, check_integrity, query, run};

#[test]
fn every_page_size_works_and_can_be_changed() {
    let directory = Directory::new();
    for (number, page_size) in [512, 1024, 4096, 8192, 65536].into_iter().enumerate() {
        for (other, new_size) in [512, 2048, 65536].into_iter().enumerate() {
            let connection = directory.connect(&format!("{number}-{other}.db"));
            run(&connection, &format!("PRAGMA page_size={page_size}; CREATE TABLE t (id INTEGER PRIMARY KEY, value)"));
            run(
                &connection,
                "INSERT INTO t SELECT value, randomblob(value * 37) FROM (WITH n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < 150) SELECT value FROM n)",
            );
            assert_eq!(query::<i64>(&connection, "PRAGMA page_size"), page_size);
            let sum = "SELECT hex(group_concat(value)) FROM t";
            let before: String = query(&connection, sum);
            run(&connection, &format!("PRAGMA page_size={new_size}; VACUUM"));
            assert_eq!(query::<i64>(&connection, "PRAGMA page_size"), new_size);
            run(&connection, "UPDATE t SET id = id + 1000 WHERE id % 2");
            let reader = directory.connect(&format!("{number}-{other}.db"));
            assert_eq!(query::<i64>(&reader, "SELECT sum(length(value)) FROM t"), 150 * 151 / 2 * 37);
            check_integrity(&reader);
            assert_eq!(before.len(), query::<String>(&reader, sum).len());
        }
    }
}

#[test]
fn pages_of_the_engine_may_have_any_size() {
    let directory = Directory::new();
    for page_size in [4096, 8192, 16384] {
        let name = format!("{page_size}.db");
        let database = directory.path(&format!("pages-of-{page_size}"));
        let uri = format!("{}&database={}&page_size={page_size}", directory.uri(&name), database.display());
        run(
            &rusqlite::Connection::open(uri).unwrap(),
            "CREATE TABLE t (value); INSERT INTO t VALUES (randomblob(100000))",
        );
        check_integrity(&directory.connect(&name));
    }
}

/// Larger than the memory of a transaction of the engine, and than its log: it is staged, and rolled back or committed all the same.
#[test]
fn a_transaction_may_be_larger_than_memory_and_log() {
    let directory = Directory::new();
    let uri = format!("{}&transaction_memory_bytes=1048576", directory.uri("app.db"));
    let connection = rusqlite::Connection::open(uri).unwrap();
    run(&connection, "PRAGMA cache_size=-1000; CREATE TABLE t (id INTEGER PRIMARY KEY, value)");
    run(&connection, "INSERT INTO t VALUES (0, 'before')");
    let fill = "INSERT INTO t SELECT value, randomblob(30000) FROM (WITH n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < 1000) SELECT value FROM n)";
    run(&connection, &format!("BEGIN; {fill}"));
    assert_eq!(query::<i64>(&directory.connect("app.db"), "SELECT count(*) FROM t"), 1);
    run(&connection, "ROLLBACK");
    check_integrity(&connection);
    run(&connection, fill);
    assert_eq!(query::<i64>(&connection, "SELECT sum(length(value)) FROM t"), 1000 * 30000 + 6);
    run(&connection, "CREATE INDEX i ON t (hex(substr(value, 1, 8)), id)");
    run(&connection, "DELETE FROM t WHERE id > 100; VACUUM");
    check_integrity(&directory.connect("app.db"));
}

/// A full disk, as far as a database can see one: SQLite's own limit, which counts pages.
#[test]
fn a_database_that_is_full_stays_whole() {
    let directory = Directory::new();
    let connection = directory.connect("app.db");
    run(&connection, "CREATE TABLE t (value); PRAGMA max_page_count=20");
    let code = crate::directory::failure(
        &connection,
        "BEGIN; INSERT INTO t VALUES (randomblob(40000)); INSERT INTO t VALUES (randomblob(400000))",
    );
    assert_eq!(code, rusqlite::ffi::SQLITE_FULL);
    if !connection.is_autocommit() {
        run(&connection, "ROLLBACK");
    }
    assert_eq!(query::<i64>(&connection, "SELECT count(*) FROM t"), 0);
    run(&connection, "INSERT INTO t VALUES (randomblob(40000))");
    check_integrity(&connection);
}

/// Two pages change, the row's and the first, and the log gets neither.
#[test]
fn an_update_logs_the_bytes_that_differ() {
    const UPDATES: u64 = 100;
    let directory = Directory::new();
    let connection = directory.connect("app.db");
    run(&connection, "CREATE TABLE t (id INTEGER PRIMARY KEY, value)");
    run(
        &connection,
        "INSERT INTO t SELECT value, randomblob(100) FROM (WITH n(value) AS (VALUES (1) UNION ALL SELECT value + 1 FROM n WHERE value < 500) SELECT value FROM n)",
    );
    let engine =
        tantalum_sqlite::Engine::open(directory.path("tantalum-sqlite"), &tantalum_sqlite::Options::new()).unwrap();
    let logged = || engine.db().stats().unwrap().log.end_lsn.get();
    let before = logged();
    for update in 0..UPDATES {
        run(&connection, &format!("UPDATE t SET value = randomblob(100) WHERE id = {}", update * 5 + 1));
    }
    let each = (logged() - before) / UPDATES;
    println!("{each} bytes for each update of 100 bytes");
    assert!(each < 300, "{each} bytes for each update of 100 bytes");
}
