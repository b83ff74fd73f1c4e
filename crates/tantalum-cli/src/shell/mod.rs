//! `tantalum shell`: commands on a database, one a line, from a terminal or from a script on standard input.
//!
//! The database is opened for as long as the shell runs; if another process has it open, each command asks that process.

mod completion;
mod prompt;
mod transaction;
mod words;

use std::{
    io::{self, BufRead, IsTerminal},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::{CommandFactory, Parser, Subcommand};

use crate::{
    db::{
        self, ENCODINGS,
        rows::{Count, Delete, Get, Put, RowCommand, Scan},
        source::{RowAccess, Source},
    },
    error::{Error, Out, Result},
};
use prompt::Prompt;
use transaction::OpenTransaction;

#[derive(clap::Args)]
pub struct Arguments {
    /// The database's directory.
    dir: PathBuf,
    /// Open the database for reading only: nothing in it changes.
    #[arg(long, conflicts_with = "create")]
    read_only: bool,
    /// Create the database if it is missing.
    #[arg(long)]
    create: bool,
}

/// A line of the shell.
#[derive(Parser)]
#[command(
    multicall = true,
    disable_help_flag = false,
    max_term_width = 100,
    help_template = "{subcommands}{after-help}",
    subcommand_help_heading = "Commands",
    after_help = "`help COMMAND` says more of one. A word with spaces stands between quotation marks, 'like this'; # begins a comment."
)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Print the value of a key
    #[command(after_long_help = ENCODINGS)]
    Get(Get),
    /// Write a row, in the place of one with the same key
    #[command(
        after_long_help = ENCODINGS,
        override_usage = "put [OPTIONS] <TABLE> <KEY> <VALUE>\n       put [OPTIONS] <TABLE> <KEY> --file <FILE>"
    )]
    Put(Put),
    /// Delete keys, or all keys of a range
    #[command(
        after_long_help = ENCODINGS,
        override_usage = "delete [OPTIONS] <TABLE> <KEY>...\n       delete [OPTIONS] <TABLE> --prefix <KEY> | --from <KEY> --to <KEY>"
    )]
    Delete(Delete),
    /// Print rows in the order of their keys
    #[command(after_long_help = ENCODINGS)]
    Scan(Scan),
    /// Count the rows of a table, or of a range of its keys
    #[command(after_long_help = ENCODINGS)]
    Count(Count),
    /// List the tables, with their numbers of rows
    Tables,
    /// Show settings and counters
    Stat {
        /// Only those whose names contain this.
        part: Option<String>,
    },
    /// Begin a transaction, to which the following commands belong
    Begin,
    /// Make the transaction's writes durable
    Commit,
    /// Take the transaction's writes back
    Rollback,
    /// End the shell; so does the end of the input
    #[command(alias = "exit")]
    Quit,
}

/// What a line leads to.
enum Next {
    Line,
    End,
}

/// The database, and the transaction that is open in it.
struct Shell {
    source: Source,
    transaction: Option<OpenTransaction>,
}

/// Runs commands until the input ends. Exit code 1 if a command of a script has failed, after which none is run.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let Arguments { dir, read_only, create } = arguments;
    let source = Source::open_with(db::builder(*create).read_only(*read_only).control_socket(!read_only), dir)?;
    let mut shell = Shell { source, transaction: None };
    let result = match io::stdin().is_terminal() {
        true => shell.converse(dir),
        false => shell.run_script(),
    };
    let Shell { source, transaction } = shell;
    let is_open = transaction.is_some();
    drop(transaction);
    // The first failure is the one that is said.
    let closed = source.close();
    result.and(closed)?;
    match is_open {
        true => Err(Error::Other("the input ended before a commit; the transaction was rolled back".into())),
        false => Ok(ExitCode::SUCCESS),
    }
}

impl Shell {
    /// Takes commands from a terminal. Those that fail are said, and the next is asked for.
    fn converse(&mut self, dir: &Path) -> Result<()> {
        eprintln!("`help` lists the commands, `quit` ends");
        let mut prompt = Prompt::new(Line::command())?;
        loop {
            // Another process may have made tables.
            let tables = self.access().table_names().unwrap_or_default();
            let in_transaction = if self.transaction.is_some() { "*" } else { "" };
            let name = dir.file_name().unwrap_or(dir.as_os_str()).to_string_lossy();
            let Some(line) = prompt.ask(&format!("{name}{in_transaction}> "), tables)? else { return Ok(()) };
            match self.run_line(&line) {
                Ok(Next::Line) => {}
                Ok(Next::End) => return Ok(()),
                Err(error) if error.is_closed_pipe() => return Err(error),
                Err(error) => eprintln!("error: {error}"),
            }
        }
    }

    /// Takes commands from standard input. The first that fails is the last.
    fn run_script(&mut self) -> Result<()> {
        for (number, line) in io::stdin().lock().lines().enumerate() {
            let at = |what: String| format!("line {}: {what}", number + 1);
            let line = line.map_err(|error| Error::Other(at(format!("cannot be read: {error}"))))?;
            match self.run_line(&line) {
                Ok(Next::Line) => {}
                Ok(Next::End) => return Ok(()),
                Err(error) if error.is_closed_pipe() => return Err(error),
                Err(error) => return Err(Error::Other(at(error.to_string()))),
            }
        }
        Ok(())
    }

    fn run_line(&mut self, line: &str) -> Result<Next> {
        let words = words::words(line)?;
        if words.is_empty() {
            return Ok(Next::Line);
        }
        let command = match Line::try_parse_from(&words) {
            Ok(Line { command }) => command,
            Err(help) if !help.use_stderr() => {
                Out::new().print(help)?;
                return Ok(Next::Line);
            }
            Err(error) => return Err(Error::Usage(short(&error, &words))),
        };
        let ran = self.run_command(command);
        if let Err(Error::Engine(error)) = &ran
            && (error.is_retryable() || error.kind() == tantalum::ErrorKind::Aborted)
            && let Some(transaction) = self.transaction.take()
        {
            transaction.roll_back();
            return Err(Error::Other(format!("{error}; the transaction was rolled back, begin it again")));
        }
        ran
    }

    fn run_command(&mut self, command: Command) -> Result<Next> {
        match command {
            Command::Get(get) => get.run(self.access())?,
            Command::Put(put) if put.reads_standard_input() => {
                return Err(Error::Usage("standard input has the shell's commands; name a file".into()));
            }
            Command::Put(put) => put.run(self.access())?,
            Command::Delete(delete) => delete.run(self.access())?,
            Command::Scan(scan) => scan.run(self.access())?,
            Command::Count(count) => count.run(self.access())?,
            Command::Tables => db::print_tables(&self.source, false)?,
            Command::Stat { part } => {
                let stats = db::table_of_stats(&self.source.stats()?)?;
                Out::new().print(match part {
                    Some(part) => stats
                        .to_plain()
                        .lines()
                        .filter(|line| line.contains(&part))
                        .fold(String::new(), |text, line| text + line + "\n"),
                    None => stats.to_string() + "\n",
                })?;
            }
            Command::Begin => self.begin()?,
            Command::Commit => {
                self.open_transaction()?.commit()?;
            }
            Command::Rollback => self.open_transaction()?.roll_back(),
            Command::Quit => return Ok(Next::End),
        }
        Ok(Next::Line)
    }

    /// Where rows are read from and written to.
    fn access(&self) -> &dyn RowAccess {
        match &self.transaction {
            Some(transaction) => transaction,
            None => &self.source,
        }
    }

    fn begin(&mut self) -> Result<()> {
        if self.transaction.is_some() {
            return Err(Error::Other("a transaction is open already; commit it or roll it back first".into()));
        }
        match &self.source {
            Source::Here(db) => {
                self.transaction = Some(OpenTransaction::begin(db)?);
                Ok(())
            }
            Source::There(remote) => Err(Error::Other(format!(
                "process {} has the database open, and its transactions would wait for the locks of this one; there, each put and each \
                 delete is a transaction by itself",
                remote.process
            ))),
        }
    }

    fn open_transaction(&mut self) -> Result<OpenTransaction> {
        self.transaction.take().ok_or_else(|| Error::Other("no transaction is open; `begin` begins one".into()))
    }
}

/// What is wrong with a line, on one line, and where to read on.
fn short(error: &clap::Error, words: &[String]) -> String {
    let command = words.first().map_or("", String::as_str);
    if error.kind() == clap::error::ErrorKind::InvalidSubcommand {
        return format!("there is no command {command:?}; `help` lists them");
    }
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let what = ["\n\nUsage:", "\n\nFor more information"]
        .iter()
        .fold(text, |text, end| text.split(end).next().unwrap_or(text));
    let what = what.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{what}; `help {command}` explains it")
}
