//! Block devices behind one trait, [`Device`].
//!
//! - [`FileDevice`]: a regular file or a raw block device, by direct I/O and io_uring.
//! - [`files`]: directories, and the files in them, on a file system or in a simulation's memory.
//! - [`Partition`]: a byte range of a device that is a device itself; [`Striped`]: several devices as one.
//! - [`AlignedBuffer`]: memory that devices take without a copy; [`AppendBuffer`]: the same, filled by many threads.
//! - [`WithoutBarriers`]: a device that is never asked to flush its cache; [`SharedFlushes`]: one that is flushed once for all
//!   tasks that ask.
//! - [`ObservedDevice`]: a device whose requests an observer counts, traces, holds up or refuses.
//! - [`Overlay`]: a device whose writes stay in memory, over one that stays as it is.
//! - [`toml`]: files that a program writes and an operator may edit.
//! - [`Characteristics`]: what was measured of a device, as a file.
//! - [`sparse`]: bytes in memory of which zeros take no space.
//! - [`MemoryDevice`]: a device in memory that loses power, tears writes, hangs and fails on demand, on either clock.
//!
//! What every device promises: a [`Durability::Durable`] write survives a power cut once it has completed; a
//! [`Durability::Cached`] write does once a later [`Device::flush`] has returned; a [`Durability::Delivered`] one does if
//! the device keeps what it has completed; nothing else does, and a write under way may be left in part. What no device promises: an order among writes that are under way at the same time.

mod append_buffer;
mod buffer;
mod capability;
mod characteristics;
mod device;
mod error;
mod file;
pub mod files;
mod flushes;
mod memory;
mod observed;
mod overlay;
mod partition;
pub mod sparse;
mod stalling;
mod striped;
pub mod toml;

pub use append_buffer::{AppendBuffer, AppendRefused};
pub use buffer::{ALIGNMENT, AlignedBuffer, HUGE_PAGE_BYTES, ask_for_huge_pages};
pub use capability::{Capabilities, WriteCache, Zones};
pub use characteristics::{Characteristics, WriteLatency};
pub use device::{Device, Durability, EndedWrite, Hardware, PendingWrite};
pub use error::{Error, ErrorKind, Result};
pub use file::{Access, FileDevice};
pub use flushes::{AnnouncedFlush, SharedFlushes, WithoutBarriers};
pub use memory::{Fault, MemoryDevice, MemoryProfile, TearUnit};
pub use observed::{Ending, ObservedDevice, Request, RequestKind, RequestObserver};
pub use overlay::{MemoryLimit, Overlay};
pub use partition::Partition;
pub use stalling::StallingDevice;
pub use striped::Striped;
