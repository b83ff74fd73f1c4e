//! The last, partly filled block of a device whose requests are packed byte after byte.
//!
//! The next request begins in that block, so its write carries the same bytes once more: the overlapping writes of a
//! conventional log ("FlashLogging", section 4). They come from memory, and are what the device already holds.

use tantalum_rt::Mutex;

/// The bytes of the last block up to the end of the last request. Nobody waits for its lock: a device with such a tail
/// has one request under way at a time.
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
