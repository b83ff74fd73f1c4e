//! Panics on purpose, at a point that a seed can choose: what a program must survive that promises to.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
};

use super::{current, world::World};

/// What an injected panic carries.
struct Injected;

/// Runs `f`, and has the calling task panic in it at the `point`-th [`interleave`](crate::interleave) that it comes to. Returns what
/// `f` returned, or `None` if the panic has unwound all of it; another panic goes on. `point` is counted down, so that it may lie
/// in a later call; at 0 there is no panic.
///
/// ```
/// use tantalum_rt::{Simulation, interleave, simulation::panic_at};
///
/// let steps = || (0..3).for_each(|_| interleave());
/// let run = move || {
///     let mut point = 5;
///     let first = panic_at(&mut point, steps);
///     (first, point, panic_at(&mut point, steps))
/// };
/// assert_eq!(Simulation::new(1).run(run).expect_finished(), (Some(()), 2, None));
/// ```
///
/// # Panics
/// Outside a simulation, within another call, and as `f`.
pub fn panic_at<T>(point: &mut u64, f: impl FnOnce() -> T) -> Option<T> {
    let Some(world) = current() else {
        panic!("panic_at() works only inside a simulation: elsewhere nothing counts points")
    };
    let before = world.set_panic_point((*point > 0).then_some(*point));
    assert!(before.is_none(), "a task can panic at one point at a time");
    let result = catch_unwind(AssertUnwindSafe(f));
    *point = world.set_panic_point(None).unwrap_or(0);
    match result {
        Ok(value) => Some(value),
        Err(payload) if payload.is::<Injected>() => {
            world.panics.set(world.panics.get() - 1);
            None
        }
        Err(payload) => resume_unwind(payload),
    }
}

impl World {
    /// Sets the point at which the current task panics, and returns what is left of the former one.
    fn set_panic_point(&self, point: Option<u64>) -> Option<u64> {
        let mut state = self.state.borrow_mut();
        let id = state.current;
        std::mem::replace(&mut state.task(id).panics_at, point)
    }

    /// The current task has come to a point.
    pub(crate) fn panic_if_due(&self) {
        // A destructor that panics while it unwinds ends the process.
        if std::thread::panicking() {
            return;
        }
        {
            let mut state = self.state.borrow_mut();
            let id = state.current;
            let Some(left) = &mut state.task(id).panics_at else { return };
            *left -= 1;
            if *left > 0 {
                return;
            }
            state.task(id).panics_at = None;
            state.record(id, || "panics".into());
        }
        self.panics.set(self.panics.get() + 1);
        // Not by `panic!`, which would tell of it as of a mistake.
        let payload: Box<dyn Any + Send> = Box::new(Injected);
        resume_unwind(payload)
    }
}
