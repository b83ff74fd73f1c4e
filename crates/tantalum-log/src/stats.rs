//! Statistics of a running log.

use std::time::Duration;

use tantalum_rt::statistics;

use crate::{Error, Lsn};

statistics! {
    /// A snapshot of a running log's counters, from [`Log::stats`](crate::Log::stats). Counters start at zero at open.
    ///
    /// ```
    /// let stats = tantalum_log::LogStats::default();
    /// assert_eq!(stats.since(&stats).requests, 0);
    /// ```
    #[non_exhaustive]
    #[derive(Clone, Debug, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct LogStats {
        total {
            /// Requests written: group commits.
            requests: u64,
            /// Record bytes in those requests.
            request_bytes: u64,
            /// Records appended.
            records: u64,
            /// Flushes that had to wait for a device.
            flush_waits: u64,
            /// Requests written again because their device failed or hung.
            reissued: u64,
            /// Requests that were done with one copy where two were asked for.
            single_copies: u64,
            /// Outlier hiding, all devices together.
            hiding: HidingStats,
            /// How often hiding took a break because it did not pay.
            hiding_breaks: u64,
            /// The devices of the log, by number; those that are not there included.
            devices: Vec<LogDeviceStats>,
            /// The archive; null without one.
            archive: Option<ArchiveStats>,
        }
        now {
            /// Mean record bytes of a request since the log was opened.
            mean_group_bytes: u64,
            /// On how many devices a commit must be before it is acknowledged.
            copies: u8,
            /// Whether each commit is on `copies` devices. False while only one piece of hardware is left of a log of two
            /// copies: then losing that device loses commits. Add or replace one.
            keeps_copies: bool,
            /// Whether any one device can be lost now without losing anything.
            may_lose_a_device: bool,
            /// With two copies: everything durable from here on is on two pieces of hardware.
            mirrored_from_lsn: Option<Lsn>,
            /// Whether late writes are given to other devices as soon as they are seen: there are several pieces of hardware,
            /// hiding is on, and takes no break.
            hides: bool,
            /// Bytes of sections that hold records at or past the checkpoint, or are lost to section ends. Hiding areas are not
            /// counted, here and below.
            used_bytes: u64,
            /// Bytes of all healthy devices' sections.
            capacity_bytes: u64,
            /// Where recovery would start.
            checkpoint_lsn: Lsn,
            /// Everything before it survives a power failure.
            durable_lsn: Lsn,
            /// Where the next record starts.
            end_lsn: Lsn,
            /// The session, raised by every open.
            epoch: u64,
        }
    }
}

statistics! {
    /// One device of the log, in [`LogStats`].
    ///
    /// ```
    /// let device = tantalum_log::LogDeviceStats::default();
    /// assert!(device.set_aside.is_none());
    /// ```
    #[non_exhaustive]
    #[derive(Clone, Debug, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct LogDeviceStats {
        total {
            /// Requests written.
            writes: u64,
            /// Bytes written, headers and padding included.
            bytes: u64,
            /// Time during which a request was under way.
            busy_us: u64,
            /// Outlier hiding.
            hiding: HidingStats,
        }
        now {
            /// The device's path or name, with the partition if it is one. Empty in the log's own statistics if it was not there
            /// at open.
            name: String,
            /// Its place in the log.
            #[cfg_attr(feature = "serde", serde(rename = "number"))]
            ordinal: u32,
            /// Its identity, chosen at random when it was formatted.
            #[cfg_attr(feature = "serde", serde(skip))]
            device_id: u64,
            /// Why it gets no more requests; null while it works.
            #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
            set_aside: Option<Error>,
            /// Whether it is just joining or leaving the log.
            is_changing: bool,
            /// Writes that hung and were given up, and are still under way: they may land at any time.
            still_writing: u64,
        }
    }
}

statistics! {
    /// Outlier hiding ("FlashLogging", section 3.5).
    ///
    /// ```
    /// let hiding = tantalum_log::HidingStats::default();
    /// assert_eq!(hiding.won + hiding.lost, hiding.reissued);
    /// ```
    #[non_exhaustive]
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct HidingStats {
        total {
            /// Writes that took more than twice the average of their size.
            outliers: u64,
            /// Requests taken because another device was late with them.
            reissued: u64,
            /// Those of them that were written first here.
            won: u64,
            /// Those that were not, or failed.
            lost: u64,
            /// Time that late writes went on after another device had written the same.
            saved_us: u64,
        }
    }
}

impl HidingStats {
    pub(crate) fn add(&mut self, other: &HidingStats) {
        self.outliers += other.outliers;
        self.reissued += other.reissued;
        self.won += other.won;
        self.lost += other.lost;
        self.saved_us += other.saved_us;
    }
}

statistics! {
    /// The archive, in [`LogStats`].
    ///
    /// ```
    /// let archive = tantalum_log::ArchiveStats::default();
    /// assert!(archive.set_aside.is_none() && archive.behind_bytes == 0);
    /// ```
    #[non_exhaustive]
    #[derive(Clone, Debug, Default)]
    #[cfg_attr(feature = "serde", derive(serde::Serialize))]
    pub struct ArchiveStats {
        total {
            /// Writes.
            writes: u64,
            /// Record bytes written.
            bytes: u64,
            /// Time during which a write was under way.
            busy_us: u64,
            /// Requests that no device needed to write, because the archive had them first.
            completed: u64,
        }
        now {
            /// The directory's path or the device's name.
            name: String,
            /// Why nothing more is archived; null while it works.
            #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
            set_aside: Option<Error>,
            /// The archive has no gap from here to its end.
            run_start_lsn: Lsn,
            /// The archive has everything before it, durably.
            archived_lsn: Lsn,
            /// Record bytes that it does not have yet.
            behind_bytes: u64,
        }
    }
}

/// A time in microseconds.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(cause: &Option<Error>, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&cause.as_ref().map(Error::to_string), serializer)
}
