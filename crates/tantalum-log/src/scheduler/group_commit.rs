//! The group commit's state: the requests that the log consists of, how far they are complete, and the tasks that wait
//! for them.
//!
//! Invariants:
//! - requests tile the log: each starts where the one before ended;
//! - the prefix rule: the durable end only grows, and every request before it is complete;
//! - a task is either registered here or woken, so it is woken once for each wait.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tantalum_rt::{Parker, Unparker};

use crate::Lsn;
use crate::group::Request;

const WAITING: u8 = 0;
const TO_WRITE: u8 = 1;
const DONE: u8 = 2;

/// A task that sleeps until it is to write, or the outcome that it waits for is known.
pub(super) struct Waiter {
    wake: AtomicU8,
    unparker: Unparker,
}

/// A waiter, and what its task sleeps with.
pub(super) struct Sleeper {
    parker: Parker,
    waiter: Arc<Waiter>,
}

thread_local! {
    /// The thread's sleepers that are not in use: nearly every commit needs one. There are more where a thread runs several tasks.
    static UNUSED: RefCell<Vec<Sleeper>> = const { RefCell::new(Vec::new()) };
}

/// Sleepers that a thread keeps.
const KEPT_SLEEPERS: usize = 4;

impl Sleeper {
    /// One that the thread has kept, or a new one.
    pub(super) fn take() -> Sleeper {
        UNUSED.with_borrow_mut(Vec::pop).unwrap_or_default()
    }

    /// Keeps one that is not registered for the thread's next wait.
    pub(super) fn keep(self) {
        UNUSED.with_borrow_mut(|unused| {
            if unused.len() < KEPT_SLEEPERS {
                unused.push(self);
            }
        });
    }

    pub(super) fn waiter(&self) -> &Arc<Waiter> {
        &self.waiter
    }

    /// Sleeps until woken; the waiter can then be registered again.
    pub(super) fn sleep(&self) -> Wake {
        loop {
            self.parker.park();
            match self.waiter.wake.swap(WAITING, Ordering::AcqRel) {
                TO_WRITE => return Wake::ToWrite,
                DONE => return Wake::Done,
                _ => {} // a token left over from an earlier wait
            }
        }
    }
}

impl Default for Sleeper {
    fn default() -> Sleeper {
        let parker = Parker::new();
        let waiter = Arc::new(Waiter { wake: AtomicU8::new(WAITING), unparker: parker.unparker() });
        Sleeper { parker, waiter }
    }
}

/// Why a waiter was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wake {
    /// A device is idle and has work.
    ToWrite,
    /// The outcome that it waits for is known.
    Done,
}

impl Waiter {
    pub(super) fn wake_done(&self) {
        self.wake(DONE);
    }

    fn wake(&self, wake: u8) {
        let before = self.wake.swap(wake, Ordering::AcqRel);
        assert_eq!(before, WAITING, "a waiter is taken out before it is woken, so it is woken once");
        self.unparker.unpark();
    }
}

/// The requests, and the tasks that wait for them. Guarded by the state's lock.
#[derive(Default)]
pub(super) struct GroupCommit {
    /// Sealed requests without a device, by LSN.
    pub(super) queue: VecDeque<Request>,
    /// The end of the newest sealed request.
    pub(super) sealed_end: Lsn,
    /// Completed requests behind the durable end: start to end.
    completed: BTreeMap<Lsn, Lsn>,
    /// Tasks in `flush`, by the LSN that they wait for and the order in which they came.
    waiters: BTreeMap<(Lsn, u64), Arc<Waiter>>,
    next_waiter: u64,
    idle_workers: Vec<Arc<Waiter>>,
    writers_woken: usize,
    /// Tickets and space requests want the log written up to here; no task waits for it.
    wanted: Lsn,
    pub(super) requests: u64,
    pub(super) request_bytes: u64,
    pub(super) flush_waits: u64,
}

impl GroupCommit {
    /// A log that ends at `end`, where everything before is durable.
    pub(super) fn new(end: Lsn) -> GroupCommit {
        GroupCommit { sealed_end: end, wanted: end, ..GroupCommit::default() }
    }

    /// Adds the newest request.
    pub(super) fn push(&mut self, request: Request) {
        assert_eq!(request.start, self.sealed_end, "requests tile the log");
        self.sealed_end = request.end;
        self.requests += 1;
        self.request_bytes += request.end.bytes_since(request.start);
        self.queue.push_back(request);
    }

    /// Puts back a request that its device failed to write.
    pub(super) fn push_again(&mut self, request: Request) {
        let at = self.queue.partition_point(|queued| queued.start < request.start);
        self.queue.insert(at, request);
    }

    /// Where the oldest records start that no device was given.
    pub(super) fn unplaced_start(&self) -> Lsn {
        self.queue.front().map_or(self.sealed_end, |request| request.start)
    }

    /// Completes a request, which was not complete.
    pub(super) fn complete(&mut self, start: Lsn, end: Lsn) {
        let before = self.completed.insert(start, end);
        assert!(before.is_none(), "a request completes once");
    }

    /// Whether the request that starts at `start` is complete, with the log durable up to `durable`.
    pub(super) fn is_complete(&self, start: Lsn, durable: Lsn) -> bool {
        start < durable || self.completed.contains_key(&start)
    }

    /// The prefix rule: how far the log is durable if it was durable up to `durable`.
    pub(super) fn advance(&mut self, mut durable: Lsn) -> Lsn {
        while self.completed.first_key_value().is_some_and(|(&start, _)| start < durable) {
            self.completed.pop_first();
        }
        while let Some(end) = self.completed.remove(&durable) {
            assert!(end > durable, "no request is empty");
            durable = end;
        }
        assert!(durable <= self.sealed_end, "only sealed requests complete");
        assert!(self.completed.first_key_value().is_none_or(|(&start, _)| start > durable), "requests tile the log");
        durable
    }

    /// Registers a task that sleeps until `lsn` is durable.
    pub(super) fn register(&mut self, lsn: Lsn, waiter: &Arc<Waiter>) {
        self.waiters.insert((lsn, self.next_waiter), Arc::clone(waiter));
        self.next_waiter += 1;
        self.flush_waits += 1;
    }

    /// Registers a worker that found nothing to do.
    pub(super) fn register_worker(&mut self, worker: &Arc<Waiter>) {
        self.idle_workers.push(Arc::clone(worker));
    }

    /// Takes out the tasks that wait for nothing behind `durable`, in the order of their LSNs.
    pub(super) fn take_waiters(&mut self, durable: Lsn) -> Vec<Arc<Waiter>> {
        let mut taken = Vec::new();
        while let Some(first) = self.waiters.first_entry().filter(|first| first.key().0 <= durable) {
            taken.push(first.remove());
        }
        taken
    }

    /// Wakes every task that waits for an LSN.
    pub(super) fn wake_waiters(&mut self) {
        std::mem::take(&mut self.waiters).into_values().for_each(|waiter| waiter.wake_done());
    }

    /// Wakes an idle worker for anything but writing. If none is idle, one that is up looks before it sleeps.
    pub(super) fn wake_worker(&mut self) {
        if let Some(worker) = self.idle_workers.pop() {
            worker.wake_done();
        }
    }

    /// Wakes all idle workers.
    pub(super) fn wake_workers(&mut self) {
        self.idle_workers.drain(..).for_each(|worker| worker.wake_done());
    }

    /// Wakes a task to write records from `start` on: one that waits for such records, or else an idle worker. False if there is
    /// none: then every worker is up, and looks for work before it sleeps.
    pub(super) fn wake_writer(&mut self, start: Lsn) -> bool {
        let waiter = match self.waiters.last_entry() {
            Some(last) if last.key().0 > start => Some(last.remove()),
            _ => self.idle_workers.pop(),
        };
        let Some(waiter) = waiter else { return false };
        self.writers_woken += 1;
        waiter.wake(TO_WRITE);
        true
    }

    /// Tasks woken to write that have not taken the lock yet: no second one is woken for the same work.
    pub(super) fn writers_woken(&self) -> usize {
        self.writers_woken
    }

    /// A task that was woken to write has taken the lock.
    pub(super) fn writer_came(&mut self) {
        self.writers_woken -= 1;
    }

    /// Wants the log written up to `lsn`.
    pub(super) fn want(&mut self, lsn: Lsn) {
        self.wanted = self.wanted.max(lsn);
    }

    /// Up to where tickets and space requests want the log written.
    pub(super) fn wanted(&self) -> Lsn {
        self.wanted
    }

    /// Whether records that are in no request yet are wanted durable.
    pub(super) fn wants_unsealed(&self) -> bool {
        let last = self.waiters.last_key_value().map_or(self.wanted, |(key, _)| key.0.max(self.wanted));
        last > self.sealed_end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::group::Source;
    use tantalum_device::AlignedBuffer;

    fn request(start: u64, end: u64) -> Request {
        let source = Source::Taken(AlignedBuffer::zeroed(4096));
        Request { start: Lsn::new(start), end: Lsn::new(end), source }
    }

    fn commits() -> GroupCommit {
        let mut commits = GroupCommit::new(Lsn::new(100));
        for (start, end) in [(100, 110), (110, 130), (130, 135)] {
            commits.push(request(start, end));
        }
        commits
    }

    #[test]
    fn only_a_prefix_of_complete_requests_is_durable() {
        let mut commits = commits();
        let durable = Lsn::new(100);
        commits.complete(Lsn::new(130), Lsn::new(135));
        assert_eq!(commits.advance(durable), durable);
        commits.complete(Lsn::new(100), Lsn::new(110));
        assert_eq!(commits.advance(durable).get(), 110);
        assert!(
            commits.is_complete(Lsn::new(130), Lsn::new(110)) && !commits.is_complete(Lsn::new(110), Lsn::new(110))
        );
        // The archive has the second request.
        assert_eq!(commits.advance(Lsn::new(130)).get(), 135);
    }

    #[test]
    fn a_request_that_failed_takes_its_place_in_the_queue() {
        let mut commits = commits();
        let first = commits.queue.pop_front().expect("queued");
        assert_eq!(commits.unplaced_start().get(), 110);
        commits.push_again(first);
        assert_eq!(commits.unplaced_start().get(), 100);
        assert_eq!((commits.requests, commits.request_bytes), (3, 35));
    }

    #[test]
    #[should_panic(expected = "requests tile the log")]
    fn requests_leave_no_gap() {
        commits().push(request(136, 140));
    }

    #[test]
    fn the_task_with_the_newest_records_is_woken_to_write() {
        let mut commits = commits();
        let sleepers = [Sleeper::default(), Sleeper::default(), Sleeper::default()];
        commits.register(Lsn::new(110), sleepers[0].waiter());
        commits.register(Lsn::new(130), sleepers[1].waiter());
        commits.register_worker(sleepers[2].waiter());
        assert!(commits.wake_writer(Lsn::new(110)));
        assert_eq!(sleepers[1].sleep(), Wake::ToWrite);
        assert!(commits.wake_writer(Lsn::new(110)));
        assert_eq!(sleepers[2].sleep(), Wake::ToWrite, "the records of the other are not part of the work");
        assert!(!commits.wake_writer(Lsn::new(110)));
        assert_eq!(commits.writers_woken(), 2);
        assert_eq!(commits.take_waiters(Lsn::new(110)).len(), 1);
        assert!(!commits.wants_unsealed());
        commits.want(Lsn::new(136));
        assert!(commits.wants_unsealed());
    }
}
