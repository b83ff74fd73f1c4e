//! Clients on threads of their own, and what they see while it is counted.
//!
//! A run has three phases: clients warm up, are counted, and end what they have begun. Meters are read at both ends of the
//! counted phase. Waiting and time are the standard library's and not `tantalum-rt`'s: most engines here know no simulation.

use std::{
    collections::VecDeque,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU8, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use fastrand::Rng;
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{
    engine::Engine,
    error::{Error, Result},
    meter::{Meter, Used},
    workload::{Client, Work},
};

/// How long and by how many.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// Threads; with `is_pipelined` one thread with so many commits under way.
    pub clients: usize,
    /// Whether one thread does it all.
    pub is_pipelined: bool,
    /// Not counted, ...
    pub warm_up: Duration,
    /// ... and longer, until the process has fetched so many bytes from the device, but at most [`LONGEST_WARM_UP`].
    pub warm_up_bytes: u64,
    /// Counted.
    pub measured: Duration,
    /// Of the clients' choices.
    pub seed: u64,
}

/// How long a warm-up may take that waits for a cache to be full: it may be larger than what there is to fetch.
pub const LONGEST_WARM_UP: Duration = Duration::from_secs(60);

/// What was counted.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Counted {
    /// Of the counted phase.
    pub seconds: f64,
    /// That ended in it: transactions, reads or scans.
    pub operations: u64,
    /// Attempts that lost a conflict and were made again.
    pub conflicts: u64,
    /// From the first attempt to the end.
    pub latency: Latency,
    /// By the process and the device.
    pub used: Used,
}

/// Percentiles in microseconds, exact to one thousandth.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Latency {
    /// Median.
    pub p50_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p999_us: f64,
    /// The slowest.
    pub max_us: f64,
}

impl Latency {
    fn of(histogram_ns: &Histogram<u64>) -> Self {
        let at = |quantile| histogram_ns.value_at_quantile(quantile) as f64 / 1e3;
        Self { p50_us: at(0.5), p99_us: at(0.99), p999_us: at(0.999), max_us: histogram_ns.max() as f64 / 1e3 }
    }
}

const WARMING: u8 = 0;
const COUNTING: u8 = 1;
const ENDING: u8 = 2;

struct Shared {
    phase: AtomicU8,
    /// The first error of a client.
    error: Mutex<Option<Error>>,
}

impl Shared {
    fn is_counting(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == COUNTING
    }

    fn is_ending(&self) -> bool {
        self.phase.load(Ordering::Relaxed) == ENDING
    }

    fn fail(&self, error: Error) {
        self.phase.store(ENDING, Ordering::Relaxed);
        self.error.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Longer latencies are counted as this, which bounds the memory of a histogram.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// What one client saw.
struct Seen {
    operations: u64,
    conflicts: u64,
    latency_ns: Histogram<u64>,
}

impl Seen {
    fn new() -> Self {
        let latency_ns = Histogram::new(3).expect("three significant digits are possible");
        Self { operations: 0, conflicts: 0, latency_ns }
    }

    fn ended(&mut self, shared: &Shared, started: Instant) {
        if shared.is_counting() {
            self.operations += 1;
            let elapsed_ns = u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX);
            self.latency_ns.record(elapsed_ns.min(LONGEST_NS)).expect("a histogram that resizes itself takes an hour");
        }
    }

    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.conflicts += other.conflicts;
        self.latency_ns.add(&other.latency_ns).expect("a histogram that resizes itself takes every value");
    }
}

/// Runs the work on an open engine. The first error of a client ends the run.
///
/// # Errors
/// Of the engine, or of a meter.
pub fn run(engine: &dyn Engine, work: &Work, run: Run, meter: &Meter) -> Result<Counted> {
    let shared = Shared { phase: AtomicU8::new(WARMING), error: Mutex::new(None) };
    let threads = if run.is_pipelined { 1 } else { run.clients };
    let client = |number: usize| {
        let mut seen = Seen::new();
        let random = Rng::with_seed(run.seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number as u64));
        let worked = match run.is_pipelined {
            true => keep_under_way(engine, work, random, run.clients, &shared, &mut seen),
            false => one_by_one(engine, work, random, &shared, &mut seen),
        };
        worked.unwrap_or_else(|error| shared.fail(error));
        seen
    };
    let (seen, seconds, used) = thread::scope(|scope| {
        let mut spawned = Vec::new();
        for number in 0..threads {
            let client = &client;
            let body = move || client(number);
            match thread::Builder::new().name(format!("client-{number}")).spawn_scoped(scope, body) {
                Ok(handle) => spawned.push(handle),
                Err(error) => shared.fail(Error::Other(format!(
                    "cannot start client {number} of {threads}: {error}; raise the limit of processes (ulimit -u), or ask for fewer clients"
                ))),
            }
        }
        let warmed = warm_up(&run, meter, &shared);
        warmed.unwrap_or_else(|error| shared.fail(error));
        let (before, started) = (meter.read(), Instant::now());
        // A client or meter that failed meanwhile has ended the run.
        let _ = shared.phase.compare_exchange(WARMING, COUNTING, Ordering::Relaxed, Ordering::Relaxed);
        let end = started + run.measured;
        while !shared.is_ending() && Instant::now() < end {
            const LOOK: Duration = Duration::from_millis(50);
            thread::sleep(LOOK.min(end.saturating_duration_since(Instant::now())));
        }
        shared.phase.store(ENDING, Ordering::Relaxed);
        let seconds = started.elapsed().as_secs_f64();
        let used = before.and_then(|before| Ok(meter.read()?.since(&before)));
        let mut total = Seen::new();
        for handle in spawned {
            match handle.join() {
                Ok(seen) => total.add(&seen),
                Err(_) => shared.fail(Error::Other("a client panicked; the message is above".to_owned())),
            }
        }
        (total, seconds, used)
    });
    if let Some(error) = shared.error.into_inner().unwrap_or_else(PoisonError::into_inner) {
        return Err(error);
    }
    let Seen { operations, conflicts, latency_ns } = seen;
    Ok(Counted { seconds, operations, conflicts, latency: Latency::of(&latency_ns), used: used? })
}

/// Lets the clients run uncounted.
fn warm_up(run: &Run, meter: &Meter, shared: &Shared) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(10);
    let (before, end) = (meter.read()?, Instant::now() + LONGEST_WARM_UP);
    thread::sleep(run.warm_up);
    while !shared.is_ending()
        && Instant::now() < end
        && meter.read()?.since(&before).process_read_bytes < run.warm_up_bytes
    {
        thread::sleep(LOOK);
    }
    Ok(())
}

fn one_by_one(engine: &dyn Engine, work: &Work, random: Rng, shared: &Shared, seen: &mut Seen) -> Result<()> {
    let mut session = engine.session()?;
    let mut client = Client::new(work, random);
    while !shared.is_ending() {
        client.choose();
        let (started, mut tries) = (Instant::now(), 0);
        loop {
            match client.act(&mut *session) {
                Ok(()) => break seen.ended(shared, started),
                Err(Error::Conflict) if shared.is_ending() => break,
                Err(Error::Conflict) => {
                    seen.conflicts += u64::from(shared.is_counting());
                    client.back_off(tries);
                    tries += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn keep_under_way(
    engine: &dyn Engine,
    work: &Work,
    random: Rng,
    depth: usize,
    shared: &Shared,
    seen: &mut Seen,
) -> Result<()> {
    let cannot = || Error::Other("the engine cannot keep several commits of one thread under way".to_owned());
    let mut pipeline = engine.pipeline().ok_or_else(cannot)?;
    let mut client = Client::new(work, random);
    let mut under_way = VecDeque::new();
    loop {
        let is_ending = shared.is_ending();
        if !is_ending {
            client.choose();
            let started = Instant::now();
            client.start(&mut *pipeline)?;
            under_way.push_back(started);
        }
        if is_ending || under_way.len() >= depth {
            let Some(started) = under_way.pop_front() else { return Ok(()) };
            pipeline.finish_oldest()?;
            seen.ended(shared, started);
        }
    }
}
