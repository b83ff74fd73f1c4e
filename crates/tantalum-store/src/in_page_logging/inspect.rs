//! Showing what stands in an erase unit.

use tantalum_device::AlignedBuffer;
use tantalum_log::Lsn;

use super::{
    InPageStore,
    geometry::RESERVED_UNITS,
    header::UnitKind,
    sector::{Piece, Sector},
    survey::read_header,
};
use crate::{Error, RecordInspection, Result, SectorInspection, Status, UnitInspection, position};

impl InPageStore {
    /// Shows a physical unit.
    ///
    /// # Errors
    /// [`Error::Option`] if there is no such unit, or when the device cannot read.
    pub(super) fn inspect(&self, physical: u32) -> Result<UnitInspection> {
        let (geometry, units) = (self.medium.geometry, self.medium.units());
        if physical >= units {
            let what = format!("unit {physical}: {} has units 0 to {}", self.medium.device.name(), units - 1);
            return Err(Error::Option { what });
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
        let header = if inspection.is_present { None } else { read_header(&self.medium, physical)? };
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
        let unit = self.units.read().get(logical as usize).cloned()?;
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
