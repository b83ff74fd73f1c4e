//! `tantalum db salvage`: a dump of what a damaged database still has, which says what it leaves out.

use std::process::ExitCode;

use tantalum::Skipped;
use tantalum_report::units;

use super::{
    dump::DumpArguments,
    source::{Source, stopping},
};
use crate::error::{Error, Result};

/// Skipped places that are said one by one; the others are counted.
const SAID_MAX: u64 = 1000;

/// Writes the rows that can be read. Exit code 1 if any cannot.
pub fn run(arguments: &DumpArguments) -> Result<ExitCode> {
    let dir = arguments.dir.display();
    let db = match Source::open(&arguments.dir)? {
        Source::Here(db) => db,
        Source::There(remote) => {
            let process = remote.process;
            return Err(Error::Other(format!(
                "{dir} is open in process {process}; end that first: a salvage reads the pages on the device"
            )));
        }
    };
    let (mut ranges, mut values) = (0_u64, 0_u64);
    let mut skipped = |what: Skipped| {
        if ranges + values < SAID_MAX {
            eprintln!("skipped: {what}");
        }
        match what {
            Skipped::Value { .. } => values += 1,
            _ => ranges += 1,
        }
    };
    arguments.write("salvaging", &mut |tables, take| {
        stopping(|failed| {
            Ok(db.salvage(
                tables,
                &mut |table, row| take(table, row).map_err(|error| failed.stop(error)),
                &mut skipped,
            )?)
        })
    })?;
    db.close()?;
    if ranges + values == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    let (ranges, values) = (units::count(ranges), units::count(values));
    Err(Error::Other(format!(
        "{dir}: {ranges} ranges of keys and {values} large values cannot be read; all other rows were written"
    )))
}
