//! `tantalum bench ycsb`.

use std::{process::ExitCode, sync::Arc, time::Duration};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tantalum::Db;
use tantalum_workloads::{
    LoadProgress,
    ycsb::{Chooser, Mix, Parameters, Ycsb},
};

use super::{
    benchmark::{self, Benchmark, Common, Pipelining, Run, Running, RunningConfiguration},
    database::Database,
    documents, parse_bytes,
};
use crate::{error::Result, progress::Watch};

#[derive(Args, Clone)]
pub struct Arguments {
    /// The core workload.
    #[arg(long, value_enum, ignore_case = true, default_value_t = Mix::A)]
    workload: Mix,
    /// Which records are preferred. Default: what the workload is defined with.
    #[arg(long, value_enum)]
    distribution: Option<Chooser>,
    /// Records loaded.
    #[arg(long, default_value_t = 100_000)]
    records: u64,
    /// Fields of a record.
    #[arg(long, default_value_t = 10)]
    fields: u32,
    /// Bytes of a field.
    #[arg(long, default_value_t = 100)]
    field_bytes: u32,
    /// How much of a field, in percent, is random letters, 1 to 100. They are repeated to its end, so that it can be compressed.
    #[arg(long, value_name = "PERCENT", default_value_t = 100)]
    random_percent: u32,
    /// What is measured: engine, or append-only, a copy-on-write tree with one writer that appends each update and the nodes
    /// above it, as Couchbase does, for comparison: workloads A, B and C.
    #[arg(long, value_enum, default_value_t = Store::Engine)]
    store: Store,
    /// With append-only: updates from one flush to the next. What was put since may be lost in a crash. Default: 1.
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u64).range(1..))]
    batch_size: Option<u64>,
    /// With append-only: bytes of the file that is made for the tree, which never uses space again. Default: 1G.
    #[arg(long, value_name = "BYTES", value_parser = parse_bytes)]
    tree_bytes: Option<u64>,
    #[command(flatten)]
    pipelining: Pipelining,
    #[command(flatten)]
    running: Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    Engine,
    AppendOnly,
}

/// Loads the records if need be, and runs.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let load = arguments.parameters();
    let Arguments { workload: mix, distribution, store, batch_size, tree_bytes, ref running, .. } = arguments;
    match store {
        Store::AppendOnly if distribution.is_some() => {
            Err("--distribution is of the engine; --store append-only prefers records by Zipf's distribution"
                .to_owned()
                .into())
        }
        Store::AppendOnly => {
            let (batch_size, tree_bytes) = (batch_size.unwrap_or(1), tree_bytes.unwrap_or(1 << 30));
            documents::run(documents::Wanted { load, mix, batch_size, tree_bytes }, running.clone())
        }
        Store::Engine if batch_size.is_some() || tree_bytes.is_some() => {
            Err("--batch-size and --tree-bytes are of --store append-only".to_owned().into())
        }
        Store::Engine => benchmark::run(arguments),
    }
}

impl Arguments {
    fn parameters(&self) -> Parameters {
        let Self { records, fields, field_bytes, random_percent, .. } = *self;
        Parameters { records, fields, field_bytes, seed: self.running.common.seed, random_percent }
    }

    fn distribution(&self) -> Chooser {
        self.distribution.unwrap_or_else(|| self.workload.chooser())
    }
}

#[derive(Serialize)]
pub struct Configuration {
    parameters: Core,
    #[serde(flatten)]
    pipelining: Pipelining,
}

#[derive(Serialize)]
struct Core {
    #[serde(flatten)]
    load: Parameters,
    workload: Mix,
    distribution: Chooser,
}

impl Benchmark for Arguments {
    const NAME: &'static str = "ycsb";
    const CPU_PER_ATTEMPT: Duration = Duration::from_micros(20);
    type Loaded = Arc<Ycsb>;
    type Configuration = RunningConfiguration<Configuration>;
    type Measured = Run;

    fn common(&self) -> &Common {
        &self.running.common
    }

    fn title(&self) -> String {
        let (chooser, load, clients) = (self.distribution(), self.parameters(), self.running.clients());
        format!("YCSB workload {:?}, {chooser:?} choices, {load}, {clients}, {}", self.workload, self.pipelining)
    }

    fn check_arguments(&self) -> Result<()> {
        self.running.check()
    }

    fn configuration(&self, _database: &Database) -> Result<Self::Configuration> {
        let (load, workload, distribution) = (self.parameters(), self.workload, self.distribution());
        let parameters = Core { load, workload, distribution };
        Ok(self.running.configuration(Configuration { parameters, pipelining: self.pipelining }))
    }

    fn is_loaded(&self, db: &Db) -> Result<bool> {
        Ok(Ycsb::open(db)?.is_some())
    }

    fn load(&self, database: &Database, progress: &mut dyn FnMut(&LoadProgress)) -> Result<Arc<Ycsb>> {
        let ycsb = Ycsb::load_or_reuse(&database.db, self.parameters(), self.running.loaders, progress)?;
        let ycsb = ycsb.with_mix(self.workload).with_chooser(self.distribution());
        Ok(Arc::new(ycsb.with_async_depth(self.pipelining.async_depth as usize)))
    }

    fn measure(&self, ycsb: Arc<Ycsb>, watch: &Watch) -> Result<Run> {
        Ok(Run { tpmc: None, run: self.running.drive(&ycsb, Self::CPU_PER_ATTEMPT, watch)? })
    }
}
