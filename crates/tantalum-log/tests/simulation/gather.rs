//! Commits that follow each other share writes, and nobody waits for those who do not come.

use std::{ops::Range, sync::Arc, time::Duration};

use tantalum_device::{MemoryDevice, MemoryProfile};
use tantalum_log::{Hiding, Log, LogOptions, LogStats};
use tantalum_rt::{now, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, random};
use crate::steps::{MS, open_as, simulate};

const CLIENTS: u64 = 8;
const COMMITS: u64 = 50;

/// A log on devices whose writes take a millisecond, after clients have committed record after record, pausing for `pause`
/// microseconds between two. Also returns the longest time that a commit took, and all commits together.
fn committed(seed: u64, devices: usize, gather: bool, pause: Range<u64>) -> (LogStats, Duration, Duration) {
    let profile = MemoryProfile { write_latency: MS..MS, ..MemoryProfile::default() };
    let device = |n| MemoryDevice::with_profile(format!("log-{n}"), 4 << 20, profile.clone());
    let devices: Vec<Arc<MemoryDevice>> = (0..devices).map(device).collect();
    let options = LogOptions { section_bytes: Some(65536), hiding: Hiding::Off, gather, ..LogOptions::default() };
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
fn nobody_waits_long_for_clients_that_do_not_come_back() {
    simulate(20, |seed| {
        for devices in [1, 3] {
            let (_, alone, slow) = committed(seed, devices, false, 20_000..400_000);
            let (_, longest, all) = committed(seed, devices, true, 20_000..400_000);
            assert!(longest <= alone + MS / 2, "{longest:?} instead of {alone:?}");
            assert!(all < slow + slow / 50, "{all:?} instead of {slow:?}");
        }
    });
}
