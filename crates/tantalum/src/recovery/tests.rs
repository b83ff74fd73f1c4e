//! Power cuts under load, again and again, during recovery too.
//!
//! Clients write rows that span pages. Each row is a set of three pages that bear the same version, named by an entry of
//! a directory page; a client changes its row in place, or moves it to fresh pages and frees the old ones. After each
//! power cut every row must be whole, no older than what was acknowledged, no newer than what was tried, and the space
//! map must name the pages of the rows and no others.

mod fresh_pages;

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_device::{Device, MemoryDevice, MemoryProfile, TearUnit};
use tantalum_log::{Log, LogOptions};
use tantalum_rt::{JoinHandle, Outcome, Random, Simulation, spawn};
use tantalum_store::{Change, DoubleWrite, PageId, PageKind, Protection, TableId, page::slots};

use super::{Checkpointer, Opened};
use crate::{
    buffer::{BufferPool, ChangeGroup, Cleaner, PageCleaning, PageWriteGuard, PoolOptions, Reservation},
    error::{Error, GroupResult, Result},
    space::Space,
    testing::in_place_store,
};

const PAGE: usize = 4096;
const SLOTS: u32 = 3;
const OWNER: TableId = TableId(1);
const DIRECTORY: PageId = PageId(3);
const ROWS: usize = 24;
const ROW_PAGES: usize = 3;

#[derive(Clone)]
struct Disks {
    data: Arc<MemoryDevice>,
    area: Arc<MemoryDevice>,
    log: Vec<Arc<MemoryDevice>>,
    protection: Protection,
}

impl Disks {
    fn new(seed: u64, protection: Protection) -> Self {
        let tears = match protection {
            Protection::Device => TearUnit::Atomic(PAGE as u32),
            _ => TearUnit::Sector512,
        };
        let profile = |seed| MemoryProfile {
            write_latency: Duration::from_micros(10)..Duration::from_micros(150),
            read_latency: Duration::from_micros(5)..Duration::from_micros(60),
            flush_latency: Duration::from_micros(20)..Duration::from_micros(200),
            tears,
            seed,
            ..MemoryProfile::default()
        };
        let device = |name: &str, bytes, ordinal| MemoryDevice::with_profile(name, bytes, profile(seed * 10 + ordinal));
        Self {
            data: device("data", 128 * PAGE as u64, 0),
            area: device("doublewrite", DoubleWrite::area_bytes(PAGE, SLOTS), 1),
            log: (0..2).map(|n| device(&format!("log-{n}"), 768 << 10, 2 + n)).collect(),
            protection,
        }
    }

    fn log_devices(&self) -> Vec<Arc<dyn Device>> {
        self.log.iter().map(|device| device.clone() as Arc<dyn Device>).collect()
    }

    fn open(&self) -> Result<Opened> {
        let store = in_place_store(self.data.clone(), Some(self.area.clone()), PAGE, self.protection)?;
        let log = Log::open(self.log_devices(), log_options(), &mut |_| {})?;
        super::open(
            store,
            log,
            &PoolOptions { frames: 20, protection: self.protection, cleaning: PageCleaning::Ahead, batches: 4 },
            &mut |_| Ok(()),
            &mut |_| {},
        )
    }

    fn power_cut(&self, random: &mut Random) {
        self.data.power_cut(random);
        self.area.power_cut(random);
        self.log.iter().for_each(|device| device.power_cut(random));
    }
}

fn log_options() -> LogOptions {
    LogOptions { section_bytes: Some(64 << 10), ..LogOptions::default() }
}

/// What each row's version may be. Not behind a lock: it outlives the simulations.
#[derive(Default)]
struct Model {
    acknowledged: [AtomicU64; ROWS],
    tried: [AtomicU64; ROWS],
}

#[derive(Clone)]
struct Rows {
    pool: BufferPool,
    space: Space,
}

impl Rows {
    fn create(&self) {
        let create = self.space.supplied(|reservation| {
            let mut group = ChangeGroup::with(&self.pool, Some(reservation));
            assert_eq!(self.space.allocate(&mut group, OWNER)?, DIRECTORY);
            let directory = group.add_new(DIRECTORY)?;
            group.change(directory, Change::Format { kind: PageKind::Leaf, level: 0, owner: OWNER })?;
            group.append(0, 0)
        });
        create.unwrap();
        for row in 0..ROWS {
            let create = self.space.supplied(|reservation| {
                let directory = self.pool.pin(DIRECTORY)?;
                let mut group = ChangeGroup::with(&self.pool, Some(reservation));
                let directory = group.add(directory.write());
                let entry = self.fresh_pages(&mut group, row, 0)?;
                group.change(directory, Change::InsertSlot { slot: row as u16, cell: &entry })?;
                group.append(0, 0)
            });
            create.unwrap();
        }
    }

    /// Plans new pages for a row; returns its directory entry.
    fn fresh_pages(&self, group: &mut ChangeGroup, row: usize, version: u64) -> GroupResult<Vec<u8>> {
        let ids = (0..ROW_PAGES).map(|_| self.space.allocate(group, OWNER)).collect::<GroupResult<Vec<_>>>()?;
        for id in &ids {
            let index = group.add_new(*id)?;
            group.change(index, Change::Format { kind: PageKind::Leaf, level: 0, owner: OWNER })?;
            group.change(index, Change::InsertSlot { slot: 0, cell: &row_cell(row, version, 1) })?;
        }
        Ok(ids.iter().flat_map(|id| id.0.to_le_bytes()).collect())
    }

    fn write_in_place(&self, row: usize, version: u64) -> GroupResult<tantalum_log::Lsn> {
        let pages = {
            let directory = self.pool.pin(DIRECTORY)?.read();
            entry_pages(slots::cell(&directory, row)?)
        };
        // Nothing is read under latches.
        let pages = pages.into_iter().map(|id| self.pool.pin(id)).collect::<Result<Vec<_>>>()?;
        let mut group = ChangeGroup::new(&self.pool);
        for page in pages {
            let index = group.add(page.write());
            // Changes that would do harm if redo made them twice.
            let count = slots::count(group.page(index)) as u16;
            if count < 6 {
                group.change(index, Change::InsertSlot { slot: count, cell: b"one more" })?;
            } else {
                group.change(index, Change::DeleteSlots { from: 2, to: count })?;
            }
            let count = slots::count(group.planned(index));
            group.change(index, Change::ReplaceSlot { slot: 0, cell: &row_cell(row, version, count) })?;
        }
        group.append(1, version)
    }

    fn move_row(&self, row: usize, version: u64, reservation: &Arc<Reservation>) -> GroupResult<tantalum_log::Lsn> {
        let directory = self.pool.pin(DIRECTORY)?;
        let mut group = ChangeGroup::with(&self.pool, Some(reservation));
        let directory = group.add(directory.write());
        for id in entry_pages(slots::cell(group.page(directory), row)?) {
            self.space.free(&mut group, id)?;
        }
        let entry = self.fresh_pages(&mut group, row, version)?;
        group.change(directory, Change::ReplaceSlot { slot: row as u16, cell: &entry })?;
        group.append(1, version)
    }

    /// Changes rows until the power goes. Each row has one client.
    fn client(&self, rows: Vec<usize>, model: &Model, mut random: Random, writes: u64) {
        for _ in 0..writes {
            let row = rows[random.usize(..rows.len())];
            let version = model.tried[row].fetch_add(1, Ordering::Relaxed) + 1;
            let moves = random.u8(..4) == 0;
            let end = self.space.supplied(|reservation| match moves {
                true => self.move_row(row, version, reservation),
                false => self.write_in_place(row, version),
            });
            let end = end.unwrap();
            if random.bool() {
                self.pool.log().flush(end).unwrap();
                model.acknowledged[row].store(version, Ordering::Relaxed);
            }
        }
    }

    /// Checks everything, and takes what there is for acknowledged: it was read after a recovery.
    fn check(&self, model: &Model) {
        let mut in_use = BTreeSet::from([DIRECTORY]);
        let directory = self.pool.pin(DIRECTORY).unwrap().read().to_vec();
        for row in 0..ROWS {
            let pages = entry_pages(slots::cell(&directory, row).unwrap());
            let versions: Vec<u64> = pages.iter().map(|id| self.version(*id, row)).collect();
            assert!(versions.iter().all(|version| *version == versions[0]), "row {row} is in parts: {versions:?}");
            let (acknowledged, tried) = (&model.acknowledged[row], &model.tried[row]);
            assert!(versions[0] >= acknowledged.load(Ordering::Relaxed), "row {row} lost an acknowledged write");
            assert!(versions[0] <= tried.load(Ordering::Relaxed), "row {row} is from nowhere");
            acknowledged.store(versions[0], Ordering::Relaxed);
            tried.store(versions[0], Ordering::Relaxed);
            in_use.extend(pages);
        }
        assert_eq!(in_use.len(), 1 + ROWS * ROW_PAGES, "no page is used twice");
        let mut allocated = BTreeSet::new();
        self.space.for_each_allocated(&mut |id| assert!(allocated.insert(id))).unwrap();
        assert_eq!(allocated, in_use, "the space map names the pages in use");
    }

    fn version(&self, id: PageId, row: usize) -> u64 {
        let page = self.pool.pin(id).unwrap().read();
        let cell = slots::cell(&page, 0).unwrap();
        let version = u64::from_le_bytes(cell[..8].try_into().unwrap());
        assert_eq!(cell, row_cell(row, version, slots::count(&page)));
        version
    }
}

/// The first cell of a page of a row, when the page has `slots` slots.
fn row_cell(row: usize, version: u64, slots: usize) -> Vec<u8> {
    let mut cell = version.to_le_bytes().to_vec();
    cell.push(slots as u8);
    cell.resize(40 + (version as usize * 97 + row * 31) % 900, version as u8);
    cell
}

fn entry_pages(entry: &[u8]) -> Vec<PageId> {
    entry.chunks_exact(8).map(|id| PageId(u64::from_le_bytes(id.try_into().unwrap()))).collect()
}

/// Lets the power go when the time has come, if it does.
fn cut_the_power(at: Option<Duration>) {
    if let Some(at) = at {
        spawn("power", move || {
            tantalum_rt::sleep(at);
            tantalum_rt::power_cut()
        });
    }
}

/// One life of the database: recovery, check, load, and at some time the power cut.
fn live(disks: &Disks, model: &Arc<Model>, seed: u64, cut_at: Option<Duration>) -> Outcome<()> {
    let (disks, model) = (disks.clone(), Arc::clone(model));
    Simulation::new(seed).time_limit(Duration::from_secs(60)).run(move || {
        cut_the_power(cut_at);
        let Opened { pool, space, .. } = disks.open().unwrap();
        let rows = Rows { pool, space };
        let checkpoint = seed.is_multiple_of(2).then(|| {
            let pool = rows.pool.clone();
            spawn("first checkpoint", move || pool.checkpoint().unwrap())
        });
        rows.check(&model);
        if cut_at.is_none() {
            return;
        }
        let _cleaner = Cleaner::start(&rows.pool);
        let _checkpointer = Checkpointer::start(&rows.pool, false, |_| {});
        let clients: Vec<_> = (0..3)
            .map(|client| {
                let (rows, model) = (rows.clone(), Arc::clone(&model));
                let mine = (0..ROWS).filter(|row| row % 3 == client).collect();
                let random = Random::with_seed(seed * 3 + client as u64);
                spawn(format!("client-{client}"), move || rows.client(mine, &model, random, 400))
            })
            .collect();
        let mut random = Random::with_seed(seed);
        while random.u8(..8) != 0 {
            tantalum_rt::sleep(Duration::from_micros(random.u64(100..8000)));
            rows.pool.checkpoint().unwrap();
        }
        clients.into_iter().for_each(|client| client.join().unwrap());
        checkpoint.map(JoinHandle::join_or_panic);
        // Nothing is closed: the end of the simulation is a power cut too.
    })
}

fn create(disks: &Disks) {
    Log::create(1, disks.log_devices(), log_options()).unwrap();
    let Opened { pool, space, .. } = disks.open().unwrap();
    Rows { pool: pool.clone(), space }.create();
    pool.checkpoint().unwrap();
}

fn search(protection: Protection, seeds: std::ops::Range<u64>) {
    let (mut cuts, mut ends) = (0, 0);
    for seed in seeds {
        let disks = Disks::new(seed, protection);
        create(&disks);
        let model = Arc::new(Model::default());
        let mut random = Random::with_seed(seed);
        for life in 0..5 {
            // Often so early that it hits recovery.
            let limit = if random.bool() { 3_000 } else { 60_000 };
            let cut_at = Duration::from_micros(random.u64(1..limit));
            match live(&disks, &model, seed * 1000 + life, Some(cut_at)) {
                Outcome::PowerCut { .. } => cuts += 1,
                Outcome::Finished(()) => ends += 1,
            }
            disks.power_cut(&mut random);
        }
        live(&disks, &model, seed * 1000 + 999, None).expect_finished();
    }
    assert!(cuts > ends, "most lives end with a power cut: {cuts} of {}", cuts + ends);
}

#[test]
fn power_cuts_with_a_double_write_area() {
    search(Protection::DoubleWrite, 0..25);
}

#[test]
fn power_cuts_with_page_images_in_the_log() {
    search(Protection::FullPageImages, 0..25);
}

#[test]
fn power_cuts_with_a_device_that_never_tears_pages() {
    search(Protection::Device, 0..15);
}

#[test]
fn redo_reports_what_it_does_and_does_it_once() {
    let disks = Disks::new(1, Protection::DoubleWrite);
    create(&disks);
    let Opened { pool, space, .. } = disks.open().unwrap();
    let rows = Rows { pool, space };
    let lsns: Vec<_> = (1..=10).map(|version| rows.write_in_place(0, version).unwrap()).collect();
    rows.pool.log().flush(lsns[9]).unwrap();
    drop(rows);
    let opened = disks.open().unwrap();
    assert_eq!((opened.redo.records, opened.redo.commits, opened.redo.last_commit), (10, 10, 10));
    assert_eq!(opened.pool.redo_counts(), (3, 0, 0), "no page was read");
    let rows = Rows { pool: opened.pool, space: opened.space };
    assert_eq!(rows.version(PageId(4), 0), 10);
    assert_eq!(rows.pool.redo_counts(), (2, 10, 0), "the others wait until they are read too");
    rows.pool.finish_redo().unwrap();
    assert_eq!(rows.pool.redo_counts(), (0, 30, 0));
    drop(rows);
    let again = disks.open().unwrap();
    assert_eq!(again.redo.records, 10, "a crash before the next checkpoint has all of it to do again");
    drop(Checkpointer::start(&again.pool, again.redo.has_applied(), |_| {}));
    drop(again);
    assert_eq!(disks.open().unwrap().redo.records, 0, "a checkpoint follows recovery");
}

#[test]
fn damage_that_the_log_cannot_mend_is_reported() {
    let disks = Disks::new(1, Protection::DoubleWrite);
    create(&disks);
    let Opened { pool, space, .. } = disks.open().unwrap();
    let rows = Rows { pool, space };
    let end = rows.write_in_place(0, 1).unwrap();
    rows.pool.log().flush(end).unwrap();
    drop(rows);
    disks.data.corrupt(5 * PAGE as u64 + 123, 1, |bytes| bytes[0] ^= 4);
    for slot in 0..u64::from(SLOTS) {
        disks.area.corrupt(slot * DoubleWrite::area_bytes(PAGE, 1), 1, |bytes| bytes[0] ^= 1);
    }
    let Opened { pool, .. } = disks.open().unwrap();
    let is_damage = |error: Error| error.to_string().contains("page 5 (at byte 20480) is damaged");
    assert!(is_damage(pool.pin(PageId(5)).unwrap_err()), "the page fails by name");
    assert!(pool.pin(PageId(4)).is_ok() && pool.pin(PageId(6)).is_ok(), "the others are there");
    let checkpoint = pool.log().checkpoint_lsn();
    assert!(is_damage(pool.checkpoint().unwrap_err()));
    assert_eq!((pool.log().checkpoint_lsn(), pool.redo_counts().0), (checkpoint, 1), "its changes stay in the log");
}

/// What is stored of a free page says nothing about the changes that it awaits.
#[test]
fn a_page_that_awaits_redo_is_not_lent_and_can_be_allocated() {
    let disks = Disks::new(1, Protection::DoubleWrite);
    create(&disks);
    let Opened { pool, space, .. } = disks.open().unwrap();
    let rows = Rows { pool, space };
    rows.write_in_place(0, 1).unwrap();
    let freed: Vec<PageId> = (4..4 + ROW_PAGES as u64).map(PageId).collect();
    let free = rows.space.supplied(|reservation| {
        let mut group = ChangeGroup::with(&rows.pool, Some(reservation));
        freed.iter().try_for_each(|page| rows.space.free(&mut group, *page))?;
        group.append(0, 0)
    });
    rows.pool.log().flush(free.unwrap()).unwrap();
    drop(rows);

    let Opened { pool, space, .. } = disks.open().unwrap();
    let lent = space.take_scratch(2 * ROWS).unwrap();
    assert!(!lent.is_empty() && freed.iter().all(|page| !lent.contains(page)), "{lent:?}");
    space.free_scratch(&lent);
    let rows = Rows { pool, space };
    rows.space.supplied(|reservation| rows.move_row(1, 3, reservation)).unwrap();
    let directory = rows.pool.pin(DIRECTORY).unwrap().read().to_vec();
    assert_eq!(entry_pages(slots::cell(&directory, 1).unwrap()), freed);
    assert_eq!(rows.pool.redo_counts().0, ROW_PAGES as u64, "they were not read");
    rows.pool.checkpoint().unwrap();
    assert_eq!(rows.pool.redo_counts().0, 0);
    freed.iter().for_each(|page| assert_eq!(rows.version(*page, 1), 3));
    drop(rows);
    let Opened { pool, space, .. } = disks.open().unwrap();
    let rows = Rows { pool, space };
    freed.iter().for_each(|page| assert_eq!(rows.version(*page, 1), 3));
}

#[test]
fn a_record_that_is_no_change_group_is_reported() {
    let disks = Disks::new(1, Protection::DoubleWrite);
    create(&disks);
    let Opened { pool, .. } = disks.open().unwrap();
    let end = pool.log().append(&[b"what is this"]).unwrap().end;
    pool.log().flush(end).unwrap();
    drop(pool);
    assert_eq!(disks.open().unwrap_err().kind(), crate::ErrorKind::Corrupt);
}

/// Latched pages that a checkpoint needs do not stop the pages that others need.
#[test]
fn a_checkpoint_waits_for_a_latched_page_without_holding_others_up() {
    Simulation::new(3)
        .time_limit(Duration::from_secs(5))
        .run(|| {
            let disks = Disks::new(1, Protection::DoubleWrite);
            create(&disks);
            let Opened { pool, space, .. } = disks.open().unwrap();
            let rows = Rows { pool: pool.clone(), space };
            rows.write_in_place(0, 1).unwrap();
            let page = pool.pin(PageId(4)).unwrap();
            let holder = spawn("holds a latch", move || {
                let held: PageWriteGuard = page.write();
                tantalum_rt::sleep(Duration::from_secs(1));
                drop(held);
            });
            tantalum_rt::yield_now();
            let checkpoint = spawn("checkpoint", move || pool.checkpoint().unwrap());
            tantalum_rt::sleep(Duration::from_millis(100));
            assert!(!checkpoint.is_finished());
            // More pages than there are frames, so something must be evicted.
            for row in 1..ROWS {
                rows.write_in_place(row, 1).unwrap();
            }
            assert!(!holder.is_finished(), "no task waited for it");
            checkpoint.join().unwrap();
        })
        .expect_finished();
}
