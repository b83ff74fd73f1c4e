//! Which protection against torn pages a database in place has: chosen when it is created, and again at each open by the device
//! that is there now, since a database may have been moved to one that tears what the old one kept whole, or the other way round.
//!
//! Invariant: the superblock names the protection under which pages were written since the last recovery, so that what a crash
//! left is mended as that protection needs it. So it changes only between the mending and the first write under the new one.

use std::sync::Arc;

use tantalum_device::Device;
use tantalum_store::{DoubleWrite, PageStore, Protection, StoreKind, Superblock};

use super::{Devices, open::store_on};
use crate::{
    error::Result,
    options::{Settings, TornPageProtection},
};

/// Whether the data device says that it never tears a page.
pub(crate) fn is_atomic(devices: &Devices, page_size: u32) -> bool {
    devices.data.capabilities().writes_atomically(page_size)
}

/// The protection that the settings ask for, or the device allows; `None` where neither decides.
fn asked(settings: &Settings, devices: &Devices, page_size: u32) -> Option<Protection> {
    match settings.torn_page_protection() {
        TornPageProtection::DoubleWrite => Some(Protection::DoubleWrite),
        TornPageProtection::FullPageImages => Some(Protection::FullPageImages),
        TornPageProtection::Device | TornPageProtection::TrustDevice => Some(Protection::Device),
        TornPageProtection::Auto => is_atomic(devices, page_size).then_some(Protection::Device),
    }
}

/// The protection of a new database.
pub(super) fn at_creation(settings: &Settings, devices: &Devices) -> Protection {
    match settings.page_store() {
        StoreKind::InPageLogging | StoreKind::LogStructured => Protection::Store,
        StoreKind::InPlace => asked(settings, devices, settings.page_size()).unwrap_or(match &devices.double_write {
            Some(_) => Protection::DoubleWrite,
            None => Protection::FullPageImages,
        }),
    }
}

/// The protection of a database that had `before`. What cannot be is refused when its store is made.
pub(super) fn at_open(settings: &Settings, devices: &Devices, page_size: u32, before: Protection) -> Protection {
    if before == Protection::Store {
        return before;
    }
    asked(settings, devices, page_size).unwrap_or(match before {
        Protection::Device if devices.double_write.is_some() => Protection::DoubleWrite,
        // Without an area this is refused: what redo repeats has no images in the log.
        other => other,
    })
}

/// The store as the last session left it, to read and mend it, whatever the device says today.
pub(super) fn store_as_left(
    devices: &Devices,
    superblock: &Superblock,
    settings: &Settings,
) -> Result<Arc<dyn PageStore>> {
    let protection = match superblock.protection {
        // Neither needs mending, and this one asks nothing of the device.
        Protection::Device => Protection::FullPageImages,
        other => other,
    };
    store_on(devices, &Superblock { protection, ..*superblock }, settings)
}

/// Lets the database go on with another protection, before anything of it is read. Returns the superblock with it, and how
/// many torn pages were put back.
///
/// Nothing is needed against what full page images may have left torn: redo rebuilds those pages from the log, however
/// they are written then.
pub(super) fn change(
    devices: &Devices,
    superblock: Superblock,
    settings: &Settings,
    protection: Protection,
) -> Result<(Superblock, u64)> {
    if protection == superblock.protection {
        return Ok((superblock, 0));
    }
    let changed = Superblock { protection, ..superblock };
    // Refuses what cannot be, before anything is written.
    store_on(devices, &changed, settings)?;
    let mended = store_as_left(devices, &superblock, settings)?.recover()?;
    if let (Protection::DoubleWrite, Some(area)) = (protection, &devices.double_write) {
        // It may hold pages as they were long ago.
        let area: Arc<dyn Device> = Arc::clone(area);
        let Superblock { page_size, database_id, double_write_slots, .. } = changed;
        DoubleWrite::open(area, page_size as usize, database_id, double_write_slots)?.clear()?;
    }
    changed.write(&*devices.data)?;
    let (before, file) = (superblock.protection, devices.data.name());
    tantalum_rt::tracing::info!(file, %before, now = %protection, "torn pages are prevented otherwise than before");
    Ok((changed, mended))
}
