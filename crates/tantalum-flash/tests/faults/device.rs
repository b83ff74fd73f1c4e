//! Faults as the host sees them, through [`EmulatedDevice`].

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability, Error};
use tantalum_flash::faults::{FaultKind, FaultLog, FaultyModel, Parameters, Plan, Planned, When};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_rt::{Outcome, Random, Simulation, spawn};

fn device(name: &str, plan: Plan) -> (Arc<EmulatedDevice>, Arc<FaultLog>) {
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
        let (device, log) = device("ssd-a", plan);
        let write = || device.write(4096, &[&[1; 4096]], Durability::Cached);
        let read = |offset| device.read(offset, &mut [0; 4096]);
        assert!(matches!(write(), Err(Error::NoSpace { offset: 4096, len: 4096, .. })));
        assert!(matches!(read(8192), Err(Error::Truncated { offset: 8192, len: 4096, found: 0..4096, .. })));
        let message = read(8192).unwrap_err().to_string();
        assert!(message.contains("unreadable") && message.contains("ssd-a"), "{message}");
        write().unwrap();
        assert!(matches!(device.flush(), Err(Error::Io { operation: "flush", .. })));
        assert!(write().unwrap_err().is_poisoned(), "nobody can tell what was lost");
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
        let (device, _) = device("nvme-plp", plan);
        let submit = |byte| {
            let buffer = Arc::new(AlignedBuffer::copy_from(&[byte; 4096]));
            device.submit(0, buffer, 0..4096, Durability::Durable).unwrap()
        };
        submit(1).wait(None).unwrap().unwrap();
        let mut hung = submit(2);
        assert!(hung.wait(Some(Duration::from_secs(3600))).is_none());
        device.power_cut(&mut Random::with_seed(1));
        assert!(matches!(hung.wait(None), Some(Err(Error::PowerLost { .. }))));
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
            let (device, log) = device("hdd-10k", plan);
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
            Simulation::new(seed).run(move || device("nvme-plp", Plan::new(seed).with_rate(FaultKind::Slow, 1.0)));
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
