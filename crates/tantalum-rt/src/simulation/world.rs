//! What the tasks of a simulation call when they wait.
//!
//! Invariant: the state is never borrowed while tasks switch, nor while code of the program runs.

#![allow(unsafe_code)]

use std::{
    any::Any,
    cell::{Cell, RefCell},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
};

use corosensei::{Coroutine, Yielder, stack::DefaultStack};

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
}

impl World {
    pub(super) fn new(settings: &Simulation, traced: bool) -> Self {
        Self {
            state: RefCell::new(State::new(settings, traced)),
            yielder: Cell::new(ptr::null()),
            stack_size_bytes: settings.stack_size_bytes,
        }
    }

    // Tasks.

    /// Creates a task that can run from now on. `leave_result` gets what `f` returns, or its panic if someone joins.
    pub(super) fn start<T: 'static>(
        &self,
        name: String,
        leave_result: impl FnOnce(Result<T, Box<dyn Any + Send>>) + 'static,
        f: impl FnOnce() -> T + 'static,
    ) -> TaskId {
        let id = self.state.borrow().next_id();
        let coroutine = Coroutine::with_stack(self.stack(), move |yielder, ()| {
            let world = current().expect("a task runs only inside its simulation");
            world.yielder.set(yielder);
            let result = catch_unwind(AssertUnwindSafe(f));
            // Dropping a result that nobody wants runs the program's code, too.
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

    fn end_by_panic(&self, task: TaskId, payload: Box<dyn Any + Send>) {
        let mut state = self.state.borrow_mut();
        let name = state.task(task).name.clone();
        state.end = Some(End::Panicked { task, name, at_ns: state.now_ns, payload });
    }

    pub(crate) fn power_cut(&self) -> ! {
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

    pub(crate) fn list_tasks(&self) -> String {
        self.state.borrow().list_tasks()
    }

    pub(crate) fn cores(&self) -> usize {
        self.state.borrow().cores
    }

    pub(crate) fn random_seed(&self) -> u64 {
        self.state.borrow_mut().seeds.u64(..)
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
            let wait = self.state.borrow_mut().take_core(duration_ns);
            self.suspend_for(wait);
        }
    }

    // Locks and conditions.

    /// Waits until the lock at `address` is held: `try_acquire` took it, or a release took it for this task.
    pub(crate) fn acquire(&self, address: usize, wait: Wait, try_acquire: impl Fn() -> bool) {
        {
            let mut state = self.state.borrow_mut();
            let id = state.current;
            state.queues.push(address, id, wait);
        }
        loop {
            self.suspend_for(wait);
            let mut state = self.state.borrow_mut();
            let id = state.current;
            if state.was_served() {
                return;
            }
            if try_acquire() {
                state.queues.remove(address, id);
                return;
            }
            state.queues.passed_over(address, id);
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
        timeout_ns: Option<u64>,
        before_sleep: impl FnOnce(),
    ) -> bool {
        self.state.borrow_mut().wait_for_condition(address, wait, timeout_ns);
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
