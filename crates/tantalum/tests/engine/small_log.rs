//! Groups that need images of more pages than a small log has space for at once: a commit is staged then, and other groups are cut.

use std::time::Duration;

use tantalum::{Db, Devices, StoreKind, Table, TornPageProtection};
use tantalum_rt::{Simulation, sleep, spawn};

use crate::support::{check, committed, put, slow_devices_of, wait_until_applied};

/// Rows that fill a third of a leaf each.
const ROWS: u32 = 900;

fn key(n: u32) -> String {
    format!("{n:05}")
}

/// Runs on a log of 1 MiB, which does not grow, and a pool that has room for more leaves than that has for images.
fn simulate_small_log(run: impl Fn(Db, Table) + Clone + 'static) {
    for seed in 0..4 {
        let run = run.clone();
        let simulated = move || {
            let Devices { data, .. } = slow_devices_of(seed, 16 << 20);
            let Devices { mut log, .. } = slow_devices_of(seed, 1 << 20);
            log.truncate(1);
            let builder = Db::builder().page_store(StoreKind::InPlace).buffer_pool_bytes(2048 * 4096);
            let builder = builder.expert(|expert| expert.torn_page_protection(TornPageProtection::FullPageImages));
            let db = builder.open_on(Devices { data, double_write: None, log }).unwrap();
            let table = db.table("t").unwrap();
            for first in (0..ROWS).step_by(20) {
                let mut tx = db.begin().unwrap();
                (first..first + 20).for_each(|n| tx.put(&table, key(n), [1; 1000]).unwrap());
                tx.commit().unwrap();
            }
            db.checkpoint().unwrap();
            run(db.clone(), table);
            check(&db);
            db.close().unwrap();
        };
        Simulation::new(seed).cores(2).time_limit(Duration::from_secs(120)).run(simulated).expect_finished();
    }
}

/// In each third leaf or so: images of all these pages exceed the whole log. The rows are then moved there, in groups that fit. Small
/// commits go on.
#[test]
fn a_commit_that_changes_very_many_pages_is_staged() {
    simulate_small_log(|db, table| {
        let small = {
            let (db, table) = (db.clone(), table.clone());
            spawn("small commits", move || {
                for n in 0..200 {
                    put(&db, &table, &[(&format!("{}-", key(4 * n)), "small")]);
                    sleep(Duration::from_micros(100));
                }
            })
        };
        let before = committed(&db, &table).len();
        let mut tx = db.begin().unwrap();
        for n in (0..ROWS).step_by(3) {
            tx.put(&table, format!("{}+", key(n)), "large").unwrap();
        }
        tx.commit().unwrap();
        assert_eq!(db.stats().unwrap().transactions.staged_commits, 1);
        assert!(committed(&db, &table).len() >= before + ROWS as usize / 3);
        small.join().unwrap();
        wait_until_applied(&db);
        let rows = committed(&db, &table);
        assert_eq!(rows.len(), (ROWS + ROWS / 3 + 200) as usize);
        assert_eq!(rows.values().filter(|value| value[..] == *b"large").count(), ROWS as usize / 3);
    });
}

/// The pages of its pieces are changed when these are deleted.
#[test]
fn a_value_of_more_pages_than_the_log_has_images_for_is_deleted() {
    simulate_small_log(|db, table| {
        let mut tx = db.begin().unwrap();
        tx.put(&table, "large", vec![1; 3 << 20]).unwrap();
        tx.commit().unwrap();
        wait_until_applied(&db);
        let used = db.check().unwrap().pages_used;
        db.checkpoint().unwrap();
        let mut tx = db.begin().unwrap();
        assert!(tx.delete(&table, "large").unwrap());
        tx.commit().unwrap();
        while db.stats().unwrap().transactions.values_freed == 0 {
            sleep(Duration::from_millis(1));
        }
        assert!(db.check().unwrap().pages_used + 700 < used);
    });
}
