//! What a drive with zones is made of, as its profile gives it.

use serde::Deserialize;
use tantalum_device::sparse::PIECE_BYTES;

use super::super::Capacitors;
use super::super::interface::Interface;
use crate::nand::{Geometry, Timing, Wear};
use crate::profile::Problem;

/// How a drive is divided into zones, as a profile gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Zoning {
    /// Bytes before the first zone, which can be written in any order.
    pub conventional_bytes: u64,
    /// Erase blocks of a zone, each on another plane.
    pub blocks: u32,
    /// Zones that may be partly written at a time.
    pub max_active: u32,
}

impl Zoning {
    /// Bytes of a zone.
    pub fn zone_bytes(&self, geometry: &Geometry) -> u64 {
        u64::from(self.blocks) * u64::from(geometry.pages_per_block) * u64::from(geometry.page_bytes)
    }

    /// Whether a drive can be divided so that has so many bytes, with memory of so many under such capacitors.
    pub(crate) fn check(
        &self,
        capacity_bytes: u64,
        (geometry, timing): (&Geometry, &Timing),
        (pool_bytes, interface): (u64, &Interface),
        capacitors: Option<&Capacitors>,
    ) -> Result<(), Problem> {
        let (sector, zone) = (PIECE_BYTES as u64, self.zone_bytes(geometry));
        let in_zones = capacity_bytes.checked_sub(self.conventional_bytes);
        if self.conventional_bytes == 0 || !self.conventional_bytes.is_multiple_of(sector) {
            return Err(("zones.conventional_bytes", "expected a multiple of 4096, above 0".into()));
        }
        if !(1..=geometry.planes()).contains(&self.blocks) {
            return Err(("zones.blocks", format!("expected 1 to {}, the planes", geometry.planes())));
        }
        if in_zones.is_none_or(|bytes| bytes == 0 || !bytes.is_multiple_of(zone)) {
            let conventional = self.conventional_bytes;
            return Err((
                "capacity_bytes",
                format!("expected {conventional} bytes and a multiple of {zone}, a zone's"),
            ));
        }
        if interface.logical_block as usize != PIECE_BYTES {
            return Err(("interface.logical_block", "expected 4096 with zones".into()));
        }
        // Of each zone that is partly written, what does not fill a page stays in memory.
        let stays = u64::from(self.max_active) * u64::from(geometry.page_bytes);
        if self.max_active == 0 || 2 * u64::from(interface.max_command_bytes) + stays > pool_bytes {
            let most = "expected 1 or more, and in cache.pool_bytes a page for each beside two commands";
            return Err(("zones.max_active", most.into()));
        }
        // All that memory holds may be on its way to one zone.
        let pages = pool_bytes.div_ceil(u64::from(geometry.page_bytes)).div_ceil(self.blocks.into()) + 2;
        let needed = pages * (timing.program_ns + timing.transfer_ns(geometry.page_bytes)) + timing.erase_ns;
        if capacitors.is_none_or(|capacitors| capacitors.hold_ns() < needed) {
            return Err(("capacitors", format!("expected to hold for {needed} ns, until flash has what memory holds")));
        }
        Ok(())
    }
}

/// What a zoned drive is made of beside its conventional part, as its profile gives it.
pub(crate) struct Parts<'a> {
    pub zoning: Zoning,
    pub geometry: Geometry,
    pub timing: Timing,
    pub wear: Option<Wear>,
    pub interface: &'a Interface,
    pub pool_bytes: u64,
    pub capacitors: &'a Capacitors,
}

impl Parts<'_> {
    /// The geometry of the zones' flash, of which the zones take so many bytes.
    pub fn whole_geometry(&self, zones_bytes: u64) -> Geometry {
        let zones = (zones_bytes / self.zoning.zone_bytes(&self.geometry)) as u32;
        let needed = (zones * self.zoning.blocks).div_ceil(self.geometry.planes());
        let spare = self.wear.map_or(0, |wear| wear.spare_blocks(needed));
        Geometry { blocks_per_plane: needed + spare, ..self.geometry }
    }
}
