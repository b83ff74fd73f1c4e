//! The conditions that speak of one district: its orders, lines, new orders and customers.

use std::collections::BTreeSet;

use super::super::schema::{Customer, District, Key, Order, OrderLine, number_at};
use super::super::session::{Source, present};
use super::Check;
use crate::error::Result;

/// Sums over the orders of a district.
struct Orders {
    count: i64,
    /// The greatest O_ID, 0 if there is no order.
    greatest: i64,
    /// sum(O_OL_CNT).
    line_counts: i64,
    /// Rows of ORDER-LINE that belong to an order.
    lines: i64,
    /// sum(OL_AMOUNT) of delivered lines for each customer; customer 1 at place 0.
    delivered: Vec<i64>,
}

impl Check<'_> {
    /// Checks a district that took payments of `paid` in all, and gives its D_YTD.
    pub(super) fn district(&mut self, w: u32, d: u8, paid: i64) -> Result<i64> {
        let key = Key::district(w, d);
        let row = present(self.snapshot.get(&self.tables.district, &key)?, "district", &key)?;
        let district = District::decode(&row)?;
        let place = || format!("warehouse {w}, district {d}");

        let new_orders = self.new_orders(w, d)?;
        let orders = self.orders(w, d, &new_orders)?;
        let lines = self.count_lines(w, d)?;
        let deliveries = self.customers(w, d, &orders)?;

        let verdicts = &mut self.verdicts;
        let last = i64::from(district.next_order) - 1;
        verdicts.equal(2, place, ("D_NEXT_O_ID - 1", last), ("max(O_ID)", orders.greatest));
        if let (Some(&first), Some(&greatest)) = (new_orders.first(), new_orders.last()) {
            verdicts.equal(2, place, ("D_NEXT_O_ID - 1", last), ("max(NO_O_ID)", greatest.into()));
            let span = i64::from(greatest) - i64::from(first) + 1;
            verdicts.equal(3, place, ("max - min + 1", span), ("rows", new_orders.len() as i64));
        }
        verdicts.equal(4, place, ("sum(O_OL_CNT)", orders.line_counts), ("rows of ORDER-LINE", lines));
        verdicts.equal(6, place, ("rows of ORDER-LINE", lines), ("rows of existing orders", orders.lines));
        verdicts.equal(9, place, ("D_YTD", district.ytd), ("sum(H_AMOUNT)", paid));
        let delivered_at_load = self.parameters.scale.delivered_orders().into();
        let delivered_before = orders.count - new_orders.len() as i64 - deliveries;
        verdicts.equal(11, place, ("left side", delivered_before), ("loaded as delivered", delivered_at_load));
        Ok(district.ytd)
    }

    fn new_orders(&mut self, w: u32, d: u8) -> Result<BTreeSet<u32>> {
        let prefix = Key::district(w, d);
        let end = prefix.after_prefix();
        let rows = self.snapshot.rows(&self.tables.new_order, &prefix, &end)?;
        rows.map(|row| Ok(number_at(&row?.0, prefix.len()))).collect()
    }

    fn count_lines(&mut self, w: u32, d: u8) -> Result<i64> {
        let prefix = Key::district(w, d);
        let mut count = 0;
        for row in self.snapshot.rows(&self.tables.order_line, &prefix, &prefix.after_prefix())? {
            row?;
            count += 1;
        }
        Ok(count)
    }

    /// Conditions 5, 6 and 7, order by order.
    fn orders(&mut self, w: u32, d: u8, new_orders: &BTreeSet<u32>) -> Result<Orders> {
        let customers = self.parameters.scale.customers as usize;
        let mut sums = Orders { count: 0, greatest: 0, line_counts: 0, lines: 0, delivered: vec![0; customers] };
        let prefix = Key::district(w, d);
        let (tables, mut snapshot) = (self.tables, self.snapshot);
        let mut orders_without_row = new_orders.clone();
        for row in snapshot.rows(&tables.order, &prefix, &prefix.after_prefix())? {
            let (key, row) = row?;
            let (o, order) = (number_at(&key, prefix.len()), Order::decode(&row)?);
            let place = || format!("warehouse {w}, district {d}, order {o}");
            let is_new = orders_without_row.remove(&o);
            let example = || format!("{}: carrier {}, in NEW-ORDER: {is_new}", place(), order.carrier);
            self.verdicts.check(5, (order.carrier == 0) == is_new, example);

            let (lines, delivered) = self.lines(w, d, o, &order)?;
            self.verdicts.equal(6, place, ("O_OL_CNT", order.line_count.into()), ("rows of ORDER-LINE", lines));
            sums.count += 1;
            sums.greatest = o.into();
            sums.line_counts += i64::from(order.line_count);
            sums.lines += lines;
            match sums.delivered.get_mut((order.customer as usize).wrapping_sub(1)) {
                Some(sum) => *sum += delivered,
                None => self.verdicts.check(10, false, || format!("{}: no customer {}", place(), order.customer)),
            }
        }
        for o in orders_without_row {
            self.verdicts.check(5, false, || format!("warehouse {w}, district {d}: new order {o} has no order"));
        }
        Ok(sums)
    }

    /// The number of an order's lines, and the amount of those delivered.
    fn lines(&mut self, w: u32, d: u8, o: u32, order: &Order) -> Result<(i64, i64)> {
        let prefix = Key::order(w, d, o);
        let (mut count, mut delivered) = (0, 0);
        for row in self.snapshot.rows(&self.tables.order_line, &prefix, &prefix.after_prefix())? {
            let (_, row) = row?;
            let line = OrderLine::decode(&row)?;
            count += 1;
            let is_delivered = line.delivery_date != 0;
            let example = || format!("warehouse {w}, district {d}, order {o}, line {count}: carrier {}", order.carrier);
            self.verdicts.check(7, is_delivered == (order.carrier != 0), example);
            if is_delivered {
                delivered += line.amount;
            }
        }
        Ok((count, delivered))
    }

    /// Conditions 10 and 12, customer by customer; gives the sum of C_DELIVERY_CNT.
    fn customers(&mut self, w: u32, d: u8, orders: &Orders) -> Result<i64> {
        let mut deliveries = 0;
        for (c, &delivered) in (1..).zip(&orders.delivered) {
            let key = Key::customer(w, d, c);
            let row = present(self.snapshot.get(&self.tables.customer, &key)?, "customer", &key)?;
            let customer = Customer::decode(&row)?;
            let paid = self.customer_place(w, d, c).map_or(0, |place| self.paid[place]);
            let place = || format!("warehouse {w}, district {d}, customer {c}");
            let balance = customer.balance;
            self.verdicts.equal(10, place, ("C_BALANCE", balance), ("delivered - paid", delivered - paid));
            let turnover = balance + customer.ytd_payment;
            self.verdicts.equal(12, place, ("C_BALANCE + C_YTD_PAYMENT", turnover), ("delivered", delivered));
            deliveries += i64::from(customer.delivery_count);
        }
        Ok(deliveries)
    }
}
