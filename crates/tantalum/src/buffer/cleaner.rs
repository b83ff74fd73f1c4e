//! The tasks that keep clean frames ready, so that a miss does not wait for a write: as many as there may be batches under way.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tantalum_rt::{JoinHandle, Parker, Unparker};

use super::BufferPool;

/// How long the cleaner rests after a failure.
const PAUSE_AFTER_FAILURE: Duration = Duration::from_millis(200);

/// The running cleaner. Dropping it stops it; the pool goes on without, only slower.
#[derive(Debug)]
pub struct Cleaner {
    stop: Arc<AtomicBool>,
    tasks: Vec<(Unparker, JoinHandle<()>)>,
}

impl Cleaner {
    /// Starts the cleaner of a pool that has none.
    pub fn start(pool: &BufferPool) -> Self {
        pool.shared.free_list.expect_cleaners();
        let stop = Arc::new(AtomicBool::new(false));
        let task = |number| {
            let (parker, pool, stop) = (Parker::new(), pool.clone(), Arc::clone(&stop));
            let unparker = parker.unparker();
            let task = move || clean(&pool, number, &parker, &stop);
            (unparker, tantalum_rt::spawn(format!("tantalum-cleaner-{number}"), task))
        };
        let tasks = (0..pool.shared.free_list.most_batches()).map(task).collect();
        Self { stop, tasks }
    }
}

fn clean(pool: &BufferPool, number: usize, parker: &Parker, stop: &AtomicBool) {
    let (free_list, unparker) = (&pool.shared.free_list, parker.unparker());
    while !stop.load(Ordering::Acquire) {
        match pool.shared.refill_reserve() {
            Ok(is_done) if free_list.rest(number, is_done, &unparker) => parker.park(),
            Ok(_) => {}
            // It was traced and counted where it happened.
            Err(_) => drop(parker.park_timeout(PAUSE_AFTER_FAILURE)),
        }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.tasks.iter().for_each(|(unparker, _)| unparker.unpark());
        for (_, task) in self.tasks.drain(..) {
            if task.join().is_err() {
                tracing::error!("a page cleaner panicked");
            }
        }
    }
}
