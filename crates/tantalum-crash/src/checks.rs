//! Checks of the database, beside clients and after them.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use tantalum::Db;

use crate::{
    history::Recorder,
    stop::{Stop, is_closed},
};

/// The rows of large transactions are in their tables after this time, if no device fails.
const APPLIER_PATIENCE: Duration = Duration::from_secs(100);

/// Trees and space map must be sound.
pub(crate) fn check(db: &Db, recorder: &Recorder) -> Result<(), Stop> {
    let report = db.check()?;
    recorder.count("database checks", 1);
    let transactions = db.stats()?.transactions;
    recorder.count("database checks beside values that no row has", u64::from(transactions.dead_values > 0));
    recorder.count("database checks after values were freed", u64::from(transactions.values_freed > 0));
    match report.problems().first() {
        None => Ok(()),
        Some(problem) => Err(Stop::Unsound(problem.clone())),
    }
}

/// What a task does again and again beside the clients: calls `again`, after a pause each time, until it returns false or is to stop. The
/// pause doubles after so many `repetitions`, since clients may wait for a device that is stuck until the power goes, half an hour later.
pub(crate) fn again_and_again(
    stop: &AtomicBool,
    mut pause: Duration,
    repetitions: u32,
    mut again: impl FnMut() -> bool,
) {
    loop {
        for _ in 0..repetitions {
            if stop.load(Ordering::Acquire) {
                return;
            }
            tantalum_rt::sleep(pause);
            if !again() {
                return;
            }
        }
        pause *= 2;
    }
}

/// The checker task: checks the database again and again beside the clients.
pub(crate) fn check_again_and_again(db: &Db, recorder: &Recorder, stop: &AtomicBool, pause: Duration) {
    again_and_again(stop, pause, 256, || {
        match check(db, recorder) {
            Ok(()) => {
                recorder.count("database checks beside clients", 1);
                return true;
            }
            Err(Stop::Failed(error)) if is_closed(&error) => {}
            Err(stop) => recorder.record(stop.into_event()),
        }
        false
    });
}

/// When all rows that are staged or deferred are where they belong, their staging tables have gone, those for dropped tables too. They get
/// there, unless devices fail.
pub(crate) fn check_nothing_is_staged(db: &Db, devices_may_fail: bool, recorder: &Recorder) -> Result<(), Stop> {
    let begun = tantalum_rt::now();
    while db.stats()?.transactions.staging_tables > 0 {
        if begun.elapsed() > APPLIER_PATIENCE {
            if devices_may_fail {
                return Ok(());
            }
            let tasks = tantalum_rt::list_tasks();
            return Err(Stop::Violation(format!(
                "rows that are staged or deferred are not moved to their tables{tasks}"
            )));
        }
        tantalum_rt::sleep(APPLIER_PATIENCE / 1000);
    }
    let left = db.check()?.staging_tables;
    if left > 0 {
        return Err(Stop::Violation(format!("{left} staging tables are left over")));
    }
    recorder.count("checks that nothing was staged any more", 1);
    Ok(())
}
