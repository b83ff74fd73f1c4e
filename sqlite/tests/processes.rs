//! Several processes that use the SQLite databases of one Tantalum database: one has it open and serves the others, and when it is
//! killed another one takes over. The test runs itself again as those processes.

use std::{
    env, fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream,
    path::Path,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use rusqlite::{Connection, ErrorCode, TransactionBehavior, types::FromSql};

/// What a process does, and where.
const ROLE: &str = "TANTALUM_SQLITE_ROLE";
const DIRECTORY: &str = "TANTALUM_SQLITE_DIRECTORY";
/// Its number.
const NUMBER: &str = "TANTALUM_SQLITE_NUMBER";
/// Before what it says.
const SAYS: &str = "> ";

const THREADS: usize = 2;

fn register() {
    tantalum_sqlite::register(tantalum_sqlite::Options::new().set("log_bytes", "4194304").expect("a setting"))
        .expect("a VFS");
}

/// What the other processes run.
#[test]
#[ignore = "is run by other tests"]
fn role() {
    let Ok(role) = env::var(ROLE) else { return };
    register();
    let directory = env::var_os(DIRECTORY).expect("the directory");
    let directory = Path::new(&directory);
    let number = env::var(NUMBER).expect("the number").parse().expect("a number");
    match &*role {
        "write" => write(directory, number),
        "hold" => hold(directory),
        "serve" => serve(directory),
        "create" => create(directory, number),
        "visit" => visit(directory),
        role => panic!("{role} is no role"),
    }
}

/// What a process says to the test: standard output has what the test program says. A line is written at once, so that a process
/// that is killed leaves no part of one.
fn say(what: &str) {
    std::io::stderr().write_all(format!("{SAYS}{what}\n").as_bytes()).expect("the test listens");
}

/// A process of this test.
struct Process {
    child: Child,
    /// Its lines.
    output: Arc<Mutex<Vec<String>>>,
    reader: Option<thread::JoinHandle<()>>,
}

impl Process {
    fn start(role: &str, directory: &Path, number: usize) -> Self {
        let mut child = Command::new(env::current_exe().expect("the path of the test"))
            .args(["--exact", "role", "--ignored", "--nocapture"])
            .env(ROLE, role)
            .env(DIRECTORY, directory)
            .env(NUMBER, number.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("a process");
        let output = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stderr.take().expect("its output")).lines();
        let reader = thread::spawn({
            let output = Arc::clone(&output);
            move || {
                for line in lines.map_while(Result::ok) {
                    match line.strip_prefix(SAYS) {
                        Some(what) => output.lock().expect("a lock").push(what.to_owned()),
                        None => eprintln!("{line}"),
                    }
                }
            }
        });
        Self { child, output, reader: Some(reader) }
    }

    /// Waits for so many lines.
    fn wait_for(&self, lines: usize) {
        while self.output.lock().expect("a lock").len() < lines {
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn lines(&self) -> usize {
        self.output.lock().expect("a lock").len()
    }

    /// Kills it. Returns all that it has said.
    fn kill(mut self) -> Vec<String> {
        self.child.kill().expect("it runs until it is killed");
        self.end(false)
    }

    /// Ends its input, which has it end.
    fn stop(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        self.end(true)
    }

    fn end(&mut self, must_succeed: bool) -> Vec<String> {
        let status = self.child.wait().expect("it has ended");
        assert!(status.success() || !must_succeed, "{status}");
        self.reader.take().expect("it was not waited for").join().expect("its output");
        std::mem::take(&mut self.output.lock().expect("a lock"))
    }
}

/// The one value of a query.
fn query<T: FromSql>(connection: &Connection, sql: &str) -> T {
    connection
        .query_row(sql, [], |row| row.get(0))
        .unwrap_or_else(|error| panic!("{sql}: {error} ({:?})", tantalum_sqlite::last_error()))
}

fn run(connection: &Connection, sql: &str) {
    let reason = tantalum_sqlite::last_error;
    connection.execute_batch(sql).unwrap_or_else(|error| panic!("{sql}: {error} ({:?})", reason()));
}

fn connect(directory: &Path) -> Connection {
    let connection = Connection::open(format!("file:{}?vfs=tantalum", directory.join("one.db").display()))
        .unwrap_or_else(|error| panic!("{error}: {:?}", tantalum_sqlite::last_error()));
    connection.busy_timeout(Duration::from_secs(60)).expect("a time-out");
    connection
}

fn connect_both(directory: &Path) -> Connection {
    let connection = connect(directory);
    run(&connection, &format!("ATTACH 'file:{}?vfs=tantalum' AS two", directory.join("two.db").display()));
    connection
}

/// Waits until the input ends.
fn wait_for_end() {
    std::io::stdin().read_to_end(&mut Vec::new()).expect("its input");
}

fn is_io_error(error: &rusqlite::Error) -> bool {
    error.sqlite_error_code() == Some(ErrorCode::SystemIoFailure)
}

/// Keeps the database open for others.
fn serve(directory: &Path) {
    let connection = connect(directory);
    say(&query::<i64>(&connection, "SELECT count(*) FROM sqlite_schema").to_string());
    wait_for_end();
}

/// Takes the write lock, and keeps it.
fn hold(directory: &Path) {
    let connection = connect(directory);
    run(&connection, "BEGIN IMMEDIATE; INSERT INTO t VALUES (-1)");
    say("holds");
    wait_for_end();
}

/// Has the database open for a moment, and again for each line of its input.
fn visit(directory: &Path) {
    let mut lines = std::io::stdin().lines();
    loop {
        let connection = connect(directory);
        let value = query::<i64>(&connection, "SELECT value FROM t");
        drop(connection);
        say(&value.to_string());
        if lines.next().is_none() {
            return;
        }
    }
}

fn create(directory: &Path, number: usize) {
    say("ready");
    std::io::stdin().read_exact(&mut [0]).expect("a sign");
    let connection = connect(directory);
    run(&connection, "CREATE TABLE IF NOT EXISTS t (value)");
    run(&connection, &format!("INSERT INTO t VALUES ({number})"));
}

#[test]
fn processes_create_one_database_at_once() {
    register();
    for is_there in [false, true, false, true] {
        let directory = tempfile::tempdir().expect("a directory");
        if is_there {
            fs::write(directory.path().join("one.db"), "").expect("an empty file");
        }
        let mut processes: Vec<Process> =
            (0..4).map(|number| Process::start("create", directory.path(), number)).collect();
        processes.iter().for_each(|process| process.wait_for(1));
        for process in &mut processes {
            process.child.stdin.as_mut().expect("its input").write_all(b"!").expect("a sign");
        }
        processes.into_iter().for_each(|process| drop(process.stop()));
        let connection = connect(directory.path());
        assert_eq!(query::<i64>(&connection, "SELECT count(*) FROM t"), 4, "all wrote to the same database");
    }
}

/// A writer: rounds of transactions over one database or two, in each thread. Says which were acknowledged, and ends with its input.
fn write(directory: &Path, number: usize) {
    let is_over = Arc::new(Mutex::new(false));
    let threads: Vec<_> = (0..THREADS)
        .map(|thread| {
            let (directory, is_over) = (directory.to_owned(), Arc::clone(&is_over));
            thread::spawn(move || write_rounds(&directory, (number * THREADS + thread) as i64, &is_over))
        })
        .collect();
    wait_for_end();
    *is_over.lock().expect("a lock") = true;
    threads.into_iter().for_each(|thread| thread.join().expect("a writer"));
}

fn write_rounds(directory: &Path, writer: i64, is_over: &Mutex<bool>) {
    let mut connection = connect_both(directory);
    let mut round = 0;
    while !*is_over.lock().expect("a lock") {
        match write_round(&mut connection, writer, round + 1) {
            Ok(()) => {
                round += 1;
                say(&format!("{writer} {round}"));
            }
            Err(error) => {
                assert!(is_io_error(&error), "{error} ({:?})", tantalum_sqlite::last_error());
                // What was committed may be there. A connection that cannot go on says so.
                let last = format!("SELECT coalesce(max(round), 0) FROM a WHERE writer = {writer}");
                let found = (0..3).find_map(|_| connection.query_row(&last, [], |row| row.get(0)).ok());
                round = found.unwrap_or_else(|| {
                    connection = connect_both(directory);
                    say(&format!("{writer} connected again"));
                    query(&connection, &last)
                });
            }
        }
    }
}

fn write_round(connection: &mut Connection, writer: i64, round: i64) -> rusqlite::Result<()> {
    if round % 4 == 0 {
        // A statement alone.
        return connection.execute_batch(&format!("INSERT INTO a VALUES ({writer}, {round}, randomblob(3000))"));
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    transaction
        .execute_batch(&format!("INSERT INTO a VALUES ({writer}, {round}, randomblob({}))", round * 997 % 9000))?;
    if round % 3 == 0 {
        transaction.execute_batch(&format!("INSERT INTO two.b VALUES ({writer}, {round}, randomblob(500))"))?;
    }
    if round % 5 == 0 {
        transaction.execute_batch(&format!("DELETE FROM a WHERE writer = {writer} AND round < {round} - 20"))?;
    }
    transaction.commit()
}

/// The process that serves is killed again and again, and sometimes one that does not.
#[test]
fn processes_that_are_killed_lose_nothing() {
    register();
    let directory = tempfile::tempdir().expect("a directory");
    let directory = directory.path();
    let connection = connect_both(directory);
    let columns = "(writer, round, value, PRIMARY KEY (writer, round))";
    run(&connection, &format!("CREATE TABLE main.a {columns}; CREATE TABLE two.b {columns}"));
    drop(connection);
    let mut acknowledged = std::collections::HashMap::<i64, i64>::new();
    let mut note = |lines: Vec<String>| {
        let mut connected_again = 0;
        for line in lines {
            let (writer, round) = line.split_once(' ').expect("a writer and its round");
            match round.parse() {
                Ok(round) => _ = acknowledged.insert(writer.parse().expect("a writer"), round),
                Err(_) => connected_again += 1,
            }
        }
        connected_again
    };
    // The first to come has the database open; when it is killed, any of the others may.
    let mut processes = Vec::new();
    let mut connected_again = 0;
    for number in 0..8 {
        let process = Process::start("write", directory, number);
        process.wait_for(20);
        processes.push(process);
        if number >= 2 {
            // Killed in the order in which they came, but each third: a client.
            let victim = if number % 3 == 0 { processes.len() - 1 } else { 0 };
            connected_again += note(processes.remove(victim).kill());
            for process in &processes {
                process.wait_for(process.lines() + 5);
            }
        }
    }
    for process in processes {
        connected_again += note(process.stop());
    }
    println!("{connected_again} connections could not go on, and connected again");
    let connection = connect_both(directory);
    for database in ["main", "two"] {
        assert_eq!(query::<String>(&connection, &format!("PRAGMA {database}.integrity_check")), "ok");
    }
    for (writer, acknowledged) in &acknowledged {
        let last = query::<i64>(&connection, &format!("SELECT coalesce(max(round), 0) FROM a WHERE writer = {writer}"));
        assert!(last >= *acknowledged, "writer {writer} was told of {acknowledged}, but {last} is there");
        // Of a transaction over both.
        let of_both = "(SELECT round FROM a WHERE writer = {} AND round % 3 = 0 AND round % 4 > 0)";
        let of_both = of_both.replace("{}", &writer.to_string());
        let first =
            query::<i64>(&connection, &format!("SELECT coalesce(min(round), 0) FROM a WHERE writer = {writer}"));
        let in_two = format!("(SELECT round FROM two.b WHERE writer = {writer} AND round >= {first})");
        for (one, other) in [(&of_both, &in_two), (&in_two, &of_both)] {
            let alone = format!("SELECT count(*) FROM (SELECT * FROM {one} EXCEPT SELECT * FROM {other})");
            assert_eq!(query::<i64>(&connection, &alone), 0, "both or none: {alone}");
        }
    }
    assert!(acknowledged.len() >= 8 * THREADS - 1, "all have written");
}

fn new_database() -> tempfile::TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    run(&connect(directory.path()), "CREATE TABLE t (value); INSERT INTO t VALUES (1)");
    directory
}

#[test]
fn a_client_that_is_killed_lets_go_of_its_lock() {
    register();
    let directory = new_database();
    let connection = connect(directory.path());
    let client = Process::start("hold", directory.path(), 0);
    client.wait_for(1);
    connection.busy_timeout(Duration::ZERO).expect("a time-out");
    let busy = connection.execute_batch("INSERT INTO t VALUES (2)").expect_err("another process has the lock");
    assert_eq!(busy.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    assert_eq!(query::<i64>(&connection, "SELECT count(*) FROM t"), 1, "it holds no reader up");
    connection.busy_timeout(Duration::from_secs(60)).expect("a time-out");
    let waiting = thread::spawn({
        let directory = directory.path().to_owned();
        move || run(&connect(&directory), "INSERT INTO t VALUES (3)")
    });
    client.kill();
    run(&connection, "INSERT INTO t VALUES (2)");
    waiting.join().expect("it was its turn");
    assert_eq!(query::<i64>(&connection, "SELECT sum(value) FROM t"), 6, "what it wrote is not there");
}

#[test]
fn readers_see_the_last_commit_of_another_process() {
    register();
    let directory = new_database();
    let server = Process::start("serve", directory.path(), 0);
    server.wait_for(1);
    // Both are clients, of which the second reads from its page cache if it can.
    let (writer, reader) = (connect(directory.path()), connect(directory.path()));
    for value in 2..30 {
        run(&writer, &format!("UPDATE t SET value = {value}"));
        assert_eq!(query::<i64>(&reader, "SELECT value FROM t"), value);
    }
    run(&reader, "BEGIN");
    assert_eq!(query::<i64>(&reader, "SELECT value FROM t"), 29);
    run(&writer, "UPDATE t SET value = 30; CREATE TABLE u AS SELECT * FROM t");
    assert_eq!(query::<i64>(&reader, "SELECT value FROM t"), 29, "its transaction reads one state");
    let stale = reader.execute_batch("UPDATE t SET value = 0").expect_err("the state is not the last");
    assert_eq!(stale.sqlite_error().map(|error| error.extended_code), Some(rusqlite::ffi::SQLITE_BUSY_SNAPSHOT));
    run(&reader, "ROLLBACK; UPDATE t SET value = value + 1");
    assert_eq!(query::<i64>(&writer, "SELECT (SELECT value FROM t) + (SELECT value FROM u)"), 61);
    assert_eq!(query::<i64>(&writer, "SELECT count(*) FROM tantalum_status"), 0, "that process has the database open");
    drop((writer, reader));
    server.stop();
}

#[test]
fn connections_go_on_when_the_owner_has_gone() {
    register();
    let directory = new_database();
    for is_killed in [true, false] {
        let mut server = Some(Process::start("serve", directory.path(), 0));
        server.as_ref().expect("a process").wait_for(1);
        let (idle, reading, writing) =
            (connect(directory.path()), connect(directory.path()), connect(directory.path()));
        assert_eq!(query::<i64>(&idle, "SELECT value FROM t"), 1);
        run(&reading, "BEGIN");
        assert_eq!(query::<i64>(&reading, "SELECT count(*) FROM t"), 1);
        run(&writing, "BEGIN IMMEDIATE; INSERT INTO t VALUES (2)");
        let server = server.take().expect("a process");
        if is_killed {
            server.kill();
            let lost = writing.execute_batch("COMMIT").expect_err("the transaction is lost");
            assert!(is_io_error(&lost), "{lost}");
            if !writing.is_autocommit() {
                run(&writing, "ROLLBACK");
            }
            assert_eq!(query::<i64>(&reading, "SELECT count(*) FROM t"), 1, "in its page cache");
            run(&reading, "COMMIT");
        } else {
            // Its connection is closed, but it serves until the last client is gone.
            run(&writing, "ROLLBACK");
            run(&reading, "ROLLBACK");
            server.stop();
        }
        for connection in [&idle, &reading, &writing] {
            assert_eq!(query::<i64>(connection, "SELECT count(*) FROM t"), 1);
            run(connection, "INSERT INTO t VALUES (3)");
            run(connection, "DELETE FROM t WHERE value > 1");
        }
    }
}

/// It keeps the socket for its next connection; the database is closed all the same when no other one has it open.
#[test]
fn a_client_without_connections_keeps_no_database_open() {
    register();
    let directory = new_database();
    let connection = connect(directory.path());
    let mut visitor = Process::start("visit", directory.path(), 0);
    visitor.wait_for(1);
    let mut visit_again = |visits: usize| {
        writeln!(visitor.child.stdin.as_mut().expect("its input")).expect("it reads");
        visitor.wait_for(visits);
    };
    visit_again(2);
    drop(connection);
    // A socket that is not used is hung up after ten seconds.
    let closed = (0..500).any(|_| {
        thread::sleep(Duration::from_millis(10));
        tantalum::Db::builder().open(directory.path().join("tantalum-sqlite")).is_ok()
    });
    assert!(closed, "the socket of a client keeps the database open");
    visit_again(3);
    let connection = connect(directory.path());
    visit_again(4);
    drop(connection);
    assert_eq!(visitor.stop(), ["1"; 4]);
}

#[test]
fn a_server_that_exits_lets_transactions_end() {
    register();
    let directory = new_database();
    for _ in 0..5 {
        let server = Process::start("serve", directory.path(), 0);
        server.wait_for(1);
        let is_over = Arc::new(Mutex::new(false));
        let writers: Vec<_> = (0..3)
            .map(|_| {
                let (directory, is_over) = (directory.path().to_owned(), Arc::clone(&is_over));
                thread::spawn(move || {
                    let connection = connect(&directory);
                    let mut commits = 0;
                    while !*is_over.lock().expect("a lock") || commits < 3 {
                        run(&connection, "BEGIN IMMEDIATE; UPDATE t SET value = value + 1; COMMIT");
                        commits += 1;
                    }
                    commits
                })
            })
            .collect();
        let count = || query::<i64>(&connect(directory.path()), "SELECT value FROM t");
        let before = count();
        while count() < before + 20 {
            thread::yield_now();
        }
        server.stop();
        *is_over.lock().expect("a lock") = true;
        writers.into_iter().for_each(|writer| assert!(writer.join().expect("no transaction failed") > 0));
    }
}

/// The page cache of a connection may have a commit that did not survive, and another one may reach the same change counter.
#[test]
fn what_was_not_durable_is_not_read_from_a_page_cache() {
    register();
    // Whether it survives is a matter of time; what takes longer to be durable is lost more often.
    let mut lost = 0;
    for _ in 0..40 {
        let directory = new_database();
        let server = Process::start("serve", directory.path(), 0);
        server.wait_for(1);
        let connection = connect(directory.path());
        run(&connection, "CREATE TABLE large (bytes); INSERT INTO large VALUES (zeroblob(1000000))");
        run(
            &connection,
            "PRAGMA synchronous=OFF; BEGIN; UPDATE large SET bytes = randomblob(1000000); UPDATE t SET value = 2; COMMIT",
        );
        server.kill();
        let other = connect(directory.path());
        let survived: i64 = query(&other, "SELECT value FROM t");
        run(&other, "UPDATE t SET value = value + 10");
        match connection.query_row("SELECT value FROM t", [], |row| row.get::<_, i64>(0)) {
            Ok(value) => assert_eq!((survived, value), (2, 12), "its own commit has survived"),
            Err(error) => {
                assert!(is_io_error(&error), "{error}");
                let reason = tantalum_sqlite::last_error().expect("the VFS says why");
                assert!(reason.contains("close it and open another one"), "{reason}");
            }
        }
        assert_eq!(query::<i64>(&connect(directory.path()), "SELECT value FROM t"), survived + 10);
        lost += i32::from(survived == 1);
        if lost == 3 {
            break;
        }
    }
}

#[test]
fn exclusive_locking_holds_off_other_processes() {
    register();
    let directory = new_database();
    let server = Process::start("serve", directory.path(), 0);
    server.wait_for(1);
    let (exclusive, other) = (connect(directory.path()), connect(directory.path()));
    run(&exclusive, "PRAGMA locking_mode=exclusive; INSERT INTO t VALUES (2)");
    other.busy_timeout(Duration::ZERO).expect("a time-out");
    let busy = other.execute_batch("INSERT INTO t VALUES (3)").expect_err("the lock is kept");
    assert_eq!(busy.sqlite_error_code(), Some(ErrorCode::DatabaseBusy));
    run(&exclusive, "INSERT INTO t VALUES (4)");
    assert_eq!(query::<i64>(&other, "SELECT sum(value) FROM t"), 7, "others read");
    run(&exclusive, "PRAGMA locking_mode=normal; SELECT * FROM t");
    run(&other, "INSERT INTO t VALUES (3)");
    drop((exclusive, other));
    server.stop();
}

#[test]
fn the_socket_survives_what_is_no_client() {
    register();
    let directory = new_database();
    let connection = connect(directory.path());
    let socket = directory.path().join("tantalum-sqlite/sqlite.sock");
    let mut random = 12345u64;
    for round in 0..300 {
        let mut stream = UnixStream::connect(&socket).expect("a connection");
        let mut bytes = Vec::new();
        if round % 2 == 0 {
            // The right greeting, and an answer to it.
            stream.write_all(&[1, 0, 0, 0, 1]).expect("a greeting");
            let mut len = [0; 4];
            stream.read_exact(&mut len).expect("an answer");
            stream.read_exact(&mut vec![0; u32::from_le_bytes(len) as usize]).expect("an answer");
        }
        let mut next = |below: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % below
        };
        let len = next(60) as u32;
        bytes.extend(if round % 5 == 0 { u32::MAX } else { len }.to_le_bytes());
        bytes.extend((0..len).map(|_| next(256) as u8));
        // It may have hung up already.
        drop(stream.write_all(&bytes));
    }
    run(&connection, "INSERT INTO t VALUES (2)");
    assert_eq!(query::<i64>(&connect(directory.path()), "SELECT sum(value) FROM t"), 3);
    drop(connection);
    // It goes with the last connection, of which some end by themselves.
    let is_gone = (0..6000).any(|_| {
        thread::sleep(Duration::from_millis(10));
        !socket.exists()
    });
    assert!(is_gone, "the database is still open");
}
