//! Damaged devices: whatever byte is wrong, it is reported or makes no difference.

use std::{sync::Arc, time::Duration};

use tantalum::{Db, Devices, ErrorKind, Result};
use tantalum_device::{AlignedBuffer, Device, MemoryDevice};
use tantalum_rt::Simulation;

use crate::support::{Rows, contents};

/// Every so many bytes one is flipped.
const STRIDE: u64 = 997;

type Contents = Vec<(String, Rows)>;

/// Devices of a small database.
struct Disks([Arc<MemoryDevice>; 3]);

impl Disks {
    fn new() -> Self {
        let device = |name: &str, bytes| MemoryDevice::new(name, bytes);
        Self([device("data", 512 << 10), device("doublewrite", 512 << 10), device("log", 512 << 10)])
    }

    fn fork(&self) -> Self {
        Self(self.0.each_ref().map(|disk| disk.fork()))
    }

    fn open(&self) -> Result<Db> {
        let [data, double_write, log] = self.0.each_ref().map(|disk| Arc::clone(disk) as Arc<dyn Device>);
        let devices = Devices { data, double_write: Some(double_write), log: vec![log] };
        Db::builder().buffer_pool_bytes(64 * 4096).open_on(devices)
    }

    /// What can be read, if nothing is reported.
    fn read(&self) -> Result<Option<Contents>> {
        let db = self.open()?;
        let contents = contents(&db)?;
        Ok(db.check()?.is_sound().then_some(contents))
    }

    fn flip(&self, disk: usize, offset: u64) {
        self.0[disk].corrupt(offset, 1, |byte| byte[0] ^= 1 << (offset % 8));
    }
}

/// Something of everything: trees of two levels, large values, two tables, freed pages.
fn fill(db: &Db) {
    let (one, two) = (db.table("one").unwrap(), db.table("two").unwrap());
    for n in 0..60u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&one, n.to_be_bytes(), vec![n as u8; 20 * n as usize]).unwrap();
        tx.put(&two, n.to_le_bytes(), n.to_string()).unwrap();
        tx.commit_async().unwrap();
    }
    db.drop_table("one").unwrap();
    let one = db.table("one").unwrap();
    for n in 0..30u32 {
        let mut tx = db.begin().unwrap();
        tx.put(&one, n.to_be_bytes(), vec![n as u8; 40 * n as usize]).unwrap();
        tx.commit().unwrap();
    }
}

fn append(db: &Db, key: &str) {
    let two = db.table("two").unwrap();
    let mut tx = db.begin().unwrap();
    tx.put(&two, key, "late").unwrap();
    tx.delete(&two, 7u32.to_le_bytes()).unwrap();
    tx.commit().unwrap();
}

/// Flips bytes all over `disks`; what is then read without a report must be among `allowed`, or `all` of it outside the log.
fn search(disks: &Disks, all: &Contents, allowed_for_log: &[Contents]) {
    assert!(disks.fork().read().unwrap().as_ref() == Some(all), "without damage everything is there");
    let (mut reported, mut harmless) = (0, 0);
    for disk in 0..disks.0.len() {
        for offset in (0..disks.0[disk].capacity_bytes()).step_by(STRIDE as usize) {
            let damaged = disks.fork();
            damaged.flip(disk, offset);
            match damaged.read() {
                Err(_) | Ok(None) => reported += 1,
                Ok(Some(read)) => {
                    let is_right = read == *all || (disk == 2 && allowed_for_log.contains(&read));
                    assert!(is_right, "byte {offset} of {} changes what is read", damaged.0[disk].name());
                    harmless += 1;
                }
            }
        }
    }
    // Most of the devices is empty, or no longer needed.
    assert!(reported > 20 && harmless > 20, "{reported} reported, {harmless} harmless");
}

#[test]
fn a_flipped_byte_of_a_closed_database_is_reported_or_harmless() {
    let disks = Disks::new();
    let db = disks.open().unwrap();
    fill(&db);
    // The double-write area mends what was stored last: let that be little.
    for n in 0..2 {
        db.checkpoint().unwrap();
        append(&db, &format!("late {n}"));
    }
    let all = contents(&db).unwrap();
    db.close().unwrap();
    search(&disks, &all, &[]);
}

#[test]
fn a_flipped_byte_before_recovery_is_reported_or_harmless() {
    let disks = Disks::new();
    let db = disks.open().unwrap();
    fill(&db);
    for n in 0..2 {
        db.checkpoint().unwrap();
        append(&db, &format!("late {n}"));
    }
    let before = contents(&db).unwrap();
    append(&db, "last");
    let all = contents(&db).unwrap();
    // A copy of the running database is what a crash leaves. Damage to the very last write of the log cannot be told
    // from a write that the crash tore, before it was acknowledged.
    search(&disks.fork(), &all, &[before]);
}

/// A device that loses the write of a page leaves an older row. Redo must not edit that one: the row was never written.
#[test]
fn a_row_that_a_lost_write_has_left_is_not_edited_by_redo() {
    const MARK: &[u8] = b"a row of which few bytes change";
    let disks = Disks::new();
    let db = disks.open().unwrap();
    let put = |number: u8| {
        let mut tx = db.begin().unwrap();
        tx.put(&db.table("rows").unwrap(), "key", [MARK, &[7; 100], &[number; 4], &[7; 100]].concat()).unwrap();
        tx.commit().unwrap();
    };
    let all_pages = |disks: &Disks| {
        let mut pages = AlignedBuffer::zeroed(disks.0[0].capacity_bytes() as usize);
        disks.0[0].read(0, &mut pages).unwrap();
        pages
    };
    put(1);
    db.checkpoint().unwrap();
    let before = all_pages(&disks);
    put(2);
    db.checkpoint().unwrap();
    let log_bytes = db.stats().unwrap().log.end_lsn.get();
    put(3);
    let stats = db.stats().unwrap();
    assert_eq!(stats.pool.patched_rows, 2);
    assert!(stats.log.end_lsn.get() - log_bytes < 60, "the log has little of the row");
    let crashed = disks.fork();
    let reopened = crashed.fork().open().unwrap();
    assert_eq!(reopened.get(&reopened.table("rows").unwrap(), "key").unwrap().unwrap()[MARK.len() + 100], 3);
    let (number, page) = before
        .chunks_exact(4096)
        .enumerate()
        .find(|(_, page)| page.windows(MARK.len()).any(|bytes| bytes == MARK))
        .expect("the page was stored");
    crashed.0[0].corrupt(number as u64 * 4096, 4096, |bytes| bytes.copy_from_slice(page));
    // Redo changes the page when it is first read.
    let db = crashed.open().unwrap();
    for _ in 0..2 {
        let error = db.get(&db.table("rows").unwrap(), "key").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.to_string().contains("it edits another cell than the slot has"), "{error}");
    }
    assert!(db.checkpoint().unwrap_err().to_string().contains("it edits another cell"));
}

/// The map of the first pages was never stored, as far as the device knows, which has lost the write. Nothing is written over.
#[test]
fn a_lost_space_map_is_reported_before_a_page_is_used_twice() {
    let run = || {
        let disks = Disks::new();
        let db = disks.open().unwrap();
        fill(&db);
        let before = contents(&db).unwrap();
        db.close().unwrap();
        disks.0[0].corrupt(2 * 4096, 4096, |bytes| bytes.fill(0));
        let db = disks.open().unwrap();
        let lost = |error: tantalum::Error| {
            assert_eq!(error.kind(), ErrorKind::Corrupt);
            assert!(error.to_string().contains("page 2"), "{error}");
            assert!(error.to_string().contains("never written, though"), "{error}");
        };
        // A split needs a page.
        let one = db.table("one").unwrap();
        let refused = (0..100u32).find_map(|n| db.put(&one, (n << 8).to_be_bytes(), [7; 1000]).err());
        lost(refused.expect("the leaves are full"));
        // So does a table, while the catalog's root is latched.
        lost(db.table("three").unwrap_err());
        assert_eq!(contents(&db).unwrap().last(), before.last(), "the other table can be read");
        assert!(!db.check().unwrap().is_sound());
    };
    // In which a task that waits for its own latch is noticed.
    assert!(Simulation::new(1).time_limit(Duration::from_secs(600)).run(run).finished().is_some());
}

/// As above, where pages are to be freed: by leaves that are merged, which is left undone, and by the drop of a table. Where it is not
/// reported, this does not end.
#[test]
fn a_lost_space_map_is_reported_where_pages_are_freed() {
    let disks = Disks::new();
    let db = disks.open().unwrap();
    fill(&db);
    db.close().unwrap();
    disks.0[0].corrupt(2 * 4096, 4096, |bytes| bytes.fill(0));
    let db = disks.open().unwrap();
    let one = db.table("one").unwrap();
    for row in db.range(&one, ..).unwrap() {
        db.delete(&one, row.unwrap().0).unwrap();
    }
    assert_eq!(db.range(&one, ..).unwrap().count(), 0);
    let error = db.drop_table("two").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("never written, though"), "{error}");
    assert!(!db.check().unwrap().is_sound());
}
