//! Databases on the log-structured store: in a directory, and restored from a base backup.

use std::path::Path;

use tantalum::{Builder, Db, Restore, RestoreTarget, StoreKind};

fn builder() -> Builder {
    Db::builder()
        .page_store(StoreKind::LogStructured)
        .expert(|expert| expert.segment_bytes(64 << 10))
        .buffer_pool_bytes(64 * 4096)
        .log_bytes(8 << 20)
}

fn fill(db: &Db, keys: std::ops::Range<u32>, value: u8) {
    let table = db.table("rows").unwrap();
    for keys in keys.collect::<Vec<_>>().chunks(100) {
        let mut tx = db.begin().unwrap();
        keys.iter().for_each(|key| tx.put(&table, key.to_be_bytes(), [value; 300]).unwrap());
        tx.commit().unwrap();
    }
}

fn rows(db: &Db) -> Vec<(Vec<u8>, u8)> {
    let table = db.table("rows").unwrap();
    let snapshot = db.snapshot().unwrap();
    let rows = snapshot.range(&table, ..).unwrap().map(|row| {
        let (key, value) = row.unwrap();
        (key.to_vec(), value[0])
    });
    rows.collect()
}

fn expected(keys: std::ops::Range<u32>, value: u8) -> Vec<(Vec<u8>, u8)> {
    keys.map(|key| (key.to_be_bytes().to_vec(), value)).collect()
}

#[test]
fn a_database_in_a_directory_grows_is_cleaned_and_opened_again() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("db");
    let db = builder().open(&path).unwrap();
    for value in 0..6 {
        fill(&db, 0..3000, value);
        db.checkpoint().unwrap();
    }
    let stats = db.stats().unwrap();
    let store = stats.store.log_structured.expect("it is such a store");
    assert_eq!((stats.page_store, stats.torn_page_protection.name()), (StoreKind::LogStructured, "store"));
    assert!(store.pages_stored > 0 && store.checkpoints > 0 && store.live_bytes > 0, "{store:?}");
    assert!(db.check().unwrap().is_sound());
    db.close().unwrap();
    assert!(!path.join("doublewrite").exists());

    let db = Db::open(&path).unwrap();
    assert_eq!(rows(&db), expected(0..3000, 5));
    assert_eq!(db.stats().unwrap().store.log_structured.unwrap().appends_rolled_forward, 0);
    let copy = dir.path().join("copy");
    db.backup(&copy).unwrap();
    db.close().unwrap();
    let copy = Db::open(&copy).unwrap();
    assert_eq!(rows(&copy), expected(0..3000, 5));
    assert_eq!(copy.stats().unwrap().page_store, StoreKind::LogStructured);
    copy.close().unwrap();
    let refused = |builder: Builder| builder.open(&path).unwrap_err();
    assert!(refused(Db::builder().expert(|expert| expert.segment_bytes(1 << 20))).to_string().contains("65536"));
    assert!(refused(Db::builder().expert(|expert| expert.segment_fill_percent(50))).to_string().contains("80"));
}

#[test]
fn a_base_backup_and_the_archive_make_the_database_again() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = builder().log_archive(at("archive")).open(at("db")).unwrap();
    fill(&db, 0..500, 1);
    db.base_backup(at("backup"), &mut |_| {}).unwrap();
    fill(&db, 0..200, 2);
    fill(&db, 500..900, 3);
    db.close().unwrap();
    restore(&at("backup"), &at("archive"), &at("restored"));
    let restored = Db::open(at("restored")).unwrap();
    assert_eq!(restored.stats().unwrap().page_store, StoreKind::LogStructured);
    let all: Vec<_> = [expected(0..200, 2), expected(200..500, 1), expected(500..900, 3)].concat();
    assert_eq!(rows(&restored), all);
    assert!(restored.check().unwrap().is_sound());
    restored.close().unwrap();
}

fn restore(backup: &Path, archive: &Path, to: &Path) {
    Restore::new(backup, archive).target(RestoreTarget::End).run(to).unwrap();
}
