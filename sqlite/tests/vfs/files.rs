//! Pointer files, what is refused, and transactions over several databases.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::directory::{Directory, check_integrity, failure, query, run};
use rusqlite::{Connection, OpenFlags, ffi};

fn error_of(uri: &str) -> String {
    let connection =
        Connection::open(uri).and_then(|connection| connection.execute_batch("SELECT * FROM sqlite_schema"));
    connection.unwrap_err();
    tantalum_sqlite::last_error().expect("the VFS says why")
}

#[test]
fn databases_of_one_directory_share_a_tantalum_database() {
    let directory = Directory::new();
    for name in ["one.db", "two.db"] {
        run(&directory.connect(name), &format!("CREATE TABLE t (value); INSERT INTO t VALUES ('{name}')"));
    }
    let mut names =
        fs::read_dir(directory.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
    names.sort();
    assert_eq!(names, ["one.db", "tantalum-sqlite", "two.db"]);
    assert!(fs::metadata(directory.path("one.db")).unwrap().len() < 512);
    assert_eq!(query::<String>(&directory.connect("two.db"), "SELECT value FROM t"), "two.db");
    // Where a program says.
    let elsewhere = format!("{}&database={}", directory.uri("three.db"), directory.path("elsewhere").display());
    run(&Connection::open(elsewhere).unwrap(), "CREATE TABLE t (value)");
    assert!(directory.path("elsewhere").is_dir());
    assert_eq!(query::<i64>(&directory.connect("three.db"), "SELECT count(*) FROM t"), 0);
}

#[test]
fn a_database_moves_with_its_pointer_file_and_a_copy_is_refused() {
    let directory = Directory::new();
    run(&directory.connect("app.db"), "CREATE TABLE t (value); INSERT INTO t VALUES (1)");
    fs::rename(directory.path("app.db"), directory.path("moved.db")).unwrap();
    assert_eq!(query::<i64>(&directory.connect("moved.db"), "SELECT value FROM t"), 1);
    fs::copy(directory.path("moved.db"), directory.path("copy.db")).unwrap();
    let reason = error_of(&directory.uri("copy.db"));
    assert!(reason.contains("copy.db: it is a copy") && reason.contains("adopt=1"), "{reason}");
    // As after a restored backup.
    fs::remove_file(directory.path("moved.db")).unwrap();
    let adopting = Connection::open(format!("{}&adopt=1", directory.uri("copy.db"))).unwrap();
    assert_eq!(query::<i64>(&adopting, "SELECT value FROM t"), 1);
    drop(adopting);
    assert_eq!(query::<i64>(&directory.connect("copy.db"), "SELECT value FROM t"), 1);
}

#[test]
fn a_database_whose_pointer_file_was_removed_takes_no_writes() {
    let directory = Directory::new();
    let connection = directory.connect("app.db");
    run(&connection, "CREATE TABLE t (value)");
    fs::remove_file(directory.path("app.db")).unwrap();
    assert_eq!(failure(&connection, "INSERT INTO t VALUES (1)"), ffi::SQLITE_READONLY_DBMOVED);
    let new = directory.connect("app.db");
    assert_eq!(query::<i64>(&new, "SELECT count(*) FROM sqlite_schema"), 0, "another database");
}

#[test]
fn what_is_no_pointer_file_is_refused_and_so_is_a_pointer_file_without_the_vfs() {
    let directory = Directory::new();
    run(&directory.connect_stock("stock.db"), "CREATE TABLE t (value)");
    let reason = error_of(&directory.uri("stock.db"));
    assert!(reason.contains("ordinary SQLite database"), "{reason}");
    fs::write(directory.path("text"), "anything").unwrap();
    assert!(error_of(&directory.uri("text")).contains("choose another path"));
    run(&directory.connect("app.db"), "CREATE TABLE t (value)");
    assert_eq!(failure(&directory.connect_stock("app.db"), "SELECT * FROM t"), ffi::SQLITE_NOTADB);
    assert!(error_of(&format!("{}&log_bytes=none", directory.uri("new.db"))).contains("log_bytes"));
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_URI;
    assert!(Connection::open_with_flags(directory.uri("missing.db"), flags).is_err());
    assert!(!directory.path("missing.db").exists());
    // As programs make them that want a name of their own.
    fs::write(directory.path("empty.db"), "").unwrap();
    run(&directory.connect("empty.db"), "CREATE TABLE t (value)");
}

#[test]
#[allow(unsafe_code)] // SQLite's own function, which rusqlite does not have.
fn the_error_number_of_the_operating_system_is_handed_on() {
    let directory = Directory::new();
    let no_directory = 2; // ENOENT
    let missing = format!("{}\0", directory.uri("missing/app.db"));
    let flags = ffi::SQLITE_OPEN_READWRITE | ffi::SQLITE_OPEN_CREATE | ffi::SQLITE_OPEN_URI;
    let mut connection = std::ptr::null_mut();
    // SAFETY: the name ends with a zero, and the connection is closed.
    let (code, number) = unsafe {
        let code = ffi::sqlite3_open_v2(missing.as_ptr().cast(), &mut connection, flags, std::ptr::null());
        let number = ffi::sqlite3_system_errno(connection);
        ffi::sqlite3_close(connection);
        (code, number)
    };
    assert_eq!((code, number), (ffi::SQLITE_CANTOPEN, no_directory));
}

#[test]
fn a_connection_for_reading_reads() {
    let directory = Directory::new();
    run(&directory.connect("app.db"), "CREATE TABLE t (value); INSERT INTO t VALUES (1)");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let reader = Connection::open_with_flags(directory.uri("app.db"), flags).unwrap();
    assert_eq!(query::<i64>(&reader, "SELECT value FROM t"), 1);
    assert_eq!(failure(&reader, "DELETE FROM t"), ffi::SQLITE_READONLY);
}

#[test]
fn a_pointer_file_that_may_not_be_written_leads_to_a_connection_for_reading() {
    let directory = Directory::new();
    run(&directory.connect("app.db"), "CREATE TABLE t (value); INSERT INTO t VALUES (1)");
    fs::write(directory.path("empty.db"), "").unwrap();
    for name in ["app.db", "empty.db"] {
        fs::set_permissions(directory.path(name), fs::Permissions::from_mode(0o444)).unwrap();
    }
    if fs::OpenOptions::new().write(true).open(directory.path("app.db")).is_ok() {
        return; // The permissions do not count for root.
    }
    let reader = directory.connect("app.db");
    assert!(reader.is_readonly("main").unwrap());
    assert_eq!(query::<i64>(&reader, "SELECT value FROM t"), 1);
    assert_eq!(failure(&reader, "DELETE FROM t"), ffi::SQLITE_READONLY);
    assert!(error_of(&directory.uri("empty.db")).contains("permissions"));
}

#[test]
fn wal_is_refused_in_every_way() {
    let directory = Directory::new();
    let connection = directory.connect("app.db");
    run(&connection, "CREATE TABLE t (value)");
    assert_eq!(query::<String>(&connection, "PRAGMA journal_mode=WAL"), "delete");
    assert_eq!(query::<String>(&connection, "PRAGMA locking_mode=exclusive"), "exclusive");
    assert_eq!(query::<String>(&connection, "PRAGMA journal_mode=wal"), "delete");
    run(&connection, "INSERT INTO t VALUES (1)");
    drop(connection);
    // Where the VFS does not hear of it.
    let stock = directory.connect_stock("stock.db");
    run(&stock, &format!("ATTACH '{}' AS app; PRAGMA locking_mode=exclusive", directory.uri("app.db")));
    drop(stock.query_row("PRAGMA app.journal_mode=wal", [], |row| row.get::<_, String>(0)));
    drop(stock.query_row("PRAGMA journal_mode=wal", [], |row| row.get::<_, String>(0)));
    drop(stock);
    let connection = directory.connect("app.db");
    assert_eq!(query::<i64>(&connection, "SELECT value FROM t"), 1);
    run(&connection, "INSERT INTO t VALUES (2)");
}

#[test]
fn the_backup_api_copies_in_both_directions() {
    let directory = Directory::new();
    let stock = directory.connect_stock("stock.db");
    run(&stock, "PRAGMA page_size=1024; PRAGMA journal_mode=wal; CREATE TABLE t (value)");
    run(&stock, "INSERT INTO t VALUES (randomblob(100000)), ('x')");
    let mut imported = directory.connect("app.db");
    rusqlite::backup::Backup::new(&stock, &mut imported).unwrap().step(-1).unwrap();
    check_integrity(&imported);
    let value = "SELECT hex(group_concat(value)) FROM t";
    assert_eq!(query::<String>(&imported, value), query::<String>(&stock, value));
    assert_eq!(query::<String>(&imported, "PRAGMA journal_mode"), "delete");
    run(&imported, "INSERT INTO t VALUES ('y')");
    let mut exported = directory.connect_stock("exported.db");
    rusqlite::backup::Backup::new(&imported, &mut exported).unwrap().step(-1).unwrap();
    check_integrity(&exported);
    assert_eq!(query::<String>(&exported, value), query::<String>(&imported, value));
}

/// Attached: two databases in one Tantalum database, or in two, or one outside.
fn attached(directory: &Directory, journal_mode: &str) -> Connection {
    let connection = directory.connect("one.db");
    run(&connection, &format!("ATTACH '{}' AS two", directory.uri("two.db")));
    run(&connection, &format!("PRAGMA main.journal_mode={journal_mode}; PRAGMA two.journal_mode={journal_mode}"));
    run(&connection, "CREATE TABLE main.a (value); CREATE TABLE two.b (value)");
    connection
}

#[test]
fn a_transaction_over_several_databases_commits_in_all() {
    for journal_mode in ["delete", "truncate", "persist", "memory", "off"] {
        for locking_mode in ["normal", "exclusive"] {
            let directory = Directory::new();
            let connection = attached(&directory, journal_mode);
            run(&connection, &format!("PRAGMA locking_mode={locking_mode}"));
            for _ in 0..5 {
                run(
                    &connection,
                    "BEGIN; INSERT INTO a VALUES (randomblob(5000)); INSERT INTO b VALUES (randomblob(9000)); COMMIT",
                );
            }
            // Ends smaller than it was, which SQLite says only after the commit.
            run(&connection, "PRAGMA two.auto_vacuum=full; VACUUM two");
            run(&connection, "BEGIN; INSERT INTO a VALUES (1); DELETE FROM b WHERE rowid > 1; COMMIT");
            let count = "SELECT (SELECT count(*) FROM a) || ' ' || (SELECT count(*) FROM b)";
            assert_eq!(query::<String>(&connection, count), "6 1");
            run(
                &connection,
                "PRAGMA locking_mode=normal; SELECT * FROM a; SELECT * FROM b; BEGIN; DELETE FROM a; COMMIT",
            );
            check_integrity(&connection);
            drop(connection);
            let reopened = attached_again(&directory);
            assert_eq!(query::<String>(&reopened, count), "0 1");
            check_integrity(&reopened);
        }
    }
}

fn attached_again(directory: &Directory) -> Connection {
    let connection = directory.connect("one.db");
    run(&connection, &format!("ATTACH '{}' AS two", directory.uri("two.db")));
    connection
}

#[test]
fn a_transaction_over_several_databases_is_one_commit_of_the_engine() {
    let directory = Directory::new();
    let connection = attached(&directory, "delete");
    let engine =
        tantalum_sqlite::Engine::open(directory.path("tantalum-sqlite"), &tantalum_sqlite::Options::new()).unwrap();
    let positions = || engine.db().stats().unwrap().log.records;
    let before = positions();
    run(&connection, "BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (2); COMMIT");
    assert_eq!(positions(), before + 1);
    run(&connection, "BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (2); ROLLBACK");
    assert_eq!(positions(), before + 1);
}

#[test]
fn a_transaction_over_what_cannot_commit_together_is_refused_and_changes_nothing() {
    let directory = Directory::new();
    let elsewhere = format!("{}&database={}", directory.uri("elsewhere.db"), directory.path("other").display());
    run(&Connection::open(elsewhere).unwrap(), "CREATE TABLE c (value)");
    run(&directory.connect_stock("stock.db"), "CREATE TABLE s (value)");
    run(&directory.connect("two.db"), "CREATE TABLE b (value)");
    let ours = directory.connect("one.db");
    run(&ours, "CREATE TABLE a (value)");
    run(&ours, &format!("ATTACH '{}' AS elsewhere", directory.uri("elsewhere.db")));
    run(&ours, &format!("ATTACH 'file:{}?vfs=unix' AS stock", directory.path("stock.db").display()));
    let refused = |connection: &Connection, table: &str, other: &str, reason: &str| {
        let insert = format!("BEGIN; INSERT INTO {table} VALUES (1); INSERT INTO {other} VALUES (1)");
        run(connection, &insert);
        assert_eq!(failure(connection, "COMMIT") & 0xff, ffi::SQLITE_IOERR);
        let last = tantalum_sqlite::last_error().unwrap();
        assert!(last.contains(reason), "{last}");
        if !connection.is_autocommit() {
            run(connection, "ROLLBACK");
        }
        for table in [table, other] {
            assert_eq!(query::<i64>(connection, &format!("SELECT count(*) FROM {table}")), 0);
            run(connection, &format!("INSERT INTO {table} VALUES (1); DELETE FROM {table}"));
        }
    };
    refused(&ours, "a", "c", "of one Tantalum database only");
    refused(&ours, "a", "s", "outside of Tantalum");
    let stock = directory.connect_stock("stock.db");
    run(&stock, &format!("ATTACH '{}' AS two", directory.uri("two.db")));
    refused(&stock, "s", "b", "outside of Tantalum");
}

#[test]
fn rows_that_are_damaged_are_named() {
    let directory = Directory::new();
    let connection = directory.connect("app.db");
    run(&connection, "CREATE TABLE t (value); INSERT INTO t VALUES (randomblob(20000))");
    drop(connection);
    let engine =
        tantalum_sqlite::Engine::open(directory.path("tantalum-sqlite"), &tantalum_sqlite::Options::new()).unwrap();
    let db = engine.db();
    let rows = db.tables().unwrap().into_iter().find(|name| name.starts_with("sqlite/")).unwrap();
    // The twentieth fragment.
    db.put(&db.table(&rows).unwrap(), [0, 0, 0, 0, 20], [1; 2000]).unwrap();
    let connection = directory.connect("app.db");
    let read = connection.query_row("SELECT length(hex(value)) FROM t", [], |row| row.get::<_, i64>(0));
    read.unwrap_err();
    let reason = tantalum_sqlite::last_error().unwrap();
    assert!(reason.contains("too long"), "{reason}");
}

/// SQLite rolls a database back only while its super-journal is there, and else keeps in its page cache what it wrote; which would be
/// taken for valid once another connection has committed as often.
#[test]
fn a_commit_of_several_databases_that_fails_leaves_none_of_its_pages_in_the_cache() {
    let directory = Directory::new();
    let elsewhere = format!("{}&database={}", directory.uri("two.db"), directory.path("elsewhere").display());
    let (one, rival) = (directory.connect("one.db"), Connection::open(elsewhere).unwrap());
    for journal_mode in ["delete", "truncate", "persist"] {
        run(&rival, "DROP TABLE IF EXISTS t; CREATE TABLE t (value); INSERT INTO t VALUES (1)");
        run(&one, "DROP TABLE IF EXISTS t; CREATE TABLE t (value); INSERT INTO t VALUES (1)");
        run(&one, &format!("ATTACH '{}' AS two", directory.uri("two.db")));
        run(&one, &format!("PRAGMA main.journal_mode={journal_mode}; PRAGMA two.journal_mode={journal_mode}"));
        run(&one, "BEGIN; UPDATE main.t SET value = 2; UPDATE two.t SET value = 2");
        assert_eq!(failure(&one, "COMMIT") & 0xff, ffi::SQLITE_IOERR);
        if !one.is_autocommit() {
            run(&one, "ROLLBACK");
        }
        run(&rival, "INSERT INTO t VALUES (10)");
        for (sql, sum) in [("SELECT sum(value) FROM two.t", 11), ("SELECT sum(value) FROM main.t", 1)] {
            assert_eq!(query::<i64>(&one, sql), sum, "{journal_mode}");
        }
        run(&one, "INSERT INTO two.t VALUES (100); DETACH two");
        assert_eq!(query::<i64>(&rival, "SELECT sum(value) FROM t"), 111);
        check_integrity(&rival);
    }
}
