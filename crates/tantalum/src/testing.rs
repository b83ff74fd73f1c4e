//! What unit tests of several modules use.

use std::sync::Arc;

use tantalum_device::Device;
use tantalum_store::{DoubleWrite, PageStore, Protection, Result, StoreDevices, StoreKind, StoreOptions, Superblock};

/// A page store in place on `data`, whose pages are protected in this way: with a double write, by `area`.
pub fn in_place_store(
    data: Arc<dyn Device>,
    area: Option<Arc<dyn Device>>,
    page_size: usize,
    protection: Protection,
) -> Result<Arc<dyn PageStore>> {
    let superblock = Superblock {
        database_id: 1,
        log_id: 1,
        page_size: page_size as u32,
        store_kind: StoreKind::InPlace,
        units: None,
        double_write_slots: area.as_ref().map_or(1, |area| DoubleWrite::slots_in(area.capacity_bytes(), page_size)),
        segments: None,
        compressed_pages: false,
        lifetime_streams: false,
        protection,
        session: None,
    };
    let options = StoreOptions { trusts_device: true, ..StoreOptions::default() };
    tantalum_store::open(&superblock, StoreDevices { data, double_write: area }, options)
}
