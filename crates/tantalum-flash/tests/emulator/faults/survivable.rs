//! No survivable fault changes what the device had promised to keep.

use std::ops::Range;

use proptest::prelude::*;
use tantalum_device::WriteCache;
use tantalum_flash::faults::{FaultKind, FaultyModel, Plan, Survival};
use tantalum_flash::{Model, Nanos, Profile};
use tantalum_rt::Random;

use crate::power;

fn survivable() -> impl Iterator<Item = FaultKind> {
    FaultKind::ALL.into_iter().filter(|kind| kind.survival() == Survival::Survivable)
}

fn named(name: &str) -> Box<dyn Model> {
    Profile::named(name).unwrap().with_capacity(2 << 20).build().unwrap()
}

/// Devices that take blocks of 512 bytes.
const DEVICES: [&str; 9] =
    ["ssd-a", "ssd-2008", "intel-x25e", "mtron", "usb-a", "usb-c", "hdd-7200", "hdd-10k", "cloud-volume"];

/// The search of power cuts that models must pass alone, with faults; sectors stay whole.
#[test]
fn models_keep_their_promises_under_survivable_faults() {
    let mut happened = 0;
    for device in DEVICES.into_iter().filter(|device| named(device).describe().logical_block == 512) {
        for seed in 0..6 {
            let mut plan = Plan::new(seed);
            for kind in survivable() {
                let breaks_sectors = matches!(kind, FaultKind::SectorShear | FaultKind::SectorGarbage);
                if !breaks_sectors {
                    plan = plan.with_rate(kind, 0.3);
                }
            }
            let (mut model, log) = FaultyModel::wrap(device, named(device), plan).unwrap();
            power::search(seed, &mut *model, power::Search { operations: 40, cuts: 5, sectors: 2048, largest: 24 });
            happened += log.total();
        }
    }
    assert!(happened > 300, "{happened} faults");
}

/// Not raw flash, which cannot be overwritten, nor the disk whose cache is never flushed and is said to be none.
fn keeps_promises(name: &str) -> bool {
    // Zones cannot be written in any order.
    !["nand-k9wag08u1a", "hdd-10k-cached", "nvme-zns"].contains(&name)
}

const BLOCKS: u64 = 24;

/// What the host may rely on, block by block.
#[derive(Clone, Copy, Default)]
struct Known {
    /// Covered by a completed flush or forced unit access, or at rest.
    covered: u8,
    /// Whether a later write was at stake at the cut.
    is_disturbed: bool,
}

/// A write of one to three blocks.
struct Write {
    blocks: Range<u64>,
    byte: u8,
    done: Nanos,
    covered: Nanos,
}

/// Random writes, flushes and waits, until `now`.
fn operate(model: &mut dyn Model, operations: &[(u8, u64, u64)]) -> (Vec<Write>, Nanos) {
    let is_volatile = model.describe().write_cache != WriteCache::None;
    let mut writes: Vec<Write> = Vec::new();
    let (mut now, mut latest) = (0, 0);
    for (number, &(kind, at, pause)) in operations.iter().enumerate() {
        match kind {
            0 => {
                let done = model.flush(now).end(model);
                for write in writes.iter_mut().filter(|write| write.done <= now) {
                    write.covered = write.covered.min(done);
                }
                latest = latest.max(done);
            }
            1 => now = now.max(latest) + pause,
            _ => {
                let (at, byte, durable) = (at % BLOCKS, number as u8 + 1, kind == 2);
                let blocks = at..(at + 1 + pause % 3).min(BLOCKS);
                let data = vec![byte; (blocks.end - at) as usize * 4096];
                let done = model.write(now, at * 4096, &data, durable).end(model);
                let covered = if durable || !is_volatile { done } else { Nanos::MAX };
                writes.push(Write { blocks, byte, done, covered });
                latest = latest.max(done);
            }
        }
        // A queue was asked for its end, so that all before has passed.
        now = if model.describe().rotational { now.max(latest) } else { now };
    }
    (writes, now)
}

/// Operations and a cut; then everything covered and undisturbed must be there.
fn check(device: &str, plan: Plan, operations: &[(u8, u64, u64)], seed: u64) {
    let (mut model, _) = FaultyModel::wrap(device, named(device), plan).unwrap();
    let atom = model.describe().atomic_write_bytes;
    let (writes, now) = operate(&mut *model, operations);
    let mut known = [Known::default(); BLOCKS as usize];
    for write in &writes {
        for known in &mut known[write.blocks.start as usize..write.blocks.end as usize] {
            if write.covered <= now {
                *known = Known { covered: write.byte, is_disturbed: false };
            } else {
                known.is_disturbed = true;
            }
        }
    }
    model.power_cut(now, &mut Random::with_seed(seed));
    let ready = model.power_on(now + 1);
    let blocks: Vec<[u8; 4096]> = (0..BLOCKS)
        .map(|at| {
            let mut bytes = [0; 4096];
            assert_eq!(model.read(ready, at * 4096, &mut bytes).result, Ok(()), "{device}");
            bytes
        })
        .collect();
    for (at, known) in known.iter().enumerate() {
        let is_kept = blocks[at] == [known.covered; 4096];
        assert!(is_kept || known.is_disturbed, "{device}, block {at} held {}: {:?}", known.covered, &blocks[at][..16]);
        let is_one = writes.iter().any(|w| w.blocks.contains(&(at as u64)) && blocks[at] == [w.byte; 4096]);
        assert!(is_kept || is_one || atom < 4096, "{device}, block {at} is whole: {:?}", &blocks[at][..16]);
    }
    // Where larger writes are atomic, all of one is there or nothing, unless a later one lies over it.
    for (number, write) in writes.iter().enumerate().filter(|_| atom >= 3 * 4096) {
        let overlaps = |other: &Write| other.blocks.start < write.blocks.end && write.blocks.start < other.blocks.end;
        if write.covered > now && !writes[number + 1..].iter().any(overlaps) {
            let new = write.blocks.clone().filter(|&at| blocks[at as usize] == [write.byte; 4096]).count();
            let len = (write.blocks.end - write.blocks.start) as usize;
            assert!(new == 0 || new == len, "{device}: {new} of {len} blocks of an atomic write");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn survivable_faults_leave_what_is_covered(
        device in prop::sample::select(Profile::names().filter(|name| keeps_promises(name)).collect::<Vec<_>>()),
        rates in prop::collection::vec(0.0..1.0f64, survivable().count()),
        operations in prop::collection::vec((0u8..6, any::<u64>(), 0u64..30_000_000), 1..60),
        seed in any::<u64>(),
    ) {
        let plan = survivable().zip(rates).fold(Plan::new(seed), |plan, (kind, rate)| plan.with_rate(kind, rate));
        check(device, plan, &operations, seed);
    }
}

#[test]
fn what_no_engine_survives_does_change_it() {
    let mut found = 0;
    for kind in FaultKind::ALL.into_iter().filter(|kind| kind.survival() == Survival::Unknowable) {
        let operations: Vec<_> =
            (0..30u8).map(|n| (2 + n % 3, u64::from(n), 0)).chain([(0, 0, 0), (1, 0, 1)]).collect();
        let breaks = |device: &str| {
            let run = || check(device, Plan::new(3).with_rate(kind, 1.0), &operations, 3);
            std::panic::catch_unwind(run).is_err()
        };
        found += u32::from(["ssd-a", "durassd"].into_iter().any(breaks));
    }
    assert!(found >= 5, "only {found} kinds show that the check can fail");
}
