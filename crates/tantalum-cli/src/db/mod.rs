//! `tantalum db`: looks after a database in a directory.

mod compact;
mod dump;
mod format;
mod inspect;
mod load;
mod restore;
mod rows;
mod source;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Subcommand;
use serde::Serialize;
use tantalum::{Builder, Db, StoreKind, control};
use tantalum_report::{Progress, Table, Unit, units};

use source::{Source, open_unless_asked};

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
    /// Print the value of a key. Exit code 1 if it is not there.
    ///
    /// Keys and values are printable ASCII; other bytes are \xNN, a backslash is \\.
    Get {
        /// The database's directory.
        dir: PathBuf,
        /// The table.
        table: String,
        /// The key.
        #[arg(value_parser = rows::key)]
        key: rows::Key,
        /// Print the bytes as they are, without a line break.
        #[arg(long)]
        raw: bool,
    },
    /// Print rows in the order of their keys, a line each: key, space, value.
    ///
    /// Keys and values are printable ASCII; other bytes are \xNN, a backslash is \\.
    Scan(rows::ScanArguments),
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
    /// Give space back to the file system: pages move to the front of the data file, which is cut off behind the last one in use.
    ///
    /// A log-structured store empties segments, and also gives back the space of free ones that stay in the file. With in-page logging,
    /// and on a device of a fixed size, the data keeps its size.
    ///
    /// A database that is open in another process is asked to; its transactions go on.
    Compact {
        /// The database's directory.
        dir: PathBuf,
        /// Print JSON instead of a table.
        #[arg(long)]
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
        Command::Get { dir, table, key, raw } => rows::get(&dir, &table, &key, raw),
        Command::Scan(arguments) => rows::scan(arguments),
        Command::Inspect { dir, unit: Some(unit), json, .. } => inspect::unit(&dir, unit, json),
        Command::Inspect { dir, segment, json, .. } => inspect::segment(&dir, segment.unwrap_or_default(), json),
        Command::Dump { dir, table, output } => dump::run(&dir, &table, output.as_deref()),
        Command::Load { dir, input, page_store, merge } => {
            load::run(load::Target { dir: &dir, page_store, merge }, input.as_deref())
        }
        Command::Backup { dir, to, base: true, json } => restore::base_backup(&dir, &to, json),
        Command::Backup { dir, to, .. } => backup(&dir, &to),
        Command::Compact { dir, json } => compact::run(&dir, json),
        Command::Restore(arguments) => restore::run(arguments),
    }
}

/// Shows how far recovery is.
fn builder(create: bool) -> Builder {
    Db::builder()
        .create_if_missing(create)
        .expert(|expert| expert.device_opener(Emulator::for_keeps()))
        .progress(progress::show_opening())
}

/// Opens the database in `dir`, without a device of the log that is `lost`; `unreachable` is why no process that has it open
/// could be asked.
pub fn open_here(dir: &Path, lost: Option<String>, unreachable: &tantalum::Error) -> Result<Db> {
    let builder = lost.into_iter().fold(builder(false).control_socket(true), |builder, lost| {
        builder.expert(|expert| expert.give_up_log_device(lost))
    });
    open_unless_asked(builder, dir, unreachable)
}

/// A path for the process that has a database open.
fn absolute(path: &Path) -> Result<String> {
    let path = std::path::absolute(path).map_err(|error| Error::file("find", path, error))?;
    let named = path.to_str().map(str::to_owned);
    named.ok_or_else(|| Error::file("name", path, "the path is not UTF-8; choose another"))
}

/// Prints what is serialized as JSON, or as a table of dotted names.
fn print(value: &impl Serialize, json: bool) -> Result<()> {
    match json {
        true => Ok(tantalum_report::print_json(value)?),
        false => Out::new().line(Table::of_fields(["name", "value"], [value])?),
    }
}

fn stat(dir: &Path, json: bool) -> Result<ExitCode> {
    match Source::open(dir)? {
        Source::There(mut client) => print(&client.call(&control::Command::Stats, &mut |_| {})?, json)?,
        Source::Here(db) => {
            print(&db.stats()?, json)?;
            db.close()?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn tables(dir: &Path, json: bool) -> Result<ExitCode> {
    let mut source = Source::open(dir)?;
    let progress = Progress::open_ended("counting rows", Unit::Things);
    let list = source.tables(&mut |rows| progress.add(rows))?;
    progress.finish();
    source.close()?;
    if json {
        tantalum_report::print_json(&list)?;
    } else {
        let mut table = Table::new(["table", "rows", "keys and values"]);
        for size in list {
            table.row([size.name, units::count(size.rows), units::bytes(size.bytes)]);
        }
        Out::new().line(table)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check(dir: &Path, json: bool) -> Result<ExitCode> {
    let mut source = Source::open(dir)?;
    let report = source.check()?;
    source.close()?;
    let problems = report["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    if json {
        tantalum_report::print_json(&report)?;
    } else {
        let mut out = Out::new();
        out.line(Table::of_rows(report["tables"].as_array().into_iter().flatten())?)?;
        let of = |name: &str| report[name].as_u64().unwrap_or_default();
        out.line(format_args!("{} pages in use", units::count(of("pages_used"))))?;
        if of("staging_tables") > 0 {
            out.line(format_args!("{} staging tables of large transactions", units::count(of("staging_tables"))))?;
        }
        problems.iter().filter_map(|problem| problem.as_str()).try_for_each(|problem| out.line(problem))?;
        if problems.is_empty() {
            out.line(format_args!("{} is sound", dir.display()))?;
        }
    }
    match problems.len() {
        0 => Ok(ExitCode::SUCCESS),
        n => Err(Error::Other(format!("{}: {n} problems found; restore the database from a backup", dir.display()))),
    }
}

fn backup(dir: &Path, to: &Path) -> Result<ExitCode> {
    let mut source = Source::open(dir)?;
    source.back_up(to)?;
    source.close()?;
    Out::new().line(format_args!("{} is a copy of {}", to.display(), dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
