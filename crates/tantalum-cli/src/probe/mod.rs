//! `tantalum probe`: measures a device and says how a database should be set up on it.
//!
//! Promises: what exists is only read unless its loss is allowed; time and bytes written are said before anything is written, and
//! kept to; a file that is made has no name any more when measuring begins, so that it goes however the program ends.

mod power_cut;
mod results;
mod subject;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use serde::Serialize;
use tantalum_lab::probe::{Advice, Effort, Plan, page};

use self::{results::Config, subject::Subject};
use crate::{
    bench::parse_bytes,
    error::{Error, Out, Result},
    lab::run::{open_out, write_out},
};

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Arguments {
    #[command(subcommand)]
    command: Option<power_cut::Command>,
    /// A directory or a file that does not exist (a file is made, and gone afterwards); a file or block device that exists, which
    /// is only read unless --destructive is given; emulated:PROFILE, or a profile of `device list`.
    #[arg(value_name = "PATH|PROFILE", required = true)]
    path: Option<PathBuf>,
    /// Less than a minute instead of less than ten: fewer request sizes, shorter measurements.
    #[arg(long)]
    quick: bool,
    /// Bytes of the device to use. Default: 1G, with --quick 256M; less where writing that much takes too long.
    #[arg(long, value_parser = parse_bytes)]
    size: Option<u64>,
    /// Overwrite PATH, which exists. All that it holds is lost. What is mounted or in use, or holds a file system, a partition table
    /// or a database, is refused all the same.
    #[arg(long)]
    destructive: bool,
    /// Decides addresses, mixes and data.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Write what was found and what follows as JSON; docs/use/json.md explains its fields.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write a page with plots.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write tantalum.toml and the log's characteristics file into this directory, which is made if it is missing.
    #[arg(long, value_name = "DIR")]
    write_config: Option<PathBuf>,
    /// Let --write-config replace files that exist.
    #[arg(long, requires = "write_config")]
    force: bool,
}

/// The JSON output.
#[derive(Serialize)]
struct Report<'a> {
    /// `probe`.
    benchmark: &'static str,
    /// Raised when a field changes its meaning or goes away.
    format: u32,
    /// What was asked for.
    plan: &'a Plan,
    /// What was measured.
    found: &'a tantalum_lab::probe::Found,
    /// What follows from it.
    advice: &'a Advice,
}

/// Raised when a field changes its meaning or goes away, not when one is added.
const JSON_FORMAT: u32 = 1;

impl Arguments {
    fn effort(&self) -> Effort {
        if self.quick { Effort::Quick } else { Effort::Full }
    }
}

/// Runs `probe`.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    match (&arguments.command, &arguments.path) {
        (Some(command), _) => power_cut::run(command),
        (None, Some(path)) => probe(arguments, path),
        (None, None) => Err(Error::Other("name what is to be probed; tantalum probe --help tells more".into())),
    }
}

fn probe(arguments: &Arguments, path: &Path) -> Result<ExitCode> {
    // Whatever can be refused is, before anything takes time.
    let json = arguments.json.as_deref().map(open_out).transpose()?;
    let html = arguments.html.as_deref().map(open_out).transpose()?;
    let config =
        arguments.write_config.as_deref().map(|directory| Config::at(directory, arguments.force)).transpose()?;
    let (effort, size) = (arguments.effort(), arguments.size.unwrap_or(arguments.effort().range_bytes()));
    let subject = Subject::open(path, effort, size, arguments.destructive)?;
    let plan = subject.plan(effort, size, arguments.seed)?;
    let mut out = Out::new();
    results::introduce(&mut out, &subject, &plan)?;
    let mut found = subject.probe(&plan)?;
    // The operator does not know the name of a file that the probe made for itself.
    found.claims.name = path.display().to_string();
    let advice = Advice::of(&found);
    results::found(&mut out, &found)?;
    results::advice(&mut out, &found, &advice)?;
    if let Some(config) = config {
        config
            .write(&found, &advice)?
            .iter()
            .try_for_each(|path| out.line(format_args!("wrote {}", path.display())))?;
    }
    if let Some(html) = html {
        write_out(html, &page(&found, &advice).to_html())?;
    }
    if let Some(json) = json {
        let report = Report { benchmark: "probe", format: JSON_FORMAT, plan: &plan, found: &found, advice: &advice };
        write_out(json, &tantalum_report::json::to_text(&report)?)?;
    }
    Ok(ExitCode::SUCCESS)
}
