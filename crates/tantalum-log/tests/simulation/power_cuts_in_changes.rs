//! Power cuts at any moment of a change of devices: the log opens with the devices from before it or from after it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{Device, MemoryDevice};
use tantalum_log::{Error, ErrorKind, Log};
use tantalum_rt::{Outcome, Simulation, sleep, spawn};

use crate::members::{append, append_all, create, devices, names, open, owner};
use crate::plan::{as_devices, lock};
use crate::world::{Survivors, cut};

/// Cuts the power every so many microseconds of a change, and opens what is left with all devices that are not refused.
fn cut_everywhere(step_us: u64, change: fn(&Log, &[Arc<MemoryDevice>; 3]) -> Result<(), Error>, after: &[&str]) {
    let (mut before_seen, mut after_seen) = (0, 0);
    for step in 0..400u64 {
        let (survivors, acknowledged) = (Survivors::default(), Arc::new(Mutex::new(0)));
        let outcome = Simulation::new(step).run({
            let (survivors, acknowledged) = (survivors.clone(), acknowledged.clone());
            move || {
                let all = devices(["a", "b", "c"]);
                let log = create(&all[..2]);
                append_all(&log, 0..10);
                owner(&log);
                let changing = {
                    let (log, all) = (log.clone(), all.clone());
                    spawn("change", move || change(&log, &all))
                };
                let appender = spawn("appender", move || {
                    for n in 10.. {
                        append(&log, n);
                        *lock(&acknowledged) = n;
                    }
                });
                sleep(Duration::from_micros(step * step_us));
                if changing.is_finished() {
                    changing.join().expect("no panic").expect("changed");
                }
                assert!(!appender.is_finished());
                cut(&all, &survivors)
            }
        });
        assert!(matches!(outcome, Outcome::PowerCut { .. }));
        let mut left = std::mem::take(&mut *lock(&survivors));
        let acknowledged = *lock(&acknowledged);
        let (records, names) = Simulation::new(step)
            .run(move || {
                loop {
                    match open(&left) {
                        Ok((log, records)) => return (records, names(&log)),
                        Err(error) if error.kind() == ErrorKind::NotAMember => {
                            left.retain(|given| Some(given.name()) != error.about());
                        }
                        Err(error) => panic!("{error}"),
                    }
                }
            })
            .expect_finished();
        // A checkpoint was never beyond what was acknowledged.
        assert!(
            records.is_sorted_by(|a, b| a + 1 == *b) && records.first().is_none_or(|&first| first <= acknowledged + 1)
        );
        assert!(acknowledged == 0 || records.last().is_none_or(|&last| last >= acknowledged), "{records:?}");
        before_seen += u32::from(names == ["a", "b"]);
        after_seen += u32::from(names == after);
    }
    assert!(before_seen > 3 && after_seen > 3, "{before_seen} cuts before the change, {after_seen} after it");
}

#[test]
fn a_power_cut_at_any_moment_of_an_addition() {
    cut_everywhere(10, |log, all| log.add_devices(&as_devices(&all[2..])).map(drop), &["a", "b", "c"]);
}

#[test]
fn a_power_cut_at_any_moment_of_a_removal() {
    cut_everywhere(10, |log, _| log.remove_devices(&[0]), &["b"]);
}

#[test]
fn a_power_cut_at_any_moment_of_a_replacement() {
    cut_everywhere(10, |log, all| log.replace_devices(&[0], &as_devices(&all[2..])).map(drop), &["b", "c"]);
}

#[test]
fn a_power_cut_at_any_moment_of_several_changes() {
    let change = |log: &Log, all: &[Arc<MemoryDevice>; 3]| {
        log.remove_devices(&[0])?;
        log.replace_devices(&[1], &as_devices(&all[2..]))?;
        log.add_devices(&as_devices(&all[..1]))?;
        log.replace_devices(&[0], &as_devices(&all[2..]))?;
        log.add_devices(&as_devices(&all[1..2])).map(drop)
    };
    cut_everywhere(50, change, &["c", "a", "b"]);
}
