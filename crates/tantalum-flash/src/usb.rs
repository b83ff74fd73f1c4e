//! A USB flash drive: one command at a time over a slow bus, in front of a log-block translation layer.
//!
//! Promises: a write that has ended is on the flash; there is no write cache. One that is cut short leaves some of its
//! pages new and the others old.
//!
//! Small appends cost the bus and a program or two. What takes ten or a hundred times as long, FlashLogging's outlier
//! writes, are the merges of the translation layer and the erases behind them ("FlashLogging", section 3.4).

use serde::Deserialize;
use tantalum_device::sparse::{PIECE_BYTES, Part, parts};
use tantalum_rt::Random;

use crate::ftl::hybrid::{Hybrid, HybridParameters};
use crate::link::nanos;
use crate::profile::{Problem, check_ranges};
use crate::{Contents, Counters, MediaError, Model, Nanos, Outcome, Shape};

/// A USB flash drive. Times are in microseconds.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UsbParameters {
    /// The translation layer and the flash behind it.
    pub ftl: HybridParameters,
    /// What a command takes on the bus, in the controller, and until its status has arrived.
    pub command_us: f64,
    /// What bus and controller carry from the host, in MB/s.
    pub write_mb_per_s: f64,
    /// What they carry to the host.
    pub read_mb_per_s: f64,
    /// Pages in each half of the controller's buffer. When one half is full, or the command ends, its pages are programmed;
    /// the other fills from the bus meanwhile, and then this one again, page by page as they are programmed.
    pub buffer_pages: u32,
    /// From power on to when the controller begins to look at its flash.
    pub boot_us: f64,
}

impl UsbParameters {
    /// Whether the drive is possible, with so many bytes.
    pub(crate) fn check(&self, capacity_bytes: u64) -> Result<(), Problem> {
        check_ranges(&[
            ("command_us", self.command_us, 0.001, 1e6),
            ("write_mb_per_s", self.write_mb_per_s, 0.01, 1e5),
            ("read_mb_per_s", self.read_mb_per_s, 0.01, 1e5),
            ("buffer_pages", f64::from(self.buffer_pages), 1.0, 65_536.0),
            ("boot_us", self.boot_us, 0.0, 1e9),
        ])?;
        self.ftl.check(capacity_bytes)
    }
}

/// A USB flash drive.
#[derive(Debug)]
pub struct UsbStick {
    parameters: UsbParameters,
    ftl: Hybrid,
    busy_until: Nanos,
    counters: Counters,
}

impl UsbStick {
    /// An empty drive of so many bytes; `contents` makes what holds its flash's bytes.
    pub fn new(parameters: UsbParameters, capacity_bytes: u64, contents: impl FnOnce(u64) -> Contents) -> Self {
        assert_eq!(parameters.check(capacity_bytes), Ok(()), "the drive is possible");
        let ftl = Hybrid::new(parameters.ftl.clone(), capacity_bytes, contents);
        Self { ftl, parameters, busy_until: 0, counters: Counters::default() }
    }

    fn command(&self) -> Nanos {
        nanos(self.parameters.command_us)
    }

    fn end(&mut self, done: Nanos) -> Outcome {
        self.busy_until = done;
        Outcome::at(done, self.ftl.failure())
    }
}

fn bus(bytes: usize, mb_per_s: f64) -> Nanos {
    (bytes as f64 * 1000.0 / mb_per_s).round() as Nanos
}

impl Model for UsbStick {
    fn describe(&self) -> Shape {
        Shape::plain(self.ftl.capacity_bytes(), 512, PIECE_BYTES as u32)
    }

    fn read(&mut self, now: Nanos, offset: u64, buffer: &mut [u8]) -> Outcome {
        self.counters.read(buffer.len());
        let start = now.max(self.busy_until) + self.command();
        let mut bus_free = start;
        for Part { range, .. } in parts(offset, buffer.len(), PIECE_BYTES) {
            let ready = self.ftl.read(start, offset + range.start as u64, &mut buffer[range.clone()]);
            bus_free = bus_free.max(ready) + bus(range.len(), self.parameters.read_mb_per_s);
        }
        self.end(bus_free)
    }

    fn write(&mut self, now: Nanos, offset: u64, data: &[u8], _durable: bool) -> Outcome {
        if self.ftl.is_read_only() {
            return Outcome::failed(now, MediaError::WornOut);
        }
        self.counters.write(data.len());
        let start = self.ftl.begin_command(now.max(self.busy_until) + self.command());
        let half = self.parameters.buffer_pages as usize;
        let mut bus_free = start;
        let mut programmed: Vec<Nanos> = Vec::new();
        for Part { range, .. } in parts(offset, data.len(), half * PIECE_BYTES) {
            let (offset, load) = (offset + range.start as u64, &data[range]);
            for (page, Part { range, .. }) in parts(offset, load.len(), PIECE_BYTES).enumerate() {
                let before = (programmed.len() + page).checked_sub(2 * half);
                bus_free = bus_free.max(before.map_or(start, |before| programmed[before]));
                bus_free += bus(range.len(), self.parameters.write_mb_per_s);
            }
            for Part { range, .. } in parts(offset, load.len(), PIECE_BYTES) {
                programmed.push(self.ftl.write(bus_free, offset + range.start as u64, &load[range]));
            }
        }
        let done = programmed.into_iter().fold(bus_free, Nanos::max);
        if self.ftl.is_read_only() {
            return Outcome::failed(done, MediaError::WornOut);
        }
        self.end(done)
    }

    fn flush(&mut self, now: Nanos) -> Outcome {
        self.counters.flushes += 1;
        let done = now.max(self.busy_until) + self.command();
        self.end(done)
    }

    fn discard(&mut self, now: Nanos, offset: u64, _len: u64) -> Outcome {
        self.counters.discards += 1;
        Outcome::failed(now, MediaError::Unsupported { offset, reason: "USB drives of this kind know no discard" })
    }

    fn peek(&self, offset: u64, buffer: &mut [u8]) {
        self.ftl.peek(offset, buffer);
    }

    fn power_cut(&mut self, now: Nanos, random: &mut Random) {
        self.ftl.power_cut(now, random);
        self.busy_until = now;
    }

    fn power_on(&mut self, now: Nanos) -> Nanos {
        self.busy_until = self.ftl.power_on(now + nanos(self.parameters.boot_us));
        self.busy_until
    }

    fn counters(&self) -> Counters {
        self.ftl.counters() + self.counters
    }
}
