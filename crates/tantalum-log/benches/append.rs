//! How appending scales with threads: the cost of one record in memory, nothing is waited for.

#![allow(missing_docs)] // criterion's macros make public items

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tantalum_device::{Device, MemoryDevice};
use tantalum_log::{ErrorKind, Log, LogOptions};
use tantalum_rt::{now, spawn};

fn new_log() -> Log {
    let device: Arc<dyn Device> = MemoryDevice::new("log", 64 << 20);
    Log::create(1, vec![Arc::clone(&device)], LogOptions::default()).expect("create");
    Log::open(vec![device], LogOptions::default(), &mut |_| {}).expect("open").finish().expect("finish")
}

/// Appends `count` records of 100 bytes; makes room when there is none.
fn append(log: &Log, count: u64) {
    let record = [7; 100];
    for _ in 0..count {
        while let Err(error) = log.append(&[black_box(&record)]) {
            assert!(error.kind() == ErrorKind::LogFull, "{error}");
            log.flush(log.end_lsn()).expect("flush");
            log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        }
    }
}

fn appends(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("append 100 bytes");
    group.throughput(Throughput::Elements(1));
    for threads in [1, 2] {
        let log = new_log();
        group.bench_function(BenchmarkId::new("threads", threads), |bencher| {
            bencher.iter_custom(|count| -> Duration {
                let start = now();
                let run = |n| {
                    let log = log.clone();
                    spawn(format!("appender-{n}"), move || append(&log, count / threads + 1))
                };
                let tasks: Vec<_> = (0..threads).map(run).collect();
                tasks.into_iter().for_each(|task| task.join().expect("no panic"));
                start.elapsed()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, appends);
criterion_main!(benches);
