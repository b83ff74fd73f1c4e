//! Blocking reads and writes of an open file, whole or failed, and the memory of a failed flush.
//!
//! Invariant: once `poison` is set, no write and no flush reaches the file any more. The page cache and the device
//! report a lost write once and then forget it, so asking again would only bring a false success.

use std::fs::File;
use std::io::{self, IoSlice};
use std::sync::{Arc, OnceLock};

use rustix::io::{Errno, ReadWriteFlags, pread, pwritev2};

use crate::device::{gather, total_len};
use crate::{AlignedBuffer, Durability, Error, ErrorKind, Result};

/// Bytes of a bounce buffer for reads; larger reads go through it piece by piece.
const BOUNCE_BYTES: usize = 1 << 20;

/// The kernel's limit on the pieces of one vectored write.
const IOVECS_MAX: usize = 1024;

/// Not yet named by `rustix`: the kernel refuses the write unless the device will not tear it.
const RWF_ATOMIC: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x40);

/// An open file with what its direct I/O demands.
#[derive(Debug)]
pub(super) struct RawFile {
    pub(super) name: Arc<str>,
    pub(super) file: File,
    pub(super) limits: Limits,
    pub(super) writable: bool,
    pub(super) poison: OnceLock<Error>,
}

/// What direct I/O demands and offers. Sizes in bytes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) direct: bool,
    pub(super) memory_align: usize,
    pub(super) atomic_min: usize,
    /// 0 if there are no atomic writes.
    pub(super) atomic_max: usize,
    /// Whether a completed write is the device's affair alone, without the kernel being asked to make it durable: it would
    /// flush the device's cache for that, and the file's blocks stay where they are.
    pub(super) delivers_plainly: bool,
}

impl Limits {
    /// Whether the kernel is asked to make such a write durable.
    pub(super) fn synchronizes(&self, durability: Durability) -> bool {
        match durability {
            Durability::Cached => false,
            Durability::Durable => true,
            Durability::Delivered => !self.delivers_plainly,
        }
    }

    /// Whether the kernel can take the memory as it is.
    pub(super) fn takes(&self, buffer: &[u8]) -> bool {
        !self.direct || (buffer.as_ptr() as usize).is_multiple_of(self.memory_align)
    }

    /// Whether the device can be asked not to tear this write.
    fn is_atomic(&self, offset: u64, len: usize) -> bool {
        len.is_power_of_two() && (self.atomic_min..=self.atomic_max).contains(&len) && offset.is_multiple_of(len as u64)
    }

    /// The flags for one write.
    pub(super) fn flags(&self, offset: u64, len: usize, durability: Durability) -> ReadWriteFlags {
        let mut flags = ReadWriteFlags::empty();
        flags.set(ReadWriteFlags::DSYNC, self.synchronizes(durability));
        flags.set(RWF_ATOMIC, self.is_atomic(offset, len));
        flags
    }
}

impl RawFile {
    /// Whether writes may still be tried.
    pub(super) fn check_writable(&self) -> Result<()> {
        if !self.writable {
            return Err(Error::new(
                ErrorKind::ReadOnly,
                format!("{} is open for reading only; open it with Access::ReadWrite", self.name),
            ));
        }
        match self.poison.get() {
            Some(cause) => Err(Error::writes_lost(&self.name, cause)),
            None => Ok(()),
        }
    }

    /// Fills `buffer` from `offset`.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        if self.limits.takes(buffer) {
            return self.read_aligned(offset, buffer);
        }
        let mut bounce = AlignedBuffer::zeroed(buffer.len().min(BOUNCE_BYTES));
        let mut at = offset;
        for piece in buffer.chunks_mut(BOUNCE_BYTES) {
            let bounce = &mut bounce[..piece.len()];
            self.read_aligned(at, bounce)?;
            piece.copy_from_slice(bounce);
            at += piece.len() as u64;
        }
        Ok(())
    }

    fn read_aligned(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let len = buffer.len() as u64;
        let mut done = 0;
        while done < buffer.len() {
            match pread(&self.file, &mut buffer[done..], offset + done as u64) {
                Ok(0) => {
                    return Err(Error::truncated(&self.name, offset, len, done as u64));
                }
                Ok(read) => done += read,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.io_error("read", offset, len, errno)),
            }
        }
        Ok(())
    }

    /// Writes the concatenation of `buffers` by one system call, unless the kernel takes only a part of it.
    pub(super) fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.check_writable()?;
        let len = total_len(buffers);
        // Direct I/O wants each piece aligned, in memory and in length; an atomic write has to be one piece.
        let fits = |buffer: &&[u8]| self.limits.takes(buffer) && buffer.len().is_multiple_of(self.piece_align());
        let one_piece = buffers.len() == 1 || !self.limits.is_atomic(offset, len);
        if one_piece && buffers.len() <= IOVECS_MAX && buffers.iter().all(fits) {
            self.write_pieces(offset, buffers, durability)
        } else {
            self.write_pieces(offset, &[&gather(buffers)], durability)
        }
    }

    /// What the length of each piece of a vectored write must be a multiple of.
    fn piece_align(&self) -> usize {
        if self.limits.direct { self.limits.memory_align.max(512) } else { 1 }
    }

    fn write_pieces(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        let len = total_len(buffers);
        let flags = self.limits.flags(offset, len, durability);
        let mut slices: Vec<IoSlice<'_>> = buffers.iter().map(|buffer| IoSlice::new(buffer)).collect();
        let mut rest = &mut slices[..];
        let mut done = 0;
        while done < len {
            match pwritev2(&self.file, rest, offset + done as u64, flags) {
                Ok(0) => return Err(self.write_failed(offset, len, durability, io::ErrorKind::WriteZero)),
                Ok(written) => {
                    done += written;
                    IoSlice::advance_slices(&mut rest, written);
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.write_failed(offset, len, durability, errno)),
            }
        }
        Ok(())
    }

    /// Whether atomic writes work here if they are claimed, which is tried by writing the first bytes over themselves: not every
    /// file system that tells of them takes them. What is only read is believed to work.
    pub(super) fn confirm_atomic_writes(&self, capacity_bytes: u64) -> Result<bool> {
        // The largest page there is, or what is possible.
        const PROBE_BYTES: usize = 16 << 10;
        let len = self.limits.atomic_max.min(PROBE_BYTES);
        if len == 0 || !self.writable || capacity_bytes < len as u64 {
            return Ok(true);
        }
        let mut bytes = AlignedBuffer::zeroed(len);
        self.read(0, &mut bytes)?;
        // Whole or not at all, it leaves the bytes as they are.
        match pwritev2(&self.file, &[IoSlice::new(&bytes)], 0, RWF_ATOMIC) {
            Ok(written) => Ok(written == len),
            Err(Errno::OPNOTSUPP | Errno::INVAL) => Ok(false),
            Err(errno) => Err(self.io_error("write", 0, len as u64, errno)),
        }
    }

    /// Makes all completed writes durable.
    pub(super) fn flush(&self) -> Result<()> {
        self.check_writable()?;
        self.file.sync_data().map_err(|source| self.poisoned_by(self.io_error("flush", 0, 0, source)))
    }

    /// The error for a write that failed.
    ///
    /// A durable write may have failed in its cache flush, and then has lost earlier writes that no later flush
    /// reports. Lack of space is found before anything is written, except by the page cache.
    pub(super) fn write_failed(
        &self,
        offset: u64,
        len: usize,
        durability: Durability,
        source: impl Into<io::Error>,
    ) -> Error {
        let error = self.io_error("write", offset, len as u64, source);
        let nothing_lost =
            !self.limits.synchronizes(durability) || (error.kind() == ErrorKind::NoSpace && self.limits.direct);
        if nothing_lost { error } else { self.poisoned_by(error) }
    }

    fn poisoned_by(&self, error: Error) -> Error {
        self.poison.get_or_init(|| error.clone());
        error
    }

    pub(super) fn io_error(
        &self,
        operation: &'static str,
        offset: u64,
        len: u64,
        source: impl Into<io::Error>,
    ) -> Error {
        Error::io(&self.name, operation, offset, len, source.into())
    }
}
