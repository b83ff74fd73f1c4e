//! The striped layout: requests are split, skip idle devices, and several are under way; and what a power cut leaves
//! of those.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_log::{
    ArchiveOptions, Damage, Error, ErrorKind, Log, LogLayout, LogOptions, RequestState, inspect, verify,
};
use tantalum_rt::{Simulation, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, random};
use crate::recorder::{Recorder, Write};
use crate::steps::{is_missing, read};

const HEAD_BYTES: u64 = 4 * 4096;
const LATENCY: Duration = Duration::from_millis(1);

fn options(layout: LogLayout) -> LogOptions {
    LogOptions { section_bytes: Some(65536), block_bytes: Some(512), layout, ..LogOptions::default() }
}

fn striped(unit_bytes: u32) -> LogLayout {
    LogLayout::Striped { unit_bytes }
}

fn devices(count: usize) -> Vec<Arc<MemoryDevice>> {
    let profile = MemoryProfile { logical_block: 512, write_latency: LATENCY..LATENCY, ..MemoryProfile::default() };
    (0..count).map(|n| MemoryDevice::with_profile(format!("log-{n}"), 1 << 20, profile.clone())).collect()
}

fn open(devices: Vec<Arc<dyn Device>>, layout: LogLayout) -> Result<(Log, Vec<Vec<u8>>), Error> {
    read(Log::open(devices, options(layout), &mut |_| {})?)
}

/// A log on two noted devices. Its first section begins with a header and a request of 4096 bytes each.
fn recorded(layout: LogLayout) -> (Vec<Arc<Recorder>>, Log) {
    let recorders: Vec<_> = devices(2).into_iter().map(Recorder::new).collect();
    let as_devices: Vec<_> = recorders.iter().map(|recorder| Arc::clone(recorder) as Arc<dyn Device>).collect();
    Log::create(LOG_ID, as_devices.clone(), options(layout)).expect("create");
    let (log, _) = open(as_devices, layout).expect("open");
    flush(&log, 4096);
    recorders.iter().for_each(|recorder| recorder.clear());
    (recorders, log)
}

/// Flushes a record whose request takes `bytes` bytes of the device.
fn flush(log: &Log, bytes: usize) {
    let record = log.append(&[&vec![7; bytes - 100]]).expect("append");
    log.flush(record.end).expect("flush");
}

/// `count` clients flush requests of `bytes` at the same time.
fn flush_together(log: &Log, count: usize, bytes: usize) {
    let client = |n| {
        let log = log.clone();
        spawn(format!("client-{n}"), move || {
            sleep(LATENCY / 10 * n as u32);
            flush(&log, bytes);
        })
    };
    let clients: Vec<_> = (0..count).map(client).collect();
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
}

fn is_under_way(write: &Write, other: &Write) -> bool {
    write.submitted <= other.submitted && write.done.is_none_or(|done| done > other.submitted)
}

#[test]
fn a_request_larger_than_the_unit_is_split() {
    Simulation::new(1)
        .run(|| {
            let (recorders, log) = recorded(striped(512));
            flush(&log, 2048);
            let writes: Vec<_> = recorders.iter().map(|recorder| recorder.section_writes()).collect();
            let sizes: Vec<_> =
                writes.iter().map(|writes| writes.iter().map(|w| w.bytes.len()).sum()).collect::<Vec<usize>>();
            assert_eq!(sizes, [1024, 1024]);
            assert!(is_under_way(&writes[0][0], &writes[1][0]) && is_under_way(&writes[1][0], &writes[0][0]));

            let (recorders, log) = recorded(LogLayout::FlashLogging);
            flush(&log, 2048);
            let writes: usize = recorders.iter().map(|recorder| recorder.section_writes().len()).sum();
            assert_eq!(writes, 1, "FlashLogging never splits");
        })
        .expect_finished();
}

/// Whether some write went to a device that was busy while the other was idle.
fn skips(recorders: &[Arc<Recorder>]) -> bool {
    let [a, b] = [0, 1].map(|at| recorders[at].section_writes());
    let skipped = |own: &[Write], other: &[Write]| {
        own.iter().enumerate().any(|(at, write)| {
            own[..at].iter().any(|before| is_under_way(before, write))
                && !other.iter().any(|other| is_under_way(other, write))
        })
    };
    skipped(&a, &b) || skipped(&b, &a)
}

#[test]
fn requests_of_one_unit_wait_for_its_device_while_another_is_idle() {
    Simulation::new(1)
        .run(|| {
            let (recorders, log) = recorded(striped(65536));
            flush_together(&log, 2, 512);
            assert!(skips(&recorders), "both lie in one unit");

            let (recorders, log) = recorded(LogLayout::FlashLogging);
            flush_together(&log, 2, 512);
            assert!(!skips(&recorders), "FlashLogging takes the idle device");
            let writes: Vec<_> = recorders.iter().map(|recorder| recorder.section_writes().len()).collect();
            assert_eq!(writes, [1, 1]);
        })
        .expect_finished();
}

#[test]
fn requests_of_two_units_are_under_way_together() {
    Simulation::new(1)
        .run(|| {
            let (recorders, log) = recorded(striped(4096));
            flush_together(&log, 2, 4096);
            let [a, b] = [0, 1].map(|at| recorders[at].section_writes().remove(0));
            assert_eq!((a.bytes.len(), b.bytes.len()), (4096, 4096), "neither is split");
            assert!(a.submitted < b.submitted && is_under_way(&a, &b));
        })
        .expect_finished();
}

/// The second of four requests hangs on its device; the others complete. Nothing behind the first is acknowledged, none
/// of it is recovered, and it never comes back when other records take its place.
#[test]
fn the_log_ends_before_the_first_torn_request_whatever_is_behind_it() {
    let mut torn = 0;
    for seed in 0..40 {
        torn += Simulation::new(seed)
            .run(move || {
                let (layout, members) = (striped(4096), devices(4));
                Log::create(LOG_ID, as_devices(&members), options(layout)).expect("create");
                let (log, _) = open(as_devices(&members), layout).expect("open");
                let append = |log: &Log, tag: u8, n: u8| log.append(&[&[tag, n], &[n; 4096 - 102]]).expect("append");
                log.flush(append(&log, 1, 0).end).expect("the request that opens the section, with its header");
                // On devices 2, 3 and 0: the first of them hangs, the others have their place behind it.
                members[2].inject(Fault::HangWrites);
                for n in 1..4 {
                    let ticket = log.ticket(append(&log, 1, n).end).expect("ticket");
                    sleep(LATENCY / 10);
                    assert!(ticket.is_done().is_none());
                }
                sleep(LATENCY * 3);
                assert_eq!(log.durable_lsn().get(), 4096 - 96);

                let cut: Vec<_> = members.iter().map(|member| member.fork()).collect();
                let mut random = random(seed);
                cut.iter().for_each(|member| member.power_cut(&mut random));
                members[2].clear_faults();
                let end = verify(&as_devices(&cut)).expect("verify");
                let (log, records) = open(as_devices(&cut), layout).expect("a torn request is no damage");
                assert_eq!((end.damage.len(), end.records as usize), (0, records.len()));
                if records.len() == 4 {
                    return 0; // the power cut left it whole, and so all of them
                }
                assert_eq!(records.len(), 1);
                // Requests of the same size: what was left behind has the LSNs of what comes next but one.
                log.flush(append(&log, 2, 1).end).expect("flush");
                let again: Vec<_> = cut.iter().map(|member| member.fork()).collect();
                again.iter().for_each(|member| member.power_cut(&mut random));
                let (_, records) = open(as_devices(&again), layout).expect("open once more");
                let tags: Vec<_> = records.iter().map(|record| (record[0], record[1])).collect();
                assert_eq!(tags, [(1, 0), (2, 1)]);
                1
            })
            .expect_finished();
    }
    assert!(torn > 10, "{torn} of 40 were torn");
}

/// The crash search found (its seeds 501742, 510214 and 511593 at the time) that the archive made a request durable that
/// was torn on the devices: that acknowledged those behind it, and no recovery reads an array behind a torn request.
#[test]
fn the_archive_acknowledges_nothing_that_recovery_cannot_read() {
    let mut torn = 0;
    for seed in 0..10 {
        let run = move || {
            let members = devices(4);
            let archive = MemoryDevice::new("archive", 2 << 20);
            let options = |archive: &Arc<MemoryDevice>| {
                let archive = ArchiveOptions::on_device(Arc::clone(archive) as Arc<dyn Device>);
                LogOptions { archive: Some(ArchiveOptions { delay: LATENCY * 5, ..archive }), ..options(striped(4096)) }
            };
            Log::create(LOG_ID, as_devices(&members), options(&archive)).expect("create");
            let (log, _) =
                read(Log::open(as_devices(&members), options(&archive), &mut |_| {}).expect("open")).expect("open");
            let append = |n: u8| log.append(&[&[n], &[n; 4096 - 101]]).expect("append").end;
            let first = append(0);
            log.flush_archived(first).expect("flush");
            // The second request hangs on its device, for longer than the archive waits.
            members[2].inject(Fault::HangWrites);
            log.ticket(append(1)).expect("ticket");
            sleep(LATENCY * 6);
            // The third is complete before the archive takes it.
            log.ticket(append(2)).expect("ticket");
            sleep(LATENCY * 2);
            let acknowledged = log.durable_lsn();

            let cut: Vec<_> = members.iter().map(|member| member.fork()).collect();
            let archive_after = archive.fork();
            let mut random = random(seed);
            cut.iter().chain([&archive_after]).for_each(|device| device.power_cut(&mut random));
            let (after, records) =
                read(Log::open(as_devices(&cut), options(&archive_after), &mut |_| {}).expect("open")).expect("open");
            assert!(after.durable_lsn() >= acknowledged, "{} of 3 records are left", records.len());
            assert_eq!(log.archived_lsn(), Some(first), "what hangs is not archived");
            // It takes what recovery found, and what follows.
            let end = after.append(&[&[3; 100]]).expect("append").end;
            after.flush_archived(end).expect("flush");
            assert_eq!(after.archived_lsn(), Some(end));
            usize::from(records.len() == 1)
        };
        torn += Simulation::new(seed).run(run).expect_finished();
    }
    assert!(torn > 2, "{torn} of 10 were torn");
}

/// Where a byte of the array lies: device and offset, as docs/format.md says.
fn place(offset: u64, unit: u64, count: u64) -> (usize, u64) {
    let (number, within) = ((offset - HEAD_BYTES) / unit, (offset - HEAD_BYTES) % unit);
    ((number % count) as usize, HEAD_BYTES + number / count * unit + within)
}

#[test]
fn damage_of_what_was_acknowledged_is_not_taken_for_a_torn_request() {
    for (count, unit) in [(2, 512), (3, 4096), (2, 65536)] {
        Simulation::new(1)
            .run(move || {
                let (layout, members) = (striped(unit), devices(count));
                Log::create(LOG_ID, as_devices(&members), options(layout)).expect("create");
                let (log, _) = open(as_devices(&members), layout).expect("open");
                for n in 0..30u8 {
                    log.flush(log.append(&[&vec![n; 100 + 200 * n as usize]]).expect("append").end).expect("flush");
                }
                drop(log);
                let inspection = inspect(&as_devices(&members)).expect("inspect");
                let [array] = &inspection.devices[..] else { panic!("an array is one device") };
                assert_eq!((array.layout, inspection.device_count, array.requests.len()), (layout, count as u32, 30));
                for (at, request) in array.requests.iter().enumerate() {
                    assert_eq!(request.state, RequestState::Live);
                    for damaged in [0, 60, request.bytes / 2] {
                        let forks: Vec<_> = members.iter().map(|member| member.fork()).collect();
                        let (device, offset) = place(request.offset + damaged, unit.into(), count as u64);
                        // A payload ends before its padding.
                        let is_payload = damaged < 96 + request.end.bytes_since(request.start);
                        forks[device].corrupt(offset, 1, |bytes| bytes[0] ^= 4);
                        match open(as_devices(&forks), layout) {
                            Err(error) if error.cause::<Damage>().is_some() => {
                                assert!(at < 29 && is_payload)
                            }
                            Err(error) => panic!("{error}"),
                            Ok((_, records)) if is_payload => assert!(at == 29 && records.len() == 29),
                            Ok((_, records)) => assert_eq!(records.len(), 30),
                        }
                    }
                }
            })
            .expect_finished();
    }
}

#[test]
fn the_failure_of_one_device_stops_the_log_and_loses_nothing() {
    for seed in 0..40 {
        Simulation::new(seed)
            .run(move || {
                let (layout, members) = (striped(512), devices(2 + seed as usize % 2));
                Log::create(LOG_ID, as_devices(&members), options(layout)).expect("create");
                let (log, _) = open(as_devices(&members), layout).expect("open");
                members[seed as usize % members.len()].inject(Fault::FailWrites { after: 3 + seed % 5 });
                let clients: Vec<_> = (0..3u8)
                    .map(|client| {
                        let log = log.clone();
                        spawn(format!("client-{client}"), move || {
                            let flush = |n: u8| {
                                let record = log.append(&[&[client, n], &vec![n; 97 * n as usize]])?;
                                log.flush(record.end)
                            };
                            (0..100).take_while(|&n| flush(n).is_ok()).count()
                        })
                    })
                    .collect();
                let acknowledged: Vec<_> = clients.into_iter().map(|client| client.join().expect("no panic")).collect();
                assert!(acknowledged.iter().all(|&count| count < 100));
                assert!(
                    matches!(log.flush(log.end_lsn()), Err(error) if error.kind() == ErrorKind::Poisoned)
                        || log.end_lsn() == log.durable_lsn()
                );
                drop(log);
                members.iter().for_each(|member| member.clear_faults());
                let (_, records) = open(as_devices(&members), layout).expect("open again");
                for (client, &count) in acknowledged.iter().enumerate() {
                    let found = records.iter().filter(|record| record[0] as usize == client).count();
                    assert!(found >= count, "{count} acknowledged of client {client}, {found} found");
                }
            })
            .expect_finished();
    }
}

#[test]
fn a_missing_device_is_named() {
    let members = devices(3);
    Log::create(LOG_ID, as_devices(&members), options(striped(512))).expect("create");
    let two = vec![members[2].clone(), members[0].clone()];
    let error = Log::open(as_devices(&two), options(striped(512)), &mut |_| {}).unwrap_err();
    assert!(is_missing(&error, 1), "{error}");
    // In any order, with any option: the layout is on the devices.
    let shuffled = [2, 0, 1].map(|at: usize| members[at].clone());
    let recovery = Log::open(as_devices(&shuffled), LogOptions::default(), &mut |_| {}).expect("open");
    assert!(recovery.was_clean());
    let error = Log::create(LOG_ID, as_devices(&members), options(striped(768))).unwrap_err();
    assert!(error.to_string().contains("log option unit_bytes is 768, but "), "{error}");
}
