//! The nodes' machines, what runs on them, and what happens to them.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use raft::eraftpb::MessageType;
use tantalum_raft::{Error, ErrorKind, Result};
use tantalum_rt::{Instant, JoinHandle, Mutex, Random, now, sleep, spawn};

use super::history::Request;
use super::machine::{Machine, Start};
use super::network::{Event, Inbox};
use super::node::{self, Node, World};

/// How long it may take until all nodes have applied everything, once they are left in peace.
const RECOVERY: Duration = Duration::from_secs(10);

/// How far a node's state has come, and its lists.
pub type State = (u64, BTreeMap<u8, Vec<u64>>);

pub struct Cluster {
    pub world: Arc<World>,
    nodes: Mutex<BTreeMap<u64, Machine>>,
    /// All that was ever started.
    starts: Mutex<Vec<JoinHandle<Option<State>>>>,
    clocks: Mutex<Vec<JoinHandle<()>>>,
    /// Whether time passes for the nodes.
    clocks_go: AtomicBool,
    is_over: AtomicBool,
    is_in_trouble: AtomicBool,
    /// Black-outs that are not over.
    black_outs: AtomicU64,
    has_hung: AtomicBool,
    pub cuts: AtomicU64,
    pub lost_devices: AtomicU64,
}

impl Cluster {
    /// Starts new nodes, with raft logs on memory or on emulated devices of this profile.
    pub fn start(world: &Arc<World>, profile: Option<&str>, random: &mut Random) -> Arc<Cluster> {
        let mut machines = BTreeMap::new();
        for id in 1..=world.options.nodes {
            let mut machine = Machine::new(&format!("node-{id}"), profile, random);
            node::create(&machine.power_on(), &world.options).expect("create");
            machine.cut_power(random);
            machines.insert(id, machine);
        }
        let cluster = Arc::new(Cluster {
            world: Arc::clone(world),
            nodes: Mutex::new(machines),
            starts: Mutex::default(),
            clocks: Mutex::default(),
            clocks_go: AtomicBool::new(true),
            is_over: AtomicBool::new(false),
            is_in_trouble: AtomicBool::new(true),
            black_outs: AtomicU64::new(0),
            has_hung: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            lost_devices: AtomicU64::new(0),
        });
        cluster.cut_power_at_promises(random.fork());
        for id in 1..=world.options.nodes {
            cluster.power_on(id);
            let (of, random) = (Arc::clone(&cluster), random.fork());
            let clock = spawn(format!("clock-{id}"), move || of.run_clock(id, random));
            cluster.clocks.lock().push(clock);
        }
        cluster
    }

    /// Gives a machine power, and starts the node.
    fn power_on(self: &Arc<Self>, id: u64) {
        let mut nodes = self.nodes.lock();
        let machine = nodes.get_mut(&id).expect("there is one");
        if machine.has_power() {
            return;
        }
        let (start, inbox) = (machine.power_on(), Arc::new(Inbox::default()));
        self.world.network.connect(id, Arc::clone(&inbox));
        let cluster = Arc::clone(self);
        let started = spawn(format!("node-{id}"), move || {
            let ended = catch_unwind(AssertUnwindSafe(|| cluster.run_node(id, &start, inbox)));
            match ended {
                // What happens on a machine without power has no effect: raft-rs panics if a device fails to read.
                _ if !start.power.is_on() => None,
                Ok(Ok(state)) => state,
                // What hangs for too long is given up, and the log with it. The operator starts the node again.
                Ok(Err(error)) if is_given_up(&error) && cluster.has_hung.load(Ordering::Relaxed) => {
                    cluster.black_out(id, Random::with_seed(id));
                    None
                }
                Ok(Err(error)) => panic!("node {id}: {error}"),
                Err(panic) => resume_unwind(panic),
            }
        });
        self.starts.lock().push(started);
    }

    fn run_node(&self, id: u64, start: &Start, inbox: Arc<Inbox>) -> Result<Option<State>> {
        let mut node = Node::open(id, &self.world, start, inbox)?;
        node.run()?;
        if start.power.is_on() { node.end() } else { Ok(None) }
    }

    fn cut_power(&self, id: u64, random: &mut Random) {
        let mut nodes = self.nodes.lock();
        let machine = nodes.get_mut(&id).expect("there is one");
        if machine.has_power() {
            machine.cut_power(random);
            self.world.network.disconnect(id);
            self.cuts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Ticks of a node's clock, which is more or less even.
    fn run_clock(&self, id: u64, mut random: Random) {
        while !self.is_over.load(Ordering::Relaxed) {
            // With even clocks, there are often several candidates.
            let usual = random.u64(if self.world.options.has_even_clocks { 1450..1550 } else { 500..2500 })
                * self.world.options.slowness.div_ceil(2);
            sleep(Duration::from_micros(if random.u32(0..300) == 0 { usual * 8 } else { usual }));
            if self.clocks_go.load(Ordering::Relaxed)
                && let Some(inbox) = self.world.network.inbox(id)
            {
                inbox.push(Event::Tick);
            }
        }
    }

    /// Cuts the power of a node soon, and gives it back some time later.
    pub fn black_out(self: &Arc<Self>, id: u64, mut random: Random) {
        let cluster = Arc::clone(self);
        self.black_outs.fetch_add(1, Ordering::Relaxed);
        spawn(format!("black-out-{id}"), move || {
            sleep(Duration::from_micros(random.u64(0..300)));
            cluster.cut_power(id, &mut random);
            let most = if random.u32(0..4) == 0 { 100_000 } else { 5000 };
            sleep(Duration::from_micros(random.u64(500..most)));
            if cluster.world.options.copies == 2 && random.u32(0..20) == 0 {
                let mut nodes = cluster.nodes.lock();
                let machine = nodes.get_mut(&id).expect("there is one");
                if !machine.has_power() && machine.lose_log_device(&mut random) {
                    cluster.lost_devices.fetch_add(1, Ordering::Relaxed);
                }
            }
            cluster.power_on(id);
            cluster.black_outs.fetch_sub(1, Ordering::Relaxed);
        });
    }

    /// Now and then, the power of a node goes about when it has promised a vote, or to have entries.
    fn cut_power_at_promises(self: &Arc<Self>, random: Random) {
        let (cluster, random) = (Arc::downgrade(self), std::sync::Mutex::new(random));
        let on_promise = move |id, message| {
            let Some(cluster) = cluster.upgrade().filter(|cluster| cluster.is_in_trouble.load(Ordering::Relaxed))
            else {
                return;
            };
            let one_of = match message {
                MessageType::MsgRequestVoteResponse => 4,
                MessageType::MsgAppendResponse => 300,
                _ => return,
            };
            let mut random = random.lock().expect("no panic");
            if random.u32(0..one_of) == 0 {
                let fork = random.fork();
                drop(random);
                cluster.black_out(id, fork);
            }
        };
        assert!(self.world.on_promise.set(Box::new(on_promise)).is_ok(), "there is one cluster");
    }

    /// What happens to the cluster, until it is left in peace.
    pub fn trouble(self: &Arc<Self>, random: &mut Random, end: Instant) {
        let (all, network) = (self.world.options.nodes, &self.world.network);
        while now() < end {
            sleep(Duration::from_micros(random.u64(500..80_000) * self.world.options.slowness));
            let id = random.u64(1..=all);
            match random.u32(0..12) {
                0..=4 => self.black_out(id, random.fork()),
                5 => (1..=all).for_each(|id| self.black_out(id, random.fork())),
                6 => (1..=all).filter(|other| *other != id).for_each(|id| self.black_out(id, random.fork())),
                7 | 8 => network.cut_links(all),
                9 => network.mend_links(),
                _ => {
                    self.has_hung.store(true, Ordering::Relaxed);
                    let needs_power_cut = self.nodes.lock()[&id].disturb(random);
                    if needs_power_cut {
                        sleep(Duration::from_micros(random.u64(0..40_000)));
                        self.black_out(id, random.fork());
                    }
                }
            }
        }
    }

    /// Ends all trouble, waits until all nodes have applied the same, and returns the lists.
    pub fn come_to_rest(&self) -> BTreeMap<u8, Vec<u64>> {
        self.is_in_trouble.store(false, Ordering::Relaxed);
        self.world.network.be_reliable();
        self.nodes.lock().values().for_each(Machine::calm);
        let (begin, mut random, mut was_answered) = (now(), Random::with_seed(0), false);
        loop {
            assert!(begin.elapsed() < RECOVERY, "the nodes do not come to rest: {:?}", self.world.history().progress());
            was_answered |= super::ask(&self.world, Request::Append { key: 0, value: random.u64(..) }, &mut random);
            sleep(Duration::from_millis(100) * self.world.options.slowness as u32);
            // Messages that are under way arrive, and no others are sent.
            self.clocks_go.store(false, Ordering::Relaxed);
            sleep(Duration::from_millis(50));
            if was_answered && self.black_outs.load(Ordering::Relaxed) == 0 && self.world.history().is_at_rest() {
                break;
            }
            self.clocks_go.store(true, Ordering::Relaxed);
        }
        for id in 1..=self.world.options.nodes {
            self.world.network.inbox(id).expect("it has power").push(Event::End);
        }
        // What tasks have that do not come to their end is never freed.
        self.is_over.store(true, Ordering::Relaxed);
        let clocks = std::mem::take(&mut *self.clocks.lock());
        clocks.into_iter().for_each(|clock| clock.join().expect("no clock panics"));
        let starts = std::mem::take(&mut *self.starts.lock());
        let states: Vec<_> = starts.into_iter().filter_map(|start| start.join().expect("no node panics")).collect();
        assert_eq!(states.len() as u64, self.world.options.nodes, "all nodes are there");
        let last = self.world.history().last_applied();
        for (index, lists) in &states {
            assert_eq!((*index, lists), (last, &states[0].1), "all nodes have the same");
        }
        states.into_iter().next().expect("there are nodes").1
    }
}

/// Whether a device did not answer in time, when the log was open or being opened.
fn is_given_up(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::Poisoned | ErrorKind::TimedOut)
}
