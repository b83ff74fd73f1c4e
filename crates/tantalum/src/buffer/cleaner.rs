//! The task that keeps clean frames ready, so that a miss does not wait for a write.

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
    unparker: Unparker,
    task: Option<JoinHandle<()>>,
}

impl Cleaner {
    /// Starts the cleaner of a pool that has none.
    pub fn start(pool: &BufferPool) -> Self {
        let parker = Parker::new();
        let unparker = parker.unparker();
        let stop = Arc::new(AtomicBool::new(false));
        assert!(pool.shared.cleaner.set(unparker.clone()).is_ok(), "a pool has one cleaner");
        let task = tantalum_rt::spawn("tantalum-cleaner", {
            let (pool, stop) = (pool.clone(), Arc::clone(&stop));
            move || {
                while !stop.load(Ordering::Acquire) {
                    match pool.shared.refill_reserve() {
                        Ok(()) => parker.park(),
                        // It was traced and counted where it happened.
                        Err(_) => drop(parker.park_timeout(PAUSE_AFTER_FAILURE)),
                    }
                }
            }
        });
        Self { stop, unparker, task: Some(task) }
    }
}

impl Drop for Cleaner {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.unparker.unpark();
        if self.task.take().is_some_and(|task| task.join().is_err()) {
            tracing::error!("the page cleaner panicked");
        }
    }
}
