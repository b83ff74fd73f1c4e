//! Payment (clause 2.5): raises the year-to-date sums of warehouse and district and lowers the customer's balance.

use tantalum_rt::Random;

use super::schema::{Customer, District, History, Key, UNIT, Warehouse};
use super::session::present;
use super::terminal::{Context, CustomerChoice, Output};
use crate::error::Result;
use crate::row::timestamp;

/// What the terminal asks for. The customer lives elsewhere in 15 of 100 payments.
#[derive(Clone, Debug)]
pub(super) struct Payment {
    pub(super) warehouse: u32,
    pub(super) district: u8,
    pub(super) customer_warehouse: u32,
    pub(super) customer_district: u8,
    pub(super) customer: CustomerChoice,
    pub(super) amount: i64,
}

impl Payment {
    pub(super) fn random(context: &Context, random: &mut Random, warehouse: u32) -> Self {
        let districts = context.parameters.scale.districts;
        let district = random.u8(1..=districts);
        let is_home = random.u8(1..=100) <= 85 || context.parameters.warehouses == 1;
        let (customer_warehouse, customer_district) = match is_home {
            true => (warehouse, district),
            false => (context.other_warehouse(random, warehouse), random.u8(1..=districts)),
        };
        Self {
            warehouse,
            district,
            customer_warehouse,
            customer_district,
            customer: CustomerChoice::random(context, random),
            amount: random.i64(UNIT..=5000 * UNIT),
        }
    }

    pub(super) fn execute(&self, context: &Context) -> Result<Output> {
        let tables = &context.tables;
        let mut tx = context.begin()?;
        let key = Key::warehouse(self.warehouse);
        let warehouse_row = present(tx.get_for_update(&tables.warehouse, &key)?, "warehouse", &key)?;
        let mut warehouse = Warehouse::decode(&warehouse_row)?;
        warehouse.ytd += self.amount;
        tx.put(&tables.warehouse, &key, warehouse.encode())?;

        let key = Key::district(self.warehouse, self.district);
        let district_row = present(tx.get_for_update(&tables.district, &key)?, "district", &key)?;
        let mut district = District::decode(&district_row)?;
        district.ytd += self.amount;
        tx.put(&tables.district, &key, district.encode())?;

        let (w, d) = (self.customer_warehouse, self.customer_district);
        let c = self.customer.find(tables, &mut tx, w, d)?;
        let key = Key::customer(w, d, c);
        let row = present(tx.get_for_update(&tables.customer, &key)?, "customer", &key)?;
        tx.put(&tables.customer, &key, self.paid(c, Customer::decode(&row)?))?;

        let history = History {
            customer_warehouse: w,
            customer_district: d,
            customer: c,
            date: timestamp(),
            amount: self.amount,
            data: &[warehouse.name, b"    ", district.name].concat(),
        };
        tx.insert(&tables.history, Key::history(self.warehouse, self.district, district.ytd), history.encode())?;
        tx.commit()?;
        Ok(Output::Payment { customer: c })
    }

    /// The customer's row after the payment. With bad credit, C_DATA gets a line in front and is cut to 500 bytes.
    fn paid(&self, c: u32, mut customer: Customer<'_>) -> Vec<u8> {
        const DATA_BYTES: usize = 500;
        customer.balance -= self.amount;
        customer.ytd_payment += self.amount;
        customer.payment_count += 1;
        if customer.credit != b"BC" {
            return customer.encode();
        }
        let Self { warehouse, district, customer_warehouse, customer_district, amount, .. } = self;
        let (units, cents) = (amount / UNIT, amount % UNIT);
        let line = format!("{c} {customer_district} {customer_warehouse} {district} {warehouse} {units}.{cents:02}|");
        let mut data = line.into_bytes();
        data.extend_from_slice(customer.data);
        data.truncate(DATA_BYTES);
        Customer { data: &data, ..customer }.encode()
    }
}
