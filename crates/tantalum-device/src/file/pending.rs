//! A file's pending write, by io_uring or, where there is none, by a task that sits in the blocking call.

use std::sync::Arc;
use std::time::Duration;

use tantalum_rt::{Condvar, JoinHandle, Mutex};

use super::Shared;
use super::uring::{InFlight, Write};
use crate::{PendingWrite, Result};

/// Waits in the kernel.
pub(super) struct UringWrite {
    pub(super) shared: Arc<Shared>,
    /// `None` once `wait` has returned `Some`.
    pub(super) in_flight: Option<InFlight>,
    /// An answer that `is_done` took from the ring.
    pub(super) answer: Option<i32>,
}

impl PendingWrite for UringWrite {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let in_flight = self.in_flight.as_mut().expect("wait is not called again after it returned Some");
        let result = self.answer.or_else(|| in_flight.wait(timeout))?;
        let in_flight = self.in_flight.take()?;
        Some(self.shared.rings.finish(in_flight, result, &self.shared.raw))
    }

    fn is_done(&mut self) -> bool {
        if self.answer.is_none() {
            self.answer = self.in_flight.as_mut().and_then(InFlight::poll);
        }
        self.answer.is_some()
    }
}

impl Drop for UringWrite {
    fn drop(&mut self) {
        let Some(in_flight) = self.in_flight.take() else { return };
        match self.answer {
            Some(result) => {
                let _nobody_waits = self.shared.rings.finish(in_flight, result, &self.shared.raw);
            }
            None => self.shared.rings.abandon(in_flight),
        }
    }
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
