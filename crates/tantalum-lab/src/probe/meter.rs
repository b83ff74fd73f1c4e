//! A device that counts what is written to it, and takes no more than was allowed.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tantalum_device::{AlignedBuffer, Cause, Device, Durability, Error, PendingWrite, Result};

/// The device as a probe sees it. A write beyond the allowance fails: what was promised of wear is kept whatever a measurement
/// does wrong.
#[derive(Debug)]
pub(super) struct Meter {
    device: Arc<dyn Device>,
    allowed_bytes: u64,
    written_bytes: AtomicU64,
}

impl Meter {
    pub(super) fn new(device: Arc<dyn Device>, allowed_bytes: u64) -> Arc<Self> {
        Arc::new(Self { device, allowed_bytes, written_bytes: AtomicU64::new(0) })
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that may still be written.
    pub(super) fn left_bytes(&self) -> u64 {
        self.allowed_bytes - self.written_bytes()
    }

    fn charge(&self, offset: u64, bytes: usize) -> Result<()> {
        let bytes = bytes as u64;
        let more = |written: u64| written.checked_add(bytes).filter(|&sum| sum <= self.allowed_bytes);
        match self.written_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(written) => {
                let message = format!("{written} of the {} bytes that may be written are", self.allowed_bytes);
                let cause = Cause { kind: std::io::ErrorKind::QuotaExceeded, raw_os_error: None, message };
                Err(Error::Io { device: self.name().into(), operation: "write", offset, len: bytes, cause })
            }
        }
    }
}

impl Device for Meter {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware, read, flush, discard, grow);

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.charge(offset, buffers.iter().map(|buffer| buffer.len()).sum())?;
        self.device.write(offset, buffers, durability)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.charge(offset, range.len())?;
        self.device.submit(offset, buffer, range, durability)
    }
}

#[cfg(test)]
mod tests {
    use tantalum_device::MemoryDevice;

    use super::*;

    #[test]
    fn what_was_not_allowed_is_not_written() {
        let meter = Meter::new(MemoryDevice::new("memory", 1 << 20), 8192);
        let buffer = Arc::new(AlignedBuffer::zeroed(4096));
        meter.write(0, &[&buffer], Durability::Cached).unwrap();
        meter.submit(4096, Arc::clone(&buffer), 0..4096, Durability::Cached).unwrap().wait(None).unwrap().unwrap();
        assert_eq!((meter.written_bytes(), meter.left_bytes()), (8192, 0));
        let error = meter.write(8192, &[&buffer], Durability::Durable).unwrap_err();
        assert!(error.to_string().contains("8192"), "{error}");
        assert_eq!(meter.written_bytes(), 8192);
    }
}
