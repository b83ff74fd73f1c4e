//! Checks of the database.

use std::time::Duration;

use tantalum::Db;

use crate::{history::Recorder, stop::Stop};

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
