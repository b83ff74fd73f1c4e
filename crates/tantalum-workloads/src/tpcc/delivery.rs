//! Delivery (clause 2.7): the oldest new order of each district of a warehouse goes out, all in one transaction.

use tantalum_rt::Random;

use super::schema::{Customer, Key, Order, OrderLine, number_at};
use super::session::{Session, Source, present};
use super::terminal::{Context, Output};
use crate::error::Result;
use crate::row::timestamp;

/// What the terminal asks for.
#[derive(Clone, Debug)]
pub(super) struct Delivery {
    pub(super) warehouse: u32,
    pub(super) carrier: u8,
}

impl Delivery {
    pub(super) fn random(random: &mut Random, warehouse: u32) -> Self {
        Self { warehouse, carrier: random.u8(1..=10) }
    }

    pub(super) fn execute(&self, context: &Context) -> Result<Output> {
        let mut tx = context.begin()?;
        let (mut delivered, mut skipped) = (0, 0);
        for d in 1..=context.parameters.scale.districts {
            match self.deliver(context, &mut tx, d)? {
                true => delivered += 1,
                false => skipped += 1,
            }
        }
        tx.commit()?;
        Ok(Output::Delivery { delivered, skipped })
    }

    /// Whether the district had an order to deliver.
    fn deliver(&self, context: &Context, tx: &mut Session<'_>, d: u8) -> Result<bool> {
        let (tables, w) = (&context.tables, self.warehouse);
        let district = Key::district(w, d);
        let oldest = tx.rows(&tables.new_order, &district, &district.after_prefix())?.next().transpose()?;
        let Some((key, _)) = oldest else { return Ok(false) };
        tx.delete(&tables.new_order, &key)?;

        let o = number_at(&key, district.len());
        let row = present(tx.get_for_update(&tables.order, &key)?, "order", &key)?;
        let mut order = Order::decode(&row)?;
        order.carrier = self.carrier;
        tx.put(&tables.order, &key, order.encode())?;

        let amount = self.deliver_lines(context, tx, &Key::order(w, d, o))?;
        let key = Key::customer(w, d, order.customer);
        let row = present(tx.get_for_update(&tables.customer, &key)?, "customer", &key)?;
        let mut customer = Customer::decode(&row)?;
        customer.balance += amount;
        customer.delivery_count += 1;
        tx.put(&tables.customer, &key, customer.encode())?;
        Ok(true)
    }

    /// Dates all lines of an order and gives their amount.
    fn deliver_lines(&self, context: &Context, tx: &mut Session<'_>, order: &Key) -> Result<i64> {
        let table = &context.tables.order_line;
        let lines: Vec<_> = tx.rows(table, order, &order.after_prefix())?.collect::<tantalum::Result<_>>()?;
        let (mut amount, now) = (0, timestamp());
        for (key, row) in lines {
            let mut line = OrderLine::decode(&row)?;
            line.delivery_date = now;
            amount += line.amount;
            tx.put(table, &key, line.encode())?;
        }
        Ok(amount)
    }
}
