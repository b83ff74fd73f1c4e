//! What the supervisors of worker processes share: seeds still to run, results, and since when each worker has been at its seed.

use std::{collections::BTreeMap, io, process::Child, sync::Arc, time::Duration};

use tantalum_crash::{Failure, Report};
use tantalum_rt::{Instant, Mutex, now};

use super::{Seeds, worker::processor_time};

/// Seeds that one process runs: each power cut leaks memory, and the process's end gives it back.
const BATCH: u64 = 25;
/// Processor time after which a seed that is not done hangs. Seeds take well under a second.
const HANG_PROCESSOR_TIME: Duration = Duration::from_secs(60);
/// Real time after which it hangs although it has used little of a processor: it waits for something. Long, because beside
/// other work a worker may get a small share of the processors.
const HANG_TIME: Duration = Duration::from_secs(1800);

/// Shared by all supervisors.
pub struct Board {
    state: Mutex<State>,
}

struct State {
    seeds: Seeds,
    failures_max: usize,
    total: Total,
    /// Seeds that were run or left out.
    done: u64,
    running: BTreeMap<u32, Running>,
}

/// Everything that workers have found.
#[derive(Clone, Default)]
pub struct Total {
    pub report: Report,
    /// In the order of their seeds, when it is the result.
    pub failures: Vec<Failure>,
    /// Processor time.
    pub cpu: Duration,
}

struct Running {
    child: Arc<Mutex<Child>>,
    /// When it began its seed.
    since: Instant,
    /// The processor time that it had used by then.
    used: Duration,
    is_killed: bool,
}

impl Board {
    pub fn new(seeds: Seeds, failures_max: usize) -> Self {
        let (total, running) = (Total::default(), BTreeMap::new());
        Self { state: Mutex::new(State { seeds, failures_max, total, done: 0, running }) }
    }

    /// The next seeds for a worker; none when all are given out or too many failed.
    pub fn next_batch(&self) -> Option<Seeds> {
        let mut state = self.state.lock();
        let Seeds { from, to } = state.seeds;
        if from == to || state.total.failures.len() >= state.failures_max {
            return None;
        }
        let batch = Seeds { from, to: to.min(from.saturating_add(BATCH)) };
        state.seeds.from = batch.to;
        Some(batch)
    }

    /// A worker started on its first seed.
    pub fn started(&self, child: Child) -> (u32, Arc<Mutex<Child>>) {
        let (id, child) = (child.id(), Arc::new(Mutex::new(child)));
        let running = Running { child: Arc::clone(&child), since: now(), used: Duration::ZERO, is_killed: false };
        self.state.lock().running.insert(id, running);
        (id, child)
    }

    /// A worker is done with a seed, and has used `cpu` of a processor for it and those before it.
    pub fn seed_done(&self, worker: u32, result: Result<Report, Failure>, cpu: Duration) {
        let mut state = self.state.lock();
        state.done += 1;
        match result {
            Ok(report) => state.total.report.add(&report),
            Err(failure) => state.total.failures.push(failure),
        }
        if let Some(running) = state.running.get_mut(&worker) {
            running.since = now();
            running.used = cpu;
        }
    }

    /// A worker has ended. Returns whether that was because it hung.
    pub fn ended(&self, worker: u32) -> bool {
        self.state.lock().running.remove(&worker).is_some_and(|running| running.is_killed)
    }

    /// Ends workers that have been at one seed for too long.
    pub fn kill_hung(&self) {
        let mut state = self.state.lock();
        for (id, running) in &mut state.running {
            let used = processor_time(&id.to_string()).saturating_sub(running.used);
            let hangs = used > HANG_PROCESSOR_TIME || running.since.elapsed() > HANG_TIME;
            if hangs && !running.is_killed {
                // An error means that it has ended by itself meanwhile.
                let _: io::Result<()> = running.child.lock().kill();
                running.is_killed = true;
            }
        }
    }

    /// Seeds done, and how many of them failed.
    pub fn progress(&self) -> (u64, usize) {
        let state = self.state.lock();
        (state.done, state.total.failures.len())
    }

    /// A worker has used so much of a processor.
    pub fn used(&self, cpu: Duration) {
        self.state.lock().total.cpu += cpu;
    }

    /// Everything.
    pub fn result(&self) -> Total {
        let mut total = self.state.lock().total.clone();
        total.failures.sort_by_key(|failure| failure.seed);
        total
    }
}
