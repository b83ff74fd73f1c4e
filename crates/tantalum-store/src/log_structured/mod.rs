//! The log-structured page store (Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System").
//!
//! Pages are appended to segments in large writes, never written over, and so need no other protection against torn writes.
//! A map says where each is. Segments of which little is still live are cleaned: what is live moves on, and when a checkpoint
//! of the map that knows so is durable, the segment can be written again.
//!
//! Invariants:
//! - what is acknowledged is in the newest durable checkpoint of the map, or in an append behind it that recovery finds by
//!   following its stream
//! - a segment is written again only when a durable checkpoint, and so no append behind it either, leaves nothing in it
//! - a page that cleaning moved replaces only the very copy that was read, now and when recovery repeats it
//! - of a stream, one append is under way at a time
//!
//! Locks, in this order: the queue of batches (not held while one writes them); `maintenance`, held by whoever checkpoints,
//! cleans, or begins the streams; the table, never held while a device works.

mod append;
mod block;
mod check;
mod checkpoint;
mod cleaner;
mod cleaning;
mod counters;
mod inspect;
mod layout;
mod load;
pub mod map;
mod nilfs2;
mod page_store;
mod queue;
mod recovery;
mod roll_forward;
mod room;
pub mod root;
mod segments;
mod streams;
pub mod summary;
mod table;
#[cfg(test)]
mod tests;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::{Condvar, Mutex, RwLock, Unparker};

use cleaner::CleanerTask;
use counters::Counters;
pub use counters::LogStructuredStats;
use layout::Layout;
pub use nilfs2::MetadataWrites;
use queue::Queue;
use root::Root;
use table::Table;

use crate::{Error, Result, SegmentSizes, StoreOptions, Superblock};

/// Pages in segments.
#[derive(Debug)]
pub struct LogStructuredStore {
    shared: Arc<Shared>,
    cleaning: Mutex<Cleaning>,
}

/// Who cleans in the background.
#[derive(Debug)]
enum Cleaning {
    /// Nobody, until something is stored.
    NotYet,
    By(#[expect(dead_code, reason = "the task ends when this is dropped")] CleanerTask),
    /// Nobody any more: the store is closed and takes no pages.
    Ended,
}

/// What the store's tasks share.
#[derive(Debug)]
struct Shared {
    device: Arc<dyn Device>,
    layout: Layout,
    database: u128,
    metadata_writes: MetadataWrites,
    discards: AtomicBool,
    table: RwLock<Table>,
    queue: Queue,
    /// Held by whoever appends to the streams of moved pages or of the map.
    maintenance: Mutex<()>,
    /// The streams must begin anew before anything is appended: at first, and after an append that failed.
    must_begin: AtomicBool,
    /// Signalled under `waiting` when segments have become free, or will not.
    room: Condvar,
    waiting: Mutex<()>,
    kick: OnceLock<Unparker>,
    counters: Counters,
}

impl LogStructuredStore {
    /// A store on a device; nothing is read before it is recovered.
    ///
    /// # Errors
    /// [`Error::Option`] when the device cannot be cut so.
    pub fn new(
        device: Arc<dyn Device>,
        page_bytes: usize,
        sizes: SegmentSizes,
        database: u128,
        options: StoreOptions,
    ) -> Result<Self> {
        let layout = Self::layout(&*device, page_bytes, sizes)?;
        let mut table = Table::default();
        table.segments.grow(layout.segments(device.capacity_bytes()));
        let shared = Shared {
            device,
            layout,
            database,
            metadata_writes: options.metadata_writes,
            discards: AtomicBool::new(options.discards),
            table: RwLock::new(table),
            queue: Queue::default(),
            maintenance: Mutex::new(()),
            must_begin: AtomicBool::new(true),
            room: Condvar::default(),
            waiting: Mutex::new(()),
            kick: OnceLock::new(),
            counters: Counters::default(),
        };
        Ok(Self { shared: Arc::new(shared), cleaning: Mutex::new(Cleaning::NotYet) })
    }

    /// Makes a device that of an empty store, over what a creation that did not end may have left. Where the superblock will be
    /// is left alone.
    ///
    /// # Errors
    /// When the device cannot be cut so, or cannot write.
    pub fn format(device: &dyn Device, page_bytes: usize, sizes: SegmentSizes, database: u128) -> Result<()> {
        let layout = Self::layout(device, page_bytes, sizes)?;
        let blank = AlignedBuffer::zeroed(layout.slot_at(0) as usize - Superblock::BYTES);
        device.write(Superblock::BYTES as u64, &[&blank], Durability::Durable)?;
        // None is whole; whichever comes first.
        Root::empty().write(device, layout, database, &mut 0)
    }

    fn layout(device: &dyn Device, page_bytes: usize, sizes: SegmentSizes) -> Result<Layout> {
        Layout::new(device, page_bytes, sizes)
            .map_err(|what| Error::Option { what: format!("page_store: {}: {what}", device.name()) })
    }
}

impl Shared {
    /// Lets the cleaner look whether there is something to do.
    fn kick(&self) {
        if let Some(cleaner) = self.kick.get() {
            cleaner.unpark();
        }
    }

    /// Wakes those who wait for a free segment.
    fn announce_room(&self) {
        let _waiting = self.waiting.lock();
        self.room.notify_all();
    }

    fn must_begin(&self) -> bool {
        self.must_begin.load(Ordering::Acquire)
    }

    fn full(&self) -> Error {
        let (device, offset) = (self.device.name().into(), self.device.capacity_bytes());
        let source = tantalum_device::Error::NoSpace { device, offset, len: self.layout.segment_bytes() };
        Error::DiskFull { file: self.device.name().into(), source }
    }
}
