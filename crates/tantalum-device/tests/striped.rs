//! Stripes: where bytes lie, splitting, and what becomes of pieces.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{
    AlignedBuffer, Capabilities, Device, Durability, Error, Fault, MemoryDevice, MemoryProfile, Striped, WriteCache,
};
use tantalum_rt::{Random, Simulation, now};

fn devices(count: usize, bytes: u64, profile: &MemoryProfile) -> Vec<Arc<MemoryDevice>> {
    (0..count).map(|n| MemoryDevice::with_profile(format!("d{n}"), bytes, profile.clone())).collect()
}

fn sectors() -> MemoryProfile {
    MemoryProfile { logical_block: 512, ..MemoryProfile::default() }
}

fn stripe(devices: &[Arc<MemoryDevice>], unit_bytes: u32, head_bytes: u64) -> Striped {
    let devices = devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect();
    Striped::new(devices, unit_bytes, head_bytes).unwrap()
}

#[test]
fn every_byte_is_where_its_address_says() {
    for seed in 0..60 {
        let mut random = Random::with_seed(seed);
        let count = random.usize(1..=4);
        let (unit, head) = ([512, 1536, 4096][random.usize(0..3)], 512 * random.u64(0..5));
        let members = devices(count, 32 << 10, &sectors());
        let striped = stripe(&members, unit, head);
        let capacity = striped.capacity_bytes();
        let unit = u64::from(unit);
        assert_eq!(capacity, head + ((32 << 10) - head) / unit * unit * count as u64);
        let mut expected = vec![0; capacity as usize];
        for n in 1..40u8 {
            let offset = random.u64(0..capacity / 512) * 512;
            let len = 512 * random.u64(1..=(capacity - offset) / 512).min(24);
            let bytes: Vec<u8> = (0..len).map(|at| n ^ (at / 512) as u8).collect();
            match n % 3 {
                0 => {
                    let (first, rest) = bytes.split_at(100);
                    striped.write(offset, &[first, rest], Durability::Cached).unwrap();
                }
                1 => {
                    let mut buffer = AlignedBuffer::zeroed(len as usize + 1024);
                    buffer[512..512 + len as usize].copy_from_slice(&bytes);
                    let range = 512..512 + len as usize;
                    let mut pending = striped.submit(offset, Arc::new(buffer), range, Durability::Durable).unwrap();
                    assert!(pending.wait(None).unwrap().is_ok());
                }
                _ => striped.discard(offset, len).unwrap(),
            }
            let bytes = if n % 3 == 2 { vec![0; len as usize] } else { bytes };
            expected[offset as usize..(offset + len) as usize].copy_from_slice(&bytes);
        }
        let from = random.u64(0..capacity / 512) * 512;
        let mut read = vec![0xee; (capacity - from) as usize];
        striped.read(from, &mut read).unwrap();
        assert!(read == expected[from as usize..]);

        let images: Vec<_> = members.iter().map(|member| member.image()).collect();
        for (address, &byte) in expected.iter().enumerate().skip(head as usize) {
            let address = address as u64 - head;
            let (number, within) = (address / unit, address % unit);
            let place = head + number / count as u64 * unit + within;
            assert_eq!(images[(number % count as u64) as usize][place as usize], byte);
        }
        assert!(images.iter().all(|image| image[..head as usize] == expected[..head as usize]), "heads are alike");
    }
}

#[test]
fn pieces_are_under_way_together_and_each_device_gets_one() {
    Simulation::new(1)
        .run(|| {
            let ms = Duration::from_millis;
            let members = devices(2, 64 << 10, &MemoryProfile { write_latency: ms(1)..ms(1), ..sectors() });
            let striped = stripe(&members, 512, 0);
            let start = now();
            let buffer = Arc::new(AlignedBuffer::copy_from(&[7; 4096]));
            let mut split = striped.submit(512, buffer.clone(), 0..4096, Durability::Durable).unwrap();
            assert_eq!(members.iter().map(|member| member.in_flight()).collect::<Vec<_>>(), [1, 1]);
            assert!(split.wait(Some(ms(1) / 2)).is_none() && !split.is_done());
            assert!(split.wait(None).unwrap().is_ok());
            assert_eq!(now() - start, ms(1), "not one after the other");

            let mut whole = striped.submit(0, buffer, 0..512, Durability::Durable).unwrap();
            assert_eq!(members.iter().map(|member| member.in_flight()).collect::<Vec<_>>(), [1, 0]);
            assert!(whole.wait(None).unwrap().is_ok());
        })
        .expect_finished();
}

#[test]
fn it_is_done_when_all_pieces_are() {
    let members = devices(3, 64 << 10, &sectors());
    let striped = stripe(&members, 512, 0);
    for victim in &members {
        victim.inject(Fault::HangWrites);
        let buffer = Arc::new(AlignedBuffer::copy_from(&[9; 1536]));
        let mut pending = striped.submit(0, buffer, 0..1536, Durability::Durable).unwrap();
        assert!(pending.wait(Some(Duration::from_millis(1))).is_none());
        victim.clear_faults();
        assert!(pending.wait(None).unwrap().is_ok());
    }
}

#[test]
fn the_failure_of_one_is_that_of_all() {
    for victim in 0..2 {
        let members = devices(2, 64 << 10, &sectors());
        let striped = stripe(&members, 512, 512);
        members[victim].inject(Fault::FailWrites { after: 0 });
        let error = striped.write(512, &[&[1; 1024]], Durability::Durable).unwrap_err();
        assert!(error.to_string().contains(&format!("d{victim}")), "{error}");
        assert!(striped.write(0, &[&[1; 512]], Durability::Durable).is_err(), "heads are written to all");
        members[victim].clear_faults();
        members[victim].inject(Fault::FailFlushes { after: 0 });
        assert!(striped.flush().is_err());
    }
}

#[test]
fn what_cannot_be_striped_is_refused() {
    let members = || devices(2, 64 << 10, &sectors()).into_iter().map(|device| device as Arc<dyn Device>).collect();
    assert!(matches!(Striped::new(members(), 700, 0), Err(Error::Misaligned { .. })));
    assert!(matches!(Striped::new(members(), 0, 0), Err(Error::Misaligned { .. })));
    assert!(matches!(Striped::new(members(), 512, 100), Err(Error::Misaligned { .. })));
    assert!(matches!(Striped::new(members(), 64 << 10, 512), Err(Error::OutOfRange { .. })));

    let striped = Striped::new(members(), 512, 512).unwrap();
    let capacity = striped.capacity_bytes();
    let mut bytes = [0; 1024];
    assert!(matches!(striped.read(capacity - 512, &mut bytes), Err(Error::OutOfRange { .. })));
    assert!(matches!(striped.write(1, &[&bytes], Durability::Cached), Err(Error::Misaligned { .. })));
    assert!(matches!(striped.discard(512, u64::MAX - 511), Err(Error::OutOfRange { .. })));
    assert!(matches!(striped.grow(capacity + 512), Err(Error::Unsupported { .. })));
    striped.grow(capacity).unwrap();
}

#[test]
fn it_promises_what_all_of_its_devices_do() {
    let plain = MemoryDevice::with_profile("a", 64 << 10, sectors());
    let safe = MemoryProfile { volatile_cache: false, ..MemoryProfile::default() };
    let large = MemoryDevice::with_profile("b", 128 << 10, safe);
    let striped = Striped::new(vec![plain.clone(), large.clone()], 4096, 0).unwrap();
    let expected = Capabilities { write_cache: WriteCache::Volatile, ..large.capabilities() };
    assert_eq!(striped.capabilities(), Capabilities { atomic_write_bytes: 0, ..expected });
    assert_eq!((striped.name(), striped.capacity_bytes()), ("striped(a, b)", 128 << 10));
    assert_eq!(striped.hardware(), plain.hardware());
}
