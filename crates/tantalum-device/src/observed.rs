//! A device whose requests an observer counts, traces, holds up or refuses.

use std::{fmt::Debug, ops::Range, sync::Arc, time::Duration};

use crate::{AlignedBuffer, Device, Durability, PendingWrite, Result, device::total_len};

/// What a request asks of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestKind {
    /// [`Device::read`].
    Read,
    /// [`Device::write`] or [`Device::submit`].
    Write(Durability),
    /// [`Device::flush`]; it has no offset and no length.
    Flush,
    /// [`Device::discard`].
    Discard,
}

/// A request to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it asks.
    pub kind: RequestKind,
    /// Where it begins, in bytes.
    pub offset: u64,
    /// How long it is, in bytes.
    pub len: u64,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Ending {
    /// As it was asked for.
    Done,
    /// With an error.
    Failed,
    /// Not known: a submitted write goes on, and no task waits for it any more.
    Unknown,
}

/// Observes the requests to a device. Calls come from many tasks at once and take part in each request's time, so they
/// must be quick; they must not use the device.
pub trait RequestObserver: Send + Sync + Debug {
    /// Whether a request may go to the device. Where it may not, the device's user gets the error, and no other method is called.
    ///
    /// # Errors
    /// What the observer refuses it for.
    fn admit(&self, _request: Request) -> Result<()> {
        Ok(())
    }

    /// A request is about to go to the device. The answer is the number by which [`ended`](Self::ended) names it.
    fn began(&self, request: Request) -> u64;

    /// The same for a write that [`Device::submit`] begins, during which the calling task goes on.
    fn submitted(&self, request: Request) -> u64 {
        self.began(request)
    }

    /// The request with this number has ended: called once for each. Of a submitted write, when that is waited for.
    fn ended(&self, number: u64, ending: Ending);
}

/// A device that passes every request on and calls an observer for it. What the device can do, and what it stands on, stays
/// as it is. [`Device::grow`] is no request, nor are those for zones.
///
/// ```
/// use std::sync::{Arc, atomic::{AtomicU64, Ordering}};
/// use tantalum_device::{Device, Durability, Ending, MemoryDevice, ObservedDevice, Request, RequestObserver};
///
/// #[derive(Debug, Default)]
/// struct Meter(AtomicU64);
///
/// impl RequestObserver for Meter {
///     fn began(&self, request: Request) -> u64 {
///         self.0.fetch_add(request.len, Ordering::Relaxed)
///     }
///     fn ended(&self, _number: u64, _ending: Ending) {}
/// }
///
/// let meter = Arc::new(Meter::default());
/// let device = ObservedDevice::new(MemoryDevice::new("data", 1 << 20), meter.clone());
/// device.write(0, &[&[1; 4096]], Durability::Durable)?;
/// assert_eq!(meter.0.load(Ordering::Relaxed), 4096);
/// # Ok::<(), tantalum_device::Error>(())
/// ```
#[derive(Debug)]
pub struct ObservedDevice {
    device: Arc<dyn Device>,
    observer: Arc<dyn RequestObserver>,
}

impl ObservedDevice {
    /// `device`, whose requests `observer` observes.
    pub fn new(device: Arc<dyn Device>, observer: Arc<dyn RequestObserver>) -> Self {
        Self { device, observer }
    }

    fn observe(&self, kind: RequestKind, offset: u64, len: u64, request: impl FnOnce() -> Result<()>) -> Result<()> {
        let observed = Request { kind, offset, len };
        self.observer.admit(observed)?;
        let under_way = UnderWay::new(&self.observer, self.observer.began(observed));
        let outcome = request();
        under_way.end(&outcome);
        outcome
    }
}

impl Device for ObservedDevice {
    crate::forward!(device: name, capacity_bytes, capabilities, hardware, shared_flushes, zones, release, grow, reserve, shrink);

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.observe(RequestKind::Read, offset, buffer.len() as u64, || self.device.read(offset, buffer))
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.write_placed(offset, buffers, durability, 0)
    }

    fn write_placed(&self, offset: u64, buffers: &[&[u8]], durability: Durability, handle: u32) -> Result<()> {
        let len = total_len(buffers) as u64;
        let write = || self.device.write_placed(offset, buffers, durability, handle);
        self.observe(RequestKind::Write(durability), offset, len, write)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        let request = Request { kind: RequestKind::Write(durability), offset, len: range.len() as u64 };
        self.observer.admit(request)?;
        let under_way = UnderWay::new(&self.observer, self.observer.submitted(request));
        let submitted = self.device.submit(offset, buffer, range, durability);
        if submitted.is_err() {
            under_way.end(&submitted);
            return submitted;
        }
        submitted.map(|write| Box::new(ObservedWrite { write, under_way: Some(under_way) }) as Box<dyn PendingWrite>)
    }

    fn flush(&self) -> Result<()> {
        match self.device.shared_flushes() {
            // One flush for several callers is observed once.
            Some(shared) => shared.flush_by(|| self.flush_unshared()),
            None => self.flush_unshared(),
        }
    }

    fn flush_unshared(&self) -> Result<()> {
        self.observe(RequestKind::Flush, 0, 0, || self.device.flush_unshared())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.observe(RequestKind::Discard, offset, len, || self.device.discard(offset, len))
    }
}

/// A request that has not ended. Dropped before its end, by a task that gave up waiting or panicked, it ends as
/// [`Ending::Unknown`].
struct UnderWay {
    observer: Arc<dyn RequestObserver>,
    number: u64,
    ending: Ending,
}

impl UnderWay {
    fn new(observer: &Arc<dyn RequestObserver>, number: u64) -> Self {
        Self { observer: Arc::clone(observer), number, ending: Ending::Unknown }
    }

    fn end<T>(mut self, outcome: &Result<T>) {
        self.ending = if outcome.is_ok() { Ending::Done } else { Ending::Failed };
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.observer.ended(self.number, self.ending);
    }
}

/// A submitted write.
struct ObservedWrite {
    write: Box<dyn PendingWrite>,
    /// `None` after its end.
    under_way: Option<UnderWay>,
}

impl PendingWrite for ObservedWrite {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let outcome = self.write.wait(timeout)?;
        if let Some(under_way) = self.under_way.take() {
            under_way.end(&outcome);
        }
        Some(outcome)
    }

    fn is_done(&mut self) -> bool {
        self.write.is_done()
    }
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Mutex;

    use super::*;
    use crate::{Capabilities, MemoryDevice, MemoryProfile, TearUnit, WriteCache};

    #[derive(Debug, Default)]
    struct Diary(Mutex<Vec<(Request, Vec<Ending>)>>);

    impl RequestObserver for Diary {
        fn began(&self, request: Request) -> u64 {
            let mut requests = self.0.lock();
            requests.push((request, Vec::new()));
            requests.len() as u64 - 1
        }

        fn ended(&self, number: u64, ending: Ending) {
            self.0.lock()[number as usize].1.push(ending);
        }
    }

    fn observed() -> (Arc<Diary>, ObservedDevice) {
        let diary = Arc::new(Diary::default());
        (diary.clone(), ObservedDevice::new(MemoryDevice::new("d", 64 << 10), diary))
    }

    fn submit(device: &ObservedDevice, offset: u64) -> crate::Result<Box<dyn PendingWrite>> {
        device.submit(offset, Arc::new(AlignedBuffer::zeroed(8192)), 4096..8192, Durability::Durable)
    }

    #[test]
    fn each_request_is_observed_with_its_end() {
        let (diary, device) = observed();
        device.write(4096, &[&[1; 4096], &[2; 4096]], Durability::Cached).unwrap();
        device.read(8192, &mut [0; 4096]).unwrap();
        device.flush().unwrap();
        device.discard(4096, 8192).unwrap();
        device.read(1, &mut [0; 4096]).unwrap_err();
        let mut awaited = submit(&device, 0).unwrap();
        awaited.wait(None).unwrap().unwrap();
        drop(awaited);
        drop(submit(&device, 4096).unwrap());
        assert!(submit(&device, 64 << 10).is_err());

        let durable = RequestKind::Write(Durability::Durable);
        let expected = [
            (RequestKind::Write(Durability::Cached), 4096, 8192, Ending::Done),
            (RequestKind::Read, 8192, 4096, Ending::Done),
            (RequestKind::Flush, 0, 0, Ending::Done),
            (RequestKind::Discard, 4096, 8192, Ending::Done),
            (RequestKind::Read, 1, 4096, Ending::Failed),
            (durable, 0, 4096, Ending::Done),
            (durable, 4096, 4096, Ending::Unknown),
            (durable, 64 << 10, 4096, Ending::Failed),
        ];
        let expected = expected.map(|(kind, offset, len, ending)| (Request { kind, offset, len }, vec![ending]));
        assert_eq!(*diary.0.lock(), expected);
    }

    #[test]
    fn the_device_stays_what_it_is() {
        let profile =
            MemoryProfile { volatile_cache: false, tears: TearUnit::Atomic(16384), ..MemoryProfile::default() };
        let memory = MemoryDevice::with_profile("safe", 64 << 10, profile);
        let device = ObservedDevice::new(memory.clone(), Arc::new(Diary::default()));
        let Capabilities { write_cache, atomic_write_bytes, .. } = device.capabilities();
        assert_eq!((write_cache, atomic_write_bytes), (WriteCache::None, 16384));
        assert_eq!(device.capabilities(), memory.capabilities());
        assert_eq!(
            (device.name(), device.capacity_bytes(), device.hardware()),
            (memory.name(), 64 << 10, memory.hardware())
        );
        device.grow(128 << 10).unwrap();
        assert_eq!(memory.capacity_bytes(), 128 << 10);
    }
}
