//! Full logs, pressure, group commit, tickets, and finding the checkpoint.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tantalum_device::{Device, Durability, Fault, MemoryDevice, MemoryProfile};
use tantalum_log::{ErrorKind, Log, LogOptions, Lsn, RequestState, inspect, verify};
use tantalum_rt::{Simulation, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, lock, random};
use crate::world::{Survivors, cut};

fn new_log(count: usize, sections: u64, latency_us: u64) -> (Vec<Arc<MemoryDevice>>, Log) {
    let us = Duration::from_micros;
    let profile = MemoryProfile { write_latency: us(latency_us)..us(latency_us * 2), ..MemoryProfile::default() };
    let device = |n| MemoryDevice::with_profile(format!("log-{n}"), (4 + sections * 16) * 4096, profile.clone());
    let devices: Vec<_> = (0..count).map(device).collect();
    Log::create(LOG_ID, as_devices(&devices), options()).expect("create");
    let log = Log::open(as_devices(&devices), options(), &mut |_| {}).expect("open").finish().expect("finish");
    (devices, log)
}

fn options() -> LogOptions {
    LogOptions { section_bytes: Some(65536), ..LogOptions::default() }
}

#[test]
fn whatever_was_appended_can_be_flushed_without_a_checkpoint() {
    for seed in 0..120 {
        Simulation::new(seed)
            .run(move || {
                let (_, log) = new_log(1 + seed as usize % 3, 4 + seed % 3, 1);
                let mut random = random(seed);
                let largest = [20, 4000, log.max_record_bytes()][random.usize(0..3)];
                let mut end = Lsn::ZERO;
                let error = loop {
                    match log.append(&[&vec![7; random.usize(0..=largest)]]) {
                        Ok(record) => end = record.end,
                        // What is buffered counts for more than it takes once it is written.
                        Err(_) if log.durable_lsn() < end => log.flush(end).expect("what was admitted has its place"),
                        Err(error) => break error,
                    }
                    // At times each record becomes a request of its own, the worst packing there is.
                    if random.u8(0..5) < seed as u8 % 6 {
                        log.flush(end).expect("flush");
                    }
                };
                assert!(error.kind() == ErrorKind::LogFull, "{error}");
                assert!(log.wait_for_pressure(Duration::ZERO));
                log.set_checkpoint(end).expect("a checkpoint needs no log space");
                assert!(!log.wait_for_pressure(Duration::ZERO), "{:?}", log.stats());
                log.append(&[&vec![0; log.max_record_bytes()]]).expect("there is room again");
            })
            .expect_finished();
    }
}

#[test]
fn waiting_for_space_ends_with_the_checkpoint() {
    for seed in 0..60 {
        Simulation::new(seed)
            .run(|| {
                let (_, log) = new_log(2, 4, 20);
                let owner = {
                    let log = log.clone();
                    spawn("owner", move || {
                        while log.end_lsn().get() < 3_000_000 {
                            if log.wait_for_pressure(Duration::from_millis(50)) {
                                sleep(Duration::from_micros(300));
                                log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
                            }
                        }
                    })
                };
                let fulls = Arc::new(AtomicU64::new(0));
                let clients: Vec<_> = (0..3)
                    .map(|n| {
                        let (log, fulls) = (log.clone(), Arc::clone(&fulls));
                        spawn(format!("client-{n}"), move || {
                            while log.end_lsn().get() < 3_000_000 {
                                match log.append(&[&[n; 5000]]) {
                                    Ok(_) => {}
                                    Err(error) if error.kind() == ErrorKind::LogFull => {
                                        fulls.fetch_add(1, Ordering::Relaxed);
                                        let mut space = log.wait_for_space(5000).expect("space comes");
                                        log.append_requested(&[&[n; 5000]], &mut space).expect("it was granted");
                                    }
                                    Err(error) => panic!("{error}"),
                                }
                            }
                        })
                    })
                    .collect();
                clients.into_iter().for_each(|client| client.join().expect("no panic"));
                log.flush(log.end_lsn()).expect("flush");
                owner.join().expect("no panic");
                assert!(fulls.load(Ordering::Relaxed) > 0);
            })
            .expect_finished();
    }
}

#[test]
fn records_too_large_and_positions_never_appended_are_refused() {
    let (_, log) = new_log(1, 4, 0);
    let limit = log.max_record_bytes();
    let record = log.append(&[&vec![1; limit]]).expect("the largest record fits");
    assert!(matches!(log.append(&[&vec![1; limit + 1]]), Err(error) if error.kind() == ErrorKind::TooLarge));
    assert!(matches!(log.wait_for_space(limit + 1), Err(error) if error.kind() == ErrorKind::TooLarge));
    let beyond = Lsn::new(record.end.get() + 1);
    assert!(matches!(log.flush(beyond), Err(error) if error.kind() == ErrorKind::InvalidInput));
    assert!(matches!(log.ticket(beyond), Err(error) if error.kind() == ErrorKind::InvalidInput));
    assert!(matches!(log.set_checkpoint(record.end), Err(error) if error.kind() == ErrorKind::InvalidInput));
    log.flush(record.end).expect("flush");
    let empty = log.append(&[]).expect("an empty record is a record");
    log.flush(empty.end).expect("flush");
    assert_eq!(empty.end.bytes_since(empty.start), 4);
}

#[test]
fn flushes_that_wait_share_a_write() {
    Simulation::new(5)
        .run(|| {
            let (_, log) = new_log(1, 8, 100);
            let clients: Vec<_> = (0..10)
                .map(|n| {
                    let log = log.clone();
                    spawn(format!("client-{n}"), move || {
                        for _ in 0..10 {
                            log.flush(log.append(&[b"record"]).expect("append").end).expect("flush");
                        }
                    })
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().expect("no panic"));
            let stats = log.stats();
            assert_eq!(stats.records, 100);
            assert!(stats.requests <= 30, "{stats:?}");
            assert!(stats.mean_group_bytes > 30);
        })
        .expect_finished();
}

#[test]
fn tickets_are_served_in_the_background() {
    for seed in 0..40 {
        Simulation::new(seed)
            .run(|| {
                let (_, log) = new_log(2, 8, 50);
                let tickets: Vec<_> =
                    (0..20u8).map(|n| log.ticket(log.append(&[&[n]]).expect("append").end).expect("ticket")).collect();
                assert!(tickets[19].is_done().is_none());
                sleep(Duration::from_millis(1));
                for ticket in tickets {
                    assert!(matches!(ticket.is_done(), Some(Ok(()))), "no task waited, and still it is durable");
                    ticket.wait().expect("done");
                }
            })
            .expect_finished();
    }
}

#[test]
fn finding_the_checkpoint_reads_little_more_than_the_headers() {
    for seed in 0..20u64 {
        let sections = 12;
        let (devices, log) = new_log(2, sections, 0);
        let mut random = random(seed);
        let mut ends = vec![Lsn::ZERO];
        while let Ok(record) = log.append(&[&vec![3; random.usize(0..6000)]]) {
            log.flush(record.end).expect("flush");
            ends.push(record.end);
        }
        let checkpoint = ends[random.usize(0..ends.len())];
        log.set_checkpoint(checkpoint).expect("checkpoint");
        drop(log);
        let mut recovery = Log::open(as_devices(&devices), options(), &mut |_| {}).expect("open");
        let section_blocks_log2 = 4;
        assert!(recovery.locate_reads() <= 2 * (sections + section_blocks_log2), "{}", recovery.locate_reads());
        let mut delivered = Vec::new();
        while let Some(record) = recovery.next_record().expect("readable") {
            delivered.push(record.end);
        }
        let expected: Vec<_> = ends.iter().copied().filter(|end| *end > checkpoint).collect();
        assert_eq!(delivered, expected);
    }
}

#[test]
fn inspection_lists_what_is_there() {
    let (devices, log) = new_log(2, 4, 0);
    let mut end = Lsn::ZERO;
    for n in 0..10u8 {
        end = log.append(&[&[n; 100]]).expect("append").end;
        log.flush(end).expect("flush");
    }
    log.set_checkpoint(Lsn::new(104 * 5)).expect("checkpoint");
    let found = inspect(&as_devices(&devices)).expect("inspect");
    assert_eq!((found.log_id, found.epoch, found.checkpoint_lsn.get(), found.clean_end_lsn), (LOG_ID, 2, 520, None));
    let requests: Vec<_> = found.devices.iter().flat_map(|device| &device.requests).collect();
    let count = |state| requests.iter().filter(|request| request.state == state).count();
    assert_eq!((requests.len(), count(RequestState::Released), count(RequestState::Live)), (10, 5, 5));
    let verified = verify(&as_devices(&devices)).expect("verify");
    assert!(verified.damage.is_empty());
    assert_eq!((verified.requests, verified.records, verified.record_bytes, verified.end_lsn), (5, 5, 500, end));
}

#[test]
fn a_section_is_reused_only_once_its_checkpoint_is_durable() {
    for seed in 0..60 {
        let (devices, checkpoints) = {
            let survivors: Survivors = Arc::default();
            let kept = Arc::clone(&survivors);
            let asked = Arc::new(AtomicU64::new(0));
            let target = Arc::clone(&asked);
            let outcome = Simulation::new(seed).run(move || {
                let (devices, log) = new_log(1, 4, 20);
                let mut end = Lsn::ZERO;
                while let Ok(record) = log.append(&[&[1; 9000]]) {
                    end = record.end;
                    log.flush(end).expect("flush");
                }
                target.store(end.get(), Ordering::Relaxed);
                // The slot's write takes long, those of requests do not.
                devices[0].inject(Fault::SlowWrites { by: Duration::from_millis(5) });
                let owner = log.clone();
                spawn("owner", move || owner.set_checkpoint(end).expect("checkpoint"));
                while devices[0].in_flight() == 0 {
                    sleep(Duration::from_micros(1));
                }
                devices[0].inject(Fault::SlowWrites { by: Duration::ZERO });
                spawn("writer", move || {
                    loop {
                        let mut space = log.wait_for_space(9000).expect("space");
                        if let Ok(record) = log.append_requested(&[&[2; 9000]], &mut space) {
                            log.flush(record.end).expect("flush");
                        }
                    }
                });
                sleep(Duration::from_micros(random(seed).u64(0..6000)));
                cut(&devices, &kept)
            });
            assert!(outcome.finished().is_none());
            let devices = std::mem::take(&mut *lock(&survivors));
            (devices, [0, asked.load(Ordering::Relaxed)])
        };
        let recovery = Log::open(as_devices(&devices), options(), &mut |_| {}).expect("either checkpoint is good");
        assert!(checkpoints.contains(&recovery.checkpoint_lsn().get()));
        assert!(recovery.end_lsn().get() >= checkpoints[1]);
    }
}

#[test]
fn what_recovery_returned_stays_even_if_it_was_only_cached() {
    let (devices, log) = new_log(1, 4, 0);
    let end = (0..20u8).map(|n| log.append(&[&[n; 3000]]).expect("append").end).max().expect("some");
    log.flush(end).expect("flush");
    drop(log);
    // As after copying the file without syncing it.
    let copy = MemoryDevice::new("copy", devices[0].capacity_bytes());
    copy.write(0, &[&devices[0].image()], Durability::Cached).expect("write");
    let recovery = Log::open(as_devices(std::slice::from_ref(&copy)), options(), &mut |_| {}).expect("open");
    assert_eq!(recovery.end_lsn(), end);
    copy.power_cut(&mut random(1));
    let again = Log::open(as_devices(std::slice::from_ref(&copy)), options(), &mut |_| {}).expect("open");
    assert_eq!(again.end_lsn(), end);
}

/// A record that needs much space gets it, however many others come meanwhile that need little.
#[test]
fn what_needs_much_space_is_not_overtaken_for_ever() {
    for seed in 0..10 {
        Simulation::new(seed)
            .run(move || {
                let (_, log) = new_log(1, 4, 0);
                let large = vec![9; log.max_record_bytes()];
                let appended = Arc::new(AtomicU64::new(0));
                let is_over = Arc::new(AtomicU64::new(0));
                let clients: Vec<_> = (0..4u8)
                    .map(|n| {
                        let (log, appended, is_over) = (log.clone(), Arc::clone(&appended), Arc::clone(&is_over));
                        spawn(format!("small-{n}"), move || {
                            while is_over.load(Ordering::Relaxed) == 0 && appended.load(Ordering::Relaxed) < 20_000 {
                                let record = match log.append(&[&[n; 50]]) {
                                    Err(error) if error.kind() == ErrorKind::LogFull => {
                                        let mut space = log.wait_for_space(50).expect("space comes");
                                        log.append_requested(&[&[n; 50]], &mut space)
                                    }
                                    appended => appended,
                                };
                                let end = record.expect("it was granted").end;
                                appended.fetch_add(1, Ordering::Relaxed);
                                log.flush(end).expect("flush");
                            }
                        })
                    })
                    .collect();
                let owner = {
                    let (log, is_over) = (log.clone(), Arc::clone(&is_over));
                    spawn("owner", move || {
                        while is_over.load(Ordering::Relaxed) == 0 {
                            // A little at a time becomes free.
                            sleep(Duration::from_micros(300));
                            log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
                        }
                    })
                };
                sleep(Duration::from_millis(1));
                while log.append(&[&large]).is_ok() {}
                let before = appended.load(Ordering::Relaxed);
                let mut space = log.wait_for_space(large.len()).expect("space comes");
                log.append_requested(&[&large], &mut space).expect("it was granted");
                let meanwhile = appended.load(Ordering::Relaxed) - before;
                assert!(meanwhile < 100, "{meanwhile} small records came first");
                drop(space);
                is_over.store(1, Ordering::Relaxed);
                clients.into_iter().for_each(|client| client.join().expect("no panic"));
                owner.join().expect("no panic");
            })
            .expect_finished();
    }
}

#[test]
fn what_is_kept_for_relief_is_there_when_nothing_else_is() {
    for seed in 0..24 {
        Simulation::new(seed)
            .run(move || {
                let (count, copies) = [(1, 1), (2, 1), (2, 2), (3, 1)][seed as usize % 4];
                let device = |n| MemoryDevice::new(format!("log-{n}"), (4 + 16 * (8 + seed / 4)) * 4096);
                let devices: Vec<_> = (0..count).map(device).collect();
                let options = LogOptions { copies, ..options() };
                Log::create(LOG_ID, as_devices(&devices), options.clone()).expect("create");
                let log =
                    Log::open(as_devices(&devices), options, &mut |_| {}).expect("open").finish().expect("finish");
                let kept = log.capacity() / 4;
                log.keep_for_relief(kept);
                let mut random = random(seed);
                let fill = |random: &mut tantalum_rt::Random| {
                    loop {
                        match log.append(&[&vec![7; random.usize(0..9000)]]) {
                            Ok(record) => log.flush(record.end).expect("flush"),
                            Err(error) => break assert_eq!(error.kind(), ErrorKind::LogFull),
                        }
                    }
                };
                for _ in 0..6 {
                    fill(&mut random);
                    // Each in a request of its own: the worst packing.
                    let (mut left, mut first) = (kept, None);
                    loop {
                        let bytes = random.usize(0..5000);
                        let needed = log.space_needed(bytes).expect("it is small enough");
                        if needed > left {
                            break;
                        }
                        left -= needed;
                        let moved = log.append_to_relieve(&[&vec![8; bytes]]).expect("it was kept");
                        log.flush(moved.end).expect("flush");
                        first.get_or_insert(moved.start);
                    }
                    assert_eq!(log.append(&[b"more"]).expect_err("it is full").kind(), ErrorKind::LogFull);
                    log.set_checkpoint(first.expect("some were kept")).expect("it is durable");
                    log.append(&[b"more"]).expect("there is space again");
                }
            })
            .expect_finished();
    }
}

#[test]
fn a_request_for_more_than_is_ever_buffered_is_granted_in_part() {
    Simulation::new(1)
        .run(|| {
            let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("large", 1 << 30)];
            Log::create(LOG_ID, devices.clone(), LogOptions::default()).expect("create");
            let log = Log::open(devices, LogOptions::default(), &mut |_| {}).expect("open").finish().expect("finish");
            assert_eq!(log.largest_space_request(), 64 << 20);
            assert!(log.capacity() / 4 > 64 << 20);
            let space = log.request_space(u64::MAX).expect("it runs");
            assert!(space.wait(Duration::from_secs(1)).expect("it runs"));
        })
        .expect_finished();
}
