//! Group commit: what a request takes, everything appended while no device was free or the records of one flush; and its
//! adaptive delay: commits that follow each other share writes, and the leader does not wait for clients that do not come
//! back.

use std::{ops::Range, sync::Arc, time::Duration};

use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_log::{Hiding, Log, LogOptions, LogStats};
use tantalum_rt::{Scheduling, Simulation, now, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, random};
use crate::steps::{MS, open_as, simulate};

const CLIENTS: u64 = 8;
const COMMITS: u64 = 50;
const FLUSHES: u8 = 8;

/// A log on devices whose writes take a millisecond, after clients have committed record after record, pausing for `pause`
/// microseconds between two. Also returns the longest time that a commit took, and all commits together.
fn committed(seed: u64, devices: usize, delay: bool, pause: Range<u64>) -> (LogStats, Duration, Duration) {
    let profile = MemoryProfile { write_latency: MS..MS, ..MemoryProfile::default() };
    let device = |n| MemoryDevice::with_profile(format!("log-{n}"), 4 << 20, profile.clone());
    let devices: Vec<Arc<MemoryDevice>> = (0..devices).map(device).collect();
    let options = LogOptions {
        section_bytes: Some(65536),
        hiding: Hiding::Off,
        group_commit_delay: delay,
        ..LogOptions::default()
    };
    Log::create(LOG_ID, as_devices(&devices), options.clone()).expect("create");
    let (log, _) = open_as(&devices, options).expect("open");
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (log, pause) = (log.clone(), pause.clone());
            spawn(format!("client-{client}"), move || {
                let mut random = random(seed * CLIENTS + client);
                let (mut longest, mut all) = (Duration::ZERO, Duration::ZERO);
                for n in 0..COMMITS {
                    sleep(Duration::from_micros(random.u64(pause.clone())));
                    let start = now();
                    let record = log.append(&[&n.to_le_bytes()]).expect("append");
                    log.flush(record.end).expect("flush");
                    longest = longest.max(now() - start);
                    all += now() - start;
                }
                (longest, all)
            })
        })
        .collect();
    let times = clients.into_iter().map(|client| client.join().expect("no panic"));
    let (longest, all) = times.fold((Duration::ZERO, Duration::ZERO), |a, b| (a.0.max(b.0), a.1 + b.1));
    (log.stats(), longest, all)
}

#[test]
fn clients_that_commit_again_at_once_share_a_write() {
    simulate(20, |seed| {
        let (alone, _, slow) = committed(seed, 1, false, 0..30);
        assert!(alone.requests > 2 * COMMITS - 10, "half of them write, and the others wait: {alone:?}");
        for devices in [1, 3] {
            let (together, _, fast) = committed(seed, devices, true, 0..30);
            assert!(together.requests < COMMITS + COMMITS / 4, "nearly all are in each write: {together:?}");
            assert!(fast < slow * 2 / 3, "{fast:?} instead of {slow:?}");
            let writes = together.devices.iter().map(|device| device.writes);
            assert!(writes.clone().all(|writes| writes > 0), "all devices have their turn: {together:?}");
        }
    });
}

#[test]
fn the_leader_does_not_wait_long_for_clients_that_do_not_come_back() {
    simulate(20, |seed| {
        for devices in [1, 3] {
            let (_, alone, slow) = committed(seed, devices, false, 20_000..400_000);
            let (_, longest, all) = committed(seed, devices, true, 20_000..400_000);
            assert!(longest <= alone + MS / 2, "{longest:?} instead of {alone:?}");
            assert!(all < slow + slow / 50, "{all:?} instead of {slow:?}");
        }
    });
}

/// Requests, and milliseconds, that a commit of each of some clients at the same time takes on a device with a
/// millisecond for each write.
fn commits(request_per_flush: bool) -> (u64, u128) {
    let commits = move || {
        let profile = MemoryProfile { write_latency: MS..MS, ..MemoryProfile::default() };
        let device: Arc<dyn Device> = MemoryDevice::with_profile("log", 4 << 20, profile);
        let options = LogOptions { request_per_flush, ..LogOptions::default() };
        Log::create(LOG_ID, vec![device.clone()], options.clone()).expect("create");
        let log =
            Log::open(vec![device.clone()], options.clone(), &mut |_| {}).expect("open").finish().expect("finish");
        let since = now();
        let client = |number| {
            let log = log.clone();
            spawn(format!("client {number}"), move || {
                log.flush(log.append(&[&[number; 100]]).expect("append").end).expect("flush");
            })
        };
        let clients: Vec<_> = (0..FLUSHES).map(client).collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        let (took, requests) = (since.elapsed().as_millis(), log.stats().requests);
        drop(log);
        let mut recovery = Log::open(vec![device], options, &mut |_| {}).expect("open");
        let mut found = 0;
        while recovery.next_record().expect("readable").is_some() {
            found += 1;
        }
        assert_eq!(found, FLUSHES);
        (requests, took)
    };
    Simulation::new(1).scheduling(Scheduling::InOrder).run(commits).expect_finished()
}

#[test]
fn flushes_that_find_no_free_device_share_a_request() {
    assert_eq!(commits(false), (2, 2), "the first alone, and all others");
}

#[test]
fn or_each_has_its_own() {
    assert_eq!(commits(true), (u64::from(FLUSHES), u128::from(FLUSHES)));
}
