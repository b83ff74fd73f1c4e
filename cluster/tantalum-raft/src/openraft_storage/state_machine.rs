//! A node's state machine in a database.
//!
//! Invariant: the log id that was applied last, and the membership, change in the transaction that changes the rows. So whatever the
//! database has after a crash, openraft applies what follows it, from the raft log, which is purged only up to a snapshot: and what a
//! snapshot shows is durable.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::alias::{LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, SnapshotMeta};
use openraft::{OptionalSend, RaftTypeConfig, StoredMembership};
use tantalum::{Db, Snapshot, Table, Transaction};

use super::{blocking, decode, encode, io_error};
use crate::StateSnapshot;

/// The table that says how far each group has come.
const APPLIED_TABLE: &str = "tantalum-raft";
/// Entries of one transaction, at most.
const BATCH_ENTRIES: usize = 256;
/// A transaction that has to give way to others of the program is tried again so often.
const TRIES: u32 = 100;

/// What a program does with the entries of its log.
///
/// ```
/// use openraft::EntryPayload;
/// use tantalum::{Result, Table, Transaction};
/// use tantalum_raft::openraft_storage::Application;
///
/// openraft::declare_raft_types!(pub Config: D = String, R = u64);
///
/// /// Counts how often each word was said.
/// struct Words;
///
/// impl Application<Config> for Words {
///     fn apply(
///         &self,
///         transaction: &mut Transaction,
///         tables: &[Table],
///         entry: &openraft::alias::EntryOf<Config>,
///     ) -> Result<u64> {
///         match &entry.payload {
///             EntryPayload::Normal(word) => Ok(transaction.increment(&tables[0], word, 1)? as u64),
///             _ => Ok(0),
///         }
///     }
/// }
/// ```
pub trait Application<C: RaftTypeConfig>: Send + Sync + 'static {
    /// Does what an entry says to the [tables](StateMachine::new), and returns the answer for the client. All nodes must do the same,
    /// so it depends on nothing but the entry and the tables, and a request that cannot be done gets an answer that says so. Blank and
    /// membership entries come too. It may be called again for an entry whose transaction was rolled back.
    ///
    /// # Errors
    /// Those of the database: the transaction is tried again if that [helps](tantalum::Error::is_retryable), and else the node stops.
    fn apply(&self, transaction: &mut Transaction, tables: &[Table], entry: &C::Entry) -> tantalum::Result<C::R>;
}

/// The state of a node, for openraft, in tables of a [`Db`]. Clones are handles to the same state.
///
/// The database may have other tables, and those of other groups. A program reads the tables when it likes, and writes them only by raft.
///
/// - The entries that openraft hands over together are applied in one transaction of up to 256. Its commit is not waited for: after a
///   crash, what the database lacks is applied again.
/// - A snapshot is one of the database, so building it takes no time and no space. Installing one is one transaction, which is durable
///   when it is installed.
pub struct StateMachine<C: RaftTypeConfig, A> {
    shared: Arc<Shared<A>>,
    config: std::marker::PhantomData<fn() -> C>,
}

struct Shared<A> {
    db: Db,
    application: A,
    group: u64,
    tables: Vec<Table>,
    applied: Table,
}

/// How far a group has come.
type Applied<C> = (Option<LogIdOf<C>>, StoredMembershipOf<C>);

impl<C: RaftTypeConfig, A: Application<C>> StateMachine<C, A> {
    /// The state of group `group` in tables of these names, which are created if need be. All nodes give the same tables in the same
    /// order; no table belongs to two groups.
    ///
    /// # Errors
    /// Those of [`Db::table`].
    pub fn new(db: Db, group: u64, tables: &[&str], application: A) -> tantalum::Result<Self> {
        let tables = tables.iter().map(|name| db.table(name)).collect::<tantalum::Result<_>>()?;
        let applied = db.table(APPLIED_TABLE)?;
        let shared = Arc::new(Shared { db, application, group, tables, applied });
        Ok(StateMachine { shared, config: std::marker::PhantomData })
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.shared.db
    }

    /// Its tables.
    pub fn tables(&self) -> &[Table] {
        &self.shared.tables
    }
}

impl<A: Send + Sync + 'static> Shared<A> {
    fn key(&self) -> [u8; 8] {
        self.group.to_be_bytes()
    }

    fn decode_applied<C: RaftTypeConfig>(&self, row: Option<tantalum::Value>) -> io::Result<Applied<C>> {
        match row {
            Some(row) => decode(&row, format_args!("how far raft group {} was applied", self.group)),
            None => Ok((None, StoredMembership::default())),
        }
    }

    /// Applies entries in one transaction. Returns the answers.
    fn apply<C: RaftTypeConfig>(&self, entries: &[C::Entry]) -> io::Result<Vec<C::R>>
    where
        A: Application<C>,
    {
        let Some(last) = entries.last() else { return Ok(Vec::new()) };
        let membership = entries
            .iter()
            .rev()
            .find_map(|entry| Some(StoredMembership::new(Some(entry.log_id()), entry.get_membership()?)));
        self.transact(|transaction| {
            let apply = |entry| self.application.apply(transaction, &self.tables, entry);
            let answers = entries.iter().map(apply).collect::<tantalum::Result<Vec<_>>>().map_err(Failed::Database)?;
            let membership = match &membership {
                Some(membership) => membership.clone(),
                None => {
                    let row = transaction.get(&self.applied, self.key()).map_err(Failed::Database)?;
                    self.decode_applied::<C>(row).map_err(Failed::Io)?.1
                }
            };
            let applied: Applied<C> = (Some(last.log_id()), membership);
            let row = encode(&applied).map_err(Failed::Io)?;
            transaction.put(&self.applied, self.key(), row).map_err(Failed::Database)?;
            Ok(answers)
        })
        .map(|(answers, _written_in_the_background)| answers)
    }

    fn install<C: RaftTypeConfig>(&self, meta: &SnapshotMetaOf<C>, snapshot: &StateSnapshot) -> io::Result<()> {
        let applied: Applied<C> = (meta.last_log_id.clone(), meta.last_membership.clone());
        let row = encode(&applied)?;
        let ((), ticket) = self.transact(|transaction| {
            for table in &self.tables {
                transaction.delete_range(table, ..).map_err(Failed::Database)?;
            }
            let mut failed = None;
            let put = |table: u16, key: &[u8], value: &[u8]| {
                let Some(table) = self.tables.get(usize::from(table)) else {
                    let (count, group) = (self.tables.len(), self.group);
                    let what = format!("the snapshot has rows of table {table}, raft group {group} has {count} tables; give all nodes the same");
                    return Err(io::Error::new(io::ErrorKind::InvalidData, what));
                };
                transaction.put(table, key, value).map_err(|error| {
                    failed = Some(error.clone());
                    io_error(error)
                })
            };
            if let Err(error) = snapshot.for_each(put) {
                return Err(failed.map_or(Failed::Io(error), Failed::Database));
            }
            transaction.put(&self.applied, self.key(), &row).map_err(Failed::Database)
        })?;
        ticket.wait().map(drop).map_err(io_error)
    }

    /// Runs a transaction until it need not give way to others.
    fn transact<T>(
        &self,
        mut run: impl FnMut(&mut Transaction) -> Result<T, Failed>,
    ) -> io::Result<(T, tantalum::Ticket)> {
        let mut tries = 0;
        loop {
            tries += 1;
            let done = self.db.begin().map_err(Failed::Database).and_then(|mut transaction| {
                let result = run(&mut transaction)?;
                Ok((result, transaction.commit_async().map_err(Failed::Database)?))
            });
            match done {
                Err(Failed::Database(error)) if error.is_retryable() && tries < TRIES => {}
                Err(Failed::Database(error)) => return Err(io_error(error)),
                Err(Failed::Io(error)) => return Err(error),
                Ok(done) => return Ok(done),
            }
        }
    }

    /// The state that a snapshot of the database shows, with how far it was applied.
    fn snapshot<C: RaftTypeConfig>(&self, snapshot: Snapshot) -> io::Result<SnapshotOf<C, StateSnapshot>> {
        let row = snapshot.get(&self.applied, self.key()).map_err(io_error)?;
        let (last_log_id, last_membership) = self.decode_applied::<C>(row)?;
        let meta = SnapshotMeta { last_log_id, last_membership };
        Ok(SnapshotOf::<C, _> { meta, snapshot: StateSnapshot::of_database(snapshot, self.tables.clone()) })
    }
}

/// Why a transaction was not made.
enum Failed {
    Database(tantalum::Error),
    Io(io::Error),
}

impl<C: RaftTypeConfig, A: Application<C>> RaftStateMachine<C> for StateMachine<C, A> {
    type SnapshotData = StateSnapshot;
    type SnapshotBuilder = SnapshotBuilder<C, A>;

    async fn applied_state(&mut self) -> io::Result<Applied<C>> {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.decode_applied::<C>(shared.db.get(&shared.applied, shared.key()).map_err(io_error)?))
            .await
    }

    async fn apply<Strm>(&mut self, entries: Strm) -> io::Result<()>
    where
        Strm: Stream<Item = io::Result<EntryResponder<C>>> + Unpin + OptionalSend,
    {
        let mut batches = entries.ready_chunks(BATCH_ENTRIES);
        while let Some(batch) = batches.next().await {
            let (entries, responders): (Vec<_>, Vec<_>) =
                batch.into_iter().collect::<io::Result<Vec<_>>>()?.into_iter().unzip();
            let shared = Arc::clone(&self.shared);
            let answers = blocking(move || shared.apply::<C>(&entries)).await?;
            for (responder, answer) in responders.into_iter().zip(answers) {
                if let Some(responder) = responder {
                    responder.send(answer);
                }
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> SnapshotBuilder<C, A> {
        let shared = Arc::clone(&self.shared);
        let snapshot = blocking(move || shared.db.snapshot().map_err(io_error)).await;
        SnapshotBuilder { machine: self.clone(), snapshot: Some(snapshot) }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMetaOf<C>, snapshot: StateSnapshot) -> io::Result<()> {
        let (shared, meta) = (Arc::clone(&self.shared), meta.clone());
        blocking(move || shared.install::<C>(&meta, &snapshot)).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<C, StateSnapshot>>> {
        let shared = Arc::clone(&self.shared);
        let now = blocking(move || shared.snapshot::<C>(shared.db.snapshot().map_err(io_error)?)).await?;
        Ok(now.meta.last_log_id.is_some().then_some(now))
    }
}

/// A snapshot of the database, with what openraft asks about it. From [`StateMachine`].
pub struct SnapshotBuilder<C: RaftTypeConfig, A> {
    machine: StateMachine<C, A>,
    /// Taken when the builder was made; `None` once it was handed over.
    snapshot: Option<io::Result<Snapshot>>,
}

impl<C: RaftTypeConfig, A: Application<C>> RaftSnapshotBuilder<C> for SnapshotBuilder<C, A> {
    type SnapshotData = StateSnapshot;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<C, StateSnapshot>> {
        let taken = self.snapshot.take();
        let shared = Arc::clone(&self.machine.shared);
        blocking(move || shared.snapshot::<C>(taken.unwrap_or_else(|| shared.db.snapshot().map_err(io_error))?)).await
    }
}

impl<C: RaftTypeConfig, A> Clone for StateMachine<C, A> {
    fn clone(&self) -> Self {
        StateMachine { shared: Arc::clone(&self.shared), config: std::marker::PhantomData }
    }
}

impl<C: RaftTypeConfig, A> fmt::Debug for StateMachine<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("group", &self.shared.group).finish_non_exhaustive()
    }
}

impl<C: RaftTypeConfig, A> fmt::Debug for SnapshotBuilder<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotBuilder").field("machine", &self.machine).finish_non_exhaustive()
    }
}
