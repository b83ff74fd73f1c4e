//! Staging tables: where the writes of a transaction lie that is too large for one record of the log, until they are in their tables.
//!
//! A staging table is a tree of its own, which only the catalog knows. It holds writes of one transaction to one table. While the
//! transaction runs, it [spills](spill) its writes there. Its commit is one change group in the catalog, which says that its staging
//! tables count. From then on the rows are read from there, until the [applier] has moved them: each of its change groups puts
//! rows into the table and deletes them from the staging table.
//!
//! Invariants:
//! - a row of a committed staging table is newer than what its table has for the key, and older than a row for it in a staging table
//!   that was committed later; so readers look there first, from the newest on, and the applier moves the oldest first
//! - a commit that writes a staged key deletes the staged rows in the same group
//! - a key that a running transaction has staged is locked by it; an undone write leaves a row that only says so
//! - a staging table's pages are freed when no task looks at it any more
//!
//! A [change buffer] is a staging table of many commits: of their writes whose leaves are not in memory. It is committed from the
//! beginning, and a row of it counts with the group that puts it there.
//!
//! A table without staging tables costs readers and writers one look at a number.
//!
//! [change buffer]: change_buffer

mod applier;
mod change_buffer;
mod feed;
mod filter;
mod gain;
mod move_rows;
mod spill;
mod undo;

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

use tantalum_log::Lsn;
use tantalum_rt::{Mutex, MutexGuard, RwLock};
use tantalum_store::TableId;

pub(in crate::transaction) use self::{
    applier::Applier,
    change_buffer::{ChangeBuffers, Deferral},
    spill::{Staged, is_too_much},
};
use self::{change_buffer::Buffer, gain::Gain};
use super::{
    Content, Value,
    batch::{Batch, End},
    key_range::Interval,
    locks::{TableLocks, TransactionId},
    range,
};
use crate::{
    error::{Error, ErrorKind, Result},
    tree::{LeafValue, Reference, Tree},
};

/// A key and the locks of its table.
type LockedKey = (Arc<TableLocks>, Value);

/// A transaction that has staged writes.
#[derive(Debug)]
pub(crate) struct Stager {
    owner: TransactionId,
    /// Where in the log it has committed; 0 before.
    position: AtomicU64,
    /// The staged keys that other transactions wait for, which are locked as all others are; `None` when it is over.
    waited_for: Mutex<Option<Vec<LockedKey>>>,
}

impl Stager {
    pub fn new(owner: TransactionId) -> Self {
        Self { owner, position: AtomicU64::new(0), waited_for: Mutex::new(Some(Vec::new())) }
    }

    /// Says that the transaction has committed there: all of its rows count at once.
    pub fn commit(&self, position: Lsn) {
        let before = self.position.swap(position.get(), Ordering::AcqRel);
        assert_eq!(before, 0, "a transaction commits once");
    }

    /// Releases its staged keys.
    pub fn end(&self) {
        let keys = self.waited_for.lock().take();
        for (locks, key) in keys.into_iter().flatten() {
            locks.release(self.owner, key);
        }
    }

    /// Gives the lock on a staged key from `other`, which has just got it, to this transaction. False if that is over.
    fn take_back(&self, locks: &Arc<TableLocks>, other: TransactionId, key: &Value) -> bool {
        let mut waited_for = self.waited_for.lock();
        let Some(keys) = &mut *waited_for else { return false };
        if locks.give(other, self.owner, key) {
            keys.push((Arc::clone(locks), key.clone()));
        }
        true
    }
}

/// What a staged row makes of its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StagedWrite {
    Put(Content),
    Delete,
    /// Nothing: its write was undone, but the key stays locked.
    Undone,
}

const DELETE: u8 = 0;
const PUT: u8 = 1;
const UNDONE: u8 = 2;
/// A large value: a reference to it follows.
const PUT_LARGE: u8 = 3;

/// Bytes that a row has beside those of its value.
pub(super) const ROW_HEAD_BYTES: usize = 1;

impl StagedWrite {
    /// What a transaction has made of a key: `None` if nothing.
    pub fn made(self) -> Option<Option<Content>> {
        match self {
            Self::Put(value) => Some(Some(value)),
            Self::Delete => Some(None),
            Self::Undone => None,
        }
    }

    /// The large value that it names.
    pub(in crate::transaction) fn reference(&self) -> Option<Reference> {
        match self {
            Self::Put(content) => content.reference(),
            Self::Delete | Self::Undone => None,
        }
    }

    /// Bytes of the value that the row itself has.
    pub(super) fn value_bytes(&self) -> usize {
        match self {
            Self::Put(content) => content.memory_bytes(),
            Self::Delete | Self::Undone => 0,
        }
    }

    /// The bytes of the row.
    pub fn encode(made: Option<&Option<Content>>) -> Vec<u8> {
        match made {
            Some(Some(Content::Large(reference))) => [&[PUT_LARGE][..], &reference.encode()].concat(),
            Some(Some(Content::Bytes(value))) => {
                let mut bytes = Vec::with_capacity(ROW_HEAD_BYTES + value.len());
                bytes.push(PUT);
                bytes.extend_from_slice(value);
                bytes
            }
            Some(None) => vec![DELETE],
            None => vec![UNDONE],
        }
    }

    /// The bytes of the row of a write whose value is not large.
    pub(in crate::transaction) fn encode_write(value: Option<LeafValue<'_>>) -> Vec<u8> {
        match value {
            Some(LeafValue::Bytes(value)) => [&[PUT][..], value].concat(),
            Some(LeafValue::Reference(_)) => unreachable!("a large value is not deferred"),
            None => vec![DELETE],
        }
    }

    /// What the bytes of a row say; no bytes are those of a large value that was removed while it was read.
    pub fn decode(bytes: Value) -> Result<Option<Self>> {
        match (bytes.first(), bytes.len()) {
            (None, _) => Ok(None),
            (Some(&PUT), _) => Ok(Some(Self::Put(bytes.without_first().into()))),
            (Some(&PUT_LARGE), _) if let Some(reference) = Reference::decode(&bytes[1..]) => {
                Ok(Some(Self::Put(Content::Large(reference))))
            }
            (Some(&DELETE), 1) => Ok(Some(Self::Delete)),
            (Some(&UNDONE), 1) => Ok(Some(Self::Undone)),
            (Some(other), _) => Err(Error::new(
                ErrorKind::Corrupt,
                format!(
                    "a staged row begins with {other}, which is no kind of row; restore the database from a backup"
                ),
            )),
        }
    }
}

/// A staging table.
pub(crate) struct StagingTree {
    tree: Tree,
    stager: Arc<Stager>,
    /// Of a change buffer that was made since the database was opened.
    buffer: Option<Buffer>,
}

impl fmt::Debug for StagingTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StagingTree").field("id", &self.id()).field("position", &self.position()).finish()
    }
}

impl StagingTree {
    pub fn new(tree: Tree, stager: &Arc<Stager>) -> Self {
        Self { tree, stager: Arc::clone(stager), buffer: None }
    }

    /// One that was found at opening. All that commit later have larger positions.
    pub fn recovered(tree: Tree, position: u64) -> Self {
        let stager = Stager { owner: TransactionId(0), position: position.into(), waited_for: Mutex::new(None) };
        Self { tree, stager: Arc::new(stager), buffer: None }
    }

    /// A change buffer, made at this position.
    fn change_buffer(tree: Tree, position: Lsn, buffer: Buffer) -> Self {
        Self { buffer: Some(buffer), ..Self::recovered(tree, position.get()) }
    }

    /// Whether it is a change buffer that was made since the database was opened.
    pub(in crate::transaction) fn is_change_buffer(&self) -> bool {
        self.buffer.is_some()
    }

    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// The number of its pages' owner.
    pub fn id(&self) -> TableId {
        self.tree.owner()
    }

    /// Where its transaction has committed, or it was made, if it is a change buffer; 0 if it has not.
    pub fn position(&self) -> u64 {
        self.stager.position.load(Ordering::Acquire)
    }

    /// What is staged for a key.
    pub fn get(&self, key: &[u8]) -> Result<Option<StagedWrite>> {
        Ok(self.find(key)?.map(|(write, _)| write))
    }

    /// What is staged for a key, and how far the log must be durable before a caller gets it, if it is committed.
    fn find(&self, key: &[u8]) -> Result<Option<(StagedWrite, Lsn)>> {
        if !self.may_have(key) {
            return Ok(None);
        }
        let found = self.tree.read(key, |row, leaf| match row {
            Some(LeafValue::Bytes(row)) => Ok(Some((Value::from(row), leaf))),
            Some(LeafValue::Reference(_)) => Err(damaged(&self.tree)),
            None => Ok(None),
        })??;
        let Some((row, leaf)) = found else { return Ok(None) };
        Ok(StagedWrite::decode(row)?.map(|write| (write, self.shown_lsn(leaf))))
    }

    /// False only if nothing is staged for a key.
    fn may_have(&self, key: &[u8]) -> bool {
        self.buffer.as_ref().is_none_or(|buffer| buffer.may_have(key))
    }

    /// How far the log must be durable before a caller gets a row of a leaf with this LSN: the rows of a transaction count with its
    /// commit, those of a change buffer each with its own.
    fn shown_lsn(&self, leaf: Lsn) -> Lsn {
        if self.is_change_buffer() { leaf } else { Lsn::new(self.position()) }
    }

    /// The rows at one end of an interval, at most `limit`, the part of the interval that they are all rows of, and how far the log must
    /// be durable before a caller gets them, if they are committed.
    pub(in crate::transaction) fn range(
        &self,
        interval: &Interval,
        end: End,
        limit: usize,
    ) -> Result<(Interval, Vec<StagedRow>, Lsn)> {
        let mut batch = Batch::default();
        let (covered, leaf) = range::fill(&self.tree, interval, end, limit, &mut batch)?;
        batch.read_large(&self.tree)?;
        let mut rows = Vec::new();
        while let Some(row) = batch.take(End::Front) {
            let (key, content) = row?;
            let bytes = content.into_bytes()?;
            rows.extend(StagedWrite::decode(bytes)?.map(|write| (key, write)));
        }
        Ok((covered, rows, self.shown_lsn(leaf)))
    }

    /// A key of an interval for which anything is staged.
    fn first_key(&self, interval: &Interval) -> Result<Option<Value>> {
        let mut rest = interval.clone();
        while !rest.is_empty() {
            let (covered, mut rows, _) = self.range(&rest, End::Front, 1)?;
            if let Some((key, _)) = rows.pop() {
                return Ok(Some(key));
            }
            rest.lower = covered.upper;
        }
        Ok(None)
    }
}

/// A staged key and what is to become of it.
pub(crate) type StagedRow = (Value, StagedWrite);

/// The staging tables with rows for one table.
#[derive(Debug, Default)]
pub(crate) struct TableStaging {
    /// How many there are.
    count: AtomicUsize,
    list: RwLock<Arc<[Arc<StagingTree>]>>,
    /// The change buffer that takes writes; it is in the list too.
    open_buffer: RwLock<Option<Arc<StagingTree>>>,
    gain: Gain,
    /// Whether the table was dropped. The applier holds it while it moves rows.
    retired: Mutex<bool>,
}

/// Staging tables that are committed, the newest first.
pub(in crate::transaction) type Committed = Vec<(u64, Arc<StagingTree>)>;

impl TableStaging {
    /// Whether there are any.
    #[inline]
    pub fn has_any(&self) -> bool {
        self.count.load(Ordering::Acquire) > 0
    }

    /// Whether it pays to defer writes to the table.
    pub(in crate::transaction) fn gain(&self) -> &Gain {
        &self.gain
    }

    pub fn add(&self, staged: Arc<StagingTree>) {
        let mut list = self.list.write();
        *list = list.iter().cloned().chain([staged]).collect();
        self.count.store(list.len(), Ordering::Release);
    }

    pub fn remove(&self, id: TableId) {
        let mut list = self.list.write();
        *list = list.iter().filter(|staged| staged.id() != id).cloned().collect();
        self.count.store(list.len(), Ordering::Release);
    }

    /// The table was dropped: no row is moved any more. Returns its staging tables, which no reader finds from now on.
    pub fn retire(&self) -> Arc<[Arc<StagingTree>]> {
        *self.retired.lock() = true;
        *self.open_buffer.write() = None;
        self.count.store(0, Ordering::Release);
        std::mem::take(&mut *self.list.write())
    }

    /// Keeps the table from being dropped meanwhile; `None` if it was.
    pub fn unless_retired(&self) -> Option<MutexGuard<'_, bool>> {
        let retired = self.retired.lock();
        (!*retired).then_some(retired)
    }

    /// The one with this number.
    pub fn with_id(&self, id: TableId) -> Option<Arc<StagingTree>> {
        if self.has_any() { self.all().iter().find(|staged| staged.id() == id).cloned() } else { None }
    }

    /// The numbers of all.
    pub fn ids(&self) -> BTreeSet<TableId> {
        self.all().iter().map(|staged| staged.id()).collect()
    }

    fn all(&self) -> Arc<[Arc<StagingTree>]> {
        Arc::clone(&self.list.read())
    }

    /// False only if nothing is staged for a key, in any staging table.
    pub(in crate::transaction) fn may_have(&self, key: &[u8]) -> bool {
        self.has_any() && self.all().iter().any(|staged| staged.may_have(key))
    }

    /// Those of transactions that have committed up to a position, the newest first.
    pub fn committed(&self, up_to: u64) -> Committed {
        if !self.has_any() {
            return Vec::new();
        }
        let all = self.all();
        let with_position = all.iter().map(|staged| (staged.position(), Arc::clone(staged)));
        let mut committed: Committed = with_position.filter(|(at, _)| (1..=up_to).contains(at)).collect();
        committed.sort_by_key(|(position, _)| std::cmp::Reverse(*position));
        committed
    }

    /// What the transactions that have committed up to a position have staged for a key, and how far the log must be durable before
    /// a caller gets it. If nothing, the leaf that is looked at after this has it.
    #[inline]
    pub fn get(&self, key: &[u8], up_to: u64) -> Result<Option<(Option<Content>, Lsn)>> {
        if self.may_have(key) { self.find(key, up_to) } else { Ok(None) }
    }

    #[cold]
    fn find(&self, key: &[u8], up_to: u64) -> Result<Option<(Option<Content>, Lsn)>> {
        for (_, staged) in self.committed(up_to) {
            if let Some((write, lsn)) = staged.find(key)?
                && let Some(made) = write.made()
            {
                return Ok(Some((made, lsn)));
            }
        }
        Ok(None)
    }

    /// Whether a transaction that has committed after a position has staged something for a key that is locked. What a snapshot that
    /// is alive does not see is in no change buffer.
    pub fn is_overwritten(&self, key: &[u8], after: u64) -> Result<bool> {
        for (position, staged) in self.committed(u64::MAX) {
            if position > after && staged.get(key)?.and_then(StagedWrite::made).is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Those of running transactions other than `owner`.
    fn of_others(&self, owner: TransactionId) -> impl Iterator<Item = Arc<StagingTree>> {
        let all = if self.has_any() { self.all() } else { Arc::default() };
        let others = all.iter().filter(|staged| staged.stager.owner != owner).cloned().collect::<Vec<_>>();
        others.into_iter().filter(|staged| staged.stager.waited_for.lock().is_some())
    }

    /// Whether a running transaction has staged a key that `owner` has just locked. It then has the lock, and `owner` waits for it.
    pub fn take_back(&self, locks: &Arc<TableLocks>, owner: TransactionId, key: &Value) -> Result<bool> {
        for staged in self.of_others(owner) {
            if staged.get(key)?.is_some() && staged.stager.take_back(locks, owner, key) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// A key of an interval that a running transaction other than `owner` has staged, now locked by that.
    pub fn locked_in(
        &self,
        locks: &Arc<TableLocks>,
        owner: TransactionId,
        interval: &Interval,
    ) -> Result<Option<Value>> {
        for staged in self.of_others(owner) {
            if let Some(key) = staged.first_key(interval)?
                && staged.stager.take_back(locks, owner, &key)
            {
                return Ok(Some(key));
            }
        }
        Ok(None)
    }
}

#[cold]
fn damaged(tree: &Tree) -> Error {
    let what = format!("a row of table {} names a large value, which no row there does", tree.owner());
    Error::new(ErrorKind::Corrupt, what + "; restore the database from a backup")
}
