//! Opening: the map from logical to physical units is what the units' headers say.

use tantalum_device::AlignedBuffer;

use super::{
    InPageStore,
    header::{UnitHeader, UnitKind},
    physical::Taken,
    sector::Sector,
    survey::{Surveyed, survey},
    unit::{Home, SectorInfo},
};
use crate::{error::Result, store::in_page_logging::geometry::RESERVED_UNITS};

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
        for header in overflow {
            self.found_overflow(&header)?;
        }
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
    fn found_overflow(&self, header: &UnitHeader) -> Result<()> {
        let geometry = self.medium.geometry;
        let taken = Taken { physical: header.physical, erase_count: header.erase_count, is_erased: false };
        self.physical.claim(header.physical, header.erase_count);
        let mut overflow = self.overflow.lock();
        overflow.found(taken);
        let mut sectors = AlignedBuffer::zeroed(geometry.unit_bytes - geometry.sector_bytes);
        let is_whole = self.medium.read_sector(geometry.overflow_at(header.physical, 0), &mut sectors)?;
        for (number, bytes) in sectors.chunks_exact_mut(geometry.sector_bytes).enumerate() {
            let at = geometry.overflow_at(header.physical, number);
            if !is_whole && !self.medium.read_sector(at, bytes)? {
                continue;
            }
            let Some(sector) = Sector::decode(bytes, self.medium.store) else { continue };
            let unit = self.units.read().get(sector.head.logical as usize).cloned();
            let Some(unit) = unit else { continue };
            let mut unit = unit.write();
            let Some(home) = unit.home.as_mut().filter(|home| home.sequence == sector.head.sequence) else { continue };
            let counted = sector.head.counted;
            home.overflow.push(SectorInfo { at, summary: sector.summary(), counted });
            overflow.note_live(header.physical, home.sequence, sector.head.logical);
        }
        let dead = overflow.take_dead();
        drop(overflow);
        dead.into_iter().for_each(|unit| self.physical.give_back(unit));
        Ok(())
    }
}
