//! Reads of a file at several places at a time: by io_uring, with one system call for all; or where there is none, one after the
//! other.
//!
//! Invariant: the kernel writes to the buffers until the completion of each read was seen. So a call does not end before, and nothing
//! that can panic stands between the submission of a read and its completion.

#![allow(unsafe_code)] // The kernel fills the buffers of requests after they were submitted.

use std::{os::fd::AsRawFd, sync::OnceLock};

use io_uring::{IoUring, opcode, types::Fd};
use tantalum_rt::Mutex;

use super::raw::RawFile;
use crate::Result;

/// Reads under way of one call.
const DEPTH: usize = 32;
/// More is read by itself: it is no small request.
const REQUEST_BYTES_MAX: usize = 1 << 20;

/// Rings that no call uses. They are made when they are first needed.
pub(super) struct ReadRings {
    idle: Mutex<Vec<IoUring>>,
    /// Set where the system has no io_uring, or forbids it: it is not asked again.
    is_unavailable: OnceLock<()>,
}

impl ReadRings {
    pub(super) fn new() -> Self {
        Self { idle: Mutex::default(), is_unavailable: OnceLock::new() }
    }

    /// Rings that there are none of.
    #[cfg(test)]
    pub(super) fn unavailable() -> Self {
        Self { idle: Mutex::default(), is_unavailable: OnceLock::from(()) }
    }

    /// Fills all buffers.
    pub(super) fn read(&self, file: &RawFile, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        for reads in reads.chunks_mut(DEPTH) {
            let can = |read: &(u64, &mut [u8])| file.limits.takes(read.1) && read.1.len() <= REQUEST_BYTES_MAX;
            let ring = if reads.len() > 1 && reads.iter().all(can) { self.take() } else { None };
            let mut lengths = [None; DEPTH];
            if let Some(mut ring) = ring
                && read_by(&mut ring, file, reads, &mut lengths)
            {
                self.idle.lock().push(ring);
            }
            for ((offset, buffer), length) in reads.iter_mut().zip(lengths) {
                // What failed or was cut short is read again, which says why.
                if length != Some(buffer.len()) {
                    file.read(*offset, buffer)?;
                }
            }
        }
        Ok(())
    }

    fn take(&self) -> Option<IoUring> {
        if self.is_unavailable.get().is_some() {
            return None;
        }
        let idle = self.idle.lock().pop();
        idle.or_else(|| match IoUring::new(DEPTH as u32) {
            Ok(ring) => Some(ring),
            Err(_) => {
                self.is_unavailable.get_or_init(|| ());
                None
            }
        })
    }
}

impl std::fmt::Debug for ReadRings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReadRings").finish_non_exhaustive()
    }
}

/// Has the kernel fill the buffers, `DEPTH` at most, and waits for all that it has taken. Says how many bytes it has read of each.
/// Returns whether the ring can be used again: it has no request any more.
fn read_by(
    ring: &mut IoUring,
    file: &RawFile,
    reads: &mut [(u64, &mut [u8])],
    lengths: &mut [Option<usize>; DEPTH],
) -> bool {
    let mut under_way = 0;
    for (index, (offset, buffer)) in reads.iter_mut().enumerate() {
        let entry = opcode::Read::new(Fd(file.file.as_raw_fd()), buffer.as_mut_ptr(), buffer.len() as u32)
            .offset(*offset)
            .build()
            .user_data(index as u64);
        // SAFETY: the buffer is borrowed for longer than this function runs, which does not return before the completion of every
        // read that the kernel has taken, and cannot panic until then. The file is open meanwhile.
        if unsafe { ring.submission().push(&entry) }.is_ok() {
            under_way += 1;
        }
    }
    while under_way > 0 {
        let entered = ring.submit_and_wait(under_way);
        for completion in ring.completion() {
            under_way = under_way.saturating_sub(1);
            if let Some(length) = lengths.get_mut(completion.user_data() as usize) {
                *length = usize::try_from(completion.result()).ok();
            }
        }
        // Those that the kernel refuses to take are not under way; the ring is dropped with them in it.
        if entered.is_err() && under_way == ring.submission().len() {
            return under_way == 0;
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Access, AlignedBuffer, Device, Durability, FileDevice};

    /// Reads of more than one call's depth, of which one lies beyond the end of the bytes in the file.
    fn check(rings: ReadRings) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("data");
        const BLOCKS: u64 = 80;
        let device = FileDevice::create(&path, BLOCKS * 4096, None).expect("created");
        for block in 0..BLOCKS {
            device.write(block * 4096, &[&[block as u8; 4096]], Durability::Cached).expect("written");
        }
        drop(device);
        let device = FileDevice::open(&path, Access::ReadOnly).expect("opened");
        let mut buffers: Vec<_> = (0..BLOCKS).map(|_| AlignedBuffer::zeroed(4096)).collect();
        let offsets = (0..BLOCKS).rev().map(|block| block * 4096);
        let mut reads: Vec<_> = offsets.zip(buffers.iter_mut().map(|buffer| &mut buffer[..])).collect();
        rings.read(&device.shared.raw, &mut reads).expect("all are read");
        for (block, buffer) in (0..BLOCKS).rev().zip(&buffers) {
            assert!(buffer.iter().all(|byte| *byte == block as u8), "block {block}");
        }
        let mut reads: Vec<_> = buffers.iter_mut().map(|buffer| (79 * 4096, &mut buffer[..])).take(5).collect();
        reads[3].0 = BLOCKS * 4096;
        let error = rings.read(&device.shared.raw, &mut reads).expect_err("one lies beyond the end");
        assert_eq!(error.kind(), crate::ErrorKind::Truncated);
    }

    #[test]
    fn many_blocks_are_read_at_a_time() {
        check(ReadRings::new());
    }

    #[test]
    fn without_rings_they_are_read_one_after_the_other() {
        check(ReadRings::unavailable());
    }
}
