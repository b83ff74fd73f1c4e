//! The comparison: the logs take turns, round after round, each run in a process of its own.
//!
//! A log's directory stays for all rounds of a case, so that its files have been written before, as those of a log in use. A run that
//! fails is reported, and the others go on.

use std::path::Path;

use serde::Serialize;

use crate::append::{Append, Drive};
use crate::arguments::{Arguments, Workload};
use crate::error::{Error, Result};
use crate::job::{Job, Outcome, Task};
use crate::store::{Kind, Setup};

/// What takes part in each round: a log, and for appends how it is driven.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Contender {
    /// The log.
    pub log: Kind,
    /// `None` unless it is appended to.
    pub drive: Option<Drive>,
}

impl Contender {
    /// In tables.
    pub fn name(&self) -> String {
        self.drive.map_or(self.log.name().to_owned(), |drive| format!("{} {}", self.log.name(), drive.name()))
    }
}

/// A case: what all contenders do in each round.
#[derive(Clone, Debug, Serialize)]
pub struct Case {
    /// The workload.
    pub workload: Workload,
    /// Groups of the log.
    pub groups: u64,
    /// The contenders, and what came of each in each round that went well for all.
    pub rounds: Vec<(Contender, Vec<Outcome>)>,
    /// Why rounds did not go well.
    pub errors: Vec<String>,
}

/// Runs all cases.
///
/// # Errors
/// If directories cannot be made, or a log cannot be filled; what goes wrong later is among the outcomes.
pub fn run(arguments: &Arguments) -> Result<Vec<Case>> {
    let mut cases = Vec::new();
    for &workload in &arguments.workload {
        match workload {
            Workload::Append => {
                for &groups in &arguments.groups {
                    cases.push(case(arguments, workload, groups)?);
                }
            }
            Workload::Replay | Workload::Read => cases.push(case(arguments, workload, crate::read::GROUPS)?),
        }
    }
    Ok(cases)
}

/// The logs that are compared.
fn contenders(arguments: &Arguments, workload: Workload, groups: u64) -> Vec<Contender> {
    let drives: Vec<_> = match workload {
        Workload::Append => arguments.drive.iter().copied().map(Some).collect(),
        Workload::Replay | Workload::Read => vec![None],
    };
    let of = |log: &Kind| {
        let log = *log;
        let suits = move |drive: &Option<Drive>| match drive {
            Some(Drive::Async) => log == Kind::TantalumRaft,
            Some(Drive::Batched) => groups > arguments.threads || !arguments.drive.contains(&Drive::Each),
            Some(Drive::Each) | None => true,
        };
        drives.iter().copied().filter(suits).map(move |drive| Contender { log, drive }).collect::<Vec<_>>()
    };
    arguments.log.iter().flat_map(of).collect()
}

fn case(arguments: &Arguments, workload: Workload, groups: u64) -> Result<Case> {
    let within = &arguments.dir;
    let directory = tempfile::Builder::new().prefix("tantalum-raft-bench-").tempdir_in(within);
    let directory = directory.map_err(Error::file("make a directory in", within))?;
    let contenders = contenders(arguments, workload, groups);
    if workload != Workload::Append {
        for log in &arguments.log {
            let setup = setup(arguments, workload, *log, directory.path())?;
            Job { kind: *log, setup, task: Task::Fill(arguments.entries) }.start()?;
        }
    }
    let mut rounds: Vec<_> = contenders.iter().map(|contender| (*contender, Vec::new())).collect();
    let mut errors = Vec::new();
    for round in 0..arguments.rounds {
        let mut outcomes = Vec::new();
        // They take turns to come first.
        let order = (0..contenders.len()).map(|n| (n + round) % contenders.len());
        for at in order {
            let Contender { log, drive } = contenders[at];
            let task = task(arguments, workload, groups, drive);
            let setup = setup(arguments, workload, log, directory.path())?;
            let outcome = Job { kind: log, setup, task }.start();
            eprintln!("round {}, {groups} groups: {} done", round + 1, contenders[at].name());
            outcomes.push((at, outcome));
        }
        let (good, bad): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(|(_, outcome)| outcome.is_ok());
        let is_complete = bad.is_empty();
        for (at, outcome) in bad {
            let error = outcome.map(drop).expect_err("it is one of the bad ones");
            errors.push(format!("round {}, {}: {error}", round + 1, contenders[at].name()));
        }
        // Ratios are those of one round.
        for (at, outcome) in good.into_iter().filter(|_| is_complete) {
            rounds[at].1.push(outcome.expect("it is one of the good ones"));
        }
    }
    Ok(Case { workload, groups, rounds, errors })
}

fn task(arguments: &Arguments, workload: Workload, groups: u64, drive: Option<Drive>) -> Task {
    match workload {
        Workload::Append => Task::Append(Append {
            groups,
            threads: arguments.threads,
            drive: drive.expect("appends are driven in some way"),
            ready_entries: arguments.ready_entries,
            keep: arguments.keep,
            compact_every: arguments.compact_every,
            seconds: arguments.seconds,
        }),
        Workload::Replay => Task::Replay,
        Workload::Read => Task::Read { threads: arguments.threads, seconds: arguments.seconds },
    }
}

fn setup(arguments: &Arguments, workload: Workload, log: Kind, directory: &Path) -> Result<Setup> {
    let directory = directory.join(log.name());
    std::fs::create_dir_all(&directory).map_err(Error::file("create", &directory))?;
    let log_bytes = match workload {
        Workload::Append => arguments.log_mib << 20,
        // So that tantalum-raft may need all of its entries, and raft-engine purges none: an eighth of the space of several devices is
        // enough of a bound for both.
        Workload::Replay | Workload::Read => {
            (arguments.entries * (arguments.entry_bytes as u64 + 64) * 8).max(64 << 20)
        }
    };
    Ok(Setup { directory, log_bytes, partitions: arguments.partitions, entry_bytes: arguments.entry_bytes })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[test]
    fn each_log_takes_part_in_the_ways_that_it_has() {
        let arguments = Arguments::parse_from(["raft", "--threads", "16"]);
        let names = |workload, groups| {
            let contenders = contenders(&arguments, workload, groups);
            contenders.iter().map(Contender::name).collect::<Vec<_>>().join(", ")
        };
        assert_eq!(names(Workload::Append, 16), "raft-engine each, tantalum-raft each, tantalum-raft async");
        assert!(names(Workload::Append, 17).starts_with("raft-engine each, raft-engine batched, tantalum-raft each"));
        assert_eq!(names(Workload::Read, 16), "raft-engine, tantalum-raft");
    }
}
