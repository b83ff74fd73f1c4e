//! What observes a database's pages and devices and writes a trace of them.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    io::{self, Write},
    sync::Arc,
};

use tantalum::{DeviceUse, PageChange, PageId, PageObserver};
use tantalum_device::{Device, Ending, ObservedDevice, Request, RequestObserver};
use tantalum_rt::{Instant, Mutex, lock_unswitched, now};

use super::{Event, Summary, Totals, TracedDevice, TracedRequest, Writer};

/// Writes what happens between [`begin`](Recorder::begin) and [`finish`](Recorder::finish): to the pages of a database that it
/// observes ([`Expert::observe_pages`](tantalum::Expert::observe_pages)), and at the devices before which it
/// [stands](Recorder::observe). Requests that have not ended by then have the ending [`Ending::Unknown`].
///
/// A failure to write does not disturb the database; [`finish`](Recorder::finish) reports it. Takes memory for the requests that are
/// under way. It takes no virtual time.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_lab::trace::{Header, Reader, Recorder, Totals, Writer};
///
/// # let dir = tempfile::tempdir()?;
/// let recorder = Recorder::new();
/// let of_devices = Arc::clone(&recorder);
/// let db = tantalum::Db::builder()
///     .log_bytes(8 << 20)
///     .expert(|expert| {
///         let expert = expert.observe_pages(recorder.clone());
///         expert.wrap_devices(move |used_for, device| of_devices.observe(used_for, device))
///     })
///     .open(dir.path().join("db"))?;
/// recorder.begin(Writer::new(Vec::new(), &Header::new("a new table"))?, u64::MAX);
/// db.table("t")?;
/// let bytes = recorder.finish(Totals::default())?;
/// assert!(Reader::new("example", &bytes[..])?.count() > 0);
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Recorder<W: Write + Send + 'static> {
    state: Mutex<State<W>>,
}

struct State<W: Write> {
    /// `None` before the trace has begun and after it has ended.
    trace: Option<Trace<W>>,
    devices: Vec<(DeviceUse, Arc<dyn Device>)>,
    /// The number of the next request; never given twice, so that what began before the trace is not taken for part of it.
    next: u64,
}

struct Trace<W: Write> {
    writer: io::Result<Writer<W>>,
    begun: Instant,
    under_way: BTreeMap<u64, (u16, Request, Instant)>,
    /// Page changes that are still to be written.
    changes_left: u64,
}

impl<W: Write + Send + 'static> Recorder<W> {
    /// A recorder that does not write yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { trace: None, devices: Vec::new(), next: 0 }) })
    }

    /// `device`, whose requests it observes from now on.
    ///
    /// # Panics
    /// With more than 65,536 devices.
    pub fn observe(self: &Arc<Self>, used_for: DeviceUse, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let mut state = lock_unswitched(&self.state);
        let number = u16::try_from(state.devices.len()).expect("a trace has at most 65,536 devices");
        state.devices.push((used_for, Arc::clone(&device)));
        drop(state);
        Arc::new(ObservedDevice::new(device, Arc::new(DeviceObserver { recorder: Arc::clone(self), device: number })))
    }

    /// From now on events are written; of pages at most so many changes, and the page writes before the last of them.
    pub fn begin(&self, writer: Writer<W>, most_changes: u64) {
        let under_way = BTreeMap::new();
        let trace = Trace { writer: Ok(writer), begun: now(), under_way, changes_left: most_changes };
        lock_unswitched(&self.state).trace = Some(trace);
    }

    /// Whether it has all the page changes that it takes, or failed.
    pub fn is_full(&self) -> bool {
        let state = lock_unswitched(&self.state);
        state.trace.as_ref().is_none_or(|trace| trace.changes_left == 0 || trace.writer.is_err())
    }

    /// Ends the trace, and gives its output back.
    ///
    /// # Errors
    /// The first failure to write, since the beginning.
    ///
    /// # Panics
    /// When no trace has begun, or it has ended before.
    pub fn finish(&self, totals: Totals) -> io::Result<W> {
        let mut state = lock_unswitched(&self.state);
        let mut trace = state.trace.take().expect("a trace that has begun ends once");
        let devices = state.devices.iter().map(|(used_for, device)| TracedDevice {
            used_for: used_for.to_string(),
            name: device.name().to_owned(),
            capacity_bytes: device.capacity_bytes(),
        });
        let duration_ns = trace.begun.elapsed().as_nanos() as u64;
        let summary = Summary { duration_ns, devices: devices.collect(), totals };
        drop(state);
        while let Some((number, _)) = trace.under_way.first_key_value() {
            trace.end(*number, Ending::Unknown);
        }
        trace.writer?.finish(&summary)
    }
}

impl<W: Write> Trace<W> {
    fn push(&mut self, event: Event) {
        let Ok(writer) = &mut self.writer else { return };
        if let Err(error) = writer.push(event) {
            self.writer = Err(error);
        }
    }

    /// Writes what happened to a page, unless the trace has all its changes.
    fn push_page(&mut self, event: Event) {
        if self.changes_left > 0 {
            self.push(event);
            self.changes_left -= u64::from(matches!(event, Event::Change { .. }));
        }
    }

    /// A request that began before the trace is not part of it.
    fn end(&mut self, number: u64, ending: Ending) {
        let Some((device, request, began)) = self.under_way.remove(&number) else { return };
        let (began_ns, took_ns) = ((began - self.begun).as_nanos() as u64, began.elapsed().as_nanos() as u64);
        self.push(Event::Request(TracedRequest { device, began_ns, took_ns, request, ending }));
    }
}

impl<W: Write + Send + 'static> PageObserver for Recorder<W> {
    fn changed(&self, page: PageId, change: PageChange) {
        let PageChange { operation, bytes } = change;
        if let Some(trace) = &mut lock_unswitched(&self.state).trace {
            trace.push_page(Event::Change { page: page.0, operation, bytes });
        }
    }

    fn written(&self, page: PageId) {
        if let Some(trace) = &mut lock_unswitched(&self.state).trace {
            trace.push_page(Event::Write { page: page.0 });
        }
    }
}

impl<W: Write + Send + 'static> Debug for Recorder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// Observes one device for a recorder.
struct DeviceObserver<W: Write + Send + 'static> {
    recorder: Arc<Recorder<W>>,
    device: u16,
}

impl<W: Write + Send + 'static> Debug for DeviceObserver<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceObserver").field("device", &self.device).finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> RequestObserver for DeviceObserver<W> {
    fn began(&self, request: Request) -> u64 {
        let mut state = lock_unswitched(&self.recorder.state);
        let number = state.next;
        state.next += 1;
        if let Some(trace) = &mut state.trace {
            trace.under_way.insert(number, (self.device, request, now()));
        }
        number
    }

    fn ended(&self, number: u64, ending: Ending) {
        if let Some(trace) = &mut lock_unswitched(&self.recorder.state).trace {
            trace.end(number, ending);
        }
    }
}
