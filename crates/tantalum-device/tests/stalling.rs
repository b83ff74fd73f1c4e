//! A stalling device is late in its stalls and only then, and loses nothing.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability, Error, MemoryDevice, StallingDevice};
use tantalum_rt::{Simulation, now, sleep};

const MS: Duration = Duration::from_millis(1);

fn stalling() -> (Arc<MemoryDevice>, StallingDevice) {
    let memory = MemoryDevice::new("d", 64 << 10);
    let device = StallingDevice::new(memory.clone(), 200 * MS, 1000 * MS);
    (memory, device)
}

fn submit(device: &StallingDevice, byte: u8) -> Box<dyn tantalum_device::PendingWrite> {
    let buffer = Arc::new(AlignedBuffer::copy_from(&[byte; 4096]));
    device.submit(0, buffer, 0..4096, Durability::Durable).unwrap()
}

#[test]
fn writes_and_flushes_wait_for_the_end_of_a_stall() {
    Simulation::new(1).run(|| {
        let (_, device) = stalling();
        let start = now();
        let took = |action: &dyn Fn()| {
            let before = now();
            action();
            now() - before
        };
        let write = || device.write(0, &[&[1; 4096]], Durability::Durable).unwrap();
        assert_eq!(took(&write), Duration::ZERO);
        sleep(start + 799 * MS - now());
        assert_eq!(took(&write), Duration::ZERO);
        sleep(start + 850 * MS - now());
        assert_eq!(took(&write), 150 * MS);
        sleep(start + 1900 * MS - now());
        assert_eq!(took(&|| device.flush().unwrap()), 100 * MS);
        sleep(start + 2900 * MS - now());
        assert_eq!(took(&|| device.read(0, &mut [0; 4096]).unwrap()), Duration::ZERO);
    });
}

#[test]
fn a_stalled_write_can_be_waited_for_in_steps_or_left() {
    Simulation::new(2).run(|| {
        let (memory, device) = stalling();
        let start = now();
        sleep(start + 900 * MS - now());
        let mut pending = submit(&device, 2);
        assert!(!pending.is_done());
        assert!(pending.wait(Some(60 * MS)).is_none());
        assert_eq!(memory.image()[0], 0, "it is held back");
        pending.wait(None).unwrap().unwrap();
        assert_eq!((now() - start, memory.image()[0]), (1000 * MS, 2));

        sleep(start + 1900 * MS - now());
        let mut pending = submit(&device, 3);
        sleep(100 * MS);
        assert!(pending.is_done(), "asking passes it on");
        pending.wait(None).unwrap().unwrap();

        sleep(start + 2900 * MS - now());
        drop(submit(&device, 4));
        sleep(MS);
        assert_eq!(memory.image()[0], 4, "a write that nobody waits for still happens");
    });
}

#[test]
fn a_write_that_cannot_be_passed_on_tells_so() {
    Simulation::new(3).run(|| {
        let (_, device) = stalling();
        sleep(900 * MS);
        let buffer = Arc::new(AlignedBuffer::zeroed(4096));
        let mut pending = device.submit(1 << 30, buffer, 0..4096, Durability::Durable).unwrap();
        assert!(matches!(pending.wait(None), Some(Err(Error::OutOfRange { .. }))));
    });
}
