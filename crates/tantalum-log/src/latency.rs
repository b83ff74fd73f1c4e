//! How long a device's writes take, by their size, and when one is an outlier ("FlashLogging", section 3.4).
//!
//! The averages come from a characteristics file or are learnt, and go on decaying either way. What exceeds the outlier
//! threshold counts as the threshold: a rare outlier hardly moves the average, while a device that got slower for good
//! moves it by a sixteenth with every write, so that it is followed within some dozens of writes.

use std::time::Duration;

use tantalum_device::WriteLatency;

use crate::format::BLOCK;

/// A write that takes longer than this many times the average of its size is an outlier (section 3.4).
pub(crate) const OUTLIER_FACTOR: u32 = 2;
/// ... unless it exceeds the average by less than this: a scheduler's jitter is no device's outlier, and giving a write
/// to another device costs some microseconds too.
pub(crate) const OUTLIER_EXCESS_MIN: Duration = Duration::from_micros(100);

/// Classes by powers of two of blocks: the last holds 2 GiB, more than the largest request.
const CLASSES: usize = 20;
/// An average says nothing before it has seen so many writes.
const SAMPLES_MIN: u32 = 4;
/// What a write is taken for on average while nothing is known of any device: a seek and a turn or two of a disk, or a
/// stick at its slowest, and then so many bytes a second. A device that is slower gets its first writes re-issued; one that hangs
/// from the first does not hold up commits until it is given up.
const UNKNOWN_AVERAGE: Duration = Duration::from_millis(20);
const UNKNOWN_BYTES_PER_SECOND: f64 = 10e6;
/// Newer writes weigh at least one in so many.
const WEIGHT: u32 = 16;

/// The writes of one size class.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    samples: u32,
    bytes: f64,
    nanos: f64,
}

/// A device's average latencies by size.
#[derive(Clone, Debug, Default)]
pub(crate) struct LatencyTable {
    classes: [Class; CLASSES],
}

impl LatencyTable {
    /// A table that begins with what was measured.
    pub(crate) fn measured(latencies: &[WriteLatency]) -> LatencyTable {
        let mut table = LatencyTable::default();
        for latency in latencies {
            let class = &mut table.classes[class_of(latency.bytes)];
            // Of several sizes in a class the largest stands.
            *class = Class { samples: WEIGHT, bytes: latency.bytes as f64, nanos: latency.mean().as_nanos() as f64 };
        }
        table
    }

    /// Takes note of a write of `bytes` bytes.
    pub(crate) fn learn(&mut self, bytes: u64, took: Duration) {
        let class = &mut self.classes[class_of(bytes)];
        let took = took.as_nanos() as f64;
        if class.samples == 0 || (class.samples < WEIGHT && took * f64::from(OUTLIER_FACTOR) < class.nanos) {
            // The first, or the first that was no outlier.
            *class = Class { samples: class.samples + 1, bytes: bytes as f64, nanos: took };
            return;
        }
        class.samples = class.samples.saturating_add(1);
        let weight = 1.0 / f64::from(class.samples.min(WEIGHT));
        let clipped = took.min(threshold(class.nanos, OUTLIER_FACTOR));
        class.nanos += (clipped - class.nanos) * weight;
        class.bytes += (bytes as f64 - class.bytes) * weight;
    }

    /// After how long a write of `bytes` bytes is an outlier, if one is what exceeds the average by `factor`. `None`
    /// as long as nothing is known.
    pub(crate) fn outlier_after(&self, bytes: u64, factor: u32) -> Option<Duration> {
        self.average(bytes).map(|average| Duration::from_nanos(threshold(average, factor) as u64))
    }

    /// The average in nanoseconds, interpolated between the nearest sizes that are known. A size beyond them is taken
    /// for as slow as it can be: as the next larger one, or in proportion to the next smaller one.
    fn average(&self, bytes: u64) -> Option<f64> {
        let bytes = bytes as f64;
        let known = || self.classes.iter().filter(|class| class.samples >= SAMPLES_MIN);
        let below = known().rfind(|class| class.bytes <= bytes);
        let above = known().find(|class| class.bytes >= bytes);
        match (below, above) {
            (None, None) => None,
            (Some(below), None) => Some(below.nanos * bytes / below.bytes),
            (None, Some(above)) => Some(above.nanos),
            (Some(below), Some(above)) if above.bytes <= below.bytes => Some(below.nanos),
            (Some(below), Some(above)) => {
                let part = (bytes - below.bytes) / (above.bytes - below.bytes);
                Some(below.nanos + (above.nanos - below.nanos) * part)
            }
        }
    }
}

/// After how long a write of `bytes` bytes is an outlier while nothing is known of any device.
pub(crate) fn outlier_after_unknown(bytes: u64, factor: u32) -> Duration {
    (UNKNOWN_AVERAGE + Duration::from_secs_f64(bytes as f64 / UNKNOWN_BYTES_PER_SECOND)) * factor
}

/// The class of writes above 2^(n-1) and up to 2^n blocks.
fn class_of(bytes: u64) -> usize {
    let blocks = bytes.div_ceil(BLOCK as u64).max(1);
    (blocks.next_power_of_two().trailing_zeros() as usize).min(CLASSES - 1)
}

/// In nanoseconds.
fn threshold(average: f64, factor: u32) -> f64 {
    (average * f64::from(factor)).max(average + OUTLIER_EXCESS_MIN.as_nanos() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIB: u64 = 1024;

    fn us(us: u64) -> Duration {
        Duration::from_micros(us)
    }

    fn learnt(writes: &[(u64, u64)]) -> LatencyTable {
        let mut table = LatencyTable::default();
        for &(kib, took) in writes {
            for _ in 0..8 {
                table.learn(kib * KIB, us(took));
            }
        }
        table
    }

    fn threshold_us(table: &LatencyTable, kib: u64) -> u64 {
        table.outlier_after(kib * KIB, OUTLIER_FACTOR).expect("known").as_micros() as u64
    }

    #[test]
    fn nothing_is_an_outlier_before_anything_is_known() {
        let mut table = LatencyTable::default();
        assert_eq!(table.outlier_after(4 * KIB, 2), None);
        for _ in 0..3 {
            table.learn(4 * KIB, us(1000));
        }
        assert_eq!(table.outlier_after(4 * KIB, 2), None);
        table.learn(4 * KIB, us(1000));
        assert_eq!(threshold_us(&table, 4), 2000);
    }

    #[test]
    fn sizes_between_are_interpolated_and_sizes_beyond_are_given_time() {
        let table = learnt(&[(8, 1000), (32, 4000)]);
        assert_eq!(threshold_us(&table, 20), 5000);
        assert_eq!(threshold_us(&table, 4), 2000);
        assert_eq!(threshold_us(&table, 64), 16_000);
    }

    #[test]
    fn jitter_of_a_fast_device_is_no_outlier() {
        assert_eq!(threshold_us(&learnt(&[(4, 20)]), 4), 120);
    }

    #[test]
    fn outliers_do_not_poison_the_average() {
        let mut table = learnt(&[(4, 1000)]);
        for n in 0..1000 {
            table.learn(4 * KIB, if n % 20 == 0 { us(300_000) } else { us(1000) });
        }
        let threshold = threshold_us(&table, 4);
        assert!((2000..2400).contains(&threshold), "{threshold}");
        // Not even if the very first write was one.
        let mut table = LatencyTable::default();
        table.learn(4 * KIB, us(300_000));
        for _ in 0..8 {
            table.learn(4 * KIB, us(1000));
        }
        assert_eq!(threshold_us(&table, 4), 2000);
    }

    #[test]
    fn a_device_that_gets_slower_or_faster_is_followed() {
        let mut table = learnt(&[(4, 1000)]);
        let followed = (1..).find(|_| {
            table.learn(4 * KIB, us(20_000));
            threshold_us(&table, 4) > 20_000
        });
        assert!(followed.expect("some day") < 60, "{followed:?}");
        for _ in 0..100 {
            table.learn(4 * KIB, us(500));
        }
        assert!(threshold_us(&table, 4) < 1100);
    }

    #[test]
    fn a_measured_table_counts_at_once() {
        let latency = |bytes, mean_us| WriteLatency { bytes, mean_us };
        let table = LatencyTable::measured(&[latency(4096, 500.0), latency(65536, 4500.0), latency(1 << 40, 1e9)]);
        assert_eq!(threshold_us(&table, 4), 1000);
        assert_eq!(threshold_us(&table, 34), 5000);
    }
}
