//! The pool and change groups, one behaviour at a time. Crashes are in `recovery::tests`.

mod allocation;
mod write_back;

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use tantalum_device::{Device, Fault, MemoryDevice};
use tantalum_log::{Log, LogOptions, Lsn};
use tantalum_rt::{Random, Simulation, simulation::panic_at, spawn};
use tantalum_store::{
    Change, PageId, PageKind, Protection, TableId,
    page::{header, record::GroupRecord, slots},
};

use super::{BufferPool, ChangeGroup, Cleaner, PageCleaning, PoolOptions, Reservation};
use crate::{
    error::{ErrorKind, GroupError, GroupResult, Lack, Result},
    recovery,
    space::Space,
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

    fn replace(&self, id: PageId, cell: &[u8]) -> GroupResult<()> {
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
    // In a simulation, so that the time limit for a pinned pool takes no real time.
    Simulation::new(1)
        .run(|| {
            let db = fixture(16, Protection::Device);
            let ids: Vec<_> = (0..40u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
            let mut pins: Vec<_> = ids[..16].iter().map(|id| db.pool.pin(*id).unwrap()).collect();
            assert!(matches!(db.pool.pin(ids[20]), Err(error) if error.to_string().contains("all 16 frames of")));
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
    assert!(
        matches!(group.change(index, Change::DeleteSlots { from: 0, to: 2 }), Err(error) if error.kind() == ErrorKind::Corrupt)
    );
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
fn replace_both(db: &Fixture, ids: [PageId; 2], cell: &[u8]) -> GroupResult<Lsn> {
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
    stopped(db.pool.log().close());
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
            let GroupError::Lacks(Lack::LogSpace(needed)) = error else { panic!("{error:?}") };
            assert_ne!(db.cell(id), cell);
            refused += 1;
            db.pool.wait_for_log_space(needed).unwrap();
        }
        assert_eq!(db.cell(id), cell);
    }
    assert!(refused > 3, "the log was full {refused} times");
}

#[test]
fn a_failed_read_is_reported_and_the_next_one_tries_again() {
    let db = fixture(16, Protection::Device);
    let ids: Vec<_> = (0..60u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
    db.data.inject(Fault::FailReads { after: 0 });
    assert!(matches!(db.pool.pin(ids[0]), Err(error) if error.is_io()));
    db.data.clear_faults();
    assert_eq!(db.cell(ids[0]), 0u32.to_le_bytes());
}

#[test]
fn what_cannot_be_read_ahead_is_left_out() {
    let db = fixture(32, Protection::Device);
    let ids: Vec<_> = (0..60u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
    db.pool.checkpoint().unwrap();
    let are_free = db.pool.stats().free_frames;
    db.data.inject(Fault::FailReads { after: 1 });
    db.pool.read_ahead(&ids[..3]);
    db.data.clear_faults();
    assert!(db.pool.pin_in_memory(ids[0]).is_none() && db.pool.stats().read_ahead == 3);
    db.data.corrupt(ids[1].0 * PAGE as u64 + 2000, 1, |bytes| bytes[0] ^= 1);
    // One that never was, and two that are there by then, do no harm.
    db.pool.read_ahead(&[ids[0], ids[1], PageId(70)]);
    db.pool.read_ahead(&[ids[0], ids[2]]);
    let in_memory = |index: usize| db.pool.pin_in_memory(ids[index]).is_some();
    assert!(in_memory(0) && !in_memory(1) && in_memory(2));
    assert_eq!(db.cell(ids[2]), 2u32.to_le_bytes());
    assert!(db.pool.pin(ids[1]).is_err_and(|error| error.kind() == ErrorKind::Corrupt));
    assert!(db.pool.stats().free_frames + 8 >= are_free, "frames were given back");
}

/// A pool that is too small for what is read ahead reads nothing ahead, but for a trial now and then, until what was is used again.
#[test]
fn what_is_evicted_unused_is_not_read_ahead() {
    let db = fixture(64, Protection::Device);
    let ids: Vec<_> = (0..640u32).map(|n| db.leaf(&n.to_le_bytes())).collect();
    db.pool.checkpoint().unwrap();
    let count_calls = |is_used: bool| {
        let reads = ids.chunks(8).map(|pages| {
            let most = db.pool.most_read_ahead();
            assert!(most == 8 || most == 0);
            if most > 0 {
                db.pool.read_ahead(pages);
            }
            if is_used {
                pages.iter().for_each(|page| drop(db.pool.pin(*page).unwrap()));
            }
            usize::from(most > 0)
        });
        reads.sum::<usize>()
    };
    assert_eq!((0..4).map(|_| count_calls(true)).collect::<Vec<_>>(), [80; 4]);
    assert_eq!(db.pool.stats().read_in_vain, 0);
    let unused: Vec<_> = (0..4).map(|_| count_calls(false)).collect();
    assert!(unused[0] < 40 && unused[3] <= 2, "{unused:?}");
    let in_vain = db.pool.stats().read_in_vain;
    assert!((8..400).contains(&in_vain), "{in_vain}");
    let used: Vec<_> = (0..400).map(|_| count_calls(true)).collect();
    assert!(used[0] <= 2 && used[399] == 80, "{used:?}");
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
    assert!(error.to_string().starts_with(&format!("data: page {id} (at byte 12288) is damaged")), "{error}");
    assert!(error.to_string().contains("checksum") && error.to_string().contains("backup"), "{error}");
    assert!(
        matches!(db.pool.pin(PageId(50)), Err(error) if error.kind() == ErrorKind::Corrupt && error.to_string().contains("never written"))
    );
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

/// Such as one whose images take more than the whole log: it would be tried for ever.
#[test]
fn a_group_that_never_gets_its_log_space_is_refused() {
    let db = fixture(16, Protection::FullPageImages);
    let limit = db.pool.space_limit();
    let reservation = Reservation::new(&db.pool);
    for _ in 0..100 {
        reservation.get_log_space(limit.bytes).unwrap();
    }
    let refused =
        (0..100).find_map(|_| reservation.get_log_space(limit.bytes + 1).err()).expect("it is refused at last");
    assert!(refused.kind() == ErrorKind::TransactionTooLarge && refused.to_string().contains("larger log_bytes"));
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
    assert!(matches!(db.pool.pin(id), Err(error) if error.to_string().contains("beyond the end of the log")));
}

#[test]
fn many_tasks_on_real_threads_and_a_small_pool() {
    let db = Arc::new(fixture(24, Protection::Device));
    let cleaner = Cleaner::start(&db.pool);
    let checkpointer = recovery::Checkpointer::start(&db.pool, false, |_| {});
    let ids: Vec<_> = (0..100).map(|_| db.leaf(&0u64.to_le_bytes())).collect();
    let rounds = 600;
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let (db, ids) = (Arc::clone(&db), ids.clone());
            spawn(format!("client-{task}"), move || {
                let mut random = Random::with_seed(task);
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
            Err(error) if error.kind() == ErrorKind::Unsupported => {}
            Err(error) => panic!("{error:?}"),
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
            Err(GroupError::Lacks(Lack::LogSpace(needed))) => drop(retry(|| db.pool.wait_for_log_space(needed))),
            Err(error) => panic!("{error:?}"),
        }
    }
}
