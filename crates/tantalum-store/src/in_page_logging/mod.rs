//! The in-page logging page store ("Design of Flash-Based DBMS: An In-Page Logging Approach", sections 3 and 5).
//!
//! A page is not written when it was changed: its changes are, into log sectors in the erase unit that the page lies in. Reading a
//! page applies them. When a unit's sectors are used up, the unit is merged: written anew elsewhere, with the changes of
//! committed groups in its pages and those of active groups in its sectors. Changes of groups that a crash aborted are
//! skipped when pages are read and dropped by merges, so that restart neither repeats nor undoes anything.
//!
//! Invariants:
//! - a logical unit's newest complete version is the present one; an old version's place is freed only when a newer one is
//!   durable and complete
//! - a sector names the version that it belongs to, and is written only while that version is the present one, under
//!   the unit's lock
//! - of a page, active changes follow all committed ones
//!
//! Locks: `placing`; units, in ascending order while changes are stored; then the overflow area; then the
//! free units.

mod compaction;
#[cfg(test)]
mod compaction_tests;
mod geometry;
pub mod load;
mod medium;
mod merge;
mod overflow;
mod physical;
mod place;
pub mod sector;
mod stamp;
mod survey;
mod tally;
#[cfg(test)]
mod tests;
mod unit;
mod unit_counters;
pub mod unit_header;
mod unit_inspection;

use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicU64, Ordering},
};

use tantalum_device::Device;
use tantalum_rt::{ArcRwLockReadGuard, Mutex, RwLock};

pub use geometry::Geometry;
use medium::Medium;
use overflow::Overflow;
use physical::{Physical, Taken};
use unit::Unit;
use unit_counters::Counters;
pub use unit_counters::InPageStats;

use crate::{
    Error, ErrorKind, Load, Logging, PackProgress, PageBatch, PageChanges, PageId, PageStore, Result, Session,
    StoreStats, UnitInspection, error, position,
};

/// The statuses of so many past sessions are kept; then the older half is made superfluous.
const SESSIONS_MAX: usize = 64;

/// Pages in erase units, beside the log sectors with their changes.
#[derive(Debug)]
pub struct InPageStore {
    medium: Medium,
    /// So many sectors of a region may be carried over by a merge; with more, sectors overflow.
    carry_over_max: usize,
    units: RwLock<Vec<Arc<RwLock<Unit>>>>,
    physical: Physical,
    /// Held while units are taken and freed: what they are used for is compared between.
    placing: Mutex<()>,
    overflow: Mutex<Overflow>,
    session: OnceLock<Session>,
    /// The next version's number.
    sequence: AtomicU64,
    /// Merges when wear was last compared.
    leveled_at: AtomicU64,
    counters: Counters,
}

impl InPageStore {
    /// A store on a device; nothing is read before a session begins. `store` is a number that no other store has had
    /// on this device. Of a unit's log sectors, a merge carries over at most `carry_over_percent`.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when the device cannot be cut so.
    pub fn new(device: Arc<dyn Device>, geometry: Geometry, store: u64, carry_over_percent: u32) -> Result<Self> {
        let option = |what: String| error::option(format!("page_store: {what}"));
        let geometry = geometry.check().map_err(option)?;
        if carry_over_percent > 100 {
            return Err(option(format!("a carry-over threshold of {carry_over_percent} % is more than everything")));
        }
        Ok(Self {
            medium: Medium::new(device, geometry, store)?,
            // A unit with nothing active is merged, whatever the threshold.
            carry_over_max: (geometry.sectors() * carry_over_percent as usize / 100).max(1),
            units: RwLock::default(),
            physical: Physical::new(geometry.reserve_min()),
            placing: Mutex::default(),
            overflow: Mutex::default(),
            session: OnceLock::new(),
            sequence: AtomicU64::new(0),
            leveled_at: AtomicU64::new(0),
            counters: Counters::default(),
        })
    }

    /// Merges every unit with changes of older sessions, whose statuses are then needed no more.
    fn forget_before(&self, epoch: u64) -> Result<u64> {
        let units: Vec<_> = self.units.read().iter().cloned().collect();
        for unit in units {
            let mut unit = unit.write();
            self.make_ready(&mut unit)?;
            let is_old = |sector: &unit::SectorInfo| position::epoch_of(sector.summary.first) < epoch;
            if unit.home.as_ref().is_some_and(|home| home.index().sectors.iter().any(is_old)) {
                self.merge(&mut unit, &[], Physical::take)?;
            }
        }
        Ok(epoch)
    }

    /// Takes note of the units that the device has.
    fn adopt_units(&self) {
        let mut units = self.units.write();
        self.physical.grow(self.medium.units());
        for logical in units.len() as u32..self.physical.logical_units() {
            units.push(Arc::new(RwLock::new(Unit::unwritten(logical))));
        }
    }

    fn session(&self) -> &Session {
        self.session.get().expect("a store is recovered before it is used")
    }

    /// The unit of a page, and the page's place in it; `None` beyond the last.
    fn place_of(&self, id: PageId) -> Option<(u32, usize)> {
        let pages = self.medium.geometry.pages() as u64;
        let logical = u32::try_from(id.0 / pages).ok().filter(|logical| *logical < self.physical.logical_units())?;
        Some((logical, (id.0 % pages) as usize))
    }

    /// A unit that is in use, so that the store keeps it.
    fn unit(&self, logical: u32) -> Arc<RwLock<Unit>> {
        self.find_unit(logical).expect("a unit that is in use is not given back")
    }

    fn find_unit(&self, logical: u32) -> Option<Arc<RwLock<Unit>>> {
        self.units.read().get(logical as usize).cloned()
    }

    /// A unit whose sectors are known, for reading; `None` if the store has none of that number.
    fn ready_unit(&self, logical: u32) -> Result<Option<ArcRwLockReadGuard<Unit>>> {
        let Some(unit) = self.find_unit(logical) else { return Ok(None) };
        loop {
            let guard = unit.read_arc();
            if guard.is_ready() {
                return Ok(Some(guard));
            }
            drop(guard);
            self.make_ready(&mut unit.write())?;
        }
    }

    /// Learns a unit's sectors.
    fn make_ready(&self, unit: &mut Unit) -> Result<()> {
        let logical = unit.logical;
        let Some(home) = unit.home.as_mut().filter(|home| home.index.is_none()) else { return Ok(()) };
        let physical = home.physical;
        home.read_index(&self.medium)?.map_err(|what| self.damaged(logical, physical, what))
    }

    /// A unit that can be written.
    fn take_unit(&self, choose: impl Fn(&Physical) -> Option<Taken>) -> Result<Taken> {
        loop {
            let mut taken = choose(&self.physical).ok_or_else(|| self.full())?;
            if taken.is_erased {
                return Ok(taken);
            }
            match self.medium.erase(taken.physical) {
                Ok(()) => {
                    Counters::add(&self.counters.erases, 1);
                    taken.erase_count += 1;
                    return Ok(taken);
                }
                Err(error) => self.erase_failed(taken, error)?,
            }
        }
    }

    /// Frees a unit on which nothing is needed any more.
    fn free_unit(&self, unit: Taken) -> Result<()> {
        match self.medium.erase(unit.physical) {
            Ok(()) => {
                Counters::add(&self.counters.erases, 1);
                self.physical.give_back(Taken { erase_count: unit.erase_count + 1, is_erased: true, ..unit });
                Ok(())
            }
            Err(error) => self.erase_failed(unit, error),
        }
    }

    /// A block that cannot be erased is worn out, and never used again. Other failures say nothing about the block.
    fn erase_failed(&self, unit: Taken, error: Error) -> Result<()> {
        if !error.is_io() {
            self.physical.give_back(Taken { is_erased: false, ..unit });
            return Err(error);
        }
        tantalum_rt::tracing::warn!(unit = unit.physical, %error, "a unit cannot be erased and is not used any more");
        self.physical.retire(unit.physical);
        Ok(())
    }

    fn next_sequence(&self) -> u64 {
        self.sequence.fetch_add(1, Ordering::SeqCst)
    }

    fn full(&self) -> Error {
        let unit = self.medium.geometry.unit_bytes as u64;
        let device = &self.medium.device;
        let source = Error::no_space(device.name(), device.capacity_bytes(), unit);
        error::disk_full(device.name(), source)
    }

    fn damaged(&self, logical: u32, physical: u32, what: impl std::fmt::Display) -> Error {
        error::corrupt(
            self.medium.device.name(),
            PageId(u64::from(logical) * self.medium.geometry.pages() as u64),
            self.medium.geometry.unit_at(physical),
            format!("its erase unit {physical} is not sound: {what}"),
        )
    }
}

impl PageStore for InPageStore {
    fn name(&self) -> &str {
        self.medium.device.name()
    }

    fn page_size(&self) -> usize {
        self.medium.geometry.page_bytes
    }

    fn capacity_pages(&self) -> u64 {
        u64::from(self.physical.logical_units()) * self.medium.geometry.pages() as u64
    }

    fn load(&self, id: PageId, page: &mut [u8]) -> Result<Load> {
        self.load_page(id, page)
    }

    fn store(&self, batch: &PageBatch) -> Result<()> {
        self.store_scratch(batch)
    }

    fn scratch_group_pages(&self) -> u64 {
        self.medium.geometry.pages() as u64
    }

    fn take_scratch(&self, first: PageId) -> bool {
        self.take_scratch_unit(first)
    }

    fn free_scratch(&self, first: PageId) {
        self.free_scratch_unit(first);
    }

    fn max_batches(&self) -> usize {
        1
    }

    fn logging(&self) -> Logging {
        Logging::CommitStatus
    }

    fn store_changes(&self, changes: &[(PageId, PageChanges)]) -> Result<()> {
        self.store_all(changes)
    }

    fn begin_session(&self, session: Session) -> Result<u64> {
        // Versions of another session have other numbers, those included that a crash left incomplete.
        self.sequence.store(position::start_of(session.epoch).get(), Ordering::SeqCst);
        self.scan()?;
        let oldest = session.past.oldest();
        let sessions: Vec<u64> = session.past.iter().map(position::epoch_of).collect();
        assert!(self.session.set(session).is_ok(), "a store's session begins once");
        match sessions.len().checked_sub(SESSIONS_MAX) {
            Some(_) => self.forget_before(sessions[sessions.len() - SESSIONS_MAX / 2]),
            None => Ok(oldest),
        }
    }

    fn max_active_bytes(&self) -> usize {
        self.active_bytes()
    }

    fn grow(&self) -> Result<()> {
        let unit = self.medium.geometry.unit_bytes as u64;
        let device = &self.medium.device;
        let (file, before) = (device.name().to_owned(), self.medium.units());
        let step = (device.capacity_bytes() / 8).clamp(16 * unit, 512 * unit);
        let mut units = step.div_ceil(unit);
        // Where the disk is nearly full, a few units are a step too.
        while let Err(source) = device.grow((device.capacity_bytes() + units * unit).next_multiple_of(unit)) {
            if source.kind() != ErrorKind::NoSpace || units == 1 {
                return Err(error::disk_full(&file, source));
            }
            units /= 2;
        }
        if self.medium.units() == before {
            return Err(error::disk_full(&file, Error::unsupported(&file, "grow")));
        }
        self.adopt_units();
        Ok(())
    }

    fn gives_space_back(&self) -> Result<()> {
        if self.medium.erases() {
            return Err(Error::unsupported(self.name(), "shrink: raw flash has a fixed size"));
        }
        Ok(())
    }

    fn shrink(&self, pages: u64) -> Result<u64> {
        // There are no holes: what is free is needed for merges.
        self.cut_off(pages).map(|()| 0)
    }

    fn pack(&self, pages: u64, go_on: &mut dyn FnMut(PackProgress) -> Result<()>) -> Result<bool> {
        self.move_to_front(pages, go_on)
    }

    fn recover(&self) -> Result<u64> {
        Ok(0)
    }

    fn sessions(&self) -> Result<Vec<(String, u64)>> {
        Ok(self.medium.session()?.map(|session| (self.name().to_owned(), session)).into_iter().collect())
    }

    fn stamp(&self, session: u64) -> Result<()> {
        self.medium.stamp(session)
    }

    fn close(&self) {
        self.write_tallies();
    }

    fn check(&self, found: &mut dyn FnMut(String)) -> Result<()> {
        self.check_units(found)
    }

    fn inspect_unit(&self, unit: u32) -> Result<Option<UnitInspection>> {
        self.inspect(unit).map(Some)
    }

    fn stats(&self) -> StoreStats {
        let physical = self.physical.counts();
        let in_page = InPageStats {
            overflow_units: self.overflow.lock().len() as u64,
            units: physical.units.into(),
            free_units: physical.free.into(),
            bad_units: physical.bad.into(),
            erases_min: physical.erases_min.into(),
            erases_max: physical.erases_max.into(),
            erases_sum: physical.erases_sum,
            sessions_kept: self.session.get().map_or(0, |session| session.past.count() as u64),
            ..self.counters.read()
        };
        StoreStats {
            pages_loaded: in_page.pages_loaded,
            capacity_bytes: self.medium.device.capacity_bytes(),
            in_page: Some(in_page),
            ..StoreStats::default()
        }
    }
}
