//! What only a simulation does: repeat itself, own the clock, find deadlocks, cut the power.

use std::{
    cell::Cell,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{
    Condvar, Instant, Mutex, Outcome, Parker, RwLock, Scheduling, Simulation, available_cores, interleave,
    interleave_in_device, is_simulated, lock_unswitched, now, power_cut, random_seed,
    simulation::{Trace, panic_at},
    sleep, spawn, work, yield_now,
};

const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn in_order() -> Simulation {
    Simulation::new(0).scheduling(Scheduling::InOrder).time_limit(Duration::from_secs(60)).step_limit(1_000_000)
}

/// The message of the panic that `f` ends with.
fn panic_message<T>(f: impl FnOnce() -> T) -> String {
    let Err(payload) = catch_unwind(AssertUnwindSafe(f)) else { panic!("it was to panic") };
    match (payload.downcast_ref::<String>(), payload.downcast_ref::<&str>()) {
        (Some(message), _) => message.clone(),
        (_, Some(message)) => message.to_string(),
        _ => panic!("the panic was to have a message"),
    }
}

/// Uses every primitive; what it returns depends on the order in which tasks ran.
fn busy_program() -> Vec<u64> {
    let log = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
    let shared = Arc::new(RwLock::new(0u64));
    let tasks: Vec<_> = (0..6u64)
        .map(|n| {
            let (log, shared) = (Arc::clone(&log), Arc::clone(&shared));
            spawn(format!("task-{n}"), move || {
                let mut random = tantalum_rt::Random::with_seed(random_seed());
                for _ in 0..20 {
                    match random.u8(..4) {
                        0 => *shared.write() += n,
                        1 => work(Duration::from_micros(random.u64(..50))),
                        2 => sleep(Duration::from_micros(random.u64(..50))),
                        _ => interleave(),
                    }
                    let value = *shared.read();
                    log.0.lock().push(n * 1000 + value);
                    log.1.notify_one();
                }
            })
        })
        .collect();
    let mut entries = log.0.lock();
    while entries.len() < 60 {
        log.1.wait_for(&mut entries, ms(1));
    }
    drop(entries);
    tasks.into_iter().for_each(|task| task.join().expect("no task of the test panics"));
    log.0.lock().clone()
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let run = |seed, scheduling| -> (Outcome<Vec<u64>>, Trace) {
        Simulation::new(seed).scheduling(scheduling).run_traced(busy_program)
    };
    for scheduling in [Scheduling::InOrder, Scheduling::Random] {
        for seed in 0..10 {
            let (first, first_trace) = run(seed, scheduling);
            // Another thread, with another heap: addresses must not matter.
            let (second, second_trace) = std::thread::spawn(move || {
                let _ballast = vec![0u8; 12_345];
                run(seed, scheduling)
            })
            .join()
            .unwrap();
            assert_eq!(first, second);
            assert_eq!(first_trace, second_trace);
            assert_eq!(first_trace.fingerprint(), second_trace.fingerprint());
        }
        let (_, one) = run(1, scheduling);
        let (_, two) = run(2, scheduling);
        assert_ne!(one, two);
        assert_ne!(one.fingerprint(), two.fingerprint());
    }
}

#[test]
fn a_trace_tells_what_happened() {
    let (_, trace) = in_order().run_traced(|| spawn("napper", || sleep(ms(3))).join().unwrap());
    let events: Vec<_> = trace.events().iter().map(|e| (e.at, e.task, e.what.as_str())).collect();
    let expected = [
        (ms(0), 0, "spawned as \"root\""),
        (ms(0), 0, "runs"),
        (ms(0), 1, "spawned as \"napper\""),
        (ms(0), 0, "waits: End(TaskId(1))"),
        (ms(0), 1, "runs"),
        (ms(0), 1, "waits: Sleep"),
        (ms(3), 1, "runs"),
        (ms(3), 1, "ended"),
        (ms(3), 0, "runs"),
        (ms(3), 0, "ended"),
    ];
    assert_eq!(events, expected);
}

#[test]
fn seeds_find_a_lost_update() {
    let lost_update = |seed| {
        let total = Simulation::new(seed).run(|| {
            let total = Arc::new(AtomicU64::new(0));
            let add = |total: Arc<AtomicU64>| {
                let before = total.load(Ordering::Relaxed);
                interleave();
                total.store(before + 1, Ordering::Relaxed);
            };
            let shared = Arc::clone(&total);
            let other = spawn("other", move || add(shared));
            interleave();
            add(Arc::clone(&total));
            other.join().unwrap();
            total.load(Ordering::Relaxed)
        });
        total.expect_finished() == 1
    };
    let found = (0..200).filter(|&seed| lost_update(seed)).count();
    assert!((1..200).contains(&found), "{found} of 200 seeds lost an update");
}

#[test]
fn time_passes_only_while_all_wait() {
    let elapsed = in_order().run(|| {
        let start = now();
        let naps: Vec<_> = (1..=10).map(|n| spawn("napper", move || sleep(Duration::from_secs(n)))).collect();
        (0..1000).for_each(|_| interleave());
        assert_eq!(start.elapsed(), Duration::ZERO);
        naps.into_iter().for_each(|nap| nap.join().unwrap());
        start.elapsed()
    });
    assert_eq!(elapsed, Outcome::Finished(Duration::from_secs(10)));
}

#[test]
fn the_clock_can_start_later() {
    assert_eq!(in_order().start_at(ms(5)).run(now).expect_finished(), Instant::from_nanos(5_000_000));
}

#[test]
fn yielding_lets_time_pass_for_those_who_poll() {
    in_order()
        .run(|| {
            let done = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&done);
            spawn("slow", move || {
                sleep(ms(1));
                flag.store(true, Ordering::Relaxed);
            });
            while !done.load(Ordering::Relaxed) {
                yield_now();
            }
        })
        .expect_finished();
}

#[test]
fn work_takes_turns_on_the_cores() {
    let elapsed = |cores, tasks| {
        let simulation = in_order().cores(cores);
        let elapsed = simulation.run(move || {
            assert_eq!(available_cores(), cores);
            let start = now();
            let workers: Vec<_> = (0..tasks).map(|n| spawn(format!("worker-{n}"), || work(ms(10)))).collect();
            workers.into_iter().for_each(|worker| worker.join().unwrap());
            start.elapsed()
        });
        elapsed.expect_finished()
    };
    assert_eq!(elapsed(2, 2), ms(10));
    assert_eq!(elapsed(2, 4), ms(20));
    assert_eq!(elapsed(2, 5), ms(30));
    assert_eq!(elapsed(8, 5), ms(10));
}

/// When each piece of work ends in milliseconds, on cores of two threads that do 150 % of the work of one: of (begins, work) in ms.
fn ends_on_shared_cores(cores: usize, pieces: &'static [(u64, u64)]) -> Vec<u64> {
    let run = move || {
        let start = now();
        let worker = |(number, &(begins, takes)): (usize, &(u64, u64))| {
            spawn(format!("worker-{number}"), move || {
                sleep(ms(begins));
                work(ms(takes));
                start.elapsed().as_millis() as u64
            })
        };
        let workers: Vec<_> = pieces.iter().enumerate().map(worker).collect();
        workers.into_iter().map(|worker| worker.join_or_panic()).collect()
    };
    in_order().cores(cores).two_threads_per_core(150).run(run).expect_finished()
}

#[test]
fn two_threads_of_a_core_share_it_while_both_work() {
    assert_eq!(ends_on_shared_cores(1, &[(0, 12)]), [12], "alone");
    assert_eq!(ends_on_shared_cores(1, &[(0, 12), (0, 12)]), [16, 16], "each at three quarters of the speed");
    assert_eq!(ends_on_shared_cores(1, &[(0, 12), (4, 3)]), [13, 8], "4 alone, 3 of 4 beside the other, 5 alone");
    assert_eq!(ends_on_shared_cores(1, &[(0, 3), (0, 6), (0, 6)]), [4, 8, 11], "the third waits for a thread");
}

#[test]
fn threads_spread_over_idle_cores() {
    assert_eq!(ends_on_shared_cores(2, &[(0, 12), (0, 12)]), [12, 12], "each on a core of its own");
    assert_eq!(ends_on_shared_cores(2, &[(0, 12), (0, 12), (0, 12)]), [16, 12, 16], "one core has two threads busy");
    // The third shares a core with the first, and stays there when the second's core is idle.
    assert_eq!(ends_on_shared_cores(2, &[(0, 12), (0, 6), (0, 12)]), [16, 6, 16]);
}

#[test]
fn threads_of_a_core_count_as_cores_for_programs() {
    let cores = in_order().cores(3).two_threads_per_core(121).run(available_cores).expect_finished();
    assert_eq!(cores, 6);
}

#[test]
fn timeouts_follow_the_virtual_clock() {
    in_order()
        .run(|| {
            let (mutex, condvar, parker) = (Mutex::new(()), Condvar::new(), Parker::new());
            let start = now();
            assert!(condvar.wait_for(&mut mutex.lock(), ms(7)).timed_out());
            assert_eq!(start.elapsed(), ms(7));
            assert!(!parker.park_timeout(ms(5)));
            assert_eq!(start.elapsed(), ms(12));
            let unparker = parker.unparker();
            spawn("unparker", move || {
                sleep(ms(1));
                unparker.unpark();
            });
            assert!(parker.park_timeout(Duration::MAX));
            assert_eq!(start.elapsed(), ms(13));
        })
        .expect_finished();
}

#[test]
fn a_notification_is_not_lost_to_a_waiter_whose_time_is_over() {
    in_order()
        .run(|| {
            let shared = Arc::new((Mutex::new(()), Condvar::new()));
            let wait = |timeout| {
                let shared = Arc::clone(&shared);
                move || shared.1.wait_for(&mut shared.0.lock(), timeout).timed_out()
            };
            let impatient = spawn("impatient", wait(ms(1)));
            let patient = spawn("patient", wait(ms(100)));
            sleep(ms(1)); // its timer is set after the impatient one's, for the same instant
            sleep(ms(1));
            shared.1.notify_one();
            assert!(impatient.join().unwrap());
            assert!(!patient.join().unwrap());
        })
        .expect_finished();
}

#[test]
fn a_greedy_task_does_not_starve_a_mutex_waiter() {
    in_order()
        .run(|| {
            let mutex = Arc::new(Mutex::new(()));
            let shared = Arc::clone(&mutex);
            spawn("greedy", move || {
                loop {
                    let _guard = shared.lock();
                    work(ms(1));
                }
            });
            sleep(ms(3));
            let start = now();
            drop(mutex.lock());
            assert!(start.elapsed() <= ms(3), "waited {:?}", start.elapsed());
        })
        .expect_finished();
}

#[test]
fn overlapping_readers_do_not_starve_a_writer() {
    in_order()
        .run(|| {
            let lock = Arc::new(RwLock::new(()));
            for n in 0..2 {
                let lock = Arc::clone(&lock);
                spawn(format!("reader-{n}"), move || {
                    sleep(Duration::from_micros(500 * n));
                    loop {
                        let _guard = lock.read();
                        sleep(ms(1));
                    }
                });
            }
            sleep(ms(3));
            let start = now();
            drop(lock.write());
            assert!(start.elapsed() <= ms(3), "waited {:?}", start.elapsed());
            sleep(ms(5));
        })
        .expect_finished();
}

#[test]
fn a_deadlock_is_reported_with_what_each_task_waits_for() {
    let line = line!();
    let message = panic_message(|| {
        in_order().run(|| {
            let (one, two) = (Arc::new(Mutex::new(())), Arc::new(RwLock::new(())));
            let (own_one, own_two) = (Arc::clone(&one), Arc::clone(&two));
            let other = spawn("other", move || {
                let _two = own_two.write();
                sleep(ms(1));
                let _one = own_one.lock();
            });
            spawn("parked", || Parker::new().park());
            spawn("waiting", || Condvar::new().wait(&mut Mutex::new(()).lock()));
            spawn("joining", move || other.join());
            let _one = one.lock();
            sleep(ms(1));
            let _two = two.read();
        })
    });
    let (file, of_root, of_waiting, of_other) = (file!(), line + 15, line + 11, line + 8);
    let expected = format!(
        "the simulation with seed 0 deadlocked: no task can ever run again, at 1ms of virtual time
  task 0 \"root\" waits to read an rwlock at {file}:{of_root}
  task 1 \"other\" waits for a mutex at {file}:{of_other}
  task 2 \"parked\" is parked
  task 3 \"waiting\" waits for a condvar at {file}:{of_waiting}
  task 4 \"joining\" waits for the end of task 1 \"other\""
    );
    assert_eq!(message, expected);
}

#[test]
fn limits_end_endless_programs() {
    let message = panic_message(|| {
        in_order().run(|| {
            spawn("busy", || work(Duration::from_secs(100)));
            loop {
                sleep(ms(1));
            }
        })
    });
    assert!(message.contains("passed its time limit, at 60s"), "{message}");
    assert!(message.contains("task 0 \"root\" sleeps until 60.001s"), "{message}");
    assert!(message.contains("task 1 \"busy\" works on a core until 100s"), "{message}");

    let message = panic_message(|| Simulation::new(3).step_limit(100).run(|| (0..1000).for_each(|_| yield_now())));
    assert!(message.contains("passed its step limit"), "{message}");
}

/// Counts when dropped.
struct Bomb(Rc<Cell<u32>>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn a_power_cut_runs_no_destructors() {
    for seed in 0..20 {
        let dropped = Rc::new(Cell::new(0));
        let bomb = Bomb(Rc::clone(&dropped));
        let outcome = Simulation::new(seed).run(move || {
            let _bomb = bomb;
            let written = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&written);
            spawn("never-started-or-not", move || flag.store(true, Ordering::Relaxed));
            spawn("fate", || {
                sleep(ms(4));
                power_cut()
            });
            sleep(ms(10));
        });
        assert_eq!(outcome, Outcome::PowerCut { at: ms(4) });
        assert_eq!(outcome.finished(), None);
        assert_eq!(dropped.get(), 0);
        assert!(!is_simulated());
    }
}

#[test]
fn a_power_cut_while_locks_are_held_leaves_the_next_run_alone() {
    for seed in 0..20 {
        let cut = Simulation::new(seed).run(|| {
            let mutex = Arc::new(Mutex::new(()));
            let shared = Arc::clone(&mutex);
            spawn("waiter", move || drop(shared.lock()));
            let _guard = mutex.lock();
            yield_now();
            power_cut()
        });
        assert!(matches!(cut, Outcome::<()>::PowerCut { .. }));
        Simulation::new(seed).run(busy_program).expect_finished();
    }
}

#[test]
fn a_task_that_is_switched_under_a_lock_that_outlives_it_is_found() {
    let found = "a task was switched while it held a mutex";
    let message = panic_message(|| {
        in_order().run(|| {
            let mutex = Arc::new(Mutex::new(()));
            let shared = Arc::clone(&mutex);
            spawn("other", move || drop(lock_unswitched(&shared)));
            let _guard = lock_unswitched(&mutex);
            sleep(ms(1));
        })
    });
    assert!(message.contains(found), "{message}");

    // When the power goes, the task holds the lock, or has handed it over to one that never runs.
    for is_handed_over in [false, true] {
        let mutex = Arc::new(Mutex::new(()));
        let shared = Arc::clone(&mutex);
        let outcome = in_order().run(move || {
            let waiter = Arc::clone(&shared);
            let guard = shared.lock();
            spawn("waiter", move || drop(waiter.lock()));
            sleep(ms(1));
            drop(guard);
            // Before the waiter runs: it has to wait again, and is the next for certain.
            let guard = shared.lock();
            sleep(ms(1));
            if is_handed_over {
                drop(guard);
            }
            power_cut()
        });
        assert_eq!(outcome, Outcome::<()>::PowerCut { at: ms(2) });
        assert!(mutex.is_locked());
        let message = panic_message(|| in_order().run(move || drop(lock_unswitched(&mutex))));
        assert!(message.contains(found), "{message}");
    }
}

#[test]
fn tasks_that_the_root_leaves_behind_are_not_unwound() {
    let dropped = Arc::new(AtomicBool::new(false));
    let flag = Arc::clone(&dropped);
    struct Flag(Arc<AtomicBool>);
    impl Drop for Flag {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    in_order()
        .run(|| {
            spawn("endless", move || {
                let _flag = Flag(flag);
                sleep(Duration::from_secs(1000));
            });
            sleep(ms(1));
        })
        .expect_finished();
    assert!(!dropped.load(Ordering::Relaxed));
}

#[test]
fn a_panic_of_a_task_that_is_not_joined_ends_the_run() {
    let message = panic_message(|| {
        in_order().run(|| {
            spawn("faulty", || panic!("detached"));
            sleep(ms(1));
        })
    });
    assert_eq!(message, "detached");
    assert_eq!(panic_message(|| in_order().run(|| panic!("root"))), "root");
    in_order().run(busy_program).expect_finished();
}

#[test]
fn a_panicking_task_may_wait_in_its_destructors() {
    struct Patient;
    impl Drop for Patient {
        fn drop(&mut self) {
            sleep(ms(1));
        }
    }
    let message = panic_message(|| {
        in_order().run(|| {
            let _patient = Patient;
            panic!("impatient")
        })
    });
    assert_eq!(message, "impatient");
}

#[test]
fn simulations_do_not_nest() {
    let message = panic_message(|| in_order().run(|| Simulation::new(1).run(|| ())));
    assert!(message.contains("cannot be run inside another"), "{message}");
}

#[test]
fn a_power_cut_needs_a_simulation() {
    let message = panic_message(|| power_cut());
    assert!(message.contains("only inside a simulation"), "{message}");
}

#[test]
fn simulations_run_side_by_side_with_each_other_and_with_threads() {
    let expected = Simulation::new(9).run(busy_program);
    let runs: Vec<_> = (0..4).map(|_| std::thread::spawn(|| Simulation::new(9).run(busy_program))).collect();
    let real = busy_program();
    assert_eq!(real.len(), 120);
    for run in runs {
        assert_eq!(run.join().unwrap(), expected);
    }
}

#[test]
fn an_injected_panic_unwinds_its_task_alone_and_leaves_nothing_behind() {
    let run = |seed: u64| {
        Simulation::new(seed).run(move || {
            let total = Arc::new(Mutex::new(0));
            let other = spawn("other", {
                let total = Arc::clone(&total);
                move || (0..10).for_each(|_| *total.lock() += 1)
            });
            let mut point = 1 + seed % 7;
            let outcome = panic_at(&mut point, || {
                for _ in 0..5 {
                    let _held = total.lock();
                    interleave();
                    interleave_in_device();
                }
            });
            assert_eq!(outcome.is_none(), seed % 7 < 5);
            assert_eq!(point, if seed % 7 < 5 { 0 } else { seed % 7 - 4 });
            other.join().unwrap();
            assert!(!tantalum_rt::panicking());
            *total.lock()
        })
    };
    for seed in 0..50 {
        assert_eq!(run(seed).expect_finished(), 10);
    }
}

/// A destructor that waits for a lock while it unwinds, and a power cut meanwhile.
#[test]
fn a_power_cut_waits_for_injected_panics_to_be_caught() {
    struct Waits(Arc<Mutex<()>>);
    impl Drop for Waits {
        fn drop(&mut self) {
            drop(self.0.lock());
        }
    }
    let outcome = in_order().run(|| {
        let lock = Arc::new(Mutex::new(()));
        let holder = Arc::clone(&lock);
        spawn("holder", move || {
            let _held = holder.lock();
            sleep(ms(5));
        });
        spawn("power", || {
            sleep(ms(2));
            power_cut();
        });
        sleep(ms(1));
        let outcome = panic_at(&mut 1, || {
            let _waits = Waits(lock);
            interleave();
        });
        assert_eq!(outcome, None);
        sleep(ms(100));
    });
    assert!(matches!(outcome, Outcome::PowerCut { at } if at >= ms(5)), "{outcome:?}");
    assert!(!tantalum_rt::panicking());
}
