//! Everything a run consists of: tasks, clock, timers, processor, queues.
//!
//! Nothing here switches tasks. A task is in exactly one place: running, in `runnable`, or waiting, and then in a
//! queue, behind a timer, or both.

#![allow(unsafe_code)]

use std::{
    any::Any,
    collections::{BTreeMap, VecDeque},
    fmt::Write as _,
    panic::Location,
    time::Duration,
};

use corosensei::{Coroutine, stack::DefaultStack};

use super::{
    Scheduling, Simulation, Trace,
    lock_charges::Ledger,
    processor::Processor,
    queues::{Queues, Turn},
};
use crate::random::Random;

/// Numbers tasks as they are spawned; the root is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TaskId(pub(super) usize);

impl TaskId {
    /// The task whose return ends the run.
    pub(super) const ROOT: Self = Self(0);
}

/// What a task waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    Nothing,
    Mutex,
    Read,
    Write,
    Condvar,
    Parker,
    End(TaskId),
    Sleep,
    /// For a free core, to work this many nanoseconds on it.
    Core(u64),
    Work,
}

/// How a run ended.
pub(super) enum End {
    Finished,
    PowerCut { at_ns: u64 },
    Panicked { task: TaskId, name: String, at_ns: u64, payload: Box<dyn Any + Send> },
}

pub(super) struct Task {
    pub(super) name: String,
    pub(super) wait: Wait,
    /// Where it waits for a lock or a condition, or did last.
    pub(super) wait_place: Option<&'static Location<'static>>,
    /// None while it runs.
    pub(super) coroutine: Option<Coroutine<(), (), ()>>,
    joiner: Option<TaskId>,
    timer: Option<(u64, u64)>,
    /// The condition in whose queue it stands.
    condition: Option<usize>,
    /// Whether its last wait ended as it hoped: notified before the time was over, or handed the lock.
    served: bool,
    /// The core on which it has a thread: while it works, and where locks take time between two pieces of work.
    core: Option<usize>,
    /// At which of the next points it is to panic.
    pub(super) panics_at: Option<u64>,
    #[cfg(debug_assertions)]
    pub(super) held: crate::held::Counts,
}

impl Drop for Task {
    fn drop(&mut self) {
        if let Some(mut coroutine) = self.coroutine.take() {
            // SAFETY: nothing on the stack is dropped, so nothing on it may be relied upon to be dropped. What outlives
            // the stack cannot refer to it, as tasks are `'static`, and all tasks of a run are dropped together.
            unsafe { coroutine.force_reset() };
        }
    }
}

pub(super) struct State {
    seed: u64,
    pub(super) now_ns: u64,
    pub(super) current: TaskId,
    pub(super) tasks: BTreeMap<TaskId, Task>,
    tasks_started: usize,
    runnable: VecDeque<TaskId>,
    pub(super) queues: Queues,
    /// By time, then by the order in which they were set.
    timers: BTreeMap<(u64, u64), TaskId>,
    timers_set: u64,
    pub(super) processor: Processor,
    /// If locks take time.
    pub(super) locks: Option<Ledger>,
    scheduling: Scheduling,
    picks: Random,
    pub(super) seeds: Random,
    steps: u64,
    step_limit: u64,
    time_limit_ns: u64,
    pub(super) end: Option<End>,
    pub(super) trace: Option<Trace>,
    pub(super) free_stacks: Vec<DefaultStack>,
}

impl State {
    pub(super) fn new(settings: &Simulation, traced: bool) -> Self {
        let mut picks = Random::with_seed(settings.seed);
        Self {
            seed: settings.seed,
            now_ns: crate::clock::nanos(settings.start),
            current: TaskId::ROOT,
            tasks: BTreeMap::new(),
            tasks_started: 0,
            runnable: VecDeque::new(),
            queues: Queues::default(),
            timers: BTreeMap::new(),
            timers_set: 0,
            processor: Processor::new(settings.cores, settings.shared_percent),
            locks: None,
            scheduling: settings.scheduling,
            seeds: picks.fork(),
            picks,
            steps: 0,
            step_limit: settings.step_limit.unwrap_or(u64::MAX),
            time_limit_ns: settings.time_limit.map_or(u64::MAX, crate::clock::nanos),
            end: None,
            trace: traced.then(Trace::default),
            free_stacks: Vec::new(),
        }
    }

    pub(super) fn task(&mut self, id: TaskId) -> &mut Task {
        self.tasks.get_mut(&id).expect("a task that runs or waits is in the table")
    }

    pub(super) fn next_id(&self) -> TaskId {
        TaskId(self.tasks_started)
    }

    pub(super) fn add_task(&mut self, name: String, coroutine: Coroutine<(), (), ()>) {
        let id = self.next_id();
        self.tasks_started += 1;
        self.record(id, || format!("spawned as {name:?}"));
        let task = Task {
            name,
            wait: Wait::Nothing,
            wait_place: None,
            coroutine: Some(coroutine),
            joiner: None,
            timer: None,
            condition: None,
            served: false,
            core: None,
            panics_at: None,
            #[cfg(debug_assertions)]
            held: crate::held::Counts::default(),
        };
        self.tasks.insert(id, task);
        self.runnable.push_back(id);
    }

    pub(super) fn record(&mut self, task: TaskId, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(self.now_ns, task.0, what());
        }
    }

    // Waiting and waking.

    pub(super) fn set_joiner(&mut self, task: TaskId) {
        self.task(task).joiner = Some(self.current);
    }

    pub(super) fn has_joiner(&mut self, task: TaskId) -> bool {
        self.task(task).joiner.is_some()
    }

    /// The task has left its result: wake the task that joins it. The root's ends the run.
    pub(super) fn finish(&mut self, id: TaskId) {
        self.give_up_core(id);
        self.record(id, || "ended".into());
        if let Some(joiner) = self.task(id).joiner {
            self.wake(joiner, true);
        }
        if id == TaskId::ROOT {
            self.end = Some(End::Finished);
        }
    }

    /// Lets the current task stand in the queue of the condition at `address`, for at most `timeout_ns`.
    pub(super) fn wait_for_condition(&mut self, address: usize, wait: Wait, timeout_ns: Option<u64>) {
        let id = self.current;
        self.queues.push(address, id, wait);
        self.task(id).condition = Some(address);
        if let Some(timeout_ns) = timeout_ns {
            self.set_timer(id, timeout_ns);
        }
    }

    pub(super) fn notify(&mut self, address: usize) -> bool {
        let waiter = self.queues.pop(address);
        if let Some(task) = waiter {
            self.wake(task, true);
        }
        waiter.is_some()
    }

    pub(super) fn give_turn(&mut self, turn: Turn) {
        match turn {
            Turn::Retry(task) => self.wake(task, false),
            Turn::Granted(task) => self.wake(task, true),
        }
    }

    /// Whether the current task's last wait ended as it hoped.
    pub(super) fn was_served(&mut self) -> bool {
        let id = self.current;
        self.task(id).served
    }

    fn wake(&mut self, id: TaskId, served: bool) {
        let task = self.task(id);
        task.wait = Wait::Nothing;
        task.condition = None;
        task.served = served;
        if let Some(timer) = task.timer.take() {
            self.timers.remove(&timer);
        }
        self.runnable.push_back(id);
    }

    /// Lets the current task run again, after others had their chance.
    pub(super) fn requeue_current(&mut self) {
        self.runnable.push_back(self.current);
    }

    /// Whether the dice say that another task runs now.
    pub(super) fn interleaves(&mut self) -> bool {
        self.scheduling == Scheduling::Random && !self.runnable.is_empty() && self.picks.u8(..4) == 0
    }

    // Time.

    /// Wakes the task `after_ns` from now, unless something else does earlier; never, beyond the clock's range.
    pub(super) fn set_timer(&mut self, id: TaskId, after_ns: u64) {
        let Some(at_ns) = self.now_ns.checked_add(after_ns) else { return };
        let key = (at_ns, self.timers_set);
        self.timers_set += 1;
        self.timers.insert(key, id);
        self.task(id).timer = Some(key);
    }

    /// Gives the current task a thread of a core for that much work, now or when one is free.
    pub(super) fn take_core(&mut self, work_ns: u64) -> Wait {
        let id = self.current;
        let Some(core) = self.task(id).core.or_else(|| self.processor.free_core()) else {
            self.processor.waiting.push_back(id);
            return Wait::Core(work_ns);
        };
        self.begin_work(id, core, work_ns);
        Wait::Work
    }

    fn begin_work(&mut self, id: TaskId, core: usize, work_ns: u64) {
        self.task(id).core = Some(core);
        self.processor.begin(core, id, work_ns, self.now_ns);
        self.set_work_timers(core);
    }

    /// Sets when the tasks on a core have done their work, after one of them began or left.
    fn set_work_timers(&mut self, core: usize) {
        for (id, after_ns) in self.processor.ends(core).into_iter().flatten() {
            if let Some(timer) = self.task(id).timer.take() {
                self.timers.remove(&timer);
            }
            self.set_timer(id, after_ns);
        }
    }

    /// Whether the current task keeps a core, so that it need not wait for one.
    pub(super) fn has_core(&mut self) -> bool {
        let id = self.current;
        self.task(id).core.is_some()
    }

    /// Lets the current task's core go if others want one.
    pub(super) fn let_others_have_core(&mut self) {
        if !self.processor.waiting.is_empty() {
            self.give_up_core(self.current);
        }
    }

    /// Lets a task's core go, if it has one, to the task that has waited longest.
    pub(super) fn give_up_core(&mut self, id: TaskId) {
        let Some(core) = self.task(id).core.take() else { return };
        self.processor.leave(core, id, self.now_ns);
        let Some(next) = self.processor.waiting.pop_front() else { return self.set_work_timers(core) };
        let Wait::Core(work_ns) = self.task(next).wait else {
            unreachable!("only tasks that want a core queue for one")
        };
        self.begin_work(next, core, work_ns);
        self.task(next).wait = Wait::Work;
    }

    /// Moves the clock to the next timer and wakes all tasks whose time has come.
    fn advance_clock(&mut self) {
        let Some((&(at_ns, _), _)) = self.timers.first_key_value() else {
            self.give_up("deadlocked: no task can ever run again");
        };
        if at_ns > self.time_limit_ns {
            self.give_up("passed its time limit");
        }
        self.now_ns = at_ns;
        while let Some(entry) = self.timers.first_entry()
            && entry.key().0 == at_ns
        {
            let id = entry.remove();
            let task = self.task(id);
            task.timer = None;
            if let Some(address) = task.condition {
                self.queues.remove(address, id);
            }
            if self.task(id).wait == Wait::Work {
                // Where locks take time, a task is not taken off its core while it holds some.
                match (self.task(id).core, &self.locks) {
                    (Some(core), Some(_)) => self.processor.pause(core, id),
                    _ => self.give_up_core(id),
                }
            }
            self.wake(id, false);
        }
    }

    // Picking.

    /// The task to run now. Moves the clock when all wait.
    ///
    /// # Panics
    /// When none can ever run again, or a limit is passed.
    pub(super) fn pick(&mut self) -> TaskId {
        if self.runnable.is_empty() {
            self.advance_clock();
        }
        if self.steps == self.step_limit {
            self.give_up("passed its step limit");
        }
        self.steps += 1;
        let index = match self.scheduling {
            Scheduling::InOrder => 0,
            Scheduling::Random => self.picks.usize(..self.runnable.len()),
        };
        let id = match self.scheduling {
            Scheduling::InOrder => self.runnable.pop_front(),
            Scheduling::Random => self.runnable.swap_remove_back(index),
        }
        .expect("moving the clock has woken a task");
        self.current = id;
        self.record(id, || "runs".into());
        id
    }

    /// Panics with every task and what it waits for.
    fn give_up(&self, why: &str) -> ! {
        let now = Duration::from_nanos(self.now_ns);
        panic!("the simulation with seed {} {why}, at {now:?} of virtual time{}", self.seed, self.list_tasks());
    }

    /// A line for each task, with what it waits for.
    pub(super) fn list_tasks(&self) -> String {
        let mut list = String::new();
        for (id, task) in &self.tasks {
            // Writing to a string cannot fail.
            let _ = write!(list, "\n  task {} {:?} {}", id.0, task.name, self.describe(task));
        }
        list
    }

    fn describe(&self, task: &Task) -> String {
        let at_place = |what: &str| match task.wait_place {
            Some(place) => format!("{what} at {}:{}", place.file(), place.line()),
            None => what.into(),
        };
        let what = match task.wait {
            Wait::Nothing => return "can run".into(),
            Wait::Mutex => at_place("waits for a mutex"),
            Wait::Read => at_place("waits to read an rwlock"),
            Wait::Write => at_place("waits to write an rwlock"),
            Wait::Condvar => at_place("waits for a condvar"),
            Wait::Parker => "is parked".into(),
            Wait::End(other) => {
                let name = self.tasks.get(&other).map_or("", |task| &task.name);
                return format!("waits for the end of task {} {name:?}", other.0);
            }
            Wait::Sleep => "sleeps".into(),
            Wait::Core(_) => "waits for a free core".into(),
            Wait::Work => "works on a core".into(),
        };
        match task.timer {
            Some((at_ns, _)) => format!("{what} until {:?}", Duration::from_nanos(at_ns)),
            None => what,
        }
    }
}
