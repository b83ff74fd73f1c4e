//! TPC-C at a small scale: loaded and run in the simulation and on threads, and every condition broken on purpose.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tantalum::{Db, Devices, Table};
use tantalum_device::{Device, MemoryDevice};
use tantalum_rt::Simulation;

use super::consistency::{self, Condition};
use super::schema::{Customer, District, History, Key, Order, OrderLine, UNIT, Warehouse};
use super::*;
use crate::driver::{self, Options, RunReport};
use crate::error::ErrorKind;

const SCALE: Scale = Scale { items: 60, districts: 3, customers: 20, new_orders: 6 };

/// Virtual time after which a test has hung.
const HANG: Duration = Duration::from_secs(600);

/// Gives a database on memory devices to `test`, inside a simulation.
fn in_simulation<T: 'static>(seed: u64, test: impl FnOnce(&Db) -> T + 'static) -> T {
    Simulation::new(seed)
        .step_limit(50_000_000)
        .time_limit(HANG)
        .run(move || test(&memory_database()))
        .expect_finished()
}

fn memory_database() -> Db {
    let device = |name: &str, bytes| MemoryDevice::new(name, bytes) as Arc<dyn Device>;
    let devices = Devices {
        data: device("data", 32 << 20),
        double_write: Some(device("double-write", 2 << 20)),
        log: vec![device("log-0", 16 << 20), device("log-1", 16 << 20)],
    };
    Db::builder().buffer_pool_bytes(4 << 20).open_on(devices).unwrap()
}

fn load(db: &Db, warehouses: u32) -> Tpcc {
    let parameters = Parameters { warehouses, scale: SCALE, seed: 7 };
    Tpcc::load_or_reuse(db, parameters, 3, &mut |_| ()).unwrap()
}

fn run(tpcc: Tpcc, clients: usize, steps: u64, seed: u64) -> RunReport {
    driver::run(&Arc::new(tpcc), Options::transactions(clients, steps).with_seed(seed), &mut |_| ()).unwrap()
}

fn broken(db: &Db) -> Vec<usize> {
    let conditions = consistency::check(db).unwrap();
    conditions.iter().filter(|condition| !condition.is_ok()).map(|condition| condition.number).collect()
}

fn rewrite(db: &Db, table: &Table, key: &[u8], change: impl FnOnce(&[u8]) -> Vec<u8>) {
    let mut tx = db.begin().unwrap();
    let row = tx.get(table, key).unwrap().expect("the test names an existing row");
    tx.put(table, key, &change(&row)[..]).unwrap();
    tx.commit().unwrap();
}

#[test]
fn several_clients_in_the_simulation_keep_all_conditions() {
    for (seed, mix, reads) in [
        (1, Mix::Normal, Reads::Snapshot),
        (2, Mix::Normal, Reads::Transaction),
        (3, Mix::ReadIntensive, Reads::Transaction),
        (4, Mix::WriteIntensive, Reads::Snapshot),
    ] {
        let conditions = in_simulation(seed, move |db| {
            let report = run(load(db, 1).with_mix(mix).with_reads(reads).with_prefetching(seed % 2 == 0), 5, 46, seed);
            assert_eq!(report.total.committed + report.total.rolled_back, 5 * 46);
            consistency::check(db).unwrap()
        });
        assert_eq!(conditions.len(), 12);
        let bad: Vec<String> = conditions.iter().filter(|c| !c.is_ok()).map(Condition::to_string).collect();
        assert!(bad.is_empty(), "{mix:?}, {reads:?}: {bad:#?}");
        assert!(conditions.iter().all(|condition| condition.checked > 0), "{conditions:?}");
    }
}

#[test]
fn clients_of_two_warehouses_pay_and_order_at_both() {
    in_simulation(5, |db| {
        let report = run(load(db, 2), 6, 69, 5);
        assert_eq!(report.kinds[Kind::Payment as usize].committed, 6 * 30);
        assert_eq!(broken(db), [0; 0]);
        let tables = Tables::open(db).unwrap();
        let snapshot = db.snapshot().unwrap();
        let is_remote = |w: u32| {
            let (low, high) = (Key::warehouse(w), Key::warehouse(w + 1));
            let rows = snapshot.range(&tables.history, &low[..]..&high[..]).unwrap();
            rows.map(|row| row.unwrap()).any(|(_, row)| History::decode(&row).unwrap().customer_warehouse != w)
        };
        assert!(is_remote(1) && is_remote(2));
    });
}

#[test]
fn the_load_is_the_same_for_any_number_of_loaders() {
    let rows_with = |loaders: usize| {
        in_simulation(loaders as u64, move |db| {
            let parameters = Parameters { warehouses: 1, scale: SCALE, seed: 7 };
            Tpcc::load_or_reuse(db, parameters, loaders, &mut |_| ()).unwrap();
            let tables = Tables::open(db).unwrap();
            let snapshot = db.snapshot().unwrap();
            let rows = snapshot.range(&tables.stock, ..).unwrap().map(|row| row.unwrap().1.to_vec());
            rows.collect::<Vec<_>>()
        })
    };
    let rows = rows_with(1);
    assert_eq!(rows.len(), SCALE.items as usize);
    assert_eq!(rows, rows_with(4));
}

#[test]
fn a_loaded_database_is_reused_only_with_its_parameters() {
    in_simulation(1, |db| {
        let tpcc = load(db, 1);
        run(tpcc, 1, 23, 1);
        let next = |db: &Db| {
            let tables = Tables::open(db).unwrap();
            let row = db.snapshot().unwrap().get(&tables.district, &Key::district(1, 1)[..]).unwrap().unwrap();
            District::decode(&row).unwrap().next_order
        };
        let before = next(db);
        let parameters = load(db, 1).parameters();
        assert_eq!(next(db), before, "a reused database is as the run left it");
        let other = Parameters { warehouses: 2, ..parameters };
        let Err(error) = Tpcc::load_or_reuse(db, other, 1, &mut |_| ()) else { panic!("other parameters must fail") };
        assert!(error.kind() == ErrorKind::Mismatch, "{error}");
    });
}

#[test]
fn each_transaction_does_what_its_clause_says() {
    in_simulation(1, |db| {
        let tpcc = load(db, 1);
        let mut terminal = tpcc.terminal(0, 1);
        let Output::NewOrder { order, total, .. } = tpcc.execute(&mut terminal, Kind::NewOrder).unwrap() else {
            panic!("the first new-order of this seed is not rolled back")
        };
        assert_eq!(order, SCALE.customers + 1);
        assert!(total > 0);
        let delivered = tpcc.execute(&mut terminal, Kind::Delivery).unwrap();
        assert_eq!(delivered, Output::Delivery { delivered: SCALE.districts, skipped: 0 });
        for _ in 0..SCALE.new_orders {
            tpcc.execute(&mut terminal, Kind::Delivery).unwrap();
        }
        let delivered = tpcc.execute(&mut terminal, Kind::Delivery).unwrap();
        assert_eq!(delivered, Output::Delivery { delivered: 0, skipped: SCALE.districts });
        let Output::OrderStatus { order: Some(_), lines: 5..=15, .. } =
            tpcc.execute(&mut terminal, Kind::OrderStatus).unwrap()
        else {
            panic!("every customer has an order")
        };
        assert!(matches!(tpcc.execute(&mut terminal, Kind::StockLevel).unwrap(), Output::StockLevel { .. }));
        assert_eq!(broken(db), [0; 0]);
    });
}

#[test]
fn the_observer_hears_of_orders_that_are_there() {
    in_simulation(2, |db| {
        let heard = Arc::new(tantalum_rt::Mutex::new(Vec::new()));
        let write = heard.clone();
        let observer = move |output: &Output| {
            if let Output::NewOrder { warehouse, district, order, .. } = *output {
                write.lock().push((warehouse, district, order));
            }
        };
        let report = run(load(db, 2).with_observer(Box::new(observer)), 4, 23, 2);
        let heard = heard.lock();
        assert_eq!(heard.len() as u64, report.kinds[Kind::NewOrder as usize].committed);
        let tpcc = load(db, 2);
        assert!(heard.iter().all(|&(w, d, o)| tpcc.has_order(w, d, o).unwrap()));
        assert!(!tpcc.has_order(1, 1, 1_000_000).unwrap());
    });
}

#[test]
fn one_new_order_in_a_hundred_is_rolled_back_and_leaves_nothing() {
    in_simulation(1, |db| {
        let tpcc = load(db, 1);
        let mut terminal = tpcc.terminal(0, 3);
        let mut rolled_back = 0;
        for _ in 0..600 {
            let output = tpcc.execute(&mut terminal, Kind::NewOrder).unwrap();
            rolled_back += u32::from(output == Output::NewOrderRolledBack);
        }
        assert!((1..=14).contains(&rolled_back), "{rolled_back} of 600");
        assert_eq!(broken(db), [0; 0]);
    });
}

/// Loads, tampers, and gives the numbers of the conditions found broken.
fn broken_after(tamper: impl FnOnce(&Db, &Tables) + 'static) -> Vec<usize> {
    in_simulation(1, move |db| {
        load(db, 1);
        let tables = Tables::open(db).unwrap();
        tamper(db, &tables);
        broken(db)
    })
}

#[test]
fn a_changed_sum_is_found() {
    let warehouse = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.warehouse, &Key::warehouse(1), |row| {
            let row = Warehouse::decode(row).unwrap();
            Warehouse { ytd: row.ytd + 1, ..row }.encode()
        });
    };
    assert_eq!(broken_after(warehouse), [1, 8]);
    let district = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.district, &Key::district(1, 2), |row| {
            let row = District::decode(row).unwrap();
            District { ytd: row.ytd - 1, ..row }.encode()
        });
    };
    assert_eq!(broken_after(district), [1, 9]);
    let balance = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.customer, &Key::customer(1, 1, 4), |row| {
            let row = Customer::decode(row).unwrap();
            Customer { balance: row.balance + 1, ..row }.encode()
        });
    };
    assert_eq!(broken_after(balance), [10, 12]);
    let deliveries = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.customer, &Key::customer(1, 1, 4), |row| {
            let row = Customer::decode(row).unwrap();
            Customer { delivery_count: 1, ..row }.encode()
        });
    };
    assert_eq!(broken_after(deliveries), [11]);
    let history = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.history, &Key::history(1, 1, 10 * UNIT), |row| {
            let row = History::decode(row).unwrap();
            History { amount: row.amount + 1, ..row }.encode()
        });
    };
    assert_eq!(broken_after(history), [8, 9, 10]);
}

#[test]
fn a_changed_order_is_found() {
    let next = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.district, &Key::district(1, 2), |row| {
            let row = District::decode(row).unwrap();
            District { next_order: row.next_order + 1, ..row }.encode()
        });
    };
    assert_eq!(broken_after(next), [2]);
    let carrier = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.order, &Key::order(1, 1, SCALE.customers), |row| {
            let row = Order::decode(row).unwrap();
            Order { carrier: 3, ..row }.encode()
        });
    };
    assert_eq!(broken_after(carrier), [5, 7]);
    let line_count = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.order, &Key::order(1, 1, 2), |row| {
            let row = Order::decode(row).unwrap();
            Order { line_count: row.line_count + 1, ..row }.encode()
        });
    };
    assert_eq!(broken_after(line_count), [4, 6]);
    let delivery = |db: &Db, tables: &Tables| {
        rewrite(db, &tables.order_line, &Key::order_line(1, 1, 1, 1), |row| {
            let row = OrderLine::decode(row).unwrap();
            OrderLine { delivery_date: 0, ..row }.encode()
        });
    };
    assert_eq!(broken_after(delivery), [7]);
}

#[test]
fn a_missing_row_is_found() {
    let delete = |db: &Db, table: &Table, key: Key| {
        let mut tx = db.begin().unwrap();
        assert!(tx.delete(table, &key[..]).unwrap());
        tx.commit().unwrap();
    };
    let middle = SCALE.customers - 2;
    assert_eq!(broken_after(move |db, tables| delete(db, &tables.new_order, Key::order(1, 1, middle))), [3, 5, 11]);
    assert_eq!(broken_after(move |db, tables| delete(db, &tables.order_line, Key::order_line(1, 1, 1, 1))), [4, 6]);
    let order = broken_after(move |db, tables| delete(db, &tables.order, Key::order(1, 1, SCALE.customers)));
    assert_eq!(order, [2, 4, 5, 6, 11]);
    in_simulation(1, move |db| {
        load(db, 1);
        delete(db, &Tables::open(db).unwrap().customer, Key::customer(1, 1, 1));
        let error = consistency::check(db).unwrap_err().to_string();
        assert!(error.contains("table customer"), "{error}");
    });
}

#[test]
fn prefixes_select_whole_keys_only() {
    in_simulation(1, |db| {
        let table = db.table("names").unwrap();
        let mut tx = db.begin().unwrap();
        for name in [&b"BAR"[..], b"BARBAR"] {
            tx.put(&table, Key::customer_by_name(1, 1, name, b"x", 1), b"").unwrap();
        }
        let prefix = Key::last_name(1, 1, b"BAR");
        assert_eq!(tx.range(&table, &prefix[..]..&prefix.after_prefix()[..]).unwrap().count(), 1);
        tx.rollback();
    });
}

#[test]
fn each_call_is_told_of_before_it_is_made() {
    const CALL: Duration = Duration::from_micros(7);
    let (counts, seconds) = Simulation::new(3)
        .cores(1)
        .time_limit(HANG)
        .run(|| {
            let db = memory_database();
            load(&db, 2);
            let counts: Arc<[AtomicU64; 3]> = Arc::default();
            let before_call: BeforeCall = Box::new({
                let counts = Arc::clone(&counts);
                move |call| {
                    counts[call as usize].fetch_add(1, Ordering::Relaxed);
                    tantalum_rt::work(CALL);
                }
            });
            let tpcc = Tpcc::open(&db).unwrap().unwrap().with_reads(Reads::Transaction).with_before_call(before_call);
            let report = driver::run(&Arc::new(tpcc), Options::transactions(1, 230), &mut |_| ()).unwrap();
            (counts, report.seconds)
        })
        .expect_finished();
    let [reads, writes, commits] = [0, 1, 2].map(|call: usize| counts[call].load(Ordering::Relaxed));
    // One new-order in a hundred is rolled back; a payment, the least, makes four reads and four writes.
    assert!((220..=230).contains(&commits) && reads > 4 * 230 && writes > 4 * 200, "{reads} {writes} {commits}");
    let charged = CALL.as_secs_f64() * (reads + writes + commits) as f64;
    // The driver looks at the clock every half second.
    assert!(charged <= seconds && seconds < charged + 0.6, "{charged} s charged in {seconds} s");
}
