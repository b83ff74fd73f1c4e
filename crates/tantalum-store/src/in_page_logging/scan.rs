//! Opening: the map from logical to physical units is what the units' headers say.

use tantalum_device::AlignedBuffer;

use super::{
    InPageStore,
    header::{UnitHeader, UnitKind},
    medium::Medium,
    physical::Taken,
    readers::read_many,
    sector::{Sector, SectorHead},
    survey::{Surveyed, survey},
    unit::{Home, SectorInfo},
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
