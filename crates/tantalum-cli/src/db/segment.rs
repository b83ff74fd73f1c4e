//! `tantalum db inspect --segment`: a segment of a log-structured store, with its appends and what stands in them.

use std::{path::Path, process::ExitCode};

use tantalum::SegmentInspection;
use tantalum_report::Table;

use crate::error::{Out, Result};

/// Shows a segment of the database in `dir`.
pub fn run(dir: &Path, segment: u32, json: bool) -> Result<ExitCode> {
    let db = super::open(dir, false)?;
    let inspection = db.inspect_segment(segment)?;
    match json {
        true => tantalum_report::print_json(&inspection)?,
        false => print(&inspection)?,
    }
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

fn print(segment: &SegmentInspection) -> Result<()> {
    let mut out = Out::new();
    let SegmentInspection { segment: number, offset_bytes, state, blocks, live_blocks, appends, .. } = segment;
    out.line(format_args!("segment {number} at byte {offset_bytes}: {state}, {live_blocks} of {blocks} blocks live"))?;
    let mut table = Table::new(["block", "append", "stream", "what", "number", "LSN", ""]);
    for append in appends {
        let earlier = if append.is_of_this_session { "" } else { "of an earlier session" };
        let [what, none] = ["summary", ""].map(str::to_owned);
        let (block, sequence) = (append.block.to_string(), append.sequence.to_string());
        table.row([block, sequence.clone(), append.stream.clone(), what, none.clone(), none, earlier.to_owned()]);
        for entry in &append.entries {
            let lsn = entry.lsn.map_or_else(String::new, |lsn| lsn.to_string());
            let state = if entry.is_live { "live" } else { "dead" };
            table.row([
                entry.block.to_string(),
                sequence.clone(),
                append.stream.clone(),
                entry.kind.clone(),
                entry.number.to_string(),
                lsn,
                state.to_owned(),
            ]);
        }
    }
    out.line(table)
}
