//! The rows of clause 4.3.3.1, unit by unit.

use std::ops::RangeInclusive;

use tantalum_rt::Random;

use super::population::{Load, Parameters, Scale};
use super::random::{self, Address, text};
use super::schema::{
    Customer, DISTRICT_INFO_BYTES, District, History, Item, Key, Order, OrderLine, Stock, UNIT, Warehouse,
};
use crate::error::Result;
use crate::load::Batch;
use crate::row::timestamp;

/// H_AMOUNT of every customer's first payment.
const FIRST_PAYMENT: i64 = 10 * UNIT;

const ITEMS_PER_UNIT: u32 = 1000;

/// A piece of the load that one task makes.
pub(super) enum Unit {
    Items(RangeInclusive<u32>),
    Warehouse(u32),
    Stock(u32, RangeInclusive<u32>),
    Customers(u32, u8),
    Orders(u32, u8),
}

/// Rows of the whole load, with ten lines for each order.
pub(super) fn expected_rows(parameters: &Parameters) -> u64 {
    let Scale { items, districts, customers, new_orders } = parameters.scale;
    // Customer, index by name, history, order, index by customer, and ten lines.
    let district = 1 + 15 * u64::from(customers) + u64::from(new_orders);
    let warehouse = 1 + u64::from(items) + u64::from(districts) * district;
    u64::from(items) + u64::from(parameters.warehouses) * warehouse
}

impl Unit {
    pub(super) fn all(parameters: &Parameters) -> Vec<Self> {
        let items = parameters.scale.items;
        let pieces = || {
            (1..=items)
                .step_by(ITEMS_PER_UNIT as usize)
                .map(move |first| first..=items.min(first.saturating_add(ITEMS_PER_UNIT - 1)))
        };
        let mut units: Vec<Self> = pieces().map(Self::Items).collect();
        for w in 1..=parameters.warehouses {
            units.push(Self::Warehouse(w));
            units.extend(pieces().map(|items| Self::Stock(w, items)));
            for d in 1..=parameters.scale.districts {
                units.push(Self::Customers(w, d));
                units.push(Self::Orders(w, d));
            }
        }
        units
    }

    pub(super) fn make(&self, load: &Load, batch: &mut Batch<'_>, random: &mut Random) -> Result<()> {
        match self {
            Self::Items(items) => items.clone().try_for_each(|i| make_item(load, batch, random, i)),
            Self::Warehouse(w) => make_warehouse(load, batch, random, *w),
            Self::Stock(w, items) => items.clone().try_for_each(|i| make_stock(load, batch, random, *w, i)),
            Self::Customers(w, d) => make_customers(load, batch, random, *w, *d),
            Self::Orders(w, d) => make_orders(load, batch, random, *w, *d),
        }
    }
}

fn make_item(load: &Load, batch: &mut Batch<'_>, random: &mut Random, i: u32) -> Result<()> {
    let item = Item {
        image: random.u32(1..=10_000),
        price: random.i64(UNIT..=100 * UNIT),
        name: &text(random, 14, 24),
        data: &random::data(random),
    };
    batch.put(&load.tables.item, &Key::item(i), &item.encode())
}

fn make_stock(load: &Load, batch: &mut Batch<'_>, random: &mut Random, w: u32, i: u32) -> Result<()> {
    let districts_bytes = 10 * DISTRICT_INFO_BYTES;
    let stock = Stock {
        quantity: random.i32(10..=100),
        ytd: 0,
        order_count: 0,
        remote_count: 0,
        districts: &text(random, districts_bytes, districts_bytes),
        data: &random::data(random),
    };
    batch.put(&load.tables.stock, &Key::stock(w, i), &stock.encode())
}

fn make_warehouse(load: &Load, batch: &mut Batch<'_>, random: &mut Random, w: u32) -> Result<()> {
    let Scale { districts, customers, .. } = load.parameters.scale;
    // 30,000.00 for a district of full size: what its customers have paid.
    let district_ytd = i64::from(customers) * FIRST_PAYMENT;
    let (name, address) = (text(random, 6, 10), Address::random(random));
    let warehouse = Warehouse {
        ytd: i64::from(districts) * district_ytd,
        tax: random.u32(0..=2000),
        name: &name,
        street_1: &address.street_1,
        street_2: &address.street_2,
        city: &address.city,
        state: &address.state,
        zip: &address.zip,
    };
    batch.put(&load.tables.warehouse, &Key::warehouse(w), &warehouse.encode())?;
    for d in 1..=districts {
        let (name, address) = (text(random, 6, 10), Address::random(random));
        let district = District {
            ytd: district_ytd,
            next_order: customers + 1,
            tax: random.u32(0..=2000),
            name: &name,
            street_1: &address.street_1,
            street_2: &address.street_2,
            city: &address.city,
            state: &address.state,
            zip: &address.zip,
        };
        batch.put(&load.tables.district, &Key::district(w, d), &district.encode())?;
    }
    Ok(())
}

fn make_customers(load: &Load, batch: &mut Batch<'_>, random: &mut Random, w: u32, d: u8) -> Result<()> {
    let scale = &load.parameters.scale;
    let (mut by_name, now) = (Vec::new(), timestamp());
    for c in 1..=scale.customers {
        let name_number = if c <= 1000 { c - 1 } else { load.constants.last_name_number(random, scale) };
        let (last, first) = (random::last_name(name_number), text(random, 8, 16));
        by_name.push(Key::customer_by_name(w, d, &last, &first, c).to_vec());
        let address = Address::random(random);
        let customer = Customer {
            balance: -FIRST_PAYMENT,
            ytd_payment: FIRST_PAYMENT,
            payment_count: 1,
            delivery_count: 0,
            discount: random.u32(0..=5000),
            credit_limit: 50_000 * UNIT,
            since: now,
            credit: if random.u8(0..10) == 0 { b"BC" } else { b"GC" },
            first: &first,
            middle: b"OE",
            last: &last,
            street_1: &address.street_1,
            street_2: &address.street_2,
            city: &address.city,
            state: &address.state,
            zip: &address.zip,
            phone: &random::digits(random, 16),
            data: &text(random, 300, 500),
        };
        batch.put(&load.tables.customer, &Key::customer(w, d, c), &customer.encode())?;
    }
    batch.put_index(&load.tables.customer_by_name, by_name)?;
    for c in 1..=scale.customers {
        let history = History {
            customer_warehouse: w,
            customer_district: d,
            customer: c,
            date: now,
            amount: FIRST_PAYMENT,
            data: &text(random, 12, 24),
        };
        let key = Key::history(w, d, i64::from(c) * FIRST_PAYMENT);
        batch.put(&load.tables.history, &key, &history.encode())?;
    }
    Ok(())
}

fn make_orders(load: &Load, batch: &mut Batch<'_>, random: &mut Random, w: u32, d: u8) -> Result<()> {
    let scale = &load.parameters.scale;
    let mut customers: Vec<u32> = (1..=scale.customers).collect();
    random.shuffle(&mut customers);
    let mut line_counts = Vec::new();
    let now = timestamp();
    for (o, &c) in (1..).zip(&customers) {
        let is_delivered = o <= scale.delivered_orders();
        let order = Order {
            customer: c,
            entry_date: now,
            carrier: if is_delivered { random.u8(1..=10) } else { 0 },
            line_count: random.u8(5..=15),
            all_local: 1,
        };
        line_counts.push((o, order.line_count, is_delivered));
        batch.put(&load.tables.order, &Key::order(w, d, o), &order.encode())?;
    }
    for &(o, line_count, is_delivered) in &line_counts {
        for number in 1..=line_count {
            let line = OrderLine {
                delivery_date: if is_delivered { now } else { 0 },
                item: random.u32(1..=scale.items),
                supply_warehouse: w,
                quantity: 5,
                amount: if is_delivered { 0 } else { random.i64(1..10_000 * UNIT) },
                district_info: &text(random, DISTRICT_INFO_BYTES, DISTRICT_INFO_BYTES),
            };
            batch.put(&load.tables.order_line, &Key::order_line(w, d, o, number), &line.encode())?;
        }
    }
    for o in scale.delivered_orders() + 1..=scale.customers {
        batch.put(&load.tables.new_order, &Key::order(w, d, o), b"")?;
    }
    let by_customer = (1..).zip(&customers).map(|(o, &c)| Key::order_by_customer(w, d, c, o).to_vec());
    batch.put_index(&load.tables.order_by_customer, by_customer.collect())
}
