//! One run, in a process of its own: so peaks of memory, caches and background threads of one engine are not another's.
//!
//! The process is this program again, with a hidden subcommand. It reads what to do from its arguments as JSON, and writes what came of
//! it as JSON, the only line on its standard output.

use std::{
    io::{self, Write},
    iter, thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use serde::{Deserialize, Serialize};
use tantalum_workloads::driver::Latency;

use crate::{
    clients::{self, Counted, Run},
    data::{Dataset, Key, key},
    engine::{Engine, Kind, Row, Setup},
    error::{Error, Result},
    meter::{Meter, load_average, peak_memory_bytes, space_bytes},
    page_cache::{self, Limit},
    workload::{Work, Workload, balance, set_balance},
};

/// The hidden subcommand.
pub const SUBCOMMAND: &str = "run-one";

/// What [`Task::Fill`] writes, and behind it how many transactions it has committed, when the log is as full as it should be.
pub const FILLED: &str = "filled by";

/// Of a load in transactions.
const ROWS_PER_TRANSACTION: usize = 1000;

/// In a load in transactions, of an engine that need not wait for each.
const TRANSACTIONS_UNDER_WAY: usize = 16;

/// What to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Job {
    /// By which engine.
    pub engine: Kind,
    /// How it is opened.
    pub setup: Setup,
    /// What the database holds.
    pub dataset: Dataset,
    /// The part of the comparison.
    pub task: Task,
    /// Of all choices.
    pub seed: u64,
    /// Whether what clients cost includes what the engine has put off when they end.
    pub drains: bool,
}

/// The parts of a comparison that are a process each.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Task {
    /// Loads the dataset into an empty database, and closes it.
    Load,
    /// Puts the dataset into an empty database in transactions of [`ROWS_PER_TRANSACTION`], and closes it.
    LoadInTransactions,
    /// Puts the dataset into an empty database in one transaction.
    PutAtOnce,
    /// Reads all rows of the dataset, of which none may be missing.
    Read,
    /// Clients work for some time.
    Clients {
        /// What they do.
        workload: Workload,
        /// How many; of the pipelined variant, how many commits one client has under way.
        clients: usize,
        /// Of the counted phase.
        seconds: f64,
    },
    /// Writes so many bytes of rows in transactions, tells of it, and waits to be killed.
    Fill(u64),
    /// Opens the database and reads its first row, where the last of so many transactions must have left its number.
    Reopen {
        /// What was acknowledged before the kill.
        committed: u64,
    },
}

/// What came of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Of the machine, when the process began.
    pub load_average: f64,
    /// What was counted. The operations of a load are rows.
    pub counted: Counted,
    /// What the files take on the device, after the database was closed.
    pub space_bytes: u64,
    /// The most memory that the process has had.
    pub peak_memory_bytes: u64,
}

/// Does it and writes the outcome.
///
/// # Errors
/// Of the engine or the system; an inconsistency that the engine has let happen.
pub fn run(json: &str) -> Result<()> {
    let unreadable = |error| Error::Other(format!("{SUBCOMMAND} is for this program itself: {error}"));
    let job: Job = serde_json::from_str(json).map_err(unreadable)?;
    let load_average = load_average()?;
    let directory = &job.setup.directory;
    let counted = match job.task {
        Task::Load => load(&job)?,
        Task::LoadInTransactions => load_in_transactions(&job)?,
        Task::PutAtOnce => put_at_once(&job)?,
        Task::Read => read(&job)?,
        Task::Clients { workload, clients, seconds } => work(&job, workload, clients, seconds)?,
        Task::Fill(bytes) => return fill(&job, bytes),
        Task::Reopen { committed } => reopen(&job, committed)?,
    };
    let (space_bytes, peak_memory_bytes) = (space_bytes(directory)?, peak_memory_bytes()?);
    let outcome = Outcome { load_average, counted, space_bytes, peak_memory_bytes };
    let line = serde_json::to_string(&outcome).map_err(|error| Error::Other(error.to_string()))?;
    say(&line)
}

fn say(line: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    written.map_err(|error| Error::Other(format!("cannot write to standard output: {error}")))
}

/// Something done once, of so many operations.
fn once(operations: u64, meter: &Meter, act: impl FnOnce() -> Result<()>) -> Result<Counted> {
    let (before, started) = (meter.read()?, Instant::now());
    act()?;
    let (elapsed, used) = (started.elapsed(), meter.read()?.since(&before));
    let latency = Latency::of_one(elapsed);
    Ok(Counted { seconds: elapsed.as_secs_f64(), operations, conflicts: 0, latency, used })
}

fn load(job: &Job) -> Result<Counted> {
    let meter = Meter::of(&job.setup.directory)?;
    let engine = job.engine.open(&job.setup)?;
    once(job.dataset.rows, &meter, || {
        engine.load(&mut job.dataset.load(job.seed))?;
        engine.close()
    })
}

fn load_in_transactions(job: &Job) -> Result<Counted> {
    let meter = Meter::of(&job.setup.directory)?;
    let engine = job.engine.open(&job.setup)?;
    once(job.dataset.rows, &meter, || {
        let mut rows = job.dataset.load(job.seed);
        let transactions = iter::from_fn(|| {
            let rows: Vec<_> = rows.by_ref().take(ROWS_PER_TRANSACTION).collect();
            (!rows.is_empty()).then_some(rows)
        });
        put_all(job.engine, &*engine, transactions)?;
        engine.close()
    })
}

fn borrowed(rows: &[(Key, Vec<u8>)]) -> Vec<Row<'_>> {
    rows.iter().map(|(key, value)| (&key[..], &value[..])).collect()
}

fn put_all(kind: Kind, engine: &dyn Engine, mut transactions: impl Iterator<Item = Vec<(Key, Vec<u8>)>>) -> Result<()> {
    if kind != Kind::TantalumPipelined {
        let mut session = engine.session()?;
        return transactions.try_for_each(|rows| session.put(&borrowed(&rows)));
    }
    let (mut pipeline, mut under_way) = (engine.pipeline().expect("the engine has one"), 0);
    for rows in transactions {
        pipeline.start(&borrowed(&rows))?;
        match under_way {
            TRANSACTIONS_UNDER_WAY => pipeline.finish_oldest()?,
            _ => under_way += 1,
        }
    }
    (0..under_way).try_for_each(|_| pipeline.finish_oldest())
}

/// The time is the commit's; what it costs includes what the engine does until it is closed.
fn put_at_once(job: &Job) -> Result<Counted> {
    let meter = Meter::of(&job.setup.directory)?;
    let engine = job.engine.open(&job.setup)?;
    let before = meter.read()?;
    let counted = once(job.dataset.rows, &meter, || engine.put_at_once(&mut job.dataset.load(job.seed)))?;
    engine.drain(&job.setup)?;
    Ok(Counted { used: meter.read()?.since(&before), ..counted })
}

fn read(job: &Job) -> Result<Counted> {
    let meter = Meter::of(&job.setup.directory)?;
    let engine = job.engine.open(&job.setup)?;
    let counted = once(job.dataset.rows, &meter, || read_all(&*engine, &job.dataset).map(drop))?;
    engine.close()?;
    Ok(counted)
}

fn work(job: &Job, workload: Workload, clients: usize, seconds: f64) -> Result<Counted> {
    /// Of the counted phase.
    const WARM_UP: f64 = 0.2;
    let meter = Meter::of(&job.setup.directory)?;
    let engine = job.engine.open(&job.setup)?;
    let work = Work::new(workload, job.dataset);
    let _limit = job.setup.is_cold.then(|| Limit::new(&job.setup.directory, job.setup.cache_bytes)).transpose()?;
    let is_database = job.engine.is_database();
    let before = (is_database && !workload.is_cold()).then(|| read_all(&*engine, &job.dataset)).transpose()?;
    if workload.writes() {
        engine.warm_log()?;
    }
    let run = Run {
        clients,
        is_pipelined: job.engine == Kind::TantalumPipelined,
        warm_up: Duration::from_secs_f64(seconds * WARM_UP),
        // Cold reads are of a full cache, which has the inner nodes. (Reading all rows would leave the last ones in it.)
        warm_up_bytes: if is_database && workload.is_cold() { job.setup.cache_bytes } else { 0 },
        measured: Duration::from_secs_f64(seconds),
        seed: job.seed,
    };
    let (engine, mut counted) = clients::run(engine, work, run, &meter)?;
    if matches!(workload, Workload::Transfer | Workload::TransferContended) {
        let after = read_all(&*engine, &job.dataset)?;
        if before != Some(after) {
            return Err(Error::Other(format!(
                "{}: the sum of all balances was {before:?} and is {after} after transfers: they were not serializable",
                job.engine.name()
            )));
        }
    }
    if !job.drains {
        engine.close()?;
        return Ok(counted);
    }
    let ended = meter.read()?;
    engine.drain(&job.setup)?;
    counted.used = counted.used.and(meter.read()?.since(&ended));
    Ok(counted)
}

/// Reads all rows, so that caches hold what they can, and gives the sum of their balances.
fn read_all(engine: &dyn Engine, dataset: &Dataset) -> Result<u64> {
    let (mut rows, mut sum) = (0, 0u64);
    engine.session()?.scan(&key(0), usize::MAX, &mut |_, value| {
        rows += 1;
        sum = sum.wrapping_add(balance(value));
    })?;
    if rows == dataset.rows {
        return Ok(sum);
    }
    Err(Error::Other(format!(
        "the database holds {rows} rows instead of {}; remove its directory, to load anew",
        dataset.rows
    )))
}

fn fill(job: &Job, bytes: u64) -> Result<()> {
    const ROWS: usize = 100;
    let engine = job.engine.open(&job.setup)?;
    let (mut session, mut random) = (engine.session()?, Rng::with_seed(job.seed));
    let (mut written, mut committed, mut value) = (0, 0u64, vec![0; job.dataset.value_bytes]);
    while written < bytes {
        committed += 1;
        random.fill(&mut value);
        set_balance(&mut value, |_| committed);
        // The first row always, so that it has the number of the last transaction.
        let mut keys: Vec<_> = (1..ROWS).map(|_| key(random.u64(0..job.dataset.rows))).collect();
        keys.push(key(0));
        let rows: Vec<Row<'_>> = keys.iter().map(|key| (&key[..], &value[..])).collect();
        session.put(&rows)?;
        written += rows.iter().map(|(key, value)| (key.len() + value.len()) as u64).sum::<u64>();
    }
    say(&format!("{FILLED} {committed}"))?;
    loop {
        // Until it is killed.
        thread::park();
    }
}

fn reopen(job: &Job, committed: u64) -> Result<Counted> {
    let meter = Meter::of(&job.setup.directory)?;
    // As after a power cut, nothing of the files is in memory.
    page_cache::empty(&job.setup.directory)?;
    let (mut opened, mut value) = (None, Vec::new());
    let counted = once(1, &meter, || {
        let engine = opened.insert(job.engine.open(&job.setup)?);
        engine.session()?.get(&key(0), &mut value).map(drop)
    })?;
    if balance(&value) != committed {
        return Err(Error::Other(format!(
            "{} has lost commits: {committed} were acknowledged before the kill, and the last that is there is number {}",
            job.engine.name(),
            balance(&value)
        )));
    }
    if let Some(engine) = opened {
        read_all(&*engine, &job.dataset)?;
        engine.close()?;
    }
    Ok(counted)
}
