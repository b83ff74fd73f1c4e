//! A document store on one drive: YCSB on an append-only tree, as Couchbase ran in the paper (section 4.3.3).

use std::{sync::Arc, time::Duration};

use tantalum_device::Device;
use tantalum_flash::{Contents, EmulatedDevice};
use tantalum_rt::{Scheduling, Simulation};
use tantalum_workloads::{
    append_only::{AppendOnlyTree, Options, Stats},
    driver,
    ycsb::{Documents, Parameters},
};

use super::{
    super::{image::STACK_BYTES, plain::Plain, sweep::side_by_side},
    JOURNAL_WRITES, Mounted, Timed, new_drive,
};
use crate::{
    error::Result,
    micro::{self, Data},
};

/// The store, scaled down.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Store {
    /// Documents.
    pub records: u64,
    /// The profile of the drive.
    pub drive: &'static str,
    /// Its size.
    pub drive_bytes: u64,
    /// What writes wait in, within the drive; `None` as its profile has it.
    pub drive_cache_bytes: Option<u64>,
    /// Operations of the one client before anything is counted, and those that are.
    pub warm_up: u64,
    /// See [`Store::warm_up`].
    pub counted: u64,
    /// What an operation takes of the processor.
    pub cpu_per_operation: Duration,
    /// For the documents and the client's choices.
    pub seed: u64,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updates {
    /// Whether the file system tells the drive to flush.
    pub has_barriers: bool,
    /// Of a hundred operations; the others are reads.
    pub percent: u8,
    /// Updates from one flush to the next.
    pub per_flush: u64,
}

/// What a run measured.
#[derive(Debug, Clone, Copy)]
pub struct StoreRun {
    /// Operations a second.
    pub per_second: f64,
    /// Of these, updates.
    pub updates_per_second: f64,
    /// Levels of the tree.
    pub levels: u32,
    /// What an update appends.
    pub bytes_per_update: f64,
}

/// A store that was loaded.
pub struct LoadedStore {
    store: Store,
    contents: Arc<Plain>,
    used_bytes: u64,
}

/// More than all nodes of the tree.
const CACHED_NODES: usize = 1 << 18;

impl Store {
    fn parameters(&self) -> Parameters {
        Parameters { seed: self.seed, ..Parameters::new(self.records) }
    }

    /// Loads the documents, on a device that takes no time.
    ///
    /// # Errors
    /// As the tree fails: a defect.
    pub fn load(self) -> Result<LoadedStore> {
        let load = move || {
            let contents = Plain::new("documents", Contents::in_memory(self.drive_bytes - Mounted::OVERHEAD_BYTES));
            let device: Arc<dyn Device> = Arc::clone(&contents) as _;
            AppendOnlyTree::create(&device)?;
            let tree = AppendOnlyTree::open(device, Options { cached_nodes: CACHED_NODES, ..Options::default() })?;
            Documents::load(&tree, self.parameters())?;
            let used_bytes = tree.stats().used_bytes;
            Ok(LoadedStore { store: self, contents, used_bytes })
        };
        Simulation::new(self.seed).scheduling(Scheduling::InOrder).run(load).expect_finished()
    }
}

impl LoadedStore {
    /// Bytes of the loaded documents and their nodes.
    pub fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    /// Runs all, several at a time, and gives the results in their order.
    ///
    /// # Errors
    /// The first of a run.
    pub fn run(&self, updates: &[Updates], progress: &dyn Fn(&str)) -> Result<Vec<StoreRun>> {
        let (store, used_bytes, contents) = (self.store, self.used_bytes, Arc::clone(&self.contents));
        let mut runs = vec![None; updates.len()];
        side_by_side(
            updates.iter().copied().enumerate().collect(),
            |(_, updates)| format!("{}% updates, {} for a flush", updates.percent, updates.per_flush),
            move |&(_, updates)| {
                let contents = contents.contents();
                let simulation = Simulation::new(store.seed).scheduling(Scheduling::InOrder).stack_size(STACK_BYTES);
                simulation.run(move || updates.measure(&store, contents, used_bytes)).expect_finished()
            },
            |(at, _), run| runs[at] = Some(run),
            progress,
        )?;
        Ok(runs.into_iter().flatten().collect())
    }
}

impl Updates {
    fn measure(self, store: &Store, contents: Contents, used_bytes: u64) -> Result<StoreRun> {
        let drive: Arc<EmulatedDevice> =
            new_drive(store.drive, "documents", store.drive_bytes, store.drive_cache_bytes, self.has_barriers)?;
        let drive: Arc<dyn Device> = drive;
        micro::fill(&drive, 0..used_bytes.next_multiple_of(1 << 20), Data::Zeros, &|_| ())?;
        let file = Arc::new(Mounted::growing_on(drive, JOURNAL_WRITES));
        let options = Options { updates_per_flush: self.per_flush, cached_nodes: CACHED_NODES };
        let tree = Arc::new(AppendOnlyTree::open(Timed::new(contents, file), options)?);
        tree.warm_up()?;
        let workload = Arc::new(Documents::new(Arc::clone(&tree), store.parameters(), self.percent));
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
