//! What a database makes of devices whose caches survive and that tear nothing, and of those that only seem so.

use std::{ops::Range, sync::Arc};

use tantalum::{Barriers, Builder, Db, Devices, ErrorKind, NewLogDevice, PageCleaning, Protection, TornPageProtection};
use tantalum_device::{
    AlignedBuffer, Capabilities, Device, Durability, MemoryDevice, MemoryProfile, PendingWrite, Result, TearUnit,
    WriteCache, forward,
};
use tantalum_rt::{Mutex, Random, Simulation};

use crate::support::{check, get, put, small};

/// A device that says what it is told to say of itself, and counts what is asked of it.
#[derive(Debug)]
struct Claims {
    device: Arc<MemoryDevice>,
    capabilities: Capabilities,
    asked: Arc<Mutex<Asked>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Asked {
    writes: u64,
    durable_writes: u64,
    /// Bytes of the largest of these.
    largest_durable: usize,
    flushes: u64,
}

impl Claims {
    fn count(&self, bytes: usize, durability: Durability) {
        let mut asked = self.asked.lock();
        asked.writes += 1;
        if durability == Durability::Durable {
            asked.durable_writes += 1;
            asked.largest_durable = asked.largest_durable.max(bytes);
        }
    }
}

impl Device for Claims {
    forward!(device: name, capacity_bytes, hardware, read, discard, grow, reserve, shrink);

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.count(buffers.iter().map(|buffer| buffer.len()).sum(), durability);
        self.device.write(offset, buffers, durability)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.count(range.len(), durability);
        self.device.submit(offset, buffer, range, durability)
    }

    fn flush(&self) -> Result<()> {
        self.asked.lock().flushes += 1;
        self.device.flush()
    }
}

/// The media of a database, which outlive it, and move from device to device.
struct Media {
    data: Arc<MemoryDevice>,
    area: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
    asked: Arc<Mutex<Asked>>,
}

/// What a device says of itself.
#[derive(Clone, Copy)]
struct Says(WriteCache, u32);

const DURASSD: Says = Says(WriteCache::None, 16384);
const ORDINARY: Says = Says(WriteCache::Volatile, 0);

impl Media {
    /// Media that keep what has completed, and tear nothing.
    fn durable() -> Self {
        Self::with(&MemoryProfile { volatile_cache: false, tears: TearUnit::Atomic(16384), ..MemoryProfile::default() })
    }

    fn with(profile: &MemoryProfile) -> Self {
        let device = |name: &str| MemoryDevice::with_profile(name, 4 << 20, profile.clone());
        Self { data: device("data"), area: device("doublewrite"), log: device("log"), asked: Arc::default() }
    }

    fn devices(&self, Says(write_cache, atomic_write_bytes): Says) -> Devices {
        let claim = |device: &Arc<MemoryDevice>| {
            let capabilities = Capabilities { write_cache, atomic_write_bytes, ..device.capabilities() };
            Arc::new(Claims { device: Arc::clone(device), capabilities, asked: Arc::clone(&self.asked) })
                as Arc<dyn Device>
        };
        Devices { data: claim(&self.data), double_write: Some(claim(&self.area)), log: vec![claim(&self.log)] }
    }

    fn open(&self, says: Says) -> Db {
        builder().open_on(self.devices(says)).unwrap()
    }

    fn power_cut(&self, random: &mut Random) {
        [&self.data, &self.area, &self.log].into_iter().for_each(|device| device.power_cut(random));
    }

    /// What was asked of the devices since the last call.
    fn asked(&self) -> Asked {
        std::mem::take(&mut *self.asked.lock())
    }
}

/// All devices are forked between two steps of any task, as a power cut takes them.
fn simulated(seed: u64, run: impl FnOnce() + 'static) {
    Simulation::new(seed).run(run).expect_finished();
}

fn builder() -> Builder {
    Db::builder().buffer_pool_bytes(64 * 4096)
}

/// Rows on so many pages that they leave the pool.
fn fill(db: &Db, from: u32) {
    let table = db.table("t").unwrap();
    for key in from..from + 400 {
        put(db, &table, &[(&format!("{key:04}"), &"x".repeat(900))]);
    }
}

#[test]
fn a_durable_cache_is_spared_barriers_and_double_writes() {
    simulated(1, || {
        let media = Media::durable();
        let db = media.open(DURASSD);
        fill(&db, 0);
        db.checkpoint().unwrap();
        let stats = db.stats().unwrap();
        assert_eq!((stats.page_bytes, stats.torn_page_protection), (4096, Protection::Device));
        assert_eq!(stats.barriers.spared, ["data", "doublewrite", "log"]);
        assert!(
            stats.barriers.sent_to.is_empty()
                && stats.barriers.trusted.is_empty()
                && stats.trusted_by_setting.is_empty()
        );
        let asked = media.asked();
        assert_eq!((asked.durable_writes, asked.flushes), (0, 0));
        assert!(asked.writes > 100 && stats.store.pages_stored > 64 && stats.store.pages_double_written == 0);
        // Without an orderly end, everything that was acknowledged is there.
        let crashed =
            Media { data: media.data.fork(), area: media.area.fork(), log: media.log.fork(), asked: Arc::default() };
        drop(db);
        crashed.power_cut(&mut Random::with_seed(1));
        let db = crashed.open(DURASSD);
        assert_eq!(get(&db, &db.table("t").unwrap(), "0399").unwrap().len(), 900);
        check(&db);
    });
}

#[test]
fn all_other_devices_are_flushed() {
    for says in [ORDINARY, Says(WriteCache::Unknown, 0)] {
        let media = Media::with(&MemoryProfile::default());
        let db = media.open(says);
        fill(&db, 0);
        db.checkpoint().unwrap();
        let stats = db.stats().unwrap();
        assert_eq!(stats.torn_page_protection, Protection::DoubleWrite);
        assert_eq!(stats.barriers.sent_to, ["data", "doublewrite", "log"]);
        let asked = media.asked();
        assert!(asked.durable_writes >= 400 && asked.flushes > 0, "{asked:?}");
    }
    // Nor is a durable cache below the page cache any good.
    let media = Media::durable();
    let Devices { data, log, .. } = media.devices(DURASSD);
    let buffered = Capabilities { direct: false, ..data.capabilities() };
    let data = Arc::new(Claims { device: Arc::clone(&media.data), capabilities: buffered, asked: Arc::default() });
    let stats = builder().open_on(Devices { data, double_write: None, log }).unwrap().stats().unwrap();
    assert_eq!(stats.barriers.sent_to, ["data"]);
    assert_eq!(stats.barriers.spared, ["log"]);
    // Towards safety freely.
    let media = Media::durable();
    let safe =
        builder().expert(|expert| expert.barriers(Barriers::On).torn_page_protection(TornPageProtection::DoubleWrite));
    let db = safe.open_on(media.devices(DURASSD)).unwrap();
    fill(&db, 0);
    db.checkpoint().unwrap();
    assert_eq!(db.stats().unwrap().barriers.sent_to.len(), 3);
    assert!(media.asked().flushes > 0 && db.stats().unwrap().store.pages_double_written > 0);
}

#[test]
fn barriers_off_needs_a_device_that_needs_none_or_the_users_word() {
    let media = Media::with(&MemoryProfile::default());
    let off = |setting| builder().expert(|expert| expert.barriers(setting)).open_on(media.devices(ORDINARY));
    let error = off(Barriers::Off).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported, "{error}");
    for word in ["data", "volatile", "trust-device"] {
        assert!(error.to_string().contains(word), "{word} in {error}");
    }
    assert_eq!(media.asked(), Asked::default(), "it is refused before anything is written");
    let db = off(Barriers::TrustDevice).unwrap();
    fill(&db, 0);
    db.checkpoint().unwrap();
    assert_eq!((media.asked().flushes, media.asked().durable_writes), (0, 0));
    let stats = db.stats().unwrap();
    assert_eq!(stats.barriers.trusted, ["data", "doublewrite", "log"]);
    assert_eq!(stats.trusted_by_setting.len(), 3);
    assert!(stats.trusted_by_setting.iter().all(|trusted| trusted.contains("barriers = trust-device")));
    db.close().unwrap();

    let db = builder().expert(|expert| expert.barriers(Barriers::Off)).open_on(media.devices(DURASSD)).unwrap();
    let joining = MemoryDevice::new("joining", 4 << 20);
    let error = db.add_log_device(NewLogDevice::Device(joining)).unwrap_err();
    assert!(error.kind() == ErrorKind::Unsupported && error.to_string().starts_with("joining: "), "{error}");
}

#[test]
fn a_trusted_data_device_stays_known() {
    let media = Media::durable();
    let trusting = builder().expert(|expert| expert.torn_page_protection(TornPageProtection::TrustDevice));
    let db = trusting.open_on(media.devices(Says(WriteCache::None, 512))).unwrap();
    let [trusted] = &db.stats().unwrap().trusted_by_setting[..] else { panic!("one setting is unsafe") };
    for word in ["torn_page_protection = trust-device", "data", "512", "4096"] {
        assert!(trusted.contains(word), "{word} in {trusted}");
    }
}

/// Moves a database between devices, each time after a crash. On the ordinary ones pages do get torn.
#[test]
fn a_database_that_moves_is_protected_as_the_device_needs_it() {
    for seed in 0..20 {
        simulated(seed, move || {
            let mut random = Random::with_seed(seed);
            let mut media = Media::durable();
            let mut rows = 0;
            for round in 0..6 {
                let is_ordinary = round % 2 == 1;
                let db = media.open(if is_ordinary { ORDINARY } else { DURASSD });
                let stats = db.stats().unwrap();
                let expected = if is_ordinary { Protection::DoubleWrite } else { Protection::Device };
                assert_eq!((stats.torn_page_protection, stats.barriers.sent_to.is_empty()), (expected, !is_ordinary));
                check(&db);
                let table = db.table("t").unwrap();
                for key in 0..rows {
                    assert!(get(&db, &table, &format!("{key:04}")).is_some(), "seed {seed}, round {round}: {key}");
                }
                fill(&db, rows);
                rows += 400;
                // The next device holds what this one holds when the power fails.
                let tears = if is_ordinary { TearUnit::Atomic(16384) } else { TearUnit::Sector512 };
                let next =
                    Media::with(&MemoryProfile { volatile_cache: !is_ordinary, tears, ..MemoryProfile::default() });
                let cut = [media.data.fork(), media.area.fork(), media.log.fork()];
                drop(db);
                for (cut, next) in cut.iter().zip([&next.data, &next.area, &next.log]) {
                    cut.power_cut(&mut random);
                    next.load(&cut.image());
                }
                media = next;
            }
        });
    }
}

#[test]
fn old_copies_in_the_double_write_area_are_forgotten_when_it_is_used_again() {
    let media = Media::durable();
    let db = media.open(ORDINARY);
    fill(&db, 0);
    db.close().unwrap();
    let first_block = || {
        let mut block = vec![0; 4096];
        media.area.read(0, &mut block).unwrap();
        block
    };
    assert!(first_block().starts_with(b"TNTLDBLW"));
    media.open(DURASSD).close().unwrap();
    assert!(first_block().starts_with(b"TNTLDBLW"));
    // Nothing is written by opening and closing but the catalog's change of hands: the area begins with a slot of no pages, which
    // says in which session.
    let devices = media.devices(ORDINARY);
    let db = builder().open_on(devices).unwrap();
    assert_eq!(db.stats().unwrap().torn_page_protection, Protection::DoubleWrite);
    let (first, pages) = (first_block(), 44..48);
    assert!(first.starts_with(b"TNTLDBLW") && first[pages] == [0; 4]);
    check(&db);
}

#[test]
fn full_page_images_stay_and_other_protections_may_be_asked_for() {
    let media = Media::durable();
    media.open(DURASSD).close().unwrap();
    let open =
        |protection| builder().expert(|expert| expert.torn_page_protection(protection)).open_on(media.devices(DURASSD));
    let error = open(TornPageProtection::FullPageImages).unwrap_err().to_string();
    assert!(error.contains("torn_page_protection") && error.contains("cannot be changed"), "{error}");
    open(TornPageProtection::DoubleWrite).unwrap().close().unwrap();
    assert_eq!(media.open(DURASSD).stats().unwrap().torn_page_protection, Protection::Device);
    // Without an area there is nothing to go over to.
    let without_area = Devices { double_write: None, ..media.devices(ORDINARY) };
    let error = builder().open_on(without_area).unwrap_err().to_string();
    assert!(error.contains("data") && error.contains("double-write"), "{error}");

    let images = Media::durable();
    let db = builder()
        .expert(|expert| expert.torn_page_protection(TornPageProtection::FullPageImages))
        .open_on(images.devices(ORDINARY))
        .unwrap();
    fill(&db, 0);
    db.close().unwrap();
    let stats = images.open(ORDINARY).stats().unwrap();
    assert_eq!(stats.torn_page_protection, Protection::FullPageImages);
    let db = images.open(DURASSD);
    assert_eq!(db.stats().unwrap().torn_page_protection, Protection::Device);
    check(&db);
}

#[test]
fn a_directory_keeps_its_area_for_the_day_it_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    let trusting = || small().expert(|expert| expert.torn_page_protection(TornPageProtection::TrustDevice));
    let db = trusting().open(dir.path()).unwrap();
    put(&db, &db.table("t").unwrap(), &[("k", "v")]);
    db.close().unwrap();
    std::fs::remove_file(dir.path().join("tantalum.toml")).unwrap();
    let db =
        small().expert(|expert| expert.torn_page_protection(TornPageProtection::DoubleWrite)).open(dir.path()).unwrap();
    assert_eq!(db.stats().unwrap().torn_page_protection, Protection::DoubleWrite);
    assert_eq!(get(&db, &db.table("t").unwrap(), "k").unwrap(), b"v");
    check(&db);
}

#[test]
fn each_page_can_be_made_durable_by_itself() {
    // With a clock of its own: a checkpoint that the database makes by itself would be counted as well.
    simulated(1, || {
        let media = Media::with(&MemoryProfile::default());
        let durable = builder().expert(|expert| expert.durable_page_writes(true).page_cleaning(PageCleaning::OnDemand));
        let db = durable
            .expert(|expert| expert.torn_page_protection(TornPageProtection::TrustDevice))
            .open_on(media.devices(ORDINARY))
            .unwrap();
        fill(&db, 0);
        let (before, logged) = (db.stats().unwrap().store.pages_stored, db.stats().unwrap().log.requests);
        media.asked();
        db.checkpoint().unwrap();
        let (asked, stats) = (media.asked(), db.stats().unwrap());
        let (pages, requests) = (stats.store.pages_stored - before, stats.log.requests - logged);
        // Beside the pages, the log writes what it has and a slot for the checkpoint.
        assert!(pages > 8 && asked.flushes == 0, "{asked:?}");
        assert_eq!(asked.durable_writes, pages + requests + 1, "{asked:?}, {pages} pages, {requests} log requests");
        assert_eq!(asked.writes, asked.durable_writes);
        assert!(stats.durable_page_writes && stats.page_cleaning == PageCleaning::OnDemand);
        assert_eq!(stats.pool.reserve_frames, 0, "no task cleans ahead");
    });
}
