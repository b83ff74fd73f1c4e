//! Locks that take virtual time: what they cap, to the nanosecond.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::{sync::Arc, time::Duration};

use tantalum_rt::{
    Condvar, Mutex, RwLock, Scheduling, Simulation, lock_unswitched, now,
    simulation::{LockCharges, LockUse, charge_locks, lock_uses},
    sleep, spawn, work,
};

const fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

const CHARGES: LockCharges = LockCharges { exclusive: ns(100), shared: ns(70), word: ns(30) };

/// Runs with these charges: nanoseconds, and how locks were used.
fn charged(cores: usize, charges: LockCharges, program: impl FnOnce() + 'static) -> (u64, Vec<LockUse>) {
    let run = move || {
        charge_locks(charges);
        program();
        (now().as_nanos(), lock_uses())
    };
    Simulation::new(1).scheduling(Scheduling::InOrder).cores(cores).run(run).expect_finished()
}

/// So many tasks that each do something so often, to the end.
fn all(tasks: usize, times: usize, act: impl Fn() + Clone + Send + 'static) {
    let task = || {
        let act = act.clone();
        spawn("acts", move || (0..times).for_each(|_| act()))
    };
    let tasks: Vec<_> = (0..tasks).map(|_| task()).collect();
    tasks.into_iter().for_each(|task| task.join().unwrap());
}

#[test]
fn a_mutex_is_held_by_one_whatever_the_cores() {
    let run = |cores, tasks| {
        charged(cores, CHARGES, move || {
            let mutex = Arc::new(Mutex::new(()));
            all(tasks, 10, move || drop(mutex.lock()));
        })
    };
    for (cores, tasks) in [(1, 1), (1, 4), (2, 4), (8, 4), (64, 64)] {
        let (took, uses) = run(cores, tasks);
        assert_eq!(took, 10 * tasks as u64 * 130, "{cores} cores, {tasks} tasks");
        assert_eq!(uses.iter().map(|used| used.acquisitions).sum::<u64>(), 10 * tasks as u64);
    }
}

#[test]
fn a_lock_caps_what_is_done_beside_it() {
    // 900 ns of work to 100 ns under the lock: ten tasks at most.
    let charges = LockCharges { exclusive: ns(100), ..LockCharges::default() };
    let took = |tasks| {
        let program = move || {
            let mutex = Arc::new(Mutex::new(()));
            all(tasks, 1000, move || {
                work(ns(900));
                drop(mutex.lock());
            });
        };
        charged(64, charges, program).0
    };
    // Tasks come to the lock one after the other from the second time on.
    for tasks in 1..=10 {
        assert_eq!(took(tasks), 1000 * 1000 + (tasks as u64 - 1) * 100, "{tasks} tasks");
    }
    for tasks in [11, 20, 64] {
        assert_eq!(took(tasks), 900 + tasks as u64 * 1000 * 100, "{tasks} tasks");
    }
}

#[test]
fn readers_share_all_but_the_word() {
    let run = |charges, tasks| {
        let program = move || {
            let lock = Arc::new(RwLock::new(()));
            all(tasks, 10, move || drop(lock.read()));
        };
        charged(16, charges, program).0
    };
    for tasks in [1, 2, 16] {
        assert_eq!(run(LockCharges { word: ns(0), ..CHARGES }, tasks), 10 * 70, "{tasks} tasks");
    }
    assert_eq!(run(CHARGES, 2), 30 + 10 * (30 + 70));
    // With four tasks or more, one of them is always changing the word.
    for tasks in [4, 16] {
        assert_eq!(run(CHARGES, tasks), 10 * tasks as u64 * 30 + 70, "{tasks} tasks");
    }
}

#[test]
fn a_writer_waits_for_readers_and_keeps_later_ones_out() {
    let (took, uses) = charged(4, CHARGES, || {
        let lock = Arc::new(RwLock::new(()));
        let (second, third) = (Arc::clone(&lock), Arc::clone(&lock));
        let reads = spawn("reads", move || drop(lock.read()));
        let writes = spawn("writes", move || {
            sleep(ns(50));
            drop(second.write());
        });
        let reads_later = spawn("reads later", move || {
            sleep(ns(60));
            drop(third.read());
        });
        [reads, writes, reads_later].into_iter().for_each(|task| task.join().unwrap());
    });
    assert_eq!(took, 100 + 130 + 100);
    let waited: Vec<_> = uses.iter().map(|used| (used.waits, used.waited)).collect();
    assert_eq!(waited, [(1, ns(170)), (1, ns(50)), (0, ns(0))]);
}

#[test]
fn uses_are_told_by_place_the_longest_waits_first() {
    let (_, uses) = charged(2, CHARGES, || {
        let (calm, fought_over) = (Mutex::new(()), Arc::new(Mutex::new(())));
        drop(calm.lock());
        all(2, 1, move || drop(fought_over.lock()));
        drop(calm.try_lock().unwrap());
    });
    assert!(uses.iter().all(|used| used.place.file().ends_with("lock_costs.rs")), "{uses:?}");
    let seen: Vec<_> = uses.iter().map(|used| (used.acquisitions, used.waits, used.waited)).collect();
    assert_eq!(seen, [(2, 1, ns(130)), (1, 0, ns(0)), (1, 0, ns(0))]);
    let lines: Vec<_> = uses.iter().map(|used| used.place.line()).collect();
    assert!(lines[1] < lines[0] && lines[0] < lines[2], "in their order, but for the task that waited: {lines:?}");
}

#[test]
fn who_waits_for_a_condition_pays_for_the_lock_again() {
    let (took, _) = charged(2, CHARGES, || {
        let shared = Arc::new((Mutex::new(false), Condvar::new()));
        let other = Arc::clone(&shared);
        let sets = spawn("sets", move || {
            sleep(ns(1000));
            *other.0.lock() = true;
            other.1.notify_one();
        });
        let mut is_set = shared.0.lock();
        while !*is_set {
            shared.1.wait(&mut is_set);
        }
        drop(is_set);
        sets.join().unwrap();
    });
    assert_eq!(took, 1000 + 130 + 130);
}

#[test]
fn a_holder_keeps_its_core_and_others_get_it_at_its_next_work() {
    let (took, uses) = charged(1, CHARGES, || {
        let (mutex, ends) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(Vec::new())));
        for name in ["a", "b"] {
            let (mutex, ends) = (Arc::clone(&mutex), Arc::clone(&ends));
            spawn(name, move || {
                for _ in 0..3 {
                    work(ns(1000));
                    drop(mutex.lock());
                }
                lock_unswitched(&ends).push((name, now().as_nanos()));
            });
        }
        sleep(ns(100_000));
        assert_eq!(*lock_unswitched(&ends), [("a", 5 * 1130), ("b", 6 * 1130)]);
    });
    assert_eq!(took, 100_000);
    assert_eq!(
        uses.iter().map(|used| used.waits).sum::<u64>(),
        0,
        "one core, and no task leaves it with the lock: {uses:?}"
    );
}

#[test]
fn what_outlives_the_simulation_is_locked_for_nothing() {
    let device = Arc::new(Mutex::new(()));
    let (took, uses) = charged(1, CHARGES, move || drop(lock_unswitched(&device)));
    assert_eq!((took, uses), (0, Vec::new()));
}

#[test]
fn without_charges_locks_take_no_time_and_are_not_counted() {
    let run = || {
        let mutex = Arc::new(Mutex::new(()));
        all(4, 10, move || drop(mutex.lock()));
        (now().as_nanos(), lock_uses())
    };
    assert_eq!(Simulation::new(1).run(run).expect_finished(), (0, Vec::new()));
    charge_locks(CHARGES); // Outside a simulation.
    assert_eq!(lock_uses(), Vec::new());
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let program = || {
        charge_locks(CHARGES);
        let (mutex, lock) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
        all(6, 20, move || {
            work(ns(50));
            *mutex.lock() += 1;
            if *lock.read() % 3 == 0 {
                // A lock that lies where others lay before.
                let short_lived = Box::new(Mutex::new(0));
                *short_lived.lock() += 1;
            }
            *lock.write() += 1;
        });
        lock_uses()
    };
    for scheduling in [Scheduling::InOrder, Scheduling::Random] {
        let run = move || Simulation::new(3).scheduling(scheduling).cores(3).run_traced(program);
        let other = std::thread::spawn(move || {
            let _ballast = vec![0u8; 12_345];
            run()
        });
        let (uses, trace) = run();
        assert_eq!(other.join().unwrap(), (uses, trace));
    }
}
