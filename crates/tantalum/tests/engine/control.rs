//! The control socket: which clients can use it, what it answers, and what it puts up with.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::Path,
};

use tantalum::{
    Builder, Db, FeedPosition, RestorePhase, RestoreProgress,
    control::{ChangeSelection, ChangesFrom, Client, Command, KeyBounds, Progress, RowSelection, TableWrite},
};

use crate::support::{check, put};

fn builder() -> Builder {
    Db::builder().log_bytes(2 << 20).buffer_pool_bytes(64 * 4096).control_socket(true)
}

fn call(dir: &Path, command: &Command) -> tantalum::Result<serde_json::Value> {
    Client::connect(dir)?.call(command, &mut |_| {})
}

/// What is answered to these bytes, until the database hangs up or the sender does.
fn say(dir: &Path, bytes: &[u8]) -> String {
    let mut stream = UnixStream::connect(dir.join("control.sock")).unwrap();
    // It may hang up before everything is said.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8(answer).unwrap()
}

#[test]
fn commands_are_carried_out() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().open(dir.path()).unwrap();
    let mode = fs::metadata(dir.path().join("control.sock")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let status = call(dir.path(), &Command::Status).unwrap();
    assert_eq!(status["process"], std::process::id());
    assert_eq!(status["log_devices_set_aside"], serde_json::json!([]));
    assert_eq!(call(dir.path(), &Command::Stats).unwrap()["page_bytes"], 4096);

    db.table("t").unwrap();
    call(dir.path(), &Command::Checkpoint).unwrap();
    let log = db.stats().unwrap().log;
    assert_eq!(log.checkpoint_lsn, log.end_lsn);

    // Several on one connection.
    let mut client = Client::connect(dir.path()).unwrap();
    let mut told = 0;
    client.call(&Command::AddDevice { path: "log-1".into() }, &mut |_| told += 1).unwrap();
    assert!(told > 1, "file and joining are told of");
    let error = client.call(&Command::RemoveDevice { device: "log-7".into() }, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("control.sock") && error.contains("log-7 is no device"), "{error}");
    let replace = Command::ReplaceDevice { device: "log-0".into(), path: "log-2".into() };
    assert_eq!(client.call(&replace, &mut |_| {}).unwrap().as_array().unwrap().len(), 2);
    client.call(&Command::RemoveDevice { device: "log-1".into() }, &mut |_| {}).unwrap();
    assert_eq!(db.stats().unwrap().log.devices.len(), 1);
    check(&db);
}

#[test]
fn a_base_backup_tells_how_far_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().log_archive(dir.path().join("archive")).open(dir.path().join("db")).unwrap();
    let table = db.table("t").unwrap();
    for n in 0..50u32 {
        put(&db, &table, &[(&n.to_string(), &"v".repeat(500))]);
    }
    let path = dir.path().join("backup").display().to_string();
    let mut told = Vec::new();
    let mut client = Client::connect(&dir.path().join("db")).unwrap();
    let made = client.call(&Command::BaseBackup { path }, &mut |progress| told.push(progress)).unwrap();
    let told = told.into_iter().map(|progress| match progress {
        Progress::BaseBackup(RestoreProgress { phase: RestorePhase::Copy, done_bytes, total_bytes }) => {
            assert_eq!(total_bytes, made["bytes"].as_u64().unwrap());
            done_bytes
        }
        other => panic!("{other:?}"),
    });
    let told: Vec<u64> = told.collect();
    assert!(told.len() > 1 && told.is_sorted() && told.last() == made["bytes"].as_u64().as_ref(), "{told:?}");
}

#[test]
fn the_socket_is_there_while_the_database_is_open() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("control.sock");
    // As a process that was killed leaves it.
    drop(UnixListener::bind(&socket).unwrap());
    let db = builder().open(dir.path()).unwrap();
    let mut client = Client::connect(dir.path()).unwrap();
    client.call(&Command::Status, &mut |_| {}).unwrap();
    db.clone().close().unwrap();
    assert!(!socket.exists());
    let error = client.call(&Command::Checkpoint, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("closed"), "{error}");
    drop((client, db));
    let error = Client::connect(dir.path()).map(drop).unwrap_err().to_string();
    assert!(error.contains("control.sock") && error.contains("no process answers"), "{error}");

    // An idle connection does not keep the database open.
    let db = builder().open(dir.path()).unwrap();
    let idle = Client::connect(dir.path()).unwrap();
    drop(db);
    let db = builder().open(dir.path()).unwrap();
    drop((idle, db));

    let db = builder().control_socket(false).open(dir.path()).unwrap();
    assert!(!socket.exists());
    drop(db);

    // None where nothing asks for it; the file of settings does, too.
    let other = tempfile::tempdir().unwrap();
    let socket_of_other = other.path().join("control.sock");
    let open = || Db::builder().log_bytes(2 << 20).open(other.path()).unwrap();
    drop(open());
    assert!(!fs::read_to_string(other.path().join("tantalum.toml")).unwrap().contains("control_socket"));
    let db = open();
    assert!(!socket_of_other.exists());
    drop(db);
    fs::OpenOptions::new()
        .append(true)
        .open(other.path().join("tantalum.toml"))
        .and_then(|mut file| file.write_all(b"control_socket = true\n"))
        .unwrap();
    let db = open();
    assert!(socket_of_other.exists());
    drop(db);

    fs::write(&socket, "mine").unwrap();
    check(&builder().open(dir.path()).unwrap());
    assert_eq!(fs::read(&socket).unwrap(), b"mine", "what is no socket stays, and the database opens without one");
}

#[test]
fn the_change_feed_is_followed_beside_commands() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    // A transaction that has begun to use the table is waited for.
    let tx = db.begin().unwrap();
    assert!(tx.get(&table, "a").unwrap().is_none());
    let starter = tantalum_rt::spawn("starter", {
        let dir = dir.path().to_path_buf();
        move || call(&dir, &Command::StartFeed { table: "t".into() })
    });
    tantalum_rt::sleep(std::time::Duration::from_millis(20));
    drop(tx);
    let start: FeedPosition = starter.join().unwrap().unwrap().as_str().unwrap().parse().unwrap();
    assert!(table.has_change_feed());
    put(&db, &table, &[("a", "1")]);

    let selection = ChangeSelection { from: ChangesFrom::Position(start), follow: true, ..ChangeSelection::default() };
    let request = Command::Changes { selection };
    let request = [serde_json::to_value(&request).unwrap(), serde_json::json!({"version": 1})];
    let request = request.iter().flat_map(|part| part.as_object().unwrap().clone()).collect::<serde_json::Map<_, _>>();
    let request = format!("{}\n", serde_json::to_string(&request).unwrap());
    let follow = || {
        let mut follower = BufReader::new(UnixStream::connect(dir.path().join("control.sock")).unwrap());
        follower.get_mut().write_all(request.as_bytes()).unwrap();
        let mut line = String::new();
        follower.read_line(&mut line).unwrap();
        (follower, line)
    };
    let followers: Vec<_> = (0..8).map(|_| follow()).collect();
    assert!(followers.iter().all(|(_, line)| line.contains("\"put\"")), "{followers:?}");
    assert!(follow().1.contains("8 processes follow"));
    call(dir.path(), &Command::Status).unwrap();
    // Those that have hung up make place for others.
    drop(followers);
    while !follow().1.contains("\"put\"") {
        tantalum_rt::sleep(std::time::Duration::from_millis(20));
    }
    call(dir.path(), &Command::EndFeed { table: "t".into() }).unwrap();
    assert!(!table.has_change_feed());
    let error = call(dir.path(), &Command::EndFeed { table: "u".into() }).unwrap_err().to_string();
    assert!(error.contains("\"u\""), "{error}");
}

#[test]
fn a_path_too_long_for_an_address_is_no_obstacle() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("d".repeat(100)).join("e".repeat(100));
    fs::create_dir_all(&deep).unwrap();
    let db = builder().open(&deep).unwrap();
    assert_eq!(call(&deep, &Command::Status).unwrap()["process"], std::process::id());
    drop(db);
    assert!(!deep.join("control.sock").exists());
}

#[test]
fn hostile_input_is_refused_and_the_database_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().open(dir.path()).unwrap();
    for (said, words) in [
        (&b"\n"[..], "no request"),
        (b"GET / HTTP/1.1\r\n\r\n", "no request"),
        (b"\xff\xfe\n", "no request"),
        (b"{\"version\":9,\"command\":\"status\"}\n", "version 9"),
        (b"{\"version\":1,\"command\":\"drop-table\"}\n", "drop-table"),
        (b"{\"version\":1,\"command\":\"add-device\",\"path\":7}\n", "no command"),
    ] {
        let answer = say(dir.path(), said);
        assert!(answer.starts_with("{\"error\":") && answer.contains(words), "{said:?}: {answer}");
    }
    assert!(say(dir.path(), &vec![b'x'; 2 << 20]).contains("at most"));
    let nested = "[".repeat(16_000);
    assert!(say(dir.path(), format!("{nested}\n").as_bytes()).contains("no request"));
    assert_eq!(say(dir.path(), b"{\"version\":1,"), "", "cut short");

    let idle: Vec<_> = (0..4).map(|_| Client::connect(dir.path()).unwrap()).collect();
    // Each has its place once it was answered.
    let mut idle: Vec<Client> = idle.into_iter().collect();
    for client in &mut idle {
        // Those that hung up a moment ago may still have a place.
        if client.call(&Command::Status, &mut |_| {}).is_err() {
            *client = loop {
                let mut again = Client::connect(dir.path()).unwrap();
                if again.call(&Command::Status, &mut |_| {}).is_ok() {
                    break again;
                }
            };
        }
    }
    assert!(say(dir.path(), b"").contains("too many connections"));
    for client in &mut idle {
        client.call(&Command::Status, &mut |_| {}).unwrap();
    }
    check(&db);
}

#[test]
fn rows_are_written_counted_and_deleted_from_another_process() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().open(dir.path()).unwrap();
    let call = |command: &Command| call(dir.path(), command);
    let write = |write: TableWrite| call(&Command::Write { write });
    let every_byte: Vec<u8> = (0..=255).collect();
    let put = TableWrite::of_put("t", &every_byte, &every_byte);
    let missing = write(put.clone()).unwrap_err().to_string();
    assert!(missing.contains("no table \"t\""), "{missing}");
    assert_eq!(write(TableWrite { create: true, ..put }).unwrap()["deleted"], 0);
    let table = db.open_table("t").unwrap();
    assert_eq!(db.get(&table, &every_byte).unwrap().unwrap(), every_byte[..]);

    let large = vec![b'v'; 40_000];
    let puts = (b'a'..=b'z').map(|key| (vec![key], vec![key])).chain([(b"large".to_vec(), large.clone())]).collect();
    write(TableWrite { puts, ..TableWrite::of_delete("t", &every_byte) }).unwrap();
    let count = |selection: RowSelection| {
        let here = selection.count(&db).unwrap();
        assert_eq!(call(&Command::Count { selection }).unwrap(), here);
        here
    };
    assert_eq!(count(RowSelection::default()), 27);
    assert_eq!(count(RowSelection { to: Some(b"c".to_vec()), ..RowSelection::default() }), 2);
    assert_eq!(count(RowSelection { limit: Some(3), reverse: true, ..RowSelection::default() }), 3);
    let mut keys = Vec::new();
    let last = RowSelection { limit: Some(15), reverse: true, keys_only: true, ..RowSelection::default() };
    last.read(&db, &mut |_, row| {
        let Some((key, value)) = row else { return Ok(()) };
        assert_eq!(value.read(&mut [0]).unwrap(), 0);
        keys.push(key.to_vec());
        Ok(())
    })
    .unwrap();
    assert_eq!((&keys[0][..], &keys[14][..]), (&b"z"[..], &b"large"[..]));

    let range = Some(KeyBounds { from: Some(b"d".to_vec()), to: Some(b"x".to_vec()) });
    let rest = TableWrite { delete_range: range, ..TableWrite::of_put("t", b"f", b"again") };
    assert_eq!(write(rest).unwrap()["deleted"], 21);
    assert_eq!(count(RowSelection::default()), 7);
    assert_eq!(db.get(&table, "f").unwrap().unwrap(), b"again", "deleted first, then written");

    let error = write(TableWrite::of_put("t", b"k", &vec![0; 200_000])).unwrap_err();
    assert_eq!(error.kind(), tantalum::ErrorKind::TooLarge, "{error}");
    check(&db);
}

#[test]
fn rows_are_of_one_moment_and_closing_ends_their_reading() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(16 << 20).control_socket(true).open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    // More than the socket holds.
    for n in 0..100_u32 {
        let mut tx = db.begin().unwrap();
        (0..50_u32).for_each(|m| tx.put(&table, (n * 50 + m).to_be_bytes(), [1; 1000]).unwrap());
        tx.commit().unwrap();
    }
    let (mut open, mut count) = (Some(db.clone()), 0);
    let mut client = Client::connect(dir.path()).unwrap();
    client
        .rows(RowSelection::default(), &mut |_, row| {
            // Beside the reading: the last rows go, and none of those that are read is another.
            if row.is_none() {
                let mut tx = db.begin()?;
                (4990..5000_u32).try_for_each(|n| tx.delete(&table, n.to_be_bytes()).map(drop))?;
                tx.commit()?;
            }
            count += u32::from(row.is_some());
            Ok(())
        })
        .unwrap();
    assert_eq!(count, 5000);
    drop(db);
    let closed = client.rows(RowSelection::default(), &mut |_, _| open.take().map_or(Ok(()), Db::close)).unwrap_err();
    assert!(closed.to_string().contains("the database is closed"), "{closed}");
    check(&builder().open(dir.path()).unwrap());
}

/// All rows: their keys, and their values, of which `take` has as many bytes as it says.
fn rows(client: &mut Client, take: impl Fn(&[u8]) -> u64) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let mut sink = |_: &str, row: Option<(&[u8], &mut dyn Read)>| {
        let Some((key, value)) = row else { return Ok(()) };
        let mut bytes = Vec::new();
        value.take(take(key)).read_to_end(&mut bytes).unwrap();
        rows.push((key.to_vec(), bytes));
        Ok(())
    };
    client.rows(RowSelection::default(), &mut sink).unwrap();
    rows
}

#[test]
fn large_values_pass_in_pieces() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().log_bytes(16 << 20).open(dir.path()).unwrap();
    let mut client = Client::connect(dir.path()).unwrap();
    let value: Vec<u8> = (0..3_000_000_u32).map(|n| (n / 7) as u8).collect();
    for (key, bytes) in [("a", 0), ("b", value.len()), ("c", 5), ("d", 128 << 10), ("e", value.len()), ("f", 1)] {
        client.put("t", key.as_bytes(), &mut &value[..bytes]).unwrap();
    }
    let read = rows(&mut client, |_| u64::MAX);
    assert_eq!(read.iter().map(|(key, _)| &key[..]).collect::<Vec<_>>(), [b"a", b"b", b"c", b"d", b"e", b"f"]);
    for (_, bytes) in &read {
        assert!(bytes[..] == value[..bytes.len()]);
    }
    assert_eq!(read.iter().map(|(_, bytes)| bytes.len()).collect::<Vec<_>>(), [0, 3_000_000, 5, 131_072, 3_000_000, 1]);
    // What is not read is passed over.
    let read = rows(&mut client, |key| if key == b"b" { 200_000 } else { 0 });
    assert_eq!(read.iter().map(|(_, bytes)| bytes.len()).sum::<usize>(), 200_000);
    assert_eq!(read.len(), 6);

    // A value that breaks off leaves the row as it was, and so does one that is refused.
    let mut broken = (&value[..1_000_000]).chain(Broken);
    let error = client.put("t", b"b", &mut broken).unwrap_err().to_string();
    assert!(error.contains("cannot be read: it broke"), "{error}");
    let mut client = Client::connect(dir.path()).unwrap();
    let error = client.put("t", &[b'k'; 5000], &mut &value[..]).unwrap_err().to_string();
    assert!(error.contains("key"), "{error}");
    let request = r#"{"version":1,"command":"put-in-pieces","table":"t","key":"b"}"#;
    let refused = say(dir.path(), format!("{request}\n{{\"bytes\":\"ab\",\"is_last\":false}}\n{request}\n").as_bytes());
    assert!(refused.contains("no piece"), "{refused}");
    let unfinished = say(dir.path(), format!("{request}\n{{\"bytes\":\"ab\",\"is_last\":false}}\n").as_bytes());
    assert!(unfinished.contains("its end did not come"), "{unfinished}");
    let written = format!("{request}\n{{\"bytes\":\"ab\",\"is_last\":false}}\n{{\"bytes\":\"c\",\"is_last\":true}}\n");
    let next = "{\"version\":1,\"command\":\"checkpoint\"}\n";
    let table = db.open_table("t").unwrap();
    assert!(db.get(&table, "b").unwrap().unwrap()[..] == value[..]);
    let said = say(dir.path(), format!("{written}{next}").as_bytes());
    assert_eq!(said, "{\"result\":null}\n".repeat(2), "another request can follow");
    assert_eq!(db.get(&table, "b").unwrap().unwrap(), b"abc");
    check(&db);
}

struct Broken;

impl Read for Broken {
    fn read(&mut self, _: &mut [u8]) -> std::io::Result<usize> {
        Err(std::io::Error::other("it broke"))
    }
}
