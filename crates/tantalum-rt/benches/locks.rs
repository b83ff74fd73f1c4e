//! What an uncontended lock costs, beside `parking_lot`'s, and what a switch between simulated tasks costs.

use std::{hint::black_box, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use tantalum_rt::{Scheduling, Simulation, sleep, spawn};

const SWITCHES: u32 = 10_000;

fn uncontended_mutex(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uncontended mutex");
    let ours = tantalum_rt::Mutex::new(0u64);
    group.bench_function("tantalum-rt", |bencher| bencher.iter(|| *black_box(&ours).lock() += 1));
    let theirs = parking_lot::Mutex::new(0u64);
    group.bench_function("parking_lot", |bencher| bencher.iter(|| *black_box(&theirs).lock() += 1));
    group.finish();
}

fn uncontended_rwlock(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("uncontended rwlock, read");
    let ours = tantalum_rt::RwLock::new(0u64);
    group.bench_function("tantalum-rt", |bencher| bencher.iter(|| *black_box(&ours).read()));
    let theirs = parking_lot::RwLock::new(0u64);
    group.bench_function("parking_lot", |bencher| bencher.iter(|| *black_box(&theirs).read()));
    group.finish();
}

fn simulated_switch(criterion: &mut Criterion) {
    let tasks = 8;
    criterion.bench_function(&format!("simulation, {} sleeps by {tasks} tasks", SWITCHES * tasks), |bencher| {
        bencher.iter(|| {
            Simulation::new(1).scheduling(Scheduling::InOrder).run(move || {
                let sleepers: Vec<_> = (0..tasks)
                    .map(|n| {
                        spawn(format!("sleeper-{n}"), || (0..SWITCHES).for_each(|_| sleep(Duration::from_micros(1))))
                    })
                    .collect();
                sleepers.into_iter().for_each(|sleeper| sleeper.join().expect("sleepers do not panic"));
            })
        });
    });
}

criterion_group!(locks, uncontended_mutex, uncontended_rwlock, simulated_switch);
criterion_main!(locks);
