//! A log that begins on a small device: when it should grow, what waits for that, and what does not.

use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tantalum_device::{MemoryDevice, MemoryProfile};
use tantalum_log::{Error, ErrorKind, Log, LogOptions, Lsn, inspect};
use tantalum_rt::{JoinHandle, now, sleep, spawn};

use crate::plan::{LOG_ID, as_devices};
use crate::steps::{MS, append, flush, open_as, simulate};

const SMALL_BYTES: u64 = (16 << 10) + 4 * (64 << 10);
const FULL_BYTES: u64 = 4 << 20;

fn options() -> LogOptions {
    let grown_bytes = [("small".to_owned(), FULL_BYTES)].into();
    LogOptions { grown_bytes, hang_timeout: 500 * MS, ..LogOptions::default() }
}

/// Every write takes a millisecond.
fn device(name: &str, bytes: u64) -> Arc<MemoryDevice> {
    let profile = MemoryProfile { write_latency: MS..MS, ..MemoryProfile::default() };
    MemoryDevice::with_profile(name, bytes, profile)
}

fn create() -> (Arc<MemoryDevice>, Log) {
    let small = device("small", SMALL_BYTES);
    let at_creation = LogOptions { section_bytes: Some(65536), ..options() };
    Log::create(LOG_ID, as_devices(from_ref(&small)), at_creation).expect("create");
    let log = open_as(from_ref(&small), options()).expect("open").0;
    (small, log)
}

/// Checkpoints when one is due, until the log is closed.
fn checkpointer(log: &Log) -> JoinHandle<()> {
    let log = log.clone();
    spawn("checkpointer", move || {
        // Below the present one: that only tells whether the log is closed.
        while log.set_checkpoint(Lsn::ZERO).is_ok() {
            if log.wait_for_pressure(10 * MS) {
                let _closed = log.set_checkpoint(log.durable_lsn());
                sleep(MS);
            }
        }
    })
}

/// Lets the log grow once, onto `large`, and reports it.
fn grower(log: &Log, large: &Arc<MemoryDevice>) -> JoinHandle<Option<usize>> {
    let (log, large) = (log.clone(), Arc::clone(large));
    spawn("grower", move || {
        let wanted = log.wait_for_growth();
        if wanted.is_some() {
            let grown = log.replace_devices(&[0], &as_devices(from_ref(&large)));
            log.report_growth(grown.map(drop));
        }
        wanted
    })
}

#[test]
fn a_large_record_waits_for_growth_and_small_ones_do_not() {
    simulate(10, |seed| {
        let (small, log) = create();
        let full = device("full", FULL_BYTES);
        Log::create(1, as_devices(from_ref(&full)), LogOptions::default()).expect("create");
        let of_full = open_as(from_ref(&full), LogOptions::default()).expect("open").0.max_record_bytes();
        assert_eq!(log.max_record_bytes(), of_full, "what the grown log takes is promised from the beginning");
        let large_record = vec![seed as u8; of_full];
        assert!(log.must_grow_for(of_full) && !log.must_grow_for(1000) && !log.must_grow_for(of_full + 1));
        let refused = log.append(&[&large_record]);
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::TooLarge), "{refused:?}");
        let refused = log.wait_until_grown(of_full);
        assert!(
            matches!(&refused, Err(error) if error.kind() == ErrorKind::TooLarge),
            "no owner lets it grow: {refused:?}"
        );

        let large = device("large", FULL_BYTES);
        let checkpoints = checkpointer(&log);
        log.set_growth_owner(true);
        let is_committed = Arc::new(AtomicBool::new(false));
        let large_commit = {
            let (log, is_committed) = (log.clone(), Arc::clone(&is_committed));
            spawn("large", move || {
                log.wait_until_grown(of_full)?;
                let space = &mut log.wait_for_space(of_full)?;
                log.flush(log.append_requested(&[&large_record], space)?.end)?;
                is_committed.store(true, Ordering::Relaxed);
                Ok::<(), Error>(())
            })
        };
        sleep(5 * MS);
        let mut n = 0;
        // Long before the log grows.
        for _ in 0..5 {
            assert!(flush(&log, n) < 10 * MS);
            n += 1;
        }
        assert!(!is_committed.load(Ordering::Relaxed));
        let grown = grower(&log, &large);
        while !is_committed.load(Ordering::Relaxed) {
            assert!(flush(&log, n) < 20 * MS, "a small record waits for no growth");
            n += 1;
        }
        large_commit.join().expect("no panic").expect("the log has grown");
        assert!(grown.join().expect("no panic").is_some_and(|wanted| wanted > of_full));
        assert!(!log.must_grow_for(of_full));
        log.close().expect("close");
        checkpoints.join().expect("no panic");
        drop(log);
        let devices = [large];
        assert_eq!(inspect(&as_devices(&devices)).expect("inspect").devices[0].section_bytes, 512 << 10);
        let log = open_as(&devices, options()).expect("the large one is all it needs").0;
        assert!(!log.must_grow_for(of_full));
        assert!(open_as(from_ref(&small), options()).is_err(), "the small one has left");
    });
}

#[test]
fn a_log_that_fills_soon_should_grow_and_one_that_fills_slowly_should_not() {
    for (before, should_grow) in [(MS, true), (Duration::from_secs(61), false)] {
        simulate(4, move |_| {
            let (_, log) = create();
            log.set_growth_owner(true);
            let checkpoints = checkpointer(&log);
            let said_so = {
                let log = log.clone();
                spawn("grower", move || log.wait_for_growth())
            };
            sleep(before);
            // They fill the log by half once.
            (0..40).for_each(|n| _ = flush(&log, n));
            assert!(log.stats().checkpoint_lsn.get() > 0);
            assert_eq!(said_so.is_finished(), should_grow);
            log.close().expect("close");
            checkpoints.join().expect("no panic");
            assert_eq!(said_so.join().expect("no panic"), should_grow.then_some(0));
        });
    }
}

#[test]
fn growth_that_fails_is_told_and_tried_again_later() {
    simulate(4, |_| {
        let (_, log) = create();
        let checkpoints = checkpointer(&log);
        let bytes = log.max_record_bytes();
        log.set_growth_owner(true);
        let owner = {
            let log = log.clone();
            spawn("grower", move || {
                let mut asked = Vec::new();
                while let Some(wanted) = log.wait_for_growth() {
                    asked.push((now(), wanted > 0));
                    log.report_growth(Err(Error::no_space("disk", 0, 1)));
                }
                asked
            })
        };
        let refused = log.wait_until_grown(bytes);
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::NoSpace), "{refused:?}");
        let start = now();
        let mut n = 0;
        // The log goes on as it is.
        while start.elapsed() < Duration::from_secs(10) {
            log.wait_for_space(504).expect("checkpoints make room");
            log.flush(append(&log, n)).expect("flush");
            n += 1;
        }
        log.close().expect("close");
        checkpoints.join().expect("no panic");
        let asked = owner.join().expect("no panic");
        assert!(asked[0].1 && asked[1..].iter().all(|(_, for_record)| !for_record), "{asked:?}");
        // After pauses of 1 s, 2 s, 4 s: no more often than that.
        assert!((2..=4).contains(&asked.len()), "{asked:?}");
    });
}

#[test]
fn a_log_shrinks_and_large_records_wait_for_growth_again() {
    simulate(10, |seed| {
        let large = device("large", FULL_BYTES);
        Log::create(LOG_ID, as_devices(from_ref(&large)), options()).expect("create");
        let grown_bytes = [("large".to_owned(), FULL_BYTES)].into();
        let log = open_as(from_ref(&large), LogOptions { grown_bytes, ..options() }).expect("open").0;
        let (bytes, checkpoints) = (log.max_record_bytes(), checkpointer(&log));
        let large_record = vec![seed as u8; bytes];
        log.set_growth_owner(true);
        // The last one that the large device is given, and not durable yet.
        let last = log.append(&[&large_record]).expect("the device takes it");
        let small = device("small", SMALL_BYTES);
        let ordinals = log.shrink_devices(&[0], &as_devices(from_ref(&small)), 65536).expect("shrink");
        assert!(ordinals.is_some_and(|ordinals| ordinals.len() == 1));
        assert!(log.durable_lsn() >= last.end && log.checkpoint_lsn() >= last.end);
        assert!(log.must_grow_for(bytes), "what the small one does not take waits");
        (0..60).for_each(|n| _ = flush(&log, n));
        let another = device("another", FULL_BYTES);
        let waiting = {
            let log = log.clone();
            spawn("large", move || log.wait_until_grown(bytes))
        };
        let ordinal = log.stats().devices[0].ordinal;
        assert!(log.wait_for_growth().is_some_and(|wanted| wanted > bytes));
        log.report_growth(log.replace_devices(&[ordinal], &as_devices(from_ref(&another))).map(drop));
        waiting.join().expect("no panic").expect("it has grown");
        let mut space = log.wait_for_space(bytes).expect("space");
        log.flush(log.append_requested(&[&large_record], &mut space).expect("append").end).expect("flush");
        drop(space);
        log.close().expect("close");
        checkpoints.join().expect("no panic");
        drop(log);
        assert!(open_as(&[another], options()).is_ok());
        assert!(open_as(from_ref(&large), options()).is_err(), "the large one has left");
    });
}

#[test]
fn a_log_that_a_record_waits_for_keeps_its_size_and_so_does_one_without_checkpoints() {
    simulate(6, |_| {
        let large = device("large", FULL_BYTES);
        Log::create(LOG_ID, as_devices(from_ref(&large)), options()).expect("create");
        let log = open_as(from_ref(&large), options()).expect("open").0;
        let bytes = log.max_record_bytes();
        log.set_growth_owner(true);
        append(&log, 0);
        let shrinking = |name: &str| {
            let (log, small) = (log.clone(), device(name, SMALL_BYTES));
            spawn("shrinking", move || log.shrink_devices(&[0], &as_devices(from_ref(&small)), 65536))
        };
        // No task checkpoints.
        let shrinks = shrinking("small");
        sleep(20 * MS);
        assert!(log.must_grow_for(bytes) && !shrinks.is_finished());
        log.wait_until_grown(bytes).expect("the log does not shrink");
        assert_eq!(shrinks.join().expect("no panic").expect("no failure"), None);
        assert!(!log.must_grow_for(bytes));

        let shrinks = shrinking("small too");
        sleep(20 * MS);
        log.report_failed_checkpoint(Error::no_space("disk", 0, 1));
        let refused = shrinks.join().expect("no panic");
        assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::NoSpace), "{refused:?}");
        assert!(!log.must_grow_for(bytes));
        log.append(&[&vec![1; bytes]]).expect("the device takes it");
        log.close().expect("close");
    });
}

/// Space that was asked for when the log was large, and that the small one never has at once, is granted in part.
#[test]
fn a_request_for_space_does_not_wait_for_more_than_the_small_log_has() {
    simulate(6, |_| {
        let large = device("large", FULL_BYTES);
        Log::create(LOG_ID, as_devices(from_ref(&large)), options()).expect("create");
        let log = open_as(from_ref(&large), options()).expect("open").0;
        let checkpoints = checkpointer(&log);
        let first = log.request_space(u64::MAX).expect("ask");
        assert!(first.wait(Duration::MAX).expect("wait"));
        let others: Vec<_> = (0..8).map(|_| log.request_space(u64::MAX).expect("ask")).collect();
        let small = device("small", SMALL_BYTES);
        let shrinks = {
            let log = log.clone();
            spawn("shrinking", move || log.shrink_devices(&[0], &as_devices(from_ref(&small)), 65536))
        };
        sleep(50 * MS);
        drop(first);
        for other in others {
            assert!(other.wait(Duration::from_secs(60)).expect("wait"), "it is never granted");
        }
        assert!(shrinks.join().expect("no panic").expect("shrink").is_some());
        log.close().expect("close");
        checkpoints.join().expect("no panic");
    });
}
