//! A full device, and what happens when there is room again.

use tantalum::{Db, Devices, Error, ErrorKind, PageCleaning};
use tantalum_device::{Fault, MemoryDevice};

use crate::support::{check, contents, get, put, wait_until_applied};

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
    assert_eq!(error.kind(), ErrorKind::StoreFull, "{error}");
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
    assert_eq!(error.kind(), ErrorKind::StoreFull, "{error}");
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

/// What leads to the pages of a table that is being dropped is its row, and the name may be used again at once.
#[test]
fn a_drop_that_an_error_interrupts_is_finished_before_the_name_is_used_again() {
    let data = MemoryDevice::new("data", 8 << 20);
    let double_write = MemoryDevice::new("doublewrite", 1 << 20);
    let log = MemoryDevice::new("log", 2 << 20);
    let open = || {
        let devices =
            Devices { data: data.clone(), double_write: Some(double_write.clone()), log: vec![log.clone() as _] };
        Db::builder().buffer_pool_bytes(64 * 4096).open_on(devices).unwrap()
    };
    let (mut interrupted, mut db) = (0, open());
    for after in 0..40 {
        let table = db.table("t").unwrap();
        for n in 0..300u32 {
            let mut tx = db.begin().unwrap();
            tx.put(&table, n.to_be_bytes(), vec![n as u8; if n % 50 == 0 { 20_000 } else { 2_000 }]).unwrap();
            tx.commit().unwrap();
        }
        drop(table);
        db.checkpoint().unwrap();
        data.inject(Fault::FailReads { after });
        let result = db.drop_table("t");
        let is_there = db.tables().unwrap().contains(&"t".to_owned());
        data.clear_faults();
        check(&db);
        if is_there {
            assert!(result.is_err(), "after {after} reads");
            assert_eq!(*get(&db, &db.table("t").unwrap(), "\0\0\0\u{1}").unwrap(), [1; 2000]);
            db.drop_table("t").unwrap();
        } else if result.is_err() {
            interrupted += 1;
            match after % 3 {
                0 => db.drop_table("t").unwrap(),
                1 => {
                    drop(db);
                    db = open();
                    assert!(db.tables().unwrap().is_empty());
                }
                _ => {}
            }
        }
        check(&db);
        let table = db.table("t").unwrap();
        put(&db, &table, &[("a", "b")]);
        assert_eq!(contents(&db).unwrap()[0].1.len(), 1, "nothing of the old table");
        check(&db);
        drop(table);
        db.drop_table("t").unwrap();
        // The change buffer of the table is freed beside.
        wait_until_applied(&db);
        assert_eq!(db.check().unwrap().pages_used, 1, "the catalog's root alone");
    }
    assert!(interrupted > 10, "{interrupted} of 40");
}

/// A page that finds no room, because others cannot be written, is no damage.
#[test]
fn a_check_that_cannot_look_at_everything_fails_and_finds_no_problem() {
    let data = MemoryDevice::new("data", 8 << 20);
    let devices = Devices {
        data: data.clone(),
        double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
        log: vec![MemoryDevice::new("log", 4 << 20)],
    };
    let db = Db::builder()
        .buffer_pool_bytes(64 * 4096)
        .expert(|expert| expert.page_cleaning(PageCleaning::OnDemand))
        .open_on(devices)
        .unwrap();
    let table = db.table("t").unwrap();
    let update = |n: u32, byte| {
        let mut tx = db.begin()?;
        tx.put(&table, n.to_be_bytes(), vec![byte; 2000])?;
        tx.commit().map(drop)
    };
    (0..300).for_each(|n| update(n, 1).unwrap());
    db.checkpoint().unwrap();
    assert!(db.check().unwrap().is_sound());
    data.inject(Fault::FailWrites { after: 0 });
    let stopped = (0..300).find_map(|n| update(n, 2).err()).expect("dirty pages fill the pool");
    assert!(stopped.is_io(), "{stopped}");
    let error = db.check().unwrap_err();
    assert!(error.is_io(), "{error}");
}
