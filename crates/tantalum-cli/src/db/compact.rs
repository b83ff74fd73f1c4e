//! `tantalum db compact`: gives space back, by way of the process that has the database open, or in the closed database.

use std::{path::Path, process::ExitCode};

use tantalum::{
    CompactProgress, CompactReport, CompactStep, KeptPages,
    control::{Client, Command, Progress},
};
use tantalum_report::{Table, units};

use super::{open_here, source::of_json};
use crate::{
    error::{Out, Result},
    progress::Bars,
};

pub fn run(dir: &Path, json: bool) -> Result<ExitCode> {
    let mut bars = Bars::default();
    let mut show = |CompactProgress { step, done, total }| {
        let what = match step {
            CompactStep::FinishTransactions => "finishing large transactions",
            CompactStep::MovePages => "moving pages",
            CompactStep::ConvertValues => "writing large values anew",
            CompactStep::EmptySegments => "emptying segments",
        };
        bars.things(what, done, total);
    };
    let report: CompactReport = match Client::connect(dir) {
        Ok(mut client) => of_json(client.call(&Command::Compact, &mut |progress| {
            if let Progress::Compact(progress) = progress {
                show(progress);
            }
        })?)?,
        Err(unreachable) => {
            let db = open_here(dir, None, &unreachable)?;
            let report = db.compact(&mut show)?;
            db.close()?;
            report
        }
    };
    drop(bars);
    if json {
        tantalum_report::print_json(&report)?;
        return Ok(ExitCode::SUCCESS);
    }
    let CompactReport {
        pages_moved,
        values_converted,
        data_bytes_before,
        data_bytes_after,
        data_bytes_unallocated,
        data_kept,
        end_kept,
        log_bytes_given_back,
        ..
    } = report;
    let mut table = Table::new(["space", "bytes"]);
    table.row(["data file before".to_owned(), units::bytes(data_bytes_before)]);
    table.row(["data file now".to_owned(), units::bytes(data_bytes_after)]);
    if data_bytes_unallocated > 0 {
        table.row(["of it, not on disk".to_owned(), units::bytes(data_bytes_unallocated)]);
    }
    table.row(["given back by the log".to_owned(), units::bytes(log_bytes_given_back)]);
    Out::new().line(table)?;
    Out::new().line(format_args!("{} pages were moved", units::count(pages_moved)))?;
    if values_converted > 0 {
        Out::new().line(format_args!("{} large values were written anew", units::count(values_converted)))?;
    }
    for KeptPages { pages, by } in end_kept {
        Out::new().line(format_args!("{} pages at the end are kept by {by}", units::count(pages)))?;
    }
    if let Some(reason) = data_kept {
        Out::new().line(format_args!("the data file keeps its size: {reason}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
