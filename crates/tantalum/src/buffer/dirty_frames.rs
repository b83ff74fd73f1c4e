//! Which frames of the pool hold dirty pages: one bit each, so that a checkpoint of a large pool reads the state of those alone.

use std::sync::atomic::{AtomicU64, Ordering};

/// A bit for each frame. A frame's bit changes under the lock of its [`Dirt`](super::frame::Dirt), together with what it says.
#[derive(Debug)]
pub(super) struct DirtyFrames(Box<[AtomicU64]>);

impl DirtyFrames {
    /// For so many frames, all clean.
    pub fn new(frames: usize) -> Self {
        Self((0..frames.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub fn set(&self, frame: usize, is_dirty: bool) {
        let (word, bit) = (&self.0[frame / 64], 1 << (frame % 64));
        // What orders these with a checkpoint is the log: a page is marked before its record is appended.
        match is_dirty {
            true => word.fetch_or(bit, Ordering::Relaxed),
            false => word.fetch_and(!bit, Ordering::Relaxed),
        };
    }

    /// Whether a frame is dirty. If that changes meanwhile, either is right.
    pub fn has(&self, frame: usize) -> bool {
        self.0[frame / 64].load(Ordering::Relaxed) & (1 << (frame % 64)) != 0
    }

    /// The dirty frames in ascending order. Of those that change meanwhile, either may be seen.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().enumerate().flat_map(|(index, word)| {
            let mut bits = word.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let bit = (bits != 0).then(|| bits.trailing_zeros() as usize)?;
                bits &= bits - 1;
                Some(64 * index + bit)
            })
        })
    }

    pub fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dirty_frames_are_those_that_were_set_and_not_reset() {
        let dirty = DirtyFrames::new(130);
        for frame in [0, 63, 64, 100, 129] {
            dirty.set(frame, true);
            dirty.set(frame, true);
        }
        dirty.set(64, false);
        assert_eq!((dirty.iter().collect::<Vec<_>>(), dirty.count()), (vec![0, 63, 100, 129], 4));
    }
}
