//! Commits that are awaited without a thread each: as futures, and with calls when they are durable.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use tantalum::{Commit, Db, Device, Devices, ErrorKind, Result, Table, Ticket};
use tantalum_device::{Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{Mutex, Outcome, Parker, Random, Simulation, Unparker, sleep, spawn};

use crate::support::{check, cut_power_after, open, simulate, simulate_stores, small};

fn begin_put(db: &Db, table: &Table, key: u64) -> Ticket {
    let mut tx = db.begin().unwrap();
    tx.put(table, key.to_be_bytes(), "value").unwrap();
    tx.commit_async().unwrap()
}

struct Unpark(Unparker);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// The smallest executor.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let parker = Parker::new();
    let waker = Waker::from(Arc::new(Unpark(parker.unparker())));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(outcome) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return outcome;
        }
        parker.park();
    }
}

/// On each store, many commits are awaited at once, in any order, some by other tasks than first; what is ready is durable.
#[test]
fn commits_are_awaited() {
    simulate_stores(0..12, |seed, _, devices| {
        let db = small().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let clients: Vec<_> = (0..3u64)
            .map(|client| {
                let (db, table) = (db.clone(), table.clone());
                let mut random = Random::with_seed(seed * 10 + client);
                spawn("client", move || {
                    for round in 0..6 {
                        let key = client * 1000 + round * 10;
                        let mut tickets: Vec<_> = (0..5).map(|n| begin_put(&db, &table, key + n)).collect();
                        random.shuffle(&mut tickets);
                        for mut ticket in tickets {
                            if random.bool() {
                                // Polled once, by a waker that goes nowhere, then by another.
                                let mut context = Context::from_waker(Waker::noop());
                                if let Poll::Ready(done) = Pin::new(&mut ticket).poll(&mut context) {
                                    done.unwrap();
                                    continue;
                                }
                            }
                            let position = ticket.position();
                            let commit = block_on(ticket).unwrap();
                            assert!(position.is_some() && commit.position() == position);
                        }
                    }
                })
            })
            .collect();
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert_eq!(db.range(&table, ..).unwrap().count(), 90);
        check(&db);
        db.close().unwrap();
    });
}

/// A call that commits again and has itself called again: no lock is held meanwhile.
fn chain(db: &Db, table: &Table, left: u64, ended: Unparker) {
    let ticket = begin_put(db, table, left);
    let (db, table) = (db.clone(), table.clone());
    ticket.on_durable(move |commit: Result<Commit>| {
        assert!(db.get(&table, left.to_be_bytes()).unwrap().is_some() && commit.unwrap().position().is_some());
        if left == 0 { ended.unpark() } else { chain(&db, &table, left - 1, ended) }
    });
}

#[test]
fn calls_may_use_the_database() {
    simulate(0..10, |_, devices| {
        let db = small().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let parker = Parker::new();
        chain(&db, &table, 9, parker.unparker());
        parker.park();
        assert_eq!(db.range(&table, ..).unwrap().count(), 10);
        db.close().unwrap();
    });
}

/// Of a waker, too, which is called and dropped.
#[test]
fn wakers_may_use_the_database_and_are_let_go() {
    struct Reads(Db, Table, Unparker);

    impl Wake for Reads {
        fn wake(self: Arc<Self>) {
            assert!(begin_put(&self.0, &self.1, 7).position().is_some());
            self.2.unpark();
        }
    }

    simulate(0..10, |_, devices| {
        let db = small().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let parker = Parker::new();
        let reads = Arc::new(Reads(db.clone(), table.clone(), parker.unparker()));
        let mut ticket = begin_put(&db, &table, 1);
        let waker = Waker::from(Arc::clone(&reads));
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(waker);
        parker.park();
        assert!(matches!(ticket.try_wait(), Some(Ok(_))));
        // One that is dropped takes its waker along.
        let mut ticket = begin_put(&db, &table, 2);
        let waker = Waker::from(Arc::clone(&reads));
        assert!(Pin::new(&mut ticket).poll(&mut Context::from_waker(&waker)).is_pending());
        drop((waker, ticket));
        sleep(Duration::from_millis(50));
        assert!(!parker.park_timeout(Duration::from_millis(1)));
        assert_eq!(Arc::strong_count(&reads), 1);
        drop(reads);
        db.close().unwrap();
    });
}

/// All calls are made when the database is closed, which may be by the last of them.
#[test]
fn closing_makes_all_calls() {
    for closes in [true, false] {
        simulate(0..10, move |seed, devices| {
            let db = small().open_on(devices.clone()).unwrap();
            let table = db.table("t").unwrap();
            let made = Arc::new(AtomicU64::new(0));
            for key in 0..seed + 1 {
                let ticket = begin_put(&db, &table, key);
                let (made, db) = (Arc::clone(&made), (!closes).then(|| db.clone()));
                ticket.on_durable(move |commit| {
                    assert!(commit.is_ok());
                    made.fetch_add(1, SeqCst);
                    drop(db);
                });
            }
            if closes {
                db.close().unwrap();
            } else {
                drop(db);
                while made.load(SeqCst) < seed + 1 {
                    sleep(Duration::from_millis(1));
                }
                // The last call closes it.
                sleep(Duration::from_secs(1));
            }
            assert_eq!(made.load(SeqCst), seed + 1);
            let db = small().open_on(devices).unwrap();
            assert_eq!(db.stats().unwrap().recovery.records, 0, "it was closed cleanly");
            assert_eq!(db.range(&db.table("t").unwrap(), ..).unwrap().count() as u64, seed + 1);
            db.close().unwrap();
        });
    }
}

/// When the log fails, those that wait get to know it.
#[test]
fn a_failed_log_ends_all_waits() {
    let run = || {
        let profile =
            MemoryProfile { write_latency: Duration::from_millis(1)..Duration::from_millis(2), ..Default::default() };
        let log = MemoryDevice::with_profile("log", 2 << 20, profile);
        let data: Arc<dyn Device> = MemoryDevice::new("data", 1 << 20);
        let area: Arc<dyn Device> = MemoryDevice::new("area", 1 << 20);
        let devices = Devices { data, double_write: Some(area), log: vec![log.clone()] };
        let db = small().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        log.inject(Fault::FailWrites { after: 0 });
        let (awaited, called) = (begin_put(&db, &table, 1), begin_put(&db, &table, 2));
        let kind = Arc::new(Mutex::new(None));
        called.on_durable({
            let kind = Arc::clone(&kind);
            move |commit| *kind.lock() = commit.err().map(|error| error.kind())
        });
        assert_eq!(block_on(awaited).unwrap_err().kind(), ErrorKind::OutcomeUnknown);
        sleep(Duration::from_millis(10));
        assert_eq!(*kind.lock(), Some(ErrorKind::OutcomeUnknown));
        drop(db.close());
    };
    Simulation::new(3).time_limit(Duration::from_secs(60)).run(run).expect_finished();
}

/// A commit of which a call or a future says that it is durable is there after a power cut.
#[test]
fn what_was_told_survives_power_cuts() {
    let (mut told_in_all, mut cuts) = (0, 0);
    for seed in 0..40 {
        let mut random = Random::with_seed(seed);
        let us = Duration::from_micros;
        let device = |name: &str, salt| {
            let profile = MemoryProfile {
                write_latency: us(20)..us(400),
                flush_latency: us(20)..us(200),
                seed: seed * 16 + salt,
                ..MemoryProfile::default()
            };
            MemoryDevice::with_profile(name, 1 << 20, profile)
        };
        let all = [device("data", 0), device("area", 1), device("log-0", 2), device("log-1", 3)];
        let told: Arc<[AtomicU64; 2]> = Arc::default();
        for life in 0..3u64 {
            let [data, area, log @ ..] = all.each_ref().map(|device| Arc::clone(device) as Arc<dyn Device>);
            let devices = Devices { data, double_write: Some(area), log: log.into() };
            let told_before = told.each_ref().map(|told| told.load(SeqCst));
            let (of_run, cut_at) = (Arc::clone(&told), us(random.u64(1..40_000)));
            let run = move || {
                cut_power_after(cut_at);
                let db = small().open_on(devices).unwrap();
                let table = db.table("t").unwrap();
                // Commits of each kind are told in their order: as many as that.
                for (kind, told) in (0u64..).zip(told_before) {
                    let rows =
                        db.range(&table, (kind << 32).to_be_bytes()..((kind + 1) << 32).to_be_bytes()).unwrap().count();
                    assert!(rows as u64 >= told, "{told} commits were told durable, {rows} are there");
                    of_run[kind as usize].store(rows as u64, SeqCst);
                }
                let caller = spawn("caller", {
                    let (db, table, told) = (db.clone(), table.clone(), Arc::clone(&of_run));
                    move || {
                        for n in told[0].load(SeqCst)..400 {
                            let told = Arc::clone(&told);
                            begin_put(&db, &table, n).on_durable(move |commit| {
                                commit.unwrap();
                                told[0].fetch_max(n + 1, SeqCst);
                            });
                            sleep(us(37));
                        }
                    }
                });
                for n in of_run[1].load(SeqCst)..400 {
                    block_on(begin_put(&db, &table, (1 << 32) + n)).unwrap();
                    of_run[1].store(n + 1, SeqCst);
                }
                caller.join().unwrap();
                check(&db);
                db.close().unwrap();
            };
            let outcome = Simulation::new(seed * 8 + life).cores(2).time_limit(Duration::from_secs(60)).run(run);
            cuts += u64::from(matches!(outcome, Outcome::PowerCut { .. }));
            assert!(matches!(outcome, Outcome::PowerCut { .. } | Outcome::Finished(())), "seed {seed}");
            all.iter().for_each(|device| device.power_cut(&mut random));
        }
        told_in_all += told.iter().map(|told| told.load(SeqCst)).sum::<u64>();
    }
    assert!(told_in_all > 1000 && cuts > 60, "{told_in_all} commits, {cuts} power cuts");
}

#[test]
fn on_threads_too() {
    let dir = tempfile::tempdir().unwrap();
    let db = open(dir.path());
    let table = db.table("t").unwrap();
    let (told, calls) = std::sync::mpsc::channel();
    for key in 0..20 {
        let told = told.clone();
        begin_put(&db, &table, key).on_durable(move |commit| told.send(commit.is_ok()).unwrap());
        block_on(begin_put(&db, &table, 100 + key)).unwrap();
    }
    drop(told);
    assert_eq!(calls.iter().filter(|is_ok| *is_ok).count(), 20);
    db.close().unwrap();
}

#[test]
fn a_call_that_panics_keeps_no_other_from_being_made() {
    let dir = tempfile::tempdir().unwrap();
    let db = small().open(dir.path()).unwrap();
    let table = db.table("t").unwrap();
    let (told, calls) = std::sync::mpsc::channel();
    for key in 0..40 {
        let told = told.clone();
        let ticket = begin_put(&db, &table, key);
        let call = move |commit: Result<Commit>| {
            told.send(commit.is_ok()).unwrap();
            assert!(key % 2 == 0, "a call of the test panics");
        };
        // At once if it is durable by now, so that the panic is this task's; else by the task for all.
        drop(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| ticket.on_durable(call))));
    }
    drop(told);
    assert_eq!(calls.iter().filter(|is_ok| *is_ok).count(), 40);
    db.close().unwrap();
}

/// `commit_then` calls when others see the transaction, and before it is durable; without early lock release, behind that.
#[test]
fn a_commit_calls_when_it_is_visible() {
    simulate(0..8, |seed, devices| {
        let early = seed % 2 == 0;
        let db = small().expert(|expert| expert.early_lock_release(early)).open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&table, "key", "value").unwrap();
        let mut calls = 0;
        let commit = tx.commit_then(|| {
            calls += 1;
            let log = db.stats().unwrap().log;
            assert_eq!(log.durable_lsn < log.end_lsn, early, "{log:?}");
            // Its lock is free.
            let next = db.begin().unwrap();
            assert_eq!(next.get_for_update(&table, "key").unwrap().as_deref(), Some(&b"value"[..]));
        });
        assert_eq!(calls, 1);
        assert!(db.stats().unwrap().log.durable_lsn.get() >= commit.unwrap().position().unwrap());
    });
}

/// A small database's devices, slow enough that power cuts come amid writes.
fn slow_devices(seed: u64) -> [Arc<MemoryDevice>; 3] {
    let us = Duration::from_micros;
    [("data", 0), ("area", 1), ("log", 2)].map(|(name, salt)| {
        let profile = MemoryProfile {
            write_latency: us(20)..us(400),
            flush_latency: us(20)..us(200),
            seed: seed * 16 + salt,
            ..MemoryProfile::default()
        };
        MemoryDevice::with_profile(name, 1 << 20, profile)
    })
}

/// A delayed commit is seen, and has nothing written; a later one has.
#[test]
fn delayed_commits_have_nothing_written() {
    simulate(0..10, |_, devices| {
        let db = small().open_on(devices).unwrap();
        let table = db.table("t").unwrap();
        begin_put(&db, &table, 0).wait().unwrap();
        // What opening and the first commit have the engine do is done.
        sleep(Duration::from_secs(1));
        let requests = db.stats().unwrap().log.requests;
        for key in 1..10u64 {
            let mut tx = db.begin().unwrap();
            assert!(tx.get(&table, (key - 1).to_be_bytes()).unwrap().is_some());
            tx.put(&table, key.to_be_bytes(), "value").unwrap();
            tx.commit_delayed().unwrap();
            sleep(Duration::from_secs(1));
        }
        assert_eq!(db.stats().unwrap().log.requests, requests);
        begin_put(&db, &table, 10).wait().unwrap();
        assert_eq!(db.stats().unwrap().log.requests, requests + 1);
        db.close().unwrap();
    });
}

/// Delayed commits are durable with a commit behind them. Power cuts take the last ones, none between.
#[test]
fn delayed_commits_are_durable_with_a_later_one() {
    let mut cuts = 0;
    for seed in 0..30 {
        let mut random = Random::with_seed(seed);
        let all = slow_devices(seed);
        let told = Arc::new(AtomicU64::new(0));
        for life in 0..3u64 {
            let [data, area, log] = all.each_ref().map(|device| Arc::clone(device) as Arc<dyn Device>);
            let devices = Devices { data, double_write: Some(area), log: vec![log] };
            let (told, cut_at) = (Arc::clone(&told), Duration::from_micros(random.u64(1..40_000)));
            let run = move || {
                cut_power_after(cut_at);
                let db = small().open_on(devices).unwrap();
                let table = db.table("t").unwrap();
                let rows: Vec<_> = db.range(&table, ..).unwrap().map(|row| row.unwrap().0.to_vec()).collect();
                assert!(
                    rows.len() as u64 >= told.load(SeqCst),
                    "{told:?} commits were durable, {} are there",
                    rows.len()
                );
                assert!((0u64..).zip(&rows).all(|(n, key)| *key == n.to_be_bytes()), "none between is missing");
                for n in rows.len() as u64..400 {
                    let mut tx = db.begin().unwrap();
                    tx.put(&table, n.to_be_bytes(), "value").unwrap();
                    if n % 8 == 7 {
                        tx.commit().unwrap();
                        told.store(n + 1, SeqCst);
                    } else {
                        tx.commit_delayed().unwrap();
                    }
                }
                db.close().unwrap();
            };
            let outcome = Simulation::new(seed * 16 + life).cores(2).time_limit(Duration::from_secs(60)).run(run);
            cuts += u64::from(matches!(outcome, Outcome::PowerCut { .. }));
            assert!(matches!(outcome, Outcome::PowerCut { .. } | Outcome::Finished(())), "seed {seed}");
            all.iter().for_each(|device| device.power_cut(&mut random));
        }
    }
    assert!(cuts > 10, "{cuts} power cuts");
}
