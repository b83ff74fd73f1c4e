//! What the tasks of a simulation call when they wait.
//!
//! Invariant: the state is never borrowed while tasks switch, nor while code of the program runs.

#![allow(unsafe_code)]

use std::{
    any::Any,
    cell::{Cell, RefCell},
    fmt,
    panic::{AssertUnwindSafe, Location, catch_unwind},
    ptr,
    sync::Arc,
};

use corosensei::{Coroutine, Yielder, stack::DefaultStack};
use parking_lot::Mutex;

use super::{
    Simulation, current,
    state::{End, State, TaskId, Wait},
};

/// What a [`yield_now`](crate::yield_now) takes in nanoseconds, so that time passes for a task that polls.
const YIELD_NS: u64 = 1000;

pub(crate) struct World {
    pub(super) state: RefCell<State>,
    /// The running coroutine's way back to the scheduler.
    yielder: Cell<*const Yielder<(), ()>>,
    stack_size_bytes: usize,
    /// Injected panics that are not caught yet.
    pub(super) panics: Cell<usize>,
}

impl World {
    pub(super) fn new(settings: &Simulation, traced: bool) -> Self {
        Self {
            state: RefCell::new(State::new(settings, traced)),
            yielder: Cell::new(ptr::null()),
            stack_size_bytes: settings.stack_size_bytes,
            panics: Cell::new(0),
        }
    }

    // Tasks.

    /// Creates a task that can run from now on. `leave_result` gets what `f` returns, or its panic if a task joins it.
    pub(super) fn start<T: 'static>(
        &self,
        name: String,
        leave_result: impl FnOnce(Result<T, Panic>) + 'static,
        f: impl FnOnce() -> T + 'static,
    ) -> TaskId {
        let id = self.state.borrow().next_id();
        let coroutine = Coroutine::with_stack(self.stack(), move |yielder, ()| {
            let world = current().expect("a task runs only inside its simulation");
            world.yielder.set(yielder);
            let result = catch_unwind(AssertUnwindSafe(f));
            // Dropping a result that no task wants runs the program's code, too.
            let unclaimed = catch_unwind(AssertUnwindSafe(|| match result {
                Err(panic) if !world.state.borrow_mut().has_joiner(id) => Some(panic),
                result => {
                    leave_result(result);
                    None
                }
            }));
            match unclaimed {
                Ok(None) => world.state.borrow_mut().finish(id),
                Ok(Some(panic)) | Err(panic) => world.end_by_panic(id, panic),
            }
        });
        self.state.borrow_mut().add_task(name, coroutine);
        id
    }

    fn stack(&self) -> DefaultStack {
        let free = self.state.borrow_mut().free_stacks.pop();
        free.unwrap_or_else(|| match DefaultStack::new(self.stack_size_bytes) {
            Ok(stack) => stack,
            Err(error) => {
                panic!("the system gives no {} bytes for the stack of a simulated task: {error}", self.stack_size_bytes)
            }
        })
    }

    fn end_by_panic(&self, task: TaskId, payload: Panic) {
        let mut state = self.state.borrow_mut();
        let name = state.task(task).name.clone();
        state.end = Some(End::Panicked { task, name, at_ns: state.now_ns, payload });
    }

    pub(crate) fn power_cut(&self) -> ! {
        // A stack that is thrown away while it unwinds would leave the thread panicking for ever, in later runs too.
        while self.panics.get() > 0 {
            self.yield_now();
        }
        {
            let mut state = self.state.borrow_mut();
            let id = state.current;
            state.record(id, || "cuts the power".into());
            state.end = Some(End::PowerCut { at_ns: state.now_ns });
        }
        self.suspend();
        unreachable!("no task runs after the power was cut")
    }

    pub(crate) fn task_name(&self) -> String {
        let mut state = self.state.borrow_mut();
        let id = state.current;
        state.task(id).name.clone()
    }

    /// Shows `f` what the current task holds.
    #[cfg(debug_assertions)]
    pub(crate) fn with_held<R>(&self, f: impl FnOnce(&mut crate::held::Counts) -> R) -> R {
        let mut state = self.state.borrow_mut();
        let id = state.current;
        f(&mut state.task(id).held)
    }

    pub(crate) fn list_tasks(&self) -> String {
        self.state.borrow().list_tasks()
    }

    pub(crate) fn cores(&self) -> usize {
        self.state.borrow().processor.threads()
    }

    pub(crate) fn random_seed(&self) -> u64 {
        self.state.borrow_mut().seeds.u64(..)
    }

    /// Starts a task, and returns the handle that its end can be waited for with.
    pub(crate) fn spawn<T: 'static>(&self, name: String, f: impl FnOnce() -> T + 'static) -> SimulatedJoin<T> {
        let result = ResultSlot::default();
        let slot = Arc::clone(&result);
        let task = self.start(name, move |outcome: Result<T, Panic>| *slot.lock() = Some(outcome), f);
        SimulatedJoin { task, result }
    }

    fn wait_for_end(&self, task: TaskId) {
        self.state.borrow_mut().set_joiner(task);
        self.suspend_for(Wait::End(task));
    }

    // Switching.

    /// Goes back to the scheduler, until it resumes this task.
    fn suspend(&self) {
        let yielder = self.yielder.get();
        // SAFETY: tasks alone call this, and while one runs the pointer is to its own coroutine's yielder: set when it
        // started and, below, whenever it goes on. The yielder lives on the coroutine's stack as long as that does.
        unsafe { (*yielder).suspend(()) };
        self.yielder.set(yielder);
    }

    pub(super) fn suspend_for(&self, wait: Wait) {
        {
            let mut state = self.state.borrow_mut();
            let id = state.current;
            state.task(id).wait = wait;
            if !matches!(wait, Wait::Core(_) | Wait::Work) {
                state.give_up_core(id);
            }
            state.record(id, || format!("waits: {wait:?}"));
        }
        self.suspend();
    }

    pub(crate) fn interleave(&self) {
        // A task that unwinds keeps the thread: others would take its panic for their own.
        if !std::thread::panicking() && self.state.borrow_mut().interleaves() {
            self.state.borrow_mut().requeue_current();
            self.suspend();
        }
    }

    // Time.

    pub(crate) fn now_ns(&self) -> u64 {
        self.state.borrow().now_ns
    }

    pub(crate) fn sleep(&self, duration_ns: u64) {
        {
            let mut state = self.state.borrow_mut();
            let id = state.current;
            state.set_timer(id, duration_ns);
        }
        self.suspend_for(Wait::Sleep);
    }

    pub(crate) fn yield_now(&self) {
        self.sleep(YIELD_NS);
    }

    pub(crate) fn work(&self, duration_ns: u64) {
        if duration_ns > 0 {
            self.state.borrow_mut().let_others_have_core();
            self.occupy_core(duration_ns);
        }
    }

    fn occupy_core(&self, duration_ns: u64) {
        let wait = self.state.borrow_mut().take_core(duration_ns);
        self.suspend_for(wait);
    }

    /// Waits for a core, if locks take time and the task has none.
    fn get_core(&self) {
        let has_core = {
            let mut state = self.state.borrow_mut();
            state.locks.is_none() || state.has_core()
        };
        if !has_core {
            self.occupy_core(0);
        }
    }

    // Locks and conditions.

    /// Waits until the lock at `address` is held: `try_acquire` took it, or a release took it for this task. False if that took
    /// longer than `timeout_ns`; then the caller has the others that wait served.
    pub(crate) fn acquire(
        &self,
        address: usize,
        wait: Wait,
        place: &'static Location<'static>,
        timeout_ns: Option<u64>,
        try_acquire: impl Fn() -> bool,
    ) -> bool {
        let deadline_ns = timeout_ns.map(|timeout_ns| self.now_ns().saturating_add(timeout_ns));
        {
            let mut state = self.state.borrow_mut();
            let id = state.current;
            state.queues.push(address, id, wait);
            state.task(id).wait_place = Some(place);
        }
        let mut waited_ns = 0;
        loop {
            let since_ns = self.now_ns();
            if let Some(deadline_ns) = deadline_ns {
                let mut state = self.state.borrow_mut();
                let id = state.current;
                state.set_timer(id, deadline_ns.saturating_sub(since_ns));
            }
            self.suspend_for(wait);
            waited_ns += self.now_ns() - since_ns;
            if self.state.borrow_mut().was_served() {
                break;
            }
            self.get_core();
            let mut state = self.state.borrow_mut();
            let id = state.current;
            if try_acquire() {
                state.queues.remove(address, id);
                break;
            }
            if deadline_ns.is_some_and(|deadline_ns| state.now_ns >= deadline_ns) {
                state.queues.remove(address, id);
                return false;
            }
            state.queues.passed_over(address, id);
        }
        self.charge_lock(address, wait, waited_ns, place);
        true
    }

    /// The lock at `address` was taken after so long a wait: lets the time pass that taking and holding it takes, if it takes any.
    pub(crate) fn charge_lock(&self, address: usize, wait: Wait, waited_ns: u64, place: &'static Location<'static>) {
        // A task that unwinds keeps the thread, as in `interleave`.
        if self.state.borrow().locks.is_none() || std::thread::panicking() {
            return;
        }
        self.get_core();
        let duration_ns = {
            let mut state = self.state.borrow_mut();
            let now_ns = state.now_ns;
            state.locks.as_mut().map_or(0, |ledger| ledger.take(now_ns, address, wait, waited_ns, place))
        };
        if duration_ns > 0 {
            self.occupy_core(duration_ns);
        }
    }

    /// The lock at `address` was released, in part or whole. `try_acquire` takes it on a waiter's behalf.
    pub(crate) fn released(&self, address: usize, try_acquire: impl Fn(Wait) -> bool) {
        let mut state = self.state.borrow_mut();
        for turn in state.queues.release(address, try_acquire) {
            state.give_turn(turn);
        }
    }

    pub(crate) fn writer_waits(&self, address: usize) -> bool {
        self.state.borrow().queues.writer_waits(address)
    }

    /// Waits to be notified at `address`; `before_sleep` runs when nothing can be missed any more, and must not switch.
    /// True when notified before the time was over.
    pub(crate) fn wait(
        &self,
        address: usize,
        wait: Wait,
        place: &'static Location<'static>,
        timeout_ns: Option<u64>,
        before_sleep: impl FnOnce(),
    ) -> bool {
        {
            let mut state = self.state.borrow_mut();
            let id = state.current;
            state.task(id).wait_place = Some(place);
            state.wait_for_condition(address, wait, timeout_ns);
        }
        before_sleep();
        self.suspend_for(wait);
        self.state.borrow_mut().was_served()
    }

    pub(crate) fn notify(&self, address: usize, count: usize) {
        let mut state = self.state.borrow_mut();
        for _ in 0..count {
            if !state.notify(address) {
                break;
            }
        }
    }
}

type Panic = Box<dyn Any + Send>;

/// Where a task leaves its result. Locked only for a moment, never while tasks switch.
type ResultSlot<T> = Arc<Mutex<Option<Result<T, Panic>>>>;

/// The simulated half of a [`JoinHandle`](crate::JoinHandle).
pub(crate) struct SimulatedJoin<T> {
    task: TaskId,
    result: ResultSlot<T>,
}

impl<T> fmt::Debug for SimulatedJoin<T> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("SimulatedJoin").field("task", &self.task.0).finish_non_exhaustive()
    }
}

impl<T> SimulatedJoin<T> {
    pub(crate) fn join(self) -> Result<T, Panic> {
        if !self.is_finished() {
            let Some(world) = current() else {
                panic!("task {} can be joined only inside the simulation that it belongs to", self.task.0)
            };
            world.wait_for_end(self.task);
        }
        self.result.lock().take().expect("a task that has ended has left a result, and only one join takes it")
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.result.lock().is_some()
    }
}
