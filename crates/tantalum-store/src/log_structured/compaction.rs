//! Giving space back: [`Shared`] empties segments and cuts off the end of the device.
//!
//! *Packing* moves what is live out of segments that lie behind those that the pages need, or of which half is dead, into the first free
//! ones. It is cleaning that chooses by place: beside all else, a piece at a time by the permit of [`Maintenance`], and it leaves as
//! much free space as cleaning would. If too little is free in front, segments there are cleaned first.
//!
//! *Shrinking* forgets the pages that are not kept, and cuts off the free segments at the end:
//! 1. A checkpoint makes the map without those pages durable. Only then are segments free that had nothing else.
//! 2. The free segments at the end are withheld: none of them is opened from now on.
//! 3. Another checkpoint, since the durable map may still name pages there that were moved or stored elsewhere after it.
//! 4. The device is cut off; no task reads meanwhile, since it may have looked up a place there before.
//!
//! A crash leaves a device of the old size or the new one, and either is right: no durable map names what is behind, and no stream goes
//! on there, since a segment that one goes on in, or will, is open. The size is kept nowhere else.
//!
//! Free segments that stay give their space back too, where the device can do that: the file is then as sparse as that of a new
//! database, and takes space again as segments are written.

use std::sync::atomic::Ordering;

use super::{
    Shared, cleaner::of_one_append, layout::BLOCK_UNITS, maintenance::Maintenance, segment_counters::Counters,
    table::Table,
};
use crate::{ErrorKind, PackProgress, Result};

/// So many segments more are taken to be needed if cleaning in front yields too little.
const STEP_SEGMENTS: u32 = 4;
/// A segment is cleaned to make room in front if at least this part of it is dead.
const DEAD_PART: u32 = 8;

/// While it lives, the first free segments are opened.
struct OpensFirst<'s>(&'s Shared);

impl<'s> OpensFirst<'s> {
    fn begin(shared: &'s Shared) -> Self {
        shared.table.write().segments.open_first(true);
        Self(shared)
    }
}

impl Drop for OpensFirst<'_> {
    fn drop(&mut self) {
        self.0.table.write().segments.open_first(false);
    }
}

impl Shared {
    /// Moves what is live to the front, as far as that makes segments free. False if nothing was to be done.
    ///
    /// # Errors
    /// When the device cannot read or write; those of `go_on`, which is told before each piece of work how far it is.
    pub(super) fn pack(&self, pages: u64, go_on: &mut dyn FnMut(PackProgress) -> Result<()>) -> Result<bool> {
        let _opens_first = OpensFirst::begin(self);
        let mut end = self.io.layout.segments_for(pages);
        // What is stored meanwhile may need as much again; but this ends.
        let cleaned_max = 2 * self.table.read().segments.count() as usize;
        let (mut cleaned, mut has_begun, mut is_settled) = (0, false, false);
        let mut progress = PackProgress::default();
        while cleaned < cleaned_max {
            progress.left_blocks = {
                let table = self.table.read();
                live_blocks(&table, not_packed(&table, end))
            };
            go_on(progress)?;
            if self.must_begin() || (!has_begun && !self.table.read().free_space().is_low()) {
                // Where the streams go on now, space may be allocated that they have not come to.
                self.begin_streams_anew()?;
                has_begun = true;
            }
            let mut maintenance = Maintenance::begin(self);
            maintenance.free_segments();
            let (lacks_room, victims, blocks) = {
                let table = self.table.read();
                let lacks_room = table.free_space_before(end).is_low();
                let victims = victims(&table, end, lacks_room);
                let blocks = live_blocks(&table, victims.iter().copied());
                (lacks_room, victims, blocks)
            };
            let emptied = maintenance.clean(&victims)?;
            if emptied > 0 {
                progress.moved_blocks += blocks;
                Counters::add(&self.io.counters.segments_packed, emptied as u64);
                cleaned += emptied;
                is_settled = false;
            } else if !is_settled {
                maintenance.checkpoint()?;
                is_settled = true;
            } else if lacks_room && end < self.table.read().segments.count() {
                end += STEP_SEGMENTS;
            } else {
                break;
            }
        }
        Ok(has_begun || cleaned > 0)
    }

    /// Begins the streams in the first free segments.
    fn begin_streams_anew(&self) -> Result<()> {
        self.batches.between_appends(|| {
            let mut maintenance = Maintenance::begin(self);
            self.must_begin.store(true, Ordering::Release);
            maintenance.begin_streams()
        })
    }

    /// Forgets the pages from page `pages` on, and cuts off the free segments at the end that the others do not need. Returns how many
    /// bytes of those that stay take no space.
    ///
    /// # Errors
    /// When the device cannot be cut off, or read, or written.
    pub(super) fn shrink(&self, pages: u64) -> Result<u64> {
        // No streams are added at the end that is to be cut off.
        let _opens_first = OpensFirst::begin(self);
        if self.must_begin() {
            self.begin_streams_anew()?;
        }
        let mut maintenance = Maintenance::begin(self);
        // The lock is let go in between: there may be many.
        while self.table.write().forget_pages(pages) {}
        maintenance.checkpoint()?;
        let (end, count) = {
            let mut table = self.table.write();
            let count = table.segments.count();
            let least = self.io.layout.segments_for(pages).max(table.segments.used_end()).min(count);
            let end = (least..count).find(|end| !table.free_space_before(*end).is_low()).unwrap_or(count);
            table.segments.withhold(end);
            (end, count)
        };
        if end < count {
            self.cut(&mut maintenance, end)?;
        }
        self.release_free_segments()
    }

    /// Cuts off the segments from `end` on, which are withheld.
    fn cut(&self, maintenance: &mut Maintenance<'_>, end: u32) -> Result<()> {
        let before = self.io.segments();
        if let Err(error) = maintenance.checkpoint() {
            self.table.write().segments.give_back(end);
            return Err(error);
        }
        self.table.write().segments.cut(end);
        let cut = self.io.cut(end);
        let after = self.io.segments();
        self.table.write().segments.grow(after);
        Counters::add(&self.io.counters.segments_cut_off, u64::from(before - after));
        cut
    }

    /// Has the device give back the space of each free segment. Returns how many bytes that is.
    fn release_free_segments(&self) -> Result<u64> {
        let free = self.table.read().segments.all_free();
        let mut released = 0;
        for segment in free {
            if !self.table.write().segments.begin_to_release(segment) {
                continue;
            }
            let result = self.io.release(segment);
            self.table.write().segments.end_freeing(segment);
            match result {
                Ok(()) => released += 1,
                Err(error) if error.kind() == ErrorKind::Unsupported => break,
                Err(error) => return Err(error),
            }
        }
        self.space.announce();
        Ok(released * self.io.layout.segment_bytes())
    }
}

/// The segments that may be emptied, now or after a checkpoint.
fn cleanable(table: &Table) -> impl Iterator<Item = u32> {
    table.segments.iter().map(|(number, _)| number).filter(|number| table.is_cleanable(*number))
}

/// Those of them that lie from `end` on, or of which half is dead.
fn not_packed(table: &Table, end: u32) -> impl Iterator<Item = u32> {
    let units = table.layout.segment_units();
    cleanable(table).filter(move |number| *number >= end || 2 * table.segments.get(*number).live_units() <= units)
}

fn live_blocks(table: &Table, segments: impl Iterator<Item = u32>) -> u64 {
    let units: u64 = segments.map(|number| u64::from(table.segments.get(number).live_units())).sum();
    units.div_ceil(BLOCK_UNITS.into())
}

/// The segments to empty next, so that those from `end` on become free and the others are not mostly dead; or if there is not enough
/// room before `end`, so that there is.
fn victims(table: &Table, end: u32, lacks_room: bool) -> Vec<u32> {
    let units = table.layout.segment_units();
    let live = |number: u32| table.segments.get(number).live_units();
    let mut victims: Vec<u32> = if lacks_room {
        let yields = |number: &u32| *number < end && (units - live(*number)) * DEAD_PART >= units;
        cleanable(table).filter(yields).collect()
    } else {
        not_packed(table, end).collect()
    };
    victims.retain(|number| table.segments.is_settled(*number));
    if lacks_room {
        victims.sort_by_key(|number| live(*number));
    } else {
        victims.reverse();
    }
    of_one_append(table, victims.into_iter())
}
