//! Transactions that together write more pages than the buffer pool has frames.

use tantalum::Db;
use tantalum_rt::{Random, spawn};

use crate::support::{check, simulate, slow_devices_of};

const FRAMES: u64 = 64;
const KEYS: u16 = 2000;

/// Clients whose transactions write so many random rows each, with values of so many bytes. Returns how often one waited.
fn run(seed: u64, clients: u64, rows: usize, value_bytes: usize) -> u64 {
    let db = Db::builder().buffer_pool_bytes(FRAMES * 4096).open_on(slow_devices_of(seed, 16 << 20)).unwrap();
    let table = db.table("t").unwrap();
    for chunk in (0..KEYS).collect::<Vec<_>>().chunks(50) {
        let mut tx = db.begin().unwrap();
        chunk.iter().for_each(|key| tx.put(&table, key.to_be_bytes(), [0; 600]).unwrap());
        tx.commit().unwrap();
    }
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
