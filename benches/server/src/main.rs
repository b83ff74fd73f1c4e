//! `tantalum-server` beside etcd: `README.md` says how to run it, and `servers.rs` how each server is started, and why so.

mod arguments;
mod clients;
mod compare;
mod error;
mod load;
mod meter;
mod once;
mod ports;
mod results;
mod servers;
mod stall;

use std::process::ExitCode;

use clap::Parser;
use tantalum_report::OutFile;

use crate::arguments::Arguments;
use crate::error::{Error, Result};
use crate::results::Results;

/// Etcd's messages, and clients of its services.
#[allow(missing_docs, clippy::all)]
pub mod api {
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
}

fn main() -> ExitCode {
    run(&Arguments::parse()).unwrap_or_else(|error| {
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
