//! Looking at erase units, beside what the engine asks for: what stands in one, and whether every unit can be read and merged, its
//! header says what is known of it, and every physical unit has one use.
//!
//! To be checked, a unit is looked at under its lock, which keeps others from storing changes in it meanwhile. The uses of all units
//! are compared at one moment between two batches of changes, in memory: no changes are stored for as long as that takes.

use std::collections::BTreeSet;

use tantalum_device::AlignedBuffer;
use tantalum_log::Lsn;

use super::{
    InPageStore,
    geometry::RESERVED_UNITS,
    sector::{Piece, Sector},
    survey::{newest, read_header, read_headers},
    unit::{Home, Unit},
    unit_header::UnitKind,
};
use crate::{ErrorKind, RecordInspection, Result, SectorInspection, Status, UnitInspection, error, position};

impl InPageStore {
    /// Shows a physical unit.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if there is no such unit, or when the device cannot read.
    pub(super) fn inspect(&self, physical: u32) -> Result<UnitInspection> {
        let (geometry, units) = (self.medium.geometry, self.medium.units());
        if physical >= units {
            let what = format!("unit {physical}: {} has units 0 to {}", self.medium.device.name(), units - 1);
            return Err(error::option(what));
        }
        let mut inspection = UnitInspection {
            unit: physical,
            offset_bytes: geometry.unit_at(physical),
            purpose: if physical < RESERVED_UNITS { "superblock" } else { "none" }.into(),
            is_present: physical < RESERVED_UNITS,
            erase_count: 0,
            logical: None,
            sequence: None,
            pages: Vec::new(),
            sectors: Vec::new(),
        };
        let header = if inspection.is_present { None } else { newest(read_headers(&self.medium, physical)?) };
        let Some(header) = header else { return Ok(inspection) };
        (inspection.erase_count, inspection.sequence) = (header.erase_count, Some(header.sequence));
        match header.kind {
            UnitKind::Home => {
                inspection.purpose = "home".into();
                inspection.is_present = self.present(header.logical) == Some((physical, header.sequence));
                inspection.logical = Some(header.logical);
                let first = u64::from(header.logical) * geometry.pages() as u64;
                inspection.pages =
                    (0..64).filter(|page| header.pages >> page & 1 == 1).map(|page| first + page).collect();
                for number in 0..geometry.sectors() {
                    inspection.sectors.push(self.inspect_sector(number, geometry.sector_at(physical, number))?);
                }
            }
            UnitKind::Tally => inspection.purpose = "tally".into(),
            UnitKind::Overflow => {
                inspection.purpose = "overflow".into();
                inspection.is_present = self.overflow.lock().units().any(|unit| unit == physical);
                for number in 0..geometry.overflow_sectors() {
                    inspection.sectors.push(self.inspect_sector(number, geometry.overflow_at(physical, number))?);
                }
            }
        }
        Ok(inspection)
    }

    /// Where a logical unit's newest version is, and which that is.
    fn present(&self, logical: u32) -> Option<(u32, u64)> {
        let unit = self.find_unit(logical)?;
        let unit = unit.read();
        unit.home.as_ref().map(|home| (home.physical, home.sequence))
    }

    fn inspect_sector(&self, number: usize, at: u64) -> Result<SectorInspection> {
        let mut bytes = AlignedBuffer::zeroed(self.medium.geometry.sector_bytes);
        let is_whole = self.medium.read_sector(at, &mut bytes)?;
        let sector = Sector::decode(&bytes, self.medium.store).filter(|_| is_whole);
        let is_blank = || [0, 0xff].iter().any(|blank| bytes.iter().all(|byte| byte == blank));
        let state = match &sector {
            None if !is_whole => "unreadable",
            None if is_blank() => "blank",
            None => "other",
            Some(sector) => match self.present(sector.head.logical) {
                Some((_, sequence)) if sequence == sector.head.sequence => "log",
                _ => "dead",
            },
        };
        let horizon = self.session().horizon.committed_through();
        let records = |sector: &Sector<'_>| {
            sector.pieces().map(|piece| self.inspect_piece(sector.head.logical, &piece, horizon)).collect()
        };
        Ok(SectorInspection {
            number,
            state: state.into(),
            logical: sector.map(|sector| sector.head.logical),
            sequence: sector.map(|sector| sector.head.sequence),
            counted: sector.map(|sector| sector.head.counted),
            records: sector.as_ref().map(records).unwrap_or_default(),
        })
    }

    fn inspect_piece(&self, logical: u32, piece: &Piece<'_>, horizon: Lsn) -> RecordInspection {
        let session = position::epoch_of(piece.position);
        let status = match self.session().status(piece.position, horizon) {
            Ok(Status::Committed) => "committed".into(),
            Ok(Status::Active) => "active".into(),
            Ok(Status::Aborted) => "aborted".into(),
            Err(what) => what,
        };
        RecordInspection {
            page: u64::from(logical) * self.medium.geometry.pages() as u64 + u64::from(piece.page),
            session,
            group: piece.position.get() - position::start_of(session).get(),
            status,
            total_bytes: piece.total,
            part_offset: piece.offset,
            part_bytes: piece.bytes.len(),
        }
    }
}

impl InPageStore {
    /// Tells what is wrong with units.
    ///
    /// # Errors
    /// When the device cannot read.
    pub(super) fn check_units(&self, found: &mut dyn FnMut(String)) -> Result<()> {
        let units = self.units.read().len() as u32;
        for logical in 0..units {
            let checked = self.ready_unit(logical).and_then(|unit| {
                let Some(unit) = unit else { return Ok(None) };
                // What can be merged can be read.
                self.merge_pages(&unit)?;
                unit.home.as_ref().map_or(Ok(None), |home| self.check_header(&unit, home))
            });
            match checked {
                Ok(problem) => problem.into_iter().for_each(&mut *found),
                Err(error) if error.kind() == ErrorKind::Corrupt => found(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        self.misuses().into_iter().for_each(found);
        Ok(())
    }

    /// Whether a unit's header is the one of its present version.
    fn check_header(&self, unit: &Unit, home: &Home) -> Result<Option<String>> {
        let at = self.medium.geometry.header_at(home.physical);
        let header = read_header(&self.medium, home.physical, at)?;
        let is_present = header.is_some_and(|header| {
            (header.kind, header.logical, header.sequence, header.pages)
                == (UnitKind::Home, unit.logical, home.sequence, home.pages)
        });
        let (physical, logical, sequence) = (home.physical, unit.logical, home.sequence);
        let is_present = is_present || unit.in_doubt.is_some();
        let expected = format!("the header of unit {logical}, version {sequence}");
        Ok((!is_present).then(|| format!("erase unit {physical}, byte {at}: expected {expected}, found {header:?}")))
    }

    /// Physical units that are used twice, or not as the list of free ones has it.
    fn misuses(&self) -> Vec<String> {
        let (mut problems, mut used) = (Vec::new(), BTreeSet::new());
        // Nothing is taken, moved or freed meanwhile. A unit that is added has no place yet.
        let _alone = self.placing.lock();
        let units: Vec<_> = self.units.read().iter().cloned().collect();
        let overflow = self.overflow.lock();
        let places = |unit: &Unit| {
            let doubtful = unit.in_doubt.iter().flat_map(|doubt| &doubt.units).map(|unit| unit.physical);
            unit.place().into_iter().chain(doubtful).collect::<Vec<_>>()
        };
        let homes = units.iter().flat_map(|unit| places(&unit.read()));
        for physical in homes.chain(overflow.units()) {
            if !used.insert(physical) {
                problems.push(format!("erase unit {physical} is used twice"));
            }
        }
        self.physical.check(&used, &mut |what| problems.push(what));
        problems
    }
}
