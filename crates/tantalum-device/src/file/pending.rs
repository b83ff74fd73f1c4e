//! A file's pending writes without io_uring: a task sits in the blocking call.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tantalum_rt::{Condvar, JoinHandle, Mutex};

use super::Shared;
use crate::{AlignedBuffer, Durability, PendingWrite, Result};

/// What is written where.
pub(super) struct Write {
    pub(super) offset: u64,
    pub(super) buffer: Arc<AlignedBuffer>,
    pub(super) range: Range<usize>,
    pub(super) durability: Durability,
    /// The device's stream for it, as the kernel counts them: from 1. 0 is none.
    #[cfg_attr(not(feature = "io-uring"), expect(dead_code, reason = "io_uring alone can name it"))]
    pub(super) stream: u8,
}

/// Waits for a helper task.
pub(super) struct HelperWrite {
    shared: Arc<Shared>,
    outcome: Arc<Outcome>,
    task: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Outcome {
    result: Mutex<Option<Result<()>>>,
    set: Condvar,
}

impl HelperWrite {
    /// Starts the task. It holds the file but not what is shared, whose end waits for the task.
    pub(super) fn start(shared: Arc<Shared>, write: Write) -> Self {
        let outcome = Arc::new(Outcome::default());
        let (raw, answer) = (Arc::clone(&shared.raw), Arc::clone(&outcome));
        let task = tantalum_rt::spawn("device write", move || {
            let bytes = &write.buffer[write.range.clone()];
            let result = raw.write(write.offset, &[bytes], write.durability);
            *answer.result.lock() = Some(result);
            answer.set.notify_all();
        });
        Self { shared, outcome, task: Some(task) }
    }
}

impl PendingWrite for HelperWrite {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let deadline = timeout.map(|timeout| tantalum_rt::now() + timeout);
        let mut result = self.outcome.result.lock();
        loop {
            if let Some(result) = result.take() {
                self.task = None;
                return Some(result);
            }
            match deadline.map(|deadline| deadline.duration_since(tantalum_rt::now())) {
                None => self.outcome.set.wait(&mut result),
                Some(Duration::ZERO) => return None,
                Some(left) => {
                    self.outcome.set.wait_for(&mut result, left);
                }
            }
        }
    }

    fn is_done(&mut self) -> bool {
        self.outcome.result.lock().is_some()
    }
}

impl Drop for HelperWrite {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            self.shared.abandon_task(task);
        }
    }
}
