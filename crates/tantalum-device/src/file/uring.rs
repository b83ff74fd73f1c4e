//! A file's pending writes by io_uring, one small ring for each from a pool.
//!
//! A ring of its own lets each waiter sleep in the kernel for its own write alone, with a time-out, without a lock and
//! without reaping for others. Rings are reused, so the cost is paid once for each write that is under way at the same
//! time.
//!
//! Invariant: while the kernel may read a buffer, its `InFlight` is alive: it ends only in `finish`, which needs the
//! completion. A pending write that is dropped early hands its `InFlight` to the pool.

#![allow(unsafe_code)] // The kernel reads the buffers of requests after they were submitted.

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use io_uring::types::{Fd, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode};
use rustix::io::Errno;
use tantalum_rt::{Instant, Mutex};

use super::Shared;
use super::pending::Write;
use super::raw::RawFile;
use crate::{PendingWrite, Result};

/// The most that one request asks for; the kernel takes no more than this anyway.
const REQUEST_BYTES_MAX: usize = 1 << 30;

/// A write that the kernel has.
struct InFlight {
    ring: IoUring,
    write: Write,
}

/// Rings that wait for work, and abandoned writes: those that no caller waits for.
pub(super) struct RingPool {
    /// `None` where the system has no io_uring, forbids it, or cannot wait with a time-out (before Linux 5.11).
    idle: Option<Mutex<Vec<IoUring>>>,
    abandoned: Mutex<Vec<InFlight>>,
}

impl RingPool {
    pub(super) fn new() -> Self {
        Self { idle: new_ring().map(|ring| Mutex::new(vec![ring])), abandoned: Mutex::new(Vec::new()) }
    }

    /// A pool that always says no.
    #[cfg(test)]
    pub(super) fn unavailable() -> Self {
        Self { idle: None, abandoned: Mutex::new(Vec::new()) }
    }

    #[cfg(test)]
    pub(super) fn idle_rings(&self) -> usize {
        self.idle.as_ref().map_or(0, |idle| idle.lock().len())
    }

    /// Hands `write` to the kernel, or gives it back if that is not possible.
    pub(super) fn submit(shared: &Arc<Shared>, write: Write) -> std::result::Result<Box<dyn PendingWrite>, Write> {
        let in_flight = shared.rings.start(&shared.raw, write)?;
        Ok(Box::new(UringWrite { shared: Arc::clone(shared), in_flight: Some(in_flight), answer: None }))
    }

    fn start(&self, file: &RawFile, write: Write) -> std::result::Result<InFlight, Write> {
        self.sweep(file);
        let Some(idle) = &self.idle else { return Err(write) };
        let ring = idle.lock().pop().or_else(new_ring);
        let Some(mut ring) = ring else { return Err(write) };
        let bytes = &write.buffer[write.range.clone()];
        let flags = file.limits.flags(write.offset, bytes.len(), write.durability);
        let entry =
            opcode::Write::new(Fd(file.file.as_raw_fd()), bytes.as_ptr(), bytes.len().min(REQUEST_BYTES_MAX) as u32)
                .offset(write.offset)
                .rw_flags(flags.bits() as i32)
                .write_stream(write.stream)
                .build();
        // SAFETY: the bytes are initialized and shared, and stay so until the completion is seen: the `InFlight` made
        // below owns them. The file is open now, and the kernel takes its own reference to it when it is submitted.
        let pushed = unsafe { ring.submission().push(&entry) };
        // On an error the kernel has taken nothing, and the ring is dropped with the request in it.
        match (pushed, ring.submit()) {
            (Ok(()), Ok(1)) => Ok(InFlight { ring, write }),
            _ => Err(write),
        }
    }

    /// Ends a completed write, and lets its ring serve another.
    fn finish(&self, in_flight: InFlight, result: i32, file: &RawFile) -> Result<()> {
        if let Some(idle) = &self.idle {
            idle.lock().push(in_flight.ring);
        }
        in_flight.write.finish(result, file)
    }

    /// Keeps a write that no caller waits for.
    fn abandon(&self, in_flight: InFlight) {
        self.abandoned.lock().push(in_flight);
    }

    /// Ends the abandoned writes that have completed. Their failures show only in the file's poison.
    fn sweep(&self, file: &RawFile) {
        let mut done = Vec::new();
        {
            let mut abandoned = self.abandoned.lock();
            let mut index = 0;
            while index < abandoned.len() {
                match abandoned[index].poll() {
                    Some(result) => done.push((abandoned.swap_remove(index), result)),
                    None => index += 1,
                }
            }
        }
        for (in_flight, result) in done {
            let _abandoned = self.finish(in_flight, result, file);
        }
    }

    /// Waits for all abandoned writes: none may reach the file after it is closed, when another may have opened it.
    pub(super) fn drain(&self, file: &RawFile) {
        let abandoned = std::mem::take(&mut *self.abandoned.lock());
        for mut in_flight in abandoned {
            let result = loop {
                if let Some(result) = in_flight.wait(None) {
                    break result;
                }
            };
            let _abandoned = self.finish(in_flight, result, file);
        }
    }
}

impl std::fmt::Debug for RingPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RingPool").field("available", &self.idle.is_some()).finish_non_exhaustive()
    }
}

impl Write {
    /// Turns the kernel's answer into a result, and completes by hand what the kernel left undone.
    pub(super) fn finish(self, result: i32, file: &RawFile) -> Result<()> {
        let bytes = &self.buffer[self.range];
        let written = match usize::try_from(result) {
            Ok(written) if written == bytes.len() => return Ok(()),
            Ok(written) if written < bytes.len() => written,
            Ok(_) => 0,
            // The kernel cancels queued requests of a thread that ends; the task that waits can still write.
            Err(_) if [Errno::CANCELED, Errno::INTR, Errno::AGAIN].iter().any(|e| e.raw_os_error() == -result) => 0,
            // A stream is a hint. What is wrong with the write besides shows without it.
            Err(_) if self.stream > 0 && -result == Errno::INVAL.raw_os_error() => 0,
            Err(_) => {
                let source = io::Error::from_raw_os_error(-result);
                return Err(file.write_failed(self.offset, bytes.len(), self.durability, source));
            }
        };
        file.write(self.offset + written as u64, &[&bytes[written..]], self.durability)
    }
}

impl InFlight {
    /// The kernel's answer, if it is there.
    fn poll(&mut self) -> Option<i32> {
        self.ring.completion().next().map(|entry| entry.result())
    }

    /// Sleeps in the kernel until the answer is there, at most for `timeout`.
    fn wait(&mut self, timeout: Option<Duration>) -> Option<i32> {
        let deadline = timeout.map(|timeout| tantalum_rt::now() + timeout);
        let mut timed_out = timeout == Some(Duration::ZERO);
        loop {
            if let Some(result) = self.poll() {
                return Some(result);
            }
            if timed_out {
                return None;
            }
            match self.sleep(deadline) {
                Ok(_) => {}
                // Not by the clock: in a simulation it stands still while the kernel works.
                Err(error) if error.raw_os_error() == Some(Errno::TIME.raw_os_error()) => timed_out = true,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // The kernel is short of something; the answer still comes, so look again later.
                Err(_) => tantalum_rt::sleep(Duration::from_micros(100)),
            }
        }
    }

    fn sleep(&self, deadline: Option<Instant>) -> io::Result<usize> {
        match deadline {
            None => self.ring.submit_and_wait(1),
            Some(deadline) => {
                let timespec = Timespec::from(deadline.duration_since(tantalum_rt::now()));
                self.ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&timespec))
            }
        }
    }
}

fn new_ring() -> Option<IoUring> {
    let ring = IoUring::new(1).ok()?;
    ring.params().is_feature_ext_arg().then_some(ring)
}

/// Waits in the kernel.
struct UringWrite {
    shared: Arc<Shared>,
    /// `None` once `wait` has returned `Some`.
    in_flight: Option<InFlight>,
    /// An answer that `is_done` took from the ring.
    answer: Option<i32>,
}

impl PendingWrite for UringWrite {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let in_flight = self.in_flight.as_mut().expect("wait is not called again after it returned Some");
        let result = self.answer.or_else(|| in_flight.wait(timeout))?;
        let in_flight = self.in_flight.take()?;
        Some(self.shared.rings.finish(in_flight, result, &self.shared.raw))
    }

    fn is_done(&mut self) -> bool {
        if self.answer.is_none() {
            self.answer = self.in_flight.as_mut().and_then(InFlight::poll);
        }
        self.answer.is_some()
    }
}

impl Drop for UringWrite {
    fn drop(&mut self) {
        let Some(in_flight) = self.in_flight.take() else { return };
        match self.answer {
            Some(result) => {
                let _abandoned = self.shared.rings.finish(in_flight, result, &self.shared.raw);
            }
            None => self.shared.rings.abandon(in_flight),
        }
    }
}
