//! `tantalum db backup` and `tantalum db restore`: copies of a database, and what the archive makes of them.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use clap::Args;
use tantalum::{
    Lsn, Restore, RestorePhase, RestoreProgress, RestoreTarget,
    control::{Client, Command, Progress},
};
use tantalum_log::ArchiveTarget;
use tantalum_report::units;

use crate::{
    error::{Error, Out, Result},
    log::open_archive,
    progress::Bars,
    time::parse,
};

#[derive(Args)]
pub struct RestoreArguments {
    /// The base backup's directory.
    backup: PathBuf,
    /// The new database's directory. It must not exist.
    to: PathBuf,
    /// The archive's directory or device, emulated:PROFILE:FILE too.
    #[arg(long, value_name = "PATH")]
    archive: PathBuf,
    /// Restore every change before this LSN. Default: all that the archive has.
    #[arg(long, value_name = "LSN", conflicts_with = "to_time")]
    to_lsn: Option<u64>,
    /// Restore the state of this time, such as 2026-11-22T01:02:03Z: nothing that was begun later, and everything that was
    /// acknowledged half a second earlier.
    #[arg(long, value_name = "RFC3339", value_parser = parse)]
    to_time: Option<SystemTime>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Makes a base backup: by way of the process that has the database open, or of the closed database.
pub fn base_backup(dir: &Path, to: &Path, json: bool) -> Result<ExitCode> {
    let made = match Client::connect(dir) {
        Ok(mut client) => {
            let path = super::absolute(to)?;
            let mut show = show();
            client.call(&Command::BaseBackup { path }, &mut |progress| {
                if let Progress::BaseBackup(progress) = progress {
                    show(progress);
                }
            })?
        }
        Err(unreachable) => {
            let db = super::open_here(dir, None, &unreachable)?;
            let made = db.base_backup(to, &mut show())?;
            db.close()?;
            serde_json::to_value(made).map_err(|error| Error::Other(error.to_string()))?
        }
    };
    if json {
        tantalum_report::print_json(&made)?;
        return Ok(ExitCode::SUCCESS);
    }
    let number = |field: &str| made[field].as_u64().unwrap_or_default();
    let time = tantalum_rt::rfc3339(SystemTime::UNIX_EPOCH + Duration::from_micros(number("time_us")));
    Out::new().line(format_args!(
        "{} is a base backup of {}, {} of pages; with the archive from LSN {} on, every state from LSN {} ({time}) on can be \
         restored",
        to.display(),
        dir.display(),
        units::bytes(number("bytes")),
        number("start_lsn"),
        number("end_lsn")
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Restores a database.
pub fn run(arguments: RestoreArguments) -> Result<ExitCode> {
    let RestoreArguments { backup, to, archive, to_lsn, to_time, json } = arguments;
    let target = match (to_lsn, to_time) {
        (Some(lsn), _) => RestoreTarget::Lsn(Lsn::new(lsn)),
        (None, Some(time)) => RestoreTarget::Time(time),
        (None, None) => RestoreTarget::End,
    };
    let restore = match open_archive(&archive, Path::new(""))? {
        ArchiveTarget::Directory(path) => Restore::new(backup, path),
        ArchiveTarget::Device(device) => Restore::with_archive_on(backup, device),
    };
    let restored = restore.target(target).progress(show()).run(&to)?;
    if json {
        tantalum_report::print_json(&restored)?;
    } else {
        let time = tantalum_rt::rfc3339(restored.time);
        Out::new().line(format_args!(
            "{} is restored up to LSN {} ({time}), with {} commits from the archive; it is a database of its own, and is \
             not archived yet",
            to.display(),
            restored.end_lsn,
            units::count(restored.commits)
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Shows how far it is.
fn show() -> impl FnMut(RestoreProgress) + Send + 'static {
    let mut bars = Bars::default();
    move |RestoreProgress { phase, done_bytes, total_bytes }| {
        let label = match phase {
            RestorePhase::Copy => "copying pages",
            RestorePhase::Replay => "reading the archive",
            _ => "restoring",
        };
        bars.bytes(label, done_bytes, total_bytes);
    }
}
