//! `tantalum db compact`: gives space back, by way of the process that has the database open, or in the closed database.

use std::{path::Path, process::ExitCode};

use tantalum::{
    CompactProgress, CompactReport,
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
    let mut show = |CompactProgress { done_pages, total_pages }| bars.things("moving pages", done_pages, total_pages);
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
    let CompactReport { pages_moved, bytes_before, bytes_after, .. } = report;
    let mut table = Table::new(["data file", "size"]);
    table.row(["before".to_owned(), units::bytes(bytes_before)]);
    table.row(["after".to_owned(), units::bytes(bytes_after)]);
    table.row(["given back".to_owned(), units::bytes(bytes_before.saturating_sub(bytes_after))]);
    Out::new().line(table)?;
    Out::new().line(format_args!("{} pages were moved", units::count(pages_moved)))?;
    Ok(ExitCode::SUCCESS)
}
