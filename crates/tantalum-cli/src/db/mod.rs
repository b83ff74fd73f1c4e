//! `tantalum db`: looks after a database in a directory.

mod dump;
mod format;
mod inspect;
mod load;
mod restore;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Subcommand;
use serde::Serialize;
use tantalum::{
    Builder, Db, ErrorKind, StoreKind,
    control::{self, Client},
};
use tantalum_report::{Progress, Table, Unit, units};

use crate::emulator::Emulator;
use crate::error::{Error, Out, Result};
use crate::progress;

#[derive(Subcommand)]
pub enum Command {
    /// Show settings and counters: sizes, log, buffer pool. Also of a database that another process has open.
    Stat {
        /// The database's directory.
        dir: PathBuf,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// List the tables, with their numbers of rows.
    Tables {
        /// The database's directory.
        dir: PathBuf,
        /// Print JSON instead of a table.
        #[arg(long)]
        json: bool,
    },
    /// Check every page: checksums, trees, no page lost or used twice. Exit code 1 if anything is wrong.
    Check {
        /// The database's directory.
        dir: PathBuf,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Show an erase unit of in-page logging: its header, its log sectors, and the records in them with their status; or a segment
    /// of a log-structured store: its summaries, and their pages, live or dead.
    Inspect {
        /// The database's directory.
        dir: PathBuf,
        /// The number of the erase unit on the data device, from 0 on.
        #[arg(long, value_name = "N", required_unless_present = "segment")]
        unit: Option<u32>,
        /// The number of the segment, from 0 on.
        #[arg(long, value_name = "N", conflicts_with = "unit")]
        segment: Option<u32>,
        /// Print JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Write all rows, as of one moment, as lines of text.
    ///
    /// Equal contents give equal dumps, whatever the database's settings and history.
    Dump {
        /// The database's directory.
        dir: PathBuf,
        /// Only this table. May be given several times.
        #[arg(long, value_name = "NAME")]
        table: Vec<String>,
        /// Write to this file instead of standard output. It must not exist.
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
    /// Load a dump into a database, which is created if missing.
    Load {
        /// The database's directory.
        dir: PathBuf,
        /// Read from this file instead of standard input. It is checked as a whole before anything is loaded.
        #[arg(long, short, value_name = "FILE")]
        input: Option<PathBuf>,
        /// How pages are stored in a database that is created: in-place, in-page-logging or log-structured.
        /// Default: in-place, or what tantalum.toml says.
        #[arg(long, value_name = "STORE")]
        page_store: Option<StoreKind>,
        /// Load into tables that exist too; rows of the dump replace rows with the same key.
        #[arg(long)]
        merge: bool,
    },
    /// Copy the database, as of one moment, into a new directory.
    Backup {
        /// The database's directory.
        dir: PathBuf,
        /// The copy's directory. It must not exist.
        to: PathBuf,
        /// Copy pages instead of rows, while transactions go on: a base backup, from which `db restore` makes the database
        /// of any later moment with the archive of the log. A database that is open in another process is asked to.
        #[arg(long)]
        base: bool,
        /// With `--base`: print JSON instead of text.
        #[arg(long, requires = "base")]
        json: bool,
    },
    /// Make a new database of a base backup and the archive of its log, as of any moment since.
    ///
    /// The archive must lead there from the backup without a gap. The original database may be open.
    Restore(restore::RestoreArguments),
}

/// Runs a `db` command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::Stat { dir, json } => stat(&dir, json),
        Command::Tables { dir, json } => tables(&dir, json),
        Command::Check { dir, json } => check(&dir, json),
        Command::Inspect { dir, unit: Some(unit), json, .. } => inspect::unit(&dir, unit, json),
        Command::Inspect { dir, segment, json, .. } => inspect::segment(&dir, segment.unwrap_or_default(), json),
        Command::Dump { dir, table, output } => dump::run(&dir, &table, output.as_deref()),
        Command::Load { dir, input, page_store, merge } => {
            load::run(load::Target { dir: &dir, page_store, merge }, input.as_deref())
        }
        Command::Backup { dir, to, base: true, json } => restore::base_backup(&dir, &to, json),
        Command::Backup { dir, to, .. } => backup(&dir, &to),
        Command::Restore(arguments) => restore::run(arguments),
    }
}

/// Opens the database in `dir` and shows how far recovery is.
pub fn open(dir: &Path, create: bool) -> Result<Db> {
    Ok(builder(create).open(dir)?)
}

fn builder(create: bool) -> Builder {
    Db::builder()
        .create_if_missing(create)
        .expert(|expert| expert.device_opener(Emulator::for_keeps()))
        .progress(progress::show_opening())
}

/// As [`open`], without a device of the log that is `lost`; `unreachable` is why no process that has it open could be asked.
pub fn open_here(dir: &Path, lost: Option<String>, unreachable: &tantalum::Error) -> Result<Db> {
    let builder =
        lost.into_iter().fold(builder(false), |builder, lost| builder.expert(|expert| expert.give_up_log_device(lost)));
    match builder.open(dir) {
        Err(error) if error.kind() == ErrorKind::InUse => Err(Error::Other(format!(
            "{error}, or let it run with control_socket = true: it cannot be asked ({unreachable})"
        ))),
        opened => Ok(opened?),
    }
}

/// Prints what is serialized as JSON, or as a table of dotted names.
fn print(value: &impl Serialize, json: bool) -> Result<()> {
    match json {
        true => Ok(tantalum_report::print_json(value)?),
        false => Out::new().line(Table::of_fields(["name", "value"], [value])?),
    }
}

fn stat(dir: &Path, json: bool) -> Result<ExitCode> {
    // A database that is open elsewhere tells of itself.
    if let Ok(mut client) = Client::connect(dir) {
        print(&client.call(&control::Command::Stats, &mut |_| {})?, json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let db = open(dir, false)?;
    print(&db.stats()?, json)?;
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

/// One table in the JSON output of `db tables`.
#[derive(Serialize)]
struct TableRow {
    /// The table.
    name: String,
    /// Its rows.
    rows: u64,
    /// Bytes of its keys and values.
    bytes: u64,
}

fn tables(dir: &Path, json: bool) -> Result<ExitCode> {
    let db = open(dir, false)?;
    let snapshot = db.snapshot()?;
    let progress = Progress::open_ended("counting rows", Unit::Things);
    let mut list = Vec::new();
    for name in db.tables()? {
        let mut row = TableRow { rows: 0, bytes: 0, name };
        for entry in snapshot.range(&db.table(&row.name)?, ..)? {
            let (key, value) = entry?;
            row.rows += 1;
            row.bytes += (key.len() + value.len()) as u64;
            progress.add(1);
        }
        list.push(row);
    }
    progress.finish();
    drop(snapshot);
    if json {
        tantalum_report::print_json(&list)?;
    } else {
        let mut table = Table::new(["table", "rows", "keys and values"]);
        for row in &list {
            table.row([row.name.clone(), units::count(row.rows), units::bytes(row.bytes)]);
        }
        Out::new().line(table)?;
    }
    db.close()?;
    Ok(ExitCode::SUCCESS)
}

fn check(dir: &Path, json: bool) -> Result<ExitCode> {
    let db = open(dir, false)?;
    let report = db.check()?;
    print(&report, json)?;
    db.close()?;
    match report.problems().len() {
        0 => Ok(ExitCode::SUCCESS),
        n => Err(Error::Other(format!("{}: {n} problems found; restore the database from a backup", dir.display()))),
    }
}

fn backup(dir: &Path, to: &Path) -> Result<ExitCode> {
    let db = open(dir, false)?;
    db.backup(to)?;
    db.close()?;
    Out::new().line(format_args!("{} is a copy of {}", to.display(), dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
