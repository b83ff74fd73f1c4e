//! `tantalum db inspect`: an erase unit of in-page logging, with its log sectors and what stands in them; with `--segment` a
//! segment of a log-structured store, with its appends and what stands in them.

use std::{path::Path, process::ExitCode};

use serde::Serialize;
use tantalum::{
    Db,
    internals::{SectorInspection, SegmentInspection, UnitInspection, inspect_segment, inspect_unit},
};
use tantalum_report::{Table, units};

use crate::error::{Out, Result};

/// Shows an erase unit of the database in `dir`.
pub fn unit(dir: &Path, unit: u32, json: bool) -> Result<ExitCode> {
    show(dir, json, |db| inspect_unit(db, unit), print_unit)
}

/// Shows a segment of the database in `dir`.
pub fn segment(dir: &Path, segment: u32, json: bool) -> Result<ExitCode> {
    show(dir, json, |db| inspect_segment(db, segment), print_segment)
}

fn show<I: Serialize>(
    dir: &Path,
    json: bool,
    inspect: impl FnOnce(&Db) -> tantalum::Result<I>,
    print: impl FnOnce(&I) -> Result<()>,
) -> Result<ExitCode> {
    let db = super::builder(false).read_only(true).open(dir)?;
    let inspection = inspect(&db)?;
    match json {
        true => tantalum_report::print_json(&inspection)?,
        false => print(&inspection)?,
    }
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

fn print_unit(unit: &UnitInspection) -> Result<()> {
    let mut out = Out::new();
    let present = if unit.is_present { "in use" } else { "not in use" };
    let header = format!("unit {} at byte {}: {}, {present}", unit.unit, unit.offset_bytes, unit.purpose);
    out.line(format_args!("{header}"))?;
    if let Some(sequence) = unit.sequence {
        let logical = unit.logical.map_or_else(String::new, |logical| format!("logical unit {logical}, "));
        out.line(format_args!("{logical}version {sequence}, erased {} times", unit.erase_count))?;
    }
    if !unit.pages.is_empty() {
        let pages: Vec<String> = unit.pages.iter().map(u64::to_string).collect();
        out.line(format_args!("pages {}", pages.join(", ")))?;
    }
    let is_shown = |sector: &&SectorInspection| sector.state != "blank";
    let mut table = Table::new(["sector", "state", "of unit", "page", "session", "group", "status", "bytes"]);
    for sector in unit.sectors.iter().filter(is_shown) {
        let logical = sector.logical.map_or_else(String::new, |logical| logical.to_string());
        let head = [sector.number.to_string(), sector.state.clone(), logical];
        if sector.records.is_empty() {
            table.row(head);
            continue;
        }
        for record in &sector.records {
            let [number, state, logical] = head.clone();
            let bytes = match record.part_bytes == record.total_bytes {
                true => record.total_bytes.to_string(),
                false => format!("{} from {} of {}", record.part_bytes, record.part_offset, record.total_bytes),
            };
            let (page, session, group) =
                (record.page.to_string(), record.session.to_string(), record.group.to_string());
            table.row([number, state, logical, page, session, group, record.status.clone(), bytes]);
        }
    }
    let blank = unit.sectors.iter().filter(|sector| sector.state == "blank").count();
    if !unit.sectors.is_empty() {
        let all = units::count(unit.sectors.len() as u64);
        out.line(format_args!("{all} places for log sectors, {} of them blank", units::count(blank as u64)))?;
    }
    out.line(table)
}

fn print_segment(segment: &SegmentInspection) -> Result<()> {
    let mut out = Out::new();
    let SegmentInspection { segment: number, offset_bytes, state, blocks, live_blocks, appends, .. } = segment;
    out.line(format_args!("segment {number} at byte {offset_bytes}: {state}, {live_blocks} of {blocks} blocks live"))?;
    let mut table = Table::new(["block", "append", "stream", "what", "number", "bytes", "LSN", ""]);
    for append in appends {
        let earlier = if append.is_of_this_session { "" } else { "of an earlier session" };
        let [what, none] = ["summary", ""].map(str::to_owned);
        let (block, sequence, stream) = (append.block.to_string(), append.sequence.to_string(), append.stream.clone());
        table.row([block, sequence.clone(), stream, what, none.clone(), none.clone(), none, earlier.to_owned()]);
        for entry in &append.entries {
            let lsn = entry.lsn.map_or_else(String::new, |lsn| lsn.to_string());
            let state = if entry.is_live { "live" } else { "dead" };
            table.row([
                entry.block.to_string(),
                sequence.clone(),
                append.stream.clone(),
                entry.kind.clone(),
                entry.number.to_string(),
                entry.bytes.to_string(),
                lsn,
                state.to_owned(),
            ]);
        }
    }
    out.line(table)
}
