//! Power cuts at any moment of a change of devices: the log opens with the devices from before it or from after it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{Device, MemoryDevice};
use tantalum_log::{Error, ErrorKind, Log, Standing, standings};
use tantalum_rt::{Outcome, Simulation, sleep, spawn};

use crate::archive::{self, Bed};
use crate::members::{append, append_all, create, devices, names, open, owner};
use crate::plan::{LOG_ID, as_devices, lock};
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

/// The archive may have the slot that says that a device has left, and no device has it yet. An owner that gives all devices which the slots
/// on the devices list must not be refused.
#[test]
fn a_power_cut_when_only_the_archive_knows_that_a_device_has_left() {
    let mut left_out = 0;
    for step in 0..600u64 {
        let survivors = Survivors::default();
        let outcome = Simulation::new(step).run({
            let survivors = survivors.clone();
            move || {
                let bed = Bed::new(1, 1);
                let new = archive::device("new", 1 << 20, 50);
                let (log, _) = bed.open().expect("open");
                (0..10).for_each(|n| _ = archive::append(&log, n, 700));
                owner(&log);
                let all = [Arc::clone(&bed.log[0]), Arc::clone(&new), Arc::clone(&bed.archive)];
                spawn("change", move || log.replace_devices(&[0], &as_devices(&[new])).expect("replaced"));
                sleep(Duration::from_micros(step * 5));
                cut(&all, &survivors)
            }
        });
        assert!(matches!(outcome, Outcome::PowerCut { .. }));
        let survivors = std::mem::take(&mut *lock(&survivors));
        let [old, new, archive] = <[_; 3]>::try_from(survivors).expect("three devices");
        left_out += Simulation::new(step)
            .run(move || {
                let given = [old, new];
                let standings = standings(LOG_ID, &as_devices(&given));
                let is_listed = |at: usize| matches!(standings[at], Standing::Member { .. });
                let listed: Vec<_> = (0..2).filter(|&at| is_listed(at)).map(|at| Arc::clone(&given[at])).collect();
                let count = listed.len();
                let (log, records) =
                    Bed { log: listed, archive, copies: 1 }.open().unwrap_or_else(|error| panic!("{error}"));
                assert!(archive::numbers(&records).is_sorted_by(|a, b| a + 1 == *b));
                count - log.stats().devices.len()
            })
            .expect_finished();
    }
    assert!(left_out > 3, "{left_out} devices had left by the archive alone");
}
