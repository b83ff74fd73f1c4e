//! A process that runs TPC-C on real files, killed with SIGKILL in the middle of it, again and again.
//!
//! The child is this test program run anew; it prints each new order that was acknowledged. After each kill every
//! printed order must be there, the twelve consistency conditions must hold, and the database must be sound.

#![allow(clippy::unwrap_used, reason = "all of it is a test")]

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tantalum::Db;
use tantalum_workloads::driver::{self, Options};
use tantalum_workloads::tpcc::{Output, Parameters, Scale, Tpcc, consistency};

const DIR: &str = "TANTALUM_KILL_TPCC_DIR";
const ROUNDS: usize = 4;

fn open(dir: &Path) -> (Db, Tpcc) {
    let db = Db::builder().log_bytes(8 << 20).buffer_pool_bytes(1 << 20).open(dir).unwrap();
    let parameters = Parameters { warehouses: 2, scale: Scale::tiny(), seed: 1 };
    let tpcc = Tpcc::load_or_reuse(&db, parameters, 2, &mut |_| ()).unwrap();
    (db, tpcc)
}

/// Not a test by itself: what the child does, until it is killed.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let (_db, tpcc) = open(dir.as_ref());
    let print = |output: &Output| {
        if let Output::NewOrder { warehouse, district, order, .. } = output {
            writeln!(std::io::stdout(), "acknowledged {warehouse} {district} {order} .").unwrap();
        }
    };
    let tpcc = Arc::new(tpcc.with_observer(Box::new(print)));
    driver::run(&tpcc, Options::timed(6, Duration::ZERO, Duration::from_secs(600)), &mut |_| ()).unwrap();
}

/// Runs the child until it has acknowledged so many orders, kills it, and gives them all.
fn run_and_kill(dir: &Path, count: usize) -> Vec<(u32, u8, u32)> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut acknowledged = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        // The test harness prints before the first line, and the kill may cut the last one.
        let line = line.unwrap();
        let Some((_, numbers)) = line.split_once("acknowledged ") else { continue };
        let [w, d, o, "."] = numbers.split(' ').collect::<Vec<_>>()[..] else { continue };
        acknowledged.push((w.parse().unwrap(), d.parse().unwrap(), o.parse().unwrap()));
        if acknowledged.len() == count {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(acknowledged.len() >= count, "the child ended by itself: {status}");
    acknowledged
}

#[test]
fn no_acknowledged_order_is_lost_when_the_process_is_killed() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for round in 0..ROUNDS {
        acknowledged.extend(run_and_kill(dir.path(), 40 + 60 * round));
        let (db, tpcc) = open(dir.path());
        for &(w, d, o) in &acknowledged {
            assert!(tpcc.has_order(w, d, o).unwrap(), "round {round}: order {o} of {w}, {d} is lost");
        }
        let conditions = consistency::check(&db).unwrap();
        assert!(conditions.iter().all(consistency::Condition::is_ok), "round {round}: {conditions:#?}");
        assert!(db.check().unwrap().problems().is_empty(), "round {round}");
        drop(tpcc);
        db.close().unwrap();
    }
}
