//! Partitions keep to their range.

use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Device, Durability, Error, MemoryDevice, MemoryProfile, Partition, TearUnit};

const BLOCK: u64 = 4096;

#[test]
fn offsets_are_relative_and_nothing_leaks_out() {
    let device = MemoryDevice::new("ssd", 8 * BLOCK);
    let partition = Partition::new(device.clone(), 2 * BLOCK..4 * BLOCK).unwrap();
    assert_eq!((partition.name(), partition.capacity_bytes()), ("ssd[8192..16384]", 2 * BLOCK));
    partition.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
    let buffer = Arc::new(AlignedBuffer::copy_from(&[2; 4096]));
    partition.submit(BLOCK, buffer.clone(), 0..4096, Durability::Durable).unwrap().wait(None).unwrap().unwrap();
    partition.flush().unwrap();

    let image = device.image();
    assert!(image[..8192].iter().chain(&image[16384..]).all(|&byte| byte == 0));
    assert_eq!((image[8192], image[12288]), (1, 2));
    let mut bytes = [0; 4096];
    partition.read(BLOCK, &mut bytes).unwrap();
    assert_eq!(bytes, [2; 4096]);
    partition.discard(BLOCK, BLOCK).unwrap();
    assert_eq!(device.image()[12288], 0);

    for result in [
        partition.read(2 * BLOCK, &mut bytes),
        partition.write(2 * BLOCK, &[&bytes], Durability::Cached),
        partition.submit(2 * BLOCK, buffer, 0..4096, Durability::Cached).map(drop),
        partition.discard(0, 3 * BLOCK),
        partition.discard(BLOCK, u64::MAX - BLOCK + 1),
    ] {
        let error = result.unwrap_err();
        assert!(matches!(error, Error::OutOfRange { capacity: 8192, .. }), "{error}");
        assert!(error.to_string().contains("ssd[8192..16384]"));
    }
    assert!(matches!(partition.read(1, &mut bytes), Err(Error::Misaligned { .. })));
}

#[test]
fn a_partition_lies_within_its_device() {
    let device = MemoryDevice::new("ssd", 8 * BLOCK);
    assert!(matches!(Partition::new(device.clone(), BLOCK..9 * BLOCK), Err(Error::OutOfRange { .. })));
    assert!(matches!(Partition::new(device.clone(), 1..BLOCK), Err(Error::Misaligned { .. })));
    let (end, start) = (BLOCK, 2 * BLOCK);
    assert!(matches!(Partition::new(device, start..end), Err(Error::OutOfRange { .. })));
}

#[test]
fn splitting_gives_equal_aligned_parts() {
    let device = MemoryDevice::new("ssd", 11 * BLOCK);
    let parts = Partition::split(device.clone(), 3).unwrap();
    let ranges: Vec<_> = parts.iter().map(Partition::range).collect();
    assert_eq!(ranges, [0..3 * BLOCK, 3 * BLOCK..6 * BLOCK, 6 * BLOCK..9 * BLOCK]);
    assert!(matches!(Partition::split(device.clone(), 12), Err(Error::OutOfRange { .. })));
    assert!(matches!(Partition::split(device, 0), Err(Error::OutOfRange { .. })));
}

#[test]
fn the_size_is_fixed() {
    let device = MemoryDevice::new("ssd", 8 * BLOCK);
    let partition = Partition::new(device, 0..BLOCK).unwrap();
    partition.grow(BLOCK).unwrap();
    assert!(matches!(partition.grow(2 * BLOCK), Err(Error::Unsupported { .. })));
}

#[test]
fn writes_are_atomic_as_far_as_the_partition_is_aligned() {
    let profile = MemoryProfile { tears: TearUnit::Atomic(16384), ..MemoryProfile::default() };
    let device: Arc<dyn Device> = MemoryDevice::with_profile("device", 1 << 20, profile);
    for (start, atomic) in [(0, 16384), (4096, 4096), (8192, 8192), (65536, 16384)] {
        let partition = Partition::new(Arc::clone(&device), start..1 << 20).unwrap();
        assert_eq!(partition.capabilities().atomic_write_bytes, atomic, "from {start}");
    }
}
