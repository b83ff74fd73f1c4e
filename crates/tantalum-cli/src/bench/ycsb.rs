//! `tantalum bench ycsb`.

use std::{process::ExitCode, time::Duration};

use clap::{Args, ValueEnum};
use serde::Serialize;
use tantalum::Db;
use tantalum_workloads::{
    LoadProgress,
    ycsb::{Chooser, Mix, Parameters, Ycsb},
};

use super::operations::{self, Benchmark};
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
    #[command(flatten)]
    operations: operations::Running,
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
    let Arguments { workload, distribution, records, fields, field_bytes, operations } = arguments;
    let mix = Mix::from(workload);
    let chooser = distribution.map_or(mix.chooser(), Chooser::from);
    let load = Parameters { records, fields, field_bytes, seed: operations.seed };
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
