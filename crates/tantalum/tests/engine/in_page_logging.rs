//! Databases on the in-page logging store: on raw flash, which nothing else can use, and in a directory.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tantalum::{Builder, Db, Devices, StoreKind, internals::inspect_unit};
use tantalum_device::{AlignedBuffer, Device, Durability, Fault, MemoryDevice, MemoryProfile};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_rt::{Random, Simulation, sleep, spawn};

fn device(profile: &str, bytes: u64) -> Arc<EmulatedDevice> {
    EmulatedDevice::new(profile, Profile::named(profile).unwrap().with_capacity(bytes).build().unwrap())
}

fn builder() -> Builder {
    Db::builder().page_store(StoreKind::InPageLogging).page_size(8192).buffer_pool_bytes(64 * 8192)
}

fn rows(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let table = db.table("rows").unwrap();
    let snapshot = db.snapshot().unwrap();
    let rows = snapshot.range(&table, ..).unwrap().map(|row| {
        let (key, value) = row.unwrap();
        (key.to_vec(), value.to_vec())
    });
    rows.collect()
}

/// Many commits at once, then a power cut: all that was acknowledged is there when the database is opened again.
#[test]
fn on_raw_flash_commits_survive_power_cuts() {
    for seed in 0..4 {
        Simulation::new(seed)
            .run(move || {
                let (data, log) = (device("nand-k9wag08u1a", 12 << 20), device("ssd-2008", 4 << 20));
                let devices = || Devices { data: data.clone(), double_write: None, log: vec![log.clone()] };
                let mut expected = BTreeMap::new();
                let mut random = Random::with_seed(seed);
                for life in 0..4u32 {
                    let db = builder().open_on(devices()).unwrap();
                    assert_eq!(rows(&db), expected.clone().into_iter().collect::<Vec<_>>());
                    assert!(db.check().unwrap().is_sound());
                    let table = db.table("rows").unwrap();
                    let clients: Vec<_> = (0..4u32)
                        .map(|client| {
                            let (db, table) = (db.clone(), table.clone());
                            spawn(format!("client-{client}"), move || {
                                let mut random = Random::with_seed(seed * 100 + u64::from(life * 10 + client));
                                let mut written = Vec::new();
                                for n in 0..60u32 {
                                    let mut tx = db.begin().unwrap();
                                    for _ in 0..random.u32(1..4) {
                                        let key = format!("{client}-{:04}", random.u32(0..300)).into_bytes();
                                        let value =
                                            vec![random.u8(..); random.usize(0..if n == 7 { 20_000 } else { 200 })];
                                        tx.put(&table, &key, &value).unwrap();
                                        written.push((key, value));
                                    }
                                    tx.commit().unwrap();
                                }
                                written
                            })
                        })
                        .collect();
                    for client in clients {
                        expected.extend(client.join().expect("no client panics"));
                    }
                    let in_page = db.stats().unwrap().store.in_page.expect("it is such a store");
                    assert!(in_page.merges > 0 && in_page.sectors_written > 0, "{in_page:?}");
                    drop(table);
                    if life % 2 == 0 {
                        data.power_cut(&mut random);
                        log.power_cut(&mut random);
                        drop(db);
                        data.power_on().unwrap();
                        log.power_on().unwrap();
                    } else {
                        db.close().unwrap();
                    }
                }
            })
            .expect_finished();
    }
}

/// When changes could not be stored, a page may stand twice among those of the next round, and be changed between the two.
#[test]
fn a_page_is_stored_once_in_a_round() {
    for seed in 0..40 {
        Simulation::new(seed)
            .run(move || {
                let latency = Duration::from_micros(5)..Duration::from_micros(300);
                let profile = MemoryProfile {
                    write_latency: latency.clone(),
                    read_latency: latency.clone(),
                    flush_latency: latency,
                    seed,
                    ..MemoryProfile::default()
                };
                let device = |name: &str, bytes| MemoryDevice::with_profile(name, bytes, profile.clone());
                let data = device("data", 8 << 20);
                let devices = Devices { data: data.clone(), double_write: None, log: vec![device("log", 4 << 20)] };
                let db = builder().open_on(devices).unwrap();
                let table = db.table("rows").unwrap();
                let clients: Vec<_> = (0..8u8)
                    .map(|client| {
                        let (db, table) = (db.clone(), table.clone());
                        spawn(format!("client-{client}"), move || {
                            for _ in 0..40 {
                                let mut tx = db.begin().unwrap();
                                tx.put(&table, [client], [client; 600]).unwrap();
                                // Whether it is done does not matter here.
                                let _ = tx.commit();
                            }
                        })
                    })
                    .collect();
                let mut random = Random::with_seed(seed);
                while clients.iter().any(|client| !client.is_finished()) {
                    data.inject(Fault::FailWrites { after: random.u64(0..3) });
                    sleep(Duration::from_micros(random.u64(1..500)));
                    data.clear_faults();
                    sleep(Duration::from_micros(random.u64(1..1000)));
                }
                clients.into_iter().for_each(|client| client.join().expect("no client panics"));
                assert!(db.stats().unwrap().pool.failed_write_backs > 0);
                assert!(db.check().unwrap().is_sound());
            })
            .expect_finished();
    }
}

#[test]
fn in_a_directory_it_is_found_again_with_its_settings() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = builder().log_bytes(8 << 20).expert(|expert| expert.log_region_bytes(64 << 10)).open(&path).unwrap();
    let table = db.table("rows").unwrap();
    for n in 0..2000u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&table, n.to_be_bytes(), [n as u8; 100]).unwrap();
        tx.commit_async().unwrap();
    }
    db.close().unwrap();
    let db = Db::open(&path).unwrap();
    assert_eq!(rows(&db).len(), 2000);
    assert!(db.check().unwrap().is_sound());
    assert_eq!(db.stats().unwrap().page_store, StoreKind::InPageLogging);
    db.close().unwrap();
    let error = Db::builder().page_store(StoreKind::InPlace).open(&path).unwrap_err().to_string();
    assert!(error.contains("page store in-page-logging"), "{error}");
}

/// Its log holds no changes, so nothing can be restored from it.
#[test]
fn what_needs_changes_in_the_log_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |result: tantalum::Result<Db>| result.unwrap_err().to_string();
    let archive = dir.path().join("archive");
    let error = refused(builder().log_archive(&archive).open(dir.path().join("archived")));
    assert!(error.contains("log_archive: the page store in-page-logging"), "{error}");
    let path = dir.path().join("db");
    let db = builder().open(&path).unwrap();
    let error = db.base_backup(dir.path().join("base"), &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("make a backup of rows"), "{error}");
    assert!(!dir.path().join("base").exists());
    db.table("rows").unwrap();
    db.close().unwrap();
    let error = refused(Db::builder().log_archive(&archive).open(&path));
    assert!(error.contains("log_archive: the page store in-page-logging"), "{error}");
    std::fs::rename(path.join("log-0"), path.join("lost")).unwrap();
    let error = refused(Db::builder().expert(|expert| expert.rebuild_log()).open(&path));
    assert!(error.contains("rebuild_log: the page store in-page-logging"), "{error}");
    assert!(!path.join("log-0").exists() && !archive.exists(), "nothing was made");
    std::fs::rename(path.join("lost"), path.join("log-0")).unwrap();
    assert_eq!(Db::open(&path).unwrap().tables().unwrap(), ["rows"]);
}

#[test]
fn a_backup_of_rows_has_the_same_store() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder()
        .expert(|expert| expert.erase_unit_bytes(64 << 10).carry_over_percent(20))
        .open(dir.path().join("db"))
        .unwrap();
    let table = db.table("rows").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&table, b"key", b"value").unwrap();
    tx.commit().unwrap();
    db.backup(dir.path().join("copy")).unwrap();
    let copy = Db::open(dir.path().join("copy")).unwrap();
    assert_eq!(copy.stats().unwrap().page_store, StoreKind::InPageLogging);
    assert_eq!(rows(&copy), rows(&db));
}

/// Log devices leave, though the newest status record, which the log cannot do without, may stand on them.
#[test]
fn log_devices_come_and_go() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = builder().log_bytes(4 << 20).open(&path).unwrap();
    let table = db.table("rows").unwrap();
    for n in 0..20u32 {
        let (old, new) = (format!("log-{n}"), format!("log-{}", n + 1));
        let mut tx = db.begin().unwrap();
        tx.put(&table, n.to_be_bytes(), b"value").unwrap();
        tx.commit().unwrap();
        db.replace_log_device(&old, &*new).unwrap();
    }
    drop((table, db));
    assert_eq!(rows(&Db::open(&path).unwrap()).len(), 20);
}

/// A table on many pages; returns how many rows lie on a page, about.
fn fill(db: &Db, rows: u32) -> usize {
    let table = db.table("rows").unwrap();
    for first in (0..rows).step_by(100) {
        let mut tx = db.begin().unwrap();
        for n in first..rows.min(first + 100) {
            tx.put(&table, n.to_be_bytes(), [7; 60]).unwrap();
        }
        tx.commit_async().unwrap();
    }
    db.checkpoint().unwrap();
    let report = db.check().unwrap();
    assert!(report.is_sound(), "{:?}", report.problems());
    let table = report.tables.iter().find(|table| table.name == "rows").expect("it was filled");
    (table.rows / table.pages) as usize
}

/// "In-Page Logging", section 5.4: nothing is repeated or undone, so opening does not read what is not merged.
#[test]
fn opening_reads_no_more_when_more_is_unmerged() {
    let run = |updates: u32| {
        let root = move || {
            let (data, log) = (device("nand-k9wag08u1a", 24 << 20), device("ssd-2008", 8 << 20));
            let devices = || Devices { data: data.clone(), double_write: None, log: vec![log.clone()] };
            let open = || builder().expert(|expert| expert.log_region_bytes(32 << 10)).open_on(devices()).unwrap();
            let db = open();
            let per_page = fill(&db, 20_000);
            let table = db.table("rows").unwrap();
            let before = db.stats().unwrap().store.in_page.expect("it is such a store");
            for n in 0..updates {
                let mut tx = db.begin().unwrap();
                // Each on another page than the one before.
                let key = (n as usize * (per_page + 1) * 7 % 20_000) as u32;
                tx.put(&table, key.to_be_bytes(), [n as u8; 60]).unwrap();
                tx.commit().unwrap();
            }
            let after = db.stats().unwrap().store.in_page.expect("it is such a store");
            let unmerged = after.sectors_written - before.sectors_written;
            let mut random = Random::with_seed(1);
            data.power_cut(&mut random);
            log.power_cut(&mut random);
            drop((table, db));
            data.power_on().unwrap();
            log.power_on().unwrap();
            let (read_before, started) = (data.counters().host_read_bytes, tantalum_rt::now());
            let db = open();
            let (read, took) = (data.counters().host_read_bytes - read_before, tantalum_rt::now() - started);
            assert_eq!(rows(&db).len(), 20_000);
            db.close().unwrap();
            (unmerged, read, took)
        };
        Simulation::new(5).run(root).expect_finished()
    };
    let (few, many) = (run(10), run(1000));
    println!("unmerged sectors, bytes read by open, and its time: {few:?}, {many:?}");
    assert!(many.0 >= 100 * few.0, "{few:?} {many:?}");
    assert!(many.1 * 10 <= few.1 * 11 && many.2 * 10 <= few.2 * 12, "{few:?} {many:?}");
}

/// The statuses of past sessions are kept for as long as they are needed, and the log sectors that need them for no more than
/// some sessions.
#[test]
fn sessions_are_forgotten() {
    let log: Arc<dyn Device> = MemoryDevice::new("log", 8 << 20);
    let data: Arc<dyn Device> = MemoryDevice::new("data", 8 << 20);
    let devices = || Devices { data: data.clone(), double_write: None, log: vec![log.clone()] };
    let mut most = 0;
    for session in 0..150u32 {
        let db = builder().open_on(devices()).unwrap();
        assert_eq!(rows(&db).len() as u32, session);
        most = most.max(db.stats().unwrap().store.in_page.expect("it is such a store").sessions_kept);
        let table = db.table("rows").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&table, session.to_be_bytes(), b"value").unwrap();
        tx.commit().unwrap();
        db.close().unwrap();
    }
    assert!((32..=65).contains(&most), "{most}");
}

/// "In-Page Logging", section 3.2: at 5 to 20 % dirty pages, in-memory log sectors take 1.3 % of the pool at most.
#[test]
fn memory_for_changes_is_a_small_part_of_the_pool() {
    for percent in [5, 10, 20] {
        let log: Arc<dyn Device> = MemoryDevice::new("log", 8 << 20);
        let data: Arc<dyn Device> = MemoryDevice::new("data", 64 << 20);
        let devices = || Devices { data: data.clone(), double_write: None, log: vec![log.clone()] };
        let open = || builder().buffer_pool_bytes(512 * 8192).open_on(devices()).unwrap();
        let (rows, frames) = (40_000, 512);
        let db = open();
        let per_page = fill(&db, rows);
        db.close().unwrap();
        // Counts anew.
        let db = open();
        let table = db.table("rows").unwrap();
        // All at once: a commit's changes are in memory until its round has stored them.
        let pages = frames * percent / 100;
        let mut tx = db.begin().unwrap();
        for row in (0..pages).flat_map(|page| (0..3).map(move |n| page * (per_page + 1) + n * 2)) {
            assert!((row as u32) < rows, "there are as many pages");
            tx.put(&table, (row as u32).to_be_bytes(), [9; 60]).unwrap();
        }
        tx.commit().unwrap();
        let pool = db.stats().unwrap().pool;
        let share = pool.change_bytes_peak as f64 / pool.memory_bytes as f64;
        println!("{percent} % dirty pages: {:.2} % of the pool for their changes", 100.0 * share);
        assert!(pool.change_bytes_peak as usize >= pages * 3 * 60 && share <= 0.013, "{percent} %: {pool:?}");
        assert_eq!(pool.change_bytes, 0, "all is stored");
        db.close().unwrap();
    }
}

/// Many commits at once, each as large as a change group can be, change far more than the units in reserve have room for while
/// it is active: they wait for each other, and none fails.
#[test]
fn what_commits_at_once_may_be_larger_than_the_reserve() {
    const CLIENTS: u32 = 8;
    const ROWS: u32 = 6200;
    /// A little less than a change group can have on this device; what is larger is staged.
    const GROUP_BYTES: u32 = 240 << 10;
    for (seed, log_profile) in [(0, "ssd-2008"), (1, "hdd-7200"), (2, "hdd-7200")] {
        Simulation::new(seed)
            .run(move || {
                let (data, log) = (device("nand-k9wag08u1a", 8 << 20), device(log_profile, 8 << 20));
                let devices = || Devices { data: data.clone(), double_write: None, log: vec![log.clone()] };
                let db = builder().buffer_pool_bytes(1024 * 8192).open_on(devices()).unwrap();
                let table = db.table("rows").unwrap();
                for row in 0..ROWS {
                    let mut tx = db.begin().unwrap();
                    tx.put(&table, row.to_be_bytes(), [0; 1000]).unwrap();
                    tx.commit_async().unwrap();
                }
                let in_page = || db.stats().unwrap().store.in_page.expect("it is such a store");
                let clients: Vec<_> = (0..CLIENTS)
                    .map(|client| {
                        let (db, table) = (db.clone(), table.clone());
                        spawn(format!("client-{client}"), move || {
                            let mut random = Random::with_seed(seed * 100 + u64::from(client));
                            // Half of them write little.
                            let (rounds, rows) = if client % 2 == 0 { (10, GROUP_BYTES / 1200) } else { (60, 3) };
                            let mut written = BTreeMap::new();
                            for _ in 0..rounds {
                                let mut tx = db.begin().unwrap();
                                let first = random.u32(0..ROWS / CLIENTS - rows);
                                for row in first..first + rows {
                                    // Of its own, or they would wait for each other's locks.
                                    let (key, value) = ((row * CLIENTS + client).to_be_bytes().to_vec(), random.u8(..));
                                    tx.put(&table, &key, [value; 1000]).unwrap();
                                    written.insert(key, vec![value; 1000]);
                                }
                                tx.commit().unwrap();
                            }
                            written
                        })
                    })
                    .collect();
                let written: BTreeMap<_, _> =
                    clients.into_iter().flat_map(|client| client.join().expect("no client panics")).collect();
                assert_eq!(db.stats().unwrap().transactions.staged_commits, 0);
                let in_page = in_page();
                assert!(in_page.merges_avoided > 0 && in_page.overflow_sectors_written > 0, "{in_page:?}");
                let report = db.check().unwrap();
                assert!(report.is_sound(), "{:?}", report.problems());
                let mut random = Random::with_seed(seed);
                data.power_cut(&mut random);
                log.power_cut(&mut random);
                drop((table, db));
                data.power_on().unwrap();
                log.power_on().unwrap();
                let mut found = rows(&builder().open_on(devices()).unwrap());
                assert_eq!(found.len(), ROWS as usize);
                found.retain(|(key, _)| written.contains_key(key));
                assert!(found == written.into_iter().collect::<Vec<_>>(), "what was committed is there");
            })
            .expect_finished();
    }
}

/// The last log sectors of a unit are counted by no later one. If they are damaged while the database is closed, it is noticed
/// all the same, and not only once.
#[test]
fn the_last_log_sector_is_missed_when_it_is_damaged_in_a_closed_database() {
    let log: Arc<dyn Device> = MemoryDevice::new("log", 8 << 20);
    let data: Arc<dyn Device> = MemoryDevice::new("data", 8 << 20);
    let devices = || Devices { data: data.clone(), double_write: None, log: vec![log.clone()] };
    let (unit_bytes, region_bytes, sector_bytes) = (128 << 10, 64 << 10, 4096u64);
    let write = |value: u8| {
        let db = builder().open_on(devices()).unwrap();
        let table = db.table("rows").unwrap();
        let mut tx = db.begin().unwrap();
        tx.put(&table, "key", [value; 100]).unwrap();
        tx.commit().unwrap();
        let unit = (2..64).map(|unit| inspect_unit(&db, unit).unwrap()).find(|unit| unit.purpose == "home").unwrap();
        let number = unit.sectors.iter().rev().find(|sector| sector.state == "log").unwrap().number as u64;
        db.close().unwrap();
        unit.offset_bytes + unit_bytes - region_bytes + (number + 1) * sector_bytes
    };
    write(0);
    let last = write(1);
    // One session in which no task touches the unit does not forget it.
    builder().open_on(devices()).unwrap().close().unwrap();
    let mut sector = AlignedBuffer::zeroed(sector_bytes as usize);
    data.read(last, &mut sector).unwrap();
    sector[100] ^= 1;
    data.write(last, &[&sector], Durability::Durable).unwrap();
    for _ in 0..2 {
        let found = match builder().open_on(devices()) {
            Err(error) => error.to_string(),
            Ok(db) => format!("{:?}", db.check().unwrap().problems()),
        };
        assert!(found.contains("log sectors when the database was closed"), "{found}");
    }
}
