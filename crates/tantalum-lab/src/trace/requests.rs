//! What a trace's devices were asked for: how much, how large, where, and how long it took ("Early Experience and Evaluation of
//! File Systems on SSD", sections IV-D and IV-G). In memory that does not grow with the trace.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    io::Read,
};

use serde::Serialize;

use super::{Damage, Event, Reader, Summary, Totals, TracedDevice, TracedRequest, device::Counting};
use crate::error::Result;

pub use super::{
    device::{DeviceAnalysis, Latencies, Operation, OperationAnalysis, Order, SizeClass},
    plots::of_requests as plots,
};

/// What a trace of requests says. All of a device's counts are of requests that were made, whether they ended or not; latencies are
/// of those that were done.
///
/// ```
/// use tantalum_device::{Durability, Ending, Request, RequestKind};
/// use tantalum_lab::trace::{Event, Header, Reader, Summary, TracedDevice, TracedRequest, Writer, requests::Analysis};
///
/// let mut writer = Writer::new(Vec::new(), &Header::new("an append after the other"))?;
/// for number in 0..4 {
///     let kind = RequestKind::Write(Durability::Durable);
///     let request = Request { kind, offset: number * 4096, len: 4096 };
///     let (began_ns, ending) = (number * 10, Ending::Done);
///     writer.push(Event::Request(TracedRequest { device: 0, began_ns, took_ns: 9, request, ending }))?;
/// }
/// let device = TracedDevice { used_for: "log".into(), name: "disk".into(), capacity_bytes: 1 << 20 };
/// let bytes = writer.finish(&Summary { devices: vec![device], ..Default::default() })?;
///
/// let analysis = Analysis::of(Reader::new("example", &bytes[..])?)?;
/// assert_eq!(analysis.devices[0].writes.sequential, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Serialize)]
pub struct Analysis {
    /// The trace's label.
    pub label: String,
    /// How long it is.
    pub seconds: f64,
    /// What the run did meanwhile.
    pub totals: Totals,
    /// The devices, in the order in which the database opened them.
    pub devices: Vec<DeviceAnalysis>,
    /// What a transaction takes; `None` where the run has no transactions.
    pub per_transaction: Option<PerTransaction>,
    /// Bytes written to all devices over bytes of changes in the log; `None` where that is not known.
    pub written_over_changed: Option<f64>,
    /// Bytes written to data devices and double-write areas over those of the pages that the engine stored.
    pub written_over_stored: Option<f64>,
    /// Bytes that emulated drives wrote inside over bytes of changes in the log.
    pub media_over_changed: Option<f64>,
}

/// What a transaction takes, on average.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PerTransaction {
    /// Pages that the engine asked its store for: reads as they are issued.
    pub pages_read: Option<f64>,
    /// Pages that the engine gave to its store: writes as they are issued.
    pub pages_stored: Option<f64>,
    /// Reads at data devices and double-write areas.
    pub reads: f64,
    /// Writes there.
    pub writes: f64,
    /// Bytes of these writes.
    pub written_bytes: f64,
    /// Flushes of all devices.
    pub flushes: f64,
}

impl Analysis {
    /// Reads a trace to its end.
    ///
    /// # Errors
    /// As the trace's reader, and if the trace has no devices.
    pub fn of<R: Read>(mut reader: Reader<R>) -> Result<Self> {
        let (mut counting, mut in_order) = (Vec::new(), InOrder::default());
        for event in reader.by_ref() {
            if let Event::Request(request) = event?
                && let Some(first) = in_order.push(request)
            {
                count(&mut counting, &first);
            }
        }
        while let Some(request) = in_order.pop() {
            count(&mut counting, &request);
        }
        let Summary { duration_ns, devices, totals } = reader.summary().cloned().unwrap_or_default();
        if devices.is_empty() && reader.header().database.is_some() {
            return Err(reader.damaged(Damage::NoRequests));
        }
        counting.resize_with(devices.len(), Counting::default);
        let ends = counting.into_iter().zip(labels(&devices)).zip(devices);
        let devices: Vec<_> = ends.map(|((counts, label), device)| counts.end(label, device)).collect();
        // A summary may say anything: fractions do not overflow.
        let over = |bytes: f64, base: Option<f64>| base.filter(|&base| base > 0.0).map(|base| bytes / base);
        let stored = totals.pages_stored.zip(totals.page_bytes).map(|(pages, bytes)| pages as f64 * f64::from(bytes));
        let changed = totals.changed_bytes.map(|bytes| bytes as f64);
        let media: f64 = totals.media.iter().map(|medium| medium.medium_bytes as f64).sum();
        let paged = devices.iter().filter(|device| device.holds_pages());
        Ok(Self {
            label: reader.header().label.clone(),
            seconds: duration_ns as f64 / 1e9,
            per_transaction: PerTransaction::of(&totals, &devices),
            written_over_changed: over(written_bytes(&devices) as f64, changed),
            written_over_stored: over(written_bytes(paged) as f64, stored),
            media_over_changed: over(media, changed.filter(|_| media > 0.0)),
            totals,
            devices,
        })
    }
}

impl PerTransaction {
    /// `None` without transactions.
    fn of(totals: &Totals, devices: &[DeviceAnalysis]) -> Option<Self> {
        let transactions = totals.transactions.filter(|&transactions| transactions > 0)?;
        let each = |count: u64| count as f64 / transactions as f64;
        let paged = || devices.iter().filter(|device| device.holds_pages());
        Some(Self {
            pages_read: totals.pages_read.map(each),
            pages_stored: totals.pages_stored.map(each),
            reads: each(paged().map(|device| device.reads.requests).sum()),
            writes: each(paged().map(|device| device.writes.requests).sum()),
            written_bytes: each(written_bytes(paged())),
            flushes: each(devices.iter().map(|device| device.requests(Operation::Flush)).sum()),
        })
    }
}

fn written_bytes<'a>(devices: impl IntoIterator<Item = &'a DeviceAnalysis>) -> u64 {
    devices.into_iter().map(DeviceAnalysis::written_bytes).sum()
}

/// What the devices are called in short.
fn labels(devices: &[TracedDevice]) -> Vec<String> {
    let mut of_use: BTreeMap<&str, (u32, u32)> = BTreeMap::new();
    devices.iter().for_each(|device| of_use.entry(&device.used_for).or_default().0 += 1);
    let mut labels = Vec::new();
    for TracedDevice { used_for, .. } in devices {
        let (all, named) = of_use.entry(used_for).or_default();
        *named += 1;
        labels.push(if *all == 1 { used_for.clone() } else { format!("{used_for} {named}") });
    }
    labels
}

/// Counts a request with its device.
fn count(counting: &mut Vec<Counting>, request: &TracedRequest) {
    let device = usize::from(request.device);
    if counting.len() <= device {
        counting.resize_with(device + 1, Counting::default);
    }
    counting[device].add(request);
}

/// So many requests are held back. One that ends after more than so many others, which began later, comes out of its turn.
const WINDOW: usize = 1 << 16;

/// A trace has requests as they end; out of this they come as they began, and of one moment by device and address, since those that
/// wait together are free to be served in any order.
#[derive(Default)]
struct InOrder {
    held: BinaryHeap<Reverse<ByBegin>>,
}

impl InOrder {
    /// Takes a request, and gives one when there are too many.
    fn push(&mut self, request: TracedRequest) -> Option<TracedRequest> {
        self.held.push(Reverse(ByBegin(request)));
        if self.held.len() > WINDOW { self.pop() } else { None }
    }

    /// The one that began first.
    fn pop(&mut self) -> Option<TracedRequest> {
        self.held.pop().map(|Reverse(ByBegin(request))| request)
    }
}

struct ByBegin(TracedRequest);

impl ByBegin {
    fn key(&self) -> (u64, u16, u64, u64) {
        (self.0.began_ns, self.0.device, self.0.request.offset, self.0.request.len)
    }
}

impl PartialEq for ByBegin {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for ByBegin {}

impl PartialOrd for ByBegin {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for ByBegin {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}
