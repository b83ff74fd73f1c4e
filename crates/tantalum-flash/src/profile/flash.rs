//! Profiles of flash devices, and what must hold of their parameters.

use serde::Deserialize;

use crate::contents::{Contents, PIECE_BYTES};
use crate::durassd::{Capacitors, Protection};
use crate::ftl::page_mapped::{Layout, PageMapped, PageMapping};
use crate::nand::{Geometry, Nand, PAGE_PIECES_MAX, RawNand, Timing};
use crate::ssd::{Cache, Interface, SolidState};
use crate::{Error, Result};

/// A solid-state drive with a page-mapped translation layer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SolidStateDrive {
    /// The flash.
    pub geometry: Geometry,
    /// The flash's times.
    pub timing: Timing,
    /// The translation layer.
    pub mapping: PageMapping,
    /// The interface.
    pub interface: Interface,
    /// The memory.
    pub cache: Cache,
    /// What protects the memory; without, it is volatile.
    pub capacitors: Option<Capacitors>,
}

/// Flash without a translation layer.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RawFlash {
    /// The flash.
    pub geometry: Geometry,
    /// The flash's times.
    pub timing: Timing,
    /// Bytes of the smallest program.
    pub sector_bytes: u32,
}

/// The largest device: its map has 32-bit entries, and an emulation needs memory for them.
const CAPACITY_MAX: u64 = 4 << 40;

impl SolidStateDrive {
    pub(super) fn build(
        &self,
        file: &str,
        capacity_bytes: u64,
        contents: impl FnOnce(u64) -> Contents,
    ) -> Result<SolidState> {
        let page = u64::from(self.geometry.page_bytes);
        let sector = PIECE_BYTES as u64;
        check_geometry(file, &self.geometry, &self.timing)?;
        let problem =
            |key, problem: &str| Error::Impossible { file: file.to_owned(), key, problem: problem.to_owned() };
        if !page.is_multiple_of(sector) || page == 0 || page > (PAGE_PIECES_MAX * PIECE_BYTES) as u64 {
            return Err(problem("geometry.page_bytes", "expected 4096, 8192, 12288 or 16384"));
        }
        if self.geometry.pages_per_block < 8 {
            return Err(problem("geometry.pages_per_block", "expected at least 8"));
        }
        if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(sector) || capacity_bytes > CAPACITY_MAX {
            return Err(problem("capacity_bytes", "expected a multiple of 4096, above 0 and at most 4 TiB"));
        }
        if !(0.0..=10.0).contains(&self.mapping.over_provision) {
            return Err(problem("mapping.over_provision", "expected a share from 0 to 10"));
        }
        if ![512, 4096].contains(&self.interface.logical_block) {
            return Err(problem("interface.logical_block", "expected 512 or 4096"));
        }
        let is_empty = self.interface.queue_depth == 0 || self.interface.processors == 0;
        if is_empty || self.interface.link_mb_per_s == 0 {
            return Err(problem("interface", "expected a queue_depth, processors and link_mb_per_s above 0"));
        }
        let command = u64::from(self.interface.max_command_bytes);
        if command == 0 || !command.is_multiple_of(sector) || 2 * command > self.cache.pool_bytes {
            let expected = "expected a multiple of 4096, at most half of cache.pool_bytes";
            return Err(problem("interface.max_command_bytes", expected));
        }
        let dump_bytes = match &self.capacitors {
            Some(capacitors) if capacitors.dump_watts > 0.0 => {
                // The pool, and changes of the map: a page that is not full, those of the pool, and the end.
                let planes = u64::from(self.geometry.planes());
                self.cache.pool_bytes * 5 / 4 + (planes + 8) * page
            }
            Some(_) => return Err(problem("capacitors.dump_watts", "expected more than 0")),
            None => 0,
        };
        let layout = Layout::new(self.geometry, &self.mapping, capacity_bytes, dump_bytes);
        let nand = Nand::new(layout.geometry, self.timing, contents(layout.geometry.capacity_bytes()));
        let ftl = PageMapped::new(nand, layout, self.mapping);
        let protection = self.capacitors.as_ref().map(Protection::new);
        Ok(SolidState::new(self.interface.clone(), self.cache.clone(), protection, ftl))
    }
}

impl RawFlash {
    pub(super) fn build(
        &self,
        file: &str,
        capacity_bytes: u64,
        contents: impl FnOnce(u64) -> Contents,
    ) -> Result<RawNand> {
        check_geometry(file, &self.geometry, &self.timing)?;
        let problem =
            |key, problem: &str| Error::Impossible { file: file.to_owned(), key, problem: problem.to_owned() };
        let page = self.geometry.page_bytes;
        let fits = self.sector_bytes >= 512 && page.is_multiple_of(self.sector_bytes) && page / self.sector_bytes <= 32;
        if !fits || page > (PAGE_PIECES_MAX * PIECE_BYTES) as u32 {
            return Err(problem("sector_bytes", "expected at least 512, and 1 to 32 of them in a page of up to 16384"));
        }
        let block = u64::from(page) * u64::from(self.geometry.pages_per_block) * u64::from(self.geometry.planes());
        if capacity_bytes == 0 || !capacity_bytes.is_multiple_of(block) || capacity_bytes > CAPACITY_MAX {
            return Err(problem("capacity_bytes", "expected a whole number of blocks on every plane, at most 4 TiB"));
        }
        let geometry = Geometry { blocks_per_plane: (capacity_bytes / block) as u32, ..self.geometry };
        let nand = Nand::new(geometry, self.timing, contents(geometry.capacity_bytes()));
        Ok(RawNand::new(nand, self.sector_bytes))
    }
}

fn check_geometry(file: &str, geometry: &Geometry, timing: &Timing) -> Result<()> {
    let parts = [geometry.channels, geometry.packages_per_channel, geometry.dies_per_package, geometry.planes_per_die];
    let planes = parts.iter().map(|&part| u64::from(part)).product::<u64>();
    let is_possible = (1..=4096).contains(&planes)
        && (1..=4096).contains(&geometry.pages_per_block)
        && geometry.partial_programs > 0
        && timing.bus_mb_per_s > 0;
    let expected =
        "expected 1 to 4096 planes in all, 1 to 4096 pages_per_block, partial_programs and bus_mb_per_s above 0";
    match is_possible {
        true => Ok(()),
        false => Err(Error::Impossible { file: file.to_owned(), key: "geometry", problem: expected.to_owned() }),
    }
}
