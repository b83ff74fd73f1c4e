//! One seed: rounds of load, power cut, recovery and judgement on the same devices.

use std::{
    any::Any,
    hash::{BuildHasher, Hash, Hasher},
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{Outcome, Random, Simulation};

use crate::{
    config::{Config, LogLayout},
    history::{Event, History, Recorder},
    machine::{Fuse, Machine},
    model::{Contents, judge},
    report::{Failure, Report},
    round::{Cut, Length, Start, play},
};

/// Virtual time after which a run that goes on is one that never ends.
const TIME_LIMIT: Duration = Duration::from_secs(3600);
/// Task switches after which a run that goes on is one that never ends.
const STEP_LIMIT: u64 = 20_000_000;
/// Power cuts in a row that may hit recovery, before it is let through.
const CUTS_DURING_RECOVERY_MAX: usize = 4;

/// Runs one seed: everything is decided by it, and running it again does the same to the byte.
///
/// Power cuts leak the heap that the cut-off tasks own: run many seeds in processes of their own.
///
/// ```no_run
/// let report = tantalum_crash::search(7)?;
/// assert_eq!(report.seeds, 1);
/// # Ok::<(), tantalum_crash::Failure>(())
/// ```
///
/// # Errors
/// What was violated. A panic inside the simulation, a deadlock among them, is a failure too.
pub fn search(seed: u64) -> Result<Report, Failure> {
    let config = Arc::new(Config::new(seed));
    let mut search = Search {
        machine: Arc::new(Machine::new(&config)),
        random: Random::with_seed(seed ^ 0x7461_6e74_616c_756d),
        config,
        next_id: Arc::new(AtomicU32::new(0)),
        contents: Contents::new(),
        history: History::default(),
        report: Report { seeds: 1, ..Report::default() },
        fingerprint: foldhash::quality::FixedState::with_seed(0).build_hasher(),
        clock: Duration::ZERO,
    };
    search.run().map_err(|(round, what)| Failure { seed, configuration: search.config.to_string(), round, what })?;
    search.report.fingerprint = search.fingerprint.finish();
    Ok(search.report)
}

struct Search {
    config: Arc<Config>,
    machine: Arc<Machine>,
    random: Random,
    next_id: Arc<AtomicU32>,
    /// What the last completed recovery found.
    contents: Contents,
    /// What happened since.
    history: History,
    report: Report,
    fingerprint: <foldhash::quality::FixedState as BuildHasher>::Hasher,
    clock: Duration,
}

impl Search {
    fn run(&mut self) -> Result<(), (usize, String)> {
        self.note_configuration();
        for round in 0..self.config.rounds {
            for cut in self.plan_round() {
                self.step(cut).map_err(|what| (round, what))?;
            }
        }
        // The last starts are not cut: an orderly end, and a start after it.
        for transactions in [10, 0] {
            self.step(Cut::Never { transactions }).map_err(|what| (self.config.rounds, what))?;
        }
        self.report.count("transactions", u64::from(self.next_id.load(Ordering::Relaxed)));
        Ok(())
    }

    /// Some cuts during recovery, or none, and one in the middle of the load.
    fn plan_round(&mut self) -> Vec<Cut> {
        let cuts_during_recovery = [0, 0, 1, 2, CUTS_DURING_RECOVERY_MAX][self.random.usize(0..5)];
        let mut cuts = Vec::new();
        for _ in 0..cuts_during_recovery {
            cuts.push(Cut::DuringRecovery(self.length(1.0, 300.0)));
        }
        let longest = if self.config.load.is_uniform { 30.0 } else { 400.0 };
        cuts.push(Cut::DuringLoad(self.length(2.0, longest)));
        cuts
    }

    /// So many latencies of the log at random, short ones as often as long ones by order of magnitude.
    fn length(&mut self, min: f64, max: f64) -> Length {
        let latencies = min * (max / min).powf(self.random.f64());
        let latency = (self.config.log_latency.start + self.config.log_latency.end) / 2;
        let operations = self.random.bool().then(|| 1 + (latencies * self.random.f64() * 3.0) as u64);
        Length { time: latency.mul_f64(latencies), operations }
    }

    /// One start of the database until its power is cut, or its orderly end; then the judgement.
    fn step(&mut self, cut: Cut) -> Result<(), String> {
        let (recorder, events) = Recorder::new();
        let fuse = Fuse::new(self.random.bool());
        let start = Start {
            config: Arc::clone(&self.config),
            devices: self.machine.devices(&fuse).map_err(|error| error.to_string())?,
            fuse,
            cut,
            seed: self.random.u64(..),
            recorder,
            next_id: Arc::clone(&self.next_id),
        };
        let simulation = Simulation::new(start.seed)
            .cores(self.config.cores)
            .start_at(self.clock)
            .time_limit(self.clock + TIME_LIMIT)
            .step_limit(STEP_LIMIT);
        let root = move || play(start);
        let outcome = catch_unwind(AssertUnwindSafe(|| simulation.run(root)));
        let mut was_recovered = false;
        while let Ok(event) = events.try_recv() {
            was_recovered |= matches!(event, Event::Recovered { .. });
            self.take(event)?;
        }
        match outcome {
            Ok(Outcome::Finished(now)) => self.clock = now,
            Ok(Outcome::PowerCut { at }) => {
                self.clock = at;
                self.cut_devices();
                self.report.count("power cuts", 1);
                self.report.count("power cuts during recovery", u64::from(!was_recovered));
            }
            Err(panic) => return Err(format!("panic: {}", message(panic.as_ref()))),
        }
        assert!(was_recovered || !matches!(cut, Cut::Never { .. }), "a start that is not cut ends after its recovery");
        self.clock.hash(&mut self.fingerprint);
        Ok(())
    }

    /// Decides what the devices have lost. What was under way at the cut is known by the virtual clock, so this is done on
    /// it too.
    fn cut_devices(&mut self) {
        let (machine, mut random) = (Arc::clone(&self.machine), self.random.fork());
        let simulation = Simulation::new(0).start_at(self.clock);
        simulation.run(move || machine.power_cut(&mut random)).expect_finished();
    }

    fn take(&mut self, event: Event) -> Result<(), String> {
        format!("{event:?}").hash(&mut self.fingerprint);
        match event {
            Event::Violation(what) => return Err(what),
            Event::Count(name, n) => self.report.count(name, n),
            Event::Recovered { contents } => {
                let history = std::mem::take(&mut self.history).into_transactions();
                let judgement =
                    judge(&self.contents, &history, &contents).map_err(|violation| violation.to_string())?;
                self.report.count("recoveries checked", 1);
                self.report.count("unknown commits found", judgement.survived);
                self.report.count("unknown commits absent", judgement.lost);
                self.contents = contents;
            }
            event => {
                let is_acknowledged = matches!(event, Event::Acknowledged { .. });
                self.report.count("acknowledged", u64::from(is_acknowledged));
                self.history.add(event);
            }
        }
        Ok(())
    }

    fn note_configuration(&mut self) {
        let config = &self.config;
        let layout = match config.log {
            LogLayout::Devices(n) => format!("log on {n} devices"),
            LogLayout::Partitions(n) => format!("log on {n} partitions"),
        };
        let isolation = if config.is_serializable { "serializable" } else { "snapshot isolation" };
        let release = if config.early_lock_release { "early lock release" } else { "locks held until durable" };
        let load = if config.load.is_uniform { "uniform load" } else { "mixed load" };
        for name in [
            format!("protection {}", config.protection),
            load.to_owned(),
            format!("page size {}", config.page_size),
            layout,
            isolation.to_owned(),
            release.to_owned(),
        ] {
            self.report.configured(name);
        }
    }
}

/// What a panic said.
fn message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
    text.unwrap_or("a panic without a message").to_owned()
}
