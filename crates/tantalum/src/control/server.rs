//! The side of the database: takes connections, and carries out what they ask for.
//!
//! It holds the database only while it carries out a command, so that it does not keep it open. Whatever a connection
//! sends, and however slowly, costs a bounded amount of memory and time.

use std::{
    fs,
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::OwnedFd,
        unix::{
            fs::FileTypeExt,
            net::{UnixListener, UnixStream},
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use rustix::{
    fs::Mode,
    net::{AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType},
};
use serde_json::{Value, json};
use tantalum_rt::{JoinHandle, now, spawn};

use super::{
    address::Address,
    changes::{ChangeSelection, when_unused},
    pieces::{Piece, RowLines},
    protocol::{Answer, Command, LINE_BYTES_MAX, Progress, VERSION},
    rows::{RowSelection, table_sizes},
};
use crate::{
    db::{Db, LogChange, WeakDb, files::SOCKET},
    error::{self, Result},
};

/// Why a command was not carried out, to be told.
type Failure = Box<dyn std::error::Error>;

/// Connections at the same time.
const CONNECTIONS_MAX: usize = 4;
/// Besides, connections that follow the change feed.
const FOLLOWERS_MAX: usize = 8;
/// How long a request may take to arrive, and an answer to be taken.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a client may take none of the rows or changes that it asked for: it may show them a page at a time.
const ROWS_TIMEOUT: Duration = Duration::from_secs(600);

/// The socket of an open database. Dropping it ends it; commands that were begun go on.
struct Server {
    listener: Arc<UnixListener>,
    socket: PathBuf,
    stop: Arc<AtomicBool>,
    task: Option<JoinHandle<()>>,
}

/// Lets the database in `directory` take orders until it is closed, if its settings say so. A database that cannot is
/// open all the same.
pub fn serve(db: &Db, directory: &Path) {
    if db.core().is_read_only || !db.settings().control_socket() || tantalum_rt::is_simulated() {
        return;
    }
    match Server::start(db.downgrade(), directory) {
        Ok(server) => db.keep(server),
        Err(error) => {
            let socket = directory.join(SOCKET).display().to_string();
            tantalum_rt::tracing::warn!(socket, %error, "no control socket: the log's devices can be changed only by the program itself");
        }
    }
}

impl Server {
    fn start(db: WeakDb, directory: &Path) -> io::Result<Self> {
        let directory = fs::canonicalize(directory)?;
        let socket = directory.join(SOCKET);
        let listener = Arc::new(listen(&directory, &socket)?);
        let stop = Arc::new(AtomicBool::new(false));
        let task = spawn("tantalum-control", {
            let (listener, stop) = (Arc::clone(&listener), Arc::clone(&stop));
            move || accept(&listener, &stop, &db, &directory)
        });
        Ok(Self { listener, socket, stop, task: Some(task) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // From now on, connections are refused, and the task that waits for them returns.
        let woken = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        let removed = fs::remove_file(&self.socket);
        if let Err(error) = woken.map_err(io::Error::from).and(removed) {
            tantalum_rt::tracing::warn!(socket = %self.socket.display(), %error, "the control socket could not be removed");
        }
        if woken.is_ok() && self.task.take().is_some_and(|task| task.join().is_err()) {
            tantalum_rt::tracing::error!("the control socket's task panicked");
        }
    }
}

/// Makes the socket, in the place of one that a crash left behind. Only the owner can ever connect.
fn listen(directory: &Path, socket: &Path) -> io::Result<UnixListener> {
    match fs::symlink_metadata(socket) {
        // The directory is locked, so no other database listens there.
        Ok(metadata) if metadata.file_type().is_socket() => fs::remove_file(socket)?,
        Ok(_) => return Err(io::Error::other("something that is no socket has its name; remove it")),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    let address = Address::of(directory)?;
    let fd: OwnedFd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    // Linux gives the file the mode that the socket has when it is bound.
    rustix::fs::fchmod(&fd, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&fd, &SocketAddrUnix::new(address.path())?)?;
    fs::set_permissions(socket, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    rustix::net::listen(&fd, CONNECTIONS_MAX as i32)?;
    Ok(UnixListener::from(fd))
}

fn accept(listener: &UnixListener, stop: &AtomicBool, db: &WeakDb, directory: &Path) {
    let (connections, followers) = (Arc::default(), Arc::default());
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Too many open files, or a client that gave up.
                tantalum_rt::tracing::warn!(%error, "a connection to the control socket could not be accepted");
                tantalum_rt::sleep(Duration::from_millis(100));
                continue;
            }
        };
        let place = Place::take(&connections, CONNECTIONS_MAX);
        let is_refused = place.is_none();
        let (db, directory, followers) = (db.clone(), directory.into(), Arc::clone(&followers));
        let mut connection = Connection { stream, db, directory, place, followers, unread: Vec::new(), is_over: false };
        if is_refused {
            // If this answer cannot be sent either, the client is gone.
            let _ = connection.answer(&Answer::Error("too many connections; try again later".into()));
            continue;
        }
        spawn("tantalum-control-connection", move || {
            if let Err(error) = connection.serve() {
                tantalum_rt::tracing::debug!(%error, "a connection to the control socket ended");
            }
        });
    }
}

/// One of the connections that there may be.
struct Place(Arc<AtomicUsize>);

impl Place {
    /// One of `max`, if not all are taken.
    fn take(taken: &Arc<AtomicUsize>, max: usize) -> Option<Self> {
        let add = |taken| (taken < max).then_some(taken + 1);
        taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

struct Connection {
    stream: UnixStream,
    db: WeakDb,
    directory: PathBuf,
    /// Among those that may be, or those that follow the change feed.
    place: Option<Place>,
    /// How many connections follow it.
    followers: Arc<AtomicUsize>,
    /// What was read beyond the last line.
    unread: Vec<u8>,
    /// Whether what comes next is no request.
    is_over: bool,
}

impl Connection {
    /// Carries out requests until the other side hangs up.
    fn serve(&mut self) -> io::Result<()> {
        self.stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
        while let Some(line) = self.read_line()? {
            let result = match Command::of_line(&line) {
                Ok(command) => self.carry_out(command).map_err(|error| error.to_string()),
                Err(what) => Err(what),
            };
            self.answer(&result.map_or_else(Answer::Error, Answer::Result))?;
            if self.is_over {
                break;
            }
        }
        Ok(())
    }

    fn answer(&mut self, answer: &Answer) -> io::Result<()> {
        self.stream.write_all(&answer.to_line()?)
    }

    /// The next line, `None` when the other side has hung up.
    fn read_line(&mut self) -> io::Result<Option<Vec<u8>>> {
        let deadline = now() + REQUEST_TIMEOUT;
        let mut searched = 0;
        loop {
            if let Some(end) = self.unread[searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.unread.split_off(searched + end + 1);
                return Ok(Some(std::mem::replace(&mut self.unread, rest)));
            }
            searched = self.unread.len();
            let refusal = if searched > LINE_BYTES_MAX {
                Some(format!("a request has at most {LINE_BYTES_MAX} bytes"))
            } else if now() >= deadline {
                Some(format!("no request came within {REQUEST_TIMEOUT:?}"))
            } else {
                None
            };
            if let Some(what) = refusal {
                self.answer(&Answer::Error(what))?;
                return Ok(None);
            }
            let mut part = [0; 16 << 10];
            self.stream.set_read_timeout(Some((deadline - now()).max(Duration::from_millis(1))))?;
            match self.stream.read(&mut part) {
                Ok(0) => return Ok(None),
                Ok(bytes) => self.unread.extend_from_slice(&part[..bytes]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn carry_out(&mut self, command: Command) -> Result<Value, Failure> {
        let db = self.db.upgrade().ok_or_else(error::closed)?;
        match command {
            Command::Status => self.status(&db),
            Command::Stats => Ok(serde_json::to_value(db.stats()?)?),
            Command::TableNames => Ok(json!(db.tables()?)),
            Command::Tables => Ok(serde_json::to_value(table_sizes(&db, &mut |_| {})?)?),
            Command::Rows { selection } => self.send_rows(db, &selection),
            Command::Count { selection } => Ok(json!(selection.count(&db)?)),
            Command::Write { write } => Ok(serde_json::to_value(write.apply(&db)?)?),
            Command::Changes { selection } => self.send_changes(db, &selection),
            Command::PutInPieces { table, key } => self.put_in_pieces(&db, &table, &key),
            Command::Feeds => {
                let feeds = db.change_feeds()?.into_iter().map(|(table, start)| (table, start.to_string()));
                Ok(json!(feeds.collect::<Vec<_>>()))
            }
            Command::StartFeed { table } => {
                let start = when_unused(&db, &table, Db::start_change_feed)?;
                Ok(json!(start.to_string()))
            }
            Command::EndFeed { table } => {
                when_unused(&db, &table, Db::end_change_feed)?;
                Ok(Value::Null)
            }
            Command::Check => Ok(serde_json::to_value(db.check()?)?),
            Command::Backup { path } => {
                db.backup(self.directory.join(path))?;
                Ok(Value::Null)
            }
            Command::Checkpoint => {
                db.checkpoint()?;
                Ok(Value::Null)
            }
            Command::Compact => self.compact(&db),
            Command::BaseBackup { path } => self.back_up(&db, &path),
            Command::AddDevice { path } => self.change(&db, LogChange::Add { new: (&path).into() }),
            Command::RemoveDevice { device } => self.change(&db, LogChange::Remove { old: device }),
            Command::ReplaceDevice { device, path } => {
                self.change(&db, LogChange::Replace { old: device, new: (&path).into() })
            }
        }
    }

    /// Sends rows as fast as they are taken. Meanwhile the database may be closed.
    fn send_rows(&mut self, db: Db, selection: &RowSelection) -> Result<Value, Failure> {
        let reader = selection.begin(&db)?;
        drop(db);
        self.send(|connection| {
            let mut send = |answer: &Answer| connection.pass_on(answer);
            let mut lines = RowLines::new(&mut send);
            reader.read(&mut |table, row| match row {
                None => lines.table(table),
                Some((key, value)) => lines.row(key, value),
            })?;
            lines.end()
        })
    }

    /// Writes a row whose value comes behind the request.
    fn put_in_pieces(&mut self, db: &Db, table: &str, key: &[u8]) -> Result<Value, Failure> {
        // Until all of the value has come.
        self.is_over = true;
        let table = db.table(table)?;
        let mut transaction = db.begin()?;
        let mut value = Arriving { connection: self, piece: Piece::default(), at: 0 };
        transaction.put_from(&table, key, &mut value)?;
        self.is_over = false;
        transaction.commit()?;
        Ok(Value::Null)
    }

    /// Sends changes as fast as they are taken, and perhaps as they are committed. Meanwhile the database may be closed.
    fn send_changes(&mut self, db: Db, selection: &ChangeSelection) -> Result<Value, Failure> {
        let reader = selection.begin(&db)?;
        drop(db);
        if selection.follow {
            let place = Place::take(&self.followers, FOLLOWERS_MAX);
            self.place = Some(place.ok_or_else(|| {
                format!("{FOLLOWERS_MAX} processes follow the change feed already; end one of them, or read without following")
            })?);
        }
        self.send(|connection| {
            reader.read(&mut |changes, position| connection.pass_on(&Answer::Changes { changes, position }))
        })
    }

    /// Lets the client take its time over what `send` sends.
    fn send(&mut self, send: impl FnOnce(&mut Self) -> Result<()>) -> Result<Value, Failure> {
        self.stream.set_write_timeout(Some(ROWS_TIMEOUT))?;
        let sent = send(self);
        self.stream.set_write_timeout(Some(REQUEST_TIMEOUT))?;
        sent?;
        Ok(Value::Null)
    }

    /// Sends a part of an answer.
    fn pass_on(&mut self, answer: &Answer) -> Result<()> {
        let broken =
            |error: io::Error| crate::Error::new(crate::ErrorKind::Io, "the client went away").with_source(error);
        self.answer(answer).map_err(broken)
    }

    fn status(&self, db: &Db) -> Result<Value, Failure> {
        let devices = db.stats()?.log.devices;
        let aside: Vec<_> = devices.into_iter().filter(|device| device.set_aside.is_some()).collect();
        Ok(json!({
            "version": VERSION,
            "program": env!("CARGO_PKG_VERSION"),
            "process": std::process::id(),
            "directory": self.directory.display().to_string(),
            "log_devices_set_aside": serde_json::to_value(&aside)?,
        }))
    }

    /// Changes the log's devices. The client may have hung up: the change goes on.
    fn change(&mut self, db: &Db, change: LogChange) -> Result<Value, Failure> {
        let mut said = None;
        db.change_log_devices(change, &mut |progress| {
            let percent = (progress.done_bytes * 100).checked_div(progress.total_bytes);
            if said.replace((progress.phase, percent)) != Some((progress.phase, percent)) {
                let _ = self.answer(&Answer::Progress(Progress::LogChange(progress)));
            }
        })?;
        Ok(serde_json::to_value(db.stats()?.log.devices)?)
    }

    /// Compacts the database, also if the client has hung up.
    fn compact(&mut self, db: &Db) -> Result<Value, Failure> {
        let mut said = None;
        let report = db.compact(&mut |progress| {
            let percent = (progress.done * 100).checked_div(progress.total);
            if said.replace((progress.step, percent)) != Some((progress.step, percent)) {
                let _ = self.answer(&Answer::Progress(Progress::Compact(progress)));
            }
        })?;
        Ok(serde_json::to_value(report)?)
    }

    /// Makes a base backup, which goes on if the client has hung up.
    fn back_up(&mut self, db: &Db, path: &str) -> Result<Value, Failure> {
        let mut said = None;
        let backup = db.base_backup(self.directory.join(path), &mut |progress| {
            let percent = (progress.done_bytes * 100).checked_div(progress.total_bytes);
            if said.replace(percent) != Some(percent) {
                let _ = self.answer(&Answer::Progress(Progress::BaseBackup(progress)));
            }
        })?;
        Ok(serde_json::to_value(backup)?)
    }
}

/// A value that a client sends in pieces.
struct Arriving<'c> {
    connection: &'c mut Connection,
    piece: Piece,
    /// How much of the piece was read.
    at: usize,
}

impl Read for Arriving<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.at == self.piece.bytes.len() && !self.piece.is_last {
            let line = self.connection.read_line()?;
            let line = line.ok_or_else(|| io::Error::other("its end did not come"))?;
            self.piece = serde_json::from_slice(&line)
                .map_err(|error| io::Error::other(format!("a line is no piece of it: {error}")))?;
            self.at = 0;
        }
        let read = (&self.piece.bytes[self.at..]).read(buffer)?;
        self.at += read;
        Ok(read)
    }
}
