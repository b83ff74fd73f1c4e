//! Several batches in one slot.

use std::{collections::BTreeMap, time::Duration};

use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{JoinHandle, Simulation, sleep, spawn};

use super::*;
use crate::tests::{PAGE, batch};

const SLOTS: u32 = 3;

fn area() -> (Arc<MemoryDevice>, Arc<DoubleWrite>) {
    let profile = MemoryProfile {
        write_latency: Duration::from_micros(100)..Duration::from_micros(101),
        ..MemoryProfile::default()
    };
    let device = MemoryDevice::with_profile("area", DoubleWrite::area_bytes(PAGE, SLOTS), profile);
    let area = DoubleWrite::open(device.clone(), PAGE, 7, SLOTS).unwrap();
    area.read().unwrap();
    (device, Arc::new(area))
}

fn guard(area: &Arc<DoubleWrite>, ids: &'static [u64], version: u64) -> JoinHandle<Result<Option<Guard>>> {
    let area = Arc::clone(area);
    spawn("stores", move || area.guard(&batch(ids, version)))
}

/// The first is written alone, the others together while it is.
fn guard_together(area: &Arc<DoubleWrite>, batches: [&'static [u64]; 3]) -> [Guard; 3] {
    let [first, others @ ..] = batches;
    let first = guard(area, first, 1);
    sleep(Duration::from_micros(10));
    let [second, third] = others.map(|ids| guard(area, ids, 1));
    [first, second, third].map(|task| task.join().unwrap().unwrap().expect("nothing is unfinished"))
}

/// The version of the copy that would mend each page.
fn copies(area: &DoubleWrite) -> BTreeMap<u64, u64> {
    let mut newest = BTreeMap::new();
    for slot in area.read().unwrap() {
        slot.pages().for_each(|(id, page)| _ = newest.entry(id.0).or_insert(page_header::lsn(page).get()));
    }
    newest
}

#[test]
fn batches_that_come_together_share_a_slot() {
    Simulation::new(1)
        .run(|| {
            let (_, area) = area();
            let [first, second, third] = guard_together(&area, [&[5], &[4, 9], &[2, 6]]);
            assert_eq!((first.sequence, second.sequence, third.sequence), (1, 2, 2));
            assert_eq!(copies(&area), [2, 4, 5, 6, 9].map(|id| (id, 1)).into());
        })
        .expect_finished();
}

#[test]
fn an_area_grows_with_the_data_and_batches_go_on_beside_each_other() {
    Simulation::new(1)
        .run(|| {
            let device = MemoryDevice::new("area", DoubleWrite::area_bytes(PAGE, 1));
            let open = || DoubleWrite::open(device.clone(), PAGE, 7, SLOTS).unwrap();
            let area = Arc::new(open());
            assert!(area.read().unwrap().is_empty());
            let first = area.guard(&batch(&[5], 1)).unwrap().expect("nothing is unfinished");
            let second = guard(&area, &[6], 1);
            sleep(Duration::from_millis(10));
            assert!(!second.is_finished(), "there is one slot");
            area.grow(8 * DoubleWrite::area_bytes(PAGE, 2)).unwrap();
            let second = second.join().unwrap().unwrap().expect("nothing is unfinished");
            assert_eq!((first.slot, second.slot), (0, 1));
            assert_eq!(copies(&area), [(5, 1), (6, 1)].into());
            area.grow(0).unwrap();
            assert_eq!(device.capacity_bytes(), DoubleWrite::area_bytes(PAGE, 2), "growing never shrinks it");
            area.grow(u64::MAX).unwrap();
            assert_eq!(device.capacity_bytes(), DoubleWrite::area_bytes(PAGE, SLOTS));
            let third = area.guard(&batch(&[7], 1)).unwrap().expect("nothing is unfinished");
            assert_eq!(third.slot, 2);
            // After a crash all of them are found.
            assert_eq!(copies(&open()), [(5, 1), (6, 1), (7, 1)].into());
        })
        .expect_finished();
}

#[test]
fn an_area_that_shrinks_keeps_its_session_and_what_is_not_in_place() {
    Simulation::new(1)
        .run(|| {
            let (device, area) = area();
            area.stamp(5).unwrap();
            let shrunk = || device.capacity_bytes() == DoubleWrite::area_bytes(PAGE, 1);
            let [first, second, third] =
                [[5], [6], [7]].map(|ids| area.guard(&batch(&ids, 1)).unwrap().expect("a slot is free"));
            [first, third].into_iter().for_each(|guard| area.release(guard));
            assert!(second.slot > 0);
            area.shrink(0).unwrap();
            assert!(!shrunk(), "a slot beyond is in use");
            area.release(second);
            area.shrink(0).unwrap();
            assert!(shrunk());
            let open = || DoubleWrite::open(device.clone(), PAGE, 7, SLOTS).unwrap();
            assert_eq!((open().session().unwrap(), copies(&open())), (Some(5), [].into()));
            let only = area.guard(&batch(&[8], 1)).unwrap().expect("a slot is free");
            assert_eq!((only.slot, copies(&open())), (0, [(8, 1)].into()));
            area.grow(u64::MAX).unwrap();
            let next = area.guard(&batch(&[9], 1)).unwrap().expect("a slot is free");
            assert_eq!((next.slot > 0, copies(&open())), (true, [(8, 1), (9, 1)].into()));
        })
        .expect_finished();
}

#[test]
fn no_copy_of_a_page_outlives_a_newer_one() {
    Simulation::new(1)
        .run(|| {
            let (_, area) = area();
            let [first, second, late] = guard_together(&area, [&[5], &[1], &[2]]);
            area.release(first);
            area.release(second);
            for (id, version) in [([1], 2), ([3], 1)] {
                let guard = area.guard(&batch(&id, version)).unwrap().expect("nothing is unfinished");
                area.release(guard);
            }
            // The slot with the newer copy is the oldest that is in place, but not older than the one with the old copy.
            let next = guard(&area, &[8], 1);
            sleep(Duration::from_millis(10));
            assert!(!next.is_finished());
            assert_eq!(copies(&area), [(1, 2), (2, 1), (3, 1)].into());
            area.release(late);
            next.join().unwrap().unwrap().expect("nothing is unfinished");
            // The old one was overwritten first.
            assert_eq!(copies(&area).get(&1), None);
        })
        .expect_finished();
}

#[test]
fn batches_that_share_a_write_share_its_error() {
    Simulation::new(1)
        .run(|| {
            let (device, area) = area();
            device.inject(Fault::FailWrites { after: 1 });
            let first = guard(&area, &[5], 1);
            sleep(Duration::from_micros(10));
            let others = [guard(&area, &[4], 1), guard(&area, &[2], 1)];
            assert!(first.join().unwrap().is_ok());
            assert!(others.into_iter().all(|task| task.join().unwrap().is_err()));
            device.clear_faults();
            assert!(area.guard(&batch(&[2, 4], 2)).unwrap().is_some());
        })
        .expect_finished();
}
