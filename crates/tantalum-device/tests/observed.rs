//! An observer is told of each request once, with its end, and the device is what it was.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::sync::Arc;

use tantalum_device::{
    AlignedBuffer, Capabilities, Device, Durability, Ending, MemoryDevice, MemoryProfile, ObservedDevice, PendingWrite,
    Request, RequestKind, RequestObserver, TearUnit, WriteCache,
};
use tantalum_rt::Mutex;

#[derive(Debug, Default)]
struct Diary(Mutex<Vec<(Request, Vec<Ending>)>>);

impl RequestObserver for Diary {
    fn began(&self, request: Request) -> u64 {
        let mut told = self.0.lock();
        told.push((request, Vec::new()));
        told.len() as u64 - 1
    }

    fn ended(&self, number: u64, ending: Ending) {
        self.0.lock()[number as usize].1.push(ending);
    }
}

fn observed() -> (Arc<Diary>, ObservedDevice) {
    let diary = Arc::new(Diary::default());
    (diary.clone(), ObservedDevice::new(MemoryDevice::new("d", 64 << 10), diary))
}

fn submit(device: &ObservedDevice, offset: u64) -> tantalum_device::Result<Box<dyn PendingWrite>> {
    device.submit(offset, Arc::new(AlignedBuffer::zeroed(8192)), 4096..8192, Durability::Durable)
}

#[test]
fn each_request_is_told_with_its_end() {
    let (diary, device) = observed();
    device.write(4096, &[&[1; 4096], &[2; 4096]], Durability::Cached).unwrap();
    device.read(8192, &mut [0; 4096]).unwrap();
    device.flush().unwrap();
    device.discard(4096, 8192).unwrap();
    device.read(1, &mut [0; 4096]).unwrap_err();
    let mut awaited = submit(&device, 0).unwrap();
    awaited.wait(None).unwrap().unwrap();
    drop(awaited);
    drop(submit(&device, 4096).unwrap());
    assert!(submit(&device, 64 << 10).is_err());

    let durable = RequestKind::Write(Durability::Durable);
    let expected = [
        (RequestKind::Write(Durability::Cached), 4096, 8192, Ending::Done),
        (RequestKind::Read, 8192, 4096, Ending::Done),
        (RequestKind::Flush, 0, 0, Ending::Done),
        (RequestKind::Discard, 4096, 8192, Ending::Done),
        (RequestKind::Read, 1, 4096, Ending::Failed),
        (durable, 0, 4096, Ending::Done),
        (durable, 4096, 4096, Ending::Unknown),
        (durable, 64 << 10, 4096, Ending::Failed),
    ];
    let expected = expected.map(|(kind, offset, len, ending)| (Request { kind, offset, len }, vec![ending]));
    assert_eq!(*diary.0.lock(), expected);
}

#[test]
fn the_device_stays_what_it_is() {
    let profile = MemoryProfile { volatile_cache: false, tears: TearUnit::Atomic(16384), ..MemoryProfile::default() };
    let memory = MemoryDevice::with_profile("safe", 64 << 10, profile);
    let device = ObservedDevice::new(memory.clone(), Arc::new(Diary::default()));
    let Capabilities { write_cache, atomic_write_bytes, .. } = device.capabilities();
    assert_eq!((write_cache, atomic_write_bytes), (WriteCache::None, 16384));
    assert_eq!(device.capabilities(), memory.capabilities());
    assert_eq!(
        (device.name(), device.capacity_bytes(), device.hardware()),
        (memory.name(), 64 << 10, memory.hardware())
    );
    device.grow(128 << 10).unwrap();
    assert_eq!(memory.capacity_bytes(), 128 << 10);
}
