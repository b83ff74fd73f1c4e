//! What clients do: one operation after the other, the same for all engines.

use fastrand::Rng;
use serde::{Deserialize, Serialize};

use crate::{
    data::{Chooser, Dataset, Key, key},
    engine::{Kind, Pipeline, Row, Session},
    error::{Error, Result},
};

/// A workload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// A new value under one key, blindly: a transaction each.
    Update,
    /// New values under ten keys in a transaction.
    #[value(name = "update-10")]
    #[serde(rename = "update-10")]
    Update10,
    /// An amount goes from one account to another: both are read and written in a serializable transaction.
    Transfer,
    /// The same among ten accounts.
    TransferContended,
    /// YCSB A: half reads, half updates of a whole record; favourites by Zipf's distribution.
    YcsbA,
    /// YCSB B: 95 % reads, 5 % updates.
    YcsbB,
    /// YCSB C: reads.
    YcsbC,
    /// YCSB F: half reads, half read-modify-writes in a serializable transaction.
    YcsbF,
    /// Scans of 100 rows, beginning anywhere.
    Scan,
    /// Reads of single rows anywhere in a database of four times the cache.
    ColdRead,
    /// An empty database is loaded with rows in the order of their keys, and closed.
    BulkLoad,
    /// The same rows by one client in durable transactions of a thousand.
    LoadInTransactions,
    /// The same rows in one transaction.
    HugeTransaction,
    /// The database is opened after it was killed while it had much in its log; until the first row is read.
    Reopen,
}

/// Accounts that contended transfers go between.
const CONTENDED_ACCOUNTS: u64 = 10;

/// Rows of a scan.
pub const SCAN_ROWS: usize = 100;

/// What a run in a process of its own does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Clients work on a loaded database for some time.
    Clients,
    /// One client does one thing, from beginning to end.
    Once,
}

impl Workload {
    /// As in options and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Update => "update",
            Self::Update10 => "update-10",
            Self::Transfer => "transfer",
            Self::TransferContended => "transfer-contended",
            Self::YcsbA => "ycsb-a",
            Self::YcsbB => "ycsb-b",
            Self::YcsbC => "ycsb-c",
            Self::YcsbF => "ycsb-f",
            Self::Scan => "scan",
            Self::ColdRead => "cold-read",
            Self::BulkLoad => "bulk-load",
            Self::LoadInTransactions => "load-in-transactions",
            Self::HugeTransaction => "huge-transaction",
            Self::Reopen => "reopen",
        }
    }

    /// In a sentence, for the results.
    pub fn description(self) -> &'static str {
        match self {
            Self::Update => "a new value under one key, blindly, in a durable transaction",
            Self::Update10 => "new values under ten keys in a durable transaction",
            Self::Transfer => {
                "an amount from one account to another, both read and written in a serializable transaction"
            }
            Self::TransferContended => "transfers among ten accounts",
            Self::YcsbA => "50 % reads, 50 % updates of whole records, Zipf",
            Self::YcsbB => "95 % reads, 5 % updates of whole records, Zipf",
            Self::YcsbC => "reads, Zipf",
            Self::YcsbF => "50 % reads, 50 % read-modify-writes in serializable transactions, Zipf",
            Self::Scan => "scans of 100 rows, beginning anywhere",
            Self::ColdRead => "reads of single rows anywhere in a database of four times the cache",
            Self::BulkLoad => {
                "rows in the order of keys into an empty database, which is then closed; operations are rows"
            }
            Self::LoadInTransactions => {
                "rows in the order of keys into an empty database, by one client in durable transactions of a thousand, until it is closed; operations are rows"
            }
            Self::HugeTransaction => {
                "rows in the order of keys into an empty database, in one transaction, until it is durable; operations are rows, and what they cost includes what the engine puts off"
            }
            Self::Reopen => "opening after kill -9 with much in the log, until the first row is read",
        }
    }

    /// How it runs.
    pub fn shape(self) -> Shape {
        match self {
            Self::BulkLoad | Self::LoadInTransactions | Self::HugeTransaction | Self::Reopen => Shape::Once,
            _ => Shape::Clients,
        }
    }

    /// Whether it reads and writes in one transaction.
    pub fn has_transactions(self) -> bool {
        matches!(self, Self::Transfer | Self::TransferContended | Self::YcsbF)
    }

    /// Whether its database is larger than the cache on purpose.
    pub fn is_cold(self) -> bool {
        self == Self::ColdRead
    }

    /// Whether its operations write.
    pub fn writes(self) -> bool {
        !matches!(self, Self::YcsbC | Self::Scan | Self::ColdRead)
    }

    /// Whether its rows are YCSB's records, and not small ones.
    pub fn has_records(self) -> bool {
        matches!(self, Self::YcsbA | Self::YcsbB | Self::YcsbC | Self::YcsbF | Self::ColdRead)
    }

    /// Whether an engine can do it.
    pub fn suits(self, kind: Kind) -> bool {
        let blind_updates = matches!(self, Self::Update | Self::Update10);
        match kind {
            Kind::Raw => blind_updates || self == Self::ColdRead,
            Kind::TantalumPipelined => blind_updates || self == Self::LoadInTransactions,
            Kind::RawLogDepth | Kind::GroupLog => blind_updates,
            _ => true,
        }
    }
}

/// A workload on a database.
#[derive(Debug)]
pub struct Work {
    workload: Workload,
    dataset: Dataset,
    chooser: Chooser,
}

impl Work {
    /// The workload's operations on these rows.
    pub fn new(workload: Workload, dataset: Dataset) -> Self {
        let chooser = match workload {
            Workload::YcsbA | Workload::YcsbB | Workload::YcsbC | Workload::YcsbF => Chooser::zipfian(dataset.rows),
            Workload::TransferContended => Chooser::Uniform(CONTENDED_ACCOUNTS.min(dataset.rows)),
            _ => Chooser::Uniform(dataset.rows),
        };
        Self { workload, dataset, chooser }
    }

    fn keys_per_transaction(&self) -> usize {
        match self.workload {
            Workload::Update10 => 10,
            Workload::Transfer | Workload::TransferContended => 2,
            _ => 1,
        }
    }
}

#[derive(Clone, Copy)]
enum Operation {
    Put,
    Read,
    Scan,
    Transfer,
    Modify,
}

/// One client: what it has chosen to do.
pub struct Client<'a> {
    work: &'a Work,
    random: Rng,
    operation: Operation,
    numbers: Vec<u64>,
    keys: Vec<Key>,
    values: Vec<Vec<u8>>,
    read: Vec<u8>,
}

impl<'a> Client<'a> {
    /// A client that has chosen nothing yet.
    pub fn new(work: &'a Work, random: Rng) -> Self {
        let values = vec![vec![0; work.dataset.value_bytes]; work.keys_per_transaction()];
        let (numbers, keys, read) = (Vec::new(), Vec::new(), Vec::new());
        Self { work, random, operation: Operation::Read, numbers, keys, values, read }
    }

    /// Chooses the next operation, its keys and its values.
    pub fn choose(&mut self) {
        let percent = self.random.u8(0..100);
        self.operation = match self.work.workload {
            Workload::Transfer | Workload::TransferContended => Operation::Transfer,
            Workload::YcsbA if percent < 50 => Operation::Read,
            Workload::YcsbB if percent < 95 => Operation::Read,
            Workload::YcsbF if percent < 50 => Operation::Read,
            Workload::YcsbF => Operation::Modify,
            Workload::YcsbC | Workload::ColdRead => Operation::Read,
            Workload::Scan => Operation::Scan,
            _ => Operation::Put,
        };
        let count = self.work.keys_per_transaction();
        self.work.chooser.choose_different(&mut self.random, count, &mut self.numbers);
        self.keys.clear();
        self.keys.extend(self.numbers.iter().map(|number| key(*number)));
        for value in &mut self.values {
            self.random.fill(value);
        }
    }

    /// Does it.
    ///
    /// # Errors
    /// Of the engine; [`Error::Conflict`]: to be done again.
    pub fn act(&mut self, session: &mut dyn Session) -> Result<()> {
        match self.operation {
            Operation::Put => session.put(&self.rows()),
            Operation::Read => match session.get(&self.keys[0], &mut self.read)? {
                true => Ok(()),
                false => Err(self.missing()),
            },
            Operation::Scan => {
                let (mut rows, mut sum) = (0, 0u64);
                session.scan(&self.keys[0], SCAN_ROWS, &mut |_, value| {
                    rows += 1;
                    // An engine that hands out rows without copying them has to fetch them from memory, as the others do.
                    sum = sum.wrapping_add(balance(value));
                })?;
                let expected =
                    SCAN_ROWS.min(usize::try_from(self.work.dataset.rows - self.numbers[0]).unwrap_or(usize::MAX));
                std::hint::black_box(sum);
                if rows == expected { Ok(()) } else { Err(self.missing()) }
            }
            Operation::Transfer => {
                let amount = u64::from(self.random.u8(1..));
                let from = usize::from(self.random.bool());
                let keys: Vec<&[u8]> = self.keys.iter().map(|key| &key[..]).collect();
                session.modify(&keys, &mut |accounts| {
                    set_balance(&mut accounts[from], |balance| balance.wrapping_sub(amount));
                    set_balance(&mut accounts[1 - from], |balance| balance.wrapping_add(amount));
                })
            }
            Operation::Modify => {
                let new = &self.values[0][..FIELD_BYTES.min(self.work.dataset.value_bytes)];
                session.modify(&[&self.keys[0]], &mut |records| records[0][..new.len()].copy_from_slice(new))
            }
        }
    }

    /// Begins it without waiting for its end; it is a blind update.
    ///
    /// # Errors
    /// Of the engine.
    pub fn start(&mut self, pipeline: &mut dyn Pipeline) -> Result<()> {
        pipeline.start(&self.rows())
    }

    fn rows(&self) -> Vec<Row<'_>> {
        self.keys.iter().zip(&self.values).map(|(key, value)| (&key[..], &value[..])).collect()
    }

    fn missing(&self) -> Error {
        let workload = self.work.workload.name();
        Error::Other(format!(
            "{workload}: rows from number {} on are missing; remove the directory, to load anew",
            self.numbers[0]
        ))
    }
}

/// Of a record of YCSB: what a read-modify-write replaces.
const FIELD_BYTES: usize = 100;

/// An account's balance: the first bytes of its value.
pub fn balance(value: &[u8]) -> u64 {
    let mut bytes = [0; 8];
    let length = value.len().min(8);
    bytes[..length].copy_from_slice(&value[..length]);
    u64::from_le_bytes(bytes)
}

/// Changes an account's balance.
pub fn set_balance(value: &mut [u8], change: impl FnOnce(u64) -> u64) {
    let bytes = change(balance(value)).to_le_bytes();
    let length = value.len().min(8);
    value[..length].copy_from_slice(&bytes[..length]);
}
