//! What [`Shared`] tells of its segments: what stands in one, and whether the map and what is known of segments say the same.
//!
//! For the latter both are copied at one moment, and compared afterwards: the store stands still for as long as it takes to copy
//! eight bytes a page in memory.

use std::collections::BTreeMap;

use super::{
    Shared,
    layout::{BLOCK_BYTES, BLOCK_UNITS, Extent},
    segments::{Segment, State},
    summary::{Entry, Summary},
};
use crate::{AppendInspection, EntryInspection, PageId, Result, SegmentInspection, error};

impl Shared {
    /// Shows a segment.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such segment, or when the device cannot read.
    pub(super) fn inspect(&self, segment: u32) -> Result<SegmentInspection> {
        let mut inspection = {
            let table = self.table.read();
            let count = table.segments.count();
            if segment >= count {
                let what = format!("segment {segment}: {} has segments 0 to {}", self.io.device.name(), count - 1);
                return Err(error::option(what));
            }
            let found = table.segments.get(segment);
            let state = match found.state() {
                State::Free | State::Discarding => "free",
                State::Open => "open",
                State::Closed if found.live_units() == 0 => "empty",
                State::Closed if found.is_stuck => "stuck",
                State::Closed => "closed",
            };
            SegmentInspection {
                segment,
                offset_bytes: self.io.layout.place(segment, 0).offset(),
                state: state.into(),
                blocks: self.io.layout.segment_blocks(),
                live_blocks: found.live_units().div_ceil(BLOCK_UNITS),
                appends: Vec::new(),
            }
        };
        let mut block = 0;
        let mut last = 0;
        // An earlier use of the segment shows behind the last append of the present one.
        while block < self.io.layout.segment_blocks()
            && let Some(summary) = self.io.summary_at(segment, block)?.filter(|found| found.sequence > last)
        {
            last = summary.sequence;
            inspection.appends.push(self.inspect_append(&summary));
            block += summary.blocks();
        }
        Ok(inspection)
    }

    fn inspect_append(&self, summary: &Summary) -> AppendInspection {
        let table = self.table.read();
        let start = self.io.layout.place(summary.segment, summary.block);
        let entry = |(extent, entry): (Extent, &Entry)| {
            let (kind, number, lsn, is_live) = match *entry {
                Entry::Page { id, lsn, .. } => ("page", id.0, Some(lsn.get()), table.map.get(id) == Some(extent)),
                Entry::Map { level, index } => {
                    let block = table.map.level(usize::from(level)).get(index as usize);
                    let at = block.and_then(|block| block.at()).map(|place| place.offset());
                    (if level == 0 { "map" } else { "directory" }, index, None, at == Some(extent.offset()))
                }
            };
            let block = summary.block + ((extent.offset() - start.offset()) / BLOCK_BYTES as u64) as u32;
            EntryInspection { block, bytes: extent.bytes(), kind: kind.into(), number, lsn, is_live }
        };
        AppendInspection {
            block: summary.block,
            sequence: summary.sequence,
            stream: summary.stream.name().into(),
            is_of_this_session: summary.session == table.streams.session,
            filler_blocks: summary.filler_blocks,
            entries: summary.extents(start).map(entry).collect(),
        }
    }

    /// Tells where the map and what is known of segments differ.
    pub(super) fn check(&self, found: &mut dyn FnMut(String)) {
        let (map, segments) = {
            // Nothing of it changes meanwhile: the lock is that of every change.
            let table = self.table.read();
            let known = |segment: &Segment| (segment.page_units, segment.map_blocks, segment.state());
            let segments: Vec<_> = table.segments.iter().map(|(_, segment)| known(segment)).collect();
            (table.map.clone(), segments)
        };
        let mut live: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        let mut pages: Vec<(Extent, PageId)> = map.pages().map(|(id, extent)| (extent, id)).collect();
        pages.sort_unstable();
        for pair in pages.windows(2) {
            let [(first, _), (second, id)] = [pair[0], pair[1]];
            if second.offset() < first.end() {
                found(format!("page {id} is said to be at byte {}, where another is", second.offset()));
            }
        }
        for (extent, id) in pages {
            let segment = self.io.layout.segment_of(extent).filter(|segment| (*segment as usize) < segments.len());
            let Some(segment) = segment else {
                let (at, length) = (extent.offset(), extent.bytes());
                found(format!("page {id} is said to be at byte {at}, with {length} bytes, where no page can be"));
                continue;
            };
            live.entry(segment).or_default().0 += extent.units();
        }
        for (_, place) in map.blocks() {
            if let Some((segment, _)) = self.io.layout.segment_at(place.offset()) {
                live.entry(segment).or_default().1 += 1;
            }
        }
        for (number, (page_units, map_blocks, state)) in (0..).zip(segments) {
            let (pages, map) = live.get(&number).copied().unwrap_or_default();
            // Of the map, a checkpoint that is under way has blocks in two places.
            if page_units != pages || map_blocks < map {
                found(format!(
                    "segment {number} has {pages} units of pages and {map} blocks of the map, and is taken to have {page_units} and \
                     {map_blocks}"
                ));
            }
            if page_units + map_blocks > 0 && matches!(state, State::Free | State::Discarding) {
                found(format!(
                    "segment {number} is taken to be free, and has {page_units} units of pages and {map_blocks} blocks of the map"
                ));
            }
        }
    }
}
