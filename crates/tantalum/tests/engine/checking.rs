//! Checks while transactions use the database: they find what is wrong, and nothing else.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum::{Db, ErrorKind, Table};
use tantalum_rt::{Random, sleep, spawn};

use crate::support::{check, on_store, simulate_stores};

/// Rows come and go, small ones and such with pages of their own, so that trees grow and shrink, and so do tables; meanwhile the
/// database is checked again and again.
#[test]
fn a_check_beside_writers_finds_nothing() {
    simulate_stores(0..45, |seed, store, devices| {
        let db = on_store(store).open_on(devices).unwrap();
        let tables = [db.table("one").unwrap(), db.table("two").unwrap()];
        let stop = Arc::new(AtomicBool::new(false));
        let mut clients: Vec<_> = (0..4u64)
            .map(|client| {
                let (db, tables, stop) = (db.clone(), tables.clone(), Arc::clone(&stop));
                spawn(format!("client-{client}"), move || {
                    let mut random = Random::with_seed(seed * 100 + client);
                    while !stop.load(Ordering::Acquire) {
                        write(&db, &tables[random.usize(0..2)], &mut random);
                    }
                })
            })
            .collect();
        let (other, stopped) = (db.clone(), Arc::clone(&stop));
        clients.push(spawn("tables", move || {
            let mut random = Random::with_seed(seed);
            while !stopped.load(Ordering::Acquire) {
                let table = other.table("scratch").unwrap();
                (0..random.u32(1..12)).for_each(|_| write(&other, &table, &mut random));
                drop(table);
                sleep(Duration::from_micros(random.u64(0..300)));
                other.drop_table("scratch").unwrap();
            }
        }));
        for _ in 0..6 {
            sleep(Duration::from_micros(Random::with_seed(seed).u64(0..2000)));
            check(&db);
        }
        stop.store(true, Ordering::Release);
        clients.into_iter().for_each(|client| client.join().unwrap());
        check(&db);
    });
}

/// Puts or deletes some rows of a table that grows and shrinks.
fn write(db: &Db, table: &Table, random: &mut Random) {
    let from = random.u32(0..120);
    let deletes = random.bool();
    let mut tx = db.begin().unwrap();
    for key in from..from + random.u32(1..25) {
        let bytes = if random.u8(0..6) == 0 { random.usize(2000..20_000) } else { random.usize(0..900) };
        let key = format!("{key:0100}");
        let done = if deletes { tx.delete(table, key).map(drop) } else { tx.put(table, key, vec![1; bytes]) };
        match done {
            Ok(()) => {}
            Err(error) if error.is_retryable() => return,
            Err(error) => panic!("{error}"),
        }
    }
    match tx.commit() {
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::TransactionTooLarge => {}
        Err(error) => panic!("{error}"),
    }
}
