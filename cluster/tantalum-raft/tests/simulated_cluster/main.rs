//! A cluster of three nodes, each with a raft log on two devices and a database, in one simulation: power cuts of any node at any time,
//! messages that are late, lost, doubled or overtaken, cut links, and devices that are late, hang or are lost.
//!
//! What must hold: nothing acknowledged is lost, each key's list is linearizable, no two nodes lead in a term, all nodes apply the same
//! entries, and a node's rows are always those of the entry that it says.
//!
//! `SEEDS=A..B` has other seeds tried. `cluster/run-mutants` checks that the test sees what it should.
#![cfg(feature = "raft-rs")]

mod cluster;
mod history;
mod machine;
mod network;
mod node;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tantalum_rt::{Instant, Random, Simulation, now, sleep, spawn};

use cluster::Cluster;
use history::{Answer, Request};
use network::{Event, Network};
use node::{Options, World};

const NODES: u64 = 3;
const CLIENTS: u64 = 4;
const KEYS: u8 = 3;
/// A client gives up waiting after so long.
const PATIENCE: Duration = Duration::from_millis(40);
/// How long the cluster is disturbed.
const TROUBLE: Duration = Duration::from_millis(2500);

fn run_client(id: u64, world: &World, mut random: Random, end: Instant) {
    let mut appended = 0;
    while now() < end {
        sleep(Duration::from_micros(random.u64(0..6000) * world.options.slowness));
        let key = random.u8(0..KEYS);
        let request = match random.bool() {
            true => {
                appended += 1;
                Request::Append { key, value: id << 32 | appended }
            }
            false => Request::Read { key },
        };
        ask(world, request, &mut random);
    }
}

/// Sends a request to a node, and waits a while for the answer. Returns whether one came.
fn ask(world: &World, request: Request, random: &mut Random) -> bool {
    let Some(inbox) = world.network.inbox(random.u64(1..=NODES)) else { return false };
    let number = world.history().invoke(request);
    inbox.push(Event::Request(number, request));
    let asked = now();
    while asked.elapsed() < PATIENCE * world.options.slowness as u32 {
        sleep(Duration::from_micros(random.u64(50..400)));
        let answer = world.answers.lock().expect("no panic").remove(&number);
        if let Some(answer) = answer {
            let is_done = answer != Answer::Refused;
            world.history().answer(number, answer);
            return is_done;
        }
    }
    false
}

/// What runs did.
#[derive(Debug, Default)]
struct Summary {
    answered: usize,
    unknown: usize,
    entries: u64,
    leaders: usize,
    snapshots: u64,
    cuts: u64,
    lost_devices: u64,
    rewritten: u64,
}

impl Summary {
    fn add(&mut self, run: &Summary) {
        self.answered += run.answered;
        self.unknown += run.unknown;
        self.entries += run.entries;
        self.leaders += run.leaders;
        self.snapshots += run.snapshots;
        self.cuts += run.cuts;
        self.lost_devices += run.lost_devices;
        self.rewritten += run.rewritten;
    }
}

fn simulate(seed: u64) -> Summary {
    let mut random = Random::with_seed(seed);
    let profile = [None, None, Some("intel-x25e"), Some("durassd")][random.usize(0..4)];
    let options = Options {
        nodes: NODES,
        copies: random.u8(1..=2),
        cache_bytes: [0, 300, 1 << 20][random.usize(0..3)],
        pre_vote: random.u32(0..3) == 0,
        has_even_clocks: random.bool(),
        // What is not in memory is read from the devices, one entry after the other.
        max_size_per_msg: [0, 100, 20_000][random.usize(0..if profile.is_some() { 2 } else { 3 })],
        kept_entries: [0, 5, 50][random.usize(0..3)],
        padding: [0, 0, 500, 2000][random.usize(0..4)],
        slowness: if profile.is_some() { 8 } else { 1 },
    };
    let run = move || {
        let network = Network::new(random.fork());
        let (history, answers, on_promise) = Default::default();
        let world = Arc::new(World { options, network, history, answers, on_promise });
        let cluster = Cluster::start(&world, profile, &mut random);
        let end = now() + TROUBLE * world.options.slowness as u32;
        let client = |id| {
            let (world, random) = (Arc::clone(&world), random.fork());
            spawn(format!("client-{id}"), move || run_client(id, &world, random, end))
        };
        let clients: Vec<_> = (1..=CLIENTS).map(client).collect();
        cluster.trouble(&mut random, end);
        clients.into_iter().for_each(|client| client.join().expect("no client panics"));
        let lists = cluster.come_to_rest();
        let history = world.history();
        history.check(&lists);
        let (answered, unknown) = history.counts();
        Summary {
            answered,
            unknown,
            entries: history.last_applied(),
            leaders: history.leaders(),
            snapshots: history.snapshots_installed,
            cuts: cluster.cuts.load(Ordering::Relaxed),
            lost_devices: cluster.lost_devices.load(Ordering::Relaxed),
            rewritten: history.entries_rewritten,
        }
    };
    Simulation::new(seed).stack_size(1 << 20).time_limit(Duration::from_secs(60)).run(run).expect_finished()
}

#[test]
fn a_cluster_keeps_its_promises_through_power_cuts() {
    let chosen = std::env::var("SEEDS").ok();
    let seeds = chosen.as_deref().unwrap_or("0..150").split_once("..");
    let (from, to) = seeds.expect("SEEDS is A..B");
    let seeds = from.parse::<u64>().expect("a number")..to.parse().expect("a number");
    let mut all = Summary::default();
    for seed in seeds {
        let run = std::panic::catch_unwind(|| simulate(seed)).unwrap_or_else(|_| panic!("seed {seed} fails"));
        println!("{seed}: {run:?}");
        all.add(&run);
    }
    println!("{all:?}");
    if chosen.is_none() {
        assert!(all.answered > 20_000 && all.unknown > 5000 && all.leaders > 1000, "{all:?}");
        assert!(all.cuts > 3000 && all.snapshots > 100 && all.lost_devices > 20 && all.rewritten > 100, "{all:?}");
    }
}
