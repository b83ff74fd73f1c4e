//! A connection's open database in the process that has the Tantalum database open. What SQLite calls goes there as requests: writes
//! together with the call behind them, for nothing is applied before the commit. An answer is waited for only where it says something:
//! each costs the time in which two processes are woken.

use std::{
    collections::HashMap,
    ffi::c_int,
    fs, io, mem,
    os::unix::net::UnixStream,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use libsqlite3_sys as ffi;
use tantalum_rt::Mutex;

use crate::{
    failure::{Failure, Result},
    process,
    protocol::{
        AGAIN_MAX, Address, Answer, Channel, Condition, Greeting, HEADER_BYTES, Item, Message, Open, Question,
        READ_BYTES_MAX, Reply, STEPS_BYTES, State, Step, VERSION, VERSION_OFFSET, Version, take_part,
    },
    super_journal::SuperJournal,
    write_lock::{forget_refusal, note_refusal_elsewhere},
};

/// How long the other process may take to answer a greeting.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// Why a call did not succeed.
pub(crate) enum Trouble {
    Failed(Failure),
    /// The other process has ended, or is of no use any more.
    Lost,
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// A connection to a process that has a Tantalum database open, and is ready to serve it.
#[derive(Clone)]
pub(crate) struct Owner {
    channel: Arc<Mutex<Channel>>,
    /// The real path of the Tantalum database's directory.
    directory: Arc<Path>,
    /// How often the Tantalum database has been opened.
    opening: u64,
    /// This process. A child that was forked makes connections of its own.
    process: u32,
}

/// Connections that no connection of SQLite uses: programs open one for each request. The other process hangs up after a while.
static IDLE: Mutex<Vec<Owner>> = Mutex::new(Vec::new());
const IDLE_MAX: usize = 16;

impl Owner {
    /// An idle connection for a directory.
    fn idle(directory: &Path) -> Option<Self> {
        let mut idle = IDLE.lock();
        idle.retain(|owner| owner.process == process::current());
        // The last one was used a moment ago.
        let found = idle.iter().rposition(|owner| *owner.directory == *directory)?;
        Some(idle.remove(found))
    }

    /// Has a connection used again that has nothing open.
    fn keep(self) {
        let mut idle = IDLE.lock();
        if idle.len() == IDLE_MAX {
            idle.remove(0);
        }
        idle.push(self);
    }

    /// Connects to the process that has the Tantalum database in a directory open. `None` if there is none, or one that serves no others.
    pub fn connect(directory: &Path) -> Result<Option<Self>> {
        if let Some(owner) = Self::idle(directory) {
            return Ok(Some(owner));
        }
        let is_absent =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        let place = |error: io::Error| Failure::from(error).context(directory.join(crate::protocol::SOCKET).display());
        let stream = match Address::of(directory).and_then(|address| UnixStream::connect(address.path())) {
            Err(error) if is_absent(&error) => return Ok(None),
            other => other.map_err(place)?,
        };
        stream.set_read_timeout(Some(GREETING_TIMEOUT)).map_err(place)?;
        let mut channel = Channel::new(stream);
        let greeted = channel.send(&mut Message::of(&Greeting { version: VERSION })).and_then(|()| channel.answer());
        // One that closes the database just now hangs up.
        let Ok(body) = greeted else { return Ok(None) };
        let opening = match take_part::<Reply>(body).map_err(place)?.0.answer {
            Answer::Opening(opening) => opening,
            Answer::Failed(failure) => return Err(failure.into()),
            other => return Err(unexpected(&other)),
        };
        let directory = fs::canonicalize(directory)?.into();
        Ok(Some(Self { channel: Arc::new(Mutex::new(channel)), directory, opening, process: process::current() }))
    }

    /// Opens a SQLite database there.
    pub fn open(self, open: &Open<'_>) -> std::result::Result<Client, Trouble> {
        let lost = |_: io::Error| Trouble::Lost;
        let mut channel = self.channel.lock();
        channel.stream().set_read_timeout(Some(GREETING_TIMEOUT)).map_err(lost)?;
        channel.send(&mut Message::of(open)).map_err(lost)?;
        let (change_counter, header) = match take_part::<Reply>(channel.answer().map_err(lost)?).map_err(lost)?.0.answer
        {
            Answer::Opened { change_counter, header } => (change_counter, header.to_vec()),
            Answer::Failed(failure) => return Err(Trouble::Failed(failure.into())),
            other => return Err(unexpected(&other).into()),
        };
        channel.stream().set_read_timeout(None).map_err(lost)?;
        drop(channel);
        Ok(Client {
            epoch: Epoch { opening: self.opening, change_counter },
            remote: Arc::new(Remote { owner: self, patience: AtomicU64::new(0) }),
            lock: ffi::SQLITE_LOCK_NONE,
            waiting: Message::new(),
            header: Some(header),
            state: None,
            pages: HashMap::new(),
            reads: Vec::new(),
            last_reads: Vec::new(),
            cached: None,
            seen_counter: Some(change_counter),
            condition: Condition::default(),
            is_lost: false,
        })
    }
}

fn unexpected(answer: &Answer<'_>) -> Failure {
    Failure::io(format!("the process that has the database open answered what was not asked: {answer:?}"))
}

/// How a process found a SQLite database when it opened the Tantalum database.
#[derive(Clone, Copy)]
pub(crate) struct Epoch {
    /// How often the Tantalum database had been opened.
    pub opening: u64,
    pub change_counter: u32,
}

/// The other process, as one connection of SQLite sees it until it is closed.
pub(crate) struct Remote {
    owner: Owner,
    /// How long SQLite waits for the turn to write of this connection, in microseconds; 0 if it does not.
    patience: AtomicU64,
}

impl Remote {
    /// The real path of the Tantalum database's directory.
    pub fn directory(&self) -> &Path {
        &self.owner.directory
    }

    /// Sends a request and hands the answer over.
    fn exchange<T>(
        &self,
        request: &mut Message,
        take: impl FnOnce(Answer<'_>) -> Result<T>,
    ) -> io::Result<(Result<T>, Condition)> {
        let mut channel = self.owner.channel.lock();
        channel.send(request)?;
        let body = channel.answer()?;
        let (Reply { answer, condition }, _) = take_part(body)?;
        let taken = match answer {
            Answer::Failed(failure) => Err(failure.into()),
            answer => take(answer),
        };
        Ok((taken, condition))
    }

    /// Has the next transaction wait until the turn of this connection to write has come: SQLite tries again at once, and so hears of it
    /// with all that it needs then.
    pub fn await_turn(&self, at_most: Duration) {
        self.patience.store(at_most.as_micros() as u64, Ordering::Relaxed);
    }

    /// Commits what connections have handed over to a super-journal.
    pub fn commit_together(&self, number: u128) -> Result<()> {
        let mut request = Message::of(&Item::Question(Question::CommitTogether(number)));
        self.exchange(&mut request, |_| Ok(()))?.0
    }
}

/// A connection's open database.
pub(crate) struct Client {
    remote: Arc<Remote>,
    epoch: Epoch,
    /// The lock that SQLite has.
    lock: c_int,
    /// Steps that were not sent yet.
    waiting: Message,
    /// The first bytes of the database when it was opened, until SQLite has read them.
    header: Option<Vec<u8>>,
    /// The database as it was when it was locked, as long as this connection has not changed it.
    state: Option<State>,
    /// Pages of it that SQLite may read.
    pages: HashMap<u64, Vec<u8>>,
    /// The pages that SQLite has read in this transaction, but the first, and in the last one that read any: the first ones of each.
    reads: Vec<u64>,
    last_reads: Vec<u64>,
    /// The version of what SQLite has in its page cache, if that is known.
    cached: Option<Version>,
    /// The change counter of what SQLite was shown last; `None` where a commit of its own may have counted up.
    seen_counter: Option<u32>,
    /// As the last answer said.
    condition: Condition,
    is_lost: bool,
}

impl Client {
    /// Sends what waits and a question.
    fn ask<T>(
        &mut self,
        question: Question,
        take: impl FnOnce(Answer<'_>) -> Result<T>,
    ) -> std::result::Result<T, Trouble> {
        if self.is_lost {
            return Err(Trouble::Lost);
        }
        self.waiting.add(&Item::Question(question));
        let exchanged = self.remote.exchange(&mut self.waiting, take);
        self.waiting.clear();
        match exchanged {
            Ok((taken, condition)) => {
                self.condition = condition;
                Ok(taken?)
            }
            Err(_) => {
                self.is_lost = true;
                Err(Trouble::Lost)
            }
        }
    }

    fn done(&mut self) -> std::result::Result<(), Trouble> {
        self.ask(Question::Done, |_| Ok(()))
    }

    /// Sends what waits and a question whose answer does not matter.
    fn post(&mut self, question: Question) {
        self.waiting.add(&Item::Question(question));
        self.is_lost |= self.remote.owner.channel.lock().post(&mut self.waiting).is_err();
        self.waiting.clear();
    }

    /// Has a step done with the next request. If it fails, so does that.
    fn add(&mut self, step: Step<'_>) -> std::result::Result<(), Trouble> {
        if self.is_lost {
            return Err(Trouble::Lost);
        }
        self.waiting.add(&Item::Step(step));
        if self.waiting.body_bytes() < STEPS_BYTES { Ok(()) } else { self.done() }
    }

    /// Takes a step.
    pub fn run(&mut self, step: Step<'_>) -> std::result::Result<(), Trouble> {
        match step {
            Step::Lock(lock) => return self.lock(lock),
            Step::Unlock(lock) => return self.unlock(lock),
            Step::Write { .. } | Step::SetSize(_) | Step::EndOfWrites | Step::Sync => {
                if let Step::Write { offset: 0, bytes } = step {
                    self.cached = bytes.get(VERSION_OFFSET..).and_then(|rest| rest.first_chunk()).copied();
                }
                self.forget_state();
                return self.add(step);
            }
            Step::Commit | Step::HandOver(_) => self.forget_state(),
            Step::AwaitTurn(_) | Step::BeginBatch | Step::RollBackBatch | Step::SetExclusive(_) => {}
        }
        self.add(step)?;
        self.done()?;
        if matches!(step, Step::Commit | Step::HandOver(_)) {
            self.seen_counter = None;
        }
        Ok(())
    }

    fn forget_state(&mut self) {
        self.state = None;
        self.pages.clear();
    }

    fn lock(&mut self, lock: c_int) -> std::result::Result<(), Trouble> {
        if lock <= self.lock {
            return Ok(());
        }
        self.header = None;
        if lock == ffi::SQLITE_LOCK_SHARED {
            let locked = self.begin();
            self.note_refusal(&locked);
            self.state = Some(locked?);
        } else if self.lock < ffi::SQLITE_LOCK_RESERVED {
            self.add(Step::Lock(lock))?;
            // Else there is nothing between the lock that SQLite has and the one that the other process has given it.
            if !self.condition.has_write_lock {
                let locked = self.done();
                self.note_refusal(&locked);
                locked?;
            }
        }
        forget_refusal();
        self.lock = lock;
        Ok(())
    }

    /// Begins a transaction. One that waits for its turn to write locks the database for writing at once: SQLite was refused that, and
    /// tries again.
    fn begin(&mut self) -> std::result::Result<State, Trouble> {
        match self.remote.patience.swap(0, Ordering::Relaxed) {
            0 => self.add(Step::Lock(ffi::SQLITE_LOCK_SHARED))?,
            patience => {
                self.add(Step::AwaitTurn(patience))?;
                self.add(Step::Lock(ffi::SQLITE_LOCK_SHARED))?;
                self.add(Step::Lock(ffi::SQLITE_LOCK_RESERVED))?;
            }
        }
        let mut pages = mem::take(&mut self.pages);
        let question = Question::State { cached: self.cached, again: self.last_reads.clone() };
        let asked = self.ask(question, |answer| match answer {
            Answer::State { state, pages: found } => {
                pages.extend(found.into_iter().map(|page| (page.offset, page.bytes.to_vec())));
                Ok(state)
            }
            other => Err(unexpected(&other)),
        });
        self.pages = pages;
        let state = asked?;
        if let Some(version) = state.version {
            self.cached = Some(version);
            self.seen_counter = version.first_chunk().map(|counter| u32::from_be_bytes(*counter));
        }
        Ok(state)
    }

    fn note_refusal<T>(&self, locked: &std::result::Result<T, Trouble>) {
        if let Err(Trouble::Failed(failure)) = locked
            && matches!(failure.code, ffi::SQLITE_BUSY | ffi::SQLITE_BUSY_SNAPSHOT)
        {
            note_refusal_elsewhere(&self.remote);
        }
    }

    fn unlock(&mut self, lock: c_int) -> std::result::Result<(), Trouble> {
        if lock >= self.lock {
            return Ok(());
        }
        self.lock = lock;
        self.forget_state();
        if lock == ffi::SQLITE_LOCK_NONE && !self.reads.is_empty() {
            self.last_reads = mem::take(&mut self.reads);
        }
        // Writes that are not committed are forgotten.
        self.waiting.clear();
        // What was locked there is not locked any more, and SQLite heeds no failure here.
        if self.is_lost {
            return Ok(());
        }
        self.add(Step::Unlock(lock))?;
        // If it has the write lock, another connection might be refused it though this call has returned; if all that was read is durable,
        // there is no failure to hear of.
        let Condition { may_be_lost, has_write_lock } = self.condition;
        if !may_be_lost && !has_write_lock {
            if lock == ffi::SQLITE_LOCK_NONE {
                self.post(Question::Done);
            }
            return Ok(());
        }
        match self.done() {
            Err(Trouble::Lost) if lock == ffi::SQLITE_LOCK_NONE => Ok(()),
            done => done,
        }
    }

    /// As [`MainFile::read`](crate::main_file::MainFile::read).
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> std::result::Result<usize, Trouble> {
        // A page begins at a multiple of its size.
        let is_page = offset > 0 && offset.is_multiple_of(bytes.len() as u64) && self.lock > ffi::SQLITE_LOCK_NONE;
        if is_page && self.reads.len() < AGAIN_MAX && !self.reads.contains(&offset) {
            self.reads.push(offset);
        }
        if let Some(known) = self.known(offset, bytes.len()) {
            bytes[..known.len()].copy_from_slice(known);
            let known = known.len();
            // It is as old as the connection.
            self.header = None;
            return Ok(known);
        }
        let len = u32::try_from(bytes.len()).ok().filter(|len| *len <= READ_BYTES_MAX);
        let len = len.ok_or_else(|| Failure::io("SQLite reads more at once than its largest page"))?;
        self.ask(Question::Read { offset, len }, |answer| match answer {
            Answer::Bytes(read) if read.len() <= bytes.len() => {
                bytes[..read.len()].copy_from_slice(read);
                Ok(read.len())
            }
            other => Err(unexpected(&other)),
        })
    }

    /// What is known without asking, or fewer bytes where the database ends.
    fn known(&self, offset: u64, len: usize) -> Option<&[u8]> {
        if let Some(header) = &self.header {
            return ((offset, len) == (0, HEADER_BYTES)).then_some(header);
        }
        let state = self.state.as_ref()?;
        let version = state.version.as_ref().filter(|version| (offset, len) == (VERSION_OFFSET as u64, version.len()));
        let page = self.pages.get(&offset).filter(|page| page.len() == len);
        version.map(|version| &version[..]).or(page.map(Vec::as_slice))
    }

    /// Size in bytes.
    pub fn size(&mut self) -> std::result::Result<u64, Trouble> {
        if let Some(state) = self.state {
            return Ok(state.size);
        }
        self.ask(Question::Size, |answer| match answer {
            Answer::Size(size) => Ok(size),
            other => Err(unexpected(&other)),
        })
    }

    /// Whether a connection has the write lock.
    pub fn is_reserved(&mut self) -> std::result::Result<bool, Trouble> {
        self.ask(Question::IsReserved, |answer| match answer {
            Answer::IsReserved(is_reserved) => Ok(is_reserved),
            other => Err(unexpected(&other)),
        })
    }

    /// Hands what was written over to a super-journal.
    pub fn hand_over(&mut self, super_journal: &SuperJournal) -> std::result::Result<(), Trouble> {
        let number = super_journal.enlist_remote(&self.remote)?;
        self.run(Step::HandOver(number))
    }

    pub fn lock_state(&self) -> c_int {
        self.lock
    }

    /// Whether what SQLite has in its page cache is what a process found, or an earlier state, that has opened the Tantalum database since the
    /// other one was lost.
    pub fn has_seen_only(&self, found: Epoch) -> bool {
        if !self.condition.may_be_lost {
            return true;
        }
        // Each commit counts the change counter up. What was committed by a process in between would count too.
        let is_next = found.opening == self.epoch.opening + 1;
        let has = |seen| found.change_counter.wrapping_sub(seen).cast_signed() >= 0;
        is_next && self.seen_counter.is_some_and(has)
    }

    pub fn epoch(&self) -> Epoch {
        self.epoch
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // What is amid something, or may be called once more, hangs up.
        if self.lock > ffi::SQLITE_LOCK_NONE || self.is_lost || Arc::strong_count(&self.remote) > 1 {
            return;
        }
        self.waiting.clear();
        self.post(Question::Close);
        if !self.is_lost {
            self.remote.owner.clone().keep();
        }
    }
}
