//! A small log goes round many times, while groups lag behind, fill it, and are read from its devices.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_log::LogOptions;
use tantalum_raft::{Entry, ErrorKind, RaftLog, RaftLogOptions};
use tantalum_rt::{Simulation, sleep, spawn};

fn devices(count: usize, seed: u64) -> Vec<Arc<dyn Device>> {
    let us = Duration::from_micros;
    let profile = |n| MemoryProfile {
        write_latency: us(20)..us(200),
        read_latency: us(5)..us(60),
        seed: seed * 8 + n,
        ..MemoryProfile::default()
    };
    (0..count as u64).map(|n| MemoryDevice::with_profile(format!("raft-{n}"), 1 << 20, profile(n)) as _).collect()
}

fn options(cache_bytes: usize, copies: u8) -> RaftLogOptions {
    RaftLogOptions { cache_bytes, log: LogOptions { copies, ..LogOptions::default() } }
}

fn open(devices: &[Arc<dyn Device>], options: &RaftLogOptions) -> RaftLog {
    RaftLog::open(devices.to_vec(), options).expect("open")
}

fn entry(group: u64, index: u64, bytes: usize) -> Entry {
    let mut entry = vec![(group + index) as u8; bytes];
    entry[..8].copy_from_slice(&(group << 32 | index).to_le_bytes());
    Entry::new(index, 1 + index / 100, entry)
}

/// An idle group and a group that lags behind, beside one that goes on: sizes as the seed says.
fn go_round(seed: u64, devices: &[Arc<dyn Device>], options: &RaftLogOptions, rounds: u64) {
    let capacity = devices.iter().map(|device| device.capacity_bytes()).sum::<u64>();
    let bytes = [40, 700, 1500, 2000][seed as usize % 4];
    let log = open(devices, options);
    let idle: Vec<_> = (0..10).map(|index| entry(1, index, bytes)).collect();
    let end = log.group(1).append(&idle).expect("append");
    log.group(1).set_vote(b"a vote").expect("vote");
    log.flush(end).expect("flush");
    let group = log.group(2);
    let mut purged = 0;
    let mut index = 5;
    while log.stats().log.end_lsn.get() < rounds * capacity {
        let entries: Vec<_> = (index..index + 1 + index % 3).map(|index| entry(2, index, bytes)).collect();
        index += entries.len() as u64;
        let end = group.append(&entries).expect("there is space");
        log.flush(end).expect("flush");
        if index - purged > 12 {
            purged = index - 6;
            group.purge(purged, 1 + purged / 100, b"a note").expect("purge");
        }
        if index.is_multiple_of(5) {
            let found = log.group(1).entries(3..6, usize::MAX).expect("read");
            assert_eq!(found, idle[3..6], "seed {seed}");
            let found = group.entries(purged..index, usize::MAX).expect("read");
            let expected: Vec<_> = (purged + 1..index).map(|index| entry(2, index, bytes)).collect();
            assert_eq!(found, expected[expected.len() - found.len()..], "seed {seed}");
        }
    }
    log.flush(group.set_vote(b"the last change").expect("vote")).expect("flush");
    let stats = log.stats();
    assert!(stats.log.checkpoint_lsn.get() > (rounds - 2) * capacity, "seed {seed}: it goes round, {stats:?}");
    assert!(stats.rewritten.0 > 10 * (rounds - 2), "seed {seed}: the idle group was rewritten");
    let bounds = group.bounds();
    let live = stats.live_bytes;
    drop((log, group));
    let log = open(devices, options);
    assert_eq!((log.group(2).bounds(), log.stats().live_bytes), (bounds, live), "seed {seed}");
    assert_eq!(log.group(1).entries(0..99, usize::MAX).expect("read"), idle, "seed {seed}");
    assert_eq!(log.group(1).vote().as_deref(), Some(&b"a vote"[..]));
}

#[test]
fn a_small_log_goes_round_with_an_idle_group_in_it() {
    for seed in 0..16 {
        Simulation::new(seed)
            .run(move || {
                let (count, copies) = [(1, 1), (2, 1), (2, 2), (3, 1)][seed as usize / 4];
                let (devices, options) = (devices(count, seed), options([0, 1 << 20][seed as usize % 2], copies));
                RaftLog::create(devices.clone(), &options).expect("create");
                go_round(seed, &devices, &options, 6);
            })
            .expect_finished();
    }
}

#[test]
fn a_log_full_of_needed_entries_says_so_and_takes_purges_and_votes() {
    for seed in 0..8 {
        Simulation::new(seed)
            .run(move || {
                let (count, copies) = [(1, 1), (2, 1), (2, 2), (3, 1)][seed as usize % 4];
                let (devices, options) = (devices(count, seed), options(0, copies));
                RaftLog::create(devices.clone(), &options).expect("create");
                let log = open(&devices, &options);
                let bytes = [100, 3000][seed as usize % 2].min(log.max_entry_bytes());
                let groups: Vec<_> = (0..3).map(|id| log.group(id)).collect();
                for round in 0..5 {
                    // Groups are filled one after another, so that the oldest are needed as long as the newest.
                    let refused = (0..u64::MAX).find_map(|n| {
                        let group = &groups[n as usize / 10 % 3];
                        let index = group.bounds().last.map_or(1, |(last, _)| last + 1);
                        let appended = group.append(&[entry(group.id(), index, bytes)]);
                        appended.and_then(|end| log.flush(end)).err()
                    });
                    let refused = refused.expect("it is full at last");
                    assert_eq!(refused.kind(), ErrorKind::LogFull, "{refused}");
                    assert!(refused.to_string().contains("purge entries that snapshots cover"), "{refused}");
                    let stats = log.stats();
                    assert!(stats.live_bytes > stats.live_limit_bytes / 10 * 9, "{stats:?}");
                    // Votes are needed most when nothing else goes.
                    for n in 0..200u64 {
                        let end = groups[n as usize % 3].set_vote(&[n as u8; 100]).expect("there is space for votes");
                        log.flush(end).expect("flush");
                    }
                    let group = &groups[round % 3];
                    let last = group.bounds().last.expect("it has entries");
                    log.flush(group.purge(last.0, last.1, b"").expect("purge")).expect("flush");
                }
                let bounds: Vec<_> = groups.iter().map(|group| group.bounds()).collect();
                let live = log.stats().live_bytes;
                drop((groups, log));
                let log = open(&devices, &options);
                assert_eq!(log.stats().live_bytes, live);
                for (id, bounds) in bounds.into_iter().enumerate() {
                    let group = log.group(id as u64);
                    assert_eq!(group.bounds(), bounds);
                    for found in group.entries(bounds.indexes, usize::MAX).expect("read") {
                        assert_eq!(found, entry(id as u64, found.index, bytes));
                    }
                }
            })
            .expect_finished();
    }
}

#[test]
fn readers_find_entries_while_they_are_rewritten() {
    for seed in 0..4 {
        Simulation::new(seed)
            .run(move || {
                let (devices, options) = (devices(1 + seed as usize % 2, seed), options(0, 1));
                RaftLog::create(devices.clone(), &options).expect("create");
                let log = open(&devices, &options);
                let lagging = log.group(9);
                let entries: Vec<_> = (1..=40).map(|index| entry(9, index, 600)).collect();
                log.flush(lagging.append(&entries).expect("append")).expect("flush");
                let readers: Vec<_> = (0..3)
                    .map(|n| {
                        let (lagging, entries) = (lagging.clone(), entries.clone());
                        spawn(format!("reader-{n}"), move || {
                            for round in 0..150u64 {
                                let first = 1 + (round * (7 + n)) % 35;
                                let found = lagging.entries(first..first + 5, 2000).expect("read");
                                assert_eq!(found, entries[first as usize - 1..][..3]);
                                sleep(Duration::from_micros(300));
                            }
                        })
                    })
                    .collect();
                let busy = log.group(1);
                for index in 1..4000 {
                    log.flush(busy.append(&[entry(1, index, 900)]).expect("append")).expect("flush");
                    busy.purge(index, 1 + index / 100, b"").expect("purge");
                }
                readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
                assert!(log.stats().rewritten.0 > 40);
            })
            .expect_finished();
    }
}
