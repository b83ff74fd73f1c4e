//! The pool and change groups, one behaviour at a time. Crashes are in `recovery::tests`.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Range,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use tantalum_device::{Device, Fault, MemoryDevice};
use tantalum_log::{Log, LogOptions, Lsn};
use tantalum_rt::{Mutex, Random, Simulation, simulation::panic_at, spawn};
use tantalum_store::{
    Change, Load, PageBatch, PageId, PageKind, PageStore, Protection, StoreStats, TableId,
    page::{header, record::GroupRecord, slots},
};

use super::{BufferPool, ChangeGroup, Cleaner, PageCleaning, PoolOptions, Reservation};
use crate::{
    Error, Result, recovery,
    space::{Grower, Space},
    testing::in_place_store,
};

const PAGE: usize = 4096;
const OWNER: TableId = TableId(1);

struct Fixture {
    data: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    pool: BufferPool,
    space: Space,
}

fn fixture(frames: usize, protection: Protection) -> Fixture {
    let data = MemoryDevice::new("data", 64 * PAGE as u64);
    let log = MemoryDevice::new("log", 1 << 20);
    let devices: Vec<Arc<dyn Device>> = vec![log.clone()];
    Log::create(1, devices, LogOptions::default()).unwrap();
    reopen(data, log, frames, protection).unwrap()
}

fn reopen(data: Arc<MemoryDevice>, log: Arc<MemoryDevice>, frames: usize, protection: Protection) -> Result<Fixture> {
    let devices: Vec<Arc<dyn Device>> = vec![log.clone()];
    let recovered = Log::open(devices, LogOptions::default(), &mut |_| {})?;
    let store = in_place_store(data.clone(), None, PAGE, protection)?;
    let opened = recovery::open(
        store,
        recovered,
        &PoolOptions { frames, protection, cleaning: PageCleaning::Ahead, batches: 4 },
        &mut |_| Ok(()),
        &mut |_| {},
    )?;
    Ok(Fixture { data, log, pool: opened.pool, space: opened.space })
}

impl Fixture {
    /// A new leaf with one cell.
    fn leaf(&self, cell: &[u8]) -> PageId {
        self.try_leaf(cell).unwrap()
    }

    fn try_leaf(&self, cell: &[u8]) -> Result<PageId> {
        self.space.supplied(|reservation| {
            let mut group = ChangeGroup::with(&self.pool, Some(reservation));
            let id = self.space.allocate(&mut group, OWNER)?;
            let index = group.add_new(id)?;
            group.change(index, Change::Format { kind: PageKind::Leaf, level: 0, owner: OWNER })?;
            group.change(index, Change::InsertSlot { slot: 0, cell })?;
            group.append(0, 0)?;
            Ok(id)
        })
    }

    fn cell(&self, id: PageId) -> Vec<u8> {
        self.try_cell(id).unwrap()
    }

    fn try_cell(&self, id: PageId) -> Result<Vec<u8>> {
        Ok(slots::cell(&self.pool.pin(id)?.read(), 0).unwrap().to_vec())
    }

    fn replace(&self, id: PageId, cell: &[u8]) -> Result<()> {
        let mut group = ChangeGroup::new(&self.pool);
        let index = group.add(self.pool.pin(id)?.write());
        group.change(index, Change::ReplaceSlot { slot: 0, cell })?;
        group.append(0, 0).map(drop)
    }
}

#[test]
fn more_pages_than_frames() {
    let db = fixture(16, Protection::Device);
    let ids: Vec<_> = (0..200u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
    assert_eq!(ids[0], PageId(3), "the first page given out");
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(db.cell(*id), (n as u32).to_le_bytes());
    }
    let stats = db.pool.stats();
    assert!(stats.evictions > 180 && stats.misses > 180, "{stats:?}");
    let hits = stats.hits;
    db.cell(ids[199]);
    assert_eq!((db.pool.stats().hits, db.pool.stats().misses), (hits + 1, stats.misses));
}

#[test]
fn a_pinned_page_stays_and_a_pool_of_pinned_pages_says_so() {
    // In a simulation, so that the patience of the pool takes no time.
    Simulation::new(1)
        .run(|| {
            let db = fixture(16, Protection::Device);
            let ids: Vec<_> = (0..40u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
            let mut pins: Vec<_> = ids[..16].iter().map(|id| db.pool.pin(*id).unwrap()).collect();
            assert!(matches!(db.pool.pin(ids[20]), Err(Error::PoolExhausted { frames: 16 })));
            pins.pop();
            assert_eq!(db.cell(ids[20]), 20u32.to_le_bytes());
            for (n, pin) in pins.iter().enumerate() {
                assert_eq!(slots::cell(&pin.read(), 0).unwrap(), (n as u32).to_le_bytes());
            }
        })
        .expect_finished();
}

#[test]
fn a_group_that_is_dropped_or_refused_leaves_no_trace() {
    let db = fixture(16, Protection::Device);
    let id = db.leaf(b"before");
    db.pool.checkpoint().unwrap();
    let end = db.pool.log().end_lsn();
    let mut group = ChangeGroup::new(&db.pool);
    let index = group.add(db.pool.pin(id).unwrap().write());
    group.change(index, Change::ReplaceSlot { slot: 0, cell: b"after" }).unwrap();
    assert!(matches!(group.change(index, Change::DeleteSlots { from: 0, to: 2 }), Err(Error::Change { .. })));
    assert_eq!(slots::cell(group.page(index), 0).unwrap(), b"before");
    assert_eq!(slots::cell(group.planned(index), 0).unwrap(), b"after");
    let fresh = db.space.allocate(&mut group, OWNER).unwrap();
    drop(group);
    assert_eq!(db.cell(id), b"before");
    assert_eq!(db.pool.log().end_lsn(), end);
    assert_eq!(db.pool.stats().dirty_pages, 0);
    assert!(!db.space.is_allocated(fresh).unwrap());
    assert_eq!(db.leaf(b"other"), fresh, "the page is given out again");
}

/// Puts `cell` into both pages, in one group.
fn replace_both(db: &Fixture, ids: [PageId; 2], cell: &[u8]) -> Result<Lsn> {
    let mut group = ChangeGroup::new(&db.pool);
    for id in ids {
        let index = group.add(db.pool.pin(id)?.write());
        group.change(index, Change::ReplaceSlot { slot: 0, cell })?;
    }
    group.append(0, 0)
}

#[test]
fn a_page_newer_than_the_log_stops_the_pool_before_its_group_is_half_stored() {
    let db = fixture(16, Protection::Device);
    let ids = [db.leaf(b"before"), db.leaf(b"before")];
    db.pool.checkpoint().unwrap();
    let mut second = db.pool.pin(ids[1]).unwrap().write();
    header::set_lsn(second.bytes_mut(), Lsn::new(u64::MAX));
    drop(second);
    let outcome = catch_unwind(AssertUnwindSafe(|| replace_both(&db, ids, b"after")));
    assert!(outcome.is_err(), "a page is never newer than the log");
    assert_eq!(db.cell(ids[0]), b"after", "the first page has the change, and the second has not");
    let stopped = |result: Result<()>| {
        let error = result.unwrap_err();
        assert!(error.to_string().contains("a panic while a change group"), "{error}");
    };
    stopped(db.pool.check_poison());
    stopped(db.pool.flush(Lsn::ZERO));
    stopped(db.pool.checkpoint().map(drop));
    stopped(db.try_leaf(b"later").map(drop));
    stopped(db.pool.log().close().map_err(Error::from));
    let Fixture { data, log, .. } = db;
    let db = reopen(data, log, 16, Protection::Device).unwrap();
    assert_eq!(db.cell(ids[0]), db.cell(ids[1]), "what was half changed was not stored");
}

/// A panic at each point of a group in turn. What follows finds the group whole, or is refused, or finds none of it.
#[test]
fn a_panic_anywhere_in_a_group_leaves_it_whole_or_stops_the_pool() {
    for protection in [Protection::Device, Protection::FullPageImages] {
        let stops: Vec<bool> = (1..)
            .map_while(|point| {
                Simulation::new(point)
                    .run(move || {
                        let db = fixture(16, protection);
                        let ids = [db.leaf(b"before"), db.leaf(b"before")];
                        db.pool.checkpoint().unwrap();
                        if panic_at(&mut { point }, || replace_both(&db, ids, b"after")).is_some() {
                            return None;
                        }
                        let has_stopped = db.pool.check_poison().is_err();
                        assert_eq!(replace_both(&db, ids, b"later").is_err(), has_stopped);
                        assert_eq!(db.pool.checkpoint().is_err(), has_stopped);
                        let Fixture { data, log, .. } = db;
                        let db = reopen(data, log, 16, protection).unwrap();
                        assert_eq!(db.cell(ids[0]), db.cell(ids[1]));
                        Some(has_stopped)
                    })
                    .expect_finished()
            })
            .collect();
        assert!(stops.len() >= 4 && stops.iter().filter(|stops| **stops).count() >= 3, "{stops:?}");
    }
}

#[test]
fn a_full_log_refuses_a_group_whole_and_a_checkpoint_makes_room() {
    let db = fixture(16, Protection::Device);
    let id = db.leaf(&[0; 3000]);
    let mut refused = 0;
    for n in 0..2000u32 {
        let cell = [n as u8; 3000];
        while let Err(error) = db.replace(id, &cell) {
            let Error::LogFull { needed } = error else { panic!("{error}") };
            assert_ne!(db.cell(id), cell);
            refused += 1;
            db.pool.wait_for_log_space(needed).unwrap();
        }
        assert_eq!(db.cell(id), cell);
    }
    assert!(refused > 3, "the log was full {refused} times");
}

#[test]
fn several_allocations_and_frees_in_one_group_see_each_other() {
    let db = fixture(16, Protection::Device);
    let old = db.leaf(b"old");
    let many = db.space.supplied(|reservation| {
        let mut group = ChangeGroup::with(&db.pool, Some(reservation));
        db.space.free(&mut group, old)?;
        assert!(matches!(db.space.free(&mut group, old), Err(Error::Corrupt { .. })), "freed twice");
        // More than the file holds at first: it grows.
        let new = (0..300).map(|_| db.space.allocate(&mut group, OWNER)).collect::<Result<Vec<_>>>()?;
        assert!(new.is_sorted_by(|a, b| a < b));
        assert!(!new.contains(&old), "the group may hold the latch of a page that it frees");
        group.append(0, 0).map(|_| new)
    });
    let new = many.unwrap();
    let mut allocated = Vec::new();
    db.space.for_each_allocated(&mut |id| allocated.push(id)).unwrap();
    assert_eq!(allocated, new);
    assert!(db.space.is_allocated(PageId(2)).unwrap() && db.space.is_reserved(PageId(2)));
    assert!(!db.space.is_allocated(PageId(1 << 40)).unwrap());
    assert_eq!(db.leaf(b"new"), old, "the freed page is given out again");
}

#[test]
fn pages_of_a_second_extent_are_given_out_after_the_first() {
    let extent = 8 * (PAGE as u64 - header::HEADER_BYTES as u64);
    let data = MemoryDevice::new("data", (extent + 10) * PAGE as u64);
    let log = MemoryDevice::new("log", 16 << 20);
    let devices: Vec<Arc<dyn Device>> = vec![log.clone()];
    Log::create(1, devices, LogOptions::default()).unwrap();
    let db = reopen(data, log, 16, Protection::Device).unwrap();
    let mut pages = Vec::new();
    while pages.len() < extent as usize + 2 {
        let left = (extent as usize + 2 - pages.len()).min(5000);
        let some = db.space.supplied(|reservation| {
            let mut group = ChangeGroup::with(&db.pool, Some(reservation));
            let some = (0..left).map(|_| db.space.allocate(&mut group, OWNER)).collect::<Result<Vec<_>>>()?;
            group.append(0, 0).map(|_| some)
        });
        pages.extend(some.unwrap());
    }
    assert_eq!(pages.last(), Some(&PageId(extent + 5)));
    assert!(!pages.contains(&PageId(extent + 2)), "that is the second map");
    // Freeing in descending order only tries the earlier map.
    let mut group = ChangeGroup::new(&db.pool);
    db.space.free(&mut group, PageId(extent + 5)).unwrap();
    let held = db.pool.pin(PageId(2)).unwrap().write();
    assert!(matches!(db.space.free(&mut group, PageId(50)), Err(Error::Busy { page: PageId(2) })));
    drop(held);
    db.space.free(&mut group, PageId(50)).unwrap();
    group.append(0, 0).unwrap();
    assert!(!db.space.is_allocated(PageId(50)).unwrap());
    db.pool.checkpoint().unwrap();
    let Fixture { data, log, .. } = db;
    let db = reopen(data, log, 16, Protection::Device).unwrap();
    assert_eq!(db.leaf(b"again"), PageId(50));
}

/// Where the first free page is is not known after opening: the maps are looked at one after the other.
#[test]
fn a_page_is_found_beyond_more_full_maps_than_there_are_frames() {
    let body = PAGE - header::HEADER_BYTES;
    let (extent, full) = (8 * body as u64, 20);
    let run = move || {
        let data = MemoryDevice::new("data", (full * extent + 10) * PAGE as u64);
        let log = MemoryDevice::new("log", 1 << 20);
        let devices: Vec<Arc<dyn Device>> = vec![log.clone()];
        Log::create(1, devices, LogOptions::default()).unwrap();
        let db = reopen(data, log, 16, Protection::Device).unwrap();
        for map in (0..full).map(|number| PageId(number * extent + 2)) {
            let mut group = ChangeGroup::new(&db.pool);
            let index = group.add(db.pool.pin_or_blank(map).unwrap().write());
            let format = Change::Format { kind: PageKind::SpaceMap, level: 0, owner: TableId(0) };
            group.change(index, format).unwrap();
            group.change(index, Change::WriteBytes { offset: 0, bytes: &vec![0xff; body] }).unwrap();
            group.append(0, 0).unwrap();
        }
        assert_eq!(db.leaf(b"found"), PageId(full * extent));
    };
    Simulation::new(1).run(run).expect_finished();
}

#[test]
fn a_full_disk_leaves_everything_as_it_was() {
    let db = fixture(16, Protection::Device);
    db.data.inject(Fault::NoSpaceOnGrow);
    let mut given = 0;
    let refused: Result<()> = db.space.supplied(|reservation| {
        let mut group = ChangeGroup::with(&db.pool, Some(reservation));
        given = 0;
        loop {
            db.space.allocate(&mut group, OWNER)?;
            given += 1;
        }
    });
    assert!(matches!(refused, Err(Error::DiskFull { .. })), "{refused:?}");
    assert_eq!(given, 64 - 3);
    db.leaf(b"there is room for one");
}

#[test]
fn pages_that_cannot_be_stored_stay_and_are_stored_later() {
    let db = fixture(16, Protection::Device);
    let id = db.leaf(b"kept");
    db.data.inject(Fault::FailWrites { after: 0 });
    assert!(matches!(db.pool.checkpoint(), Err(Error::Device(_))));
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

#[test]
fn a_failed_read_is_reported_and_the_next_one_tries_again() {
    let db = fixture(16, Protection::Device);
    let ids: Vec<_> = (0..60u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
    db.data.inject(Fault::FailReads { after: 0 });
    assert!(matches!(db.pool.pin(ids[0]), Err(Error::Device(_))));
    db.data.clear_faults();
    assert_eq!(db.cell(ids[0]), 0u32.to_le_bytes());
}

#[test]
fn damage_names_file_page_and_offset() {
    let db = fixture(16, Protection::Device);
    let id = db.leaf(b"x");
    db.pool.checkpoint().unwrap();
    let Fixture { data, log, .. } = db;
    data.corrupt(id.0 * PAGE as u64 + 2000, 1, |bytes| bytes[0] ^= 1);
    let db = reopen(data, log, 16, Protection::Device).unwrap();
    let error = db.pool.pin(id).unwrap_err();
    assert!(matches!(&error, Error::Corrupt { file, page, offset: 12288, .. } if file == "data" && *page == id));
    assert!(error.to_string().contains("checksum") && error.to_string().contains("backup"), "{error}");
    assert!(matches!(db.pool.pin(PageId(50)), Err(Error::Corrupt { what, .. }) if what.contains("never written")));
    assert_eq!(header::kind(&db.pool.pin_or_blank(PageId(50)).unwrap().read()).unwrap(), PageKind::Free);
}

#[test]
fn images_go_to_the_log_once_per_page_and_checkpoint() {
    let db = fixture(16, Protection::FullPageImages);
    let id = db.leaf(b"0");
    let before = db.pool.stats().page_images;
    db.pool.checkpoint().unwrap();
    for cell in [b"1", b"2", b"3"] {
        db.replace(id, cell).unwrap();
    }
    assert_eq!(db.pool.stats().page_images, before + 1);
    db.pool.checkpoint().unwrap();
    db.replace(id, b"4").unwrap();
    assert_eq!(db.pool.stats().page_images, before + 2);
    // With an image in the log, a torn page is no loss.
    db.pool.log().flush(db.pool.log().end_lsn()).unwrap();
    let Fixture { data, log, .. } = db;
    data.corrupt(id.0 * PAGE as u64 + 1000, 500, |bytes| bytes.fill(0xee));
    assert_eq!(reopen(data, log, 16, Protection::FullPageImages).unwrap().cell(id), b"4");
}

/// However a checkpoint and the changes of pages interleave, redo from the checkpoint finds an image of each page first.
#[test]
fn no_checkpoint_slips_between_an_image_and_its_change() {
    for seed in 0..60 {
        Simulation::new(seed)
            .run(move || {
                let db = Arc::new(fixture(16, Protection::FullPageImages));
                let ids: Vec<_> = (0..3).map(|_| db.leaf(&0u64.to_le_bytes())).collect();
                let clients: Vec<_> = ids
                    .into_iter()
                    .map(|id| {
                        let db = Arc::clone(&db);
                        spawn("client", move || (0..12).for_each(|_| increment(&db, id)))
                    })
                    .collect();
                for _ in 0..6 {
                    db.pool.checkpoint().unwrap();
                    assert_log_begins_with_images(&db);
                }
                clients.into_iter().for_each(|client| client.join().unwrap());
                assert_log_begins_with_images(&db);
            })
            .expect_finished();
    }
}

fn assert_log_begins_with_images(db: &Fixture) {
    db.pool.log().flush(db.pool.log().end_lsn()).unwrap();
    let mut log = Log::open(vec![db.log.fork()], LogOptions::default(), &mut |_| {}).unwrap();
    let mut seen = BTreeSet::new();
    while let Some(record) = log.next_record().unwrap() {
        for (id, mut changes) in GroupRecord::decode(&record.bytes).unwrap().pages() {
            let rebuilds = changes.next().unwrap().rebuilds();
            assert!(
                !seen.insert(id) || rebuilds,
                "the first change of page {id} at LSN {} needs an image",
                record.start
            );
        }
    }
}

#[test]
fn a_page_from_the_future_is_not_believed() {
    let db = fixture(16, Protection::Device);
    let id = db.leaf(b"x");
    db.pool.checkpoint().unwrap();
    let Fixture { data, .. } = db;
    let log = MemoryDevice::new("another log", 1 << 20);
    Log::create(1, vec![log.clone()], LogOptions::default()).unwrap();
    let db = reopen(data, log, 16, Protection::Device).unwrap();
    assert!(matches!(db.pool.pin(id), Err(Error::Corrupt { what, .. }) if what.contains("beyond the end of the log")));
}

#[test]
fn many_tasks_on_real_threads_and_a_small_pool() {
    let db = Arc::new(fixture(24, Protection::Device));
    let cleaner = Cleaner::start(&db.pool);
    let checkpointer = recovery::Checkpointer::start(&db.pool, &recovery::RecoveryStats::default(), |_| {});
    let ids: Vec<_> = (0..100).map(|_| db.leaf(&0u64.to_le_bytes())).collect();
    let rounds = 600;
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (db, ids) = (Arc::clone(&db), ids.clone());
            spawn(format!("client-{task}"), move || {
                let mut random = tantalum_rt::Random::with_seed(task);
                for _ in 0..rounds {
                    increment(&db, ids[random.usize(..ids.len())]);
                    db.cell(ids[random.usize(..ids.len())]);
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
    drop((cleaner, checkpointer));
    let sum: u64 = ids.iter().map(|id| u64::from_le_bytes(db.cell(*id).try_into().unwrap())).sum();
    assert_eq!(sum, 4 * rounds);
}

/// What failed because no page could be stored to make room is tried again.
fn retry<T>(mut attempt: impl FnMut() -> Result<T>) -> T {
    loop {
        match attempt() {
            Ok(done) => return done,
            Err(Error::Device(tantalum_device::Error::Unsupported { .. })) => {}
            Err(error) => panic!("{error}"),
        }
    }
}

fn increment(db: &Fixture, id: PageId) {
    loop {
        let mut group = ChangeGroup::new(&db.pool);
        let index = group.add(retry(|| db.pool.pin(id)).write());
        let old = slots::cell(group.page(index), 0).unwrap().try_into().unwrap();
        let cell = (u64::from_le_bytes(old) + 1).to_le_bytes();
        group.change(index, Change::ReplaceSlot { slot: 0, cell: &cell }).unwrap();
        match group.append(0, 0) {
            Ok(_) => return,
            Err(Error::LogFull { needed }) => drop(retry(|| db.pool.wait_for_log_space(needed))),
            Err(error) => panic!("{error}"),
        }
    }
}

/// So long a store takes to grow.
const GROWTH: Duration = Duration::from_millis(500);

/// A store that takes its time, and sees to it that no page is in two batches at once nor older than when it was last stored.
#[derive(Debug)]
struct Watched {
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
    fn new(seed: u64, pages: u64, takes: Range<u64>, fails_one_in: u64) -> Arc<Self> {
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

    fn open(self: &Arc<Self>, frames: usize, batches: usize) -> Arc<Fixture> {
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
            true => Err(tantalum_device::Error::Unsupported { device: "data".into(), operation: "write" }.into()),
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

/// Tasks that find no free frame at the same time share batches instead of each storing one of its own.
#[test]
fn those_who_wait_share_what_is_under_way() {
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
fn is_free(db: &Fixture, id: PageId) -> bool {
    db.pool.pin(id).unwrap().try_write().is_some()
}

#[test]
fn a_page_that_waits_for_a_turn_to_be_stored_is_not_latched() {
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
fn a_group_that_lets_the_store_grow_has_nothing_latched_meanwhile() {
    Simulation::new(1)
        .run(|| {
            let db = Watched::new(1, 64, 10..11, 0).open(64, 2);
            let parent = db.leaf(b"parent");
            while db.pool.store().capacity_pages() - 4 > db.leaf(b"more").0 {}
            let grows = spawn("grows", {
                let db = Arc::clone(&db);
                move || {
                    for _ in 0..8 {
                        let allocate = db.space.supplied(|reservation| {
                            let page = db.pool.pin(parent)?;
                            let mut group = ChangeGroup::with(&db.pool, Some(reservation));
                            let parent = group.add(page.write());
                            let fresh = db.space.allocate(&mut group, OWNER)?;
                            let index = group.add_new(fresh)?;
                            group.change(index, Change::Format { kind: PageKind::Leaf, level: 0, owner: OWNER })?;
                            group.change(parent, Change::ReplaceSlot { slot: 0, cell: b"PARENT" })?;
                            group.append(0, 0)
                        });
                        allocate.unwrap();
                    }
                    tantalum_rt::now()
                }
            });
            for _ in 0..5 {
                tantalum_rt::sleep(Duration::from_millis(80));
                assert!(
                    !grows.is_finished() && is_free(&db, parent) && is_free(&db, PageId(2)),
                    "the parent and the map"
                );
            }
            assert!(grows.join().unwrap().as_nanos() >= GROWTH.as_nanos() as u64);
        })
        .expect_finished();
}

#[test]
fn the_store_grows_before_its_last_page_is_taken() {
    Simulation::new(1)
        .run(|| {
            let db = Watched::new(1, 256, 10..11, 0).open(64, 2);
            let before = db.pool.store().capacity_pages();
            let _grower = Grower::start(&db.space);
            while db.leaf(b"more").0 + 40 < before {}
            assert_eq!(db.pool.store().capacity_pages(), before, "no task needs more yet");
            (0..10).for_each(|_| _ = db.leaf(b"more"));
            assert_eq!(db.pool.store().capacity_pages(), before, "it grows meanwhile");
            tantalum_rt::sleep(2 * GROWTH);
            assert!(db.pool.store().capacity_pages() > before);
        })
        .expect_finished();
}

#[test]
fn fresh_pages_wait_for_frames_while_nothing_is_latched() {
    Simulation::new(1)
        .run(|| {
            let db = Watched::new(1, 1024, 50_000..50_001, 0).open(16, 1);
            let parent = db.leaf(b"parent");
            let tasks: Vec<_> = (0..8)
                .map(|_| {
                    let db = Arc::clone(&db);
                    spawn("allocates", move || (0..8).for_each(|_| _ = db.leaf(b"more")))
                })
                .collect();
            // Every batch takes long, and every frame must be waited for; a waiting task holds nothing, or the pool would panic.
            let mut free = 0;
            while tasks.iter().any(|task| !task.is_finished()) {
                tantalum_rt::sleep(Duration::from_millis(7));
                free += usize::from(db.pool.pin_in_memory(PageId(2)).is_none_or(|map| map.try_write().is_some()));
            }
            assert!(free > 10, "the space map was free {free} times");
            assert_eq!(db.cell(parent), b"parent");
            tasks.into_iter().for_each(|task| task.join().unwrap());
        })
        .expect_finished();
}

#[test]
#[cfg(debug_assertions)]
#[should_panic(expected = "the task waits for a frame while it holds the latch of a leaf")]
fn who_reads_a_page_under_a_latch_is_found_out() {
    let db = fixture(16, Protection::Device);
    let ids: Vec<_> = (0..40u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
    let _latched = db.pool.pin(ids[39]).unwrap().read();
    let _cells: Vec<_> = ids.iter().map(|id| db.pool.pin(*id)).collect();
}
