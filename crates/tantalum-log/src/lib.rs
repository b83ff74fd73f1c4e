//! FlashLogging: a write-ahead log over several devices at once.
//!
//! Records are appended to memory and become durable when a caller flushes. Everything that was appended since the last
//! flush goes out as one request, one durable write to an idle device ("FlashLogging", SIGMOD 2009, sections 3.3 and 3.5). A record is acknowledged only when it and every record before it are durable.
//!
//! - [`Log::create`] formats devices, [`Log::open`] reads what is on them and returns a [`Recovery`]: read its records,
//!   then [`Recovery::finish`] gives the [`Log`].
//! - [`Log::append`] and [`Log::flush`] write; [`Log::ticket`] waits later.
//! - [`Log::set_checkpoint`] frees the space of records that are no longer needed; [`Log::wait_for_pressure`] tells when a
//!   checkpoint is due.
//! - [`Log::reader`] reads the records of a running log, from a position on.
//! - [`Log::add_devices`], [`Log::remove_devices`] and [`Log::replace_devices`] change the devices while the log runs.
//! - [`inspect`], [`verify`] and [`standings`] look at devices without changing them.
//!
//! ```
//! use std::sync::Arc;
//! use tantalum_device::{Device, MemoryDevice};
//! use tantalum_log::{Log, LogOptions};
//!
//! let device: Arc<dyn Device> = MemoryDevice::new("log", 1 << 20);
//! Log::create(7, vec![device.clone()], LogOptions::default())?;
//! let log = Log::open(vec![device.clone()], LogOptions::default(), &mut |_| {})?.finish()?;
//! let record = log.append(&[b"hello, ", b"log"])?;
//! log.flush(record.end)?; // durable now
//! drop(log);
//!
//! let mut recovery = Log::open(vec![device], LogOptions::default(), &mut |_| {})?;
//! assert_eq!(recovery.next_record()?.map(|record| record.bytes), Some(b"hello, log".to_vec()));
//! assert!(recovery.next_record()?.is_none());
//! # Ok::<(), tantalum_log::Error>(())
//! ```

mod archive;
mod area;
mod create;
pub mod error;
#[doc(hidden)]
pub mod format;
mod group;
mod inspect;
mod latency;
mod layout;
mod log;
mod log_device;
mod log_layout;
mod log_space;
mod lsn;
mod options;
mod reader;
mod recovery;
mod scheduler;
mod space;
mod stats;
mod ticket;

pub use archive::{
    ArchiveInspection, ArchiveOptions, ArchiveReader, ArchiveRetention, ArchiveRun, ArchiveSegment, ArchiveTarget,
    ArchiveVerification, ArchivedRecord, PrunedArchive, inspect_archive, prune_archive, remove_archive, verify_archive,
};
pub use inspect::{
    Damage, DeviceInspection, Inspection, RequestInspection, RequestState, SectionInspection, SlotInspection,
    Verification, inspect, verify,
};
pub use log::Log;
pub use log_layout::LogLayout;
pub use lsn::{Lsn, LsnRange};
pub use options::{Hiding, LogOptions};
pub use reader::{FellBehind, LogReader};
pub use recovery::{
    LostDevice, MissingDevice, MissingRecords, Rebuild, Record, RecordPlace, Records, Recovery, RecoveryPhase,
    RecoveryProgress, Standing, standings,
};
pub use scheduler::SpaceRequest;
pub use stats::{ArchiveStats, HidingStats, LogDeviceStats, LogStats};
pub use tantalum_device::{Error, ErrorKind, Result};
pub use ticket::Ticket;
