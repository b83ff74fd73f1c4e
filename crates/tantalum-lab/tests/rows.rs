//! Clients on a table of small rows, in virtual time: what letting locks go early is worth, and what locks cost.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::time::Duration;

use tantalum_lab::server::{Operation, Rows, RowsRun, Through};
use tantalum_rt::simulation::LockCharges;

const fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

const FREE: LockCharges = LockCharges { exclusive: ns(0), shared: ns(0), word: ns(0) };
const CHARGES: LockCharges = LockCharges { exclusive: ns(50), shared: ns(50), word: ns(50) };

fn transfers(count: u64, in_order: bool, clients: usize, early_lock_release: bool) -> RowsRun {
    let rows = Rows {
        count,
        operation: Operation::Transfer { in_order },
        early_lock_release,
        log_answers_after: Duration::from_millis(1),
        clients,
        cores: 4,
        cpu_per_attempt: Duration::from_micros(20),
        locks: FREE,
        warm_up: Duration::from_millis(100),
        measured: Duration::from_millis(500),
        seed: 1,
    };
    rows.run().unwrap()
}

/// A client for each core, who takes a microsecond for each operation beside its locks.
fn on_cores(operation: Operation, cores: usize, locks: LockCharges) -> RowsRun {
    taking(Duration::from_micros(1), operation, cores, locks)
}

fn taking(cpu_per_attempt: Duration, operation: Operation, cores: usize, locks: LockCharges) -> RowsRun {
    let rows = Rows {
        count: 5000,
        operation,
        early_lock_release: true,
        log_answers_after: Duration::from_micros(20),
        clients: cores,
        cores,
        cpu_per_attempt,
        locks,
        warm_up: Duration::from_micros(200),
        measured: Duration::from_millis(1),
        seed: 1,
    };
    rows.run().unwrap()
}

fn rate(run: &RowsRun) -> f64 {
    run.report.total.per_second
}

/// Acquisitions of locks for each operation.
fn locks_taken(run: &RowsRun) -> f64 {
    let taken: u64 = run.locks.iter().map(|used| used.acquisitions).sum();
    taken as f64 / run.report.ended as f64
}

#[test]
fn letting_locks_go_early_is_worth_five_times_where_they_are_fought_over() {
    for in_order in [false, true] {
        let [early, late] = [true, false].map(|early| transfers(10, in_order, 16, early));
        assert!(rate(&early) >= 5.0 * rate(&late), "{} and {}", rate(&early), rate(&late));
        assert!(early.report.total.latency.p99_us < late.report.total.latency.p50_us, "{:?}", early.report.total);
        assert!(early.transactions.lock_waits > 0 && late.transactions.lock_waits > 0);
        let deadlocks = [&early, &late].map(|run| run.transactions.deadlocks > 0);
        assert_eq!(deadlocks, [!in_order; 2], "who locks in order does not deadlock");
        assert_eq!((early.sum, late.sum), (0, 0));
    }
}

#[test]
fn when_locks_go_does_not_matter_where_nobody_wants_them() {
    // One client goes as fast as the device answers; four share two writes, since one is under way at a time.
    for (clients, expected) in [(1, 980.0), (4, 2000.0)] {
        let [early, late] = [true, false].map(|early| transfers(5000, true, clients, early));
        assert!((rate(&early) - expected).abs() < 5.0, "{clients} clients: {}", rate(&early));
        assert!((rate(&early) - rate(&late)).abs() < 5.0, "{clients} clients: {}, {}", rate(&early), rate(&late));
    }
}

#[test]
fn where_locks_are_free_every_core_does_the_same() {
    for operation in [Operation::Read(Through::Snapshot), Operation::Update { depth: 64 }] {
        let [one, eight] = [1, 8].map(|cores| on_cores(operation, cores, FREE));
        assert!((rate(&one) - 1e6).abs() < 0.02e6, "{operation:?}: a microsecond each, {}", rate(&one));
        assert!((rate(&eight) - 8.0 * rate(&one)).abs() < 0.02 * rate(&eight), "{operation:?}: {}", rate(&eight));
    }
}

#[test]
fn one_core_pays_for_each_lock_and_several_wait_for_few() {
    let reads = [Through::KeptSnapshot, Through::Snapshot, Through::Transaction].map(Operation::Read);
    for operation in reads.into_iter().chain([Operation::Update { depth: 64 }]) {
        let [one, four] = [1, 4].map(|cores| on_cores(operation, cores, CHARGES));
        let expected = 1e9 / (1000.0 + 100.0 * locks_taken(&one));
        assert!((rate(&one) - expected).abs() < 0.03 * expected, "{operation:?}: {}, not {expected}", rate(&one));
        assert!(rate(&four) > 3.0 * rate(&one), "{operation:?}: {} and {}", rate(&one), rate(&four));
        // More are a cap that comes sooner: a reason to look at what takes them.
        let most = if operation == (Operation::Update { depth: 64 }) { 20.0 } else { 13.0 };
        assert!(locks_taken(&one) <= most, "{operation:?}: {} locks", locks_taken(&one));
    }
}

#[test]
fn many_cores_meet_at_the_root_and_at_the_log_without_waiting() {
    // As many as do not need all of the root's latch, and of the lock of the log's active group.
    let loads = [
        (Operation::Read(Through::Transaction), ns(400), 16),
        (Operation::Read(Through::KeptSnapshot), ns(400), 16),
        (Operation::Update { depth: 64 }, Duration::from_micros(4), 32),
    ];
    for (operation, cpu, cores) in loads {
        let [one, many] = [1, cores].map(|cores| taking(cpu, operation, cores, CHARGES));
        let share = rate(&many) / (cores as f64 * rate(&one));
        assert!(
            share > 0.95,
            "{operation:?}: {cores} cores do {share:.2} of what each does alone; {:?}",
            many.locks[0]
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_waits() {
    let run = || on_cores(Operation::Update { depth: 16 }, 4, CHARGES);
    let seen = |run: &RowsRun| (run.report.ended, run.report.total.latency, run.elapsed, run.locks.clone());
    let (first, second) = (run(), run());
    assert!(first.locks.iter().any(|used| used.waits > 0));
    assert_eq!(seen(&first), seen(&second));
}
