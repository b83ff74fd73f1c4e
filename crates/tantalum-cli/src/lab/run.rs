//! `tantalum lab run`: experiments, run and shown.

use std::path::PathBuf;

use tantalum_lab::{
    experiments::{self, Experiment, Settings},
    finding::Basis,
    runs::{self, Run},
};
use tantalum_report::{OutFile, Progress, Table, Unit, units};

use crate::error::{Error, Out, Result};

#[derive(clap::Args)]
pub struct Arguments {
    /// The ids of `lab list`; one that ends in * stands for all that begin so.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// Decides addresses and chance in the models; the same seed finds the same on every machine.
    #[arg(long, default_value_t = 42)]
    seed: u64,
    /// Write the results as JSON, for `lab report` too; docs/use/json.md explains its fields.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let experiments = choose(&arguments.ids)?;
    let json = arguments.json.as_deref().map(open_out).transpose()?;
    let mut out = Out::new();
    let mut done = Vec::new();
    for experiment in experiments {
        let run = run_one(experiment, arguments.seed)?;
        show(&mut out, &run)?;
        done.push(run);
    }
    json.map_or(Ok(()), |json| write_out(json, &runs::to_json(arguments.seed, &done)?))
}

/// Opens a file for results before what they come from is run.
pub fn open_out(path: &std::path::Path) -> Result<OutFile> {
    OutFile::open(path).map_err(|error| {
        Error::Other(format!(
            "cannot write {}: {error}; check that its directory exists and may be written to",
            path.display()
        ))
    })
}

/// Puts results into the file.
pub fn write_out(out: OutFile, text: &str) -> Result<()> {
    let path = out.path().to_owned();
    out.write(text).map_err(|error| {
        Error::Other(format!(
            "cannot write all of {}: {error}; it now holds a part: make room and repeat",
            path.display()
        ))
    })
}

/// Runs an experiment, with progress on standard error.
pub fn run_one(experiment: &Experiment, seed: u64) -> Result<Run> {
    let bar = Progress::open_ended(experiment.id, Unit::Things);
    let findings = experiment.run(Settings { seed }, &|what| {
        bar.remark(what);
        bar.add(1);
    })?;
    bar.finish();
    Ok(Run { published: experiment.published(), seed, findings })
}

/// Each once, in the order asked for.
pub fn choose(ids: &[String]) -> Result<Vec<&'static Experiment>> {
    let mut chosen: Vec<&'static Experiment> = Vec::new();
    for id in ids {
        let wanted: Vec<_> = match id.strip_suffix('*') {
            Some(prefix) => experiments::all().filter(|experiment| experiment.id.starts_with(prefix)).collect(),
            None => experiments::find(id).into_iter().collect(),
        };
        if wanted.is_empty() {
            return Err(Error::Other(format!("{id} is no experiment; tantalum lab list shows which there are")));
        }
        let new = |wanted: &&Experiment| chosen.iter().all(|chosen| chosen.id != wanted.id);
        let new: Vec<_> = wanted.into_iter().filter(new).collect();
        chosen.extend(new);
    }
    Ok(chosen)
}

fn show(out: &mut Out, Run { published, findings, .. }: &Run) -> Result<()> {
    out.line(format_args!("\n{} ({}, {})", published.id, published.paper().name, published.section()))?;
    out.line(&published.what)?;
    findings.configuration.iter().try_for_each(|line| out.line(line))?;
    let mut table = Table::new(["what", "published", "measured", "unit", "deviation", "basis"]);
    for comparison in &findings.comparisons {
        table.row([
            comparison.what.clone(),
            comparison.published.to_string(),
            units::number(comparison.measured),
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
