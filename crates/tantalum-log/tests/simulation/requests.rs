//! What a request takes: everything that gathered while no device was free, or what one flush asks for.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_log::{Log, LogOptions};
use tantalum_rt::{Scheduling, Simulation, now, spawn};

use crate::plan::LOG_ID;

const MS: Duration = Duration::from_millis(1);
const CLIENTS: u8 = 8;

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
        let clients: Vec<_> = (0..CLIENTS).map(client).collect();
        clients.into_iter().for_each(|client| client.join().expect("no panic"));
        let (took, requests) = (since.elapsed().as_millis(), log.stats().requests);
        drop(log);
        let mut recovery = Log::open(vec![device], options, &mut |_| {}).expect("open");
        let mut found = 0;
        while recovery.next_record().expect("readable").is_some() {
            found += 1;
        }
        assert_eq!(found, CLIENTS);
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
    assert_eq!(commits(true), (CLIENTS.into(), CLIENTS.into()));
}
