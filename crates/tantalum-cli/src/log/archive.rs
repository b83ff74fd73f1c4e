//! `tantalum log archive`: looks at an archive, checks it, and removes what is no longer wanted of it.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, Subcommand};
use serde::Serialize;
use tantalum_device::{Access, FileDevice};
use tantalum_log::{
    ArchiveInspection, ArchiveRetention, ArchiveRun, ArchiveSegment, ArchiveTarget, ArchiveVerification, Lsn,
    PrunedArchive, inspect_archive, prune_archive, verify_archive,
};
use tantalum_report::{Progress, Table, Unit, units};

use super::DamageJson;
use crate::{
    emulator::Emulator,
    error::{Error, Out, Result},
    time::rfc3339,
};

#[derive(Subcommand)]
pub enum Command {
    /// List what the archive has: stretches of the log without gaps, and its segments.
    List {
        #[command(flatten)]
        place: Place,
        /// Print JSON instead of tables.
        #[arg(long)]
        json: bool,
    },
    /// Read everything in the archive, and name every damaged place. Exit code 1 if there is one.
    Verify {
        #[command(flatten)]
        place: Place,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Remove the oldest segments of an archive in a directory. What opening the database needs always stays.
    Prune {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        keep: Keep,
        /// Only say what would be removed.
        #[arg(long)]
        dry_run: bool,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
}

/// Where the archive lies.
#[derive(Args)]
pub struct Place {
    /// The archive's directory or device, emulated:PROFILE:FILE too, or the directory of the database whose settings name
    /// it. The database may be open.
    #[arg(value_name = "ARCHIVE|DIR")]
    path: PathBuf,
}

/// What stays.
#[derive(Args)]
#[group(required = true, multiple = true)]
pub struct Keep {
    /// Remove the oldest segments while all take more than this.
    #[arg(long, value_name = "BYTES")]
    keep_bytes: Option<u64>,
    /// Remove segments when all that they hold is older than so many hours.
    #[arg(long, value_name = "HOURS")]
    keep_hours: Option<u64>,
    /// Remove segments when all that they hold lies before this LSN, where a base backup begins for example.
    #[arg(long, value_name = "LSN")]
    before: Option<u64>,
}

/// Runs a `log archive` command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { place, json } => {
            let inspection = inspect_archive(&place.open()?)?;
            match json {
                true => tantalum_report::print_json(&InspectionJson::new(&inspection))?,
                false => print_inspection(&inspection)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify { place, json } => {
            let target = place.open()?;
            let verification = verify(&target)?;
            match json {
                true => tantalum_report::print_json(&VerificationJson::new(&verification))?,
                false => print_verification(&verification)?,
            }
            match verification.damage.len() {
                0 => Ok(ExitCode::SUCCESS),
                n => Err(Error::Other(format!(
                    "{}: the archive is damaged in {n} places; restore it from a copy, or make a new base backup",
                    target.name()
                ))),
            }
        }
        Command::Prune { place, keep, dry_run, json } => {
            let hours = |hours: u64| Duration::from_secs(hours.saturating_mul(3600));
            let retention = ArchiveRetention {
                keep_bytes: keep.keep_bytes,
                keep_time: keep.keep_hours.map(hours),
                before: keep.before.map(Lsn::new),
            };
            let pruned = prune_archive(&place.open()?, &retention, dry_run)?;
            match json {
                true => tantalum_report::print_json(&PrunedJson::new(&pruned, dry_run))?,
                false => print_pruned(&pruned, dry_run)?,
            }
            Ok(ExitCode::SUCCESS)
        }
    }
}

impl Place {
    /// The archive, or that of the database in the directory.
    fn open(&self) -> Result<ArchiveTarget> {
        let settings = self.path.join("tantalum.toml");
        if !settings.is_file() {
            return open(&self.path, Path::new(""));
        }
        let Some(name) = tantalum::locate_log(&self.path)?.archive else {
            return Err(Error::file("find an archive in", &settings, "it has no log_archive; give the archive's path"));
        };
        open(&name, &self.path)
    }
}

/// The archive that `name` stands for; a relative path starts at `directory`.
pub fn open(name: &Path, directory: &Path) -> Result<ArchiveTarget> {
    if let Some(text) = name.to_str()
        && let Some(device) = Emulator::for_keeps().open(text, directory, false)?
    {
        return Ok(ArchiveTarget::Device(device));
    }
    let path = directory.join(name);
    if path.is_dir() {
        return Ok(ArchiveTarget::Directory(path));
    }
    Ok(ArchiveTarget::Device(Arc::new(FileDevice::open(&path, Access::ReadOnly)?)))
}

fn verify(target: &ArchiveTarget) -> Result<ArchiveVerification> {
    let mut bar: Option<Progress> = None;
    let verification = verify_archive(target, &mut |progress| {
        let bar = bar.get_or_insert_with(|| Progress::bar("reading the archive", progress.total_bytes, Unit::Bytes));
        bar.set(progress.done_bytes);
    });
    if let Some(bar) = bar {
        bar.finish();
    }
    Ok(verification?)
}

fn print_inspection(inspection: &ArchiveInspection) -> Result<()> {
    let mut out = Out::new();
    let checkpoint = match inspection.checkpoint_lsn {
        Some(lsn) if inspection.is_needed => format!("checkpoint {lsn}, and the database needs the archive to open"),
        Some(lsn) => format!("checkpoint {lsn}"),
        None => "its checkpoint slots are damaged".to_owned(),
    };
    let places = match inspection.segment_count {
        Some(count) => format!("a circle of {count} segments of {}", units::bytes(inspection.segment_bytes.into())),
        None => format!("segments of up to {}", units::bytes(inspection.segment_bytes.into())),
    };
    out.line(format_args!("{}: archive of log {:032x}, {places}; {checkpoint}", inspection.name, inspection.log_id))?;
    print_runs(&mut out, &inspection.runs)?;
    let mut table = Table::new(["segment", "start", "end", "begun", "bytes", "place", "offset"]);
    for segment in &inspection.segments {
        let number = segment.number.map_or_else(|| "damaged header".to_owned(), |number| number.to_string());
        let begun = segment.begun.map_or_else(String::new, rfc3339);
        let ArchiveSegment { start, end, place, offset, .. } = segment;
        let (start, end, bytes) = (start.to_string(), end.to_string(), units::bytes(segment.bytes));
        table.row([number, start, end, begun, bytes, place.clone(), offset.to_string()]);
    }
    out.line(table)
}

/// Tells what there is without gaps, and the gaps.
fn print_runs(out: &mut Out, runs: &[ArchiveRun]) -> Result<()> {
    if runs.is_empty() {
        return out.line("nothing is archived yet");
    }
    for (at, run) in runs.iter().enumerate() {
        if at > 0 {
            out.line(format_args!("LSN {} to {} are missing: they were not archived", runs[at - 1].end, run.start))?;
        }
        let (begun, last) = (rfc3339(run.begun), rfc3339(run.last));
        out.line(format_args!("LSN {} to {} without a gap, from {begun} to {last}", run.start, run.end))?;
    }
    Ok(())
}

fn print_verification(verification: &ArchiveVerification) -> Result<()> {
    let mut out = Out::new();
    for damage in &verification.damage {
        out.line(super::damage_line(damage))?;
    }
    print_runs(&mut out, &verification.runs)?;
    out.line(format_args!(
        "{} requests with {} records of {} intact",
        units::count(verification.requests),
        units::count(verification.records),
        units::bytes(verification.record_bytes)
    ))
}

fn print_pruned(pruned: &PrunedArchive, dry_run: bool) -> Result<()> {
    let mut out = Out::new();
    if !pruned.removed.is_empty() {
        let mut table = Table::new([if dry_run { "would be removed" } else { "removed" }, "start", "end", "bytes"]);
        for segment in &pruned.removed {
            let (start, end) = (segment.start.to_string(), segment.end.to_string());
            table.row([segment.place.clone(), start, end, units::bytes(segment.bytes)]);
        }
        out.line(table)?;
    }
    let removed_bytes = pruned.removed.iter().map(|segment| segment.bytes).sum();
    out.line(format_args!(
        "{} of {} segments{}, {} of {}; what lies behind the checkpoint, LSN {}, always stays",
        pruned.removed.len(),
        pruned.removed.len() as u64 + pruned.kept,
        if dry_run { " would be removed" } else { " removed" },
        units::bytes(removed_bytes),
        units::bytes(removed_bytes + pruned.kept_bytes),
        pruned.needed_lsn
    ))
}

/// The JSON output of `log archive list`.
#[derive(Serialize)]
struct InspectionJson {
    name: String,
    log_id: String,
    segment_bytes: u32,
    segment_count: Option<u32>,
    checkpoint_lsn: Option<u64>,
    is_needed: bool,
    runs: Vec<RunJson>,
    segments: Vec<SegmentJson>,
}

#[derive(Serialize)]
struct RunJson {
    start_lsn: u64,
    end_lsn: u64,
    begun: String,
    last: String,
}

#[derive(Serialize)]
struct SegmentJson {
    number: Option<u64>,
    place: String,
    offset: u64,
    bytes: u64,
    start_lsn: u64,
    end_lsn: u64,
    begun: Option<String>,
    damage: Option<String>,
}

/// The JSON output of `log archive verify`.
#[derive(Serialize)]
struct VerificationJson {
    requests: u64,
    records: u64,
    record_bytes: u64,
    runs: Vec<RunJson>,
    damage: Vec<DamageJson>,
}

/// The JSON output of `log archive prune`.
#[derive(Serialize)]
struct PrunedJson {
    dry_run: bool,
    removed: Vec<SegmentJson>,
    kept: u64,
    kept_bytes: u64,
    needed_lsn: u64,
}

impl InspectionJson {
    fn new(inspection: &ArchiveInspection) -> Self {
        Self {
            name: inspection.name.clone(),
            log_id: format!("{:032x}", inspection.log_id),
            segment_bytes: inspection.segment_bytes,
            segment_count: inspection.segment_count,
            checkpoint_lsn: inspection.checkpoint_lsn.map(Lsn::get),
            is_needed: inspection.is_needed,
            runs: inspection.runs.iter().map(RunJson::new).collect(),
            segments: inspection.segments.iter().map(SegmentJson::new).collect(),
        }
    }
}

impl RunJson {
    fn new(run: &ArchiveRun) -> Self {
        let (start_lsn, end_lsn) = (run.start.get(), run.end.get());
        Self { start_lsn, end_lsn, begun: rfc3339(run.begun), last: rfc3339(run.last) }
    }
}

impl SegmentJson {
    fn new(segment: &ArchiveSegment) -> Self {
        Self {
            number: segment.number,
            place: segment.place.clone(),
            offset: segment.offset,
            bytes: segment.bytes,
            start_lsn: segment.start.get(),
            end_lsn: segment.end.get(),
            begun: segment.begun.map(rfc3339),
            damage: segment.damage.clone(),
        }
    }
}

impl VerificationJson {
    fn new(verification: &ArchiveVerification) -> Self {
        Self {
            requests: verification.requests,
            records: verification.records,
            record_bytes: verification.record_bytes,
            runs: verification.runs.iter().map(RunJson::new).collect(),
            damage: verification.damage.iter().map(DamageJson::new).collect(),
        }
    }
}

impl PrunedJson {
    fn new(pruned: &PrunedArchive, dry_run: bool) -> Self {
        Self {
            dry_run,
            removed: pruned.removed.iter().map(SegmentJson::new).collect(),
            kept: pruned.kept,
            kept_bytes: pruned.kept_bytes,
            needed_lsn: pruned.needed_lsn.get(),
        }
    }
}
