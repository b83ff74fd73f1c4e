//! Several tasks run to their end while the caller shows progress.

use std::sync::Arc;
use std::time::Duration;

use tantalum_rt::{Condvar, JoinHandle, Mutex};

use crate::error::{Error, Result};

#[derive(Default)]
struct Running {
    count: Mutex<usize>,
    ended: Condvar,
}

/// Counts a task down when it ends, by return or by panic.
struct EndMark(Arc<Running>);

impl Drop for EndMark {
    fn drop(&mut self) {
        *self.0.count.lock() -= 1;
        self.0.ended.notify_one();
    }
}

/// Runs all tasks; calls `tick` at once and again whenever the time that it returned has passed. Gives the results in
/// the order of the tasks, or the first error in that order.
pub(crate) fn run_all<T: Send + 'static>(
    tasks: Vec<(String, impl FnOnce() -> Result<T> + Send + 'static)>,
    tick: &mut dyn FnMut() -> Duration,
) -> Result<Vec<T>> {
    let running = Arc::new(Running { count: Mutex::new(tasks.len()), ended: Condvar::new() });
    let spawn = |(name, task): (String, _)| {
        let mark = EndMark(running.clone());
        let body = move || {
            let _mark = mark;
            let task: Box<dyn FnOnce() -> Result<T> + Send> = Box::new(task);
            task()
        };
        (name.clone(), tantalum_rt::spawn(name, body))
    };
    let handles: Vec<(String, JoinHandle<Result<T>>)> = tasks.into_iter().map(spawn).collect();
    loop {
        let next_tick = tantalum_rt::now() + tick();
        let mut count = running.count.lock();
        while *count > 0 && tantalum_rt::now() < next_tick {
            running.ended.wait_for(&mut count, next_tick - tantalum_rt::now());
        }
        if *count == 0 {
            break;
        }
    }
    let join = |(task, handle): (String, JoinHandle<Result<T>>)| handle.join().map_err(|_| Error::Panicked { task })?;
    // Every task is joined before the first error is given back.
    handles.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
}
