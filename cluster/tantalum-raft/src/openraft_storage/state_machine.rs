//! A node's state machine in a database. What it lacks after a crash, openraft applies again from the raft log, which is purged only up to
//! a snapshot: and what a snapshot shows is durable.

use std::fmt;
use std::io;
use std::sync::Arc;

use futures_util::{Stream, StreamExt};
use openraft::alias::{LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use openraft::entry::RaftEntry;
use openraft::storage::{EntryResponder, RaftSnapshotBuilder, RaftStateMachine, SnapshotMeta};
use openraft::{OptionalSend, RaftTypeConfig, StoredMembership};
use tantalum::{Db, Snapshot, Table, Transaction};

use super::{blocking, decode, encode};
use crate::StateSnapshot;
use crate::state_tables::StateTables;

/// The table that says how far each group has come.
const APPLIED_TABLE: &str = "tantalum-raft";
/// Entries of one transaction, at most.
const BATCH_ENTRIES: usize = 256;

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

    /// A snapshot has replaced the rows of the tables, durably; entries behind it are applied after this. For what a program keeps in
    /// memory of them. Does nothing unless it is implemented.
    ///
    /// # Errors
    /// Those of the database: the node stops.
    fn replaced(&self, _transaction: &Transaction, _tables: &[Table]) -> tantalum::Result<()> {
        Ok(())
    }
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
    state: StateTables,
    application: A,
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
        let state = StateTables::new(db, group, tables, APPLIED_TABLE)?;
        let shared = Arc::new(Shared { state, application });
        Ok(StateMachine { shared, config: std::marker::PhantomData })
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.shared.state.db
    }

    /// Its tables.
    pub fn tables(&self) -> &[Table] {
        &self.shared.state.tables
    }
}

impl<A> Shared<A> {
    fn decode_applied<C: RaftTypeConfig>(&self, row: Option<tantalum::Value>) -> tantalum::Result<Applied<C>> {
        match row {
            Some(row) => decode(&row, format_args!("how far raft group {} was applied", self.state.group)),
            None => Ok((None, StoredMembership::default())),
        }
    }

    /// Applies entries in one transaction. Returns the answers.
    fn apply<C: RaftTypeConfig>(&self, entries: &[C::Entry]) -> tantalum::Result<Vec<C::R>>
    where
        A: Application<C>,
    {
        let Some(last) = entries.last() else { return Ok(Vec::new()) };
        let membership = entries
            .iter()
            .rev()
            .find_map(|entry| Some(StoredMembership::new(Some(entry.log_id()), entry.get_membership()?)));
        self.state.apply(|transaction| {
            let apply = |entry| self.application.apply(transaction, &self.state.tables, entry);
            let answers = entries.iter().map(apply).collect::<tantalum::Result<Vec<_>>>()?;
            let membership = match &membership {
                Some(membership) => membership.clone(),
                None => self.decode_applied::<C>(self.state.applied_in(transaction)?)?.1,
            };
            let applied: Applied<C> = (Some(last.log_id()), membership);
            self.state.set_applied(transaction, &encode(&applied)?)?;
            Ok(answers)
        })
    }

    fn install<C: RaftTypeConfig>(&self, meta: &SnapshotMetaOf<C>, rows: &StateSnapshot) -> tantalum::Result<()>
    where
        A: Application<C>,
    {
        let applied: Applied<C> = (meta.last_log_id.clone(), meta.last_membership.clone());
        self.state.install(&encode(&applied)?, rows)?;
        self.application.replaced(&self.state.db.begin()?, &self.state.tables)
    }

    /// The state that a snapshot of the database shows, with how far it was applied.
    fn snapshot<C: RaftTypeConfig>(&self, snapshot: Snapshot) -> tantalum::Result<SnapshotOf<C, StateSnapshot>> {
        let (applied, snapshot) = self.state.snapshot(snapshot)?;
        let (last_log_id, last_membership) = self.decode_applied::<C>(applied)?;
        Ok(SnapshotOf::<C, _> { meta: SnapshotMeta { last_log_id, last_membership }, snapshot })
    }
}

impl<C: RaftTypeConfig, A: Application<C>> RaftStateMachine<C> for StateMachine<C, A> {
    type SnapshotData = StateSnapshot;
    type SnapshotBuilder = SnapshotBuilder<C, A>;

    async fn applied_state(&mut self) -> io::Result<Applied<C>> {
        let shared = Arc::clone(&self.shared);
        blocking(move || shared.decode_applied::<C>(shared.state.applied()?)).await
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
        SnapshotBuilder { machine: self.clone(), snapshot: Some(self.shared.state.db.snapshot()) }
    }

    async fn install_snapshot(&mut self, meta: &SnapshotMetaOf<C>, snapshot: StateSnapshot) -> io::Result<()> {
        let (shared, meta) = (Arc::clone(&self.shared), meta.clone());
        blocking(move || shared.install::<C>(&meta, &snapshot)).await
    }

    async fn get_current_snapshot(&mut self) -> io::Result<Option<SnapshotOf<C, StateSnapshot>>> {
        let shared = Arc::clone(&self.shared);
        let now = blocking(move || shared.snapshot::<C>(shared.state.db.snapshot()?)).await?;
        Ok(now.meta.last_log_id.is_some().then_some(now))
    }
}

/// A snapshot of the database, with what openraft asks about it. From [`StateMachine`].
pub struct SnapshotBuilder<C: RaftTypeConfig, A> {
    machine: StateMachine<C, A>,
    /// Taken when the builder was made; `None` once it was handed over.
    snapshot: Option<tantalum::Result<Snapshot>>,
}

impl<C: RaftTypeConfig, A: Application<C>> RaftSnapshotBuilder<C> for SnapshotBuilder<C, A> {
    type SnapshotData = StateSnapshot;

    async fn build_snapshot(&mut self) -> io::Result<SnapshotOf<C, StateSnapshot>> {
        let taken = self.snapshot.take();
        let shared = Arc::clone(&self.machine.shared);
        blocking(move || shared.snapshot::<C>(taken.unwrap_or_else(|| shared.state.db.snapshot())?)).await
    }
}

impl<C: RaftTypeConfig, A> Clone for StateMachine<C, A> {
    fn clone(&self) -> Self {
        StateMachine { shared: Arc::clone(&self.shared), config: std::marker::PhantomData }
    }
}

impl<C: RaftTypeConfig, A> fmt::Debug for StateMachine<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("group", &self.shared.state.group).finish_non_exhaustive()
    }
}

impl<C: RaftTypeConfig, A> fmt::Debug for SnapshotBuilder<C, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SnapshotBuilder").field("machine", &self.machine).finish_non_exhaustive()
    }
}
