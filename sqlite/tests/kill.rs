//! Processes that are killed while their threads write: every transaction that was acknowledged is there, whole, and the database is
//! sound. The test runs itself again as the process that is killed.

use std::{
    env,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use rusqlite::{Connection, TransactionBehavior, types::FromSql};

const CHILD: &str = "TANTALUM_SQLITE_KILL_CHILD";
const MODE: &str = "TANTALUM_SQLITE_KILL_MODE";
const THREADS: i64 = 4;
/// Acknowledgements after which the process is killed, for each round.
const ROUNDS: [usize; 6] = [1, 7, 40, 90, 250, 400];

fn main() {
    tantalum_sqlite::register(tantalum_sqlite::Options::new().set("log_bytes", "4194304").expect("a setting"))
        .expect("a VFS");
    match env::var_os(CHILD) {
        Some(directory) => write(Path::new(&directory)),
        None => {
            for journal_mode in ["delete", "persist", "memory", "exclusive"] {
                kill_and_check(journal_mode);
                println!("{journal_mode}: every acknowledged transaction is there");
            }
        }
    }
}

/// The one value of a query.
fn query<T: FromSql>(connection: &Connection, sql: &str) -> T {
    connection.query_row(sql, [], |row| row.get(0)).unwrap_or_else(|error| panic!("{sql}: {error}"))
}

fn run(connection: &Connection, sql: &str) {
    let reason = tantalum_sqlite::last_error;
    connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error} ({:?})", reason()));
}

fn connect(directory: &Path) -> Connection {
    let connection = Connection::open(format!("file:{}?vfs=tantalum", directory.join("one.db").display()))
        .unwrap_or_else(|error| panic!("{error}: {:?}", tantalum_sqlite::last_error()));
    connection.busy_timeout(std::time::Duration::from_secs(60)).expect("a time-out");
    run(&connection, &format!("ATTACH 'file:{}?vfs=tantalum' AS two", directory.join("two.db").display()));
    connection
}

/// Kills a process again and again that writes to one directory.
fn kill_and_check(journal_mode: &str) {
    let directory = tempfile::tempdir().expect("a directory");
    let connection = connect(directory.path());
    run(
        &connection,
        "CREATE TABLE main.a (thread, round, value, PRIMARY KEY (thread, round)); CREATE TABLE two.b AS SELECT * FROM a",
    );
    drop(connection);
    let mut acknowledged = vec![0; THREADS as usize];
    for kill_after in ROUNDS {
        let program = env::current_exe().expect("the path of the test");
        let mut child = Command::new(program)
            .env(CHILD, directory.path())
            .env(MODE, journal_mode)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a process");
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines().map_while(Result::ok);
        for (count, line) in lines.enumerate() {
            if let Some((thread, round)) = line.split_once(' ') {
                acknowledged[thread.parse::<usize>().expect("a thread")] = round.parse::<i64>().expect("a round");
            }
            // What is written before the signal is read until the pipe ends.
            if count + 1 == kill_after {
                child.kill().expect("it runs until it is killed");
            }
        }
        child.wait().expect("it was killed");
        check(directory.path(), &acknowledged, journal_mode != "memory");
    }
}

/// `is_atomic`: SQLite uses a super-journal, which it does not if the journals are in memory.
fn check(directory: &Path, acknowledged: &[i64], is_atomic: bool) {
    let connection = connect(directory);
    for database in ["main", "two"] {
        assert_eq!(query::<String>(&connection, &format!("PRAGMA {database}.integrity_check")), "ok");
    }
    for (thread, acknowledged) in acknowledged.iter().enumerate() {
        let last = query::<i64>(&connection, &format!("SELECT coalesce(max(round), 0) FROM a WHERE thread = {thread}"));
        assert!(last >= *acknowledged, "thread {thread} was told of {acknowledged}, but {last} is there");
        let rows = query::<i64>(&connection, &format!("SELECT count(*) FROM a WHERE thread = {thread}"));
        assert_eq!(rows, last, "every round before the last is there");
    }
    // In a transaction over both databases.
    let missing =
        "SELECT count(*) FROM (SELECT thread, round FROM a WHERE round % 3 = 0 EXCEPT SELECT thread, round FROM b)";
    let alone = "SELECT count(*) FROM (SELECT thread, round FROM b EXCEPT SELECT thread, round FROM a)";
    if is_atomic {
        assert_eq!((query::<i64>(&connection, missing), query::<i64>(&connection, alone)), (0, 0), "both or none");
    }
}

/// Writes until it is killed.
fn write(directory: &Path) {
    let mode = env::var(MODE).expect("the mode");
    let threads = if mode == "exclusive" { 1 } else { THREADS };
    let tasks = (0..threads).map(|thread| {
        let mut connection = connect(directory);
        match &*mode {
            "exclusive" => run(&connection, "PRAGMA locking_mode=exclusive"),
            mode => run(&connection, &format!("PRAGMA main.journal_mode={mode}; PRAGMA two.journal_mode={mode}")),
        }
        tantalum_rt::spawn("writer", move || {
            let first: i64 =
                query(&connection, &format!("SELECT coalesce(max(round), 0) FROM a WHERE thread = {thread}"));
            for round in first + 1.. {
                let transaction =
                    connection.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
                run(
                    &transaction,
                    &format!("INSERT INTO a VALUES ({thread}, {round}, randomblob({}))", round * 997 % 9000),
                );
                if round % 3 == 0 {
                    run(&transaction, &format!("INSERT INTO b VALUES ({thread}, {round}, randomblob(500))"));
                }
                if round % 5 == 0 {
                    run(
                        &transaction,
                        &format!("UPDATE a SET value = zeroblob(10) WHERE thread = {thread} AND round < {round} - 5"),
                    );
                }
                transaction.commit().unwrap_or_else(|error| panic!("{error}: {:?}", tantalum_sqlite::last_error()));
                println!("{thread} {round}");
            }
        })
    });
    tasks.collect::<Vec<_>>().into_iter().for_each(|task| task.join().expect("a writer"));
}
