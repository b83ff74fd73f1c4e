//! A node's state machine in a database.

use std::fmt;

use raft::eraftpb::{ConfState, Entry, SnapshotMetadata};
use tantalum::{Db, Table, Transaction};

use super::{decode, encode};
use crate::state_tables::StateTables;
use crate::{Error, ErrorKind, Result, StateSnapshot};

/// The table that says how far each group has come.
const APPLIED_TABLE: &str = "tantalum-raft-rs";

/// The state of a node, for raft-rs, in tables of a [`Db`]. Clones are handles to the same state.
///
/// The database may have other tables, and those of other groups. A program reads the tables when it likes, and writes them only by
/// [`apply`](Self::apply).
///
/// ```
/// use raft::eraftpb::{ConfState, Entry};
/// use tantalum_raft::raft_rs_storage::StateMachine;
///
/// let directory = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(directory.path().join("db"))?;
/// let machine = StateMachine::new(db, 1, &["words"])?;
/// machine.initialize(&ConfState::from((vec![1, 2, 3], vec![])))?;
/// let entry = Entry { index: 1, term: 1, data: "hello".into(), ..Entry::default() };
/// let counts = machine.apply(&[entry], None, |transaction, tables, entry| transaction.increment(&tables[0], &entry.data, 1))?;
/// assert_eq!((counts, machine.applied()?.index), (vec![1], 1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct StateMachine {
    state: StateTables,
}

impl StateMachine {
    /// The state of group `group` in tables of these names, which are created if need be. All nodes give the same tables in the same
    /// order; no table belongs to two groups.
    ///
    /// # Errors
    /// Those of [`Db::table`].
    pub fn new(db: Db, group: u64, tables: &[&str]) -> Result<StateMachine> {
        Ok(StateMachine { state: StateTables::new(db, group, tables, APPLIED_TABLE)? })
    }

    /// The database.
    pub fn db(&self) -> &Db {
        &self.state.db
    }

    /// Its tables.
    pub fn tables(&self) -> &[Table] {
        &self.state.tables
    }

    /// Gives a group that begins its first configuration, the same on all of its first nodes; nodes that come later get it with a
    /// snapshot. Changes nothing if the group has one. Durable when it returns.
    ///
    /// # Errors
    /// Those of the database.
    pub fn initialize(&self, first: &ConfState) -> Result<()> {
        let initialize = |transaction: &mut Transaction| {
            if self.state.applied_in(transaction)?.is_none() {
                let state = SnapshotMetadata { conf_state: Some(first.clone()).into(), ..SnapshotMetadata::default() };
                self.state.set_applied(transaction, &encode(&state)?)?;
            }
            Ok(())
        };
        self.state.transact(initialize, Transaction::commit_async)?.1.wait().map(drop)
    }

    /// Index and term of the entry that was applied last, 0 if none was, with the configuration then: for
    /// [`Config::applied`](raft::Config::applied). It is durable.
    ///
    /// # Errors
    /// Those of the database, and [`Corrupt`](ErrorKind::Corrupt) if something else is stored there.
    pub fn applied(&self) -> Result<SnapshotMetadata> {
        self.decode(self.state.applied()?)
    }

    /// Applies the entries of a [`Ready`](raft::Ready) or [`LightReady`](raft::LightReady) in one transaction: calls `apply` for each,
    /// with the [tables](Self::new), and returns the answers. `conf_state` is the configuration behind the last of them, if one changes
    /// it. Blank entries and configuration changes come too. All nodes must do the same, so what `apply` does depends on nothing but
    /// the entry and the tables; it is called again where the transaction had to give way to others.
    ///
    /// The commit is not waited for: what a crash takes of it is applied again, from the raft log.
    ///
    /// # Errors
    /// - Those of `apply` and of the database: then nothing was applied.
    /// - [`InvalidInput`](ErrorKind::InvalidInput) if the first entry does not follow the last that was applied.
    pub fn apply<T>(
        &self,
        entries: &[Entry],
        conf_state: Option<&ConfState>,
        mut apply: impl FnMut(&mut Transaction, &[Table], &Entry) -> Result<T>,
    ) -> Result<Vec<T>> {
        let Some(last) = entries.last() else { return Ok(Vec::new()) };
        self.state.apply(|transaction| {
            let mut applied = self.decode(self.state.applied_in(transaction)?)?;
            if entries[0].index != applied.index + 1 {
                let what = format!(
                    "entry {} cannot be applied to the state of raft group {}, which has come to entry {}; give the raft node that index at its start (Config::applied)",
                    entries[0].index, self.state.group, applied.index
                );
                return Err(Error::new(ErrorKind::InvalidInput, what));
            }
            let answers =
                entries.iter().map(|entry| apply(transaction, &self.state.tables, entry)).collect::<Result<Vec<_>>>()?;
            (applied.index, applied.term) = (last.index, last.term);
            if let Some(conf_state) = conf_state {
                applied.conf_state = Some(conf_state.clone()).into();
            }
            self.state.set_applied(transaction, &encode(&applied)?)?;
            Ok(answers)
        })
    }

    /// The rows at one moment, which are durable, and how far they were applied.
    pub(super) fn snapshot(&self) -> Result<(SnapshotMetadata, StateSnapshot)> {
        let (applied, rows) = self.state.snapshot(self.state.db.snapshot()?)?;
        Ok((self.decode(applied)?, rows))
    }

    /// Replaces the rows. Durable when it returns.
    pub(super) fn install(&self, applied: &SnapshotMetadata, rows: &StateSnapshot) -> Result<()> {
        self.state.install(&encode(applied)?, rows)
    }

    fn decode(&self, row: Option<tantalum::Value>) -> Result<SnapshotMetadata> {
        let what = format_args!("how far raft group {} was applied", self.state.group);
        row.map_or_else(|| Ok(SnapshotMetadata::default()), |row| decode(&row, what))
    }
}

impl fmt::Debug for StateMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StateMachine").field("group", &self.state.group).finish_non_exhaustive()
    }
}
