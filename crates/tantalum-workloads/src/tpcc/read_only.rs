//! The two transactions that only read: order-status (clause 2.6), a customer's last order and its lines; and stock-level
//! (clause 2.8), how many items of a district's last 20 orders are low in stock.

use std::collections::BTreeSet;

use tantalum_rt::Random;

use super::schema::{Customer, District, Key, Order, OrderLine, Stock, number_at};
use super::session::{Source, present};
use super::terminal::{Context, CustomerChoice, Output};
use crate::error::Result;

/// What the terminal asks for in order-status.
#[derive(Clone, Debug)]
pub(super) struct OrderStatus {
    pub(super) warehouse: u32,
    pub(super) district: u8,
    pub(super) customer: CustomerChoice,
}

impl OrderStatus {
    pub(super) fn random(context: &Context, random: &mut Random, warehouse: u32) -> Self {
        let district = random.u8(1..=context.parameters.scale.districts);
        Self { warehouse, district, customer: CustomerChoice::random(context, random) }
    }

    pub(super) fn execute(&self, context: &Context, source: &mut impl Source) -> Result<Output> {
        let (tables, w, d) = (&context.tables, self.warehouse, self.district);
        let c = self.customer.find(tables, source, w, d)?;
        let key = Key::customer(w, d, c);
        let row = present(source.get(&tables.customer, &key)?, "customer", &key)?;
        let balance = Customer::decode(&row)?.balance;

        let last = source.rows(&tables.order_by_customer, &key, &key.after_prefix())?.next_back().transpose()?;
        let Some((index_key, _)) = last else {
            return Ok(Output::OrderStatus { customer: c, balance, order: None, lines: 0, amount: 0 });
        };
        let o = number_at(&index_key, key.len());
        let key = Key::order(w, d, o);
        let row = present(source.get(&tables.order, &key)?, "order", &key)?;
        let order = Order::decode(&row)?;

        let (mut lines, mut amount) = (0, 0);
        for line in source.rows(&tables.order_line, &key, &key.after_prefix())? {
            let (_, row) = line?;
            amount += OrderLine::decode(&row)?.amount;
            lines += 1;
        }
        debug_assert_eq!(lines, order.line_count, "order {o} of district {d}, warehouse {w}");
        Ok(Output::OrderStatus { customer: c, balance, order: Some(o), lines, amount })
    }
}

const LAST_ORDERS: u32 = 20;

/// What the terminal asks for in stock-level.
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
        let stock: Vec<_> = items.into_iter().map(|item| Key::stock(w, item)).collect();
        if context.prefetches {
            source.prefetch(&tables.stock, &stock)?;
        }
        let mut low_stock = 0;
        for key in stock {
            let row = present(source.get(&tables.stock, &key)?, "stock", &key)?;
            low_stock += u32::from(Stock::decode(&row)?.quantity < self.threshold);
        }
        Ok(Output::StockLevel { low_stock })
    }
}
