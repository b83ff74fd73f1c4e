//! YCSB on Tantalum: the core workloads A to F (Cooper et al., "Benchmarking Cloud Serving Systems with YCSB", SoCC 2010).
//!
//! A record is one row, so an update of a field reads the row and writes it whole, in one transaction. Reads and scans
//! are of a snapshot.
//!
//! ```
//! use std::sync::Arc;
//!
//! use tantalum_workloads::driver::{self, Options};
//! use tantalum_workloads::ycsb::{Mix, Parameters, Ycsb};
//!
//! let directory = tempfile::tempdir()?;
//! let db = tantalum::Db::builder().log_bytes(8 << 20).open(directory.path())?;
//! let ycsb = Ycsb::load_or_reuse(&db, Parameters::new(200), 2, &mut |_| ())?;
//! let report = driver::run(&Arc::new(ycsb.with_mix(Mix::F)), Options::transactions(2, 50), &mut |_| ())?;
//! assert_eq!(report.total.committed, 100);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod documents;
mod load_phase;
mod mix;
mod records;
#[cfg(test)]
mod tests;

use std::ops::Range;

use tantalum::{Db, Table, Transaction};
use tantalum_rt::Random;

use crate::driver::{Completed, Pipeline, Recorder, Workload, client_random};
use crate::error::{self, Result};
use crate::load::{self, LoadProgress, PARAMETERS_KEY};
use records::{Records, key, record};

pub use documents::Documents;
pub use load_phase::Parameters;
pub use mix::{Chooser, Kind, Mix};

/// The names of the tables.
pub const TABLE_NAMES: [&str; 2] = ["ycsb_parameters", "ycsb"];

/// Records of a scan: 1 to this many.
const SCAN_MOST: usize = 100;

/// A loaded database and how to run on it.
pub struct Ycsb {
    db: Db,
    table: Table,
    parameters: Parameters,
    records: Records,
    mix: Mix,
    chooser: Chooser,
    async_depth: usize,
}

impl Ycsb {
    /// Uses the records that are loaded, or loads them by `loaders` tasks. An unfinished load is dropped and made anew.
    ///
    /// # Errors
    /// A finished load of other parameters (the seed does not count); parameters out of range; errors of the engine.
    pub fn load_or_reuse(
        db: &Db,
        parameters: Parameters,
        loaders: usize,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<Self> {
        parameters.validate()?;
        match load::loaded(db, TABLE_NAMES[0], Parameters::decode_stored)? {
            Some(found) if !found.has_shape_of(&parameters) => {
                return Err(error::parameters(found, parameters));
            }
            Some(_) => {}
            None => load::load(db, &TABLE_NAMES, &parameters.encode_stored(), || {
                load_phase::load(db, parameters, loaders, progress)
            })?,
        }
        Self::open(db)?.ok_or_else(|| error::missing(TABLE_NAMES[0], PARAMETERS_KEY))
    }

    /// Uses the records that are loaded; `None` if none are, or not all.
    ///
    /// # Errors
    /// Of the engine, or a row that does not decode.
    pub fn open(db: &Db) -> Result<Option<Self>> {
        let Some(parameters) = load::loaded(db, TABLE_NAMES[0], Parameters::decode_stored)? else { return Ok(None) };
        let table = db.table(TABLE_NAMES[1])?;
        let records = Records::find(db, &table, &parameters)?;
        let mix = Mix::A;
        Ok(Some(Self { db: db.clone(), table, parameters, records, mix, chooser: mix.chooser(), async_depth: 1 }))
    }

    /// With this mix of operations, and the chooser that it is defined with.
    pub fn with_mix(self, mix: Mix) -> Self {
        Self { mix, chooser: mix.chooser(), ..self }
    }

    /// With other favourites than the mix is defined with.
    pub fn with_chooser(self, chooser: Chooser) -> Self {
        Self { chooser, ..self }
    }

    /// With so many commits of each client under way; 1: it waits for each.
    pub fn with_async_depth(self, async_depth: usize) -> Self {
        Self { async_depth, ..self }
    }

    /// What the database was loaded with.
    pub fn parameters(&self) -> Parameters {
        self.parameters
    }

    fn read(&self, number: u64) -> Result<()> {
        let key = key(number);
        match self.db.snapshot()?.get(&self.table, &key)? {
            Some(row) => self.field(&row, 0).map(drop),
            None => Err(error::missing(TABLE_NAMES[1], &key)),
        }
    }

    fn scan(&self, number: u64, count: usize) -> Result<()> {
        for row in self.db.snapshot()?.range(&self.table, key(number)..)?.take(count) {
            row?;
        }
        Ok(())
    }

    /// A transaction that gives a field of a record a new value.
    fn update(&self, number: u64, field: usize, value: &[u8]) -> Result<Transaction> {
        let (mut tx, key) = (self.db.begin()?, key(number));
        let old = tx.get_for_update(&self.table, &key)?;
        let Some(old) = old else { return Err(error::missing(TABLE_NAMES[1], &key)) };
        let place = self.field(&old, field)?;
        let mut row = old.to_vec();
        row[place].copy_from_slice(value);
        tx.put(&self.table, key, row)?;
        Ok(tx)
    }

    fn insert(&self, number: u64, row: &[u8]) -> Result<Transaction> {
        let mut tx = self.db.begin()?;
        tx.insert(&self.table, key(number), row)?;
        Ok(tx)
    }

    /// Where a field lies in a record.
    fn field(&self, row: &[u8], field: usize) -> Result<Range<usize>> {
        let (bytes, expected) = (self.parameters.field_bytes as usize, self.parameters.record_bytes());
        if row.len() == expected {
            return Ok(field * bytes..(field + 1) * bytes);
        }
        Err(error::row(TABLE_NAMES[1], row.len(), row.len().min(expected), "all fields"))
    }
}

/// One client.
pub struct Client {
    random: Random,
    pipeline: Pipeline,
}

impl Workload for Ycsb {
    type Client<'a> = Client;

    fn kinds(&self) -> &'static [&'static str] {
        &Kind::NAMES
    }

    fn client(&self, number: usize, seed: u64) -> Result<Client> {
        let random = client_random(seed, number);
        Ok(Client { random, pipeline: Pipeline::new(self.async_depth)? })
    }

    fn step(&self, client: &mut Client, recorder: &mut Recorder) -> Result<()> {
        let Client { random, pipeline } = client;
        let kind = self.mix.choose(random);
        let mut run = |work: &dyn Fn() -> Result<()>| {
            recorder.run(kind as usize, || work().map(|()| Completed::Committed)).map(drop)
        };
        match kind {
            Kind::Read => {
                let number = self.records.choose(self.chooser, random);
                run(&|| self.read(number))
            }
            Kind::Scan => {
                let (number, count) = (self.records.choose(self.chooser, random), random.usize(1..=SCAN_MOST));
                run(&|| self.scan(number, count))
            }
            Kind::Update | Kind::ReadModifyWrite => {
                let number = self.records.choose(self.chooser, random);
                let field = random.usize(0..self.parameters.fields as usize);
                let value = records::field(&self.parameters, random);
                pipeline.commit(kind as usize, recorder, || self.update(number, field, &value))
            }
            Kind::Insert => {
                let (number, row) = (self.records.reserve(), record(&self.parameters, random));
                pipeline.commit(kind as usize, recorder, || self.insert(number, &row))?;
                // Visible from its commit on, durable or not.
                self.records.add(number);
                Ok(())
            }
        }
    }

    fn finish(&self, client: &mut Client, recorder: &mut Recorder) -> Result<()> {
        client.pipeline.finish(recorder)
    }
}
