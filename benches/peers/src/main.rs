//! Tantalum beside the engines that a user would pick instead, and beside the raw device: `README.md` says how to run it, and
//! each adapter in `engines/` how its engine is set up, and why so.

mod arguments;
mod clients;
mod compare;
mod data;
mod engine;
mod engines;
mod error;
mod job;
mod meter;
mod page;
mod page_cache;
mod results;
mod table;
mod workload;

use std::process::ExitCode;

use clap::Parser;
use tantalum_report::OutFile;

use crate::{
    arguments::{Arguments, Command},
    compare::Place,
    error::{Error, Result},
    results::Results,
};

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
    // Before the hours, not after them.
    let open = |path: &Option<_>| {
        path.as_deref().map(|path| OutFile::open(path).map_err(Error::file("write", path))).transpose()
    };
    let (json, html) = (open(&arguments.json)?, open(&arguments.html)?);
    let place = Place::of(arguments)?;
    let results = Results::new(arguments, compare::run(arguments, place.path())?);
    table::print(&results);
    let write = |out: Option<OutFile>, text: &dyn Fn() -> Result<String>| match out {
        Some(out) => {
            let path = out.path().to_owned();
            out.write(&text()?).map_err(Error::file("write", &path))
        }
        None => Ok(()),
    };
    write(json, &|| serde_json::to_string_pretty(&results).map_err(|error| Error::Other(error.to_string())))?;
    write(html, &|| Ok(page::html(&results)))?;
    let has_failed = results.results.iter().any(|measured| !measured.errors.is_empty());
    Ok(if has_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}
