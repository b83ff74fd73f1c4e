//! What stands before devices and writes a trace of their requests.

use std::{
    collections::BTreeMap,
    fmt::{self, Debug},
    io::{self, Write},
    sync::Arc,
};

use tantalum::DeviceUse;
use tantalum_device::{Device, Ending, ObservedDevice, Request, RequestObserver};
use tantalum_rt::{Instant, Mutex, lock_unswitched, now};

use super::{Record, Summary, Totals, TracedDevice, Writer};

/// Writes the requests that begin between [`begin`](Recorder::begin) and [`finish`](Recorder::finish). Those that have not ended by
/// then have the ending [`Ending::Unknown`].
///
/// A failure to write does not disturb the devices; [`finish`](Recorder::finish) reports it. Takes memory for the requests that are
/// under way. It takes no virtual time.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_lab::io_trace::{Reader, Recorder, Totals, Writer};
///
/// # let dir = tempfile::tempdir()?;
/// let recorder = Recorder::new();
/// let wrapping = Arc::clone(&recorder);
/// let db = tantalum::Db::builder()
///     .log_bytes(8 << 20)
///     .wrap_devices(move |used_for, device| wrapping.trace(used_for, device))
///     .open(dir.path().join("db"))?;
/// recorder.begin(Writer::new(Vec::new(), "a new table")?);
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
}

impl<W: Write + Send + 'static> Recorder<W> {
    /// A recorder that is not told to write yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { trace: None, devices: Vec::new(), next: 0 }) })
    }

    /// `device`, of whose requests this is told from now on.
    ///
    /// # Panics
    /// With more than 65,536 devices.
    pub fn trace(self: &Arc<Self>, used_for: DeviceUse, device: Arc<dyn Device>) -> Arc<dyn Device> {
        let mut state = lock_unswitched(&self.state);
        let number = u16::try_from(state.devices.len()).expect("a trace has at most 65,536 devices");
        state.devices.push((used_for, Arc::clone(&device)));
        drop(state);
        Arc::new(ObservedDevice::new(device, Arc::new(Station { recorder: Arc::clone(self), device: number })))
    }

    /// From now on requests are written.
    pub fn begin(&self, writer: Writer<W>) {
        let trace = Trace { writer: Ok(writer), begun: now(), under_way: BTreeMap::new() };
        lock_unswitched(&self.state).trace = Some(trace);
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
        let summary =
            Summary { duration_ns: trace.begun.elapsed().as_nanos() as u64, devices: devices.collect(), totals };
        drop(state);
        while let Some((number, _)) = trace.under_way.first_key_value() {
            trace.end(*number, Ending::Unknown);
        }
        trace.writer?.finish(&summary)
    }
}

impl<W: Write> Trace<W> {
    /// A request that began before the trace is not part of it.
    fn end(&mut self, number: u64, ending: Ending) {
        let Some((device, request, began)) = self.under_way.remove(&number) else { return };
        let Ok(writer) = &mut self.writer else { return };
        let record = Record {
            device,
            began_ns: (began - self.begun).as_nanos() as u64,
            took_ns: began.elapsed().as_nanos() as u64,
            request,
            ending,
        };
        if let Err(error) = writer.push(record) {
            self.writer = Err(error);
        }
    }
}

impl<W: Write + Send + 'static> Debug for Recorder<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").finish_non_exhaustive()
    }
}

/// What a device tells.
struct Station<W: Write + Send + 'static> {
    recorder: Arc<Recorder<W>>,
    device: u16,
}

impl<W: Write + Send + 'static> Debug for Station<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Station").field("device", &self.device).finish_non_exhaustive()
    }
}

impl<W: Write + Send + 'static> RequestObserver for Station<W> {
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
