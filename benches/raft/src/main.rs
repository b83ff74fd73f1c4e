//! `tantalum-raft` beside `raft-engine`, as logs of many raft groups: `README.md` says how to run it, and `tantalum.rs` and
//! `raft_engine.rs` how each log is set up, and why so.

mod append;
mod arguments;
mod compare;
mod error;
mod job;
mod meter;
mod raft_engine;
mod read;
mod results;
mod store;
mod tantalum;

use std::process::ExitCode;

use clap::Parser;
use tantalum_report::OutFile;

use crate::arguments::{Arguments, Command};
use crate::error::{Error, Result};
use crate::results::Results;

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let done = match &arguments.command {
        Some(Command::RunOne { job }) => job::run(job).map(|()| ExitCode::SUCCESS),
        None => run(&arguments),
    };
    done.unwrap_or_else(|error| {
        eprintln!("error: {error}");
        ExitCode::FAILURE
    })
}

fn run(arguments: &Arguments) -> Result<ExitCode> {
    arguments.check()?;
    // Before the runs, not after them.
    let json = arguments.json.as_deref();
    let json = json.map(|path| OutFile::open(path).map_err(Error::file("write", path))).transpose()?;
    let results = Results::new(arguments, compare::run(arguments)?);
    print!("{}", results.to_text());
    if let Some(json) = json {
        let text = serde_json::to_string_pretty(&results).map_err(|error| Error::Other(error.to_string()))?;
        let path = json.path().to_owned();
        json.write(&text).map_err(Error::file("write", &path))?;
    }
    let has_failed = results.cases.iter().any(|case| !case.errors.is_empty());
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
