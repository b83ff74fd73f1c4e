//! The store's device, cut into segments: what every part reads and writes it through. It has no lock, and of the store's state only
//! the counters.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::RwLock;

use super::{
    layout::{BLOCK_BYTES, Layout, Place},
    segment_counters::Counters,
    summary::Summary,
};
use crate::{Error, PageId, Result, error};

#[derive(Debug)]
pub struct SegmentIo {
    pub device: Arc<dyn Device>,
    pub layout: Layout,
    pub database: u128,
    pub counters: Counters,
    discards: AtomicBool,
    /// Shared by what reads; alone when segments are cut off, which a task may still read that has looked up a place before.
    cutting: RwLock<()>,
    /// The pages that there was room for before segments were cut off.
    was_beyond: AtomicU64,
}

impl SegmentIo {
    pub fn new(device: Arc<dyn Device>, layout: Layout, database: u128, discards: bool) -> Self {
        Self {
            device,
            layout,
            database,
            counters: Counters::default(),
            discards: AtomicBool::new(discards),
            cutting: RwLock::default(),
            was_beyond: AtomicU64::new(0),
        }
    }

    /// Reads from segments.
    pub fn read(&self, place: Place, bytes: &mut [u8]) -> Result<()> {
        let _not_cut_meanwhile = self.cutting.read();
        self.device.read(place.offset(), bytes)
    }

    /// Cuts off all but so many segments. None of the others is written.
    ///
    /// # Errors
    /// When the device cannot: it may have become shorter or not.
    pub fn cut(&self, segments: u32) -> Result<()> {
        self.was_beyond.fetch_max(self.capacity_pages(), Ordering::Relaxed);
        let _nothing_is_read = self.cutting.write();
        self.device.shrink(self.layout.device_bytes(segments))
    }

    /// Whether there was room for a page before segments were cut off, since the store was opened.
    pub fn had_room_for(&self, page: PageId) -> bool {
        page.0 < self.was_beyond.load(Ordering::Relaxed)
    }

    /// The segments that the device has now.
    pub fn segments(&self) -> u32 {
        self.layout.segments(self.device.capacity_bytes())
    }

    /// The pages that there is room for.
    pub fn capacity_pages(&self) -> u64 {
        self.layout.capacity_pages(self.segments())
    }

    /// The error of a store without room for another segment.
    pub fn full(&self) -> Error {
        let (device, segment) = (&self.device, self.layout.segment_bytes());
        let source = Error::no_space(device.name(), device.capacity_bytes(), segment);
        error::disk_full(device.name(), source)
    }

    /// The summary that begins in a block, if one does.
    pub fn summary_at(&self, segment: u32, block: u32) -> Result<Option<Summary>> {
        let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
        self.read(self.layout.place(segment, block), &mut bytes)?;
        let found = Summary::decode(&bytes, self.database);
        Ok(found.filter(|found| (found.segment, found.block) == (segment, block)))
    }

    /// Writes an append at once: its summary, and behind it what `fill` puts there. Returns its blocks.
    pub fn write(&self, summary: &Summary, durability: Durability, fill: impl FnOnce(&mut [u8])) -> Result<u32> {
        let blocks = summary.blocks(self.layout.page_blocks());
        let mut buffer = AlignedBuffer::zeroed(blocks as usize * BLOCK_BYTES);
        summary.encode(&mut buffer, self.database);
        fill(&mut buffer[BLOCK_BYTES..]);
        let at = self.layout.place(summary.segment, summary.block);
        self.device.write(at.offset(), &[&buffer], durability)?;
        Counters::add(&self.counters.bytes_written, buffer.len() as u64);
        Ok(blocks)
    }

    /// Has the device give back the space of a segment, which is free.
    ///
    /// # Errors
    /// When it cannot.
    pub fn release(&self, segment: u32) -> Result<()> {
        self.device.release(self.layout.place(segment, 0).offset(), self.layout.segment_bytes())?;
        Counters::add(&self.counters.segments_released, 1);
        Ok(())
    }

    /// Tells the device that a segment is not needed, if it wants to know. Nothing depends on it.
    pub fn discard(&self, segment: u32) {
        if !self.discards.load(Ordering::Relaxed) {
            return;
        }
        match self.device.discard(self.layout.place(segment, 0).offset(), self.layout.segment_bytes()) {
            Ok(()) => Counters::add(&self.counters.segments_discarded, 1),
            Err(error) => {
                tantalum_rt::tracing::warn!(%error, "the device is told of no more segments that are free");
                self.discards.store(false, Ordering::Relaxed);
            }
        }
    }
}
