//! The same random statements on a database in Tantalum and on an ordinary one: the same results, and at the end the same content.

use crate::directory::{Directory, check_integrity};
use proptest::prelude::*;
use rusqlite::{Connection, types::Value};

/// A step, on either of two connections to the database.
#[derive(Clone, Debug)]
enum Step {
    Statement(String),
    Reopen,
}

fn statement() -> impl Strategy<Value = String> {
    let key = 0..40i64;
    let length = prop_oneof![0..200usize, 0..20_000usize];
    prop_oneof![
        8 => (key.clone(), length.clone()).prop_map(|(key, length)| format!("INSERT INTO t VALUES ({key}, zeroblob({length}))")),
        8 => (key.clone(), length.clone()).prop_map(|(key, length)| {
            format!("INSERT OR REPLACE INTO t VALUES ({key}, replace(hex(zeroblob({length})), '00', '{key}'))")
        }),
        4 => (key.clone(), key.clone()).prop_map(|(a, b)| format!("UPDATE t SET id = {b} WHERE id = {a}")),
        4 => (key.clone(), length).prop_map(|(key, length)| {
            format!("UPDATE t SET value = value || replace(hex(zeroblob({length})), '00', 'x') WHERE id > {key}")
        }),
        4 => (key.clone(), key.clone()).prop_map(|(a, b)| format!("DELETE FROM t WHERE id BETWEEN {a} AND {b}")),
        4 => (key.clone(), key.clone()).prop_map(|(a, b)| format!("INSERT INTO t SELECT id + {a}, id FROM t WHERE id < {b}")),
        6 => (key.clone(), key).prop_map(|(a, b)| format!("SELECT id, value FROM t WHERE id BETWEEN {a} AND {b} ORDER BY id")),
        2 => Just("SELECT count(*), sum(length(value)) FROM t".to_owned()),
        2 => prop_oneof![Just("BEGIN"), Just("BEGIN IMMEDIATE")].prop_map(str::to_owned),
        4 => prop_oneof![Just("COMMIT"), Just("ROLLBACK")].prop_map(str::to_owned),
        3 => prop_oneof![Just("SAVEPOINT s"), Just("ROLLBACK TO s"), Just("RELEASE s")].prop_map(str::to_owned),
        1 => prop_oneof![Just("CREATE INDEX i ON t (value, id)"), Just("DROP INDEX i"), Just("VACUUM")].prop_map(str::to_owned),
        1 => prop_oneof![Just("delete"), Just("truncate"), Just("persist"), Just("memory")]
            .prop_map(|mode| format!("PRAGMA journal_mode={mode}")),
        1 => prop_oneof![Just("normal"), Just("exclusive")].prop_map(|mode| format!("PRAGMA locking_mode={mode}")),
        1 => prop_oneof![Just("full"), Just("normal"), Just("off")].prop_map(|level| format!("PRAGMA synchronous={level}")),
        1 => prop_oneof![Just("512"), Just("4096"), Just("65536")].prop_map(|size| format!("PRAGMA page_size={size}")),
        1 => prop_oneof![Just("0"), Just("1"), Just("2")].prop_map(|mode| format!("PRAGMA auto_vacuum={mode}")),
        1 => Just("PRAGMA incremental_vacuum".to_owned()),
        1 => Just("PRAGMA cache_size=4".to_owned()),
    ]
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![40 => statement().prop_map(Step::Statement), 1 => Just(Step::Reopen)];
    prop::collection::vec(step, 1..60)
}

/// What a statement returns: its rows, or its error.
fn outcome(connection: &Connection, sql: &str) -> Result<Vec<Vec<Value>>, String> {
    let rows = || {
        let mut statement = connection.prepare(sql)?;
        let columns = statement.column_count();
        let rows = statement.query_map([], |row| (0..columns).map(|column| row.get(column)).collect())?;
        rows.collect::<rusqlite::Result<Vec<Vec<Value>>>>()
    };
    rows().map_err(|error| error.to_string())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn statements_have_the_results_of_stock_sqlite(steps in steps()) {
        let directory = Directory::new();
        let connect = || [directory.connect("app.db"), directory.connect_stock("stock.db")];
        let mut connections = connect();
        let run = |connections: &[Connection; 2], sql: &str| {
            let [ours, stock] = connections.each_ref().map(|connection| outcome(connection, sql));
            prop_assert_eq!(ours, stock, "{}", sql);
            Ok(())
        };
        run(&connections, "CREATE TABLE t (id INTEGER PRIMARY KEY, value)")?;
        for step in &steps {
            match step {
                Step::Statement(sql) => run(&connections, sql)?,
                Step::Reopen => connections = connect(),
            }
            let [ours, stock] = connections.each_ref().map(Connection::is_autocommit);
            prop_assert_eq!(ours, stock);
        }
        if !connections[0].is_autocommit() {
            run(&connections, "COMMIT")?;
        }
        drop(connections);
        let connections = connect();
        for sql in ["SELECT * FROM t ORDER BY id", "SELECT sql FROM sqlite_schema", "PRAGMA page_count", "PRAGMA freelist_count"] {
            run(&connections, sql)?;
        }
        check_integrity(&connections[0]);
    }
}
