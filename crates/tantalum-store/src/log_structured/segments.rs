//! What is known of each segment.
//!
//! Invariant: a segment is written only while it is open, and opened only when it is free; it becomes free only when nothing in
//! it is live, and it is *settled*: it was closed when the newest durable checkpoint was taken. What that checkpoint says is in a
//! settled segment and is not live any more, was appended again behind the checkpoint; and recovery follows appends through
//! segments that were open then, or opened since. So nothing that recovery may need is ever written over.

use std::collections::BTreeSet;

use super::{layout::BLOCK_UNITS, summary::Stream};
use crate::PageId;

/// What a segment is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// For nothing: it can be written over.
    #[default]
    Free,
    /// Appends go to it, or will.
    Open,
    /// It was written, and is read.
    Closed,
    /// It is free as soon as the device was told, or has given its space back.
    Discarding,
}

/// A segment.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Units with pages that the map points at.
    pub page_units: u32,
    /// Blocks of the map that the newest durable checkpoint points at, or one that is under way.
    pub map_blocks: u32,
    /// When the youngest of its pages was stored, counted in blocks of pages stored.
    pub stamp: u64,
    /// The stream of its appends, and when the first was made, on the clock of `stamp`; `None` if that was before the store was opened.
    pub began: Option<(Stream, u64)>,
    /// Changes when it becomes free: what was read from it before and after may be different things.
    pub generation: u64,
    /// Pages that were appended here; the map says of which that still holds.
    pub pages: Vec<PageId>,
    /// Whether something in it cannot be moved, because it cannot be read.
    pub is_stuck: bool,
    /// Whether the next checkpoint writes the map's blocks that are in it elsewhere.
    pub is_map_leaving: bool,
    /// Whether its zone was reset since it became free, on a device with zones.
    pub was_reset: bool,
    state: State,
    /// The number of checkpoints that had been taken when it was closed.
    closed_after: u64,
}

impl Segment {
    /// What it is used for.
    pub fn state(&self) -> State {
        self.state
    }

    /// Units that must not be lost.
    pub fn live_units(&self) -> u32 {
        self.page_units + self.map_blocks * BLOCK_UNITS
    }
}

/// All segments.
#[derive(Debug, Default)]
pub struct Segments {
    all: Vec<Segment>,
    free: BTreeSet<u32>,
    /// Where the search for a free one goes on: all are used in turn.
    cursor: u32,
    /// Whether the first free one is opened instead.
    opens_first: bool,
    /// The generation with which new segments begin: higher than that of any segment that was cut off.
    first_generation: u64,
    /// How often one became free again.
    freed: u64,
    /// Checkpoints taken since the store was opened, durable or not.
    taken: u64,
    /// The newest of them that is durable.
    durable: u64,
}

impl Segments {
    /// The number of segments.
    pub fn count(&self) -> u32 {
        self.all.len() as u32
    }

    /// Free segments.
    pub fn free(&self) -> u32 {
        self.free.len() as u32
    }

    /// How often a segment became free again since the store was opened.
    pub fn freed(&self) -> u64 {
        self.freed
    }

    /// Notes, at opening, that there is a durable checkpoint.
    pub fn begin_settled(&mut self) {
        (self.taken, self.durable) = (1, 1);
    }

    /// Takes note of all segments that the device has; new ones are free.
    pub fn grow(&mut self, count: u32) {
        for segment in self.count()..count {
            self.all.push(Segment { generation: self.first_generation, ..Segment::default() });
            self.free.insert(segment);
        }
    }

    /// Changes as [`Segment::generation`], also when there is no such segment any more.
    pub fn generation(&self, segment: u32) -> Option<u64> {
        self.all.get(segment as usize).map(|found| found.generation)
    }

    /// Free segments before `end`.
    pub fn free_before(&self, end: u32) -> u32 {
        self.free.range(..end).count() as u32
    }

    /// The segment from which on all are free.
    pub fn used_end(&self) -> u32 {
        let is_free = |number: &u32| self.free.contains(number);
        self.count() - (0..self.count()).rev().take_while(is_free).count() as u32
    }

    /// From now on, until it is called again, whether the first free segment is opened each time instead of all in turn.
    pub fn open_first(&mut self, opens_first: bool) {
        self.opens_first = opens_first;
    }

    /// Whether the first free segment is opened each time.
    pub fn opens_first(&self) -> bool {
        self.opens_first
    }

    /// Opens none of the segments from `end` on any more, all of which are free.
    pub fn withhold(&mut self, end: u32) {
        let withheld = self.free.split_off(&end);
        assert_eq!(withheld.len() as u32, self.count() - end, "all segments from {end} on are free");
    }

    /// Ends [`withhold`](Self::withhold).
    pub fn give_back(&mut self, end: u32) {
        self.free.extend(end..self.count());
    }

    /// Forgets the segments from `end` on, which are withheld.
    pub fn cut(&mut self, end: u32) {
        for cut in self.all.drain(end as usize..) {
            assert!(cut.state == State::Free && cut.live_units() == 0, "a segment is cut off, and {cut:?}");
            self.first_generation = self.first_generation.max(cut.generation + 1);
        }
        assert!(self.free.range(end..).next().is_none(), "segments from {end} on are withheld");
    }

    /// A segment.
    pub fn get(&self, segment: u32) -> &Segment {
        &self.all[segment as usize]
    }

    /// A segment, to change what is known of it.
    pub fn get_mut(&mut self, segment: u32) -> &mut Segment {
        &mut self.all[segment as usize]
    }

    /// All, with their numbers.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Segment)> {
        (0..).zip(&self.all)
    }

    /// Opens a free segment if more than `reserve` are.
    pub fn open(&mut self, reserve: u32) -> Option<u32> {
        if self.free() <= reserve {
            return None;
        }
        let from = if self.opens_first { 0 } else { self.cursor };
        let found = self.free.range(from..).next().or_else(|| self.free.first()).copied()?;
        self.free.remove(&found);
        self.cursor = found + 1;
        let segment = self.get_mut(found);
        assert!(segment.state == State::Free && segment.live_units() == 0, "segment {found} is free, and {segment:?}");
        segment.state = State::Open;
        Some(found)
    }

    /// Closes an open segment. One that was never written is free again.
    pub fn close(&mut self, segment: u32, is_written: bool) {
        let taken = self.taken;
        let found = self.get_mut(segment);
        assert_eq!(found.state, State::Open, "segment {segment} is closed once");
        (found.state, found.closed_after) = (State::Closed, taken);
        if !is_written {
            // An append there may have failed.
            found.was_reset = false;
            self.begin_to_free(segment);
            self.end_freeing(segment);
        }
    }

    /// Closes an open segment that has blocks of the map only: no appends are followed through it, so it is settled.
    pub fn close_map(&mut self, segment: u32, is_written: bool) {
        self.close(segment, is_written);
        self.get_mut(segment).closed_after = 0;
    }

    /// Notes, at opening, that a segment was written before the checkpoint was taken.
    pub fn adopt(&mut self, segment: u32) {
        if self.free.remove(&segment) {
            self.get_mut(segment).state = State::Closed;
        }
    }

    /// Notes, at opening, that recovery has followed appends through a segment: the checkpoint needs it.
    pub fn adopt_followed(&mut self, segment: u32) {
        self.adopt(segment);
        self.get_mut(segment).closed_after = self.durable;
    }

    /// Notes that a checkpoint is taken. Returns its number.
    pub fn take_checkpoint(&mut self) -> u64 {
        self.taken += 1;
        self.taken
    }

    /// Notes that a checkpoint is durable.
    pub fn settle(&mut self, checkpoint: u64) {
        self.durable = checkpoint;
    }

    /// Whether a segment was closed when the newest durable checkpoint was taken.
    pub fn is_settled(&self, segment: u32) -> bool {
        let found = self.get(segment);
        found.state == State::Closed && found.closed_after < self.durable
    }

    /// Keeps a segment until a later checkpoint: the newest durable one says of a page or a block of the map in it that it is needed.
    pub fn unsettle(&mut self, segment: u32) {
        let taken = self.taken;
        self.get_mut(segment).closed_after = taken;
    }

    /// The free segments.
    pub fn all_free(&self) -> Vec<u32> {
        self.free.iter().copied().collect()
    }

    /// Begins to release a segment, if it is still free.
    pub fn begin_to_release(&mut self, segment: u32) -> bool {
        let is_free = self.free.remove(&segment);
        if is_free {
            self.get_mut(segment).state = State::Discarding;
        }
        is_free
    }

    /// Segments that are not needed any more.
    pub fn to_free(&self) -> Vec<u32> {
        let is_one = |(number, segment): &(u32, &Segment)| segment.live_units() == 0 && self.is_settled(*number);
        self.iter().filter(is_one).map(|(number, _)| number).collect()
    }

    /// Closed segments in which nothing is live, which the next checkpoint settles.
    pub fn empty(&self) -> u32 {
        let is_one = |segment: &&Segment| segment.state == State::Closed && segment.live_units() == 0;
        self.all.iter().filter(is_one).count() as u32
    }

    /// A closed segment that is not needed any more will be free. A task that has read from it must look again.
    ///
    /// # Panics
    /// If something in it is live.
    pub fn begin_to_free(&mut self, segment: u32) {
        let found = self.get_mut(segment);
        assert!(
            found.state == State::Closed && found.live_units() == 0,
            "segment {segment} is still needed: {found:?}"
        );
        *found = Segment { generation: found.generation + 1, state: State::Discarding, ..Segment::default() };
    }

    /// The segment is free.
    pub fn end_freeing(&mut self, segment: u32) {
        let found = self.get_mut(segment);
        assert_eq!(found.state, State::Discarding, "segment {segment} is freed once");
        found.state = State::Free;
        self.free.insert(segment);
        self.freed += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_segment_is_to_be_freed_once_a_durable_checkpoint_was_taken_since_it_was_closed() {
        let mut segments = Segments::default();
        segments.grow(4);
        segments.begin_settled();
        let (first, map) = (segments.open(0).unwrap(), segments.open(0).unwrap());
        segments.close(first, true);
        assert!(segments.to_free().is_empty(), "recovery would follow the appends in it");
        segments.close_map(map, true);
        assert_eq!(segments.to_free(), [map], "nothing is followed through it");
        let taken = segments.take_checkpoint();
        let second = segments.open(0).unwrap();
        segments.close(second, true);
        assert_eq!(segments.to_free(), [map], "the checkpoint is not durable");
        segments.settle(taken);
        segments.get_mut(first).page_units = 1;
        assert_eq!(segments.to_free(), [map], "a page is live");
        segments.get_mut(first).page_units = 0;
        assert_eq!(segments.to_free(), [first, map], "the second was closed after the checkpoint was taken");
        segments.begin_to_free(first);
        segments.end_freeing(first);
        assert_eq!((segments.free(), segments.is_settled(first)), (2, false));
    }

    #[test]
    fn segments_at_the_end_are_cut_off_and_others_take_their_numbers() {
        let mut segments = Segments::default();
        segments.grow(6);
        segments.begin_settled();
        let opened: Vec<u32> = std::iter::from_fn(|| segments.open(2)).collect();
        assert_eq!((opened, segments.used_end()), (vec![0, 1, 2, 3], 4));
        [0, 3].into_iter().for_each(|segment| segments.close(segment, false));
        assert_eq!((segments.used_end(), segments.free_before(3), segments.free()), (3, 1, 4));
        let before = segments.generation(3).unwrap();
        segments.withhold(3);
        assert_eq!((segments.free(), segments.open(0), segments.open(0)), (1, Some(0), None));
        segments.close(0, false);
        segments.give_back(3);
        assert_eq!(segments.free(), 4);
        segments.withhold(3);
        segments.cut(3);
        assert_eq!((segments.count(), segments.generation(3)), (3, None));
        segments.grow(5);
        assert!(segments.generation(3).unwrap() > before, "a task that reads a place must see that it is another");
        assert_eq!(segments.open(0), Some(3), "all are used in turn");
        segments.open_first(true);
        assert_eq!(segments.open(0), Some(0));
        assert!(segments.begin_to_release(4) && !segments.begin_to_release(4));
        assert_eq!(segments.open(0), None);
        segments.end_freeing(4);
        assert_eq!(segments.open(0), Some(4));
    }

    #[test]
    fn what_is_forgotten_stays_until_the_next_checkpoint() {
        let mut segments = Segments::default();
        segments.grow(1);
        segments.begin_settled();
        segments.adopt(0);
        segments.unsettle(0);
        assert!(segments.to_free().is_empty(), "the durable checkpoint names what is in it");
        let taken = segments.take_checkpoint();
        segments.settle(taken);
        assert_eq!(segments.to_free(), [0]);
    }

    #[test]
    fn what_recovery_followed_stays_until_the_next_checkpoint() {
        let mut segments = Segments::default();
        segments.grow(3);
        segments.begin_settled();
        segments.adopt(0);
        segments.adopt_followed(1);
        assert_eq!((segments.to_free(), segments.free()), (vec![0], 1));
        let taken = segments.take_checkpoint();
        segments.settle(taken);
        assert_eq!(segments.to_free(), [0, 1]);
    }
}
