//! How many frames commits may hold together.
//!
//! A commit pins all of its leaves before it is logged, and reading one may need a frame. If every frame were pinned by commits
//! that wait for one more, none would ever come; so together they hold a part of the pool at most. A commit that gets no
//! more lets go of everything, waits in line until it can have all that it may need, and starts over. One that takes a single
//! page never waits for a second, and is not counted. Dropping a table takes what it can get, and does as much with it.
//!
//! One that needs more than all of them together may have gets it while no other commit has any, up to what is always left for
//! others. Beyond that it is refused at once, before it holds up the others.

use std::collections::VecDeque;

use tantalum_rt::{Mutex, Parker, Unparker};

use crate::{
    error::Result,
    limits::{GroupLimit, MIN_POOL_PAGES},
};

/// The part of the frames that commits do not hold; they are for reads, splits and whatever else holds a few at a time.
const OTHERS: usize = 4;
/// The frames that no commit gets, even if it is the only one: that part of the smallest pool.
const NEVER: usize = MIN_POOL_PAGES / OTHERS;

/// The frames that commits may hold.
#[derive(Debug)]
pub struct PinBudget {
    /// What all hold together.
    limit: usize,
    /// What one can pin.
    most: usize,
    page_size: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    held: usize,
    /// What waiting commits want, in their order; each is woken when it is given that.
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
    /// Of a pool of so many frames for pages of so many bytes.
    pub(super) fn new(frames: usize, page_size: usize) -> Self {
        let limit = frames - frames / OTHERS;
        Self { limit, most: limit.max(frames.saturating_sub(NEVER)), page_size, state: Mutex::default() }
    }

    /// Nothing yet, for a commit that takes what it finds.
    pub fn begin(&self) -> Pins<'_> {
        Pins { budget: self, granted: 0, used: 0 }
    }

    /// Waits for `pages` frames, or for all that there are: what a commit that was refused can need at most. The caller holds
    /// no pages, and no [`Pins`] of the same commit.
    pub fn wait_for(&self, pages: usize) -> Pins<'_> {
        tantalum_rt::may_wait("frames that other commits hold");
        let granted = pages.min(self.limit);
        let mut state = self.state.lock();
        if state.waiting.is_empty() && state.held + granted <= self.limit {
            state.held += granted;
            return Pins { budget: self, granted, used: 0 };
        }
        state.waits += 1;
        let parker = Parker::new();
        state.waiting.push_back((granted, parker.unparker()));
        drop(state);
        parker.park();
        Pins { budget: self, granted, used: 0 }
    }

    /// How often a commit had to wait.
    pub(super) fn waits(&self) -> u64 {
        self.state.lock().waits
    }
}

impl Pins<'_> {
    /// The frames that were waited for.
    pub fn granted(&self) -> usize {
        self.granted
    }

    /// So many more pages are pinned, or about to be: false if there is no room for them now, and all must be unpinned.
    ///
    /// # Errors
    /// [`TransactionTooLarge`](crate::ErrorKind::TransactionTooLarge): there never is.
    pub fn try_add(&mut self, pages: usize) -> Result<bool> {
        self.used += pages;
        let &PinBudget { most, page_size, .. } = self.budget;
        if self.used > most {
            let remedy = Some("open the database with larger buffer_pool_bytes");
            return Err(GroupLimit { bytes: most * page_size, remedy }.refuse(self.used * page_size));
        }
        let missing = match self.used {
            1 => 0,
            used => used.saturating_sub(self.granted),
        };
        // A commit that has everything waits for no other.
        if missing == 0 || self.granted == self.budget.limit {
            return Ok(true);
        }
        let mut state = self.budget.state.lock();
        let fits = state.waiting.is_empty() && state.held + missing <= self.budget.limit;
        if fits {
            state.held += missing;
            self.granted += missing;
        }
        Ok(fits)
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
    fn a_commit_that_is_refused_waits_in_line_for_all_that_it_may_need() {
        Simulation::new(1)
            .run(|| {
                let budget = Arc::new(PinBudget::new(21, 4096));
                let (mut first, mut second) = (budget.begin(), budget.begin());
                assert!((0..10).all(|_| first.try_add(1).unwrap()));
                assert_eq!([1, 5, 1].map(|pages| second.try_add(pages).unwrap()), [true, true, false], "16 in all");
                drop(second);
                let waits = |pages| {
                    let budget = Arc::clone(&budget);
                    let task = spawn("waits", move || {
                        let mut pins = budget.wait_for(pages);
                        assert!((0..pages).all(|_| pins.try_add(1).unwrap()), "what was granted is there");
                        sleep(Duration::from_millis(5));
                        drop(pins);
                        tantalum_rt::now()
                    });
                    sleep(Duration::from_millis(1));
                    task
                };
                // The second could have its two frames at once, but the first would then never have all.
                let (all, few) = (waits(16), waits(2));
                let mut late = budget.begin();
                assert!(late.try_add(1).unwrap(), "a single page is not counted");
                assert!(!late.try_add(1).unwrap(), "others were there before");
                drop((first, late));
                assert!(few.join().unwrap() > all.join().unwrap());
                assert_eq!(budget.waits(), 2);
                assert_eq!(budget.state.lock().held, 0);
            })
            .expect_finished();
    }

    #[test]
    fn one_alone_can_have_more_but_not_what_is_always_left() {
        let budget = PinBudget::new(100, 4096);
        assert_eq!(budget.begin().granted(), 0);
        let mut pins = budget.wait_for(200);
        assert_eq!(pins.granted(), 75);
        assert!(pins.try_add(84).unwrap());
        let refused = pins.try_add(1).map(drop).unwrap_err();
        let (bytes, limit) = (85 * 4096, 84 * 4096);
        assert!(refused.to_string().contains(&format!("of {bytes} bytes is too large, it can have at most {limit};")));
    }
}
