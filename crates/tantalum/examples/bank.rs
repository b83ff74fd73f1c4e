//! Money moves between accounts from several threads at once, and none is ever lost.
//!
//! `cargo run --release -p tantalum --example bank -- /path/to/bank.db`

use std::{env, path::Path, thread};

use tantalum::{Db, Result, Table, Transaction};

const ACCOUNTS: u64 = 100;
const THREADS: u64 = 4;
const TRANSFERS: u64 = 250;

fn main() -> Result<()> {
    let path = env::args_os().nth(1).unwrap_or_else(|| env::temp_dir().join("tantalum-bank").into());
    run(path.as_ref())
}

fn run(path: &Path) -> Result<()> {
    let db = Db::open(path)?;
    let accounts = db.table("accounts")?;

    db.transact(|tx| {
        for account in 0..ACCOUNTS {
            // They may be there from an earlier run.
            tx.compare_and_swap(&accounts, account.to_be_bytes(), None, Some(&1000u64.to_le_bytes()))?;
        }
        Ok(())
    })?;

    let clients: Vec<_> = (0..THREADS)
        .map(|client| {
            let (db, accounts) = (db.clone(), accounts.clone());
            thread::spawn(move || transfer_at_random(&db, &accounts, client))
        })
        .collect();
    for client in clients {
        client.join().expect("a client returns its errors and does not panic")?;
    }

    let total: u64 = db.range(&accounts, ..)?.map(|row| Ok(amount(&row?.1))).sum::<Result<u64>>()?;
    println!("{} transfers; {ACCOUNTS} accounts hold {total} in total", THREADS * TRANSFERS);
    assert_eq!(total, ACCOUNTS * 1000);
    db.close()
}

fn transfer_at_random(db: &Db, accounts: &Table, seed: u64) -> Result<()> {
    // A linear congruential generator: its upper half is random enough for this.
    let mut state = seed;
    let mut random = |end: u64| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        (state >> 32) % end
    };
    for _ in 0..TRANSFERS {
        let (from, to, sum) = (random(ACCOUNTS), random(ACCOUNTS), 1 + random(49));
        // Where two transfers meet head-on, one gives way, and is run again.
        db.transact(|tx| transfer(tx, accounts, from, to, sum))?;
    }
    Ok(())
}

fn transfer(tx: &mut Transaction, accounts: &Table, from: u64, to: u64, sum: u64) -> Result<()> {
    let read = |tx: &Transaction, account: u64| -> Result<u64> {
        Ok(tx.get_for_update(accounts, account.to_be_bytes())?.map_or(0, |value| amount(&value)))
    };
    let balance = read(tx, from)?;
    if balance < sum {
        return Ok(());
    }
    tx.put(accounts, from.to_be_bytes(), (balance - sum).to_le_bytes())?;
    let balance = read(tx, to)?;
    tx.put(accounts, to.to_be_bytes(), (balance + sum).to_le_bytes())
}

fn amount(value: &[u8]) -> u64 {
    value.try_into().map_or(0, u64::from_le_bytes)
}

#[test]
fn runs() {
    let dir = tempfile::tempdir().unwrap();
    run(&dir.path().join("db")).unwrap();
}
