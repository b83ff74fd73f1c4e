//! The load phase: how large the database is, and its records. The parameters are kept in the database, so that a later run knows
//! what it finds.

use std::fmt::{self, Display};
use std::ops::Range;

use serde::Serialize;
use tantalum::Db;
use tantalum_rt::Random;

use super::TABLE_NAMES;
use super::records::{key, record};
use crate::error::{Error, Result};
use crate::load::{self, Batch, LoadProgress, Units};
use crate::row::row;

const RECORDS_PER_UNIT: u64 = 1000;

/// What a database is loaded with.
///
/// ```
/// use tantalum_workloads::ycsb::Parameters;
///
/// assert_eq!(Parameters::new(1000).record_bytes(), 1000);
/// assert!(Parameters { field_bytes: 0, ..Parameters::new(1000) }.validate().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// Records loaded.
    pub records: u64,
    /// Fields of a record.
    pub fields: u32,
    /// Bytes of a field.
    pub field_bytes: u32,
    /// Seeds the load, which is the same for the same seed whatever the number of loaders.
    pub seed: u64,
}

impl Parameters {
    /// So many records of ten fields of 100 bytes, as YCSB has them.
    pub const fn new(records: u64) -> Self {
        Self { records, fields: 10, field_bytes: 100, seed: 42 }
    }

    /// Bytes of a record, without its key.
    pub const fn record_bytes(&self) -> usize {
        self.fields as usize * self.field_bytes as usize
    }

    /// Refuses what the load cannot make.
    ///
    /// # Errors
    /// [`Error::OutOfRange`].
    pub fn validate(&self) -> Result<()> {
        let check = |ok: bool, name, value: u64, expected| {
            if ok { Ok(()) } else { Err(Error::OutOfRange { name, value: value.to_string(), expected }) }
        };
        check((1..=1 << 40).contains(&self.records), "records", self.records, "1 to 2^40")?;
        check((1..=1000).contains(&self.fields), "fields", self.fields.into(), "1 to 1000")?;
        check((1..=65536).contains(&self.field_bytes), "field bytes", self.field_bytes.into(), "1 to 65536")?;
        let bytes = self.record_bytes() as u64;
        check(bytes <= 1 << 20, "fields times field bytes", bytes, "at most 1 MiB")
    }

    pub(super) fn has_shape_of(&self, other: &Self) -> bool {
        (self.records, self.fields, self.field_bytes) == (other.records, other.fields, other.field_bytes)
    }
}

impl Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} records of {} fields of {} bytes", self.records, self.fields, self.field_bytes)
    }
}

row!(
    /// The one row of the table of parameters; `is_loaded` is set when the load is complete.
    Loaded of "ycsb_parameters" {
        format: u16,
        is_loaded: u8,
        records: u64,
        fields: u32,
        field_bytes: u32,
        seed: u64,
    }
);

/// Of the row encoding; raised when it changes.
const FORMAT: u16 = 1;

impl Loaded {
    pub(super) const KEY: &'static [u8] = b"parameters";

    pub(super) fn new(parameters: &Parameters, is_loaded: bool) -> Self {
        let Parameters { records, fields, field_bytes, seed } = *parameters;
        Self { format: FORMAT, is_loaded: is_loaded.into(), records, fields, field_bytes, seed }
    }

    pub(super) fn parameters(&self) -> Parameters {
        let Self { records, fields, field_bytes, seed, .. } = *self;
        Parameters { records, fields, field_bytes, seed }
    }

    /// Whether this is a complete load in today's format.
    pub(super) fn is_usable(&self) -> bool {
        self.format == FORMAT && self.is_loaded == 1
    }
}

/// The parameters of a finished load.
pub(super) fn loaded(db: &Db) -> Result<Option<Parameters>> {
    let row = load::mark(db, TABLE_NAMES[0], Loaded::KEY)?;
    let loaded = row.map(|row| Loaded::decode(&row)).transpose()?;
    Ok(loaded.filter(Loaded::is_usable).map(|loaded| loaded.parameters()))
}

/// Loads, after dropping what an unfinished load left behind.
pub(super) fn load(
    db: &Db,
    parameters: Parameters,
    loaders: usize,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<()> {
    load::drop_tables(db, &TABLE_NAMES)?;
    let [marks, table] = [db.table(TABLE_NAMES[0])?, db.table(TABLE_NAMES[1])?];
    load::put_mark(db, &marks, Loaded::KEY, &Loaded::new(&parameters, false).encode())?;
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
    units.make(db, loaders, make, progress)?;
    load::put_mark(db, &marks, Loaded::KEY, &Loaded::new(&parameters, true).encode())
}
