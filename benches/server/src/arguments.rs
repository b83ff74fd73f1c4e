//! The command line.

use std::path::PathBuf;

use clap::{Parser, ValueEnum};
use serde::Serialize;

use crate::error::{Error, Result};

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// Puts of random keys of a range.
    Put,
    /// Linearizable reads of random keys.
    Get,
    /// Serializable reads of random keys.
    GetSerializable,
    /// Three linearizable reads for each put.
    Mixed,
    /// A keep-alive of each of --leases leases.
    KeepAlive,
    /// Resident memory with --memory-keys keys.
    Memory,
    /// A follower that missed --missed puts is started again.
    CatchUp,
    /// Puts while the leader's log disk stalls again and again; needs root.
    Stall,
}

impl Workload {
    /// As the command line has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether clients do the same again and again, for --seconds.
    pub fn is_load(self) -> bool {
        matches!(self, Workload::Put | Workload::Get | Workload::GetSerializable | Workload::Mixed)
    }
}

/// A server, as it is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Contender {
    /// The installed etcd.
    Etcd,
    /// tantalum-server.
    Tantalum,
    /// The tantalum-server of --earlier, to compare versions.
    Earlier,
    /// tantalum-server with two log devices; where nothing stalls the second is a file beside the first.
    TwoLogs,
}

impl Contender {
    /// As the command line has it.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

/// tantalum-server beside etcd, on one node and on three.
///
/// The servers take turns, each in new directories. Printed are medians over the rounds, and the ratios of the servers to the first of
/// --server in each round: their median, least and greatest.
#[derive(Parser, Clone, Debug, Serialize)]
#[command(name = "server", version, max_term_width = 80)]
pub struct Arguments {
    /// Workloads, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "put,get,get-serializable,mixed")]
    pub workload: Vec<Workload>,
    /// Servers, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "etcd,tantalum")]
    pub server: Vec<Contender>,
    /// Numbers of nodes, separated by commas. Catch-up and stall are measured with three alone.
    #[arg(long, value_delimiter = ',', default_value = "1,3")]
    pub nodes: Vec<usize>,
    /// Numbers of clients, separated by commas.
    #[arg(long, value_delimiter = ',', default_value = "1,16,64,256")]
    pub clients: Vec<usize>,
    /// Connections that the clients share; at most one for each. They go to the nodes in turn.
    #[arg(long, default_value_t = 12)]
    pub connections: usize,
    /// Keys that are put and read, of 16 bytes.
    #[arg(long, default_value_t = 100_000)]
    pub keys: u64,
    /// Bytes of a value, random ones.
    #[arg(long, default_value_t = 100)]
    pub value_bytes: usize,
    /// Seconds of each run, beside a fifth of that for warming up.
    #[arg(long, default_value_t = 5.0)]
    pub seconds: f64,
    /// Rounds; in each, every server has its turn.
    #[arg(long, default_value_t = 3)]
    pub rounds: usize,
    /// Leases of 30 seconds that are kept alive once.
    #[arg(long, default_value_t = 10_000)]
    pub leases: usize,
    /// Keys that are in the store when memory is looked at.
    #[arg(long, default_value_t = 1_000_000)]
    pub memory_keys: u64,
    /// Puts that a follower misses.
    #[arg(long, default_value_t = 100_000)]
    pub missed: u64,
    /// Milliseconds for which the leader's log disk stalls in each second.
    #[arg(long, default_value_t = 200)]
    pub stall_ms: u64,
    /// The program etcd.
    #[arg(long, default_value = "etcd")]
    pub etcd: PathBuf,
    /// The program tantalum-server, a release build: `cargo build --release` in cluster/.
    #[arg(long, default_value = "../../cluster/target/release/tantalum-server")]
    pub tantalum_server: PathBuf,
    /// Another version of it, for the server `earlier`.
    #[arg(long)]
    pub earlier: Option<PathBuf>,
    /// Where the nodes' directories are made, in a new directory that is removed at the end.
    #[arg(long, default_value = ".")]
    pub dir: PathBuf,
    /// Write the result as JSON; README.md explains its fields.
    #[arg(long, value_name = "FILE")]
    #[serde(skip)]
    pub json: Option<PathBuf>,
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
        for &nodes in &self.nodes {
            range("nodes", nodes as u64, 1, 7)?;
        }
        for &clients in &self.clients {
            range("clients", clients as u64, 1, 10_000)?;
        }
        range("connections", self.connections as u64, 1, 1000)?;
        range("keys", self.keys, 1, 1 << 30)?;
        range("value-bytes", self.value_bytes as u64, 0, 1 << 20)?;
        range("rounds", self.rounds as u64, 1, 10_000)?;
        range("leases", self.leases as u64, 1, 1 << 20)?;
        range("memory-keys", self.memory_keys, 1, 1 << 30)?;
        range("missed", self.missed, 1, 1 << 30)?;
        range("stall-ms", self.stall_ms, 1, 900)?;
        if !(0.1..1e6).contains(&self.seconds) {
            let seconds = self.seconds;
            return Err(Error::Other(format!(
                "--seconds {seconds} is not possible: give 0.1 or more, and less than a million"
            )));
        }
        if self.server.contains(&Contender::Earlier) && self.earlier.is_none() {
            return Err(Error::Other("the server `earlier` needs its program: give --earlier FILE".to_owned()));
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
        let parsed = |options: &[&str]| Arguments::try_parse_from(["server"].iter().chain(options)).expect("it parses");
        parsed(&[]).check().expect("the defaults can be run");
        for (option, value) in [("nodes", "0"), ("clients", "0"), ("stall-ms", "1000"), ("seconds", "NaN")] {
            let error = parsed(&[&format!("--{option}"), value]).check().expect_err("refused").to_string();
            assert!(error.contains(&format!("--{option} ")), "{error}");
        }
        parsed(&["--server", "earlier"]).check().expect_err("it needs its program");
    }
}
