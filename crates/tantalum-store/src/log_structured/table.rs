//! The state of the store: where each page is, what each segment holds, where appends go. It is behind one lock, changes only in
//! memory, and a checkpoint and the appends behind it tell it again after a crash.
//!
//! Invariant: a segment has as many live units as the map says are there, and the blocks that a checkpoint under way has written for the
//! map.

use super::{
    free_space::FreeSpace,
    layout::{Extent, Layout, Place},
    lifetimes::Lifetimes,
    map::PageMap,
    root::FIRST_STREAMS,
    segments::{Segments, State},
    streams::{Slot, Streams},
    summary::{Entry, Stream, Summary},
};
use crate::PageId;

#[derive(Debug)]
pub struct Table {
    pub layout: Layout,
    pub map: PageMap,
    pub segments: Segments,
    pub streams: Streams,
    pub lifetimes: Lifetimes,
    /// Blocks that all pages stored so far have taken, since the store was made.
    pub clock: u64,
    /// What `clock` was at the last checkpoint.
    pub clock_at_checkpoint: u64,
    /// Blocks of the map that the newest durable checkpoint names, and the next one does not.
    pub left_map_blocks: Vec<Place>,
    /// The newest append of new pages when cleaning found that it cannot make room. What is stored behind it may be worth
    /// cleaning, or a checkpoint.
    exhausted_after: Option<u64>,
}

impl Table {
    /// That of an empty store of so many segments.
    pub fn new(layout: Layout, segments: u32) -> Self {
        let mut table = Self {
            layout,
            map: PageMap::default(),
            segments: Segments::default(),
            streams: Streams::default(),
            lifetimes: Lifetimes::default(),
            clock: 0,
            clock_at_checkpoint: 0,
            left_map_blocks: Vec::new(),
            exhausted_after: None,
        };
        table.segments.grow(segments);
        table
    }

    /// The newest append of new pages, and how often a segment became free: where these are as they were, nothing has changed that
    /// cleaning could do.
    pub fn progress(&self) -> (u64, u64) {
        (self.streams.newest_append, self.segments.freed())
    }

    /// Notes that cleaning cannot make room.
    pub fn note_exhausted(&mut self) {
        self.exhausted_after = Some(self.streams.newest_append);
    }

    /// Notes that there is room again, or may be.
    pub fn forget_exhausted(&mut self) {
        self.exhausted_after = None;
    }

    /// Whether cleaning has found that it cannot make room, and nothing was stored since.
    pub fn is_exhausted(&self) -> bool {
        self.exhausted_after == Some(self.streams.newest_append)
    }

    /// How much space is free now.
    pub fn free_space(&self) -> FreeSpace {
        let used = self.streams.pages.iter().map(|position| position.block);
        FreeSpace::new(self.layout, self.segments.count(), self.segments.free(), used)
    }

    /// Whether pages are kept apart by how long they are expected to live.
    pub fn has_lifetime_streams(&self) -> bool {
        self.streams.durable > FIRST_STREAMS
    }

    /// The stream that a page goes to which is stored now.
    pub fn stream_of_new_page(&self, id: PageId) -> Stream {
        if !self.has_lifetime_streams() {
            return Stream::Hot;
        }
        let last = self.map.get(id).and_then(|extent| self.layout.segment_of(extent));
        let lived = last.map(|segment| self.clock.saturating_sub(self.segments.get(segment).stamp));
        self.lifetimes.stream_of_new_page(lived)
    }

    /// The stream that a page goes to which cleaning moves, if it was stored at that time.
    pub fn stream_of_moved_page(&self, from: Option<Stream>, stamp: u64) -> Stream {
        if !self.has_lifetime_streams() {
            return Stream::Cold;
        }
        self.lifetimes.stream_of_moved_page(from, self.clock.saturating_sub(stamp))
    }

    /// A segment that is not needed any more will be free.
    pub fn begin_to_free(&mut self, segment: u32) {
        if let Some((Stream::Hot, begun)) = self.segments.get(segment).began {
            self.lifetimes.note_freed(self.clock.saturating_sub(begun));
        }
        self.segments.begin_to_free(segment);
    }

    /// Where new pages go on, if cleaning leaves them the space: in their stream, or in the first one if that is not used any more.
    pub fn slot_for_new_pages(&mut self, stream: Stream) -> Option<Slot> {
        let stream = if stream.number() < self.streams.durable { stream } else { Stream::Hot };
        let reserve = self.layout.cleaning_reserve(self.segments.count());
        self.streams.next_slot(stream, &mut self.segments, self.layout, reserve)
    }

    /// Where moved pages go on: in their stream, or if there is no segment for it, in any that has room. They leave some segments free; but if nothing was stored since the streams have begun, and so nothing
    /// will be before there is room for it, they may take those with which the streams could begin once more: those that were
    /// begun in vain are free again then.
    pub fn slot_for_moved_pages(&mut self, stream: Stream) -> Option<Slot> {
        let count = self.segments.count();
        let reserve = match self.streams.newest_append {
            0 => self.layout.checkpoint_reserve(count),
            _ => self.layout.restart_reserve(count),
        };
        let moved = || Stream::OF_PAGES.into_iter().filter(|stream| !stream.is_of_new_pages());
        let streams = [stream].into_iter().chain(moved()).filter(|stream| stream.number() < self.streams.durable);
        let streams: Vec<Stream> = streams.collect();
        streams.into_iter().find_map(|stream| self.streams.next_slot(stream, &mut self.segments, self.layout, reserve))
    }

    /// Where blocks of the map go on.
    pub fn slot_for_map(&mut self) -> Option<Slot> {
        self.streams.next_map_slot(&mut self.segments, self.layout)
    }

    /// Where a page is, and of which generation its segment is.
    pub fn find(&self, id: PageId) -> Option<(Extent, u64)> {
        let extent = self.map.get(id)?;
        Some((extent, self.generation(extent)))
    }

    /// The generation of the segment that a page is in; no segment's if there is none any more.
    pub fn generation(&self, page: Extent) -> u64 {
        let segment = self.layout.segment_of(page);
        segment.map_or(0, |segment| self.segments.generation(segment).unwrap_or(u64::MAX))
    }

    /// How much space would be free if all segments from `end` on were cut off, as those that are used are free.
    pub fn free_space_before(&self, end: u32) -> FreeSpace {
        let used = self.streams.pages.iter().map(|position| position.block);
        FreeSpace::new(self.layout, end, self.segments.free_before(end), used)
    }

    /// Forgets some of the pages from page `pages` on. False if there are none any more. What was needed of them stays in its place
    /// until a checkpoint says that it is not.
    pub fn forget_pages(&mut self, pages: u64) -> bool {
        let Some(forgotten) = self.map.forget_last(pages) else { return false };
        for page in forgotten.pages {
            let segment = self.forget(page);
            self.segments.unsettle(segment);
        }
        self.left_map_blocks.extend(forgotten.blocks);
        true
    }

    /// Notes that a page is not in its place any more. Returns the segment.
    fn forget(&mut self, page: Extent) -> u32 {
        let segment = self.layout.segment_of(page).expect("pages are in segments");
        let found = self.segments.get_mut(segment);
        let left = found.page_units.checked_sub(page.units());
        found.page_units = left.expect("a segment has every page that the map says is there");
        segment
    }

    /// Notes that an append of pages is durable. Pages that cleaning moved and that were stored meanwhile stay where they
    /// are stored.
    pub fn apply(&mut self, summary: &Summary) {
        let start = self.layout.place(summary.segment, summary.block);
        for (extent, entry) in summary.extents(start) {
            let Entry::Page { id, from, .. } = *entry else { continue };
            // A page that was stored while it was moved is newer than what was moved.
            if from.is_some() && self.map.get(id) != from {
                continue;
            }
            if let Some(old) = self.map.set(id, extent) {
                self.forget(old);
            }
            let found = self.segments.get_mut(summary.segment);
            found.page_units += extent.units();
            found.pages.push(id);
        }
        let found = self.segments.get_mut(summary.segment);
        found.stamp = found.stamp.max(summary.stamp);
        found.began.get_or_insert((summary.stream, self.clock));
    }

    /// Notes that a block of the map is not needed there any more.
    pub fn forget_map_block(&mut self, place: Place) {
        let (segment, _) = self.layout.segment_at(place.offset()).expect("blocks of the map are in segments");
        let segment = self.segments.get_mut(segment);
        segment.map_blocks =
            segment.map_blocks.checked_sub(1).expect("a segment has every block of the map that is there");
    }

    /// Whether a segment may be cleaned. It is free then if it is settled.
    pub fn is_cleanable(&self, segment: u32) -> bool {
        let found = self.segments.get(segment);
        let has_more = found.page_units > 0 || !found.is_map_leaving;
        found.state() == State::Closed
            && !found.is_stuck
            && has_more
            && (1..self.layout.segment_units()).contains(&found.live_units())
    }

    /// Whether recovery would have to look at too many appends.
    pub fn is_checkpoint_due(&self) -> bool {
        let since = self.clock - self.clock_at_checkpoint;
        // The map's blocks are then at most a sixteenth of what is written.
        since >= (16 * self.map.block_count()).max(4 * u64::from(self.layout.segment_blocks()))
    }

    /// Whether the cleaner has something to do: there is little room, or the last checkpoint is long ago.
    pub fn is_work_due(&self) -> bool {
        !self.streams.pages.is_empty() && (self.free_space().is_low() || self.is_checkpoint_due())
    }
}
