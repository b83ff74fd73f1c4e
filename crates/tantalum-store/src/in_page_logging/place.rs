//! Storing changes: into the region of their unit, with a merge of it, or into an overflow unit ("In-Page Logging",
//! section 5.3, Algorithm 3).

use tantalum_device::{Durability, PendingWrite};
use tantalum_rt::ArcRwLockWriteGuard;

use super::{
    InPageStore,
    physical::Physical,
    sector::{Packed, Piece, SectorHead, pack},
    unit::{Home, SectorInfo, Unit},
    unit_counters::Counters,
};
use crate::{PageChanges, PageId, Result};

/// Free units that storing wants before it begins, beside those that its own sectors may fill: one for a merge, and one in
/// case another fails.
const FREE_MIN: u32 = 3;
/// Overflow units that may hold little: the one that is written, and one that was when the database was closed.
const PARTLY_FILLED: u32 = 2;
/// Units are compared in wear after so many merges.
const MERGES_PER_LEVELING: u64 = 16;
/// So far apart in erases units may always be.
const WEAR_GAP: u32 = 8;

/// A logical unit, and changes of its pages.
type UnitPieces<'a> = (u32, Vec<Piece<'a>>);

/// Sectors on their way into a region.
struct Submitted {
    /// Of the batch's units, which this is.
    number: usize,
    unit: ArcRwLockWriteGuard<Unit>,
    write: Box<dyn PendingWrite>,
    sectors: Vec<SectorInfo>,
    bytes: usize,
}

impl InPageStore {
    /// Writes changes of pages, in ascending order of the pages, into log sectors. When it returns, all are durable; when it
    /// fails, or the power does, each group's changes of each page are there or not, and may be stored again.
    ///
    /// One task at a time calls this.
    ///
    /// # Errors
    /// When the device cannot read or write, or a unit that must be merged is damaged. [`StoreFull`](crate::ErrorKind::StoreFull)
    /// when too much is active.
    pub(super) fn store_all(&self, batch: &[(PageId, PageChanges)]) -> Result<()> {
        assert!(batch.is_sorted_by(|a, b| a.0 < b.0), "the pages of a batch ascend");
        let mut by_unit: Vec<UnitPieces<'_>> = Vec::new();
        for (id, changes) in batch {
            let Some((logical, page)) = self.place_of(*id) else {
                unreachable!("pages are allocated within the store's capacity, and page {id} is not");
            };
            if by_unit.last().is_none_or(|(last, _)| *last != logical) {
                by_unit.push((logical, Vec::new()));
            }
            let (_, pieces) = by_unit.last_mut().expect("one was pushed");
            pieces.extend(changes.iter().map(|(position, bytes)| Piece::whole(page, position, bytes)));
        }
        let mut rest = &by_unit[..];
        while !rest.is_empty() {
            let _placing = self.placing.lock();
            let (step, later) = rest.split_at(self.make_room(rest)?);
            self.store_step(step)?;
            rest = later;
        }
        Ok(())
    }

    /// Stores changes that there is room for, all units' at the same time.
    fn store_step(&self, by_unit: &[UnitPieces<'_>]) -> Result<()> {
        let mut submitted = Vec::new();
        let mut result = Ok(());
        let durability = if by_unit.len() == 1 { Durability::Durable } else { Durability::Cached };
        for (number, (logical, pieces)) in by_unit.iter().enumerate() {
            match self.store_in_unit(number, *logical, pieces, durability) {
                Ok(write) => submitted.extend(write),
                Err(error) => {
                    result = Err(error);
                    break;
                }
            }
        }
        self.finish(by_unit, submitted, durability, result)?;
        let records = by_unit.iter().map(|(_, pieces)| pieces.len()).sum();
        Counters::add(&self.counters.records_stored, records);
        Ok(())
    }

    /// Waits for all writes, also after an error: none may be under way when the changes are stored again. Only what is
    /// durable becomes known. A unit that could not be written is merged, and so leaves the place that failed.
    fn finish(
        &self,
        by_unit: &[UnitPieces<'_>],
        mut submitted: Vec<Submitted>,
        durability: Durability,
        mut result: Result<()>,
    ) -> Result<()> {
        let mut failed = Vec::new();
        for mut sectors in std::mem::take(&mut submitted) {
            match sectors.write.wait(None) {
                Some(Err(error)) if error.is_io() => failed.push((sectors, error)),
                Some(Err(error)) => result = result.and(Err(error)),
                _ => submitted.push(sectors),
            }
        }
        if durability == Durability::Cached {
            result = result.and_then(|()| self.medium.flush());
        }
        result?;
        for mut stored in submitted {
            Counters::add(&self.counters.sectors_written, stored.sectors.len());
            Counters::add(&self.counters.bytes_written, stored.bytes);
            let home = stored.unit.home.as_mut().expect("sectors were submitted to its region");
            home.index_mut().sectors.append(&mut stored.sectors);
        }
        for (mut failed, error) in failed {
            let logical = failed.unit.logical;
            tantalum_rt::tracing::warn!(unit = logical, %error, "log sectors cannot be written; the unit is written elsewhere");
            Counters::add(&self.counters.failed_writes, 1);
            self.merge(&mut failed.unit, &by_unit[failed.number].1, Physical::take)?;
        }
        Ok(())
    }

    /// Stores changes of pages of one unit. Returns the write that must be waited for, if there is one.
    fn store_in_unit(
        &self,
        number: usize,
        logical: u32,
        pieces: &[Piece<'_>],
        durability: Durability,
    ) -> Result<Option<Submitted>> {
        let mut unit = self.unit(logical).write_arc();
        self.make_ready(&mut unit)?;
        let is_in_doubt = unit.in_doubt.is_some();
        let Some(home) = unit.home.as_mut().filter(|_| !is_in_doubt) else {
            self.merge(&mut unit, pieces, Physical::take)?;
            return Ok(None);
        };
        let geometry = self.medium.geometry;
        let mut packed = pack(pieces.iter().copied(), geometry.sector_bytes);
        let (sequence, index) = (home.sequence, home.index_mut());
        let counted = u16::try_from(index.sectors.len()).expect("a version has less than 65,536 sectors");
        packed.seal(SectorHead { logical, sequence, counted }, self.medium.store);
        if packed.len() <= geometry.sectors() - index.next {
            let first = index.next;
            // Used up, even if the write fails.
            index.next += packed.len();
            let physical = home.physical;
            return self.submit((number, unit), (physical, first), &packed, durability).map(Some);
        }
        let horizon = self.session().horizon.committed_through();
        let carried = index.sectors.iter().filter(|sector| self.is_active(sector.summary.last, horizon)).count();
        if carried + packed.len() > self.carry_over_max {
            Counters::add(&self.counters.merges_avoided, 1);
            let mut sectors = Vec::with_capacity(packed.len());
            self.write_overflow(logical, sequence, &packed, 0, &mut sectors)?;
            index.sectors.append(&mut sectors);
            return Ok(None);
        }
        self.merge(&mut unit, pieces, Physical::take)?;
        Ok(None)
    }

    fn submit(
        &self,
        (number, unit): (usize, ArcRwLockWriteGuard<Unit>),
        (physical, first): (u32, usize),
        packed: &Packed,
        durability: Durability,
    ) -> Result<Submitted> {
        let (geometry, counted) = (self.medium.geometry, packed.counted());
        let bytes = packed.bytes(0..packed.len());
        let (at, buffer) = (geometry.sector_at(physical, first), Self::buffer_of(bytes));
        let write = self.medium.submit(at, &buffer, 0..bytes.len(), durability)?;
        let info = |(index, summary): (usize, &_)| SectorInfo {
            at: geometry.sector_at(physical, first + index),
            summary: *summary,
            counted,
        };
        let sectors = packed.summaries.iter().enumerate().map(info).collect();
        Ok(Submitted { number, unit, write, sectors, bytes: bytes.len() })
    }

    /// Makes sure that changes find room, wherever they go: those of all the units, or where that is scarce, of the first ones.
    /// Returns of how many.
    fn make_room(&self, by_unit: &[UnitPieces<'_>]) -> Result<usize> {
        let geometry = self.medium.geometry;
        let sectors: Vec<usize> = by_unit.iter().map(|(_, pieces)| geometry.sectors_for(pieces)).collect();
        let needed = |sectors: usize| FREE_MIN + sectors.div_ceil(geometry.overflow_sectors()) as u32;
        let mut sum = sectors.iter().sum();
        let mut count = by_unit.len();
        if !self.has_room(needed(sum), sum) {
            let mut first = 0;
            let fits = |sectors: &&usize| {
                first += **sectors;
                first <= geometry.overflow_sectors()
            };
            count = sectors.iter().take_while(fits).count().max(1);
            sum = sectors[..count].iter().sum();
            self.free_overflow(needed(sum), sum)?;
        }
        self.level_wear()?;
        if self.physical.free() < needed(sum) { Err(self.full()) } else { Ok(count) }
    }

    /// Whether so many units are free, and those in overflow are not too many even if so many sectors overflow.
    fn has_room(&self, needed: u32, sectors: usize) -> bool {
        let quota = (self.physical.reserve() / 2) as usize;
        let overflow = self.overflow.lock();
        let begun = overflow.begun_by(sectors, self.medium.geometry.overflow_sectors());
        self.physical.free() >= needed && overflow.len() + begun <= quota
    }

    /// Frees overflow units until there is room for so many sectors, or as far as it can be done. First, units are merged
    /// whose changes then need fewer sectors. If that is not enough, and overflow units hold little each, other units
    /// are merged too: what they have in overflow units is written anew, together.
    fn free_overflow(&self, needed: u32, sectors: usize) -> Result<()> {
        if !self.clean_overflow(&|| self.has_room(needed, sectors), |unit| self.would_shrink(unit))? {
            let capacity = self.medium.geometry.overflow_sectors();
            let is_done = || self.has_room(needed, sectors) || !self.overflow.lock().is_scattered(capacity);
            self.clean_overflow(&is_done, |_| true)?;
        }
        Ok(())
    }

    /// Merges units that have sectors in overflow units, if `suits` says so, and frees the overflow units that are then not
    /// needed: those first that take the fewest merges. Returns whether it was done before all were tried.
    fn clean_overflow(&self, is_done: &dyn Fn() -> bool, suits: impl Fn(&Unit) -> bool) -> Result<bool> {
        let victims = self.overflow.lock().victims();
        for victim in victims {
            if is_done() {
                return Ok(true);
            }
            let needed_by = self.overflow.lock().needed_by(victim);
            for logical in needed_by {
                let Some(unit) = self.find_unit(logical) else { continue };
                let mut unit = unit.write();
                self.make_ready(&mut unit)?;
                if suits(&unit) && self.can_merge(&unit) {
                    self.merge(&mut unit, &[], Physical::take)?;
                    Counters::add(&self.counters.cleanings, 1);
                }
            }
            let dead = self.overflow.lock().take_dead();
            dead.into_iter().try_for_each(|unit| self.free_unit(unit))?;
        }
        Ok(is_done())
    }

    /// Whether a merge of a unit leaves fewer sectors in overflow units. Else it would only move them.
    fn would_shrink(&self, unit: &Unit) -> bool {
        let Some(home) = &unit.home else { return false };
        let carried = self.sectors_carried(home);
        carried < home.index().sectors.len() || carried <= self.medium.geometry.sectors()
    }

    /// Whether units are free for all that a merge of a unit writes before it frees anything.
    pub(super) fn can_merge(&self, unit: &Unit) -> bool {
        let Some(home) = &unit.home else { return false };
        let geometry = self.medium.geometry;
        let overflowing = self.sectors_carried(home).saturating_sub(geometry.sectors());
        let begun = self.overflow.lock().begun_by(overflowing, geometry.overflow_sectors());
        begun < self.physical.free() as usize
    }

    /// The most sectors that a merge carries over. Those of single pages, stored when these were evicted, are nearly empty;
    /// what is active of all pages of the unit is packed together.
    fn sectors_carried(&self, home: &Home) -> usize {
        let horizon = self.session().horizon.committed_through();
        let active = home.index().sectors.iter().filter(|sector| self.is_active(sector.summary.last, horizon));
        let (count, bytes) = active.fold((0, 0), |(count, bytes), sector| (count + 1, bytes + sector.summary.bytes));
        self.medium.geometry.sectors_for_bytes(bytes).min(count)
    }

    /// The changes that may be active: with them in overflow units, and what merges need, the reserve is used up.
    pub(super) fn active_bytes(&self) -> usize {
        let reserve = self.physical.reserve();
        let units = (reserve / 2).min(reserve.saturating_sub(FREE_MIN + PARTLY_FILLED));
        units as usize * self.medium.geometry.overflow_bytes()
    }

    /// Moves the unit that was rewritten least often to the most worn place, if places have grown too far apart: what is never
    /// changed would else keep the least worn ones for ever.
    fn level_wear(&self) -> Result<()> {
        use std::sync::atomic::Ordering;
        let merges = self.counters.merges.load(Ordering::Relaxed);
        let last = self.leveled_at.load(Ordering::Relaxed);
        if merges < last + MERGES_PER_LEVELING {
            return Ok(());
        }
        self.leveled_at.store(merges, Ordering::Relaxed);
        let Some(worn) = self.physical.most_worn_free() else { return Ok(()) };
        let units: Vec<_> = self.units.read().iter().cloned().collect();
        let wear_of = |unit: &Unit| unit.home.as_ref().map(|home| self.physical.erase_count(home.physical));
        let coldest =
            units.iter().filter_map(|unit| Some((wear_of(&unit.read())?, unit))).min_by_key(|(wear, _)| *wear);
        let Some((wear, unit)) = coldest else { return Ok(()) };
        if worn <= wear + WEAR_GAP.max(wear / 2) {
            return Ok(());
        }
        let mut unit = unit.write();
        self.make_ready(&mut unit)?;
        self.merge(&mut unit, &[], Physical::take_most_worn)?;
        Counters::add(&self.counters.levelings, 1);
        Ok(())
    }
}
