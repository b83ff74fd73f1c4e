//! Devices that join and leave a log that runs.

use std::error::Error as _;
use std::slice::from_ref;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Fault, MemoryDevice, MemoryProfile};
use tantalum_log::{Error, ErrorKind, Log, LogDeviceStats, LogOptions, Lsn};
use tantalum_rt::{JoinHandle, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, random};
use crate::steps::{is_missing, open_as, simulate};

fn options() -> LogOptions {
    LogOptions { section_bytes: Some(65536), hang_timeout: Duration::from_millis(5), ..LogOptions::default() }
}

fn device(name: &str, blocks: u64) -> Arc<MemoryDevice> {
    let us = Duration::from_micros;
    let seed = name.bytes().map(u64::from).sum();
    let profile = MemoryProfile { write_latency: us(50)..us(150), seed, ..MemoryProfile::default() };
    MemoryDevice::with_profile(name, blocks * 4096, profile)
}

pub fn devices<const N: usize>(names: [&str; N]) -> [Arc<MemoryDevice>; N] {
    names.map(|name| device(name, 256))
}

pub fn create(devices: &[Arc<MemoryDevice>]) -> Log {
    Log::create(LOG_ID, as_devices(devices), options()).expect("create");
    open(devices).expect("open").0
}

pub fn open(devices: &[Arc<MemoryDevice>]) -> Result<(Log, Vec<u32>), Error> {
    open_as(devices, options())
}

pub fn append(log: &Log, n: u32) -> Lsn {
    let end = log.append(&[&n.to_le_bytes(), &[7; 700]]).expect("append").end;
    log.flush(end).expect("flush");
    end
}

pub fn append_all(log: &Log, numbers: std::ops::Range<u32>) {
    for n in numbers {
        append(log, n);
    }
}

/// Checkpoints whenever it is due.
pub fn owner(log: &Log) -> JoinHandle<()> {
    let log = log.clone();
    spawn("owner", move || {
        while log.wait_for_pressure(Duration::from_secs(10)) {
            sleep(Duration::from_micros(300));
            if log.set_checkpoint(log.durable_lsn()).is_err() {
                return;
            }
        }
    })
}

/// Appends until the log stops. Returns the first error.
fn client(log: &Log) -> JoinHandle<Error> {
    let log = log.clone();
    spawn("client", move || {
        for n in 0u32.. {
            let appended = log.append(&[&n.to_le_bytes(), &[7; 2000]]);
            let done = match appended {
                Ok(record) => log.flush(record.end),
                Err(error) if error.kind() == ErrorKind::LogFull => log.wait_for_space(2004).map(drop),
                Err(error) => Err(error),
            };
            if let Err(error) = done {
                return error;
            }
        }
        unreachable!("the log ends before the numbers do")
    })
}

pub fn names(log: &Log) -> Vec<String> {
    log.stats().devices.into_iter().map(|device| device.name).collect()
}

/// Whether a device takes requests, and is neither joining nor leaving.
fn serves(device: &LogDeviceStats) -> bool {
    device.set_aside.is_none() && !device.is_changing
}

#[test]
fn a_device_joins_takes_requests_and_is_needed_from_then_on() {
    simulate(20, |_| {
        let [a, b] = devices(["a", "b"]);
        let log = create(from_ref(&a));
        append(&log, 0);
        let before = a.fork();
        assert_eq!(log.add_devices(&as_devices(from_ref(&b))).expect("add"), [1]);
        assert_eq!(names(&log), ["a", "b"]);
        assert!(log.stats().devices.iter().all(serves));
        let clients: Vec<_> = (0..3)
            .map(|n| {
                let log = log.clone();
                spawn("client", move || append_all(&log, 1 + 100 * n..101 + 100 * n))
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        assert!(log.stats().devices[1].writes > 5, "{:?}", log.stats().devices);
        assert!(
            matches!(log.add_devices(&as_devices(from_ref(&b))), Err(error) if error.kind() == ErrorKind::AlreadyExists)
        );
        drop(log);

        assert!(matches!(open(from_ref(&a)), Err(error) if is_missing(&error, 1)));
        let (log, mut records) = open(&[b, a]).expect("open");
        records.sort_unstable();
        assert_eq!(records, (0..301).collect::<Vec<_>>());
        drop(log);
        assert_eq!(open(&[before]).expect("the log as it was before").1, [0]);
    });
}

#[test]
fn a_device_leaves_only_when_a_checkpoint_covers_what_it_holds() {
    simulate(40, |seed| {
        let both = devices(["a", "b"]);
        let log = create(&both);
        append_all(&log, 0..20);
        let end = log.durable_lsn();
        let remover = {
            let log = log.clone();
            spawn("remover", move || log.remove_devices(&[0]))
        };
        sleep(Duration::from_millis(1));
        assert!(log.stats().devices[0].is_changing);
        let writes = log.stats().devices[0].writes;
        append_all(&log, 20..30);
        assert_eq!(log.stats().devices[0].writes, writes, "it takes no more requests");
        assert!(!remover.is_finished() && log.wait_for_pressure(Duration::ZERO), "its records are needed");
        // Whatever happens now, both devices are needed.
        let mut forks = both.each_ref().map(|device| device.fork());
        forks.iter_mut().for_each(|device| device.power_cut(&mut random(seed)));
        assert!(matches!(open(&forks[1..]), Err(error) if is_missing(&error, 0)));
        assert_eq!(open(&forks).expect("open").1, (0..30).collect::<Vec<_>>());

        log.set_checkpoint(end).expect("checkpoint");
        remover.join().expect("no panic").expect("removed");
        assert_eq!(names(&log), ["b"]);
        append(&log, 30);
        drop(log);
        let mut forks = both.each_ref().map(|device| device.fork());
        forks.iter_mut().for_each(|device| device.power_cut(&mut random(seed)));
        assert_eq!(open(&forks[1..]).expect("open").1, (20..31).collect::<Vec<_>>());
    });
}

#[test]
fn a_device_stays_when_its_owner_cannot_checkpoint() {
    simulate(20, |_| {
        let log = create(&devices(["a", "b"]));
        append_all(&log, 0..20);
        log.report_failed_checkpoint("before a removal waited");
        let remover = {
            let log = log.clone();
            spawn("remover", move || log.remove_devices(&[0]))
        };
        sleep(Duration::from_millis(1));
        assert!(!remover.is_finished());
        log.report_failed_checkpoint("the data device is gone");
        let refused = remover.join().expect("no panic");
        assert!(
            matches!(&refused, Err(error) if error.source().unwrap().to_string() == "the data device is gone"),
            "{refused:?}"
        );
        let writes = log.stats().devices[0].writes;
        append_all(&log, 20..40);
        let stats = &log.stats().devices[0];
        assert!(serves(stats) && stats.writes > writes, "it serves as before: {stats:?}");
        // The next try is a new one.
        log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        log.remove_devices(&[0]).expect("removed");
    });
}

#[test]
fn what_was_removed_is_refused_by_name_and_never_brings_its_records_back() {
    simulate(20, |_| {
        let [a, b, c] = devices(["a", "b", "c"]);
        let log = create(&[a.clone(), b.clone()]);
        append_all(&log, 0..20);
        let (old_a, old_b) = (a.fork(), b.fork());
        let owner = owner(&log);
        log.replace_devices(&[0], &as_devices(from_ref(&c))).expect("replace");
        assert_eq!(names(&log), ["b", "c"]);
        let end = append(&log, 100);
        log.set_checkpoint(end).expect("checkpoint");
        log.close().expect("close");
        owner.join().expect("no panic");
        drop(log);

        for removed in [&a, &old_a] {
            for others in [vec![], vec![b.clone(), c.clone()]] {
                let mut given = others.clone();
                given.push(removed.clone());
                let error = open(&given).unwrap_err();
                let refused = error.kind() == ErrorKind::NotAMember && error.about() == Some("a");
                let missing = error.kind() == ErrorKind::Missing && others.is_empty();
                assert!(refused || missing, "{error}");
            }
        }
        assert!(
            matches!(open(from_ref(&a)), Err(error) if error.kind() == ErrorKind::NotAMember),
            "it knows that it was removed"
        );
        // An old image of a device that stayed is no substitute for it.
        assert!(
            matches!(open(&[old_a.clone(), old_b, c.clone()]), Err(error) if error.kind() == ErrorKind::NotAMember)
        );
        let (log, records) = open(&[c.clone(), b.clone()]).expect("open");
        assert_eq!(records, [] as [u32; 0]);

        // It joins again, under an ordinal that was used before, and starts empty.
        assert_eq!(log.add_devices(&as_devices(from_ref(&a))).expect("add"), [0]);
        append(&log, 200);
        drop(log);
        assert_eq!(open(&[a.clone(), b.clone(), c.clone()]).expect("open").1, [200]);
        assert!(
            matches!(open(&[old_a, b, c]), Err(error) if error.kind() == ErrorKind::NotAMember),
            "the same device, before it was removed"
        );
    });
}

#[test]
fn a_device_that_hangs_is_replaced_and_rejoins_when_it_no_longer_writes() {
    simulate(40, |seed| {
        let [a, b, c] = devices(["a", "b", "c"]);
        let log = create(&[a.clone(), b.clone()]);
        let owner = owner(&log);
        let clients = [client(&log), client(&log)];
        sleep(Duration::from_millis(1));
        a.inject(Fault::HangWrites);
        sleep(Duration::from_millis(20));
        let stats = log.stats();
        let Some(cause) = &stats.devices[0].set_aside else { panic!("{stats:?}") };
        assert!(cause.to_string().contains("a: a write of"), "{cause}");

        let again = log.replace_devices(&[0], &as_devices(from_ref(&a)));
        assert!(
            matches!(&again, Err(error) if error.kind() == ErrorKind::Busy && error.about() == Some("a")),
            "{again:?}"
        );
        assert_eq!(names(&log), ["a", "b"], "nothing was changed");
        if seed % 2 == 0 {
            log.replace_devices(&[0], &as_devices(from_ref(&c))).expect("replace");
            assert_eq!(names(&log), ["b", "c"]);
            let again = log.add_devices(&as_devices(from_ref(&a)));
            assert!(
                matches!(&again, Err(error) if error.kind() == ErrorKind::Busy),
                "the write that hung is not forgotten: {again:?}"
            );
        }
        a.clear_faults();
        sleep(Duration::from_millis(1));
        match seed % 2 {
            0 => drop(log.add_devices(&as_devices(from_ref(&a))).expect("add")),
            _ => drop(log.replace_devices(&[0], &as_devices(from_ref(&a))).expect("replace by itself")),
        }
        sleep(Duration::from_millis(10));
        let stats = log.stats();
        assert!(stats.devices.iter().all(serves), "{stats:?}");
        let used = stats.devices.iter().find(|device| device.name == "a").expect("it is back");
        assert!(used.writes > 0, "{stats:?}");
        log.close().expect("close");
        for client in clients {
            assert!(matches!(client.join().expect("no panic"), error if error.kind() == ErrorKind::Closed));
        }
        owner.join().expect("no panic");
        let all = if seed % 2 == 0 { vec![a, b, c] } else { vec![a, b] };
        open(&all).expect("open");
    });
}

#[test]
fn the_last_healthy_device_stays() {
    simulate(20, |_| {
        let [a, b] = devices(["a", "b"]);
        let log = create(&[a.clone(), b.clone()]);
        let owner = owner(&log);
        assert!(matches!(log.remove_devices(&[0, 1]), Err(error) if error.kind() == ErrorKind::InUse));
        assert!(matches!(log.remove_devices(&[2]), Err(error) if error.kind() == ErrorKind::NotFound));
        assert!(matches!(log.replace_devices(&[2], &[]), Err(error) if error.kind() == ErrorKind::NotFound));
        b.inject(Fault::FailWrites { after: 0 });
        append_all(&log, 0..4);
        assert!(log.stats().devices[1].set_aside.is_some());
        let refused = log.remove_devices(&[0]);
        assert!(
            matches!(&refused, Err(error) if error.kind() == ErrorKind::InUse && error.to_string().starts_with("a: ")),
            "{refused:?}"
        );
        assert!(
            matches!(log.replace_devices(&[0], &as_devices(from_ref(&a))), Err(error) if error.kind() == ErrorKind::InUse)
        );
        append(&log, 4);
        log.remove_devices(&[1]).expect("one that was set aside can go");
        assert_eq!(names(&log), ["a"]);
        log.close().expect("close");
        owner.join().expect("no panic");
        open(&[a]).expect("open");
    });
}

#[test]
fn a_device_on_its_way_out_stays_if_it_becomes_the_last_one() {
    simulate(40, |_| {
        let [a, b] = devices(["a", "b"]);
        let log = create(&[a.clone(), b.clone()]);
        append_all(&log, 0..10);
        let remover = {
            let log = log.clone();
            spawn("remover", move || log.remove_devices(&[0]))
        };
        sleep(Duration::from_millis(1));
        b.inject(Fault::FailWrites { after: 0 });
        append_all(&log, 10..20);
        let refused = remover.join().expect("no panic");
        assert!(
            matches!(&refused, Err(error) if error.kind() == ErrorKind::InUse && error.to_string().starts_with("a: ")),
            "{refused:?}"
        );
        let device = &log.stats().devices[0];
        assert!(serves(device), "{device:?}");
        drop(log);
        assert_eq!(open(&[a.fork(), b.fork()]).expect("open").1, (0..20).collect::<Vec<_>>());
    });
}

#[test]
fn a_removal_ends_when_the_log_does() {
    simulate(20, |seed| {
        let [a, b] = devices(["a", "b"]);
        let log = create(&[a.clone(), b.clone()]);
        append_all(&log, 0..10);
        let change = |name: &str, change: fn(&Log) -> Result<(), Error>| {
            let log = log.clone();
            spawn(name, move || change(&log))
        };
        let remover = change("remover", |log| log.remove_devices(&[0]));
        sleep(Duration::from_millis(1));
        let other = change("other", |log| log.remove_devices(&[1])).join().expect("no panic");
        assert!(matches!(&other, Err(error) if error.kind() == ErrorKind::Busy), "{other:?}");
        if seed % 2 == 0 {
            log.close().expect("close");
            assert!(matches!(remover.join().expect("no panic"), Err(error) if error.kind() == ErrorKind::Closed));
            drop(log);
            let recovery = Log::open(as_devices(&[a, b]), options(), &mut |_| {}).expect("open");
            assert!(recovery.was_clean());
        } else {
            [&a, &b].into_iter().for_each(|device| device.inject(Fault::FailWrites { after: 0 }));
            let poisoned = log.set_checkpoint(log.durable_lsn());
            assert!(matches!(&poisoned, Err(error) if error.kind() == ErrorKind::Poisoned), "{poisoned:?}");
            assert!(matches!(remover.join().expect("no panic"), Err(error) if error.kind() == ErrorKind::Poisoned));
        }
    });
}

#[test]
fn a_member_that_is_absent_can_be_removed() {
    simulate(20, |_| {
        let [a, b, c] = devices(["a", "b", "c"]);
        let log = create(&[a.clone(), b.clone()]);
        a.inject(Fault::FailWrites { after: 0 });
        append_all(&log, 0..10);
        log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        log.close().expect("close");
        drop(log);
        let (log, _) = open(from_ref(&b)).expect("without the one that failed");
        assert_eq!(names(&log), ["", "b"]);
        log.replace_devices(&[0], &as_devices(from_ref(&c))).expect("replace");
        assert_eq!(names(&log), ["b", "c"]);
        drop(log);
        open(&[b, c]).expect("open");
    });
}

#[test]
fn unsuited_devices_are_refused_and_nothing_changes() {
    simulate(10, |_| {
        let [a, b] = devices(["a", "b"]);
        let log = create(from_ref(&a));
        let small = device("small", 50);
        let refused = log.add_devices(&as_devices(&[b.clone(), small.clone()]));
        assert!(
            matches!(&refused, Err(error) if error.to_string().contains("are needed with these sections; enlarge it") && error.to_string().starts_with("small: ")),
            "{refused:?}"
        );
        assert!(
            matches!(log.add_devices(&[]), Err(error) if error.to_string().contains("a log needs at least one device; pass the"))
        );
        let twice = log.add_devices(&as_devices(&[b.clone(), b.clone()]));
        assert!(
            matches!(&twice, Err(error) if error.to_string().contains("does; pass each device once and no copies")),
            "{twice:?}"
        );
        for faults in [Fault::FailWrites { after: 0 }, Fault::FailFlushes { after: 0 }, Fault::FailReads { after: 0 }] {
            let fresh = device("fresh", 256);
            fresh.inject(faults);
            let failed = log.add_devices(&as_devices(&[b.clone(), fresh]));
            assert!(
                matches!(&failed, Err(error) if error.is_io() && error.to_string().contains("fresh")),
                "{failed:?}"
            );
        }
        let many: Vec<_> = (0..64).map(|n| device(&format!("m{n}"), 256)).collect();
        assert!(
            matches!(log.add_devices(&as_devices(&many)), Err(error) if error.to_string().contains("65 devices are"))
        );
        assert_eq!(names(&log), ["a"]);
        append(&log, 1);
        drop(log);
        assert!(
            matches!(open(&[a.clone(), b]), Err(error) if error.kind() == ErrorKind::NotAMember && error.about() == Some("b"))
        );
        assert_eq!(open(&[a]).expect("open").1, [1]);
    });
}

/// A device with hardly any room left beside it can leave, under load: what was appended fits on the others first.
#[test]
fn a_device_leaves_a_log_that_is_full() {
    simulate(60, |seed| {
        let count = 2 + seed as usize % 2;
        let all: Vec<_> = (0..count).map(|n| device(&format!("log-{n}"), 4 + 5 * 16)).collect();
        let log = create(&all);
        let clients: Vec<_> = (0..4).map(|_| client(&log)).collect();
        // Without checkpoints the log fills up.
        sleep(Duration::from_millis(20));
        let remover = {
            let log = log.clone();
            spawn("remover", move || log.remove_devices(&[0]))
        };
        sleep(Duration::from_millis(seed % 3));
        let owner = owner(&log);
        remover.join().expect("no panic").expect("removed");
        let durable = log.durable_lsn();
        sleep(Duration::from_millis(20));
        assert!(log.durable_lsn() > durable, "the log goes on");
        log.close().expect("close");
        clients.into_iter().for_each(|client| {
            assert!(matches!(client.join().expect("no panic"), error if error.kind() == ErrorKind::Closed))
        });
        owner.join().expect("no panic");
        open(&all[1..]).expect("open");
    });
}
