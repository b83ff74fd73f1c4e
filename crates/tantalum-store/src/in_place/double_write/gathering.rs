//! Batches that come to the double-write area at the same time, gathered to be written there together.
//!
//! While one group is being written, further batches gather in the next: so each write to the area, and the flush behind it, is for as
//! many as wait. A group that can take no more is written beside others.

use std::sync::Arc;

use tantalum_rt::{Condvar, Mutex};

use crate::PageBatch;

/// Groups of batches, each with at most as many pages as one batch can have. `O` is what comes of writing one.
#[derive(Debug)]
pub(super) struct Gathering<O> {
    state: Mutex<State<O>>,
    /// For the tasks that will write a group: one was written, or can take no more.
    turn: Condvar,
}

#[derive(Debug)]
struct State<O> {
    being_written: usize,
    open: Option<Group<O>>,
    /// Groups that are full, and that are not being written yet.
    closed: Vec<Group<O>>,
}

#[derive(Debug)]
struct Group<O> {
    batches: Vec<PageBatch>,
    pages: usize,
    end: Arc<End<O>>,
}

/// What the members of a group wait for.
#[derive(Debug)]
struct End<O> {
    outcome: Mutex<Option<O>>,
    there: Condvar,
}

impl<O> Default for Gathering<O> {
    fn default() -> Self {
        let state = State { being_written: 0, open: None, closed: Vec::new() };
        Self { state: Mutex::new(state), turn: Condvar::new() }
    }
}

impl<O> Group<O> {
    fn of(batch: &PageBatch) -> Self {
        let end = Arc::new(End { outcome: Mutex::new(None), there: Condvar::new() });
        Self { batches: vec![batch.clone()], pages: batch.ids().len(), end }
    }

    fn is_full(&self) -> bool {
        self.pages == PageBatch::MAX_PAGES
    }

    fn has_room_for(&self, batch: &PageBatch) -> bool {
        self.pages + batch.ids().len() <= PageBatch::MAX_PAGES
    }
}

impl<O: Clone> Gathering<O> {
    /// Has the batch written with others: by `write`, which is given them all, or by that of another. If it panics, the others wait
    /// forever.
    pub fn write(&self, batch: &PageBatch, write: impl FnOnce(&[PageBatch]) -> O) -> O {
        let mut state = self.state.lock();
        if let Some(open) = state.open.as_mut().filter(|open| open.has_room_for(batch)) {
            open.batches.push(batch.clone());
            open.pages += batch.ids().len();
            let end = Arc::clone(&open.end);
            if open.is_full() {
                self.close(&mut state);
            }
            drop(state);
            return end.wait();
        }
        self.close(&mut state);
        let group = Group::of(batch);
        let end = Arc::clone(&group.end);
        let is_full = group.is_full();
        state.open = Some(group);
        if is_full {
            self.close(&mut state);
        }
        let group = loop {
            let is_mine = |group: &Group<O>| Arc::ptr_eq(&group.end, &end);
            if let Some(at) = state.closed.iter().position(is_mine) {
                break state.closed.swap_remove(at);
            }
            if state.being_written == 0 {
                break state.open.take().expect("a group is open until it is closed or written");
            }
            self.turn.wait(&mut state);
        };
        state.being_written += 1;
        drop(state);
        let outcome = write(&group.batches);
        // Before the others go on: the memory is theirs.
        drop(group);
        self.state.lock().being_written -= 1;
        self.turn.notify_all();
        *end.outcome.lock() = Some(outcome.clone());
        end.there.notify_all();
        outcome
    }

    /// The open group takes no more batches.
    fn close(&self, state: &mut State<O>) {
        if let Some(open) = state.open.take() {
            state.closed.push(open);
            self.turn.notify_all();
        }
    }
}

impl<O: Clone> End<O> {
    fn wait(&self) -> O {
        let mut outcome = self.outcome.lock();
        loop {
            match &*outcome {
                Some(outcome) => return outcome.clone(),
                None => self.there.wait(&mut outcome),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tantalum_rt::{Simulation, sleep, spawn};

    use super::*;
    use crate::tests::batch;

    /// Tasks that come so many ms after the begin with so many pages, and the pages of their groups; a write takes 10 ms.
    fn groups(coming: Vec<(u64, u64)>) -> Vec<(usize, u64)> {
        Simulation::new(1)
            .run(move || {
                let gathering = Arc::new(Gathering::default());
                let task = |(number, (at, pages)): (usize, (u64, u64))| {
                    let gathering = Arc::clone(&gathering);
                    spawn("comes", move || {
                        sleep(Duration::from_millis(at));
                        let first = 100 * number as u64;
                        let ids: Vec<u64> = (first..first + pages).collect();
                        gathering.write(&batch(&ids, 1), |batches| {
                            sleep(Duration::from_millis(10));
                            let pages: usize = batches.iter().map(|batch| batch.ids().len()).sum();
                            (pages, tantalum_rt::now().as_nanos() / 1_000_000)
                        })
                    })
                };
                let tasks: Vec<_> = coming.into_iter().enumerate().map(task).collect();
                tasks.into_iter().map(|task| task.join().unwrap()).collect()
            })
            .expect_finished()
    }

    #[test]
    fn batches_that_come_while_a_group_is_written_share_the_next() {
        let together = groups(vec![(0, 1), (1, 2), (2, 3), (9, 1), (25, 4)]);
        assert_eq!(together, [(1, 10), (6, 20), (6, 20), (6, 20), (4, 35)]);
    }

    #[test]
    fn a_group_that_can_take_no_more_is_written_beside_others() {
        let together = groups(vec![(0, 1), (1, 40), (2, 30), (3, 34), (4, 1)]);
        assert_eq!(together, [(1, 10), (40, 12), (64, 13), (64, 13), (1, 23)]);
    }
}
