//! A model behind [`tantalum_device::Device`]: time passes on the runtime's clock, real or virtual.
//!
//! Promises: what the model promises. The model is asked under one lock, at times that never go back; the host sees
//! each operation end when the model says so, or with a loss of power if that comes first. The device outlives simulations:
//! no task is switched under its lock.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Capabilities, Device, Durability, Error, Hardware, PendingWrite, Result, Zones};
use tantalum_rt::{Condvar, Instant, Mutex, MutexGuard, Random, lock_unswitched};

use crate::{Counters, ErrorKind, MediaError, Model, Nanos, Outcome, Shape, Ticket};

/// An emulated device: a [`Model`] whose time is [`tantalum_rt`]'s.
///
/// Time within a simulation is virtual. Outside, operations take as long as the model says, to the precision of the
/// system's timers.
///
/// ```
/// # use tantalum_device::{Device, Durability};
/// # use tantalum_flash::{EmulatedDevice, Profile};
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let model = Profile::named("durassd")?.with_capacity(16 << 20).build()?;
/// let device = EmulatedDevice::new("ssd", model);
/// device.write(0, &[&[7; 4096]], Durability::Durable)?;
/// device.power_cut(&mut tantalum_rt::Random::with_seed(1));
/// device.power_on()?;
/// let mut block = [0; 4096];
/// device.read(0, &mut block)?;
/// assert_eq!(block, [7; 4096]);
/// # Ok(())
/// # }
/// ```
pub struct EmulatedDevice(Arc<Shared>);

struct Shared {
    name: Arc<str>,
    shape: Shape,
    sends_barriers: bool,
    origin: Instant,
    state: Mutex<State>,
    /// Signalled when an operation may end by other means than the clock.
    changed: Condvar,
}

struct State {
    model: Box<dyn Model>,
    /// The latest time that the model was given.
    now: Nanos,
    power: Power,
    /// The times of all power cuts. Their number dates operations.
    cuts: Vec<Nanos>,
    /// Operations that have not ended as far as is known.
    open: BTreeSet<Ticket>,
    /// Those that a power cut has ended.
    lost: BTreeSet<Ticket>,
    is_hung: bool,
    poison: Option<Error>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Power {
    On,
    Off,
    Starting { ready: Nanos },
}

impl EmulatedDevice {
    /// A device that behaves as `model` says, made now, with its power on.
    pub fn new(name: impl Into<String>, model: Box<dyn Model>) -> Arc<Self> {
        Self::build(name.into(), model, true)
    }

    /// As [`EmulatedDevice::new`], on a host that sends neither flushes nor forced unit access (a file system mounted
    /// without barriers). Only a device whose memory outlives a power cut keeps its promises then.
    pub fn without_barriers(name: impl Into<String>, model: Box<dyn Model>) -> Arc<Self> {
        Self::build(name.into(), model, false)
    }

    fn build(name: String, model: Box<dyn Model>, sends_barriers: bool) -> Arc<Self> {
        let shape = model.describe();
        let state = State {
            model,
            now: 0,
            power: Power::On,
            cuts: Vec::new(),
            open: BTreeSet::new(),
            lost: BTreeSet::new(),
            is_hung: false,
            poison: None,
        };
        Arc::new(Self(Arc::new(Shared {
            name: name.into(),
            shape,
            sends_barriers,
            origin: tantalum_rt::now(),
            state: Mutex::new(state),
            changed: Condvar::new(),
        })))
    }

    /// The power fails now. Operations under way end with [`PowerLost`](crate::ErrorKind::PowerLost), and so does every
    /// later one until [`EmulatedDevice::power_on`] has returned. A device without power stays as it is.
    pub fn power_cut(&self, random: &mut Random) {
        let mut state = self.0.lock();
        if state.power != Power::Off {
            let now = state.now;
            let State { model, open, lost, .. } = &mut *state;
            lost.extend(std::mem::take(open).into_iter().filter(|&ticket| model.ask_again(now, ticket).is_some()));
            model.power_cut(now, random);
            state.cuts.push(now);
            state.power = Power::Off;
            state.poison = None;
            state.is_hung = false;
        }
        drop(state);
        self.0.changed.notify_all();
    }

    /// The power returns; waits until the firmware has recovered, and says how long that took.
    ///
    /// # Errors
    /// [`PowerLost`](crate::ErrorKind::PowerLost) if the power fails again before.
    pub fn power_on(&self) -> Result<Duration> {
        let mut state = self.0.lock();
        let start = state.now;
        if state.power == Power::Off {
            let ready = state.model.power_on(start);
            state.power = Power::Starting { ready };
        }
        let cuts = state.cuts.len();
        loop {
            let now = state.now;
            match state.power {
                _ if state.cuts.len() != cuts => return Err(self.0.power_lost(0, 0)),
                Power::Starting { ready } if ready > now => {
                    self.0.changed.wait_for(&mut state, Duration::from_nanos(ready - now));
                    state.advance(self.0.nanos(tantalum_rt::now()));
                }
                _ => {
                    state.power = Power::On;
                    return Ok(Duration::from_nanos(now - start));
                }
            }
        }
    }

    /// Whether operations are answered. A hung device takes them and never completes them; those that it had taken
    /// before complete in time.
    pub fn set_hung(&self, is_hung: bool) {
        lock_unswitched(&self.0.state).is_hung = is_hung;
    }

    /// What the device has done.
    pub fn counters(&self) -> Counters {
        lock_unswitched(&self.0.state).model.counters()
    }

    /// What the device says of itself.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// Starts an operation. A device that hangs does nothing.
    fn start(
        &self,
        operation: &'static str,
        range: (u64, u64),
        changes: bool,
        act: impl FnOnce(&mut dyn Model, Nanos) -> Outcome,
    ) -> Result<Pending> {
        let (offset, len) = range;
        tantalum_rt::interleave_in_device();
        let mut state = self.0.lock();
        if let Power::Starting { ready } = state.power
            && ready <= state.now
        {
            state.power = Power::On;
        }
        if state.power != Power::On {
            return Err(self.0.power_lost(offset, len));
        }
        if let (true, Some(cause)) = (changes, &state.poison) {
            return Err(Error::writes_lost(&self.0.name, cause));
        }
        let now = state.now;
        let outcome = if state.is_hung { Outcome::ok(Nanos::MAX) } else { act(&mut *state.model, now) };
        debug_assert!(outcome.done >= now, "nothing ends before it begins");
        let result = outcome.result.map_err(|error| self.0.io_error(operation, offset, len, &error));
        let cuts = state.cuts.len();
        state.open.extend(outcome.ticket);
        drop(state);
        let (device, done, ticket) = (Arc::clone(&self.0), outcome.done, outcome.ticket);
        Ok(Pending { device, offset, len, done, ticket, result: Some(result), cuts })
    }

    /// The device's zones, without which it cannot do so.
    fn zones(&self, operation: &str) -> Result<Zones> {
        self.0.shape.zones.ok_or_else(|| Error::unsupported(&self.0.name, &format!("{operation}: it has none")))
    }

    fn start_write(&self, offset: u64, data: &[u8], durability: Durability, handle: u32) -> Result<Pending> {
        let len = data.len() as u64;
        self.check_range(offset, len)?;
        let durable = durability == Durability::Durable && self.0.sends_barriers;
        let pending = self
            .start("write", (offset, len), true, |model, now| model.write_placed(now, offset, data, durable, handle))?;
        if durable {
            self.poison(&pending);
        }
        Ok(pending)
    }

    /// A flush, or a write that has one within it, has failed: the host cannot tell what was lost.
    fn poison(&self, pending: &Pending) {
        // A write that a zone refuses is none.
        if let Some(Err(error)) = &pending.result
            && error.kind() != ErrorKind::InvalidInput
        {
            lock_unswitched(&self.0.state).poison.get_or_insert_with(|| error.clone());
        }
    }
}

impl Shared {
    /// The state, at the present time.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = lock_unswitched(&self.state);
        state.advance(self.nanos(tantalum_rt::now()));
        state
    }

    fn nanos(&self, at: Instant) -> Nanos {
        at.as_nanos().saturating_sub(self.origin.as_nanos())
    }

    fn power_lost(&self, offset: u64, len: u64) -> Error {
        Error::power_lost(&self.name, offset, len)
    }

    fn io_error(&self, operation: &'static str, offset: u64, len: u64, error: &MediaError) -> Error {
        match *error {
            MediaError::NoSpace { .. } => Error::no_space(&self.name, offset, len),
            MediaError::Short { found, .. } => Error::truncated(&self.name, offset, len, found),
            _ if error.is_about_zones() => {
                let what = format!("cannot {operation} {} at byte {offset} for {len} bytes: {error}", self.name);
                Error::new(ErrorKind::InvalidInput, what).with_source(error.clone())
            }
            _ => Error::io(&self.name, operation, offset, len, error.clone()),
        }
    }
}

impl State {
    fn advance(&mut self, now: Nanos) {
        self.now = self.now.max(now);
    }
}

impl Device for EmulatedDevice {
    fn name(&self) -> &str {
        &self.0.name
    }

    fn capacity_bytes(&self) -> u64 {
        self.0.shape.capacity_bytes
    }

    fn capabilities(&self) -> Capabilities {
        let shape = &self.0.shape;
        Capabilities {
            physical_block: shape.physical_block,
            atomic_write_bytes: shape.atomic_write_bytes,
            erase_block_bytes: shape.erase_block_bytes,
            write_cache: shape.write_cache,
            fua: Some(shape.fua),
            rotational: Some(shape.rotational),
            placement_handles: shape.placement_handles,
            zones: shape.zones,
            ..Capabilities::unknown(shape.logical_block)
        }
    }

    fn hardware(&self) -> Hardware {
        Hardware::Memory(Arc::as_ptr(&self.0).addr())
    }

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        let len = buffer.len() as u64;
        self.check_range(offset, len)?;
        self.start("read", (offset, len), false, |model, now| model.read(now, offset, buffer))?.finish()
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.write_placed(offset, buffers, durability, 0)
    }

    fn write_placed(&self, offset: u64, buffers: &[&[u8]], durability: Durability, handle: u32) -> Result<()> {
        match buffers {
            [one] => self.start_write(offset, one, durability, handle)?.finish(),
            many => self.start_write(offset, &many.concat(), durability, handle)?.finish(),
        }
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        Ok(Box::new(self.start_write(offset, &buffer[range], durability, 0)?))
    }

    fn flush(&self) -> Result<()> {
        let sends_barriers = self.0.sends_barriers;
        let act = |model: &mut dyn Model, now| if sends_barriers { model.flush(now) } else { Outcome::ok(now) };
        let mut pending = self.start("flush", (0, 0), true, act)?;
        self.poison(&pending);
        pending.finish()
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.check_range(offset, len)?;
        self.start("discard", (offset, len), true, |model, now| model.discard(now, offset, len))?.finish()
    }

    fn reset_zone(&self, offset: u64) -> Result<()> {
        let zones = self.zones("reset a zone")?;
        self.start("reset", (offset, zones.bytes), true, |model, now| model.reset_zone(now, offset))?.finish()
    }

    fn finish_zone(&self, offset: u64) -> Result<()> {
        let zones = self.zones("finish a zone")?;
        self.start("finish", (offset, zones.bytes), true, |model, now| model.finish_zone(now, offset))?.finish()
    }

    fn active_zones(&self) -> Result<Vec<u64>> {
        self.zones("report its zones")?;
        let mut found = Vec::new();
        let report = |model: &mut dyn Model, now| {
            found = model.active_zones();
            Outcome::ok(now)
        };
        self.start("report the zones of", (0, 0), false, report)?.finish()?;
        Ok(found)
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        if new_capacity_bytes <= self.0.shape.capacity_bytes {
            return Ok(());
        }
        Err(Error::unsupported(&self.0.name, "grow: its size is fixed"))
    }
}

impl fmt::Debug for EmulatedDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmulatedDevice").field("name", &self.0.name).field("shape", &self.0.shape).finish()
    }
}

/// An operation under way. The host does not see its end before its time.
struct Pending {
    device: Arc<Shared>,
    offset: u64,
    len: u64,
    /// When it ends; with a ticket, when to ask.
    done: Nanos,
    /// In [`State::open`] or [`State::lost`] as long as it is here.
    ticket: Option<Ticket>,
    result: Option<Result<()>>,
    /// Power cuts before it.
    cuts: usize,
}

impl Pending {
    fn finish(&mut self) -> Result<()> {
        self.wait(None).expect("without a time-out it waits for the end")
    }

    /// Asks the model whether it has ended, if it may have.
    fn ask(&mut self, state: &mut State) {
        let Some(ticket) = self.ticket.filter(|_| self.done <= state.now && state.cuts.len() == self.cuts) else {
            return;
        };
        match state.model.ask_again(state.now, ticket) {
            Some(later) => {
                debug_assert!(later > state.now, "a model names a later time");
                self.done = later;
            }
            None => {
                state.open.remove(&ticket);
                self.ticket = None;
            }
        }
    }

    /// Its result, once its time or a power cut has come.
    fn take(&mut self, state: &mut State) -> Option<Result<()>> {
        self.ask(state);
        let is_lost = match (state.cuts.get(self.cuts), self.ticket.take()) {
            (Some(_), Some(ticket)) => state.lost.remove(&ticket),
            (Some(&cut), None) => cut < self.done,
            (None, ticket) => {
                self.ticket = ticket;
                if ticket.is_some() || state.now < self.done {
                    return None;
                }
                false
            }
        };
        if state.cuts.len() == self.cuts {
            state.model.catch_up(state.now);
        }
        let result = self.result.take().expect("no call follows the result");
        Some(if is_lost { Err(self.device.power_lost(self.offset, self.len)) } else { result })
    }
}

impl PendingWrite for Pending {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let device = Arc::clone(&self.device);
        let mut state = device.lock();
        let limit =
            timeout.map(|timeout| state.now.saturating_add(u64::try_from(timeout.as_nanos()).unwrap_or(u64::MAX)));
        loop {
            if let Some(result) = self.take(&mut state) {
                return Some(result);
            }
            let now = state.now;
            if limit.is_some_and(|limit| limit <= now) {
                return None;
            }
            match self.done.min(limit.unwrap_or(Nanos::MAX)) {
                Nanos::MAX => device.changed.wait(&mut state),
                until => {
                    device.changed.wait_for(&mut state, Duration::from_nanos(until - now));
                }
            }
            state.advance(device.nanos(tantalum_rt::now()));
        }
    }

    fn is_done(&mut self) -> bool {
        let device = Arc::clone(&self.device);
        let mut state = device.lock();
        self.ask(&mut state);
        (self.ticket.is_none() && self.done <= state.now) || state.cuts.len() > self.cuts
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if let Some(ticket) = self.ticket {
            let mut state = lock_unswitched(&self.device.state);
            state.open.remove(&ticket);
            state.lost.remove(&ticket);
        }
    }
}
