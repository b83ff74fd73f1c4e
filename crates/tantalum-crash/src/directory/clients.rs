//! What happens to a database in a directory while it is open: commits, compactions, and a disk that is full for a while.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tantalum::{Db, ErrorKind, Table};
use tantalum_device::files::SimulatedFiles;

use super::{Known, TABLE, setup::INITIAL_BYTES};

/// How often a client looks whether the log has grown.
const SHRINK_LOOK: Duration = Duration::from_micros(100);
/// Large values that another client commits beside them.
const OTHERS_OF_GROWTH: u32 = 6;
const OTHERS: &str = "others";

pub(super) fn commit(db: &Db, known: &Known, rows: u32) -> tantalum::Result<()> {
    let table = with_patience(known, || db.table(TABLE))?;
    for _ in 0..rows {
        let number = known.begun.fetch_add(1, Ordering::Relaxed);
        put_with_patience(db, known, &table, number, &[7; 600])?;
        known.acknowledged.store(number + 1, Ordering::Relaxed);
    }
    Ok(())
}

/// Commits values some of which only a log that has grown takes.
pub(super) fn commit_others(db: &Db, known: &Known, rows: u32) -> tantalum::Result<()> {
    let table = with_patience(known, || db.table(OTHERS))?;
    for number in 0..rows * OTHERS_OF_GROWTH {
        put_with_patience(db, known, &table, number, &vec![1; 1000 + 8000 * (number as usize % 6)])?;
    }
    Ok(())
}

fn put_with_patience(db: &Db, known: &Known, table: &Table, number: u32, value: &[u8]) -> tantalum::Result<()> {
    with_patience(known, || {
        let mut transaction = db.begin()?;
        transaction.put(table, number.to_be_bytes(), value)?;
        transaction.commit().map(drop)
    })
}

/// Does it again while the disk is full.
fn with_patience<T>(known: &Known, f: impl Fn() -> tantalum::Result<T>) -> tantalum::Result<T> {
    loop {
        match f() {
            Err(error) if matches!(error.kind(), ErrorKind::NoSpace | ErrorKind::StoreFull) => {
                known.refused.fetch_add(1, Ordering::Relaxed);
                tantalum_rt::sleep(SHRINK_LOOK);
            }
            done => return done,
        }
    }
}

/// Lets the disk be full again and again, until `is_over`. In the end it is not.
pub(super) fn fill_disk(files: &SimulatedFiles, known: &Known, [space, no_space]: [Duration; 2], is_over: &AtomicBool) {
    while !is_over.load(Ordering::Relaxed) {
        set_full(files, true);
        known.fillings.fetch_add(1, Ordering::Relaxed);
        tantalum_rt::sleep(no_space);
        set_full(files, false);
        tantalum_rt::sleep(space);
    }
}

pub(super) fn set_full(files: &SimulatedFiles, is_full: bool) {
    files.fill_disk(is_full);
    files.refuse_growth(is_full);
}

/// Lets the log shrink whenever it has grown, and when the other clients have ended. Not before: the checkpoints of compactions would
/// keep it small.
pub(super) fn shrink(db: &Db, known: &Known, pause: Duration, is_over: &AtomicBool) -> tantalum::Result<()> {
    // More than a log has that has not grown, with two partitions too.
    let has_grown = || Ok::<_, tantalum::Error>(db.stats()?.log.capacity_bytes > 2 * INITIAL_BYTES);
    loop {
        let was_over = is_over.load(Ordering::Relaxed);
        if has_grown()? {
            tantalum_rt::sleep(pause);
            let [begun, done] = &known.shrinkings;
            begun.fetch_add(1, Ordering::Relaxed);
            let report = with_patience(known, || db.compact(&mut |_| {}))?;
            done.fetch_add(u32::from(report.log_bytes_given_back > 0), Ordering::Relaxed);
        }
        if was_over {
            return Ok(());
        }
        tantalum_rt::sleep(SHRINK_LOOK);
    }
}
