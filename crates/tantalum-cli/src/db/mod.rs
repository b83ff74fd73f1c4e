//! `tantalum db`: looks after a database in a directory.

mod changes;
mod compact;
mod copy;
mod dump;
pub mod encoding;
mod export;
mod format;
mod import;
mod inspect;
mod load;
mod loader;
mod restore;
pub mod rows;
mod salvage;
pub mod source;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Subcommand;
use serde::Serialize;
use tantalum::{Builder, Db};
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
    #[command(after_long_help = ENCODINGS)]
    Get(rows::In<rows::Get>),
    /// Print rows in the order of their keys, a line each: key, space, value.
    #[command(after_long_help = ENCODINGS)]
    Scan(rows::In<rows::Scan>),
    /// Count the rows of a table, or of a range of its keys.
    #[command(after_long_help = ENCODINGS)]
    Count(rows::In<rows::Count>),
    /// Write a row, in the place of one with the same key. Also in a database that another process has open.
    #[command(
        after_long_help = ENCODINGS,
        override_usage = "tantalum db put [OPTIONS] <DIR> <TABLE> <KEY> <VALUE>\n       tantalum db put [OPTIONS] <DIR> <TABLE> <KEY> --file <FILE>"
    )]
    Put(rows::In<rows::Put>),
    /// Delete keys, or all keys of a range, and print how many there were.
    #[command(
        after_long_help = ENCODINGS,
        override_usage = "tantalum db delete [OPTIONS] <DIR> <TABLE> <KEY>...\n       tantalum db delete [OPTIONS] <DIR> <TABLE> --prefix <KEY> | --from <KEY> --to <KEY>"
    )]
    Delete(rows::In<rows::Delete>),
    /// Copy rows of a table into another table, of this database or another.
    ///
    /// A table that is created has all rows or none. With --merge, and in a database that another process has open, rows are written by
    /// many transactions.
    Copy(copy::CopyArguments),
    /// Print what transactions wrote to tables with a change feed, in the order of the commits: a JSON object a line.
    ///
    /// The last line of a transaction has a position; --from goes on behind it. A position alone says that nothing followed, up to
    /// there, that concerns these tables. If the log has overwritten what is asked for, and there is no archive, that is an error, which says
    /// from which position on it can be read.
    #[command(after_long_help = ENCODINGS)]
    Changes(changes::ChangesArguments),
    /// Start or end the change feed of a table.
    ///
    /// Refused while a transaction or snapshot uses the table; in a database that another process has open, a moment without one is waited
    /// for, up to five seconds.
    #[command(subcommand)]
    Feed(changes::FeedCommand),
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
    #[command(after_long_help = ENCODINGS)]
    Dump(dump::DumpArguments),
    /// Write the rows that a damaged database still has, and say on standard error which pages and keys are skipped. Exit code 1 if any
    /// are.
    ///
    /// As `db dump`, which stops at the first damaged page. The database must be closed; nothing in it changes.
    #[command(after_long_help = ENCODINGS)]
    Salvage(dump::DumpArguments),
    /// Load rows into a database, which is created if missing.
    #[command(after_long_help = ENCODINGS)]
    Load(load::LoadArguments),
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
    /// A log-structured store empties segments, and also gives back the space of free ones that stay in the file. On a device of
    /// a fixed size, the data keeps its size.
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
        Command::Get(arguments) => rows::run(&arguments),
        Command::Scan(arguments) => rows::run(&arguments),
        Command::Count(arguments) => rows::run(&arguments),
        Command::Put(arguments) => rows::run(&arguments),
        Command::Delete(arguments) => rows::run(&arguments),
        Command::Copy(arguments) => copy::run(&arguments),
        Command::Changes(arguments) => changes::changes(&arguments),
        Command::Feed(command) => changes::feed(&command),
        Command::Inspect { dir, unit: Some(unit), json, .. } => inspect::unit(&dir, unit, json),
        Command::Inspect { dir, segment, json, .. } => inspect::segment(&dir, segment.unwrap_or_default(), json),
        Command::Dump(arguments) => dump::run(&arguments),
        Command::Salvage(arguments) => salvage::run(&arguments),
        Command::Load(arguments) => load::run(&arguments),
        Command::Backup { dir, to, base: true, json } => restore::base_backup(&dir, &to, json),
        Command::Backup { dir, to, .. } => backup(&dir, &to),
        Command::Compact { dir, json } => compact::run(&dir, json),
        Command::Restore(arguments) => restore::run(arguments),
    }
}

/// What `--help` says of encodings, of which `-h` has only the names.
pub const ENCODINGS: &str = "\
Encodings of keys and values (--key-as, --value-as):
  text           UTF-8; other bytes and control characters are \\xNN,
                 a backslash is \\\\ (the default)
  hex            hexadecimal digits, two for each byte
  u32, u64       integers of 4 and 8 bytes, the highest byte first: ordered
                 as the numbers are
  i32, i64       likewise, with the sign bit inverted: negative numbers
                 come first
  u64-le, i64-le integers of 8 bytes, the lowest byte first; `increment`
                 writes i64-le
  json           JSON, kept without spaces between its parts";

/// Shows how far recovery is.
pub fn builder(create: bool) -> Builder {
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
pub fn print(value: &impl Serialize, json: bool) -> Result<()> {
    match json {
        true => Ok(tantalum_report::print_json(value)?),
        false => Out::new().line(Table::of_fields(["name", "value"], [value])?),
    }
}

/// Settings and counters, a row each.
pub fn table_of_stats(stats: &serde_json::Value) -> Result<Table> {
    Ok(Table::of_fields(["name", "value"], [stats])?)
}

fn stat(dir: &Path, json: bool) -> Result<ExitCode> {
    let source = Source::open(dir)?;
    print(&source.stats()?, json)?;
    source.close()?;
    Ok(ExitCode::SUCCESS)
}

fn tables(dir: &Path, json: bool) -> Result<ExitCode> {
    let source = Source::open(dir)?;
    print_tables(&source, json)?;
    source.close()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the tables with their sizes.
pub fn print_tables(source: &Source, json: bool) -> Result<()> {
    let progress = Progress::open_ended("counting rows", Unit::Things);
    let list = source.tables(&mut |rows| progress.add(rows))?;
    progress.finish();
    if json {
        tantalum_report::print_json(&list)?;
    } else {
        let mut table = Table::new(["table", "rows", "keys and values"]);
        for size in list {
            table.row([size.name, units::count(size.rows), units::bytes(size.bytes)]);
        }
        Out::new().line(table)?;
    }
    Ok(())
}

fn check(dir: &Path, json: bool) -> Result<ExitCode> {
    let source = Source::open(dir)?;
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
    let source = Source::open(dir)?;
    source.back_up(to)?;
    source.close()?;
    Out::new().line(format_args!("{} is a copy of {}", to.display(), dir.display()))?;
    Ok(ExitCode::SUCCESS)
}
