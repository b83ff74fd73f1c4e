//! The free space of the store at one moment, and how it is divided between new pages and cleaning.
//!
//! It is counted in blocks, so that each batch waits for as much as its pages take, a little each time: else none would wait
//! while a segment lasts, and then one for all of the next. Some segments yield less than others, and drives have their pauses too: so
//! a spare segment is kept for batches that have waited longer than is usual.
//!
//! From much space to little: above the *high water* cleaning ends, below the *low water* it begins, below *enough* new pages may
//! have to wait, and what is *held back* they never take: with so much, the segment that they go on in can always be followed by
//! another.

use std::time::Duration;

use super::layout::{BLOCK_UNITS, Layout};

/// Segments of room between where cleaning begins and where new pages wait for it, at least.
const MARGIN_SEGMENTS_MIN: u32 = 3;
/// The same of a large store, as a share of its segments.
const MARGIN_SHARE: u32 = 64;
/// Free segments for batches that have waited longer than `LONG_WAIT`.
const SPARE_SEGMENTS: u32 = 1;
/// Half of the longest wait that is acceptable.
const LONG_WAIT: Duration = Duration::from_millis(50);

#[derive(Clone, Copy, Debug)]
pub struct FreeSpace {
    layout: Layout,
    segments: u32,
    free_segments: u32,
    /// Blocks that pages can be appended to before a segment has to become free: what is left of the segments that the streams
    /// are in, and the free ones. Those that follow the open ones are not counted: there are always as many.
    room: u64,
    /// The open segments of pages, beside those of one stream, which may be all that is left of `room`.
    others_open: u32,
}

impl FreeSpace {
    /// Of a store whose open segments have so many blocks used each.
    pub fn new(layout: Layout, segments: u32, free_segments: u32, used: impl Iterator<Item = u32>) -> Self {
        let (mut open, mut streams) = (0, 0u32);
        for used in used {
            open += u64::from(layout.segment_blocks().saturating_sub(used));
            streams += 1;
        }
        let room = u64::from(free_segments) * u64::from(layout.segment_blocks()) + open;
        let others_open = streams.saturating_sub(1).max(1);
        Self { layout, segments, free_segments, room, others_open }
    }

    fn in_blocks(self, segments: u32) -> u64 {
        u64::from(segments) * u64::from(self.layout.segment_blocks())
    }

    fn held_back(self) -> u64 {
        self.in_blocks(self.layout.cleaning_reserve(self.segments) + self.others_open)
    }

    fn enough(self) -> u64 {
        self.held_back() + self.in_blocks(SPARE_SEGMENTS + 1)
    }

    fn margin(self) -> u64 {
        self.in_blocks((self.segments / MARGIN_SHARE).max(MARGIN_SEGMENTS_MIN))
    }

    fn low_water(self) -> u64 {
        self.enough() + self.margin()
    }

    /// Whether an append of pages of so many units may be made to the open segment of new pages, or has to wait for cleaning, if it
    /// has waited so long.
    pub fn has_room_for(self, units: u64, waited: Duration) -> bool {
        let units_max = u64::from(self.layout.pages_per_segment()) * u64::from(self.layout.page_units());
        let blocks = (1 + units.min(units_max).div_ceil(BLOCK_UNITS.into())).min(self.in_blocks(1));
        let spare = if waited < LONG_WAIT { self.in_blocks(SPARE_SEGMENTS) } else { 0 };
        self.room >= self.held_back() + spare + blocks
    }

    /// Whether new pages may have to wait.
    pub fn is_urgent(self) -> bool {
        self.room < self.enough()
    }

    /// Whether so little is free that cleaning itself may get short of it.
    pub fn is_short(self) -> bool {
        self.free_segments <= self.layout.restart_reserve(self.segments)
    }

    /// Whether cleaning begins.
    pub fn is_low(self) -> bool {
        self.room < self.low_water()
    }

    /// Whether cleaning ends, once so many more segments are free.
    pub fn is_plenty_with(self, more: u32) -> bool {
        self.room + self.in_blocks(more) >= self.low_water() + self.in_blocks(1)
    }

    /// How long the cleaner rests for each unit of time that it works: as long where it begins, not at all from half of the way to
    /// where new pages wait.
    pub fn rest_share(self) -> f64 {
        let margin = self.margin();
        let left = self.room.saturating_sub(self.enough()).min(margin);
        ((2 * left) as f64 / margin as f64 - 1.0).max(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentSizes;

    #[test]
    fn cleaning_begins_before_new_pages_wait_and_they_wait_before_cleaning_is_short() {
        let device = tantalum_device::MemoryDevice::new("data", 16 << 20);
        let layout = Layout::new(&*device, 4096, SegmentSizes { segment: 9 * 4096, fill_percent: 60 }).unwrap();
        let with_free = |free| FreeSpace::new(layout, 400, free, std::iter::empty());
        let least = |holds: &dyn Fn(FreeSpace) -> bool| (0..400).find(|free| holds(with_free(*free))).unwrap();
        let thresholds = [
            least(&|space| !space.is_short()),
            least(&|space| space.has_room_for(BLOCK_UNITS.into(), LONG_WAIT)),
            least(&|space| space.has_room_for(BLOCK_UNITS.into(), Duration::ZERO)),
            least(&|space| !space.is_urgent()),
            least(&|space| !space.is_low()),
            least(&|space| space.is_plenty_with(0)),
        ];
        assert!(thresholds.is_sorted(), "{thresholds:?}");
        assert_eq!(with_free(thresholds[3]).rest_share(), 0.0);
        assert_eq!(with_free(thresholds[4]).rest_share(), 1.0);
        assert!(with_free(thresholds[5] - 2).is_plenty_with(2));
    }
}
