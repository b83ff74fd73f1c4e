//! The device below: raw flash, which is erased before it is written, or a block device, which is written over.

use std::{ops::Range, sync::Arc};

use tantalum_device::{AlignedBuffer, Device, Durability, PendingWrite, WriteCache};

use super::geometry::Geometry;
use crate::{Result, error};

/// A device cut into erase units.
#[derive(Clone, Debug)]
pub struct Medium {
    /// The device.
    pub device: Arc<dyn Device>,
    /// How it is cut.
    pub geometry: Geometry,
    /// The number that all headers and sectors of this store are sealed with.
    pub store: u64,
    erases: bool,
    is_cached: bool,
}

impl Medium {
    /// The device, cut as the geometry says.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when it cannot be cut so.
    pub fn new(device: Arc<dyn Device>, geometry: Geometry, store: u64) -> Result<Self> {
        let capabilities = device.capabilities();
        let refuse = |what: String| Err(error::option(format!("page_store: {}: {what}", device.name())));
        let (block, erased) = (capabilities.logical_block as usize, capabilities.erase_block_bytes as usize);
        if !geometry.sector_bytes.is_multiple_of(block) {
            let what = format!("log sectors of {} bytes are not whole blocks of {block}", geometry.sector_bytes);
            let remedy = "copy the database to a new one with `tantalum db backup`, which can read it here";
            return refuse(format!("{what}; {remedy}"));
        }
        if erased > 0 && !geometry.unit_bytes.is_multiple_of(erased) {
            return refuse(format!("units of {} bytes are not whole erase blocks of {erased}", geometry.unit_bytes));
        }
        // A file needs barriers also on a disk without a cache: its file system has to record where its blocks are.
        let is_cached = erased == 0 || capabilities.write_cache != WriteCache::None;
        Ok(Self { erases: erased > 0, is_cached, device, geometry, store })
    }

    /// Whether units are erased before they are written: raw flash.
    pub fn erases(&self) -> bool {
        self.erases
    }

    /// Physical units that the device has.
    pub fn units(&self) -> u32 {
        u32::try_from(self.device.capacity_bytes() / self.geometry.unit_bytes as u64).unwrap_or(u32::MAX)
    }

    /// Fills `buffer`.
    ///
    /// # Errors
    /// When the device cannot read.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.device.read(offset, buffer)
    }

    /// Reads a log sector, or a header. On raw flash, one that error correction cannot mend is none: a program of it was
    /// cut short.
    ///
    /// # Errors
    /// When the device cannot read.
    pub fn read_sector(&self, offset: u64, buffer: &mut [u8]) -> Result<bool> {
        match self.device.read(offset, buffer) {
            Ok(()) => Ok(true),
            Err(error) if error.is_io() && self.erases => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Starts a write.
    ///
    /// # Errors
    /// When the device refuses it.
    pub fn submit(
        &self,
        offset: u64,
        buffer: &Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.device.submit(offset, Arc::clone(buffer), range, self.needed(durability))
    }

    /// Writes, and returns when it has completed; durably, if so asked.
    ///
    /// # Errors
    /// When the device cannot write.
    pub fn write(&self, offset: u64, bytes: &[u8], durability: Durability) -> Result<()> {
        self.device.write(offset, &[bytes], self.needed(durability))
    }

    /// What to ask for: on raw flash without a cache, whatever has completed is durable.
    fn needed(&self, durability: Durability) -> Durability {
        if self.is_cached { durability } else { Durability::Cached }
    }

    /// Makes completed writes durable.
    ///
    /// # Errors
    /// When the device cannot.
    pub fn flush(&self) -> Result<()> {
        if self.is_cached {
            self.device.flush()?;
        }
        Ok(())
    }

    /// Makes a unit writable.
    ///
    /// # Errors
    /// When the device cannot erase it.
    pub fn erase(&self, physical: u32) -> Result<()> {
        if self.erases {
            self.device.discard(self.geometry.unit_at(physical), self.geometry.unit_bytes as u64)?;
        }
        Ok(())
    }

    /// Whether a sector was never written, as far as that can be told: erased flash is all ones.
    pub fn is_blank(&self, sector: &[u8]) -> bool {
        self.erases && sector.iter().all(|byte| *byte == 0xff)
    }
}
