//! The store's device, cut into segments: what every part reads and writes it through. It has no lock, and of the store's state only
//! the counters.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::RwLock;

use super::{
    compression,
    layout::{BLOCK_BYTES, Extent, Layout},
    segment_counters::Counters,
    summary::{Stream, Summary},
};
use crate::{Error, PageId, Result, error};

#[derive(Debug)]
pub struct SegmentIo {
    pub device: Arc<dyn Device>,
    pub layout: Layout,
    pub database: u128,
    pub counters: Counters,
    /// The device's, in bytes.
    logical_block: u64,
    discards: AtomicBool,
    /// Placement handles of the device.
    placement_handles: u32,
    /// Shared by what reads; alone when segments are cut off, which a task may still read that has looked up a place before.
    cutting: RwLock<()>,
    /// The pages that there was room for before segments were cut off.
    was_beyond: AtomicU64,
}

/// What was read of a part of the device.
pub struct Images {
    start: u64,
    pub bytes: AlignedBuffer,
}

impl Images {
    /// The image that is stored in a place there.
    pub fn of(&self, extent: Extent) -> &[u8] {
        &self.bytes[(extent.offset() - self.start) as usize..][..extent.bytes()]
    }
}

impl SegmentIo {
    pub fn new(device: Arc<dyn Device>, layout: Layout, database: u128, discards: bool) -> Self {
        Self {
            logical_block: device.capabilities().logical_block.into(),
            placement_handles: device.capabilities().placement_handles,
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
    pub fn read(&self, offset: u64, bytes: &mut [u8]) -> Result<()> {
        let _not_cut_meanwhile = self.cutting.read();
        self.device.read(offset, bytes)
    }

    /// Reads images that lie between two bytes of the device.
    pub fn read_images(&self, range: Range<u64>) -> Result<Images> {
        let start = range.start / self.logical_block * self.logical_block;
        let mut bytes = AlignedBuffer::zeroed((range.end.next_multiple_of(self.logical_block) - start) as usize);
        self.read(start, &mut bytes)?;
        Ok(Images { start, bytes })
    }

    /// Reads a page. Returns how many bytes were read for it; the inner error says what is wrong with what is stored there.
    pub fn read_page(&self, extent: Extent, page: &mut [u8]) -> Result<std::result::Result<u64, String>> {
        if extent.block_of_whole_page(self.layout.page_units()).is_some() {
            self.read(extent.offset(), page)?;
            return Ok(Ok(page.len() as u64));
        }
        let images = self.read_images(extent.offset()..extent.end())?;
        Ok(compression::page_of(images.of(extent), page).map(|()| images.bytes.len() as u64))
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
        self.read(self.layout.place(segment, block).offset(), &mut bytes)?;
        let found = Summary::decode(&bytes, self.database, self.layout.page_units());
        Ok(found.filter(|found| (found.segment, found.block) == (segment, block)))
    }

    /// Writes an append at once: its summary, and behind it what `fill` puts there. Returns its blocks. The first one in a zone resets
    /// it, unless it `was_reset`; the last one finishes it, if it is not full.
    pub fn write(
        &self,
        summary: &Summary,
        was_reset: bool,
        durability: Durability,
        fill: impl FnOnce(&mut [u8]),
    ) -> Result<u32> {
        if self.layout.has_zones() && summary.block == 0 && !was_reset {
            self.reset_zone(summary.segment)?;
        }
        let blocks = summary.blocks();
        let mut buffer = AlignedBuffer::zeroed(blocks as usize * BLOCK_BYTES);
        summary.encode(&mut buffer, self.database, self.layout.page_units());
        fill(&mut buffer[BLOCK_BYTES..]);
        let at = self.layout.place(summary.segment, summary.block);
        self.device.write_placed(at.offset(), &[&buffer], durability, self.placement_handle(summary.stream))?;
        Counters::add(&self.counters.bytes_written, buffer.len() as u64);
        if self.layout.has_zones()
            && self.layout.is_left(summary.stream, summary.block + blocks)
            && let Err(error) = self.finish_zone(summary.segment)
        {
            // The append is durable. If the zone counts as partly written, and is one too many, the streams begin anew.
            tantalum_rt::tracing::warn!(%error, "a zone was left and could not be finished");
        }
        Ok(blocks)
    }

    /// Empties the zone of a segment, in which nothing is needed.
    ///
    /// # Errors
    /// When the device cannot.
    pub fn reset_zone(&self, segment: u32) -> Result<()> {
        self.device.reset_zone(self.layout.place(segment, 0).offset())
    }

    /// Makes the zone of a segment full, to which nothing is appended any more.
    ///
    /// # Errors
    /// When the device cannot.
    pub fn finish_zone(&self, segment: u32) -> Result<()> {
        self.device.finish_zone(self.layout.place(segment, 0).offset())
    }

    /// The placement handle of a stream's segments: one of its own, if there are enough. What is written over in its place, and pages of
    /// others on the same device, has the first one.
    fn placement_handle(&self, stream: Stream) -> u32 {
        match self.placement_handles {
            0 | 1 => 0,
            handles => 1 + stream as u32 % (handles - 1),
        }
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

    /// Tells the device that a segment is not needed, if it wants to know. Nothing depends on it. Returns whether its zone was reset, on
    /// a device with zones.
    pub fn discard(&self, segment: u32) -> bool {
        if self.layout.has_zones() {
            let reset = self.reset_zone(segment);
            if let Err(error) = &reset {
                tantalum_rt::tracing::warn!(%error, "a free zone is reset later, before it is written");
            }
            return reset.is_ok();
        }
        if !self.discards.load(Ordering::Relaxed) {
            return false;
        }
        match self.device.discard(self.layout.place(segment, 0).offset(), self.layout.segment_bytes()) {
            Ok(()) => Counters::add(&self.counters.segments_discarded, 1),
            Err(error) => {
                tantalum_rt::tracing::warn!(%error, "the device is told of no more segments that are free");
                self.discards.store(false, Ordering::Relaxed);
            }
        }
        false
    }
}
