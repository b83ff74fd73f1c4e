//! What a hard disk is made of: the parameters of a profile.
//!
//! Promises: parameters that pass [`DiskParameters::check`] describe a possible disk, and nothing computed from them
//! overflows.

use serde::Deserialize;

use super::geometry::Geometry;
use crate::profile::{Problem, check_ranges};

/// Bytes of a sector: the unit that a disk writes whole or not at all.
pub const SECTOR_BYTES: u64 = 512;

/// A hard disk. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskParameters {
    /// Turns per minute.
    pub rpm: u32,
    /// Surfaces, each with a head.
    pub heads: u32,
    /// Tracks per surface.
    pub cylinders: u32,
    /// Groups of cylinders with the same number of sectors per track.
    pub zones: u32,
    /// Sectors of the outermost track, where the disk begins.
    pub outer_track_sectors: u32,
    /// Sectors of the innermost track.
    pub inner_track_sectors: u32,
    /// From one track to another before a read.
    pub seek_read: SeekCurve,
    /// The same before a write, for which the arm must settle better.
    pub seek_write: SeekCurve,
    /// From one head to another of the same cylinder.
    pub head_switch_us: f64,
    /// What the electronics take for a command.
    pub command_us: f64,
    /// What the interface carries, in MB/s.
    pub interface_mb_per_s: f64,
    /// Requests that the disk accepts at once and serves in the order that suits its arm; 1 for one after the other.
    pub queue_depth: u32,
    /// A request that has waited for longer is served next.
    pub age_limit_us: f64,
    /// What a read leaves in the buffer as the disk reads on, in KiB; 0 for no reading ahead.
    pub read_ahead_kib: u32,
    /// Whether writes end in memory.
    pub write_cache: CacheMode,
    /// Memory for writes, in KiB.
    pub write_cache_kib: u32,
    /// Runs of sectors that this memory holds: the disk keeps a list of so many, and can sort no more.
    pub write_cache_segments: u32,
    /// Whether one write can pass the cache; otherwise a durable write is a write and a flush.
    pub fua: bool,
    /// From power on to the first answer.
    pub spin_up_us: f64,
}

/// Time of a movement of the arm over a share `x` of all cylinders, in microseconds: `base + sqrt * sqrt(x) + linear * x`.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeekCurve {
    /// Nearly that of a movement to the next track.
    pub base_us: f64,
    /// Of the part in which the arm gains and loses speed.
    pub sqrt_us: f64,
    /// Of the part at full speed.
    pub linear_us: f64,
}

/// When a disk says that a write has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheMode {
    /// When it is on the platter.
    Off,
    /// When it is in memory, until a flush. What was not flushed is lost when the power fails.
    On,
    /// When it is in memory, whatever the host asks for: a disk with its write cache on, under a host that flushes
    /// nothing. This is not a safe device; it is the upper bound of what a log on a disk could reach.
    NeverFlushed,
}

impl SeekCurve {
    /// Nanoseconds over `distance` of `cylinders`.
    pub(super) fn nanos(&self, distance: u32, cylinders: u32) -> u32 {
        let x = f64::from(distance) / f64::from(cylinders);
        ((self.base_us + self.sqrt_us * x.sqrt() + self.linear_us * x) * 1000.0).round() as u32
    }

    fn is_possible(&self) -> bool {
        let parts = [self.base_us, self.sqrt_us, self.linear_us];
        parts.iter().all(|part| (0.0..=1e6).contains(part)) && self.base_us > 0.0
    }
}

impl DiskParameters {
    /// The profile of a plain disk of 10,000 turns per minute and 73 GB, its write cache off.
    #[cfg(test)]
    pub(super) fn example() -> Self {
        let profile = crate::Profile::named("hdd-10k").expect("it comes with the crate");
        let crate::Kind::HardDisk(parameters) = profile.device else { panic!("{profile:?}") };
        parameters
    }

    /// Microseconds of one turn.
    pub fn rotation_us(&self) -> f64 {
        60e6 / f64::from(self.rpm)
    }

    /// Whether the disk is possible, and has room for as many bytes.
    pub(crate) fn check(&self, capacity_bytes: u64) -> Result<(), Problem> {
        self.check_parts()?;
        let most = Geometry::new(self).sectors() * SECTOR_BYTES;
        match capacity_bytes.is_multiple_of(SECTOR_BYTES) && (1..=most).contains(&capacity_bytes) {
            true => Ok(()),
            false => Err(("capacity_bytes", format!("expected a multiple of {SECTOR_BYTES}, at most {most}"))),
        }
    }

    fn check_parts(&self) -> Result<(), Problem> {
        let least_cache = if self.write_cache == CacheMode::Off { 0.0 } else { 64.0 };
        check_ranges(&[
            ("rpm", self.rpm.into(), 60.0, 1e5),
            ("heads", self.heads.into(), 1.0, 64.0),
            ("cylinders", self.cylinders.into(), 1.0, 4e6),
            ("zones", self.zones.into(), 1.0, self.cylinders.min(1000).into()),
            ("outer_track_sectors", self.outer_track_sectors.into(), 1.0, 1e5),
            ("inner_track_sectors", self.inner_track_sectors.into(), 1.0, self.outer_track_sectors.into()),
            ("queue_depth", self.queue_depth.into(), 1.0, 1024.0),
            ("write_cache_segments", self.write_cache_segments.into(), 1.0, 4096.0),
            ("read_ahead_kib", self.read_ahead_kib.into(), 0.0, f64::from(1 << 20)),
            ("write_cache_kib", self.write_cache_kib.into(), least_cache, f64::from(1 << 20)),
            ("head_switch_us", self.head_switch_us, 0.0, 1e6),
            ("command_us", self.command_us, 0.0, 1e6),
            ("interface_mb_per_s", self.interface_mb_per_s, 0.1, 1e6),
            ("age_limit_us", self.age_limit_us, 0.0, 1e9),
            ("spin_up_us", self.spin_up_us, 0.0, 1e9),
        ])?;
        for (key, curve) in [("seek_read", self.seek_read), ("seek_write", self.seek_write)] {
            if !curve.is_possible() {
                return Err((key, "base_us must be above 0, and all parts at most a second".into()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_disks_are_refused_by_key() {
        let good = DiskParameters::example();
        assert!(good.check(68 << 30).is_ok() && good.check(73 << 30).is_err());
        let key = |disk: DiskParameters| disk.check(1 << 30).unwrap_err().0;
        assert_eq!(key(DiskParameters { rpm: 0, ..good.clone() }), "rpm");
        assert_eq!(key(DiskParameters { inner_track_sectors: 841, ..good.clone() }), "inner_track_sectors");
        assert_eq!(key(DiskParameters { command_us: f64::NAN, ..good.clone() }), "command_us");
        let curve = SeekCurve { base_us: -1.0, ..good.seek_read };
        assert_eq!(key(DiskParameters { seek_read: curve, ..good.clone() }), "seek_read");
        let cached = DiskParameters { write_cache: CacheMode::On, write_cache_kib: 0, ..good };
        assert_eq!(key(cached), "write_cache_kib");
    }
}
