//! The server of FlashLogging's experiments at a small scale: the same for the same seed, and as its logs should be.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::{sync::OnceLock, time::Duration};

use tantalum::{LogHiding, StoreKind, TornPageProtection};
use tantalum_flash::Profile;
use tantalum_lab::{
    server::{Cell, Killed, LogSetup, Requesters, Run, Server, Size, Sizes, Stored, Traced, TracedServer},
    trace::{Reader, pages::Analysis},
};
use tantalum_workloads::tpcc::Scale;

/// As many warehouses as the paper's, so that transactions rarely wait for each other's locks, and little in each.
const SCALE: Scale = Scale { items: 100, districts: 10, customers: 12, new_orders: 4 };
const SMALL: Size = Size { warehouses: 20, scale: SCALE, buffer_pool_bytes: 64 << 20 };

fn load() -> Server {
    Server::load(SMALL, 1, &|_| ()).unwrap()
}

fn cell(log: LogSetup, clients: usize) -> Cell {
    let (warm_up, measured) = (Duration::from_millis(500), Duration::from_secs(1));
    Cell { warm_up, measured, ..Cell::of_paper(log, clients, 1) }
}

/// Runs on one server for all tests.
fn run(log: LogSetup, clients: usize) -> std::sync::Arc<Run> {
    static SERVER: OnceLock<Server> = OnceLock::new();
    SERVER.get_or_init(load).run(&[cell(log, clients)], &|_| ()).unwrap().remove(0)
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let log = LogSetup::paper("usb-c", 2).with_hiding(LogHiding::On).with_archive();
    let again = load().run(&[cell(log, 8)], &|_| ()).unwrap().remove(0);
    let first = run(log, 8);
    assert!(first.new_orders_per_minute > 0.0 && first.calls > 10.0);
    let seen = |run: &Run| (run.new_orders_per_minute, run.latency, run.flushes.clone(), run.calls.to_bits());
    assert_eq!(seen(&first), seen(&again));
}

#[test]
fn only_ours_shares_a_turn_of_the_disk_among_commits() {
    let per_second = |log| run(log, 16).per_second;
    // A disk of 10,000 turns per minute writes after each turn.
    const TURNS: f64 = 10_000.0 / 60.0;
    let [original, paper, ours] =
        [LogSetup::original("hdd-10k"), LogSetup::paper("hdd-10k", 1), LogSetup::ours("hdd-10k", 1)].map(per_second);
    assert!(original > 0.5 * TURNS && original < 2.0 * TURNS, "{original}");
    assert!(paper > 0.5 * TURNS && paper < 2.0 * TURNS, "{paper}");
    assert!(ours > 2.0 * original.max(paper), "{ours}");
}

#[test]
fn the_log_costs_nothing_where_it_takes_no_time() {
    let ideal = run(LogSetup::ours("hdd-10k-cached", 1), 16);
    let disk = run(LogSetup::ours("hdd-10k", 1), 16);
    assert!(ideal.per_second > disk.per_second && ideal.latency.p50_us < disk.latency.p50_us);
    assert!(ideal.cpu_share > disk.cpu_share && ideal.cpu_share <= 1.05, "{} {}", ideal.cpu_share, disk.cpu_share);
}

#[test]
fn requesters_get_more_from_two_drives_and_more_with_hiding() {
    let rate = |drives, hiding| {
        let log = LogSetup::paper("usb-c", drives).with_hiding(hiding);
        let load = Requesters { log, count: 4, request_bytes: 4096, time: Duration::from_secs(10), seed: 1 };
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
        let flushes = Sizes::from([(1024, 3), (8192, 1)]);
        Killed { log, flushes, log_bytes: 100_000_000, seed: 1 }.scan().unwrap()
    };
    let logs = [LogSetup::paper("usb-a", 1), LogSetup::paper("usb-a", 2), LogSetup::paper("usb-a", 2).with_archive()];
    let [one, two, archived] = logs.map(scan);
    assert!([one, two, archived].iter().all(|scanned| scanned.log_bytes >= 100_000_000));
    assert!(two.seconds < 0.75 * one.seconds && archived.seconds < two.seconds, "{one:?} {two:?} {archived:?}");
}

#[test]
fn a_trace_has_as_many_changes_as_asked_for_and_a_larger_pool_writes_fewer_pages() {
    let server = TracedServer::load(SMALL, 1, &|_| ()).unwrap();
    let trace = |buffer_pool_bytes| {
        server.trace(Traced { label: "small", buffer_pool_bytes, users: 8, changes: 20_000, seed: 1 }).unwrap()
    };
    let bytes = [1 << 20, 8 << 20].map(trace);
    assert!(trace(1 << 20) == bytes[0], "the same run, the same trace");
    let [small, large] = bytes.map(|bytes| Analysis::of(|| Reader::new("small", &bytes[..]), None).unwrap());
    assert_eq!((small.changes().count, large.changes().count), (20_000, 20_000));
    assert!(small.page_writes > 100 && large.page_writes < small.page_writes, "{small:?} {large:?}");
    assert!(server.database_bytes() > 8192 && small.pages > 100);
}

#[test]
fn a_page_store_costs_what_its_device_does_in_the_run() {
    let run = |store, profile: &str| {
        let device = Profile::named(profile).unwrap().with_capacity(64 << 20);
        let size = Size { buffer_pool_bytes: 1 << 20, ..SMALL };
        let (protection, is_filled) = (TornPageProtection::Auto, false);
        let (users, warm_up, counted, seed) = (4, 40, 400, 1);
        Stored { store, protection, device, is_filled, size, users, warm_up, counted, seed }.run().unwrap()
    };
    let in_page = run(StoreKind::InPageLogging, "nand-k9wag08u1a");
    let in_place = run(StoreKind::InPlace, "hdd-7200");
    for cost in [&in_page, &in_place] {
        assert!(cost.committed > 380 && cost.seconds > 0.0 && !cost.pool.is_empty(), "{cost:?}");
        assert!(cost.device.written_bytes > 400 * 512 && cost.device.read_bytes > 0, "{cost:?}");
    }
    let stats = in_page.in_page.unwrap();
    assert!(stats.bytes_written > in_page.device.written_bytes, "the load counts in one of them: {in_page:?}");
    assert!(in_page.pool.iter().any(|pool| pool.change_bytes > 0), "{in_page:?}");
    assert!(in_place.in_page.is_none() && in_place.device.erases == 0, "{in_place:?}");
}
