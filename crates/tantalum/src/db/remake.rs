//! The files of a database that is made from something else than nothing: from a base backup.

use std::{path::Path, sync::Arc};

use tantalum_device::Access;
use tantalum_log::{Log, LogOptions, Lsn};
use tantalum_store::{PageStore, Protection, StoreKind, Superblock};

use super::{
    Devices,
    files::{Directory, make_data_files},
    log_devices::{Claimed, LOG, LogPlaces},
    open::{LOG_BUFFER_BYTES, store_on},
    plan::new_superblock,
    protection::is_atomic,
};
use crate::{error::Result, options::Settings};

/// A directory with all files of a database, which hold nothing yet, and the means to fill them.
pub(crate) struct Remaking {
    directory: Directory,
    settings: Settings,
    pub devices: Devices,
}

impl Remaking {
    /// Makes the directory and its files.
    pub fn begin(directory: &Path, settings: &Settings, page_size: u32, store: StoreKind) -> Result<Self> {
        let page_store = (store != StoreKind::default()).then_some(store);
        let settings = Settings { page_size: Some(page_size), page_store, ..settings.without_places() };
        settings.check()?;
        let made = Directory::open(directory, true, Access::ReadWrite)?;
        let files = make_data_files(directory, &settings, &mut |_| {})?;
        let places = LogPlaces { directory, settings: &settings, opener: None, access: Access::ReadWrite };
        let log = places.make(Claimed::File(directory.join(LOG)), &mut |_| {})?;
        Ok(Self { directory: made, devices: Devices { log, ..files }, settings })
    }

    /// The superblock of the new database, if pages were protected as `before` where they come from: not every device writes pages
    /// atomically.
    pub fn superblock(&self, before: Protection) -> Superblock {
        let protection = match before {
            Protection::Device if !is_atomic(&self.devices, self.settings.page_size()) => Protection::DoubleWrite,
            other => other,
        };
        new_superblock(&self.settings, &self.devices, None, protection, true)
    }

    pub fn store(&self, superblock: &Superblock) -> Result<Arc<dyn PageStore>> {
        store_on(&self.devices, superblock, &self.settings)
    }

    /// A new log that begins at `start`.
    pub fn new_log(&self, log_id: u128, start: Lsn) -> Result<Log> {
        let options = LogOptions { buffer_bytes: LOG_BUFFER_BYTES, ..LogOptions::default() };
        let at_creation = LogOptions { section_bytes: self.settings.initial_section_bytes(), ..options.clone() };
        Log::create_at(log_id, start, 1, self.devices.log.clone(), at_creation)?;
        Log::open(self.devices.log.clone(), options, &mut |_| {})?.finish()
    }

    /// Everything is in its place: the settings say how to open it.
    pub fn end(self) -> Result<()> {
        self.directory.keep_settings(&self.settings)
    }
}
