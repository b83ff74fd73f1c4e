//! Which task waits for which lock or condition.
//!
//! Waiters of a lock stay in its queue, also while woken to try again, until they hold it. So a queue shows new readers
//! that a writer waits, and a waiter that was woken in vain once is handed the lock at the next release: no task
//! starves, as `parking_lot`'s locks promise on threads.
//!
//! Invariant: while a lock's queue is not empty, a task holds the lock or the first waiter is awake.

use std::collections::VecDeque;

use super::state::{TaskId, Wait};
use crate::collections::HashMap;

/// Queues by the address of the lock or condition. Never iterated, as addresses differ from run to run.
#[derive(Default)]
pub(super) struct Queues {
    by_address: HashMap<usize, VecDeque<Waiter>>,
}

#[derive(Clone, Copy)]
struct Waiter {
    task: TaskId,
    wait: Wait,
    /// Made runnable, to try to take the lock.
    awake: bool,
    /// Woken in vain before: another task was quicker.
    passed_over: bool,
}

/// What a release does for a waiter.
pub(super) enum Turn {
    /// It may try to take the lock.
    Retry(TaskId),
    /// The lock is already taken for it.
    Granted(TaskId),
}

impl Queues {
    pub(super) fn push(&mut self, address: usize, task: TaskId, wait: Wait) {
        self.by_address.entry(address).or_default().push_back(Waiter { task, wait, awake: false, passed_over: false });
    }

    pub(super) fn remove(&mut self, address: usize, task: TaskId) {
        if let Some(queue) = self.by_address.get_mut(&address) {
            queue.retain(|waiter| waiter.task != task);
            if queue.is_empty() {
                self.by_address.remove(&address);
            }
        }
    }

    /// Takes the first waiter of a condition.
    pub(super) fn pop(&mut self, address: usize) -> Option<TaskId> {
        let queue = self.by_address.get_mut(&address)?;
        let waiter = queue.pop_front();
        if queue.is_empty() {
            self.by_address.remove(&address);
        }
        waiter.map(|waiter| waiter.task)
    }

    pub(super) fn writer_waits(&self, address: usize) -> bool {
        self.by_address.get(&address).is_some_and(|queue| queue.iter().any(|waiter| matches!(waiter.wait, Wait::Write)))
    }

    /// Notes that a woken waiter did not get the lock.
    pub(super) fn passed_over(&mut self, address: usize, task: TaskId) {
        let queue = self.by_address.get_mut(&address).into_iter().flatten();
        for waiter in queue.filter(|waiter| waiter.task == task) {
            waiter.awake = false;
            waiter.passed_over = true;
        }
    }

    /// The lock at `address` has become free for some task: gives turns to the first writer, or to all readers in front
    /// of it. `try_acquire` takes the lock on a waiter's behalf.
    pub(super) fn release(&mut self, address: usize, try_acquire: impl Fn(Wait) -> bool) -> Vec<Turn> {
        let mut turns = Vec::new();
        let Some(queue) = self.by_address.get_mut(&address) else { return turns };
        let mut index = 0;
        while let Some(waiter) = queue.get_mut(index) {
            let is_reader = matches!(waiter.wait, Wait::Read);
            if !is_reader && (index > 0 || !turns.is_empty()) {
                break;
            }
            if waiter.passed_over && !waiter.awake {
                if !try_acquire(waiter.wait) {
                    break;
                }
                turns.push(Turn::Granted(waiter.task));
                queue.remove(index);
                if !is_reader {
                    break;
                }
                continue;
            }
            if !waiter.awake {
                waiter.awake = true;
                turns.push(Turn::Retry(waiter.task));
            }
            if !is_reader {
                break;
            }
            index += 1;
        }
        if queue.is_empty() {
            self.by_address.remove(&address);
        }
        turns
    }
}
