//! The log-structured store on a drive with zones: which write comes where, and the power going at any time.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum_device::{Device, Error, MemoryLimit, Overlay};
use tantalum_flash::{EmulatedDevice, Kind, Profile, ssd::Zoning};
use tantalum_rt::{Random, Simulation};

use super::{
    LogStructuredStore,
    layout::Layout,
    streams::PageStreams,
    tests::{DATABASE, check, counts, version},
};
use crate::{
    ErrorKind, PageCompression, PageStore, Protection, SegmentSizes, StoreDevices, StoreKind, StoreOptions, Superblock,
    tests::{PAGE, batch},
};

/// Eight pages of flash of two blocks each.
const SIZES: SegmentSizes = SegmentSizes { segment: 64 << 10, fill_percent: 60 };
const CONVENTIONAL: u64 = 64 << 10;
/// Enough for pages to be kept apart by lifetime.
const ZONES: u64 = 90;
/// As many as the store needs.
const MAX_ACTIVE: u32 = 3;

fn profile(max_active: u32) -> Profile {
    let zones = ZONES * u64::from(SIZES.segment);
    let mut profile = Profile::named("nvme-zns").unwrap().with_capacity(CONVENTIONAL + zones);
    let Kind::SolidState(drive) = &mut profile.device else { unreachable!("it is a solid-state drive") };
    (drive.geometry.channels, drive.geometry.packages_per_channel) = (2, 1);
    (drive.geometry.pages_per_block, drive.geometry.page_bytes) = (8, 8192);
    (drive.cache.pool_bytes, drive.interface.max_command_bytes) = (256 << 10, 64 << 10);
    drive.zones = Some(Zoning { conventional_bytes: CONVENTIONAL, blocks: 1, max_active });
    profile
}

fn device_of(profile: &Profile) -> Arc<EmulatedDevice> {
    EmulatedDevice::new("zns", profile.build().unwrap())
}

fn formatted(profile: &Profile) -> Arc<EmulatedDevice> {
    let device = device_of(profile);
    LogStructuredStore::format(&*device, PAGE, SIZES, DATABASE).unwrap();
    device
}

fn store_on(device: Arc<dyn Device>, page_streams: PageStreams, compression: PageCompression) -> LogStructuredStore {
    let options = StoreOptions { compression, page_streams, ..StoreOptions::default() };
    let store = LogStructuredStore::new(device, PAGE, SIZES, DATABASE, options).unwrap();
    store.recover().unwrap();
    store
}

fn simulated<T: Send + 'static>(seed: u64, run: impl FnOnce() -> T + Send + 'static) -> T {
    Simulation::new(seed).run(run).expect_finished()
}

#[test]
fn a_full_store_is_cleaned_for_ever_and_flash_is_written_once() {
    for page_streams in PageStreams::ALL {
        simulated(1, move || {
            let device = formatted(&profile(7));
            let mut newest = Vec::new();
            let mut random = Random::with_seed(2);
            for life in 0..3 {
                let store = store_on(device.clone(), page_streams, PageCompression::None);
                newest.resize(store.capacity_pages() as usize, 0);
                for (id, newest) in newest.iter().enumerate() {
                    assert_eq!(version(&store, id as u64), *newest, "page {id}");
                }
                for round in 1..2500 {
                    let (id, version) = (random.usize(..newest.len()), life * 10_000 + round);
                    store.store(&batch(&[id as u64], version)).unwrap();
                    newest[id] = version;
                    assert!(device.active_zones().unwrap().len() <= 7);
                }
                check(&store);
                let counts = counts(&store);
                assert!(counts.segments_cleaned > 20 && counts.pages_moved > 0, "{counts:?}");
                store.close();
            }
            let counters = device.counters();
            assert_eq!(counters.gc_copies, 0, "{counters:?}");
            assert!(counters.zone_resets > 100, "{counters:?}");
            // The root's slots are overwritten, and of a zone that is finished a page may be half full.
            let extra = counters.media_written_bytes.abs_diff(counters.host_written_bytes);
            assert!(32 * extra < counters.host_written_bytes, "{counters:?}");
        });
    }
}

#[test]
fn streams_are_as_many_as_zones_may_be_partly_written() {
    for (max_active, streams) in [(3, 2), (5, 4), (7, 6), (14, 6)] {
        let device = device_of(&profile(max_active));
        let layout = Layout::new(&*device, PAGE, SIZES).unwrap();
        assert_eq!(layout.page_streams(ZONES as u32), streams, "{max_active}");
    }
    simulated(1, || {
        let device = formatted(&profile(5));
        let store = store_on(device.clone(), PageStreams::ByLifetime, PageCompression::None);
        let (pages, mut random) = (store.capacity_pages(), Random::with_seed(5));
        for round in 1..4000 {
            store.store(&batch(&[random.u64(0..pages) / 3], round)).unwrap();
            assert!(device.active_zones().unwrap().len() <= 5);
        }
        check(&store);
        assert_eq!(counts(&store).page_streams, 4);
    });
}

#[test]
fn a_power_cut_leaves_every_page_old_or_new() {
    let (mut moved, mut resets, mut finishes) = (0, 0, 0);
    for seed in 0..25 {
        let mut random = Random::with_seed(seed);
        let max_active = random.u32(MAX_ACTIVE..8);
        // Of a few pages that are stored again and again, whole segments die between two roots.
        let has_hot_pages = random.bool();
        let device = simulated(seed, move || formatted(&profile(max_active)));
        let pages = Layout::new(&*device, PAGE, SIZES).unwrap().capacity_pages(ZONES as u32);
        let versions = || -> Arc<Vec<AtomicU64>> { Arc::new((0..pages).map(|_| AtomicU64::new(0)).collect()) };
        let (stored, tried) = (versions(), versions());
        let mut start = Duration::from_secs(1);
        for life in 0..8 {
            let (device_then, stored_then, tried_then) = (device.clone(), Arc::clone(&stored), Arc::clone(&tried));
            let compression = *random.choice(&PageCompression::ALL).unwrap();
            let page_streams = *random.choice(&PageStreams::ALL).unwrap();
            let cut_at = Duration::from_micros(random.u64(1..400_000));
            let seen = Arc::new(AtomicU64::new(0));
            let seen_then = Arc::clone(&seen);
            let outcome = Simulation::new(seed * 100 + life).start_at(start).run(move || {
                device_then.power_on().unwrap();
                tantalum_rt::spawn("power", move || {
                    tantalum_rt::sleep(cut_at);
                    tantalum_rt::power_cut()
                });
                let store = Arc::new(store_on(device_then.clone(), page_streams, compression));
                check(&store);
                for id in 0..pages {
                    let version = version(&store, id);
                    assert!(version >= stored_then[id as usize].load(Ordering::Relaxed), "page {id} is lost");
                    assert!(version <= tried_then[id as usize].load(Ordering::Relaxed), "page {id} is from nowhere");
                    stored_then[id as usize].store(version, Ordering::Relaxed);
                }
                let tasks = [0, 1].map(|task| {
                    let (store, stored, tried) =
                        (Arc::clone(&store), Arc::clone(&stored_then), Arc::clone(&tried_then));
                    let (device, seen) = (device_then.clone(), Arc::clone(&seen_then));
                    tantalum_rt::spawn(format!("task-{task}"), move || {
                        let mut dice = Random::with_seed(seed * 1000 + life * 10 + task);
                        for version in (life * 1_000_000 + 1).. {
                            let wanted = dice.usize(1..30);
                            let range = if has_hot_pages && dice.u8(0..64) > 0 { 0..10 } else { 0..pages / 2 };
                            let mut ids: Vec<u64> = (0..wanted).map(|_| dice.u64(range.clone()) * 2 + task).collect();
                            ids.sort_unstable();
                            ids.dedup();
                            ids.iter().for_each(|id| tried[*id as usize].store(version, Ordering::Relaxed));
                            store.store(&batch(&ids, version)).unwrap();
                            ids.iter().for_each(|id| stored[*id as usize].store(version, Ordering::Relaxed));
                            assert!(device.active_zones().unwrap().len() <= max_active as usize);
                            seen.store(counts(&store).pages_moved, Ordering::Relaxed);
                        }
                    })
                });
                tasks.into_iter().for_each(|task| task.join().unwrap());
            });
            assert!(outcome.finished().is_none(), "it writes until the power goes");
            device.power_cut(&mut random);
            moved += seen.load(Ordering::Relaxed);
            start += Duration::from_secs(10);
        }
        resets += device.counters().zone_resets;
        finishes += device.counters().zone_finishes;
    }
    assert!(moved > 1000 && resets > 1000 && finishes > 500, "{moved} moved, {resets} resets, {finishes} finishes");
}

/// An append that fails may have moved its zone's pointer; the streams go on in other zones, and the old ones do not stay partly written.
#[test]
fn appends_that_fail_leave_no_zones_partly_written() {
    for seed in 0..10 {
        simulated(seed, move || {
            let device = formatted(&profile(MAX_ACTIVE));
            let failing =
                Arc::new(Failing { device: device.clone(), dice: tantalum_rt::Mutex::new(Random::with_seed(seed)) });
            let store = store_on(failing, PageStreams::Two, PageCompression::None);
            let (pages, mut random) = (store.capacity_pages(), Random::with_seed(seed));
            let (mut acknowledged, mut tried) = (vec![0; pages as usize], vec![0; pages as usize]);
            let mut failed = 0;
            for version in 1..3000 {
                let id = random.usize(..pages as usize);
                tried[id] = version;
                match store.store(&batch(&[id as u64], version)) {
                    Ok(()) => acknowledged[id] = version,
                    Err(error) => {
                        assert!(error.to_string().contains("fails now and then"), "{error}");
                        failed += 1;
                    }
                }
            }
            assert!(failed > 20, "{failed}");
            drop(store);
            device.power_cut(&mut random);
            device.power_on().unwrap();
            let store = store_on(device, PageStreams::Two, PageCompression::None);
            check(&store);
            for id in 0..pages as usize {
                let found = version(&store, id as u64);
                assert!((acknowledged[id]..=tried[id]).contains(&found), "page {id} has version {found}");
            }
        });
    }
}

/// Some of its writes are made in part, and fail.
#[derive(Debug)]
struct Failing {
    device: Arc<EmulatedDevice>,
    dice: tantalum_rt::Mutex<Random>,
}

impl Device for Failing {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware, read, submit, flush, discard, zones, grow);

    fn write(
        &self,
        offset: u64,
        buffers: &[&[u8]],
        durability: tantalum_device::Durability,
    ) -> tantalum_device::Result<()> {
        let bytes = buffers.concat();
        let fails = self.dice.lock().u8(..40) == 0;
        if !fails || offset < CONVENTIONAL {
            return self.device.write(offset, &[&bytes], durability);
        }
        let part = self.dice.lock().usize(..=bytes.len() / 4096) * 4096;
        self.device.write(offset, &[&bytes[..part]], durability)?;
        Err(Error::new(ErrorKind::Io, "the device fails now and then"))
    }
}

#[test]
fn what_is_read_beside_a_drive_is_recovered_without_changing_it() {
    simulated(1, || {
        let device = formatted(&profile(MAX_ACTIVE));
        let store = store_on(device.clone(), PageStreams::Two, PageCompression::None);
        for version in 1..200 {
            store.store(&batch(&[version % 50], version)).unwrap();
        }
        drop(store);
        let counters = device.counters();
        let overlay = Arc::new(Overlay::new(device.clone(), MemoryLimit::of(8 << 20, "")));
        let beside = store_on(overlay, PageStreams::Two, PageCompression::None);
        for version in 200..2000 {
            beside.store(&batch(&[version % 50], version)).unwrap();
        }
        check(&beside);
        drop(beside);
        let now = device.counters();
        assert_eq!((now.host_writes, now.zone_resets), (counters.host_writes, counters.zone_resets));
        let again = store_on(device, PageStreams::Two, PageCompression::None);
        assert!((150..200).all(|found| version(&again, found % 50) == found));
    });
}

#[test]
fn what_cannot_be_on_zones_is_refused_with_what_can() {
    let refused = |change: fn(&mut Zoning), segment: u32| {
        let mut profile = profile(MAX_ACTIVE);
        let Kind::SolidState(drive) = &mut profile.device else { unreachable!("it is a solid-state drive") };
        let before = drive.zones.unwrap();
        change(drive.zones.as_mut().unwrap());
        let grown = drive.zones.unwrap().conventional_bytes.abs_diff(before.conventional_bytes);
        profile.capacity_bytes -= grown;
        Layout::new(&*device_of(&profile), PAGE, SegmentSizes { segment, ..SIZES }).unwrap_err()
    };
    assert!(refused(|_| (), 1 << 20).contains("take segment_bytes = 65536"));
    let small = refused(|zones| zones.conventional_bytes = 32 << 10, SIZES.segment);
    assert!(small.contains("needs 40960 bytes before its first zone, and it has 32768"), "{small}");
    assert!(refused(|zones| zones.max_active = 2, SIZES.segment).contains("the store needs 3"));

    let superblock = Superblock {
        database_id: DATABASE,
        log_id: 1,
        page_size: PAGE as u32,
        store_kind: StoreKind::InPlace,
        units: None,
        double_write_slots: 1,
        segments: None,
        compressed_pages: false,
        lifetime_streams: false,
        protection: Protection::FullPageImages,
        session: None,
    };
    let data: Arc<dyn Device> = device_of(&profile(MAX_ACTIVE));
    let devices = StoreDevices { data: data.clone(), double_write: None };
    let error = crate::open(&superblock, devices, StoreOptions::default()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("zns has zones") && error.to_string().contains("log-structured"), "{error}");
    let area = Protection::DoubleWrite;
    let memory = tantalum_device::MemoryDevice::new("data", 1 << 20);
    let devices = StoreDevices { data: memory, double_write: Some(data) };
    let error = crate::open(&Superblock { protection: area, ..superblock }, devices, StoreOptions::default());
    assert!(error.unwrap_err().to_string().contains("put the double-write area elsewhere"));
}

/// What an earlier database has left in the zones is neither followed nor in the way.
#[test]
fn a_drive_that_was_used_before_is_made_that_of_an_empty_store() {
    simulated(3, || {
        let device = formatted(&profile(MAX_ACTIVE));
        let first = store_on(device.clone(), PageStreams::Two, PageCompression::None);
        (1..500).for_each(|version| first.store(&batch(&[version % 90], version)).unwrap());
        drop(first);
        assert!(!device.active_zones().unwrap().is_empty());
        Superblock::wipe(&*device).unwrap();
        LogStructuredStore::format(&*device, PAGE, SIZES, DATABASE).unwrap();
        let second = store_on(device, PageStreams::Two, PageCompression::None);
        assert!((0..90).all(|id| version(&second, id) == 0));
        (1..500).for_each(|round| second.store(&batch(&[round % 90], round)).unwrap());
        check(&second);
        assert_eq!(version(&second, 499 % 90), 499);
    });
}
