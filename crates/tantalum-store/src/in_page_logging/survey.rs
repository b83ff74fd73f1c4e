//! Opening: the map from logical to physical units is what the units' headers say.
//!
//! A sector or two of each unit are read, and the overflow units, many at the same time: most devices serve many reads in little
//! more than the time of one. What else there is in log sectors is read when its unit is first used.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tantalum_device::AlignedBuffer;
use tantalum_rt::spawn;

use super::{
    InPageStore,
    medium::Medium,
    physical::Taken,
    sector::{Sector, SectorHead},
    unit::{Home, SectorInfo},
    unit_header::{UnitHeader, UnitKind},
};
use crate::{Result, in_page_logging::geometry::RESERVED_UNITS};

impl InPageStore {
    /// Finds every unit's newest complete version, and the overflow sectors that belong to it.
    pub(super) fn scan(&self) -> Result<()> {
        self.adopt_units();
        let (mut overflow, mut tallies) = (Vec::new(), Vec::new());
        for found in survey(&self.medium, RESERVED_UNITS..self.medium.units())? {
            match found.header.kind {
                UnitKind::Home => self.found_home(&found)?,
                UnitKind::Overflow => overflow.push(found.header),
                UnitKind::Tally => tallies.push(found.header),
            }
        }
        tallies.iter().for_each(|header| self.physical.note_wear(header.physical, header.erase_count));
        self.read_tallies(&tallies)?;
        let units = overflow.iter().map(|header| header.physical).collect();
        let sectors = read_many(&self.medium, units, 1, read_overflow)?;
        overflow.iter().zip(sectors).for_each(|(header, sectors)| self.found_overflow(header, sectors));
        self.physical.assume_average_wear();
        Ok(())
    }

    fn found_home(&self, Surveyed { header, is_complete }: &Surveyed) -> Result<()> {
        let unit = self.units.read().get(header.logical as usize).cloned();
        let Some(unit) = unit.filter(|_| header.pages >> self.medium.geometry.pages() == 0) else {
            return Err(self.damaged(header.logical, header.physical, "its header names pages that it cannot have"));
        };
        let mut unit = unit.write();
        let is_newer = unit.home.as_ref().is_none_or(|home| home.sequence < header.sequence);
        if !is_newer || !is_complete {
            self.physical.note_wear(header.physical, header.erase_count);
            return Ok(());
        }
        self.physical.claim(header.physical, header.erase_count);
        let home = Home {
            physical: header.physical,
            sequence: header.sequence,
            pages: header.pages,
            index: None,
            overflow: Vec::new(),
            tallied: 0,
        };
        if let Some(old) = unit.home.replace(home) {
            let erase_count = self.physical.erase_count(old.physical);
            self.physical.give_back(Taken { physical: old.physical, erase_count, is_erased: false });
        }
        Ok(())
    }

    /// Takes note of the sectors in an overflow unit that are needed; if there are none, the unit is free.
    fn found_overflow(&self, header: &UnitHeader, sectors: Vec<(SectorHead, SectorInfo)>) {
        let taken = Taken { physical: header.physical, erase_count: header.erase_count, is_erased: false };
        self.physical.claim(header.physical, header.erase_count);
        let mut overflow = self.overflow.lock();
        overflow.found(taken);
        for (head, sector) in sectors {
            let unit = self.units.read().get(head.logical as usize).cloned();
            let Some(unit) = unit else { continue };
            let mut unit = unit.write();
            let Some(home) = unit.home.as_mut().filter(|home| home.sequence == head.sequence) else { continue };
            home.overflow.push(sector);
            overflow.note_live(header.physical, home.sequence, head.logical);
        }
        let dead = overflow.take_dead();
        drop(overflow);
        dead.into_iter().for_each(|unit| self.physical.give_back(unit));
    }
}

/// Reads the sectors of an overflow unit, those that are whole, of whichever version.
fn read_overflow(medium: &Medium, physical: u32) -> Result<Vec<(SectorHead, SectorInfo)>> {
    let geometry = medium.geometry;
    let mut sectors = AlignedBuffer::zeroed(geometry.unit_bytes - geometry.sector_bytes);
    let is_whole = medium.read_sector(geometry.overflow_at(physical, 0), &mut sectors)?;
    let mut found = Vec::new();
    for (number, bytes) in sectors.chunks_exact_mut(geometry.sector_bytes).enumerate() {
        let at = geometry.overflow_at(physical, number);
        if !is_whole && !medium.read_sector(at, bytes)? {
            continue;
        }
        let Some(sector) = Sector::decode(bytes, medium.store) else { continue };
        let info = SectorInfo { at, summary: sector.summary(), counted: sector.head.counted };
        found.push((sector.head, info));
    }
    Ok(found)
}

/// A header is read fast, so a reader is worth its task only with so many.
const UNITS_PER_READER: usize = 16;

/// A unit that bears a header.
#[derive(Clone, Copy, Debug)]
pub struct Surveyed {
    /// What it says.
    pub header: UnitHeader,
    /// Whether the sectors that were carried into the version are whole: they are written together with the header.
    pub is_complete: bool,
}

/// Reads the headers of physical units, and of each version whether it is complete. Returns them in ascending order.
///
/// # Errors
/// When the device cannot read.
pub fn survey(medium: &Medium, units: Range<u32>) -> Result<Vec<Surveyed>> {
    let found = read_many(medium, units.collect(), UNITS_PER_READER, |medium, physical| {
        let Some(header) = read_header(medium, physical)? else { return Ok(None) };
        Ok(Some(Surveyed { header, is_complete: is_complete(medium, &header)? }))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Reads the header of a physical unit, if it has one.
///
/// # Errors
/// When the device cannot read.
pub fn read_header(medium: &Medium, physical: u32) -> Result<Option<UnitHeader>> {
    let geometry = &medium.geometry;
    let mut sector = AlignedBuffer::zeroed(geometry.sector_bytes);
    // Where a home unit has its header another has a log sector or nothing, and the other way round a page.
    let places = [(geometry.header_at(physical), true), (geometry.unit_at(physical), false)];
    let mut newest: Option<UnitHeader> = None;
    for (at, is_home) in places {
        if medium.read_sector(at, &mut sector)?
            && let Some(header) = UnitHeader::decode(&sector, medium.store, physical)
            && (header.kind == UnitKind::Home) == is_home
            // What is not erased may still bear the header of an earlier use.
            && newest.is_none_or(|newest| newest.sequence < header.sequence)
        {
            newest = Some(header);
            if medium.erases() {
                break;
            }
        }
    }
    Ok(newest)
}

/// Whether the log sectors that a header counts are whole.
fn is_complete(medium: &Medium, header: &UnitHeader) -> Result<bool> {
    let geometry = &medium.geometry;
    let carried = (header.carried as usize).min(geometry.sectors());
    if carried == 0 || header.kind != UnitKind::Home {
        return Ok(true);
    }
    let mut sectors = AlignedBuffer::zeroed(carried * geometry.sector_bytes);
    let is_whole =
        |bytes: &[u8]| Sector::decode(bytes, medium.store).is_some_and(|found| found.head.sequence == header.sequence);
    Ok(medium.read_sector(geometry.sector_at(header.physical, 0), &mut sectors)?
        && sectors.chunks_exact(geometry.sector_bytes).all(is_whole))
}

/// So many reads are under way at most: what flash drives queue.
const READERS: usize = 32;

/// Reads physical units, each with `read`, and returns what came of them, in the order of `units`. Where there are no more than
/// `units_per_reader` to do for another reader, it is not worth its task.
///
/// # Errors
/// The first error of `read`; the rest is not read then.
pub fn read_many<T: Send + 'static>(
    medium: &Medium,
    units: Vec<u32>,
    units_per_reader: usize,
    read: impl Fn(&Medium, u32) -> Result<T> + Copy + Send + 'static,
) -> Result<Vec<T>> {
    let readers = (units.len() / units_per_reader).clamp(1, READERS);
    let (units, next) = (Arc::new(units), Arc::new(AtomicUsize::new(0)));
    let start = |number: usize| {
        let (medium, units, next) = (medium.clone(), Arc::clone(&units), Arc::clone(&next));
        spawn(format!("unit-reader-{number}"), move || read_next(&medium, &units, &next, read))
    };
    let tasks: Vec<_> = (1..readers).map(start).collect();
    let mut all = read_next(medium, &units, &next, read);
    // Every one is waited for, also after an error.
    for task in tasks {
        let more = task.join_or_panic();
        all = all.and_then(|mut all| {
            all.extend(more?);
            Ok(all)
        });
    }
    let mut all = all?;
    all.sort_unstable_by_key(|(number, _)| *number);
    Ok(all.into_iter().map(|(_, read)| read).collect())
}

/// Reads one unit after the other that no other reader has taken.
fn read_next<T>(
    medium: &Medium,
    units: &[u32],
    next: &AtomicUsize,
    read: impl Fn(&Medium, u32) -> Result<T>,
) -> Result<Vec<(usize, T)>> {
    let mut all = Vec::new();
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        let Some(unit) = units.get(number) else { return Ok(all) };
        match read(medium, *unit) {
            Ok(found) => all.push((number, found)),
            Err(error) => {
                // The others need not go on.
                next.store(units.len(), Ordering::Relaxed);
                return Err(error);
            }
        }
    }
}
