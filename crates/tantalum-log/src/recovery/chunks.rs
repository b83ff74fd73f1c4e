//! Reading a device in large chunks, a little at a time.

use std::sync::Arc;

use tantalum_device::Device;

use super::Progress;
use crate::Result;
use crate::format::BLOCK;

/// Bytes of one read.
const CHUNK_BYTES: u64 = 1 << 20;

/// A device, and the part of it that was read last.
#[derive(Debug)]
pub(crate) struct Chunks {
    device: Arc<dyn Device>,
    chunk: Vec<u8>,
    offset: u64,
}

impl Chunks {
    pub(crate) fn new(device: Arc<dyn Device>) -> Chunks {
        Chunks { device, chunk: Vec::new(), offset: 0 }
    }

    /// `bytes` bytes at `offset`, or those up to `end`, read with what follows them. `end` is a multiple of the block.
    pub(crate) fn read(&mut self, offset: u64, bytes: u64, end: u64, progress: &Progress) -> Result<&[u8]> {
        let chunk_end = self.offset + self.chunk.len() as u64;
        let bytes = bytes.min(end - offset);
        if offset < self.offset || offset + bytes > chunk_end {
            let start = offset / BLOCK as u64 * BLOCK as u64;
            let wanted = (offset - start + bytes).next_multiple_of(BLOCK as u64).max(CHUNK_BYTES).min(end - start);
            self.chunk.clear();
            self.chunk.resize(wanted as usize, 0);
            self.offset = start;
            self.device.read(start, &mut self.chunk)?;
            progress.add(wanted);
        }
        let at = (offset - self.offset) as usize;
        Ok(&self.chunk[at..at + bytes as usize])
    }
}

/// `bytes` bytes from `offset`, which may lie anywhere in the device's blocks.
pub(crate) fn read_unaligned(device: &dyn Device, offset: u64, bytes: u64) -> Result<Vec<u8>> {
    let start = offset / BLOCK as u64 * BLOCK as u64;
    let mut blocks = vec![0; (offset + bytes - start).next_multiple_of(BLOCK as u64) as usize];
    device.read(start, &mut blocks)?;
    blocks.truncate((offset + bytes - start) as usize);
    blocks.drain(..(offset - start) as usize);
    Ok(blocks)
}
