//! Checkpoints of the map: its changed blocks, then the root. Segments that were closed before are settled then, and free when
//! nothing in them is live.
//!
//! Pages are stored meanwhile. The root says where the streams were when the map was copied; what was appended from there on
//! is repeated by recovery, which does no harm to what the map has already.

use std::sync::atomic::Ordering;

use tantalum_device::{AlignedBuffer, Durability};

use super::{
    Shared,
    layout::{BLOCK_BYTES, Place, SLOTS},
    map::{LEVELS, MapBlock},
    root::Root,
    segment_counters::Counters,
    summary::{ENTRIES_MAX, Entry, Stream, Summary},
};
use crate::Result;

/// A block of the map, by its level and number on it.
type Number = (usize, usize);

/// What a checkpoint has written, and not yet made count.
#[derive(Default)]
struct Written {
    blocks: Vec<(Number, Place)>,
}

/// The store as it was when a checkpoint began.
struct Snapshot {
    chunks: Vec<(usize, MapBlock)>,
    root: Root,
    /// Its number among those taken since the store was opened.
    taken: u64,
}

impl Shared {
    /// Writes a checkpoint, and frees the segments that it leaves. `maintenance` is held.
    ///
    /// # Errors
    /// When the device cannot write, or there is no room for the map. The last checkpoint counts.
    pub(super) fn checkpoint(&self) -> Result<()> {
        let snapshot = self.snapshot();
        let mut written = Written::default();
        match self.write_checkpoint(snapshot, &mut written) {
            Ok(()) => {
                self.free_segments();
                Ok(())
            }
            Err(error) => {
                let mut table = self.table.write();
                for (number, place) in written.blocks {
                    table.map.touch(number);
                    table.forget_map_block(place, self);
                }
                Err(error)
            }
        }
    }

    fn snapshot(&self) -> Snapshot {
        let mut table = self.table.write();
        let dirty = table.map.dirty(0);
        let chunks = table.map.take(0, &dirty);
        table.clock_at_checkpoint = table.clock;
        let root = Root {
            number: table.checkpoint + 1,
            session: table.session,
            sequence: table.sequence,
            clock: table.clock,
            positions: table.positions,
            directories: Vec::new(),
        };
        Snapshot { chunks: dirty.into_iter().zip(chunks).collect(), root, taken: table.segments.take_checkpoint() }
    }

    fn write_checkpoint(&self, snapshot: Snapshot, written: &mut Written) -> Result<()> {
        let Snapshot { chunks, mut root, taken } = snapshot;
        let count = chunks.len();
        let chunks: Vec<(Number, MapBlock)> = chunks.into_iter().map(|(index, block)| ((0, index), block)).collect();
        self.write_map_blocks(&chunks, written).inspect_err(|_| self.touch(&chunks))?;
        let directories: Vec<(Number, MapBlock)> = {
            let mut table = self.table.write();
            for ((_, index), place) in &written.blocks[..count] {
                table.map.point_at(*index, *place);
            }
            let dirty = table.map.dirty(1);
            let blocks = table.map.take(1, &dirty);
            dirty.into_iter().map(|index| (1, index)).zip(blocks).collect()
        };
        self.write_map_blocks(&directories, written).inspect_err(|_| self.touch(&directories))?;
        root.directories = {
            let table = self.table.read();
            let mut places: Vec<_> = table.map.level(1).iter().map(MapBlock::at).collect();
            for ((level, index), place) in &written.blocks {
                if *level == LEVELS - 1 {
                    places[*index] = Some(*place);
                }
            }
            places
        };
        self.device.flush()?;
        let mut whole = self.table.read().whole_slot;
        let outcome = root.write(&*self.device, self.layout, self.database, &mut whole);
        self.table.write().whole_slot = whole;
        outcome?;
        Counters::add(&self.counters.checkpoints, 1);
        for counter in [&self.counters.bytes_written, &self.counters.map_bytes_written] {
            Counters::add(counter, SLOTS * BLOCK_BYTES as u64);
        }
        let mut table = self.table.write();
        table.checkpoint = root.number;
        for (number, place) in written.blocks.drain(..) {
            if let Some(old) = table.map.moved(number, place) {
                table.forget_map_block(old, self);
            }
        }
        table.segments.settle(taken);
        Ok(())
    }

    /// Frees the segments that are not needed any more: tells the device, and then the waiting tasks. `maintenance` is held.
    pub(super) fn free_segments(&self) {
        let freed = {
            let mut table = self.table.write();
            let freed = table.segments.to_free();
            freed.iter().for_each(|segment| table.segments.begin_to_free(*segment));
            if !freed.is_empty() {
                table.forget_exhausted();
            }
            freed
        };
        for &segment in &freed {
            self.discard(segment);
            self.table.write().segments.end_freeing(segment);
        }
        if !freed.is_empty() {
            self.announce_room();
        }
    }

    /// Tells the device that a segment is not needed, if it wants to know. Nothing depends on it.
    fn discard(&self, segment: u32) {
        if !self.discards.load(Ordering::Relaxed) {
            return;
        }
        match self.device.discard(self.layout.place(segment, 0).offset(), self.layout.segment_bytes()) {
            Ok(()) => Counters::add(&self.counters.segments_discarded, 1),
            Err(error) => {
                tracing::warn!(%error, "the device is told of no more segments that are free");
                self.discards.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Appends blocks to the map's stream, and notes where they are.
    fn write_map_blocks(&self, blocks: &[(Number, MapBlock)], written: &mut Written) -> Result<()> {
        let mut rest = blocks;
        while !rest.is_empty() {
            let slot = self.table.write().next_map_slot(&self.layout).ok_or_else(|| self.full())?;
            let room = (self.layout.segment_blocks() - slot.block - 1) as usize;
            let (now, later) = rest.split_at(rest.len().min(room).min(ENTRIES_MAX));
            let entry =
                |((level, index), _): &(Number, MapBlock)| Entry::Map { level: *level as u8, index: *index as u64 };
            let summary = Summary {
                session: slot.session,
                sequence: slot.sequence,
                stream: Stream::Map,
                segment: slot.segment,
                block: slot.block,
                next: None,
                stamp: 0,
                entries: now.iter().map(entry).collect(),
                filler_blocks: 0,
            };
            let mut buffer = AlignedBuffer::zeroed((1 + now.len()) * BLOCK_BYTES);
            summary.encode(&mut buffer, self.database);
            for ((number, block), bytes) in now.iter().zip(buffer[BLOCK_BYTES..].chunks_exact_mut(BLOCK_BYTES)) {
                block.encode(*number, self.database, bytes);
            }
            let bytes = buffer.len();
            let at = self.layout.place(slot.segment, slot.block);
            // The root follows a flush.
            self.device.write(at.offset(), &[&buffer], Durability::Cached)?;
            for counter in [&self.counters.bytes_written, &self.counters.map_bytes_written] {
                Counters::add(counter, bytes as u64);
            }
            let mut table = self.table.write();
            table.advance(&slot, 1 + now.len() as u32);
            table.segments.get_mut(slot.segment).map_blocks += now.len() as u32;
            let places = (1..).map(|block| at.plus(block));
            written.blocks.extend(now.iter().map(|(number, _)| *number).zip(places));
            rest = later;
        }
        Ok(())
    }

    /// Blocks that were taken to be written, and were not, have to be.
    fn touch(&self, blocks: &[(Number, MapBlock)]) {
        let mut table = self.table.write();
        blocks.iter().for_each(|(number, _)| table.map.touch(*number));
    }
}

impl super::table::Table {
    /// Notes that a block of the map is not needed there any more.
    fn forget_map_block(&mut self, place: Place, shared: &Shared) {
        let (segment, _) = shared.layout.segment_of(place).expect("blocks of the map are in segments");
        let segment = self.segments.get_mut(segment);
        segment.map_blocks =
            segment.map_blocks.checked_sub(1).expect("a segment has every block of the map that is there");
    }
}
