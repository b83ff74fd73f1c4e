//! The space of a [`Log`]: appends that waited for it, and those that may take what is kept for them.

use std::time::Duration;

use crate::{Log, LsnRange, Result, SpaceRequest};

impl Log {
    /// As [`append`](Self::append), with the space of a request that was granted, and more if it needs more.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_requested(&self, parts: &[&[u8]], space: &mut SpaceRequest) -> Result<LsnRange> {
        self.scheduler().append_requested(parts, space)
    }

    /// Asks for the space that [`needed_log_space`](crate::Error::needed_log_space) of a refused append names; the same for
    /// the sum of several. Requests are granted in their order, and while one is not, [`append`](Self::append) finds no
    /// space: so a large request is not overtaken for ever. A sum that the log cannot have at once is granted in part.
    ///
    /// # Errors
    /// [`Poisoned`](crate::ErrorKind::Poisoned), [`Closed`](crate::ErrorKind::Closed).
    pub fn request_space(&self, needed: u64) -> Result<SpaceRequest> {
        self.scheduler().request_space(needed)
    }

    /// What one [request](Self::request_space) is granted at most. It rises when the log grows.
    pub fn largest_space_request(&self) -> u64 {
        self.scheduler().largest_space_request()
    }

    /// The space that a record of `bytes` bytes needs: as [`needed_log_space`](crate::Error::needed_log_space) says.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge).
    pub fn space_needed(&self, bytes: usize) -> Result<u64> {
        self.scheduler().charge(bytes)
    }

    /// Blocks until there is space for a record of `bytes` bytes, for [`append_requested`](Self::append_requested). Meanwhile the
    /// owner is under pressure to checkpoint ([`Log::wait_for_pressure`]).
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge), [`Poisoned`](crate::ErrorKind::Poisoned), [`Closed`](crate::ErrorKind::Closed).
    pub fn wait_for_space(&self, bytes: usize) -> Result<SpaceRequest> {
        let space = self.request_space(self.space_needed(bytes)?)?;
        while !space.wait(Duration::MAX)? {}
        Ok(space)
    }

    /// As [`append`](Self::append), for a record that lets the owner's next checkpoint release something: when it is durable,
    /// the owner can do without older ones. So it may take the space that other appends leave [for it](Self::keep_for_relief), and
    /// what they leave for the loss of a device: if one is lost just then, the record waits until a device is added.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn append_to_relieve(&self, parts: &[&[u8]]) -> Result<LsnRange> {
        let scheduler = self.scheduler();
        scheduler.append_if(parts, |charge| scheduler.space.take(charge) || scheduler.take_reserved(charge))
    }

    /// Has all appends from now on leave `bytes` bytes of the [capacity](Self::capacity) to
    /// [`append_to_relieve`](Self::append_to_relieve), for an owner that appends anew what it needs of old records, so that its
    /// checkpoint can pass them. Nothing is kept when a log is opened. At most half of the capacity, or large records may wait for ever.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tantalum_device::{Device, MemoryDevice};
    /// # use tantalum_log::{ErrorKind, Log, LogOptions};
    /// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("a", 1 << 20)];
    /// # Log::create(7, devices.clone(), LogOptions::default())?;
    /// # let log = Log::open(devices, LogOptions::default(), &mut |_| {})?.finish()?;
    /// log.keep_for_relief(log.capacity() / 4);
    /// let full = loop {
    ///     match log.append(&[&[0; 4096]]) {
    ///         Ok(record) => log.flush(record.end)?,
    ///         Err(error) => break error,
    ///     }
    /// };
    /// assert_eq!(full.kind(), ErrorKind::LogFull);
    /// let moved = log.append_to_relieve(&[b"what is still needed"])?;
    /// log.flush(moved.end)?;
    /// log.set_checkpoint(moved.start)?;
    /// log.append(&[b"there is space again"])?;
    /// # Ok::<(), tantalum_log::Error>(())
    /// ```
    pub fn keep_for_relief(&self, bytes: u64) {
        self.scheduler().keep_for_relief(bytes);
    }

    /// The bytes of requests, with their headers and padding, that the log certainly takes when it is empty, even if it loses a device.
    /// It changes with the devices.
    pub fn capacity(&self) -> u64 {
        self.scheduler().capacity()
    }
}
