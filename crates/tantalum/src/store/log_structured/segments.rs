//! What is known of each segment.
//!
//! Invariant: a segment is written only while it is open, and opened only when it is free; it becomes free only when a durable
//! checkpoint leaves nothing live in it. So nothing that recovery may need is ever written over.

use std::collections::BTreeSet;

use crate::page::PageId;

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
    state: State,
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
        let found = self.get_mut(segment);
        assert_eq!(found.state, State::Open, "segment {segment} is closed once");
        found.state = State::Closed;
        if !is_written {
            self.begin_to_free(segment);
            self.end_freeing(segment);
        }
    }

    /// Notes, at opening, that a segment was written.
    pub fn adopt(&mut self, segment: u32) {
        if self.free.remove(&segment) {
            self.get_mut(segment).state = State::Closed;
        }
    }

    /// Closed segments without pages: what is in them is needed until a checkpoint that knows so is durable.
    pub fn without_pages(&self) -> Vec<u32> {
        let is_one = |segment: &Segment| segment.state == State::Closed && segment.page_blocks == 0;
        self.iter().filter(|(_, segment)| is_one(segment)).map(|(number, _)| number).collect()
    }

    /// Closed segments in which nothing is live: the next checkpoint frees them.
    pub fn empty(&self) -> u32 {
        let is_one = |segment: &&Segment| segment.state == State::Closed && segment.live_blocks() == 0;
        self.all.iter().filter(is_one).count() as u32
    }

    /// A closed segment that is not needed any more will be free. Whoever has read from it must look again.
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
    }
}
