//! Three nodes of openraft, which crash in turn: nothing acknowledged is lost, and all come to the same state. One that missed much gets a
//! snapshot.
#![cfg(feature = "openraft")]
#![allow(missing_docs)] // of the macro's type

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use openraft::alias::{EntryOf, SnapshotOf, VoteOf};
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{AnyError, BasicNode, EntryPayload, Raft, SnapshotPolicy};
use tantalum::{Db, Table, Transaction};
use tantalum_device::{Device, MemoryDevice};
use tantalum_raft::openraft_storage::{Application, LogStore, StateMachine};
use tantalum_raft::{ErrorKind, Group, RaftLog, RaftLogOptions, StateSnapshot};
use tempfile::TempDir;

openraft::declare_raft_types!(pub Config: D = String, R = u64);

const GROUP: u64 = 9;
const NODES: std::ops::RangeInclusive<u64> = 1..=3;

/// Counts how often each word was said.
struct Words;

impl Application<Config> for Words {
    fn apply(&self, transaction: &mut Transaction, tables: &[Table], entry: &EntryOf<Config>) -> tantalum::Result<u64> {
        match &entry.payload {
            EntryPayload::Normal(word) => Ok(transaction.increment(&tables[0], word, 1)? as u64),
            _ => Ok(0),
        }
    }
}

type Node = Raft<Config, StateMachine<Config, Words>>;

/// The nodes that run, each reached by a call.
#[derive(Clone, Default)]
struct Network(Arc<Mutex<BTreeMap<u64, Node>>>);

/// The way to one node.
struct Connection {
    network: Network,
    to: u64,
}

impl Network {
    fn node(&self, id: u64) -> Option<Node> {
        self.0.lock().expect("no panic").get(&id).cloned()
    }
}

fn unreachable(what: impl Display) -> Unreachable<Config> {
    Unreachable::new(&AnyError::error(what))
}

impl Connection {
    fn node(&self) -> Result<Node, Unreachable<Config>> {
        self.network.node(self.to).ok_or_else(|| unreachable("the node is down"))
    }
}

impl RaftNetworkFactory<Config> for Network {
    type Network = Connection;

    async fn new_client(&mut self, to: u64, _node: &BasicNode) -> Connection {
        Connection { network: self.clone(), to }
    }
}

impl RaftNetworkV2<Config> for Connection {
    type SnapshotData = StateSnapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Config>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Config>, RPCError<Config>> {
        Ok(self.node()?.append_entries(request).await.map_err(unreachable)?)
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Config>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Config>, RPCError<Config>> {
        Ok(self.node()?.vote(request).await.map_err(unreachable)?)
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Config>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Config>, RPCError<Config>> {
        Ok(self.node()?.pre_vote(request).await.map_err(unreachable)?)
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Config>,
        snapshot: SnapshotOf<Config, StateSnapshot>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Config>, StreamingError<Config>> {
        let node = self.node()?;
        let mut bytes = Vec::new();
        snapshot.snapshot.write_to(&mut bytes).map_err(unreachable)?;
        let received = StateSnapshot::read_from(&bytes[..]).map_err(unreachable)?;
        let snapshot = SnapshotOf::<Config, _> { meta: snapshot.meta, snapshot: received };
        Ok(node.install_full_snapshot(vote, snapshot).await.map_err(unreachable)?)
    }
}

/// What a node keeps while it is down.
struct Machine {
    id: u64,
    devices: Vec<Arc<MemoryDevice>>,
    directory: TempDir,
    /// While it runs.
    storage: Option<(Group, StateMachine<Config, Words>)>,
}

impl Machine {
    fn new(id: u64) -> Machine {
        let devices = ["a", "b"].map(|name| MemoryDevice::new(format!("{id}{name}"), 2 << 20)).to_vec();
        let machine = Machine { id, devices, directory: tempfile::tempdir().expect("a directory"), storage: None };
        RaftLog::create(machine.as_devices(), &RaftLogOptions::default()).expect("create");
        machine
    }

    fn as_devices(&self) -> Vec<Arc<dyn Device>> {
        self.devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect()
    }

    async fn start(&mut self, network: &Network) {
        let options = RaftLogOptions { cache_bytes: 10_000, ..RaftLogOptions::default() };
        let log = RaftLog::open(self.as_devices(), &options).expect("open");
        let config = openraft::Config {
            heartbeat_interval: 50,
            election_timeout_min: 300,
            election_timeout_max: 600,
            snapshot_policy: SnapshotPolicy::LogsSinceLast(50),
            max_in_snapshot_log_to_keep: 5,
            purge_batch_size: 1,
            enable_pre_vote: Some(true),
            ..openraft::Config::default()
        };
        let config = Arc::new(config.validate().expect("it is valid"));
        let db = loop {
            match Db::builder().log_bytes(8 << 20).open(self.directory.path().join("db")) {
                // A call to the crashed node is still under way.
                Err(error) if error.kind() == ErrorKind::InUse => tokio::time::sleep(Duration::from_millis(5)).await,
                db => break db.expect("open"),
            }
        };
        let (group, state) = (log.group(GROUP), StateMachine::new(db, GROUP, &["words"], Words).expect("its tables"));
        let store = LogStore::new(group.clone());
        let node = Raft::new(self.id, config, network.clone(), store, state.clone()).await.expect("start");
        network.0.lock().expect("no panic").insert(self.id, node);
        self.storage = Some((group, state));
    }

    fn group(&self) -> &Group {
        &self.storage.as_ref().expect("it runs").0
    }

    fn words(&self) -> Vec<(String, i64)> {
        let (_, state) = self.storage.as_ref().expect("it runs");
        let snapshot = state.db().snapshot().expect("open");
        let rows = snapshot.range(&state.tables()[0], ..).expect("open").map(|row| {
            let (word, count) = row.expect("read");
            let count = i64::from_be_bytes(count[..].try_into().expect("a counter"));
            (String::from_utf8(word.to_vec()).expect("a word"), count)
        });
        rows.collect()
    }

    /// Ends the node without closing anything; what is not durable may be gone.
    async fn crash(&mut self, network: &Network) {
        let node = network.0.lock().expect("no panic").remove(&self.id).expect("it runs");
        node.shutdown().await.expect("no panic");
        drop((node, self.storage.take()));
        // Calls that were under way have ended.
        while self.devices.iter().any(|device| Arc::strong_count(device) > 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// Says a word until a leader has acknowledged it.
async fn say(network: &Network, word: &str) {
    loop {
        let nodes: Vec<Node> = network.0.lock().expect("no panic").values().cloned().collect();
        for node in nodes {
            if node.is_leader() && node.client_write(word.to_owned()).await.is_ok() {
                return;
            }
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_that_crash_in_turn_come_to_one_state_with_all_that_was_acknowledged() {
    let network = Network::default();
    let mut machines: BTreeMap<u64, Machine> = NODES.map(|id| (id, Machine::new(id))).collect();
    for machine in machines.values_mut() {
        machine.start(&network).await;
    }
    let members: BTreeMap<u64, BasicNode> = NODES.map(|id| (id, BasicNode::default())).collect();
    network.node(1).expect("it runs").initialize(members).await.expect("it is new");

    let mut said = 0;
    for round in 0..6u64 {
        // The leader half of the time.
        let leader = loop {
            match network.node(1 + round % 3).expect("it runs").current_leader().await {
                Some(leader) => break leader,
                None => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        };
        let down = if round % 2 == 0 { leader } else { 1 + leader % 3 };
        let had = machines[&down].group().bounds().last;
        machines.get_mut(&down).expect("it is a node").crash(&network).await;
        // Sometimes until the others lack what it needs next.
        let has_missed_much = |machines: &BTreeMap<u64, Machine>| {
            let others = machines.values().filter(|machine| machine.id != down);
            let purged = others.map(|machine| machine.group().bounds().purged).min().flatten();
            purged.map(|(index, _)| index) > had.map(|(index, _)| index)
        };
        let misses_much = round / 2 % 2 == 1;
        for word in 0.. {
            if word >= 20 && (!misses_much || has_missed_much(&machines)) {
                break;
            }
            said += 1;
            say(&network, &format!("word {said}")).await;
        }
        machines.get_mut(&down).expect("it is a node").start(&network).await;
        said += 1;
        say(&network, &format!("word {said}")).await;
    }
    // All at once.
    for machine in machines.values_mut() {
        machine.crash(&network).await;
    }
    for machine in machines.values_mut() {
        machine.start(&network).await;
    }
    said += 1;
    say(&network, &format!("word {said}")).await;
    let last = machines.values().filter_map(|machine| machine.group().bounds().last).max().map(|(index, _)| index);
    for id in NODES {
        let node = network.node(id).expect("it runs");
        node.wait(None).applied_index_at_least(last, "it comes to the end").await.expect("it runs");
    }
    let words: Vec<_> = machines.values().map(Machine::words).collect();
    assert!(words.iter().all(|state| *state == words[0]), "{words:?}");
    let expected: BTreeSet<String> = (1..=said).map(|word| format!("word {word}")).collect();
    assert!(words[0].iter().map(|(word, _)| word).eq(&expected), "{words:?}");
    for machine in machines.values_mut() {
        machine.crash(&network).await;
    }
}
