//! The machine that loses its power: devices in memory that outlive it. A cut takes one moment: what the devices then have is what they
//! were asked for before, whole, torn or not at all. Whatever runs gets errors from its devices from then on, and ends in good order, as
//! SQLite's functions must on a stack; nothing that it still does reaches the devices of the next start.

use std::{
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use tantalum::Devices;
use tantalum_device::{
    AlignedBuffer, Device, Durability, Error, Fault, MemoryDevice, MemoryProfile, PendingWrite, Result,
};
use tantalum_rt::{Mutex, MutexGuard, Random, lock_unswitched, sleep, spawn};

/// The machine's devices: data, double write, logs.
pub struct Machine {
    devices: Arc<Mutex<Vec<Arc<MemoryDevice>>>>,
    random: Random,
}

/// Whether there is power. Each start has its own.
#[derive(Debug)]
pub struct Power {
    is_on: AtomicBool,
    /// So many requests until it goes.
    requests_left: AtomicU64,
    devices: Arc<Mutex<Vec<Arc<MemoryDevice>>>>,
    random: Mutex<Random>,
}

impl Machine {
    /// A new one, with so many log devices.
    pub fn new(logs: usize, random: &mut Random) -> Self {
        let mut device = |name: String, bytes| {
            let us = Duration::from_micros;
            let profile = MemoryProfile {
                write_latency: us(20)..us(300),
                read_latency: us(5)..us(40),
                flush_latency: us(20)..us(200),
                seed: random.u64(..),
                ..MemoryProfile::default()
            };
            MemoryDevice::with_profile(name, bytes, profile)
        };
        let mut devices = vec![device("data".into(), 2 << 20), device("double-write".into(), 1 << 20)];
        devices.extend((0..logs).map(|log| device(format!("log-{log}"), 2 << 20)));
        Self { devices: Arc::new(Mutex::new(devices)), random: random.fork() }
    }

    /// Gives power, for so many requests to the devices, and the devices.
    pub fn start(&mut self, requests: u64) -> (Arc<Power>, Devices) {
        let power = Arc::new(Power {
            is_on: AtomicBool::new(true),
            requests_left: AtomicU64::new(requests),
            devices: Arc::clone(&self.devices),
            random: Mutex::new(self.random.fork()),
        });
        let devices = self.devices.lock();
        let mut powered = devices.iter().map(|device| -> Arc<dyn Device> {
            Arc::new(Powered { device: Arc::clone(device), power: Arc::clone(&power) })
        });
        let data = powered.next().expect("the first");
        let devices = Devices { data, double_write: powered.next(), log: powered.collect() };
        (power, devices)
    }

    /// One of several log devices becomes late, or is as it was.
    pub fn disturb(&mut self) {
        let devices = self.devices.lock();
        let logs = &devices[2..];
        logs.iter().for_each(|device| device.clear_faults());
        if logs.len() > 1 && self.random.bool() {
            let by = Duration::from_millis(self.random.u64(1..20));
            logs[self.random.usize(0..logs.len())].inject(Fault::SlowWrites { by });
        }
    }

    /// Nothing becomes durable any more.
    pub fn hang_logs(&self) {
        self.devices.lock()[2..].iter().for_each(|device| device.inject(Fault::HangWrites));
    }
}

impl Power {
    pub fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Relaxed)
    }

    /// The power goes.
    pub fn cut(&self) {
        let mut devices = self.devices.lock();
        if self.is_on.swap(false, Ordering::Relaxed) {
            let mut random = self.random().fork();
            let after = devices.iter().map(|device| device.fork()).collect::<Vec<_>>();
            let before = std::mem::replace(&mut *devices, after);
            before.iter().chain(&*devices).for_each(|device| device.power_cut(&mut random));
        }
    }

    fn random(&self) -> MutexGuard<'_, Random> {
        lock_unswitched(&self.random)
    }

    /// A request begins; after the last one the power goes, at once or while the request is under way.
    fn count(self: &Arc<Self>) {
        if self.requests_left.fetch_sub(1, Ordering::Relaxed) != 1 {
            return;
        }
        let delay = self.random().u64(0..400);
        if delay < 100 {
            return self.cut();
        }
        let power = Arc::clone(self);
        spawn("power", move || {
            sleep(Duration::from_micros(delay - 100));
            power.cut();
        });
    }
}

/// A device as long as there is power.
#[derive(Debug)]
struct Powered {
    device: Arc<MemoryDevice>,
    power: Arc<Power>,
}

impl Powered {
    fn operate<T>(&self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let lost = || Error::power_lost(self.device.name(), 0, 0);
        self.power.count();
        if !self.power.is_on() {
            return Err(lost());
        }
        let result = operation();
        if self.power.is_on() { result } else { Err(lost()) }
    }
}

impl Device for Powered {
    tantalum_device::forward!(device: name, capacity_bytes, capabilities, hardware);

    fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<()> {
        self.operate(|| self.device.read(offset, buffer))
    }

    fn write(&self, offset: u64, buffers: &[&[u8]], durability: Durability) -> Result<()> {
        self.operate(|| self.device.write(offset, buffers, durability))
    }

    fn submit(
        &self,
        offset: u64,
        buffer: Arc<AlignedBuffer>,
        range: Range<usize>,
        durability: Durability,
    ) -> Result<Box<dyn PendingWrite>> {
        self.operate(|| self.device.submit(offset, buffer, range, durability))
    }

    fn flush(&self) -> Result<()> {
        self.operate(|| self.device.flush())
    }

    fn discard(&self, offset: u64, len: u64) -> Result<()> {
        self.operate(|| self.device.discard(offset, len))
    }

    fn release(&self, offset: u64, len: u64) -> Result<()> {
        self.operate(|| self.device.release(offset, len))
    }

    fn grow(&self, new_capacity_bytes: u64) -> Result<()> {
        self.operate(|| self.device.grow(new_capacity_bytes))
    }

    fn shrink(&self, new_capacity_bytes: u64) -> Result<()> {
        self.operate(|| self.device.shrink(new_capacity_bytes))
    }
}
