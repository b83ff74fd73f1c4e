//! The initial database of clause 4.3.3: how large it is, and how it is loaded in units: a thousand items, one district's orders, ...

use std::fmt::{self, Display};

use serde::Serialize;
use tantalum::Db;
use tantalum_rt::Random;

use super::random::Constants;
use super::schema::{TABLE_NAMES, Tables};
use super::units::{self, Unit};
use crate::error::{self, Result};
use crate::load::{self, Batch, LoadProgress, Units};
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
            if ok { Ok(()) } else { Err(error::out_of_range(name, value, expected)) }
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
    /// What a database was loaded with.
    pub(crate) struct Loaded of "tpcc_parameters" {
        warehouses: u32,
        items: u32,
        districts: u8,
        customers: u32,
        new_orders: u32,
        seed: u64,
        last_name_constant: u32,
    }
);

impl Loaded {
    fn new(parameters: &Parameters, constants: &Constants) -> Self {
        let Parameters { warehouses, scale: Scale { items, districts, customers, new_orders }, seed } = *parameters;
        Self { warehouses, items, districts, customers, new_orders, seed, last_name_constant: constants.last_name }
    }

    pub(super) fn parameters(&self) -> Parameters {
        let Self { items, districts, customers, new_orders, .. } = *self;
        let scale = Scale { items, districts, customers, new_orders };
        Parameters { warehouses: self.warehouses, scale, seed: self.seed }
    }
}

/// What all loader tasks use.
pub(super) struct Load {
    pub(super) tables: Tables,
    pub(super) parameters: Parameters,
    pub(super) constants: Constants,
}

/// What the database was loaded with; `None` unless a load is complete.
pub(super) fn loaded(db: &Db) -> Result<Option<Loaded>> {
    load::loaded(db, TABLE_NAMES[0], Loaded::decode)
}

/// Fills the tables, after dropping what an unfinished load left behind.
pub(super) fn load(
    db: &Db,
    parameters: Parameters,
    loaders: usize,
    progress: &mut dyn FnMut(&LoadProgress),
) -> Result<()> {
    let constants = Constants::for_load(&mut Random::with_seed(parameters.seed));
    let loaded = Loaded::new(&parameters, &constants);
    load::load(db, &TABLE_NAMES, &loaded.encode(), || {
        let load = Load { tables: Tables::open(db)?, parameters, constants };
        let (units, total_rows, seed) = (Unit::all(&parameters), units::expected_rows(&parameters), parameters.seed);
        let make = move |unit: &Unit, batch: &mut Batch<'_>, random: &mut Random| unit.make(&load, batch, random);
        Units { units, total_rows, seed }.make(db, loaders, make, progress)
    })
}
