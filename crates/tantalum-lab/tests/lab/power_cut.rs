//! The plug is pulled on every profile: what was acknowledged as durable is there afterwards, and what was only completed where
//! the cache survives.

use std::{cell::RefCell, time::Duration};

use tantalum_device::{Device, WriteCache};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_lab::probe::power_cut::{self, Header, Outcome, Record};
use tantalum_rt::{Random, Simulation};

/// Writes for a while, cuts the power, looks.
fn cut(profile: &str, is_durable: bool, seed: u64) -> Outcome {
    let profile = Profile::named(profile).unwrap();
    let profile = if profile.capacity_bytes > 64 << 20 { profile.with_capacity(64 << 20) } else { profile };
    let run = move || {
        let device = EmulatedDevice::new("drive", profile.build().unwrap());
        let header = Header { run: seed + 1, block_bytes: 16 << 10, slots: 1024, is_durable };
        let record = RefCell::new(Record::new(header));
        let mut random = Random::with_seed(seed);
        let cutter = {
            let (device, after) = (device.clone(), Duration::from_micros(random.u64(300_000..3_000_000)));
            tantalum_rt::spawn("cutter", move || {
                tantalum_rt::sleep(after);
                device.power_cut(&mut random);
            })
        };
        let ended = power_cut::write(&*device, &header, |sequence, slot| {
            record.borrow_mut().take(&format!("{sequence} {slot}")).unwrap();
            true
        });
        assert!(ended.is_err(), "it ends with the power");
        cutter.join().unwrap();
        device.power_on().unwrap();
        power_cut::check(&*device, &record.into_inner()).unwrap()
    };
    Simulation::new(seed).run(run).expect_finished()
}

#[test]
fn what_was_acknowledged_is_lost_only_where_the_profile_says_so() {
    for name in Profile::names().filter(|name| !name.starts_with("nand")) {
        let outcomes = |is_durable| (0..4).map(|seed| cut(name, is_durable, seed)).collect::<Vec<_>>();
        let device = EmulatedDevice::new(name, Profile::named(name).unwrap().build().unwrap());
        let is_volatile = device.capabilities().write_cache == WriteCache::Volatile;
        let lies = name == "hdd-10k-cached";
        let (durable, cached) = (outcomes(true), outcomes(false));
        assert!(durable.iter().chain(&cached).all(|outcome| outcome.reported > 0), "{name}: {durable:?}");
        let loses = |outcomes: &[Outcome]| outcomes.iter().any(|outcome| !outcome.is_kept());
        assert_eq!(loses(&durable), lies, "{name}: {durable:?}");
        assert_eq!(loses(&cached), lies || is_volatile, "{name}: {cached:?}");
        let is_atomic = device.capabilities().atomic_write_bytes >= 16 << 10;
        let torn = durable.iter().chain(&cached).any(|outcome| outcome.torn > 0);
        assert!(!(torn && is_atomic), "{name}: {durable:?}");
    }
}
