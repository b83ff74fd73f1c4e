//! The command line.

use std::path::PathBuf;

use clap::{Parser, Subcommand};
use serde::Serialize;

use crate::{
    data::{Dataset, KEY_BYTES},
    engine::Kind,
    error::{Error, Result},
    workload::Workload,
};

/// Tantalum beside RocksDB, LMDB, SQLite, redb and fjall, and beside the raw device.
///
/// Every run is a process of its own; engines take turns, and medians are over the rounds. Without options: durable updates of one
/// key, by a few numbers of clients.
#[derive(Parser, Clone, Debug, Serialize)]
#[command(name = "peers", version, max_term_width = 100)]
pub struct Arguments {
    #[command(subcommand)]
    #[serde(skip)]
    pub command: Option<Command>,
    /// Engines to compare, separated by commas. Default: all.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "ENGINE")]
    #[serde(skip)]
    pub engine: Vec<Kind>,
    /// Workloads, separated by commas. Default: update.
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WORKLOAD", conflicts_with = "all")]
    #[serde(skip)]
    pub workload: Vec<Workload>,
    /// All workloads.
    #[arg(long)]
    #[serde(skip)]
    pub all: bool,
    /// Numbers of clients, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,128")]
    pub clients: Vec<usize>,
    /// Commits that the one client of tantalum-pipelined keeps under way, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,128,1024")]
    pub in_flight: Vec<usize>,
    /// Seconds of each run, beside a fifth of that for warming up.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Rounds; in each, every engine has its turn.
    #[arg(long, default_value_t = 5)]
    pub rounds: usize,
    /// Where the databases are made, one directory for each engine; they stay, and are used again. Default: a new directory
    /// tantalum-peers-PID in the current one, removed at the end.
    #[arg(long)]
    pub dir: Option<PathBuf>,
    /// Memory of each engine for what it reads.
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    pub cache_mib: u64,
    /// Keep the operating system's cache as small as the engines' own in every workload, as cold-read does: for databases that are
    /// larger than --cache-mib.
    #[arg(long)]
    pub bounded: bool,
    /// After clients end, let each engine do what it has put off, such as moving deferred rows, merging tables and writing dirty pages:
    /// bytes and processor time include that, rates and latencies do not.
    #[arg(long)]
    pub drain: bool,
    /// How large each engine's log may become.
    #[arg(long, default_value_t = 256, value_name = "MIB")]
    pub log_mib: u64,
    /// Partitions of Tantalum's log, as `tantalum probe` recommends.
    #[arg(long, default_value_t = 4)]
    pub log_partitions: u32,
    /// Rows of the database for updates, transfers and scans.
    #[arg(long, default_value_t = 100_000)]
    pub keys: u64,
    /// Bytes of their values.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Records of the database for YCSB.
    #[arg(long, default_value_t = 100_000)]
    pub records: u64,
    /// Bytes of a record.
    #[arg(long, default_value_t = 1000)]
    pub record_bytes: usize,
    /// Rows to load in bulk, or to put in one transaction.
    #[arg(long, default_value_t = 1_000_000)]
    pub load_rows: u64,
    /// How much is written before the kill that reopening follows.
    #[arg(long, default_value_t = 64, value_name = "MIB")]
    pub fill_mib: u64,
    /// Seeds the clients' choices.
    #[arg(long, default_value_t = 42)]
    pub seed: u64,
    /// Write the result as JSON; README.md explains its fields.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub json: Option<PathBuf>,
    /// Write the result as an HTML page with plots.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub html: Option<PathBuf>,
}

#[derive(Subcommand, Clone, Debug)]
pub enum Command {
    /// One run, for this program itself.
    #[command(name = crate::job::SUBCOMMAND, hide = true)]
    RunOne { job: String },
}

impl Arguments {
    /// Engines, in the order of the tables.
    pub fn engines(&self) -> Vec<Kind> {
        Kind::ALL.into_iter().filter(|kind| self.engine.is_empty() || self.engine.contains(kind)).collect()
    }

    /// Workloads, each once.
    pub fn workloads(&self) -> Vec<Workload> {
        if self.all {
            return <Workload as clap::ValueEnum>::value_variants().to_vec();
        }
        let mut workloads = self.workload.clone();
        if workloads.is_empty() {
            workloads.push(Workload::Update);
        }
        let mut seen = Vec::new();
        workloads.retain(|workload| {
            !seen.contains(workload) && {
                seen.push(*workload);
                true
            }
        });
        workloads
    }

    /// In bytes.
    pub fn cache_bytes(&self) -> u64 {
        self.cache_mib << 20
    }

    /// What a workload's database holds.
    pub fn dataset(&self, workload: Workload) -> Dataset {
        /// How much larger than the cache a database is that cannot be in memory.
        const CACHES: u64 = 4;
        let record = (KEY_BYTES + self.record_bytes) as u64;
        match workload {
            Workload::ColdRead => {
                Dataset { rows: (CACHES * self.cache_bytes()).div_ceil(record), value_bytes: self.record_bytes }
            }
            Workload::BulkLoad | Workload::LoadInTransactions | Workload::HugeTransaction => {
                Dataset { rows: self.load_rows, value_bytes: self.value_bytes }
            }
            workload if workload.has_records() => Dataset { rows: self.records, value_bytes: self.record_bytes },
            _ => Dataset { rows: self.keys, value_bytes: self.value_bytes },
        }
    }

    /// Refuses what cannot be run.
    ///
    /// # Errors
    /// With the option, what it is, and what it may be.
    pub fn check(&self) -> Result<()> {
        let must = |ok: bool, what: String| if ok { Ok(()) } else { Err(Error::Other(what)) };
        let range = |name: &str, value: u64, least: u64, most: u64| {
            must((least..=most).contains(&value), format!("--{name} {value} is not possible: give {least} to {most}"))
        };
        for &clients in &self.clients {
            range("clients", clients as u64, 1, 10_000)?;
        }
        for &commits in &self.in_flight {
            range("in-flight", commits as u64, 1, 1 << 20)?;
        }
        let seconds = self.seconds;
        must(
            (0.01..1e6).contains(&seconds),
            format!("--seconds {seconds} is not possible: give 0.01 or more, and less than a million"),
        )?;
        range("rounds", self.rounds as u64, 1, 10_000)?;
        range("cache-mib", self.cache_mib, 8, 1 << 20)?;
        range("log-partitions", self.log_partitions.into(), 1, 64)?;
        // Else Tantalum's largest transaction would be too small for the largest values.
        range("log-mib", self.log_mib, 16 * u64::from(self.log_partitions), 1 << 20)?;
        range("keys", self.keys, 100, 1 << 31)?;
        range("records", self.records, 100, 1 << 31)?;
        range("load-rows", self.load_rows, 1, 1 << 40)?;
        range("value-bytes", self.value_bytes as u64, 8, 64 << 10)?;
        range("record-bytes", self.record_bytes as u64, 8, 64 << 10)?;
        range("fill-mib", self.fill_mib, 1, 1 << 20)?;
        let (engines, workloads) = (self.engines(), self.workloads());
        for workload in workloads {
            must(
                engines.iter().any(|kind| workload.suits(*kind)),
                format!(
                    "none of the engines given by --engine can do the workload {}; leave one of them out",
                    workload.name()
                ),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(options: &[&str]) -> Arguments {
        Arguments::try_parse_from(["peers"].iter().chain(options)).unwrap()
    }

    #[test]
    fn the_definition_has_no_contradictions() {
        <Arguments as clap::CommandFactory>::command().debug_assert();
        parsed(&[]).check().unwrap();
    }

    #[test]
    fn what_cannot_be_run_is_refused_by_name() {
        for (option, value) in [
            ("clients", "0"),
            ("in-flight", "4,0"),
            ("seconds", "0"),
            ("seconds", "NaN"),
            ("rounds", "0"),
            ("keys", "5"),
            ("cache-mib", "1"),
            ("log-mib", "63"),
        ] {
            let error = parsed(&[&format!("--{option}"), value]).check().unwrap_err().to_string();
            assert!(error.contains(&format!("--{option} ")), "{error}");
        }
        let error =
            parsed(&["--engine", "raw,group-log", "--workload", "update,scan"]).check().unwrap_err().to_string();
        assert!(error.contains("scan"), "{error}");
    }

    #[test]
    fn workloads_are_run_once_each() {
        let arguments = parsed(&["--workload", "scan,update,scan", "--engine", "rocksdb,tantalum"]);
        assert_eq!(arguments.workloads(), [Workload::Scan, Workload::Update]);
        assert_eq!(arguments.engines(), [Kind::Tantalum, Kind::RocksDb]);
        assert_eq!(parsed(&["--all"]).workloads().len(), 14);
    }

    #[test]
    fn the_cold_database_is_four_times_the_cache() {
        let dataset = parsed(&["--cache-mib", "10"]).dataset(Workload::ColdRead);
        let bytes = dataset.rows * (KEY_BYTES + dataset.value_bytes) as u64;
        assert!((40 << 20..(40 << 20) + 1016).contains(&bytes), "{bytes}");
    }
}
