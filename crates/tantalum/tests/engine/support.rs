//! What the tests share: small databases, and runs under many schedules.

use std::{collections::BTreeMap, path::Path, sync::Arc, time::Duration};

use tantalum::{Builder, Db, Devices, Snapshot, StoreKind, Table, Value};
use tantalum_device::{Device, MemoryDevice, MemoryProfile, files::SimulatedFiles};
use tantalum_rt::{Simulation, sleep, spawn};

pub type Rows = Vec<(Value, Value)>;

/// What a table should hold.
pub type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// A database that is quickly made.
pub fn small() -> Builder {
    Db::builder().log_bytes(4 << 20).log_partitions(2).buffer_pool_bytes(64 * 4096)
}

pub fn open(path: &Path) -> Db {
    small().open(path).unwrap()
}

/// Fresh devices whose writes take a while, so that much happens meanwhile.
pub fn slow_devices(seed: u64) -> Devices {
    slow_devices_of(seed, 1 << 20)
}

/// As [`slow_devices`], each of so many bytes.
pub fn slow_devices_of(seed: u64, bytes: u64) -> Devices {
    let us = Duration::from_micros;
    let device = |name: &str, salt| {
        let profile = MemoryProfile {
            write_latency: us(20)..us(200),
            read_latency: us(5)..us(50),
            flush_latency: us(20)..us(100),
            seed: seed * 16 + salt,
            ..MemoryProfile::default()
        };
        MemoryDevice::with_profile(name, bytes, profile) as Arc<dyn Device>
    };
    Devices {
        data: device("data", 0),
        double_write: Some(device("doublewrite", 1)),
        log: vec![device("log-0", 2), device("log-1", 3)],
    }
}

/// Runs `f` with each seed on fresh devices, under a random schedule that the seed decides.
pub fn simulate(seeds: std::ops::Range<u64>, f: impl Fn(u64, Devices) + Clone + 'static) {
    for seed in seeds {
        let f = f.clone();
        let run = move || f(seed, slow_devices(seed));
        Simulation::new(seed).time_limit(Duration::from_secs(3600)).run(run).expect_finished();
    }
}

/// Lets the power go after this time, in a task of its own.
pub fn cut_power_after(pause: Duration) {
    spawn("power", move || {
        sleep(pause);
        tantalum_rt::power_cut();
    });
}

/// A small database on a page store of this kind.
pub fn on_store(store: StoreKind) -> Builder {
    let page_bytes = if store == StoreKind::InPageLogging { 8192 } else { 4096 };
    let builder = Db::builder().page_store(store).page_size(page_bytes).buffer_pool_bytes(64 * u64::from(page_bytes));
    if store == StoreKind::LogStructured { builder.expert(|expert| expert.segment_bytes(64 << 10)) } else { builder }
}

/// One in which transactions spill soon.
pub fn with_little_memory(store: StoreKind) -> Builder {
    on_store(store).transaction_memory_bytes(16 << 10).lock_timeout(Duration::from_secs(60))
}

/// As [`simulate`], on each of the page stores in turn, with room for some megabytes.
pub fn simulate_stores(seeds: std::ops::Range<u64>, f: impl Fn(u64, StoreKind, Devices) + Clone + 'static) {
    for seed in seeds {
        let store = [StoreKind::InPlace, StoreKind::InPageLogging, StoreKind::LogStructured][seed as usize % 3];
        let f = f.clone();
        let run = move || {
            let devices = slow_devices_of(seed, 16 << 20);
            let double_write = devices.double_write.filter(|_| store == StoreKind::InPlace);
            f(seed, store, Devices { double_write, ..devices });
        };
        Simulation::new(seed).cores(2).time_limit(Duration::from_secs(3600)).run(run).expect_finished();
    }
}

pub fn put(db: &Db, table: &Table, rows: &[(&str, &str)]) {
    let mut tx = db.begin().unwrap();
    for (key, value) in rows {
        tx.put(table, key, value).unwrap();
    }
    tx.commit().unwrap();
}

pub fn get(db: &Db, table: &Table, key: &str) -> Option<Value> {
    db.begin().unwrap().get(table, key).unwrap()
}

pub fn rows(snapshot: &Snapshot, table: &Table) -> Rows {
    snapshot.range(table, ..).unwrap().collect::<tantalum::Result<_>>().unwrap()
}

/// All rows of a table that are committed.
pub fn committed(db: &Db, table: &Table) -> Model {
    rows(&db.snapshot().unwrap(), table).into_iter().map(|(key, value)| (key.to_vec(), value.to_vec())).collect()
}

/// Waits until all rows that are staged are in their tables.
pub fn wait_until_applied(db: &Db) {
    while db.stats().unwrap().transactions.staging_tables > 0 {
        sleep(Duration::from_millis(5));
    }
}

/// Everything in a database, by table.
pub fn contents(db: &Db) -> tantalum::Result<Vec<(String, Rows)>> {
    let snapshot = db.snapshot()?;
    let read = |name: String| {
        let table = db.table(&name)?;
        Ok((name, snapshot.range(&table, ..)?.collect::<tantalum::Result<_>>()?))
    };
    db.tables()?.into_iter().map(read).collect()
}

pub fn check(db: &Db) {
    assert_eq!(db.check().unwrap().problems(), [] as [&str; 0]);
}

/// Runs in a file system in memory, on whose disk there can be no space.
pub fn simulate_files(seeds: u64, run: impl Fn(Arc<SimulatedFiles>) + Clone + 'static) {
    let us = Duration::from_micros;
    for seed in 0..seeds {
        let profile = MemoryProfile {
            write_latency: us(20)..us(200),
            flush_latency: us(20)..us(200),
            seed,
            ..MemoryProfile::default()
        };
        let system = SimulatedFiles::new(profile);
        let attached = system.attach();
        let run = run.clone();
        Simulation::new(seed).time_limit(Duration::from_secs(3600)).run(move || run(system)).expect_finished();
        drop(attached);
    }
}
