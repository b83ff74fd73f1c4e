//! The streams that appends go to: new pages, pages that the cleaner moved, and blocks of the map.
//!
//! Pages that are expected to be stored again at about the same time belong together, so that their segment dies at once: so there are
//! several streams of either kind, if there are segments enough ([`lifetimes`](super::lifetimes) chooses among them).
//!
//! Invariants:
//! - a stream of pages always has the segment after its open one, opened before: each append names it, so that recovery finds the
//!   way without a checkpoint
//! - a stream of pages is used only if the newest durable root names it
//! - in a session, an append's number is higher than that of every earlier one, on whatever stream

use super::{
    layout::Layout,
    root::{FIRST_STREAMS, Position},
    segments::Segments,
    summary::{Entry, Stream, Summary},
};

/// How many segments of pages the log-structured store writes at a time, and which pages go together.
///
/// ```
/// use tantalum_store::PageStreams;
/// assert_eq!(PageStreams::default(), PageStreams::Two);
/// assert_eq!("by-lifetime".parse(), Ok(PageStreams::ByLifetime));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum PageStreams {
    /// One for all pages. A drive without placement handles is then written segment by segment, so that fewer of them share its erase
    /// units ("How to Write to SSDs", PVLDB 2026).
    One,
    /// One for pages that are stored, and one for those that cleaning moves, which have not changed for a while.
    #[default]
    Two,
    /// Several of either kind, by how long pages are expected to live, if there are segments enough: for drives with placement handles.
    ByLifetime,
}

impl PageStreams {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::One, Self::Two, Self::ByLifetime];

    /// Its name in settings and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::One => "one",
            Self::Two => "two",
            Self::ByLifetime => "by-lifetime",
        }
    }
}

tantalum_device::named_field!(PageStreams);

#[derive(Debug, Default)]
pub struct Streams {
    /// Where each stream of pages goes on; empty until something is stored.
    pub pages: Vec<Position>,
    /// How many of them the newest durable root names.
    pub durable: usize,
    /// The open segment of the map, and the blocks of it that are used.
    map: Option<(u32, u32)>,
    /// The number of the newest durable append of new pages; 0 if there is none since the streams have begun.
    pub newest_append: u64,
    /// The present session: a random number, drawn when the streams begin.
    pub session: u64,
    /// The next append's number.
    pub sequence: u64,
}

/// Where an append goes.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    pub stream: Stream,
    pub segment: u32,
    /// The first block in it.
    pub block: u32,
    /// The segment after it.
    next: Option<u32>,
    sequence: u64,
    session: u64,
    /// See [`Segment::was_reset`](super::segments::Segment::was_reset).
    pub was_reset: bool,
}

impl Slot {
    /// The summary of an append here.
    pub fn summary(&self, stamp: u64, entries: Vec<Entry>, filler_blocks: u32) -> Summary {
        let Self { stream, segment, block, next, sequence, session, .. } = *self;
        Summary { session, sequence, stream, segment, block, next, stamp, entries, filler_blocks }
    }
}

impl Streams {
    /// Begins so many streams of pages in fresh segments, after closing those that were open; fewer if too few segments are free for
    /// all, beside `reserve` others. False if they are too few for the first ones.
    pub fn begin(&mut self, streams: usize, reserve: u32, segments: &mut Segments, session: u64) -> bool {
        for Position { segment, block, next, .. } in self.pages.drain(..) {
            segments.close(segment, block > 0);
            segments.close(next, false);
        }
        if let Some((segment, block)) = self.map.take() {
            segments.close_map(segment, block > 0);
        }
        (self.durable, self.newest_append) = (0, 0);
        if !self.add(FIRST_STREAMS, 0, segments) {
            return false;
        }
        self.add(streams, reserve, segments);
        self.session = session;
        true
    }

    /// Begins streams of pages until there are so many. False, and none is begun, if too few segments are free, beside `reserve`
    /// others.
    pub fn add(&mut self, streams: usize, reserve: u32, segments: &mut Segments) -> bool {
        let missing = streams.saturating_sub(self.pages.len());
        let opened: Vec<u32> = std::iter::from_fn(|| segments.open(reserve)).take(2 * missing).collect();
        if opened.len() < 2 * missing {
            opened.into_iter().for_each(|segment| segments.close(segment, false));
            return false;
        }
        let position = |pair: &[u32]| Position { segment: pair[0], block: 0, next: pair[1], after: 0 };
        self.pages.extend(opened.chunks_exact(2).map(position));
        true
    }

    /// Where a stream of pages goes on, after it has moved to its next segment if it must. `None` if there is no segment to follow
    /// that, beside `reserve` others.
    pub fn next_slot(&mut self, stream: Stream, segments: &mut Segments, layout: Layout, reserve: u32) -> Option<Slot> {
        let number = stream.number();
        assert!(number < self.durable, "a stream is used when a durable root names it");
        let position = &mut self.pages[number];
        if !layout.has_room(position.block) {
            let following = segments.open(reserve)?;
            segments.close(position.segment, true);
            *position = Position { segment: position.next, block: 0, next: following, after: position.after };
        }
        let Position { segment, block, next, .. } = *position;
        let was_reset = segments.get(segment).was_reset;
        Some(self.slot(stream, (segment, block), Some(next), was_reset))
    }

    /// Where the map goes on, in a segment with room for something behind a summary. `None` if no segment is free.
    pub fn next_map_slot(&mut self, segments: &mut Segments, layout: Layout) -> Option<Slot> {
        let (segment, block) = match self.map {
            Some((segment, block)) if block + 1 < layout.segment_blocks() => (segment, block),
            full => {
                let segment = segments.open(0)?;
                if let Some((full, _)) = full {
                    segments.close_map(full, true);
                }
                (segment, 0)
            }
        };
        self.map = Some((segment, block));
        let was_reset = segments.get(segment).was_reset;
        Some(self.slot(Stream::Map, (segment, block), None, was_reset))
    }

    fn slot(&mut self, stream: Stream, (segment, block): (u32, u32), next: Option<u32>, was_reset: bool) -> Slot {
        let sequence = self.sequence;
        self.sequence += 1;
        Slot { stream, segment, block, next, sequence, session: self.session, was_reset }
    }

    /// Notes that an append, of new pages or of what is there already, took so many blocks.
    pub fn advance(&mut self, slot: &Slot, blocks: u32, is_new: bool) {
        if is_new {
            self.newest_append = slot.sequence;
        }
        match (slot.stream, &mut self.map) {
            (Stream::Map, Some((_, block))) => *block += blocks,
            (Stream::Map, None) => unreachable!("an append was made to a stream that is open"),
            (stream, _) => {
                let position = &mut self.pages[stream.number()];
                position.block += blocks;
                position.after = slot.sequence;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{SegmentSizes, log_structured::segments::State};

    #[test]
    fn a_stream_names_its_next_segment_before_it_moves_there() {
        let device = tantalum_device::MemoryDevice::new("data", 4 << 20);
        let layout = Layout::new(&*device, 4096, SegmentSizes { segment: 9 * 4096, fill_percent: 60 }).unwrap();
        let (mut streams, mut segments) = (Streams::default(), Segments::default());
        segments.grow(6);
        assert!(streams.begin(6, 0, &mut segments, 1));
        assert_eq!(streams.pages.len(), 2, "there are too few segments for more");
        streams.durable = 2;
        let first = streams.next_slot(Stream::Hot, &mut segments, layout, 0).unwrap();
        streams.advance(&first, layout.segment_blocks(), true);
        assert!(streams.next_slot(Stream::Hot, &mut segments, layout, 2).is_none(), "two are free, and kept");
        let second = streams.next_slot(Stream::Hot, &mut segments, layout, 1).unwrap();
        assert_eq!((first.next, second.block), (Some(second.segment), 0));
        assert!(second.sequence > first.sequence);
        assert_eq!(segments.get(first.segment).state(), State::Closed);
        streams.advance(&second, 1, false);
        assert_eq!(streams.newest_append, first.sequence, "the second was of moved pages");
    }

    #[test]
    fn streams_that_cannot_begin_leave_all_segments_free() {
        let (mut streams, mut segments) = (Streams::default(), Segments::default());
        segments.grow(3);
        assert!(!streams.begin(2, 0, &mut segments, 1));
        assert_eq!((segments.free(), streams.pages.len()), (3, 0));
        segments.grow(13);
        assert!(streams.begin(6, 1, &mut segments, 1));
        assert_eq!((segments.free(), streams.pages.len(), streams.durable), (1, 6, 0));
    }
}
