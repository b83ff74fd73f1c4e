//! The one driver of benchmarks: clients as tasks, each doing one transaction after the other, measured.
//!
//! Works the same on real threads and inside a simulation. Transactions that end before the warm-up is over, or after
//! the run was told to stop, happen but are not counted.

mod pipeline;
mod recorder;
mod report;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tantalum_rt::{Instant, Random, now};

use crate::error::Result;
use crate::tasks;

pub use pipeline::Pipeline;
pub use recorder::{Completed, Recorder};
pub use report::{KindReport, Latency, RunReport, median};

/// Something that clients do again and again.
pub trait Workload: Send + Sync + 'static {
    /// What one client keeps between its transactions; it stays in the client's task.
    type Client<'a>
    where
        Self: 'a;

    /// The names of its types of transaction.
    fn kinds(&self) -> &'static [&'static str];

    /// The client with this number, from 0. `seed` is the run's.
    fn client(&self, number: usize, seed: u64) -> Result<Self::Client<'_>>;

    /// Does one transaction, or starts it, and tells the recorder of each that ended.
    fn step(&self, client: &mut Self::Client<'_>, recorder: &mut Recorder) -> Result<()>;

    /// Waits for what [`step`](Self::step) left under way.
    fn finish(&self, _client: &mut Self::Client<'_>, _recorder: &mut Recorder) -> Result<()> {
        Ok(())
    }
}

/// The random numbers of one client of a run.
pub fn client_random(seed: u64, number: usize) -> Random {
    Random::with_seed(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number as u64))
}

/// How long and by how many a workload is run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Clients at the same time.
    pub clients: usize,
    /// When they stop.
    pub limit: Limit,
    /// Seeds the clients' choices.
    pub seed: u64,
    /// What each attempt at a transaction is charged at its begin, by [`tantalum_rt::work`]: in a simulation the time
    /// that it takes one of the virtual cores; elsewhere nothing, as the real work takes its own time.
    pub cpu_per_attempt: Duration,
    /// What the client of a server waits for the network before each attempt at a transaction: the time of a round trip. Zero for
    /// a client in the engine's process.
    pub round_trip: Duration,
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After `warm_up`, which is not counted, and `measured`.
    Time {
        /// Before counting starts.
        warm_up: Duration,
        /// While counting.
        measured: Duration,
    },
    /// After this many steps of each client, all counted.
    Steps(u64),
}

impl Options {
    /// A run over time.
    pub fn timed(clients: usize, warm_up: Duration, measured: Duration) -> Self {
        Self::until(clients, Limit::Time { warm_up, measured })
    }

    /// A run of `steps` transactions by each client.
    pub fn transactions(clients: usize, steps: u64) -> Self {
        Self::until(clients, Limit::Steps(steps))
    }

    fn until(clients: usize, limit: Limit) -> Self {
        Self { clients, limit, seed: 1, cpu_per_attempt: Duration::ZERO, round_trip: Duration::ZERO }
    }

    /// With other choices of the clients.
    pub fn with_seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    /// With each attempt charged so much time of a virtual core.
    pub fn with_cpu_per_attempt(self, cpu_per_attempt: Duration) -> Self {
        Self { cpu_per_attempt, ..self }
    }

    /// With clients that are so far from the server.
    pub fn with_round_trip(self, round_trip: Duration) -> Self {
        Self { round_trip, ..self }
    }
}

/// What a run tells while it is under way, about once a second.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Since counting started; zero while warming up.
    pub elapsed: Duration,
    /// The whole time to be counted, if the run is over time.
    pub total: Option<Duration>,
    /// Transactions committed so far, for each kind.
    pub committed: Vec<u64>,
    /// Attempts aborted by the engine so far.
    pub aborted: u64,
}

/// What is measured beside the clients of a run over time. The driver calls it from its own task.
pub trait Monitor {
    /// Whether counting may begin: asked when the time of the warm-up is over, and then again and again.
    fn is_warm(&mut self) -> bool {
        true
    }

    /// Whether a run over time ends before its time.
    fn is_over(&mut self) -> bool {
        false
    }

    /// Counting begins.
    fn begin(&mut self) {}

    /// Counting has ended. Not called if a client fails before.
    fn end(&mut self) {}

    /// How far the run is.
    fn progress(&mut self, _progress: &Progress) {}
}

/// Only shows progress.
struct Shown<'a>(&'a mut dyn FnMut(&Progress));

impl Monitor for Shown<'_> {
    fn progress(&mut self, progress: &Progress) {
        (self.0)(progress);
    }
}

/// What clients and the run share.
struct Shared {
    is_counting: AtomicBool,
    is_stopping: AtomicBool,
    clients: Vec<ClientProgress>,
}

/// What one client has done so far, on cache lines of its own: a line that goes from core to core takes longer than the fastest
/// operations.
#[repr(align(128))]
#[derive(Default)]
struct ClientProgress {
    committed: [AtomicU64; MOST_KINDS],
    aborted: AtomicU64,
}

/// Kinds of transaction that a workload may have.
const MOST_KINDS: usize = 15;

const TICK: Duration = Duration::from_millis(500);

/// Runs a workload. The first error of a client stops all and is returned.
pub fn run<W: Workload>(workload: &Arc<W>, options: Options, progress: &mut dyn FnMut(&Progress)) -> Result<RunReport> {
    run_monitored(workload, options, &mut Shown(progress))
}

/// As [`run`], with more than progress measured beside the clients.
pub fn run_monitored<W: Workload>(workload: &Arc<W>, options: Options, monitor: &mut dyn Monitor) -> Result<RunReport> {
    let kinds = workload.kinds();
    assert!(kinds.len() <= MOST_KINDS, "{} kinds of transaction", kinds.len());
    let mut clock = Clock::start(options.limit, monitor);
    let shared = Arc::new(Shared {
        // Without a warm-up, not even the first transaction goes uncounted.
        is_counting: AtomicBool::new(clock.counting_since.is_some()),
        is_stopping: AtomicBool::new(false),
        clients: (0..options.clients).map(|_| ClientProgress::default()).collect(),
    });
    let client = |number: usize| {
        let (workload, shared) = (workload.clone(), shared.clone());
        (format!("client {number}"), move || run_client(&*workload, number, options, shared))
    };
    let mut tick = || {
        let next = clock.tick(&shared, monitor);
        monitor.progress(&clock.progress(&shared, kinds.len()));
        next
    };
    let recorders = tasks::run_all((0..options.clients).map(client).collect(), &mut tick)?;
    let since = clock.counting_since.unwrap_or(clock.started);
    let measured = clock.stopped.unwrap_or_else(now).duration_since(since);
    Ok(RunReport::new(kinds, options.clients, measured, &recorders))
}

fn run_client<W: Workload>(workload: &W, number: usize, options: Options, shared: Arc<Shared>) -> Result<Recorder> {
    let stop_all = shared.clone();
    let mut recorder = Recorder::new(workload.kinds().len(), shared.clone(), &options, number);
    let mut work = || {
        let mut client = workload.client(number, options.seed)?;
        let mut steps = 0;
        while !shared.is_stopping.load(Ordering::Relaxed) && options.limit != Limit::Steps(steps) {
            workload.step(&mut client, &mut recorder)?;
            steps += 1;
        }
        workload.finish(&mut client, &mut recorder)
    };
    work().inspect_err(|_| stop_all.is_stopping.store(true, Ordering::Relaxed))?;
    Ok(recorder)
}

/// Starts and stops the counting.
struct Clock {
    started: Instant,
    counting_since: Option<Instant>,
    stopped: Option<Instant>,
    limit: Limit,
}

impl Clock {
    fn start(limit: Limit, monitor: &mut dyn Monitor) -> Self {
        let has_warm_up = match limit {
            Limit::Time { warm_up, .. } => !warm_up.is_zero() || !monitor.is_warm(),
            Limit::Steps(_) => false,
        };
        if !has_warm_up {
            monitor.begin();
        }
        let started = now();
        Self { started, counting_since: (!has_warm_up).then_some(started), stopped: None, limit }
    }

    /// Does what is due, and gives the time until it must be asked again.
    fn tick(&mut self, shared: &Shared, monitor: &mut dyn Monitor) -> Duration {
        const UNTIL_WARM: Duration = Duration::from_millis(10);
        let Limit::Time { warm_up, measured } = self.limit else { return TICK };
        let is_over = monitor.is_over();
        let Some(since) = self.counting_since else {
            let left = warm_up.saturating_sub(self.started.elapsed());
            if !left.is_zero() && !is_over {
                return left.min(TICK);
            }
            if !monitor.is_warm() && !is_over {
                return UNTIL_WARM;
            }
            monitor.begin();
            self.counting_since = Some(now());
            shared.is_counting.store(true, Ordering::Relaxed);
            return measured.min(TICK);
        };
        let left = measured.saturating_sub(since.elapsed());
        if !left.is_zero() && !is_over {
            return left.min(TICK);
        }
        if self.stopped.is_none() {
            shared.is_counting.store(false, Ordering::Relaxed);
            self.stopped = Some(now());
            shared.is_stopping.store(true, Ordering::Relaxed);
            monitor.end();
        }
        TICK
    }

    fn progress(&self, shared: &Shared, kinds: usize) -> Progress {
        let sum = |count: &dyn Fn(&ClientProgress) -> &AtomicU64| {
            shared.clients.iter().map(|client| count(client).load(Ordering::Relaxed)).sum()
        };
        Progress {
            elapsed: self.counting_since.map(|since| since.elapsed()).unwrap_or_default(),
            total: match self.limit {
                Limit::Time { measured, .. } => Some(measured),
                Limit::Steps(_) => None,
            },
            committed: (0..kinds).map(|kind| sum(&|client| &client.committed[kind])).collect(),
            aborted: sum(&|client| &client.aborted),
        }
    }
}

#[cfg(test)]
mod tests;
