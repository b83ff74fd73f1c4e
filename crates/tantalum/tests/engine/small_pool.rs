//! The smallest buffer pool that is allowed: transactions that together write more pages than it has frames, and everything
//! else that has to do with more pages at a time than it has.

use std::time::Duration;

use tantalum::{Builder, Db, Devices, Restore, Table, limits};
use tantalum_device::MemoryDevice;
use tantalum_rt::{Random, spawn};

use crate::support::{check, contents, simulate, slow_devices_of};

const FRAMES: u64 = limits::MIN_POOL_PAGES as u64;
const KEYS: u16 = 2000;

fn smallest() -> Builder {
    Db::builder().buffer_pool_bytes(FRAMES * 4096)
}

/// Puts so many rows into a table, so many in a transaction.
fn fill(db: &Db, table: &Table, rows: u16, value_bytes: usize, in_one: usize) {
    for chunk in (0..rows).collect::<Vec<_>>().chunks(in_one) {
        let mut tx = db.begin().unwrap();
        chunk.iter().for_each(|key| tx.put(table, key.to_be_bytes(), vec![*key as u8; value_bytes]).unwrap());
        tx.commit().unwrap();
    }
}

/// Clients whose transactions write so many random rows each, with values of so many bytes. Returns how often one waited.
fn run(seed: u64, clients: u64, rows: usize, value_bytes: usize) -> u64 {
    let db = smallest().open_on(slow_devices_of(seed, 16 << 20)).unwrap();
    let table = db.table("t").unwrap();
    fill(&db, &table, KEYS, 600, 50);
    let client = |number: u64| {
        let (db, table) = (db.clone(), table.clone());
        spawn(format!("client-{number}"), move || {
            let mut random = Random::with_seed(seed * 100 + number);
            for _ in 0..4 {
                // In order, so that none is the loser of a deadlock.
                let mut keys: Vec<u16> = (0..rows).map(|_| random.u16(..KEYS)).collect();
                keys.sort_unstable();
                let mut tx = db.begin().unwrap();
                for key in keys {
                    tx.put(&table, key.to_be_bytes(), vec![number as u8; value_bytes]).unwrap();
                }
                tx.commit().unwrap();
            }
        })
    };
    let clients: Vec<_> = (0..clients).map(client).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    check(&db);
    db.stats().unwrap().pool.pin_waits
}

#[test]
fn commits_do_not_wait_for_each_others_frames() {
    simulate(0..4, |seed, _| assert!(run(seed, 24, 8, 600) > 0, "the frames are never short"));
}

#[test]
fn nor_do_commits_of_large_values() {
    simulate(0..4, |seed, _| assert!(run(seed, 8, 1, 80_000) > 0, "the frames are never short"));
}

/// While a client commits to another table, four leaves at a time.
#[test]
fn a_table_of_more_leaves_than_frames_is_dropped() {
    simulate(0..4, |seed, _| {
        let db = smallest().open_on(slow_devices_of(seed, 16 << 20)).unwrap();
        let (dropped, kept) = (db.table("dropped").unwrap(), db.table("kept").unwrap());
        fill(&db, &dropped, KEYS, 600, 50);
        fill(&db, &kept, KEYS, 600, 50);
        let client = spawn("client", {
            let (db, kept) = (db.clone(), kept.clone());
            move || {
                for round in 0..40u16 {
                    let mut tx = db.begin().unwrap();
                    (0..4).for_each(|n| tx.put(&kept, (500 * n + round).to_be_bytes(), [1; 600]).unwrap());
                    tx.commit().unwrap();
                }
            }
        });
        drop(dropped);
        db.drop_table("dropped").unwrap();
        client.join().unwrap();
        check(&db);
        assert_eq!(db.tables().unwrap(), ["kept"]);
    });
}

/// A leaf has more of them, and these have more pages, than the pool has frames.
#[test]
fn large_values_are_read_deleted_and_dropped() {
    simulate(0..2, |seed, _| {
        let db = smallest().open_on(slow_devices_of(seed, 16 << 20)).unwrap();
        for name in ["deleted", "dropped"] {
            fill(&db, &db.table(name).unwrap(), 40, 100_000, 1);
        }
        let table = db.table("deleted").unwrap();
        let rows = contents(&db).unwrap();
        assert!(rows.iter().all(|(_, rows)| rows.iter().all(|(key, value)| value[..] == [key[1]; 100_000])));
        let mut tx = db.begin().unwrap();
        (0..40u16).for_each(|key| assert!(tx.delete(&table, key.to_be_bytes()).unwrap()));
        tx.commit().unwrap();
        db.drop_table("dropped").unwrap();
        check(&db);
        assert_eq!(contents(&db).unwrap(), [("deleted".into(), Vec::new())]);
    });
}

/// It would hold all frames while it waits for one more, and all others would wait for it.
#[test]
fn a_transaction_of_more_pages_than_there_are_frames_is_staged_and_so_is_a_value_of_more() {
    simulate(0..4, |seed, _| {
        let db = smallest().open_on(slow_devices_of(seed, 16 << 20)).unwrap();
        let table = db.table("t").unwrap();
        fill(&db, &table, KEYS, 600, 50);
        let writing = |keys: &mut dyn Iterator<Item = u16>, value_bytes: usize| {
            let begun = tantalum_rt::now();
            let mut tx = db.begin().unwrap();
            keys.for_each(|key| tx.put(&table, key.to_be_bytes(), vec![7; value_bytes]).unwrap());
            let result = tx.commit();
            assert!(tantalum_rt::now().duration_since(begun) < Duration::from_secs(1), "it waits for no timeout");
            result
        };
        writing(&mut (0..45).map(|n| 8 * n), 600).unwrap();
        writing(&mut [9].into_iter(), 45 * 4000).unwrap();
        writing(&mut (0..KEYS).step_by(4), 600).unwrap();
        assert_eq!(db.stats().unwrap().transactions.staged_commits, 1);
        writing(&mut [8].into_iter(), 60 * 4096).unwrap();
        assert_eq!(db.stats().unwrap().transactions.staged_commits, 2);
        check(&db);
    });
}

/// Values just too large for their leaf have a page each.
#[test]
fn a_backup_is_cut_into_transactions_that_fit() {
    let dir = tempfile::tempdir().unwrap();
    let db = smallest().open(dir.path().join("db")).unwrap();
    fill(&db, &db.table("t").unwrap(), 200, 1100, 10);
    fill(&db, &db.table("u").unwrap(), 10, 150_000, 1);
    let to = dir.path().join("copy");
    db.backup(&to).unwrap();
    let copy = smallest().open(to).unwrap();
    assert_eq!(contents(&copy).unwrap(), contents(&db).unwrap());
    check(&copy);
}

/// What follows the backup has large values too.
#[test]
fn a_base_backup_is_restored() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let db = smallest().log_archive(at("archive")).open(at("db")).unwrap();
    let table = db.table("t").unwrap();
    fill(&db, &table, 400, 1100, 10);
    db.base_backup(at("backup"), &mut |_| {}).unwrap();
    fill(&db, &table, 20, 150_000, 1);
    let expected = contents(&db).unwrap();
    db.close().unwrap();
    Restore::new(at("backup"), at("archive")).run(at("restored")).unwrap();
    let restored = smallest().open(at("restored")).unwrap();
    assert_eq!(contents(&restored).unwrap(), expected);
    check(&restored);
}

/// Where the page size is not asked for, it is that of the database, and so is the smallest pool.
#[test]
fn a_pool_that_is_too_small_for_the_databases_pages_is_refused() {
    let devices = [8, 2, 4].map(|mib| MemoryDevice::new("device", mib << 20));
    let open = |builder: Builder| {
        let [data, double_write, log] = devices.clone();
        builder.open_on(Devices { data, double_write: Some(double_write), log: vec![log] })
    };
    drop(open(Db::builder().page_size(16384)).unwrap());
    let error = open(Db::builder().buffer_pool_bytes(FRAMES * 16384 - 1)).map(drop).unwrap_err();
    assert!(error.to_string().starts_with("option buffer_pool_bytes"), "{error}");
    let db = open(Db::builder().buffer_pool_bytes(FRAMES * 16384)).unwrap();
    fill(&db, &db.table("t").unwrap(), 500, 3000, 20);
    check(&db);
}
