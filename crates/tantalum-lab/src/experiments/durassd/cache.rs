//! The caches that Table 1 names, and how large one has to be for writes (sections 2.3 and 3.1.1).

use tantalum_report::plot::{Axis, Plot, Series, Unit};

use super::{FILE_BYTES, OPERATIONS, tested_device};
use crate::{
    error::Result,
    experiments::{
        Settings,
        device_under_test::{Cache, DeviceUnderTest},
    },
    finding::{Basis, Bound, Comparison, Findings},
    micro::{Job, Kind, Measured, Pattern},
    published,
};

pub(super) const SIZES: &str = "ds.table1.cache_sizes";

const MIB: f64 = (1 << 20) as f64;
const PAGE_BYTES: u32 = 4096;

/// Of the drive's map: a number of 32 bits for each 4 KiB, as all drives of the time had it that the profiles know of.
const MAP_ENTRY_BYTES: f64 = 4.0;

/// DuraSSD has 480 GB (section 3.1.2).
const DURASSD_BYTES: f64 = 480e9;

/// Buffer pools of the sweep. The smallest has room for two of the largest commands.
const POOLS: [u64; 6] = [1 << 20, 2 << 20, 4 << 20, 8 << 20, 16 << 20, 32 << 20];

/// The pool from which on more does not help much: "several megabytes would be good enough".
const ENOUGH: u64 = 8 << 20;

/// Of the writes in sequence that fill the disk's memory: it is in segments, and a small write that stands alone takes one of few.
const STREAM_BYTES: u32 = 256 << 10;
/// So many of them, six times that memory.
const STREAM_WRITES: u64 = 400;

fn writes(operations: u64) -> Job {
    Job { pattern: Pattern::Random, ..Job::writes(PAGE_BYTES, operations, 0..0) }
}

/// What a burst of writes of one thread was ahead of the medium in the end: its second half is taken for the speed of the medium.
fn ahead_of_medium(measured: &Measured) -> f64 {
    let times: Vec<u64> =
        measured.samples.iter().filter(|sample| sample.kind == Kind::Write).map(|sample| sample.nanoseconds).collect();
    let (all, half): (u64, u64) = (times.iter().sum(), times[times.len() / 2..].iter().sum());
    let steady = (times.len() - times.len() / 2) as f64 / half.max(1) as f64;
    (times.len() as f64 - steady * all as f64) * f64::from(measured.request_bytes)
}

pub(super) fn sizes(settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
    let mut findings = Findings::new(vec![
        format!(
            "a burst of {OPERATIONS} random writes of 4 KiB by one thread in {} (the disk: {STREAM_WRITES} of 256 KiB in sequence, \
                 as its memory is in segments), write cache on: how far it is ahead of the medium when the cache is full",
            tantalum_report::units::bytes(FILE_BYTES)
        ),
        "a solid-state drive's memory holds its map, too: 4 bytes for each 4 KiB (assumed)".into(),
    ]);
    let mut row = |what: String, published, measured, unit: &str, basis| {
        findings.comparisons.push(Comparison::new(what, published, measured, unit, basis));
    };
    let mut disk_mib = 0.0;
    let published = published::of(SIZES).table();
    for (texts, memory) in &published {
        let (device, memory) = (texts[0], memory[0]);
        progress(device);
        // What warms up would leave the cache full.
        let tested = DeviceUnderTest { warm_up: 0, ..tested_device(device, Cache::On, settings.seed) };
        let is_disk = device == "hdd-15k";
        let burst = if is_disk { Job::writes(STREAM_BYTES, STREAM_WRITES, 0..0) } else { writes(OPERATIONS) };
        let ahead = ahead_of_medium(&tested.measure(burst)?) / MIB;
        let what = format!("{device}: ahead of the medium in a burst");
        if is_disk {
            disk_mib = ahead;
            // The profile has its cache from this table.
            row(what, Bound::Value(memory), ahead, "MiB", Basis::Fitted);
        } else {
            row(what, Bound::Max(memory), ahead, "MiB", Basis::Predicted);
        }
        if let Some(pool_bytes) = tested.pool_bytes()? {
            let pool = pool_bytes as f64 / MIB;
            row(format!("{device}: buffer for writes"), Bound::Max(memory), pool, "MiB", Basis::Predicted);
            let mapped = (memory - pool) * MIB / MAP_ENTRY_BYTES * f64::from(PAGE_BYTES) / 1e9;
            let what = format!("{device}: drive whose map fits into the rest");
            let size = if device == "durassd" { Bound::Value(DURASSD_BYTES / 1e9) } else { Bound::Unpublished };
            row(what, size, mapped, "GB", Basis::Predicted);
        }
    }
    let many = || Job { threads: 128, ..writes(20_000) };
    let mut rates = Vec::new();
    for pool_bytes in POOLS {
        let size = tantalum_report::units::bytes(pool_bytes);
        progress(&format!("durassd with a buffer of {size}"));
        let tested = DeviceUnderTest {
            pool_bytes: Some(pool_bytes),
            ..tested_device("durassd", Cache::NoBarrier, settings.seed)
        };
        let rate = tested.measure(many())?.summary().per_second;
        row(format!("durassd, buffer of {size}, 128 threads"), Bound::Unpublished, rate, "IOPS", Basis::Predicted);
        rates.push((pool_bytes as f64, rate));
    }
    let at = |bytes: u64| rates.iter().find(|(pool, _)| *pool == bytes as f64).map_or(0.0, |(_, rate)| *rate);
    let most = rates.iter().fold(0.0_f64, |most, (_, rate)| most.max(*rate));
    findings.states(
        "the disk takes as much at once as it has memory (here: within a tenth)",
        (disk_mib / published[0].1[0] - 1.0).abs() < 0.1,
        format!("{disk_mib:.1} MiB"),
    );
    findings.states(
        "a buffer of several megabytes is enough for the most writes (here: 8 MiB for 98 % of what any size reaches)",
        at(ENOUGH) > 0.98 * most,
        format!("{:.0} of {most:.0} writes a second", at(ENOUGH)),
    );
    findings.plots.push(Plot::new(
        "Random writes of 4 KiB by 128 threads without barriers, by DuraSSD's buffer",
        Axis::log("buffer for writes", Unit::Bytes),
        Axis::linear("writes per second", Unit::Number),
        vec![Series::line("durassd", rates)],
    ));
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::micro::Sample;

    #[test]
    fn what_was_taken_at_once_is_what_the_steady_speed_does_not_explain() {
        let sample = |nanoseconds| Sample { kind: Kind::Write, stream: 0, nanoseconds };
        let samples: Vec<_> = (0..100).map(|at| sample(if at < 20 { 1 } else { 1000 })).collect();
        let measured = Measured { samples, elapsed_ns: 80_020, request_bytes: PAGE_BYTES };
        let pages = ahead_of_medium(&measured) / f64::from(PAGE_BYTES);
        assert!((pages - 20.0).abs() < 0.1, "{pages}");
    }
}
