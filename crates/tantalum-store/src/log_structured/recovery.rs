//! From a device to the table: the newest checkpoint of the map, and the appends behind it.
//!
//! Nothing is written. What a crash left half done stays as it is, and is left behind when the streams begin.
//!
//! A stream is followed from the checkpoint on (Rosenblum and Ousterhout, section 4.2: roll-forward). It ends at the first summary
//! that is not of its session, or not younger than the one before; or whose pages are not all there: that append was under way, and
//! was never acknowledged. But if another follows it, it was not: then its pages are damaged, which a read of them reports.

use std::collections::BTreeSet;

use tantalum_device::AlignedBuffer;

use super::{
    compression,
    layout::{BLOCK_BYTES, BLOCK_UNITS, Extent, Layout, Place},
    maintenance::RootState,
    map::{BlockNumber, ENTRIES, MapBlock, PageMap},
    root::{Position, Root},
    segment_counters::Counters,
    segment_io::SegmentIo,
    summary::{Entry, Stream, Summary},
    table::Table,
};
use crate::{Error, PageId, Result, error, page::header};

/// Blocks that are read at once, where they lie one behind the other.
const RUN_BLOCKS: usize = 64;

/// Finds where everything is.
///
/// # Errors
/// When the device cannot read, or something that is needed is damaged.
pub fn recover(io: &SegmentIo) -> Result<(Table, RootState)> {
    Recovery { io, layout: io.layout }.run()
}

struct Recovery<'a> {
    io: &'a SegmentIo,
    layout: Layout,
}

impl Recovery<'_> {
    fn run(&self) -> Result<(Table, RootState)> {
        let (root, whole_slot) = Root::read(&*self.io.device, self.layout, self.io.database)?;
        let mut table = Table::new(self.layout, self.io.segments());
        table.segments.begin_settled();
        table.map = self.read_map(&root)?;
        self.count_live(&mut table)?;
        let mut appends = Vec::new();
        for (stream, position) in Stream::OF_PAGES.into_iter().zip(root.positions) {
            let followed = self.follow(stream, root.session, position, table.segments.count())?;
            followed.segments.iter().for_each(|segment| table.segments.adopt_followed(*segment));
            appends.extend(followed.appends);
        }
        // As they were begun: an append that cleaning made finds the map as it was then, or a newer page.
        appends.sort_unstable_by_key(|append| append.sequence);
        table.streams.session = root.session;
        table.streams.sequence = root.sequence;
        table.clock = root.clock;
        for append in &appends {
            table.apply(append);
            table.streams.sequence = table.streams.sequence.max(append.sequence + 1);
            table.clock = table.clock.max(append.stamp);
        }
        table.clock_at_checkpoint = root.clock.min(table.clock);
        // As before the crash: opening needs segments before it can take a checkpoint.
        for segment in table.segments.to_free() {
            table.begin_to_free(segment);
            table.segments.end_freeing(segment);
        }
        Counters::add(&self.io.counters.appends_rolled_forward, appends.len() as u64);
        tantalum_rt::tracing::debug!(
            device = self.io.device.name(),
            checkpoint = root.number,
            appends = appends.len(),
            free = table.segments.free(),
            "the page map is recovered"
        );
        Ok((table, RootState { checkpoint: root.number, whole_slot }))
    }

    fn read_map(&self, root: &Root) -> Result<PageMap> {
        let mut map = PageMap::default();
        let places = (0..).zip(&root.directories);
        let directories: Vec<(BlockNumber, Place)> =
            places.filter_map(|(index, place)| Some(((1, index), (*place)?))).collect();
        self.read_blocks(&directories, &mut map)?;
        let chunks = directories.iter().flat_map(|((_, directory), _)| map.chunks_of(*directory));
        let chunks: Vec<(BlockNumber, Place)> = chunks.map(|(index, place)| ((0, index), place)).collect();
        self.read_blocks(&chunks, &mut map)?;
        Ok(map)
    }

    fn read_blocks(&self, blocks: &[(BlockNumber, Place)], map: &mut PageMap) -> Result<()> {
        let mut blocks = blocks.to_vec();
        blocks.sort_unstable_by_key(|(_, place)| *place);
        for run in blocks.chunk_by(|a, b| a.1.plus(1) == b.1) {
            for run in run.chunks(RUN_BLOCKS) {
                let mut buffer = AlignedBuffer::zeroed(run.len() * BLOCK_BYTES);
                self.io.device.read(run[0].1.offset(), &mut buffer)?;
                for ((number, place), bytes) in run.iter().zip(buffer.chunks_exact(BLOCK_BYTES)) {
                    let block = MapBlock::decode(bytes, *number, self.io.database, self.layout.page_units());
                    map.adopt(*number, block.ok_or_else(|| self.damaged_map(*number, *place))?, *place);
                }
            }
        }
        Ok(())
    }

    fn damaged_map(&self, (level, index): BlockNumber, place: Place) -> Error {
        let pages = (index * ENTRIES.pow(1 + level as u32)) as u64;
        error::corrupt(
            self.io.device.name(),
            PageId(pages),
            place.offset(),
            format!("block {index} of the page map's level {level} was expected here, and is not whole"),
        )
    }

    /// Counts what the map says is in each segment.
    fn count_live(&self, table: &mut Table) -> Result<()> {
        let Table { map, segments, .. } = table;
        let (layout, count) = (self.layout, segments.count());
        let mut used = BTreeSet::new();
        let mut segment_of = |extent: Extent| {
            let found = layout.segment_of(extent).filter(|segment| *segment < count);
            used.extend(found);
            found.ok_or_else(|| {
                error::superblock(
                    self.io.device.name(),
                    format!(
                        "the page map names byte {}, where no page can be; perhaps the file was truncated",
                        extent.offset()
                    ),
                )
            })
        };
        for (_, place) in map.blocks() {
            let block = Extent::at(place, 0, BLOCK_UNITS);
            segments.get_mut(segment_of(block)?).map_blocks += 1;
        }
        for (id, extent) in map.pages() {
            let segment = segments.get_mut(segment_of(extent)?);
            segment.page_units += extent.units();
            segment.pages.push(id);
        }
        used.into_iter().for_each(|segment| segments.adopt(segment));
        Ok(())
    }
}

/// What is behind a checkpoint in a stream.
#[derive(Debug, Default)]
struct Followed {
    /// The appends, in their order.
    appends: Vec<Summary>,
    /// The segments that have any.
    segments: Vec<u32>,
}

impl Recovery<'_> {
    /// Follows a stream from a position on.
    ///
    /// # Errors
    /// When the device cannot read. [`Corrupt`](crate::ErrorKind::Corrupt) when appends follow one whose summary is damaged.
    fn follow(&self, stream: Stream, session: u64, from: Position, segments: u32) -> Result<Followed> {
        let mut followed = Followed::default();
        // The append whose pages are not all there, if the last one's are not.
        let mut is_torn = false;
        let mut at = from;
        if at.block > 0 {
            followed.segments.push(at.segment);
        }
        loop {
            if !self.layout.has_room(at.block) {
                // The one that was open after it is named by its own first append.
                at = Position { segment: at.next, block: 0, ..at };
            }
            if at.segment >= segments {
                break;
            }
            let summary = self.io.summary_at(at.segment, at.block)?;
            let Some(summary) = summary.filter(|found| is_next(found, stream, session, at)) else {
                self.expect_end(stream, session, at, segments)?;
                break;
            };
            let blocks = summary.blocks();
            let Some(next) = summary.next.filter(|_| at.block + blocks <= self.layout.segment_blocks()) else { break };
            is_torn = !self.is_whole(&summary)?;
            at = Position { block: at.block + blocks, next, after: summary.sequence, ..at };
            followed.segments.push(summary.segment);
            followed.appends.push(summary);
        }
        if is_torn {
            followed.appends.pop();
        }
        followed.segments.dedup();
        Ok(followed)
    }

    /// Whether all pages of an append are there, as they were appended.
    fn is_whole(&self, summary: &Summary) -> Result<bool> {
        let start = self.layout.place(summary.segment, summary.block);
        let mut bytes = AlignedBuffer::zeroed((summary.blocks() - summary.filler_blocks) as usize * BLOCK_BYTES);
        self.io.device.read(start.offset(), &mut bytes)?;
        let mut page = vec![0; self.layout.page_bytes()];
        let mut is_there = |(extent, entry): (Extent, &Entry)| match *entry {
            Entry::Page { id, lsn, crc, .. } => {
                let image = &bytes[(extent.offset() - start.offset()) as usize..][..extent.bytes()];
                compression::page_of(image, &mut page).is_ok()
                    && header::checksum(&page) == crc
                    && header::lsn(&page) == lsn
                    && header::verify(&page, id).is_ok()
            }
            Entry::Map { .. } => false,
        };
        Ok(summary.extents(start).all(&mut is_there))
    }

    /// Nothing may follow where a stream ends: of appends under way there is one.
    fn expect_end(&self, stream: Stream, session: u64, at: Position, segments: u32) -> Result<()> {
        let is_later =
            |found: &Summary| found.stream == stream && found.session == session && found.sequence > at.after;
        let mut later = self.find_summary(at.segment, at.block + 1, is_later)?;
        if later.is_none() && at.next < segments {
            later = self.io.summary_at(at.next, 0)?.filter(is_later);
        }
        match later {
            None => Ok(()),
            Some(later) => Err(error::superblock(
                self.io.device.name(),
                format!(
                    "a segment summary was expected at byte {} and is damaged: append {} follows at byte {}; restore the \
                     database from a backup",
                    self.layout.place(at.segment, at.block).offset(),
                    later.sequence,
                    self.layout.place(later.segment, later.block).offset()
                ),
            )),
        }
    }

    /// The first summary of a segment, from a block on, that is looked for.
    fn find_summary(&self, segment: u32, from: u32, is_it: impl Fn(&Summary) -> bool) -> Result<Option<Summary>> {
        let end = self.layout.segment_blocks();
        for first in (from..end).step_by(RUN_BLOCKS) {
            let mut bytes = AlignedBuffer::zeroed((end - first).min(RUN_BLOCKS as u32) as usize * BLOCK_BYTES);
            self.io.device.read(self.layout.place(segment, first).offset(), &mut bytes)?;
            let summaries = (first..).zip(bytes.chunks_exact(BLOCK_BYTES)).filter_map(|(block, bytes)| {
                let found = Summary::decode(bytes, self.io.database, self.layout.page_units());
                found.filter(|found| (found.segment, found.block) == (segment, block))
            });
            if let Some(found) = summaries.into_iter().find(&is_it) {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }
}

fn is_next(found: &Summary, stream: Stream, session: u64, at: Position) -> bool {
    found.stream == stream && found.session == session && found.sequence > at.after
}
