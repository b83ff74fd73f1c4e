//! A whole program on one OS thread, under a virtual clock, repeatable to the byte.
//!
//! [`Simulation`] is the door. Inside: `current` says whether the caller is in a simulation, `world` is what its tasks
//! call when they wait, `queues` holds which task waits for which lock, `processor` which task computes on which core, `lock_charges` what locks cost, `injected_panic` panics on
//! purpose, and `state` holds everything a run consists of.

mod current;
mod injected_panic;
mod lock_charges;
mod processor;
mod queues;
mod state;
mod world;

use std::{
    cell::RefCell,
    fmt,
    hash::{BuildHasher, Hasher},
    panic::resume_unwind,
    rc::Rc,
    time::Duration,
};

pub(crate) use current::{any_running, current};
pub use injected_panic::panic_at;
pub use lock_charges::{LockCharges, LockUse, charge_locks, lock_uses};
pub(crate) use state::Wait;
pub(crate) use world::SimulatedJoin;

use crate::collections::FixedState;
use current::Entered;
use state::End;
use world::World;

/// Default size of a task's stack in bytes. Only the pages a task touches take memory.
const STACK_SIZE_BYTES: usize = 256 << 10;

/// How a simulation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// The root task returned this.
    Finished(T),
    /// A task called [`power_cut`](crate::power_cut).
    PowerCut {
        /// The virtual time of the cut.
        at: Duration,
    },
}

impl<T> Outcome<T> {
    /// What the root task returned; `None` after a power cut.
    pub fn finished(self) -> Option<T> {
        match self {
            Outcome::Finished(value) => Some(value),
            Outcome::PowerCut { .. } => None,
        }
    }

    /// What the root task returned.
    ///
    /// # Panics
    /// After a power cut.
    #[track_caller]
    pub fn expect_finished(self) -> T {
        match self {
            Outcome::Finished(value) => value,
            Outcome::PowerCut { at } => panic!("the simulation was to finish, but its power was cut at {at:?}"),
        }
    }
}

/// Which of the tasks that can run is the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Scheduling {
    /// The one that became able to run first; tasks switch only where they wait. For measuring.
    InOrder,
    /// Any of them, by the seed; tasks also switch now and then after unlocking and at
    /// [`interleave`](crate::interleave). For searching interleavings.
    #[default]
    Random,
}

/// A program to be run under a virtual clock, with everything left open decided by a seed.
///
/// Time passes only while all tasks wait: computing takes none, unless charged with [`work`](crate::work) or
/// [`charge_locks`].
///
/// The run ends when the root task returns. Tasks still alive are then dropped as at a power cut: their destructors
/// do not run, and their heap is leaked. Join what should come to its end.
///
/// ```
/// use std::time::Duration;
/// use tantalum_rt::{Outcome, Simulation, power_cut, sleep, spawn};
///
/// let outcome = Simulation::new(7).cores(4).run(|| {
///     spawn("fate", || {
///         sleep(Duration::from_secs(3600));
///         power_cut();
///     });
///     loop {
///         sleep(Duration::from_millis(300));
///     }
/// });
/// assert_eq!(outcome, Outcome::<()>::PowerCut { at: Duration::from_secs(3600) });
/// ```
#[derive(Clone, Debug)]
#[must_use = "a simulation does nothing until it is run"]
pub struct Simulation {
    seed: u64,
    scheduling: Scheduling,
    cores: usize,
    shared_percent: Option<u32>,
    stack_size_bytes: usize,
    start: Duration,
    time_limit: Option<Duration>,
    step_limit: Option<u64>,
}

impl Simulation {
    /// A simulation in which `seed` decides everything that is left open.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            scheduling: Scheduling::default(),
            cores: 2,
            shared_percent: None,
            stack_size_bytes: STACK_SIZE_BYTES,
            start: Duration::ZERO,
            time_limit: None,
            step_limit: None,
        }
    }

    /// How the next task is picked; [`Scheduling::Random`] by default.
    pub fn scheduling(mut self, scheduling: Scheduling) -> Self {
        self.scheduling = scheduling;
        self
    }

    /// The number of virtual cores that [`work`](crate::work) occupies; 2 by default.
    ///
    /// # Panics
    /// When `cores` is 0.
    pub fn cores(mut self, cores: usize) -> Self {
        assert!(cores > 0, "a simulation needs at least one core");
        self.cores = cores;
        self
    }

    /// Gives each core two hardware threads that share it (simultaneous multithreading): while both work, they do together
    /// `throughput_percent` of what one does alone, in equal shares. By default a core has one.
    ///
    /// # Panics
    /// When both do less than one alone, or more than two cores.
    pub fn two_threads_per_core(mut self, throughput_percent: u32) -> Self {
        assert!((100..=200).contains(&throughput_percent), "two threads of a core do 100 to 200 % of the work of one");
        self.shared_percent = Some(throughput_percent);
        self
    }

    /// The size of every task's stack in bytes; 256 KiB by default. Overflowing it kills the process.
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size_bytes = bytes;
        self
    }

    /// The virtual time at which the run starts; zero by default. Lets a run after a power cut go on on the same clock.
    pub fn start_at(mut self, start: Duration) -> Self {
        self.start = start;
        self
    }

    /// Ends the run with a panic that lists all tasks when the virtual clock would pass `limit`: a guard against
    /// programs that poll for ever.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.time_limit = Some(limit);
        self
    }

    /// Ends the run with a panic that lists all tasks after tasks have been switched to `limit` times: a guard against
    /// programs that wake each other for ever without time passing.
    pub fn step_limit(mut self, limit: u64) -> Self {
        self.step_limit = Some(limit);
        self
    }

    /// Runs `root` as the first task, until it returns or the power is cut.
    ///
    /// # Panics
    /// - with the panic of a task that no other task was joining;
    /// - with a list of all tasks and what each waits for, when none can ever run again (a deadlock), or when a limit
    ///   is passed;
    /// - inside another simulation.
    pub fn run<T: 'static>(self, root: impl FnOnce() -> T + 'static) -> Outcome<T> {
        run(self, root, false).0
    }

    /// As [`run`](Self::run), and returns what happened in order.
    ///
    /// ```
    /// use tantalum_rt::{Simulation, spawn};
    ///
    /// let trace = |seed| {
    ///     let (_, trace) = Simulation::new(seed).run_traced(|| {
    ///         let tasks: Vec<_> = (0..8).map(|n| spawn(format!("task-{n}"), || ())).collect();
    ///         tasks.into_iter().for_each(|task| task.join().expect("no task panics"));
    ///     });
    ///     trace
    /// };
    /// assert_eq!(trace(1), trace(1));
    /// assert_ne!(trace(1).fingerprint(), trace(2).fingerprint());
    /// ```
    ///
    /// # Panics
    /// As [`run`](Self::run).
    pub fn run_traced<T: 'static>(self, root: impl FnOnce() -> T + 'static) -> (Outcome<T>, Trace) {
        run(self, root, true)
    }
}

fn run<T: 'static>(settings: Simulation, root: impl FnOnce() -> T + 'static, traced: bool) -> (Outcome<T>, Trace) {
    let seed = settings.seed;
    let result = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&result);
    let world = World::new(&settings, traced);
    let end = {
        let _entered = Entered::new(&world);
        world.start("root".into(), move |outcome| *slot.borrow_mut() = outcome.ok(), root);
        run_to_end(&world)
    };
    let trace = world.state.borrow_mut().trace.take().unwrap_or_default();
    drop(world);
    match end {
        End::Finished => {
            let value = result.take().expect("the root task leaves its result before it ends");
            (Outcome::Finished(value), trace)
        }
        End::PowerCut { at_ns } => (Outcome::PowerCut { at: Duration::from_nanos(at_ns) }, trace),
        End::Panicked { task, name, at_ns, payload } => {
            let at = Duration::from_nanos(at_ns);
            eprintln!(
                "the panic was in task {} {name:?} of the simulation with seed {seed}, at {at:?} of virtual time",
                task.0
            );
            resume_unwind(payload)
        }
    }
}

/// Resumes one task after the other. All of a task's code runs inside `resume`.
fn run_to_end(world: &World) -> End {
    loop {
        let (id, mut coroutine) = {
            let mut state = world.state.borrow_mut();
            let id = state.pick();
            let coroutine = state.task(id).coroutine.take().expect("a task that can run is suspended");
            (id, coroutine)
        };
        coroutine.resume(());
        let mut state = world.state.borrow_mut();
        if coroutine.done() {
            state.tasks.remove(&id);
            state.free_stacks.push(coroutine.into_stack());
        } else {
            state.task(id).coroutine = Some(coroutine);
        }
        if let Some(end) = state.end.take() {
            return end;
        }
    }
}

/// Seed of the fingerprint, so that it is the same in every build.
const FINGERPRINT_SEED: u64 = 0;

/// One step of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Virtual time since the clock's origin.
    pub at: Duration,
    /// The task it happened to: the root is 0, the others are numbered as they were spawned.
    pub task: usize,
    /// What happened.
    pub what: String,
}

/// All that happened in a run: equal traces mean equal runs.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Trace {
    events: Vec<Event>,
}

impl Trace {
    /// The events in order.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// A hash of all events, the same on every machine.
    pub fn fingerprint(&self) -> u64 {
        let mut hasher = FixedState::with_seed(FINGERPRINT_SEED).build_hasher();
        for event in &self.events {
            hasher.write_u64(crate::clock::nanos(event.at));
            hasher.write_u64(event.task as u64);
            hasher.write_u64(event.what.len() as u64);
            hasher.write(event.what.as_bytes());
        }
        hasher.finish()
    }

    fn push(&mut self, at_ns: u64, task: usize, what: String) {
        self.events.push(Event { at: Duration::from_nanos(at_ns), task, what });
    }
}

impl fmt::Debug for Trace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for event in &self.events {
            writeln!(formatter, "{:>15} ns  task {:<4} {}", event.at.as_nanos(), event.task, event.what)?;
        }
        Ok(())
    }
}
