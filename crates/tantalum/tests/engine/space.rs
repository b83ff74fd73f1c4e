//! A full device, and what happens when there is room again.

use tantalum::{Db, Devices, Error};
use tantalum_device::{Fault, MemoryDevice};

use crate::support::{check, contents};

/// Fills the database until it refuses; returns the rows that were committed.
fn fill(db: &Db, from: u32) -> (u32, Error) {
    let table = db.table("t").unwrap();
    for n in from.. {
        let mut tx = db.begin().unwrap();
        let result = tx.put(&table, n.to_be_bytes(), vec![n as u8; 3000]).and_then(|()| tx.commit().map(drop));
        if let Err(error) = result {
            return (n, error);
        }
    }
    unreachable!("the device is full before the numbers are used up")
}

#[test]
fn a_full_device_refuses_writes_and_goes_on_when_there_is_room() {
    let data = MemoryDevice::new("data", 1 << 20);
    let devices = || Devices {
        data: std::sync::Arc::clone(&data) as _,
        double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
        log: vec![MemoryDevice::new("log", 2 << 20)],
    };
    data.inject(Fault::NoSpaceOnGrow);
    let db = Db::builder().buffer_pool_bytes(64 * 4096).open_on(devices()).unwrap();
    let (rows, error) = fill(&db, 0);
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(rows > 50, "most of the device was used: {rows}");
    // What is there can be read, and what needs no room can be done.
    let table = db.table("t").unwrap();
    assert_eq!(db.snapshot().unwrap().range(&table, ..).unwrap().count(), rows as usize);
    let mut tx = db.begin().unwrap();
    for n in 0..10u32 {
        assert!(tx.delete(&table, n.to_be_bytes()).unwrap());
    }
    tx.commit().unwrap();
    check(&db);
    let (next, error) = fill(&db, rows);
    assert!(matches!(error, Error::DiskFull { .. }), "{error}");
    assert!(next > rows, "deleted rows left room");

    data.clear_faults();
    for n in 0..500u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&table, n.to_be_bytes(), vec![1; 3000]).unwrap();
        tx.commit().unwrap();
    }
    check(&db);
    assert_eq!(contents(&db).unwrap()[0].1.len(), (next.max(500)) as usize);
}
