//! Databases on the in-page logging store: on raw flash, which nothing else can use, and in a directory.

#![allow(clippy::unwrap_used)] // Helpers of tests fail like the tests.

use std::sync::Arc;

use tantalum::{Builder, Db, Devices, StoreKind};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_rt::{Random, Simulation, spawn};

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
                let mut expected = std::collections::BTreeMap::new();
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

#[test]
fn in_a_directory_it_is_found_again_with_its_settings() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = builder().log_bytes(8 << 20).log_region_bytes(64 << 10).open(&path).unwrap();
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
    let error = refused(Db::builder().rebuild_log().open(&path));
    assert!(error.contains("rebuild_log: the page store in-page-logging"), "{error}");
    assert!(!path.join("log-0").exists() && !archive.exists(), "nothing was made");
    std::fs::rename(path.join("lost"), path.join("log-0")).unwrap();
    assert_eq!(Db::open(&path).unwrap().tables().unwrap(), ["rows"]);
}

#[test]
fn a_backup_of_rows_has_the_same_store() {
    let dir = tempfile::tempdir().unwrap();
    let db = builder().erase_unit_bytes(64 << 10).carry_over_percent(20).open(dir.path().join("db")).unwrap();
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
