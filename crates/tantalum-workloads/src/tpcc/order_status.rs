//! Order-status (clause 2.6): a customer's last order and its lines. Reads only.

use tantalum_rt::Random;

use super::schema::{Customer, Key, Order, OrderLine, number_at};
use super::source::{Source, present};
use super::terminal::{Context, CustomerChoice, Output};
use crate::error::Result;

/// What the terminal asks for.
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
