//! Scenarios at a small scale: the same for the same seed, and as their devices should be.

use std::{sync::Arc, time::Duration};

use tantalum::{LogHiding, LogLayout, PageCleaning, TornPageProtection};
use tantalum_flash::{Kind, Profile};
use tantalum_rt::simulation::LockCharges;
use tantalum_workloads::{
    linkbench,
    tpcc::{Parameters, Scale},
};

use super::{
    documents::{Store, StoreRun, Updates},
    log_alone::{Killed, Requesters},
    *,
};
use crate::{
    micro::Fsync,
    trace::{Reader, pages::Analysis},
};

/// As many warehouses as the paper's, so that transactions rarely wait for each other's locks, and little in each.
const SMALL: Parameters =
    Parameters { warehouses: 20, scale: Scale { items: 100, districts: 10, customers: 12, new_orders: 4 }, seed: 1 };

fn one(scenario: &Scenario) -> Arc<Outcome> {
    run(std::slice::from_ref(scenario), &|_| ()).unwrap().remove(0)
}

/// Runs it again, whatever is known.
fn again(scenario: &Scenario) -> Outcome {
    let image = (!scenario.loads_itself).then(|| image(scenario.load(), &|_| ()).unwrap());
    scenario.simulate(image).unwrap()
}

fn server(log: LogSetup, clients: usize) -> Scenario {
    Scenario {
        page_bytes: 16 << 10,
        early_lock_release: false,
        data: Data::Resident(Profile::named("hdd-10k").unwrap().with_capacity(8 << 30)),
        log: Log::Setup(log),
        clients,
        cpu: Cpu::PerCall(Duration::from_micros(50)),
        length: Length::Time { warm_up: Duration::from_millis(500), counted: Duration::from_secs(1) },
        ..Scenario::new(Contents::Tpcc(SMALL), 1)
    }
}

#[test]
fn the_same_seed_gives_the_same_run_of_the_server() {
    let scenario = server(LogSetup::paper("usb-c", 2).with_hiding(LogHiding::On).with_archive(), 8);
    let (first, again) = (one(&scenario), again(&scenario));
    assert!(first.new_orders_per_minute() > 0.0 && first.per_transaction(first.calls) > 10.0);
    let seen = |run: &Outcome| (run.report.total.latency, run.flushes.clone(), run.calls, run.cpu_share.to_bits());
    assert_eq!(seen(&first), seen(&again));
}

#[test]
fn only_ours_shares_a_turn_of_the_disk_among_commits() {
    // A disk of 10,000 turns per minute writes after each turn.
    const TURNS: f64 = 10_000.0 / 60.0;
    let logs = [LogSetup::original("hdd-10k"), LogSetup::paper("hdd-10k", 1), LogSetup::ours("hdd-10k", 1)];
    let [original, paper, ours] = logs.map(|log| one(&server(log, 16)).per_second());
    assert!(original > 0.5 * TURNS && original < 2.0 * TURNS, "{original}");
    assert!(paper > 0.5 * TURNS && paper < 2.0 * TURNS, "{paper}");
    assert!(ours > 2.0 * original.max(paper), "{ours}");
}

#[test]
fn the_log_costs_nothing_where_it_takes_no_time() {
    let [ideal, disk] = ["hdd-10k-cached", "hdd-10k"].map(|disk| one(&server(LogSetup::ours(disk, 1), 16)));
    let p50 = |run: &Outcome| run.report.total.latency.p50_us;
    assert!(ideal.per_second() > disk.per_second() && p50(&ideal) < p50(&disk));
    assert!(ideal.cpu_share > disk.cpu_share && ideal.cpu_share <= 1.05, "{} {}", ideal.cpu_share, disk.cpu_share);
}

#[test]
fn requesters_get_more_from_two_drives_and_more_with_hiding() {
    let rate = |drives, hiding| {
        let log = LogSetup::paper("usb-c", drives).with_hiding(hiding);
        let load = Requesters {
            log,
            count: 4,
            request_bytes: 4096,
            waking: Duration::ZERO,
            time: Duration::from_secs(10),
            seed: 1,
        };
        load.run().unwrap()
    };
    let (one, two, hidden) = (rate(1, LogHiding::Off), rate(2, LogHiding::Off), rate(2, LogHiding::On));
    assert!(two.bytes_per_second > 1.2 * one.bytes_per_second, "{one:?} {two:?}");
    assert!(hidden.bytes_per_second > 1.1 * two.bytes_per_second && hidden.hiding.won > 0, "{two:?} {hidden:?}");
    assert_eq!((one.hiding.reissued, two.hiding.reissued), (0, 0));
}

#[test]
fn what_a_killed_server_left_is_scanned_whole_and_faster_on_two_drives() {
    let scan = |log| {
        let flushes = FlushSizes::from([(1024, 3), (8192, 1)]);
        Killed { log, flushes, log_bytes: 100_000_000, seed: 1 }.scan().unwrap()
    };
    let logs = [LogSetup::paper("usb-a", 1), LogSetup::paper("usb-a", 2), LogSetup::paper("usb-a", 2).with_archive()];
    let [one, two, archived] = logs.map(scan);
    assert!([one, two, archived].iter().all(|scanned| scanned.log_bytes >= 100_000_000));
    assert!(two.seconds < 0.75 * one.seconds && archived.seconds < two.seconds, "{one:?} {two:?} {archived:?}");
}

#[test]
fn a_trace_has_as_many_changes_as_asked_for_and_a_larger_pool_writes_fewer_pages() {
    let traced = |buffer_pool_bytes| Scenario {
        page_bytes: 8 << 10,
        buffer_pool_bytes,
        clients: 8,
        length: Length::Changes { warm_up: 2000, counted: 20_000 },
        trace: Trace::Pages("small"),
        ..Scenario::new(Contents::Tpcc(SMALL), 1)
    };
    let runs = [1 << 20, 8 << 20].map(|pool| one(&traced(pool)));
    assert!(again(&traced(1 << 20)).page_trace == runs[0].page_trace, "the same run, the same trace");
    let analysis = |run: &Arc<Outcome>| Analysis::of(|| Reader::new("small", &run.page_trace[..]), None).unwrap();
    let [small, large] = runs.each_ref().map(analysis);
    assert_eq!((small.changes().count, large.changes().count), (20_000, 20_000));
    assert!(small.page_writes > 100 && large.page_writes < small.page_writes, "{small:?} {large:?}");
    assert!(database_bytes(&traced(1 << 20), &|_| ()).unwrap() > 8192 && small.pages > 100);
}

#[test]
fn a_page_store_costs_what_its_device_does_in_the_run() {
    let stored = |pages, profile: &str| {
        let profile = Profile::named(profile).unwrap().with_capacity(64 << 20);
        let length = Length::Transactions { warm_up: 40, counted: 400, with_checkpoints: true };
        one(&Scenario {
            page_bytes: 8 << 10,
            buffer_pool_bytes: 1 << 20,
            loads_itself: true,
            pages,
            data: Data::Drive(Drive::new(profile)),
            clients: 4,
            length,
            ..Scenario::new(Contents::Tpcc(SMALL), 1)
        })
    };
    let in_page = stored(Pages::InPageLogging, "nand-k9wag08u1a");
    let in_place = Pages::InPlace { protection: TornPageProtection::Auto, durable_writes: false };
    let in_place = stored(in_place, "hdd-7200");
    for cost in [&in_page, &in_place] {
        assert!(cost.report.total.committed > 380 && cost.seconds > 0.0 && !cost.pool.is_empty(), "{cost:?}");
        assert!(cost.data.host_written_bytes > 400 * 512 && cost.data.host_read_bytes > 0, "{cost:?}");
    }
    let stats = in_page.after.store.in_page.unwrap();
    assert!(stats.bytes_written > in_page.data.host_written_bytes, "the load counts in one of them: {in_page:?}");
    assert!(in_page.pool.iter().any(|pool| pool.change_bytes > 0), "{in_page:?}");
    assert!(in_place.after.store.in_page.is_none() && in_place.data.erases == 0, "{in_place:?}");
}

fn drive(bytes: u64, has_barriers: bool, file: FileUse) -> Drive {
    let mut profile = Profile::named("durassd").unwrap().with_capacity(bytes);
    let Kind::SolidState(drive) = &mut profile.device else { panic!("durassd is a solid-state drive") };
    drive.cache.pool_bytes = 1 << 20;
    Drive { filled: Filled::Database, has_barriers, file, ..Drive::new(profile) }
}

/// The server of DuraSSD's experiments.
fn on_two_drives(has_barriers: bool, protection: TornPageProtection) -> Scenario {
    let drive = |bytes| drive(bytes, has_barriers, FileUse::Overwritten);
    let log = Drive { filled: Filled::Nothing, ..drive((64 << 20) + Fsync::JOURNAL_BYTES) };
    Scenario {
        buffer_pool_bytes: 2 << 20,
        pages: Pages::InPlace { protection, durable_writes: false },
        cleaning: PageCleaning::OnDemand,
        data: Data::Drive(drive(192 << 20)),
        log: Log::Drive { drive: Box::new(log), layout: LogLayout::FlashLogging, partitions: 1 },
        clients: 32,
        cores: 32,
        cpu: Cpu::PerAttempt(Duration::from_micros(30)),
        length: Length::TimeOf { warm_up: 3000, counted: 3000 },
        ..Scenario::new(Contents::LinkBench(linkbench::Parameters { nodes: 20_000, seed: 1 }), 3)
    }
}

#[test]
fn the_same_seed_gives_the_same_run_on_two_drives() {
    let scenario = on_two_drives(true, TornPageProtection::DoubleWrite);
    let (first, again) = (one(&scenario), again(&scenario));
    assert!(first.report.total.committed > 1000);
    let seen = |run: &Outcome| (run.report.total.latency, run.after.pool, run.data);
    assert_eq!(seen(&first), seen(&again));
}

#[test]
fn barriers_and_double_writes_cost_what_they_do() {
    let safe = one(&on_two_drives(true, TornPageProtection::DoubleWrite));
    let [device, fast] = [true, false].map(|barriers| one(&on_two_drives(barriers, TornPageProtection::TrustDevice)));
    assert!(fast.per_second() > 2.0 * device.per_second() && device.per_second() > 1.3 * safe.per_second());
    let written = |run: &Outcome| run.per_transaction(run.data.host_written_bytes);
    let ratio = written(&safe) / written(&device);
    assert!((1.5..4.0).contains(&ratio), "each page twice, and a header with each batch: {ratio}");
    let [blocked, all] = [safe.done.pool.blocked_reads, safe.done.pool.fault_reads];
    assert!(blocked > 0 && blocked <= all);
}

/// Runs a small document store.
fn documents(cells: &[Updates]) -> Vec<StoreRun> {
    let store = Store {
        records: 5000,
        drive: drive(256 << 20, true, FileUse::Growing),
        warm_up: 50,
        counted: 300,
        cpu_per_operation: Duration::from_micros(20),
        seed: 3,
    };
    store.load().unwrap().run(cells, &|_| ()).unwrap()
}

#[test]
fn an_append_only_tree_gains_by_fewer_flushes() {
    let cell = |has_barriers, per_flush| Updates { has_barriers, percent: 100, per_flush, reads_count: false };
    let cells = [cell(true, 1), cell(true, 100), cell(false, 1), cell(false, 100)];
    let runs = documents(&cells);
    let [on, on_patient, off, off_patient] = [0, 1, 2, 3].map(|at| runs[at].per_second);
    assert!(on_patient > 5.0 * on && off > 5.0 * on && off_patient > off && off_patient < 2.0 * off);
    assert!(runs.iter().all(|run| run.levels == 2 && run.bytes_per_update == 3.0 * 4096.0));
}

#[test]
fn where_reads_count_half_updates_flush_as_often_as_updates_alone() {
    let cell = |percent, reads_count| Updates { has_barriers: true, percent, per_flush: 2, reads_count };
    let runs = documents(&[cell(100, false), cell(50, false), cell(50, true)]);
    let [all, half, half_of_all] = [0, 1, 2].map(|at| runs[at].per_second);
    assert!(half > 1.7 * all && (0.9..1.1).contains(&(half_of_all / all)), "{all} {half} {half_of_all}");
}

const fn ns(nanoseconds: u64) -> Duration {
    Duration::from_nanos(nanoseconds)
}

const FREE: LockCharges = LockCharges { exclusive: ns(0), shared: ns(0), word: ns(0) };
const CHARGES: LockCharges = LockCharges { exclusive: ns(50), shared: ns(50), word: ns(50) };

fn transfers(count: u64, in_order: bool, clients: usize, early_lock_release: bool) -> Arc<Outcome> {
    one(&Scenario {
        early_lock_release,
        log: Log::Volume(Duration::from_millis(1)),
        clients,
        cpu: Cpu::PerAttempt(Duration::from_micros(20)),
        length: Length::Time { warm_up: Duration::from_millis(100), counted: Duration::from_millis(500) },
        ..Scenario::of_rows(count, Operation::Transfer { in_order }, 1)
    })
}

/// A client for each core, which takes a microsecond for each operation beside its locks.
fn on_cores(operation: Operation, cores: usize, locks: LockCharges) -> Scenario {
    taking(Duration::from_micros(1), operation, cores, locks)
}

fn taking(cpu_per_attempt: Duration, operation: Operation, cores: usize, locks: LockCharges) -> Scenario {
    Scenario {
        log: Log::Volume(Duration::from_micros(20)),
        clients: cores,
        cores,
        cpu: Cpu::PerAttempt(cpu_per_attempt),
        locks: Some(locks),
        length: Length::Time { warm_up: Duration::from_micros(200), counted: Duration::from_millis(1) },
        ..Scenario::of_rows(5000, operation, 1)
    }
}

/// Acquisitions of locks for each operation.
fn locks_taken(run: &Outcome) -> f64 {
    let taken: u64 = run.locks.iter().map(|used| used.acquisitions).sum();
    taken as f64 / run.report.ended as f64
}

#[test]
fn letting_locks_go_early_is_worth_five_times_where_they_are_fought_over() {
    for in_order in [false, true] {
        let [early, late] = [true, false].map(|early| transfers(10, in_order, 16, early));
        assert!(early.per_second() >= 5.0 * late.per_second(), "{} and {}", early.per_second(), late.per_second());
        assert!(early.report.total.latency.p99_us < late.report.total.latency.p50_us, "{:?}", early.report.total);
        assert!(early.after.transactions.lock_waits > 0 && late.after.transactions.lock_waits > 0);
        let deadlocks = [&early, &late].map(|run| run.after.transactions.deadlocks > 0);
        assert_eq!(deadlocks, [!in_order; 2], "transfers that lock in order do not deadlock");
        assert_eq!((early.sum, late.sum), (0, 0));
    }
}

#[test]
fn when_locks_are_released_does_not_matter_without_contention() {
    // One client goes as fast as the device answers; four share two writes, since one is under way at a time.
    for (clients, expected) in [(1, 980.0), (4, 2000.0)] {
        let [early, late] = [true, false].map(|early| transfers(5000, true, clients, early));
        assert!((early.per_second() - expected).abs() < 5.0, "{clients} clients: {}", early.per_second());
        assert!(
            (early.per_second() - late.per_second()).abs() < 5.0,
            "{clients} clients: {}, {}",
            early.per_second(),
            late.per_second()
        );
    }
}

#[test]
fn where_locks_are_free_every_core_does_the_same() {
    for operation in [Operation::Read(Through::Snapshot), Operation::Update { depth: 64 }] {
        let [one, eight] = [1, 8].map(|cores| one(&on_cores(operation, cores, FREE)));
        assert!((one.per_second() - 1e6).abs() < 0.02e6, "{operation:?}: a microsecond each, {}", one.per_second());
        assert!(
            (eight.per_second() - 8.0 * one.per_second()).abs() < 0.02 * eight.per_second(),
            "{operation:?}: {}",
            eight.per_second()
        );
    }
}

#[test]
fn one_core_pays_for_each_lock_and_several_wait_for_few() {
    let reads = [Through::KeptSnapshot, Through::Snapshot, Through::Transaction].map(Operation::Read);
    for operation in reads.into_iter().chain([Operation::Update { depth: 64 }]) {
        let [one, four] = [1, 4].map(|cores| one(&on_cores(operation, cores, CHARGES)));
        let expected = 1e9 / (1000.0 + 100.0 * locks_taken(&one));
        assert!(
            (one.per_second() - expected).abs() < 0.03 * expected,
            "{operation:?}: {}, not {expected}",
            one.per_second()
        );
        assert!(
            four.per_second() > 3.0 * one.per_second(),
            "{operation:?}: {} and {}",
            one.per_second(),
            four.per_second()
        );
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
        let [one, many] = [1, cores].map(|cores| one(&taking(cpu, operation, cores, CHARGES)));
        let share = many.per_second() / (cores as f64 * one.per_second());
        assert!(
            share > 0.95,
            "{operation:?}: {cores} cores do {share:.2} of what each does alone; {:?}",
            many.locks[0]
        );
    }
}

#[test]
fn the_same_seed_gives_the_same_waits() {
    let scenario = on_cores(Operation::Update { depth: 16 }, 4, CHARGES);
    let (first, again) = (one(&scenario), again(&scenario));
    assert!(first.locks.iter().any(|used| used.waits > 0));
    let seen = |run: &Outcome| (run.report.ended, run.report.total.latency, run.seconds.to_bits(), run.locks.clone());
    assert_eq!(seen(&first), seen(&again));
}
