//! A connection's open database in the process that has the Tantalum database open. What SQLite calls goes there as requests: writes
//! together with the call behind them, for nothing is applied before the commit.

use std::{ffi::c_int, fs, io, os::unix::net::UnixStream, path::Path, sync::Arc, time::Duration};

use libsqlite3_sys as ffi;
use tantalum_rt::Mutex;

use crate::{
    failure::{Failure, Result},
    protocol::{
        Address, Answer, Channel, Greeting, Item, Message, Open, Question, READ_BYTES_MAX, Reply, STEPS_BYTES, State,
        Step, VERSION, VERSION_OFFSET, take_part,
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

/// A process that has a Tantalum database open, and is ready to serve it.
pub(crate) struct Owner {
    channel: Channel,
    /// How often the Tantalum database has been opened.
    opening: u64,
}

impl Owner {
    /// Connects to the process that has the Tantalum database in a directory open. `None` if there is none, or one that serves no others.
    pub fn connect(directory: &Path) -> Result<Option<Self>> {
        let is_absent =
            |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused);
        let place = |error: io::Error| Failure::from(error).context(directory.join(crate::protocol::SOCKET).display());
        let stream = match Address::of(directory).and_then(|address| UnixStream::connect(address.path())) {
            Err(error) if is_absent(&error) => return Ok(None),
            other => other.map_err(place)?,
        };
        stream.set_read_timeout(Some(GREETING_TIMEOUT)).map_err(place)?;
        let mut channel = Channel::new(stream);
        let greeted = channel.send(&mut Message::of(&Greeting { version: VERSION })).and_then(|()| channel.receive());
        // One that closes the database just now hangs up.
        let Ok(Some(body)) = greeted else { return Ok(None) };
        match take_part::<Reply>(body).map_err(place)?.0.answer {
            Answer::Opening(opening) => Ok(Some(Self { channel, opening })),
            Answer::Failed(failure) => Err(failure.into()),
            other => Err(unexpected(&other)),
        }
    }

    /// Opens a SQLite database there.
    pub fn open(mut self, directory: &Path, open: &Open<'_>) -> std::result::Result<Client, Trouble> {
        let lost = |_: io::Error| Trouble::Lost;
        self.channel.send(&mut Message::of(open)).map_err(lost)?;
        let body = self.channel.receive().map_err(lost)?.ok_or(Trouble::Lost)?;
        let counter = match take_part::<Reply>(body).map_err(lost)?.0.answer {
            Answer::ChangeCounter(counter) => counter,
            Answer::Failed(failure) => return Err(Trouble::Failed(failure.into())),
            other => return Err(unexpected(&other).into()),
        };
        self.channel.stream().set_read_timeout(None).map_err(lost)?;
        let directory = fs::canonicalize(directory).map_err(Failure::from)?;
        let remote = Remote { channel: Mutex::new(self.channel), directory: directory.into() };
        Ok(Client {
            remote: Arc::new(remote),
            epoch: Epoch { opening: self.opening, change_counter: counter },
            lock: ffi::SQLITE_LOCK_NONE,
            waiting: Message::new(),
            state: None,
            seen_counter: Some(counter),
            may_be_lost: false,
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

/// The other process, as one connection of SQLite sees it.
pub(crate) struct Remote {
    channel: Mutex<Channel>,
    /// The real path of the Tantalum database's directory.
    directory: Box<Path>,
}

impl Remote {
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sends a request and hands the answer over, and whether what SQLite was shown may be lost.
    fn exchange<T>(
        &self,
        request: &mut Message,
        take: impl FnOnce(Answer<'_>) -> Result<T>,
    ) -> io::Result<(Result<T>, bool)> {
        let mut channel = self.channel.lock();
        channel.send(request)?;
        let body = channel.receive()?.ok_or(io::ErrorKind::UnexpectedEof)?;
        let (Reply { answer, may_be_lost }, _) = take_part(body)?;
        let taken = match answer {
            Answer::Failed(failure) => Err(failure.into()),
            answer => take(answer),
        };
        Ok((taken, may_be_lost))
    }

    fn ask(&self, question: Question) -> Result<()> {
        let mut request = Message::of(&Item::Question(question));
        let (answered, _) = self.exchange(&mut request, |_| Ok(()))?;
        answered
    }

    /// Waits until the turn of this connection to write has come.
    pub fn sleep(&self, at_most: Duration) -> Result<()> {
        self.ask(Question::Sleep(at_most.as_micros() as u64))
    }

    /// Commits what connections have handed over to a super-journal.
    pub fn commit_together(&self, number: u128) -> Result<()> {
        self.ask(Question::CommitTogether(number))
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
    /// The database as it was when it was locked, as long as this connection has not changed it.
    state: Option<State>,
    /// The change counter of what SQLite was shown last; `None` where a commit of its own may have counted up.
    seen_counter: Option<u32>,
    may_be_lost: bool,
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
            Ok((taken, may_be_lost)) => {
                self.may_be_lost = may_be_lost;
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
                self.state = None;
                return self.add(step);
            }
            Step::Commit | Step::HandOver(_) => self.state = None,
            Step::BeginBatch | Step::RollBackBatch | Step::SetExclusive(_) => {}
        }
        self.add(step)?;
        self.done()?;
        if matches!(step, Step::Commit | Step::HandOver(_)) {
            self.seen_counter = None;
        }
        Ok(())
    }

    fn lock(&mut self, lock: c_int) -> std::result::Result<(), Trouble> {
        if lock <= self.lock {
            return Ok(());
        }
        // There is nothing between the write lock and an exclusive one.
        if self.lock < ffi::SQLITE_LOCK_RESERVED {
            self.add(Step::Lock(lock))?;
            let locked = if lock == ffi::SQLITE_LOCK_SHARED {
                self.ask(Question::State, |answer| match answer {
                    Answer::State(state) => Ok(Some(state)),
                    other => Err(unexpected(&other)),
                })
            } else {
                self.done().map(|()| self.state)
            };
            if let Err(Trouble::Failed(failure)) = &locked
                && matches!(failure.code, ffi::SQLITE_BUSY | ffi::SQLITE_BUSY_SNAPSHOT)
            {
                note_refusal_elsewhere(&self.remote);
            }
            self.state = locked?;
            if let Some(State { version: Some([a, b, c, d, ..]), .. }) = self.state {
                self.seen_counter = Some(u32::from_be_bytes([a, b, c, d]));
            }
        }
        forget_refusal();
        self.lock = lock;
        Ok(())
    }

    fn unlock(&mut self, lock: c_int) -> std::result::Result<(), Trouble> {
        if lock >= self.lock {
            return Ok(());
        }
        self.lock = lock;
        self.state = None;
        // Writes that are not committed are forgotten.
        self.waiting.clear();
        // What was locked there is not locked any more, and SQLite heeds no failure here.
        if self.is_lost {
            return Ok(());
        }
        self.add(Step::Unlock(lock))?;
        match self.done() {
            Err(Trouble::Lost) if lock == ffi::SQLITE_LOCK_NONE => Ok(()),
            done => done,
        }
    }

    /// As [`MainFile::read`](crate::main_file::MainFile::read).
    pub fn read(&mut self, offset: u64, bytes: &mut [u8]) -> std::result::Result<usize, Trouble> {
        if let Some(State { version: Some(version), .. }) = &self.state
            && (offset, bytes.len()) == (VERSION_OFFSET, version.len())
        {
            bytes.copy_from_slice(version);
            return Ok(bytes.len());
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
        if !self.may_be_lost {
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
