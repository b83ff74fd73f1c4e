//! Outlier hiding: what one device is late with, another saves ("FlashLogging", sections 3.4 and 3.5).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Characteristics, Device, Fault, MemoryDevice, MemoryProfile, Partition};
use tantalum_log::{Hiding, HidingStats, Log, LogOptions, Lsn, RequestState, inspect, verify};
use tantalum_rt::{Simulation, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, lock, random};
use crate::steps::{MS, flush, is_missing, open_as, simulate};
use crate::world::{Survivors, cut};

fn options(hiding: Hiding) -> LogOptions {
    LogOptions { section_bytes: Some(65536), hang_timeout: 500 * MS, hiding, ..LogOptions::default() }
}

/// Every write takes a millisecond.
fn devices(count: usize) -> Vec<Arc<MemoryDevice>> {
    let profile = MemoryProfile { write_latency: MS..MS, ..MemoryProfile::default() };
    (0..count).map(|n| MemoryDevice::with_profile(format!("log-{n}"), 4 << 20, profile.clone())).collect()
}

fn create(devices: &[Arc<MemoryDevice>]) {
    Log::create(LOG_ID, as_devices(devices), options(Hiding::On)).expect("create");
}

fn open(devices: &[Arc<MemoryDevice>]) -> (Log, Vec<u32>) {
    open_as(devices, options(Hiding::On)).expect("open")
}

/// A log whose devices' latencies are learnt, with records 0 to 19.
fn warm_log(count: usize) -> (Vec<Arc<MemoryDevice>>, Log) {
    let devices = devices(count);
    create(&devices);
    let (log, _) = open(&devices);
    (0..20).for_each(|n| _ = flush(&log, n));
    (devices, log)
}

/// `count` clients flush `each` records of `bytes` bytes.
fn load(log: &Log, count: u32, each: u32, bytes: usize) {
    let clients: Vec<_> = (0..count)
        .map(|client| {
            let log = log.clone();
            spawn(format!("client-{client}"), move || {
                for n in 0..each {
                    let record = log.append(&[&(client * each + n).to_le_bytes(), &vec![9; bytes]]).expect("append");
                    log.flush(record.end).expect("flush");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
}

#[test]
fn a_request_on_a_stalled_device_takes_three_times_the_average() {
    simulate(40, |_| {
        let (devices, log) = warm_log(2);
        for victim in [0, 1] {
            devices[victim].inject(Fault::SlowWrites { by: 200 * MS });
            let slowest = (20..30).map(|n| flush(&log, n)).max().expect("some");
            assert!(slowest > 2 * MS && slowest <= 3 * MS, "{slowest:?}");
            devices[victim].clear_faults();
            sleep(300 * MS);
            let stats = log.stats();
            let (late, other) = (stats.devices[victim].hiding, stats.devices[1 - victim].hiding);
            assert_eq!(late.outliers, 1, "{stats:?}");
            assert!((190_000..200_000).contains(&late.saved_us), "{stats:?}");
            assert_eq!((other.reissued, other.won, other.lost), (1, 1, 0), "{stats:?}");
        }
        assert_eq!(log.stats().hiding.won, 2);
        let end = log.end_lsn();
        log.close().expect("close");
        drop(log);
        let found = verify(&as_devices(&devices)).expect("readable");
        assert!(found.damage.is_empty() && found.end_lsn == end, "{found:?}");
    });
}

#[test]
fn a_stuck_device_holds_up_no_flush_and_is_set_aside() {
    simulate(40, |_| {
        let (devices, log) = warm_log(3);
        devices[1].inject(Fault::HangWrites);
        for n in 20..1020 {
            let took = flush(&log, n);
            assert!(took <= 3 * MS, "{took:?}");
        }
        let stats = log.stats();
        assert!(stats.devices[1].set_aside.is_some(), "{stats:?}");
        assert_eq!((stats.reissued, stats.hiding.won), (0, 1), "another device had the request already");
        assert!(stats.devices[1].hiding.saved_us > 490_000, "{stats:?}");
        drop(log);
        let survivors: Vec<_> = devices.iter().map(|device| device.fork()).collect();
        assert_eq!(open(&survivors).1, (0..1020).collect::<Vec<_>>());
    });
}

#[test]
fn an_outlier_in_the_hiding_area_goes_to_a_third_device() {
    simulate(40, |seed| {
        let (devices, log) = warm_log(3);
        let healthy = seed as usize % 3;
        for device in devices.iter().enumerate().filter(|(n, _)| *n != healthy).map(|(_, device)| device) {
            device.inject(Fault::SlowWrites { by: 200 * MS });
        }
        let slowest = (20..40).map(|n| flush(&log, n)).max().expect("some");
        assert!(slowest <= 5 * MS, "{slowest:?}");
        assert!(log.stats().devices[healthy].hiding.won > 0);
        sleep(300 * MS);
        drop(log);
        assert_eq!(open(&devices).1, (0..40).collect::<Vec<_>>(), "each record once, though some lie on three devices");
    });
}

/// Cuts the power while a late write is still under way. Returns the devices and how many records were acknowledged.
fn cut_while_late(seed: u64) -> (Vec<Arc<MemoryDevice>>, u32) {
    let survivors: Survivors = Arc::default();
    Simulation::new(seed).run({
        let survivors = survivors.clone();
        move || {
            let (devices, log) = warm_log(2);
            devices[seed as usize % 2].inject(Fault::SlowWrites { by: 400 * MS });
            (20..30).for_each(|n| _ = flush(&log, n));
            assert_eq!(log.stats().hiding.won, 1);
            cut(&devices, &survivors)
        }
    });
    (std::mem::take(&mut *lock(&survivors)), 30)
}

#[test]
fn hidden_copies_are_found_after_a_power_cut() {
    let mut only_hidden = 0;
    for seed in 0..40 {
        let (devices, records) = cut_while_late(seed);
        let is_only_hidden = Simulation::new(seed)
            .run(move || {
                let inspection = inspect(&as_devices(&devices)).expect("readable");
                let live = || inspection.devices.iter().flat_map(|device| &device.requests);
                let live = || live().filter(|request| request.state == RequestState::Live);
                let hidden: Vec<_> = live().filter(|request| request.is_hidden).collect();
                assert_eq!(hidden.len(), 1, "{inspection:?}");
                let copies = live().filter(|request| request.start == hidden[0].start).count();
                // Twice: what was found is still found after the next session.
                for _ in 0..2 {
                    assert_eq!(open(&devices).1, (0..records).collect::<Vec<_>>());
                }
                copies == 1
            })
            .expect_finished();
        only_hidden += u32::from(is_only_hidden);
    }
    assert!(only_hidden > 10, "the late write is often not there, {only_hidden}");
}

#[test]
fn a_device_whose_hiding_area_is_needed_may_not_be_missing() {
    Simulation::new(1)
        .run(|| {
            let (devices, log) = warm_log(3);
            log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
            // One is late, and then the one that stood in for it fails.
            devices[0].inject(Fault::HangWrites);
            (20..30).for_each(|n| _ = flush(&log, n));
            let stats = log.stats();
            let savior = (1..3).find(|&n| stats.devices[n].hiding.won > 0).expect("one of them has it");
            log.set_checkpoint(Lsn::new(log.checkpoint_lsn().get() + 1)).expect("a checkpoint that does not cover it");
            sleep(600 * MS);
            let devices: Vec<_> = devices.iter().map(|device| device.fork()).collect();
            let others: Vec<_> = (0..3).filter(|&n| n != savior).map(|n| devices[n].clone()).collect();
            let refused = Log::open(as_devices(&others), options(Hiding::On), &mut |_| {}).unwrap_err();
            assert!(is_missing(&refused, savior as u32), "{refused}");
            assert_eq!(open(&devices).1.last(), Some(&29));
        })
        .expect_finished();
}

#[test]
fn memory_is_not_reused_while_a_late_write_reads_it() {
    // The devices panic if it is.
    simulate(60, |seed| {
        let devices = devices(2 + seed as usize % 2);
        create(&devices);
        // So that all of them write at the same time.
        let (log, _) =
            open_as(&devices, LogOptions { group_commit_delay: false, ..options(Hiding::On) }).expect("open");
        let stalls = {
            let (devices, mut random) = (devices.clone(), random(seed));
            spawn("stalls", move || {
                for _ in 0..30 {
                    let victim = random.usize(0..devices.len());
                    devices[victim].inject(Fault::SlowWrites { by: MS * random.u32(1..20) });
                    sleep(MS * random.u32(1..10));
                    devices[victim].clear_faults();
                    sleep(MS * random.u32(1..5));
                }
            })
        };
        load(&log, 5, 80, 300);
        stalls.join().expect("no panic");
        sleep(30 * MS);
        let stats = log.stats();
        assert!(stats.hiding.won > 0, "{stats:?}");
        assert_eq!(stats.hiding.won + stats.hiding.lost, stats.hiding.reissued, "{stats:?}");
        assert_eq!(stats.reissued, 0, "{stats:?}");
        drop(log);
        let mut found = open(&devices).1;
        found.sort_unstable();
        assert_eq!(found, (0..400).collect::<Vec<_>>());
    });
}

#[test]
fn hiding_that_does_not_pay_takes_a_break_and_tries_again() {
    simulate(10, |_| {
        let (devices, log) = warm_log(2);
        // One in 21 writes takes two and a half times as long: too late for an outlier, too early for its copy.
        let mut n = 20;
        while log.stats().hides {
            n += 1;
            let is_slow = n % 21 == 0;
            if is_slow {
                devices.iter().for_each(|device| device.inject(Fault::SlowWrites { by: MS * 3 / 2 }));
            }
            flush(&log, n);
            devices.iter().for_each(|device| device.clear_faults());
            assert!(n < 1000, "it goes on although it never wins: {:?}", log.stats());
        }
        let before = log.stats();
        assert_eq!((before.hiding.won, before.hiding_breaks), (0, 1), "{before:?}");
        assert!(before.hiding.lost >= 16, "{before:?}");
        devices.iter().for_each(|device| device.inject(Fault::SlowWrites { by: MS * 3 / 2 }));
        flush(&log, n);
        devices.iter().for_each(|device| device.clear_faults());
        assert_eq!(log.stats().hiding.reissued, before.hiding.reissued, "a break");
        // Hopeless cases are not waited for even now.
        devices[0].inject(Fault::SlowWrites { by: 300 * MS });
        let slowest = (0..3).map(|n| flush(&log, n)).max().expect("some");
        assert!(slowest < 50 * MS, "{slowest:?}");
        devices[0].clear_faults();
        sleep(1000 * MS);
        flush(&log, n);
        assert!(log.stats().hides, "it tries again");
    });
}

/// The hiding counters of a log that was created and opened with these options.
fn outliers_under_load([created, opened]: [Hiding; 2], seed: u64) -> HidingStats {
    Simulation::new(seed)
        .run(move || {
            let devices = devices(3);
            Log::create(LOG_ID, as_devices(&devices), options(created)).expect("create");
            let (log, _) = open_as(&devices, options(opened)).expect("open");
            let stalls = {
                let devices = devices.clone();
                spawn("stalls", move || {
                    for n in 0..60 {
                        sleep(8 * MS);
                        devices[n % 3].inject(Fault::SlowWrites { by: 4 * MS });
                        sleep(2 * MS);
                        devices[n % 3].clear_faults();
                    }
                })
            };
            // No task waits, so every idle device has gone on to newer requests.
            for n in 0..6000u32 {
                let record = log.append(&[&n.to_le_bytes()]).expect("append");
                log.ticket(record.end).expect("wanted");
                sleep(MS / 10);
            }
            stalls.join().expect("no panic");
            sleep(50 * MS);
            let stats = log.stats();
            drop(log);
            assert_eq!(open(&devices).1, (0..6000).collect::<Vec<_>>());
            stats.hiding
        })
        .expect_finished()
}

#[test]
fn without_hiding_areas_few_outliers_can_be_re_issued() {
    for seed in 0..10 {
        let options = [[Hiding::On, Hiding::On], [Hiding::On, Hiding::Off], [Hiding::Off, Hiding::On]];
        let [on, off, without] = options.map(|options| outliers_under_load(options, seed));
        assert!(on.outliers > 10 && on.won * 2 > on.outliers, "{on:?}");
        assert_eq!(off, HidingStats::default(), "outliers are not looked for");
        assert!(without.outliers > 10 && without.reissued * 3 < on.reissued, "{without:?}, with hiding areas {on:?}");
    }
}

#[test]
fn a_full_hiding_area_asks_for_a_checkpoint() {
    simulate(10, |_| {
        let (devices, log) = warm_log(2);
        log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        let mut n = 0;
        while !log.wait_for_pressure(Duration::ZERO) {
            devices[n % 2].inject(Fault::SlowWrites { by: 10 * MS });
            load(&log, 2, 1, 9000);
            devices[n % 2].clear_faults();
            sleep(20 * MS);
            n += 1;
        }
        let stats = log.stats();
        assert!(stats.used_bytes * 2 < stats.capacity_bytes, "not for lack of other space: {stats:?}");
        log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        assert!(!log.wait_for_pressure(Duration::ZERO));
        for victim in [0, 1] {
            devices[victim].inject(Fault::SlowWrites { by: 100 * MS });
            load(&log, 2, 4, 9000);
            devices[victim].clear_faults();
            sleep(200 * MS);
        }
        assert!(log.stats().hiding.won > stats.hiding.won, "there is room again");
    });
}

#[test]
fn a_checkpoint_on_a_device_that_hangs_holds_up_no_commit() {
    simulate(20, |seed| {
        let (devices, log) = warm_log(2);
        devices[seed as usize % 2].inject(Fault::HangWrites);
        let checkpoint = {
            let log = log.clone();
            spawn("checkpoint", move || log.set_checkpoint(log.durable_lsn()).expect("one device is left"))
        };
        for n in 20..300 {
            let took = flush(&log, n);
            assert!(took <= 4 * MS, "{took:?}");
        }
        checkpoint.join().expect("no panic");
        assert!(log.stats().devices[seed as usize % 2].set_aside.is_some());
    });
}

#[test]
fn what_was_measured_before_need_not_be_learnt() {
    simulate(10, |_| {
        let devices = devices(2);
        create(&devices);
        let measured = |device: &Arc<MemoryDevice>| {
            let text = "format = 1\ndevice = \"d\"\n[[write_latency]]\nbytes = 4096\nmean_us = 1000.0\n";
            (device.name().to_owned(), Characteristics::parse(text).expect("well-formed"))
        };
        let characteristics: BTreeMap<_, _> = devices.iter().map(measured).collect();
        let (log, _) = open_as(&devices, LogOptions { characteristics, ..options(Hiding::On) }).expect("open");
        devices[0].inject(Fault::SlowWrites { by: 200 * MS });
        let slowest = (0..2).map(|n| flush(&log, n)).max().expect("some");
        assert_eq!(slowest, 3 * MS);
    });
}

#[test]
fn partitions_of_one_device_cannot_stand_in_for_each_other() {
    simulate(10, |_| {
        let disk = devices(1).remove(0);
        let parts = || -> Vec<Arc<dyn Device>> {
            let parts = Partition::split(disk.clone(), 3).expect("split");
            parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Device>).collect()
        };
        Log::create(LOG_ID, parts(), options(Hiding::On)).expect("create");
        let log = Log::open(parts(), options(Hiding::On), &mut |_| {}).and_then(|read| read.finish()).expect("open");
        load(&log, 4, 20, 300);
        disk.inject(Fault::SlowWrites { by: 50 * MS });
        load(&log, 4, 5, 300);
        let stats = log.stats();
        assert!(!stats.hides && stats.hiding == HidingStats::default(), "{stats:?}");
        let inspection = inspect(&parts()).expect("readable");
        assert!(inspection.devices.iter().all(|device| device.hiding_section_count == 0), "nothing is set apart");
    });
}
