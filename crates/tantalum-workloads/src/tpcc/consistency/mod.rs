//! The twelve consistency conditions of clause 3.3.2, checked on one snapshot.
//!
//! Each condition is checked for every warehouse, district, order, line or customer that it speaks of, so a damaged
//! row is named. Condition 11 (orders - new orders = 2100) is true as written of a fresh database only. Since each
//! delivery takes one new order and raises its customer's C_DELIVERY_CNT, what is checked is orders - new orders -
//! sum(C_DELIVERY_CNT) = orders loaded as delivered (2100), which equals the clause on a fresh database and stays
//! true.

mod district;

use tantalum::{Db, Snapshot};

use super::population::{self, Parameters};
use super::schema::{History, Key, TABLE_NAMES, Tables, Warehouse};
use super::session::{Source, present};
use crate::conditions::Verdicts;
use crate::error::{self, Result};
use crate::load::PARAMETERS_KEY;

pub use crate::conditions::Condition;

/// What each condition demands.
pub const CONDITIONS: [&str; 12] = [
    "W_YTD = sum(D_YTD)",
    "D_NEXT_O_ID - 1 = max(O_ID) = max(NO_O_ID)",
    "max(NO_O_ID) - min(NO_O_ID) + 1 = rows of NEW-ORDER",
    "sum(O_OL_CNT) = rows of ORDER-LINE",
    "O_CARRIER_ID is null where NEW-ORDER has a row, and only there",
    "O_OL_CNT = rows of ORDER-LINE of the order",
    "OL_DELIVERY_D is null where O_CARRIER_ID is null, and only there",
    "W_YTD = sum(H_AMOUNT)",
    "D_YTD = sum(H_AMOUNT)",
    "C_BALANCE = sum(OL_AMOUNT delivered) - sum(H_AMOUNT)",
    "rows of ORDER - rows of NEW-ORDER - sum(C_DELIVERY_CNT) = orders loaded as delivered",
    "C_BALANCE + C_YTD_PAYMENT = sum(OL_AMOUNT delivered)",
];

/// Checks all conditions on a snapshot of the database; transactions may run meanwhile.
///
/// # Errors
/// If a row that every TPC-C database has is missing or does not decode, or the engine fails. A condition that
/// does not hold is not an error here.
pub fn check(db: &Db) -> Result<Vec<Condition>> {
    let missing = || error::missing(TABLE_NAMES[0], PARAMETERS_KEY);
    let parameters = population::loaded(db)?.ok_or_else(missing)?.parameters();
    let (tables, snapshot) = (Tables::open(db)?, db.snapshot()?);
    let mut check = Check {
        tables: &tables,
        snapshot: &snapshot,
        parameters,
        verdicts: Verdicts::new(CONDITIONS),
        paid: Vec::new(),
    };
    let history = check.sum_history()?;
    for w in 1..=parameters.warehouses {
        check.warehouse(w, &history)?;
    }
    Ok(check.verdicts.into_conditions())
}

struct Check<'s> {
    tables: &'s Tables,
    snapshot: &'s Snapshot,
    parameters: Parameters,
    verdicts: Verdicts,
    /// sum(H_AMOUNT) for each customer, by `customer_place`.
    paid: Vec<i64>,
}

/// sum(H_AMOUNT) for each district that took payments, warehouse by warehouse.
struct HistorySums {
    districts: Vec<i64>,
}

impl Check<'_> {
    /// The place of a customer among all; `None` if there is no such customer.
    fn customer_place(&self, w: u32, d: u8, c: u32) -> Option<usize> {
        let Parameters { warehouses, scale, .. } = self.parameters;
        let exists =
            (1..=warehouses).contains(&w) && (1..=scale.districts).contains(&d) && (1..=scale.customers).contains(&c);
        exists.then(|| self.district_place(w, d) * scale.customers as usize + c as usize - 1)
    }

    fn district_place(&self, w: u32, d: u8) -> usize {
        (w as usize - 1) * usize::from(self.parameters.scale.districts) + usize::from(d) - 1
    }

    /// Reads the whole history once: payments at one warehouse may be of another's customers.
    fn sum_history(&mut self) -> Result<HistorySums> {
        let Parameters { warehouses, scale, .. } = self.parameters;
        let districts = warehouses as usize * usize::from(scale.districts);
        self.paid = vec![0; districts * scale.customers as usize];
        let mut sums = HistorySums { districts: vec![0; districts] };
        for w in 1..=warehouses {
            for d in 1..=scale.districts {
                let (place, prefix) = (self.district_place(w, d), Key::district(w, d));
                let (tables, mut snapshot) = (self.tables, self.snapshot);
                for row in snapshot.rows(&tables.history, &prefix, &prefix.after_prefix())? {
                    let (_, row) = row?;
                    let history = History::decode(&row)?;
                    sums.districts[place] += history.amount;
                    let customer = (history.customer_warehouse, history.customer_district, history.customer);
                    match self.customer_place(customer.0, customer.1, customer.2) {
                        Some(place) => self.paid[place] += history.amount,
                        None => self.verdicts.check(10, false, || format!("a payment of no customer {customer:?}")),
                    }
                }
            }
        }
        Ok(sums)
    }

    fn warehouse(&mut self, w: u32, history: &HistorySums) -> Result<()> {
        let key = Key::warehouse(w);
        let row = present(self.snapshot.get(&self.tables.warehouse, &key)?, "warehouse", &key)?;
        let ytd = Warehouse::decode(&row)?.ytd;
        let (mut district_sum, mut history_sum) = (0, 0);
        for d in 1..=self.parameters.scale.districts {
            let paid = history.districts[self.district_place(w, d)];
            history_sum += paid;
            district_sum += self.district(w, d, paid)?;
        }
        let place = || format!("warehouse {w}");
        self.verdicts.equal(1, place, ("W_YTD", ytd), ("sum(D_YTD)", district_sum));
        self.verdicts.equal(8, place, ("W_YTD", ytd), ("sum(H_AMOUNT)", history_sum));
        Ok(())
    }
}
