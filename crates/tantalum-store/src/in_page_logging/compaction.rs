//! Giving space back: units move from the end of the device to free ones in front, and the end is cut off. Not on raw flash, which has
//! a fixed size.
//!
//! *Moving* is merging, into units in front that are taken first from then on; so a crash finds what it finds after any merge. Units with
//! scratch pages are copied, as they bear nothing that says what they are.
//!
//! *Cutting off* first forgets the logical units behind those that are kept. The map is what the headers say that the next opening finds, so
//! theirs are blanked: first those of old versions, of which one would else count again, with sectors that are long overwritten; then those of the
//! present ones. The store is then as long as its last unit in use, with the reserve for what may be active, which becomes no less while the
//! store is open. The length is written nowhere else, so a crash leaves the old one or the new one, and either is right.

use std::{collections::BTreeSet, sync::Arc};

use tantalum_device::{AlignedBuffer, Durability};
use tantalum_rt::RwLock;

use super::{
    InPageStore, Unit,
    physical::{Physical, Taken},
    survey::read_header,
    unit_counters::Counters,
};
use crate::{PackProgress, Result};

/// So many units are given back while storing changes waits.
const UNITS_AT_A_TIME: usize = 64;

/// What is at the end of the device, and is to be moved.
enum AtEnd {
    /// A logical unit: its version or its scratch pages.
    Unit(Arc<RwLock<Unit>>),
    /// Log sectors that have overflowed, of logical units that a merge frees of them.
    Overflow(u32),
}

impl InPageStore {
    /// The logical units that so many pages lie in.
    fn units_of(&self, pages: u64) -> u32 {
        u32::try_from(pages.div_ceil(self.medium.geometry.pages() as u64)).unwrap_or(u32::MAX)
    }

    /// Moves what lies behind the units that so many pages need. `go_on` is told before each unit and at the end. Returns whether anything was
    /// moved.
    ///
    /// # Errors
    /// When the device cannot read or write, or a unit is damaged; those of `go_on`.
    pub(super) fn move_to_front(&self, pages: u64, go_on: &mut dyn FnMut(PackProgress) -> Result<()>) -> Result<bool> {
        let end = self.physical.units_for(self.units_of(pages));
        if end >= self.medium.units() {
            return Ok(false);
        }
        self.physical.prefer_before(end);
        let found = self.found_from(end);
        let mut progress = PackProgress { moved_blocks: 0, left_blocks: found.len() as u64 };
        for at_end in found {
            go_on(progress)?;
            let _placing = self.placing.lock();
            let has_moved = match at_end {
                AtEnd::Unit(unit) => self.move_unit(&mut unit.write(), end)?,
                AtEnd::Overflow(physical) => self.empty_overflow_unit(physical, end)?,
            };
            progress.moved_blocks += u64::from(has_moved);
            progress.left_blocks -= 1;
        }
        go_on(progress)?;
        Ok(progress.moved_blocks > 0)
    }

    /// What lies in the units from `end` on: overflow units first, since merging for them moves units too.
    fn found_from(&self, end: u32) -> Vec<AtEnd> {
        let _placing = self.placing.lock();
        let mut overflow = self.overflow.lock();
        overflow.close_from(end);
        let mut found: Vec<_> = overflow.units().filter(|unit| *unit >= end).map(AtEnd::Overflow).collect();
        drop(overflow);
        let units: Vec<_> = self.units.read().iter().cloned().collect();
        let at_end = units.into_iter().filter(|unit| unit.read().place().is_some_and(|place| place >= end));
        found.extend(at_end.map(AtEnd::Unit));
        found
    }

    /// Moves a unit that lies at `end` or behind. False if it does not any more, or there is no room in front.
    fn move_unit(&self, unit: &mut Unit, end: u32) -> Result<bool> {
        if unit.place().is_none_or(|place| place < end) || self.physical.free_before(end) == 0 {
            return Ok(false);
        }
        if unit.scratch.is_some() {
            return self.copy_scratch(unit).map(|()| true);
        }
        self.make_ready(unit)?;
        if !self.can_merge(unit) {
            return Ok(false);
        }
        self.merge(unit, &[], Physical::take)?;
        Counters::add(&self.counters.units_moved, 1);
        Ok(true)
    }

    /// Moves the scratch pages of a unit.
    fn copy_scratch(&self, unit: &mut Unit) -> Result<()> {
        let geometry = self.medium.geometry;
        let Some(old) = unit.scratch else { return Ok(()) };
        let mut pages = AlignedBuffer::zeroed(geometry.pages() * geometry.page_bytes);
        self.medium.read(geometry.page_at(old.physical, 0), &mut pages)?;
        let taken = self.write_other_unit(|taken| {
            Counters::add(&self.counters.bytes_written, pages.len());
            self.medium.write(geometry.page_at(taken.physical, 0), &pages, Durability::Cached)
        })?;
        unit.scratch = Some(taken);
        self.physical.give_back(Taken { is_erased: false, ..old });
        Counters::add(&self.counters.units_moved, 1);
        Ok(())
    }

    /// Merges the units that have sectors in an overflow unit, which is then free. False if it was already, or is not.
    fn empty_overflow_unit(&self, physical: u32, end: u32) -> Result<bool> {
        let needed_by = self.overflow.lock().needed_by(physical);
        for logical in &needed_by {
            let Some(unit) = self.find_unit(*logical) else { continue };
            let mut unit = unit.write();
            self.make_ready(&mut unit)?;
            if !self.can_merge(&unit) || self.physical.free_before(end) == 0 {
                return Ok(false);
            }
            self.merge(&mut unit, &[], Physical::take)?;
        }
        let dead = self.overflow.lock().take_dead();
        dead.into_iter().try_for_each(|unit| self.free_unit(unit))?;
        Ok(!needed_by.is_empty())
    }

    /// Forgets all but so many pages, and cuts off the units behind the last one that is needed.
    ///
    /// # Errors
    /// When the device cannot read or write. [`Unsupported`](crate::ErrorKind::Unsupported) when it has a fixed size.
    pub(super) fn cut_off(&self, pages: u64) -> Result<()> {
        let logical_units = self.units_of(pages);
        while self.blank_old(logical_units)? {}
        while self.forget_units(logical_units)? {}
        let _placing = self.placing.lock();
        let end = self.physical.units_for(logical_units).max(self.physical.used_end());
        if end >= self.medium.units() {
            return Ok(());
        }
        let cut = self.medium.device.shrink(self.medium.geometry.unit_at(end));
        // Whatever came of it.
        let after = self.medium.units();
        let mut units = self.units.write();
        self.physical.shrink(after);
        units.truncate(self.physical.logical_units() as usize);
        cut
    }

    /// Blanks some headers of old versions of the logical units from `first` on, durably. False if there are none.
    fn blank_old(&self, first: u32) -> Result<bool> {
        let _placing = self.placing.lock();
        let old = self.old_headers(first);
        self.blank_headers(&old[..old.len().min(UNITS_AT_A_TIME)], first)?;
        Ok(!old.is_empty())
    }

    /// The erase units that may bear headers of old versions of these logical units.
    fn old_headers(&self, first: u32) -> Vec<u32> {
        let units: Vec<_> = self.units.read().iter().skip(first as usize).cloned().collect();
        let present: BTreeSet<u32> = units.iter().filter_map(|unit| unit.read().place()).collect();
        let mut bearing = self.physical.bearing_from(first);
        bearing.retain(|physical| !present.contains(physical));
        bearing
    }

    /// Forgets some of the logical units from `first` on, durably. Nothing in them is needed. False if there are none.
    fn forget_units(&self, first: u32) -> Result<bool> {
        let _placing = self.placing.lock();
        // Versions that a merge has replaced since the others were blanked.
        self.blank_headers(&self.old_headers(first), first)?;
        tantalum_rt::interleave();
        let mut units: Vec<_> = self.units.read().iter().skip(first as usize).cloned().collect();
        units.retain(|unit| {
            let unit = unit.read();
            assert!(unit.scratch.is_none(), "scratch pages are in use, so their unit is kept");
            unit.home.is_some() || unit.in_doubt.is_some()
        });
        units.truncate(UNITS_AT_A_TIME);
        let mut present = Vec::new();
        for unit in &units {
            let mut unit = unit.write();
            present.extend(unit.place());
            // First: if it is unknown then what became of a header, nothing may be added to its version.
            unit.in_doubt.get_or_insert_default();
        }
        self.blank_headers(&present, first)?;
        for unit in &units {
            let mut unit = unit.write();
            if let Some(home) = unit.home.take() {
                Counters::add(&self.counters.units_forgotten, 1);
                self.free_version(home.sequence, home.physical)?;
            }
            self.free_doubtful(&mut unit)?;
        }
        Ok(!units.is_empty())
    }

    /// Blanks headers of versions of logical units from `first` on, durably.
    fn blank_headers(&self, physical: &[u32], first: u32) -> Result<()> {
        let geometry = self.medium.geometry;
        let blank = AlignedBuffer::zeroed(geometry.sector_bytes);
        for &physical in physical {
            let at = geometry.header_at(physical);
            // In an overflow unit that has come so far, a log sector stands there.
            if read_header(&self.medium, physical, at)?.is_some_and(|header| header.logical >= first) {
                self.medium.write(at, &blank, Durability::Cached)?;
            }
        }
        if !physical.is_empty() {
            self.medium.flush()?;
        }
        physical.iter().for_each(|physical| self.physical.note_no_header(*physical));
        Ok(())
    }
}
