//! A device in memory that behaves, and fails, like a device: for tests and for simulation.
//!
//! Promises: what [`Device`] promises and no more. A power cut keeps every flushed and every durable write that has
//! completed, and any subset of the rest, each in whole or torn. All chance comes from the profile's seed and from the
//! caller's generator, so a run repeats. The device outlives simulations: no task is switched under its lock.

mod contents;
mod state;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tantalum_rt::{Condvar, Mutex, MutexGuard, Random, lock_unswitched};

use crate::device::{check_blocks, gather, total_len};
use crate::sparse::SparseBytes;
use crate::{AlignedBuffer, Capabilities, Device, Durability, Error, Hardware, PendingWrite, Result, WriteCache};
use contents::{Change, Contents, Effect};
pub use state::Fault;
use state::{Borrowed, Faults, State, io_error, pick};

/// What a power cut leaves whole of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TearUnit {
    /// Each sector of 512 bytes by itself.
    Sector512,
    /// Each aligned unit of so many bytes, at least 512; a write within one is atomic.
    Atomic(u32),
}

/// How a [`MemoryDevice`] behaves. Latencies are drawn evenly from their range.
#[derive(Debug, Clone)]
pub struct MemoryProfile {
    /// Bytes: 512 or 4096.
    pub logical_block: u32,
    /// From submission to completion of a write or discard.
    pub write_latency: Range<Duration>,
    /// Of a read.
    pub read_latency: Range<Duration>,
    /// Of a flush.
    pub flush_latency: Range<Duration>,
    /// Whether cached writes need a flush to survive a power cut.
    pub volatile_cache: bool,
    /// How a power cut tears writes.
    pub tears: TearUnit,
    /// Decides latencies, and what failed writes leave behind.
    pub seed: u64,
}

impl Default for MemoryProfile {
    /// No latency, a volatile cache, blocks of 4096 bytes, torn in sectors.
    fn default() -> Self {
        Self {
            logical_block: 4096,
            write_latency: Duration::ZERO..Duration::ZERO,
            read_latency: Duration::ZERO..Duration::ZERO,
            flush_latency: Duration::ZERO..Duration::ZERO,
            volatile_cache: true,
            tears: TearUnit::Sector512,
            seed: 0,
        }
    }
}

/// A device in memory that loses power, tears writes, hangs and fails on demand.
///
/// A submitted write borrows its buffer until it is done: a change meanwhile panics, because real hardware might write
/// either state of it.
///
/// Time is [`tantalum_rt`]'s: virtual in a simulation, real elsewhere.
///
/// ```
/// # use tantalum_device::{Device, Durability, MemoryDevice};
/// # fn main() -> tantalum_device::Result<()> {
/// let device = MemoryDevice::new("log", 1 << 20);
/// device.write(0, &[&[1; 4096]], Durability::Durable)?;
/// device.write(4096, &[&[2; 4096]], Durability::Cached)?;
///
/// let after_the_cut = device.fork();
/// after_the_cut.power_cut(&mut tantalum_rt::Random::with_seed(7));
/// assert_eq!(after_the_cut.image()[..4096], [1; 4096]); // the rest may or may not be there
/// # Ok(())
/// # }
/// ```
pub struct MemoryDevice(Arc<Shared>);

struct Shared {
    name: Arc<str>,
    profile: MemoryProfile,
    capacity_bytes: AtomicU64,
    state: Mutex<State>,
    /// Signalled when what waiters wait for may have changed by other means than the clock.
    changed: Condvar,
}

impl MemoryDevice {
    /// A device of zeros with the default profile. The capacity is rounded down to whole blocks.
    pub fn new(name: impl Into<String>, capacity_bytes: u64) -> Arc<MemoryDevice> {
        Self::with_profile(name, capacity_bytes, MemoryProfile::default())
    }

    /// A device of zeros that behaves as `profile` says. The capacity is rounded down to whole blocks.
    pub fn with_profile(name: impl Into<String>, capacity_bytes: u64, profile: MemoryProfile) -> Arc<MemoryDevice> {
        let capacity_bytes = capacity_bytes - capacity_bytes % u64::from(profile.logical_block);
        let contents = Contents::new(capacity_bytes, profile.volatile_cache, profile.tears);
        let random = Random::with_seed(profile.seed);
        Self::from_state(name.into().into(), profile, State::new(contents, random))
    }

    fn from_state(name: Arc<str>, profile: MemoryProfile, state: State) -> Arc<MemoryDevice> {
        let capacity_bytes = AtomicU64::new(state.contents.current.len());
        let changed = Condvar::new();
        Arc::new(Self(Arc::new(Shared { name, profile, capacity_bytes, state: Mutex::new(state), changed })))
    }

    /// Cuts the power and restores it. Unflushed cached writes and discards survive in any subset, each whole or torn;
    /// so does everything under way, durable or not, whose waiters get [`PowerLost`](crate::ErrorKind::PowerLost).
    /// Faults remain, a failed flush is forgotten.
    pub fn power_cut(&self, random: &mut Random) {
        let mut state = self.0.lock();
        let in_flight = std::mem::take(&mut state.in_flight).into_values().map(|operation| operation.effect).collect();
        state.contents.power_cut(in_flight, random);
        state.results.clear();
        state.poison = None;
        state.generation += 1;
        drop(state);
        self.0.changed.notify_all();
    }

    /// What reading the whole device gives.
    pub fn image(&self) -> Vec<u8> {
        let state = self.0.lock();
        let mut image = vec![0; state.contents.current.len() as usize];
        state.contents.current.read(0, &mut image);
        image
    }

    /// Makes the device hold exactly `image`, durably, with its length. What was under way is gone, as at a power cut.
    pub fn load(&self, image: &[u8]) {
        let mut loaded = SparseBytes::zeroed(image.len() as u64);
        loaded.write(0, image);
        self.replace(loaded);
    }

    /// As [`load`](Self::load) of the other's [`image`](Self::image), but cheap.
    pub fn load_from(&self, other: &MemoryDevice) {
        let image = other.0.lock().contents.current.clone();
        self.replace(image);
    }

    fn replace(&self, image: SparseBytes) {
        let mut state = self.0.lock();
        state.in_flight.clear();
        state.results.clear();
        state.generation += 1;
        self.0.capacity_bytes.store(image.len(), Ordering::Release);
        state.contents.load(image);
        drop(state);
        self.0.changed.notify_all();
    }

    /// Lets `f` change the `len` bytes at `offset`, in the cache and on the medium, as bit rot would. Any alignment.
    /// `f` is called for each of the two.
    ///
    /// # Panics
    /// If the range does not lie within the device.
    pub fn corrupt(&self, offset: u64, len: usize, f: impl FnMut(&mut [u8])) {
        let mut state = self.0.lock();
        assert!(offset + len as u64 <= state.contents.current.len(), "the corrupted range lies within the device");
        state.contents.corrupt(offset, len, f);
    }

    /// A second device with the same contents, cache and operations under way, and no faults; from here on the two
    /// are independent. Cheap.
    pub fn fork(&self) -> Arc<MemoryDevice> {
        let state = self.0.lock().fork();
        Self::from_state(Arc::clone(&self.0.name), self.0.profile.clone(), state)
    }

    /// Lets `fault` happen from now on, beside those already in force.
    pub fn inject(&self, fault: Fault) {
        self.0.lock().faults.inject(fault);
    }

    /// Ends all faults. What hangs completes, and a failed flush is forgotten, as if the device were opened anew.
    pub fn clear_faults(&self) {
        let mut state = self.0.lock();
        state.faults = Faults::default();
        state.poison = None;
        let now = tantalum_rt::now();
        for operation in state.in_flight.values_mut() {
            operation.done_at.get_or_insert(now);
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// Writes and discards under way.
    pub fn in_flight(&self) -> usize {
        self.0.lock().in_flight.len()
    }

    fn begin(
        &self,
        offset: u64,
        len: u64,
        change: Change,
        durability: Durability,
        borrowed: Option<Borrowed>,
    ) -> Result<MemoryWrite> {
        self.check_range(offset, len)?;
        tantalum_rt::interleave_in_device();
        let mut state = self.0.lock();
        state.check_poison(&self.0.name)?;
        let id = state.begin(&self.0.name, &self.0.profile, Effect { offset, change }, len, durability, borrowed);
        Ok(MemoryWrite { device: Arc::clone(&self.0), id, offset, len })
    }
}

impl Shared {
    /// The state, up to date.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = lock_unswitched(&self.state);
        state.settle();
        state
    }

    /// Lets a latency pass.
    fn delay(&self, latency: &Range<Duration>) {
        if latency.end > Duration::ZERO || latency.start > Duration::ZERO {
            let latency = pick(latency, &mut lock_unswitched(&self.state).random);
            tantalum_rt::sleep(latency);
        }
    }
}

impl Device for MemoryDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.0.capacity_bytes.load(Ordering::Acquire)
    }

    fn capabilities(&self) -> Capabilities {
        Capabilities {
            atomic_write_bytes: match self.0.profile.tears {
                TearUnit::Sector512 => 0,
                TearUnit::Atomic(bytes) => bytes,
            },
            write_cache: if self.0.profile.volatile_cache { WriteCache::Volatile } else { WriteCache::None },
            fua: Some(true),
            rotational: Some(false),
            ..Capabilities::unknown(self.0.profile.logical_block)
        }
    }

    fn hardware(&self) -> Hardware {
        Hardware::Memory(Arc::as_ptr(&self.0).addr())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.check_range(offset, buffer.len() as u64)?;
        tantalum_rt::interleave_in_device();
        if self.0.lock().faults.fail_read() {
            return Err(io_error(&self.0.name, "read", offset, buffer.len() as u64));
        }
        self.0.delay(&self.0.profile.read_latency);
        self.0.lock().contents.current.read(offset, buffer);
        Ok(())
    }

    /// All take as long as one.
    fn read_many(&self, reads: &mut [(u64, &mut [u8])]) -> Result<()> {
        for (offset, buffer) in &*reads {
            self.check_range(*offset, buffer.len() as u64)?;
            if self.0.lock().faults.fail_read() {
                return Err(io_error(&self.0.name, "read", *offset, buffer.len() as u64));
            }
        }
        tantalum_rt::interleave_in_device();
        self.0.delay(&self.0.profile.read_latency);
        let memory = self.0.lock();
        reads.iter_mut().for_each(|(offset, buffer)| memory.contents.current.read(*offset, buffer));
        Ok(())
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        let bytes = match buffers {
            [one] => Box::from(*one),
            many => Box::from(&gather(many)[..]),
        };
        let mut write = self.begin(offset, total_len(buffers) as u64, Change::Write(bytes), durability, None)?;
        write.wait_to_end()
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        let bytes: Box<[u8]> = buffer[range.clone()].into();
        let borrowed = Some((buffer, range));
        let write = self.begin(offset, bytes.len() as u64, Change::Write(bytes), durability, borrowed)?;
        Ok(Box::new(write))
    }

    fn flush(&self) -> Result<()> {
        tantalum_rt::interleave_in_device();
        let (completions, generation) = {
            let mut state = self.0.lock();
            state.check_poison(&self.0.name)?;
            if state.faults.fail_flush() {
                let error = io_error(&self.0.name, "flush", 0, 0);
                state.poison = Some(error.clone());
                return Err(error);
            }
            (state.contents.completions(), state.generation)
        };
        self.0.delay(&self.0.profile.flush_latency);
        let mut state = self.0.lock();
        if state.generation != generation {
            return Err(Error::power_lost(&self.0.name, 0, 0));
        }
        state.contents.flush(completions);
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        // Checked by `begin`, before the length is used.
        self.begin(offset, len, Change::Discard(len as usize), Durability::Cached, None)?.wait_to_end()
    }

    fn release(&self, offset: u64, len: u64) -> Result<()> {
        self.discard(offset, len)
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        let mut state = self.0.lock();
        let old = state.contents.current.len();
        if new_capacity_bytes <= old {
            return Ok(());
        }
        let len = new_capacity_bytes - old;
        check_blocks(&self.0.name, self.0.profile.logical_block, u64::MAX, old, len)?;
        state.check_poison(&self.0.name)?;
        if state.faults.no_space_on_grow {
            return Err(Error::no_space(&self.0.name, old, len));
        }
        state.contents.grow(new_capacity_bytes);
        self.0.capacity_bytes.store(new_capacity_bytes, Ordering::Release);
        Ok(())
    }

    fn shrink(&self, new_capacity_bytes: u64) -> Result<()> {
        let mut state = self.0.lock();
        if new_capacity_bytes >= state.contents.current.len() {
            return Ok(());
        }
        check_blocks(&self.0.name, self.0.profile.logical_block, u64::MAX, new_capacity_bytes, 0)?;
        state.check_poison(&self.0.name)?;
        state.contents.shrink(new_capacity_bytes);
        self.0.capacity_bytes.store(new_capacity_bytes, Ordering::Release);
        Ok(())
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let capacity_bytes = self.capacity_bytes();
        f.debug_struct("MemoryDevice").field("name", &self.0.name).field("capacity_bytes", &capacity_bytes).finish()
    }
}

/// A write or discard that was begun.
struct MemoryWrite {
    device: Arc<Shared>,
    id: u64,
    offset: u64,
    len: u64,
}

impl MemoryWrite {
    fn wait_to_end(&mut self) -> Result<()> {
        self.wait(None).expect("without a time-out it waits for the end")
    }
}

impl PendingWrite for MemoryWrite {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let mut deadline = None;
        let mut state = self.device.lock();
        loop {
            if let Some(result) = state.results.remove(&self.id) {
                return Some(result);
            }
            let Some(operation) = state.in_flight.get(&self.id) else {
                return Some(Err(Error::power_lost(&self.device.name, self.offset, self.len)));
            };
            let now = tantalum_rt::now();
            let deadline = timeout.map(|timeout| *deadline.get_or_insert(now + timeout));
            if deadline.is_some_and(|deadline| deadline <= now) {
                return None;
            }
            match operation.done_at.into_iter().chain(deadline).min() {
                Some(until) => {
                    self.device.changed.wait_for(&mut state, until.duration_since(now));
                }
                None => self.device.changed.wait(&mut state),
            }
            state.settle();
        }
    }

    fn is_done(&mut self) -> bool {
        !self.device.lock().in_flight.contains_key(&self.id)
    }
}

impl Drop for MemoryWrite {
    fn drop(&mut self) {
        let mut state = lock_unswitched(&self.device.state);
        state.results.remove(&self.id);
        if let Some(operation) = state.in_flight.get_mut(&self.id) {
            operation.is_watched = false;
        }
    }
}
