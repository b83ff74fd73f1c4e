//! What the clients did and saw, as a stream of events.
//!
//! Events leave the simulation through a channel that never blocks. Whatever was sent before the power was cut is
//! known afterwards, nothing is locked at the cut, and the order of the events is the order in which things happened.

use std::{
    collections::BTreeMap,
    sync::mpsc::{Receiver, Sender, channel},
};

use tantalum::FeedPosition;

use crate::{
    content::{Key, Version},
    feed::{Ending, Fed},
};

/// What a transaction promises about its reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Reads and writes as if alone, at the moment of its commit.
    Serializable,
    /// Reads as of one moment after its begin; no other transaction writes its keys from then until its commit.
    SnapshotIsolation,
    /// Reads as of one moment after its begin, and writes nothing.
    Snapshot,
}

/// One thing that a transaction saw of the database, its own writes left out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Read {
    /// The key had this version; `None`: it was absent.
    Is(Key, Option<Version>),
    /// The key was there, with a version that was not seen.
    IsPresent(Key),
    /// These were all rows from `low` to `high`, both included, but for the keys in `hidden`, which the transaction
    /// had itself written by then.
    Range { table: u8, low: u32, high: u32, rows: Vec<(u32, Version)>, hidden: Vec<u32> },
}

/// How a transaction came out, as far as its client was told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fate {
    /// The commit returned success: it must be there.
    Acknowledged,
    /// The commit returned success, and then all log devices were lost, and the archive did not have it yet: as unknown,
    /// but others may have seen it and been told so.
    Lost,
    /// Commit was called and never answered: it is there whole, or not at all.
    Unknown,
    /// Rolled back: no transaction may ever see it.
    RolledBack,
}

/// One transaction as its client knows it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its number, in the versions it writes.
    pub id: u32,
    /// What it promises.
    pub kind: Kind,
    /// When it began: the number of the event.
    pub begun: usize,
    /// When the client called commit.
    pub called: Option<usize>,
    /// When its end was known to the client.
    pub ended: Option<usize>,
    /// Where its commit stands in the log, when the client was told.
    pub position: Option<u64>,
    /// When the client was told.
    pub placed: Option<usize>,
    /// How it came out.
    pub fate: Fate,
    /// What it saw.
    pub reads: Vec<Read>,
    /// What its commit leaves behind: the last write of each key, `None` for a deletion.
    pub writes: BTreeMap<Key, Option<Version>>,
}

impl Transaction {
    fn place(&mut self, position: u64, now: usize) {
        self.position = Some(position);
        self.placed = Some(now);
    }

    /// Takes note that the log was lost behind `end`. An acknowledged transaction counts as lost if its commit lies behind
    /// `end`, or if it has no place in the log: a reader may have seen such a commit.
    pub fn lose_behind(&mut self, end: u64) {
        let may_be_lost = self.position.is_none_or(|position| position > end);
        if self.fate == Fate::Acknowledged && may_be_lost {
            self.fate = Fate::Lost;
        }
    }

    /// Whether its commit was in the log before `later` began to commit.
    pub fn was_placed_before(&self, later: &Transaction) -> bool {
        matches!((self.placed, later.called), (Some(placed), Some(called)) if placed < called)
    }
}

/// What a client reports.
#[derive(Debug)]
pub enum Event {
    /// A transaction begins.
    Begin { id: u32, kind: Kind },
    /// A transaction that is about to commit has written these versions to the database, also those that it has replaced.
    Staged(Vec<(Key, Version)>),
    /// Commit is about to be called; from here the outcome is unknown.
    Commit { id: u32, reads: Vec<Read>, writes: BTreeMap<Key, Option<Version>> },
    /// The commit has a place in the log, but need not be durable.
    Placed { id: u32, position: u64 },
    /// The commit is durable.
    Acknowledged { id: u32, position: Option<u64> },
    /// The transaction left nothing behind, and saw this.
    RolledBack { id: u32, reads: Vec<Read> },
    /// Recovery ended where the log ended, and this is all that the database holds.
    Recovered { contents: BTreeMap<Key, Version>, log_end: u64 },
    /// The archive has the log up to here, durably.
    Archived(u64),
    /// The log is about to be made anew from its archive, which ends here.
    ArchiveEnds(u64),
    /// Something that must never happen was seen.
    Violation(String),
    /// Something that must not happen on sound devices: what was written once is now out of place.
    Oddity(String),
    /// The engine's own check found something wrong.
    Unsound(String),
    /// The engine says that it cannot go on with something, and why.
    Reported(String),
    /// The engine has stopped because of a panic.
    Poisoned(String),
    /// From now on, unless a device fails, any one log device can be lost without losing anything.
    MayLoseLogDevice,
    /// Devices that the log goes on without, by their numbers.
    LeftBehind(Vec<u32>),
    /// The log was opened on such devices alone.
    OnlyLeftBehind,
    /// The start took longer than any sound one; what each task waited for then.
    TimedOut(String),
    /// A consumer of the change feed begins here, with these rows of its table.
    FeedBegins { position: FeedPosition, rows: BTreeMap<u32, Fed> },
    /// It has read a transaction that wrote these rows, and has stored that, with its position.
    Fed { position: FeedPosition, writes: BTreeMap<u32, Fed> },
    /// The feed is being ended, or is.
    FeedEnds(Ending),
    /// The named thing was counted.
    Count(&'static str, u64),
}

/// Where clients send their events. Cheap to clone, never blocks.
#[derive(Clone, Debug)]
pub struct Recorder(Sender<Event>);

impl Recorder {
    /// A recorder, and the end that is read after the simulation.
    pub fn new() -> (Self, Receiver<Event>) {
        let (sender, receiver) = channel();
        (Self(sender), receiver)
    }

    /// Notes an event at this place in the order of all events.
    pub fn record(&self, event: Event) {
        self.0.send(event).expect("the receiver outlives the simulation");
    }

    /// Adds to a counter of the report.
    pub fn count(&self, what: &'static str, n: u64) {
        self.record(Event::Count(what, n));
    }
}

/// The transactions of one round, gathered from its events.
#[derive(Debug, Default)]
pub struct History {
    transactions: BTreeMap<u32, Transaction>,
    clock: usize,
}

impl History {
    /// Adds what an event tells about transactions.
    pub fn add(&mut self, event: Event) {
        self.clock += 1;
        let now = self.clock;
        match event {
            Event::Begin { id, kind } => {
                let transaction = Transaction {
                    id,
                    kind,
                    begun: now,
                    called: None,
                    ended: None,
                    position: None,
                    placed: None,
                    fate: Fate::RolledBack,
                    reads: Vec::new(),
                    writes: BTreeMap::new(),
                };
                assert!(self.transactions.insert(id, transaction).is_none(), "transaction numbers are unique");
            }
            Event::Commit { id, reads, writes } => {
                let transaction = self.get(id);
                transaction.fate = Fate::Unknown;
                transaction.called = Some(now);
                transaction.reads = reads;
                transaction.writes = writes;
            }
            Event::Placed { id, position } => self.get(id).place(position, now),
            Event::Acknowledged { id, position } => {
                let transaction = self.get(id);
                transaction.fate = Fate::Acknowledged;
                transaction.ended = Some(now);
                if let Some(position) = position {
                    transaction.place(position, now);
                }
            }
            Event::RolledBack { id, reads } => {
                let transaction = self.get(id);
                transaction.fate = Fate::RolledBack;
                transaction.ended = Some(now);
                transaction.reads = reads;
                transaction.writes.clear();
            }
            Event::Recovered { .. }
            | Event::Archived(_)
            | Event::ArchiveEnds(_)
            | Event::Violation(_)
            | Event::Oddity(_)
            | Event::Unsound(_)
            | Event::Reported(_)
            | Event::Poisoned(_)
            | Event::Staged(_)
            | Event::MayLoseLogDevice
            | Event::LeftBehind(_)
            | Event::OnlyLeftBehind
            | Event::TimedOut(_)
            | Event::FeedBegins { .. }
            | Event::Fed { .. }
            | Event::FeedEnds(_)
            | Event::Count(..) => {}
        }
    }

    /// The places of acknowledged commits in the log, and what they wrote.
    pub fn acknowledged(&self) -> impl Iterator<Item = (u64, &BTreeMap<Key, Option<Version>>)> {
        let acknowledged = self.transactions.values().filter(|transaction| transaction.fate == Fate::Acknowledged);
        acknowledged.filter_map(|transaction| Some((transaction.position?, &transaction.writes)))
    }

    /// Where the last acknowledged commit ends in the log.
    pub fn acknowledged_up_to(&self) -> u64 {
        let acknowledged = self.transactions.values().filter(|transaction| transaction.fate == Fate::Acknowledged);
        acknowledged.filter_map(|transaction| transaction.position).max().unwrap_or(0)
    }

    fn get(&mut self, id: u32) -> &mut Transaction {
        self.transactions.get_mut(&id).expect("a client reports the beginning first")
    }

    /// All transactions by their numbers.
    pub fn into_transactions(self) -> Vec<Transaction> {
        self.transactions.into_values().collect()
    }
}
