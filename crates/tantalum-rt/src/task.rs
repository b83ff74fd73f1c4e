//! Tasks: threads, or coroutines of a simulation.

use std::{any::Any, time::Duration};

use crate::{
    clock::nanos,
    simulation::{self, SimulatedJoin},
};

/// Owns the right to wait for a task's end. Dropping it lets the task run on by itself.
///
/// ```
/// let answer = tantalum_rt::spawn("thinker", || 6 * 7);
/// assert_eq!(answer.join().expect("the thinker does not panic"), 42);
/// ```
#[derive(Debug)]
pub struct JoinHandle<T>(Kind<T>);

#[derive(Debug)]
enum Kind<T> {
    Thread(std::thread::JoinHandle<T>),
    Simulated(SimulatedJoin<T>),
}

impl<T> JoinHandle<T> {
    /// Waits until the task has ended and returns its result.
    ///
    /// # Errors
    /// The panic's payload, when the task panicked. In a simulation a panic that no task is waiting for already ends
    /// the whole run, so an error is seen here only by a join that began before the panic.
    ///
    /// # Panics
    /// When the task is part of a simulation that the caller is not part of, and has not ended.
    pub fn join(self) -> Result<T, Box<dyn Any + Send>> {
        match self.0 {
            Kind::Thread(thread) => thread.join(),
            Kind::Simulated(task) => task.join(),
        }
    }

    /// As [`join`](Self::join), but if the task panicked the caller does so too, with the same payload: for tasks that do a
    /// part of the caller's work.
    ///
    /// # Panics
    /// As said, and as `join`.
    pub fn join_or_panic(self) -> T {
        self.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }

    /// Whether the task has ended, so that [`join`](Self::join) would not wait.
    pub fn is_finished(&self) -> bool {
        match &self.0 {
            Kind::Thread(thread) => thread.is_finished(),
            Kind::Simulated(task) => task.is_finished(),
        }
    }
}

/// Starts a task that runs `f`: a thread, or inside a simulation a coroutine of it.
///
/// # Panics
/// When the system cannot create a thread (or the coroutine's stack), or when `name` holds a zero byte.
pub fn spawn<T: Send + 'static>(name: impl Into<String>, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let name = name.into();
    match simulation::current() {
        Some(world) => JoinHandle(Kind::Simulated(world.spawn(name, f))),
        None => match std::thread::Builder::new().name(name.clone()).spawn(f) {
            Ok(thread) => JoinHandle(Kind::Thread(thread)),
            Err(error) => panic!("the system cannot create the thread {name:?}: {error}"),
        },
    }
}

/// Lets others run. In a simulation it takes a microsecond of virtual time, so that a loop that polls with it does
/// see timers and devices make progress.
pub fn yield_now() {
    match simulation::current() {
        Some(world) => world.yield_now(),
        None => std::thread::yield_now(),
    }
}

/// A place where another task may run in between. A randomly scheduled simulation switches here now and then, by its
/// seed; elsewhere it costs one relaxed load. Put it between atomic operations whose interleavings should be searched;
/// unlocking a lock does it already.
#[inline]
pub fn interleave() {
    if let Some(world) = simulation::current() {
        world.panic_if_due();
        world.interleave();
    }
}

/// As [`interleave`], in what stands for hardware: [`panic_at`](simulation::panic_at) does not count it.
#[inline]
pub fn interleave_in_device() {
    if let Some(world) = simulation::current() {
        world.interleave();
    }
}

/// Charges CPU time: in a simulation the task occupies one of the virtual cores for `duration`, after waiting first
/// come, first served for a free one. On threads it does nothing, as the real work takes its own time.
pub fn work(duration: Duration) {
    if let Some(world) = simulation::current() {
        world.work(nanos(duration));
    }
}

/// Whether the caller runs in a simulation.
#[inline]
pub fn is_simulated() -> bool {
    simulation::current().is_some()
}

/// How many tasks can compute at the same time: the machine's cores, or the simulation's virtual ones. At least 1.
pub fn available_cores() -> usize {
    match simulation::current() {
        Some(world) => world.cores(),
        None => std::thread::available_parallelism().map_or(1, usize::from),
    }
}

/// The name given to [`spawn`]; `"root"` for the first task of a simulation, `"unnamed"` for a thread without a name.
pub fn task_name() -> String {
    match simulation::current() {
        Some(world) => world.task_name(),
        None => std::thread::current().name().unwrap_or("unnamed").to_owned(),
    }
}

/// All tasks of the simulation and what each waits for, a line each that begins with a line break: what to print where
/// something seems to hang. Empty outside a simulation.
///
/// ```
/// let listed = tantalum_rt::Simulation::new(1).run(|| {
///     tantalum_rt::spawn("idle", || tantalum_rt::sleep(std::time::Duration::from_secs(9)));
///     tantalum_rt::sleep(std::time::Duration::from_secs(1));
///     tantalum_rt::list_tasks()
/// });
/// assert!(listed.expect_finished().contains("\"idle\" sleeps until 9s"));
/// ```
pub fn list_tasks() -> String {
    simulation::current().map_or_else(String::new, |world| world.list_tasks())
}

/// Ends the simulation here and now, as a loss of power would: no task runs any further instruction, and no
/// destructor of anything on their stacks runs.
///
/// Heap that those stacks own is leaked, and locks that tasks held stay locked: what they protect may be half done. What
/// outlives the run is locked with [`lock_unswitched`](crate::lock_unswitched) only, or not at all. [`Simulation::run`](crate::Simulation::run) returns [`Outcome::PowerCut`](crate::Outcome).
///
/// # Panics
/// Outside a simulation.
pub fn power_cut() -> ! {
    match simulation::current() {
        Some(world) => world.power_cut(),
        None => panic!("power_cut() works only inside a simulation: call it from a task of Simulation::run"),
    }
}

/// Whether the calling task unwinds because of a panic. For destructors that must then leave things alone.
pub fn panicking() -> bool {
    std::thread::panicking()
}
