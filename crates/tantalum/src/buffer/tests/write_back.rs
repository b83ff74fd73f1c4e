//! Batches of pages on their way to the store, and the tasks that wait for them.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tantalum_device::{Fault, MemoryDevice};
use tantalum_log::{Log, LogOptions, Lsn};
use tantalum_rt::{Mutex, Random, Simulation, spawn};
use tantalum_store::{Load, PageBatch, PageId, PageStore, Protection, StoreStats, page::header};

use super::{
    super::{Cleaner, PageCleaning, PoolOptions, Reservation},
    Fixture, PAGE, fixture, increment, reopen, retry,
};
use crate::{Error, recovery, testing::in_place_store};

/// How long a [`Watched`] store takes to grow.
pub(super) const GROWTH: Duration = Duration::from_millis(500);

/// A slow store, which asserts that no page is in two batches at once, or older than when it was last stored.
#[derive(Debug)]
pub(super) struct Watched {
    store: Arc<dyn PageStore>,
    /// Of each page that was stored: its LSN then, and whether that is under way.
    pages: Mutex<BTreeMap<PageId, (Lsn, bool)>>,
    under_way: AtomicUsize,
    most_under_way: AtomicUsize,
    batches: AtomicUsize,
    takes: Range<u64>,
    /// One batch in so many fails; 0 for none.
    fails_one_in: u64,
    random: Mutex<Random>,
}

impl Watched {
    pub fn new(seed: u64, pages: u64, takes: Range<u64>, fails_one_in: u64) -> Arc<Self> {
        let data = MemoryDevice::new("data", pages * PAGE as u64);
        Arc::new(Self {
            store: in_place_store(data, None, PAGE, Protection::Device).unwrap(),
            pages: Mutex::default(),
            under_way: AtomicUsize::new(0),
            most_under_way: AtomicUsize::new(0),
            batches: AtomicUsize::new(0),
            takes,
            fails_one_in,
            random: Mutex::new(Random::with_seed(seed)),
        })
    }

    pub fn open(self: &Arc<Self>, frames: usize, batches: usize) -> Arc<Fixture> {
        let (data, log) = (MemoryDevice::new("unused", PAGE as u64), MemoryDevice::new("log", 4 << 20));
        Log::create(1, vec![log.clone()], LogOptions::default()).unwrap();
        let recovered = Log::open(vec![log.clone()], LogOptions::default(), &mut |_| {}).unwrap();
        let options = PoolOptions { frames, protection: Protection::Device, cleaning: PageCleaning::Ahead, batches };
        let opened = recovery::open(self.clone(), recovered, &options, &mut |_| Ok(()), &mut |_| {}).unwrap();
        Arc::new(Fixture { data, log, pool: opened.pool, space: opened.space })
    }
}

impl PageStore for Watched {
    fn name(&self) -> &str {
        self.store.name()
    }
    fn page_size(&self) -> usize {
        PAGE
    }
    fn capacity_pages(&self) -> u64 {
        self.store.capacity_pages()
    }
    fn load(&self, id: PageId, page: &mut [u8]) -> tantalum_store::Result<Load> {
        assert!(self.pages.lock().get(&id).is_none_or(|(_, is_under_way)| !is_under_way), "{id} is read while written");
        self.store.load(id, page)
    }
    fn store(&self, batch: &PageBatch) -> tantalum_store::Result<()> {
        let pages = || batch.ids().iter().zip(batch.bytes().chunks(PAGE));
        for (id, page) in pages() {
            let before = self.pages.lock().insert(*id, (header::lsn(page), true));
            if let Some((lsn, is_under_way)) = before {
                assert!(!is_under_way && lsn <= header::lsn(page), "page {id} in two batches, or older than before");
            }
        }
        let now = self.under_way.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_under_way.fetch_max(now, Ordering::SeqCst);
        self.batches.fetch_add(1, Ordering::SeqCst);
        let (takes, fails) = {
            let mut random = self.random.lock();
            (random.u64(self.takes.clone()), self.fails_one_in > 0 && random.u64(0..self.fails_one_in) == 0)
        };
        tantalum_rt::sleep(Duration::from_micros(takes));
        let result = match fails {
            true => Err(Error::unsupported("data", "write")),
            false => self.store.store(batch),
        };
        pages().for_each(|(id, page)| _ = self.pages.lock().insert(*id, (header::lsn(page), false)));
        self.under_way.fetch_sub(1, Ordering::SeqCst);
        result
    }
    fn grow(&self) -> tantalum_store::Result<()> {
        tantalum_rt::sleep(GROWTH);
        self.store.grow()
    }
    fn recover(&self) -> tantalum_store::Result<u64> {
        self.store.recover()
    }
    fn stats(&self) -> StoreStats {
        self.store.stats()
    }
}

#[test]
fn pages_that_cannot_be_stored_stay_and_are_stored_later() {
    let db = fixture(16, Protection::Device);
    let id = db.leaf(b"kept");
    db.data.inject(Fault::FailWrites { after: 0 });
    assert!(db.pool.checkpoint().unwrap_err().is_io());
    // The leaf and its map, each perhaps by a writer of its own.
    assert!((1..=2).contains(&db.pool.stats().failed_write_backs));
    assert_eq!(db.cell(id), b"kept");
    db.replace(id, b"changed").unwrap();
    db.data.clear_faults();
    let start = db.pool.checkpoint().unwrap();
    assert_eq!(db.pool.log().checkpoint_lsn(), start);
    assert_eq!(db.pool.stats().dirty_pages, 0);
    let Fixture { data, log, .. } = db;
    assert_eq!(reopen(data, log, 16, Protection::Device).unwrap().cell(id), b"changed");
}

/// Clients, cleaners and checkpoints store the same pages again and again.
#[test]
fn no_page_is_in_two_batches_at_a_time() {
    let (mut most, mut failed) = (0, 0);
    for seed in 0..60 {
        let fails_one_in = if seed % 3 == 0 { 6 } else { 0 };
        let (under_way, failures) = Simulation::new(seed)
            .run(move || {
                let store = Watched::new(seed, 64, 10..3000, fails_one_in);
                let db = store.open(24, 4);
                let ids: Vec<_> = (0..40).map(|_| retry(|| db.try_leaf(&0u64.to_le_bytes()))).collect();
                let cleaner = (seed % 2 == 0).then(|| Cleaner::start(&db.pool));
                let clients: Vec<_> = (0..5)
                    .map(|client| {
                        let (db, ids) = (Arc::clone(&db), ids.clone());
                        let mut random = Random::with_seed(seed * 10 + client);
                        spawn("client", move || (0..40).for_each(|_| increment(&db, ids[random.usize(..ids.len())])))
                    })
                    .collect();
                let checkpoints = spawn("checkpoints", {
                    let db = Arc::clone(&db);
                    move || (0..6).for_each(|_| _ = db.pool.checkpoint())
                });
                clients.into_iter().for_each(|client| client.join().unwrap());
                checkpoints.join().unwrap();
                drop(cleaner);
                while db.pool.checkpoint().is_err() {}
                assert_eq!(db.pool.stats().dirty_pages, 0);
                let value = |id: &PageId| u64::from_le_bytes(retry(|| db.try_cell(*id)).try_into().unwrap());
                assert_eq!(ids.iter().map(value).sum::<u64>(), 5 * 40);
                (store.most_under_way.load(Ordering::SeqCst), db.pool.stats().failed_write_backs)
            })
            .expect_finished();
        most = most.max(under_way);
        failed += failures;
    }
    assert_eq!(most, 4, "so many batches are allowed");
    assert!(failed > 10, "{failed} batches failed");
}

#[test]
fn tasks_that_find_no_free_frame_share_the_batches_under_way() {
    Simulation::new(1)
        .run(|| {
            let store = Watched::new(1, 256, 10_000..10_001, 0);
            let db = store.open(64, 2);
            let _pages: Vec<_> = (0..64u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
            let (before, started) = (store.batches.load(Ordering::SeqCst), tantalum_rt::now());
            let clients: Vec<_> = (0..32u64)
                .map(|n| {
                    let db = Arc::clone(&db);
                    spawn("client", move || Reservation::new(&db.pool).get_frames(n as usize / 32 + 1).unwrap())
                })
                .collect();
            clients.into_iter().for_each(|client| client.join().unwrap());
            // 32 frames, 8 from each batch, two at a time.
            let (batches, took) = (store.batches.load(Ordering::SeqCst) - before, started.elapsed());
            assert!(batches <= 6 && took < Duration::from_millis(35), "{batches} batches in {took:?}");
        })
        .expect_finished();
}

/// Whether the page can be latched for writing at once.
pub(super) fn is_free(db: &Fixture, id: PageId) -> bool {
    db.pool.pin(id).unwrap().try_write().is_some()
}

#[test]
fn a_page_that_waits_for_a_write_permit_is_not_latched() {
    Simulation::new(1)
        .run(|| {
            let db = Watched::new(1, 256, 1000..1001, 0).open(64, 1);
            let id = db.leaf(b"dirty");
            // By another task: one that has a permit waits for no latch.
            let others = spawn("stores others", {
                let db = Arc::clone(&db);
                move || {
                    let permit = db.pool.shared.free_list.write_permit();
                    tantalum_rt::sleep(Duration::from_millis(5));
                    drop(permit);
                }
            });
            tantalum_rt::yield_now();
            let stored = spawn("stores", {
                let db = Arc::clone(&db);
                move || db.pool.shared.write_page_back(id, db.pool.shared.table.find(id).unwrap()).unwrap()
            });
            tantalum_rt::sleep(Duration::from_millis(1));
            assert!(!stored.is_finished() && is_free(&db, id));
            db.replace(id, b"changed").unwrap();
            others.join().unwrap();
            stored.join().unwrap();
            assert_eq!(db.cell(id), b"changed");
            assert!(db.pool.stats().dirty_pages > 0, "it was changed since it was copied");
        })
        .expect_finished();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the task waits for a frame while it holds the latch of a leaf")]
fn a_task_that_waits_for_a_frame_under_a_latch_panics() {
    let db = fixture(16, Protection::Device);
    let ids: Vec<_> = (0..40u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
    let _latched = db.pool.pin(ids[39]).unwrap().read();
    let _cells: Vec<_> = ids.iter().map(|id| db.pool.pin(*id)).collect();
}
