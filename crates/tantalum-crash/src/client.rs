//! A client: random transactions, recorded as they go.

use std::{
    collections::VecDeque,
    io::{Read, Seek, SeekFrom},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tantalum::{Db, Error, ErrorKind, Snapshot, Table, Transaction, ValueReader};
use tantalum_rt::{Random, simulation::panic_at};

use crate::{
    content::{Filler, Key, VALUE_LEN_MIN, Version, encode_key, encode_value},
    history::{Event, Kind, Recorder},
    load::{Load, LoadKind, STREAMED_BYTES, STREAMED_EVERY},
    rows::{Covered, Span, version_of},
    session::Session,
    stop::Stop,
};

mod awaited;
mod bulk;

use self::awaited::Awaited;

/// The version of rows that the model does not follow.
const SCRATCH: Version = Version { transaction: u32::MAX, operation: 0 };

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
    in_flight: VecDeque<Awaited>,
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
                    let is_blind = load.writes_blindly && self.random.u8(0..4) > 0;
                    self.read_write(|client, transaction, session| {
                        (0..operations).try_for_each(|_| match is_blind {
                            true => client.blind_write(transaction, session),
                            false => client.operation(transaction, session),
                        })
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
        let Session { id, reads, writes, versions, .. } = session;
        let recorder = self.shared.recorder.clone();
        if self.shared.load.stages {
            recorder.record(Event::Staged(versions));
        }
        recorder.record(Event::Commit { id, reads: reads.clone(), writes });
        let refused = |error: Error| match Stop::from(error) {
            Stop::Refused(why) => {
                recorder.count(why, 1);
                recorder.record(Event::RolledBack { id, reads });
                Ok(())
            }
            // Only these leave open whether it took place.
            stop @ (Stop::Failed(_) | Stop::Poisoned(_)) if stop.leaves_outcome_open() => Err(stop),
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
                let awaited = self.awaited(id, ticket);
                self.in_flight.push_back(awaited);
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
        self.in_flight.pop_front().map_or(Ok(()), |awaited| awaited.finish(&self.shared.recorder))
    }

    /// One random operation.
    fn operation(&mut self, transaction: &mut Transaction, session: &mut Session) -> Result<(), Stop> {
        let key = self.key();
        if self.random.u32(0..100) < self.shared.load.reads_percent {
            return match self.random.u8(0..4) {
                0 => self.range(transaction, session, key.table),
                1 => {
                    let value = transaction.get_for_update(self.table(key), self.bytes(key))?;
                    saw(session, key, value.as_deref())
                }
                _ => self.get(transaction, session, key),
            };
        }
        if self.shared.load.deletes_ranges && self.random.u8(0..5) == 0 {
            return self.delete_range(transaction, session, key.table);
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
        if self.shared.load.streams && self.random.bool() {
            let reader = transaction.reader(self.table(key), self.bytes(key))?;
            let value = reader.map(|reader| self.read_in_pieces(reader)).transpose()?;
            return saw(session, key, value.as_deref());
        }
        let value = transaction.get(self.table(key), self.bytes(key))?;
        saw(session, key, value.as_deref())
    }

    /// Reads a value from its end to its beginning, with pauses.
    fn read_in_pieces(&mut self, mut reader: ValueReader) -> Result<Vec<u8>, Stop> {
        let mut value = vec![0; reader.length() as usize];
        let mut end = value.len();
        while end > 0 {
            let begin = end.saturating_sub(self.random.usize(1..20_000));
            let read =
                reader.seek(SeekFrom::Start(begin as u64)).and_then(|_| reader.read_exact(&mut value[begin..end]));
            if let Err(error) = read {
                let source = error.get_ref().and_then(|source| source.downcast_ref::<Error>());
                return Err(match source {
                    Some(source) => source.clone().into(),
                    None => Stop::Violation(format!("a value of {} bytes ends early: {error}", value.len())),
                });
            }
            end = begin;
            self.pause();
        }
        self.shared.recorder.count("values read in pieces", 1);
        Ok(value)
    }

    fn put(&mut self, transaction: &mut Transaction, session: &mut Session, key: Key) -> Result<(), Stop> {
        let version = session.next_version();
        let value = self.value(version);
        if self.shared.load.streams && self.random.bool() {
            transaction.put_from(self.table(key), self.bytes(key), &value[..])?;
        } else {
            transaction.put(self.table(key), self.bytes(key), &value)?;
        }
        session.wrote(key, version);
        Ok(())
    }

    fn insert(&mut self, transaction: &mut Transaction, session: &mut Session, key: Key) -> Result<(), Stop> {
        let version = session.next_version();
        let value = self.value(version);
        match transaction.insert(self.table(key), self.bytes(key), &value) {
            Ok(()) => {
                session.saw_presence(key, false)?;
                session.wrote(key, version);
            }
            Err(error) if error.kind() == ErrorKind::AlreadyExists => session.saw_presence(key, true)?,
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    fn delete(&mut self, transaction: &mut Transaction, session: &mut Session, key: Key) -> Result<(), Stop> {
        if key.number % 2 == 1 {
            return self.blind_delete(transaction, session, key);
        }
        let was_present = transaction.delete(self.table(key), self.bytes(key))?;
        session.saw_presence(key, was_present)?;
        if was_present {
            session.writes.insert(key, None);
        }
        Ok(())
    }

    fn blind_delete(&self, transaction: &mut Transaction, session: &mut Session, key: Key) -> Result<(), Stop> {
        transaction.blind_delete(self.table(key), self.bytes(key))?;
        session.writes.insert(key, None);
        Ok(())
    }

    /// One random write that reads nothing.
    fn blind_write(&mut self, transaction: &mut Transaction, session: &mut Session) -> Result<(), Stop> {
        let key = self.key();
        match self.random.u8(0..5) {
            0 => self.blind_delete(transaction, session, key),
            _ => self.put(transaction, session, key),
        }
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

    /// Deletes the rows of a range. A serializable transaction has the range to itself, so behind it none of its keys is there, whether
    /// they were or not; with snapshot isolation it deletes what it sees, and others may add rows.
    fn delete_range(&mut self, transaction: &mut Transaction, session: &mut Session, table: u8) -> Result<(), Stop> {
        let span = self.span(table).whole();
        let of_table = &self.shared.tables[usize::from(table)];
        let seen = if self.shared.kind == Kind::Serializable {
            None
        } else {
            let Covered { low, high, rows } = span.read(transaction.range(of_table, span.bounds())?)?;
            session.saw_range(table, low, high, rows.clone())?;
            Some(rows)
        };
        let deleted = transaction.delete_range(of_table, span.bounds())? as usize;
        let (expected, keys) = match seen {
            Some(rows) => {
                (rows.len()..=rows.len(), rows.into_iter().map(|(number, _)| Key { table, number }).collect::<Vec<_>>())
            }
            None => (0..=span.keys().count(), span.keys().collect()),
        };
        if !expected.contains(&deleted) {
            let what = format!("a range of {expected:?} rows was deleted, and the call told of {deleted}");
            return Err(Stop::Violation(what));
        }
        self.shared.recorder.count("ranges deleted", 1);
        if deleted == 0 {
            // Nothing was written, so the commit may have no place in the log.
            return Ok(span.saw_nothing(session)?);
        }
        session.writes.extend(keys.into_iter().map(|key| (key, None)));
        Ok(())
    }

    /// Reads a range from one end, to the other or only some rows of it.
    fn range(&mut self, transaction: &mut Transaction, session: &mut Session, table: u8) -> Result<(), Stop> {
        let span = self.span(table);
        let rows = transaction.range(&self.shared.tables[usize::from(table)], span.bounds())?;
        let Covered { low, high, rows } = span.read(rows)?;
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
            saw(session, key, value.as_deref())?;
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
        if self.shared.load.streams && self.random.bool() {
            let reader = snapshot.reader(self.table(key), self.bytes(key))?;
            let value = reader.map(|reader| self.read_in_pieces(reader)).transpose()?;
            return saw(session, key, value.as_deref());
        }
        if self.random.bool() {
            let value = snapshot.get(self.table(key), self.bytes(key))?;
            return saw(session, key, value.as_deref());
        }
        let span = self.span(key.table);
        let rows = snapshot.range(self.table(key), span.bounds())?;
        let Covered { low, high, rows } = span.read(rows)?;
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
        if self.shared.load.bulk_loads && self.random.bool() {
            return self.load_and_drop_table(&name);
        }
        let table = self.shared.db.table(&name)?;
        let rows = self.random.u32(1..20);
        self.put_scratch_rows(&table, 0..rows)?;
        if self.random.u8(0..4) > 0 {
            self.drop_scratch_table(&name)?;
        }
        Ok(())
    }

    /// Commits rows of a table that the model does not follow, up to one that is refused.
    fn put_scratch_rows(&mut self, table: &Table, numbers: impl IntoIterator<Item = u32>) -> Result<(), Stop> {
        let mut transaction = self.shared.db.begin()?;
        for number in numbers {
            match transaction.put(table, encode_key(number, 0), self.value(SCRATCH)) {
                Ok(()) => {}
                Err(error) => match Stop::from(error) {
                    Stop::Refused(_) => break,
                    stop => return Err(stop),
                },
            }
        }
        transaction.commit()?;
        Ok(())
    }

    fn drop_scratch_table(&self, name: &str) -> Result<(), Stop> {
        self.shared.db.drop_table(name)?;
        self.shared.recorder.count("tables dropped", 1);
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
        let len = if load.streams && self.random.u32(0..STREAMED_EVERY) == 0 {
            self.shared.recorder.count("values larger than half a record", 1);
            self.random.usize(STREAMED_BYTES)
        } else if self.random.u32(0..load.large_value_every) == 0 {
            self.random.usize(self.shared.page_size / 8..self.shared.page_size * 5 / 2)
        } else if load.edits_rows && self.random.u8(0..4) > 0 {
            load.value_len.end - 1
        } else {
            self.random.usize(load.value_len.clone())
        };
        let filler = if load.edits_rows { Filler::Fields } else { Filler::Random };
        encode_value(version, len.max(VALUE_LEN_MIN), filler)
    }

    fn span(&mut self, table: u8) -> Span {
        Span::new(&mut self.random, table, self.shared.load.keys, self.shared.load.key_pad)
    }
}

/// Takes note of what a read of `key` found.
fn saw(session: &mut Session, key: Key, value: Option<&[u8]>) -> Result<(), Stop> {
    Ok(session.saw(key, value.map(|value| version_of(key, value)).transpose()?)?)
}
