//! How much use the blocks of a flash memory bear, and which were bad from the beginning.

use serde::Deserialize;
use tantalum_rt::Random;

use super::Geometry;
use crate::Nanos;
use crate::ranges::{Problem, check_ranges};

/// The wear of a flash memory, as a profile gives it.
///
/// A block's last erase fails, and it says so in its status; what it holds then is nothing. Programs do not fail.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wear {
    /// Erases that a block bears, on average.
    pub endurance: u32,
    /// How far blocks are from the average at most, as a share of it.
    pub spread: f64,
    /// Blocks that are bad when the memory is new, as a share of all; on each plane the same number, at random places.
    pub factory_bad: f64,
    /// Blocks that a translation layer keeps to take the place of bad ones, as a share of the others.
    pub spare: f64,
    /// Where its randomness begins.
    pub seed: u64,
}

/// A block's erase failed: the block is worn out, and must not be used any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Worn {
    /// When its status said so.
    pub done: Nanos,
}

impl Wear {
    /// Whether this wear is possible.
    ///
    /// # Errors
    /// The key that is wrong, and what it should be.
    pub fn check(&self) -> Result<(), Problem> {
        check_ranges(&[
            ("wear.endurance", f64::from(self.endurance), 1.0, 1e9),
            ("wear.spread", self.spread, 0.0, 1.0),
            ("wear.factory_bad", self.factory_bad, 0.0, self.spare.min(0.5)),
            ("wear.spare", self.spare, 0.0, 1.0),
        ])
    }

    /// Blocks to keep beside so many.
    pub(crate) fn spare_blocks(&self, blocks: u32) -> u32 {
        (f64::from(blocks) * self.spare).ceil() as u32 + 1
    }

    /// Erases that a block bears.
    pub(super) fn endurance_of(&self, block: u32) -> u32 {
        let mut random = Random::with_seed(self.seed ^ (u64::from(block) + 1) << 32);
        let factor = 1.0 + self.spread * (2.0 * random.f64() - 1.0);
        (f64::from(self.endurance) * factor) as u32
    }

    /// The blocks that are bad from the beginning, none of them among the first `good` of a plane.
    pub(super) fn factory_bad_blocks(&self, geometry: &Geometry, good: u32) -> Vec<u32> {
        let bad_per_plane = (f64::from(geometry.blocks_per_plane) * self.factory_bad / (1.0 + self.spare)) as usize;
        let mut random = Random::with_seed(self.seed);
        let mut bad = Vec::new();
        for plane in 0..geometry.planes() {
            let mut blocks: Vec<u32> = (good..geometry.blocks_per_plane).collect();
            for _ in 0..bad_per_plane.min(blocks.len()) {
                let block = blocks.swap_remove(random.usize(..blocks.len()));
                bad.push(plane * geometry.blocks_per_plane + block);
            }
        }
        bad
    }
}
