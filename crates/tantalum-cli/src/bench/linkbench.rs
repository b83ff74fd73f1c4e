//! `tantalum bench linkbench`.

use std::{sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum::Db;
use tantalum_workloads::{
    Condition, LoadProgress,
    linkbench::{LinkBench, Parameters, consistency},
};

use super::{
    benchmark::{Benchmark, Common, Pipelining, Run, Running, RunningConfiguration},
    database::Database,
};
use crate::{error::Result, progress::Watch};

#[derive(Args, Clone)]
pub struct Arguments {
    /// Nodes of the graph; each takes about 1 KB with its links.
    #[arg(long, default_value_t = 100_000)]
    nodes: u64,
    #[command(flatten)]
    pipelining: Pipelining,
    #[command(flatten)]
    running: Running,
}

#[derive(Serialize)]
pub struct Configuration {
    parameters: Parameters,
    #[serde(flatten)]
    pipelining: Pipelining,
}

impl Arguments {
    fn parameters(&self) -> Parameters {
        Parameters { nodes: self.nodes, seed: self.running.common.seed }
    }
}

impl Benchmark for Arguments {
    const NAME: &'static str = "linkbench";
    const CPU_PER_ATTEMPT: Duration = Duration::from_micros(30);
    type Loaded = Arc<LinkBench>;
    type Configuration = RunningConfiguration<Configuration>;
    type Measured = Run;

    fn common(&self) -> &Common {
        &self.running.common
    }

    fn title(&self) -> String {
        format!("LinkBench, {}, {}, {}", self.parameters(), self.running.clients(), self.pipelining)
    }

    fn check_arguments(&self) -> Result<()> {
        self.running.check()
    }

    fn configuration(&self, _database: &Database) -> Result<Self::Configuration> {
        let (parameters, pipelining) = (self.parameters(), self.pipelining);
        Ok(self.running.configuration(Configuration { parameters, pipelining }))
    }

    fn is_loaded(&self, db: &Db) -> Result<bool> {
        Ok(LinkBench::open(db)?.is_some())
    }

    fn load(&self, database: &Database, progress: &mut dyn FnMut(&LoadProgress)) -> Result<Arc<LinkBench>> {
        let graph = LinkBench::load_or_reuse(&database.db, self.parameters(), self.running.loaders, progress)?;
        Ok(Arc::new(graph.with_async_depth(self.pipelining.async_depth as usize)))
    }

    fn measure(&self, graph: Arc<LinkBench>, watch: &Watch) -> Result<Run> {
        Ok(Run { tpmc: None, run: self.running.drive(&graph, Self::CPU_PER_ATTEMPT, watch)? })
    }

    fn check(&self, db: &Db) -> Result<Vec<Condition>> {
        Ok(consistency::check(db)?)
    }
}
