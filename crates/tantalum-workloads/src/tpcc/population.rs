//! The initial database of clause 4.3.3: how large it is, and how it is loaded in units: a thousand items, one district's orders, ...
//!
//! The row of parameters is written first as unfinished and last as finished: a load that was cut off is seen,
//! dropped and made anew, and a later run knows what it finds.

use std::fmt::{self, Display};
use std::sync::Arc;

use serde::Serialize;
use tantalum::Db;
use tantalum_rt::Random;

use super::random::Constants;
use super::schema::{TABLE_NAMES, Tables};
use super::units::{self, Unit};
use crate::error::{Error, Result};
use crate::load::{self, LoadProgress, Units};
use crate::row::row;

/// The cardinalities of clause 1.2.1, for one warehouse. Tests make them smaller; results mean something in full only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Scale {
    /// Items, and stock rows of a warehouse: 100,000.
    pub items: u32,
    /// Districts of a warehouse: 10, and at most 10.
    pub districts: u8,
    /// Customers of a district, and orders loaded for it: 3,000.
    pub customers: u32,
    /// Orders of a district loaded as not delivered: 900.
    pub new_orders: u32,
}

impl Scale {
    /// The specification's.
    pub const fn full() -> Self {
        Self { items: 100_000, districts: 10, customers: 3000, new_orders: 900 }
    }

    /// For tests: a database of some hundred rows.
    pub const fn tiny() -> Self {
        Self { items: 40, districts: 2, customers: 12, new_orders: 4 }
    }

    /// Last names in use: a thousand, or fewer when there are fewer customers.
    pub(super) fn last_names(&self) -> u32 {
        self.customers.min(1000)
    }

    /// Orders loaded as delivered.
    pub(super) fn delivered_orders(&self) -> u32 {
        self.customers - self.new_orders
    }
}

/// What a database is loaded with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Parameters {
    /// Warehouses, from 1.
    pub warehouses: u32,
    /// Rows per warehouse.
    pub scale: Scale,
    /// Seeds the load, which is the same for the same seed whatever the number of loaders.
    pub seed: u64,
}

impl Parameters {
    /// Warehouses of full size.
    pub const fn new(warehouses: u32) -> Self {
        Self { warehouses, scale: Scale::full(), seed: 42 }
    }

    /// Refuses what the load cannot make.
    pub fn validate(&self) -> Result<()> {
        let check = |ok: bool, name, value: u64, expected| {
            if ok { Ok(()) } else { Err(Error::OutOfRange { name, value: value.to_string(), expected }) }
        };
        let Scale { items, districts, customers, new_orders } = self.scale;
        check((1..=1_000_000).contains(&self.warehouses), "warehouses", self.warehouses.into(), "1 to 1000000")?;
        check((20..=100_000).contains(&items), "items", items.into(), "20 to 100000")?;
        check((1..=10).contains(&districts), "districts", districts.into(), "1 to 10")?;
        check((1..=3000).contains(&customers), "customers", customers.into(), "1 to 3000")?;
        check(new_orders <= customers, "new orders", new_orders.into(), "at most the customers")
    }
}

impl Display for Parameters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} warehouse{}", self.warehouses, if self.warehouses == 1 { "" } else { "s" })?;
        if self.scale != Scale::full() {
            let Scale { items, districts, customers, new_orders } = self.scale;
            write!(
                f,
                " of {items} items and {districts} districts with {customers} customers, {new_orders} new orders"
            )?;
        }
        Ok(())
    }
}

row!(
    /// The one row of the table of parameters; `is_loaded` is set when the load is complete.
    Loaded of "tpcc_parameters" {
        format: u16,
        is_loaded: u8,
        warehouses: u32,
        items: u32,
        districts: u8,
        customers: u32,
        new_orders: u32,
        seed: u64,
        last_name_constant: u32,
    }
);

/// Of the row encoding; raised when it changes.
const FORMAT: u16 = 1;

impl Loaded {
    pub(super) const KEY: &'static [u8] = b"parameters";

    pub(super) fn new(parameters: &Parameters, last_name_constant: u32, is_loaded: bool) -> Self {
        let Scale { items, districts, customers, new_orders } = parameters.scale;
        Self {
            format: FORMAT,
            is_loaded: is_loaded.into(),
            warehouses: parameters.warehouses,
            items,
            districts,
            customers,
            new_orders,
            seed: parameters.seed,
            last_name_constant,
        }
    }

    pub(super) fn parameters(&self) -> Parameters {
        let Self { items, districts, customers, new_orders, .. } = *self;
        let scale = Scale { items, districts, customers, new_orders };
        Parameters { warehouses: self.warehouses, scale, seed: self.seed }
    }

    /// Whether this is a complete load in today's format.
    pub(super) fn is_usable(&self) -> bool {
        self.format == FORMAT && self.is_loaded == 1
    }
}

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
