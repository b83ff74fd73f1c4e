//! `tantalum db changes` and `tantalum db feed`: what transactions wrote to tables with a change feed, and which tables have one.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Subcommand};
use serde::Serialize;
use serde_json::value::RawValue;
use tantalum::{
    FeedPosition,
    control::{ChangeSelection, ChangesFrom, FedChange},
};
use tantalum_report::Table;

use super::{encoding::Encodings, source::Source};
use crate::{
    bench::parse_bytes,
    error::{Error, Out, Result},
};

/// A position is printed alone where nothing of concern is committed to so many bytes of log.
const POSITION_BYTES: u64 = 1 << 20;

#[derive(Args)]
pub struct ChangesArguments {
    /// The database's directory.
    dir: PathBuf,
    /// Only changes of this table. May be given several times.
    #[arg(long, value_name = "NAME")]
    table: Vec<String>,
    /// Go on behind this position, which was printed before; `now` for what is committed from now on. Default: from where the first of the
    /// feeds was started.
    #[arg(long, value_name = "POSITION", value_parser = position)]
    from: Option<ChangesFrom>,
    /// Wait for more at the end. The database must be open in another process.
    #[arg(long)]
    follow: bool,
    /// At most so many transactions.
    #[arg(long, value_name = "N")]
    limit: Option<u64>,
    /// Leave out values of more bytes, and print how many they have.
    #[arg(long, value_name = "BYTES", default_value = "64M", value_parser = parse_bytes)]
    largest_value: u64,
    #[command(flatten)]
    encodings: Encodings,
}

#[derive(Subcommand)]
pub enum FeedCommand {
    /// Start the change feed of a table, and print the position at which it begins.
    Start(FeedArguments),
    /// End the change feed of a table: the log has its changes no more.
    End(FeedArguments),
    /// List the tables that have a change feed, and where each was started.
    List {
        /// The database's directory.
        dir: PathBuf,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
}

#[derive(Args)]
pub struct FeedArguments {
    /// The database's directory.
    dir: PathBuf,
    /// The table.
    table: String,
}

fn position(text: &str) -> Result<ChangesFrom, String> {
    match text {
        "now" => Ok(ChangesFrom::Now),
        _ => match text.parse() {
            Ok(position) => Ok(ChangesFrom::Position(position)),
            Err(_) => Err("it is neither `now` nor a position, which is printed in lines of `db changes`".into()),
        },
    }
}

/// A line of `db changes`.
#[derive(Default, Serialize)]
struct ChangeLine<'a> {
    /// What was done: `put`, `delete`, `drop-table`, or `end-feed` where the feed of the table was ended; absent in a line with a position
    /// alone.
    #[serde(skip_serializing_if = "Option::is_none")]
    change: Option<&'static str>,
    /// The table.
    #[serde(skip_serializing_if = "Option::is_none")]
    table: Option<&'a str>,
    /// The row's key, of a `put` or `delete`: a string, or with `--key-as` a number or any JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<Box<RawValue>>,
    /// The row's new value, likewise with `--value-as`; absent if it was left out, or if it is large and the row was written again
    /// before it was read: a later line says what became of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Box<RawValue>>,
    /// The bytes of a value that `--largest-value` leaves out.
    #[serde(skip_serializing_if = "Option::is_none")]
    omitted_bytes: Option<u64>,
    /// In the last line of a transaction: all changes up to here were printed, and `--from` goes on behind them.
    #[serde(skip_serializing_if = "Option::is_none")]
    position: Option<String>,
}

/// Prints changes as they come.
struct Printer<'a> {
    out: Out,
    encodings: &'a Encodings,
    last: Option<FeedPosition>,
}

impl Printer<'_> {
    /// Prints changes of a transaction, the last of which has the position, if there is one.
    fn changes(&mut self, changes: &[FedChange], position: Option<FeedPosition>) -> Result<()> {
        let Some((last, others)) = changes.split_last() else { return Ok(()) };
        others.iter().try_for_each(|change| self.change(change, None))?;
        self.change(last, position)
    }

    fn change(&mut self, change: &FedChange, position: Option<FeedPosition>) -> Result<()> {
        let (what, table, key, value, omitted_bytes) = match change {
            FedChange::Put { table, key, value, omitted_bytes } => {
                ("put", table, Some(key), value.as_ref(), *omitted_bytes)
            }
            FedChange::Delete { table, key } => ("delete", table, Some(key), None, None),
            FedChange::DropTable { table } => ("drop-table", table, None, None, None),
            FedChange::EndFeed { table } => ("end-feed", table, None, None, None),
            other => return Err(Error::Other(format!("this program knows no such change: {other:?}"))),
        };
        let value = key.zip(value).map(|(key, value)| self.encodings.value_json(key, value)).transpose()?;
        let key = key.map(|key| self.encodings.key_json(key)).transpose()?;
        let line = ChangeLine { change: Some(what), table: Some(table), key, value, omitted_bytes, position: None };
        self.line(line, position)
    }

    /// Prints a position that stands alone.
    fn position(&mut self, position: FeedPosition) -> Result<()> {
        self.line(ChangeLine::default(), Some(position))
    }

    fn line(&mut self, line: ChangeLine<'_>, position: Option<FeedPosition>) -> Result<()> {
        self.last = position.or(self.last);
        let line = ChangeLine { position: position.map(|position| position.to_string()), ..line };
        self.out.line(serde_json::to_string(&line).map_err(|error| Error::Other(error.to_string()))?)
    }
}

/// Prints changes, a line of JSON each.
pub fn changes(arguments: &ChangesArguments) -> Result<ExitCode> {
    let ChangesArguments { dir, table, from, follow, limit, largest_value, encodings } = arguments;
    let source = Source::open(dir)?;
    if *follow && matches!(source, Source::Here(_)) {
        let what =
            "no process has the database open, so nothing can be followed: without --follow, what it has is printed";
        return Err(Error::Other(format!("{}: {what}", dir.display())));
    }
    let from = from.unwrap_or_default();
    let selection = ChangeSelection {
        tables: table.clone(),
        from,
        limit: *limit,
        follow: *follow,
        largest_value: Some(*largest_value),
    };
    let mut printer = Printer { out: Out::new(), encodings, last: None };
    let mut alone = None;
    source.changes(selection, &mut |changes, position| {
        printer.changes(&changes, position)?;
        alone = position.filter(|position| Some(*position) != printer.last);
        let is_far = |position: &FeedPosition, last: FeedPosition| position.lsn() - last.lsn() >= POSITION_BYTES;
        if let Some(position) = alone
            && printer.last.is_none_or(|last| is_far(&position, last))
        {
            printer.position(position)?;
        }
        Ok(())
    })?;
    if let Some(position) = alone.filter(|position| Some(*position) != printer.last) {
        printer.position(position)?;
    }
    source.close()?;
    Ok(ExitCode::SUCCESS)
}

/// A table with a change feed, in `db feed list --json`.
#[derive(Serialize)]
struct FeedEntry {
    /// The table.
    table: String,
    /// Where its feed was started.
    start: String,
}

/// Starts or ends the feed of a table, or lists those that there are.
pub fn feed(command: &FeedCommand) -> Result<ExitCode> {
    match command {
        FeedCommand::Start(FeedArguments { dir, table }) => {
            let source = Source::open_writable(dir)?;
            let start = source.start_feed(table)?;
            source.close()?;
            Out::new().line(start)?;
        }
        FeedCommand::End(FeedArguments { dir, table }) => {
            let source = Source::open_writable(dir)?;
            source.end_feed(table)?;
            source.close()?;
        }
        FeedCommand::List { dir, json } => {
            let source = Source::open(dir)?;
            let feeds = source.feeds()?;
            source.close()?;
            list(feeds, *json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn list(feeds: Vec<(String, FeedPosition)>, json: bool) -> Result<()> {
    if json {
        let entry = |(table, start): (String, FeedPosition)| FeedEntry { table, start: start.to_string() };
        return Ok(tantalum_report::print_json(&feeds.into_iter().map(entry).collect::<Vec<_>>())?);
    }
    let mut table = Table::new(["table", "feed started at"]);
    for (name, start) in feeds {
        table.row([name, start.to_string()]);
    }
    Out::new().line(table)
}
