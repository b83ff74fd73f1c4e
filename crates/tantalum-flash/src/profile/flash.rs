//! Profiles of flash devices, and what must hold of their parameters.

use serde::Deserialize;

use tantalum_device::sparse::PIECE_BYTES;

use crate::Model;
use crate::contents::Contents;
use crate::ftl::page_mapped::{Layout, PageMapped, PageMapping};
use crate::nand::{Geometry, Nand, PAGE_PIECES_MAX, RawNand, Timing, Wear};
use crate::profile::Problem;
use crate::ssd::{Cache, Capacitors, Interface, Parts, Protection, SolidState, ZonedDrive, Zoning};

/// A solid-state drive with a page-mapped translation layer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolidStateDrive {
    /// The flash.
    pub geometry: Geometry,
    /// The flash's times.
    pub timing: Timing,
    /// How the flash wears out; without, it bears any use.
    pub wear: Option<Wear>,
    /// The translation layer.
    pub mapping: PageMapping,
    /// The interface.
    pub interface: Interface,
    /// The memory.
    pub cache: Cache,
    /// What protects the memory; without, it is volatile.
    pub capacitors: Option<Capacitors>,
    /// The zones in which it must be written; without, it is mapped page by page altogether.
    pub zones: Option<Zoning>,
}

/// Flash without a translation layer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFlash {
    /// The flash.
    pub geometry: Geometry,
    /// The flash's times.
    pub timing: Timing,
    /// How the flash wears out; without, it bears any use.
    pub wear: Option<Wear>,
    /// Bytes of the smallest program.
    pub sector_bytes: u32,
}

/// The largest device: its map has 32-bit entries, and an emulation needs memory for them.
const CAPACITY_MAX: u64 = 4 << 40;

impl SolidStateDrive {
    /// Whether the drive is possible, with so many bytes.
    pub(super) fn check(&self, capacity_bytes: u64) -> Result<(), Problem> {
        let page = u64::from(self.geometry.page_bytes);
        let sector = PIECE_BYTES as u64;
        check_geometry(&self.geometry, &self.timing)?;
        self.wear.map_or(Ok(()), |wear| wear.check())?;
        let problem = |key, problem: &str| Err((key, problem.to_owned()));
        if !page.is_multiple_of(sector) || page == 0 || page > (PAGE_PIECES_MAX * PIECE_BYTES) as u64 {
            return problem("geometry.page_bytes", "expected 4096, 8192, 12288 or 16384");
        }
        if self.geometry.pages_per_block < 8 {
            return problem("geometry.pages_per_block", "expected at least 8");
        }
        if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(sector) || capacity_bytes > CAPACITY_MAX {
            return problem("capacity_bytes", "expected a multiple of 4096, above 0 and at most 4 TiB");
        }
        if !(0.0..=10.0).contains(&self.mapping.over_provision) {
            return problem("mapping.over_provision", "expected a share from 0 to 10");
        }
        if !(1..=128).contains(&self.mapping.placement_handles) {
            return problem("mapping.placement_handles", "expected 1 to 128");
        }
        if ![512, 4096].contains(&self.interface.logical_block) {
            return problem("interface.logical_block", "expected 512 or 4096");
        }
        let is_empty = self.interface.queue_depth == 0 || self.interface.processors == 0;
        if is_empty || self.interface.link_mb_per_s == 0 {
            return problem("interface", "expected a queue_depth, processors and link_mb_per_s above 0");
        }
        let command = u64::from(self.interface.max_command_bytes);
        if command == 0 || !command.is_multiple_of(sector) || 2 * command > self.cache.pool_bytes {
            let expected = "expected a multiple of 4096, at most half of cache.pool_bytes";
            return problem("interface.max_command_bytes", expected);
        }
        if let Some(capacitors) = &self.capacitors
            && (capacitors.dump_watts.is_nan() || capacitors.dump_watts <= 0.0)
        {
            return problem("capacitors.dump_watts", "expected more than 0");
        }
        match &self.zones {
            Some(zones) => zones.check(
                capacity_bytes,
                (&self.geometry, &self.timing),
                (self.cache.pool_bytes, &self.interface),
                self.capacitors.as_ref(),
            ),
            None => Ok(()),
        }
    }

    /// What makes its zones, if it has any, which has been checked.
    fn parts(&self) -> Option<Parts<'_>> {
        let (zoning, capacitors) = (self.zones?, self.capacitors.as_ref()?);
        Some(Parts {
            zoning,
            geometry: self.geometry,
            timing: self.timing,
            wear: self.wear,
            interface: &self.interface,
            pool_bytes: self.cache.pool_bytes,
            capacitors,
        })
    }

    fn layout(&self, capacity_bytes: u64) -> Layout {
        // The pool, and changes of the map: a page that is not full, those of the pool, and the end.
        let dump_pages = u64::from(self.geometry.planes()) + 8;
        let dump_bytes = self.cache.pool_bytes * 5 / 4 + dump_pages * u64::from(self.geometry.page_bytes);
        let dump_bytes = if self.capacitors.is_some() { dump_bytes } else { 0 };
        let layout = Layout::new(self.geometry, &self.mapping, capacity_bytes, dump_bytes);
        match &self.wear {
            Some(wear) => layout.with_wear(wear),
            None => layout,
        }
    }

    /// How the medium is divided, for its file.
    pub(super) fn identity(&self, capacity_bytes: u64) -> String {
        let protected = if self.capacitors.is_some() { self.cache.pool_bytes } else { 0 };
        let mapped = self.zones.map_or(capacity_bytes, |zones| zones.conventional_bytes);
        let identity = format!("{:?} and {protected} bytes of protected memory", self.layout(mapped).geometry);
        match &self.zones {
            Some(zones) => format!("{identity}, {zones:?}"),
            None => identity,
        }
    }

    /// Makes the drive, which has been checked.
    pub(super) fn build(&self, capacity_bytes: u64, contents: impl Fn(u64) -> Contents) -> Box<dyn Model> {
        let Some(parts) = self.parts() else { return Box::new(self.build_mapped(capacity_bytes, contents)) };
        let conventional = parts.zoning.conventional_bytes;
        let mapped = self.build_mapped(conventional, &contents);
        Box::new(ZonedDrive::new(mapped, &parts, capacity_bytes - conventional, contents))
    }

    fn build_mapped(&self, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> SolidState {
        let layout = self.layout(capacity_bytes);
        let nand = Nand::new(layout.geometry, self.timing, contents(layout.geometry.capacity_bytes()));
        let nand = nand.with_wear(self.wear, layout.system_blocks());
        let ftl = PageMapped::new(nand, layout, self.mapping);
        let protection = self.capacitors.as_ref().map(Protection::new);
        SolidState::new(self.interface.clone(), self.cache.clone(), protection, ftl)
    }
}

impl RawFlash {
    /// Whether the chip is possible, with so many bytes.
    pub(super) fn check(&self, capacity_bytes: u64) -> Result<(), Problem> {
        check_geometry(&self.geometry, &self.timing)?;
        self.wear.map_or(Ok(()), |wear| wear.check())?;
        let problem = |key, problem: &str| Err((key, problem.to_owned()));
        let page = self.geometry.page_bytes;
        let fits = self.sector_bytes >= 512 && page.is_multiple_of(self.sector_bytes) && page / self.sector_bytes <= 32;
        if !fits || page > (PAGE_PIECES_MAX * PIECE_BYTES) as u32 {
            return problem("sector_bytes", "expected at least 512, and 1 to 32 of them in a page of up to 16384");
        }
        let is_whole = capacity_bytes.is_multiple_of(self.row_bytes());
        if capacity_bytes == 0 || !is_whole || capacity_bytes > CAPACITY_MAX {
            return problem("capacity_bytes", "expected a whole number of blocks on every plane, at most 4 TiB");
        }
        Ok(())
    }

    /// Bytes of a block of every plane.
    fn row_bytes(&self) -> u64 {
        let planes = u64::from(self.geometry.planes());
        u64::from(self.geometry.page_bytes) * u64::from(self.geometry.pages_per_block) * planes
    }

    /// The geometry with as many blocks as the capacity takes.
    pub(super) fn whole_geometry(&self, capacity_bytes: u64) -> Geometry {
        Geometry { blocks_per_plane: (capacity_bytes / self.row_bytes()) as u32, ..self.geometry }
    }

    /// Makes the chip, which has been checked.
    pub(super) fn build(&self, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> RawNand {
        let geometry = self.whole_geometry(capacity_bytes);
        let nand = Nand::new(geometry, self.timing, contents(geometry.capacity_bytes()));
        // The first block of a chip is guaranteed to be good.
        RawNand::new(nand.with_wear(self.wear, 1), self.sector_bytes)
    }
}

fn check_geometry(geometry: &Geometry, timing: &Timing) -> Result<(), Problem> {
    let parts = [geometry.channels, geometry.packages_per_channel, geometry.dies_per_package, geometry.planes_per_die];
    let planes = parts.iter().fold(1u64, |product, &part| product.saturating_mul(part.into()));
    let is_possible = (1..=4096).contains(&planes)
        && (1..=4096).contains(&geometry.pages_per_block)
        && geometry.partial_programs > 0
        && timing.bus_mb_per_s > 0;
    let expected =
        "expected 1 to 4096 planes in all, 1 to 4096 pages_per_block, partial_programs and bus_mb_per_s above 0";
    if is_possible { Ok(()) } else { Err(("geometry", expected.to_owned())) }
}
