//! The memory device: time, faults and forks.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{
    AlignedBuffer, Device, Durability, Error, ErrorKind, Fault, MemoryDevice, MemoryProfile, PendingWrite, TearUnit,
    WriteCache,
};
use tantalum_rt::{Random, Simulation};

const BLOCK: usize = 4096;
const MS: Duration = Duration::from_millis(1);

fn small() -> Arc<MemoryDevice> {
    MemoryDevice::new("memory", 16 * BLOCK as u64)
}

fn slow(seed: u64) -> Arc<MemoryDevice> {
    let profile = MemoryProfile {
        write_latency: 4 * MS..4 * MS,
        read_latency: MS..MS,
        flush_latency: 10 * MS..10 * MS,
        seed,
        ..MemoryProfile::default()
    };
    MemoryDevice::with_profile("slow", 16 * BLOCK as u64, profile)
}

fn submit(device: &MemoryDevice, block: u64, byte: u8, durability: Durability) -> Box<dyn PendingWrite> {
    let buffer = Arc::new(AlignedBuffer::copy_from(&[byte; BLOCK]));
    device.submit(block * BLOCK as u64, buffer, 0..BLOCK, durability).unwrap()
}

fn write(device: &MemoryDevice, block: u64, byte: u8, durability: Durability) -> Result<(), Error> {
    device.write(block * BLOCK as u64, &[&[byte; BLOCK]], durability)
}

fn first_bytes(device: &MemoryDevice) -> Vec<u8> {
    device.image().chunks(BLOCK).map(|block| block[0]).collect()
}

#[test]
fn capabilities_follow_the_profile() {
    let capabilities = small().capabilities();
    assert_eq!((capabilities.logical_block, capabilities.atomic_write_bytes), (4096, 0));
    assert_eq!(capabilities.write_cache, WriteCache::Volatile);
    let profile = MemoryProfile {
        logical_block: 512,
        tears: TearUnit::Atomic(16384),
        volatile_cache: false,
        ..MemoryProfile::default()
    };
    let device = MemoryDevice::with_profile("d", 1000, profile);
    assert_eq!(device.capacity_bytes(), 512);
    assert_eq!(device.capabilities().atomic_write_bytes, 16384);
    assert_eq!(device.capabilities().write_cache, WriteCache::None);
}

#[test]
fn ranges_are_checked() {
    let device = small();
    let mut bytes = [0; BLOCK];
    assert!(matches!(device.read(512, &mut bytes), Err(error) if error.kind() == ErrorKind::InvalidInput));
    assert!(
        matches!(device.write(0, &[&[0; 100]], Durability::Cached), Err(error) if error.kind() == ErrorKind::InvalidInput)
    );
    assert!(matches!(device.read(16 * BLOCK as u64, &mut bytes), Err(error) if error.kind() == ErrorKind::OutOfRange));
    assert!(matches!(device.discard(0, 17 * BLOCK as u64), Err(error) if error.kind() == ErrorKind::OutOfRange));
    device.write(0, &[], Durability::Durable).unwrap();
}

#[test]
fn operations_take_virtual_time() {
    Simulation::new(1)
        .run(|| {
            let device = slow(0);
            let start = tantalum_rt::now();
            write(&device, 0, 1, Durability::Durable).unwrap();
            assert_eq!(start.elapsed(), 4 * MS);
            device.flush().unwrap();
            assert_eq!(start.elapsed(), 14 * MS);
            device.read(0, &mut [0; BLOCK]).unwrap();
            assert_eq!(start.elapsed(), 15 * MS);
        })
        .expect_finished();
}

#[test]
fn writes_overlap_and_waiting_can_give_up_early() {
    Simulation::new(1)
        .run(|| {
            let device = slow(0);
            let start = tantalum_rt::now();
            let mut writes: Vec<_> = (0..4).map(|i| submit(&device, i, i as u8 + 1, Durability::Cached)).collect();
            assert!(writes[0].wait(Some(MS)).is_none());
            assert_eq!(start.elapsed(), MS);
            assert!(!writes[0].is_done());
            assert_eq!((device.in_flight(), first_bytes(&device)[0]), (4, 0));
            for write in &mut writes {
                write.wait(Some(60 * MS)).unwrap().unwrap();
            }
            assert_eq!(start.elapsed(), 4 * MS);
            assert_eq!(first_bytes(&device)[..4], [1, 2, 3, 4]);
        })
        .expect_finished();
}

#[test]
fn the_bytes_are_those_of_the_submission_and_a_dropped_write_still_happens() {
    Simulation::new(1)
        .run(|| {
            let device = slow(0);
            drop(submit(&device, 3, 9, Durability::Cached));
            assert_eq!(first_bytes(&device)[3], 0);
            tantalum_rt::sleep(5 * MS);
            assert_eq!((device.in_flight(), first_bytes(&device)[3]), (0, 9));
        })
        .expect_finished();
}

#[test]
fn the_same_seed_gives_the_same_latencies() {
    let run = |seed: u64| {
        Simulation::new(1)
            .run(move || {
                let profile = MemoryProfile { write_latency: MS..50 * MS, seed, ..MemoryProfile::default() };
                let device = MemoryDevice::with_profile("d", BLOCK as u64, profile);
                let start = tantalum_rt::now();
                (0..20).map(|_| write(&device, 0, 1, Durability::Cached).map(|()| start.elapsed()).unwrap()).collect()
            })
            .expect_finished()
    };
    let first: Vec<Duration> = run(7);
    assert_eq!(first, run(7));
    assert_ne!(first, run(8));
}

#[test]
fn latency_passes_in_the_real_world_too() {
    let device = slow(0);
    let mut pending = submit(&device, 0, 1, Durability::Durable);
    assert!(pending.wait(Some(Duration::ZERO)).is_none());
    pending.wait(None).unwrap().unwrap();
    assert_eq!(first_bytes(&device)[0], 1);
}

#[test]
fn failing_writes_begin_after_the_given_number_and_end_when_cleared() {
    let device = small();
    device.inject(Fault::FailWrites { after: 2 });
    write(&device, 0, 1, Durability::Cached).unwrap();
    write(&device, 1, 1, Durability::Cached).unwrap();
    for _ in 0..2 {
        let error = write(&device, 2, 1, Durability::Cached).unwrap_err();
        assert!(error.to_string().starts_with("cannot write"), "{error}");
        assert!(error.is_io() && error.to_string().contains("at byte 8192 for 4096 bytes"), "{error}");
    }
    device.flush().unwrap();
    let error = write(&device, 2, 1, Durability::Durable).unwrap_err();
    assert_ne!(error.kind(), ErrorKind::WritesLost);
    assert_eq!(write(&device, 2, 1, Durability::Cached).unwrap_err().kind(), ErrorKind::WritesLost);
    assert_eq!(device.flush().unwrap_err().kind(), ErrorKind::WritesLost);
    device.clear_faults();
    write(&device, 2, 7, Durability::Durable).unwrap();
    assert_eq!(first_bytes(&device)[..3], [1, 1, 7]);
}

#[test]
fn what_a_failed_write_leaves_is_unknown() {
    let mut left_behind = [false; 2];
    for seed in 0..20 {
        let profile = MemoryProfile { seed, ..MemoryProfile::default() };
        let device = MemoryDevice::with_profile("d", BLOCK as u64, profile);
        device.inject(Fault::FailWrites { after: 0 });
        write(&device, 0, 1, Durability::Cached).unwrap_err();
        left_behind[usize::from(device.image().contains(&1))] = true;
    }
    assert_eq!(left_behind, [true; 2]);
}

#[test]
fn failing_reads() {
    let device = small();
    device.inject(Fault::FailReads { after: 1 });
    device.read(0, &mut [0; BLOCK]).unwrap();
    let error = device.read(4096, &mut [0; BLOCK]).unwrap_err();
    assert!(error.kind() == ErrorKind::Unreadable && error.to_string().contains("at byte 4096"), "{error}");
    device.clear_faults();
    device.read(4096, &mut [0; BLOCK]).unwrap();
}

#[test]
fn a_failed_flush_is_final() {
    let device = small();
    write(&device, 0, 1, Durability::Cached).unwrap();
    device.inject(Fault::FailFlushes { after: 1 });
    device.flush().unwrap();
    assert!(
        matches!(device.flush(), Err(error) if error.kind() == ErrorKind::Io && error.to_string().contains("cannot flush"))
    );
    let buffer = Arc::new(AlignedBuffer::zeroed(BLOCK));
    for error in [
        device.flush().unwrap_err(),
        write(&device, 0, 2, Durability::Durable).unwrap_err(),
        device.submit(0, buffer, 0..BLOCK, Durability::Cached).map(drop).unwrap_err(),
        device.discard(0, BLOCK as u64).unwrap_err(),
        device.grow(1 << 20).unwrap_err(),
    ] {
        assert!(error.kind() == ErrorKind::WritesLost && error.first_cause().is_io(), "{error}");
    }
    device.read(0, &mut [0; BLOCK]).unwrap();
    write(&device.fork(), 0, 2, Durability::Durable).unwrap();
}

#[test]
fn a_hanging_write_hangs_until_the_faults_are_cleared() {
    Simulation::new(3)
        .run(|| {
            let device = small();
            device.inject(Fault::HangWrites);
            let mut pending = submit(&device, 0, 1, Durability::Durable);
            assert!(pending.wait(Some(1000 * MS)).is_none());
            let blocked = tantalum_rt::spawn("blocked", {
                let device = device.clone();
                move || write(&device, 1, 2, Durability::Cached)
            });
            tantalum_rt::sleep(1000 * MS);
            assert!(!blocked.is_finished());
            assert_eq!(first_bytes(&device)[..2], [0, 0]);
            device.clear_faults();
            pending.wait(None).unwrap().unwrap();
            blocked.join().unwrap().unwrap();
            assert_eq!(first_bytes(&device)[..2], [1, 2]);
        })
        .expect_finished();
}

#[test]
fn a_hanging_write_on_real_threads_is_released_too() {
    let device = small();
    device.inject(Fault::HangWrites);
    let mut pending = submit(&device, 0, 1, Durability::Durable);
    assert!(pending.wait(Some(MS)).is_none());
    let waiter = tantalum_rt::spawn("waiter", move || pending.wait(None));
    device.clear_faults();
    waiter.join().unwrap().unwrap().unwrap();
}

#[test]
fn slow_writes_take_longer() {
    Simulation::new(1)
        .run(|| {
            let device = slow(0);
            device.inject(Fault::SlowWrites { by: 100 * MS });
            let start = tantalum_rt::now();
            write(&device, 0, 1, Durability::Cached).unwrap();
            assert_eq!(start.elapsed(), 104 * MS);
        })
        .expect_finished();
}

#[test]
fn growth_adds_zeros_unless_there_is_no_room() {
    let device = MemoryDevice::new("d", BLOCK as u64);
    write(&device, 0, 1, Durability::Durable).unwrap();
    device.inject(Fault::NoSpaceOnGrow);
    assert_eq!(device.grow(2 * BLOCK as u64).unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(device.capacity_bytes(), BLOCK as u64);
    write(&device, 0, 2, Durability::Durable).unwrap();
    device.clear_faults();
    assert!(matches!(device.grow(BLOCK as u64 + 1), Err(error) if error.kind() == ErrorKind::InvalidInput));
    device.grow(3 * BLOCK as u64).unwrap();
    device.grow(BLOCK as u64).unwrap();
    assert_eq!(device.capacity_bytes(), 3 * BLOCK as u64);
    write(&device, 2, 3, Durability::Durable).unwrap();
    device.power_cut(&mut Random::with_seed(0));
    assert_eq!(first_bytes(&device), [2, 0, 3]);
}

#[test]
fn what_is_cut_off_reads_as_zeros_after_growth() {
    let device = MemoryDevice::new("d", 4 * BLOCK as u64);
    (0..4).for_each(|block| write(&device, block, block as u8 + 1, Durability::Cached).unwrap());
    assert_eq!(device.shrink(BLOCK as u64 + 1).unwrap_err().kind(), ErrorKind::InvalidInput);
    device.shrink(5 * BLOCK as u64).unwrap();
    device.shrink(2 * BLOCK as u64).unwrap();
    assert_eq!(device.capacity_bytes(), 2 * BLOCK as u64);
    assert_eq!(write(&device, 2, 9, Durability::Cached).unwrap_err().kind(), ErrorKind::OutOfRange);
    device.flush().unwrap();
    device.grow(3 * BLOCK as u64).unwrap();
    device.power_cut(&mut Random::with_seed(0));
    assert_eq!(first_bytes(&device), [1, 2, 0]);
}

#[test]
fn corruption_reaches_the_medium() {
    let device = small();
    write(&device, 0, 1, Durability::Durable).unwrap();
    device.corrupt(100, 2, |bytes| bytes[1] ^= 0x10);
    device.power_cut(&mut Random::with_seed(0));
    assert_eq!(device.image()[99..103], [1, 1, 0x11, 1]);
}

#[test]
fn an_image_can_be_loaded_elsewhere() {
    let device = small();
    write(&device, 5, 5, Durability::Cached).unwrap();
    let copy = MemoryDevice::new("copy", 0);
    copy.load(&device.image());
    copy.power_cut(&mut Random::with_seed(0));
    assert_eq!(copy.image(), device.image());
    assert_eq!(copy.capacity_bytes(), device.capacity_bytes());
}

#[test]
fn a_fork_is_independent_and_has_the_writes_under_way() {
    Simulation::new(1)
        .run(|| {
            let device = slow(0);
            write(&device, 0, 1, Durability::Durable).unwrap();
            let mut pending = submit(&device, 1, 2, Durability::Durable);
            let fork = device.fork();
            write(&device, 0, 3, Durability::Durable).unwrap();
            pending.wait(None).unwrap().unwrap();
            assert_eq!(first_bytes(&device)[..2], [3, 2]);
            assert_eq!(first_bytes(&fork)[..2], [1, 2]);
        })
        .expect_finished();
}

#[test]
fn writes_under_way_learn_of_the_power_cut() {
    Simulation::new(1)
        .run(|| {
            let device = slow(0);
            let mut pending = submit(&device, 1, 2, Durability::Durable);
            let flush = tantalum_rt::spawn("flush", {
                let device = device.clone();
                move || device.flush()
            });
            tantalum_rt::sleep(MS);
            device.power_cut(&mut Random::with_seed(0));
            let error = pending.wait(None).unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PowerLost);
            assert!(error.to_string().contains("4096 bytes at byte 4096"), "{error}");
            assert!(matches!(flush.join().unwrap(), Err(error) if error.kind() == ErrorKind::PowerLost));
            write(&device, 1, 3, Durability::Durable).unwrap();
        })
        .expect_finished();
}
