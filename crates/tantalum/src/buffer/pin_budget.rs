//! How many frames transactions may hold that are about to be published.
//!
//! A commit pins all of its leaves before it is logged, and reading one may need a frame. If every frame were pinned by commits
//! that wait for one more, none would ever come; so together they hold a part of the pool at most. A commit that gets no
//! more lets go of everything, waits in line until it can have all that it may need, and starts over. One that takes a single
//! page never waits for a second, and is not counted.

use std::collections::VecDeque;

use tantalum_rt::{Mutex, Parker, Unparker};

/// The part of the frames that commits do not hold; they are for reads, splits and whatever else holds a few at a time.
const OTHERS: usize = 4;

/// The frames that commits may hold.
#[derive(Debug)]
pub struct PinBudget {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    /// What those who wait want, in their order; whoever is given it is told so.
    waiting: VecDeque<(usize, Unparker)>,
    /// How many ever waited.
    waits: u64,
}

/// The frames that one commit may hold. Dropping it gives them back.
#[derive(Debug)]
pub struct Pins<'a> {
    budget: &'a PinBudget,
    granted: usize,
    used: usize,
}

impl PinBudget {
    /// Of a pool of so many frames.
    pub(super) fn new(frames: usize) -> Self {
        Self { limit: frames - frames / OTHERS, state: Mutex::default() }
    }

    /// Nothing yet, for a commit that takes what it finds.
    pub fn begin(&self) -> Pins<'_> {
        Pins { budget: self, granted: 0, used: 0 }
    }

    /// Waits for `pages` frames, or for all that there are: what a commit that was refused can need at most. The caller holds
    /// no pages, and no [`Pins`] of the same commit.
    pub fn wait_for(&self, pages: usize) -> Pins<'_> {
        let granted = pages.min(self.limit);
        let mut state = self.state.lock();
        state.waits += 1;
        if state.waiting.is_empty() && state.held + granted <= self.limit {
            state.held += granted;
            return Pins { budget: self, granted, used: 0 };
        }
        let parker = Parker::new();
        state.waiting.push_back((granted, parker.unparker()));
        drop(state);
        parker.park();
        Pins { budget: self, granted, used: 0 }
    }

    /// How many commits had to wait.
    pub(super) fn waits(&self) -> u64 {
        self.state.lock().waits
    }
}

impl Pins<'_> {
    /// So many more pages are pinned, or about to be: false if there is no room for them now, and all must be unpinned.
    pub fn try_add(&mut self, pages: usize) -> bool {
        self.used += pages;
        let missing = match self.used {
            1 => 0,
            used => used.saturating_sub(self.granted),
        };
        // Who has everything waits for nobody; whether it is enough is for the pool to say.
        if missing == 0 || self.granted == self.budget.limit {
            return true;
        }
        let mut state = self.budget.state.lock();
        let fits = state.waiting.is_empty() && state.held + missing <= self.budget.limit;
        if fits {
            state.held += missing;
            self.granted += missing;
        }
        fits
    }

    /// All pages were unpinned, and will be pinned anew.
    pub fn restart(&mut self) {
        self.used = 0;
    }
}

impl Drop for Pins<'_> {
    fn drop(&mut self) {
        if self.granted == 0 {
            return;
        }
        let mut state = self.budget.state.lock();
        state.held -= self.granted;
        while let Some(&(wanted, _)) = state.waiting.front()
            && state.held + wanted <= self.budget.limit
        {
            state.held += wanted;
            let (_, next) = state.waiting.pop_front().expect("it is the first");
            next.unpark();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Arc, time::Duration};

    use tantalum_rt::{Simulation, sleep, spawn};

    use super::*;

    #[test]
    fn who_is_refused_waits_in_line_for_all_that_it_may_need() {
        Simulation::new(1)
            .run(|| {
                let budget = Arc::new(PinBudget::new(21));
                let (mut first, mut second) = (budget.begin(), budget.begin());
                assert!((0..10).all(|_| first.try_add(1)));
                assert!(second.try_add(1) && second.try_add(5) && !second.try_add(1), "16 in all");
                drop(second);
                let waits = |pages| {
                    let budget = Arc::clone(&budget);
                    let task = spawn("waits", move || {
                        let mut pins = budget.wait_for(pages);
                        assert!((0..pages).all(|_| pins.try_add(1)), "what was granted is there");
                        sleep(Duration::from_millis(5));
                        drop(pins);
                        tantalum_rt::now()
                    });
                    sleep(Duration::from_millis(1));
                    task
                };
                // The second could have its two frames at once, but the first would then never have all.
                let (all, few) = (waits(100), waits(2));
                let mut late = budget.begin();
                assert!(late.try_add(1), "a single page is not counted");
                assert!(!late.try_add(1), "others were there before");
                drop((first, late));
                assert!(few.join().unwrap() > all.join().unwrap());
                assert_eq!(budget.waits(), 2);
                assert_eq!(budget.state.lock().held, 0);
            })
            .expect_finished();
    }
}
