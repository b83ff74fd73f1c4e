//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};
use serde::{Deserialize, Serialize};

use crate::append::Drive;
use crate::error::{Error, Result};
use crate::store::Kind;

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Durable appends to many groups, which are compacted.
    Append,
    /// Opening a log of --entries entries.
    Replay,
    /// Reading random ranges of 32 entries of such a log.
    Read,
}

/// tantalum-raft beside raft-engine, as logs of many raft groups.
///
/// The logs take turns in processes of their own. Printed are medians over the rounds, and the ratios of the two logs in each round:
/// their median, least and greatest.
#[derive(Parser, Clone, Debug, Serialize)]
#[command(name = "raft", version, max_term_width = 80)]
pub struct Arguments {
    #[command(subcommand)]
    #[serde(skip)]
    pub command: Option<Command>,
    /// Workloads, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "append")]
    pub workload: Vec<Workload>,
    /// Logs, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "raft-engine,tantalum-raft")]
    pub log: Vec<Kind>,
    /// Numbers of groups that are appended to, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    pub groups: Vec<u64>,
    /// How a worker waits for its groups' appends, separated by commas. With one group for each worker, batched is left out: it is the
    /// same as each.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "each,batched,async")]
    pub drive: Vec<Drive>,
    /// Workers, at most one for each group; readers of the workload read.
    #[arg(long, default_value_t = 16)]
    pub threads: u64,
    /// Bytes of an entry, random ones.
    #[arg(long, default_value_t = 256)]
    pub entry_bytes: usize,
    /// Entries that a group is given at once.
    #[arg(long, default_value_t = 1)]
    pub ready_entries: u64,
    /// Entries of a group that compaction leaves.
    #[arg(long, default_value_t = 1000)]
    pub keep: u64,
    /// A group is compacted whenever it has so many entries more than that.
    #[arg(long, default_value_t = 250)]
    pub compact_every: u64,
    /// Entries of the log that is opened and read.
    #[arg(long, default_value_t = 1_000_000)]
    pub entries: u64,
    /// What each log's files take while it is appended to, in MiB. For replay and read it is what the entries need.
    #[arg(long, default_value_t = 1024, value_name = "MIB")]
    pub log_mib: u64,
    /// Files of tantalum-raft's log, which it writes to at the same time. More than one helps on devices whose durable writes overlap;
    /// `tantalum probe` tells.
    #[arg(long, default_value_t = 1)]
    pub partitions: u64,
    /// Seconds of each run, beside a fifth of that for warming up.
    #[arg(long, default_value_t = 2.0)]
    pub seconds: f64,
    /// Rounds; in each, every log has its turn.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Where the logs are made, in a new directory that is removed at the end.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Write the result as JSON; README.md explains its fields.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub json: Option<PathBuf>,
}

/// Of this program itself.
#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// One run.
    #[command(name = crate::job::SUBCOMMAND, hide = true)]
    RunOne { job: String },
}

impl Arguments {
    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// With the option, what it is, and what it may be.
    pub fn check(&self) -> Result<()> {
        let range = |name: &str, value: u64, least: u64, most: u64| match (least..=most).contains(&value) {
            true => Ok(()),
            false => Err(Error::Other(format!("--{name} {value} is not possible: give {least} to {most}"))),
        };
        for &groups in &self.groups {
            range("groups", groups, 1, 1 << 20)?;
        }
        range("threads", self.threads, 1, 1024)?;
        range("entry-bytes", self.entry_bytes as u64, 1, 64 << 10)?;
        range("ready-entries", self.ready_entries, 1, 1000)?;
        range("keep", self.keep, 1, 1 << 20)?;
        range("compact-every", self.compact_every, 1, 1 << 20)?;
        range("entries", self.entries, 1000, 1 << 30)?;
        range("partitions", self.partitions, 1, 64)?;
        range("log-mib", self.log_mib, 64.max(2 * self.partitions), 1 << 20)?;
        range("rounds", self.rounds as u64, 1, 10_000)?;
        if !(0.01..1e6).contains(&self.seconds) {
            let seconds = self.seconds;
            return Err(Error::Other(format!(
                "--seconds {seconds} is not possible: give 0.01 or more, and less than a million"
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_has_no_contradictions_and_what_cannot_be_run_is_refused() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
        let parsed = |options: &[&str]| Arguments::try_parse_from(["raft"].iter().chain(options)).expect("it parses");
        parsed(&[]).check().expect("the defaults can be run");
        for (option, value) in [("groups", "0"), ("threads", "0"), ("log-mib", "1"), ("seconds", "NaN")] {
            let error = parsed(&[&format!("--{option}"), value]).check().expect_err("refused").to_string();
            assert!(error.contains(&format!("--{option} ")), "{error}");
        }
    }
}
