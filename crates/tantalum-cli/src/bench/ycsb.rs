//! `tantalum bench ycsb`.

use std::{process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tantalum::Db;
use tantalum_workloads::{
    LoadProgress,
    ycsb::{Chooser, Mix, Parameters, Ycsb},
};

use super::{
    documents,
    operations::{self, Benchmark},
    parse_bytes,
};
use crate::error::Result;

#[derive(Args, Clone)]
pub struct Arguments {
    /// The core workload.
    #[arg(long, value_enum, ignore_case = true, default_value_t = MixName::A)]
    workload: MixName,
    /// Which records are preferred. Default: what the workload is defined with.
    #[arg(long, value_enum)]
    distribution: Option<ChooserName>,
    /// Records loaded.
    #[arg(long, default_value_t = 100_000)]
    records: u64,
    /// Fields of a record.
    #[arg(long, default_value_t = 10)]
    fields: u32,
    /// Bytes of a field.
    #[arg(long, default_value_t = 100)]
    field_bytes: u32,
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
    operations: operations::Running,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Store {
    Engine,
    AppendOnly,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum MixName {
    /// 50 % reads, 50 % updates.
    A,
    /// 95 % reads, 5 % updates.
    B,
    /// Reads only.
    C,
    /// 95 % reads of the latest records, 5 % inserts.
    D,
    /// 95 % scans of up to 100 records, 5 % inserts.
    E,
    /// 50 % reads, 50 % read-modify-writes.
    F,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ChooserName {
    /// A few favourites, by Zipf's distribution.
    Zipfian,
    /// Those that were inserted last.
    Latest,
    /// All alike.
    Uniform,
}

impl From<MixName> for Mix {
    fn from(name: MixName) -> Self {
        match name {
            MixName::A => Self::A,
            MixName::B => Self::B,
            MixName::C => Self::C,
            MixName::D => Self::D,
            MixName::E => Self::E,
            MixName::F => Self::F,
        }
    }
}

impl From<ChooserName> for Chooser {
    fn from(name: ChooserName) -> Self {
        match name {
            ChooserName::Zipfian => Self::Zipfian,
            ChooserName::Latest => Self::Latest,
            ChooserName::Uniform => Self::Uniform,
        }
    }
}

/// Loads the records if need be, and runs.
pub fn run(arguments: Arguments) -> Result<ExitCode> {
    let Arguments { workload, distribution, records, fields, field_bytes, store, batch_size, tree_bytes, operations } =
        arguments;
    let mix = Mix::from(workload);
    let load = Parameters { records, fields, field_bytes, seed: operations.seed };
    if store == Store::AppendOnly {
        if distribution.is_some() {
            return Err("--distribution is of the engine; --store append-only prefers records by Zipf's distribution"
                .to_owned()
                .into());
        }
        let (batch_size, tree_bytes) = (batch_size.unwrap_or(1), tree_bytes.unwrap_or(1 << 30));
        return documents::run(documents::Wanted { load, mix, batch_size, tree_bytes }, operations);
    }
    if batch_size.is_some() || tree_bytes.is_some() {
        return Err("--batch-size and --tree-bytes are of --store append-only".to_owned().into());
    }
    let chooser = distribution.map_or(mix.chooser(), Chooser::from);
    operations::run(Core { load, workload: mix, distribution: chooser }, operations)
}

#[derive(Clone, Copy, Serialize)]
struct Core {
    #[serde(flatten)]
    load: Parameters,
    workload: Mix,
    distribution: Chooser,
}

impl Benchmark for Core {
    type Workload = Ycsb;
    type Parameters = Self;

    const NAME: &'static str = "ycsb";
    const CPU_PER_ATTEMPT: Duration = Duration::from_micros(20);

    fn title(&self) -> String {
        format!("YCSB workload {:?}, {:?} choices, {}", self.workload, self.distribution, self.load)
    }

    fn parameters(&self) -> Self {
        *self
    }

    fn is_loaded(&self, db: &Db) -> Result<bool> {
        Ok(Ycsb::open(db)?.is_some())
    }

    fn load(
        &self,
        db: &Db,
        loaders: usize,
        async_depth: usize,
        progress: &mut dyn FnMut(&LoadProgress),
    ) -> Result<Ycsb> {
        let ycsb = Ycsb::load_or_reuse(db, self.load, loaders, progress)?;
        Ok(ycsb.with_mix(self.workload).with_chooser(self.distribution).with_async_depth(async_depth))
    }
}
