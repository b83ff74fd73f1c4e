//! What is known of each segment.
//!
//! Invariant: a segment is written only while it is open, and opened only when it is free; it becomes free only when nothing in
//! it is live, and it is *settled*: it was closed when the newest durable checkpoint was taken. What that checkpoint says is in a
//! settled segment and is not live any more, was appended again behind the checkpoint; and recovery follows appends through
//! segments that were open then, or opened since. So nothing that recovery may need is ever written over.

use std::collections::BTreeSet;

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
    /// It is free as soon as the device was told.
    Discarding,
}

/// A segment.
#[derive(Clone, Debug, Default)]
pub struct Segment {
    /// Blocks with pages that the map points at.
    pub page_blocks: u32,
    /// Blocks of the map that the newest durable checkpoint points at, or one that is under way.
    pub map_blocks: u32,
    /// When the youngest of its pages was stored, counted in blocks of pages stored.
    pub stamp: u64,
    /// Changes when it becomes free: what was read from it before and after may be different things.
    pub generation: u64,
    /// Pages that were appended here; the map says of which that still holds.
    pub pages: Vec<PageId>,
    /// Whether something in it cannot be moved, because it cannot be read.
    pub is_stuck: bool,
    /// Whether the next checkpoint writes the map's blocks that are in it elsewhere.
    pub is_map_leaving: bool,
    state: State,
    /// The number of checkpoints that had been taken when it was closed.
    closed_after: u64,
}

impl Segment {
    /// What it is used for.
    pub fn state(&self) -> State {
        self.state
    }

    /// Blocks that must not be lost.
    pub fn live_blocks(&self) -> u32 {
        self.page_blocks + self.map_blocks
    }
}

/// All segments.
#[derive(Debug, Default)]
pub struct Segments {
    all: Vec<Segment>,
    free: BTreeSet<u32>,
    /// Where the search for a free one goes on: all are used in turn.
    cursor: u32,
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
            self.all.push(Segment::default());
            self.free.insert(segment);
        }
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
        let found = self.free.range(self.cursor..).next().or_else(|| self.free.first()).copied()?;
        self.free.remove(&found);
        self.cursor = found + 1;
        let segment = self.get_mut(found);
        assert!(segment.state == State::Free && segment.live_blocks() == 0, "segment {found} is free, and {segment:?}");
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

    /// Segments that are not needed any more.
    pub fn to_free(&self) -> Vec<u32> {
        let is_one = |(number, segment): &(u32, &Segment)| segment.live_blocks() == 0 && self.is_settled(*number);
        self.iter().filter(is_one).map(|(number, _)| number).collect()
    }

    /// Closed segments in which nothing is live, which the next checkpoint settles.
    pub fn empty(&self) -> u32 {
        let is_one = |segment: &&Segment| segment.state == State::Closed && segment.live_blocks() == 0;
        self.all.iter().filter(is_one).count() as u32
    }

    /// A closed segment that is not needed any more will be free. A task that has read from it must look again.
    ///
    /// # Panics
    /// If something in it is live.
    pub fn begin_to_free(&mut self, segment: u32) {
        let found = self.get_mut(segment);
        assert!(
            found.state == State::Closed && found.live_blocks() == 0,
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
        segments.get_mut(first).page_blocks = 1;
        assert_eq!(segments.to_free(), [map], "a page is live");
        segments.get_mut(first).page_blocks = 0;
        assert_eq!(segments.to_free(), [first, map], "the second was closed after the checkpoint was taken");
        segments.begin_to_free(first);
        segments.end_freeing(first);
        assert_eq!((segments.free(), segments.is_settled(first)), (2, false));
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
