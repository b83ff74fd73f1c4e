//! The chips of a flash memory, as a profile gives them: how they are divided, how fast they are, and how much use their
//! blocks bear.

use serde::Deserialize;
use tantalum_rt::Random;

use crate::Nanos;
use crate::profile::{Problem, check_ranges};

/// Counts and sizes of the parts of a flash memory, as a profile gives them.
///
/// Planes are numbered over the whole memory, blocks within planes, pages within blocks; a block's or page's number is
/// its place in that order. Plane `p` hangs on channel `p % channels`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Geometry {
    /// Buses that carry data at the same time.
    pub channels: u32,
    /// Packages on a channel.
    pub packages_per_channel: u32,
    /// Dies in a package.
    pub dies_per_package: u32,
    /// Planes of a die, which read, program and erase at the same time.
    pub planes_per_die: u32,
    /// Blocks of a plane; 0 in a profile: as many as the device's capacity takes.
    #[serde(default)]
    pub blocks_per_plane: u32,
    /// Pages of a block, programmed in order.
    pub pages_per_block: u32,
    /// Data bytes of a page.
    pub page_bytes: u32,
    /// Bytes of a page beside its data.
    pub spare_bytes: u32,
    /// How many times a page can be programmed in parts before its block is erased.
    pub partial_programs: u8,
}

impl Geometry {
    /// Whether the chips of a drive that maps whole blocks are possible.
    pub(crate) fn check(&self, timing: &Timing) -> Result<(), Problem> {
        check_ranges(&[
            ("channels", self.channels.into(), 1.0, 64.0),
            ("packages_per_channel", self.packages_per_channel.into(), 1.0, 64.0),
            ("dies_per_package", self.dies_per_package.into(), 1.0, 64.0),
            ("planes_per_die", self.planes_per_die.into(), 1.0, 64.0),
            ("pages_per_block", self.pages_per_block.into(), 2.0, 4096.0),
            ("spare_bytes", self.spare_bytes.into(), 16.0, 4096.0),
            ("bus_mb_per_s", timing.bus_mb_per_s as f64, 1.0, 1e5),
            ("read_ns", timing.read_ns as f64, 1.0, 1e9),
            ("program_ns", timing.program_ns as f64, 1.0, 1e9),
            ("erase_ns", timing.erase_ns as f64, 1.0, 1e10),
        ])
    }

    /// All planes.
    pub fn planes(&self) -> u32 {
        self.channels * self.packages_per_channel * self.dies_per_package * self.planes_per_die
    }

    /// All blocks.
    pub fn blocks(&self) -> u32 {
        self.planes() * self.blocks_per_plane
    }

    /// All pages.
    pub fn pages(&self) -> u32 {
        self.blocks() * self.pages_per_block
    }

    /// Bytes of data in all pages.
    pub fn capacity_bytes(&self) -> u64 {
        u64::from(self.pages()) * u64::from(self.page_bytes)
    }

    /// The plane that a block lies in.
    pub fn plane_of(&self, block: u32) -> u32 {
        block / self.blocks_per_plane
    }

    /// The block that a page lies in.
    pub fn block_of(&self, page: u32) -> u32 {
        page / self.pages_per_block
    }

    /// The channel that a plane hangs on.
    pub fn channel_of(&self, plane: u32) -> u32 {
        plane % self.channels
    }
}

/// How long a flash memory's operations take, as a profile gives them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timing {
    /// From the array into the plane's register.
    pub read_ns: Nanos,
    /// From the register into the array.
    pub program_ns: Nanos,
    /// Of a block.
    pub erase_ns: Nanos,
    /// What a channel carries, in millions of bytes a second.
    pub bus_mb_per_s: u64,
}

impl Timing {
    /// How long a channel is busy with so many bytes.
    pub fn transfer_ns(&self, bytes: u32) -> Nanos {
        u64::from(bytes) * 1000 / self.bus_mb_per_s
    }
}

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
    pub(crate) fn check(&self) -> Result<(), Problem> {
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
