//! `tantalum crash`: runs seeds in worker processes, shows progress, adds up.

mod board;
mod worker;

use std::{collections::BTreeMap, fmt, path::PathBuf, process::ExitCode, str::FromStr, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum_crash::{Failure, FaultCounts, Faults, Options, Protection, Scope};
use tantalum_flash::faults::Plan;
use tantalum_report::{Progress, Table, Unit, units};

use crate::error::{Error, Out, Result};
use board::{Board, Total};

#[derive(Args)]
pub struct Arguments {
    /// Seeds to run: `A..B` (B excluded), or a single one.
    #[arg(long, value_name = "A..B", default_value = "0..200")]
    seeds: Seeds,
    /// Processes at the same time; default: as many as there are cores.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    jobs: Option<u16>,
    /// Only devices of these profiles (names as in `device list`, or files), or `memory`. Default: all of them.
    #[arg(long, value_name = "NAME,...", value_delimiter = ',')]
    profile: Vec<String>,
    /// Every device has the faults of this plan, instead of those that the seed decides.
    #[arg(long, value_name = "PLAN.toml", conflicts_with = "no_faults")]
    faults: Option<PathBuf>,
    /// Devices have no faults.
    #[arg(long)]
    no_faults: bool,
    /// Send the devices no flushes, as a file system mounted without barriers: what would be lost?
    #[arg(long)]
    without_barriers: bool,
    /// Tell the engine to leave out barriers and, with the protection device, double writes, whatever the devices say (its
    /// settings trust-device): what would be lost?
    #[arg(long)]
    trust_devices: bool,
    /// Give devices with capacitors so many of them; with 0, none: what would be lost?
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1000))]
    capacitors: Option<u32>,
    /// Only seeds with this torn-page protection: double-write, full-page-images or device; or in-page-logging or
    /// log-structured, the page stores that need none. May be given several times.
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
    /// What is searched, as JSON.
    #[arg(long)]
    options: String,
}

impl Arguments {
    fn scope(&self) -> Result<Scope> {
        let faults = match &self.faults {
            _ if self.no_faults => Faults::None,
            None => Faults::BySeed,
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(|error| Error::file("read", path, error))?;
                let plan = Plan::parse(&path.display().to_string(), &text).map_err(other)?;
                Faults::Plan(plan)
            }
        };
        let options = Options {
            profiles: self.profile.clone(),
            only: self.only.clone(),
            faults,
            without_barriers: self.without_barriers,
            trusts_devices: self.trust_devices,
            capacitors: self.capacitors,
        };
        Scope::new(options).map_err(other)
    }

    /// What repeats a seed.
    fn command(&self, seed: u64) -> String {
        let mut command = format!("tantalum crash --seeds {seed}");
        let mut add = |option: &str, value: String| command.extend([" ", option, " ", &value]);
        if !self.profile.is_empty() {
            add("--profile", self.profile.join(","));
        }
        if let Some(path) = &self.faults {
            add("--faults", path.display().to_string());
        }
        if let Some(capacitors) = self.capacitors {
            add("--capacitors", capacitors.to_string());
        }
        for (is_given, flag) in [
            (self.no_faults, " --no-faults"),
            (self.without_barriers, " --without-barriers"),
            (self.trust_devices, " --trust-devices"),
        ] {
            if is_given {
                command.push_str(flag);
            }
        }
        command
    }
}

fn other(error: impl fmt::Display) -> Error {
    Error::Other(error.to_string())
}

/// A range of seeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
struct Seeds {
    /// The first.
    from: u64,
    /// The one after the last.
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
    /// As given.
    seeds: Seeds,
    /// As given.
    options: &'a tantalum_crash::Options,
    /// How long it took.
    seconds: f64,
    /// Time of all cores.
    cpu_seconds: f64,
    /// A schedule is a power cut, a complete recovery, and its check.
    schedules_per_core_hour: f64,
    /// What happened, by name.
    report: &'a tantalum_crash::Report,
    /// What must not be.
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
    let scope = Arc::new(arguments.scope()?);
    let tasks: Vec<_> = (0..jobs)
        .map(|job| {
            let (board, program, scope) = (Arc::clone(&board), program.clone(), Arc::clone(&scope));
            tantalum_rt::spawn(format!("crash-job-{job}"), move || worker::supervise(&board, &program, &scope))
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
    let Total { report, failures, cpu } = board.result();
    let (seconds, cpu_seconds) = (start.elapsed().as_secs_f64(), cpu.as_secs_f64());
    let schedules_per_core_hour = report.schedules as f64 / cpu_seconds.max(0.001) * 3600.0;
    let summary = Summary {
        seeds,
        options: scope.options(),
        seconds,
        cpu_seconds,
        schedules_per_core_hour,
        report: &report,
        failures: &failures,
    };
    show(arguments, &summary)?;
    if let Some(path) = &arguments.json {
        tantalum_report::to_json_file(path, &summary)?;
    }
    if failures.is_empty() {
        return Ok(ExitCode::SUCCESS);
    }
    let first = failures.first().map_or(0, |failure| failure.seed);
    let many = failures.len();
    Err(Error::Other(format!("{many} seeds failed, the first is {first}; each repeats with the command shown with it")))
}

fn show(arguments: &Arguments, summary: &Summary<'_>) -> Result<()> {
    let (mut out, report) = (Out::new(), summary.report);
    let mut table = Table::new(["what", "count"]);
    table.row(["seeds passed".to_owned(), units::count(report.seeds)]);
    table.row(["schedules: cut, recovered, checked".to_owned(), units::count(report.schedules)]);
    let rows = |map: &BTreeMap<String, u64>, prefix: &str, table: &mut Table| {
        for (name, n) in map {
            table.row([format!("{prefix}{name}"), units::count(*n)]);
        }
    };
    rows(&report.counts, "", &mut table);
    rows(&report.configurations, "seeds with ", &mut table);
    out.line(format_args!("{table}\n"))?;
    let mut table = Table::new(["machines with", "seeds passed", "schedules", "seeds failed"]);
    for (name, counts) in profiles(summary) {
        table.row([name, units::count(counts.0), units::count(counts.1), units::count(counts.2)]);
    }
    out.line(format_args!("{table}\n"))?;
    if !report.faults.is_empty() {
        let mut table = Table::new(["fault", "injected", "schedules survived", "reported", "lost unknowably"]);
        for (name, counts) in &report.faults {
            let FaultCounts { injected, survived, reported, lost } = *counts;
            let counts = [injected, survived, reported, lost].map(units::count);
            table.row(std::iter::once(name.clone()).chain(counts));
        }
        out.line(format_args!("{table}\n"))?;
    }
    out.line(format_args!(
        "{:.1} s, {:.1} s of processor time, {:.1} seeds/s, {} schedules per core-hour",
        summary.seconds,
        summary.cpu_seconds,
        report.seeds as f64 / summary.seconds.max(0.001),
        units::count(summary.schedules_per_core_hour as u64),
    ))?;
    for failure in summary.failures {
        out.line(format_args!("FAILED {failure}\n  repeat it with: {}", arguments.command(failure.seed)))?;
    }
    Ok(())
}

/// By profile: seeds that passed, schedules in them, seeds that failed.
fn profiles(summary: &Summary<'_>) -> BTreeMap<String, (u64, u64, u64)> {
    let passed = summary.report.profiles.iter();
    let mut rows: BTreeMap<_, _> =
        passed.map(|(name, counts)| (name.clone(), (counts.seeds, counts.schedules, 0))).collect();
    for profile in summary.failures.iter().flat_map(|failure| &failure.profiles) {
        rows.entry(profile.clone()).or_default().2 += 1;
    }
    rows
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
