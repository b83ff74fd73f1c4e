//! The free space of the store, and how it is divided between new pages and cleaning.
//!
//! Free space is counted in blocks, so that each batch waits for as much as its pages take, a little each time: else none would wait
//! while a segment lasts, and then one for all of the next. Some segments yield less than others, and drives have their pauses too: so
//! a spare segment is kept for batches that have waited longer than is usual.

use std::time::Duration;

use super::{Shared, table::Table};

/// Segments of room between where cleaning begins and where new pages wait for it, at least.
const MARGIN_SEGMENTS_MIN: u32 = 3;
/// The same of a large store, as a share of its segments.
const MARGIN_SHARE: u32 = 64;
/// Free segments for batches that have waited longer than `LONG_WAIT`.
const SPARE_SEGMENTS: u32 = 1;
/// Half of the longest wait that is acceptable.
const LONG_WAIT: Duration = Duration::from_millis(50);

impl Shared {
    fn segments_as_blocks(&self, segments: u32) -> u64 {
        u64::from(segments) * u64::from(self.layout.segment_blocks())
    }

    /// Blocks that pages can be appended to before a segment has to become free: what is left of the segments that the streams are
    /// in, and the free ones. Those that follow the open ones are not counted: there are always two.
    pub(super) fn room(&self, table: &Table) -> u64 {
        let left = |used: u32| u64::from(self.layout.segment_blocks().saturating_sub(used));
        let open: u64 = table.positions.iter().flatten().map(|position| left(position.block)).sum();
        self.segments_as_blocks(table.segments.free()) + open
    }

    /// What new pages leave of it: with so much, the segment that they go on in can always be followed by another.
    fn held_back(&self, table: &Table) -> u64 {
        self.segments_as_blocks(self.layout.cleaning_reserve(table.segments.count()) + 1)
    }

    /// Whether an append of so many pages may be made to the open segment of new pages, or has to wait for cleaning, if it has
    /// waited so long.
    pub(super) fn has_room_for(&self, pages: usize, waited: Duration, table: &Table) -> bool {
        let pages = u64::try_from(pages).unwrap_or(u64::MAX).min(self.layout.pages_per_segment().into());
        let blocks = (1 + pages * u64::from(self.layout.page_blocks())).min(self.segments_as_blocks(1));
        let spare = if waited < LONG_WAIT { self.segments_as_blocks(SPARE_SEGMENTS) } else { 0 };
        table.is_exhausted() || self.room(table) >= self.held_back(table) + spare + blocks
    }

    /// With less room, new pages may have to wait.
    fn enough(&self, table: &Table) -> u64 {
        self.held_back(table) + self.segments_as_blocks(SPARE_SEGMENTS + 1)
    }

    /// Whether new pages may have to wait.
    pub(super) fn is_urgent(&self, table: &Table) -> bool {
        self.room(table) < self.enough(table)
    }

    /// Whether so little is free that cleaning itself may get short of it.
    pub(super) fn is_short(&self, table: &Table) -> bool {
        table.segments.free() <= self.layout.restart_reserve(table.segments.count())
    }

    fn margin(&self, table: &Table) -> u64 {
        self.segments_as_blocks((table.segments.count() / MARGIN_SHARE).max(MARGIN_SEGMENTS_MIN))
    }

    /// With less room, cleaning begins.
    pub(super) fn low_water(&self, table: &Table) -> u64 {
        self.enough(table) + self.margin(table)
    }

    /// With so much, or as much after a checkpoint, it ends.
    pub(super) fn high_water(&self, table: &Table) -> u64 {
        self.low_water(table) + self.segments_as_blocks(1)
    }

    /// How long the cleaner rests for each unit of time that it works: as long where it begins, not at all from half of the way to
    /// where new pages wait.
    pub(super) fn rest_share(&self, table: &Table) -> f64 {
        let margin = self.margin(table);
        let left = self.room(table).saturating_sub(self.enough(table)).min(margin);
        ((2 * left) as f64 / margin as f64 - 1.0).max(0.0)
    }

    /// Segments that moved pages leave free. If nothing was stored since the streams have begun, and so nothing will be before there
    /// is room for it, they may take those with which the streams could begin once more: those that were begun in vain are free
    /// again then.
    pub(super) fn reserve_of_cleaning(&self, table: &Table) -> u32 {
        let count = table.segments.count();
        if table.has_stored() { self.layout.restart_reserve(count) } else { self.layout.checkpoint_reserve(count) }
    }

    /// Whether recovery would have to look at too many appends.
    pub(super) fn is_checkpoint_due(&self, table: &Table) -> bool {
        let since = table.clock - table.clock_at_checkpoint;
        // The map's blocks are then at most a sixteenth of what is written.
        since >= (16 * table.map.block_count()).max(4 * u64::from(self.layout.segment_blocks()))
    }

    /// Whether the cleaner has something to do: there is little room, or the last checkpoint is long ago.
    pub(super) fn is_work_due(&self, table: &Table) -> bool {
        table.positions.is_some() && (self.room(table) < self.low_water(table) || self.is_checkpoint_due(table))
    }
}
