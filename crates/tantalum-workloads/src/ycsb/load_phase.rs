//! The load phase: how large the database is, and its records.

use std::fmt::{self, Display};
use std::ops::Range;

use serde::Serialize;
use tantalum::Db;
use tantalum_rt::Random;

use super::TABLE_NAMES;
use super::records::{key, record};
use crate::error::{self, Result};
use crate::load::{Batch, LoadProgress, Units};
use crate::row::row;

const RECORDS_PER_UNIT: u64 = 1000;

row!(
    /// What a database is loaded with.
    ///
    /// ```
    /// use tantalum_workloads::ycsb::Parameters;
    ///
    /// assert_eq!(Parameters::new(1000).record_bytes(), 1000);
    /// assert!(Parameters { field_bytes: 0, ..Parameters::new(1000) }.validate().is_err());
    /// let compressible = Parameters { random_percent: 50, ..Parameters::new(1000) };
    /// assert_eq!(compressible.to_string(), "1000 records of 10 fields of 100 bytes, 50 % of each random");
    /// ```
    #[derive(Copy, Serialize)]
    pub struct Parameters of "ycsb_parameters" {
        /// Records loaded.
        records: u64,
        /// Fields of a record.
        fields: u32,
        /// Bytes of a field.
        field_bytes: u32,
        /// Seeds the load, which is the same for the same seed whatever the number of loaders.
        seed: u64,
        /// How much of a field, in percent, is random letters. They are repeated to its end, so that it can be compressed.
        random_percent: u32,
    }
);

impl Parameters {
    /// So many records of ten fields of 100 random bytes, as YCSB has them.
    pub const fn new(records: u64) -> Self {
        Self { records, fields: 10, field_bytes: 100, seed: 42, random_percent: 100 }
    }

    /// Bytes of a record, without its key.
    pub const fn record_bytes(&self) -> usize {
        self.fields as usize * self.field_bytes as usize
    }

    /// Refuses what the load cannot make.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput).
    pub fn validate(&self) -> Result<()> {
        let check = |ok: bool, name, value: u64, expected| {
            if ok { Ok(()) } else { Err(error::out_of_range(name, value, expected)) }
        };
        check((1..=1 << 40).contains(&self.records), "records", self.records, "1 to 2^40")?;
        check((1..=1000).contains(&self.fields), "fields", self.fields.into(), "1 to 1000")?;
        check((1..=65536).contains(&self.field_bytes), "field bytes", self.field_bytes.into(), "1 to 65536")?;
        check((1..=100).contains(&self.random_percent), "random percent", self.random_percent.into(), "1 to 100")?;
        let bytes = self.record_bytes() as u64;
        check(bytes <= 1 << 20, "fields times field bytes", bytes, "at most 1 MiB")
    }

    pub(super) fn has_shape_of(&self, other: &Self) -> bool {
        let shape = |of: &Self| (of.records, of.fields, of.field_bytes, of.random_percent);
        shape(self) == shape(other)
    }

    /// As a database has it. Earlier versions knew random fields only, and no share of them.
    pub(super) fn encode_stored(&self) -> Vec<u8> {
        let mut row = self.encode();
        if self.random_percent == 100 {
            row.truncate(row.len() - size_of_val(&self.random_percent));
        }
        row
    }

    pub(super) fn decode_stored(row: &[u8]) -> Result<Self> {
        let random = Self::new(0);
        match row.len() == random.encode_stored().len() {
            true => Self::decode(&[row, &random.random_percent.to_le_bytes()].concat()),
            false => Self::decode(row),
        }
    }
}

impl Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records of {} fields of {} bytes", self.records, self.fields, self.field_bytes)?;
        match self.random_percent {
            100 => Ok(()),
            percent => write!(f, ", {percent} % of each random"),
        }
    }
}

/// Fills the table.
pub(super) fn load(
    db: &Db,
    parameters: Parameters,
    loaders: usize,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<()> {
    let table = db.table(TABLE_NAMES[1])?;
    let first_ones = (0..parameters.records).step_by(RECORDS_PER_UNIT as usize);
    let units = Units {
        units: first_ones.map(|first| first..parameters.records.min(first + RECORDS_PER_UNIT)).collect(),
        total_rows: parameters.records,
        seed: parameters.seed,
    };
    let make = move |numbers: &Range<u64>, batch: &mut Batch<'_>, random: &mut Random| {
        // In the order of keys, so that a transaction touches few pages.
        let mut keys: Vec<Vec<u8>> = numbers.clone().map(key).collect();
        keys.sort_unstable();
        keys.iter().try_for_each(|key| batch.put(&table, key, &record(&parameters, random)))
    };
    units.make(db, loaders, make, progress)
}
