//! What a log-block translation layer is made of: the parameters of a profile.

use serde::Deserialize;

use tantalum_device::sparse::PIECE_BYTES;

use crate::disk::SECTOR_BYTES;
use crate::nand::{Geometry, Timing, Wear};
use crate::profile::{Problem, check_ranges};

/// A log-block translation layer and its flash.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HybridParameters {
    /// How the flash is divided. A unit of the map is a block of each plane; pages are of 4 KiB (smaller ones programmed
    /// on several planes together count as one). `blocks_per_plane` is computed.
    pub geometry: Geometry,
    /// How fast it is.
    pub timing: Timing,
    /// Pages of a unit that lie one after another in one plane before the next plane's follow: 1, or as many as divide a
    /// block. With several, only what is longer is programmed on two planes at the same time.
    pub interleave_pages: u32,
    /// Log blocks that may be open at a time: how many places the host can write to in turn without merges.
    pub open_logs: u32,
    /// What may be written to a log block.
    pub update_order: UpdateOrder,
    /// Pages programmed to log blocks for each unit that is moved to even out wear, on average; 0 for none. The unit and
    /// the moment are drawn at random, which saves a controller with little memory its counters.
    pub level_every_pages: u32,
    /// Write commands for each unit that is moved, on average, whatever the commands' sizes; 0 for none. For controllers
    /// that look for such work once for each command.
    pub level_every_writes: u32,
    /// What the flash holds when the drive is new.
    #[serde(default)]
    pub initial_state: InitialState,
    /// Where its randomness begins.
    pub seed: u64,
    /// How the flash wears out; without, it bears any use.
    #[serde(default)]
    pub wear: Option<Wear>,
}

/// Which pages a log block takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum UpdateOrder {
    /// Only the page that comes next, so that no map of pages is needed: any other write costs a merge, or copies what
    /// lies between.
    Sequential,
    /// Any page of its unit, mapped page by page; what was not in order costs a full merge in the end.
    Any,
}

/// What the flash of a new drive holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InitialState {
    /// Nothing: every unit gets its first block when it is first written, so that merges copy nothing.
    #[default]
    Factory,
    /// Zeros everywhere, written once in order: every unit has its block, and only the spare blocks are erased. What
    /// writing all of the drive leads to, at the cost of none of it.
    Steady,
}

impl HybridParameters {
    /// A stick of one chip: units of 128 KiB, two open logs in strict order.
    pub fn example() -> Self {
        let geometry = Geometry {
            channels: 1,
            packages_per_channel: 1,
            dies_per_package: 1,
            planes_per_die: 1,
            blocks_per_plane: 0,
            pages_per_block: 32,
            page_bytes: PIECE_BYTES as u32,
            spare_bytes: 128,
            partial_programs: 1,
        };
        Self {
            geometry,
            timing: Timing { read_ns: 25_000, program_ns: 200_000, erase_ns: 1_500_000, bus_mb_per_s: 40 },
            open_logs: 2,
            update_order: UpdateOrder::Sequential,
            interleave_pages: 1,
            level_every_pages: 0,
            level_every_writes: 0,
            initial_state: InitialState::Factory,
            seed: 1,
            wear: None,
        }
    }

    /// Pages of a unit.
    pub(super) fn unit_pages(&self) -> u32 {
        self.geometry.planes() * self.geometry.pages_per_block
    }

    /// Units that the host can address.
    pub(super) fn logical_units(&self, capacity_bytes: u64) -> u32 {
        capacity_bytes.div_ceil(u64::from(self.unit_pages()) * PIECE_BYTES as u64) as u32
    }

    /// The geometry with as many blocks as the capacity takes, the open logs, and what merges need.
    pub(crate) fn whole_geometry(&self, capacity_bytes: u64) -> Geometry {
        let least = self.blocks_min(capacity_bytes);
        // A block that is bad on one plane is not used on any.
        let spare = self.wear.map_or(0, |wear| self.geometry.planes() * wear.spare_blocks(least));
        let blocks_per_plane = least + spare;
        Geometry { blocks_per_plane, ..self.geometry }
    }

    /// Blocks of each plane that the layer cannot do without.
    pub(super) fn blocks_min(&self, capacity_bytes: u64) -> u32 {
        // Beside the logs: the scratch unit and its successor, the target of a merge, and one left by a cut merge.
        // What is under way when the last spare block has gone may lose as many again.
        let others = if self.wear.is_some() { 8 } else { 4 };
        self.logical_units(capacity_bytes) + self.open_logs + others
    }

    /// Whether the layer is possible, and can map as many bytes.
    pub(crate) fn check(&self, capacity_bytes: u64) -> Result<(), Problem> {
        check_ranges(&[("capacity_bytes", capacity_bytes as f64, 1.0, (1u64 << 40) as f64)])?;
        self.geometry.check(&self.timing)?;
        check_ranges(&[
            ("open_logs", self.open_logs.into(), 1.0, f64::from(self.unit_pages()) - 1.0),
            ("page_bytes", self.geometry.page_bytes.into(), PIECE_BYTES as f64, PIECE_BYTES as f64),
            ("capacity_bytes", (capacity_bytes % SECTOR_BYTES) as f64, 0.0, 0.0),
        ])?;
        let (pages, found) = (self.geometry.pages_per_block, self.interleave_pages);
        if found == 0 || !pages.is_multiple_of(found) {
            return Err(("interleave_pages", format!("{found} does not divide pages_per_block, {pages}")));
        }
        self.wear.map_or(Ok(()), |wear| wear.check())
    }
}
