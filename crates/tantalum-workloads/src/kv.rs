//! The key-value workload: transactions that each put new values of 100 bytes under a few random keys of 16 bytes, or insert keys
//! at random places.
//!
//! A client either waits until each transaction is durable before it begins the next, or keeps several commits
//! under way. Other clients only read, one random key after the other.

use std::collections::BTreeSet;

use tantalum::{Db, Table, Transaction};
use tantalum_rt::Random;

use crate::driver::{Completed, Pipeline, Recorder, Workload, client_random};
use crate::error::{self, Result};
use crate::load::LoadProgress;

/// The length of every key, in bytes.
pub const KEY_BYTES: usize = 16;

/// The length of every value, in bytes.
pub const VALUE_BYTES: usize = 100;

/// The table that the workload uses.
pub const TABLE_NAME: &str = "kv";

/// What clients do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Parameters {
    /// Keys in the table, all loaded before the run.
    pub keys: u64,
    /// Keys that a transaction updates.
    pub updates: u32,
    /// Transactions insert new keys behind random loaded ones instead, so that leaves split everywhere.
    pub inserts: bool,
    /// Commits that a client keeps under way; 1: it waits for each.
    pub async_depth: usize,
    /// The first so many clients read a key at a time instead of updating some.
    pub readers: usize,
}

impl Parameters {
    fn validate(&self) -> Result<()> {
        let check = |ok, name, value: u64, expected| {
            if ok { Ok(()) } else { Err(error::out_of_range(name, value, expected)) }
        };
        check(self.keys > 0, "keys", self.keys, "at least 1")?;
        check((1..=self.keys).contains(&self.updates.into()), "updates", self.updates.into(), "1 to the keys")?;
        check(self.async_depth > 0, "async depth", self.async_depth as u64, "at least 1")
    }
}

/// The workload on a loaded table.
///
/// ```
/// use std::sync::Arc;
///
/// use tantalum_workloads::driver::{self, Options};
/// use tantalum_workloads::kv::{KeyValue, Parameters};
///
/// let directory = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(directory.path())?;
/// let parameters = Parameters { keys: 100, updates: 2, inserts: false, async_depth: 1, readers: 0 };
/// let workload = Arc::new(KeyValue::load_or_reuse(&db, parameters, &mut |_| ())?);
/// let report = driver::run(&workload, Options::transactions(4, 5), &mut |_| ())?;
/// assert_eq!(report.total.committed, 20);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct KeyValue {
    db: Db,
    table: Table,
    parameters: Parameters,
}

impl KeyValue {
    /// Puts the keys that are missing, and reads the others, so that the buffer pool holds what it can.
    pub fn load_or_reuse(db: &Db, parameters: Parameters, progress: &mut dyn FnMut(&LoadProgress)) -> Result<Self> {
        const KEYS_PER_TRANSACTION: u64 = 200;
        parameters.validate()?;
        let table = db.table(TABLE_NAME)?;
        let mut next = 0;
        for row in db.snapshot()?.range(&table, ..)? {
            next = number_of(&row?.0) + 1;
        }
        while next < parameters.keys {
            let mut tx = db.begin()?;
            let end = parameters.keys.min(next + KEYS_PER_TRANSACTION);
            for number in next..end {
                tx.put(&table, key(number), value(number))?;
            }
            tx.commit()?;
            next = end;
            progress(&LoadProgress { rows: next, total_rows: parameters.keys });
        }
        Ok(Self { db: db.clone(), table, parameters })
    }

    /// The name of the transactions that update.
    pub const UPDATE: &str = "update";
    /// The name of the reads.
    pub const READ: &str = "read";

    /// On the same table with another depth.
    pub fn with_async_depth(&self, async_depth: usize) -> Result<Self> {
        let parameters = Parameters { async_depth, ..self.parameters };
        parameters.validate()?;
        Ok(Self { db: self.db.clone(), table: self.table.clone(), parameters })
    }

    /// A transaction that puts new values under these keys, or inserts a key behind each.
    fn update(&self, keys: &BTreeSet<u64>, stamp: u64) -> Result<Transaction> {
        let mut tx = self.db.begin()?;
        for &number in keys {
            match self.parameters.inserts {
                true => tx.put(&self.table, inserted_key(number, stamp), value(stamp))?,
                false => tx.put(&self.table, key(number), value(stamp))?,
            }
        }
        Ok(tx)
    }
}

/// The numbered key: its digits, so that order is that of the numbers.
fn key(number: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    let mut rest = number;
    for digit in key.iter_mut().rev() {
        *digit += (rest % 10) as u8;
        rest /= 10;
    }
    key
}

/// A key between a numbered one and the next.
fn inserted_key(number: u64, stamp: u64) -> [u8; KEY_BYTES + 8] {
    let mut inserted = [0; KEY_BYTES + 8];
    inserted[..KEY_BYTES].copy_from_slice(&key(number));
    inserted[KEY_BYTES..].copy_from_slice(&stamp.to_be_bytes());
    inserted
}

/// The number of a key, or of the one that an inserted key lies behind.
fn number_of(key: &[u8]) -> u64 {
    let digit =
        |number: u64, digit: &u8| number.saturating_mul(10).saturating_add(u64::from(digit.saturating_sub(b'0')));
    key.iter().take(KEY_BYTES).fold(0, digit)
}

/// A value that differs for each stamp and has no long runs of equal bytes.
fn value(stamp: u64) -> [u8; VALUE_BYTES] {
    let mut value = [0; VALUE_BYTES];
    let mut word = stamp.wrapping_add(1);
    for part in value.chunks_mut(8) {
        word = word.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (word >> 29);
        part.copy_from_slice(&word.to_le_bytes()[..part.len()]);
    }
    value
}

/// One client.
pub struct Client {
    random: Random,
    pipeline: Pipeline,
    is_reader: bool,
}

impl Client {
    /// Distinct keys in order, so that clients do not deadlock.
    fn choose(&mut self, parameters: &Parameters) -> BTreeSet<u64> {
        let mut keys = BTreeSet::new();
        while keys.len() < parameters.updates as usize {
            keys.insert(self.random.u64(0..parameters.keys));
        }
        keys
    }
}

impl Workload for KeyValue {
    type Client<'a> = Client;

    fn kinds(&self) -> &'static [&'static str] {
        &[Self::UPDATE, Self::READ]
    }

    fn client(&self, number: usize, seed: u64) -> Result<Client> {
        let random = client_random(seed, number);
        let is_reader = number < self.parameters.readers;
        Ok(Client { random, pipeline: Pipeline::new(self.parameters.async_depth)?, is_reader })
    }

    fn step(&self, client: &mut Client, recorder: &mut Recorder) -> Result<()> {
        if client.is_reader {
            let key = key(client.random.u64(0..self.parameters.keys));
            let read = || self.db.get(&self.table, key).map(|_| Completed::Committed);
            return recorder.run(1, read).map(drop);
        }
        let keys = client.choose(&self.parameters);
        let stamp = client.random.u64(..);
        client.pipeline.commit(0, recorder, || self.update(&keys, stamp))
    }

    fn finish(&self, client: &mut Client, recorder: &mut Recorder) -> Result<()> {
        client.pipeline.finish(recorder)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_an_order_and_a_number() {
        assert_eq!(&key(1234), b"0000000000001234");
        assert_eq!(number_of(&key(987_654)), 987_654);
        assert!(key(99) < key(100));
        let inserted = inserted_key(99, 7);
        assert!(key(99)[..] < inserted[..] && inserted[..] < key(100)[..]);
        assert_eq!(number_of(&inserted), 99);
        assert_ne!(value(1), value(2));
    }
}
