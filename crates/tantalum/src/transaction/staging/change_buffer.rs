//! Change buffers: staging tables for writes of commits whose leaves are not in memory, so that such a write waits for no read of its
//! leaf ("change buffering").
//!
//! Each table has at most one that takes writes. When it has its share of memory, it is sealed, and waits until buffers with many rows
//! wait: then the [applier](super::applier) moves the rows of all of them together, in key order, so that many come to one leaf. What is
//! sealed is looked into through a [filter](super::filter), and need not be in memory. Buffers of a table are moved by themselves if few
//! of its writes are put into them, or if it [does not pay](super::gain) to defer these.
//!
//! A write is deferred only if no snapshot is alive, so no snapshot that is sees what a row of a change buffer replaces: all see the
//! row.
//!
//! Invariants:
//! - no row is put into a buffer that is sealed: a commit looks for that under the latch of the buffer's leaf
//! - a row of a change buffer is newer than what buffers that were made before have for its key
//! - a commit that puts a row into a change buffer deletes what large transactions have staged for its key
//! - the applier is given all buffers of a table before it is given what a large transaction has staged for that

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{Instant, Mutex};
use tantalum_store::{Logging, PageId, TableId};

use super::{
    ROW_HEAD_BYTES, StagingTree, TableStaging,
    filter::Filter,
    gain::{Moved, PassedOver},
};
use crate::{
    buffer::BufferPool,
    db::Core,
    error::{ErrorKind, Result},
    table::Table,
    transaction::Manager,
    tree::{LeafValue, LeafWrite},
};

/// Buffers that take writes have rows of at most this part of the buffer pool's bytes: twice as much with the space that is free in their
/// leaves.
const OPEN_POOL_PART: u64 = 12;
/// They have at most this part of what change buffers may have.
const OPEN_PART: u64 = 8;
/// Change buffers have rows of at most this part of the data's bytes.
const DATA_PART: u64 = 2;
/// The rows of sealed buffers are moved when they have this part of what change buffers may have.
const WAITING_PART: u64 = 2;
/// Bytes of a buffer's rows for each bit of its filter.
const FILTER_BYTES_PER_BIT: u64 = 8;
/// Bytes that a row has in a leaf beside key and value, about.
const ROW_OVERHEAD_BYTES: usize = 8;
/// How often it is looked whether few writes are put into buffers; and so long after a device had no room, none is made.
const REST: Duration = Duration::from_secs(1);

/// What a [`StagingTree`] that is a change buffer has beside its tree.
#[derive(Debug)]
pub(super) struct Buffer {
    filter: Filter,
    bytes: AtomicU64,
    is_sealed: AtomicBool,
    /// Of all change buffers.
    total_bytes: Arc<AtomicU64>,
}

impl Buffer {
    /// False only if it has no row for the key.
    pub fn may_have(&self, key: &[u8]) -> bool {
        self.filter.may_have(key)
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        self.total_bytes.fetch_sub(*self.bytes.get_mut(), Ordering::Relaxed);
    }
}

impl StagingTree {
    /// Whether it is a change buffer that takes no writes any more.
    pub(in crate::transaction) fn is_sealed(&self) -> bool {
        self.buffer.as_ref().is_some_and(|buffer| buffer.is_sealed.load(Ordering::Acquire))
    }

    /// A row for this key is about to be put into this change buffer.
    pub(in crate::transaction) fn expect_key(&self, key: &[u8]) {
        self.buffer.iter().for_each(|buffer| buffer.filter.add(key));
    }

    fn buffered_bytes(&self) -> u64 {
        self.buffer.as_ref().map_or(0, |buffer| buffer.bytes.load(Ordering::Relaxed))
    }
}

impl TableStaging {
    /// The change buffer that takes writes.
    fn open_buffer(&self) -> Option<Arc<StagingTree>> {
        self.open_buffer.read().clone()
    }

    /// Whether there is one.
    pub fn has_open_buffer(&self) -> bool {
        self.has_any() && self.open_buffer.read().is_some()
    }

    fn open(&self, buffer: Arc<StagingTree>) {
        self.add(Arc::clone(&buffer));
        *self.open_buffer.write() = Some(buffer);
    }

    /// Seals the change buffer that takes writes.
    fn seal(&self) -> Option<Arc<StagingTree>> {
        let staged = self.open_buffer.write().take()?;
        staged.buffer.iter().for_each(|buffer| buffer.is_sealed.store(true, Ordering::Release));
        Some(staged)
    }
}

/// Where a write goes whose leaf is not in memory.
pub(in crate::transaction) enum Deferral {
    /// To a change buffer.
    To(Arc<StagingTree>),
    /// To a change buffer that is to be made first.
    ToNew,
    /// To its leaf, which is read for it.
    ToLeaf,
}

/// The change buffers of a database.
#[derive(Debug)]
pub(in crate::transaction) struct ChangeBuffers {
    pool: BufferPool,
    /// Bytes of rows that they have at most, about, however much data there is.
    limit_bytes: u64,
    /// Those that take writes.
    open_limit_bytes: u64,
    /// Bytes of rows of all.
    total_bytes: Arc<AtomicU64>,
    /// What was ever put into one, in bytes.
    put_bytes: AtomicU64,
    passed_over: PassedOver,
    waiting: Mutex<Waiting>,
    /// Whether there are any whose rows are not being moved.
    are_any: AtomicBool,
}

/// Change buffers whose rows are not being moved.
#[derive(Debug, Default)]
struct Waiting {
    /// Tables with one that takes writes.
    open: Vec<Table>,
    sealed: Vec<(Table, Arc<StagingTree>)>,
    /// Until so much was ever put into one, the device has room for it.
    room_until: u64,
    /// When it is looked again whether the device has, after it had not.
    not_before: Option<Instant>,
    /// When it was looked last whether few writes are put into them.
    looked: Option<Instant>,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        self.open.is_empty() && self.sealed.is_empty()
    }

    /// The table of each.
    fn tables(&self) -> impl Iterator<Item = &Table> {
        self.open.iter().chain(self.sealed.iter().map(|(table, _)| table))
    }

    /// Bytes of rows of those that are sealed.
    fn sealed_bytes(&self) -> u64 {
        self.sealed.iter().map(|(_, staged)| staged.buffered_bytes()).sum()
    }

    fn seal(&mut self, table: &Table) {
        self.open.retain(|open| open.id() != table.id());
        if let Some(staged) = table.staging().seal() {
            self.sealed.push((table.clone(), staged));
        }
    }
}

impl ChangeBuffers {
    pub fn new(core: &Core) -> Self {
        // In-page logging defers changes by itself.
        let is_of_use = core.pool.store().logging() == Logging::Redo && !core.is_read_only;
        let limit_bytes = if is_of_use { core.settings.change_buffer_bytes() } else { 0 };
        Self {
            pool: core.pool.clone(),
            limit_bytes,
            open_limit_bytes: core.settings.buffer_pool_bytes() / OPEN_POOL_PART,
            total_bytes: Arc::default(),
            put_bytes: AtomicU64::new(0),
            passed_over: PassedOver::new(core.pool.frames()),
            waiting: Mutex::default(),
            are_any: AtomicBool::new(false),
        }
    }

    /// Bytes of rows that they have at most now, about.
    fn limit_bytes(&self) -> u64 {
        let data_bytes = self.pool.store().capacity_pages().saturating_mul(self.pool.page_size() as u64);
        self.limit_bytes.min(data_bytes / DATA_PART)
    }

    /// Of those, the bytes that buffers have which take writes.
    fn open_limit_bytes(&self) -> u64 {
        self.open_limit_bytes.min(self.limit_bytes() / OPEN_PART)
    }

    /// Whether writes can be deferred at all.
    pub fn are_in_use(&self) -> bool {
        self.limit_bytes > 0
    }

    /// Where a write to a table goes whose leaf, or a page on the way to that, is not in memory, or is to be spared another store. `was_read`:
    /// the transaction has read rows of the table.
    pub fn deferral(&self, table: &Table, write: &LeafWrite<'_>, leaf: PageId, was_read: bool) -> Deferral {
        let value_bytes = match write.value {
            Some(LeafValue::Bytes(value)) => value.len(),
            Some(LeafValue::Reference(_)) => return Deferral::ToLeaf,
            None => 0,
        };
        let gain = table.staging().gain();
        if value_bytes + ROW_HEAD_BYTES > table.tree().inline_limit()
            || self.bytes() >= self.limit_bytes()
            || was_read && !gain.are_many()
            || self.passed_over.has(leaf)
            || !gain.defers(write.key.len() + value_bytes + ROW_OVERHEAD_BYTES)
        {
            return Deferral::ToLeaf;
        }
        table.staging().open_buffer().map_or(Deferral::ToNew, Deferral::To)
    }

    /// Notes that rows were put into a change buffer instead of these leaves. Returns whether it is full.
    pub fn note_put(
        &self,
        staged: &StagingTree,
        keys_and_rows: impl Iterator<Item = usize>,
        leaves: &[PageId],
    ) -> bool {
        leaves.iter().for_each(|leaf| self.passed_over.add(*leaf));
        let Some(buffer) = &staged.buffer else { return false };
        let bytes = keys_and_rows.map(|bytes| (bytes + ROW_OVERHEAD_BYTES) as u64).sum();
        self.total_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.put_bytes.fetch_add(bytes, Ordering::Relaxed);
        let in_buffer = buffer.bytes.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Together they have no more.
        in_buffer >= self.open_limit_bytes() / self.waiting.lock().open.len().max(1) as u64
    }

    /// How many times as many rows as there are in buffers are moved together as a rule.
    fn times_as_many(&self) -> f64 {
        let bytes = self.limit_bytes() / WAITING_PART;
        (bytes as f64 / self.bytes().max(1) as f64).max(1.0)
    }

    /// Buffers whose rows are not being moved.
    pub fn count(&self) -> u64 {
        let waiting = self.waiting.lock();
        (waiting.open.len() + waiting.sealed.len()) as u64
    }

    /// Bytes of rows in all that have not been freed.
    pub fn bytes(&self) -> u64 {
        self.total_bytes.load(Ordering::Relaxed)
    }

    /// After what time it is to be looked again whether they rest; `None` if there are none whose rows are not being moved. The caller may
    /// have locked the applier's work, which is locked after [`waiting`](Self::waiting).
    pub fn look_after(&self) -> Option<Duration> {
        self.are_any.load(Ordering::Acquire).then_some(REST)
    }
}

impl Manager {
    /// Makes a change buffer for a table, unless it has one. False if the device has no room for what is deferred, or while another task
    /// commits a large transaction or makes a buffer, which may take longer than reading leaves. No latch, reservation or pin budget may
    /// be held.
    pub(in crate::transaction) fn make_change_buffer(&self, table: &Table) -> Result<bool> {
        let Some(_order) = self.staged_commits.try_lock() else { return Ok(false) };
        if table.staging().open_buffer().is_some() {
            return Ok(true);
        }
        if self.buffers.waiting.lock().not_before.is_some_and(|at| tantalum_rt::now() < at) {
            return Ok(false);
        }
        match self.ensure_room_to_defer().and_then(|()| self.new_change_buffer(table)) {
            Err(error) if error.kind() == ErrorKind::StoreFull => {
                self.buffers.waiting.lock().not_before = Some(tantalum_rt::now() + REST);
                return Ok(false);
            }
            made => made?,
        }
        self.wake_applier();
        Ok(true)
    }

    /// Sees to it that the device has room for what is deferred next: for its own rows, and for leaves that are split when they are moved.
    /// What is free is counted once for many buffers, since many may be small.
    fn ensure_room_to_defer(&self) -> Result<()> {
        let put_bytes = self.buffers.put_bytes.load(Ordering::Relaxed);
        if put_bytes >= self.buffers.waiting.lock().room_until {
            let (core, bytes) = (self.core(), self.buffers.open_limit_bytes());
            core.space.ensure_free(4 * bytes / u64::from(core.superblock.page_size))?;
            self.buffers.waiting.lock().room_until = put_bytes + bytes;
        }
        Ok(())
    }

    fn new_change_buffer(&self, table: &Table) -> Result<()> {
        let (core, buffers) = (self.core(), &self.buffers);
        let (tree, position) = core.catalog.create_change_buffer(table.id(), core.pool.end().get())?;
        let mut waiting = buffers.waiting.lock();
        // As many rows as it may have, with those that others have which take writes.
        let bits = buffers.open_limit_bytes() / (waiting.open.len() as u64 + 1) / FILTER_BYTES_PER_BIT;
        let buffer = Buffer {
            filter: Filter::new(usize::try_from(bits).unwrap_or(usize::MAX)),
            bytes: AtomicU64::new(0),
            is_sealed: AtomicBool::new(false),
            total_bytes: Arc::clone(&buffers.total_bytes),
        };
        table.staging().open(Arc::new(StagingTree::change_buffer(tree, position, buffer)));
        waiting.open.push(table.clone());
        buffers.are_any.store(true, Ordering::Release);
        waiting.looked.get_or_insert_with(tantalum_rt::now);
        Ok(())
    }

    /// Seals a table's change buffer, which is full, if it takes writes. If much waits then, it is moved.
    pub(in crate::transaction) fn seal_change_buffer(&self, table: &Table, full: &Arc<StagingTree>) {
        let mut waiting = self.buffers.waiting.lock();
        if !table.staging().open_buffer().is_some_and(|open| Arc::ptr_eq(&open, full)) {
            return;
        }
        waiting.seal(table);
        if !table.staging().gain.is_known() {
            // It is to be known soon whether deferring pays.
            self.queue_those_of(&mut waiting, table);
        } else if waiting.sealed_bytes() >= self.buffers.limit_bytes() / WAITING_PART {
            self.queue(&mut waiting);
        }
    }

    /// Learns from rows of a table's change buffers that were moved. If it does not pay to defer writes to it, what waits is moved too.
    pub(super) fn learn_gain(&self, table: &Table, moved: Moved) {
        let buffers = &self.buffers;
        if !table.staging().gain.learn(moved, buffers.times_as_many(), buffers.limit_bytes()) {
            self.queue_those_of(&mut buffers.waiting.lock(), table);
        }
    }

    /// Has the rows of all change buffers moved. Returns whether there were any.
    pub(in crate::transaction) fn flush_change_buffers(&self) -> bool {
        let mut waiting = self.buffers.waiting.lock();
        for table in waiting.open.clone() {
            waiting.seal(&table);
        }
        self.queue(&mut waiting)
    }

    /// Has the rows of change buffers moved into which few of the writes to their table were put for a while. Returns whether there were any.
    pub(super) fn flush_resting_change_buffers(&self) -> bool {
        let mut waiting = self.buffers.waiting.lock();
        let now = tantalum_rt::now();
        if waiting.is_empty() || waiting.looked.is_none_or(|looked| now < looked + REST) {
            return false;
        }
        waiting.looked = Some(now);
        let tables: BTreeMap<_, _> = waiting.tables().map(|table| (table.id(), table.clone())).collect();
        let resting: Vec<_> = tables.into_values().filter(|table| table.staging().gain.few_were_deferred()).collect();
        resting.iter().for_each(|table| self.queue_those_of(&mut waiting, table));
        !resting.is_empty()
    }

    /// Forgets the buffers of tables that were dropped, which are freed.
    pub fn forget_dropped_change_buffers(&self) {
        let mut tables: Vec<Table> = self.buffers.waiting.lock().tables().cloned().collect();
        // The applier may be moving rows of one, and is waited for.
        tables.retain(|table| table.staging().unless_retired().is_none());
        let mut waiting = self.buffers.waiting.lock();
        let is_there = |table: &Table| tables.iter().all(|dropped| dropped.id() != table.id());
        waiting.open.retain(is_there);
        waiting.sealed.retain(|(table, _)| is_there(table));
        self.buffers.are_any.store(!waiting.is_empty(), Ordering::Release);
    }

    /// Seals the change buffers of one table and gives them to the applier, as [`queue`](Self::queue) does with all that are sealed.
    fn queue_those_of(&self, waiting: &mut Waiting, table: &Table) {
        waiting.seal(table);
        let (of_table, others) =
            std::mem::take(&mut waiting.sealed).into_iter().partition(|(sealed, _)| sealed.id() == table.id());
        waiting.sealed = of_table;
        self.queue(waiting);
        waiting.sealed = others;
        self.buffers.are_any.store(!waiting.is_empty(), Ordering::Release);
    }

    /// Gives the applier what is sealed, while the caller keeps more from being sealed.
    fn queue(&self, waiting: &mut Waiting) -> bool {
        let mut by_table: BTreeMap<TableId, (Table, Vec<Arc<StagingTree>>)> = BTreeMap::new();
        for (table, staged) in std::mem::take(&mut waiting.sealed) {
            by_table.entry(table.id()).or_insert_with(|| (table, Vec::new())).1.push(staged);
        }
        self.buffers.are_any.store(!waiting.is_empty(), Ordering::Release);
        if by_table.is_empty() {
            return false;
        }
        self.move_buffered(by_table.into_values());
        true
    }
}
