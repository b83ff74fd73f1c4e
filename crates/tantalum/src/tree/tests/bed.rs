//! A tree on devices in memory.

use super::*;
use crate::buffer::{BufferPool, Cleaner, PageCleaning, PoolOptions};
use crate::recovery;
use crate::space::Space;
use crate::testing::in_place_store;
use std::sync::Arc;
use std::time::Duration;
use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_log::{Log, LogOptions};
use tantalum_rt::Random;
use tantalum_store::{PageId, Protection, TableId};

const OWNER: TableId = TableId(7);
const ROOT: PageId = PageId(3);

/// Records may be large: one commit can carry many large values.
fn log_options() -> LogOptions {
    LogOptions { buffer_bytes: 2 << 20, ..LogOptions::default() }
}

/// What survives a power cut.
#[derive(Clone)]
pub(super) struct Devices {
    data: Arc<MemoryDevice>,
    double_write: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    page_size: usize,
    protection: Protection,
}

impl Devices {
    /// A data device of which each read takes so long, and nothing else any time.
    pub(super) fn with_slow_reads(takes: Duration) -> Self {
        let slow = takes..takes + Duration::from_nanos(1);
        let profile = MemoryProfile { read_latency: slow, ..MemoryProfile::default() };
        let devices = Self::with_profile(4096, 16 << 20, &MemoryProfile::default(), Protection::FullPageImages);
        Devices { data: MemoryDevice::with_profile("data", 1 << 20, profile), ..devices }
    }

    /// Fresh devices with a latency, on which torn pages are prevented in one way or the other.
    pub(super) fn create(seed: u64) -> Self {
        let profile = MemoryProfile {
            write_latency: Duration::from_micros(5)..Duration::from_micros(80),
            read_latency: Duration::from_micros(5)..Duration::from_micros(40),
            flush_latency: Duration::from_micros(5)..Duration::from_micros(80),
            seed,
            ..MemoryProfile::default()
        };
        let protection = if seed.is_multiple_of(2) { Protection::DoubleWrite } else { Protection::FullPageImages };
        // Some get a log that is soon full.
        let log_bytes = if seed % 4 < 2 { 16 << 20 } else { 2 << 20 };
        Self::with_profile(4096, log_bytes, &profile, protection)
    }

    fn with_profile(page_size: usize, log_bytes: u64, profile: &MemoryProfile, protection: Protection) -> Self {
        let device = |name: &str, bytes: u64| MemoryDevice::with_profile(name, bytes, profile.clone());
        let log = device("log", log_bytes);
        Log::create(1, vec![log.clone()], log_options()).expect("the log can be created");
        let double_write = device("doublewrite", 2 << 20);
        Devices { data: device("data", 1 << 20), double_write, log, page_size, protection }
    }

    pub(super) fn power_cut(&self, random: &mut Random) {
        for device in [&self.data, &self.double_write, &self.log] {
            device.power_cut(random);
        }
    }

    /// Recovers what is on the devices; makes an empty tree if there is none.
    pub(super) fn open(&self, frames: usize) -> Bed {
        let area: Arc<dyn Device> = self.double_write.clone();
        let store = in_place_store(self.data.clone(), Some(area), self.page_size, self.protection);
        let store = store.expect("the store opens");
        let log = Log::open(vec![self.log.clone()], log_options(), &mut |_| ()).expect("the log opens");
        let options = PoolOptions { frames, protection: self.protection, cleaning: PageCleaning::Ahead, batches: 4 };
        let opened = recovery::open(store, log, &options, &mut |_| Ok(()), &mut |_| ()).expect("the database recovers");
        let (pool, space) = (opened.pool, opened.space);
        if !pages_in_use(&space).contains(&ROOT) {
            assert_eq!(create(&pool, &space, OWNER), ROOT, "the first page given out");
        }
        let tree = Tree::new(pool.clone(), space.clone(), InsertRuns::default(), OWNER, ROOT);
        Bed { _cleaner: Arc::new(Cleaner::start(&pool)), pool, space, tree }
    }
}

/// A tree with all that it needs.
pub(super) struct Bed {
    pub(super) tree: Tree,
    pub(super) pool: BufferPool,
    pub(super) space: Space,
    _cleaner: Arc<Cleaner>,
}

impl Bed {
    /// An empty tree on devices without latency.
    pub(super) fn new(page_size: usize, frames: usize) -> Self {
        Devices::with_profile(page_size, 64 << 20, &MemoryProfile::default(), Protection::DoubleWrite).open(frames)
    }

    /// An empty tree of another table in the same pool.
    pub(super) fn other_tree(&self, owner: TableId) -> Tree {
        let root = create(&self.pool, &self.space, owner);
        Tree::new(self.pool.clone(), self.space.clone(), InsertRuns::default(), owner, root)
    }

    /// The same, with another of its trees.
    pub(super) fn with(&self, tree: Tree) -> Self {
        Bed { tree, pool: self.pool.clone(), space: self.space.clone(), _cleaner: Arc::clone(&self._cleaner) }
    }

    /// The pages that tables use.
    pub(super) fn used_pages(&self) -> BTreeSet<PageId> {
        pages_in_use(&self.space)
    }
}

fn create(pool: &BufferPool, space: &Space, owner: TableId) -> PageId {
    let create = space.supplied(|reservation| {
        let mut group = ChangeGroup::with(pool, Some(reservation));
        let root = Tree::create(space, owner, &mut group)?;
        group.append(0, 0).map(|_| root)
    });
    create.expect("there is room for a root")
}

fn pages_in_use(space: &Space) -> BTreeSet<PageId> {
    let mut pages = BTreeSet::new();
    space.for_each_allocated(&mut |page| _ = pages.insert(page)).expect("the space maps are sound");
    pages
}
