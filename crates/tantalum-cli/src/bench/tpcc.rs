//! `tantalum bench tpcc`.

use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader, ErrorKind, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::Args;
use serde::Serialize;
use tantalum::Db;
use tantalum_workloads::{
    Condition, LoadProgress,
    tpcc::{Kind, Mix, Observer, Output, Parameters, Reads, Scale, Tpcc, consistency},
};

use super::{
    benchmark::{Benchmark, Common, Run, Running, RunningConfiguration},
    database::Database,
};
use crate::{
    error::{Error, Result},
    progress::Watch,
};

#[derive(Args, Clone)]
pub struct Arguments {
    /// Warehouses; each takes about 100 MB. Each client is a terminal of one of them.
    #[arg(long, default_value_t = 1)]
    warehouses: u32,
    /// Which transactions come how often.
    #[arg(long, value_enum, default_value_t = Mix::Normal)]
    mix: Mix,
    /// How order-status and stock-level read.
    #[arg(long, value_enum, default_value_t = Reads::Snapshot)]
    reads: Reads,
    /// Read each row of an order when it comes to it, instead of prefetching those that are known from the beginning.
    #[arg(long)]
    no_prefetch: bool,
    /// Append every acknowledged order to this file. Those that stand in it already are looked for first: none may be
    /// lost, also if the last run was killed.
    #[arg(long, value_name = "FILE", requires = "dir")]
    acknowledged: Option<PathBuf>,
    /// A database of some hundred rows: for tests.
    #[arg(long, hide = true)]
    tiny: bool,
    #[command(flatten)]
    running: Running,
}

#[derive(Serialize)]
pub struct Configuration {
    parameters: Parameters,
    mix: Mix,
    reads: Reads,
    /// Whether rows that a transaction knows from the beginning are prefetched.
    prefetch: bool,
}

impl Arguments {
    fn parameters(&self) -> Parameters {
        let scale = if self.tiny { Scale::tiny() } else { Scale::full() };
        Parameters { warehouses: self.warehouses, scale, seed: self.running.common.seed }
    }
}

impl Benchmark for Arguments {
    const NAME: &'static str = "tpcc";
    const CPU_PER_ATTEMPT: Duration = Duration::from_micros(100);
    type Loaded = Arc<Tpcc>;
    type Configuration = RunningConfiguration<Configuration>;
    type Measured = Run;

    fn common(&self) -> &Common {
        &self.running.common
    }

    fn title(&self) -> String {
        let Self { mix, reads, running, .. } = self;
        let (parameters, clients) = (self.parameters(), running.clients());
        format!("TPC-C, {parameters}, {clients}, no think time, mix {mix:?}, reads by {reads:?}")
    }

    fn check_arguments(&self) -> Result<()> {
        self.running.check()
    }

    fn configuration(&self, _database: &Database) -> Result<Self::Configuration> {
        let (parameters, mix, reads, prefetch) = (self.parameters(), self.mix, self.reads, !self.no_prefetch);
        Ok(self.running.configuration(Configuration { parameters, mix, reads, prefetch }))
    }

    fn is_loaded(&self, db: &Db) -> Result<bool> {
        Ok(Tpcc::open(db)?.is_some())
    }

    fn load(&self, database: &Database, progress: &mut dyn FnMut(&LoadProgress)) -> Result<Arc<Tpcc>> {
        let tpcc = Tpcc::load_or_reuse(&database.db, self.parameters(), self.running.loaders, progress)?;
        let mut tpcc = tpcc.with_mix(self.mix).with_reads(self.reads).with_prefetching(!self.no_prefetch);
        if let Some(path) = &self.acknowledged {
            eprintln!("{} orders acknowledged before are all there", check_acknowledged(path, &tpcc)?);
            tpcc = tpcc.with_observer(record_acknowledged(path)?);
        }
        Ok(Arc::new(tpcc))
    }

    fn measure(&self, tpcc: Arc<Tpcc>, watch: &Watch) -> Result<Run> {
        let run = self.running.drive(&tpcc, Self::CPU_PER_ATTEMPT, watch)?;
        Ok(Run { tpmc: Some(run.kinds[Kind::NewOrder as usize].per_second * 60.0), run })
    }

    fn check(&self, db: &Db) -> Result<Vec<Condition>> {
        Ok(consistency::check(db)?)
    }
}

/// Checks that all orders of the file are in the database, and gives their number. A file that does not exist yet
/// has none; a last line without its end was being written when the process died, and counts for nothing.
fn check_acknowledged(path: &Path, tpcc: &Tpcc) -> Result<u64> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(0),
        Err(error) => return Err(Error::file("open", path, error)),
    };
    let (mut reader, mut line, mut count) = (BufReader::new(file), String::new(), 0);
    while reader.read_line(&mut line).map_err(|error| Error::file("read", path, error))? > 0 {
        if line.ends_with('\n') {
            count += 1;
            let (w, d, o) =
                parse(&line).ok_or_else(|| Error::file("read", path, format!("line {count} is no order")))?;
            if !tpcc.has_order(w, d, o)? {
                return Err(Error::Other(format!(
                    "order {o} of district {d}, warehouse {w} was acknowledged ({}:{count}) and is not there",
                    path.display()
                )));
            }
        }
        line.clear();
    }
    Ok(count)
}

/// Appends each acknowledged order to the file, in one call each: what the system has taken survives the process.
fn record_acknowledged(path: &Path) -> Result<Observer> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    let file = file.map_err(|error| Error::file("open", path, error))?;
    let path = path.to_owned();
    Ok(Box::new(move |output| {
        let Output::NewOrder { warehouse, district, order, .. } = output else { return };
        let line = format!("{warehouse} {district} {order}\n");
        if let Err(error) = (&file).write_all(line.as_bytes()) {
            eprintln!("cannot write to {}: {error}", path.display());
        }
    }))
}

fn parse(line: &str) -> Option<(u32, u8, u32)> {
    let mut numbers = line.split_whitespace();
    let order = (numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?);
    numbers.next().is_none().then_some(order)
}

#[cfg(test)]
mod tests {
    use super::parse;

    #[test]
    fn lines() {
        assert_eq!(parse("1 2 3001\n"), Some((1, 2, 3001)));
        for bad in ["", "1 2", "1 2 x", "1 2 3 4", "1 256 3"] {
            assert_eq!(parse(bad), None, "{bad}");
        }
    }
}
