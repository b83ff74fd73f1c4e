//! A device that stops now and then: what a jittery volume does, on hardware that is healthy.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tantalum_rt::{Instant, now, sleep};

use crate::{AlignedBuffer, Device, Durability, Error, Hardware, PendingWrite, Result};

/// A device whose writes and flushes stand still at the end of every period, for measuring what that costs.
///
/// What arrives during a stall is passed on when the stall is over; what was passed on before is not held up. Reads are
/// as quick as ever. A stalling device counts as hardware of its own, since it is slow when nothing else is.
///
/// ```
/// # use std::time::Duration;
/// # use tantalum_device::{Device, Durability, MemoryDevice, StallingDevice};
/// let memory = MemoryDevice::new("volume", 64 << 10);
/// let device = StallingDevice::new(memory, Duration::from_millis(1), Duration::from_millis(50));
/// device.write(0, &[&[7; 4096]], Durability::Durable)?; // late by up to 1 ms
/// # Ok::<(), tantalum_device::Error>(())
/// ```
#[derive(Debug)]
pub struct StallingDevice {
    device: Arc<dyn Device>,
    stall: Duration,
    period: Duration,
    since: Instant,
}

impl StallingDevice {
    /// `device`, which from now on stalls for the last `stall` of every `period`.
    ///
    /// # Panics
    /// If a stall is as long as the period or longer, so that nothing would ever be written.
    pub fn new(device: Arc<dyn Device>, stall: Duration, period: Duration) -> Self {
        assert!(stall < period, "a device that always stalls writes nothing");
        Self { device, stall, period, since: now() }
    }

    /// When what arrives now is passed on; `None` if at once.
    fn passed_on_at(&self) -> Option<Instant> {
        let period = self.period.as_nanos();
        let elapsed = (now() - self.since).as_nanos();
        let left = period - elapsed % period;
        let stall = self.stall.as_nanos();
        (left <= stall).then(|| now() + Duration::from_nanos(left as u64))
    }

    fn wait_for_turn(&self) {
        if let Some(at) = self.passed_on_at() {
            sleep(at - now());
        }
    }
}

impl Device for StallingDevice {
    crate::forward!(device: name, capacity_bytes, capabilities, read, discard, zones, release, grow, reserve, shrink);

    fn hardware(&self) -> Hardware {
        Hardware::Memory(std::ptr::from_ref(self).addr())
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.wait_for_turn();
        self.device.write(offset, buffers, durability)
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        let Some(at) = self.passed_on_at() else { return self.device.submit(offset, buffer, range, durability) };
        assert!(range.end <= buffer.len(), "the range lies within the buffer");
        let held = Held { device: Arc::clone(&self.device), offset, buffer, range, durability };
        Ok(Box::new(Stalled { at, write: Write::Held(held) }))
    }

    fn flush(&self) -> Result<()> {
        self.wait_for_turn();
        self.device.flush()
    }
}

/// A write that arrived during a stall.
struct Stalled {
    at: Instant,
    write: Write,
}

enum Write {
    Held(Held),
    PassedOn(Box<dyn PendingWrite>),
    /// It could not be passed on.
    Refused(Error),
    /// Its outcome was returned.
    Over,
}

struct Held {
    device: Arc<dyn Device>,
    offset: u64,
    buffer: Arc<AlignedBuffer>,
    range: Range<usize>,
    durability: Durability,
}

impl Stalled {
    fn pass_on(&mut self) {
        if let Write::Held(held) = std::mem::replace(&mut self.write, Write::Over) {
            let Held { device, offset, buffer, range, durability } = held;
            let submitted = device.submit(offset, buffer, range, durability);
            self.write = submitted.map_or_else(Write::Refused, Write::PassedOn);
        }
    }
}

impl PendingWrite for Stalled {
    fn wait(&mut self, timeout: Option<Duration>) -> Option<Result<()>> {
        let deadline = timeout.map(|timeout| now() + timeout);
        if matches!(self.write, Write::Held(_)) {
            let until = deadline.map_or(self.at, |deadline| deadline.min(self.at));
            sleep(until - now());
            if until < self.at {
                return None;
            }
            self.pass_on();
        }
        match std::mem::replace(&mut self.write, Write::Over) {
            Write::PassedOn(mut pending) => {
                let outcome = pending.wait(deadline.map(|deadline| deadline - now()));
                if outcome.is_none() {
                    self.write = Write::PassedOn(pending);
                }
                outcome
            }
            Write::Refused(error) => Some(Err(error)),
            Write::Held(_) | Write::Over => panic!("the outcome of a write is returned once"),
        }
    }

    fn is_done(&mut self) -> bool {
        if matches!(self.write, Write::Held(_)) && now() >= self.at {
            self.pass_on();
        }
        match &mut self.write {
            Write::Held(_) => false,
            Write::PassedOn(pending) => pending.is_done(),
            Write::Refused(_) | Write::Over => true,
        }
    }
}

impl Drop for Stalled {
    /// A write that no caller waits for still happens; it need not be late, and no caller hears of its error.
    fn drop(&mut self) {
        self.pass_on();
    }
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Simulation;

    use super::*;
    use crate::{ErrorKind, MemoryDevice};

    const MS: Duration = Duration::from_millis(1);

    fn stalling() -> (Arc<MemoryDevice>, StallingDevice) {
        let memory = MemoryDevice::new("d", 64 << 10);
        let device = StallingDevice::new(memory.clone(), 200 * MS, 1000 * MS);
        (memory, device)
    }

    fn submit(device: &StallingDevice, byte: u8) -> Box<dyn crate::PendingWrite> {
        let buffer = Arc::new(AlignedBuffer::copy_from(&[byte; 4096]));
        device.submit(0, buffer, 0..4096, Durability::Durable).unwrap()
    }

    #[test]
    fn writes_and_flushes_wait_for_the_end_of_a_stall() {
        Simulation::new(1).run(|| {
            let (_, device) = stalling();
            let start = now();
            let took = |action: &dyn Fn()| {
                let before = now();
                action();
                now() - before
            };
            let write = || device.write(0, &[&[1; 4096]], Durability::Durable).unwrap();
            assert_eq!(took(&write), Duration::ZERO);
            sleep(start + 799 * MS - now());
            assert_eq!(took(&write), Duration::ZERO);
            sleep(start + 850 * MS - now());
            assert_eq!(took(&write), 150 * MS);
            sleep(start + 1900 * MS - now());
            assert_eq!(took(&|| device.flush().unwrap()), 100 * MS);
            sleep(start + 2900 * MS - now());
            assert_eq!(took(&|| device.read(0, &mut [0; 4096]).unwrap()), Duration::ZERO);
        });
    }

    #[test]
    fn a_stalled_write_can_be_waited_for_in_steps_or_left() {
        Simulation::new(2).run(|| {
            let (memory, device) = stalling();
            let start = now();
            sleep(start + 900 * MS - now());
            let mut pending = submit(&device, 2);
            assert!(!pending.is_done());
            assert!(pending.wait(Some(60 * MS)).is_none());
            assert_eq!(memory.image()[0], 0, "it is held back");
            pending.wait(None).unwrap().unwrap();
            assert_eq!((now() - start, memory.image()[0]), (1000 * MS, 2));

            sleep(start + 1900 * MS - now());
            let mut pending = submit(&device, 3);
            sleep(100 * MS);
            assert!(pending.is_done(), "asking passes it on");
            pending.wait(None).unwrap().unwrap();

            sleep(start + 2900 * MS - now());
            drop(submit(&device, 4));
            sleep(MS);
            assert_eq!(memory.image()[0], 4, "a write that no task waits for still happens");
        });
    }

    #[test]
    fn a_write_that_cannot_be_passed_on_tells_so() {
        Simulation::new(3).run(|| {
            let (_, device) = stalling();
            sleep(900 * MS);
            let buffer = Arc::new(AlignedBuffer::zeroed(4096));
            let mut pending = device.submit(1 << 30, buffer, 0..4096, Durability::Durable).unwrap();
            assert!(matches!(pending.wait(None), Some(Err(error)) if error.kind() == ErrorKind::OutOfRange));
        });
    }
}
