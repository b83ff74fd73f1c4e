//! Maintenance, by one task at a time: takes checkpoints of the map, frees segments, begins the streams. The cleaner works under the
//! same permit.
//!
//! A checkpoint writes the map's changed blocks, then the root. Segments that were closed before are settled then, and free when
//! nothing in them is live. Pages are stored meanwhile. The root says where the streams were when the map was copied; what was
//! appended from there on is repeated by recovery, which does no harm to what the map has already.
//!
//! The streams begin in fresh segments, behind a checkpoint that says where: before the first append after opening, and after an
//! append that failed. What stands behind the last whole append of the old streams belongs to a session that is over, and is never
//! looked at again.

use std::sync::atomic::Ordering;

use tantalum_device::Durability;
use tantalum_rt::{MutexGuard, Random, random_seed};

use super::{
    Shared,
    layout::{BLOCK_BYTES, Place, SLOTS},
    map::{BlockNumber, LEVELS, MapBlock},
    root::Root,
    segment_counters::Counters,
    segments::State,
    summary::{ENTRIES_MAX, Entry},
    table::Table,
};
use crate::Result;

/// The blocks of the map that a checkpoint has written and that do not count yet, and where.
type Written = Vec<(BlockNumber, Place)>;

/// The store as it was when a checkpoint began.
struct Snapshot {
    chunks: Vec<(BlockNumber, MapBlock)>,
    root: Root,
    /// Its number among those taken since the store was opened.
    taken: u64,
}

/// What is known of the root on the device.
#[derive(Debug, Default)]
pub struct RootState {
    /// The newest durable checkpoint.
    pub checkpoint: u64,
    /// The slot that is whole for certain.
    pub whole_slot: u64,
}

/// The permit to append to the streams of moved pages and of the map.
pub(super) struct Maintenance<'s> {
    pub shared: &'s Shared,
    root: MutexGuard<'s, RootState>,
}

impl<'s> Maintenance<'s> {
    /// Waits until no other task has it.
    pub fn begin(shared: &'s Shared) -> Self {
        Self { shared, root: shared.maintenance.lock() }
    }

    /// Begins the streams, if they must. Nothing is appended to that of new pages meanwhile.
    ///
    /// # Errors
    /// When no segments are free, or the checkpoint cannot be written: then nothing can be stored.
    pub fn begin_streams(&mut self) -> Result<()> {
        let shared = self.shared;
        if !shared.must_begin() {
            return Ok(());
        }
        {
            let mut table = shared.table.write();
            table.forget_exhausted();
            let (streams, reserve) = shared.page_streams(&table);
            let session = Random::with_seed(random_seed()).u64(..);
            let Table { streams: begun, segments, .. } = &mut *table;
            if !begun.begin(streams, reserve, segments, session) {
                return Err(shared.io.full());
            }
        }
        self.leave_zones()?;
        self.checkpoint()?;
        shared.must_begin.store(false, Ordering::Release);
        tantalum_rt::tracing::debug!(device = shared.io.device.name(), "appends begin in fresh segments");
        Ok(())
    }

    /// Of a device with zones, the streams of before may have left some that are partly written, and so may a crash; the device allows
    /// but a few. Those whose segment has anything are finished. Others are reset: they are free, or were when the streams began.
    fn leave_zones(&self) -> Result<()> {
        let Shared { io, table, .. } = self.shared;
        if !io.layout.has_zones() {
            return Ok(());
        }
        for offset in io.device.active_zones()? {
            let segment = io.layout.segment_at(offset).map(|(segment, _)| segment);
            let Some(segment) = segment.filter(|segment| *segment < io.segments()) else { continue };
            let state = table.read().segments.get(segment).state();
            match state {
                State::Closed | State::Discarding => io.finish_zone(segment)?,
                State::Free | State::Open => {
                    io.reset_zone(segment)?;
                    table.write().segments.get_mut(segment).was_reset = true;
                }
            }
        }
        Ok(())
    }

    /// Writes a checkpoint, and frees the segments that it leaves.
    ///
    /// # Errors
    /// When the device cannot write, or there is no room for the map. The last checkpoint counts.
    pub fn checkpoint(&mut self) -> Result<()> {
        let snapshot = self.snapshot();
        let left = std::mem::take(&mut self.shared.table.write().left_map_blocks);
        let mut written = Written::default();
        match self.write_checkpoint(snapshot, &mut written) {
            Ok(()) => {
                let mut table = self.shared.table.write();
                left.into_iter().for_each(|place| table.forget_map_block(place));
                drop(table);
                self.free_segments();
                Ok(())
            }
            Err(error) => {
                let mut table = self.shared.table.write();
                table.left_map_blocks = left;
                for (number, place) in written {
                    table.map.touch(number);
                    table.forget_map_block(place);
                }
                Err(error)
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut table = self.shared.table.write();
        if !table.streams.pages.is_empty() {
            let (streams, reserve) = self.shared.page_streams(&table);
            let Table { streams: begun, segments, .. } = &mut *table;
            // Later, if there are too few free segments now.
            let _are_added = begun.add(streams, reserve, segments);
        }
        let chunks = table.map.take_dirty(0);
        table.clock_at_checkpoint = table.clock;
        let root = Root {
            number: self.root.checkpoint + 1,
            session: table.streams.session,
            sequence: table.streams.sequence,
            clock: table.clock,
            positions: table.streams.pages.clone(),
            directories: Vec::new(),
        };
        Snapshot { chunks, root, taken: table.segments.take_checkpoint() }
    }

    fn write_checkpoint(&mut self, snapshot: Snapshot, written: &mut Written) -> Result<()> {
        let Shared { io, table, .. } = self.shared;
        let Snapshot { chunks, mut root, taken } = snapshot;
        self.write_map_blocks(&chunks, written).inspect_err(|_| self.touch(&chunks))?;
        let directories = {
            let mut table = table.write();
            for ((_, index), place) in &*written {
                table.map.point_at(*index, *place);
            }
            table.map.take_dirty(1)
        };
        self.write_map_blocks(&directories, written).inspect_err(|_| self.touch(&directories))?;
        root.directories = {
            let table = table.read();
            let mut places: Vec<_> = table.map.level(1).iter().map(MapBlock::at).collect();
            for ((level, index), place) in &*written {
                if *level == LEVELS - 1 {
                    places[*index] = Some(*place);
                }
            }
            places
        };
        io.device.flush()?;
        root.write(&*io.device, io.layout, io.database, &mut self.root.whole_slot)?;
        self.root.checkpoint = root.number;
        let named = root.positions.len();
        Counters::add(&io.counters.checkpoints, 1);
        for counter in [&io.counters.bytes_written, &io.counters.map_bytes_written] {
            Counters::add(counter, SLOTS * BLOCK_BYTES as u64);
        }
        let mut table = table.write();
        for (number, place) in written.drain(..) {
            if let Some(old) = table.map.moved(number, place) {
                table.forget_map_block(old);
            }
        }
        table.segments.settle(taken);
        table.streams.durable = named;
        Ok(())
    }

    /// Frees the segments that are not needed any more: tells the device, and then the waiting tasks.
    pub fn free_segments(&self) {
        let Shared { io, table, space, .. } = self.shared;
        let freed = {
            let mut table = table.write();
            let freed = table.segments.to_free();
            freed.iter().for_each(|segment| table.begin_to_free(*segment));
            if !freed.is_empty() {
                table.forget_exhausted();
            }
            freed
        };
        for &segment in &freed {
            let was_reset = io.discard(segment);
            let mut table = table.write();
            table.segments.get_mut(segment).was_reset = was_reset;
            table.segments.end_freeing(segment);
        }
        if !freed.is_empty() {
            space.announce();
        }
    }

    /// Appends blocks to the map's stream, and notes where they are.
    fn write_map_blocks(&self, blocks: &[(BlockNumber, MapBlock)], written: &mut Written) -> Result<()> {
        let Shared { io, table, .. } = self.shared;
        let mut rest = blocks;
        while !rest.is_empty() {
            let slot = table.write().slot_for_map().ok_or_else(|| io.full())?;
            let room = (io.layout.segment_blocks() - slot.block - 1) as usize;
            let (now, later) = rest.split_at(rest.len().min(room).min(ENTRIES_MAX));
            let entry = |((level, index), _): &(BlockNumber, MapBlock)| Entry::Map {
                level: *level as u8,
                index: *index as u64,
            };
            let summary = slot.summary(0, now.iter().map(entry).collect(), 0);
            // The root follows a flush.
            let encode = |buffer: &mut [u8]| {
                for ((number, block), bytes) in now.iter().zip(buffer.chunks_exact_mut(BLOCK_BYTES)) {
                    block.encode(*number, io.database, io.layout.page_units(), bytes);
                }
            };
            let written_blocks = io.write(&summary, slot.was_reset, Durability::Cached, encode).inspect_err(|_| {
                // It may have moved the pointer of a zone, which then cannot be written in the same place again.
                if io.layout.has_zones() {
                    self.shared.must_begin.store(true, Ordering::Release);
                }
            })?;
            Counters::add(&io.counters.map_bytes_written, u64::from(written_blocks) * BLOCK_BYTES as u64);
            let mut table = table.write();
            table.streams.advance(&slot, written_blocks, false);
            table.segments.get_mut(slot.segment).map_blocks += now.len() as u32;
            let at = io.layout.place(slot.segment, slot.block);
            let places = (1..).map(|block| at.plus(block));
            written.extend(now.iter().map(|(number, _)| *number).zip(places));
            rest = later;
        }
        Ok(())
    }

    /// Blocks that were taken to be written, and were not, have to be.
    fn touch(&self, blocks: &[(BlockNumber, MapBlock)]) {
        let mut table = self.shared.table.write();
        blocks.iter().for_each(|(number, _)| table.map.touch(*number));
    }
}
