//! Devices that come and go together with what else a log does: hiding, the other layouts, the archive.

use std::slice::from_ref;
use std::sync::Arc;

use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_log::{
    ArchiveOptions, Error, ErrorKind, Log, LogLayout, LogOptions, Recovery, Standing, inspect, standings,
};
use tantalum_rt::{now, sleep, spawn};

use crate::plan::{LOG_ID, as_devices};
use crate::steps::{MS, flush, open_as, simulate};

fn options() -> LogOptions {
    LogOptions { section_bytes: Some(65536), hang_timeout: 500 * MS, ..LogOptions::default() }
}

/// Every write takes a millisecond.
fn devices<const N: usize>(names: [&str; N]) -> [Arc<MemoryDevice>; N] {
    let profile = MemoryProfile { write_latency: MS..MS, ..MemoryProfile::default() };
    names.map(|name| MemoryDevice::with_profile(name, 4 << 20, profile.clone()))
}

fn open(devices: &[Arc<MemoryDevice>]) -> Result<(Log, Vec<u32>), Error> {
    open_as(devices, options())
}

fn create(devices: &[Arc<MemoryDevice>]) -> Log {
    Log::create(LOG_ID, as_devices(devices), options()).expect("create");
    open(devices).expect("open").0
}

#[test]
fn a_device_that_joins_saves_what_others_are_late_with() {
    simulate(10, |_| {
        let [a, b] = devices(["a", "b"]);
        let log = create(from_ref(&a));
        flush(&log, 0);
        log.add_devices(&as_devices(from_ref(&b))).expect("add");
        (1..60).for_each(|n| _ = flush(&log, n));
        a.inject(Fault::SlowWrites { by: 300 * MS });
        (60..70).for_each(|n| assert!(flush(&log, n) < 20 * MS));
        let stats = log.stats();
        assert!(stats.hides && stats.hiding.won > 0 && stats.devices[1].hiding.won == stats.hiding.won, "{stats:?}");
        drop(log);
        let devices = [a, b];
        let inspected = inspect(&as_devices(&devices)).expect("inspect").devices;
        assert_eq!(inspected[0].hiding_section_count, 0, "it was formatted when nothing could hide");
        assert!(inspected[1].requests.iter().any(|request| request.is_hidden));
        assert_eq!(open(&devices).expect("open").1, (0..70).collect::<Vec<_>>());
    });
}

#[test]
fn a_late_write_is_seen_through_before_its_device_leaves() {
    simulate(20, |seed| {
        let [a, b, c] = devices(["a", "b", "c"]);
        let log = create(&[a.clone(), b.clone(), c.clone()]);
        (0..60).for_each(|n| _ = flush(&log, n));
        let hangs = seed % 2 == 1;
        a.inject(if hangs { Fault::HangWrites } else { Fault::SlowWrites { by: 100 * MS } });
        // Until a has taken one.
        let mut n = 60;
        while log.stats().devices[0].hiding.outliers == 0 {
            assert!(flush(&log, n) < 20 * MS);
            n += 1;
        }
        let since = now();
        let remover = {
            let log = log.clone();
            spawn("remover", move || log.remove_devices(&[0]))
        };
        sleep(5 * MS);
        // The slot goes to the late device as well, so that takes as long.
        let owner = {
            let log = log.clone();
            spawn("owner", move || log.set_checkpoint(log.durable_lsn()))
        };
        sleep(5 * MS);
        assert!(!remover.is_finished(), "its write may still land");
        assert!(log.stats().devices[0].is_changing);
        let hidden = log.stats().hiding;
        (n..n + 20).for_each(|n| assert!(flush(&log, n) < 20 * MS));
        if hangs {
            // The slot could not be written there; it is set aside, and its request given up after half a second.
            sleep(600 * MS);
            log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        }
        owner.join().expect("no panic").expect("checkpoint");
        remover.join().expect("no panic").expect("removed");
        assert!(since.elapsed() > if hangs { 400 * MS } else { 90 * MS });
        let stats = log.stats();
        let names: Vec<_> = stats.devices.iter().map(|device| &*device.name).collect();
        assert_eq!(names, ["b", "c"]);
        assert!(stats.hiding.outliers >= hidden.outliers && stats.hiding.won >= hidden.won, "{stats:?}");
        (n + 20..n + 40).for_each(|n| assert!(flush(&log, n) < 20 * MS));
        let checkpointed = log.stats().checkpoint_lsn;
        drop(log);
        let (log, records) = open(&[b, c]).expect("without the one that left");
        assert!(log.checkpoint_lsn() == checkpointed && records.is_sorted_by(|a, b| a + 1 == *b));
        assert_eq!(records.last(), Some(&(n + 39)));
    });
}

#[test]
fn the_devices_of_the_other_layouts_are_fixed() {
    let layouts = [(LogLayout::Single, 1), (LogLayout::Striped { unit_bytes: 4096 }, 2)];
    for (layout, count) in layouts {
        simulate(2, move |_| {
            let all = devices(["a", "b", "c"]);
            let options = LogOptions { layout, ..options() };
            Log::create(LOG_ID, as_devices(&all[..count]), options.clone()).expect("create");
            let (log, _) = open_as(&all[..count], options.clone()).expect("open");
            flush(&log, 0);
            let new = as_devices(&all[2..]);
            let refused =
                [log.add_devices(&new), log.remove_devices(&[0]).map(|()| vec![]), log.replace_devices(&[0], &new)];
            for refused in refused {
                assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::Unsupported), "{refused:?}");
            }
            assert!(matches!(standings(LOG_ID, &new)[..], [Standing::NoLog]), "it was not touched");
            flush(&log, 1);
            log.close().expect("close");
            drop(log);
            // All of them are listed, also after slots that the log wrote.
            let listed = inspect(&as_devices(&all[..count])).expect("inspect").devices[0].slots.clone();
            assert!(listed.iter().flatten().all(|slot| slot.members.len() == count && slot.not_needed == 0));
            assert_eq!(open_as(&all[..count], options).expect("open").1, [0, 1]);
        });
    }
}

fn rebuild(options: LogOptions, device: &Arc<MemoryDevice>) -> Recovery {
    let log = Log::rebuild(options, &mut |_| {}).expect("an archive");
    log.onto(as_devices(from_ref(device)), &mut |_| {}).expect("rebuild")
}

/// The archive gets no slots any more, and the old device gets many: they are older all the same.
#[test]
fn a_device_from_before_a_rebuild_is_refused_whatever_its_slots_say() {
    simulate(5, |_| {
        let [a, b, disk] = devices(["a", "b", "disk"]);
        let archived = || LogOptions { archive: Some(ArchiveOptions::on_device(disk.clone())), ..options() };
        Log::create(LOG_ID, as_devices(from_ref(&a)), archived()).expect("create");
        let (log, _) = open_as(from_ref(&a), archived()).expect("open");
        flush(&log, 0);
        log.flush_archived(log.end_lsn()).expect("archived");
        disk.inject(Fault::FailWrites { after: 0 });
        for n in 1..20 {
            flush(&log, n);
            log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        }
        drop(log);
        disk.clear_faults();

        let mut rebuilt = rebuild(archived(), &b);
        assert!(rebuilt.next_record().expect("readable").is_some_and(|record| record.bytes[..4] == [0; 4]));
        drop(rebuilt.finish().expect("finish"));
        for given in [vec![a.clone(), b.clone()], vec![a.clone()]] {
            let error = open_as(&given, archived()).unwrap_err();
            assert!(error.kind() == ErrorKind::NotAMember && error.about() == Some("a"), "{error}");
        }
        assert_eq!(open_as(&[b], archived()).expect("open").1, [0]);
    });
}

/// The archive's slot lists the devices as well: a log that comes back from it has new ones, and goes on.
#[test]
fn devices_change_while_the_log_is_archived_and_the_archive_knows() {
    simulate(10, |_| {
        let [a, b, c, disk] = devices(["a", "b", "c", "disk"]);
        let archived = || LogOptions { archive: Some(ArchiveOptions::on_device(disk.clone())), ..options() };
        Log::create(LOG_ID, as_devices(from_ref(&a)), archived()).expect("create");
        let (log, _) = open_as(from_ref(&a), archived()).expect("open");
        (0..10).for_each(|n| _ = flush(&log, n));
        log.add_devices(&as_devices(from_ref(&b))).expect("add");
        (10..20).for_each(|n| _ = flush(&log, n));
        let owner = {
            let log = log.clone();
            spawn(
                "owner",
                move || while log.wait_for_pressure(100 * MS) && log.set_checkpoint(log.durable_lsn()).is_ok() {},
            )
        };
        log.remove_devices(&[0]).expect("remove");
        (20..30).for_each(|n| _ = flush(&log, n));
        log.flush_archived(log.end_lsn()).expect("archived");
        owner.join().expect("no panic");
        assert!(log.stats().archive.expect("there is one").set_aside.is_none());
        drop(log);
        let refused = open_as(from_ref(&a), archived()).unwrap_err();
        assert!(
            refused.kind() == ErrorKind::NotAMember && refused.about() == Some("a"),
            "the archive says so: {refused}"
        );
        let (log, records) = open_as(from_ref(&b), archived()).expect("open");
        assert_eq!(records.last(), Some(&29));
        drop(log);

        let rebuilt = rebuild(archived(), &c);
        let log = rebuilt.finish().expect("finish");
        assert_eq!(log.add_devices(&as_devices(from_ref(&b))).expect("what it had is lost"), [1]);
        flush(&log, 30);
        log.close().expect("close");
        drop(log);
        let (_, records) = open_as(&[c as Arc<MemoryDevice>, b], archived()).expect("open");
        assert_eq!(records.last(), Some(&30));
    });
}

#[test]
fn a_device_with_larger_blocks_than_the_log_cannot_join() {
    simulate(2, |_| {
        let device = |name, logical_block| {
            let profile = MemoryProfile { logical_block, ..MemoryProfile::default() };
            MemoryDevice::with_profile(name, 1 << 20, profile)
        };
        let (a, b) = (device("a", 512), device("b", 4096));
        let options = LogOptions { block_bytes: Some(512), ..options() };
        Log::create(LOG_ID, as_devices(from_ref(&a)), options.clone()).expect("create");
        let (log, _) = open_as(&[a], options).expect("open");
        let new: Arc<dyn Device> = b;
        let refused = log.add_devices(&[new]);
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::Unsupported), "{refused:?}");
        flush(&log, 0);
    });
}
