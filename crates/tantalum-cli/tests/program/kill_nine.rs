//! A real process on real files, killed with SIGKILL in the middle of its work, again and again.
//!
//! The child is this test program run anew: it moves money between accounts and prints each commit that was
//! acknowledged. What was printed must be there afterwards, and no money may appear or vanish.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::Path,
    process::{Command, Stdio},
};

use tantalum::Db;
use tantalum_rt::Random;

const DIR: &str = "TANTALUM_KILL_NINE_DIR";
const CLIENTS: u8 = 4;
const ACCOUNTS: u32 = 40;
const BALANCE: i64 = 1000;
const ROUNDS: usize = 5;

/// For every process that opens the database; its settings say which page store it has.
fn builder() -> tantalum::Builder {
    Db::builder().log_bytes(4 << 20).buffer_pool_bytes(1 << 20)
}

fn number(bytes: &[u8]) -> i64 {
    i64::from_le_bytes(bytes.try_into().unwrap())
}

/// Not a test by itself: what the child does.
#[test]
fn child() {
    let Ok(dir) = std::env::var(DIR) else { return };
    let db = builder().open(dir).unwrap();
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let db = db.clone();
            tantalum_rt::spawn(format!("client-{client}"), move || work(&db, client))
        })
        .collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
}

/// Until killed: moves money, counts its commits in a row of its own, and prints the count when it is durable.
fn work(db: &Db, client: u8) {
    let (accounts, counters) = (db.table("accounts").unwrap(), db.table("counters").unwrap());
    let mut random = Random::new();
    loop {
        let mut transaction = db.begin().unwrap();
        let mut step = || -> tantalum::Result<i64> {
            let mut pair = [random.u32(0..ACCOUNTS), random.u32(0..ACCOUNTS)];
            pair.sort_unstable();
            for (account, change) in pair.into_iter().zip([1, -1]) {
                let key = account.to_be_bytes();
                let balance = transaction.get_for_update(&accounts, key)?.map_or(BALANCE, |value| number(&value));
                transaction.put(&accounts, key, (balance + change).to_le_bytes())?;
            }
            let count = transaction.get(&counters, [client])?.map_or(0, |value| number(&value)) + 1;
            transaction.put(&counters, [client], count.to_le_bytes())?;
            // A value on overflow pages, too.
            transaction.put(&counters, [client, 1], vec![client; 6000])?;
            Ok(count)
        };
        let result = step().and_then(|count| transaction.commit().map(|_| count));
        match result {
            Ok(count) => println!("acknowledged {client} {count}"),
            Err(error) => assert!(error.is_retryable(), "{error}"),
        }
    }
}

/// Runs the child until it has acknowledged `commits`, kills it, and adds what it acknowledged.
fn run_and_kill(dir: &Path, commits: usize, acknowledged: &mut BTreeMap<u8, i64>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kill_nine::child", "--nocapture", "--test-threads=1"])
        .env(DIR, dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut seen = 0;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        // The test harness prints before the first line, without a line break of its own.
        let Some((_, rest)) = line.split_once("acknowledged ") else { continue };
        let Some((client, count)) = rest.split_once(' ') else { continue };
        // The kill may cut the last line short; a shorter number only asks for less.
        let (Ok(client), Ok(count)) = (client.parse(), count.parse::<i64>()) else { continue };
        let last = acknowledged.entry(client).or_insert(0);
        *last = count.max(*last);
        seen += 1;
        if seen == commits {
            child.kill().unwrap();
        }
    }
    let status = child.wait().unwrap();
    assert!(seen >= commits, "the child ended by itself after {seen} commits: {status}");
}

fn check(dir: &Path, acknowledged: &mut BTreeMap<u8, i64>) {
    let db = builder().create_if_missing(false).open(dir).unwrap();
    assert_eq!(db.check().unwrap().problems().len(), 0);
    let snapshot = db.snapshot().unwrap();
    let counters = db.table("counters").unwrap();
    for (client, last) in acknowledged {
        let found = snapshot.get(&counters, [*client]).unwrap().map_or(0, |value| number(&value));
        assert!(found == *last || found == *last + 1, "client {client}: {last} acknowledged, {found} there");
        // One that was killed before it could be printed counts from now on.
        *last = found;
    }
    let accounts = db.table("accounts").unwrap();
    let rows: Vec<_> = snapshot.range(&accounts, ..).unwrap().map(|row| number(&row.unwrap().1)).collect();
    assert_eq!(rows.iter().sum::<i64>(), rows.len() as i64 * BALANCE);
    drop(snapshot);
    db.close().unwrap();
}

#[test]
fn nothing_acknowledged_is_lost_when_the_process_is_killed() {
    search("in-place");
}

#[test]
fn nothing_acknowledged_is_lost_with_in_page_logging() {
    search("in-page-logging");
}

#[test]
fn nothing_acknowledged_is_lost_with_a_log_structured_store() {
    search("log-structured");
}

fn search(page_store: &str) {
    let dir = tempfile::tempdir().unwrap();
    let db = dir.path().join("db");
    std::fs::create_dir(&db).unwrap();
    std::fs::write(db.join("tantalum.toml"), format!("page_store = \"{page_store}\"\n")).unwrap();
    let mut acknowledged = BTreeMap::new();
    for round in 0..ROUNDS {
        run_and_kill(&db, 50 + 70 * round, &mut acknowledged);
        check(&db, &mut acknowledged);
    }
    assert_eq!(acknowledged.len(), usize::from(CLIENTS), "every client got something done");
}
