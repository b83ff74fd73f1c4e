//! The initial database of clause 4.3.3, cut into units: a thousand items, one district's orders, ...
//!
//! The row of parameters is written first as unfinished and last as finished: a load that was cut off is seen,
//! dropped and made anew.

use std::sync::Arc;

use tantalum::Db;
use tantalum_rt::Random;

use super::parameters::{Loaded, Parameters};
use super::random::Constants;
use super::schema::{TABLE_NAMES, Tables};
use super::units::{self, Unit};
use crate::error::Result;
use crate::load::{self, LoadProgress, Units};

/// What all loader tasks use.
pub(super) struct Load {
    pub(super) tables: Tables,
    pub(super) parameters: Parameters,
    pub(super) constants: Constants,
}

/// The parameters of a finished load.
pub(super) fn loaded(db: &Db) -> Result<Option<Loaded>> {
    let [parameters, ..] = TABLE_NAMES;
    let row = load::mark(db, parameters, Loaded::KEY)?;
    let loaded = row.map(|row| Loaded::decode(&row)).transpose()?;
    Ok(loaded.filter(Loaded::is_usable))
}

/// Loads, after dropping what an unfinished load left behind.
pub(super) fn load(
    db: &Db,
    parameters: Parameters,
    loaders: usize,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<()> {
    load::drop_tables(db, &TABLE_NAMES)?;
    let constants = Constants::for_load(&mut Random::with_seed(parameters.seed));
    let load = Arc::new(Load { tables: Tables::open(db)?, parameters, constants });
    load.mark(db, false)?;
    let units =
        Units { units: Unit::all(&parameters), total_rows: units::expected_rows(&parameters), seed: parameters.seed };
    let maker = load.clone();
    units.make(db, loaders, move |unit, batch, random| unit.make(&maker, batch, random), progress)?;
    load.mark(db, true)
}

impl Load {
    fn mark(&self, db: &Db, is_loaded: bool) -> Result<()> {
        let row = Loaded::new(&self.parameters, self.constants.last_name, is_loaded).encode();
        load::put_mark(db, &self.tables.parameters, Loaded::KEY, &row)
    }
}
