//! What a probe writes to its device, and that it is no more than was allowed.

use std::sync::atomic::{AtomicU64, Ordering};

use tantalum_device::{Ending, Error, Request, RequestKind, RequestObserver, Result};

/// Counts writes, and refuses those beyond the allowance: what was promised of wear is kept whatever a measurement does wrong.
#[derive(Debug)]
pub(super) struct Meter {
    device: String,
    allowed_bytes: u64,
    written_bytes: AtomicU64,
}

impl Meter {
    /// For a device of this name.
    pub(super) fn new(device: &str, allowed_bytes: u64) -> Self {
        Self { device: device.to_owned(), allowed_bytes, written_bytes: AtomicU64::new(0) }
    }

    pub(super) fn written_bytes(&self) -> u64 {
        self.written_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that may still be written.
    pub(super) fn left_bytes(&self) -> u64 {
        self.allowed_bytes - self.written_bytes()
    }
}

impl RequestObserver for Meter {
    fn admit(&self, Request { kind, offset, len }: Request) -> Result<()> {
        let RequestKind::Write(_) = kind else { return Ok(()) };
        let more = |written: u64| written.checked_add(len).filter(|&sum| sum <= self.allowed_bytes);
        match self.written_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more) {
            Ok(_) => Ok(()),
            Err(written) => {
                let cause = format!("{written} of the {} bytes that may be written are", self.allowed_bytes);
                Err(Error::io(&self.device, "write", offset, len, std::io::Error::other(cause)))
            }
        }
    }

    fn began(&self, _request: Request) -> u64 {
        0
    }

    fn ended(&self, _number: u64, _ending: Ending) {}
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tantalum_device::{AlignedBuffer, Device, Durability, MemoryDevice, ObservedDevice};

    use super::*;

    #[test]
    fn what_was_not_allowed_is_not_written() {
        let meter = Arc::new(Meter::new("memory", 8192));
        let device = ObservedDevice::new(MemoryDevice::new("memory", 1 << 20), meter.clone());
        let buffer = Arc::new(AlignedBuffer::zeroed(4096));
        device.write(0, &[&buffer], Durability::Cached).unwrap();
        device.submit(4096, Arc::clone(&buffer), 0..4096, Durability::Cached).unwrap().wait(None).unwrap().unwrap();
        assert_eq!((meter.written_bytes(), meter.left_bytes()), (8192, 0));
        let error = device.write(8192, &[&buffer], Durability::Durable).unwrap_err();
        assert!(error.to_string().contains("8192"), "{error}");
        assert_eq!(meter.written_bytes(), 8192);
    }
}
