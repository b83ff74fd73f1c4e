//! Waiting for a simulated task's end.

use std::{any::Any, fmt, sync::Arc};

use parking_lot::Mutex;

use super::{
    current,
    state::{TaskId, Wait},
    world::World,
};

type Panic = Box<dyn Any + Send>;

/// Where a task leaves its result. Locked only for a moment, never while tasks switch.
pub(super) type ResultSlot<T> = Arc<Mutex<Option<Result<T, Panic>>>>;

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

impl World {
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
}
