//! `tantalum lab`: the papers' experiments, each beside its published numbers.

use std::{path::PathBuf, process::ExitCode};

use clap::Subcommand;
use serde::Serialize;
use tantalum_lab::{
    experiments::{self, Experiment, Settings},
    finding::{Basis, Findings},
    published::{self, Published},
};
use tantalum_report::{Progress, Table, Unit};

use crate::error::{Error, Out, Result};

#[derive(Subcommand)]
pub enum Command {
    /// List what the papers publish, and what of it runs here.
    List {
        /// Print JSON instead of text: all published numbers.
        #[arg(long)]
        json: bool,
    },
    /// Run experiments on emulated devices in virtual time, and show published and measured numbers side by side.
    Run {
        /// The ids of `lab list`; one that ends in * stands for all that begin so.
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
        /// Decides addresses and chance in the models; the same seed finds the same on every machine.
        #[arg(long, default_value_t = 42)]
        seed: u64,
        /// Write the results as JSON; docs/lab.md explains its fields.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    },
}

/// An element of the JSON output of `lab list`.
#[derive(Serialize)]
struct Listed {
    runs: bool,
    #[serde(flatten)]
    published: &'static Published,
}

/// The JSON output of `lab run`.
#[derive(Serialize)]
struct Report {
    format: u32,
    seed: u64,
    experiments: Vec<Ran>,
}

#[derive(Serialize)]
struct Ran {
    id: &'static str,
    place: &'static str,
    what: &'static str,
    findings: Findings,
}

/// Version of the JSON output; raised when a field changes its meaning or goes away, not when one is added.
const JSON_FORMAT: u32 = 1;

/// Runs a `lab` command.
pub fn run(command: Command) -> Result<ExitCode> {
    match command {
        Command::List { json } => list(json)?,
        Command::Run { ids, seed, json } => run_all(&ids, seed, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn list(json: bool) -> Result<()> {
    let listed = published::all().iter();
    let listed = listed.map(|published| Listed { runs: experiments::find(&published.id).is_some(), published });
    if json {
        return Ok(tantalum_report::print_json(&listed.collect::<Vec<_>>())?);
    }
    let mut table = Table::new(["id", "runs", "paper", "place", "what"]);
    for Listed { runs, published } in listed {
        let runs = if runs { "yes" } else { "not yet" };
        table.row([
            &published.id,
            runs,
            published.paper(),
            &shorten(published.section(), 30),
            &shorten(&published.what, 70),
        ]);
    }
    Out::new().line(table)
}

/// The first words.
fn shorten(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        None => text.to_owned(),
        Some((end, _)) => format!("{}...", text[..end].rsplit_once(' ').map_or(&text[..end], |(words, _)| words)),
    }
}

fn run_all(ids: &[String], seed: u64, json: Option<PathBuf>) -> Result<()> {
    let mut ran = Vec::new();
    let mut out = Out::new();
    for experiment in choose(ids)? {
        let bar = Progress::open_ended(experiment.id, Unit::Things);
        let findings = experiment.run(Settings { seed }, &|what| {
            bar.remark(what);
            bar.add(1);
        })?;
        bar.finish();
        show(&mut out, experiment, &findings)?;
        let published = experiment.published();
        ran.push(Ran { id: experiment.id, place: &published.place, what: &published.what, findings });
    }
    if let Some(path) = json {
        tantalum_report::to_json_file(path, &Report { format: JSON_FORMAT, seed, experiments: ran })?;
    }
    Ok(())
}

/// Each once, in the order asked for.
fn choose(ids: &[String]) -> Result<Vec<&'static Experiment>> {
    let mut chosen: Vec<&'static Experiment> = Vec::new();
    for id in ids {
        let wanted: Vec<_> = match id.strip_suffix('*') {
            Some(prefix) => experiments::all().filter(|experiment| experiment.id.starts_with(prefix)).collect(),
            None => experiments::find(id).into_iter().collect(),
        };
        if wanted.is_empty() {
            let why = match published::find(id) {
                Some(_) => "is published but does not run yet",
                None => "is no experiment that runs",
            };
            return Err(Error::Other(format!("{id} {why}; tantalum lab list shows which do")));
        }
        let new = wanted.into_iter().filter(|wanted| !ids_of(&chosen).contains(&wanted.id)).collect::<Vec<_>>();
        chosen.extend(new);
    }
    Ok(chosen)
}

fn ids_of(experiments: &[&'static Experiment]) -> Vec<&'static str> {
    experiments.iter().map(|experiment| experiment.id).collect()
}

fn show(out: &mut Out, experiment: &Experiment, findings: &Findings) -> Result<()> {
    let published = experiment.published();
    out.line(format_args!("\n{} ({}, {})", experiment.id, published.paper(), published.section()))?;
    out.line(&published.what)?;
    findings.configuration.iter().try_for_each(|line| out.line(line))?;
    let mut table = Table::new(["what", "published", "measured", "unit", "deviation", "basis"]);
    for comparison in &findings.comparisons {
        table.row([
            comparison.what.clone(),
            comparison.published.to_string(),
            digits(comparison.measured),
            comparison.unit.clone(),
            comparison.deviation().map_or("-".to_owned(), |share| format!("{:+.1}%", share * 100.0)),
            match comparison.basis {
                Basis::Fitted => "fitted".to_owned(),
                Basis::Predicted => "predicted".to_owned(),
            },
        ]);
    }
    out.line(table)?;
    for statement in &findings.statements {
        let holds = if statement.holds { "holds" } else { "DOES NOT HOLD" };
        out.line(format_args!("{holds}: {} ({})", statement.says, statement.found))?;
    }
    Ok(())
}

/// A number with three significant digits, or all before the point.
fn digits(number: f64) -> String {
    match number.abs() {
        large if large >= 100.0 => format!("{number:.0}"),
        middle if middle >= 10.0 => format!("{number:.1}"),
        small if small >= 1.0 => format!("{number:.2}"),
        _ => format!("{number:.3}"),
    }
}
