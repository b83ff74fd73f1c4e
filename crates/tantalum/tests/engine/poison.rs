//! A panic between the log and memory stops the database until it is opened again.

use std::{
    error::Error as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use tantalum::{Builder, Db, Devices, Error, ErrorKind, PageChange, PageId, PageObserver, StoreKind, Table};
use tantalum_device::{Device, MemoryDevice};

use crate::support::{check, contents, get, put, rows, simulate};

const MESSAGE: &str = "the observer has had enough";

/// Panics when it is told of something.
#[derive(Default)]
struct Fragile {
    of_changes: AtomicBool,
    of_writes: AtomicBool,
}

impl PageObserver for Fragile {
    fn changed(&self, _page: PageId, _change: PageChange) {
        assert!(!self.of_changes.swap(false, Ordering::SeqCst), "{MESSAGE}");
    }

    fn written(&self, _page: PageId) {
        assert!(!self.of_writes.swap(false, Ordering::SeqCst), "{MESSAGE}");
    }
}

/// Whether an error, or what caused it, says this.
fn says(error: &Error, what: &str) -> bool {
    let mut cause = error.source();
    let mut said = error.to_string().contains(what);
    while let Some(error) = cause {
        said |= error.to_string().contains(what);
        cause = error.source();
    }
    said
}

/// Every call says why the database stopped.
fn expect_stopped(db: &Db, table: &Table) {
    let calls: [(&str, Result<(), Error>); 8] = [
        ("begin", db.begin().map(drop)),
        ("get", db.get(table, "a").map(drop)),
        ("snapshot", db.snapshot().map(drop)),
        ("table", db.table("another").map(drop)),
        ("tables", db.tables().map(drop)),
        ("drop_table", db.drop_table("t")),
        ("checkpoint", db.checkpoint()),
        ("check", db.check().map(drop)),
    ];
    for (call, result) in calls {
        match result {
            Err(error) => assert!(says(&error, MESSAGE), "{call}: {error}"),
            Ok(()) => panic!("{call} goes on after the panic"),
        }
    }
}

/// A database on `devices`, and the observer of its pages.
fn open(builder: Builder, devices: &Devices) -> (Db, Arc<Fragile>) {
    let observer = Arc::new(Fragile::default());
    let db = builder.expert(|expert| expert.observe_pages(observer.clone())).open_on(devices.clone()).unwrap();
    (db, observer)
}

fn stops_at_a_panic_of_a_commit(builder: impl Fn() -> Builder, devices: &Devices) {
    let (db, observer) = open(builder(), devices);
    let table = db.table("t").unwrap();
    for key in 0..200 {
        put(&db, &table, &[(&format!("{key:04}"), "before")]);
    }
    let early = db.begin().unwrap();
    assert_eq!(early.get(&table, "0000").unwrap().unwrap(), b"before");

    observer.of_changes.store(true, Ordering::SeqCst);
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut tx = db.begin().unwrap();
        tx.put(&table, "0000a", "whole").unwrap();
        tx.put(&table, "0199a", "or not at all").unwrap();
        tx.commit()
    }));
    // A later commit to the same pages: with the log ahead of them, it would go to the wrong places.
    let mut later = Vec::new();
    for key in 0..20 {
        let outcome = db.begin().and_then(|mut tx| {
            tx.put(&table, format!("{key:04}x"), "after")?;
            tx.commit()
        });
        later.push(outcome.map(drop));
    }
    for outcome in later {
        let error = outcome.expect_err("a commit after the panic is acknowledged");
        assert!(says(&error, MESSAGE), "{error}");
    }
    match outcome {
        Ok(Err(error)) => {
            assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
            assert!(says(&error, MESSAGE), "{error}");
        }
        other => panic!("{other:?}"),
    }
    // What was read before is confirmed no more, and nothing more is read.
    assert!(says(&early.get(&table, "0001").unwrap_err(), MESSAGE));
    assert!(says(&early.commit().unwrap_err(), MESSAGE));
    expect_stopped(&db, &table);
    assert!(db.stats().is_ok(), "what it did can be looked at");
    let error = db.clone().close().unwrap_err();
    assert!(says(&error, MESSAGE), "{error}");
    drop((db, table));

    let db = builder().open_on(devices.clone()).unwrap();
    check(&db);
    let table = db.table("t").unwrap();
    assert_eq!(get(&db, &table, "0000a").is_some(), get(&db, &table, "0199a").is_some());
    let found = rows(&db.snapshot().unwrap(), &table);
    assert_eq!(found.iter().filter(|(_, value)| **value == *b"before").count(), 200);
    assert!(found.iter().all(|(_, value)| **value != *b"after"));
    put(&db, &table, &[("0000", "again")]);
    db.close().unwrap();
}

#[test]
fn a_panic_after_a_commit_was_logged_stops_the_database() {
    simulate(0..8, |_, devices| stops_at_a_panic_of_a_commit(Db::builder, &devices));
}

#[test]
fn a_panic_after_a_commit_was_published_stops_the_database_whose_store_keeps_changes() {
    simulate(0..8, |_, devices| {
        let devices = Devices { data: MemoryDevice::new("units", 16 << 20), double_write: None, ..devices };
        let builder = || Db::builder().page_store(StoreKind::InPageLogging);
        stops_at_a_panic_of_a_commit(builder, &devices);
    });
}

#[test]
fn a_panic_after_a_page_was_written_stops_the_database() {
    simulate(0..8, |_, devices| {
        let (db, observer) = open(Db::builder(), &devices);
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "before")]);
        observer.of_writes.store(true, Ordering::SeqCst);
        let outcome = catch_unwind(AssertUnwindSafe(|| db.checkpoint()));
        assert!(matches!(&outcome, Ok(Err(error)) if says(error, MESSAGE)), "{outcome:?}");
        expect_stopped(&db, &table);
        assert!(says(&db.close().unwrap_err(), MESSAGE));
        drop(table);
        let db = Db::builder().open_on(devices).unwrap();
        check(&db);
        assert_eq!(contents(&db).unwrap()[0].1.len(), 1);
        db.close().unwrap();
    });
}

#[test]
fn a_panic_stops_a_database_on_threads() {
    let devices = Devices {
        data: MemoryDevice::new("data", 4 << 20),
        double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
        log: vec![MemoryDevice::new("log", 4 << 20) as Arc<dyn Device>],
    };
    stops_at_a_panic_of_a_commit(Db::builder, &devices);
}
