//! Power cuts while a database grows: pages that are stored without a copy in the double-write area may be torn, and must come
//! back all the same, also when checkpoints begin and end meanwhile.

use std::collections::BTreeMap;

use super::*;

/// Where a new database grows soon, and then each 256 pages.
const PAGES_AT_FIRST: u64 = 8;
const NUMBERS: usize = 1200;

/// A data device that grows, and takes long for a write: checkpoints end while pages are on their way to it.
fn disks(seed: u64) -> Disks {
    let profile = MemoryProfile {
        write_latency: Duration::from_micros(100)..Duration::from_millis(4),
        flush_latency: Duration::from_micros(20)..Duration::from_micros(200),
        tears: TearUnit::Sector512,
        seed,
        ..MemoryProfile::default()
    };
    let data = MemoryDevice::with_profile("data", PAGES_AT_FIRST * PAGE as u64, profile);
    Disks { data, ..Disks::new(seed, Protection::DoubleWrite) }
}

/// Of each page by its number: the version that was acknowledged, and the one that was tried; 0 if there need be, or can be,
/// none.
struct Versions {
    acknowledged: Vec<AtomicU64>,
    tried: Vec<AtomicU64>,
}

impl Versions {
    fn new() -> Arc<Self> {
        let none = || (0..NUMBERS).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { acknowledged: none(), tried: none() })
    }
}

fn cell(number: usize, version: u64) -> Vec<u8> {
    let mut cell = [number as u64, version].map(u64::to_le_bytes).concat();
    // All of the page, so that any tear shows.
    cell.resize(4000, version as u8);
    cell
}

fn content(page: &[u8]) -> (usize, u64) {
    let cell = slots::cell(page, 0).unwrap();
    let number = |at: usize| u64::from_le_bytes(cell[at..at + 8].try_into().unwrap());
    assert_eq!(cell, super::fresh_pages::cell(number(0) as usize, number(8)), "the page is of one version");
    (number(0) as usize, number(8))
}

/// Finds the pages that there are, checks them, and takes them for acknowledged.
fn check(pool: &BufferPool, space: &Space, versions: &Versions) -> BTreeMap<usize, PageId> {
    let mut allocated = Vec::new();
    space.for_each_allocated(&mut |id| allocated.push(id)).unwrap();
    let mut found = BTreeMap::new();
    let mut present = vec![0; NUMBERS];
    for id in allocated {
        let (number, version) = content(&pool.pin(id).unwrap().read());
        assert!(found.insert(number, id).is_none(), "page {number} is there twice");
        present[number] = version;
    }
    for (number, version) in present.into_iter().enumerate() {
        let (acknowledged, tried) = (&versions.acknowledged[number], &versions.tried[number]);
        let range = acknowledged.load(Ordering::Relaxed)..=tried.load(Ordering::Relaxed);
        assert!(range.contains(&version), "page {number} has version {version}, not one of {range:?}");
        acknowledged.store(version, Ordering::Relaxed);
        tried.store(version, Ordering::Relaxed);
    }
    found
}

/// Adds a page, or changes one.
fn write(pool: &BufferPool, space: &Space, at: Option<PageId>, cell: &[u8]) -> Result<(PageId, tantalum_log::Lsn)> {
    space.supplied(|reservation| try_write(pool, space, at, cell, reservation))
}

fn try_write(
    pool: &BufferPool,
    space: &Space,
    at: Option<PageId>,
    cell: &[u8],
    reservation: &Arc<Reservation>,
) -> GroupResult<(PageId, tantalum_log::Lsn)> {
    let mut group = ChangeGroup::with(pool, Some(reservation));
    let id = match at {
        Some(id) => {
            let index = group.add(pool.pin(id)?.write());
            group.change(index, Change::ReplaceSlot { slot: 0, cell })?;
            id
        }
        None => {
            let id = space.allocate(&mut group, OWNER)?;
            let index = group.add_new(id)?;
            group.change(index, Change::Format { kind: PageKind::Leaf, level: 0, owner: OWNER })?;
            group.change(index, Change::InsertSlot { slot: 0, cell })?;
            id
        }
    };
    Ok((id, group.append(0, 0)?))
}

fn live(disks: &Disks, versions: &Arc<Versions>, seed: u64, cut_at: Option<Duration>) -> Outcome<u64> {
    let (disks, versions) = (disks.clone(), Arc::clone(versions));
    Simulation::new(seed).time_limit(Duration::from_secs(60)).run(move || {
        cut_the_power(cut_at);
        let Opened { pool, space, redo } = disks.open().unwrap();
        let mut pages = check(&pool, &space, &versions);
        if cut_at.is_none() {
            return pages.len() as u64;
        }
        let _cleaner = Cleaner::start(&pool);
        let _checkpointer = Checkpointer::start(&pool, redo.has_applied(), |_| {});
        let mut random = Random::with_seed(seed);
        let checkpoints = spawn("checkpoints", {
            let (pool, mut random) = (pool.clone(), Random::with_seed(seed + 1));
            move || {
                let mut had = pool.store().capacity_pages();
                for _ in 0..60 {
                    tantalum_rt::sleep(Duration::from_micros(random.u64(100..8000)));
                    let has = pool.store().capacity_pages();
                    pool.checkpoint().unwrap();
                    // Now redo no longer sees how pages began that are on their way.
                    if has > std::mem::replace(&mut had, has) && random.bool() {
                        tantalum_rt::sleep(Duration::from_micros(random.u64(1..3000)));
                        tantalum_rt::power_cut();
                    }
                }
            }
        });
        for _ in 0..300 {
            let adds = pages.is_empty() || (random.bool() && pages.len() < NUMBERS);
            // Those that were added last are the fresh ones.
            let number = if adds { pages.len() } else { pages.len() - 1 - random.usize(..pages.len().min(40)) };
            let version = versions.tried[number].fetch_add(1, Ordering::Relaxed) + 1;
            let (at, cell) = (pages.get(&number).copied(), cell(number, version));
            let written = write(&pool, &space, at, &cell);
            let (id, end) = written.unwrap();
            pages.insert(number, id);
            if random.u8(..4) == 0 {
                pool.log().flush(end).unwrap();
                versions.acknowledged[number].store(version, Ordering::Relaxed);
            }
        }
        checkpoints.join().unwrap();
        pages.len() as u64
    })
}

#[test]
fn power_cuts_while_the_file_grows() {
    let (mut cuts, mut pages) = (0, 0);
    for seed in 0..150 {
        let disks = disks(seed);
        Log::create(1, disks.log_devices(), log_options()).unwrap();
        let versions = Versions::new();
        let mut random = Random::with_seed(seed);
        for life in 0..5 {
            let cut_at = Duration::from_micros(random.u64(1..400_000));
            cuts += u64::from(matches!(
                live(&disks, &versions, seed * 1000 + life, Some(cut_at)),
                Outcome::PowerCut { .. }
            ));
            disks.power_cut(&mut random);
        }
        pages += live(&disks, &versions, seed * 1000 + 999, None).expect_finished();
    }
    assert!(cuts > 300, "{cuts} lives ended with a power cut");
    assert!(pages / 150 > 300, "{pages} pages: the file grew more than once");
}

#[test]
fn what_the_log_has_all_of_is_written_once() {
    let disks = disks(1);
    Log::create(1, disks.log_devices(), log_options()).unwrap();
    let Opened { pool, space, .. } = disks.open().unwrap();
    let pages: Vec<_> = (0..12).map(|number| write(&pool, &space, None, &cell(number, 1)).unwrap().0).collect();
    let fresh = pages.iter().filter(|id| id.0 >= PAGES_AT_FIRST).count() as u64;
    assert!(fresh > 0 && fresh < 12);
    pool.checkpoint().unwrap();
    let first = pool.store().stats();
    assert_eq!(first.pages_stored - first.pages_double_written, fresh);
    // Redo after the checkpoint does not begin with their first change.
    pages.iter().enumerate().for_each(|(number, id)| _ = write(&pool, &space, Some(*id), &cell(number, 2)).unwrap());
    pool.checkpoint().unwrap();
    let second = pool.store().stats();
    assert_eq!(second.pages_double_written - first.pages_double_written, 12);
}
