//! `tantalum bench linkbench`.

use std::{process::ExitCode, time::Duration};

use clap::Args;
use tantalum::Db;
use tantalum_workloads::{
    Condition, LoadProgress,
    linkbench::{LinkBench, Parameters, consistency},
};

use super::operations::{self, Benchmark};
use crate::error::Result;

#[derive(Args, Clone)]
pub struct Arguments {
    /// Nodes of the graph; each takes about 1 KB with its links.
    #[arg(long, default_value_t = 100_000)]
    nodes: u64,
    #[command(flatten)]
    operations: operations::Running,
}

/// Loads the graph if need be, runs, checks its lists and counts.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { nodes, operations } = arguments;
    operations::run(Graph(Parameters { nodes, seed: operations.seed }), operations)
}

#[derive(Clone, Copy)]
struct Graph(Parameters);

impl Benchmark for Graph {
    type Workload = LinkBench;
    type Parameters = Parameters;

    const NAME: &'static str = "linkbench";
    const CPU_PER_ATTEMPT: Duration = Duration::from_micros(30);

    fn title(&self) -> String {
        format!("LinkBench, {}", self.0)
    }

    fn parameters(&self) -> Parameters {
        self.0
    }

    fn is_loaded(&self, db: &Db) -> Result<bool> {
        Ok(LinkBench::open(db)?.is_some())
    }

    fn load(
        &self,
        db: &Db,
        loaders: usize,
        async_depth: usize,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<LinkBench> {
        Ok(LinkBench::load_or_reuse(db, self.0, loaders, progress)?.with_async_depth(async_depth))
    }

    fn check(&self, db: &Db) -> Result<Vec<Condition>> {
        Ok(consistency::check(db)?)
    }
}
