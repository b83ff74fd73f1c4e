//! The requests to a database's devices in a run, in a file; and what they say: who wrote how much, how large, where, and how
//! long it took ("Early Experience and Evaluation of File Systems on SSD", sections IV-D and IV-G).
//!
//! A [`Recorder`] stands before the devices ([`Builder::wrap_devices`](tantalum::Builder::wrap_devices)) and writes a file; a
//! [`Reader`] gives it back, from bytes that may be anything. An [`Analysis`] is what is shown of it, in bounded memory.

mod analysis;
mod device;
mod format;
mod in_order;
mod plots;
mod reader;
mod recorder;
#[cfg(test)]
mod tests;
mod writer;

use serde::{Deserialize, Serialize};
use tantalum_device::{Ending, Request};

pub use analysis::{Analysis, PerTransaction};
pub use device::{DeviceAnalysis, Latencies, Operation, OperationAnalysis, Order, SizeClass};
pub use plots::plots;
pub use reader::Reader;
pub use recorder::Recorder;
pub use writer::Writer;

/// A request to a device, and what became of it.
///
/// ```
/// use tantalum_device::{Durability, Ending, Request, RequestKind};
/// use tantalum_lab::io_trace::Record;
///
/// let request = Request { kind: RequestKind::Write(Durability::Durable), offset: 0, len: 4096 };
/// let record = Record { device: 0, began_ns: 1000, took_ns: 250, request, ending: Ending::Done };
/// assert_eq!(record.request.len, 4096);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
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

/// A device in a trace.
///
/// ```
/// let device = tantalum_lab::io_trace::TracedDevice { used_for: "log".into(), name: "log-0".into(), capacity_bytes: 1 << 20 };
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
///
/// ```
/// let totals = tantalum_lab::io_trace::Totals { transactions: Some(100), ..Default::default() };
/// assert_eq!(totals.page_bytes, None);
/// ```
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
/// let medium = tantalum_lab::io_trace::Medium { name, reads: 0, writes: 1, host_bytes: 10, medium_bytes: 25 };
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
    /// The one over the other; `None` if nothing was written.
    pub fn amplification(&self) -> Option<f64> {
        (self.host_bytes > 0).then(|| self.medium_bytes as f64 / self.host_bytes as f64)
    }
}

/// What stands at the end of a trace.
///
/// ```
/// let summary = tantalum_lab::io_trace::Summary::default();
/// assert!(summary.devices.is_empty());
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Summary {
    /// How long the trace is, in nanoseconds.
    pub duration_ns: u64,
    /// The devices.
    pub devices: Vec<TracedDevice>,
    /// What the run did.
    pub totals: Totals,
}
