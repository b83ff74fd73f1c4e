//! An emulated device on the virtual clock: what the host sees, and when.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability, Error};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_rt::{Random, Simulation, now, sleep, spawn};

fn device(name: &str) -> Arc<EmulatedDevice> {
    let model = Profile::named(name).and_then(|profile| profile.with_capacity(16 << 20).build());
    EmulatedDevice::new(name, model.expect("the profile comes with the crate"))
}

fn submit(device: &EmulatedDevice, offset: u64, byte: u8) -> Box<dyn tantalum_device::PendingWrite> {
    let buffer = Arc::new(AlignedBuffer::copy_from(&[byte; 4096]));
    device.submit(offset, buffer, 0..4096, Durability::Cached).expect("the device has power")
}

#[test]
fn operations_take_the_model_s_time() {
    let run = || {
        let device = device("durassd");
        let start = now();
        device.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
        let written = start.elapsed();
        device.flush().unwrap();
        (written, start.elapsed())
    };
    let (written, flushed) = Simulation::new(1).run(run).expect_finished();
    assert_eq!(written, Duration::from_nanos(65_000), "its processor's 41 us, and 24 us beside it");
    assert!(flushed > Duration::from_micros(1800), "a page, its journal, and the firmware's own time: {flushed:?}");
}

#[test]
fn a_pending_write_times_out_ends_and_is_lost_by_a_cut() {
    let run = || {
        let device = device("ssd-a");
        let mut pending = submit(&device, 0, 1);
        assert!(pending.wait(Some(Duration::from_nanos(10))).is_none() && !pending.is_done());
        pending.wait(None).unwrap().unwrap();
        let (mut early, mut late) = (submit(&device, 4096, 2), submit(&device, 8192, 3));
        sleep(Duration::from_micros(90));
        device.power_cut(&mut Random::with_seed(1));
        assert!(matches!(late.wait(None), Some(Err(Error::PowerLost { offset: 8192, .. }))));
        early.wait(None).unwrap().expect("it had ended before the cut");
        assert!(matches!(device.read(0, &mut [0; 4096]), Err(Error::PowerLost { .. })));
        assert!(device.power_on().unwrap() > Duration::ZERO);
        device.read(0, &mut [0; 4096]).unwrap();
    };
    Simulation::new(1).run(run).expect_finished();
}

#[test]
fn power_can_fail_again_while_the_device_starts() {
    let run = || {
        let device = device("durassd");
        device.write(0, &[&[7; 4096]], Durability::Durable).unwrap();
        device.power_cut(&mut Random::with_seed(1));
        let starting = Arc::clone(&device);
        let task = spawn("host", move || starting.power_on());
        sleep(Duration::from_millis(1));
        device.power_cut(&mut Random::with_seed(2));
        assert!(matches!(task.join().unwrap(), Err(Error::PowerLost { .. })));
        device.power_on().unwrap();
        let mut block = [0; 4096];
        device.read(0, &mut block).unwrap();
        assert_eq!(block, [7; 4096]);
    };
    Simulation::new(3).run(run).expect_finished();
}

#[test]
fn a_hung_device_takes_writes_and_never_ends_them() {
    let run = || {
        let device = device("ssd-b");
        device.set_hung(true);
        let mut pending = submit(&device, 0, 1);
        assert!(pending.wait(Some(Duration::from_secs(3600))).is_none());
        device.set_hung(false);
        device.write(4096, &[&[2; 4096]], Durability::Cached).unwrap();
        assert!(!pending.is_done());
    };
    Simulation::new(1).run(run).expect_finished();
}

#[test]
fn without_barriers_only_protected_memory_keeps_durable_writes() {
    let run = |name: &'static str| {
        move || {
            let model = Profile::named(name).unwrap().with_capacity(16 << 20).build().unwrap();
            let device = EmulatedDevice::without_barriers(name, model);
            device.write(0, &[&[7; 4096]], Durability::Durable).unwrap();
            device.flush().unwrap();
            device.power_cut(&mut Random::with_seed(1));
            device.power_on().unwrap();
            let mut block = [0; 4096];
            device.read(0, &mut block).unwrap();
            block[0] == 7
        }
    };
    assert!(Simulation::new(1).run(run("durassd")).expect_finished());
    assert!(!Simulation::new(1).run(run("ssd-a")).expect_finished());
}

#[test]
fn a_disk_s_queue_ends_out_of_order_and_a_cut_loses_what_has_not_begun() {
    let run = || {
        let device = device("hdd-15k");
        let write = |block: u64| {
            let buffer = Arc::new(AlignedBuffer::copy_from(&[block as u8 + 1; 4096]));
            device.submit(block * 65_536, buffer, 0..4096, Durability::Durable).expect("the device has power")
        };
        let mut pending: Vec<_> = (0..64).map(|number| write(number * 37 % 64)).collect();
        sleep(Duration::from_millis(20));
        device.power_cut(&mut Random::with_seed(1));
        let ended: Vec<bool> =
            pending.iter_mut().map(|write| write.wait(None).expect("a cut ends it").is_ok()).collect();
        assert!(ended.contains(&true) && ended.contains(&false), "some were in time");
        assert!(!ended.is_sorted_by(|earlier, later| earlier >= later), "it did not serve them one after the other");
        device.power_on().unwrap();
        let mut found = 0;
        for (number, ended) in ended.into_iter().enumerate() {
            let block = number as u64 * 37 % 64;
            let mut bytes = [0; 4096];
            device.read(block * 65_536, &mut bytes).unwrap();
            assert!(!ended || bytes == [block as u8 + 1; 4096], "block {block} was durable");
            found += u32::from(bytes != [0; 4096] && !ended);
        }
        assert!(found <= 1, "the arm was at one of them; the others are absent: {found}");
    };
    Simulation::new(1).run(run).expect_finished();
}
