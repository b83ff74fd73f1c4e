//! What a power cut may leave, checked against a model: for each tear unit, the list of values that it may hold.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tantalum_device::{AlignedBuffer, Device, Durability, MemoryDevice, MemoryProfile, TearUnit};
use tantalum_rt::{Random, Simulation};

const BLOCK: usize = 4096;
const BLOCKS: usize = 6;

#[derive(Debug, Clone)]
enum Operation {
    Write { block: usize, blocks: usize, durability: Durability },
    Submit { block: usize, blocks: usize, durability: Durability },
    Discard { block: usize },
    Flush,
    Grow,
}

/// Values that a unit may hold after a power cut, oldest first; the last one is what a read gives.
type Model = Vec<Vec<u8>>;

fn operation() -> impl Strategy<Value = Operation> {
    let durability = prop_oneof![3 => Just(Durability::Cached), 1 => Just(Durability::Durable)];
    let range = (0..BLOCKS).prop_flat_map(|block| (Just(block), 1..=BLOCKS - block));
    prop_oneof![
        8 => (range.clone(), durability.clone())
            .prop_map(|((block, blocks), durability)| Operation::Write { block, blocks, durability }),
        2 => (range, durability)
            .prop_map(|((block, blocks), durability)| Operation::Submit { block, blocks, durability }),
        1 => (0..BLOCKS).prop_map(|block| Operation::Discard { block }),
        2 => Just(Operation::Flush),
        1 => Just(Operation::Grow),
    ]
}

fn store(model: &mut Model, unit: usize, bytes: std::ops::Range<usize>, value: u8, is_certain: bool) {
    for values in &mut model[bytes.start / unit..bytes.end / unit] {
        if is_certain {
            values.clear();
        }
        values.push(value);
    }
}

/// Runs the operations, then cuts the power on a fork by each seed, and checks every unit.
fn check(operations: Vec<Operation>, unit: usize, volatile_cache: bool, seeds: std::ops::Range<u64>) {
    let tears = if unit == 512 { TearUnit::Sector512 } else { TearUnit::Atomic(unit as u32) };
    // Submitted writes are under way for ever; the others complete at once.
    let profile = MemoryProfile { tears, volatile_cache, ..MemoryProfile::default() };
    let device = MemoryDevice::with_profile("d", (BLOCKS * BLOCK) as u64, profile);
    let mut model: Model = vec![vec![0]; BLOCKS * BLOCK / unit];
    let mut in_flight: Model = vec![Vec::new(); BLOCKS * BLOCK / unit];
    let mut pending = Vec::new();
    let mut hanging = Vec::new();
    for (number, operation) in operations.into_iter().enumerate() {
        let value = number as u8 + 1;
        match operation {
            Operation::Write { block, blocks, durability } => {
                device.write((block * BLOCK) as u64, &[&vec![value; blocks * BLOCK]], durability).unwrap();
                let is_certain = durability == Durability::Durable || !volatile_cache;
                store(&mut model, unit, block * BLOCK..(block + blocks) * BLOCK, value, is_certain);
            }
            Operation::Submit { block, blocks, durability } => {
                hanging.push((block, blocks, durability, value));
            }
            Operation::Discard { block } => {
                device.discard((block * BLOCK) as u64, BLOCK as u64).unwrap();
                store(&mut model, unit, block * BLOCK..(block + 1) * BLOCK, 0, !volatile_cache);
            }
            Operation::Flush => {
                device.flush().unwrap();
                model.iter_mut().for_each(|values| drop(values.drain(..values.len() - 1)));
            }
            Operation::Grow => {
                device.grow(device.capacity_bytes() + BLOCK as u64).unwrap();
                model.resize(model.len() + BLOCK / unit, vec![0]);
                in_flight.resize(model.len(), Vec::new());
            }
        }
    }
    device.inject(tantalum_device::Fault::HangWrites);
    for (block, blocks, durability, value) in hanging {
        let buffer = Arc::new(AlignedBuffer::copy_from(&vec![value; blocks * BLOCK]));
        pending.push(device.submit((block * BLOCK) as u64, buffer, 0..blocks * BLOCK, durability).unwrap());
        store(&mut in_flight, unit, block * BLOCK..(block + blocks) * BLOCK, value, false);
    }
    let read: Vec<u8> = model.iter().map(|values| *values.last().unwrap()).collect();
    assert_eq!(units(&device, unit), read, "reads see completed writes and none under way");
    for seed in seeds {
        let cut = device.fork();
        cut.power_cut(&mut Random::with_seed(seed));
        for (index, value) in units(&cut, unit).into_iter().enumerate() {
            let allowed = || model[index].iter().chain(&in_flight[index]).collect::<Vec<_>>();
            assert!(allowed().contains(&&value), "unit {index} holds {value}, not one of {:?}", allowed());
        }
        let image = cut.image();
        cut.power_cut(&mut Random::with_seed(seed + 1));
        assert_eq!(cut.image(), image, "what a power cut leaves is durable");
    }
}

/// The value of each unit, all of whose bytes must be equal.
fn units(device: &MemoryDevice, unit: usize) -> Vec<u8> {
    let image = device.image();
    let uniform = |unit: &[u8]| {
        assert!(unit.iter().all(|&byte| byte == unit[0]), "a unit is torn");
        unit[0]
    };
    image.chunks(unit).map(uniform).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_sector_holds_what_it_may(operations in prop::collection::vec(operation(), 1..24), volatile: bool) {
        check(operations, 512, volatile, 0..8);
    }

    #[test]
    fn atomic_pages_are_never_torn(operations in prop::collection::vec(operation(), 1..24), volatile: bool) {
        check(operations, BLOCK, volatile, 0..8);
    }
}

/// All images that many power cuts leave of one block over zeros, by sector.
fn outcomes(device: &MemoryDevice) -> BTreeSet<Vec<u8>> {
    (0..6000)
        .map(|seed| {
            let cut = device.fork();
            cut.power_cut(&mut Random::with_seed(seed));
            cut.image().chunks(512).map(|sector| sector[0]).collect()
        })
        .collect()
}

#[test]
fn every_subset_of_sectors_happens() {
    let device = MemoryDevice::new("d", BLOCK as u64);
    device.write(0, &[&[1; BLOCK]], Durability::Cached).unwrap();
    assert_eq!(outcomes(&device).len(), 256);
    device.flush().unwrap();
    assert_eq!(outcomes(&device), BTreeSet::from([vec![1; 8]]));
}

#[test]
fn writes_survive_out_of_order() {
    let profile = MemoryProfile { tears: TearUnit::Atomic(4096), ..MemoryProfile::default() };
    let device = MemoryDevice::with_profile("d", 2 * BLOCK as u64, profile);
    device.write(0, &[&[1; BLOCK]], Durability::Cached).unwrap();
    device.write(BLOCK as u64, &[&[2; BLOCK]], Durability::Cached).unwrap();
    let seen: BTreeSet<(u8, u8)> = outcomes(&device).into_iter().map(|sectors| (sectors[0], sectors[8])).collect();
    assert_eq!(seen, BTreeSet::from([(0, 0), (0, 2), (1, 0), (1, 2)]));
}

#[test]
fn a_durable_write_outlives_the_cached_write_below_it_but_not_one_above() {
    let profile = MemoryProfile { tears: TearUnit::Atomic(4096), ..MemoryProfile::default() };
    let device = MemoryDevice::with_profile("d", BLOCK as u64, profile);
    device.write(0, &[&[1; BLOCK]], Durability::Cached).unwrap();
    device.write(0, &[&[2; BLOCK]], Durability::Durable).unwrap();
    assert_eq!(outcomes(&device), BTreeSet::from([vec![2; 8]]));
    device.write(0, &[&[3; BLOCK]], Durability::Cached).unwrap();
    assert_eq!(outcomes(&device), BTreeSet::from([vec![2; 8], vec![3; 8]]));
}

#[test]
fn a_write_below_the_atomic_size_is_whole_or_absent_within_its_unit() {
    let profile = MemoryProfile { logical_block: 512, tears: TearUnit::Atomic(16384), ..MemoryProfile::default() };
    let device = MemoryDevice::with_profile("d", 2 * 16384, profile);
    device.write(8192, &[&[1; 16384]], Durability::Cached).unwrap();
    let seen = outcomes(&device);
    let halves: BTreeSet<(u8, u8)> = seen.iter().map(|sectors| (sectors[16], sectors[32])).collect();
    assert_eq!((seen.len(), halves.len()), (4, 4), "it spans two units, each whole or absent");
}

#[test]
fn a_flush_covers_what_completed_before_it_and_a_cut_during_it_loses_any() {
    let outcome = |cut_after: Duration| {
        Simulation::new(1)
            .run(move || {
                let ms = Duration::from_millis(1);
                let profile = MemoryProfile { flush_latency: 10 * ms..10 * ms, ..MemoryProfile::default() };
                let device = MemoryDevice::with_profile("d", 2 * BLOCK as u64, profile);
                device.write(0, &[&[1; BLOCK]], Durability::Cached).unwrap();
                let flush = tantalum_rt::spawn("flush", {
                    let device = device.clone();
                    move || device.flush()
                });
                tantalum_rt::sleep(5 * ms);
                device.write(BLOCK as u64, &[&[2; BLOCK]], Durability::Cached).unwrap();
                tantalum_rt::sleep(cut_after);
                let flushed = flush.is_finished();
                let seen = outcomes(&device);
                let lost = |block: usize| seen.iter().any(|sectors| sectors[block * 8] == 0);
                (flushed, lost(0), lost(1))
            })
            .expect_finished()
    };
    assert_eq!(outcome(Duration::from_millis(1)), (false, true, true));
    assert_eq!(outcome(Duration::from_millis(6)), (true, false, true));
}

#[test]
fn a_cache_that_is_full_writes_back_its_oldest() {
    let device = MemoryDevice::new("d", 2 * BLOCK as u64);
    device.write(0, &[&[1; BLOCK]], Durability::Cached).unwrap();
    for _ in 0..10_000 {
        device.write(BLOCK as u64, &[&[2; BLOCK]], Durability::Cached).unwrap();
    }
    let cut = device.fork();
    cut.power_cut(&mut Random::with_seed(0));
    assert_eq!(cut.image()[..BLOCK], [1; BLOCK]);
}
