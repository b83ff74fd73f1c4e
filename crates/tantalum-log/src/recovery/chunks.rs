//! Reading a device in large chunks, a little at a time.

use std::sync::Arc;

use tantalum_device::Device;

use super::Progress;
use crate::Result;

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

    /// `bytes` bytes at `offset`, read with what follows them up to `end`.
    pub(crate) fn read(&mut self, offset: u64, bytes: u64, end: u64, progress: &Progress) -> Result<&[u8]> {
        let chunk_end = self.offset + self.chunk.len() as u64;
        if offset < self.offset || offset + bytes > chunk_end {
            let wanted = bytes.max(CHUNK_BYTES).min(end - offset);
            self.chunk.clear();
            self.chunk.resize(wanted as usize, 0);
            self.offset = offset;
            self.device.read(offset, &mut self.chunk)?;
            progress.add(wanted);
        }
        let at = (offset - self.offset) as usize;
        Ok(&self.chunk[at..at + bytes as usize])
    }
}
