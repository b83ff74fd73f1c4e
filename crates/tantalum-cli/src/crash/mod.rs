//! `tantalum crash`: runs seeds in worker processes, shows progress, adds up.

mod board;
mod worker;

use std::{collections::BTreeMap, fmt, path::PathBuf, process::ExitCode, str::FromStr, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum_crash::{Failure, Protection, Report};
use tantalum_report::{Progress, Table, Unit, units};

use crate::error::{Error, Out, Result};
use board::Board;

#[derive(Args)]
pub struct Arguments {
    /// Seeds to run: `A..B` (B excluded), or a single one.
    #[arg(long, value_name = "A..B", default_value = "0..200")]
    seeds: Seeds,
    /// Processes at the same time; default: as many as there are cores.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Only seeds with this torn-page protection: double-write, full-page-images or device. May be given several
    /// times.
    #[arg(long, value_name = "PROTECTION")]
    only: Vec<Protection>,
    /// Stop after so many failing seeds.
    #[arg(long, value_name = "N", default_value_t = 10)]
    max_failures: usize,
    /// Also write the result to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
pub struct WorkerArguments {
    #[arg(long)]
    seeds: Seeds,
    #[arg(long)]
    only: Vec<Protection>,
}

/// A range of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Seeds {
    from: u64,
    to: u64,
}

impl FromStr for Seeds {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        let number = |text: &str| text.trim().parse::<u64>().map_err(|error| format!("{text:?} is no seed: {error}"));
        let (from, to) = match text.split_once("..") {
            Some((from, to)) => (number(from)?, number(to)?),
            None => {
                let seed = number(text)?;
                (seed, seed.checked_add(1).ok_or("the largest seed cannot be named alone; seeds end below it")?)
            }
        };
        if from >= to {
            return Err(format!("{text} holds no seed; give the first one and the one after the last"));
        }
        Ok(Self { from, to })
    }
}

impl fmt::Display for Seeds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.from, self.to)
    }
}

/// The JSON output.
#[derive(Serialize)]
struct Summary<'a> {
    seeds: Seeds,
    seconds: f64,
    passed: u64,
    counts: &'a BTreeMap<String, u64>,
    configurations: &'a BTreeMap<String, u64>,
    fingerprint: u64,
    failures: &'a [Failure],
}

pub use worker::work;

/// Runs the search.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    let seeds = arguments.seeds;
    let jobs = arguments.jobs.map_or_else(tantalum_rt::available_cores, usize::from);
    let program =
        std::env::current_exe().map_err(|error| Error::Other(format!("cannot find this program: {error}")))?;
    let start = tantalum_rt::now();
    let progress = Progress::bar("crash search", seeds.to - seeds.from, Unit::Things);
    let board = Arc::new(Board::new(seeds, arguments.max_failures));
    let only = arguments.only.clone();
    let tasks: Vec<_> = (0..jobs)
        .map(|job| {
            let (board, program, only) = (Arc::clone(&board), program.clone(), only.clone());
            tantalum_rt::spawn(format!("crash-job-{job}"), move || worker::supervise(&board, &program, &only))
        })
        .collect();
    while tasks.iter().any(|task| !task.is_finished()) {
        tantalum_rt::sleep(Duration::from_millis(100));
        board.kill_hung();
        let (done, failures) = board.progress();
        progress.set(done);
        if failures > 0 {
            progress.remark(&format!("{failures} failed"));
        }
    }
    progress.finish();
    for task in tasks {
        task.join().map_err(|_| Error::Other("a supervisor of workers panicked".to_owned()))??;
    }
    let (report, failures) = board.result();
    let seconds = start.elapsed().as_secs_f64();
    show(&report, &failures, seconds)?;
    if let Some(path) = &arguments.json {
        let Report { seeds: passed, counts, configurations, fingerprint } = &report;
        let (passed, fingerprint) = (*passed, *fingerprint);
        let summary = Summary { seeds, seconds, passed, counts, configurations, fingerprint, failures: &failures };
        tantalum_report::to_json_file(path, &summary)?;
    }
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let first = failures.first().map_or(0, |failure| failure.seed);
    let many = failures.len();
    Err(Error::Other(format!("{many} seeds failed, the first is {first}; each repeats with the command shown with it")))
}

fn show(report: &Report, failures: &[Failure], seconds: f64) -> Result<()> {
    let mut out = Out::new();
    let mut table = Table::new(["what", "count"]);
    table.row(["seeds passed".to_owned(), units::count(report.seeds)]);
    let rows = |map: &BTreeMap<String, u64>, prefix: &str, table: &mut Table| {
        for (name, n) in map {
            table.row([format!("{prefix}{name}"), units::count(*n)]);
        }
    };
    rows(&report.counts, "", &mut table);
    rows(&report.configurations, "seeds with ", &mut table);
    out.print(table)?;
    out.line(format_args!("{:.1} s, {:.1} seeds/s", seconds, report.seeds as f64 / seconds.max(0.001)))?;
    for failure in failures {
        out.line(format_args!("FAILED {failure}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_or_one() {
        assert_eq!("3..9".parse(), Ok(Seeds { from: 3, to: 9 }));
        assert_eq!("7".parse(), Ok(Seeds { from: 7, to: 8 }));
        for bad in ["9..3", "3..3", "x", "1..", "-1..2", "", "18446744073709551615"] {
            assert!(bad.parse::<Seeds>().is_err(), "{bad}");
        }
    }
}
