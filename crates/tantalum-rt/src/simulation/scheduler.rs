//! Runs a simulation to its end.

use std::{cell::RefCell, panic::resume_unwind, rc::Rc, time::Duration};

use super::{Outcome, Simulation, current::Entered, state::End, trace::Trace, world::World};

pub(super) fn run<T: 'static>(
    settings: Simulation,
    root: impl FnOnce() -> T + 'static,
    traced: bool,
) -> (Outcome<T>, Trace) {
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
