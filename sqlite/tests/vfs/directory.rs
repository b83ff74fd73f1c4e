//! What the tests share: a directory with databases in Tantalum, and connections to them.

use std::{
    env,
    io::{BufRead, BufReader, Lines},
    path::PathBuf,
    process::{Child, ChildStdout, Command, Stdio},
    time::Duration,
};

use rusqlite::Connection;
use tantalum_sqlite::Options;

/// If set, another process has the Tantalum database of each directory open, and the tests use what that serves.
const ELSEWHERE: &str = "TANTALUM_SQLITE_ELSEWHERE";
/// Of that process: the directory.
const OWNED: &str = "TANTALUM_SQLITE_OWNED";

/// A directory with SQLite databases.
pub struct Directory {
    directory: tempfile::TempDir,
    owner: Option<Owner>,
}

/// The process that has the Tantalum database open.
struct Owner {
    process: Child,
    /// Kept until it has ended, as it writes to it.
    _output: Lines<BufReader<ChildStdout>>,
}

impl Drop for Directory {
    fn drop(&mut self) {
        if let Some(mut owner) = self.owner.take() {
            drop(owner.process.stdin.take());
            owner.process.wait().unwrap();
        }
    }
}

fn start_owner(directory: PathBuf) -> Owner {
    let mut process = Command::new(env::current_exe().unwrap())
        .args(["--exact", "directory::owner", "--ignored", "--nocapture"])
        .env(OWNED, directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap()).lines();
    assert!(output.any(|line| line.unwrap().ends_with("serving")), "the other process has the database open");
    Owner { process, _output: output }
}

/// The other process: until its input ends.
#[test]
#[ignore = "is run by other tests"]
fn owner() {
    let Some(directory) = env::var_os(OWNED) else { return };
    register();
    let engine = tantalum_sqlite::Engine::open(directory, &options()).unwrap();
    println!("serving");
    std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
    drop(engine);
}

fn options() -> Options {
    Options::new().set("log_bytes", "16777216").unwrap().set("buffer_pool_bytes", "33554432").unwrap()
}

fn register() {
    tantalum_sqlite::register(options()).unwrap();
}

impl Directory {
    pub fn new() -> Self {
        register();
        let directory = tempfile::tempdir().unwrap();
        let owner = env::var_os(ELSEWHERE).map(|_| start_owner(directory.path().join("tantalum-sqlite")));
        Self { directory, owner }
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
