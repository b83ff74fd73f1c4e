//! The log-structured store gives space back: beside tasks that store and read, with the power going, on a full disk.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile, Partition};
use tantalum_rt::{Mutex, Outcome, Random, RwLock, Simulation, sleep, spawn};

use super::{
    LogStructuredStore,
    tests::{DATABASE, SEGMENTS, SIZES, check, compressed_store, counts, device_of, layout, store, version},
};
use crate::{
    ErrorKind, Load, PackProgress, PageCompression, PageId, PageStore, Result, StoreOptions,
    tests::{PAGE, batch},
};

fn go_on(_: PackProgress) -> Result<()> {
    Ok(())
}

/// As the engine does it.
fn compact(store: &LogStructuredStore, pages: u64) -> u64 {
    store.gives_space_back().unwrap();
    store.shrink(pages).unwrap();
    store.pack(pages, &mut go_on).unwrap();
    store.shrink(pages).unwrap()
}

fn fill(store: &LogStructuredStore, pages: std::ops::Range<u64>, version: u64) {
    let pages: Vec<u64> = pages.collect();
    pages.chunks(40).for_each(|pages| store.store(&batch(pages, version)).unwrap());
}

fn is_damaged(store: &LogStructuredStore, page: u64) -> bool {
    matches!(store.load(PageId(page), &mut vec![0; PAGE]).unwrap(), Load::Damaged(_))
}

#[test]
fn what_was_loaded_and_dropped_is_given_back_and_the_store_grows_again() {
    let device = device_of(SEGMENTS, MemoryProfile::default());
    let first = store(&device);
    let mut loaded = first.capacity_pages();
    fill(&first, 0..loaded, 1);
    for _ in 0..6 {
        first.grow().unwrap();
        fill(&first, loaded..first.capacity_pages(), 2);
        loaded = first.capacity_pages();
    }
    let before = device.capacity_bytes();
    let sparse = compact(&first, 20);
    let least = layout().device_bytes(layout().segments_for(20));
    assert_eq!((first.stats().capacity_bytes, device.capacity_bytes()), (least, least));
    assert!(least < before / 3, "{least} of {before} bytes");
    let now = counts(&first);
    assert!(now.segments_cut_off > 90 && now.segments_packed > 0, "{now:?}");
    // Not those that are open, and those with the twenty pages and with the map.
    assert!(sparse >= (now.segments - 10) * u64::from(SIZES.segment), "{sparse} bytes of {now:?}");
    let check_pages = |store: &LogStructuredStore| {
        check(store);
        (0..20).for_each(|page| assert_eq!(version(store, page), 1));
        (20..store.capacity_pages()).for_each(|page| assert_eq!(version(store, page), 0));
    };
    check_pages(&first);
    assert_eq!(version(&first, loaded - 1), 0, "a task that looks by an old name finds a free page");
    assert!(is_damaged(&first, loaded));
    drop(first);
    let second = store(&device);
    check_pages(&second);
    assert!(is_damaged(&second, loaded - 1));
    let kept = second.capacity_pages();
    fill(&second, 20..kept, 3);
    second.grow().unwrap();
    fill(&second, kept..second.capacity_pages(), 4);
    second.close();
    drop(second);
    let third = store(&device);
    check(&third);
    assert_eq!([0, 19, 20, kept - 1, kept].map(|page| version(&third, page)), [1, 1, 3, 3, 4]);
    assert_eq!(version(&third, third.capacity_pages() - 1), 4);
}

/// The last pages are the ones that stay: they move to the front, whatever was cleaned before.
#[test]
fn a_full_store_on_a_full_disk_gives_space_back() {
    for seed in 0..20 {
        let run = move || {
            let mut random = Random::with_seed(seed);
            let device = device_of(SEGMENTS + random.u32(0..100), MemoryProfile::default());
            let store = store(&device);
            device.inject(Fault::NoSpaceOnGrow);
            let pages = store.capacity_pages();
            let mut versions = vec![1; pages as usize];
            fill(&store, 0..pages, 1);
            for version in 2..random.u64(2..3000) {
                let page = random.u64(0..pages);
                store.store(&batch(&[page], version)).unwrap();
                versions[page as usize] = version;
            }
            let before = device.capacity_bytes();
            let kept = random.u64(1..pages / 2);
            let can_be_cut = layout().segments(before) - layout().segments_for(kept);
            compact(&store, kept);
            let cut_off = counts(&store).segments_cut_off;
            assert!(cut_off + 8 >= u64::from(can_be_cut), "{cut_off} of {can_be_cut} segments were cut off");
            for page in 0..store.capacity_pages() {
                assert_eq!(version(&store, page), if page < kept { versions[page as usize] } else { 0 });
            }
            check(&store);
            for version in 4000..6000 {
                store.store(&batch(&[random.u64(0..store.capacity_pages())], version)).unwrap();
            }
            check(&store);
        };
        Simulation::new(seed).run(run).expect_finished();
    }
}

#[test]
fn a_device_of_a_fixed_size_keeps_it_and_all_its_pages() {
    let device = device_of(SEGMENTS, MemoryProfile::default());
    let bytes = device.capacity_bytes();
    let whole = Partition::split(device, 1).unwrap().remove(0);
    let store = LogStructuredStore::new(Arc::new(whole), PAGE, SIZES, DATABASE, StoreOptions::default()).unwrap();
    store.recover().unwrap();
    let pages = store.capacity_pages();
    fill(&store, 0..pages, 1);
    let refused = store.shrink(20).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Unsupported);
    assert_eq!((store.stats().capacity_bytes, store.capacity_pages()), (bytes, pages));
    (0..20).for_each(|page| assert_eq!(version(&store, page), 1));
    fill(&store, 20..pages, 2);
    (0..pages).for_each(|page| assert_eq!(version(&store, page), if page < 20 { 1 } else { 2 }));
    check(&store);
}

/// Pages of which it is known which versions they may have, in a store of which a part is given back now and then.
struct Pages {
    /// Pages that are in use, which no task changes while it stores.
    used: RwLock<u64>,
    stored: Vec<AtomicU64>,
    tried: Vec<AtomicU64>,
}

impl Pages {
    const MOST: u64 = 1000;

    fn new() -> Arc<Self> {
        let versions = || (0..Self::MOST).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { used: RwLock::new(100), stored: versions(), tried: versions() })
    }

    /// Each page is as it was stored or tried to; what was given back is as before or was never there.
    fn check(&self, store: &LogStructuredStore) {
        check(store);
        for page in 0..store.capacity_pages().min(Self::MOST) {
            let version = version(store, page);
            let (stored, tried) = (&self.stored[page as usize], &self.tried[page as usize]);
            assert!(version >= stored.load(SeqCst), "page {page} is lost: {version} of {stored:?}");
            assert!(version <= tried.load(SeqCst), "page {page} is from nowhere: {version} of {tried:?}");
            stored.store(version, SeqCst);
        }
    }

    fn write(&self, store: &LogStructuredStore, random: &mut Random, version: u64, (task, tasks): (u64, u64)) {
        let used = self.used.read();
        let mut pages: Vec<u64> = (0..random.u64(1..12)).map(|_| random.u64(0..*used) / tasks * tasks + task).collect();
        pages.retain(|page| *page < *used);
        pages.sort_unstable();
        pages.dedup();
        pages.iter().for_each(|page| self.tried[*page as usize].store(version, SeqCst));
        store.store(&batch(&pages, version)).unwrap();
        pages.iter().for_each(|page| self.stored[*page as usize].store(version, SeqCst));
    }

    fn grow(&self, store: &LogStructuredStore, random: &mut Random) {
        let mut used = self.used.write();
        let wanted = (*used + random.u64(1..200)).min(Self::MOST);
        while store.capacity_pages() < wanted {
            store.grow().unwrap();
        }
        *used = wanted;
    }

    fn shrink(&self, store: &LogStructuredStore, kept: Option<u64>) -> u64 {
        let mut used = self.used.write();
        *used = kept.map_or(*used, |kept| kept.min(*used));
        self.stored[*used as usize..].iter().for_each(|stored| stored.store(0, SeqCst));
        store.shrink(*used).unwrap();
        *used
    }
}

#[test]
fn power_cuts_while_space_is_given_back_lose_nothing() {
    let (cut_off, packed) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    for seed in 0..40 {
        let profile = MemoryProfile {
            read_latency: Duration::from_micros(20)..Duration::from_micros(100),
            write_latency: Duration::from_micros(20)..Duration::from_micros(200),
            flush_latency: Duration::from_micros(50)..Duration::from_micros(300),
            seed,
            ..MemoryProfile::default()
        };
        let device = device_of(40, profile);
        let pages = Pages::new();
        let mut random = Random::with_seed(seed);
        for life in 0..6 {
            let cut_at = Duration::from_micros(random.u64(1..150_000));
            let compression = *random.choice(&PageCompression::ALL).unwrap();
            let tasks = random.u64(1..4);
            let (device_then, pages) = (Arc::clone(&device), Arc::clone(&pages));
            let (cut_off, packed) = (Arc::clone(&cut_off), Arc::clone(&packed));
            let run = move || {
                spawn("power", move || {
                    sleep(cut_at);
                    tantalum_rt::power_cut()
                });
                let store = Arc::new(compressed_store(&device_then, compression));
                pages.check(&store);
                // A crash may have left less than was about to be used.
                let mut used = pages.used.write();
                *used = store.capacity_pages().min(*used);
                drop(used);
                for task in 0..tasks {
                    let (store, pages) = (Arc::clone(&store), Arc::clone(&pages));
                    let mut dice = Random::with_seed(seed * 1000 + life * 10 + task);
                    spawn(format!("writer-{task}"), move || {
                        for version in (life * 1_000_000 + 1).. {
                            pages.write(&store, &mut dice, version, (task, tasks));
                        }
                    });
                }
                let reader = (Arc::clone(&store), Arc::clone(&pages));
                spawn("reader", move || {
                    let (store, pages) = reader;
                    for page in (0..Pages::MOST).cycle() {
                        sleep(Duration::from_micros(10));
                        let stored = pages.stored[page as usize].load(SeqCst);
                        let found = if page < store.capacity_pages() { version(&store, page) } else { stored };
                        assert!(found >= stored || pages.stored[page as usize].load(SeqCst) < stored);
                    }
                });
                let mut dice = Random::with_seed(seed * 1000 + life * 10 + 9);
                loop {
                    pages.grow(&store, &mut dice);
                    sleep(Duration::from_micros(dice.u64(0..3000)));
                    let before = counts(&store);
                    let kept = pages.shrink(&store, Some(dice.u64(40..300)));
                    let mut turns = dice.u32(0..50);
                    let is_interrupted = dice.bool();
                    let packing = store.pack(kept, &mut |_| {
                        turns = turns.saturating_sub(1);
                        let ends = is_interrupted && turns == 0;
                        if ends { Err(crate::error::closed()) } else { Ok(()) }
                    });
                    assert!(is_interrupted || packing.is_ok());
                    pages.shrink(&store, None);
                    check(&store);
                    let after = counts(&store);
                    cut_off.fetch_add(after.segments_cut_off - before.segments_cut_off, SeqCst);
                    packed.fetch_add(after.segments_packed - before.segments_packed, SeqCst);
                }
            };
            let outcome: Outcome<()> = Simulation::new(seed * 100 + life).run(run);
            assert!(outcome.finished().is_none(), "it goes on until the power goes");
            device.power_cut(&mut random);
        }
    }
    assert!(cut_off.load(SeqCst) > 500 && packed.load(SeqCst) > 1000, "{cut_off:?} {packed:?}");
}

/// Each write and each other request of a compaction in turn is the last one before the power goes.
#[test]
fn a_power_cut_at_each_request_of_a_compaction_leaves_every_page() {
    let mut cuts = 0;
    for last in 0.. {
        let is_cut = Arc::new(AtomicBool::new(false));
        let device = device_of(SEGMENTS, MemoryProfile::default());
        let fused =
            Fused { device: Arc::clone(&device), requests: AtomicU64::new(u64::MAX), is_cut: Arc::clone(&is_cut) };
        let fused = Arc::new(fused);
        let compression = if last % 2 == 0 { PageCompression::None } else { PageCompression::Lz4 };
        let options = StoreOptions { discards: true, compression, ..StoreOptions::default() };
        let first = LogStructuredStore::new(fused.clone(), PAGE, SIZES, DATABASE, options).unwrap();
        first.recover().unwrap();
        let before = first.capacity_pages();
        first.grow().unwrap();
        let pages = first.capacity_pages();
        fill(&first, 0..pages, 1);
        (0..30).for_each(|page| first.store(&batch(&[7 * page], 2)).unwrap());
        fused.requests.store(last, SeqCst);
        let done = [first.shrink(250).map(drop), first.pack(250, &mut go_on).map(drop), first.shrink(250).map(drop)];
        let is_cut = is_cut.load(SeqCst);
        // Releases and discards may fail without harm.
        assert!(is_cut || done.iter().all(Result::is_ok));
        drop(first);
        device.power_cut(&mut Random::with_seed(last));
        let again = store(&device);
        check(&again);
        for page in 0..250 {
            let expected = if page % 7 == 0 && page < 210 { 2 } else { 1 };
            assert_eq!(version(&again, page), expected, "page {page} after {last} requests");
        }
        assert!(again.capacity_pages() >= 250 && again.capacity_pages() <= pages);
        (250..again.capacity_pages()).for_each(|page| assert!(version(&again, page) <= 2));
        // Both ways on.
        compact(&again, 250);
        assert!(again.capacity_pages() <= before.max(260));
        again.grow().unwrap();
        let capacity = again.capacity_pages();
        fill(&again, 250..capacity, 3);
        drop(again);
        let last_time = store(&device);
        check(&last_time);
        assert_eq!([1, 249, 250, capacity - 1].map(|page| version(&last_time, page)), [1, 1, 3, 3]);
        cuts += u64::from(is_cut);
        if !is_cut {
            break;
        }
    }
    assert!(cuts > 50, "{cuts} requests");
}

/// A page leaves the last segment while the checkpoint is made that begins to give space back: the durable map says that it is there, and
/// only another one lets the segment be cut off.
#[test]
fn a_page_that_moves_before_the_end_is_cut_off_is_there_after_a_power_cut() {
    const MOVING: u64 = 39;
    const SEEDS: u64 = 30;
    let mut cut_off = 0;
    for seed in 0..SEEDS {
        let run = move || {
            let device = device_of(SEGMENTS, MemoryProfile::default());
            let watched = Arc::new(Watched { device: Arc::clone(&device), at_flush: Mutex::default() });
            let options = StoreOptions::default();
            let first = Arc::new(LogStructuredStore::new(watched.clone(), PAGE, SIZES, DATABASE, options).unwrap());
            first.recover().unwrap();
            (0..4).for_each(|_| first.grow().unwrap());
            let pages = first.capacity_pages();
            fill(&first, 0..MOVING, 1);
            fill(&first, MOVING + 1..pages, 1);
            first.store(&batch(&[MOVING], 1)).unwrap();
            first.shrink(MOVING + 1).unwrap();
            // The streams go on in free segments in front.
            (2..100).for_each(|version| fill(&first, 0..MOVING, version));
            first.shrink(MOVING + 1).unwrap();
            let before = device.capacity_bytes();
            let storing = Arc::clone(&first);
            *watched.at_flush.lock() = Some(Box::new(move || storing.store(&batch(&[MOVING], 2)).unwrap()));
            first.shrink(MOVING + 1).unwrap();
            assert!(watched.at_flush.lock().is_none());
            let is_cut_off = device.capacity_bytes() < before;
            drop(first);
            device.power_cut(&mut Random::with_seed(seed));
            let again = store(&device);
            check(&again);
            assert_eq!((version(&again, MOVING), version(&again, 0)), (2, 99));
            is_cut_off
        };
        // Not if the cleaner moved the page first.
        cut_off += u64::from(Simulation::new(seed).run(run).finished().unwrap());
    }
    assert!(cut_off > SEEDS / 2, "the end was cut off {cut_off} times");
}

type AtFlush = Box<dyn FnOnce() + Send>;

/// A device that calls a function once, before it is flushed.
struct Watched {
    device: Arc<MemoryDevice>,
    at_flush: Mutex<Option<AtFlush>>,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Watched").field(&self.device).finish()
    }
}

impl Device for Watched {
    tantalum_device::forward!(
        device: name, capacity_bytes, capabilities, hardware, read, submit, write, discard, release, grow, shrink
    );

    fn flush(&self) -> Result<()> {
        if let Some(call) = self.at_flush.lock().take() {
            call();
        }
        self.device.flush()
    }
}

/// A device that takes so many more requests that change it; then the power is gone.
#[derive(Debug)]
struct Fused {
    device: Arc<MemoryDevice>,
    requests: AtomicU64,
    is_cut: Arc<AtomicBool>,
}

impl Fused {
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
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware, read, submit);

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: tantalum_device::Durability) -> Result<()> {
        self.request(|device| device.write(offset, buffers, durability))
    }

    fn flush(&self) -> Result<()> {
        self.request(|device| device.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.request(|device| device.discard(offset, len))
    }

    fn release(&self, offset: u64, len: u64) -> Result<()> {
        self.request(|device| device.release(offset, len))
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        self.request(|device| device.grow(new_capacity_bytes))
    }

    fn shrink(&self, new_capacity_bytes: u64) -> Result<()> {
        self.request(|device| device.shrink(new_capacity_bytes))
    }
}
