//! Space is given back by a store that grows, keeps scratch pages and overflows, with the power going at any request; and headers are
//! written that are reported as failed, which is as much in doubt as one that could not be blanked.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
};

use tantalum_device::{Device, Durability, MemoryDevice, MemoryProfile, Partition, PendingWrite};
use tantalum_log::Lsn;
use tantalum_rt::{Random, Simulation, sleep, spawn};

use super::{
    InPageStats, InPageStore,
    tests::{Committed, GEOMETRY, STORE, apply, blank, check_page, random_changes},
};
use crate::{
    Change, Error, ErrorKind, Horizon, Load, PackProgress, PageBatch, PageChanges, PageId, PageKind, PageStore, Result,
    Session, TableId, Watermarks, page::header, position,
};

const FIRST_UNITS: u64 = 16;
const UNIT_PAGES: u64 = 15;

fn go_on(_: PackProgress) -> Result<()> {
    Ok(())
}

/// As the engine does it.
fn compact(store: &InPageStore, pages: u64) -> Result<()> {
    store.gives_space_back()?;
    store.shrink(pages)?;
    store.pack(pages, &mut go_on)?;
    store.shrink(pages).map(drop)
}

fn counts(store: &InPageStore) -> InPageStats {
    store.stats().in_page.expect("it is such a store")
}

fn check(store: &InPageStore) {
    let mut found = Vec::new();
    store.check(&mut |what| found.push(what)).unwrap();
    assert_eq!(found, <[String; 0]>::default());
}

fn load(store: &InPageStore, id: u64) -> (Load, Vec<u8>) {
    let mut page = vec![0; GEOMETRY.page_bytes];
    (store.load(PageId(id), &mut page).unwrap(), page)
}

fn units(count: u64) -> Arc<MemoryDevice> {
    let profile = MemoryProfile { logical_block: 512, ..MemoryProfile::default() };
    MemoryDevice::with_profile("data", count * GEOMETRY.unit_bytes as u64, profile)
}

/// A database, as far as the store sees one: pages up to some number are in use.
struct Database {
    device: Arc<MemoryDevice>,
    random: Random,
    epoch: u64,
    past: Watermarks,
    used: u64,
    /// The pages in use, with the changes of all committed groups.
    pages: BTreeMap<u64, Vec<u8>>,
}

/// One session of it.
struct Live<'d> {
    database: &'d mut Database,
    store: InPageStore,
    committed: Arc<Committed>,
    at: Lsn,
    /// Groups that are stored and not committed.
    active: Vec<(Lsn, u64, Vec<u8>)>,
    visible: BTreeMap<u64, Vec<u8>>,
    lent: BTreeSet<u64>,
    /// Changes are to be stored again.
    is_behind: bool,
}

impl Database {
    fn new(device: Arc<MemoryDevice>, seed: u64) -> Self {
        let random = Random::with_seed(seed);
        Self { device, random, epoch: 0, past: Watermarks::default(), used: 60, pages: BTreeMap::new() }
    }

    /// Begins a session, and checks every page.
    fn open(&mut self, device: Arc<dyn Device>) -> Live<'_> {
        self.epoch += 1;
        let (committed, at) = (Arc::new(Committed::default()), position::start_of(self.epoch));
        let store = InPageStore::new(device, GEOMETRY, STORE, 50).unwrap();
        let horizon: Arc<dyn Horizon> = committed.clone();
        store.begin_session(Session { epoch: self.epoch, past: self.past.clone(), horizon }).unwrap();
        assert!(store.capacity_pages() >= self.used);
        check(&store);
        for id in 0..store.capacity_pages() {
            match self.pages.get(&id) {
                Some(page) => check_page(&store, id, Some(page)).unwrap(),
                None => {
                    let (found, _) = load(&store, id);
                    assert!(matches!(found, Load::Page | Load::NeverWritten), "page {id}, which is free: {found:?}");
                }
            }
        }
        let visible = self.pages.clone();
        Live {
            database: self,
            store,
            committed,
            at,
            active: Vec::new(),
            visible,
            lent: BTreeSet::new(),
            is_behind: false,
        }
    }
}

impl Live<'_> {
    /// Stores a group that changes a page, which begins anew what is there if the page was free.
    fn change(&mut self, id: u64) -> Result<()> {
        let at = position::next(self.at);
        let mut bytes = Vec::new();
        let mut page = match self.visible.get(&id) {
            Some(page) => page.clone(),
            None => {
                let mut page = match load(&self.store, id) {
                    (Load::Page, page) => page,
                    _ => blank(id),
                };
                let format = Change::Format { kind: PageKind::Leaf, level: 0, owner: TableId(3) };
                format.encode_into(&mut bytes);
                apply(&mut page, at, &bytes);
                page
            }
        };
        bytes.extend(random_changes(&mut page, at, &mut self.database.random));
        let mut changes = PageChanges::default();
        changes.push(at, &bytes);
        // Active whatever comes of it.
        self.at = at;
        let changes = [(PageId(id), changes)];
        // They may be stored again.
        let mut tries = 0;
        while let Err(error) = self.store.store_changes(&changes) {
            tries += 1;
            match error.kind() {
                ErrorKind::StoreFull if tries < 5 => self.store.grow()?,
                _ if error.is_io() && tries < 5 => self.change_others(id, error)?,
                _ => return Err(error),
            }
        }
        self.visible.insert(id, page.clone());
        self.active.push((at, id, page));
        if !self.is_behind && (self.active.len() > 40 || self.database.random.u32(0..8) == 0) {
            self.commit();
        }
        Ok(())
    }

    /// Stores changes of other units before those that failed are stored again, if they are: until then no later group is committed.
    fn change_others(&mut self, id: u64, error: Error) -> Result<()> {
        if self.is_behind {
            return Err(error);
        }
        self.is_behind = true;
        for _ in 0..self.database.random.u32(0..150) {
            let other = self.database.random.u64(0..self.database.used);
            if other / UNIT_PAGES != id / UNIT_PAGES {
                self.change(other)?;
            }
        }
        self.is_behind = false;
        if self.database.random.bool() { Ok(()) } else { Err(error) }
    }

    fn commit(&mut self) {
        for (at, id, page) in self.active.drain(..) {
            self.committed.0.store(at.get(), SeqCst);
            self.database.past.commit(at);
            self.database.pages.insert(id, page);
        }
    }

    fn grow(&mut self, by: u64) -> Result<()> {
        let wanted = self.database.used + by;
        while self.store.capacity_pages() < wanted {
            self.store.grow()?;
        }
        self.database.used = wanted;
        Ok(())
    }

    /// Lends a unit behind the pages in use, and writes into it.
    fn lend(&mut self) -> Result<()> {
        let first = self.database.used.next_multiple_of(UNIT_PAGES);
        if !self.store.take_scratch(PageId(first)) {
            return Ok(());
        }
        self.lent.insert(first);
        self.database.used = first + UNIT_PAGES;
        let mut batch = PageBatch::new(GEOMETRY.page_bytes);
        // The first lies where an overflow unit has its header.
        [first, first + 3].into_iter().for_each(|id| batch.push(PageId(id), &scratch_page(id)));
        self.store.store(&batch)
    }

    fn end_loan(&mut self) {
        if let Some(first) = self.lent.pop_last() {
            assert!(load(&self.store, first + 3).1 == scratch_page(first + 3));
            self.store.free_scratch(PageId(first));
        }
    }

    /// Frees the pages from some on, and gives back the room.
    fn compact(&mut self, kept: u64) -> Result<()> {
        self.commit();
        let kept = kept.max(self.lent.last().map_or(1, |last| last + UNIT_PAGES)).min(self.database.used);
        self.database.used = kept;
        self.database.pages.split_off(&kept);
        self.visible.split_off(&kept);
        compact(&self.store, kept)?;
        let (units, room) = (counts(&self.store).units + 2, self.store.capacity_pages());
        assert_eq!(self.database.device.capacity_bytes(), units * GEOMETRY.unit_bytes as u64);
        assert!(room >= kept);
        for id in room..room + 40 {
            assert!(matches!(load(&self.store, id).0, Load::Damaged(_)), "page {id} is beyond the end");
        }
        Ok(())
    }

    /// Whatever comes.
    fn live(&mut self) -> Result<()> {
        loop {
            match self.database.random.u32(0..100) {
                0..3 => {
                    let by = self.database.random.u64(1..200);
                    self.grow(by)?;
                }
                3..6 => {
                    let kept = self.database.random.u64(1..150);
                    self.compact(kept)?;
                }
                6..8 => self.lend()?,
                8..11 => self.end_loan(),
                11 => self.store.close(),
                _ => {
                    let id = self.database.random.u64(0..self.database.used);
                    if !self.lent.contains(&(id / UNIT_PAGES * UNIT_PAGES)) {
                        self.change(id)?;
                    }
                }
            }
        }
    }
}

fn scratch_page(id: u64) -> Vec<u8> {
    let mut page = blank(id);
    header::seal(&mut page);
    page
}

#[test]
fn what_was_loaded_and_dropped_is_given_back_and_does_not_come_back() {
    let device = units(FIRST_UNITS);
    let mut database = Database::new(device.clone(), 1);
    let mut live = database.open(device.clone());
    live.grow(1500).unwrap();
    for turn in 0..3 {
        (0..live.database.used).for_each(|id| live.change((id * 7 + turn) % 1560).unwrap());
    }
    let before = device.capacity_bytes();
    live.compact(20).unwrap();
    let after = device.capacity_bytes();
    assert!(after < before / 8, "{after} of {before} bytes");
    let stats = counts(&live.store);
    assert!(stats.units_forgotten > 80 && stats.units_moved > 0, "{stats:?}");
    live.grow(1500).unwrap();
    drop(live);
    // There are old versions of what was given back, but for their headers.
    let mut live = database.open(device.clone());
    for id in 60..live.store.capacity_pages() {
        assert_eq!(load(&live.store, id).0, Load::NeverWritten, "page {id}");
    }
    (20..1500).step_by(31).for_each(|id| live.change(id).unwrap());
    live.commit();
    drop(live);
    database.open(device);
}

#[test]
fn a_power_cut_at_any_request_leaves_what_is_in_use() {
    let mut total = InPageStats::default();
    for seed in 0..60 {
        let device = units(FIRST_UNITS);
        let mut database = Database::new(device.clone(), seed);
        for _ in 0..8 {
            let requests = database.random.u64(1..2500);
            let fused = Fused::new(&device);
            let mut live = database.open(fused.clone());
            fused.requests.store(requests, SeqCst);
            let error = live.live().unwrap_err();
            assert!(matches!(error.kind(), ErrorKind::PowerLost | ErrorKind::StoreFull), "seed {seed}: {error}");
            let stats = counts(&live.store);
            total.units_moved += stats.units_moved;
            total.units_forgotten += stats.units_forgotten;
            total.overflow_sectors_written += stats.overflow_sectors_written;
            drop(live);
            device.power_cut(&mut database.random);
        }
        database.open(device);
    }
    assert!(total.units_moved > 1000 && total.units_forgotten > 1000, "{total:?}");
    assert!(total.overflow_sectors_written > 1000, "{total:?}");
}

/// A compaction of a small database is repeated with one request more each time.
#[test]
fn a_power_cut_at_each_request_of_a_compaction_leaves_every_page() {
    let mut cuts = 0;
    for last in 0.. {
        let device = units(FIRST_UNITS);
        let mut database = Database::new(device.clone(), 7);
        let fused = Fused::new(&device);
        let mut live = database.open(fused.clone());
        live.grow(300).unwrap();
        (0..700).for_each(|n| live.change(n * 13 % 360).unwrap());
        fused.requests.store(last, SeqCst);
        let done = live.compact(40);
        let is_cut = fused.is_cut.load(SeqCst);
        assert!(is_cut || done.is_ok(), "{done:?}");
        drop(live);
        device.power_cut(&mut Random::with_seed(last));
        let mut live = database.open(device.clone());
        live.compact(40).unwrap();
        live.grow(200).unwrap();
        (0..300).for_each(|n| live.change(n * 7 % 240).unwrap());
        live.commit();
        drop(live);
        database.open(device);
        if !is_cut {
            break;
        }
        cuts += 1;
    }
    assert!(cuts > 30, "{cuts} requests");
}

#[test]
fn a_header_that_cannot_be_blanked_is_not_written_to_again() {
    let device = units(FIRST_UNITS);
    for last in 0..40 {
        let mut database = Database::new(device.clone(), last);
        device.discard(0, device.capacity_bytes()).unwrap();
        let fused = Fused::new(&device);
        let mut live = database.open(fused.clone());
        live.grow(100).unwrap();
        (0..600).for_each(|n| live.change(n * 13 % 160).unwrap());
        fused.requests.store(last, SeqCst);
        let failed = live.compact(40).is_err();
        // The device works again.
        fused.requests.store(u64::MAX, SeqCst);
        let more = 160u64.saturating_sub(live.store.capacity_pages()) + 120;
        live.grow(more).unwrap();
        (40..160).step_by(15).for_each(|id| live.change(id).unwrap());
        live.commit();
        check(&live.store);
        assert!(failed || last > 10);
        drop(live);
        device.power_cut(&mut Random::with_seed(last));
        database.open(device.clone());
    }
}

#[test]
fn a_device_of_a_fixed_size_keeps_it_and_all_its_pages() {
    let device: Arc<dyn Device> = Arc::new(Partition::split(units(40), 1).unwrap().remove(0));
    let mut database = Database::new(units(40), 3);
    let mut live = database.open(device.clone());
    live.database.used = live.store.capacity_pages();
    (0..400).for_each(|n| live.change(n % 400).unwrap());
    live.commit();
    let refused = compact(&live.store, 30).unwrap_err();
    assert_eq!((refused.kind(), device.capacity_bytes()), (ErrorKind::Unsupported, 40 * GEOMETRY.unit_bytes as u64));
    live.database.pages.split_off(&30);
    live.visible.split_off(&30);
    (0..400).for_each(|n| live.change(n % 400).unwrap());
    live.commit();
    drop(live);
    database.open(device);
}

#[test]
fn pages_are_read_while_they_move() {
    let run = || {
        let device = units(FIRST_UNITS);
        let mut database = Database::new(device.clone(), 5);
        let mut live = database.open(device.clone());
        live.grow(900).unwrap();
        (0..900).for_each(|n| live.change(899 - n).unwrap());
        live.commit();
        let expected: BTreeMap<_, _> =
            live.database.pages.iter().take(50).map(|(id, page)| (*id, page.clone())).collect();
        let store = Arc::new(live.store);
        let reader = spawn("reader", {
            let store = Arc::clone(&store);
            move || {
                for _ in 0..20 {
                    expected.iter().for_each(|(id, page)| check_page(&store, *id, Some(page)).unwrap());
                    sleep(std::time::Duration::from_micros(1));
                }
            }
        });
        store.shrink(50).unwrap();
        let moved = store.pack(50, &mut |_| {
            sleep(std::time::Duration::from_micros(3));
            Ok(())
        });
        assert!(moved.unwrap());
        store.shrink(50).unwrap();
        reader.join().unwrap();
        assert!(counts(&store).units_moved > 0);
    };
    Simulation::new(1).run(run).expect_finished();
}

/// The header of a version that is given up would count as much as that of the version itself, to which sectors are added.
#[test]
fn a_write_of_a_header_that_is_reported_as_failed_may_have_been_done() {
    // One attempt fails, some, and all that a merge makes.
    for seed in 0..40 {
        let (misreported, device) = (seed % 5 + 1, units(FIRST_UNITS));
        let mut database = Database::new(device.clone(), seed);
        for _ in 0..10 {
            let fused = Fused::new(&device);
            let mut live = database.open(fused.clone());
            live.grow(10).unwrap();
            for _ in 0..live.database.random.u64(1..400) {
                if live.database.random.u32(0..8) == 0 {
                    fused.misreported.store(misreported, SeqCst);
                    let requests = [u64::MAX, live.database.random.u64(0..200)][live.database.random.usize(0..2)];
                    fused.requests.store(requests, SeqCst);
                }
                let id = live.database.random.u64(0..live.database.used);
                if let Err(error) = live.change(id) {
                    assert!(error.is_io() || error.kind() == ErrorKind::PowerLost, "{error}");
                    break;
                }
            }
            check(&live.store);
            drop(live);
            device.power_cut(&mut database.random);
        }
        database.open(device);
    }
}

/// No attempt to write a version has succeeded, as far as is known; the next opening may find it, whatever is written meanwhile.
#[test]
fn what_a_version_in_doubt_needs_is_kept_until_there_is_another() {
    for last in (0..900).step_by(3) {
        let device = units(FIRST_UNITS);
        let mut database = Database::new(device.clone(), 1);
        let fused = Fused::new(&device);
        let mut live = database.open(fused.clone());
        live.grow(30).unwrap();
        for n in 0..200 {
            live.change(n % 90).unwrap();
            live.commit();
        }
        live.is_behind = true;
        fused.misreported.store(4, SeqCst);
        let failed = (0..).find_map(|n| live.change(n % UNIT_PAGES).err()).unwrap();
        assert!(failed.is_io() && fused.misreported.load(SeqCst) == 0, "{failed}");
        check(&live.store);
        fused.requests.store(last, SeqCst);
        let cut = (0..).find_map(|n| live.change(UNIT_PAGES + n % 75).err()).unwrap();
        assert!(matches!(cut.kind(), ErrorKind::PowerLost | ErrorKind::StoreFull), "{cut}");
        drop(live);
        device.power_cut(&mut Random::with_seed(last));
        database.open(device);
    }
}

/// A device that takes so many more requests that change it; then the power is gone.
#[derive(Debug)]
struct Fused {
    device: Arc<MemoryDevice>,
    requests: AtomicU64,
    is_cut: AtomicBool,
    /// So many durable writes are done and reported as failed.
    misreported: AtomicU64,
}

impl Fused {
    fn new(device: &Arc<MemoryDevice>) -> Arc<Self> {
        let (device, requests) = (Arc::clone(device), AtomicU64::new(u64::MAX));
        Arc::new(Self { device, requests, is_cut: AtomicBool::new(false), misreported: AtomicU64::new(0) })
    }

    fn request<T>(&self, request: impl FnOnce(&MemoryDevice) -> Result<T>) -> Result<T> {
        let left = self.requests.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1));
        if left.is_err() {
            self.is_cut.store(true, SeqCst);
            return Err(crate::Error::power_lost(self.name(), 0, 0));
        }
        request(&self.device)
    }
}

impl Device for Fused {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware, read, discard, release);

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<tantalum_device::AlignedBuffer>,
        range: std::ops::Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.request(|device| device.submit(offset, buffer, range, durability))
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.request(|device| device.write(offset, buffers, durability))?;
        let one_less = |left: u64| left.checked_sub(1);
        if durability == Durability::Durable && self.misreported.fetch_update(SeqCst, SeqCst, one_less).is_ok() {
            let cause = std::io::Error::other("the cable is loose");
            return Err(crate::Error::io(self.name(), "write", offset, 0, cause));
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.request(|device| device.flush())
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        self.request(|device| device.grow(new_capacity_bytes))
    }

    fn shrink(&self, new_capacity_bytes: u64) -> Result<()> {
        self.request(|device| device.shrink(new_capacity_bytes))
    }
}
