//! Devices that fail, hang, are missing, or come in another order.

use std::error::Error as _;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile, Partition};

use tantalum_log::{Error, ErrorKind, Log, LogOptions, LostDevice, Lsn, MissingDevice, inspect};
use tantalum_rt::{Simulation, now, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, lock, random};
use crate::steps::{is_missing, numbers, read, simulate};

fn options() -> LogOptions {
    LogOptions { section_bytes: Some(65536), hang_timeout: Duration::from_millis(5), ..LogOptions::default() }
}

fn devices(count: usize) -> Vec<Arc<MemoryDevice>> {
    devices_of(count, 1 << 20)
}

fn devices_of(count: usize, bytes: u64) -> Vec<Arc<MemoryDevice>> {
    let us = Duration::from_micros;
    let profile = |seed| MemoryProfile { write_latency: us(50)..us(150), seed, ..MemoryProfile::default() };
    (0..count).map(|n| MemoryDevice::with_profile(format!("log-{n}"), bytes, profile(n as u64))).collect()
}

fn create(devices: &[Arc<MemoryDevice>]) {
    Log::create(LOG_ID, as_devices(devices), options()).expect("create");
}

fn open(devices: &[Arc<MemoryDevice>]) -> Result<(Log, Vec<Vec<u8>>), Error> {
    read(Log::open(as_devices(devices), options(), &mut |_| {})?)
}

fn append(log: &Log, n: u32) -> Lsn {
    log.append(&[&n.to_le_bytes()]).expect("append").end
}

/// `count` clients flush `each` records; numbers are counted from 0 by client.
fn load(log: &Log, count: u32, each: u32) {
    let clients: Vec<_> = (0..count)
        .map(|client| {
            let log = log.clone();
            spawn(format!("client-{client}"), move || {
                for n in 0..each {
                    let end = append(&log, client * each + n);
                    log.flush(end).expect("flush");
                }
            })
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
}

#[test]
fn a_failing_device_is_set_aside_and_nothing_is_lost() {
    simulate(60, |seed| {
        let devices = devices(2 + seed as usize % 3);
        create(&devices);
        let (log, _) = open(&devices).expect("open");
        let fault = if seed % 2 == 0 { Fault::HangWrites } else { Fault::FailWrites { after: seed % 7 } };
        devices[seed as usize % devices.len()].inject(fault);
        // So many that each device gets some.
        load(&log, 3, 60);
        let stats = log.stats();
        let aside: Vec<_> = stats.devices.iter().filter(|device| device.set_aside.is_some()).collect();
        assert_eq!(aside.len(), 1, "{stats:?}");
        let Some(cause) = &aside[0].set_aside else { panic!("{stats:?}") };
        assert!(cause.to_string().contains(&aside[0].name), "{cause:?}");
        let is_of_device = cause.is_io() && cause.source().is_some();
        assert!(is_of_device || cause.kind() == ErrorKind::TimedOut, "{cause:?}");
        assert!(log.wait_for_pressure(Duration::ZERO), "the owner is told to checkpoint");
        drop(log);

        let survivors: Vec<_> = devices.iter().map(|device| device.fork()).collect();
        sleep(Duration::from_millis(1));
        let (_, records) = open(&survivors).expect("reopen with the device that failed");
        let mut numbers = numbers(&records);
        numbers.sort_unstable();
        assert_eq!(numbers, (0..180).collect::<Vec<_>>());
    });
}

#[test]
fn a_device_set_aside_may_go_once_a_checkpoint_covers_it() {
    simulate(40, |seed| {
        let devices = devices(2);
        create(&devices);
        let (log, _) = open(&devices).expect("open");
        load(&log, 2, 5);
        let victim = seed as usize % 2;
        devices[victim].inject(Fault::FailWrites { after: 0 });
        load(&log, 2, 5);
        let rest: Vec<_> = devices.iter().filter(|device| device.name() != devices[victim].name()).cloned().collect();
        drop(log.clone());

        let before: Vec<_> = rest.iter().map(|device| device.fork()).collect();
        assert!(matches!(open(&before), Err(error) if is_missing(&error, victim as u32)));

        log.set_checkpoint(Lsn::new(8)).expect("a checkpoint that does not cover it");
        let before: Vec<_> = rest.iter().map(|device| device.fork()).collect();
        assert!(matches!(open(&before), Err(error) if error.kind() == ErrorKind::Missing));
        assert!(log.wait_for_pressure(Duration::ZERO));

        log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        assert!(!log.wait_for_pressure(Duration::ZERO), "nothing on it is needed any more");
        let end = append(&log, 7);
        log.flush(end).expect("flush");
        drop(log);
        let (log, records) = open(&rest).expect("open without the device");
        assert_eq!(numbers(&records), [7]);
        assert!(log.stats().devices[victim].set_aside.is_some());
        load(&log, 2, 5);
        drop(log);

        // The device comes back, repaired but with old contents.
        devices[victim].clear_faults();
        let (log, records) = open(&devices).expect("open with the old device");
        assert_eq!(records.len(), 11);
        assert!(log.stats().devices[victim].set_aside.is_none());
        load(&log, 4, 5);
        drop(log);
        assert!(matches!(open(&rest), Err(error) if error.kind() == ErrorKind::Missing), "it is needed again");
        assert_eq!(open(&devices).expect("open").1.len(), 31);
    });
}

#[test]
fn without_any_device_every_call_returns_the_first_cause() {
    simulate(40, |seed| {
        let devices = devices(1 + seed as usize % 3);
        create(&devices);
        let (log, _) = open(&devices).expect("open");
        let clients: Vec<_> = (0..4)
            .map(|client| {
                let log = log.clone();
                spawn(format!("client-{client}"), move || {
                    loop {
                        let flushed = log.append(&[b"record"]).and_then(|record| log.flush(record.end));
                        if let Err(error) = flushed {
                            assert!(error.kind() == ErrorKind::Poisoned, "{error}");
                            return error.to_string();
                        }
                    }
                })
            })
            .collect();
        sleep(Duration::from_millis(1));
        for device in &devices {
            // One that hangs alone is waited for.
            let hangs = seed % 2 == 0 && devices.len() > 1;
            device.inject(if hangs { Fault::HangWrites } else { Fault::FailWrites { after: 3 } });
        }
        let causes: Vec<String> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
        assert!(causes.iter().all(|cause| *cause == causes[0] && cause.contains("log-")), "{causes:?}");
        let poisoned = |result: Result<(), Error>| {
            assert!(matches!(&result, Err(error) if error.kind() == ErrorKind::Poisoned), "{result:?}")
        };
        poisoned(log.append(&[b"more"]).map(drop));
        poisoned(log.set_checkpoint(log.durable_lsn()));
        poisoned(log.wait_for_space(10).map(drop));
        poisoned(log.close());
        assert!(log.flush(log.durable_lsn()).is_ok(), "what is durable stays so");
    });
}

#[test]
fn what_hangs_is_waited_for_if_nothing_can_take_its_place() {
    simulate(20, |seed| {
        let disk = devices(1).remove(0);
        let log_devices = || -> Vec<Arc<dyn Device>> {
            let parts = Partition::split(disk.clone(), 1 + seed as usize % 2).expect("split");
            parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Device>).collect()
        };
        Log::create(LOG_ID, log_devices(), options()).expect("create");
        let open = || Log::open(log_devices(), options(), &mut |_| {}).and_then(|recovery| recovery.finish());
        let log = open().expect("open");
        disk.inject(Fault::HangWrites);
        let repair = {
            let (disk, patience) = (disk.clone(), options().hang_timeout * 20);
            spawn("repair", move || {
                sleep(patience);
                disk.clear_faults();
            })
        };
        load(&log, 3, 10);
        assert!(log.stats().devices.iter().all(|device| device.set_aside.is_none()), "{:?}", log.stats());
        repair.join().expect("no panic");
    });
}

#[test]
fn the_order_of_devices_does_not_matter_but_their_identity_does() {
    let devices = devices(3);
    create(&devices);
    let (log, _) = open(&devices).expect("open");
    load(&log, 2, 20);
    log.close().expect("close");
    assert!(matches!(log.append(&[b"late"]), Err(error) if error.kind() == ErrorKind::Closed));
    drop(log);

    let rotated = [devices[2].clone(), devices[0].clone(), devices[1].clone()];
    let mut recovery = Log::open(as_devices(&rotated), options(), &mut |_| {}).expect("in another order");
    assert!(recovery.was_clean());
    let mut count = 0;
    while recovery.next_record().expect("readable").is_some() {
        count += 1;
    }
    assert_eq!(count, 40);

    let other = MemoryDevice::new("other", 1 << 20);
    Log::create(99, as_devices(std::slice::from_ref(&other)), options()).expect("create");
    let blank = MemoryDevice::new("blank", 1 << 20);
    let with = |extra: &Arc<MemoryDevice>| open(&[devices[0].clone(), devices[1].clone(), extra.clone()]).unwrap_err();
    assert!(
        matches!(with(&other), error if error.kind() == ErrorKind::Mismatch && error.to_string().starts_with("other: "))
    );
    assert!(matches!(with(&blank), error if error.kind() == ErrorKind::NotAMember && error.about() == Some("blank")));
    assert!(matches!(with(&devices[1]), error if error.to_string().contains("be log device 1 (superblock at")));
    assert!(matches!(open(&devices[..2]), Err(error) if is_missing(&error, 2)));
    assert!(matches!(open(&[]), Err(error) if error.to_string().contains("a log needs at least one device; pass the")));
}

#[test]
fn a_missing_device_is_refused_with_exactly_the_records_that_go_with_it() {
    let ranges_named = Arc::new(Mutex::new(0));
    let count = Arc::clone(&ranges_named);
    simulate(60, move |seed| {
        let devices = devices(2 + seed as usize % 3);
        create(&devices);
        let (log, _) = open(&devices).expect("open");
        load(&log, 4, 10);
        log.set_checkpoint(Lsn::new(seed * 5 % 300)).expect("checkpoint");
        let (checkpoint, end) = (log.checkpoint_lsn(), log.durable_lsn());
        if seed % 2 == 0 {
            log.close().expect("close");
        }
        drop(log);
        let held = inspect(&as_devices(&devices)).expect("inspect").devices;
        for (lost, its) in held.iter().enumerate() {
            let rest: Vec<_> = devices.iter().filter(|device| device.name() != its.name).cloned().collect();
            let Err(error) = open(&rest) else { panic!("opened without {}", its.name) };
            let Some(MissingDevice { ordinal, missing, reason: None, .. }) = error.cause() else { panic!("{error}") };
            assert_eq!(*ordinal, lost as u32);
            let others = held.iter().filter(|other| other.name != its.name).flat_map(|other| &other.requests);
            let others: Vec<_> = others.map(|request| (request.start, request.end)).collect();
            let is_in = |ranges: &[(Lsn, Lsn)], at| ranges.iter().any(|&(start, end)| start <= at && at < end);
            let ranges: Vec<_> = missing.ranges.iter().map(|range| (range.start, range.end)).collect();
            assert_eq!(missing.from.is_none(), seed % 2 == 0, "where it was closed is known");
            let from = missing.from.unwrap_or(end);
            for at in (checkpoint.get()..from.get()).map(Lsn::new) {
                assert!(is_in(&ranges, at) != is_in(&others, at), "{at}: {missing} {others:?}");
            }
            assert!(ranges.iter().all(|range| checkpoint <= range.0 && range.1 <= from), "{missing}");
            // Of what followed, those that are there know nothing.
            assert!(others.iter().all(|other| other.1 <= from) && from <= end);
            *lock(&count) += ranges.len();
        }
    });
    assert!(*lock(&ranges_named) > 100);
}

#[test]
fn a_lost_device_is_given_up_if_and_only_if_nothing_on_it_is_needed() {
    let outcomes = Arc::new(Mutex::new((0, 0)));
    let counted = Arc::clone(&outcomes);
    simulate(60, move |seed| {
        let devices = devices(2 + seed as usize % 3);
        create(&devices);
        let (log, _) = open(&devices).expect("open");
        load(&log, 3, 10);
        let (end, is_closed) = (log.durable_lsn(), seed % 4 > 0);
        log.set_checkpoint(if seed % 3 == 0 { end } else { Lsn::new(seed * 4 % 240) }).expect("checkpoint");
        let checkpoint = log.checkpoint_lsn();
        if is_closed {
            log.close().expect("close");
        }
        drop(log);
        let give_up = |rest: &[Arc<MemoryDevice>], lost: LostDevice| {
            Log::give_up(&as_devices(rest), &options(), &lost, &mut |_| {})
        };
        for its in inspect(&as_devices(&devices)).expect("inspect").devices {
            let (lost, rest): (Vec<_>, Vec<_>) =
                devices.iter().map(|device| device.fork()).partition(|device| device.name() == its.name);
            let device = if seed % 2 == 0 {
                LostDevice::Ordinal(its.ordinal)
            } else {
                LostDevice::Identities(vec![its.device_id, 1])
            };
            assert!(
                matches!(give_up(&devices, device.clone()), Err(error) if error.kind() == ErrorKind::InUse && error.to_string().starts_with(&format!("{}: ", its.name)))
            );
            let unknown = give_up(&rest, LostDevice::Ordinal(9));
            assert!(matches!(&unknown, Err(error) if error.kind() == ErrorKind::NotFound));
            let before: Vec<_> = rest.iter().map(|device| device.image()).collect();
            let is_needed = !is_closed || its.requests.iter().any(|request| request.end > checkpoint);
            match give_up(&rest, device.clone()) {
                Err(error) if error.kind() == ErrorKind::Missing => {
                    let MissingDevice { missing, .. } = error.cause().expect("it says what is missing");
                    assert!(is_needed && !missing.is_nothing(), "{missing}");
                    let after: Vec<_> = rest.iter().map(|device| device.image()).collect();
                    assert!(before == after, "nothing is written");
                    lock(&counted).0 += 1;
                }
                given_up => {
                    given_up.expect("given up");
                    assert!(!is_needed);
                    give_up(&rest, device).expect("once more");
                    // If it turns up now after all, it is as it was.
                    let all: Vec<_> = rest.iter().chain(&lost).map(|device| device.fork()).collect();
                    assert_eq!(open(&all).expect("open with it").0.durable_lsn(), end);
                    let (log, records) = open(&rest).expect("open without it");
                    assert_eq!((log.durable_lsn(), records.len() as u64), (end, end.bytes_since(checkpoint) / 8));
                    log.remove_devices(&[its.ordinal]).expect("remove");
                    drop(log);
                    let all: Vec<_> = rest.iter().chain(&lost).cloned().collect();
                    assert!(
                        matches!(open(&all), Err(error) if error.kind() == ErrorKind::NotAMember && error.about() == Some(its.name.as_str()))
                    );
                    lock(&counted).1 += 1;
                }
            }
        }
    });
    let (refused, given_up) = *lock(&outcomes);
    assert!(refused > 50 && given_up > 30, "{refused} refused, {given_up} given up");
}

#[test]
fn a_read_error_is_never_the_end_of_the_log() {
    let devices = devices(2);
    create(&devices);
    let (log, _) = open(&devices).expect("open");
    load(&log, 2, 50);
    drop(log);
    for after in 0.. {
        let forks: Vec<_> = devices.iter().map(|device| device.fork()).collect();
        forks[1].inject(Fault::FailReads { after });
        match open(&forks) {
            Err(error) => {
                let reason = error.first_cause();
                assert_eq!(reason.kind(), ErrorKind::Unreadable, "{reason}");
            }
            Ok((_, records)) => {
                assert_eq!(records.len(), 100);
                assert!(after > 5, "the reads that are needed had failed");
                break;
            }
        }
    }
}

#[test]
fn waiting_returns_when_another_device_has_the_record() {
    // A slow device delays unknown but those whose records it holds.
    Simulation::new(3)
        .run(|| {
            let devices = devices(2);
            create(&devices);
            let (log, _) = open(&devices).expect("open");
            load(&log, 2, 10);
            devices[0].inject(Fault::SlowWrites { by: Duration::from_millis(4) });
            load(&log, 2, 10); // both latencies are learnt
            let start = now();
            load(&log, 1, 100);
            assert!(start.elapsed() < Duration::from_millis(60), "{:?}", start.elapsed());
        })
        .expect_finished();
}

#[test]
fn more_sessions_than_a_slot_remembers() {
    Simulation::new(1)
        .run(|| {
            let device = |n| MemoryDevice::new(format!("log-{n}"), 16 << 20);
            let mut devices = [device(0), device(1)];
            create(&devices);
            let mut random = random(1);
            for session in 0..150 {
                let (log, records) = open(&devices).expect("open");
                assert_eq!(numbers(&records), (0..session).collect::<Vec<_>>());
                let end = append(&log, session);
                log.flush(end).expect("flush");
                drop(log);
                // What is under way when the power goes was not acknowledged.
                devices = devices.map(|device| device.fork());
                devices.iter().for_each(|device| device.power_cut(&mut random));
            }
        })
        .expect_finished();
}

/// Two devices, one of which holds back the first request, so that the other's later ones are left behind a gap.
fn leave_orphans(devices: &[Arc<MemoryDevice>], options: LogOptions, requests: u32) -> Vec<Arc<MemoryDevice>> {
    let slow = usize::from(options.copies);
    let (log, _) = read(Log::open(as_devices(devices), options, &mut |_| {}).expect("open")).expect("open");
    devices[..slow].iter().for_each(|device| device.inject(Fault::SlowWrites { by: Duration::from_millis(3) }));
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let log = log.clone();
            spawn(format!("client-{client}"), move || {
                for n in 0..requests {
                    let Ok(record) = log.append(&[&(1000 + n).to_le_bytes(), &[client; 9000]]) else { return };
                    if n % 2 == 0 && log.flush(record.end).is_err() {
                        return;
                    }
                }
            })
        })
        .collect();
    sleep(Duration::from_millis(2));
    let forks: Vec<_> = devices.iter().map(|device| device.fork()).collect();
    forks.iter().for_each(|device| device.clear_faults());
    drop(clients);
    forks
}

#[test]
fn what_a_crash_left_behind_never_comes_back_nor_keeps_space() {
    simulate(60, |seed| {
        let mut devices = devices(2);
        create(&devices);
        let mut random = random(seed);
        for round in 0..4 {
            devices = leave_orphans(&devices, options(), 10 + seed as u32 % 90);
            devices.iter().for_each(|device| device.power_cut(&mut random));
            // Records of the same size as those left behind, so that these would follow without a gap.
            let (log, _) = open(&devices).expect("open");
            for _ in 0..=round {
                let record = log.append(&[&[0; 4], &[99; 9000]]).expect("append");
                log.flush(record.end).expect("flush");
            }
            let end = log.end_lsn();
            drop(log);
            let recovery = Log::open(as_devices(&devices), options(), &mut |_| {}).expect("open");
            assert_eq!(recovery.end_lsn(), end, "nothing comes back behind the end");
        }
        let (log, _) = open(&devices).expect("open");
        let start = log.end_lsn();
        log.set_checkpoint(start).expect("checkpoint");
        assert_eq!(log.stats().used_bytes, 0, "void requests keep no sections");
        load(&log, 3, 30);
        drop(log);
        let (_, records) = open(&devices).expect("open");
        let mut found = numbers(&records);
        found.sort_unstable();
        assert_eq!(found, (0..90).collect::<Vec<_>>());
    });
}

/// The owner needs the newest record always, so that it can release the log only up to that one's start. What crashes leave
/// behind it keeps the device that has it full, or both; the others have room for a record that takes its place.
#[test]
fn an_owner_that_keeps_one_record_gets_room_however_often_it_crashed() {
    for copies in 1..=2 {
        let refused = crash_often(copies, |_, log| {
            relieve(&log);
            ControlFlow::Continue(())
        });
        assert!(refused > 5, "it was necessary with {copies} copies");
    }
}

/// Crashes the log of an owner that keeps the newest record again and again, with twice as many devices as copies, and gives it to `owner` whenever it
/// has no room. Returns how often that was, of 20 seeds.
fn crash_often(
    copies: u8,
    owner: impl Fn(&[Arc<MemoryDevice>], Log) -> ControlFlow<()> + Copy + Send + Sync + 'static,
) -> u64 {
    let refused = Arc::new(AtomicU64::new(0));
    let refused_then = Arc::clone(&refused);
    simulate(20, move |seed| {
        let options = || LogOptions { copies, ..options() };
        let mut devices = devices_of(2 * usize::from(copies), 400 << 10);
        Log::create(LOG_ID, as_devices(&devices), options()).expect("create");
        let mut random = random(seed);
        for _ in 0..40 {
            if let Some(log) = without_room(&devices, options()) {
                refused_then.fetch_add(1, Ordering::Relaxed);
                if owner(&devices, log).is_break() {
                    return;
                }
            }
            devices = leave_orphans(&devices, options(), 100);
            devices.iter().for_each(|device| device.power_cut(&mut random));
        }
    });
    refused.load(Ordering::Relaxed)
}

/// The log of an owner that keeps the newest record, if that leaves no room for others.
fn without_room(devices: &[Arc<MemoryDevice>], options: LogOptions) -> Option<Log> {
    let mut recovery = Log::open(as_devices(devices), options, &mut |_| {}).expect("open");
    let mut newest = None;
    while let Some(record) = recovery.next_record().expect("intact") {
        newest = Some(record.start);
    }
    let log = recovery.finish().expect("finish");
    let newest = newest.unwrap_or_else(|| {
        let first = log.append(&[b"the newest"]).expect("an empty log has room");
        log.flush(first.end).expect("flush");
        first.start
    });
    log.set_checkpoint(newest).expect("it is durable");
    let appended = log.append(&[&[5; 9000]]);
    matches!(appended, Err(error) if error.kind() == ErrorKind::LogFull).then_some(log)
}

/// Puts a record in the place of the one that the owner keeps.
fn relieve(log: &Log) {
    let relief = log.append_to_relieve(&[b"instead of it"]).expect("there are devices with room");
    log.flush(relief.end).expect("flush");
    log.set_checkpoint(relief.start).expect("it is durable");
    log.append(&[&[5; 9000]]).expect("there is room again");
}

/// The only devices with room fail when the owner needs it: the record waits for another device.
#[test]
fn an_owner_that_keeps_one_record_goes_on_with_a_device_in_the_place_of_one_that_failed() {
    static WAITED: AtomicU64 = AtomicU64::new(0);
    for copies in 1..=2 {
        crash_often(copies, |devices, log| {
            devices[0].inject(Fault::FailWrites { after: 0 });
            let owner = spawn("owner", {
                let log = log.clone();
                move || relieve(&log)
            });
            sleep(Duration::from_millis(20));
            if !owner.is_finished() {
                WAITED.fetch_add(1, Ordering::Relaxed);
                log.add_devices(&as_devices(&devices_of(1, 400 << 10))).expect("a new device");
            }
            owner.join().expect("no panic");
            ControlFlow::Break(())
        });
        assert!(WAITED.swap(0, Ordering::Relaxed) > 2, "with {copies} copies");
    }
}
