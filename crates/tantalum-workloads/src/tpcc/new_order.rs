//! New-order (clause 2.4): an order of 5 to 15 lines; one in a hundred names an unused item and is rolled back.

use tantalum_rt::Random;

use super::schema::{Customer, District, Item, Key, Order, OrderLine, Stock, Warehouse};
use super::session::{Session, Source, present};
use super::terminal::{Context, Output};
use crate::error::Result;
use crate::row::timestamp;

/// What the terminal asks for.
#[derive(Clone, Debug)]
pub(super) struct NewOrder {
    pub(super) warehouse: u32,
    pub(super) district: u8,
    pub(super) customer: u32,
    pub(super) lines: Vec<Line>,
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) item: u32,
    pub(super) supply_warehouse: u32,
    pub(super) quantity: u8,
}

impl NewOrder {
    pub(super) fn random(context: &Context, random: &mut Random, warehouse: u32) -> Self {
        let scale = &context.parameters.scale;
        let count = random.usize(5..=15);
        let mut lines: Vec<Line> = (0..count)
            .map(|_| Line {
                item: context.constants.item(random, scale),
                supply_warehouse: match random.u8(1..=100) {
                    1 => context.other_warehouse(random, warehouse),
                    _ => warehouse,
                },
                quantity: random.u8(1..=10),
            })
            .collect();
        // Everybody locks stock in the same order, so that two orders of the same items do not deadlock.
        lines.sort_by_key(|line| (line.supply_warehouse, line.item));
        if random.u8(1..=100) == 1
            && let Some(last) = lines.last_mut()
        {
            last.item = scale.items + 1;
        }
        Self {
            warehouse,
            district: random.u8(1..=scale.districts),
            customer: context.constants.customer(random, scale),
            lines,
        }
    }

    pub(super) fn execute(&self, context: &Context) -> Result<Output> {
        let Self { warehouse: w, district: d, customer: c, .. } = *self;
        let tables = &context.tables;
        let mut tx = context.begin()?;
        if context.prefetches {
            let items: Vec<_> = self.lines.iter().map(|line| Key::item(line.item)).collect();
            tx.prefetch(&tables.item, &items)?;
            let stock: Vec<_> = self.lines.iter().map(|line| Key::stock(line.supply_warehouse, line.item)).collect();
            tx.prefetch(&tables.stock, &stock)?;
        }
        let key = Key::warehouse(w);
        let row = present(tx.get(&tables.warehouse, &key)?, "warehouse", &key)?;
        let warehouse_tax = Warehouse::decode(&row)?.tax;

        let key = Key::district(w, d);
        let row = present(tx.get_for_update(&tables.district, &key)?, "district", &key)?;
        let mut district = District::decode(&row)?;
        let (o, district_tax) = (district.next_order, district.tax);
        district.next_order += 1;
        tx.put(&tables.district, &key, district.encode())?;

        let key = Key::customer(w, d, c);
        let row = present(tx.get(&tables.customer, &key)?, "customer", &key)?;
        let discount = Customer::decode(&row)?.discount;

        self.insert_order(context, &mut tx, o)?;
        let mut sum = 0;
        for (line, number) in self.lines.iter().zip(1..) {
            match self.add_line(context, &mut tx, line, o, number)? {
                Some(amount) => sum += amount,
                None => {
                    tx.rollback();
                    return Ok(Output::NewOrderRolledBack);
                }
            }
        }
        tx.commit()?;
        let total = total_amount(sum, discount, warehouse_tax, district_tax);
        Ok(Output::NewOrder { warehouse: w, district: d, order: o, total })
    }

    fn insert_order(&self, context: &Context, tx: &mut Session<'_>, o: u32) -> Result<()> {
        let Self { warehouse: w, district: d, customer: c, .. } = *self;
        let order = Order {
            customer: c,
            entry_date: timestamp(),
            carrier: 0,
            line_count: self.lines.len() as u8,
            all_local: self.lines.iter().all(|line| line.supply_warehouse == w).into(),
        };
        let key = Key::order(w, d, o);
        tx.insert(&context.tables.order, &key, order.encode())?;
        tx.insert(&context.tables.order_by_customer, Key::order_by_customer(w, d, c, o), b"")?;
        tx.insert(&context.tables.new_order, &key, b"")
    }

    /// Takes one line from the stock and gives its amount in cents; `None` if there is no such item.
    fn add_line(
        &self,
        context: &Context,
        tx: &mut Session<'_>,
        line: &Line,
        o: u32,
        number: u8,
    ) -> Result<Option<i64>> {
        let tables = &context.tables;
        let Some(row) = tx.get(&tables.item, &Key::item(line.item))? else { return Ok(None) };
        let amount = Item::decode(&row)?.price * i64::from(line.quantity);

        let key = Key::stock(line.supply_warehouse, line.item);
        let row = present(tx.get_for_update(&tables.stock, &key)?, "stock", &key)?;
        let mut stock = Stock::decode(&row)?;
        let quantity = i32::from(line.quantity);
        stock.quantity += if stock.quantity >= quantity + 10 { -quantity } else { 91 - quantity };
        stock.ytd += u32::from(line.quantity);
        stock.order_count += 1;
        stock.remote_count += u32::from(line.supply_warehouse != self.warehouse);
        tx.put(&tables.stock, &key, stock.encode())?;

        let order_line = OrderLine {
            delivery_date: 0,
            item: line.item,
            supply_warehouse: line.supply_warehouse,
            quantity: line.quantity,
            amount,
            district_info: stock.district_info(self.district),
        };
        tx.insert(&tables.order_line, Key::order_line(self.warehouse, self.district, o, number), order_line.encode())?;
        Ok(Some(amount))
    }
}

/// sum * (1 - C_DISCOUNT) * (1 + W_TAX + D_TAX) in cents, rounded; rates are in hundredths of a percent.
fn total_amount(sum: i64, discount: u32, warehouse_tax: u32, district_tax: u32) -> i64 {
    const ONE: i64 = 10_000;
    let factor = (ONE - i64::from(discount)) * (ONE + i64::from(warehouse_tax) + i64::from(district_tax));
    (sum * factor + ONE * ONE / 2) / (ONE * ONE)
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_total_follows_the_clause() {
        assert_eq!(super::total_amount(10_000, 0, 0, 0), 10_000);
        assert_eq!(super::total_amount(10_000, 5000, 1000, 500), 5_750);
    }
}
