//! The virtual processor: which tasks compute on which core, and how fast.
//!
//! A core has one hardware thread, or two that share its execution units, so that each is slower while both work. A task gets a
//! thread of the least busy core and stays there until its piece of work ends: no scheduler moves threads every few microseconds.
//! When the other thread of its core begins or stops working, the rest of its work takes longer or shorter from then on.

use std::collections::VecDeque;

use super::state::TaskId;

/// Speeds are in thousandths of this, and work in thousandths of a nanosecond at this speed: nothing is rounded while it is done.
const FULL_SPEED: u64 = 1000;

pub(super) struct Processor {
    /// For each core the tasks on its threads.
    cores: Vec<Vec<OnThread>>,
    threads_per_core: usize,
    /// Of each of two threads of a core that both work.
    shared_speed: u64,
    /// Tasks that wait for a thread, first come, first served.
    pub waiting: VecDeque<TaskId>,
}

/// A task on a thread.
struct OnThread {
    task: TaskId,
    /// Of its work; `None` while it keeps the thread between two pieces of work.
    left: Option<u64>,
    since_ns: u64,
}

impl Processor {
    /// `shared_percent` is what two threads of a core do together, of what one does alone; with `None` a core has one.
    pub fn new(cores: usize, shared_percent: Option<u32>) -> Self {
        Self {
            cores: (0..cores).map(|_| Vec::new()).collect(),
            threads_per_core: if shared_percent.is_some() { 2 } else { 1 },
            shared_speed: shared_percent.map_or(FULL_SPEED, |percent| u64::from(percent) * FULL_SPEED / 100 / 2),
            waiting: VecDeque::new(),
        }
    }

    /// How many tasks can work at the same time.
    pub fn threads(&self) -> usize {
        self.cores.len() * self.threads_per_core
    }

    /// The least busy core, unless all threads are taken.
    pub fn free_core(&self) -> Option<usize> {
        let core = (0..self.cores.len()).min_by_key(|&core| self.cores[core].len())?;
        (self.cores[core].len() < self.threads_per_core).then_some(core)
    }

    /// A task begins a piece of work on a core, where it may have a thread already.
    pub fn begin(&mut self, core: usize, task: TaskId, work_ns: u64, now_ns: u64) {
        self.settle(core, now_ns);
        let left = Some(work_ns.saturating_mul(FULL_SPEED));
        match self.cores[core].iter_mut().find(|on_thread| on_thread.task == task) {
            Some(on_thread) => (on_thread.left, on_thread.since_ns) = (left, now_ns),
            None => self.cores[core].push(OnThread { task, left, since_ns: now_ns }),
        }
        assert!(self.cores[core].len() <= self.threads_per_core, "a task works on a free thread");
    }

    /// A task has done its work and keeps its thread.
    pub fn pause(&mut self, core: usize, task: TaskId) {
        if let Some(on_thread) = self.cores[core].iter_mut().find(|on_thread| on_thread.task == task) {
            on_thread.left = None;
        }
    }

    /// A task leaves its thread.
    pub fn leave(&mut self, core: usize, task: TaskId, now_ns: u64) {
        self.settle(core, now_ns);
        self.cores[core].retain(|on_thread| on_thread.task != task);
    }

    /// The tasks that work on a core, and after how many nanoseconds each has done its work, at the speed of now.
    pub fn ends(&self, core: usize) -> [Option<(TaskId, u64)>; 2] {
        let speed = self.speed(core);
        [0, 1].map(|thread: usize| {
            let on_thread = self.cores[core].get(thread)?;
            Some((on_thread.task, on_thread.left?.div_ceil(speed)))
        })
    }

    /// Takes what has been done on a core off the work that is left, before its speed changes.
    fn settle(&mut self, core: usize, now_ns: u64) {
        let speed = self.speed(core);
        for on_thread in &mut self.cores[core] {
            let done = (now_ns - on_thread.since_ns).saturating_mul(speed);
            on_thread.left = on_thread.left.map(|left| left.saturating_sub(done));
            on_thread.since_ns = now_ns;
        }
    }

    fn speed(&self, core: usize) -> u64 {
        if self.cores[core].len() > 1 { self.shared_speed } else { FULL_SPEED }
    }
}
