//! Which pages a group is given: freed ones, new ones of a store that grows, frames for them; and what is latched meanwhile.

use std::{sync::Arc, time::Duration};

use tantalum_device::{Device, Fault, MemoryDevice};
use tantalum_log::{Log, LogOptions};
use tantalum_rt::{Simulation, spawn};
use tantalum_store::{Change, PageId, PageKind, Protection, TableId, page::header};

use super::{
    super::ChangeGroup,
    Fixture, OWNER, PAGE, fixture, reopen,
    write_back::{GROWTH, Watched, is_free},
};
use crate::{
    error::{ErrorKind, GroupError, GroupResult, Lack, Result},
    space::Grower,
};

#[test]
fn several_allocations_and_frees_in_one_group_see_each_other() {
    let db = fixture(16, Protection::Device);
    let old = db.leaf(b"old");
    let many = db.space.supplied(|reservation| {
        let mut group = ChangeGroup::with(&db.pool, Some(reservation));
        db.space.free(&mut group, old)?;
        assert!(matches!(db.space.free(&mut group, old), Err(GroupError::Failed(error)) if error.kind() == ErrorKind::Corrupt), "freed twice");
        // More than the file holds at first: it grows.
        let new = (0..300).map(|_| db.space.allocate(&mut group, OWNER)).collect::<GroupResult<Vec<_>>>()?;
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

/// As where a device has lost writes: the map does not know any more that pages are in use.
#[test]
fn a_page_in_use_that_the_map_has_for_free_is_not_waited_for() {
    let db = fixture(16, Protection::Device);
    let (first, second) = (db.leaf(b"first"), db.leaf(b"second"));
    let mut group = ChangeGroup::new(&db.pool);
    let map = group.add(db.pool.pin(PageId(2)).unwrap().write());
    group.change(map, Change::WriteBytes { offset: 0, bytes: &[0b111] }).unwrap();
    group.append(0, 0).unwrap();
    db.pool.checkpoint().unwrap();
    let Fixture { data, log, .. } = db;
    let db = reopen(data, log, 16, Protection::Device).unwrap();
    db.space.supplied(|_| db.space.allocate(&mut ChangeGroup::new(&db.pool), OWNER)).unwrap();

    let mut group = ChangeGroup::new(&db.pool);
    group.add(db.pool.pin(first).unwrap().write());
    let Err(GroupError::Failed(refused)) = db.space.allocate(&mut group, OWNER) else {
        panic!("the group would wait for a latch that it holds");
    };
    assert_eq!(refused.kind(), ErrorKind::Corrupt);
    assert!(refused.to_string().contains(&format!("page {first} is in use")), "{refused}");
    drop(group);

    let latched = db.pool.pin(second).unwrap().write();
    let mut group = ChangeGroup::new(&db.pool);
    assert!(matches!(group.add_new(second), Err(GroupError::Lacks(Lack::Latch(lacked))) if lacked == second));
    drop(latched);
    group.add_new(second).unwrap();
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
            let some = (0..left).map(|_| db.space.allocate(&mut group, OWNER)).collect::<GroupResult<Vec<_>>>()?;
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
    assert!(matches!(db.space.free(&mut group, PageId(50)), Err(GroupError::Lacks(Lack::Latch(PageId(2))))));
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
    assert!(matches!(&refused, Err(error) if error.kind() == ErrorKind::StoreFull), "{refused:?}");
    assert_eq!(given, 64 - 3);
    db.leaf(b"there is room for one");
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
