//! The in-page logging store with the power going at the worst time: inside sector writes, merges, overflow and opening.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_device::{Device, MemoryDevice, MemoryLimit, MemoryProfile, Overlay};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_log::Lsn;
use tantalum_rt::{Random, Simulation};

use super::{Geometry, InPageStats, InPageStore};
use crate::{
    Change, ErrorKind, Horizon, Load, PageChanges, PageId, PageKind, PageStore, Result, Session, TableId, Watermarks,
    page::{change, header, slots},
    position,
};

pub(super) const GEOMETRY: Geometry =
    Geometry { page_bytes: 8192, unit_bytes: 128 << 10, region_bytes: 8192, sector_bytes: 512 };
pub(super) const STORE: u64 = 11;
/// Two of the superblock, eight in reserve, six for pages.
const UNITS: u64 = 16;
const PAGES: u64 = 6 * 15;

fn device(profile: &str) -> Arc<EmulatedDevice> {
    let profile = Profile::named(profile).expect("it is built in").with_capacity(UNITS * GEOMETRY.unit_bytes as u64);
    EmulatedDevice::new("flash", profile.build().expect("it is possible"))
}

/// How far the test says that its groups are committed.
#[derive(Debug, Default)]
pub(super) struct Committed(pub(super) AtomicU64);

impl Horizon for Committed {
    fn committed_through(&self) -> Lsn {
        Lsn::new(self.0.load(Ordering::SeqCst))
    }
}

/// What a group does: its position, and each page's changes.
type Group = (Lsn, Vec<(u64, Vec<u8>)>);

/// What must be in the store.
#[derive(Default)]
struct Model {
    /// Pages with the changes of all committed groups of past sessions.
    base: BTreeMap<u64, Vec<u8>>,
    past: Watermarks,
    epoch: u64,
}

impl Model {
    /// The power has failed: of the session's groups, those up to `committed` remain.
    fn crash(&mut self, groups: Vec<Group>, committed: Lsn) {
        for (position, pages) in groups.into_iter().filter(|(position, _)| *position <= committed) {
            self.past.commit(position);
            for (id, changes) in pages {
                apply(self.base.entry(id).or_insert_with(|| blank(id)), position, &changes);
            }
        }
    }
}

pub(super) fn blank(id: u64) -> Vec<u8> {
    let mut page = vec![0; GEOMETRY.page_bytes];
    header::clear(&mut page, PageId(id));
    page
}

pub(super) fn apply(page: &mut [u8], position: Lsn, mut changes: &[u8]) {
    while !changes.is_empty() {
        change::apply(page, &Change::decode(&mut changes).unwrap()).unwrap();
    }
    header::set_lsn(page, position);
}

/// Changes that mean nothing without those before: they name slots.
pub(super) fn random_changes(page: &mut [u8], position: Lsn, dice: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut add = |page: &mut [u8], change: Change<'_>| {
        change::apply(page, &change).unwrap();
        change.encode_into(&mut bytes);
    };
    let is_large = dice.u32(0..6) == 0;
    if header::kind(page).unwrap() == PageKind::Free || slots::free_bytes(page) < 2500 {
        add(page, Change::Format { kind: PageKind::Leaf, level: 0, owner: TableId(3) });
    }
    for _ in 0..dice.u32(1..4) {
        let cell: Vec<u8> = vec![dice.u8(..); if is_large { 700 } else { dice.usize(1..60) }];
        let count = slots::count(page);
        if count > 3 && dice.bool() {
            let from = dice.u16(0..count as u16);
            add(page, Change::DeleteSlots { from, to: from + 1 });
        } else {
            add(page, Change::InsertSlot { slot: dice.u16(0..=count as u16), cell: &cell });
        }
    }
    header::set_lsn(page, position);
    bytes
}

pub(super) fn check_page(store: &InPageStore, id: u64, expected: Option<&Vec<u8>>) -> Result<()> {
    let mut page = vec![0xee; GEOMETRY.page_bytes];
    let found = store.load(PageId(id), &mut page)?;
    match (found, expected) {
        (Load::Page, Some(expected)) => {
            assert_eq!(header::lsn(&page), header::lsn(expected), "page {id}");
            // The checksum stands for nothing in memory.
            assert!(page[4..] == expected[4..], "page {id} is as new as it must be, and differs");
        }
        (Load::NeverWritten, None) => {}
        (found, expected) => {
            panic!("page {id}: {found:?}, expected one of LSN {:?}", expected.map(|page| header::lsn(page)))
        }
    }
    Ok(())
}

/// A session: publishes groups and stores them until the power goes. Returns them, and how far they are committed.
fn live(device: &Arc<EmulatedDevice>, model: &Model, seed: u64, total: &mut InPageStats) -> (Vec<Group>, Lsn) {
    let mut dice = Random::with_seed(seed);
    let committed = Arc::new(Committed::default());
    let mut groups = Vec::new();
    let store = InPageStore::new(device.clone() as Arc<dyn Device>, GEOMETRY, STORE, 50).unwrap();
    let ended = run(&store, model, &committed, &mut groups, &mut dice);
    match ended.unwrap_err() {
        error if error.is_io() || matches!(error.kind(), ErrorKind::PowerLost | ErrorKind::WritesLost) => {}
        other => panic!("seed {seed}: {other}"),
    }
    add(total, &store.stats().in_page.expect("it is such a store"));
    (groups, committed.committed_through())
}

fn run(
    store: &InPageStore,
    model: &Model,
    committed: &Arc<Committed>,
    groups: &mut Vec<Group>,
    dice: &mut Random,
) -> Result<()> {
    let horizon: Arc<dyn Horizon> = committed.clone();
    store.begin_session(Session { epoch: model.epoch, past: model.past.clone(), horizon })?;
    assert_eq!(store.capacity_pages(), PAGES);
    for id in 0..PAGES {
        check_page(store, id, model.base.get(&id))?;
    }
    let mut visible = model.base.clone();
    let mut pending: BTreeMap<u64, PageChanges> = BTreeMap::new();
    let mut at = position::start_of(model.epoch);
    // How slow the log is: so many groups are active at most.
    let lag = [0, 3, 40, 400][dice.usize(0..4)];
    let mut stored = 0;
    let hot = dice.u64(1..PAGES);
    loop {
        for _ in 0..dice.u32(1..5) {
            at = position::next(at);
            let mut pages = BTreeMap::new();
            for _ in 0..dice.u32(1..4) {
                let id = if dice.u32(0..4) > 0 { dice.u64(0..hot) } else { dice.u64(0..PAGES) };
                let page = visible.entry(id).or_insert_with(|| blank(id));
                pages.entry(id).or_insert_with(|| random_changes(page, at, dice));
            }
            for (id, changes) in &pages {
                pending.entry(*id).or_default().push(at, changes);
            }
            groups.push((at, pages.into_iter().collect()));
        }
        // An eviction stores some pages' changes ahead of the others.
        if dice.u32(0..3) == 0 {
            let ids: Vec<u64> = pending.keys().copied().filter(|_| dice.bool()).collect();
            let batch: Vec<_> = ids.iter().map(|id| (PageId(*id), pending.remove(id).unwrap())).collect();
            store_all(store, &batch, &groups[..stored], committed)?;
        }
        if dice.u32(0..3) > 0 {
            let batch: Vec<_> =
                std::mem::take(&mut pending).into_iter().map(|(id, changes)| (PageId(id), changes)).collect();
            store_all(store, &batch, &groups[..stored], committed)?;
            stored = groups.len();
            let durable = groups.len().saturating_sub(dice.usize(0..=lag));
            if let Some((position, _)) = durable.checked_sub(1).map(|last| &groups[last]) {
                committed.0.fetch_max(position.get(), Ordering::SeqCst);
            }
        }
        // What it writes down is true at any time.
        if dice.u32(0..20) == 0 {
            store.close();
        }
        let id = dice.u64(0..PAGES);
        if !pending.contains_key(&id) {
            check_page(store, id, visible.get(&id))?;
        }
    }
}

/// Stores changes. If too much is active for that, the log catches up with the groups that are stored.
fn store_all(
    store: &InPageStore,
    batch: &[(PageId, PageChanges)],
    stored: &[Group],
    committed: &Committed,
) -> Result<()> {
    match store.store_changes(batch) {
        Err(error) if error.kind() == ErrorKind::StoreFull => {
            let (last, _) = stored.last().expect("what is full holds something");
            committed.0.fetch_max(last.get(), Ordering::SeqCst);
            store.store_changes(batch)
        }
        result => result,
    }
}

fn add(total: &mut InPageStats, stats: &InPageStats) {
    total.merges += stats.merges;
    total.merges_with_carry += stats.merges_with_carry;
    total.merges_avoided += stats.merges_avoided;
    total.records_dropped += stats.records_dropped;
    total.records_carried += stats.records_carried;
    total.records_applied += stats.records_applied;
    total.cleanings += stats.cleanings;
    total.levelings += stats.levelings;
}

/// Lives and power cuts of one store; what all of them did.
fn search(profile: &'static str, seeds: std::ops::Range<u64>) -> InPageStats {
    let mut total = InPageStats::default();
    for seed in seeds {
        let stats = Simulation::new(seed).run(move || {
            let (device, mut model) = (device(profile), Model::default());
            let mut total = InPageStats::default();
            let mut random = Random::with_seed(seed);
            for life in 0..6 {
                model.epoch += random.u64(1..3);
                let cut_at = Duration::from_micros(random.u64(1..400_000));
                let (victim, mut tearing) = (device.clone(), random.fork());
                let power = tantalum_rt::spawn("power", move || {
                    tantalum_rt::sleep(cut_at);
                    victim.power_cut(&mut tearing);
                });
                let (groups, committed) = live(&device, &model, seed * 100 + life, &mut total);
                power.join().expect("the power goes");
                device.power_on().expect("and comes back");
                model.crash(groups, committed);
            }
            total
        });
        add(&mut total, &stats.expect_finished());
    }
    total
}

fn check_everything_happened(stats: &InPageStats) {
    let happened = [
        stats.merges,
        stats.merges_with_carry,
        stats.merges_avoided,
        stats.records_dropped,
        stats.records_carried,
        stats.records_applied,
    ];
    assert!(happened.iter().all(|count| *count > 0), "{stats:?}");
}

#[test]
fn on_raw_flash_a_power_cut_leaves_what_was_committed_and_no_more() {
    check_everything_happened(&search("nand-k9wag08u1a", 0..40));
}

#[test]
fn on_a_block_device_a_power_cut_leaves_what_was_committed_and_no_more() {
    check_everything_happened(&search("ssd-2008", 0..40));
}

#[test]
fn overflow_units_are_freed_by_merging_the_units_that_need_them() {
    Simulation::new(1)
        .run(|| {
            let (device, committed) = (device("nand-k9wag08u1a"), Arc::new(Committed::default()));
            let store = InPageStore::new(device as Arc<dyn Device>, GEOMETRY, STORE, 50).unwrap();
            let horizon: Arc<dyn Horizon> = committed.clone();
            store.begin_session(Session { epoch: 1, past: Watermarks::default(), horizon }).unwrap();
            let (mut at, mut written) = (position::start_of(1), BTreeMap::new());
            let mut write = |store: &InPageStore, page: u64| {
                at = position::next(at);
                let mut bytes = Vec::new();
                Change::Format { kind: PageKind::Overflow, level: 0, owner: TableId(1) }.encode_into(&mut bytes);
                let body = vec![at.get() as u8; 8000];
                Change::WriteBytes { offset: 0, bytes: &body }.encode_into(&mut bytes);
                let mut changes = PageChanges::default();
                changes.push(at, &bytes);
                store.store_changes(&[(PageId(page), changes)]).map(|()| {
                    apply(written.entry(page).or_insert_with(|| blank(page)), at, &bytes);
                    at
                })
            };
            // Active as they all are, the store is full some time.
            let mut last = Lsn::ZERO;
            let full = (0..1000).find_map(|n| match write(&store, n % PAGES) {
                Ok(position) => {
                    last = position;
                    None
                }
                Err(error) => Some(error),
            });
            assert!(matches!(&full, Some(error) if error.kind() == ErrorKind::StoreFull), "{full:?}");
            // Committed they need only be merged.
            committed.0.store(last.get(), Ordering::SeqCst);
            for n in 0..300 {
                let position = write(&store, n % PAGES).unwrap();
                committed.0.store(position.get(), Ordering::SeqCst);
            }
            let stats = store.stats().in_page.unwrap();
            assert!(stats.cleanings > 0 && stats.overflow_units > 0, "{stats:?}");
            for id in 0..PAGES {
                check_page(&store, id, written.get(&id)).unwrap();
            }
        })
        .expect_finished();
}

/// Stores changes as an engine does whose log is slow: as much is active as may be, and no more.
fn fill_with_active_changes(profile: &'static str, seed: u64) -> InPageStats {
    let mut dice = Random::with_seed(seed);
    let committed = Arc::new(Committed::default());
    // From 255 sectors in an overflow unit down to seven. On raw flash, units are erase blocks.
    let geometries = [(128, 512), (128, 2048), (32, 2048), (16, 2048)];
    let kinds = if profile.starts_with("nand") { 2 } else { geometries.len() };
    let (unit_kib, sector_bytes) = geometries[dice.usize(0..kinds)];
    let (unit_bytes, region_bytes) = (unit_kib << 10, 8192.max(4 * sector_bytes));
    let geometry = Geometry { unit_bytes, region_bytes, sector_bytes, ..GEOMETRY };
    let store = InPageStore::new(device(profile) as Arc<dyn Device>, geometry, STORE, dice.u32(0..=100)).unwrap();
    let horizon: Arc<dyn Horizon> = committed.clone();
    store.begin_session(Session { epoch: 1, past: Watermarks::default(), horizon }).unwrap();
    let (limit, mut at) = (store.max_active_bytes(), position::start_of(1));
    // What evictions store one page at a time fills little of each sector.
    let bytes_max = [8, 60, 400, 7000][dice.usize(0..4)];
    let pages = store.capacity_pages();
    let (pages_max, hot, cold) = ([1, 1, 4, 30][dice.usize(0..4)], dice.u64(1..=pages), dice.u32(0..3));
    let mut visible: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    let (mut active, mut active_bytes, mut full_times) = (Vec::new(), 0, 0);
    while full_times < 3 {
        let mut batch: BTreeMap<u64, PageChanges> = BTreeMap::new();
        let (mut batch_bytes, mut is_full) = (0, false);
        for _ in 0..dice.usize(1..=pages_max) {
            let id = if dice.u32(0..8) < cold { dice.u64(0..pages) } else { dice.u64(0..hot) };
            let body = vec![dice.u8(..); dice.usize(1..=bytes_max)];
            let mut bytes = Vec::new();
            if !visible.contains_key(&id) {
                Change::Format { kind: PageKind::Overflow, level: 0, owner: TableId(1) }.encode_into(&mut bytes);
            }
            Change::WriteBytes { offset: dice.u16(0..1000), bytes: &body }.encode_into(&mut bytes);
            let counted = bytes.len() + PageChanges::OVERHEAD_BYTES;
            is_full = active_bytes + batch_bytes + counted > limit;
            if is_full {
                break;
            }
            at = position::next(at);
            apply(visible.entry(id).or_insert_with(|| blank(id)), at, &bytes);
            batch.entry(id).or_default().push(at, &bytes);
            batch_bytes += counted;
        }
        let batch: Vec<_> = batch.into_iter().map(|(id, changes)| (PageId(id), changes)).collect();
        if let Err(error) = store.store_changes(&batch) {
            let stats = store.stats().in_page.unwrap();
            panic!("seed {seed}: {active_bytes} of {limit} bytes are active: {error}, {stats:?}");
        }
        active_bytes += batch_bytes;
        active.push((at, batch_bytes));
        if is_full {
            full_times += 1;
            // The log catches up with some of it.
            for (position, bytes) in active.drain(..dice.usize(1..=active.len())) {
                committed.0.store(position.get(), Ordering::SeqCst);
                active_bytes -= bytes;
            }
        }
    }
    for id in 0..pages {
        check_page(&store, id, visible.get(&id)).unwrap();
    }
    store.check(&mut |what| panic!("seed {seed}: {what}")).unwrap();
    store.stats().in_page.unwrap()
}

/// However little of each sector is used, and wherever it is: what may be active finds room.
#[test]
fn as_much_as_may_be_active_finds_room() {
    for profile in ["nand-k9wag08u1a", "ssd-2008"] {
        let mut cleanings = 0;
        // With 985 on raw flash, a unit is not merged for which too few units are free; others are, and free some.
        for seed in (0..32).chain([985]) {
            let filled = Simulation::new(seed).run(move || fill_with_active_changes(profile, seed));
            cleanings += filled.expect_finished().cleanings;
        }
        assert!(cleanings > 0, "the overflow units of {profile} were never short");
    }
}

/// Packing one unit's changes takes as many free units as they fill, and frees others only then.
#[test]
fn a_large_batch_leaves_the_units_that_packing_needs() {
    Simulation::new(4)
        .run(|| {
            let store = InPageStore::new(device("ssd-2008") as Arc<dyn Device>, GEOMETRY, STORE, 50).unwrap();
            let horizon = Arc::new(Committed::default());
            store.begin_session(Session { epoch: 1, past: Watermarks::default(), horizon }).unwrap();
            let (mut at, mut active_bytes) = (position::start_of(1), 0);
            let pages = GEOMETRY.pages() as u64;
            let mut write = |pages: std::ops::Range<u64>, body_bytes: usize| {
                let mut batch = Vec::new();
                for id in pages {
                    at = position::next(at);
                    let mut bytes = Vec::new();
                    Change::Format { kind: PageKind::Overflow, level: 0, owner: TableId(1) }.encode_into(&mut bytes);
                    Change::WriteBytes { offset: 0, bytes: &vec![7; body_bytes] }.encode_into(&mut bytes);
                    active_bytes += bytes.len() + PageChanges::OVERHEAD_BYTES;
                    let mut changes = PageChanges::default();
                    changes.push(at, &bytes);
                    batch.push((PageId(id), changes));
                }
                assert!(active_bytes <= store.max_active_bytes(), "{active_bytes} bytes are active");
                store.store_changes(&batch)
            };
            // Every unit is written, so none is free but the reserve.
            for unit in 1..PAGES / pages {
                write(unit * pages..unit * pages + 1, 1).unwrap();
            }
            // The region of one unit, and four overflow units: their sectors are half full.
            for n in 0..(GEOMETRY.sectors() + 4 * GEOMETRY.overflow_sectors()) as u64 {
                write(n % pages..n % pages + 1, 150).unwrap();
            }
            let stats = store.stats().in_page.unwrap();
            assert_eq!((stats.overflow_units, stats.free_units), (4, 4));
            // About what an overflow unit has room for.
            write(0..pages, 7400).unwrap();
            write(0..1, 150).unwrap();
        })
        .expect_finished();
}

#[test]
fn units_are_not_worn_out_where_memory_for_their_changes_is_short() {
    Simulation::new(3)
        .run(|| {
            let limit = MemoryLimit::of(3 * GEOMETRY.unit_bytes as u64, "allow more");
            let overlay = Overlay::new(device("nand-k9wag08u1a"), limit);
            let store = InPageStore::new(Arc::new(overlay), GEOMETRY, STORE, 50).unwrap();
            let horizon = Arc::new(Committed::default());
            store.begin_session(Session { epoch: 1, past: Watermarks::default(), horizon }).unwrap();
            let mut at = position::start_of(1);
            let error = (0..PAGES).find_map(|page| {
                at = position::next(at);
                let mut changes = PageChanges::default();
                let mut bytes = Vec::new();
                Change::Format { kind: PageKind::Overflow, level: 0, owner: TableId(1) }.encode_into(&mut bytes);
                changes.push(at, &bytes);
                store.store_changes(&[(PageId(page), changes)]).err()
            });
            let error = error.expect("there is no memory for every unit");
            assert_eq!(error.kind(), ErrorKind::NoSpace, "{error}");
            assert_eq!(store.stats().in_page.unwrap().bad_units, 0);
        })
        .expect_finished();
}

#[test]
fn units_that_are_never_changed_do_not_keep_the_least_worn_places() {
    Simulation::new(2)
        .run(|| {
            let (device, committed) = (device("nand-k9wag08u1a"), Arc::new(Committed::default()));
            let store = InPageStore::new(device as Arc<dyn Device>, GEOMETRY, STORE, 50).unwrap();
            let horizon: Arc<dyn Horizon> = committed.clone();
            store.begin_session(Session { epoch: 1, past: Watermarks::default(), horizon }).unwrap();
            let (mut at, mut pages, mut dice) = (position::start_of(1), BTreeMap::new(), Random::with_seed(2));
            // Every unit is written once; then only the first is.
            for n in 0..30_000u64 {
                at = position::next(at);
                let id = if n < PAGES { n } else { n % 3 };
                let page = pages.entry(id).or_insert_with(|| blank(id));
                let mut changes = PageChanges::default();
                changes.push(at, &random_changes(page, at, &mut dice));
                store.store_changes(&[(PageId(id), changes)]).unwrap();
                committed.0.store(at.get(), Ordering::SeqCst);
            }
            let stats = store.stats().in_page.unwrap();
            assert!(stats.levelings > 0 && stats.erases_max > 100, "{stats:?}");
            assert!(stats.erases_max <= 2 * stats.erases_min, "{stats:?}");
            for id in 0..PAGES {
                check_page(&store, id, pages.get(&id)).unwrap();
            }
        })
        .expect_finished();
}

/// Opening reads a sector of each unit, and the overflow units, and does not wait for one after the other.
#[test]
fn opening_reads_many_units_at_the_same_time() {
    let geometry = Geometry { page_bytes: 4096, unit_bytes: 16 << 10, region_bytes: 4096, sector_bytes: 512 };
    let (units, latency) = (2048u64, Duration::from_micros(100));
    let openings = Simulation::new(3).run(move || {
        let profile = MemoryProfile { logical_block: 512, read_latency: latency..latency, ..MemoryProfile::default() };
        let device = MemoryDevice::with_profile("data", units * geometry.unit_bytes as u64, profile);
        let mut past = Watermarks::default();
        let mut open = |epoch, committed: Lsn| {
            let store = InPageStore::new(device.clone() as Arc<dyn Device>, geometry, STORE, 50).unwrap();
            if epoch > 1 {
                past.commit(committed);
            }
            let (started, horizon) = (tantalum_rt::now(), Arc::new(Committed::default()) as Arc<dyn Horizon>);
            store.begin_session(Session { epoch, past: past.clone(), horizon }).unwrap();
            (store, tantalum_rt::now() - started)
        };
        let store_all = |store: &InPageStore, pages: &[u64], mut at: Lsn, bytes: &[u8]| -> Result<Lsn> {
            for id in pages {
                at = position::next(at);
                let mut changes = PageChanges::default();
                changes.push(at, bytes);
                store.store_changes(&[(PageId(*id), changes)])?;
            }
            Ok(at)
        };
        let (store, _) = open(1, Lsn::ZERO);
        let mut bytes = Vec::new();
        Change::Format { kind: PageKind::Overflow, level: 0, owner: TableId(3) }.encode_into(&mut bytes);
        let pages: Vec<u64> = (0..store.capacity_pages()).step_by(geometry.pages()).collect();
        let committed = store_all(&store, &pages, position::start_of(1), &bytes).unwrap();
        let (store, without) = open(2, committed);
        assert_eq!(store.stats().in_page.unwrap().free_units as usize, units as usize - 2 - pages.len());
        // What is active overflows, until there is no room.
        Change::WriteBytes { offset: 0, bytes: &[7; 2000] }.encode_into(&mut bytes);
        let full = store_all(&store, &pages.repeat(4), position::start_of(2), &bytes);
        assert!(matches!(&full, Err(error) if error.kind() == ErrorKind::StoreFull), "{full:?}");
        let (store, with) = open(3, position::start_of(2));
        (without, with, store.stats().in_page.unwrap().overflow_units)
    });
    let (without, with, overflow) = openings.expect_finished();
    println!("{units} units: {without:?}; with {overflow} overflow units {with:?}; {latency:?} a read");
    assert!(without < latency * units as u32 / 8, "{without:?}");
    assert!(overflow > 20 && with < without + latency * overflow as u32 / 8, "{overflow} overflow units: {with:?}");
}
