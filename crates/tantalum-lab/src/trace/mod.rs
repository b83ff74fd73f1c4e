//! What happened in a run, in a file: changes and writes of a database's pages, and requests to its devices.
//!
//! A [`Recorder`] observes pages and devices and keeps what happens in a [`Writer`]; a [`Reader`] gives it back, from bytes that
//! may be anything. [`pages`] has what in-page logging would make of the pages, [`requests`] what the devices were asked for.

mod codec;
mod device;
mod locality;
pub mod pages;
mod plots;
mod recorder;
pub mod requests;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tantalum::PageOperation;
use tantalum_device::{Ending, Request};

pub use codec::{Damage, Reader, Writer};
pub use recorder::Recorder;

/// Of which run a trace is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Header {
    /// For people.
    pub label: String,
    /// The database whose pages are traced; `None` if only requests are.
    pub database: Option<Database>,
}

/// The sizes of a database whose pages are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Database {
    /// Bytes of a page.
    pub page_bytes: u32,
    /// Bytes of the buffer pool.
    pub buffer_pool_bytes: u64,
}

impl Header {
    /// Of a trace of requests.
    pub fn new(label: impl Into<String>) -> Self {
        Self { label: label.into(), database: None }
    }
}

/// One thing that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A change of a page was logged: an update log record of "In-Page Logging".
    Change {
        /// The page.
        page: u64,
        /// What was done.
        operation: PageOperation,
        /// Bytes of the change in the log.
        bytes: u32,
    },
    /// A page was written to its store.
    Write {
        /// The page.
        page: u64,
    },
    /// A request to a device has ended.
    Request(TracedRequest),
}

/// A request to a device, and what became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracedRequest {
    /// The device, by its place in [`Summary::devices`].
    pub device: u16,
    /// When it went to the device, in nanoseconds since the trace began.
    pub began_ns: u64,
    /// How long it took, in nanoseconds; with [`Ending::Unknown`] how long it was waited for.
    pub took_ns: u64,
    /// What was asked.
    pub request: Request,
    /// How it ended.
    pub ending: Ending,
}

/// What stands at the end of a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// How long the trace is, in nanoseconds.
    pub duration_ns: u64,
    /// The devices whose requests are traced.
    pub devices: Vec<TracedDevice>,
    /// What the run did.
    pub totals: Totals,
}

/// A device in a trace.
///
/// ```
/// let device = tantalum_lab::trace::TracedDevice { used_for: "log".into(), name: "log-0".into(), capacity_bytes: 1 << 20 };
/// assert_eq!(device.to_string(), "log: log-0");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TracedDevice {
    /// What for: `data`, `double-write`, `log` or `archive`.
    pub used_for: String,
    /// Its name.
    pub name: String,
    /// Its size in bytes at the end.
    pub capacity_bytes: u64,
}

impl std::fmt::Display for TracedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.used_for, self.name)
    }
}

/// What the run did meanwhile, as far as it tells: what requests are put into relation to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Transactions that ended: committed, or rolled back on purpose.
    pub transactions: Option<u64>,
    /// Bytes of a page.
    pub page_bytes: Option<u32>,
    /// Pages that the engine read.
    pub pages_read: Option<u64>,
    /// Pages that the engine gave to its store.
    pub pages_stored: Option<u64>,
    /// Bytes of all changes, as they stand in the log's records.
    pub changed_bytes: Option<u64>,
    /// What emulated drives did inside.
    #[serde(default)]
    pub media: Vec<Medium>,
}

/// What an emulated drive did inside.
///
/// ```
/// let name = "emulated:mtron".into();
/// let medium = tantalum_lab::trace::Medium { name, reads: 0, writes: 1, host_bytes: 10, medium_bytes: 25 };
/// assert_eq!(medium.amplification(), Some(2.5));
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Medium {
    /// The drive.
    pub name: String,
    /// Read commands that it got; a request larger than a command takes several.
    pub reads: u64,
    /// Write commands that it got.
    pub writes: u64,
    /// Bytes that were written to it.
    pub host_bytes: u64,
    /// Bytes that it wrote to its medium: programmed, if that is flash.
    pub medium_bytes: u64,
}

impl Medium {
    /// Bytes written to the medium for each byte written to the device; `None` if nothing was written.
    pub fn amplification(&self) -> Option<f64> {
        (self.host_bytes > 0).then(|| self.medium_bytes as f64 / self.host_bytes as f64)
    }
}
