//! Statistics of a running log.

use std::time::Duration;

use crate::{Error, Lsn};

/// A snapshot of a running log's counters, from [`Log::stats`](crate::Log::stats). Counters start at zero at open.
///
/// ```
/// let stats = tantalum_log::LogStats::default();
/// assert_eq!(stats.mean_group_bytes(), 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct LogStats {
    /// One entry for each device of the log, by ordinal; those that are not there included.
    pub devices: Vec<DeviceStats>,
    /// Requests sealed: group commits.
    pub requests: u64,
    /// Record bytes in those requests.
    pub request_bytes: u64,
    /// Records appended.
    pub records: u64,
    /// Flushes that had to wait for a device.
    pub flush_waits: u64,
    /// Requests that were written again because their device failed or hung.
    pub reissued: u64,
    /// On how many devices a request must be durable before it counts: [`LogOptions::copies`](crate::LogOptions::copies).
    pub copies: u8,
    /// Whether it is. False while so many devices failed that only one piece of hardware is left: the log goes on with one copy
    /// then, and losing that device loses records. Add or replace one.
    pub keeps_copies: bool,
    /// Requests that were done with one copy where two were asked for.
    pub single_copies: u64,
    /// With two copies, everything durable from here on is on two pieces of hardware. The loss of any one loses nothing
    /// once the checkpoint has reached it, for which the owner is under pressure.
    pub mirrored_from_lsn: Option<Lsn>,
    /// Counters of outlier hiding, all devices together.
    pub hiding: HidingStats,
    /// Whether outliers are re-issued as soon as they are seen. False without several pieces of hardware, with
    /// [`Hiding::Off`](crate::Hiding::Off), and while hiding takes a break because it did not pay.
    pub hides: bool,
    /// How often hiding took a break.
    pub hiding_breaks: u64,
    /// Bytes of device area that hold records at or past the checkpoint, or are lost to section ends. Hiding areas are
    /// not counted, here and below.
    pub used_bytes: u64,
    /// Bytes of all healthy devices' sections.
    pub capacity_bytes: u64,
    /// Where recovery would start.
    pub checkpoint_lsn: Lsn,
    /// Everything before it survives a power failure.
    pub durable_lsn: Lsn,
    /// The append position.
    pub end_lsn: Lsn,
    /// The epoch, raised by every open.
    pub epoch: u64,
    /// The archive, if the log has one.
    pub archive: Option<ArchiveStats>,
}

impl LogStats {
    /// Mean record bytes of a request, 0 before the first.
    pub fn mean_group_bytes(&self) -> u64 {
        self.request_bytes.checked_div(self.requests).unwrap_or(0)
    }
}

/// Counters of one device.
///
/// ```
/// let device = tantalum_log::DeviceStats::default();
/// assert!(device.state.is_healthy());
/// ```
#[derive(Clone, Debug, Default)]
pub struct DeviceStats {
    /// The device's name; empty if it was not there at open.
    pub name: String,
    /// Its place in the log.
    pub ordinal: u32,
    /// Its identity, chosen at random when it was formatted.
    pub device_id: u64,
    /// Whether it takes requests.
    pub state: DeviceState,
    /// Requests written.
    pub writes: u64,
    /// Bytes written, headers and padding included.
    pub bytes: u64,
    /// Time during which a request was under way.
    pub busy: Duration,
    /// Writes that hung and were given up, and are still under way: they may land at any time.
    pub still_writing: u64,
    /// Counters of outlier hiding.
    pub hiding: HidingStats,
}

/// Counters of outlier hiding ("FlashLogging", section 3.5).
///
/// ```
/// let hiding = tantalum_log::HidingStats { reissued: 4, won: 3, lost: 1, ..Default::default() };
/// assert_eq!(hiding.won + hiding.lost, hiding.reissued);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HidingStats {
    /// Writes that this device was late with.
    pub outliers: u64,
    /// Requests that this device was given because another was late with them.
    pub reissued: u64,
    /// Those of them with which it was first.
    pub won: u64,
    /// Those with which it was not, or failed.
    pub lost: u64,
    /// Time that this device went on writing what another had saved already. It grows when its write ends.
    pub saved: Duration,
}

impl HidingStats {
    pub(crate) fn add(&mut self, other: &HidingStats) {
        self.outliers += other.outliers;
        self.reissued += other.reissued;
        self.won += other.won;
        self.lost += other.lost;
        self.saved += other.saved;
    }
}

/// Counters of the archive.
///
/// ```
/// let archive = tantalum_log::ArchiveStats::default();
/// assert!(archive.state.is_healthy() && archive.behind_bytes == 0);
/// ```
#[derive(Clone, Debug, Default)]
pub struct ArchiveStats {
    /// The directory's path or the device's name.
    pub name: String,
    /// Whether it is written to.
    pub state: DeviceState,
    /// The archive has no gap from here to its end.
    pub run_start_lsn: Lsn,
    /// The archive has everything before it, durably.
    pub archived_lsn: Lsn,
    /// Record bytes that it does not have yet.
    pub behind_bytes: u64,
    /// Writes.
    pub writes: u64,
    /// Record bytes written.
    pub bytes: u64,
    /// Time during which a write was under way.
    pub busy: Duration,
    /// Requests that no device needed to write, because the archive had them first.
    pub completed: u64,
}

/// Whether a device takes requests, and if not, why.
///
/// ```
/// use tantalum_log::{DeviceState, Error};
/// assert!(!DeviceState::SetAside { cause: Error::Absent { ordinal: 1 } }.is_healthy());
/// ```
#[derive(Clone, Debug, Default)]
pub enum DeviceState {
    /// It takes requests.
    #[default]
    Healthy,
    /// It takes no new requests: it is on its way out of the log, or into it.
    Changing,
    /// It failed or hung, and takes no requests until the log is opened again or the device replaced.
    SetAside {
        /// The failure.
        cause: Error,
    },
}

impl DeviceState {
    /// Whether it takes requests, and will take more.
    pub fn is_serving(&self) -> bool {
        matches!(self, DeviceState::Healthy)
    }

    /// Whether it is just joining or leaving the log.
    pub fn is_changing(&self) -> bool {
        matches!(self, DeviceState::Changing)
    }

    /// Whether nothing is wrong with the device.
    pub fn is_healthy(&self) -> bool {
        !matches!(self, DeviceState::SetAside { .. })
    }
}
