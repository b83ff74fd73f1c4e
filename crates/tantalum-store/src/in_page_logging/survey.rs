//! What the headers of all units say.

use std::ops::Range;

use tantalum_device::AlignedBuffer;

use super::{
    header::{UnitHeader, UnitKind},
    medium::Medium,
    readers::read_many,
    sector::Sector,
};
use crate::Result;

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
