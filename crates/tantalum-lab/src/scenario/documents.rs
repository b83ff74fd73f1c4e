//! A document store on one drive: YCSB on an append-only tree, as Couchbase ran in DuraSSD's section 4.3.3.

use std::{sync::Arc, time::Duration};

use tantalum_device::Device;
use tantalum_flash::Contents;
use tantalum_rt::{Random, Scheduling, Simulation};
use tantalum_workloads::{
    Error,
    append_only::{AppendOnlyTree, Options, Stats},
    driver::{self, Recorder, Workload},
    ycsb::{Documents, Parameters},
};

use super::{
    Drive, STACK_BYTES,
    devices::{Instant, Timed},
    side_by_side,
};
use crate::error::Result;

/// The store, scaled down.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    pub records: u64,
    /// With a growing file.
    pub drive: Drive,
    /// Operations of the one client before anything is counted, and those that are.
    pub warm_up: u64,
    pub counted: u64,
    /// What an operation takes of the processor.
    pub cpu_per_operation: Duration,
    /// For the documents and the client's choices.
    pub seed: u64,
}

/// What a run does.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Updates {
    /// Whether the file system tells the drive to flush.
    pub has_barriers: bool,
    /// Of a hundred operations; the others are reads.
    pub percent: u8,
    /// Updates from one flush to the next.
    pub per_flush: u64,
    /// Whether reads count among them. What commits then does not ask what was done: each time it appends a root, which may be the last one
    /// again, and flushes.
    pub reads_count: bool,
}

/// What a run measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StoreRun {
    /// Operations a second, and the updates of them.
    pub per_second: f64,
    pub updates_per_second: f64,
    /// Levels of the tree.
    pub levels: u32,
    /// What an update appends.
    pub bytes_per_update: f64,
}

/// A store that was loaded.
pub(crate) struct LoadedStore {
    store: Store,
    contents: Arc<Instant>,
    /// Of the documents and their nodes.
    pub used_bytes: u64,
}

/// More than all nodes of the tree.
const CACHED_NODES: usize = 1 << 18;

impl Store {
    fn parameters(&self) -> Parameters {
        Parameters { seed: self.seed, ..Parameters::new(self.records) }
    }

    /// Loads the documents, on a device that takes no time.
    pub fn load(self) -> Result<LoadedStore> {
        let seed = self.seed;
        let load = move || {
            let contents = Instant::new("documents", Contents::in_memory(self.drive.bytes()));
            let device: Arc<dyn Device> = Arc::clone(&contents) as _;
            AppendOnlyTree::create(&device)?;
            let tree = AppendOnlyTree::open(device, Options { cached_nodes: CACHED_NODES, ..Options::default() })?;
            Documents::load(&tree, self.parameters())?;
            let used_bytes = tree.stats().used_bytes;
            Ok(LoadedStore { store: self, contents, used_bytes })
        };
        Simulation::new(seed).scheduling(Scheduling::InOrder).run(load).expect_finished()
    }
}

impl LoadedStore {
    /// The same documents on another drive.
    pub fn on(&self, drive: Drive) -> Self {
        Self {
            store: Store { drive, ..self.store.clone() },
            contents: Arc::clone(&self.contents),
            used_bytes: self.used_bytes,
        }
    }

    /// Runs all, several at a time, and gives the results in their order.
    pub fn run(&self, updates: &[Updates], progress: &dyn Fn(&str)) -> Result<Vec<StoreRun>> {
        let (store, used_bytes, contents) = (self.store.clone(), self.used_bytes, Arc::clone(&self.contents));
        side_by_side(
            updates.to_vec(),
            |updates| format!("{}% updates, {} for a flush", updates.percent, updates.per_flush),
            move |&updates| {
                let (store, contents) = (store.clone(), contents.contents());
                let simulation = Simulation::new(store.seed).scheduling(Scheduling::InOrder).stack_size(STACK_BYTES);
                simulation.run(move || updates.measure(&store, contents, used_bytes)).expect_finished()
            },
            progress,
        )
    }
}

/// Documents, and a commit after so many operations of each client.
struct Committed {
    documents: Documents,
    tree: Arc<AppendOnlyTree>,
    per_commit: u64,
}

impl Workload for Committed {
    /// With the operations since the last commit.
    type Client<'a> = (Random, u64);

    fn kinds(&self) -> &'static [&'static str] {
        self.documents.kinds()
    }

    fn client(&self, number: usize, seed: u64) -> Result<Self::Client<'_>, Error> {
        Ok((self.documents.client(number, seed)?, 0))
    }

    fn step(&self, (random, since_commit): &mut Self::Client<'_>, recorder: &mut Recorder) -> Result<(), Error> {
        self.documents.step(random, recorder)?;
        *since_commit += 1;
        if *since_commit == self.per_commit {
            *since_commit = 0;
            self.tree.put_all(&[])?;
            self.tree.flush()?;
        }
        Ok(())
    }
}

impl Updates {
    fn measure(self, store: &Store, contents: Contents, used_bytes: u64) -> Result<StoreRun> {
        let drive = Drive { has_barriers: self.has_barriers, ..store.drive.clone() };
        let (_, file) = drive.build("documents", used_bytes)?;
        let updates_per_flush = if self.reads_count { u64::MAX } else { self.per_flush };
        let options = Options { updates_per_flush, cached_nodes: CACHED_NODES };
        let tree = Arc::new(AppendOnlyTree::open(Timed::new(contents, file, false), options)?);
        tree.warm_up()?;
        let documents = Documents::new(Arc::clone(&tree), store.parameters(), self.percent);
        let per_commit = if self.reads_count { self.per_flush } else { u64::MAX };
        let workload = Arc::new(Committed { documents, tree: Arc::clone(&tree), per_commit });
        let run = |operations, seed| {
            let options = driver::Options::transactions(1, operations).with_seed(seed);
            driver::run(&workload, options.with_cpu_per_attempt(store.cpu_per_operation), &mut |_| ())
        };
        run(store.warm_up, store.seed)?;
        let before = tree.stats();
        let report = run(store.counted, store.seed + 1)?;
        let Stats { levels, sequence, appended_bytes, .. } = tree.stats();
        let updates = sequence - before.sequence;
        Ok(StoreRun {
            per_second: report.total.per_second,
            updates_per_second: report.kinds[1].per_second,
            levels,
            bytes_per_update: (appended_bytes - before.appended_bytes) as f64 / updates.max(1) as f64,
        })
    }
}
