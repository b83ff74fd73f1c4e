//! Two copies of everything: what counts, what may be lost, and what happens when too few devices are left.

use std::collections::BTreeMap;
use std::slice::from_ref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile, Partition};
use tantalum_log::{ArchiveOptions, Error, ErrorKind, Hiding, Log, LogLayout, LogOptions, Lsn, inspect};
use tantalum_rt::{JoinHandle, Outcome, Simulation, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, lock};
use crate::steps::{MS, append, flush, open_as, simulate};
use crate::world::{Survivors, cut};

fn options() -> LogOptions {
    LogOptions { section_bytes: Some(65536), hang_timeout: 100 * MS, copies: 2, ..LogOptions::default() }
}

/// Writes take about a millisecond.
fn devices<const N: usize>(names: [&str; N]) -> [Arc<MemoryDevice>; N] {
    devices_of(names, 2 << 20)
}

/// Of so many bytes.
fn devices_of<const N: usize>(names: [&str; N], bytes: u64) -> [Arc<MemoryDevice>; N] {
    let device = |name: &str| {
        let seed = name.bytes().map(u64::from).sum();
        let profile = MemoryProfile { write_latency: MS..MS * 3 / 2, seed, ..MemoryProfile::default() };
        MemoryDevice::with_profile(name, bytes, profile)
    };
    names.map(device)
}

fn open(devices: &[Arc<MemoryDevice>]) -> Result<(Log, Vec<u32>), Error> {
    open_as(devices, options())
}

fn create(devices: &[Arc<MemoryDevice>]) -> Log {
    Log::create(LOG_ID, as_devices(devices), options()).expect("create");
    open(devices).expect("open").0
}

/// Checkpoints whenever it is due.
fn owner(log: &Log) -> JoinHandle<()> {
    let log = log.clone();
    spawn("owner", move || {
        while log.wait_for_pressure(10_000 * MS) && log.set_checkpoint(log.durable_lsn()).is_ok() {
            sleep(MS);
        }
    })
}

/// On how many devices each request stands.
fn copies(devices: &[Arc<dyn Device>]) -> BTreeMap<(Lsn, Lsn), Vec<String>> {
    let mut copies: BTreeMap<_, Vec<String>> = BTreeMap::new();
    for device in inspect(devices).expect("inspect").devices {
        for request in device.requests {
            copies.entry((request.start, request.end)).or_default().push(device.name.clone());
        }
    }
    copies
}

#[test]
fn a_request_counts_when_two_devices_have_it() {
    simulate(20, |_| {
        let [a, b] = devices(["a", "b"]);
        let log = create(&[a.clone(), b.clone()]);
        b.inject(Fault::SlowWrites { by: 50 * MS });
        let end = append(&log, 1);
        let flushing = {
            let log = log.clone();
            spawn("flush", move || log.flush(end))
        };
        let ticket = log.ticket(end).expect("ticket");
        sleep(30 * MS);
        assert_eq!(copies(&as_devices(&[a.fork(), b.fork()])).values().map(Vec::len).collect::<Vec<_>>(), [1]);
        assert!(!flushing.is_finished() && ticket.is_done().is_none() && log.durable_lsn() == Lsn::ZERO);
        sleep(30 * MS);
        assert!(flushing.join().expect("no panic").is_ok() && log.durable_lsn() == end);
        let stats = log.stats();
        assert!(stats.keeps_copies && stats.copies == 2 && stats.single_copies == 0, "{stats:?}");
        assert_eq!(copies(&as_devices(&[a, b])).values().map(Vec::len).collect::<Vec<_>>(), [2]);
    });
}

#[test]
fn copies_are_on_different_hardware() {
    simulate(20, |seed| {
        let disks = devices(["x", "y", "z"]);
        let disks = &disks[..2 + seed as usize % 2];
        let parts: Vec<Arc<dyn Device>> = disks
            .iter()
            .flat_map(|disk| Partition::split(disk.clone() as Arc<dyn Device>, 2).expect("split"))
            .map(|part| Arc::new(part) as Arc<dyn Device>)
            .collect();
        Log::create(LOG_ID, parts.clone(), options()).expect("create");
        let log = Log::open(parts.clone(), options(), &mut |_| {}).expect("open").finish().expect("finish");
        let client = |n: u32| {
            let log = log.clone();
            spawn("client", move || (n * 10..n * 10 + 10).for_each(|n| _ = flush(&log, n)))
        };
        let clients: Vec<_> = (0..4).map(client).collect();
        sleep(10 * MS);
        disks[0].inject(Fault::SlowWrites { by: 20 * MS });
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        let disk = |part: &String| part.chars().next().expect("a name");
        for (request, on) in copies(&parts) {
            let mut hardware: Vec<char> = on.iter().map(disk).collect();
            hardware.sort_unstable();
            hardware.dedup();
            assert!(hardware.len() >= 2, "{request:?} on {on:?}");
            assert!(hardware.len() == on.len() || seed % 2 == 1, "{request:?} twice on one disk: {on:?}");
        }
        drop(log);
        // A disk takes both its partitions with it.
        for lost in disks {
            let rest: Vec<_> = parts.iter().filter(|part| part.hardware() != lost.hardware()).cloned().collect();
            let recovery = Log::open(rest, options(), &mut |_| {}).expect("open without a disk");
            assert_eq!(recovery.end_lsn(), Lsn::new(40 * 508));
        }
        let lost: Vec<_> = parts.iter().skip(1).step_by(2).cloned().collect();
        assert!(matches!(Log::open(lost, options(), &mut |_| {}), Err(error) if error.kind() == ErrorKind::Missing));
    });
}

/// With two devices, three and four: cuts at every moment, and then the loss of each device.
#[test]
fn after_a_power_cut_at_any_moment_any_one_device_may_be_lost() {
    for step in 0..90u64 {
        let count = 2 + step as usize % 3;
        let survivors: Survivors = Arc::default();
        let acknowledged = Arc::new(Mutex::new(0));
        let outcome = Simulation::new(step).time_limit(Duration::from_secs(10)).run({
            let (survivors, acknowledged) = (survivors.clone(), acknowledged.clone());
            move || {
                let all = devices(["a", "b", "c", "d"]);
                let all = &all[..count];
                let log = create(all);
                let owner = owner(&log);
                for client in 0..3 {
                    let (log, acknowledged) = (log.clone(), acknowledged.clone());
                    spawn("client", move || {
                        for n in 0.. {
                            let end = append(&log, 1000 * client + n);
                            log.flush(end).expect("flush");
                            let mut acknowledged = lock(&acknowledged);
                            *acknowledged = end.get().max(*acknowledged);
                        }
                    });
                }
                if step % 2 == 0 {
                    let late = all[step as usize % count].clone();
                    spawn("stalls", move || {
                        loop {
                            late.inject(Fault::SlowWrites { by: 10 * MS });
                            sleep(5 * MS);
                            late.clear_faults();
                            sleep(8 * MS);
                        }
                    });
                }
                sleep(Duration::from_micros(step * 700));
                assert!(!owner.is_finished());
                cut(all, &survivors)
            }
        });
        assert!(matches!(outcome, Outcome::PowerCut { .. }));
        let all = std::mem::take(&mut *lock(&survivors));
        let acknowledged = *lock(&acknowledged);
        Simulation::new(step)
            .run(move || {
                for lost in 0..all.len() {
                    let forks: Vec<_> = all.iter().map(|device| device.fork()).collect();
                    let rest: Vec<_> =
                        forks.iter().enumerate().filter(|&(at, _)| at != lost).map(|(_, d)| d.clone()).collect();
                    let (log, records) = open(&rest).expect("open without one device");
                    let end = log.end_lsn();
                    assert!(end.get() >= acknowledged, "{end} {acknowledged}");
                    let stats = log.stats();
                    assert_eq!(stats.keeps_copies, rest.len() > 1, "{stats:?}");
                    let absent = stats.devices.iter().find(|device| device.set_aside.is_some()).expect("one is absent");
                    assert_eq!((absent.ordinal, &*absent.name), (lost as u32, ""));
                    // What was recovered is on two devices again.
                    let whole = stats.may_lose_a_device;
                    assert_eq!(whole, rest.len() > 1, "{stats:?}");
                    flush(&log, 77);
                    drop(log);
                    if rest.len() > 1 {
                        assert_eq!(open(&rest[1..]).expect("open without another").1.len(), records.len() + 1);
                    }
                    // The lost device comes back with what it had: it is old, and known to be.
                    let (log, again) = open(&forks).expect("open with the device that was lost");
                    assert_eq!(again.len(), records.len() + 1);
                    assert!(log.end_lsn() > end);
                }
            })
            .expect_finished();
    }
}

/// Smaller devices take the place of one of two, or of both. The power fails at any moment of that, and then any one device may be lost.
#[test]
fn while_the_log_shrinks_any_one_device_may_be_lost() {
    let mut ended_on = BTreeMap::new();
    for step in 0..150u64 {
        let survivors: Survivors = Arc::default();
        let acknowledged = Arc::new(Mutex::new(0));
        let outcome = Simulation::new(step).time_limit(Duration::from_secs(10)).run({
            let (survivors, acknowledged) = (survivors.clone(), acknowledged.clone());
            move || {
                let all = [&devices(["a", "b"])[..], &devices_of(["c", "d"], (16 << 10) + 4 * (64 << 10))].concat();
                let log = create(&all[..2]);
                let owner = owner(&log);
                (0..20).for_each(|n| _ = flush(&log, n));
                let count = 1 + step as usize % 2;
                let shrinks = {
                    let (log, small) = (log.clone(), as_devices(&all[2..2 + count]));
                    let old: Vec<u32> = (0..count as u32).collect();
                    spawn("shrinking", move || log.shrink_devices(&old, &small, 65536))
                };
                let client = spawn("client", move || {
                    for n in 20.. {
                        let end = append(&log, n);
                        log.flush(end).expect("flush");
                        *lock(&acknowledged) = end.get();
                    }
                });
                sleep(Duration::from_micros(step * 300));
                if shrinks.is_finished() {
                    assert!(shrinks.join().expect("no panic").expect("no failure").is_some());
                }
                assert!(!owner.is_finished() && !client.is_finished());
                cut(&all, &survivors)
            }
        });
        assert!(matches!(outcome, Outcome::PowerCut { .. }));
        let all = std::mem::take(&mut *lock(&survivors));
        let acknowledged = *lock(&acknowledged);
        let names = Simulation::new(step)
            .run(move || {
                let open_members = |mut left: Vec<Arc<MemoryDevice>>| loop {
                    match open(&left) {
                        Ok((log, _)) => return (log, left),
                        Err(error) if error.kind() == ErrorKind::NotAMember => {
                            left.retain(|given| Some(given.name()) != error.about());
                        }
                        Err(error) => panic!("{error}"),
                    }
                };
                let forks = || all.iter().map(|device| device.fork()).collect::<Vec<_>>();
                let (log, members) = open_members(forks());
                assert!(log.end_lsn().get() >= acknowledged && log.stats().keeps_copies);
                for lost in &members {
                    let rest = forks().into_iter().filter(|device| device.name() != lost.name()).collect();
                    let (log, rest) = open_members(rest);
                    assert!(log.end_lsn().get() >= acknowledged, "without {}: {rest:?}", lost.name());
                    flush(&log, 7);
                }
                members.iter().map(|device| device.name().to_owned()).collect::<Vec<_>>().join(" ")
            })
            .expect_finished();
        *ended_on.entry(names).or_insert(0) += 1;
    }
    let seen = |names: &str| ended_on.get(names).is_some_and(|count| *count > 3);
    let listed = ["a b", "a b c", "a b c d", "b c", "c d"];
    assert!(listed.into_iter().all(seen), "{ended_on:?}");
}

#[test]
fn a_third_device_takes_the_copy_that_another_is_late_with() {
    // With hiding areas and without.
    for created in [Hiding::On, Hiding::Off] {
        simulate(10, move |_| {
            let [a, b, c] = devices(["a", "b", "c"]);
            let all = [a.clone(), b, c];
            let options = || LogOptions { hiding: Hiding::On, hang_timeout: 1000 * MS, ..options() };
            Log::create(LOG_ID, as_devices(&all), LogOptions { hiding: created, ..options() }).expect("create");
            let (log, _) = open_as(&all, options()).expect("open");
            (0..60).for_each(|n| _ = flush(&log, n));
            a.inject(Fault::SlowWrites { by: 300 * MS });
            (60..80).for_each(|n| assert!(flush(&log, n) < 20 * MS));
            let stats = log.stats();
            assert!(stats.hiding.won > 0 && stats.keeps_copies && stats.single_copies == 0, "{stats:?}");
            assert!(stats.devices.iter().all(|device| device.set_aside.is_none()), "{stats:?}");
            let on: Vec<usize> = copies(&as_devices(&all)).into_values().map(|on| on.len()).collect();
            assert!(on.iter().all(|&on| on >= 2), "{on:?}");
            drop(log);
            for lost in 0..3 {
                let rest: Vec<_> =
                    all.iter().enumerate().filter(|&(at, _)| at != lost).map(|(_, d)| d.fork()).collect();
                assert_eq!(open_as(&rest, options()).expect("open").1, (0..80).collect::<Vec<_>>());
            }
        });
    }
}

#[test]
fn with_one_device_left_the_log_goes_on_and_says_so_until_there_are_two_again() {
    simulate(20, |seed| {
        let [a, b, c] = devices(["a", "b", "c"]);
        let log = create(&[a.clone(), b.clone()]);
        (0..10).for_each(|n| _ = flush(&log, n));
        b.inject(if seed % 2 == 0 { Fault::HangWrites } else { Fault::FailWrites { after: 0 } });
        (10..20).for_each(|n| _ = flush(&log, n));
        let stats = log.stats();
        assert!(!stats.keeps_copies && stats.single_copies >= 10 && stats.mirrored_from_lsn.is_none(), "{stats:?}");
        assert!(log.wait_for_pressure(Duration::ZERO), "the owner is told to checkpoint");
        let before_checkpoint = a.fork();
        assert_eq!(open(from_ref(&before_checkpoint)).expect("it has everything").1, (0..20).collect::<Vec<_>>());
        log.set_checkpoint(Lsn::new(508)).expect("a checkpoint that covers little");
        let after_it = a.fork();
        assert_eq!(open(from_ref(&after_it)).expect("it has everything").1, (1..20).collect::<Vec<_>>());

        let owner = owner(&log);
        log.replace_devices(&[1], &as_devices(from_ref(&c))).expect("replace");
        (20..30).for_each(|n| _ = flush(&log, n));
        sleep(10 * MS);
        let stats = log.stats();
        assert!(stats.keeps_copies && stats.may_lose_a_device, "{stats:?}");
        (30..35).for_each(|n| _ = flush(&log, n));
        for only in [&a, &c] {
            let fork = only.fork();
            assert_eq!(open(from_ref(&fork)).expect("either has everything").1.last(), Some(&34));
        }
        log.close().expect("close");
        owner.join().expect("no panic");
    });
}

#[test]
fn a_device_that_fails_to_flush_when_the_log_is_opened_gives_what_others_lack() {
    simulate(20, |seed| {
        let all = devices(["a", "b", "c"]);
        let all = &all[..2 + seed as usize % 2];
        let log = create(all);
        (0..10).for_each(|n| _ = flush(&log, n));
        // They are set aside, and no checkpoint says so before the power goes.
        all[1..].iter().for_each(|device| device.inject(Fault::FailWrites { after: 0 }));
        (10..20).for_each(|n| _ = flush(&log, n));
        let forks: Vec<_> = all.iter().map(|device| device.fork()).collect();
        drop(log);
        forks[0].inject(Fault::FailFlushes { after: 0 });
        let (log, found) = open(&forks).expect("the first can be read");
        assert_eq!(found, (0..20).collect::<Vec<_>>());
        let stats = log.stats();
        assert!(stats.devices[0].set_aside.is_some() && stats.keeps_copies == (all.len() == 3), "{stats:?}");
        (20..25).for_each(|n| _ = flush(&log, n));
        // The others have all now, each of them if they are two.
        for other in &forks[1..] {
            let found = open(from_ref(&other.fork())).expect("without the first").1;
            assert_eq!(found, (0..25).collect::<Vec<_>>());
        }
    });
}

#[test]
fn a_device_that_is_needed_for_the_second_copy_stays() {
    simulate(10, |_| {
        let [a, b, c] = devices(["a", "b", "c"]);
        let log = create(&[a.clone(), b.clone()]);
        let owner = owner(&log);
        let refused = log.remove_devices(&[0]);
        assert!(
            matches!(&refused, Err(error) if error.to_string().contains("cannot be removed, the log keeps two copies") && error.to_string().starts_with("a: ")),
            "{refused:?}"
        );
        log.replace_devices(&[0], &as_devices(from_ref(&c))).expect("replace");
        (0..5).for_each(|n| _ = flush(&log, n));
        b.inject(Fault::FailWrites { after: 0 });
        (5..10).for_each(|n| _ = flush(&log, n));
        assert!(
            matches!(log.remove_devices(&[2]), Err(error) if error.to_string().contains("cannot be removed, no other device of the"))
        );
        log.remove_devices(&[1]).expect("one that was set aside may go");
        flush(&log, 10);
        log.close().expect("close");
        owner.join().expect("no panic");
        open(&[c]).expect("open");
    });
}

#[test]
fn the_archive_is_none_of_the_copies_and_may_be_lost_too() {
    simulate(20, |seed| {
        let [a, b, disk] = devices(["a", "b", "disk"]);
        let with = |disk: &Arc<MemoryDevice>| {
            let archive = ArchiveOptions { delay: MS, ..ArchiveOptions::on_device(disk.clone()) };
            LogOptions { archive: Some(archive), ..options() }
        };
        let both = [a.clone(), b.clone()];
        Log::create(LOG_ID, as_devices(&both), with(&disk)).expect("create");
        let (log, _) = open_as(&both, with(&disk)).expect("open");
        (0..10).for_each(|n| _ = flush(&log, n));
        b.inject(Fault::SlowWrites { by: 50 * MS });
        let took = flush(&log, 10);
        assert!(took > 40 * MS, "the archive does not stand in for a device: {took:?}");
        b.clear_faults();
        log.flush_archived(log.end_lsn()).expect("archived");
        (11..15).for_each(|n| _ = flush(&log, n));
        assert_eq!(log.stats().archive.expect("there is one").completed, 0);
        drop(log);

        let all = (0..15).collect::<Vec<_>>();
        let fork = |device: &Arc<MemoryDevice>| device.fork();
        let blank = &devices(["disk"])[0];
        assert_eq!(open_as(&both.each_ref().map(fork), with(blank)).expect("without the archive").1, all);
        assert_eq!(open(&both.each_ref().map(fork)).expect("without an archive at all").1, all);
        let survivor = fork(&both[seed as usize % 2]);
        assert_eq!(open_as(&[survivor], with(&fork(&disk))).expect("without a device").1, all);
    });
}

#[test]
fn a_log_may_begin_and_end_to_keep_two_copies() {
    simulate(20, |_| {
        let both = devices(["a", "b"]);
        let single = || LogOptions { copies: 1, ..options() };
        Log::create(LOG_ID, as_devices(&both), single()).expect("create");
        let (log, _) = open_as(&both, single()).expect("open");
        (0..20).for_each(|n| _ = flush(&log, n));
        drop(log);
        let forks = both.each_ref().map(|device| device.fork());
        assert!(matches!(open(&forks[..1]), Err(error) if error.kind() == ErrorKind::Missing), "there was one copy");
        let (log, records) = open(&both).expect("open");
        assert_eq!(records.len(), 20);
        drop(log);
        for fork in both.each_ref().map(|device| device.fork()) {
            assert_eq!(open(&[fork]).expect("the copies were made").1.len(), 20);
        }
        let (log, _) = open_as(&both, single()).expect("open");
        flush(&log, 20);
        drop(log);
        for fork in both.each_ref().map(|device| device.fork()) {
            assert!(
                matches!(open(&[fork]), Err(error) if error.kind() == ErrorKind::Missing),
                "there is one copy again"
            );
        }
    });
}

#[test]
fn two_copies_need_two_pieces_of_hardware_and_the_layout() {
    simulate(1, |_| {
        let [a, b] = devices(["a", "b"]);
        let parts = Partition::split(a.clone() as Arc<dyn Device>, 2).expect("split");
        let parts: Vec<Arc<dyn Device>> = parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Device>).collect();
        for refused in [
            Log::create(LOG_ID, parts, options()),
            Log::create(LOG_ID, as_devices(from_ref(&a)), options()),
            Log::create(LOG_ID, as_devices(&[a, b]), LogOptions { layout: LogLayout::Single, ..options() }),
        ] {
            assert!(
                matches!(&refused, Err(error) if error.to_string().contains("log option copies is 2, but ")),
                "{refused:?}"
            );
        }
    });
}
