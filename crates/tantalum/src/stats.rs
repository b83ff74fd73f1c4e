//! What a database tells about itself.

#[cfg(feature = "metrics")]
mod metrics;

use tantalum_log::LogStats;
use tantalum_store::{Protection, StoreKind, StoreStats};

use crate::{
    buffer::{PageCleaning, PoolStats},
    db::{BarrierSummary, Core},
    recovery::{RecoveryStats, remedy},
    transaction::{Manager, TransactionStats},
};

tantalum_rt::statistics! {
    /// What a database is, and counters since it was opened. Its fields, serialized, are documented and stable.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
    /// let before = db.stats()?;
    /// assert_eq!(before.page_bytes, 4096);
    /// db.table("t")?;
    /// assert!(db.stats()?.since(&before).log.records > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[non_exhaustive]
    #[derive(Clone, Debug)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct Stats {
        total {
            /// Pages in memory.
            pool: PoolStats,
            /// Pages on their way to and from the device.
            store: StoreStats,
            /// Transactions.
            transactions: TransactionStats,
            /// The log.
            log: LogStats,
        }
        now {
            /// The data file or device.
            data: String,
            /// What was found out about the data device.
            data_device: String,
            /// Bytes of a page.
            page_bytes: u32,
            /// How pages are stored.
            page_store: StoreKind,
            /// How torn pages are prevented.
            torn_page_protection: Protection,
            /// Which devices are told to flush their caches.
            barriers: BarrierSummary,
            /// Which tasks write dirty pages to make room.
            page_cleaning: PageCleaning,
            /// Whether each page is made durable by a write of its own.
            durable_page_writes: bool,
            /// What keeps this database safe only because a setting `trust-device` says so, against what the devices say; a
            /// sentence each.
            trusted_by_setting: Vec<String>,
            /// What to do about devices of the log that were set aside; for each of them a text.
            remedies: Vec<String>,
            /// Tables.
            tables: u64,
            /// What opening the database had to do.
            recovery: RecoveryStats,
        }
    }
}

impl Stats {
    pub(crate) fn gather(core: &Core, manager: &Manager) -> Self {
        let mut log = core.log().stats();
        for device in log.devices.iter_mut().filter(|device| device.name.is_empty()) {
            let path = core.log_devices.name_of(device.device_id);
            device.name = path.map_or_else(String::new, |path| path.display().to_string());
        }
        let set_aside = log.devices.iter().filter(|device| device.set_aside.is_some());
        Self {
            data: core.pool.store().name().into(),
            data_device: core.data_capabilities.to_string(),
            page_bytes: core.superblock.page_size,
            page_store: core.superblock.store_kind,
            torn_page_protection: core.superblock.protection,
            page_cleaning: core.settings.page_cleaning(),
            durable_page_writes: core.settings.durable_page_writes(),
            trusted_by_setting: core.trusted_by_setting(),
            remedies: set_aside.map(|device| remedy(device.ordinal)).collect(),
            barriers: core.barriers.summary(),
            tables: core.catalog.tables().len() as u64,
            pool: core.pool.stats(),
            store: core.pool.store().stats(),
            transactions: manager.stats(),
            log,
            recovery: core.redo.updated(&core.pool),
        }
    }
}
