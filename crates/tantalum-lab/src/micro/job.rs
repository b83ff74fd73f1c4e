//! What a micro benchmark does to a device.

use std::{fmt, ops::Range, time::Duration};

use serde::Serialize;
use tantalum_report::units;

/// Where requests go within a job's range. All begin at a multiple of the request's size, unless they overlap.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pattern {
    /// One request after the other, from the range's begin; several threads share the one stream.
    Sequential,
    /// Anywhere, evenly.
    Random,
    /// Sequential, but each request begins so many bytes before the last one's end: a log that writes its last block
    /// again and again (FlashLogging, section 4).
    Overlapping(u32),
    /// Two sequential streams, each in its half of the range; so many percent of the requests, by chance, belong to
    /// the second (FlashLogging, section 3.4).
    TwoStreams {
        /// Share of the second stream in percent.
        second_percent: u8,
    },
}

/// When writes are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flushing {
    /// Never: they stay cached.
    Never,
    /// Each write by itself, as with `O_DSYNC`.
    EachWrite,
    /// Each thread flushes the device after so many of its writes.
    After(u32),
    /// As `fsync` on a file of a journaling file system, after so many writes of a thread: see [`Fsync`].
    Fsync(Fsync),
}

/// What `fsync` does on a file that is only overwritten, in place, past the page cache: the file's time of change is
/// new, once in a tick of the kernel's clock, and goes through the journal.
///
/// The journal lies in the middle of the range, where ext4 and XFS have it. All but the last of its blocks are written, the
/// device is flushed, and the last, which commits, is written durably. Within the same tick nothing is left to commit, and
/// the device is only flushed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Fsync {
    /// Writes from one call to the next.
    pub after: u32,
    /// Writes of 4 KiB to the journal.
    pub journal_writes: u32,
}

impl Fsync {
    /// A tick of a kernel of 250 Hz, in nanoseconds.
    pub const TICK_NS: u64 = 4_000_000;
    /// The host's own time for the system call, in nanoseconds: what DuraSSD's Table 1 leaves for it where nothing is
    /// flushed after each write.
    pub const CALL_NS: u64 = 3_000;
    /// Bytes of a write to the journal.
    pub const BLOCK_BYTES: u64 = 4096;
    /// Bytes of the journal; when they are full it starts over.
    pub const JOURNAL_BYTES: u64 = 32 << 20;
}

/// What writes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Data {
    /// Bytes by chance, each write another: nothing for a device to compress or to leave out.
    Random,
    /// Zeros: for emulated devices, which never look at the bytes, and hold zeros without memory.
    Zeros,
}

/// What a micro benchmark does. Two equal jobs on equal devices do the same.
///
/// ```
/// use tantalum_lab::micro::{Flushing, Job, Pattern};
///
/// let job = Job { flushing: Flushing::After(8), threads: 4, ..Job::writes(4096, 1000, 0..1 << 30) };
/// assert_eq!(job.to_string(), "sequential, 4 KiB, writes, flush after 8 writes, 4 threads");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Job {
    /// Where requests go.
    pub pattern: Pattern,
    /// Bytes of each request.
    pub request_bytes: u32,
    /// Share of reads in percent, by chance; 0 and 100 leave nothing to it.
    pub reads_percent: u8,
    /// When writes are made durable.
    pub flushing: Flushing,
    /// Tasks that do one request at a time each.
    pub threads: u32,
    /// Requests in all; flushes do not count.
    pub operations: u64,
    /// No request begins later than this after the first.
    pub time_limit: Option<Duration>,
    /// What writes hold.
    pub data: Data,
    /// The bytes of the device that are used.
    pub range: Range<u64>,
    /// Decides addresses, the mix, and the data.
    pub seed: u64,
}

impl Job {
    /// Sequential cached writes by one thread: what other jobs start from.
    pub const fn writes(request_bytes: u32, operations: u64, range: Range<u64>) -> Self {
        Self {
            pattern: Pattern::Sequential,
            request_bytes,
            reads_percent: 0,
            flushing: Flushing::Never,
            threads: 1,
            operations,
            time_limit: None,
            data: Data::Random,
            range,
            seed: 42,
        }
    }

    /// Sequential reads by one thread.
    pub const fn reads(request_bytes: u32, operations: u64, range: Range<u64>) -> Self {
        Self { reads_percent: 100, ..Self::writes(request_bytes, operations, range) }
    }
}

impl fmt::Display for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pattern {
            Pattern::Sequential => write!(f, "sequential")?,
            Pattern::Random => write!(f, "random")?,
            Pattern::Overlapping(bytes) => write!(f, "sequential, overlapping by {}", units::bytes(bytes.into()))?,
            Pattern::TwoStreams { second_percent } => {
                write!(f, "two sequential streams {}/{second_percent}", 100 - second_percent.min(100))?;
            }
        }
        write!(f, ", {}, ", units::bytes(self.request_bytes.into()))?;
        match self.reads_percent {
            0 => write!(f, "writes")?,
            100.. => write!(f, "reads")?,
            percent => write!(f, "{percent}% reads")?,
        }
        match self.flushing {
            _ if self.reads_percent >= 100 => {}
            Flushing::Never => {}
            Flushing::EachWrite => write!(f, ", each durable")?,
            Flushing::After(count) => write!(f, ", flush after {count} writes")?,
            Flushing::Fsync(Fsync { after, journal_writes }) => {
                write!(f, ", fsync after {after} writes, with {journal_writes} to the journal")?;
            }
        }
        match self.threads {
            1 => Ok(()),
            threads => write!(f, ", {threads} threads"),
        }
    }
}
