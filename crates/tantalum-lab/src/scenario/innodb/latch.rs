//! The latch of a tree, as it was before MySQL 5.7.5: tasks that go down to a leaf share it (`BTR_SEARCH_LEAF`, `BTR_MODIFY_LEAF`), also
//! while that leaf is read, and a task that changes more than one has it exclusively (`BTR_MODIFY_TREE`). One that waits for those that
//! share it lets no other in; when it is let go, all that wait may be next (`rw_lock_t`).

use tantalum_rt::{Condvar, Mutex};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Shared,
    Exclusive,
}

#[derive(Debug, Default)]
pub struct Latch {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    shared: usize,
    /// Whether a task has it exclusively, or waits for those that share it.
    is_exclusive: bool,
}

impl Latch {
    pub fn take(&self, mode: Mode) {
        let mut state = self.state.lock();
        while state.is_exclusive {
            self.changed.wait(&mut state);
        }
        match mode {
            Mode::Shared => state.shared += 1,
            Mode::Exclusive => {
                state.is_exclusive = true;
                while state.shared > 0 {
                    self.changed.wait(&mut state);
                }
            }
        }
    }

    pub fn leave(&self, mode: Mode) {
        let mut state = self.state.lock();
        match mode {
            Mode::Shared => state.shared -= 1,
            Mode::Exclusive => state.is_exclusive = false,
        }
        if state.shared == 0 {
            self.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tantalum_rt::{Simulation, now, sleep, spawn};

    use super::*;

    /// How long it takes until all have had it for a second, which come a millisecond after each other.
    fn seconds(modes: &'static [Mode]) -> u64 {
        let run = || {
            let (latch, begun) = (Arc::new(Latch::default()), now());
            let task = |&mode: &Mode| {
                let latch = Arc::clone(&latch);
                sleep(Duration::from_millis(1));
                spawn("task", move || {
                    latch.take(mode);
                    sleep(Duration::from_secs(1));
                    latch.leave(mode);
                })
            };
            modes.iter().map(task).collect::<Vec<_>>().into_iter().for_each(|task| task.join_or_panic());
            begun.elapsed().as_secs()
        };
        Simulation::new(1).run(run).expect_finished()
    }

    #[test]
    fn a_task_that_waits_to_have_it_exclusively_lets_no_other_in() {
        use Mode::{Exclusive, Shared};
        assert_eq!(seconds(&[Shared, Shared, Shared]), 1);
        assert_eq!(seconds(&[Shared, Exclusive, Shared]), 3);
        assert_eq!(seconds(&[Exclusive, Exclusive, Shared, Shared]), 3);
    }
}
