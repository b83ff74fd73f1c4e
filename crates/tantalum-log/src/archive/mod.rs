//! The near-zero-delay archive ("FlashLogging", section 3.7): the whole log once more, in order, on one device or in a
//! directory, as soon as a few records are there.
//!
//! Archived records are durable, so the archive completes the log's requests like a log device, and recovery reads it first.
//! It keeps the records that checkpoints release, so a backup and the archive give every later state of the log's owner.
//!
//! An archive is a control area, laid out as a log device's first blocks (superblock and copy, two checkpoint slots),
//! and *segments*: a header, then requests that follow each other without gaps. One write is under way at a time.
//!
//! Invariants:
//! - A *run* of segments has no gap: each starts where the one before ended, or earlier, which voids what that one holds
//!   from there on. A gap starts a new run, and the first segment of a run says so.
//! - While the archive works, no checkpoint passes its end.
//! - While the archive works, records not archived yet find room in free segments without a checkpoint
//!   ([`Writer::room_bytes`]): appends stop before. The next session, which begins a segment of its own, finds that room too.

mod circle;
mod directory;
mod inspect;
mod options;
mod reader;
mod retention;
mod store;
mod walk;
mod writer;

pub use inspect::{
    ArchiveInspection, ArchiveReader, ArchiveRun, ArchiveSegment, ArchiveVerification, ArchivedRecord, inspect_archive,
    verify_archive,
};
pub use options::{ArchiveOptions, ArchiveTarget};
pub use reader::remove_archive;
pub(crate) use reader::{Archive, Scanned};
pub(crate) use retention::prune;
pub use retention::{ArchiveRetention, PrunedArchive, prune_archive};
pub(crate) use writer::{Archived, Batch, JOINED_US, Resume, Writer, device_bytes};

use crate::layout::device_tag;

/// What the requests of an archive carry to tell them from those of the log's devices, and of another log.
pub(crate) fn archive_tag(log_id: u128) -> u64 {
    device_tag(log_id, u64::from_le_bytes(*b"archive\0"))
}
