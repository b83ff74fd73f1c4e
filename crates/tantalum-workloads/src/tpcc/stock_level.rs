//! Stock-level (clause 2.8): how many items of a district's last 20 orders are low in stock. Reads only.

use std::collections::BTreeSet;

use tantalum_rt::Random;

use super::schema::{District, Key, OrderLine, Stock};
use super::source::{Source, present};
use super::terminal::{Context, Output};
use crate::error::Result;

const LAST_ORDERS: u32 = 20;

/// What the terminal asks for.
#[derive(Clone, Debug)]
pub(super) struct StockLevel {
    pub(super) warehouse: u32,
    pub(super) district: u8,
    pub(super) threshold: i32,
}

impl StockLevel {
    pub(super) fn random(random: &mut Random, warehouse: u32, district: u8) -> Self {
        Self { warehouse, district, threshold: random.i32(10..=20) }
    }

    pub(super) fn execute(&self, context: &Context, source: &mut impl Source) -> Result<Output> {
        let (tables, w, d) = (&context.tables, self.warehouse, self.district);
        let key = Key::district(w, d);
        let row = present(source.get(&tables.district, &key)?, "district", &key)?;
        let next = District::decode(&row)?.next_order;

        let mut items = BTreeSet::new();
        let (low, high) = (Key::order(w, d, next.saturating_sub(LAST_ORDERS)), Key::order(w, d, next));
        for line in source.rows(&tables.order_line, &low, &high)? {
            let (_, row) = line?;
            items.insert(OrderLine::decode(&row)?.item);
        }
        let mut low_stock = 0;
        for item in items {
            let key = Key::stock(w, item);
            let row = present(source.get(&tables.stock, &key)?, "stock", &key)?;
            low_stock += u32::from(Stock::decode(&row)?.quantity < self.threshold);
        }
        Ok(Output::StockLevel { low_stock })
    }
}
