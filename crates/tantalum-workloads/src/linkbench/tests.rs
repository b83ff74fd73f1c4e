//! LinkBench at a small scale: loaded and run in the simulation and on threads, cut off, and broken on purpose.

use std::sync::Arc;
use std::time::Duration;

use tantalum::{Db, Devices};
use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_rt::{Outcome, Random, Simulation};

use super::access::LINK_TYPES;
use super::graph::Graph;
use super::schema::{Count, ListId, Listed, Tables};
use super::*;
use crate::driver::{self, Options, RunReport};
use crate::error::ErrorKind;

/// No condition.
const NONE: [usize; 0] = [];

const PARAMETERS: Parameters = Parameters { nodes: 300, seed: 7 };

/// Devices whose writes take a while, and that forget what was not flushed.
fn devices() -> [Arc<MemoryDevice>; 3] {
    let us = Duration::from_micros;
    let device = |(name, bytes)| {
        let profile = MemoryProfile {
            write_latency: us(20)..us(200),
            flush_latency: us(20)..us(100),
            ..MemoryProfile::default()
        };
        MemoryDevice::with_profile(name, bytes, profile)
    };
    [("data", 32 << 20), ("double-write", 2 << 20), ("log", 16 << 20)].map(device)
}

fn open([data, double_write, log]: &[Arc<MemoryDevice>; 3]) -> Db {
    let devices = Devices {
        data: data.clone(),
        double_write: Some(double_write.clone() as Arc<dyn Device>),
        log: vec![log.clone() as Arc<dyn Device>],
    };
    Db::builder().buffer_pool_bytes(4 << 20).open_on(devices).unwrap()
}

fn in_simulation<T: 'static>(seed: u64, test: impl FnOnce() -> T + 'static) -> Outcome<T> {
    Simulation::new(seed).step_limit(50_000_000).time_limit(Duration::from_secs(600)).run(test)
}

fn load(db: &Db) -> LinkBench {
    LinkBench::load_or_reuse(db, PARAMETERS, 3, &mut |_| ()).unwrap()
}

fn run(linkbench: LinkBench, clients: usize, steps: u64) -> RunReport {
    driver::run(&Arc::new(linkbench), Options::transactions(clients, steps), &mut |_| ()).unwrap()
}

fn broken(db: &Db) -> Vec<usize> {
    let conditions = consistency::check(db).unwrap();
    assert!(conditions.iter().all(|condition| condition.checked > 0), "{conditions:?}");
    conditions.iter().filter(|condition| !condition.is_ok()).map(|condition| condition.number).collect()
}

#[test]
fn loads_runs_and_stays_consistent_blocking_and_pipelined() {
    for async_depth in [1, 8] {
        in_simulation(async_depth as u64, move || {
            let db = open(&devices());
            let linkbench = load(&db);
            assert_eq!(broken(&db), NONE);
            let report = run(linkbench.with_async_depth(async_depth), 5, 400);
            assert_eq!(report.total.committed, 2000);
            for (kind, counted) in Kind::ALL.into_iter().zip(&report.kinds) {
                let share = 100.0 * counted.committed as f64 / 2000.0;
                assert!((share - kind.percent()).abs() < 0.2 * kind.percent() + 1.0, "{}: {share} %", counted.name);
            }
            assert_eq!(broken(&db), NONE);
        })
        .expect_finished();
    }
}

#[test]
fn a_power_cut_leaves_whole_transactions() {
    for seed in 0..6 {
        let kept = devices();
        let given = kept.clone();
        let cut = in_simulation(seed, move || {
            let db = open(&given);
            let linkbench = load(&db);
            tantalum_rt::spawn("power", move || {
                tantalum_rt::sleep(Duration::from_millis(20 + 7 * seed));
                tantalum_rt::power_cut();
            });
            run(linkbench.with_async_depth(4), 6, 1_000_000);
        });
        assert!(matches!(cut, Outcome::PowerCut { .. }), "the run would go on");
        in_simulation(seed, move || {
            let after = kept.each_ref().map(|device| device.fork());
            after.iter().for_each(|device| device.power_cut(&mut Random::with_seed(seed)));
            let db = open(&after);
            assert_eq!(broken(&db), NONE);
            run(LinkBench::open(&db).unwrap().expect("it is loaded"), 3, 50);
            assert_eq!(broken(&db), NONE);
        })
        .expect_finished();
    }
}

#[test]
fn a_load_of_other_parameters_is_told_and_an_unfinished_one_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(8 << 20).open(directory.path()).unwrap();
    assert!(LinkBench::open(&db).unwrap().is_none());
    Tables::open(&db).unwrap();
    assert!(LinkBench::open(&db).unwrap().is_none(), "there are tables, but no mark");
    assert_eq!(load(&db).parameters(), PARAMETERS);
    let other = LinkBench::load_or_reuse(&db, Parameters { nodes: 301, seed: 7 }, 1, &mut |_| ()).map(drop);
    assert!(matches!(&other, Err(error) if error.kind() == ErrorKind::Mismatch), "{other:?}");
    let mut loads = 0;
    LinkBench::load_or_reuse(&db, PARAMETERS, 1, &mut |_| loads += 1).unwrap();
    assert_eq!(loads, 0, "it is reused");
    assert_eq!(broken(&db), NONE);
}

#[test]
fn links_come_and_go_with_their_lists_and_counts() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(8 << 20).open(directory.path()).unwrap();
    let graph = Graph::open(&db).unwrap();
    let list = ListId { id1: 5, link_type: 1 };
    let seen = || (graph.count_links(&list).unwrap(), graph.get_list(&list, u64::MAX).unwrap().links);
    assert_eq!(seen(), (0, 0));
    for (id2, count) in [(6, 1), (7, 2), (6, 2)] {
        graph.add_link(&list, id2, b"data").unwrap().commit().unwrap();
        assert_eq!(seen(), (count, count as usize));
    }
    assert_eq!(graph.get_links(&list, &[6, 7, 8]).unwrap(), 2);
    for id2 in [6, 6, 9] {
        graph.delete_link(&list, id2).unwrap().commit().unwrap();
        assert_eq!(seen(), (1, 1), "hidden once; what is not there, not at all");
    }
    assert_eq!(graph.get_links(&list, &[6, 7]).unwrap(), 1);
    graph.add_link(&list, 6, b"again").unwrap().commit().unwrap();
    assert_eq!(seen(), (2, 2));
    assert_eq!(broken(&db), NONE);

    let id = graph.new_node_id();
    graph.add_node(id, b"data").unwrap().commit().unwrap();
    graph.update_node(id, b"other data").unwrap().commit().unwrap();
    assert_eq!(graph.get_node(id).unwrap(), Some(10));
    assert_eq!(Graph::open(&db).unwrap().new_node_id(), id + 1);
    graph.delete_node(id).unwrap().commit().unwrap();
    graph.update_node(id, b"x").unwrap().commit().unwrap();
    assert_eq!(graph.get_node(id).unwrap(), None);
}

#[test]
fn each_condition_is_seen_when_broken() {
    let directory = tempfile::tempdir().unwrap();
    let db = Db::builder().log_bytes(8 << 20).open(directory.path()).unwrap();
    load(&db);
    let (tables, snapshot) = (Tables::open(&db).unwrap(), db.snapshot().unwrap());
    let first = |table| snapshot.range(table, ..).unwrap().next().unwrap().unwrap();
    let broken_by = |key: &[u8], row: Option<&[u8]>, table: &tantalum::Table| {
        let before = snapshot.get(table, key).unwrap();
        let write = |row: Option<&[u8]>| {
            let mut tx = db.begin().unwrap();
            match row {
                Some(row) => tx.put(table, key, row).unwrap(),
                None => assert!(tx.delete(table, key).unwrap()),
            }
            tx.commit().unwrap();
        };
        write(row);
        let broken = broken(&db);
        write(before.as_deref());
        broken
    };
    let (count_key, count) = first(&tables.link_count);
    let wrong = Count { count: 77, ..Count::decode(&count).unwrap() }.encode();
    assert_eq!(broken_by(&count_key, Some(&wrong), &tables.link_count), [1]);
    assert_eq!(broken_by(&count_key, None, &tables.link_count), [1]);
    let (entry_key, entry) = first(&tables.link_list);
    assert_eq!(broken_by(&entry_key, None, &tables.link_list), [2]);
    let wrong = Listed { data: b"not so", ..Listed::decode(&entry).unwrap() }.encode();
    assert_eq!(broken_by(&entry_key, Some(&wrong), &tables.link_list), [2]);
    let of_nobody = ListId { id1: 1 << 50, link_type: LINK_TYPES }.listed(1, 2);
    assert_eq!(broken_by(&of_nobody, Some(&entry), &tables.link_list), [3]);
    let (link_key, _) = first(&tables.link);
    assert_eq!(broken_by(&link_key, None, &tables.link), [1, 3]);
    assert_eq!(broken(&db), NONE);
    let mut tx = db.begin().unwrap();
    tx.put(&tables.link, b"short", b"").unwrap();
    tx.commit().unwrap();
    assert!(matches!(consistency::check(&db), Err(error) if error.kind() == ErrorKind::Corrupt));
}
