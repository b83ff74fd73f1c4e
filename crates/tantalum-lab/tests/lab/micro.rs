//! Micro benchmarks in virtual time on a device whose latencies are known, so that every rate is.

use std::{sync::Arc, time::Duration};

use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_lab::{
    Error,
    micro::{self, Data, Flushing, Fsync, Job, Kind, Measured, Pattern},
};
use tantalum_rt::Simulation;

const RANGE: std::ops::Range<u64> = 0..1 << 20;

/// Reads take 50 us, writes 100 us, flushes 1 ms, all at the same time if need be.
fn device() -> Arc<MemoryDevice> {
    let exactly = |micros| Duration::from_micros(micros)..Duration::from_micros(micros);
    let profile = MemoryProfile {
        logical_block: 512,
        read_latency: exactly(50),
        write_latency: exactly(100),
        flush_latency: exactly(1000),
        ..MemoryProfile::default()
    };
    MemoryDevice::with_profile("known", 1 << 20, profile)
}

fn measure(job: Job) -> Measured {
    let run = move || {
        let device: Arc<dyn Device> = device();
        micro::run(&device, &job, &|_| ()).unwrap()
    };
    Simulation::new(7).run(run).expect_finished()
}

fn per_second(job: Job) -> f64 {
    measure(job).summary().per_second
}

#[test]
fn rates_are_those_of_the_device() {
    assert_eq!(per_second(Job::writes(4096, 1000, RANGE)), 10_000.0);
    assert_eq!(per_second(Job::reads(512, 1000, RANGE)), 20_000.0);
    assert_eq!(per_second(Job { pattern: Pattern::Random, ..Job::reads(512, 1000, RANGE) }), 20_000.0);
    assert_eq!(per_second(Job { pattern: Pattern::Overlapping(512), ..Job::writes(1024, 1000, RANGE) }), 10_000.0);
    let summary = measure(Job::writes(8192, 1000, RANGE)).summary();
    assert_eq!((summary.seconds, summary.bytes_per_second), (0.1, 81_920_000.0));
    assert_eq!((summary.latency.p50_ns, summary.latency.max_ns), (100_000, 100_000));
}

#[test]
fn threads_add_up_where_the_device_serves_them_at_once() {
    for threads in [2, 8, 128] {
        let job = Job { threads, pattern: Pattern::Random, ..Job::writes(4096, 128 * 10, RANGE) };
        assert_eq!(per_second(job), 10_000.0 * f64::from(threads), "{threads} threads");
    }
}

#[test]
fn a_flush_costs_its_share() {
    // k writes of 0.1 ms and one flush of 1 ms.
    for (every, expected) in [(1, 1000.0 / 1.1), (4, 4000.0 / 1.4), (10, 10_000.0 / 2.0)] {
        let measured = measure(Job { flushing: Flushing::After(every), ..Job::writes(4096, 400, RANGE) });
        let summary = measured.summary();
        assert!((summary.per_second / expected - 1.0).abs() < 1e-9, "{every}: {} {expected}", summary.per_second);
        assert_eq!((summary.operations, summary.flushes), (400, 400 / u64::from(every)));
        assert_eq!(measured.latency_of(|sample| sample.kind == Kind::Flush).mean_ns, 1e6);
    }
}

#[test]
fn fsync_commits_to_a_journal_once_a_tick() {
    // Writes of 0.1 ms with an fsync each: a commit is two writes, each with a flush behind it where writes cannot be
    // forced; without one it is 1 ms of flush.
    let fsync = Fsync { after: 1, journal_writes: 2 };
    let measured = measure(Job { flushing: Flushing::Fsync(fsync), ..Job::writes(4096, 400, RANGE) });
    let flush = |wanted| measured.latency_of(|sample| sample.kind == Kind::Flush && sample.nanoseconds == wanted).count;
    let commits = [1_200_000, 2_200_000].map(|time| flush(time + Fsync::CALL_NS)).into_iter().sum::<u64>();
    assert_eq!(commits + flush(1_000_000 + Fsync::CALL_NS), 400);
    let ticks = measured.elapsed_ns / Fsync::TICK_NS;
    assert!(commits.abs_diff(ticks) <= 1, "{commits} commits in {ticks} ticks");
    let none = Fsync { after: 1, journal_writes: 0 };
    let plain = Job { flushing: Flushing::After(1), ..Job::writes(4096, 40, RANGE) };
    let calls_ns = measure(Job { flushing: Flushing::Fsync(none), ..plain.clone() }).elapsed_ns;
    assert_eq!(calls_ns, measure(plain).elapsed_ns + 40 * Fsync::CALL_NS);
}

#[test]
fn a_mix_takes_the_time_of_its_parts() {
    let measured = measure(Job { reads_percent: 50, pattern: Pattern::Random, ..Job::writes(4096, 2000, RANGE) });
    let reads = measured.latency_of(|sample| sample.kind == Kind::Read).count;
    assert!((900..1100).contains(&reads), "{reads}");
    assert_eq!(measured.elapsed_ns, reads * 50_000 + (2000 - reads) * 100_000);
}

#[test]
fn the_second_stream_is_told_apart() {
    let job = Job { pattern: Pattern::TwoStreams { second_percent: 1 }, ..Job::writes(4096, 5000, RANGE) };
    let second = measure(job).latency_of(|sample| sample.stream == 1);
    assert!((25..100).contains(&second.count), "{second:?}");
    assert_eq!(second.mean_ns, 100_000.0);
}

#[test]
fn the_time_limit_ends_a_job() {
    let job = Job { time_limit: Some(Duration::from_millis(10)), ..Job::writes(4096, 1_000_000, RANGE) };
    assert_eq!(measure(job).summary().operations, 100);
}

#[test]
fn the_same_seed_measures_the_same_and_another_does_not() {
    let job = Job { reads_percent: 50, threads: 4, pattern: Pattern::Random, ..Job::writes(4096, 500, RANGE) };
    assert_eq!(measure(job.clone()), measure(job.clone()));
    assert_ne!(measure(job.clone()), measure(Job { seed: 43, ..job }));
}

#[test]
fn it_runs_on_the_real_clock_too() {
    let device: Arc<dyn Device> = MemoryDevice::new("memory", 1 << 20);
    let job = Job { threads: 3, reads_percent: 20, pattern: Pattern::Random, ..Job::writes(4096, 300, RANGE) };
    assert_eq!(micro::run(&device, &job, &|_| ()).unwrap().summary().operations, 300);
}

#[test]
fn fill_writes_all_of_the_range_and_nothing_else() {
    let device = device();
    let dynamic: Arc<dyn Device> = device.clone();
    // Known latencies would be waited for: in virtual time.
    let image = Simulation::new(0).run(move || {
        let range = 512..(1 << 20) - 512;
        micro::fill(&dynamic, range, Data::Random, &|_| ()).unwrap();
        device.image()
    });
    let image = image.expect_finished();
    let is_written = |block: &[u8]| block.iter().any(|&byte| byte != 0);
    let blocks: Vec<bool> = image.chunks(512).map(is_written).collect();
    assert!(!blocks[0] && !blocks[blocks.len() - 1] && blocks[1..blocks.len() - 1].iter().all(|&is| is));
}

#[test]
fn jobs_that_cannot_run_say_why() {
    let device: Arc<dyn Device> = MemoryDevice::new("memory", 1 << 20);
    let refused = |job: Job| match micro::run(&device, &job, &|_| ()) {
        Err(error @ Error::Job { .. }) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert!(refused(Job::writes(512, 1, RANGE)).contains("4096-byte block"));
    assert!(refused(Job::writes(4096, 1, 512..8192)).contains("begin"));
    assert!(refused(Job::writes(4096, 1, 0..2 << 20)).contains("1048576"));
    assert!(refused(Job::writes(0, 1, RANGE)).contains("no bytes"));
    assert!(refused(Job { pattern: Pattern::Overlapping(4096), ..Job::writes(4096, 1, RANGE) }).contains("no room"));
}

#[test]
fn the_first_error_of_a_device_ends_all_threads() {
    let device = MemoryDevice::new("broken", 1 << 20);
    device.inject(Fault::FailWrites { after: 10 });
    let device: Arc<dyn Device> = device;
    let job = Job { threads: 4, ..Job::writes(4096, u64::MAX, RANGE) };
    assert!(matches!(micro::run(&device, &job, &|_| ()), Err(Error::Engine(_))));
}
