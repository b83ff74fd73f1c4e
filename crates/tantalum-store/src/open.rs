//! The one place that knows all stores: from a superblock and devices to a [`PageStore`].

use std::sync::Arc;

use tantalum_device::Device;

use crate::{
    Error, MetadataWrites, PageCompression, PageStore, PageStreams, Protection, Result, Superblock, UnitSizes, error,
    in_page_logging::{Geometry, InPageStore},
    in_place::InPlaceStore,
    log_structured::LogStructuredStore,
};

/// The devices of a store.
#[derive(Clone, Debug)]
pub struct StoreDevices {
    /// Where the pages are.
    pub data: Arc<dyn Device>,
    /// The double-write area, where that protection is used.
    pub double_write: Option<Arc<dyn Device>>,
}

/// What of a store may change from one open to the next.
#[derive(Clone, Copy, Debug, Default)]
pub struct StoreOptions {
    /// With [`Protection::Device`]: the device never tears a page, whatever it says.
    pub trusts_device: bool,
    /// In place, each page is made durable by a write of its own instead of many by one flush.
    pub durable_page_writes: bool,
    /// In-page logging merges a unit only if active groups have less than this part of its changes.
    pub carry_over_percent: u32,
    /// How the log-structured store compresses the pages that it writes.
    pub compression: PageCompression,
    /// Which pages the log-structured store keeps apart.
    pub page_streams: PageStreams,
    /// What the log-structured store writes beside pages.
    pub metadata_writes: MetadataWrites,
    /// Whether the log-structured store tells the device which segments are not needed.
    pub discards: bool,
}

/// The page store that a superblock describes. Nothing is written before it is recovered.
///
/// # Errors
/// [`Unsupported`](crate::ErrorKind::Unsupported) and [`InvalidInput`](crate::ErrorKind::InvalidInput) when it cannot be on these
/// devices.
pub fn open(superblock: &Superblock, devices: StoreDevices, options: StoreOptions) -> Result<Arc<dyn PageStore>> {
    let StoreDevices { data, double_write } = devices;
    let page_size = superblock.page_size as usize;
    let database = superblock.database_id;
    refuse_zones(superblock, &*data, double_write.as_deref())?;
    if let Some(UnitSizes { unit, region, sector }) = superblock.units {
        let geometry = Geometry {
            page_bytes: page_size,
            unit_bytes: unit as usize,
            region_bytes: region as usize,
            sector_bytes: sector as usize,
        };
        // The half of a random number is as good as the whole to tell the remains of another store.
        return Ok(Arc::new(InPageStore::new(data, geometry, database as u64, options.carry_over_percent)?));
    }
    if let Some(sizes) = superblock.segments {
        return Ok(Arc::new(LogStructuredStore::new(data, page_size, sizes, database, options)?));
    }
    let store = match (superblock.protection, double_write) {
        (Protection::DoubleWrite, Some(area)) => {
            InPlaceStore::with_double_write(data, page_size, area, database, superblock.double_write_slots)?
        }
        (protection, _) => InPlaceStore::new(data, page_size, protection, options.trusts_device)?,
    };
    Ok(Arc::new(store.with_durable_writes(options.durable_page_writes)))
}

/// Refuses devices that must be written in order, where bytes are written over.
fn refuse_zones(superblock: &Superblock, data: &dyn Device, double_write: Option<&dyn Device>) -> Result<()> {
    let has_zones = |device: &&dyn Device| device.capabilities().zones.is_some();
    if superblock.segments.is_none() && has_zones(&data) {
        return Err(error::has_zones(data.name()));
    }
    match double_write.filter(has_zones) {
        Some(area) => Err(Error::has_zones(area.name(), "put the double-write area elsewhere")),
        None => Ok(()),
    }
}

/// Makes a data device that of an empty store, over what a creation that did not end may have left. The superblock is not written,
/// and its place is left alone; stores that need nothing but that are left alone altogether.
///
/// # Errors
/// When the device cannot be cut as the superblock says, or cannot write.
pub fn format(superblock: &Superblock, data: &dyn Device) -> Result<()> {
    let Some(sizes) = superblock.segments else { return Ok(()) };
    LogStructuredStore::format(data, superblock.page_size as usize, sizes, superblock.database_id)
}
