//! Where everything is, as of now: the map, the segments, the streams. It is under one lock, and changes only in memory.

use super::{
    layout::{Layout, Place},
    map::PageMap,
    root::Position,
    segments::{Segments, State},
    summary::{Entry, Stream, Summary},
};
use crate::PageId;

/// What is behind the store's lock.
#[derive(Debug, Default)]
pub struct Table {
    /// Where each page is.
    pub map: PageMap,
    /// What is known of each segment.
    pub segments: Segments,
    /// Where new pages and moved ones go on; `None` until something is stored.
    pub positions: Option<[Position; 2]>,
    /// The open segment of the map, and the blocks of it that are used.
    pub map_position: Option<(u32, u32)>,
    /// The present session, once the streams have begun.
    pub session: u64,
    /// The next append's number.
    pub sequence: u64,
    /// Blocks of pages stored, ever.
    pub clock: u64,
    /// What `clock` was at the last checkpoint.
    pub clock_at_checkpoint: u64,
    /// The newest durable checkpoint.
    pub checkpoint: u64,
    /// The slot of the root that is whole for certain.
    pub whole_slot: u64,
    /// The newest append of new pages when cleaning found that it cannot make room. What is stored behind it may be worth
    /// cleaning, or a checkpoint.
    pub exhausted_after: Option<u64>,
}

/// Where an append goes.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    /// Its stream.
    pub stream: Stream,
    /// The segment.
    pub segment: u32,
    /// The first block in it.
    pub block: u32,
    /// The segment after it.
    pub next: Option<u32>,
    /// Its number.
    pub sequence: u64,
    /// The session that it belongs to.
    pub session: u64,
}

impl Table {
    /// The newest append of new pages, and how often a segment became free: where these are as they were, nothing has changed that
    /// cleaning could do.
    pub fn progress(&self) -> (u64, u64) {
        (self.newest_append(), self.segments.freed())
    }

    /// The number of the newest append of new pages that is durable; 0 if there is none since the streams have begun.
    fn newest_append(&self) -> u64 {
        self.positions.map_or(0, |[hot, _]| hot.after)
    }

    /// Notes that cleaning cannot make room.
    pub fn note_exhausted(&mut self) {
        self.exhausted_after = Some(self.newest_append());
    }

    /// Notes that there is room again, or may be.
    pub fn forget_exhausted(&mut self) {
        self.exhausted_after = None;
    }

    /// Whether cleaning has found that it cannot make room, and nothing was stored since.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted_after == Some(self.newest_append())
    }

    /// Whether something was stored since the streams have begun.
    pub fn has_stored(&self) -> bool {
        self.newest_append() > 0
    }

    /// Where a page is, and of which generation its segment is.
    pub fn find(&self, id: PageId, layout: &Layout) -> Option<(Place, u64)> {
        let place = self.map.get(id)?;
        Some((place, self.generation(place, layout)))
    }

    /// The generation of a place's segment.
    pub fn generation(&self, place: Place, layout: &Layout) -> u64 {
        let segment = layout.segment_of(place).map(|(segment, _)| segment);
        segment.map_or(0, |segment| self.segments.get(segment).generation)
    }

    /// Where a stream of pages goes on, after it has moved to its next segment if it must. `None` if there is no segment to follow
    /// that, beside `reserve` others.
    pub fn next_slot(&mut self, stream: Stream, layout: &Layout, reserve: u32) -> Option<Slot> {
        let positions = self.positions.as_mut().expect("streams are begun before anything is appended");
        let position = &mut positions[stream as usize];
        if !layout.has_room(position.block) {
            let following = self.segments.open(reserve)?;
            self.segments.close(position.segment, true);
            *position = Position { segment: position.next, block: 0, next: following, after: position.after };
        }
        let Position { segment, block, next, .. } = *position;
        Some(self.slot(stream, segment, block, Some(next)))
    }

    /// Where the map goes on, in a segment with room for something behind a summary. `None` if no segment is free.
    pub fn next_map_slot(&mut self, layout: &Layout) -> Option<Slot> {
        let (segment, block) = match self.map_position {
            Some((segment, block)) if block + 1 < layout.segment_blocks() => (segment, block),
            full => {
                let segment = self.segments.open(0)?;
                if let Some((full, _)) = full {
                    self.segments.close_map(full, true);
                }
                (segment, 0)
            }
        };
        self.map_position = Some((segment, block));
        Some(self.slot(Stream::Map, segment, block, None))
    }

    fn slot(&mut self, stream: Stream, segment: u32, block: u32, next: Option<u32>) -> Slot {
        let sequence = self.sequence;
        self.sequence += 1;
        Slot { stream, segment, block, next, sequence, session: self.session }
    }

    /// Notes that an append of pages is durable. Pages that cleaning moved and that were stored meanwhile stay where they
    /// are stored.
    pub fn apply(&mut self, summary: &Summary, layout: &Layout) {
        for (at, entry) in summary.at(layout.page_blocks()) {
            let Entry::Page { id, from, .. } = *entry else { continue };
            // A page that was stored while it was moved is newer than what was moved.
            if from.is_some() && self.map.get(id) != from {
                continue;
            }
            let old = self.map.set(id, layout.place(summary.segment, summary.block + at));
            if let Some((segment, _)) = old.and_then(|old| layout.segment_of(old)) {
                let found = self.segments.get_mut(segment);
                found.page_blocks = found
                    .page_blocks
                    .checked_sub(layout.page_blocks())
                    .expect("a segment has every page that the map says is there");
            }
            let found = self.segments.get_mut(summary.segment);
            found.page_blocks += layout.page_blocks();
            found.pages.push(id);
        }
        let found = self.segments.get_mut(summary.segment);
        found.stamp = found.stamp.max(summary.stamp);
    }

    /// Notes that an append to an open segment took so many blocks.
    pub fn advance(&mut self, slot: &Slot, blocks: u32) {
        match (slot.stream, &mut self.positions, &mut self.map_position) {
            (Stream::Map, _, Some((_, block))) => *block += blocks,
            (_, Some(positions), _) => {
                let position = &mut positions[slot.stream as usize];
                position.block += blocks;
                position.after = slot.sequence;
            }
            _ => unreachable!("an append was made to a stream that is open"),
        }
    }

    /// Whether a segment may be cleaned. It is free then if it is settled.
    pub fn is_cleanable(&self, segment: u32, layout: &Layout) -> bool {
        let found = self.segments.get(segment);
        let has_more = found.page_blocks > 0 || !found.is_map_leaving;
        found.state() == State::Closed
            && !found.is_stuck
            && has_more
            && (1..layout.segment_blocks()).contains(&found.live_blocks())
    }
}
