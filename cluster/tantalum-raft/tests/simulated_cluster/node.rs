//! A node: raft-rs on a raft log and a database, and the loop that a program writes around it.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use raft::eraftpb::{ConfState, Entry, Message, MessageType};
use raft::{Config, RawNode, SnapshotStatus, StateRole};
use tantalum::{Db, Table, Transaction};
use tantalum_log::LogOptions;
use tantalum_raft::raft_rs_storage::{NodeLog, StateMachine};
use tantalum_raft::{Error, ErrorKind, RaftLog, RaftLogOptions, Result};

use super::cluster::State;
use super::history::{Answer, Applied, History, Request};
use super::machine::{Power, Start};
use super::network::{Event, Inbox, Network};

/// The group of all nodes.
const GROUP: u64 = 1;
/// The lists of values, by key, and the digest of everything applied.
const TABLES: [&str; 2] = ["lists", "digest"];

/// What the seed decides for all nodes.
#[derive(Clone, Debug)]
pub struct Options {
    pub nodes: u64,
    pub copies: u8,
    pub cache_bytes: usize,
    pub pre_vote: bool,
    pub max_size_per_msg: u64,
    /// A node keeps so many applied entries for others.
    pub kept_entries: u64,
    pub has_even_clocks: bool,
    /// Bytes of an entry beyond what it says.
    pub padding: usize,
    /// How much slower everything goes than with devices that are fast.
    pub slowness: u64,
}

impl Options {
    fn log(&self) -> RaftLogOptions {
        let log = LogOptions {
            copies: self.copies,
            hang_timeout: std::time::Duration::from_millis(30),
            ..LogOptions::default()
        };
        RaftLogOptions { cache_bytes: self.cache_bytes, log }
    }
}

/// What all nodes and clients of a run share.
pub struct World {
    pub options: Options,
    pub network: Arc<Network>,
    pub history: Mutex<History>,
    /// Answers that clients wait for, by the number of their request.
    pub answers: Mutex<BTreeMap<usize, Answer>>,
    /// Called with a node that sends a promise, for a moment at which power cuts are worth trying.
    pub on_promise: OnceLock<Box<dyn Fn(u64, MessageType) + Send + Sync>>,
}

impl World {
    /// No task is switched while this is held.
    pub fn history(&self) -> MutexGuard<'_, History> {
        self.history.lock().expect("no panic")
    }
}

/// A node that has power.
pub struct Node<'w> {
    id: u64,
    world: &'w World,
    power: Arc<Power>,
    inbox: Arc<Inbox>,
    log: RaftLog,
    machine: StateMachine,
    raft: RawNode<NodeLog>,
    /// Requests to append that came here.
    appends: BTreeSet<usize>,
    /// Reads that came here: with the entry that must be applied first, when it is known.
    reads: BTreeMap<usize, (u8, Option<u64>)>,
    applied: u64,
}

/// Formats the devices of a new node.
pub fn create(start: &Start, options: &Options) -> Result<()> {
    start.start()?;
    RaftLog::create(start.logs.clone(), &options.log())?;
    let machine = open_machine(start)?;
    machine.initialize(&ConfState::from(((1..=options.nodes).collect::<Vec<_>>(), vec![])))?;
    machine.db().clone().close()
}

fn open_machine(start: &Start) -> Result<StateMachine> {
    let db = Db::builder().buffer_pool_bytes(64 * 4096).open_on(start.database.clone())?;
    StateMachine::new(db, GROUP, &TABLES)
}

/// The values of a list.
fn values(row: Option<tantalum::Value>) -> Vec<u64> {
    let row = row.map_or_else(Vec::new, |row| row.to_vec());
    row.chunks_exact(8).map(|value| u64::from_le_bytes(value.try_into().expect("8 bytes"))).collect()
}

/// All lists, as the database has them.
fn lists(machine: &StateMachine) -> Result<BTreeMap<u8, Vec<u64>>> {
    let snapshot = machine.db().snapshot()?;
    let rows = snapshot.range(&machine.tables()[0], ..)?;
    rows.map(|row| row.map(|(key, row)| (key[0], values(Some(row))))).collect()
}

/// The digest of everything applied, and the entry that it counts last.
fn digest(row: Option<tantalum::Value>) -> (u64, u64) {
    match values(row)[..] {
        [index, digest] => (index, digest),
        _ => (0, 0),
    }
}

/// Does what an entry says. Returns the length of the list that it appended to, and the digest.
fn apply(transaction: &mut Transaction, tables: &[Table], entry: &Entry) -> Result<(usize, Applied)> {
    let (index, before) = digest(transaction.get(&tables[1], "")?);
    assert_eq!(index + 1, entry.index, "the rows are those of the entry that was applied last");
    let mut hasher = DefaultHasher::new();
    (before, entry.term, &entry.data[..], &entry.context[..]).hash(&mut hasher);
    let after = hasher.finish();
    transaction.put(&tables[1], "", [entry.index.to_le_bytes(), after.to_le_bytes()].concat())?;
    let mut length = 0;
    if let Some((key, value)) = entry.data.split_first() {
        let mut list = transaction.get(&tables[0], [*key])?.map(|list| list.to_vec()).unwrap_or_default();
        list.extend_from_slice(&value[..8]);
        length = list.len() / 8;
        transaction.put(&tables[0], [*key], list)?;
    }
    Ok((length, Applied { term: entry.term, digest: after }))
}

impl<'w> Node<'w> {
    /// Starts a node from what its devices have.
    pub fn open(id: u64, world: &'w World, start: &Start, inbox: Arc<Inbox>) -> Result<Node<'w>> {
        start.start()?;
        let log = RaftLog::open(start.logs.clone(), &world.options.log())?;
        let machine = open_machine(start)?;
        let storage = NodeLog::open(log.group(GROUP), machine.clone())?;
        let applied = machine.applied()?.index;
        let (index, digest) = digest(machine.db().get(&machine.tables()[1], "")?);
        assert_eq!(index, applied, "node {id}: how far it was applied came apart from the rows");
        if start.power.is_on() {
            world.history().check_state(id, applied, digest);
        }
        let config = Config {
            applied,
            election_tick: 6,
            heartbeat_tick: 1,
            // How long a tick takes is random instead.
            max_election_tick: 7,
            pre_vote: world.options.pre_vote,
            max_size_per_msg: world.options.max_size_per_msg,
            max_committed_size_per_ready: 2000,
            // The log takes them all.
            max_uncommitted_size: 20_000,
            ..Config::new(id)
        };
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let raft = RawNode::new(&config, storage, &logger).map_err(|error| failed(&error))?;
        let power = Arc::clone(&start.power);
        let (appends, reads) = (BTreeSet::new(), BTreeMap::new());
        Ok(Node { id, world, power, inbox, log, machine, raft, appends, reads, applied })
    }

    /// Does what comes, until the power is cut or the node is to end.
    pub fn run(&mut self) -> Result<()> {
        while let Some(event) = self.inbox.pop() {
            match event {
                Event::Tick => _ = self.raft.tick(),
                // What raft-rs refuses is as if it had been lost.
                Event::Message(message) => drop(self.raft.step(message)),
                Event::SnapshotSent(to, came) => {
                    let status = if came { SnapshotStatus::Finish } else { SnapshotStatus::Failure };
                    self.raft.report_snapshot(to, status);
                }
                Event::Persisted(number, messages, outcome) => {
                    outcome?;
                    self.raft.on_persist_ready(number);
                    self.send(messages);
                }
                Event::Request(number, request) => self.take_request(number, request),
                Event::End => return Ok(()),
            }
            while self.raft.has_ready() {
                self.handle_ready()?;
            }
            self.answer_reads()?;
        }
        Ok(())
    }

    fn take_request(&mut self, number: usize, request: Request) {
        let context = number.to_le_bytes().to_vec();
        match request {
            Request::Append { key, value } => {
                let mut data = [&[key][..], &value.to_le_bytes()].concat();
                data.resize(data.len() + self.world.options.padding, 0);
                match self.raft.propose(context, data) {
                    Ok(()) => _ = self.appends.insert(number),
                    Err(_) => self.answer(number, Answer::Refused),
                }
            }
            Request::Read { key } => {
                self.reads.insert(number, (key, None));
                self.raft.read_index(context);
            }
        }
    }

    fn handle_ready(&mut self) -> Result<()> {
        let mut ready = self.raft.ready();
        if ready.ss().is_some_and(|soft| soft.raft_state == StateRole::Leader) && self.power.is_on() {
            self.world.history().lead(self.id, self.raft.raft.term);
        }
        for read in ready.take_read_states() {
            let number = usize::from_le_bytes(read.request_ctx.try_into().expect("a number"));
            if let Some((_, index)) = self.reads.get_mut(&number) {
                *index = Some(read.index);
            }
        }
        let messages = ready.take_messages();
        self.send(messages);
        let snapshot = ready.snapshot().get_metadata().index;
        let end = match self.raft.mut_store().persist(&ready) {
            Err(error) if error.kind() == ErrorKind::LogFull => {
                self.raft.store().compact(self.applied)?;
                self.raft.mut_store().persist(&ready)?
            }
            persisted => persisted?,
        };
        if snapshot > 0 {
            self.world.history().snapshots_installed += 1;
            self.applied = snapshot;
        }
        let committed = ready.take_committed_entries();
        self.apply(&committed)?;
        let (number, messages) = (ready.number(), ready.take_persisted_messages());
        self.raft.advance_append_async(ready);
        if snapshot > 0 {
            self.raft.on_persist_ready(number);
        }
        self.raft.advance_apply_to(self.applied);
        let inbox = Arc::clone(&self.inbox);
        self.log.on_durable(end, move |outcome| inbox.push(Event::Persisted(number, messages, outcome)));
        Ok(())
    }

    fn apply(&mut self, entries: &[Entry]) -> Result<()> {
        let applied = self.machine.apply(entries, None, apply)?;
        for (entry, (length, applied)) in entries.iter().zip(applied) {
            if self.power.is_on() {
                self.world.history().apply(self.id, entry.index, applied);
            }
            if let Ok(number) = entry.context[..].try_into().map(usize::from_le_bytes)
                && self.appends.remove(&number)
            {
                self.answer(number, Answer::Appended(length));
            }
            self.applied = entry.index;
        }
        if self.applied.is_multiple_of(5) {
            self.raft.store().compact(self.applied.saturating_sub(self.world.options.kept_entries))?;
        }
        Ok(())
    }

    fn answer_reads(&mut self) -> Result<()> {
        let due = self.reads.iter().find(|(_, (_, index))| index.is_some_and(|index| index <= self.applied));
        if let Some((&number, &(key, _))) = due {
            self.reads.remove(&number);
            let list = values(self.machine.db().get(&self.machine.tables()[0], [key])?);
            self.answer(number, Answer::Found(list));
            return self.answer_reads();
        }
        Ok(())
    }

    /// What a machine without power says is not heard.
    fn answer(&self, number: usize, answer: Answer) {
        if self.power.is_on() {
            self.world.answers.lock().expect("no panic").insert(number, answer);
        }
    }

    fn send(&self, messages: Vec<Message>) {
        for message in messages {
            if !self.power.is_on() {
                return;
            }
            if !message.reject
                && let Some(on_promise) = self.world.on_promise.get()
            {
                on_promise(self.id, message.get_msg_type());
            }
            self.world.network.send(message);
        }
    }

    /// The lists, and how far entries were applied, when everything has come to rest.
    pub fn end(self) -> Result<Option<State>> {
        let lists = lists(&self.machine)?;
        assert_eq!(self.machine.applied()?.index, self.applied);
        self.world.history().entries_rewritten += self.log.stats().rewritten.0;
        let Node { machine, raft, log, .. } = self;
        drop(raft);
        machine.db().clone().close()?;
        log.close()?;
        Ok(Some((self.applied, lists)))
    }
}

/// raft-rs refuses its storage.
fn failed(error: &raft::Error) -> Error {
    Error::new(ErrorKind::Application, error.to_string())
}
