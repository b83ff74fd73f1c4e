//! A table of small rows, all of it in memory, and clients that read and write them: what the engine itself makes of clients and
//! cores.

use std::time::Duration;

use tantalum::{Db, Snapshot, Table};
use tantalum_rt::Random;
use tantalum_workloads::{
    Result,
    driver::{Completed, Pipeline, Recorder, Workload, client_random},
    error,
};

/// What a client does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Moves an amount from one row to another, both chosen at random, read and written in a serializable transaction. Each is
    /// locked for writing when it is read; half of an attempt's time of a core passes after each lock.
    Transfer {
        /// Whether rows are locked in their order, so that no two transfers deadlock; else in the order chosen.
        in_order: bool,
    },
    /// Puts a new value under a random row, blindly, with so many commits of each client under way; with 1 it waits for each.
    Update { depth: usize },
    /// Reads a random row.
    Read(Through),
}

/// What a row is read through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Through {
    /// A snapshot that the client keeps.
    KeptSnapshot,
    /// A snapshot of its own for each read.
    Snapshot,
    /// A serializable transaction of its own for each read.
    Transaction,
}

const TABLE: &str = "rows";
/// Of a row: its balance, and what makes it as long as the rows of the key-value workload.
const VALUE_BYTES: usize = 100;
/// Longer than the numbers of rows, as that workload's keys.
const KEY_BYTES: usize = 16;
const ROWS_PER_TRANSACTION: u64 = 200;

/// A workload on a loaded table.
pub(super) struct Rows {
    db: Db,
    table: Table,
    count: u64,
    operation: Operation,
    cpu_per_attempt: Duration,
}

impl Rows {
    /// Puts all rows, each with a balance of 0.
    pub fn load(db: &Db, count: u64, operation: Operation, cpu_per_attempt: Duration) -> Result<Self> {
        let table = db.table(TABLE)?;
        for first in (0..count).step_by(ROWS_PER_TRANSACTION as usize) {
            let mut transaction = db.begin()?;
            for number in first..count.min(first + ROWS_PER_TRANSACTION) {
                transaction.put(&table, key(number), value(0))?;
            }
            transaction.commit()?;
        }
        Ok(Self { db: db.clone(), table, count, operation, cpu_per_attempt })
    }

    /// Of all balances, modulo 2^64.
    pub fn sum(&self) -> Result<u64> {
        let snapshot = self.db.snapshot()?;
        let mut rows = snapshot.range(&self.table, ..)?;
        rows.try_fold(0, |sum: u64, row| Ok(sum.wrapping_add(balance(&row?.1))))
    }

    /// Changes the balances of two rows, each read and then written.
    fn transfer(&self, changes: [(u64, u64); 2]) -> Result<Completed> {
        let mut transaction = self.db.begin()?;
        for (number, change) in changes {
            let key = key(number);
            let old = transaction.get_for_update(&self.table, key)?;
            tantalum_rt::work(self.cpu_per_attempt / 2);
            let old = old.ok_or_else(|| error::missing(TABLE, &key))?;
            transaction.put(&self.table, key, value(balance(&old).wrapping_add(change)))?;
        }
        transaction.commit()?;
        Ok(Completed::Committed)
    }

    /// Reads a row, which is there.
    fn read(&self, client: &Client, number: u64) -> Result<Completed> {
        let key = key(number);
        let value = match (&client.snapshot, self.operation) {
            (Some(snapshot), _) => snapshot.get(&self.table, key)?,
            (None, Operation::Read(Through::Transaction)) => {
                let transaction = self.db.begin()?;
                let value = transaction.get(&self.table, key)?;
                transaction.commit()?;
                value
            }
            (None, _) => self.db.snapshot()?.get(&self.table, key)?,
        };
        match value {
            Some(_) => Ok(Completed::Committed),
            None => Err(error::missing(TABLE, &key)),
        }
    }
}

/// One of them.
pub(super) struct Client {
    random: Random,
    pipeline: Pipeline,
    /// That it keeps.
    snapshot: Option<Snapshot>,
}

impl Workload for Rows {
    type Client<'a> = Client;

    fn kinds(&self) -> &'static [&'static str] {
        &["operation"]
    }

    fn client(&self, number: usize, seed: u64) -> Result<Client> {
        let random = client_random(seed, number);
        let (depth, keeps_snapshot) = match self.operation {
            Operation::Update { depth } => (depth, false),
            operation => (1, operation == Operation::Read(Through::KeptSnapshot)),
        };
        let snapshot = keeps_snapshot.then(|| self.db.snapshot()).transpose()?;
        Ok(Client { random, pipeline: Pipeline::new(depth)?, snapshot })
    }

    fn step(&self, client: &mut Client, recorder: &mut Recorder) -> Result<()> {
        let count = self.count;
        let row = client.random.u64(0..count);
        match self.operation {
            Operation::Transfer { in_order } => {
                // Any other one.
                let to = (row + client.random.u64(1..count)) % count;
                let amount = client.random.u64(1..=100);
                let mut changes = [(row, amount.wrapping_neg()), (to, amount)];
                if in_order {
                    changes.sort_unstable();
                }
                recorder.run(0, || self.transfer(changes)).map(drop)
            }
            Operation::Update { .. } => {
                let value = value(client.random.u64(..));
                client.pipeline.commit(0, recorder, || {
                    let mut transaction = self.db.begin()?;
                    transaction.put(&self.table, key(row), value)?;
                    Ok(transaction)
                })
            }
            Operation::Read(_) => recorder.run(0, || self.read(client, row)).map(drop),
        }
    }

    fn finish(&self, client: &mut Client, recorder: &mut Recorder) -> Result<()> {
        client.pipeline.finish(recorder)
    }
}

fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[KEY_BYTES - 8..].copy_from_slice(&number.to_be_bytes());
    key
}

fn value(balance: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    value[..8].copy_from_slice(&balance.to_le_bytes());
    value
}

/// # Panics
/// If it is no row's value: only this file writes rows.
fn balance(value: &[u8]) -> u64 {
    u64::from_le_bytes(*value.first_chunk().expect("each row begins with its balance"))
}
