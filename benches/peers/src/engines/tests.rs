//! What every adapter must do.

use std::{path::Path, thread, time::Duration};

use super::*;
use crate::{
    clients::{self, Run},
    data::{Dataset, key},
    engine::{Engine, Kind, Row, Setup},
    error::Error,
    meter::Meter,
    workload::{Work, Workload, balance, set_balance},
};

const ROWS: u64 = 200;

fn setup(directory: &Path) -> Setup {
    Setup {
        directory: directory.to_owned(),
        cache_bytes: 8 << 20,
        log_bytes: 64 << 20,
        log_partitions: 2,
        value_bytes: 100,
        sessions: 16,
        has_transactions: false,
        is_cold: false,
    }
}

/// An engine with loaded rows, in a directory that goes in the end.
fn with_rows(kind: Kind, has_transactions: bool, test: impl FnOnce(&dyn Engine, &Setup)) {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup { has_transactions, ..setup(directory.path()) };
    let engine = kind.open(&setup).unwrap();
    engine.load(&mut Dataset { rows: ROWS, value_bytes: setup.value_bytes }.load(1)).unwrap();
    test(&*engine, &setup);
    engine.close().unwrap();
}

/// Every adapter of a database, twice, as some are opened in another way for transactions.
fn databases() -> impl Iterator<Item = (Kind, bool)> {
    let kinds = Kind::ALL.into_iter().filter(|kind| kind.is_database() && *kind != Kind::TantalumPipelined);
    kinds.flat_map(|kind| [(kind, false), (kind, true)])
}

fn scanned(engine: &dyn Engine, from: u64, rows: usize) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| found.push((key.to_vec(), value.to_vec()));
    engine.session().unwrap().scan(&key(from), rows, &mut visit).unwrap();
    found
}

#[test]
fn rows_are_loaded_written_read_and_scanned() {
    for (kind, has_transactions) in databases() {
        with_rows(kind, has_transactions, |engine, setup| {
            engine.warm_log().unwrap();
            let mut session = engine.session().unwrap();
            let (keys, new) = ([key(7), key(9), key(ROWS)], vec![5; setup.value_bytes]);
            session.put(&[(&keys[0], &new)]).unwrap();
            let rows: Vec<Row<'_>> = keys[1..].iter().map(|key| (&key[..], &new[..])).collect();
            session.put(&rows).unwrap();
            let loaded: Vec<_> = Dataset { rows: ROWS, value_bytes: setup.value_bytes }.load(1).collect();
            let mut value = vec![1];
            assert!(session.get(&keys[0], &mut value).unwrap() && value == new, "{kind:?}");
            assert!(session.get(&key(8), &mut value).unwrap() && value == loaded[8].1, "{kind:?}");
            assert!(!session.get(&key(ROWS + 1), &mut value).unwrap(), "{kind:?}");
            let expected: Vec<_> = [6u64, 7, 8, 9]
                .map(|number| {
                    let old = loaded[number as usize].1.clone();
                    (key(number).to_vec(), if number % 2 == 1 { new.clone() } else { old })
                })
                .into();
            assert_eq!(scanned(engine, 6, 4), expected, "{kind:?}");
            assert_eq!(scanned(engine, 0, usize::MAX).len() as u64, ROWS + 1, "{kind:?}");
        });
    }
}

#[test]
fn concurrent_transfers_keep_the_sum() {
    const THREADS: usize = 4;
    const TRANSFERS: usize = 50;
    for (kind, _) in databases().filter(|(_, has_transactions)| *has_transactions) {
        with_rows(kind, true, |engine, _| {
            let sum = || scanned(engine, 0, usize::MAX).iter().fold(0u64, |sum, row| sum.wrapping_add(balance(&row.1)));
            let before = sum();
            let transfer = |from: usize| {
                let (mut session, keys) = (engine.session().unwrap(), [key(3), key(4)]);
                for _ in 0..TRANSFERS {
                    let keys = [&keys[0][..], &keys[1][..]];
                    let mut change = |values: &mut [Vec<u8>]| {
                        set_balance(&mut values[from], |balance| balance.wrapping_sub(10));
                        set_balance(&mut values[1 - from], |balance| balance.wrapping_add(10));
                    };
                    while let Err(error) = session.modify(&keys, &mut change) {
                        assert!(matches!(error, Error::Conflict), "{kind:?}: {error}");
                    }
                }
            };
            let balances = || scanned(engine, 3, 2).into_iter().map(|row| balance(&row.1)).collect::<Vec<_>>();
            let first = balances();
            thread::scope(|scope| {
                for thread in 0..THREADS {
                    // Three in one direction, one in the other.
                    scope.spawn(move || transfer(usize::from(thread == 0)));
                }
            });
            assert_eq!(sum(), before, "{kind:?}");
            let moved = 2 * TRANSFERS as u64 * 10;
            assert_eq!(balances(), [first[0].wrapping_sub(moved), first[1].wrapping_add(moved)], "{kind:?}");
        });
    }
}

/// As far as the device tells: others may write meanwhile, but on a machine that does nothing else an engine that leaves its
/// commits in the file system's cache fails here.
#[test]
fn the_device_has_more_to_write_for_each_commit() {
    for (kind, has_transactions) in databases() {
        with_rows(kind, has_transactions, |engine, setup| {
            let (meter, mut session) = (Meter::of(&setup.directory).unwrap(), engine.session().unwrap());
            for number in 0..20u64 {
                let (before, value) = (meter.read().unwrap(), [number as u8; 100]);
                session.put(&[(&key(number), &value)]).unwrap();
                let used = meter.read().unwrap().since(&before);
                // A directory in memory is on no device.
                assert!(used.device_written_bytes.is_none_or(|bytes| bytes >= 512), "{kind:?}: {used:?}");
            }
        });
    }
}

#[test]
fn commits_under_way_are_there_in_the_end() {
    with_rows(Kind::TantalumPipelined, false, |engine, _| {
        let mut pipeline = engine.pipeline().unwrap();
        for number in 0..20 {
            pipeline.start(&[(&key(number), &[9; 100])]).unwrap();
        }
        for _ in 0..20 {
            pipeline.finish_oldest().unwrap();
        }
        drop(pipeline);
        assert!(scanned(engine, 0, 20).iter().all(|(_, value)| value == &[9; 100]));
    });
}

/// Every client hears of its commits, whichever client leads, and the file holds what they wrote.
#[test]
fn the_bare_log_has_the_commits_of_all_clients() {
    const THREADS: u64 = 8;
    const COMMITS: u64 = 500;
    let directory = tempfile::tempdir().unwrap();
    let log = group_log::GroupLog::open(&setup(directory.path())).unwrap();
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let log = &log;
            scope.spawn(move || {
                let mut session = log.session().unwrap();
                for number in 0..COMMITS {
                    session.put(&[(&key(thread), &number.to_le_bytes())]).unwrap();
                }
            });
        }
    });
    let bytes = std::fs::read(directory.path().join("log")).unwrap();
    for thread in 0..THREADS {
        let last = [&key(thread)[..], &(COMMITS - 1).to_le_bytes()].concat();
        assert!(bytes.windows(last.len()).any(|window| window == last), "of thread {thread}");
    }
}

#[test]
fn clients_are_counted_when_they_have_fetched_what_the_cache_holds() {
    let directory = tempfile::tempdir().unwrap();
    let setup = Setup { cache_bytes: 2 << 20, is_cold: true, ..setup(directory.path()) };
    let engine = Kind::Raw.open(&setup).unwrap();
    let meter = Meter::of(directory.path()).unwrap();
    let work = Work::new(Workload::ColdRead, Dataset { rows: 10_000, value_bytes: setup.value_bytes });
    let (warm_up, measured, warm_up_bytes) = (Duration::ZERO, Duration::from_millis(1), setup.cache_bytes);
    let run = Run { clients: 4, is_pipelined: false, warm_up, warm_up_bytes, measured, seed: 1 };
    let before = meter.read().unwrap();
    let (_, counted) = clients::run(engine, work, run, &meter).unwrap();
    let fetched = meter.read().unwrap().since(&before).process_read_bytes;
    assert!(fetched >= warm_up_bytes + counted.operations * 4096, "{fetched} {counted:?}");
    assert!(counted.used.process_read_bytes < fetched, "{fetched} {counted:?}");
}
