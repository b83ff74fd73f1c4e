//! The log-structured store with the power going at the worst time: inside appends, cleaning, checkpoints of the map and opening.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_device::{Device, Durability, Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{Random, Simulation};

use super::{
    LogStructuredStats, LogStructuredStore,
    layout::{BLOCK_BYTES, Layout, Place},
    maintenance::Maintenance,
    streams::PageStreams,
    summary::{Entry, Stream, Summary},
};
use crate::{
    ErrorKind, Load, MetadataWrites, PageCompression, PageId, PageStore, SegmentSizes, StoreOptions, Superblock,
    page::header,
    tests::{PAGE, batch, page},
};

pub(super) const DATABASE: u128 = 7;
/// Eight pages in a segment; so few segments that every one is cleaned again and again.
pub(super) const SIZES: SegmentSizes = SegmentSizes { segment: 9 * PAGE as u32, fill_percent: 60 };
pub(super) const SEGMENTS: u32 = 60;

pub(super) fn layout() -> Layout {
    let device = MemoryDevice::new("any", 4 << 20);
    Layout::new(&*device, PAGE, SIZES).unwrap()
}

/// One that takes no time.
fn device() -> Arc<MemoryDevice> {
    device_of(SEGMENTS, MemoryProfile::default())
}

fn slow_device(segments: u32, seed: u64) -> Arc<MemoryDevice> {
    let profile = MemoryProfile {
        write_latency: Duration::from_micros(20)..Duration::from_micros(200),
        flush_latency: Duration::from_micros(50)..Duration::from_micros(300),
        seed,
        ..MemoryProfile::default()
    };
    device_of(segments, profile)
}

pub(super) fn device_of(segments: u32, profile: MemoryProfile) -> Arc<MemoryDevice> {
    let device = MemoryDevice::with_profile("data", layout().device_bytes(segments), profile);
    LogStructuredStore::format(&*device, PAGE, SIZES, DATABASE).unwrap();
    device
}

fn store_with(device: &Arc<MemoryDevice>, options: StoreOptions) -> LogStructuredStore {
    let store = LogStructuredStore::new(device.clone(), PAGE, SIZES, DATABASE, options).unwrap();
    store.recover().unwrap();
    store
}

pub(super) fn store(device: &Arc<MemoryDevice>) -> LogStructuredStore {
    compressed_store(device, PageCompression::None)
}

pub(super) fn compressed_store(device: &Arc<MemoryDevice>, compression: PageCompression) -> LogStructuredStore {
    store_with(device, StoreOptions { discards: true, compression, ..StoreOptions::default() })
}

/// Segments of a device on which pages are kept apart by lifetime.
const MANY_SEGMENTS: u32 = 90;

fn store_of(device: &Arc<MemoryDevice>, page_streams: PageStreams, compression: PageCompression) -> LogStructuredStore {
    store_with(device, StoreOptions { discards: true, compression, page_streams, ..StoreOptions::default() })
}

/// The version of a page; 0 if it was never stored.
pub(super) fn version(store: &LogStructuredStore, id: u64) -> u64 {
    let mut found = vec![0xee; PAGE];
    match store.load(PageId(id), &mut found).unwrap() {
        Load::NeverWritten => {
            assert!(found.iter().all(|byte| *byte == 0));
            0
        }
        Load::Page => {
            let version = header::lsn(&found).get();
            assert_eq!(found[header::HEADER_BYTES..], page(PageId(id), version)[header::HEADER_BYTES..]);
            version
        }
        Load::Damaged(what) => panic!("page {id}: {what}"),
    }
}

pub(super) fn check(store: &LogStructuredStore) {
    let mut problems = Vec::new();
    store.check(&mut |problem| problems.push(problem)).unwrap();
    assert_eq!(problems, Vec::<String>::new());
}

pub(super) fn counts(store: &LogStructuredStore) -> LogStructuredStats {
    store.stats().log_structured.expect("it is such a store")
}

#[test]
fn a_power_cut_leaves_every_page_old_or_new() {
    let mut total = LogStructuredStats::default();
    for seed in 0..30 {
        let device = slow_device(if seed % 2 == 0 { SEGMENTS } else { MANY_SEGMENTS }, seed);
        let pages = store(&device).capacity_pages();
        let versions = || -> Arc<Vec<AtomicU64>> { Arc::new((0..pages).map(|_| AtomicU64::new(0)).collect()) };
        // The versions that each page may have: what was acknowledged, and what was tried.
        let (stored, tried) = (versions(), versions());
        let mut random = Random::with_seed(seed);
        let has_hot_pages = random.bool();
        for life in 0..8 {
            let (device_then, stored_then, tried_then) = (device.clone(), Arc::clone(&stored), Arc::clone(&tried));
            let compression = *random.choice(&PageCompression::ALL).unwrap();
            let page_streams = *random.choice(&PageStreams::ALL).unwrap();
            let cut_at = Duration::from_micros(random.u64(1..60_000));
            let tasks = random.u64(1..4);
            let seen = Arc::new(tantalum_rt::Mutex::new(LogStructuredStats::default()));
            let seen_then = Arc::clone(&seen);
            let outcome = Simulation::new(seed * 100 + life).run(move || {
                tantalum_rt::spawn("power", move || {
                    tantalum_rt::sleep(cut_at);
                    tantalum_rt::power_cut()
                });
                let store = Arc::new(store_of(&device_then, page_streams, compression));
                check(&store);
                for id in 0..pages {
                    let version = version(&store, id);
                    assert!(version >= stored_then[id as usize].load(Ordering::Relaxed), "page {id} is lost");
                    assert!(version <= tried_then[id as usize].load(Ordering::Relaxed), "page {id} is from nowhere");
                    stored_then[id as usize].store(version, Ordering::Relaxed);
                }
                let tasks: Vec<_> = (0..tasks)
                    .map(|task| {
                        let (store, stored, tried) =
                            (Arc::clone(&store), Arc::clone(&stored_then), Arc::clone(&tried_then));
                        let seen = Arc::clone(&seen_then);
                        tantalum_rt::spawn(format!("task-{task}"), move || {
                            let mut dice = Random::with_seed(seed * 1000 + life * 10 + task);
                            for version in (life * 1_000_000 + 1).. {
                                // Each task has pages of its own; some are stored far more often than others.
                                let is_hot = has_hot_pages && dice.u8(0..8) > 0;
                                let range = if is_hot { 0..pages / 8 } else { 0..pages };
                                let wanted = dice.usize(1..12);
                                let mut ids: Vec<u64> = (0..wanted)
                                    .map(|_| dice.u64(range.clone()) / tasks * tasks + task)
                                    .filter(|id| *id < pages)
                                    .collect();
                                ids.sort_unstable();
                                ids.dedup();
                                ids.iter().for_each(|id| tried[*id as usize].store(version, Ordering::Relaxed));
                                store.store(&batch(&ids, version)).unwrap();
                                for id in &ids {
                                    stored[*id as usize].store(version, Ordering::Relaxed);
                                }
                                if let Some(id) = ids.first() {
                                    assert_eq!(self::version(&store, *id), version);
                                }
                                if version % 64 == 0 {
                                    check(&store);
                                    *seen.lock() = counts(&store);
                                }
                            }
                        })
                    })
                    .collect();
                tasks.into_iter().for_each(|task| task.join().unwrap());
            });
            assert!(outcome.finished().is_none(), "it writes until the power goes");
            device.power_cut(&mut random);
            let seen = *seen.lock();
            total.pages_moved += seen.pages_moved;
            total.checkpoints += seen.checkpoints;
            total.waits += seen.waits;
            total.page_streams += seen.page_streams / 6;
        }
    }
    assert!(total.pages_moved > 1000 && total.checkpoints > 300 && total.page_streams > 5, "{total:?}");
}

#[test]
fn what_was_stored_is_found_after_an_orderly_end_without_following_appends() {
    let device = device();
    let first = store(&device);
    first.store(&batch(&[3, 9, 20], 5)).unwrap();
    assert_eq!((version(&first, 3), version(&first, 4)), (5, 0));
    first.close();
    drop(first);
    let again = store(&device);
    assert_eq!([3, 9, 20, 4].map(|id| version(&again, id)), [5, 5, 5, 0]);
    assert_eq!(counts(&again).appends_rolled_forward, 0);
    again.store(&batch(&[9], 6)).unwrap();
    drop(again);
    let third = store(&device);
    assert_eq!([3, 9, 20, 4].map(|id| version(&third, id)), [5, 6, 5, 0]);
    assert_eq!(counts(&third).appends_rolled_forward, 1);
}

#[test]
fn a_full_store_is_cleaned_for_ever() {
    let [plain, compressed] = PageCompression::ALL.map(clean_a_full_store);
    assert_eq!(plain.bytes_stored, plain.pages_stored * PAGE as u64);
    assert_eq!(plain.bytes_loaded, plain.pages_loaded * PAGE as u64);
    // Half of a page is random bytes, on average.
    let (stored, read) = (compressed.stored_share(PAGE as u32).unwrap(), compressed.bytes_loaded);
    assert!((0.5..0.65).contains(&stored), "{stored}");
    let (least, most) = (compressed.pages_loaded * PAGE as u64 / 2, 3 * compressed.pages_loaded * PAGE as u64 / 2);
    assert!((least..most).contains(&read), "{read} bytes for {} pages", compressed.pages_loaded);
    // An append of one page takes a block however short the page is.
    assert!(2 * compressed.segments_cleaned < plain.segments_cleaned, "{plain:?} and {compressed:?}");
}

fn clean_a_full_store(compression: PageCompression) -> LogStructuredStats {
    let device = device();
    let store = compressed_store(&device, compression);
    let pages = store.capacity_pages();
    for first in (0..pages).step_by(40) {
        store.store(&batch(&(first..(first + 40).min(pages)).collect::<Vec<_>>(), 1)).unwrap();
    }
    let mut random = Random::with_seed(2);
    let mut newest = vec![1; pages as usize];
    for round in 2..4000 {
        let id = random.u64(0..pages);
        store.store(&batch(&[id], round)).unwrap();
        newest[id as usize] = round;
    }
    check(&store);
    for id in 0..pages {
        assert_eq!(version(&store, id), newest[id as usize], "page {id}");
    }
    let counts = counts(&store);
    assert!(counts.segments_cleaned > 100 && counts.pages_moved > 0, "{counts:?}");
    let mut run = vec![0; pages as usize * PAGE];
    assert!(store.load_run(PageId(0), &mut run).unwrap().iter().all(|load| *load == Load::Page));
    let versions: Vec<u64> = run.chunks(PAGE).map(|page| header::lsn(page).get()).collect();
    assert_eq!(versions, newest);
    counts
}

#[test]
fn what_was_stored_in_one_way_is_read_and_moved_in_the_other() {
    let device = device();
    let mut newest = vec![0; store(&device).capacity_pages() as usize];
    let mut random = Random::with_seed(3);
    for (life, compression) in
        [PageCompression::Lz4, PageCompression::None, PageCompression::Lz4].into_iter().enumerate()
    {
        let store = compressed_store(&device, compression);
        check(&store);
        for (id, newest) in newest.iter().enumerate() {
            assert_eq!(version(&store, id as u64), *newest, "page {id}");
        }
        for round in 0..3000 {
            let (id, version) = (random.usize(..newest.len()), life as u64 * 10_000 + round + 1);
            store.store(&batch(&[id as u64], version)).unwrap();
            newest[id] = version;
        }
        assert!(counts(&store).segments_cleaned > 0);
        check(&store);
    }
    check(&store(&device));
}

#[test]
fn pages_that_rarely_change_are_moved_less_often_than_chance_would() {
    // A tenth of the pages gets nine of ten stores.
    let moved = |hot_percent: u64, page_streams: PageStreams| {
        // In a simulation, so that the cleaner gets its turns.
        let run = move || {
            let device = device_of(400, MemoryProfile::default());
            let store = store_of(&device, page_streams, PageCompression::None);
            let pages = store.capacity_pages();
            let mut random = Random::with_seed(3);
            for first in (0..pages).step_by(40) {
                store.store(&batch(&(first..(first + 40).min(pages)).collect::<Vec<_>>(), 1)).unwrap();
            }
            for round in 2..20_000 {
                let id =
                    if random.u64(0..100) < hot_percent { random.u64(0..pages / 10) } else { random.u64(0..pages) };
                store.store(&batch(&[id], round)).unwrap();
            }
            counts(&store).pages_moved
        };
        Simulation::new(hot_percent).run(run).expect_finished()
    };
    for page_streams in [PageStreams::Two, PageStreams::ByLifetime] {
        let (skewed, even) = (moved(90, page_streams), moved(0, page_streams));
        assert!(skewed * 4 < even * 3, "{skewed} pages moved, and {even} without hot ones; streams {page_streams}");
    }
}

#[test]
fn with_one_stream_moved_pages_go_behind_new_ones() {
    for seed in 0..10 {
        let run = move || {
            let device = slow_device(SEGMENTS, seed);
            let store = store_of(&device, PageStreams::One, PageCompression::None);
            let pages = store.capacity_pages();
            let mut newest = vec![1; pages as usize];
            for first in (0..pages).step_by(40) {
                store.store(&batch(&(first..(first + 40).min(pages)).collect::<Vec<_>>(), 1)).unwrap();
            }
            let mut random = Random::with_seed(seed);
            for round in 2..2000 {
                let id = random.u64(0..pages);
                store.store(&batch(&[id], round)).unwrap();
                newest[id as usize] = round;
            }
            (0..pages).for_each(|id| assert_eq!(version(&store, id), newest[id as usize], "page {id}"));
            check(&store);
            let found = counts(&store);
            assert!(found.pages_moved > 500 && found.page_streams == 1, "{found:?}");
            let of_moved_pages = store.shared.table.read().streams.pages[Stream::Cold.number()];
            assert_eq!((of_moved_pages.block, of_moved_pages.after), (0, 0), "nothing goes there");
        };
        Simulation::new(seed).run(run).expect_finished();
    }
}

#[test]
fn an_append_that_failed_is_made_again_elsewhere() {
    for seed in 0..20 {
        let device = device();
        let first = store(&device);
        first.store(&batch(&[1, 2, 3], 1)).unwrap();
        device.inject(Fault::FailWrites { after: seed % 3 });
        let failed = (2..).find(|version| first.store(&batch(&[1, 2], *version)).is_err()).unwrap();
        assert!(first.store(&batch(&[3], failed + 1)).is_err(), "nothing is stored behind it");
        device.clear_faults();
        let is_stored = first.store(&batch(&[3], failed + 2)).is_ok();
        drop(first);
        device.power_cut(&mut Random::with_seed(seed));
        let again = store(&device);
        for id in [1, 2] {
            assert!((failed - 1..=failed).contains(&version(&again, id)), "page {id}");
        }
        let found = version(&again, 3);
        assert!(if is_stored { found == failed + 2 } else { found == 1 || found == failed + 1 }, "{found}");
    }
}

#[test]
fn a_stream_is_used_when_a_durable_root_names_it() {
    for (writes, is_durable) in [(Some(0), false), (Some(1), false), (None, true)] {
        let device = device();
        let first = store_of(&device, PageStreams::ByLifetime, PageCompression::None);
        first.store(&batch(&[1, 2, 3], 1)).unwrap();
        assert_eq!(counts(&first).page_streams, 2);
        while counts(&first).segments < u64::from(MANY_SEGMENTS) {
            first.grow().unwrap();
        }
        // A checkpoint adds streams, if it is not cut off in the map's blocks or in the root.
        if let Some(after) = writes {
            device.inject(Fault::FailWrites { after });
        }
        assert_eq!(Maintenance::begin(&first.shared).checkpoint().is_ok(), is_durable);
        device.clear_faults();
        assert_eq!(counts(&first).page_streams, if is_durable { 6 } else { 2 });
        // Of these nothing is known, so they are expected to last.
        first.store(&batch(&[4, 5], 2)).unwrap();
        drop(first);
        device.power_cut(&mut Random::with_seed(1));
        let again = store_of(&device, PageStreams::ByLifetime, PageCompression::None);
        assert_eq!([1, 2, 3, 4, 5].map(|id| version(&again, id)), [1, 1, 1, 2, 2]);
        check(&again);
    }
}

#[test]
fn either_slot_of_the_root_is_enough() {
    for slot in 0..2 {
        let device = device();
        let first = store(&device);
        first.store(&batch(&[4, 5], 9)).unwrap();
        first.close();
        drop(first);
        device.corrupt(layout().slot_at(slot) + 20, 1, |bytes| bytes[0] ^= 1);
        assert_eq!(version(&store(&device), 5), 9);
        device.corrupt(layout().slot_at(1 - slot) + 20, 1, |bytes| bytes[0] ^= 1);
        let store = LogStructuredStore::new(device, PAGE, SIZES, DATABASE, StoreOptions::default()).unwrap();
        assert!(matches!(store.recover(), Err(error) if error.kind() == ErrorKind::Corrupt));
    }
}

/// Appends in the order in which they were made, with the places of their summaries.
fn appends(device: &Arc<MemoryDevice>) -> Vec<(u64, Summary)> {
    let mut found = Vec::new();
    for segment in 0..SEGMENTS {
        for block in 0..layout().segment_blocks() {
            let at = layout().place(segment, block).offset();
            let mut bytes = vec![0; PAGE];
            device.read(at, &mut bytes).unwrap();
            found.extend(Summary::decode(&bytes, DATABASE, layout().page_units()).map(|summary| (at, summary)));
        }
    }
    found.sort_by_key(|(_, summary)| summary.sequence);
    found
}

/// Where a page of an append is stored.
fn page_in((at, append): &(u64, Summary), page: u64) -> u64 {
    let is_it = |entry: &Entry| matches!(entry, Entry::Page { id, .. } if id.0 == page);
    let mut extents = append.extents(Place(at / BLOCK_BYTES as u64));
    extents.find(|(_, entry)| is_it(entry)).unwrap().0.offset()
}

#[test]
fn damage_is_not_taken_for_the_end_of_a_stream() {
    PageCompression::ALL.into_iter().for_each(damage_appends);
}

fn damage_appends(compression: PageCompression) {
    let made = || {
        let device = device();
        let store = compressed_store(&device, compression);
        (1..6).for_each(|version| store.store(&batch(&[1, version + 1], version)).unwrap());
        drop(store);
        let appends = appends(&device);
        (device, appends)
    };
    let flip = |device: &MemoryDevice, at: u64| device.corrupt(at, 1, |bytes| bytes[0] ^= 1);
    // A page in the middle is damaged, and found to be.
    let (device, found) = made();
    flip(&device, page_in(&found[found.len() - 2], 5) + 5);
    let damaged = store(&device);
    assert_eq!(version(&damaged, 1), 5);
    assert!(matches!(damaged.load(PageId(5), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_)));
    // So is a summary: what it spoke of cannot be known, so nothing is given out.
    let (device, found) = made();
    flip(&device, found[found.len() - 2].0 + 50);
    let damaged = LogStructuredStore::new(device, PAGE, SIZES, DATABASE, StoreOptions::default()).unwrap();
    let refused = damaged.recover().unwrap_err();
    assert!(refused.to_string().contains("summary"), "{refused}");
    // The last append of all may be one that was under way.
    for page in [1, 6] {
        let (device, found) = made();
        flip(&device, page_in(&found[found.len() - 1], page) + 5);
        let torn = store(&device);
        assert_eq!([1, 5, 6].map(|id| version(&torn, id)), [4, 4, 0]);
    }
}

#[test]
fn all_of_a_long_segment_is_looked_through_for_appends_behind_a_damaged_one() {
    let sizes = SegmentSizes { segment: 1 << 20, fill_percent: 60 };
    let device = MemoryDevice::new("data", sizes.initial_bytes(PAGE));
    LogStructuredStore::format(&*device, PAGE, sizes, DATABASE).unwrap();
    let open = || LogStructuredStore::new(device.clone(), PAGE, sizes, DATABASE, StoreOptions::default()).unwrap();
    let store = open();
    store.recover().unwrap();
    (1..100).for_each(|version| store.store(&batch(&[version], version)).unwrap());
    drop(store);
    let found = appends(&device);
    let (first, last) = (found.len() - 80, found.len() - 1);
    assert_eq!(found[first].1.segment, found[last].1.segment);
    for (at, _) in &found[first..last] {
        device.corrupt(at + 50, 1, |bytes| bytes[0] ^= 1);
    }
    let refused = open().recover().unwrap_err().to_string();
    assert!(refused.contains(&format!("append {} follows", found[last].1.sequence)), "{refused}");
}

#[test]
fn a_page_that_cannot_be_read_keeps_its_segment() {
    PageCompression::ALL.into_iter().for_each(keep_a_page_that_cannot_be_read);
}

fn keep_a_page_that_cannot_be_read(compression: PageCompression) {
    let device = device();
    let store = compressed_store(&device, compression);
    let pages = store.capacity_pages();
    store.store(&batch(&[0, 1], 1)).unwrap();
    let (at, _) = appends(&device).pop().unwrap();
    device.corrupt(at + PAGE as u64 + 5, 1, |bytes| bytes[0] ^= 1);
    let mut random = Random::with_seed(7);
    for round in 2..4000 {
        store.store(&batch(&[random.u64(2..pages)], round)).unwrap();
    }
    assert!(matches!(store.load(PageId(0), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_)));
    assert_eq!((version(&store, 1), counts(&store).stuck_segments), (1, 1));
    check(&store);
}

#[test]
fn a_file_grows_and_a_full_disk_is_told_before_anything_is_lost() {
    let device = device();
    let store = store(&device);
    let before = store.capacity_pages();
    store.store(&batch(&[before - 1], 1)).unwrap();
    device.inject(Fault::NoSpaceOnGrow);
    assert!(matches!(store.grow(), Err(error) if error.kind() == ErrorKind::StoreFull));
    assert_eq!(store.capacity_pages(), before);
    device.clear_faults();
    store.grow().unwrap();
    let after = store.capacity_pages();
    assert!(after > before);
    store.store(&batch(&[before, after - 1], 2)).unwrap();
    drop(store);
    let store = self::store(&device);
    assert_eq!([before - 1, before, after - 1].map(|id| version(&store, id)), [1, 2, 2]);
    assert!(matches!(store.load(PageId(after), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_)));
}

#[test]
fn the_remains_of_another_database_are_not_followed() {
    let device = device();
    let first = store(&device);
    (1..300).for_each(|version| first.store(&batch(&[version % 50], version)).unwrap());
    drop(first);
    LogStructuredStore::format(&*device, PAGE, SIZES, DATABASE + 1).unwrap();
    let other = LogStructuredStore::new(device.clone(), PAGE, SIZES, DATABASE + 1, StoreOptions::default()).unwrap();
    other.recover().unwrap();
    assert_eq!(version(&other, 5), 0);
    other.store(&batch(&[5], 7)).unwrap();
    drop(other);
    let again = LogStructuredStore::new(device, PAGE, SIZES, DATABASE + 1, StoreOptions::default()).unwrap();
    again.recover().unwrap();
    assert_eq!((version(&again, 5), version(&again, 6)), (7, 0));
}

#[test]
fn formatting_leaves_the_superblocks_own_place_alone() {
    let device = MemoryDevice::new("data", layout().device_bytes(SEGMENTS));
    device.write(0, &[&[9; 8192]], Durability::Durable).unwrap();
    LogStructuredStore::format(&*device, PAGE, SIZES, DATABASE).unwrap();
    let mut bytes = vec![0; 2 * PAGE];
    device.read(0, &mut bytes).unwrap();
    let (own, copy) = bytes.split_at(Superblock::BYTES);
    assert!(own.iter().all(|byte| *byte == 9) && copy.iter().all(|byte| *byte == 0));
}

#[test]
fn nilfs2_writes_about_twice_as_much() {
    let written = |metadata_writes| {
        let device = device();
        let store = store_with(&device, StoreOptions { metadata_writes, ..StoreOptions::default() });
        let pages = store.capacity_pages();
        let mut random = Random::with_seed(10);
        for version in 1..200 {
            let first = random.u64(0..pages - 4);
            store.store(&batch(&[first, first + 1, first + 2, first + 3], version)).unwrap();
        }
        check(&store);
        let counts = counts(&store);
        (counts.bytes_written - counts.map_bytes_written, counts.filler_bytes_written)
    };
    let (own, none) = written(MetadataWrites::Own);
    let (nilfs2, filler) = written(MetadataWrites::Nilfs2);
    assert_eq!(none, 0);
    assert!(filler > 0 && nilfs2 > own + filler / 2, "{own} and {nilfs2} bytes, {filler} of them metadata");
}

#[test]
fn a_segment_shows_what_is_in_it() {
    let device = device();
    let store = store(&device);
    store.store(&batch(&[3, 4], 1)).unwrap();
    store.store(&batch(&[4], 2)).unwrap();
    let open = (0..SEGMENTS).map(|segment| store.inspect_segment(segment).unwrap().unwrap());
    let open: Vec<_> = open.filter(|found| found.state == "open" && !found.appends.is_empty()).collect();
    let [segment] = &open[..] else { panic!("{open:?}") };
    assert_eq!(segment.live_blocks, 2);
    let live: Vec<(u64, u64, bool)> = segment
        .appends
        .iter()
        .flat_map(|append| &append.entries)
        .map(|entry| (entry.number, entry.lsn.unwrap(), entry.is_live))
        .collect();
    assert_eq!(live, [(3, 1, true), (4, 1, false), (4, 2, true)]);
    assert!(matches!(store.inspect_segment(SEGMENTS), Err(error) if error.kind() == ErrorKind::InvalidInput));
}

#[test]
fn that_there_is_no_room_is_believed_only_until_something_is_stored() {
    let run = || {
        let store = Arc::new(store(&device()));
        store.store(&batch(&[0, 1, 2], 1)).unwrap();
        let shared = Arc::clone(&store.shared);
        // Nothing is cleaned meanwhile. The cleaner came to its conclusion before what is stored now.
        let maintenance = shared.maintenance.lock();
        shared.table.write().note_exhausted();
        let storing = tantalum_rt::spawn("storing", {
            let store = Arc::clone(&store);
            move || (2..600).try_for_each(|version| store.store(&batch(&[version % 50], version)))
        });
        tantalum_rt::sleep(Duration::from_secs(1));
        drop(maintenance);
        storing.join().unwrap().unwrap();
        check(&store);
    };
    Simulation::new(1).run(run).expect_finished();
}

/// A device on which the cleaner is kept waiting, as by a busy machine, while others write at once, or wait as well.
#[derive(Debug)]
struct SlowForTheCleaner {
    device: Arc<MemoryDevice>,
    waits: tantalum_rt::Mutex<Random>,
    is_slow_for_all: bool,
}

impl SlowForTheCleaner {
    fn wait(&self) {
        if self.is_slow_for_all || tantalum_rt::task_name() == "tantalum-segment-cleaner" {
            let us = self.waits.lock().u64(0..5000);
            tantalum_rt::sleep(Duration::from_micros(us));
        }
    }
}

impl Device for SlowForTheCleaner {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware, submit, flush, discard, grow);

    fn read(&self, offset: u64, buffer: &mut [u8]) -> tantalum_device::Result<()> {
        self.wait();
        self.device.read(offset, buffer)
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> tantalum_device::Result<()> {
        self.wait();
        self.device.write(offset, buffers, durability)
    }
}

#[test]
fn room_that_cleaning_can_make_is_never_said_to_be_missing() {
    for seed in 0..12 {
        let run = move || {
            let mut random = Random::with_seed(seed);
            let device = device();
            let slow = SlowForTheCleaner {
                device: Arc::clone(&device),
                waits: tantalum_rt::Mutex::new(Random::with_seed(seed)),
                is_slow_for_all: seed % 2 == 1,
            };
            let store =
                LogStructuredStore::new(Arc::new(slow), PAGE, SIZES, DATABASE, StoreOptions::default()).unwrap();
            store.recover().unwrap();
            let pages = store.capacity_pages();
            store.store(&batch(&[0, 1], 1)).unwrap();
            if random.bool() {
                let (at, _) = appends(&device).pop().unwrap();
                device.corrupt(at + PAGE as u64 + 99, 1, |bytes| bytes[0] ^= 1);
            }
            let hot_percent = *random.choice(&[0, 50, 90]).unwrap();
            let most = *random.choice(&[2, 2, 12, 40]).unwrap();
            for version in 2..2000 {
                let mut ids: Vec<u64> = (0..random.u64(1..most))
                    .map(|_| {
                        let is_hot = random.u64(0..100) < hot_percent;
                        random.u64(2..if is_hot { pages / 10 } else { pages })
                    })
                    .collect();
                ids.sort_unstable();
                ids.dedup();
                let stored = store.store(&batch(&ids, version));
                stored.unwrap_or_else(|error| panic!("seed {seed}: {error}, {:?}", counts(&store)));
            }
            check(&store);
        };
        Simulation::new(seed).run(run).expect_finished();
    }
}

/// A write after the close could overwrite what another store, which has opened the device since, wrote there.
#[test]
fn a_closed_store_takes_no_pages_and_cleans_no_more() {
    let device = device();
    let store = store_with(&device, StoreOptions::default());
    store.store(&batch(&[5], 1)).unwrap();
    store.close();
    let image = device.image();
    assert!(matches!(store.store(&batch(&[5], 2)), Err(error) if error.kind() == ErrorKind::Closed));
    assert!(image == device.image());
}
