//! A client: random transactions, recorded as they go.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Bound,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tantalum::{Db, Error, Snapshot, Table, Ticket, Transaction, Value};
use tantalum_rt::{Random, simulation::panic_at};

use crate::{
    content::{Key, VALUE_LEN_MIN, Version, decode_key, decode_value, encode_key, encode_value},
    history::{Event, Kind, Recorder},
    load::{Load, LoadKind},
    session::{Contradiction, Session},
};

/// Why a transaction went no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The engine refused, as it may: a deadlock, a conflict, too large a transaction.
    Refused(&'static str),
    /// The engine reports a failure that only a device can be the cause of.
    Failed(Error),
    /// The engine has stopped because a panic was injected.
    Poisoned(Error),
    /// What must not happen on sound devices.
    Odd(String),
    /// The engine's own check found something wrong.
    Unsound(String),
    /// What must never happen.
    Violation(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match &error {
            Error::Deadlock { .. } => Self::Refused("deadlocks"),
            Error::LockTimeout { .. } => Self::Refused("lock time-outs"),
            Error::WriteConflict { .. } => Self::Refused("write conflicts"),
            Error::TransactionTooLarge { .. } => Self::Refused("transactions too large"),
            // Any other cause is a device's.
            Error::SnapshotTooOld { cause } if matches!(**cause, Error::DiskFull { .. }) => {
                Self::Refused("snapshots given up")
            }
            Error::Log(cause) | Error::OutcomeUnknown { cause }
                if matches!(cause.first_cause(), tantalum_log::Error::Interrupted { .. }) =>
            {
                Self::Poisoned(error)
            }
            _ => Self::Failed(error),
        }
    }
}

impl From<Contradiction> for Stop {
    fn from(contradiction: Contradiction) -> Self {
        Self::Odd(contradiction)
    }
}

impl Stop {
    /// As the history has it.
    pub fn into_event(self) -> Event {
        match self {
            Self::Refused(why) => Event::Violation(format!("refused where nothing stands against it: {why}")),
            Self::Failed(error) => Event::Reported(error.to_string()),
            Self::Poisoned(error) => Event::Poisoned(error.to_string()),
            Self::Odd(what) => Event::Oddity(what),
            Self::Unsound(what) => Event::Unsound(what),
            Self::Violation(what) => Event::Violation(what),
        }
    }
}

/// What all clients of a round share.
#[derive(Clone)]
pub(crate) struct Shared {
    pub db: Db,
    pub tables: Vec<Table>,
    pub load: Arc<Load>,
    pub page_size: usize,
    /// What read-write transactions promise.
    pub kind: Kind,
    pub recorder: Recorder,
    pub next_id: Arc<AtomicU32>,
    /// The power goes before there are more transactions than the model can look through.
    pub id_max: u32,
}

/// One client.
pub(crate) struct Client {
    shared: Shared,
    number: usize,
    random: Random,
    /// Commits that are not known to be durable, oldest first.
    in_flight: VecDeque<(u32, Ticket)>,
    /// A commit panics at which of the next points; 0: at none.
    panics_at: u64,
}

impl Client {
    pub fn new(shared: Shared, number: usize, seed: u64) -> Self {
        Self { shared, number, random: Random::with_seed(seed), in_flight: VecDeque::new(), panics_at: 0 }
    }

    /// The same, and a commit of it panics, at that of the points that its commits come to.
    pub fn that_panics_at(self, point: u64) -> Self {
        Self { panics_at: point, ..self }
    }

    /// Writes most keys once, in transactions of several, unless the load is to grow from nothing.
    pub fn fill(&mut self) -> Result<(), Stop> {
        let load = Arc::clone(&self.shared.load);
        if load.kind == LoadKind::Growing {
            return Ok(());
        }
        let keys: Vec<_> = (0..load.tables)
            .flat_map(|table| (0..load.keys).map(move |number| Key { table, number }))
            .filter(|_| self.random.u8(0..3) > 0)
            .collect();
        for keys in keys.chunks(8) {
            self.read_write(|client, transaction, session| {
                keys.iter().try_for_each(|&key| client.put(transaction, session, key))
            })?;
        }
        Ok(())
    }

    /// Runs so many transactions; `None`: until the power is cut.
    pub fn run(&mut self, transactions: Option<usize>) -> Result<(), Stop> {
        let mut left = transactions.unwrap_or(usize::MAX);
        while left > 0 {
            left -= 1;
            if self.shared.next_id.load(Ordering::Relaxed) >= self.shared.id_max {
                tantalum_rt::power_cut();
            }
            self.pause();
            let load = Arc::clone(&self.shared.load);
            match self.random.u32(0..100) {
                _ if load.kind == LoadKind::Uniform => {
                    let key = self.key();
                    self.read_write(|client, transaction, session| client.put(transaction, session, key))?;
                }
                0 => self.shared.db.checkpoint()?,
                1 | 2 if load.drops_tables => self.create_and_drop_table()?,
                3..9 if load.holds_snapshots => self.write_neighbours()?,
                n if n < load.snapshots_percent => self.snapshot()?,
                _ => {
                    let operations = self.random.usize(1..=load.operations_max);
                    self.read_write(|client, transaction, session| {
                        (0..operations).try_for_each(|_| client.operation(transaction, session))
                    })?;
                }
            }
        }
        self.finish_all()
    }

    /// Waits for all commits that are not known to be durable.
    pub fn finish_all(&mut self) -> Result<(), Stop> {
        while !self.in_flight.is_empty() {
            self.finish_oldest()?;
        }
        Ok(())
    }

    /// Computes or idles for a while.
    fn pause(&mut self) {
        let time = Duration::from_micros(self.random.u64(1..60));
        match self.random.u8(0..8) {
            0 => tantalum_rt::sleep(time * 20),
            1..4 => tantalum_rt::work(time),
            _ => {}
        }
    }

    fn begin(&self, kind: Kind) -> Session {
        let id = self.shared.next_id.fetch_add(1, Ordering::Relaxed);
        self.shared.recorder.record(Event::Begin { id, kind });
        Session::new(id)
    }

    /// One read-write transaction that does `body`, and then commits or rolls back.
    fn read_write(
        &mut self,
        body: impl FnOnce(&mut Self, &mut Transaction, &mut Session) -> Result<(), Stop>,
    ) -> Result<(), Stop> {
        let mut session = self.begin(self.shared.kind);
        let mut transaction = self.shared.db.begin()?;
        let result = body(self, &mut transaction, &mut session);
        let is_unwanted = self.random.u32(0..100) < self.shared.load.rollbacks_percent;
        match result {
            Ok(()) if is_unwanted => {
                if self.random.bool() {
                    transaction.rollback();
                } else {
                    drop(transaction);
                }
                self.rolled_back(session, "rollbacks");
                Ok(())
            }
            Ok(()) => self.commit(transaction, session),
            Err(Stop::Refused(why)) => {
                drop(transaction);
                self.rolled_back(session, why);
                Ok(())
            }
            Err(stop) => {
                drop(transaction);
                self.rolled_back(session, "transactions that a failure ended");
                Err(stop)
            }
        }
    }

    fn rolled_back(&self, session: Session, why: &'static str) {
        self.shared.recorder.count(why, 1);
        self.shared.recorder.record(Event::RolledBack { id: session.id, reads: session.reads });
    }

    fn commit(&mut self, transaction: Transaction, session: Session) -> Result<(), Stop> {
        let Session { id, reads, writes, .. } = session;
        let recorder = self.shared.recorder.clone();
        recorder.record(Event::Commit { id, reads: reads.clone(), writes });
        let refused = |error: Error| match Stop::from(error) {
            Stop::Refused(why) => {
                recorder.count(why, 1);
                recorder.record(Event::RolledBack { id, reads });
                Ok(())
            }
            // Only these leave open whether it took place.
            stop @ (Stop::Failed(Error::OutcomeUnknown { .. } | Error::NotStored { .. })
            | Stop::Poisoned(Error::OutcomeUnknown { .. })) => Err(stop),
            stop => {
                recorder.record(Event::RolledBack { id, reads });
                Err(stop)
            }
        };
        // A commit by ticket tells its place in the log before it is durable, which spares the model guessing.
        if self.random.u8(0..4) == 0 {
            let Some(result) = panic_at(&mut self.panics_at, || transaction.commit()) else {
                return self.after_panic();
            };
            return match result {
                Ok(commit) => {
                    recorder.record(Event::Acknowledged { id, position: commit.position() });
                    Ok(())
                }
                Err(error) => refused(error),
            };
        }
        let Some(result) = panic_at(&mut self.panics_at, || transaction.commit_async()) else {
            return self.after_panic();
        };
        match result {
            Ok(ticket) => {
                if let Some(position) = ticket.position() {
                    recorder.record(Event::Placed { id, position });
                }
                self.in_flight.push_back((id, ticket));
            }
            Err(error) => return refused(error),
        }
        while self.in_flight.len() > self.shared.load.async_depth {
            self.finish_oldest()?;
        }
        Ok(())
    }

    /// After a commit that panicked, its client does not know whether it took place. The database goes on if that was all, or it
    /// has stopped for good, and every call says so.
    fn after_panic(&mut self) -> Result<(), Stop> {
        let (db, table) = (&self.shared.db, &self.shared.tables[0]);
        self.shared.recorder.count("commits that panicked", 1);
        let Err(error) = db.tables() else { return Ok(()) };
        self.shared.recorder.count("databases that a panic stopped", 1);
        let calls = [
            ("table", db.table("table-0").map(drop)),
            ("begin", db.begin().map(drop)),
            ("get", db.get(table, self.bytes(Key { table: 0, number: 0 })).map(drop)),
            ("snapshot", db.snapshot().map(drop)),
            ("checkpoint", db.checkpoint()),
            ("check", db.check().map(drop)),
        ];
        for (call, result) in calls {
            match result.map_err(Stop::from) {
                Err(Stop::Poisoned(_)) => {}
                other => {
                    return Err(Stop::Violation(format!("after a panic had stopped the database, {call}: {other:?}")));
                }
            }
        }
        Err(error.into())
    }

    fn finish_oldest(&mut self) -> Result<(), Stop> {
        if let Some((id, ticket)) = self.in_flight.pop_front() {
            ticket.wait()?;
            self.shared.recorder.record(Event::Acknowledged { id, position: None });
        }
        Ok(())
    }

    /// One random operation.
    fn operation(&mut self, transaction: &mut Transaction, session: &mut Session) -> Result<(), Stop> {
        let key = self.key();
        if self.random.u32(0..100) < self.shared.load.reads_percent {
            return match self.random.u8(0..4) {
                0 => self.range(transaction, session, key.table),
                1 => {
                    let value = transaction.get_for_update(self.table(key), self.bytes(key))?;
                    Ok(session.saw(key, self.version(key, value.as_ref())?)?)
                }
                _ => self.get(transaction, session, key),
            };
        }
        match self.random.u8(0..12) {
            0..5 => self.put(transaction, session, key),
            5 | 6 => {
                self.get(transaction, session, key)?;
                self.put(transaction, session, key)
            }
            7 | 8 => self.insert(transaction, session, key),
            9 | 10 => self.delete(transaction, session, key),
            _ => self.nested(transaction, session),
        }
    }

    fn get(&mut self, transaction: &mut Transaction, session: &mut Session, key: Key) -> Result<(), Stop> {
        let value = transaction.get(self.table(key), self.bytes(key))?;
        Ok(session.saw(key, self.version(key, value.as_ref())?)?)
    }

    fn put(&mut self, transaction: &mut Transaction, session: &mut Session, key: Key) -> Result<(), Stop> {
        let version = session.next_version();
        let value = self.value(version);
        transaction.put(self.table(key), self.bytes(key), &value)?;
        session.writes.insert(key, Some(version));
        Ok(())
    }

    fn insert(&mut self, transaction: &mut Transaction, session: &mut Session, key: Key) -> Result<(), Stop> {
        let version = session.next_version();
        let value = self.value(version);
        match transaction.insert(self.table(key), self.bytes(key), &value) {
            Ok(()) => {
                session.saw_presence(key, false)?;
                session.writes.insert(key, Some(version));
            }
            Err(Error::KeyExists { .. }) => session.saw_presence(key, true)?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn delete(&mut self, transaction: &mut Transaction, session: &mut Session, key: Key) -> Result<(), Stop> {
        let was_present = transaction.delete(self.table(key), self.bytes(key))?;
        session.saw_presence(key, was_present)?;
        if was_present {
            session.writes.insert(key, None);
        }
        Ok(())
    }

    /// Some operations that are taken back, or not.
    fn nested(&mut self, transaction: &mut Transaction, session: &mut Session) -> Result<(), Stop> {
        let (savepoint, writes) = (transaction.savepoint(), session.writes.clone());
        for _ in 0..self.random.usize(1..4) {
            let key = self.key();
            match self.random.bool() {
                true => self.put(transaction, session, key)?,
                false => self.delete(transaction, session, key)?,
            }
        }
        if self.random.bool() {
            transaction.rollback_to(&savepoint)?;
            session.writes = writes;
        }
        Ok(())
    }

    /// Reads a range from one end, to the other or only some rows of it.
    fn range(&mut self, transaction: &mut Transaction, session: &mut Session, table: u8) -> Result<(), Stop> {
        let span = self.span();
        let bounds = self.bounds(&span);
        let rows = transaction.range(&self.shared.tables[usize::from(table)], bounds)?;
        let (low, high, rows) = self.collect(table, &span, rows)?;
        Ok(session.saw_range(table, low, high, rows)?)
    }

    /// A read-only transaction on a snapshot, now and then a slow one; or a read without a transaction, which promises the same.
    fn snapshot(&mut self) -> Result<(), Stop> {
        let mut session = self.begin(Kind::Snapshot);
        match self.read_as_snapshot(&mut session) {
            Ok(()) => {}
            Err(Stop::Refused(why)) => {
                self.rolled_back(session, why);
                return Ok(());
            }
            Err(stop) => return Err(stop),
        }
        let Session { id, reads, writes, .. } = session;
        self.shared.recorder.record(Event::Commit { id, reads, writes });
        self.shared.recorder.record(Event::Acknowledged { id, position: None });
        self.shared.recorder.count("snapshots", 1);
        Ok(())
    }

    fn read_as_snapshot(&mut self, session: &mut Session) -> Result<(), Stop> {
        let reads = self.random.usize(1..=6);
        if reads == 1 && self.random.bool() {
            let key = self.key();
            let value = self.shared.db.get(self.table(key), self.bytes(key))?;
            session.saw(key, self.version(key, value.as_ref())?)?;
        } else {
            let snapshot = self.shared.db.snapshot()?;
            for _ in 0..reads {
                self.pause();
                self.read_snapshot(&snapshot, session)?;
                if self.shared.load.holds_snapshots {
                    self.wait_for_others();
                }
            }
            if self.shared.load.holds_snapshots {
                let spilled = self.shared.db.stats()?.transactions.spilled_versions;
                self.shared.recorder.count("snapshots beside spilled row versions", u64::from(spilled > 0));
            }
        }
        Ok(())
    }

    /// Lets the other clients run some transactions; not too long, since they may all do the same.
    fn wait_for_others(&self) {
        let until = self.shared.next_id.load(Ordering::Relaxed) + 20;
        for _ in 0..200 {
            if self.shared.next_id.load(Ordering::Relaxed) >= until {
                break;
            }
            tantalum_rt::sleep(Duration::from_micros(50));
        }
    }

    fn read_snapshot(&mut self, snapshot: &Snapshot, session: &mut Session) -> Result<(), Stop> {
        let key = self.key();
        if self.random.bool() {
            let value = snapshot.get(self.table(key), self.bytes(key))?;
            return Ok(session.saw(key, self.version(key, value.as_ref())?)?);
        }
        let span = self.span();
        let rows = snapshot.range(self.table(key), self.bounds(&span))?;
        let (low, high, rows) = self.collect(key.table, &span, rows)?;
        Ok(session.saw_range(key.table, low, high, rows)?)
    }

    /// Deletes or writes many neighbouring rows in one transaction: leaves become free, and scratch pages of the versions that the
    /// snapshots hold.
    fn write_neighbours(&mut self) -> Result<(), Stop> {
        let first = self.key();
        let end = self.shared.load.keys.min(first.number + self.random.u32(20..200));
        let deletes = self.random.u8(0..3) > 0;
        self.read_write(|client, transaction, session| {
            (first.number..end).map(|number| Key { number, ..first }).try_for_each(|key| match deletes {
                true => client.delete(transaction, session, key),
                false => client.put(transaction, session, key),
            })
        })
    }

    /// Fills a table that the model does not follow, and drops it: what counts is that no page is lost.
    fn create_and_drop_table(&mut self) -> Result<(), Stop> {
        let name = format!("scratch-{}", self.number);
        let table = self.shared.db.table(&name)?;
        let mut transaction = self.shared.db.begin()?;
        for number in 0..self.random.u32(1..20) {
            let version = Version { transaction: u32::MAX, operation: 0 };
            match transaction.put(&table, encode_key(number, 0), self.value(version)) {
                Ok(()) => {}
                Err(error) => match Stop::from(error) {
                    Stop::Refused(_) => break,
                    stop => return Err(stop),
                },
            }
        }
        transaction.commit()?;
        if self.random.u8(0..4) > 0 {
            self.shared.db.drop_table(&name)?;
            self.shared.recorder.count("tables dropped", 1);
        }
        Ok(())
    }

    fn key(&mut self) -> Key {
        let load = &self.shared.load;
        Key { table: self.random.u8(0..load.tables), number: self.random.u32(0..load.keys) }
    }

    fn table(&self, key: Key) -> &Table {
        &self.shared.tables[usize::from(key.table)]
    }

    fn bytes(&self, key: Key) -> Vec<u8> {
        encode_key(key.number, self.shared.load.key_pad)
    }

    fn value(&mut self, version: Version) -> Vec<u8> {
        let load = &self.shared.load;
        let len = if self.random.u32(0..load.large_value_every) == 0 {
            self.random.usize(self.shared.page_size / 8..self.shared.page_size * 5 / 2)
        } else {
            self.random.usize(load.value_len.clone())
        };
        encode_value(version, len.max(VALUE_LEN_MIN))
    }

    /// The operation that wrote the value found at `key`.
    fn version(&self, key: Key, value: Option<&Value>) -> Result<Option<Version>, Stop> {
        value.map(|value| version_of(key, value)).transpose()
    }

    fn span(&mut self) -> Span {
        let keys = self.shared.load.keys;
        let low = self.random.u32(0..keys);
        let high = low + self.random.u32(0..=keys - low).min(self.random.u32(1..=40));
        let rows_max = if self.random.bool() { usize::MAX } else { self.random.usize(1..6) };
        Span { low, high, is_backward: self.random.bool(), rows_max }
    }

    fn bounds(&self, span: &Span) -> (Bound<Vec<u8>>, Bound<Vec<u8>>) {
        let pad = self.shared.load.key_pad;
        let high = if span.high.is_multiple_of(2) {
            Bound::Included(encode_key(span.high, pad))
        } else {
            Bound::Excluded(encode_key(span.high + 1, pad))
        };
        (Bound::Included(encode_key(span.low, pad)), high)
    }

    /// Takes rows as `span` says; returns what was covered, and the rows in ascending order.
    fn collect(
        &self,
        table: u8,
        span: &Span,
        rows: impl DoubleEndedIterator<Item = tantalum::Result<(Value, Value)>>,
    ) -> Result<Covered, Stop> {
        let found = if span.is_backward {
            rows.rev().take(span.rows_max).collect::<tantalum::Result<Vec<_>>>()?
        } else {
            rows.take(span.rows_max).collect::<tantalum::Result<Vec<_>>>()?
        };
        let mut found = rows_of(table, self.shared.load.key_pad, &found)?;
        let (mut low, mut high) = (span.low, span.high);
        if let Some(&(last, _)) = found.last()
            && found.len() == span.rows_max
        {
            *(if span.is_backward { &mut low } else { &mut high }) = last;
        }
        if span.is_backward {
            found.reverse();
        }
        Ok((low, high, found))
    }
}

/// The lowest and the highest key that a range read has covered, and the rows in ascending order.
type Covered = (u32, u32, Vec<(u32, Version)>);

/// A range to read: keys `low..=high`, from one end, so many rows at most.
struct Span {
    low: u32,
    high: u32,
    is_backward: bool,
    rows_max: usize,
}

/// The model's names of rows.
pub(crate) fn rows_of(table: u8, key_pad: u16, rows: &[(Value, Value)]) -> Result<Vec<(u32, Version)>, Stop> {
    let name = |(key, value): &(Value, Value)| {
        let number = decode_key(key, key_pad).ok_or_else(|| {
            let key = key.escape_ascii().to_string();
            Stop::Violation(format!("table {table} holds a key that nobody wrote: {key:?}"))
        })?;
        Ok((number, version_of(Key { table, number }, value)?))
    };
    rows.iter().map(name).collect()
}

fn version_of(key: Key, value: &[u8]) -> Result<Version, Stop> {
    decode_value(value).ok_or_else(|| {
        let begins = value[..value.len().min(16)].escape_ascii();
        Stop::Violation(format!("key {key} holds {} bytes that nobody wrote: {begins}...", value.len()))
    })
}

/// All rows of all tables.
pub(crate) fn read_everything(
    snapshot: &Snapshot,
    tables: &[(u8, Table)],
    key_pad: u16,
) -> Result<BTreeMap<Key, Version>, Stop> {
    let mut contents = BTreeMap::new();
    for (number, table) in tables {
        let forward = snapshot.range(table, ..)?.collect::<tantalum::Result<Vec<_>>>()?;
        let mut backward = snapshot.range(table, ..)?.rev().collect::<tantalum::Result<Vec<_>>>()?;
        backward.reverse();
        if forward != backward {
            return Err(Stop::Odd(format!("table {number} reads differently backward")));
        }
        let rows = rows_of(*number, key_pad, &forward)?;
        contents.extend(rows.into_iter().map(|(row, version)| (Key { table: *number, number: row }, version)));
    }
    Ok(contents)
}
