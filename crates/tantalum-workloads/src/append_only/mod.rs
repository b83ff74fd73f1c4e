//! An append-only copy-on-write B+-tree: the store that DuraSSD is measured with under Couchbase ("Durable Write Cache in
//! Flash Memory SSD for Relational and NoSQL Databases", SIGMOD 2014, section 4.3.3). A baseline for comparisons: it has one
//! writer, no transactions and no deletions, and never uses space again.
//!
//! An update appends one *unit*: a header, the new documents, and anew each tree node on the way from them to the root.
//! Nothing that was written is modified. After every so many updates the device is flushed; what was put since the last
//! flush may be lost in a crash.
//!
//! The device holds, in blocks of 4 KiB: two anchors (`anchor.rs`), then units, one behind the other.
//!
//! *A root is complete* when its unit and all units before it are whole: a device without an order among cached writes may
//! keep a later unit and lose an earlier one. [`open`](AppendOnlyTree::open) follows the units from an anchor, which names a
//! durable one, up to the first that is not whole, and takes the root of the one before. It then appends a unit of the
//! next epoch and flushes; epochs never fall along the units, so what lies beyond from before the crash never comes back.

mod anchor;
mod node;
mod rewrite;
mod unit;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::Mutex;

use self::{
    anchor::Anchor,
    node::{Cache, Entry, Node, Place},
    unit::{Draft, Root, document},
};
use crate::error::{self, Error, ErrorKind, Result};

/// Bytes of a block, and of a tree node.
pub const BLOCK_BYTES: usize = 4096;

/// The longest key in bytes. A node has room for several of them.
pub const MAX_KEY_BYTES: usize = 512;

/// The longest value in bytes.
pub const MAX_VALUE_BYTES: usize = 1 << 20;

/// How a tree is written.
///
/// ```
/// use tantalum_workloads::append_only::Options;
///
/// let patient = Options { updates_per_flush: 100, ..Options::default() };
/// assert_eq!(patient.cached_nodes, 16384);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// After so many updates the device is flushed; at least 1.
    pub updates_per_flush: u64,
    /// Nodes that are kept in memory, about; at least 2.
    pub cached_nodes: usize,
}

impl Default for Options {
    /// A flush after each update, and 64 MiB of nodes in memory.
    fn default() -> Self {
        Self { updates_per_flush: 1, cached_nodes: (64 << 20) / BLOCK_BYTES }
    }
}

/// What a tree has done and how far it is, since it was opened.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_device::{Device, MemoryDevice};
/// use tantalum_workloads::append_only::{AppendOnlyTree, Options};
///
/// let device: Arc<dyn Device> = MemoryDevice::new("couch", 1 << 20);
/// AppendOnlyTree::create(&device)?;
/// let tree = AppendOnlyTree::open(device, Options { updates_per_flush: 2, ..Options::default() })?;
/// tree.put(b"key", b"value")?;
/// let stats = tree.stats();
/// assert_eq!((stats.levels, stats.sequence - stats.flushed), (1, 1), "one update may be lost");
/// # Ok::<(), tantalum_workloads::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Number of the last unit.
    pub sequence: u64,
    /// Number of the last unit that survives a crash.
    pub flushed: u64,
    /// Levels of the tree; 0 when it is empty.
    pub levels: u32,
    /// Bytes of the device in use, whatever of them is of the present tree.
    pub used_bytes: u64,
    /// Bytes appended.
    pub appended_bytes: u64,
    /// Flushes.
    pub flushes: u64,
}

/// An append-only tree on a device.
///
/// Readers take the newest root and need no lock beyond that, since nodes never change; writers take turns.
///
/// ```
/// use std::sync::Arc;
///
/// use tantalum_device::{Device, MemoryDevice};
/// use tantalum_workloads::append_only::{AppendOnlyTree, Options};
///
/// let device: Arc<dyn Device> = MemoryDevice::new("couch", 16 << 20);
/// AppendOnlyTree::create(&device)?;
/// let tree = AppendOnlyTree::open(Arc::clone(&device), Options { updates_per_flush: 10, ..Options::default() })?;
/// tree.put(b"alice", b"100")?;
/// tree.flush()?;
/// drop(tree);
///
/// let tree = AppendOnlyTree::open(device, Options::default())?;
/// assert_eq!(tree.get(b"alice")?.as_deref(), Some(&b"100"[..]));
/// # Ok::<(), tantalum_workloads::Error>(())
/// ```
pub struct AppendOnlyTree {
    store: Store,
    options: Options,
    newest: Mutex<Root>,
    writer: Mutex<Writer>,
}

/// What reads blocks.
struct Store {
    device: Arc<dyn Device>,
    tree_id: u64,
    cache: Mutex<Cache>,
}

/// State that only the writing task needs.
struct Writer {
    epoch: u64,
    /// Where the next unit goes.
    end: u64,
    updates_since_flush: u64,
    anchor: Anchor,
    stats: Stats,
}

/// After so many units an anchor is written, so that opening has no more than these to follow.
const UNITS_PER_ANCHOR: u64 = 1024;

impl AppendOnlyTree {
    /// Makes the device hold an empty tree, whatever it held before.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for a device whose blocks are larger than the tree's; what the device reports.
    pub fn create(device: &Arc<dyn Device>) -> Result<()> {
        check_blocks(&**device)?;
        Anchor::first(tantalum_rt::random_seed()).write_both(&**device)
    }

    /// Opens the tree at its last complete root.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) when the device holds no tree, or one that did not come about by a crash;
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options that are not possible; [`NoSpace`](ErrorKind::NoSpace); what the
    /// device reports.
    pub fn open(device: Arc<dyn Device>, options: Options) -> Result<Self> {
        check_blocks(&*device)?;
        let check = |ok: bool, name, value: u64, expected| {
            if ok { Ok(()) } else { Err(error::out_of_range(name, value, expected)) }
        };
        check(options.updates_per_flush > 0, "updates per flush", options.updates_per_flush, "at least 1")?;
        check(options.cached_nodes > 1, "cached nodes", options.cached_nodes as u64, "at least 2")?;
        let anchor = Anchor::read(&*device)?;
        let found = anchor::last_complete(&*device, &anchor)?;
        let stats = Stats { sequence: found.sequence, ..Stats::default() };
        let writer = Writer { epoch: found.epoch + 1, end: found.end, updates_since_flush: 0, anchor, stats };
        let cache = Mutex::new(Cache::new(options.cached_nodes));
        let store = Store { device, tree_id: anchor.tree_id, cache };
        let tree = Self { store, options, newest: Mutex::new(found.root), writer: Mutex::new(writer) };
        let mut writer = tree.writer.lock();
        tree.append(&mut writer, Draft::new(found.end), found.root)?;
        tree.flush_now(&mut writer)?;
        drop(writer);
        Ok(tree)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt); what the device reports.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let root = *self.newest.lock();
        let Some(mut place) = root.place() else { return Ok(None) };
        for level in (0..root.levels).rev() {
            let node = self.store.node(place, level)?;
            let Some(entry) = node.entry_for(key) else { return Ok(None) };
            if level == 0 {
                return if entry.key == key { self.store.document(key, entry.place).map(Some) } else { Ok(None) };
            }
            place = entry.place;
        }
        unreachable!("a root has a leaf level")
    }

    /// Puts a value. It survives a crash once the device is flushed: at once, or with the last of
    /// [`updates_per_flush`](Options::updates_per_flush).
    ///
    /// # Errors
    /// As [`put_all`](Self::put_all).
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_all(&[(key, value)])
    }

    /// Puts values as one update, one unit: after a crash either all are there or none. Of equal keys the last one counts.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for keys and values that are too long, or more of them than fit 64 MiB;
    /// [`NoSpace`](ErrorKind::NoSpace); [`Corrupt`](ErrorKind::Corrupt); what the device reports, after which the tree is to be
    /// opened anew.
    pub fn put_all(&self, entries: &[(&[u8], &[u8])]) -> Result<()> {
        let mut writer = self.writer.lock();
        let mut draft = Draft::new(writer.end);
        for (key, value) in entries {
            draft.add_document(key, value)?;
        }
        let root = self.store.rewrite(&mut draft, *self.newest.lock())?;
        self.append(&mut writer, draft, root)?;
        writer.updates_since_flush += 1;
        if writer.updates_since_flush >= self.options.updates_per_flush {
            self.flush_now(&mut writer)?;
        }
        Ok(())
    }

    /// Makes everything that was put survive a crash.
    ///
    /// # Errors
    /// What the device reports.
    pub fn flush(&self) -> Result<()> {
        self.flush_now(&mut self.writer.lock())
    }

    /// What the tree has done so far.
    pub fn stats(&self) -> Stats {
        let writer = self.writer.lock();
        Stats { levels: self.newest.lock().levels, used_bytes: writer.end, ..writer.stats }
    }

    /// Reads the whole tree and tells how many documents it has.
    ///
    /// # Errors
    /// [`Corrupt`](ErrorKind::Corrupt) for nodes and documents that are not what they should be, or not in order; what the
    /// device reports.
    pub fn check(&self) -> Result<u64> {
        self.walk(&mut |entry| self.store.document(&entry.key, entry.place).map(drop))
    }

    /// Brings all nodes into memory, as far as they fit ([`cached_nodes`](Options::cached_nodes)), and tells how many
    /// documents there are.
    ///
    /// # Errors
    /// As [`check`](Self::check), of the nodes.
    pub fn warm_up(&self) -> Result<u64> {
        self.walk(&mut |_| Ok(()))
    }

    fn walk(&self, at_document: &mut dyn FnMut(&Entry) -> Result<()>) -> Result<u64> {
        let root = *self.newest.lock();
        let mut last_key = None;
        root.place().map_or(Ok(0), |place| self.store.walk(place, root.levels - 1, &mut last_key, at_document))
    }

    /// Writes a unit with this root, and makes it the newest.
    fn append(&self, writer: &mut Writer, draft: Draft, root: Root) -> Result<()> {
        let device = &*self.store.device;
        let sequence = writer.stats.sequence + 1;
        let unit = draft.seal(self.store.tree_id, writer.epoch, sequence, root)?;
        let end = writer.end + unit.len() as u64;
        if end > device.capacity_bytes() {
            return Err(Error::new(
                ErrorKind::NoSpace,
                format!(
                    "the append-only tree has filled {device}, all of {capacity} bytes, and never uses space again: give it a larger device",
                    device = device.name(),
                    capacity = device.capacity_bytes()
                ),
            ));
        }
        device.write(writer.end, &[&unit], Durability::Cached)?;
        writer.end = end;
        writer.stats.sequence = sequence;
        writer.stats.appended_bytes += unit.len() as u64;
        let mut cache = self.store.cache.lock();
        draft.into_nodes().for_each(|(place, node)| cache.insert(place, Arc::new(node)));
        drop(cache);
        *self.newest.lock() = root;
        Ok(())
    }

    fn flush_now(&self, writer: &mut Writer) -> Result<()> {
        let device = &*self.store.device;
        device.flush()?;
        writer.updates_since_flush = 0;
        writer.stats.flushes += 1;
        writer.stats.flushed = writer.stats.sequence;
        if writer.stats.sequence - writer.anchor.sequence >= UNITS_PER_ANCHOR {
            // Names what is durable already; the next flush makes it durable itself.
            writer.anchor = writer.anchor.next(writer.epoch, writer.stats.sequence, writer.end, *self.newest.lock());
            writer.anchor.write(device)?;
        }
        Ok(())
    }
}

impl Store {
    /// The node at a place, of this level.
    fn node(&self, place: Place, level: u32) -> Result<Arc<Node>> {
        if let Some(node) = self.cache.lock().get(place) {
            return if node.level == level { Ok(node) } else { Err(self.damaged(place, "a node is of another level")) };
        }
        let mut block = AlignedBuffer::zeroed(BLOCK_BYTES);
        self.device.read(place, &mut block)?;
        let node = Node::decode(&block, self.tree_id, place, level).map_err(|what| self.damaged(place, what))?;
        let node = Arc::new(node);
        self.cache.lock().insert(place, Arc::clone(&node));
        Ok(node)
    }

    /// The value of the document at a place, which is that of `key`.
    fn document(&self, key: &[u8], place: Place) -> Result<Vec<u8>> {
        let block = BLOCK_BYTES as u64;
        let within = (place % block) as usize;
        let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
        self.device.read(place - place % block, &mut bytes)?;
        let needed = document::total_bytes(&bytes[within..]).map_err(|what| self.damaged(place, what))?;
        if within + needed > bytes.len() {
            let whole = (within + needed).next_multiple_of(BLOCK_BYTES);
            bytes = AlignedBuffer::zeroed(whole);
            self.device.read(place - place % block, &mut bytes)?;
        }
        let value = document::decode(&bytes[within..within + needed], key).map_err(|what| self.damaged(place, what))?;
        Ok(value.to_vec())
    }

    /// Visits documents in the order of their keys, and counts them. That the order holds also keeps a damaged tree from
    /// leading to the same node again and again.
    fn walk(
        &self,
        place: Place,
        level: u32,
        last_key: &mut Option<Vec<u8>>,
        at_document: &mut dyn FnMut(&Entry) -> Result<()>,
    ) -> Result<u64> {
        let node = self.node(place, level)?;
        let mut count = 0;
        for entry in &node.entries {
            if level > 0 {
                count += self.walk(entry.place, level - 1, last_key, at_document)?;
                continue;
            }
            if last_key.as_ref().is_some_and(|last| *last >= entry.key) {
                return Err(self.damaged(place, "its keys do not follow those of the node before"));
            }
            at_document(entry)?;
            *last_key = Some(entry.key.clone());
            count += 1;
        }
        Ok(count)
    }

    fn damaged(&self, offset: u64, what: &'static str) -> Error {
        damaged(&*self.device, offset, what)
    }
}

fn damaged(device: &dyn Device, offset: u64, what: &'static str) -> Error {
    Error::new(
        ErrorKind::Corrupt,
        format!(
            "{device}, byte {offset}: {what}; create the tree anew, or give the device that holds it",
            device = device.name()
        ),
    )
}

fn check_blocks(device: &dyn Device) -> Result<()> {
    let block = device.capabilities().logical_block;
    match BLOCK_BYTES.is_multiple_of(block as usize) {
        true => Ok(()),
        false => Err(error::out_of_range("logical block of the device", block, "a part of 4096")),
    }
}
