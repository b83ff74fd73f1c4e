//! The database server of DuraSSD's experiments at a small scale.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use tantalum::{Barriers, PageCleaning, TornPageProtection};
use tantalum_lab::server::{Databases, DriveRun, Loaded, Scaled, Setup, Store, Updates};
use tantalum_workloads::linkbench::Parameters;

const SCALED: Scaled = Scaled {
    contents: Loaded::LinkBench(Parameters { nodes: 20_000, seed: 1 }),
    drive_bytes: 192 << 20,
    drive_cache_bytes: Some(1 << 20),
    log_bytes: 64 << 20,
    clients: 32,
    cores: 32,
    cpu_per_attempt: Duration::from_micros(30),
    warm_up: 3000,
    counted: 3000,
    seed: 3,
};

const SAFE: Setup = Setup {
    drive: "durassd",
    has_barriers: true,
    barriers: Barriers::On,
    protection: TornPageProtection::DoubleWrite,
    cleaning: PageCleaning::OnDemand,
    durable_page_writes: false,
    page_bytes: 4096,
    buffer_pool_bytes: 2 << 20,
};

/// Runs with databases for all tests.
fn run(setup: Setup) -> Arc<DriveRun> {
    static DATABASES: OnceLock<Databases> = OnceLock::new();
    DATABASES.get_or_init(|| Databases::new(SCALED)).run(&[setup], &|_| ()).unwrap().remove(0)
}

fn per_operation(run: &DriveRun) -> f64 {
    run.data.written_bytes as f64 / run.report.total.committed as f64
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let again = Databases::new(SCALED).run(&[SAFE], &|_| ()).unwrap().remove(0);
    let first = run(SAFE);
    assert!(first.report.total.committed > 1000);
    let seen = |run: &DriveRun| (run.report.total.latency, run.pool, run.data.media_written_bytes);
    assert_eq!(seen(&first), seen(&again));
}

#[test]
fn barriers_and_double_writes_cost_what_they_do() {
    let device = Setup { protection: TornPageProtection::TrustDevice, ..SAFE };
    let fast = Setup { has_barriers: false, ..device };
    let [safe, device, fast] = [SAFE, device, fast].map(run);
    let rate = |run: &DriveRun| run.report.total.per_second;
    assert!(rate(&fast) > 2.0 * rate(&device) && rate(&device) > 1.3 * rate(&safe));
    let ratio = per_operation(&safe) / per_operation(&device);
    assert!((1.5..4.0).contains(&ratio), "each page twice, and a header with each batch: {ratio}");
    assert!(safe.pool.blocked_reads > 0 && safe.pool.blocked_reads <= safe.pool.fault_reads);
}

#[test]
fn an_append_only_tree_gains_by_fewer_flushes() {
    let store = Store {
        records: 5000,
        drive: "durassd",
        drive_bytes: 256 << 20,
        drive_cache_bytes: Some(1 << 20),
        warm_up: 50,
        counted: 300,
        cpu_per_operation: Duration::from_micros(20),
        seed: 3,
    };
    let cell = |has_barriers, per_flush| Updates { has_barriers, percent: 100, per_flush };
    let cells = [cell(true, 1), cell(true, 100), cell(false, 1), cell(false, 100)];
    let runs = store.load().unwrap().run(&cells, &|_| ()).unwrap();
    let [on, on_patient, off, off_patient] = [0, 1, 2, 3].map(|at| runs[at].per_second);
    assert!(on_patient > 5.0 * on && off > 5.0 * on && off_patient > off && off_patient < 2.0 * off);
    assert!(runs.iter().all(|run| run.levels == 2 && run.bytes_per_update == 3.0 * 4096.0));
}
