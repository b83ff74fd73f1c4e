//! Locks in simulation: many schedules, and what must hold in each.

use std::{
    collections::BTreeMap,
    sync::atomic::{AtomicU64, AtomicUsize},
};

use tantalum_rt::{Random, Simulation, sleep, spawn};

use super::*;

struct World {
    manager: LockManager,
    table: Arc<TableLocks>,
}

fn world(timeout_ms: u64) -> Arc<World> {
    Arc::new(World { manager: LockManager::new(Duration::from_millis(timeout_ms)), table: Arc::default() })
}

impl World {
    fn lock(&self, owner: u64, key: &str, mode: Mode) -> Result<bool, Refusal> {
        let granted = self.manager.lock(&self.table, TransactionId(owner), &Value::from(key.as_bytes()), mode)?;
        Ok(granted.has_waited)
    }

    fn scan(&self, owner: u64, range: impl crate::KeyRange) -> Result<bool, Refusal> {
        self.manager.lock_range(&self.table, TransactionId(owner), &Interval::of(range))
    }

    fn release(&self, owner: u64, keys: &[&str]) {
        for key in keys {
            self.table.release(TransactionId(owner), Value::from(key.as_bytes()));
        }
        self.table.release_ranges(TransactionId(owner));
    }
}

/// Runs `f` under many schedules.
fn simulate(seeds: u64, f: impl Fn() + Clone + 'static) {
    for seed in 0..seeds {
        let f = f.clone();
        Simulation::new(seed).time_limit(Duration::from_secs(600)).run(f).expect_finished();
    }
}

#[test]
fn shared_locks_go_together_and_exclusive_ones_wait() {
    simulate(50, || {
        let world = world(1000);
        assert_eq!(world.lock(1, "k", Mode::Shared), Ok(false));
        assert_eq!(world.lock(2, "k", Mode::Shared), Ok(false));
        let writer = spawn("writer", {
            let world = Arc::clone(&world);
            move || world.lock(3, "k", Mode::Exclusive)
        });
        sleep(Duration::from_millis(1));
        assert!(!writer.is_finished());
        // A reader that comes after the writer queues behind it.
        let reader = spawn("reader", {
            let world = Arc::clone(&world);
            move || world.lock(4, "k", Mode::Shared)
        });
        sleep(Duration::from_millis(1));
        world.release(1, &["k"]);
        sleep(Duration::from_millis(1));
        assert!(!writer.is_finished() && !reader.is_finished());
        world.release(2, &["k"]);
        assert_eq!(writer.join().unwrap(), Ok(true));
        assert!(!reader.is_finished());
        world.release(3, &["k"]);
        assert_eq!(reader.join().unwrap(), Ok(true));
        world.release(4, &["k"]);
        assert!(world.table.is_idle());
    });
}

#[test]
fn a_lock_that_is_not_granted_in_time_is_refused() {
    simulate(20, || {
        let world = world(5);
        world.lock(1, "k", Mode::Exclusive).unwrap();
        assert_eq!(world.lock(2, "k", Mode::Shared), Err(Refusal::TimedOut(vec![TransactionId(1)])));
        assert_eq!(world.scan(3, ..), Err(Refusal::TimedOut(vec![TransactionId(1)])));
        world.release(3, &[]);
        world.release(1, &["k"]);
        assert!(world.table.is_idle());
    });
}

#[test]
fn the_youngest_of_a_circle_is_refused() {
    simulate(200, || {
        let world = world(1_000_000);
        let members: u64 = 4;
        let refused = Arc::new(Mutex::new(Vec::new()));
        let tasks: Vec<_> = (0..members)
            .map(|n| {
                let (world, refused) = (Arc::clone(&world), Arc::clone(&refused));
                spawn(format!("tx-{n}"), move || {
                    let (own, next) = (n.to_string(), ((n + 1) % members).to_string());
                    world.lock(n, &own, Mode::Exclusive).unwrap();
                    sleep(Duration::from_millis(1));
                    match world.lock(n, &next, Mode::Exclusive) {
                        Ok(_) => world.release(n, &[&own, &next]),
                        Err(refusal) => {
                            refused.lock().push((n, refusal));
                            world.release(n, &[&own]);
                        }
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(*refused.lock(), [(members - 1, Refusal::Deadlock)]);
        assert!(world.table.is_idle());
    });
}

#[test]
fn two_readers_that_want_to_write_are_a_deadlock() {
    simulate(50, || {
        let world = world(1_000_000);
        world.lock(1, "k", Mode::Shared).unwrap();
        world.lock(2, "k", Mode::Shared).unwrap();
        let first = spawn("first", {
            let world = Arc::clone(&world);
            move || {
                let result = world.lock(1, "k", Mode::Exclusive);
                world.release(1, &["k"]);
                result
            }
        });
        assert_eq!(world.lock(2, "k", Mode::Exclusive), Err(Refusal::Deadlock));
        world.release(2, &["k"]);
        assert!(first.join().unwrap().is_ok());
    });
}

#[test]
fn a_range_keeps_writers_out_of_its_gaps_but_not_its_owner() {
    simulate(50, || {
        let world = world(1_000_000);
        assert_eq!(world.scan(1, "b".."d"), Ok(false));
        assert_eq!(world.lock(2, "a", Mode::Exclusive), Ok(false));
        assert_eq!(world.lock(1, "c", Mode::Shared), Ok(false));
        let writer = spawn("writer", {
            let world = Arc::clone(&world);
            move || world.lock(2, "c", Mode::Exclusive)
        });
        sleep(Duration::from_millis(1));
        assert!(!writer.is_finished());
        // The owner goes first although the writer was there before it.
        assert_eq!(world.lock(1, "c", Mode::Exclusive), Ok(false));
        world.release(1, &["c"]);
        assert_eq!(writer.join().unwrap(), Ok(true));
        world.release(2, &["a", "c"]);
        assert!(world.table.is_idle());
    });
}

#[test]
fn a_scan_and_a_writer_that_meet_are_no_deadlock() {
    simulate(300, || {
        let world = world(1_000_000);
        let tasks: Vec<_> = (0..4u64)
            .map(|n| {
                let world = Arc::clone(&world);
                spawn(format!("tx-{n}"), move || {
                    if n % 2 == 0 {
                        world.scan(n, ..).unwrap();
                    } else {
                        world.lock(n, "k", Mode::Exclusive).unwrap();
                    }
                    world.release(n, &["k"]);
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert_eq!(world.manager.deadlocks.load(Ordering::Relaxed), 0);
        assert!(world.table.is_idle());
    });
}

/// Random transactions over few keys: the holder of a lock is alone where it must be, and every transaction ends.
#[test]
fn random_transactions_exclude_each_other_and_end() {
    static SEEDS: AtomicU64 = AtomicU64::new(0);
    simulate(60, || {
        let world = world(1_000_000);
        let seed = SEEDS.fetch_add(1, Ordering::Relaxed);
        let next_id = Arc::new(AtomicU64::new(0));
        // For each key, its readers and writers by their own account.
        let counts: Arc<BTreeMap<String, [AtomicUsize; 2]>> =
            Arc::new((0..6).map(|n| (format!("k{n}"), Default::default())).collect());
        let tasks: Vec<_> = (0..5)
            .map(|n| {
                let (world, next_id, counts) = (Arc::clone(&world), Arc::clone(&next_id), Arc::clone(&counts));
                spawn(format!("client-{n}"), move || {
                    let mut random = Random::with_seed(seed * 31 + n);
                    for _ in 0..12 {
                        transaction(&world, next_id.fetch_add(1, Ordering::Relaxed), &counts, &mut random);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        assert!(world.table.is_idle());
        assert!(world.manager.waits.lock().is_empty());
        assert_eq!(world.manager.timeouts.load(Ordering::Relaxed), 0);
    });
}

fn transaction(world: &World, id: u64, counts: &BTreeMap<String, [AtomicUsize; 2]>, random: &mut Random) {
    let mut held: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..random.usize(1..5) {
        let (low, high) = (random.u8(0..6), random.u8(0..6));
        let (low, high) = (low.min(high), low.max(high));
        let operation = random.u8(0..3);
        let is_write = operation == 2;
        let (refused, keys) = match operation {
            0 => (world.scan(id, format!("k{low}")..=format!("k{high}")).is_err(), low..=high),
            1 => (world.lock(id, &format!("k{low}"), Mode::Shared).is_err(), low..=low),
            _ => (world.lock(id, &format!("k{low}"), Mode::Exclusive).is_err(), low..=low),
        };
        if refused {
            break;
        }
        for key in keys {
            let key = format!("k{key}");
            let kind = usize::from(is_write);
            let before = held.get(&key).copied();
            if before.is_none_or(|before| before < kind) {
                if let Some(before) = before {
                    counts[&key][before].fetch_sub(1, Ordering::Relaxed);
                }
                counts[&key][kind].fetch_add(1, Ordering::Relaxed);
                held.insert(key, kind);
            }
        }
        tantalum_rt::interleave();
        for (key, kind) in &held {
            let [readers, writers] = &counts[key];
            let (readers, writers) = (readers.load(Ordering::Relaxed), writers.load(Ordering::Relaxed));
            assert!(writers == 0 || (writers == 1 && readers == 0), "{key}: {readers} readers, {writers} writers");
            assert_eq!(writers, *kind);
        }
    }
    for (key, kind) in &held {
        counts[key][*kind].fetch_sub(1, Ordering::Relaxed);
    }
    world.release(id, &["k0", "k1", "k2", "k3", "k4", "k5"]);
}
