//! Every primitive, on threads and in simulations of many seeds and both ways of scheduling.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{
    Condvar, JoinHandle, Mutex, Parker, RwLock, Scheduling, Simulation, is_simulated, now, random_seed, sleep, spawn,
    task_name, wall_clock, write_arc_within, yield_now,
};

const LONG: Duration = Duration::from_secs(600);

fn in_both_worlds(program: fn()) {
    program();
    Simulation::new(0).scheduling(Scheduling::InOrder).run(program).expect_finished();
    for seed in 0..50 {
        Simulation::new(seed).run(program).expect_finished();
    }
}

fn join_all(tasks: Vec<JoinHandle<()>>) {
    for task in tasks {
        task.join().expect("no task of the test panics");
    }
}

#[test]
fn a_mutex_excludes() {
    in_both_worlds(|| {
        let count = Arc::new(Mutex::new(0));
        let tasks = (0..4).map(|n| {
            let count = Arc::clone(&count);
            spawn(format!("adder-{n}"), move || {
                for _ in 0..20 {
                    let mut guard = count.lock();
                    let before = *guard;
                    yield_now();
                    *guard = before + 1;
                }
            })
        });
        join_all(tasks.collect());
        assert_eq!(*count.lock(), 80);
    });
}

#[test]
fn a_mutex_can_be_tried() {
    in_both_worlds(|| {
        let mutex = Mutex::new(());
        let guard = mutex.try_lock().unwrap();
        assert!(mutex.try_lock().is_none());
        assert!(mutex.is_locked());
        drop(guard);
        assert!(!mutex.is_locked());
    });
}

#[test]
fn a_guard_can_be_dropped_by_another_task() {
    in_both_worlds(|| {
        let mutex = Arc::new(Mutex::new(1));
        let mut guard = mutex.lock_arc();
        let other = spawn("other", move || *guard += 1);
        assert_eq!(*mutex.lock(), 2);
        other.join().unwrap();
    });
}

#[test]
fn an_rwlock_lets_readers_in_together_and_writers_alone() {
    in_both_worlds(|| {
        let lock = Arc::new(RwLock::new((0, 0)));
        let writers = (0..2).map(|n| {
            let lock = Arc::clone(&lock);
            spawn(format!("writer-{n}"), move || {
                for _ in 0..20 {
                    let mut pair = lock.write();
                    pair.0 += 1;
                    yield_now();
                    pair.1 += 1;
                }
            })
        });
        let readers = (0..3).map(|n| {
            let lock = Arc::clone(&lock);
            spawn(format!("reader-{n}"), move || {
                for _ in 0..20 {
                    let pair = lock.read();
                    let first = pair.0;
                    yield_now();
                    assert_eq!(first, pair.1);
                }
            })
        });
        join_all(writers.chain(readers).collect());
        assert_eq!(*lock.read(), (40, 40));
        let _one = lock.read();
        let _two = lock.try_read().unwrap();
        assert!(lock.try_write().is_none());
    });
}

#[test]
fn a_downgraded_writer_lets_readers_in_but_no_writer() {
    in_both_worlds(|| {
        let lock = Arc::new(RwLock::new(0));
        let mut writer = lock.write();
        *writer = 1;
        let shared = Arc::clone(&lock);
        let reader = spawn("reader", move || *shared.read());
        yield_now();
        let own = tantalum_rt::RwLockWriteGuard::downgrade(writer);
        assert_eq!(reader.join().unwrap(), 1);
        assert!(lock.try_write().is_none());
        drop(own);
        assert!(lock.try_write().is_some());
    });
}

#[test]
fn a_writer_that_gives_up_keeps_no_readers_out() {
    in_both_worlds(|| {
        let lock = Arc::new(RwLock::new(0));
        let first = lock.read();
        let writer = spawn("writer", {
            let lock = Arc::clone(&lock);
            move || write_arc_within(&lock, Duration::from_millis(5)).is_none()
        });
        let reader = spawn("reader", {
            let lock = Arc::clone(&lock);
            move || drop(lock.read())
        });
        reader.join().unwrap();
        assert!(writer.join().unwrap(), "it was read all the time");
        drop(first);
        *write_arc_within(&lock, Duration::from_millis(5)).expect("it is free") = 1;
        assert_eq!(*lock.read(), 1);
    });
}

#[test]
fn arc_guards_of_an_rwlock_need_no_lifetime() {
    in_both_worlds(|| {
        let lock = Arc::new(RwLock::new(7));
        let readers = vec![lock.read_arc(), lock.read_arc()];
        assert!(lock.try_write_arc().is_none());
        drop(readers);
        *lock.write_arc() = 8;
        assert_eq!(*lock.read(), 8);
    });
}

#[test]
fn a_condvar_passes_items_on() {
    in_both_worlds(|| {
        let queue = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
        let consumers: Vec<_> = (0..3)
            .map(|n| {
                let queue = Arc::clone(&queue);
                spawn(format!("consumer-{n}"), move || {
                    for _ in 0..10 {
                        let mut items = queue.0.lock();
                        while items.pop().is_none() {
                            queue.1.wait(&mut items);
                        }
                    }
                })
            })
            .collect();
        for item in 0..30 {
            queue.0.lock().push(item);
            queue.1.notify_one();
        }
        join_all(consumers);
        assert!(queue.0.lock().is_empty());
    });
}

#[test]
fn notify_all_wakes_all() {
    in_both_worlds(|| {
        let gate = Arc::new((Mutex::new(false), Condvar::new()));
        let tasks: Vec<_> = (0..4)
            .map(|n| {
                let gate = Arc::clone(&gate);
                spawn(format!("waiter-{n}"), move || {
                    let mut open = gate.0.lock();
                    while !*open {
                        assert!(!gate.1.wait_for(&mut open, LONG).timed_out());
                    }
                })
            })
            .collect();
        yield_now();
        *gate.0.lock() = true;
        gate.1.notify_all();
        join_all(tasks);
    });
}

#[test]
fn a_timed_wait_ends_with_the_mutex_locked() {
    in_both_worlds(|| {
        let mutex = Mutex::new(());
        let condvar = Condvar::new();
        let mut guard = mutex.lock();
        assert!(condvar.wait_for(&mut guard, Duration::from_millis(1)).timed_out());
        assert!(mutex.is_locked());
        drop(guard);
        condvar.notify_one();
        condvar.notify_all();
    });
}

#[test]
fn a_parker_keeps_one_token() {
    in_both_worlds(|| {
        let parker = Parker::new();
        let unparker = parker.unparker();
        unparker.unpark();
        unparker.unpark();
        assert!(parker.park_timeout(LONG));
        assert!(!parker.park_timeout(Duration::from_millis(1)));
        let other = spawn("other", move || unparker.unpark());
        parker.park();
        other.join().unwrap();
    });
}

#[test]
fn parked_tasks_hand_the_turn_to_each_other() {
    in_both_worlds(|| {
        let (here, there) = (Parker::new(), Parker::new());
        let (wake_here, wake_there) = (here.unparker(), there.unparker());
        let turns = 1000;
        let other = spawn("other", move || {
            for _ in 0..turns {
                assert!(there.park_timeout(LONG));
                wake_here.unpark();
            }
        });
        for _ in 0..turns {
            wake_there.unpark();
            here.park();
        }
        assert!(!here.park_timeout(Duration::ZERO), "each token was taken");
        other.join().unwrap();
    });
}

#[test]
fn join_returns_the_result_and_tasks_have_names() {
    in_both_worlds(|| {
        let task = spawn("named", || (task_name(), 42));
        while !task.is_finished() {
            yield_now();
        }
        assert_eq!(task.join().unwrap(), ("named".to_owned(), 42));
    });
}

#[test]
fn join_returns_a_panic_it_has_been_waiting_for() {
    in_both_worlds(|| {
        let started = Parker::new();
        let unparker = started.unparker();
        let task = spawn("faulty", move || {
            unparker.unpark();
            sleep(Duration::from_millis(1));
            panic!("on purpose");
        });
        started.park();
        let payload = task.join().unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"on purpose"));
    });
}

#[test]
fn an_unjoined_task_runs_on() {
    in_both_worlds(|| {
        let runs = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&runs);
        drop(spawn("detached", move || counter.fetch_add(1, Ordering::Relaxed)));
        while runs.load(Ordering::Relaxed) == 0 {
            yield_now();
        }
    });
}

#[test]
fn time_does_not_go_back() {
    in_both_worlds(|| {
        let (start, date) = (now(), wall_clock());
        sleep(Duration::from_millis(2));
        assert!(start.elapsed() >= Duration::from_millis(2));
        if is_simulated() {
            assert_eq!(wall_clock().duration_since(date).unwrap(), Duration::from_millis(2));
        }
    });
}

#[test]
fn seeds_differ() {
    in_both_worlds(|| assert_ne!(random_seed(), random_seed()));
}
