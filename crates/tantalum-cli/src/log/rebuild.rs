//! `tantalum log rebuild`: new devices for a log whose devices are all lost, from its archive.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use tantalum::{Db, RecoveryStats};

use crate::{
    emulator::Emulator,
    error::{Error, Out, Result},
    progress,
};

#[derive(Args)]
pub struct Arguments {
    /// The database's directory.
    dir: PathBuf,
    /// A place for a log device that is made; may be given several times. Default: where tantalum.toml says. A relative
    /// path starts at the database's directory.
    #[arg(long, value_name = "PATH")]
    log: Vec<PathBuf>,
    /// The archive, if it is not where tantalum.toml says. A relative path starts at the database's directory.
    #[arg(long, value_name = "PATH")]
    archive: Option<PathBuf>,
    /// Print JSON instead of text.
    #[arg(long)]
    json: bool,
}

/// Makes the log anew, opens the database with it, and checks every page.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { dir, log, archive, json } = arguments;
    let mut builder = Db::builder()
        .control_socket(true)
        .expert(|expert| expert.rebuild_log().device_opener(Emulator::for_keeps()))
        .progress(progress::show_opening());
    if !log.is_empty() {
        builder = builder.log_devices(log);
    }
    if let Some(archive) = archive {
        builder = builder.log_archive(archive);
    }
    let db = builder.open(&dir)?;
    let recovery = db.stats()?.recovery;
    let problems = db.check()?.problems().len();
    db.close()?;
    print(&dir, &recovery, json)?;
    match problems {
        0 => Ok(ExitCode::SUCCESS),
        n => Err(Error::Other(format!(
            "{}: {n} problems found: the archive was set aside, or is older than the pages; restore the database from a base \
             backup (`tantalum db check` names the problems)",
            dir.display()
        ))),
    }
}

fn print(dir: &Path, recovery: &RecoveryStats, json: bool) -> Result<()> {
    if json {
        return Ok(tantalum_report::print_json(recovery)?);
    }
    Out::new().line(format_args!(
        "{} has a new log, from its archive up to LSN {}; what was committed and not archived yet when the old devices \
         were lost is lost with them",
        dir.display(),
        recovery.end_lsn
    ))
}
