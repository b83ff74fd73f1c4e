//! How flash is divided, and how fast its parts are.

use serde::Deserialize;

use super::Line;
use crate::Nanos;

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

/// When each plane and channel is free: operations on one of them follow each other.
#[derive(Debug, Clone)]
pub struct Lines {
    planes: Vec<Nanos>,
    channels: Vec<Channel>,
}

#[derive(Debug, Clone, Default)]
struct Channel {
    line: Line,
    /// When the last program's data crossed.
    last_program: Nanos,
}

impl Lines {
    /// Everything free from the start.
    pub fn new(geometry: &Geometry) -> Self {
        let channels = vec![Channel::default(); geometry.channels as usize];
        Self { planes: vec![0; geometry.planes() as usize], channels }
    }

    /// Everything is free; from now on a channel serves whatever is ready, while a read waits for its plane. Programs keep their order:
    /// what a power cut leaves relies on it.
    pub(super) fn let_reads_pass(&mut self) {
        self.channels.fill(Channel { line: Line::new(true), last_program: 0 });
    }

    /// When the plane is free.
    pub fn plane_free(&self, plane: u32) -> Nanos {
        self.planes[plane as usize]
    }

    /// Reads into the register, then over the channel. Returns when the data is there.
    pub(super) fn read(&mut self, at: Nanos, plane: u32, channel: u32, array: Nanos, transfer: Nanos) -> Nanos {
        let (plane, channel) = (&mut self.planes[plane as usize], &mut self.channels[channel as usize]);
        let ready = at.max(*plane) + array;
        *plane = channel.line.take(ready, transfer) + transfer;
        *plane
    }

    /// Carries data over the channel, then programs it. Returns when programming starts and when it is done.
    pub(super) fn program(
        &mut self,
        at: Nanos,
        plane: u32,
        channel: u32,
        transfer: Nanos,
        array: Nanos,
    ) -> (Nanos, Nanos) {
        let (plane, channel) = (&mut self.planes[plane as usize], &mut self.channels[channel as usize]);
        let ready = at.max(*plane).max(channel.last_program);
        channel.last_program = channel.line.take(ready, transfer);
        let start = channel.last_program + transfer;
        *plane = start + array;
        (start, *plane)
    }

    /// Occupies the plane alone. Returns start and end.
    pub(super) fn erase(&mut self, at: Nanos, plane: u32, array: Nanos) -> (Nanos, Nanos) {
        let plane = &mut self.planes[plane as usize];
        let start = at.max(*plane);
        *plane = start + array;
        (start, *plane)
    }

    /// The plane goes on with what it does.
    pub(super) fn busy_until(&mut self, plane: u32, done: Nanos) {
        let free = &mut self.planes[plane as usize];
        *free = done.max(*free);
    }

    /// Everything is free, as if nothing had ever been done.
    pub(super) fn forget(&mut self) {
        self.stop(0);
    }

    /// The power was cut: nothing is under way any more.
    pub(super) fn stop(&mut self, now: Nanos) {
        for free in &mut self.planes {
            *free = (*free).min(now);
        }
        for channel in &mut self.channels {
            channel.line.stop(now);
            channel.last_program = channel.last_program.min(now);
        }
    }
}
