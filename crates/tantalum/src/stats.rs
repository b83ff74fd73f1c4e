//! What a database tells about itself.

use std::{path::PathBuf, time::Duration};

use serde::Serialize;
use tantalum_log::DeviceState;
use tantalum_store::{Protection, StoreKind, StoreStats};

use crate::{
    buffer::{PageCleaning, PoolStats},
    db::{BarrierSummary, Core},
    recovery::remedy,
    transaction::{Manager, TransactionStats},
};

/// What a database is, and counters since it was opened. Its fields, serialized, are documented and stable.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// assert_eq!(db.stats()?.page_bytes, 4096);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// The data file or device.
    pub data: String,
    /// What was found out about the data device.
    pub data_device: String,
    /// Bytes of a page.
    pub page_bytes: u32,
    /// How pages are stored.
    pub page_store: StoreKind,
    /// How torn pages are prevented.
    pub torn_page_protection: Protection,
    /// Which devices are told to flush their caches.
    pub barriers: BarrierSummary,
    /// Which tasks write dirty pages to make room.
    pub page_cleaning: PageCleaning,
    /// Whether each page is made durable by a write of its own.
    pub durable_page_writes: bool,
    /// What keeps this database safe on the user's word alone, against what the devices say; a sentence each. Empty unless a
    /// setting `trust-device` asks for it.
    pub on_users_word: Vec<String>,
    /// Tables.
    pub tables: u64,
    /// Pages in memory.
    pub pool: PoolStats,
    /// Pages on their way to and from the device.
    pub store: StoreStats,
    /// Transactions.
    pub transactions: TransactionStats,
    /// The log.
    pub log: LogSummary,
    /// What opening the database had to do.
    pub recovery: RecoverySummary,
}

/// The log's part of [`Stats`].
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct LogSummary {
    /// Requests written: group commits.
    pub requests: u64,
    /// Records appended.
    pub records: u64,
    /// Mean bytes of records in a request.
    pub mean_group_bytes: u64,
    /// Flushes that had to wait for a device.
    pub flush_waits: u64,
    /// Requests written again because their device failed or hung.
    pub reissued: u64,
    /// On how many devices a commit must be before it is acknowledged.
    pub copies: u8,
    /// Whether it is. False while only one piece of hardware is left of a log of two copies: then losing that loses commits.
    pub keeps_copies: bool,
    /// Requests that were done with one copy instead of two, since the database was opened.
    pub single_copies: u64,
    /// Whether any one log device can be lost now without losing anything.
    pub may_lose_a_device: bool,
    /// What hiding late writes did, all devices together.
    pub hiding: LogHidingSummary,
    /// Whether late writes are given to other devices as soon as they are seen; false also while that takes a break
    /// because it did not pay.
    pub hides: bool,
    /// How often hiding took a break.
    pub hiding_breaks: u64,
    /// Bytes in use.
    pub used_bytes: u64,
    /// Bytes in all.
    pub capacity_bytes: u64,
    /// Where recovery would start.
    pub checkpoint_lsn: u64,
    /// Everything before it survives a power cut.
    pub durable_lsn: u64,
    /// Where the next record starts.
    pub end_lsn: u64,
    /// Raised at every open.
    pub epoch: u64,
    /// The devices.
    pub devices: Vec<LogDevice>,
    /// The archive, if there is one.
    pub archive: Option<LogArchive>,
}

/// The log's archive in [`LogSummary`].
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct LogArchive {
    /// Its directory or device.
    pub name: String,
    /// Why nothing more is archived; `None` while all is well.
    pub set_aside: Option<String>,
    /// The archive has no gap from here to its end.
    pub run_start_lsn: u64,
    /// The archive has everything before it.
    pub archived_lsn: u64,
    /// Record bytes that it does not have yet.
    pub behind_bytes: u64,
    /// Writes to it.
    pub writes: u64,
    /// Record bytes written to it.
    pub bytes: u64,
    /// Microseconds during which a write was under way.
    pub busy_us: u64,
    /// Requests that no log device needed to write, because the archive had them first.
    pub completed: u64,
}

/// A device of the log in [`LogSummary`].
#[non_exhaustive]
#[derive(Clone, Debug, Serialize)]
pub struct LogDevice {
    /// Its path, with the partition if it is one.
    pub name: String,
    /// Its number in the log.
    pub number: u32,
    /// Why it gets no more requests; `None` while all is well.
    pub set_aside: Option<String>,
    /// What to do about that.
    pub remedy: Option<String>,
    /// Whether it is just joining or leaving the log.
    pub is_changing: bool,
    /// Writes that hung and were given up, and are still under way.
    pub still_writing: u64,
    /// Requests written to it.
    pub writes: u64,
    /// Bytes written to it.
    pub bytes: u64,
    /// Microseconds during which a request was under way.
    pub busy_us: u64,
    /// What hiding late writes did on this device.
    pub hiding: LogHidingSummary,
}

/// What hiding late writes did, in [`LogSummary`] and [`LogDevice`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Serialize)]
pub struct LogHidingSummary {
    /// Writes that took more than twice the average of their size.
    pub outliers: u64,
    /// Requests taken because another device was late with them.
    pub reissued: u64,
    /// Those of them that were written first here.
    pub won: u64,
    /// Those that were not.
    pub lost: u64,
    /// Microseconds that late writes went on after another device had written the same.
    pub saved_us: u64,
}

/// What opening the database had to do, in [`Stats`].
#[non_exhaustive]
#[derive(Clone, Copy, Debug, Serialize)]
pub struct RecoverySummary {
    /// Where the log ended, an LSN.
    pub end_lsn: u64,
    /// Log records read.
    pub records: u64,
    /// Commits among them.
    pub commits: u64,
    /// Pages that lacked changes, each counted once per record.
    pub pages_changed: u64,
    /// Torn pages put back from the double-write area.
    pub torn_pages: u64,
}

impl Stats {
    pub(crate) fn gather(core: &Core, manager: &Manager) -> Self {
        Self {
            data: core.pool.store().name().into(),
            data_device: core.data_capabilities.to_string(),
            page_bytes: core.superblock.page_size,
            page_store: core.superblock.store_kind,
            torn_page_protection: core.superblock.protection,
            page_cleaning: core.settings.page_cleaning(),
            durable_page_writes: core.settings.durable_page_writes(),
            on_users_word: core.on_users_word(),
            barriers: core.barriers.summary(),
            tables: core.catalog.tables().len() as u64,
            pool: core.pool.stats(),
            store: core.pool.store().stats(),
            transactions: manager.stats(),
            log: LogSummary::of(core.log().stats(), |id| core.log_devices.name_of(id)),
            recovery: RecoverySummary {
                records: core.redo.records,
                end_lsn: core.redo.end.get(),
                commits: core.redo.commits,
                pages_changed: core.redo.pages_changed,
                torn_pages: core.redo.torn_pages,
            },
        }
    }
}

impl LogSummary {
    fn of(stats: tantalum_log::LogStats, name_of: impl Fn(u64) -> Option<PathBuf>) -> Self {
        Self {
            requests: stats.requests,
            records: stats.records,
            mean_group_bytes: stats.mean_group_bytes(),
            flush_waits: stats.flush_waits,
            reissued: stats.reissued,
            hiding: LogHidingSummary::of(stats.hiding),
            hides: stats.hides,
            hiding_breaks: stats.hiding_breaks,
            used_bytes: stats.used_bytes,
            capacity_bytes: stats.capacity_bytes,
            checkpoint_lsn: stats.checkpoint_lsn.get(),
            durable_lsn: stats.durable_lsn.get(),
            end_lsn: stats.end_lsn.get(),
            epoch: stats.epoch,
            copies: stats.copies,
            keeps_copies: stats.keeps_copies,
            single_copies: stats.single_copies,
            may_lose_a_device: stats.mirrored_from_lsn.is_some_and(|from| from <= stats.checkpoint_lsn),
            devices: stats.devices.into_iter().map(|device| LogDevice::of(device, &name_of)).collect(),
            archive: stats.archive.map(LogArchive::of),
        }
    }
}

impl LogDevice {
    fn of(stats: tantalum_log::DeviceStats, name_of: impl Fn(u64) -> Option<PathBuf>) -> Self {
        let is_absent = stats.name.is_empty();
        let path = || name_of(stats.device_id).map_or_else(String::new, |path| path.display().to_string());
        Self {
            name: if is_absent { path() } else { stats.name },
            number: stats.ordinal,
            remedy: (!stats.state.is_healthy()).then(|| remedy(stats.ordinal)),
            is_changing: stats.state.is_changing(),
            still_writing: stats.still_writing,
            set_aside: reason(stats.state),
            writes: stats.writes,
            bytes: stats.bytes,
            busy_us: micros(stats.busy),
            hiding: LogHidingSummary::of(stats.hiding),
        }
    }
}

impl LogHidingSummary {
    fn of(stats: tantalum_log::HidingStats) -> Self {
        Self {
            outliers: stats.outliers,
            reissued: stats.reissued,
            won: stats.won,
            lost: stats.lost,
            saved_us: micros(stats.saved),
        }
    }
}

impl LogArchive {
    fn of(stats: tantalum_log::ArchiveStats) -> Self {
        Self {
            name: stats.name,
            set_aside: reason(stats.state),
            run_start_lsn: stats.run_start_lsn.get(),
            archived_lsn: stats.archived_lsn.get(),
            behind_bytes: stats.behind_bytes,
            writes: stats.writes,
            bytes: stats.bytes,
            busy_us: micros(stats.busy),
            completed: stats.completed,
        }
    }
}

/// Why it was set aside, if it was.
fn reason(state: DeviceState) -> Option<String> {
    match state {
        DeviceState::Healthy | DeviceState::Changing => None,
        DeviceState::SetAside { cause } => Some(cause.to_string()),
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
