//! Reading the headers of all units, many at the same time: most devices serve many reads in little more than the time of one.

use std::{
    ops::Range,
    panic::resume_unwind,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
};

use tantalum_device::AlignedBuffer;
use tantalum_rt::spawn;

use super::{
    header::{UnitHeader, UnitKind},
    medium::Medium,
    sector::Sector,
};
use crate::error::Result;

/// So many reads are under way at most: what flash drives queue.
const READERS: u32 = 32;
/// Where there is no more than this to do for another reader, it is not worth its task.
const UNITS_PER_READER: u32 = 16;

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
    let readers = (units.end.saturating_sub(units.start) / UNITS_PER_READER).clamp(1, READERS);
    let next = Arc::new(AtomicU32::new(units.start));
    let start = |number: u32| {
        let (medium, next, end) = (medium.clone(), Arc::clone(&next), units.end);
        spawn(format!("unit-reader-{number}"), move || read_next(&medium, &next, end))
    };
    let tasks: Vec<_> = (1..readers).map(start).collect();
    let mut all = read_next(medium, &next, units.end);
    // Every one is waited for, also after an error.
    for task in tasks {
        let more = task.join().unwrap_or_else(|panic| resume_unwind(panic));
        all = all.and_then(|mut all| {
            all.extend(more?);
            Ok(all)
        });
    }
    let mut all = all?;
    all.sort_unstable_by_key(|found| found.header.physical);
    Ok(all)
}

/// Reads one unit after the other that nobody else has taken.
fn read_next(medium: &Medium, next: &AtomicU32, end: u32) -> Result<Vec<Surveyed>> {
    let mut found = Vec::new();
    loop {
        let physical = next.fetch_add(1, Ordering::Relaxed);
        if physical >= end {
            return Ok(found);
        }
        let read = read_header(medium, physical).and_then(|header| match header {
            Some(header) => Ok(Some(Surveyed { header, is_complete: is_complete(medium, &header)? })),
            None => Ok(None),
        });
        match read {
            Ok(surveyed) => found.extend(surveyed),
            Err(error) => {
                // The others need not go on.
                next.store(end, Ordering::Relaxed);
                return Err(error);
            }
        }
    }
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
