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
            if let Some(logical) = found.version_of {
                self.physical.note_header(found.header.physical, logical);
            }
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

    fn found_home(&self, Surveyed { header, is_complete, .. }: &Surveyed) -> Result<()> {
        let unit = self.find_unit(header.logical);
        let Some(unit) = unit.filter(|_| header.pages >> self.medium.geometry.pages() == 0) else {
            return Err(self.damaged(header.logical, header.physical, "its header names pages that it cannot have"));
        };
        let mut unit = unit.write();
        let is_newer =
            unit.home.as_ref().is_none_or(|home| (home.sequence, home.attempt) < (header.sequence, header.attempt));
        if !is_newer || !is_complete {
            self.physical.note_wear(header.physical, header.erase_count);
            return Ok(());
        }
        self.physical.claim(header.physical, header.erase_count);
        let home = Home {
            physical: header.physical,
            sequence: header.sequence,
            attempt: header.attempt,
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
            let unit = self.find_unit(head.logical);
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
    /// The logical unit of which it bears a header as of a version; a newer header of another kind may hide it.
    pub version_of: Option<u32>,
}

/// Reads the headers of physical units, and of each version whether it is complete. Returns them in ascending order.
///
/// # Errors
/// When the device cannot read.
pub fn survey(medium: &Medium, units: Range<u32>) -> Result<Vec<Surveyed>> {
    let found = read_many(medium, units.collect(), UNITS_PER_READER, |medium, physical| {
        let headers = read_headers(medium, physical)?;
        let Some(header) = newest(headers) else { return Ok(None) };
        let version_of = headers[0].map(|header| header.logical);
        Ok(Some(Surveyed { header, is_complete: is_complete(medium, &header)?, version_of }))
    })?;
    Ok(found.into_iter().flatten().collect())
}

/// Reads the headers that a physical unit has: as of a version, and as of an overflow unit or one of tallies. What is not erased may
/// bear both.
///
/// # Errors
/// When the device cannot read.
pub fn read_headers(medium: &Medium, physical: u32) -> Result<[Option<UnitHeader>; 2]> {
    let geometry = &medium.geometry;
    let mut headers = [None; 2];
    // Where a home unit has its header another has a log sector or nothing, and the other way round a page.
    let places = [(geometry.header_at(physical), true), (geometry.unit_at(physical), false)];
    for (found, (at, is_home)) in headers.iter_mut().zip(places) {
        *found = read_header(medium, physical, at)?.filter(|header| (header.kind == UnitKind::Home) == is_home);
        if found.is_some() && medium.erases() {
            break;
        }
    }
    Ok(headers)
}

/// Reads the header of a physical unit that stands at `at`, if there is one.
///
/// # Errors
/// When the device cannot read.
pub fn read_header(medium: &Medium, physical: u32, at: u64) -> Result<Option<UnitHeader>> {
    let mut sector = AlignedBuffer::zeroed(medium.geometry.sector_bytes);
    let is_whole = medium.read_sector(at, &mut sector)?;
    Ok(UnitHeader::decode(&sector, medium.store, physical).filter(|_| is_whole))
}

/// The header that counts of those of a unit.
pub fn newest(headers: [Option<UnitHeader>; 2]) -> Option<UnitHeader> {
    headers.into_iter().flatten().max_by_key(|header| header.sequence)
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tantalum_device::{Durability, MemoryDevice, MemoryProfile};

    use super::*;
    use crate::in_page_logging::tests::{GEOMETRY, STORE};

    #[test]
    fn the_header_of_an_old_version_is_seen_behind_a_newer_one_of_another_kind() {
        let profile = MemoryProfile { logical_block: 512, ..MemoryProfile::default() };
        let device: Arc<MemoryDevice> = MemoryDevice::with_profile("data", 4 * GEOMETRY.unit_bytes as u64, profile);
        let medium = Medium::new(device, GEOMETRY, STORE).unwrap();
        let write = |kind, at, sequence, logical| {
            let header =
                UnitHeader { kind, physical: 3, logical, erase_count: 1, carried: 0, sequence, attempt: 0, pages: 1 };
            let mut sector = AlignedBuffer::zeroed(GEOMETRY.sector_bytes);
            header.encode(&mut sector, STORE);
            medium.write(at, &sector, Durability::Durable).unwrap();
        };
        let found = || {
            let units = survey(&medium, RESERVED_UNITS..medium.units()).unwrap();
            units.iter().map(|unit| (unit.header.kind, unit.header.sequence, unit.version_of)).collect::<Vec<_>>()
        };
        assert_eq!(found(), []);
        write(UnitKind::Home, GEOMETRY.header_at(3), 7, 9);
        assert_eq!(found(), [(UnitKind::Home, 7, Some(9))]);
        write(UnitKind::Overflow, GEOMETRY.unit_at(3), 8, 0);
        assert_eq!(found(), [(UnitKind::Overflow, 8, Some(9))]);
        write(UnitKind::Home, GEOMETRY.header_at(3), 9, 5);
        assert_eq!(found(), [(UnitKind::Home, 9, Some(5))]);
    }
}
