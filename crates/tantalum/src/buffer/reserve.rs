//! How many free frames the cleaner keeps: as many as the load takes while a batch of pages is written, and some more.
//!
//! So it follows the device and the load without a clock: on a slow device more frames are taken during a write than on a fast
//! one. What is free caches nothing, so the reserve shrinks again when writes take less.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The cleaner is woken when half of the reserve is left; that half lasts for so many writes like the worst one of late.
const WRITES_COVERED: usize = 2;
/// With each write the reserve shrinks by one in so many, unless the write shows that it is needed.
const SHRINKS_BY: usize = 16;

/// The number of free frames to keep, and what it follows.
#[derive(Debug)]
pub(super) struct Reserve {
    frames: AtomicUsize,
    least: usize,
    most: usize,
    /// Frames that were asked for.
    demand: AtomicU64,
}

impl Reserve {
    /// The reserve of a pool of so many frames, of which at most a quarter are kept free.
    pub fn new(pool_frames: usize) -> Self {
        let least = (pool_frames / 16).clamp(4, 256);
        Self { frames: AtomicUsize::new(least), least, most: least.max(pool_frames / 4), demand: AtomicU64::new(0) }
    }

    /// The free frames to aim at.
    pub fn frames(&self) -> usize {
        self.frames.load(Ordering::Relaxed)
    }

    /// A frame is asked for.
    pub fn count_demand(&self) {
        self.demand.fetch_add(1, Ordering::Relaxed);
    }

    /// Does `write`, and learns from what was asked for meanwhile.
    pub fn learn<T>(&self, write: impl FnOnce() -> T) -> T {
        let before = self.demand.load(Ordering::Relaxed);
        let written = write();
        let taken = self.demand.load(Ordering::Relaxed).wrapping_sub(before);
        self.follow(usize::try_from(taken).unwrap_or(usize::MAX));
        written
    }

    fn follow(&self, taken: usize) {
        let now = self.frames();
        let needed = taken.saturating_mul(2 * WRITES_COVERED);
        let shrunk = now - now.div_ceil(SHRINKS_BY);
        self.frames.store(needed.max(shrunk).clamp(self.least, self.most), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_grows_at_once_and_shrinks_slowly_within_its_bounds() {
        let reserve = Reserve::new(1600);
        let during = |taken: usize| {
            reserve.learn(|| (0..taken).for_each(|_| reserve.count_demand()));
            reserve.frames()
        };
        assert_eq!(reserve.frames(), 100);
        assert_eq!(during(50), 200);
        assert_eq!(during(0), 187);
        assert_eq!(during(1000), 400);
        (0..100).for_each(|_| _ = during(0));
        assert_eq!(reserve.frames(), 100);
        assert_eq!(Reserve::new(16).frames(), 4);
    }
}
