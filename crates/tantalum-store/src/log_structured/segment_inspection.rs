//! What [`Shared`] tells of its segments: what stands in one, and whether the map and what is known of segments say the same.
//!
//! For the latter both are copied at one moment, and compared afterwards: the store stands still for as long as it takes to copy
//! eight bytes a page in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Shared,
    layout::Place,
    segments::{Segment, State},
    summary::{Entry, Summary},
};
use crate::{AppendInspection, EntryInspection, Result, SegmentInspection, error};

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
                State::Closed if found.live_blocks() == 0 => "empty",
                State::Closed if found.is_stuck => "stuck",
                State::Closed => "closed",
            };
            SegmentInspection {
                segment,
                offset_bytes: self.io.layout.place(segment, 0).offset(),
                state: state.into(),
                blocks: self.io.layout.segment_blocks(),
                live_blocks: found.live_blocks(),
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
            block += summary.blocks(self.io.layout.page_blocks());
        }
        Ok(inspection)
    }

    fn inspect_append(&self, summary: &Summary) -> AppendInspection {
        let table = self.table.read();
        let start = self.io.layout.place(summary.segment, summary.block);
        let entry = |(at, entry): (u32, &Entry)| {
            let place: Place = start.plus(at);
            let (kind, number, lsn, is_live) = match *entry {
                Entry::Page { id, lsn, .. } => ("page", id.0, Some(lsn.get()), table.map.get(id) == Some(place)),
                Entry::Map { level, index } => {
                    let block = table.map.level(usize::from(level)).get(index as usize);
                    let kind = if level == 0 { "map" } else { "directory" };
                    (kind, index, None, block.and_then(|block| block.at()) == Some(place))
                }
            };
            EntryInspection { block: summary.block + at, kind: kind.into(), number, lsn, is_live }
        };
        AppendInspection {
            block: summary.block,
            sequence: summary.sequence,
            stream: summary.stream.name().into(),
            is_of_this_session: summary.session == table.streams.session,
            filler_blocks: summary.filler_blocks,
            entries: summary.at(self.io.layout.page_blocks()).map(entry).collect(),
        }
    }

    /// Tells where the map and what is known of segments differ.
    pub(super) fn check(&self, found: &mut dyn FnMut(String)) {
        let (map, segments) = {
            // Nothing of it changes meanwhile: the lock is that of every change.
            let table = self.table.read();
            let known = |segment: &Segment| (segment.page_blocks, segment.map_blocks, segment.state());
            let segments: Vec<_> = table.segments.iter().map(|(_, segment)| known(segment)).collect();
            (table.map.clone(), segments)
        };
        let mut places = BTreeSet::new();
        let mut live: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (id, place) in map.pages() {
            let Some((segment, block)) = self.io.layout.segment_of(place) else {
                found(format!("page {id} is said to be at byte {}, before the first segment", place.offset()));
                continue;
            };
            if !places.insert(place) {
                found(format!("page {id} is said to be at byte {}, where another is", place.offset()));
            }
            if block == 0 || segment as usize >= segments.len() {
                found(format!("page {id} is said to be at byte {}, where no page can be", place.offset()));
                continue;
            }
            live.entry(segment).or_default().0 += self.io.layout.page_blocks();
        }
        for (_, place) in map.blocks() {
            if let Some((segment, _)) = self.io.layout.segment_of(place) {
                live.entry(segment).or_default().1 += 1;
            }
        }
        for (number, (page_blocks, map_blocks, state)) in (0..).zip(segments) {
            let (pages, map) = live.get(&number).copied().unwrap_or_default();
            // Of the map, a checkpoint that is under way has blocks in two places.
            if page_blocks != pages || map_blocks < map {
                found(format!(
                    "segment {number} has {pages} blocks of pages and {map} of the map, and is taken to have {page_blocks} and \
                     {map_blocks}"
                ));
            }
            if page_blocks + map_blocks > 0 && matches!(state, State::Free | State::Discarding) {
                let blocks = page_blocks + map_blocks;
                found(format!("segment {number} is taken to be free, and has {blocks} live blocks"));
            }
        }
    }
}
