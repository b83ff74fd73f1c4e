//! Groups: records buffered in memory until a flush makes them one request, and the bytes of that request.

use std::ops::Range;
use std::sync::Arc;

use tantalum_device::{AlignedBuffer, AppendBuffer};
use tantalum_rt::Mutex;

use crate::Lsn;
use crate::format::request::{HEADER_BYTES, RequestHeader};
use crate::format::section::SectionHeader;
use crate::format::{BLOCK, round_up};
use crate::layout::Layout;

/// Space before the records: a section header, which goes out only if the request opens a section, and the request's.
pub(crate) const PREFIX_BYTES: usize = BLOCK + HEADER_BYTES;

/// Records that appends are adding to, or that were sealed.
#[derive(Debug)]
pub(crate) struct Group {
    /// Where the group's first record starts.
    pub(crate) base: Lsn,
    pub(crate) records: AppendBuffer,
    /// Record bytes that it takes.
    pub(crate) limit: usize,
}

impl Group {
    pub(crate) fn end(&self) -> Lsn {
        Lsn::new(self.base.get() + self.records.len() as u64)
    }
}

/// Where a request's bytes are.
pub(crate) enum Source {
    /// In a sealed group that no write has taken yet.
    Sealed(Arc<Group>),
    /// In a buffer with the same prefix that no write reads.
    Taken(AlignedBuffer),
    /// In a buffer with the same prefix, which a write may still read, so that its headers must stay as they are.
    Borrowed(Arc<AlignedBuffer>),
}

impl Source {
    /// A buffer with the records, once every append under way has copied its bytes.
    pub(crate) fn take(self, records_bytes: usize, pool: &Pool) -> AlignedBuffer {
        match self {
            Source::Sealed(group) => group.records.take(),
            Source::Taken(buffer) => buffer,
            Source::Borrowed(buffer) => pool.copy(&buffer, records_bytes),
        }
    }
}

/// A sealed group that waits for a device.
pub(crate) struct Request {
    pub(crate) start: Lsn,
    pub(crate) end: Lsn,
    pub(crate) source: Source,
}

impl Request {
    pub(crate) fn payload_bytes(&self) -> usize {
        self.end.bytes_since(self.start) as usize
    }

    /// Bytes of header and payload, without padding.
    pub(crate) fn bytes(&self) -> u64 {
        (HEADER_BYTES + self.payload_bytes()) as u64
    }

    /// The space that its appends took.
    pub(crate) fn charge(&self) -> u64 {
        self.payload_bytes() as u64 + crate::space::GROUP_CHARGE
    }
}

/// Completes a request's buffer: headers, or the rest of the block, before the records, zeros behind them. Returns the
/// part to be written; the device's `header.offset` lies at [`BLOCK`] of the buffer.
pub(crate) fn compose(
    buffer: &mut AlignedBuffer,
    header: &RequestHeader,
    section: Option<&SectionHeader>,
    layout: &Layout,
    tail: &Tail,
) -> Range<usize> {
    let records_end = PREFIX_BYTES + header.payload_bytes as usize;
    let request_end = BLOCK + layout.request_bytes(header.bytes()) as usize;
    let in_block = |at: usize| (header.offset as usize + at - BLOCK) % layout.block_bytes as usize;
    let beyond = in_block(request_end);
    let end = request_end + (layout.block_bytes as usize - beyond) % layout.block_bytes as usize;
    buffer[records_end..end].fill(0);
    header.encode(&mut buffer[BLOCK..]);
    let start = match section {
        Some(section) => {
            section.encode(&mut buffer[..BLOCK]);
            0
        }
        None if layout.is_packed() => tail.put_before(buffer, BLOCK, in_block(BLOCK)),
        None => BLOCK,
    };
    if layout.is_packed() {
        tail.keep(&buffer[request_end - beyond..request_end]);
    }
    assert!(in_block(BLOCK) == BLOCK - start || section.is_some(), "writes start at a block's beginning");
    start..end
}

/// The last, partly filled block of a device whose requests are packed byte after byte, up to the end of the last request.
///
/// The next request begins in that block, so its write carries the same bytes once more: the overlapping writes of a
/// conventional log ("FlashLogging", section 4). They come from memory, and are what the device already holds. The lock is
/// free: a device with such a tail has one request under way at a time.
#[derive(Debug, Default)]
pub(crate) struct Tail(Mutex<Vec<u8>>);

impl Tail {
    /// Puts the tail right before `at` of the buffer, where a request starts that continues it. Returns where the
    /// block begins in the buffer.
    ///
    /// # Panics
    /// If the tail does not have `expected` bytes, those of the block before the request.
    pub(crate) fn put_before(&self, buffer: &mut [u8], at: usize, expected: usize) -> usize {
        let tail = self.0.lock();
        assert_eq!(tail.len(), expected, "a packed request starts where the one before it ended");
        let start = at - tail.len();
        buffer[start..at].copy_from_slice(&tail);
        start
    }

    /// Keeps the bytes of the block in which a request ended.
    pub(crate) fn keep(&self, bytes: &[u8]) {
        let mut tail = self.0.lock();
        tail.clear();
        tail.extend_from_slice(bytes);
    }
}

/// Buffers for groups, reused once no device reads them any more.
#[derive(Debug)]
pub(crate) struct Pool {
    payload_bytes: usize,
    keep: usize,
    buffers: Mutex<Vec<AlignedBuffer>>,
}

impl Pool {
    /// Buffers for groups of up to `payload_bytes` record bytes, at most `keep` of them idle.
    pub(crate) fn new(payload_bytes: usize, keep: usize) -> Pool {
        Pool { payload_bytes, keep, buffers: Mutex::new(Vec::new()) }
    }

    /// An empty group that starts at `base` and takes up to `limit` record bytes.
    pub(crate) fn group(&self, base: Lsn, limit: usize) -> Arc<Group> {
        assert!(limit <= self.payload_bytes, "a group fits its buffer");
        let idle = self.buffers.lock().pop();
        // A packed request may end in one block more than if it began at a block's beginning.
        let buffer = idle.unwrap_or_else(|| AlignedBuffer::zeroed(round_up(PREFIX_BYTES + self.payload_bytes) + BLOCK));
        Arc::new(Group { base, records: AppendBuffer::new(buffer, PREFIX_BYTES, limit), limit })
    }

    /// A buffer with the same records, and room for other headers.
    fn copy(&self, buffer: &AlignedBuffer, records_bytes: usize) -> AlignedBuffer {
        let idle = self.buffers.lock().pop();
        let mut copy = idle.unwrap_or_else(|| AlignedBuffer::zeroed(buffer.len()));
        assert!(copy.len() >= buffer.len(), "all buffers of a pool are of one size");
        let used = PREFIX_BYTES..PREFIX_BYTES + records_bytes;
        copy[used.clone()].copy_from_slice(&buffer[used]);
        copy
    }

    /// Takes a buffer back if no write holds it: one that was given up may still read from it.
    pub(crate) fn give_back(&self, buffer: Arc<AlignedBuffer>) {
        if let Ok(buffer) = Arc::try_unwrap(buffer) {
            let mut buffers = self.buffers.lock();
            if buffers.len() < self.keep {
                buffers.push(buffer);
            }
        }
    }
}
