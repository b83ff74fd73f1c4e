//! The process that has a Tantalum database open lets others use its SQLite databases, as long as it does. Each connection of another
//! process has a thread here, and a [`MainFile`] as each connection of this one has; so a process that dies lets go of its locks, and of what it
//! has not committed. When this process exits, it begins no more transactions of others and waits a moment for those that run: their
//! connections find the database again in the process that has it next, and notice nothing.

#![allow(unsafe_code)]

use std::{
    ffi::c_int,
    fs, io,
    ops::Range,
    os::unix::net::UnixListener,
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{
        Arc, Once,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use libsqlite3_sys as ffi;
use rustix::net::Shutdown;
use tantalum_rt::{Condvar, Mutex, now, spawn};

use crate::{
    database::Database,
    failure::{Failure, Result},
    main_file::MainFile,
    process,
    protocol::{
        AGAIN_MAX, Address, Answer, Channel, Condition, Greeting, HEADER_BYTES, HowToOpen, Item, Message, Open, Page,
        Question, READ_BYTES_MAX, Reply, SOCKET, State, Step, VERSION, VERSION_OFFSET, Version, invalid, take_part,
    },
    store::{Store, WeakStore},
    super_journal::{Served, SuperJournal},
    write_lock::sleep_in_turn,
};

/// Connections of other processes at the same time.
const CONNECTIONS_MAX: usize = 1000;
/// How long a client may take to say what it wants to open, or to open next.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one may take to read an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a process that exits waits for the transactions of others.
const EXIT_PATIENCE: Duration = Duration::from_secs(1);
/// Where the header of a SQLite database has the size of its pages.
const PAGE_BYTES_OFFSET: usize = 16;
/// A client sleeps so long at most, and then asks again.
const SLEEP_MAX: Duration = Duration::from_secs(10);

/// The socket. Dropping it ends it; connections that were begun go on.
pub(crate) struct Server {
    listener: Arc<UnixListener>,
    socket: PathBuf,
    stop: Arc<AtomicBool>,
}

impl Server {
    /// Makes the socket in the directory of a Tantalum database that this process has open, in the place of one that a process has left
    /// behind that was killed.
    pub fn start(directory: &Path, store: WeakStore) -> io::Result<Self> {
        let socket = directory.join(SOCKET);
        match fs::remove_file(&socket) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            // The directory is locked, so no other process listens there.
            _ => {}
        }
        Exit::prepare();
        let listener = Arc::new(UnixListener::bind(Address::of(directory)?.path())?);
        let stop = Arc::new(AtomicBool::new(false));
        spawn("tantalum-sqlite", {
            let (listener, stop) = (Arc::clone(&listener), Arc::clone(&stop));
            move || accept(&listener, &stop, &store)
        });
        Ok(Self { listener, socket, stop })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // The thread that waits for connections returns; later ones are refused. Failures leave a socket that refuses.
        let _ = rustix::net::shutdown(&*self.listener, Shutdown::Both);
        let _ = fs::remove_file(&self.socket);
    }
}

fn accept(listener: &UnixListener, stop: &AtomicBool, store: &WeakStore) {
    let connections = Arc::new(AtomicUsize::new(0));
    loop {
        let accepted = listener.accept();
        if stop.load(Ordering::Acquire) {
            return;
        }
        let Ok((stream, _)) = accepted else {
            // Too many open files, or a client that gave up.
            tantalum_rt::sleep(Duration::from_millis(100));
            continue;
        };
        // When it is being closed, or the process exits, the client tries again until it finds another one.
        let Some(store) = store.upgrade().filter(|_| !EXIT.lock().has_begun) else { continue };
        let place = Place::take(&connections);
        spawn("tantalum-sqlite-connection", move || {
            // A client that is gone, or sends what is no message.
            let _ = serve(Channel::new(stream), store, place);
        });
    }
}

/// One of the connections that there may be.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(taken: &Arc<AtomicUsize>) -> Option<Self> {
        let add = |taken| (taken < CONNECTIONS_MAX).then_some(taken + 1);
        taken.fetch_update(Ordering::AcqRel, Ordering::Acquire, add).ok()?;
        Some(Self(Arc::clone(taken)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The transactions of other processes that run, and whether more may begin.
#[derive(Default)]
struct Exit {
    /// The process: a child that was forked has none of them.
    process: u32,
    running: usize,
    has_begun: bool,
}

static EXIT: Mutex<Exit> = Mutex::new(Exit { process: 0, running: 0, has_begun: false });
/// One of them has ended.
static ENDED: Condvar = Condvar::new();

// SAFETY: as the C standard declares it.
unsafe extern "C" {
    fn atexit(function: extern "C" fn()) -> c_int;
}

impl Exit {
    /// Has the process wait for them when it exits.
    fn prepare() {
        static PREPARED: Once = Once::new();
        EXIT.lock().process = process::current();
        // SAFETY: the function stays: a library with the VFS is not unloaded. If it cannot be kept, the process does not wait.
        PREPARED.call_once(|| _ = unsafe { atexit(wait_for_transactions) });
    }
}

extern "C" fn wait_for_transactions() {
    let mut exit = EXIT.lock();
    if exit.process != process::current() {
        return;
    }
    exit.has_begun = true;
    let until = now() + EXIT_PATIENCE;
    while exit.running > 0 && now() < until {
        ENDED.wait_for(&mut exit, until.duration_since(now()));
    }
}

/// A transaction of another process.
struct RunningTransaction;

impl RunningTransaction {
    /// `None` when the process exits.
    fn begin() -> Option<Self> {
        let mut exit = EXIT.lock();
        (!exit.has_begun).then(|| {
            exit.running += 1;
            Self
        })
    }
}

impl Drop for RunningTransaction {
    fn drop(&mut self) {
        EXIT.lock().running -= 1;
        ENDED.notify_all();
    }
}

/// Serves a client until it hangs up.
fn serve(mut channel: Channel, store: Store, place: Option<Place>) -> io::Result<()> {
    channel.stream().set_read_timeout(Some(OPEN_TIMEOUT))?;
    channel.stream().set_write_timeout(Some(ANSWER_TIMEOUT))?;
    let Some(body) = channel.receive()? else { return Ok(()) };
    let (Greeting { version }, _) = take_part(body)?;
    let greeted = if version != VERSION {
        let what = format!(
            "the process that has the database open speaks version {VERSION} of its protocol, and this one {version}"
        );
        Err(Failure::cannot_open(format!("{what}; have both use the same version of Tantalum")))
    } else if place.is_none() {
        let what = "connections of other processes use the Tantalum database already";
        Err(Failure::cannot_open(format!("{CONNECTIONS_MAX} {what}; close some")))
    } else {
        Ok(Answer::Opening(store.opening()))
    };
    let is_welcome = greeted.is_ok();
    channel.send(&mut reply(greeted, Condition::default()))?;
    if !is_welcome {
        return Ok(());
    }
    // A client that has nothing open keeps no database open.
    let present = store.downgrade();
    let mut store = Some(store);
    let mut bytes = Vec::new();
    while let Some(body) = channel.receive()? {
        let (open, _) = take_part::<Open>(body)?;
        // As for a new client.
        let Some(store) = store.take().or_else(|| present.upgrade()).filter(|_| !EXIT.lock().has_begun) else {
            return Ok(());
        };
        let opened = match open.how {
            HowToOpen::Create => Database::create(store, open.id, open.inode, open.path),
            HowToOpen::Existing { adopts } => Database::open(store, open.id, open.inode, adopts),
        };
        let opened = opened.and_then(|database| {
            let mut connection = Connection::new(database, std::mem::take(&mut bytes));
            connection.read(0, HEADER_BYTES)?;
            Ok(connection)
        });
        let mut connection = match opened {
            Ok(connection) => connection,
            Err(failure) => return channel.send(&mut reply(Err(failure), Condition::default())),
        };
        let change_counter = connection.main.epoch().change_counter;
        channel
            .send(&mut reply(Ok(Answer::Opened { change_counter, header: &connection.bytes }), Condition::default()))?;
        channel.stream().set_read_timeout(None)?;
        while !connection.is_closed {
            let Some(body) = channel.receive()? else { return Ok(()) };
            // Whatever a call leaves behind that panicked goes with the connection.
            let mut message = catch_unwind(AssertUnwindSafe(|| connection.carry_out(body)))
                .unwrap_or_else(|_| Err(invalid("a call panicked")))?;
            channel.send(&mut message)?;
            connection.end_transaction();
        }
        bytes = connection.bytes;
        channel.stream().set_read_timeout(Some(OPEN_TIMEOUT))?;
    }
    Ok(())
}

fn reply(answer: Result<Answer<'_>>, condition: Condition) -> Message {
    let answer = answer.unwrap_or_else(|failure| Answer::Failed(failure.into()));
    Message::of(&Reply { answer, condition })
}

/// Pages that were read: their offsets, and where their bytes are.
type PlacedPages = Vec<(u64, Range<usize>)>;

/// A connection of SQLite in another process.
struct Connection {
    main: MainFile,
    /// The super-journal that it has handed its writes over to.
    handed_over: Option<Served>,
    /// As long as SQLite has a lock.
    transaction: Option<RunningTransaction>,
    is_closed: bool,
    /// What was read.
    bytes: Vec<u8>,
}

impl Connection {
    fn new(database: Arc<Database>, bytes: Vec<u8>) -> Self {
        Self { main: MainFile::new(database), handed_over: None, transaction: None, is_closed: false, bytes }
    }

    fn carry_out(&mut self, body: &[u8]) -> io::Result<Message> {
        let (mut failed, mut rest) = (None, body);
        let begins = self.main.lock_state() == ffi::SQLITE_LOCK_NONE;
        let question = loop {
            let (item, behind) = take_part::<Item>(rest)?;
            rest = behind;
            match item {
                Item::Question(question) => break question,
                Item::Step(step) => {
                    check(&step)?;
                    if matches!(step, Step::Lock(_)) && self.transaction.is_none() {
                        self.transaction = Some(RunningTransaction::begin().ok_or(io::ErrorKind::ConnectionAborted)?);
                    }
                    if failed.is_none() {
                        failed = self.take(step).err();
                    }
                }
            }
        };
        if !rest.is_empty() {
            return Err(invalid("a request goes on behind its question"));
        }
        if let Some(failure) = failed {
            if begins {
                self.give_up_locks();
            }
            return Ok(reply(Err(failure), self.main.condition()));
        }
        let answer = match question {
            Question::Done => Ok(Answer::Done),
            Question::Size => self.main.size().map(Answer::Size),
            Question::Read { offset, len } => {
                if len > READ_BYTES_MAX || offset > i64::MAX as u64 {
                    return Err(invalid(format!("a request to read {len} bytes at {offset}")));
                }
                self.read(offset, len as usize).map(|()| Answer::Bytes(&self.bytes))
            }
            Question::State { cached, again } => {
                if again.len() > AGAIN_MAX || again.iter().any(|offset| *offset > i64::MAX as u64) {
                    return Err(invalid(format!("a request to read the pages at {again:?}")));
                }
                match self.read_state(cached, again) {
                    Ok((state, pages)) => Ok(Answer::State { state, pages: self.pages(pages) }),
                    Err(failure) => {
                        self.give_up_locks();
                        Err(failure)
                    }
                }
            }
            Question::IsReserved => Ok(Answer::IsReserved(self.main.is_reserved())),
            Question::CommitTogether(number) => SuperJournal::commit_served(number).map(|()| Answer::Done),
            Question::Close => {
                self.is_closed = true;
                Ok(Answer::Done)
            }
        };
        Ok(reply(answer, self.main.condition()))
    }

    /// A transaction that could not begin has no locks, and no view that the next one would be given: the client takes its lock for refused.
    fn give_up_locks(&mut self) {
        // SQLite has been shown nothing that could fail to be confirmed.
        let _ = self.main.run(Step::Unlock(ffi::SQLITE_LOCK_NONE));
    }

    /// Reads as many of the bytes as there are.
    fn read(&mut self, offset: u64, len: usize) -> Result<()> {
        self.bytes.clear();
        self.read_more(offset, len).map(drop)
    }

    /// As [`read`](Self::read), behind what was read before. Returns where the bytes are.
    fn read_more(&mut self, offset: u64, len: usize) -> Result<Range<usize>> {
        let from = self.bytes.len();
        self.bytes.resize(from + len, 0);
        let read = self.main.read(offset, &mut self.bytes[from..]);
        self.bytes.truncate(from + *read.as_ref().unwrap_or(&0));
        read.map(|read| from..from + read)
    }

    /// Reads the state, and pages that SQLite will read if its page cache has another version.
    fn read_state(&mut self, cached: Option<Version>, again: Vec<u64>) -> Result<(State, PlacedPages)> {
        self.read(0, HEADER_BYTES)?;
        let version = self.bytes.get(VERSION_OFFSET..).and_then(|rest| rest.first_chunk()).copied();
        let page_bytes = self.bytes.get(PAGE_BYTES_OFFSET..).and_then(|rest| rest.first_chunk());
        let mut pages = PlacedPages::new();
        if let Some(page_bytes) = page_bytes
            && version != cached
        {
            // So SQLite writes 65,536.
            let page_bytes = match u16::from_be_bytes(*page_bytes) {
                1 => 1 << 16,
                bytes => bytes.into(),
            };
            // A reader is shown other pages only when they are durable, which takes time; a writer has them confirmed by its commit.
            let again = if self.main.condition().has_write_lock { again } else { Vec::new() };
            for offset in [0].into_iter().chain(again) {
                // What cannot be read is asked for again if it is wanted.
                pages.extend(self.read_more(offset, page_bytes).ok().map(|bytes| (offset, bytes)));
            }
        }
        Ok((State { size: self.main.size()?, version }, pages))
    }

    fn pages(&self, placed: PlacedPages) -> Vec<Page<'_>> {
        placed.into_iter().map(|(offset, bytes)| Page { offset, bytes: &self.bytes[bytes] }).collect()
    }

    /// If SQLite has let go of its lock.
    fn end_transaction(&mut self) {
        if self.main.lock_state() == ffi::SQLITE_LOCK_NONE {
            self.transaction = None;
        }
    }

    fn take(&mut self, step: Step<'_>) -> Result<()> {
        match step {
            Step::AwaitTurn(microseconds) => {
                // This thread serves nothing but the connection, so what it was refused last is what SQLite waits for.
                sleep_in_turn(Duration::from_micros(microseconds).min(SLEEP_MAX));
                Ok(())
            }
            Step::HandOver(number) => {
                let served = self.handed_over.insert(SuperJournal::served(number));
                self.main.end_of_writes(Some(&served.super_journal))
            }
            step => self.main.run(step),
        }
    }
}

/// Refuses what SQLite never asks for.
fn check(step: &Step<'_>) -> io::Result<()> {
    match *step {
        Step::Write { offset, .. } | Step::SetSize(offset) if offset > i64::MAX as u64 => {
            Err(invalid(format!("a change at {offset}")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_cannot_write_behind_what_sqlite_can_address() {
        let far = u64::MAX - 3;
        check(&Step::SetSize(far)).unwrap_err();
        check(&Step::Write { offset: far, bytes: b"far" }).unwrap_err();
        check(&Step::SetSize(0)).unwrap();
    }
}
