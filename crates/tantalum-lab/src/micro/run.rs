//! Runs a job on a device.
//!
//! Each thread does one request at a time and takes its response time. The first error ends all threads.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::{Instant, Random, now, spawn};

use super::address::Addresses;
use super::fsync::Journal;
use super::job::{Data, Flushing, Job};
use super::measured::{Kind, Measured, Sample};
use crate::error::{Error, Result};

/// What the threads of a job share.
struct Run {
    device: Arc<dyn Device>,
    job: Job,
    addresses: Addresses,
    journal: Option<Journal>,
    deadline: Option<Instant>,
    begun: AtomicU64,
    has_failed: AtomicBool,
}

/// Runs `job` on `device` and waits for its end. `progress` is called now and then with how many requests have begun.
///
/// Inside a simulation the result depends on nothing but the device's state and the job.
///
/// # Errors
/// [`Error::Job`] if the requests do not fit the range, the range the device, or either the device's block; the
/// first error of the device.
pub fn run(device: &Arc<dyn Device>, job: &Job, progress: &dyn Fn(u64)) -> Result<Measured> {
    let addresses = check(device, job)?;
    let started = now();
    let run = Arc::new(Run {
        device: Arc::clone(device),
        job: job.clone(),
        addresses,
        journal: Journal::of(job),
        deadline: job.time_limit.map(|limit| started + limit),
        begun: AtomicU64::new(0),
        has_failed: AtomicBool::new(false),
    });
    let others: Vec<_> = (1..job.threads.max(1))
        .map(|thread| {
            let run = Arc::clone(&run);
            spawn(format!("micro-{thread}"), move || run.work(thread, &|_| ()))
        })
        .collect();
    let mut results = vec![run.work(0, progress)];
    results.extend(others.into_iter().map(|other| other.join().expect("a thread of a job does not panic")));
    let elapsed_ns = (now() - started).as_nanos() as u64;
    let mut samples = Vec::new();
    for result in results {
        samples.extend(result?);
    }
    Ok(Measured { samples, elapsed_ns, request_bytes: job.request_bytes })
}

/// Writes all of the range once, in order, in large requests, and flushes: so that reads find something, and a flash
/// device has no easy life.
///
/// # Errors
/// As [`run`].
pub fn fill(device: &Arc<dyn Device>, range: Range<u64>, data: Data, progress: &dyn Fn(u64)) -> Result<()> {
    const LARGE: u64 = 1 << 20;
    let whole = range.end.saturating_sub(range.start) / LARGE;
    let (begin, rest) = (range.start..range.start + whole * LARGE, range.start + whole * LARGE..range.end);
    for (range, request_bytes) in [(begin, LARGE as u32), (rest, device.capabilities().logical_block)] {
        let operations = range.end.saturating_sub(range.start) / u64::from(request_bytes);
        if operations > 0 {
            run(device, &Job { data, ..Job::writes(request_bytes, operations, range) }, progress)?;
        }
    }
    Ok(device.flush()?)
}

fn check(device: &Arc<dyn Device>, job: &Job) -> Result<Addresses> {
    let refuse = |why: String| Error::Job { job: job.to_string(), device: device.name().to_owned(), why };
    let (block, capacity) = (u64::from(device.capabilities().logical_block), device.capacity_bytes());
    let overlap = match job.pattern {
        super::Pattern::Overlapping(bytes) => u64::from(bytes),
        _ => 0,
    };
    for (what, bytes) in
        [("request", u64::from(job.request_bytes)), ("range's begin", job.range.start), ("overlap", overlap)]
    {
        if !bytes.is_multiple_of(block) {
            return Err(refuse(format!(
                "its {what} of {bytes} bytes is no multiple of the device's {block}-byte block"
            )));
        }
    }
    if job.range.end > capacity {
        return Err(refuse(format!("its range ends at byte {}, the device at {capacity}", job.range.end)));
    }
    if job.request_bytes == 0 {
        return Err(refuse("requests of no bytes do nothing; give them a size".into()));
    }
    Addresses::new(job).ok_or_else(|| {
        let range = format!("{}..{}", job.range.start, job.range.end);
        refuse(format!("its range {range} has no room for a request (or a second one that overlaps it); enlarge it"))
    })
}

impl Run {
    fn work(&self, thread: u32, progress: &dyn Fn(u64)) -> Result<Vec<Sample>> {
        let result = self.requests(thread, progress);
        if result.is_err() {
            self.has_failed.store(true, Ordering::Relaxed);
        }
        result
    }

    fn requests(&self, thread: u32, progress: &dyn Fn(u64)) -> Result<Vec<Sample>> {
        let job = &self.job;
        let mut random = Random::with_seed(job.seed ^ u64::from(thread).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut buffer = AlignedBuffer::zeroed(job.request_bytes as usize);
        if job.data == Data::Random {
            random.fill(&mut buffer);
        }
        let mut samples = Vec::new();
        let mut unflushed = 0;
        while !self.is_over() {
            let number = self.begun.fetch_add(1, Ordering::Relaxed);
            if number >= job.operations {
                break;
            }
            let (offset, stream) = self.addresses.next(&mut random);
            if self.is_read(&mut random) {
                let nanoseconds = timed(|| self.device.read(offset, &mut buffer))?;
                samples.push(Sample { kind: Kind::Read, stream, nanoseconds });
            } else {
                match job.data {
                    Data::Random => buffer[..8].copy_from_slice(&number.to_le_bytes()),
                    // In a mix, the buffer holds what was read.
                    Data::Zeros if job.reads_percent > 0 => buffer.fill(0),
                    Data::Zeros => {}
                }
                let nanoseconds = timed(|| self.device.write(offset, &[&buffer], self.durability()))?;
                samples.push(Sample { kind: Kind::Write, stream, nanoseconds });
                unflushed += 1;
                if self.flushes_after(unflushed) {
                    unflushed = 0;
                    let nanoseconds = timed(|| self.flush())?;
                    samples.push(Sample { kind: Kind::Flush, stream, nanoseconds });
                }
            }
            if number.is_multiple_of(64) {
                progress(number);
            }
        }
        Ok(samples)
    }

    fn is_over(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed) || self.deadline.is_some_and(|deadline| now() >= deadline)
    }

    fn is_read(&self, random: &mut Random) -> bool {
        match self.job.reads_percent {
            0 => false,
            100.. => true,
            percent => random.u8(..100) < percent,
        }
    }

    fn flushes_after(&self, writes: u32) -> bool {
        match self.job.flushing {
            Flushing::Never | Flushing::EachWrite => false,
            Flushing::After(after) => writes == after,
            Flushing::Fsync(fsync) => writes == fsync.after,
        }
    }

    fn flush(&self) -> tantalum_device::Result<()> {
        match &self.journal {
            Some(journal) => journal.fsync(&*self.device),
            None => self.device.flush(),
        }
    }

    fn durability(&self) -> Durability {
        match self.job.flushing {
            Flushing::EachWrite => Durability::Durable,
            Flushing::Never | Flushing::After(_) | Flushing::Fsync(_) => Durability::Cached,
        }
    }
}

pub(super) fn timed(operation: impl FnOnce() -> tantalum_device::Result<()>) -> tantalum_device::Result<u64> {
    let started = now();
    operation()?;
    Ok((now() - started).as_nanos() as u64)
}
