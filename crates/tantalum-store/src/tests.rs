//! The in-place store, with the power going at the worst time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use proptest::{collection::vec, prelude::*};
use tantalum_device::{Device, Durability, Fault, MemoryDevice, MemoryProfile, Partition, SharedFlushes};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_log::Lsn;
use tantalum_rt::{Random, Simulation};

use crate::{
    Change, DoubleWrite, Error, ErrorKind, Load, NoSuperblock, PageBatch, PageId, PageKind, PageStore, Protection,
    SegmentSizes, StoreKind, Superblock, TableId,
    in_place::{
        InPlaceStore,
        double_write::{AmongOthers, Header},
    },
    page::{change, header},
    sweep,
};

pub(super) const PAGE: usize = 4096;
const PAGES: u64 = 40;
const DATABASE: u128 = 7;
const SLOTS: u32 = 3;

#[derive(Clone)]
struct Disks {
    data: Arc<MemoryDevice>,
    area: Arc<MemoryDevice>,
}

impl Disks {
    fn new(seed: u64) -> Self {
        let profile = |seed| MemoryProfile {
            write_latency: Duration::from_micros(20)..Duration::from_micros(200),
            flush_latency: Duration::from_micros(50)..Duration::from_micros(300),
            seed,
            ..MemoryProfile::default()
        };
        Self {
            data: MemoryDevice::with_profile("data", PAGES * PAGE as u64, profile(seed)),
            area: MemoryDevice::with_profile("doublewrite", DoubleWrite::area_bytes(PAGE, SLOTS), profile(seed + 1)),
        }
    }

    fn store(&self) -> InPlaceStore {
        self.store_with(SLOTS)
    }

    fn store_with(&self, slots: u32) -> InPlaceStore {
        InPlaceStore::with_double_write(self.data.clone(), PAGE, self.area.clone(), DATABASE, slots).unwrap()
    }

    fn power_cut(&self, random: &mut Random) {
        self.data.power_cut(random);
        self.area.power_cut(random);
    }
}

/// A page filled with its version, which is its LSN.
/// A page of one byte again and again.
pub(super) fn page(id: PageId, version: u64) -> Vec<u8> {
    let mut page = vec![0; PAGE];
    header::clear(&mut page, id);
    let format = Change::Format { kind: PageKind::Overflow, level: 0, owner: TableId(1) };
    change::apply(&mut page, &format).unwrap();
    let body = &mut page[header::HEADER_BYTES..];
    body.fill(version as u8);
    // A part of them cannot be compressed, from none to all.
    let mut random = Random::with_seed(id.0 ^ version << 32);
    let random_bytes = body.len() * random.usize(0..5) / 4;
    body[..random_bytes].fill_with(|| random.u8(..));
    header::set_lsn(&mut page, Lsn::new(version));
    page
}

/// Such pages.
pub(super) fn batch(ids: &[u64], version: u64) -> PageBatch {
    let mut batch = PageBatch::new(PAGE);
    for id in ids {
        batch.push(PageId(*id), &page(PageId(*id), version));
    }
    batch.seal();
    batch
}

/// The version of a page; 0 if it was never written.
fn version(store: &InPlaceStore, id: u64) -> u64 {
    let mut found = vec![0; PAGE];
    match store.load(PageId(id), &mut found).unwrap() {
        Load::NeverWritten => 0,
        Load::Page => {
            let version = header::lsn(&found).get();
            assert_eq!(found[header::HEADER_BYTES..], page(PageId(id), version)[header::HEADER_BYTES..]);
            version
        }
        Load::Damaged(what) => panic!("page {id}: {what}"),
    }
}

/// Writes until the power goes, several tasks at once, each to pages of its own. The versions that each page may have are
/// between what was acknowledged and what was tried.
fn cut_the_power_while_writing(slots: u32, writers: u64) -> u64 {
    let mut mended = 0;
    for seed in 0..60 {
        let disks = Disks::new(seed);
        let stored: Arc<Vec<AtomicU64>> = Arc::new((0..PAGES).map(|_| AtomicU64::new(0)).collect());
        let tried: Arc<Vec<AtomicU64>> = Arc::new((0..PAGES).map(|_| AtomicU64::new(0)).collect());
        let mut random = Random::with_seed(seed);
        for life in 0..4 {
            let (disks_then, stored_then, tried_then) = (disks.clone(), Arc::clone(&stored), Arc::clone(&tried));
            let cut_at = Duration::from_micros(random.u64(1..12_000));
            let outcome = Simulation::new(seed * 100 + life).run(move || {
                tantalum_rt::spawn("power", move || {
                    tantalum_rt::sleep(cut_at);
                    tantalum_rt::power_cut()
                });
                let store = Arc::new(disks_then.store_with(slots));
                store.recover().unwrap();
                for id in 0..PAGES {
                    let version = version(&store, id);
                    assert!(version >= stored_then[id as usize].load(Ordering::Relaxed), "page {id} is lost");
                    assert!(version <= tried_then[id as usize].load(Ordering::Relaxed));
                    // What is read after a recovery counts as stored.
                    stored_then[id as usize].store(version, Ordering::Relaxed);
                }
                let tasks: Vec<_> = (0..writers)
                    .map(|writer| {
                        let (store, stored, tried) =
                            (Arc::clone(&store), Arc::clone(&stored_then), Arc::clone(&tried_then));
                        let mut dice = Random::with_seed(seed * 100 + life * 10 + writer);
                        tantalum_rt::spawn("writer", move || {
                            for version in (life * 1000 + 1).. {
                                let mine = (0..PAGES).filter(|id| id % writers == writer);
                                let ids: Vec<u64> = mine.filter(|_| dice.bool()).collect();
                                ids.iter().for_each(|id| tried[*id as usize].store(version, Ordering::Relaxed));
                                store.store(&batch(&ids, version)).unwrap();
                                ids.iter().for_each(|id| stored[*id as usize].store(version, Ordering::Relaxed));
                            }
                        })
                    })
                    .collect();
                tasks.into_iter().for_each(|task| task.join().unwrap());
            });
            assert!(outcome.finished().is_none(), "it writes until the power goes");
            disks.power_cut(&mut random);
        }
        mended += disks.store_with(slots).recover().unwrap();
    }
    mended
}

#[test]
fn a_power_cut_leaves_every_page_old_or_new() {
    assert!(cut_the_power_while_writing(1, 1) > 0, "some power cuts tear pages");
}

#[test]
fn a_power_cut_leaves_every_page_of_several_batches_old_or_new() {
    // With more writers than slots, some wait; with fewer, slots hold batches that are long in place.
    assert!(cut_the_power_while_writing(SLOTS, 4) > 0, "some power cuts tear pages");
    assert!(cut_the_power_while_writing(SLOTS, 2) > 0, "some power cuts tear pages");
}

#[test]
fn of_two_copies_the_newest_mends_a_page_and_what_was_in_place_mends_none() {
    let disks = Disks::new(1);
    let tear = |id: u64| disks.data.corrupt(id * PAGE as u64 + 600, 1, |bytes| bytes[0] ^= 1);
    let store = disks.store();
    for new in 1..=5 {
        store.store(&batch(&[3, 7], new)).unwrap();
    }
    tear(3);
    assert_eq!((disks.store().recover().unwrap(), version(&disks.store(), 3)), (1, 5));
    // Another batch begins when this one is in place, so nothing of it can be torn.
    store.store(&batch(&[4], 6)).unwrap();
    tear(3);
    tear(4);
    assert_eq!(disks.store().recover().unwrap(), 1);
    assert_eq!(version(&disks.store(), 4), 6);
    assert!(matches!(disks.store().load(PageId(3), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_)));
}

#[test]
fn a_slot_that_holds_the_header_of_one_batch_and_pages_of_another_mends_nothing() {
    let disks = Disks::new(1);
    let store = disks.store();
    let mut first_pages = vec![0; PAGE];
    for new in 1..=u64::from(SLOTS) + 1 {
        store.store(&batch(&[3], new)).unwrap();
        if new == 1 {
            disks.area.read(4096, &mut first_pages).unwrap();
        }
    }
    // As if a power cut had kept the pages of the slot from being written, but not its header.
    disks.area.write(4096, &[&first_pages], Durability::Durable).unwrap();
    disks.data.corrupt(3 * PAGE as u64 + 600, 1, |bytes| bytes[0] ^= 1);
    assert_eq!(disks.store().recover().unwrap(), 0);
}

#[test]
fn several_batches_that_failed_in_place_are_finished_before_their_pages_are_written_again() {
    let mut torn = 0;
    for seed in 0..40 {
        let disks = Disks::new(seed);
        let then = disks.clone();
        torn += Simulation::new(seed)
            .run(move || {
                let store = Arc::new(then.store());
                store.store(&batch(&(0..9).collect::<Vec<_>>(), 1)).unwrap();
                then.data.inject(Fault::FailWrites { after: 0 });
                let tasks = [0, 1, 2].map(|writer| {
                    let store = Arc::clone(&store);
                    tantalum_rt::spawn("writer", move || store.store(&batch(&[3 * writer, 3 * writer + 1], 2)))
                });
                assert!(tasks.into_iter().all(|task| task.join().unwrap().is_err()));
                // All slots are kept for them, and nothing else is written before.
                assert!(store.store(&batch(&[8], 3)).is_err());
                let is_torn = |id| matches!(store.load(PageId(id), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_));
                let torn = (0..9).filter(|id| is_torn(*id)).count();
                then.data.clear_faults();
                if seed % 2 == 0 {
                    store.store(&batch(&[0, 4, 8], 3)).unwrap();
                    let versions: Vec<_> = (0..9).map(|id| version(&store, id)).collect();
                    assert_eq!(versions, [3, 2, 1, 2, 3, 1, 2, 2, 3]);
                }
                torn
            })
            .expect_finished();
        disks.power_cut(&mut Random::with_seed(seed));
        let store = disks.store();
        store.recover().unwrap();
        for id in [0, 1, 3, 4, 6, 7] {
            assert!((1..=3).contains(&version(&store, id)), "page {id} is whole");
        }
    }
    assert!(torn > 0, "some failed writes leave torn pages");
}

#[test]
fn an_area_of_one_slot_is_written_as_it_always_was() {
    let disks = Disks::new(1);
    disks.store_with(1).store(&batch(&[3], 1)).unwrap();
    let mut block = vec![0; 4096];
    disks.area.read(0, &mut block).unwrap();
    let header = Header::decode(&block).unwrap();
    assert_eq!((block[8], header.among_others, header.ids), (1, None, vec![PageId(3)]));
}

/// What others write while a flush is under way shares the next one.
#[test]
fn batches_at_the_same_time_share_flushes() {
    let took_us = |writers: u64| {
        Simulation::new(7)
            .run(move || {
                let profile = MemoryProfile {
                    write_latency: Duration::from_micros(20)..Duration::from_micros(21),
                    flush_latency: Duration::from_micros(500)..Duration::from_micros(501),
                    ..MemoryProfile::default()
                };
                let data = MemoryDevice::with_profile("data", PAGES * PAGE as u64, profile);
                let store = Arc::new(InPlaceStore::new(data, PAGE, Protection::Device, true).unwrap());
                let write = |id| {
                    let store = Arc::clone(&store);
                    tantalum_rt::spawn("writer", move || {
                        (1..=10).for_each(|version| store.store(&batch(&[id], version)).unwrap());
                    })
                };
                (0..writers).map(write).collect::<Vec<_>>().into_iter().for_each(|task| task.join().unwrap());
                tantalum_rt::now().as_nanos() / 1000
            })
            .expect_finished()
    };
    let (alone, together) = (took_us(1), took_us(8));
    // A flush under way does not count for those whose writes complete meanwhile: they share the next.
    assert!(together <= alone * 2, "{alone} and {together} us");
}

/// Of pages that are written twice, those on their way to the area and those on their way to their places wait for the same ones.
#[test]
fn batches_that_are_written_twice_share_flushes_too() {
    let (writers, versions) = (16, 10);
    let flushes = Simulation::new(7)
        .run(move || {
            let drive = EmulatedDevice::new("drive", Profile::named("durassd").unwrap().build().unwrap());
            let shared = SharedFlushes::of(drive.clone());
            let begin = shared.capacity_bytes() - DoubleWrite::area_bytes(PAGE, SLOTS);
            let area = Partition::new(Arc::clone(&shared), begin..shared.capacity_bytes()).unwrap();
            let data = Partition::new(shared, 0..begin).unwrap();
            let store = InPlaceStore::with_double_write(Arc::new(data), PAGE, Arc::new(area), DATABASE, SLOTS);
            let store = Arc::new(store.unwrap());
            let write = |id| {
                let store = Arc::clone(&store);
                tantalum_rt::spawn("writer", move || {
                    (1..=versions).for_each(|version| store.store(&batch(&[id], version)).unwrap());
                })
            };
            (0..writers).map(write).collect::<Vec<_>>().into_iter().for_each(|task| task.join().unwrap());
            drive.counters().flushes
        })
        .expect_finished();
    // The two that each version needs, and a few, as groups drift apart and come together again.
    assert!((2 * versions..3 * versions).contains(&flushes), "{flushes}");
}

#[test]
fn without_protection_pages_tear() {
    // Shows that the test above tests something.
    let torn = (0..30).any(|seed| {
        let disks = Disks::new(seed);
        let store = InPlaceStore::new(disks.data.clone(), PAGE, Protection::Device, true).unwrap();
        store.store(&batch(&[5], 1)).unwrap();
        disks.data.write(5 * PAGE as u64, &[batch(&[5], 2).bytes()], Durability::Cached).unwrap();
        disks.power_cut(&mut Random::with_seed(seed));
        matches!(store.load(PageId(5), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_))
    });
    assert!(torn);
}

#[test]
fn a_batch_that_failed_in_place_is_finished_before_the_area_is_used_again() {
    let mut torn = 0;
    for seed in 0..40 {
        let disks = Disks::new(seed);
        let store = disks.store();
        store.store(&batch(&[1, 2, 3, 8], 1)).unwrap();
        disks.data.inject(Fault::FailWrites { after: 0 });
        assert!(matches!(store.store(&batch(&[1, 2, 8], 2)), Err(error) if error.is_io()));
        torn += [1, 2, 8]
            .iter()
            .filter(|id| matches!(store.load(PageId(**id), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_)))
            .count();
        // Still broken: the area must not be taken from the pages that need it.
        assert!(store.store(&batch(&[4], 3)).is_err());
        disks.data.clear_faults();
        if seed % 2 == 0 {
            store.store(&batch(&[4], 3)).unwrap();
        }
        disks.power_cut(&mut Random::with_seed(seed));
        let store = disks.store();
        store.recover().unwrap();
        for id in [1, 2, 8] {
            assert!((1..=2).contains(&version(&store, id)), "page {id} is whole");
        }
        assert_eq!(version(&store, 3), 1);
    }
    assert!(torn > 0, "some failed writes leave torn pages");
}

#[test]
fn a_double_write_area_of_another_database_is_left_alone() {
    let disks = Disks::new(1);
    disks.store().store(&batch(&[3], 1)).unwrap();
    disks.data.corrupt(3 * PAGE as u64 + 100, 1, |bytes| bytes[0] ^= 1);
    let other =
        InPlaceStore::with_double_write(disks.data.clone(), PAGE, disks.area.clone(), DATABASE + 1, SLOTS).unwrap();
    assert_eq!(other.recover().unwrap(), 0);
    assert_eq!(disks.store().recover().unwrap(), 1);
    assert_eq!(version(&disks.store(), 3), 1);
}

#[test]
fn the_file_grows_in_steps_until_the_disk_is_full() {
    let disks = Disks::new(1);
    let store = disks.store();
    store.grow().unwrap();
    assert_eq!(store.capacity_pages(), 2 * PAGES, "a small file doubles");
    while store.capacity_pages() < 8 * 256 {
        store.grow().unwrap();
    }
    let before = store.capacity_pages();
    store.grow().unwrap();
    let after = store.capacity_pages();
    assert!((before + 256..=before + before / 8 + 1).contains(&after), "a larger one by an eighth: {before}, {after}");
    assert_eq!(version(&store, after - 1), 0);
    disks.data.inject(Fault::NoSpaceOnGrow);
    assert!(matches!(store.grow(), Err(error) if error.kind() == ErrorKind::StoreFull));
    assert_eq!(store.capacity_pages(), after);
    store.store(&batch(&[after - 1], 9)).unwrap();
    assert_eq!(version(&store, after - 1), 9);
}

/// A file on a disk that has no more than so many bytes.
#[derive(Debug)]
struct OnSmallDisk(Arc<MemoryDevice>, u64);

impl Device for OnSmallDisk {
    tantalum_device::forward!(0: name, capacity_bytes, capabilities, hardware, read, write, submit, flush, discard);

    fn grow(&self, bytes: u64) -> tantalum_device::Result<()> {
        if bytes > self.1 { Err(Error::no_space(self.name(), self.1, bytes - self.1)) } else { self.0.grow(bytes) }
    }
}

#[test]
fn the_last_pages_of_a_nearly_full_disk_are_taken() {
    for (bytes, disk_bytes) in [(256 << 10, (300 << 10) + 5000), (64 << 20, (66 << 20) + 70_000)] {
        let data = Arc::new(OnSmallDisk(MemoryDevice::new("data", bytes), disk_bytes));
        let store = InPlaceStore::new(data, PAGE, Protection::FullPageImages, false).unwrap();
        while store.grow().is_ok() {}
        assert!(matches!(store.grow(), Err(error) if error.kind() == ErrorKind::StoreFull));
        let left = disk_bytes - store.capacity_pages() * PAGE as u64;
        assert!(left < (64 << 10) + PAGE as u64, "{left} bytes are left");
    }
}

#[test]
fn a_page_beyond_the_file_is_damage_not_an_absent_page() {
    let store = Disks::new(1).store();
    assert!(
        matches!(store.load(PageId(PAGES), &mut vec![0; PAGE]).unwrap(), Load::Damaged(what) if what.contains("end"))
    );
    assert!(matches!(store.load(PageId(u64::MAX), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_)));
}

#[test]
fn device_protection_needs_a_device_that_protects() {
    let disks = Disks::new(1);
    let refused = InPlaceStore::new(disks.data.clone(), PAGE, Protection::Device, false).unwrap_err();
    assert!(refused.to_string().contains("atomically"), "{refused}");
    InPlaceStore::new(disks.data.clone(), PAGE, Protection::Device, true).unwrap();
    assert!(InPlaceStore::with_double_write(disks.data.clone(), PAGE, MemoryDevice::new("small", 8192), 1, 1).is_err());
}

fn superblock(page_size: u32) -> Superblock {
    Superblock {
        database_id: 0x1234,
        log_id: 0x5678,
        page_size,
        store_kind: StoreKind::InPlace,
        units: None,
        double_write_slots: 8,
        segments: None,
        compressed_pages: false,
        lifetime_streams: false,
        protection: Protection::FullPageImages,
        session: None,
    }
}

#[test]
fn either_copy_of_the_superblock_is_enough() {
    for page_size in [4096, 8192, 16384] {
        let device = MemoryDevice::new("data", 1 << 20);
        assert_eq!(Superblock::read(&*device).unwrap(), None);
        superblock(page_size).write(&*device).unwrap();
        device.corrupt(u64::from(page_size) + 3, 1, |bytes| bytes[0] ^= 1);
        assert_eq!(Superblock::read(&*device).unwrap(), Some(superblock(page_size)));
        superblock(page_size).write(&*device).unwrap();
        device.corrupt(20, 1, |bytes| bytes[0] ^= 1);
        assert_eq!(Superblock::read(&*device).unwrap(), Some(superblock(page_size)));
        device.corrupt(u64::from(page_size) + 3, 1, |bytes| bytes[0] ^= 1);
        assert!(matches!(Superblock::read(&*device), Err(error) if error.kind() == ErrorKind::Corrupt));
    }
}

/// The power goes in the write after so many others, and leaves garbage where its first half was to be.
#[derive(Debug)]
pub(super) struct Cut(pub Arc<MemoryDevice>, pub AtomicU64);

impl Device for Cut {
    tantalum_device::forward!(0: name, capacity_bytes, capabilities, hardware, read, submit, flush, discard, grow);

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> tantalum_device::Result<()> {
        if self.1.fetch_sub(1, Ordering::Relaxed) > 0 {
            return self.0.write(offset, buffers, durability);
        }
        let mut part = buffers.concat();
        let half = part.len() / 2;
        part[..half].fill(0xee);
        self.0.write(offset, &[&part], durability)?;
        Err(Error::unsupported(self.name(), "write without power"))
    }
}

#[test]
fn one_copy_of_the_superblock_is_whole_after_any_power_cuts_in_a_row() {
    const CUTS: u64 = 5;
    for writes in 0..1 << CUTS {
        let device = MemoryDevice::new("data", 1 << 20);
        superblock(4096).write(&*device).unwrap();
        for cut in 0..CUTS {
            let next = Superblock { session: Some(cut), ..superblock(4096) };
            next.write(&Cut(device.clone(), AtomicU64::new(writes >> cut & 1))).unwrap_err();
            let found = Superblock::read(&*device).unwrap().expect("one copy is whole");
            assert_eq!(found.database_id, next.database_id);
        }
    }
}

#[test]
fn a_superblock_of_a_newer_version_is_named_as_such() {
    let mut block = superblock(4096).encode();
    block[8] = 5;
    assert!(matches!(Superblock::decode(&block), Err(NoSuperblock::Damaged(what)) if what.contains("version 5")));
}

#[test]
fn only_a_store_that_may_have_compressed_pages_is_refused_by_older_programs() {
    let plain = Superblock {
        store_kind: StoreKind::LogStructured,
        double_write_slots: 1,
        segments: Some(SegmentSizes { segment: 1 << 20, fill_percent: 80 }),
        ..superblock(4096)
    };
    let compressing = Superblock { compressed_pages: true, ..plain };
    assert_eq!((plain.encode()[8], compressing.encode()[8]), (1, 3));
    assert_eq!(Superblock::decode(&compressing.encode()), Ok(compressing));
    for superblock in [plain, compressing].map(|superblock| Superblock { lifetime_streams: true, ..superblock }) {
        assert_eq!((superblock.encode()[8], Superblock::decode(&superblock.encode())), (4, Ok(superblock)));
        let mut newer = superblock.encode();
        newer[60] |= 4;
        Superblock::repair_checksum(&mut newer);
        assert!(
            matches!(Superblock::decode(&newer), Err(NoSuperblock::Damaged(what)) if what.contains("does not know (bits 0x4)"))
        );
    }
    let in_place = Superblock { compressed_pages: true, segments: None, ..superblock(4096) };
    assert!(
        matches!(Superblock::decode(&in_place.encode()), Err(NoSuperblock::Damaged(what)) if what.contains("in-place"))
    );
}

#[test]
fn an_area_of_one_slot_leaves_the_superblock_as_it_always_was() {
    let old = Superblock { double_write_slots: 1, ..superblock(4096) };
    assert_eq!((old.encode()[8], superblock(4096).encode()[8]), (1, 2));
    assert_eq!(Superblock::decode(&old.encode()), Ok(old));
    let mut damaged = superblock(4096).encode();
    damaged[52] ^= 1;
    assert!(matches!(Superblock::decode(&damaged), Err(NoSuperblock::Damaged(what)) if what.contains("slots")));
}

#[test]
fn a_damaged_version_of_an_area_header_is_refused() {
    for (version, among_others) in [(1, None), (2, Some(AmongOthers { in_place_before: 0, checksums: Vec::new() }))] {
        let header =
            Header { database_id: 3, sequence: 0, page_size: 8192, ids: Vec::new(), among_others, session: None };
        let mut block = header.encode();
        assert_eq!(std::mem::replace(&mut block[8], 3 - version), version);
        assert_eq!(Header::decode(&block), None);
    }
}

proptest! {
    #[test]
    fn headers_survive_a_round_trip_and_refuse_damage(ids in prop::collection::btree_set(any::<u64>(), 0..=64), sequence: u64, in_place: u64, is_one_of_several: bool, at in 0..824usize, flip in 1..=255u8) {
        let ids: Vec<_> = ids.into_iter().map(PageId).collect();
        let checksums = ids.iter().map(|id| id.0 as u32).collect();
        let among_others = AmongOthers { in_place_before: in_place.min(sequence), checksums };
        let among_others = is_one_of_several.then_some(among_others);
        let header = Header { database_id: 3, sequence, page_size: 8192, ids, among_others, session: Some(4) };
        let mut block = header.encode();
        prop_assert_eq!(Header::decode(&block), Some(header));
        block[at] ^= flip;
        prop_assert_eq!(Header::decode(&block), None);
    }

    #[test]
    fn arbitrary_bytes_are_no_reason_to_panic(mut bytes in vec(any::<u8>(), 0..4200), magic: bool) {
        if magic && bytes.len() > 12 {
            bytes[..8].copy_from_slice(b"TNTLDBLW");
        }
        let _ = Header::decode(&bytes);
        if magic && bytes.len() > 12 {
            bytes[..8].copy_from_slice(b"TANTALUM");
        }
        let _ = Superblock::decode(&bytes);
    }
}

#[test]
fn a_sweep_shows_every_page_once_also_where_the_device_cannot_read() {
    let data = MemoryDevice::new("data", 200 * PAGE as u64);
    let store = InPlaceStore::new(data.clone(), PAGE, Protection::Device, true).unwrap();
    store.store(&batch(&[5, 100, 199], 3)).unwrap();
    data.write(70 * PAGE as u64, &[&[1; PAGE]], Durability::Durable).unwrap();
    let shown = |fault: Option<Fault>| {
        fault.into_iter().for_each(|fault| data.inject(fault));
        let (mut shown, mut told) = (Vec::new(), Vec::new());
        let report = &mut |done, total| told.push((done, total));
        sweep(&store, report, |id, load, page| {
            if matches!(load, Ok(Load::Page)) {
                assert_eq!((header::verify(page, id), header::lsn(page)), (Ok(()), Lsn::new(3)));
            }
            shown.push((id.0, load.ok()));
            Ok::<(), Error>(())
        })
        .unwrap();
        assert!(told.is_sorted() && told.last() == Some(&(200 * PAGE as u64, 200 * PAGE as u64)));
        data.clear_faults();
        assert!(shown.iter().map(|shown| shown.0).eq(Superblock::PAGES..200));
        shown.into_iter().map(|shown| shown.1).collect::<Vec<_>>()
    };
    let all = shown(None);
    let at = |id: u64| all[(id - Superblock::PAGES) as usize].clone().unwrap();
    assert!([5, 100, 199].into_iter().all(|id| at(id) == Load::Page));
    assert!(matches!(at(70), Load::Damaged(_)) && at(71) == Load::NeverWritten);
    // The first run is read, and no page behind it.
    assert!(shown(Some(Fault::FailReads { after: 1 }))[64..].iter().all(Option::is_none));
}
