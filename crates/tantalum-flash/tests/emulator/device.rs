//! An emulated device on the virtual clock: what the host sees, and when.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability, ErrorKind};
use tantalum_flash::faults::{FaultKind, FaultLog, FaultyModel, Parameters, Plan, Planned, When};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_rt::{Outcome, Random, Simulation, now, sleep, spawn};

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
        assert!(matches!(late.wait(None), Some(Err(error)) if error.kind() == ErrorKind::PowerLost));
        early.wait(None).unwrap().expect("it had ended before the cut");
        assert!(matches!(device.read(0, &mut [0; 4096]), Err(error) if error.kind() == ErrorKind::PowerLost));
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
        assert!(matches!(task.join().unwrap(), Err(error) if error.kind() == ErrorKind::PowerLost));
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

fn faulty(name: &str, plan: Plan) -> (Arc<EmulatedDevice>, Arc<FaultLog>) {
    let inner = Profile::named(name).unwrap().with_capacity(4 << 20).build().unwrap();
    let (model, log) = FaultyModel::wrap(name, inner, plan).unwrap();
    (EmulatedDevice::new(name, model), log)
}

#[test]
fn errors_say_what_they_are() {
    let run = || {
        let plan = Plan::new(1)
            .with_fault(Planned::new(When::Write(1), FaultKind::NoSpace))
            .with_fault(Planned::new(When::Read(1), FaultKind::ShortRead))
            .with_fault(Planned::new(When::Read(2), FaultKind::UnreadableSector))
            .with_fault(Planned::new(When::Flush(1), FaultKind::FlushFailsOnce))
            .with_fault(Planned::new(When::Cut(2), FaultKind::DeadAfterCut));
        let (device, log) = faulty("ssd-a", plan);
        let write = || device.write(4096, &[&[1; 4096]], Durability::Cached);
        let read = |offset| device.read(offset, &mut [0; 4096]);
        assert_eq!(write().unwrap_err().kind(), ErrorKind::NoSpace);
        assert_eq!(read(8192).unwrap_err().kind(), ErrorKind::Truncated);
        let message = read(8192).unwrap_err().to_string();
        assert!(message.contains("unreadable") && message.contains("ssd-a"), "{message}");
        write().unwrap();
        assert_eq!(device.flush().unwrap_err().kind(), ErrorKind::Io);
        assert_eq!(write().unwrap_err().kind(), ErrorKind::WritesLost, "the host cannot tell what was lost");
        device.power_cut(&mut Random::with_seed(1));
        device.power_on().unwrap();
        write().unwrap();
        device.power_cut(&mut Random::with_seed(1));
        device.power_on().unwrap();
        assert!(read(0).unwrap_err().to_string().contains("dead"));
        assert_eq!(log.total(), 5, "{:?}", log.events());
    };
    Simulation::new(1).run(run).expect_finished();
}

#[test]
fn a_stuck_device_hangs_until_its_power_is_cut() {
    let run = || {
        let plan = Plan::new(1).with_fault(Planned::new(When::Write(2), FaultKind::Stuck));
        let (device, _) = faulty("nvme-plp", plan);
        let submit = |byte| {
            let buffer = Arc::new(AlignedBuffer::copy_from(&[byte; 4096]));
            device.submit(0, buffer, 0..4096, Durability::Durable).unwrap()
        };
        submit(1).wait(None).unwrap().unwrap();
        let mut hung = submit(2);
        assert!(hung.wait(Some(Duration::from_secs(3600))).is_none());
        device.power_cut(&mut Random::with_seed(1));
        assert!(matches!(hung.wait(None), Some(Err(error)) if error.kind() == ErrorKind::PowerLost));
        device.power_on().unwrap();
        let mut block = [0; 4096];
        device.read(0, &mut block).unwrap();
        assert_eq!(block, [1; 4096]);
    };
    Simulation::new(1).run(run).expect_finished();
}

/// A disk with a queue serves in an order of its own; each end must still be found, delayed or not, and what ended with
/// forced unit access is covered.
#[test]
fn queued_operations_end_late_and_are_covered_then() {
    for seed in 0..10 {
        let run = move || {
            let delay = Parameters { delay: Some(30_000_000), ..Parameters::default() };
            let slow = |n| Planned { parameters: delay, ..Planned::new(When::Write(n), FaultKind::Slow) };
            let plan = Plan::new(seed).with_rate(FaultKind::LoseUnsynced, 1.0);
            let plan = [3, 9, 20].into_iter().fold(plan, |plan, n| plan.with_fault(slow(n)));
            let (device, log) = faulty("hdd-10k", plan);
            let writers: Vec<_> = (0..4u64)
                .map(|writer| {
                    let device = Arc::clone(&device);
                    spawn(format!("writer-{writer}"), move || {
                        let mut random = Random::with_seed(seed * 4 + writer);
                        let mut written = Vec::new();
                        while written.len() < 8 {
                            let at = (random.u64(..100) * 10 + writer) * 4096;
                            device.write(at, &[&[written.len() as u8 + 1; 4096]], Durability::Durable).unwrap();
                            written.push(at);
                        }
                        written
                    })
                })
                .collect();
            let written: Vec<Vec<u64>> = writers.into_iter().map(|writer| writer.join().unwrap()).collect();
            assert_eq!(log.count(FaultKind::Slow), 3);
            device.power_cut(&mut Random::with_seed(seed));
            device.power_on().unwrap();
            for places in written {
                for (number, at) in places.iter().enumerate().filter(|(n, at)| !places[n + 1..].contains(at)) {
                    let mut block = [0; 4096];
                    device.read(*at, &mut block).unwrap();
                    assert_eq!(block, [number as u8 + 1; 4096], "seed {seed}, byte {at}");
                }
            }
            assert_eq!(log.count(FaultKind::LoseUnsynced), 0, "nothing was at stake");
        };
        Simulation::new(seed).run(run).expect_finished();
    }
}

/// The power goes while others are in the middle of an operation: they never go on, and what they have locked stays so.
#[test]
fn a_device_outlives_the_tasks_that_use_it() {
    for seed in 0..200 {
        let made =
            Simulation::new(seed).run(move || faulty("nvme-plp", Plan::new(seed).with_rate(FaultKind::Slow, 1.0)));
        let (device, log) = made.expect_finished();
        let used = Arc::clone(&device);
        let outcome = Simulation::new(seed).run(move || {
            let writers: Vec<_> = (0..4u64)
                .map(|writer| {
                    let device = Arc::clone(&used);
                    spawn(format!("writer-{writer}"), move || {
                        for number in 0..seed % 20 + 1 {
                            let buffer = Arc::new(AlignedBuffer::copy_from(&[1; 4096]));
                            // No task waits for its end.
                            device.submit((number * 4 + writer) * 4096, buffer, 0..4096, Durability::Cached).unwrap();
                        }
                        if writer == 0 {
                            tantalum_rt::power_cut();
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|writer| writer.join().unwrap());
        });
        let Outcome::PowerCut { at } = outcome else { panic!("a writer cuts the power") };
        assert!(log.count(FaultKind::Slow) > 0);
        let after = move || {
            device.power_cut(&mut Random::with_seed(seed));
            device.power_on().unwrap();
            device.read(0, &mut [0; 4096]).unwrap();
        };
        Simulation::new(0).start_at(at).run(after).expect_finished();
    }
}
