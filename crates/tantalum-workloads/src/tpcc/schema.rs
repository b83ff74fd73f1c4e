//! The nine tables of clause 1.3, two secondary indexes and a table of parameters; their keys and rows.
//!
//! Keys are composite and big-endian, so that their order as bytes is their order as numbers: warehouses, customers,
//! orders and items take 4 bytes, districts and line numbers one. Columns that the key holds are not repeated in
//! the row. Fields that transactions change come first in a row; texts that only the load writes come after.
//!
//! | table | key | row |
//! |---|---|---|
//! | warehouse | w | [`Warehouse`] |
//! | district | w d | [`District`] |
//! | customer | w d c | [`Customer`] |
//! | history | w d ytd(8) | [`History`] |
//! | order | w d o | [`Order`] |
//! | new_order | w d o | empty |
//! | order_line | w d o line | [`OrderLine`] |
//! | item | i | [`Item`] |
//! | stock | w i | [`Stock`] |
//! | customer_by_name | w d last 0 first 0 c | empty |
//! | order_by_customer | w d c o | empty |
//!
//! The history has no key in the specification. Here it is the district that took the payment and that district's
//! D_YTD (cents) after it: every payment raises it under the district's lock, so it is unique and new rows come last.

use tantalum::{Db, Table};

use crate::error::Result;
use crate::row::row;

/// The names of all tables: of parameters, then in the order of [`Tables`]' fields.
pub const TABLE_NAMES: [&str; 12] = [
    "tpcc_parameters",
    "warehouse",
    "district",
    "customer",
    "history",
    "order",
    "new_order",
    "order_line",
    "item",
    "stock",
    "customer_by_name",
    "order_by_customer",
];

/// Handles of all tables; cheap to clone.
#[derive(Clone)]
pub struct Tables {
    /// WAREHOUSE.
    pub warehouse: Table,
    /// DISTRICT.
    pub district: Table,
    /// CUSTOMER.
    pub customer: Table,
    /// HISTORY.
    pub history: Table,
    /// ORDER.
    pub order: Table,
    /// NEW-ORDER.
    pub new_order: Table,
    /// ORDER-LINE.
    pub order_line: Table,
    /// ITEM.
    pub item: Table,
    /// STOCK.
    pub stock: Table,
    /// Index of CUSTOMER by last name, in order of first names.
    pub customer_by_name: Table,
    /// Index of ORDER by customer, in order of numbers.
    pub order_by_customer: Table,
}

impl Tables {
    /// Opens the tables, creating those that are missing.
    pub fn open(db: &Db) -> Result<Self> {
        let [
            _,
            warehouse,
            district,
            customer,
            history,
            order,
            new_order,
            order_line,
            item,
            stock,
            customer_by_name,
            order_by_customer,
        ] = TABLE_NAMES;
        Ok(Self {
            warehouse: db.table(warehouse)?,
            district: db.table(district)?,
            customer: db.table(customer)?,
            history: db.table(history)?,
            order: db.table(order)?,
            new_order: db.table(new_order)?,
            order_line: db.table(order_line)?,
            item: db.table(item)?,
            stock: db.table(stock)?,
            customer_by_name: db.table(customer_by_name)?,
            order_by_customer: db.table(order_by_customer)?,
        })
    }
}

/// A key made of big-endian parts.
pub(super) struct Key(Vec<u8>);

impl Key {
    /// WAREHOUSE.
    pub(super) fn warehouse(w: u32) -> Self {
        Self(w.to_be_bytes().to_vec())
    }

    /// ITEM.
    pub(super) fn item(i: u32) -> Self {
        Self(i.to_be_bytes().to_vec())
    }

    /// DISTRICT, and the prefix of all rows that belong to it.
    pub(super) fn district(w: u32, d: u8) -> Self {
        let mut key = Vec::with_capacity(16);
        key.extend_from_slice(&w.to_be_bytes());
        key.push(d);
        Self(key)
    }

    /// STOCK.
    pub(super) fn stock(w: u32, i: u32) -> Self {
        Self::warehouse(w).then(&i.to_be_bytes())
    }

    /// CUSTOMER, and the prefix of its orders.
    pub(super) fn customer(w: u32, d: u8, c: u32) -> Self {
        Self::district(w, d).then(&c.to_be_bytes())
    }

    /// ORDER, NEW-ORDER, and the prefix of its lines.
    pub(super) fn order(w: u32, d: u8, o: u32) -> Self {
        Self::district(w, d).then(&o.to_be_bytes())
    }

    /// ORDER-LINE.
    pub(super) fn order_line(w: u32, d: u8, o: u32, number: u8) -> Self {
        Self::order(w, d, o).then(&[number])
    }

    /// HISTORY.
    pub(super) fn history(w: u32, d: u8, district_ytd: i64) -> Self {
        Self::district(w, d).then(&district_ytd.to_be_bytes())
    }

    /// The index of orders by customer.
    pub(super) fn order_by_customer(w: u32, d: u8, c: u32, o: u32) -> Self {
        Self::customer(w, d, c).then(&o.to_be_bytes())
    }

    /// The index of customers by name; names hold no zero byte.
    pub(super) fn customer_by_name(w: u32, d: u8, last: &[u8], first: &[u8], c: u32) -> Self {
        Self::last_name(w, d, last).then(first).then(&[0]).then(&c.to_be_bytes())
    }

    /// The prefix of all customers with a last name.
    pub(super) fn last_name(w: u32, d: u8, last: &[u8]) -> Self {
        Self::district(w, d).then(last).then(&[0])
    }

    pub(super) fn then(mut self, part: &[u8]) -> Self {
        self.0.extend_from_slice(part);
        self
    }

    /// The first key after all that begin with this one.
    pub(super) fn after_prefix(&self) -> Vec<u8> {
        let mut key = self.0.clone();
        while let Some(last) = key.pop() {
            if last < u8::MAX {
                key.push(last + 1);
                break;
            }
        }
        key
    }
}

impl AsRef<[u8]> for Key {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl std::ops::Deref for Key {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// The number in four bytes of a key.
pub(super) fn number_at(key: &[u8], at: usize) -> u32 {
    key.get(at..at + 4).map_or(0, |bytes| u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

row!(pub(crate) struct Warehouse<'a> of "warehouse" {
    ytd: i64,
    tax: u32,
    name: &'a [u8],
    street_1: &'a [u8],
    street_2: &'a [u8],
    city: &'a [u8],
    state: &'a [u8],
    zip: &'a [u8],
});

row!(pub(crate) struct District<'a> of "district" {
    ytd: i64,
    next_order: u32,
    tax: u32,
    name: &'a [u8],
    street_1: &'a [u8],
    street_2: &'a [u8],
    city: &'a [u8],
    state: &'a [u8],
    zip: &'a [u8],
});

row!(pub(crate) struct Customer<'a> of "customer" {
    balance: i64,
    ytd_payment: i64,
    payment_count: u32,
    delivery_count: u32,
    discount: u32,
    credit_limit: i64,
    since: u64,
    credit: &'a [u8],
    first: &'a [u8],
    middle: &'a [u8],
    last: &'a [u8],
    street_1: &'a [u8],
    street_2: &'a [u8],
    city: &'a [u8],
    state: &'a [u8],
    zip: &'a [u8],
    phone: &'a [u8],
    data: &'a [u8],
});

row!(pub(crate) struct History<'a> of "history" {
    customer_warehouse: u32,
    customer_district: u8,
    customer: u32,
    date: u64,
    amount: i64,
    data: &'a [u8],
});

row!(
    /// A carrier of 0 is null: not delivered.
    pub(crate) struct Order of "order" {
        customer: u32,
        entry_date: u64,
        carrier: u8,
        line_count: u8,
        all_local: u8,
    }
);

row!(pub(crate) struct OrderLine<'a> of "order_line" {
    delivery_date: u64,
    item: u32,
    supply_warehouse: u32,
    quantity: u8,
    amount: i64,
    district_info: &'a [u8],
});

row!(pub(crate) struct Item<'a> of "item" {
    image: u32,
    price: i64,
    name: &'a [u8],
    data: &'a [u8],
});

row!(
    /// `districts` holds S_DIST_01 to S_DIST_10, of 24 bytes each.
    pub(crate) struct Stock<'a> of "stock" {
        quantity: i32,
        ytd: u32,
        order_count: u32,
        remote_count: u32,
        districts: &'a [u8],
        data: &'a [u8],
    }
);

/// One unit of money, in the cents that rows hold.
pub(super) const UNIT: i64 = 100;

/// The length of each S_DIST_xx.
pub(super) const DISTRICT_INFO_BYTES: usize = 24;

impl<'a> Stock<'a> {
    /// S_DIST_xx of district `d`, which counts from 1; empty if the row holds fewer.
    pub(super) fn district_info(&self, d: u8) -> &'a [u8] {
        let start = (usize::from(d).saturating_sub(1)) * DISTRICT_INFO_BYTES;
        self.districts.get(start..start + DISTRICT_INFO_BYTES).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_and_damage_is_refused() {
        let stock = Stock {
            quantity: -3,
            ytd: 7,
            order_count: 1,
            remote_count: 0,
            districts: &[b'x'; 240],
            data: b"some ORIGINAL data",
        };
        let row = stock.encode();
        assert_eq!(Stock::decode(&row).unwrap(), stock);
        assert_eq!(stock.district_info(10), [b'x'; 24]);
        assert!(stock.district_info(11).is_empty());
        for length in 0..row.len() {
            let error = Stock::decode(&row[..length]).unwrap_err().to_string();
            assert!(error.starts_with("table stock: a row of"), "{error}");
        }
        let longer = [&row[..], b"x"].concat();
        assert!(Stock::decode(&longer).unwrap_err().to_string().contains("the end of the row"));
    }

    #[test]
    fn keys_order_like_numbers_and_prefixes_end() {
        assert!(*Key::order(1, 2, 255) < *Key::order(1, 2, 256));
        assert!(*Key::order(1, 10, 1) < *Key::order(2, 1, 1));
        assert!(Key::order_line(1, 2, 3, 15)[..] < Key::order(1, 2, 3).after_prefix()[..]);
        assert_eq!(Key::district(1, 255).after_prefix(), [0, 0, 0, 2]);
        assert_eq!(number_at(&Key::order(1, 2, 77), 5), 77);
    }
}
