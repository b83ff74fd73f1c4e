//! The random operator: adds, removes and replaces devices of a log that runs, beside random load.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{Device, MemoryDevice};
use tantalum_log::{ErrorKind, Log};
use tantalum_rt::sleep;

use crate::plan::{as_devices, lock, random};
use crate::world::Model;

/// Adds, removes and replaces devices at random, until the end of the simulation or of the log. `devices` are all there
/// are.
pub fn operator(log: &Log, devices: &[Arc<MemoryDevice>], model: &Mutex<Model>, seed: u64) {
    let mut random = random(seed ^ 0x0b5e);
    loop {
        sleep(Duration::from_micros(random.u64(0..6000)));
        let present = log.stats().devices;
        let before: BTreeSet<String> = present.iter().map(|device| device.name.clone()).collect();
        let victim = &present[random.usize(0..present.len())];
        let mut spare: Vec<_> = devices.iter().filter(|device| !before.contains(device.name())).cloned().collect();
        random.shuffle(&mut spare);
        let with = |set: &BTreeSet<String>, devices: &[Arc<MemoryDevice>]| {
            set.iter().cloned().chain(devices.iter().map(|device| device.name().to_owned())).collect::<BTreeSet<_>>()
        };
        let without = |set: &BTreeSet<String>| set.iter().filter(|&name| *name != victim.name).cloned().collect();
        let (joined, left) = match random.u8(0..4) {
            0 if !spare.is_empty() => (spare[..random.usize(1..=spare.len())].to_vec(), false),
            1 if !spare.is_empty() => (spare[..1].to_vec(), true),
            2 => (devices.iter().filter(|device| device.name() == victim.name).cloned().collect(), true),
            _ => (Vec::new(), true),
        };
        let in_place = joined.iter().any(|device| device.name() == victim.name);
        let mut possible = vec![before.clone()];
        if !joined.is_empty() {
            possible.push(with(&before, &joined));
        }
        if left {
            let middle = if in_place { before } else { with(&before, &joined) };
            possible.push(without(&middle));
        }
        lock(model).devices = possible;
        let result = match (joined.is_empty(), left) {
            (true, _) => log.remove_devices(&[victim.ordinal]),
            (false, false) => log.add_devices(&as_devices(&joined)).map(drop),
            (false, true) => log.replace_devices(&[victim.ordinal], &as_devices(&joined)).map(drop),
        };
        if matches!(&result, Err(error) if matches!(error.kind(), ErrorKind::Closed | ErrorKind::Poisoned)) {
            return;
        }
        let now = log.stats().devices.into_iter().map(|device| device.name).collect();
        let mut model = lock(model);
        assert!(model.devices.contains(&now), "{now:?} is none of {:?} after {result:?}", model.devices);
        model.devices = vec![now];
        match result {
            Ok(()) => {
                model.counts.joined += joined.len() as u64;
                model.counts.left += u64::from(left);
            }
            Err(error)
                // The last device stays, and the last two of a mirror; one is still written to.
                if error.kind() == ErrorKind::InUse
                    || (error.kind() == ErrorKind::Busy && error.about().is_some()) => {}
            Err(error) if error.is_io() || matches!(error.kind(), ErrorKind::WritesLost | ErrorKind::TimedOut) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
