//! What snapshots keep alive: in memory no more than they see, on the data device what exceeds `version_bytes`, and after the
//! last of them nothing.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tantalum::{Builder, Db, Devices, ErrorKind, Isolation, Restore, Snapshot, StoreKind, Table};
use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_rt::{Random, Simulation};

use crate::support::{check, contents, put, rows, simulate};

/// The least that is allowed.
const VERSION_BYTES: u64 = 16 << 10;

/// What a table has: keys and values.
type Model = BTreeMap<Vec<u8>, Vec<u8>>;

fn builder(store: StoreKind) -> Builder {
    let builder = Db::builder()
        .page_store(store)
        .buffer_pool_bytes(64 * 4096)
        .expert(|expert| expert.version_bytes(VERSION_BYTES));
    match store {
        StoreKind::LogStructured => builder.expert(|expert| expert.segment_bytes(64 << 10)),
        _ => builder,
    }
}

struct Disks {
    data: Arc<MemoryDevice>,
    double_write: Arc<MemoryDevice>,
    log: Arc<MemoryDevice>,
}

impl Disks {
    fn new(seed: u64) -> Self {
        let us = Duration::from_micros;
        let device = |name: &str, bytes: u64, salt: u64| {
            let profile = MemoryProfile {
                write_latency: us(5)..us(40),
                read_latency: us(2)..us(20),
                flush_latency: us(5)..us(40),
                seed: seed * 4 + salt,
                ..MemoryProfile::default()
            };
            MemoryDevice::with_profile(name, bytes, profile)
        };
        Self {
            data: device("data", 4 << 20, 0),
            double_write: device("area", 1 << 20, 1),
            log: device("log", 2 << 20, 2),
        }
    }

    fn devices(&self, store: StoreKind) -> Devices {
        let double_write = (store == StoreKind::InPlace).then(|| Arc::clone(&self.double_write) as Arc<dyn Device>);
        Devices { data: self.data.clone(), double_write, log: vec![self.log.clone()] }
    }
}

fn key(random: &mut Random, keys: u32) -> Vec<u8> {
    // Of different lengths, and some common beginnings.
    let n = random.u32(0..keys);
    format!("{n:0width$}", width = 1 + (n % 40) as usize).into_bytes()
}

/// Overwrites random rows, in the database and in the model.
fn overwrite(db: &Db, table: &Table, model: &mut Model, random: &mut Random, transactions: u32) {
    for _ in 0..transactions {
        let mut tx = db.begin().unwrap();
        for _ in 0..random.u32(1..6) {
            let key = key(random, 200);
            if random.u8(0..6) == 0 {
                tx.delete(table, &key).unwrap();
                model.remove(&key);
            } else {
                // Some larger than a page.
                let len = if random.u8(0..30) == 0 { random.usize(4000..12_000) } else { random.usize(0..200) };
                let value = vec![random.u8(..); len];
                tx.put(table, &key, &value).unwrap();
                model.insert(key, value);
            }
        }
        tx.commit().unwrap();
    }
}

/// Compares a snapshot with what the table had when it began: all of it, a range, and single keys.
fn compare(snapshot: &Snapshot, table: &Table, model: &Model, random: &mut Random) {
    let shown: Vec<_> = rows(snapshot, table).into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect();
    assert!(shown.iter().map(|(key, value)| (key, value)).eq(model), "a scan shows another state");
    let (from, to) = (key(random, 200), key(random, 200));
    let (from, to) = (from.clone().min(to.clone()), from.max(to));
    let range = snapshot.range(table, &from[..]..&to[..]).unwrap().rev();
    let range: Vec<_> = range.map(|row| row.unwrap().0.to_vec()).collect();
    assert!(range.iter().eq(model.range(from..to).rev().map(|(key, _)| key)), "a range shows another state");
    for _ in 0..20 {
        let key = key(random, 200);
        assert_eq!(snapshot.get(table, &key).unwrap().as_deref(), model.get(&key).map(Vec::as_slice));
    }
}

fn on_each_store(seeds: std::ops::Range<u64>, run: fn(u64, StoreKind)) {
    for store in [StoreKind::InPlace, StoreKind::LogStructured, StoreKind::InPageLogging] {
        for seed in seeds.clone() {
            Simulation::new(seed).time_limit(Duration::from_secs(3600)).run(move || run(seed, store)).expect_finished();
        }
    }
}

#[test]
fn a_row_that_is_overwritten_again_and_again_has_one_version_for_each_snapshot() {
    let db = Db::builder()
        .log_bytes(8 << 20)
        .buffer_pool_bytes(64 * 4096)
        .open_on(Disks::new(0).devices(StoreKind::InPlace));
    let db = db.unwrap();
    let table = db.table("t").unwrap();
    put(&db, &table, &[("hot", "0")]);
    let first = db.snapshot().unwrap();
    for n in 1..=300 {
        put(&db, &table, &[("hot", &n.to_string())]);
    }
    assert_eq!(db.stats().unwrap().transactions.versions, 1);
    let second = db.snapshot().unwrap();
    for n in 301..=600 {
        put(&db, &table, &[("hot", &n.to_string())]);
    }
    assert_eq!(db.stats().unwrap().transactions.versions, 2);
    assert_eq!(first.get(&table, "hot").unwrap().unwrap(), b"0");
    assert_eq!(second.get(&table, "hot").unwrap().unwrap(), b"300");
    drop((first, second));
    let stats = db.stats().unwrap().transactions;
    assert_eq!((stats.versions, stats.version_bytes), (0, 0));
}

#[test]
fn many_short_snapshots_leave_short_chains() {
    let db = Db::builder().log_bytes(8 << 20).open_on(Disks::new(0).devices(StoreKind::InPlace)).unwrap();
    let table = db.table("t").unwrap();
    put(&db, &table, &[("hot", "0")]);
    let first = db.snapshot().unwrap();
    let mut last = db.snapshot().unwrap();
    for n in 1..=300 {
        put(&db, &table, &[("hot", &n.to_string())]);
        // The next begins before the last has ended, so there is always one.
        last = db.snapshot().unwrap();
    }
    assert!(db.stats().unwrap().transactions.versions <= 16);
    assert_eq!(first.get(&table, "hot").unwrap().unwrap(), b"0");
    assert_eq!(last.get(&table, "hot").unwrap().unwrap(), b"300");
}

/// Snapshots of different ages over rows that are overwritten many times: each goes on showing its state, memory stays bounded, and
/// the last of them leaves nothing behind.
#[test]
fn old_versions_beyond_their_memory_go_to_the_data_device() {
    on_each_store(0..6, |seed, store| {
        let mut random = Random::with_seed(seed);
        let db = builder(store).open_on(Disks::new(seed).devices(store)).unwrap();
        let table = db.table("t").unwrap();
        let mut model = Model::new();
        overwrite(&db, &table, &mut model, &mut random, 150);
        let mut snapshots: Vec<(Snapshot, Model)> = Vec::new();
        let mut spilled = 0;
        for _ in 0..16 {
            snapshots.push((db.snapshot().unwrap(), model.clone()));
            overwrite(&db, &table, &mut model, &mut random, 60);
            if random.bool() {
                let at = random.usize(0..snapshots.len());
                drop(snapshots.swap_remove(at));
            }
            for (snapshot, model) in &snapshots {
                compare(snapshot, &table, model, &mut random);
            }
            let stats = db.stats().unwrap().transactions;
            spilled += stats.spilled_versions;
            // The largest transaction here overwrites five rows of 12,000 bytes.
            assert!(stats.version_bytes < VERSION_BYTES + 64 * 1024, "{stats:?}");
            assert_eq!(stats.snapshots_given_up, 0);
        }
        assert!(spilled > 0, "nothing was ever spilled");
        check(&db);
        drop(snapshots);
        let stats = db.stats().unwrap().transactions;
        assert_eq!((stats.versions, stats.version_bytes, stats.spilled_versions), (0, 0, 0));
        db.close().unwrap();
    });
}

/// The power goes while scratch pages are in use: no page of the database is among them.
#[test]
fn scratch_pages_are_free_after_a_power_cut() {
    on_each_store(0..8, |seed, store| {
        let mut random = Random::with_seed(seed);
        let disks = Disks::new(seed);
        let mut model = Model::new();
        for life in 0..4 {
            let db = builder(store).open_on(disks.devices(store)).unwrap();
            check(&db);
            let table = db.table("t").unwrap();
            let found: Model =
                rows(&db.snapshot().unwrap(), &table).into_iter().map(|(k, v)| (k.to_vec(), v.to_vec())).collect();
            assert_eq!(found, model);
            // Its pages were changed since the last checkpoint when they are freed, so redo needs what is stored of them: they
            // must not become scratch pages before the next one.
            let other = db.table("dropped").unwrap();
            overwrite(&db, &other, &mut Model::new(), &mut random, 60);
            db.checkpoint().unwrap();
            overwrite(&db, &other, &mut Model::new(), &mut random, 30);
            drop(other);
            overwrite(&db, &table, &mut model, &mut random, 40);
            db.drop_table("dropped").unwrap();
            // More than the pool holds: the freed pages are stored, and leave it.
            let large = db.table("large").unwrap();
            if life == 0 {
                for n in 0..500u32 {
                    let mut tx = db.begin().unwrap();
                    tx.put(&large, n.to_be_bytes(), [7; 1000]).unwrap();
                    tx.commit().unwrap();
                }
            }
            for _ in 0..2 {
                assert_eq!(rows(&db.snapshot().unwrap(), &large).len(), 500);
            }
            let before = model.clone();
            let snapshot = db.snapshot().unwrap();
            overwrite(&db, &table, &mut model, &mut random, 100);
            compare(&snapshot, &table, &before, &mut random);
            assert!(db.stats().unwrap().transactions.spilled_versions > 0, "nothing was spilled");
            // As a crash does it: nothing is stored or freed in order.
            let images = [&disks.data, &disks.double_write, &disks.log].map(|device| device.fork());
            drop(snapshot);
            drop(db);
            let [data, double_write, log] = images;
            for (device, image) in [(&disks.data, data), (&disks.double_write, double_write), (&disks.log, log)] {
                image.power_cut(&mut random);
                device.load(&image.image());
            }
        }
    });
}

/// On a device that cannot grow: what cannot be kept for snapshots is theirs to lose, and no commit fails for it.
#[test]
fn where_there_is_no_room_the_oldest_snapshot_is_given_up() {
    on_each_store(0..3, |seed, store| {
        let mut random = Random::with_seed(seed);
        let disks = Disks::new(seed);
        let db = builder(store).open_on(disks.devices(store)).unwrap();
        let table = db.table("t").unwrap();
        let fill = |value: u8| {
            for n in 0..600u32 {
                let mut tx = db.begin().unwrap();
                tx.put(&table, n.to_be_bytes(), vec![value; 2000]).unwrap();
                tx.commit().unwrap();
            }
        };
        fill(0);
        disks.data.inject(Fault::NoSpaceOnGrow);
        let mut snapshots = Vec::new();
        for value in 1..8 {
            snapshots.push((value - 1, db.snapshot().unwrap()));
            fill(value);
        }
        let mut given_up = 0;
        for (value, snapshot) in &snapshots {
            match snapshot.get(&table, random.u32(0..600).to_be_bytes()) {
                Ok(found) => assert_eq!(found.unwrap()[..], vec![*value; 2000][..]),
                Err(error) => {
                    assert!(error.kind() == ErrorKind::SnapshotTooOld && error.is_retryable(), "{error}");
                    let cause = std::error::Error::source(&error).expect("the cause is kept").to_string();
                    assert!(cause.contains("data"), "{cause}");
                    given_up += 1;
                }
            }
        }
        assert!(given_up > 0, "there was room for everything");
        assert!(db.stats().unwrap().transactions.snapshots_given_up >= given_up);
        assert_eq!(db.get(&table, 7u32.to_be_bytes()).unwrap().unwrap()[..], vec![7; 2000][..]);
        drop(snapshots);
        check(&db);
        // Room that old versions have is room for rows: a new table fills what is left, beside a snapshot.
        let snapshot = db.snapshot().unwrap();
        fill(9);
        let more = db.table("more").unwrap();
        let mut rows = 0u32;
        let error = loop {
            let mut tx = db.begin().unwrap();
            match tx.put(&more, rows.to_be_bytes(), vec![1; 2000]).and_then(|()| tx.commit()) {
                Ok(_) => rows += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.kind(), ErrorKind::StoreFull, "{error}");
        assert_eq!(db.stats().unwrap().transactions.scratch_pages, 0, "a commit failed while scratch pages had room");
        drop(snapshot);
        check(&db);
    });
}

/// First committer wins, also where the version that tells of the first is on the device.
#[test]
fn a_conflict_is_seen_in_spilled_versions() {
    simulate(0..4, |seed, _| {
        let disks = Disks::new(seed);
        let db = builder(StoreKind::InPlace).open_on(disks.devices(StoreKind::InPlace)).unwrap();
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "1"), ("b", "1")]);
        let mut late = db.begin_with(Isolation::SnapshotIsolation).unwrap();
        put(&db, &table, &[("a", "2")]);
        let mut model = Model::new();
        let other = db.table("other").unwrap();
        overwrite(&db, &other, &mut model, &mut Random::with_seed(seed), 200);
        while db.stats().unwrap().transactions.spilled_versions == 0 {
            overwrite(&db, &other, &mut model, &mut Random::with_seed(seed), 10);
        }
        assert_eq!(late.get(&table, "a").unwrap().unwrap(), b"1");
        late.put(&table, "b", "2").unwrap();
        assert!(matches!(late.put(&table, "a", "3"), Err(error) if error.kind() == ErrorKind::WriteConflict));
    });
}

/// Scratch pages that a crash tore are no damage to a base backup, and no page is lent whose changes its restore repeats.
#[test]
fn a_base_backup_beside_spilled_versions_restores() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = Db::builder()
        .buffer_pool_bytes(64 * 4096)
        .expert(|expert| expert.version_bytes(VERSION_BYTES))
        .log_bytes(4 << 20)
        .log_archive(at("archive"))
        .open(at("db"))
        .unwrap();
    let mut random = Random::with_seed(3);
    let (table, other) = (db.table("t").unwrap(), db.table("other").unwrap());
    let mut model = Model::new();
    overwrite(&db, &table, &mut model, &mut random, 100);
    overwrite(&db, &other, &mut Model::new(), &mut random, 100);
    let snapshot = db.snapshot().unwrap();
    let before = model.clone();
    overwrite(&db, &table, &mut model, &mut random, 300);
    let mut other = Some(other);
    db.base_backup(at("base"), &mut |_| {
        // Before the first page is copied: what is changed now is repeated by the restore, on pages as they are copied.
        if let Some(other) = other.take() {
            overwrite(&db, &other, &mut Model::new(), &mut random, 100);
            drop(other);
            db.drop_table("other").unwrap();
            db.checkpoint().unwrap();
            overwrite(&db, &table, &mut model, &mut random, 300);
        }
    })
    .unwrap();
    compare(&snapshot, &table, &before, &mut random);
    assert!(db.stats().unwrap().transactions.spilled_versions > 0);
    let expected = contents(&db).unwrap();
    drop(snapshot);
    db.close().unwrap();
    Restore::new(at("base"), at("archive")).run(at("restored")).unwrap();
    let restored = Db::open(at("restored")).unwrap();
    check(&restored);
    assert_eq!(contents(&restored).unwrap(), expected);
}
