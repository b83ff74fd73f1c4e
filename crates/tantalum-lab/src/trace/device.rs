//! What a trace says of one device.

use std::{collections::BTreeMap, fmt};

use hdrhistogram::Histogram;
use serde::Serialize;
use tantalum_device::{Durability, Ending, RequestKind};

use super::{TracedDevice, TracedRequest};

/// What happened at one device.
#[derive(Clone, Debug, Serialize)]
pub struct DeviceAnalysis {
    /// What it is used for, and a number from 1 if several are: `data`, `log 2`.
    pub label: String,
    /// The device.
    #[serde(flatten)]
    pub device: TracedDevice,
    /// What was asked of it, by operation.
    pub operations: Vec<OperationAnalysis>,
    /// In which order reads go through its addresses.
    pub reads: Order,
    /// In which order writes do.
    pub writes: Order,
    /// Where requests went, by time in nanoseconds, for plots: of each kind as many as can be drawn.
    #[serde(skip)]
    pub(super) places: BTreeMap<Direction, Places>,
}

impl DeviceAnalysis {
    /// Bytes of all writes.
    pub fn written_bytes(&self) -> u64 {
        let writes = self.operations.iter().filter(|analysis| analysis.operation.is_write());
        writes.map(|analysis| analysis.bytes).sum()
    }

    /// Requests of one kind.
    pub fn requests(&self, operation: Operation) -> u64 {
        let of_kind = self.operations.iter().find(|analysis| analysis.operation == operation);
        of_kind.map_or(0, |analysis| analysis.requests)
    }

    /// Whether pages are on it.
    pub(super) fn holds_pages(&self) -> bool {
        matches!(&*self.device.used_for, "data" | "double-write")
    }
}

/// What is asked of devices.
///
/// ```
/// assert_eq!(tantalum_lab::trace::requests::Operation::DurableWrite.to_string(), "durable write");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Operation {
    /// A read.
    Read,
    /// A write that a flush makes durable.
    Write,
    /// A write that is durable by itself.
    DurableWrite,
    /// A write that is durable if the device keeps what it has completed.
    DeliveredWrite,
    /// A flush.
    Flush,
    /// A discard.
    Discard,
}

impl Operation {
    /// Whether it is a write of some kind.
    pub fn is_write(self) -> bool {
        matches!(self, Self::Write | Self::DurableWrite | Self::DeliveredWrite)
    }
}

impl From<RequestKind> for Operation {
    fn from(kind: RequestKind) -> Self {
        match kind {
            RequestKind::Read => Self::Read,
            RequestKind::Write(Durability::Cached) => Self::Write,
            RequestKind::Write(Durability::Durable) => Self::DurableWrite,
            RequestKind::Write(Durability::Delivered) => Self::DeliveredWrite,
            RequestKind::Flush => Self::Flush,
            RequestKind::Discard => Self::Discard,
        }
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::DurableWrite => "durable write",
            Self::DeliveredWrite => "delivered write",
            Self::Flush => "flush",
            Self::Discard => "discard",
        })
    }
}

/// Requests of one kind to one device.
///
/// ```
/// use tantalum_lab::trace::requests::{Operation, OperationAnalysis};
///
/// let (requests, bytes) = (4, 40_960);
/// let reads = OperationAnalysis { operation: Operation::Read, requests, bytes, failed: 0, unknown: 0, latency: None, sizes: vec![] };
/// assert_eq!(reads.average_bytes(), 10_240.0);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OperationAnalysis {
    /// What was asked.
    pub operation: Operation,
    /// How often.
    pub requests: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// Requests that ended with an error.
    pub failed: u64,
    /// Requests whose end is not known.
    pub unknown: u64,
    /// How long those took that were done; `None` if none was.
    pub latency: Option<Latencies>,
    /// Requests by size; empty for flushes.
    pub sizes: Vec<SizeClass>,
}

impl OperationAnalysis {
    /// Bytes of a request, on average; 0 if there are none.
    pub fn average_bytes(&self) -> f64 {
        self.bytes as f64 / self.requests.max(1) as f64
    }
}

/// How long requests took, in microseconds, to 1 %.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Latencies {
    /// The mean.
    pub mean_us: f64,
    /// Half took no longer.
    pub p50_us: f64,
    /// 99 of a hundred took no longer.
    pub p99_us: f64,
    /// The longest.
    pub max_us: f64,
}

/// Requests of more than half a size and at most that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SizeClass {
    /// The largest: a power of two.
    pub up_to_bytes: u64,
    /// How many.
    pub requests: u64,
}

/// In which order requests go through the addresses, in the order in which they began.
///
/// ```
/// let appends = tantalum_lab::trace::requests::Order { requests: 10, sequential: 9, ascending: 9 };
/// assert_eq!(appends.sequential_share(), Some(0.9));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Order {
    /// Requests.
    pub requests: u64,
    /// Those that begin where the one before ended.
    pub sequential: u64,
    /// Those that begin there or at a higher address.
    pub ascending: u64,
}

impl Order {
    /// Sequential ones as a part of all; `None` without any.
    pub fn sequential_share(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.sequential as f64 / self.requests as f64)
    }

    /// Ascending ones as a part of all; `None` without any.
    pub fn ascending_share(&self) -> Option<f64> {
        (self.requests > 0).then(|| self.ascending as f64 / self.requests as f64)
    }
}

/// A device's counts while records come.
#[derive(Default)]
pub(super) struct Counting {
    operations: BTreeMap<Operation, OperationCounts>,
    reads: Passing,
    writes: Passing,
    places: BTreeMap<Direction, Places>,
}

#[derive(Default)]
struct OperationCounts {
    requests: u64,
    bytes: u64,
    failed: u64,
    unknown: u64,
    latencies_ns: Option<Histogram<u64>>,
    by_size: BTreeMap<u64, u64>,
}

/// An order as it is found.
#[derive(Default)]
struct Passing {
    order: Order,
    /// Where the last request ended.
    end: Option<u64>,
}

impl Counting {
    /// Counts a request, the next in the order of their begins.
    pub fn add(&mut self, traced: &TracedRequest) {
        let (operation, request) = (Operation::from(traced.request.kind), traced.request);
        self.operations.entry(operation).or_default().add(traced);
        let direction = match operation {
            Operation::Read => Direction::Reads,
            Operation::Discard => Direction::Discards,
            Operation::Flush => return,
            Operation::Write | Operation::DurableWrite | Operation::DeliveredWrite => Direction::Writes,
        };
        match direction {
            Direction::Reads => self.reads.add(request.offset, request.len),
            Direction::Writes => self.writes.add(request.offset, request.len),
            Direction::Discards => {}
        }
        self.places.entry(direction).or_default().add(traced.began_ns, request.offset);
    }

    pub fn end(self, label: String, device: TracedDevice) -> DeviceAnalysis {
        let operations = self.operations.into_iter().map(|(operation, counts)| counts.end(operation)).collect();
        let (reads, writes) = (self.reads.order, self.writes.order);
        DeviceAnalysis { label, device, operations, reads, writes, places: self.places }
    }
}

impl OperationCounts {
    fn add(&mut self, traced: &TracedRequest) {
        let TracedRequest { request, took_ns, ending, .. } = *traced;
        self.requests += 1;
        self.bytes += request.len;
        match ending {
            Ending::Done => {
                let new = || Histogram::new(2).expect("two significant digits are possible");
                let latencies_ns = self.latencies_ns.get_or_insert_with(new);
                latencies_ns.record(took_ns).expect("a histogram that resizes itself takes any 48 bits");
            }
            Ending::Failed => self.failed += 1,
            Ending::Unknown => self.unknown += 1,
        }
        if request.len > 0 {
            *self.by_size.entry(request.len.next_power_of_two()).or_default() += 1;
        }
    }

    fn end(self, operation: Operation) -> OperationAnalysis {
        let Self { requests, bytes, failed, unknown, latencies_ns, by_size } = self;
        let latency = latencies_ns.map(|latencies_ns| Latencies {
            mean_us: latencies_ns.mean() / 1e3,
            p50_us: latencies_ns.value_at_quantile(0.5) as f64 / 1e3,
            p99_us: latencies_ns.value_at_quantile(0.99) as f64 / 1e3,
            max_us: latencies_ns.max() as f64 / 1e3,
        });
        let sizes = by_size.into_iter().map(|(up_to_bytes, requests)| SizeClass { up_to_bytes, requests }).collect();
        OperationAnalysis { operation, requests, bytes, failed, unknown, latency, sizes }
    }
}

impl Passing {
    fn add(&mut self, offset: u64, len: u64) {
        self.order.requests += 1;
        self.order.sequential += u64::from(self.end == Some(offset));
        self.order.ascending += u64::from(self.end.is_some_and(|end| end <= offset));
        self.end = Some(offset + len);
    }
}

/// What plots of addresses distinguish.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Direction {
    Reads,
    Writes,
    Discards,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Self::Reads => "reads",
            Self::Writes => "writes",
            Self::Discards => "discards",
        }
    }
}

/// Times in nanoseconds and addresses, evenly thinned out: of as many requests as there are, between half of [`MOST_PLACES`] and
/// all of them are kept.
#[derive(Clone, Debug)]
pub(super) struct Places {
    points: Vec<(u64, u64)>,
    /// One of so many is kept.
    step: u64,
    seen: u64,
}

/// As many dots as a plot still shows apart.
const MOST_PLACES: usize = 16384;

impl Default for Places {
    fn default() -> Self {
        Self { points: Vec::new(), step: 1, seen: 0 }
    }
}

impl Places {
    fn add(&mut self, at_ns: u64, offset: u64) {
        if self.seen.is_multiple_of(self.step) {
            if self.points.len() == MOST_PLACES {
                let mut number = 0;
                self.points.retain(|_| {
                    number += 1;
                    number % 2 == 1
                });
                self.step *= 2;
            }
            if self.seen.is_multiple_of(self.step) {
                self.points.push((at_ns, offset));
            }
        }
        self.seen += 1;
    }

    pub fn points(&self) -> impl Iterator<Item = (f64, f64)> {
        self.points.iter().map(|&(at_ns, offset)| (at_ns as f64, offset as f64))
    }

    /// One of so many requests is among the points.
    pub fn step(&self) -> u64 {
        self.step
    }
}
