//! `tantalum log archive`: looks at an archive, checks it, and removes what is no longer wanted of it.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{Args, Subcommand};
use tantalum_device::{Access, FileDevice};
use tantalum_log::{
    ArchiveInspection, ArchiveRetention, ArchiveRun, ArchiveTarget, ArchiveVerification, Lsn, PrunedArchive,
    inspect_archive, prune_archive, verify_archive,
};
use tantalum_report::{Progress, Table, Unit, units};

use crate::{
    emulator::Emulator,
    error::{Error, Out, Result},
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
                true => tantalum_report::print_json(&inspection)?,
                false => print_inspection(&inspection)?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Verify { place, json } => {
            let target = place.open()?;
            let verification = verify(&target)?;
            match json {
                true => tantalum_report::print_json(&verification)?,
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
                true => tantalum_report::print_json(&pruned)?,
                false => print_pruned(&pruned)?,
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
    out.line(Table::of_rows(&inspection.segments)?)
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
        let (begun, last) = (tantalum_rt::rfc3339(run.begun), tantalum_rt::rfc3339(run.last));
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

fn print_pruned(pruned: &PrunedArchive) -> Result<()> {
    let mut out = Out::new();
    if !pruned.removed.is_empty() {
        out.line(Table::of_rows(&pruned.removed)?)?;
    }
    let removed_bytes = pruned.removed.iter().map(|segment| segment.bytes).sum();
    out.line(format_args!(
        "{} of {} segments{}, {} of {}; what lies behind the checkpoint, LSN {}, always stays",
        pruned.removed.len(),
        pruned.removed.len() as u64 + pruned.kept,
        if pruned.dry_run { " would be removed" } else { " removed" },
        units::bytes(removed_bytes),
        units::bytes(removed_bytes + pruned.kept_bytes),
        pruned.needed_lsn
    ))
}
