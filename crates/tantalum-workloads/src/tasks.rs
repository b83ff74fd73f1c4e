//! Several tasks run to their end while the caller shows progress.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tantalum_rt::{Condvar, JoinHandle, Mutex};

use crate::error::{Error, ErrorKind};

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
pub(crate) fn run_all<T: Send + 'static, E: From<Error> + Send + 'static>(
    tasks: Vec<(String, impl FnOnce() -> Result<T, E> + Send + 'static)>,
    tick: &mut dyn FnMut() -> Duration,
) -> Result<Vec<T>, E> {
    let running = Arc::new(Running { count: Mutex::new(tasks.len()), ended: Condvar::new() });
    let spawn = |(name, task): (String, _)| {
        let mark = EndMark(running.clone());
        let body = move || {
            let _mark = mark;
            let task: Box<dyn FnOnce() -> Result<T, E> + Send> = Box::new(task);
            task()
        };
        (name.clone(), tantalum_rt::spawn(name, body))
    };
    let handles: Vec<(String, JoinHandle<Result<T, E>>)> = tasks.into_iter().map(spawn).collect();
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
    let panicked = |task| Error::new(ErrorKind::Poisoned, format!("{task} panicked; the message is above"));
    let join = |(task, handle): (String, JoinHandle<Result<T, E>>)| handle.join().map_err(|_| panicked(task))?;
    // Every task is joined before the first error is given back.
    handles.into_iter().map(join).collect::<Vec<_>>().into_iter().collect()
}

/// Has `workers` tasks, whose names begin with `name`, do all items, each taking the next one. Gives the results in the order of the
/// items; after an error no item is begun. `tick` is called at once and again whenever the time that it returned has passed.
///
/// ```
/// use tantalum_workloads::{Error, map_by_tasks};
///
/// let square = |_, number: &u64| Ok::<_, Error>(number * number);
/// let never = &mut || std::time::Duration::from_secs(1);
/// assert_eq!(map_by_tasks("worker", 2, vec![1, 2, 3], square, never)?, [1, 4, 9]);
/// # Ok::<(), Error>(())
/// ```
pub fn map_by_tasks<I, T, E>(
    name: &str,
    workers: usize,
    items: Vec<I>,
    work: impl Fn(usize, &I) -> Result<T, E> + Send + Sync + 'static,
    tick: &mut dyn FnMut() -> Duration,
) -> Result<Vec<T>, E>
where
    I: Send + Sync + 'static,
    T: Send + 'static,
    E: From<Error> + Send + 'static,
{
    let (next, has_failed) = (AtomicUsize::new(0), AtomicBool::new(false));
    let shared = Arc::new((items, work, next, has_failed));
    let worker = |number| {
        let shared = shared.clone();
        let take_items = move || {
            let (items, work, next, has_failed) = &*shared;
            let mut done = Vec::new();
            while !has_failed.load(Ordering::Relaxed) {
                let place = next.fetch_add(1, Ordering::Relaxed);
                let Some(item) = items.get(place) else { break };
                let result = work(place, item);
                done.push((place, result.inspect_err(|_| has_failed.store(true, Ordering::Relaxed))?));
            }
            Ok::<_, E>(done)
        };
        (format!("{name} {number}"), take_items)
    };
    let mut done: Vec<_> = run_all((0..workers.max(1)).map(worker).collect(), tick)?.into_iter().flatten().collect();
    done.sort_unstable_by_key(|(place, _)| *place);
    Ok(done.into_iter().map(|(_, result)| result).collect())
}
