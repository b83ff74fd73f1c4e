//! The machine of a node: devices that outlive its power.
//!
//! A power cut takes one moment, in which nothing else runs: what the devices then have is what they were asked for before. Whatever ran
//! on the machine gets errors from its devices from then on, and nothing that it still does reaches the ones that the node starts with
//! later.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tantalum::Devices;
use tantalum_device::{
    AlignedBuffer, Device, Durability, Error, Fault, MemoryDevice, MemoryProfile, PendingWrite, Result,
};
use tantalum_flash::{EmulatedDevice, Profile};
use tantalum_rt::{Random, spawn};

/// Whether the machine has power. Each start has its own.
#[derive(Debug, Default)]
pub struct Power(AtomicBool);

impl Power {
    pub fn on() -> Arc<Power> {
        Arc::new(Power(true.into()))
    }

    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    fn cut(&self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The devices of a node, which are used while it has power.
pub struct Machine {
    power: Arc<Power>,
    /// Of the raft log.
    logs: Vec<Unit>,
    data: Arc<MemoryDevice>,
    double_write: Arc<MemoryDevice>,
    database_log: Arc<MemoryDevice>,
}

#[derive(Clone)]
enum Unit {
    Memory(Arc<MemoryDevice>),
    Emulated(Arc<EmulatedDevice>),
}

impl Machine {
    /// A new machine, without power. `profile` is one of an emulated device for the raft log.
    pub fn new(name: &str, profile: Option<&str>, random: &mut Random) -> Machine {
        let us = Duration::from_micros;
        let mut memory = |what: String, bytes| {
            let profile = MemoryProfile {
                write_latency: us(20)..us(300),
                read_latency: us(5)..us(40),
                flush_latency: us(20)..us(200),
                seed: random.u64(..),
                ..MemoryProfile::default()
            };
            MemoryDevice::with_profile(format!("{name}-{what}"), bytes, profile)
        };
        let mut log = |n| match profile {
            None => Unit::Memory(memory(format!("raft-{n}"), 1 << 20)),
            Some(profile) => {
                let model = Profile::named(profile).expect("it is one").with_capacity(4 << 20).build();
                Unit::Emulated(EmulatedDevice::new(format!("{name}-raft-{n}"), model.expect("it is sound")))
            }
        };
        Machine {
            power: Arc::default(),
            logs: vec![log(0), log(1)],
            data: memory("data".into(), 2 << 20),
            double_write: memory("double-write".into(), 1 << 20),
            database_log: memory("database-log".into(), 2 << 20),
        }
    }

    pub fn has_power(&self) -> bool {
        self.power.is_on()
    }

    /// Cuts the power.
    pub fn cut_power(&mut self, random: &mut Random) {
        self.power.cut();
        let logs = self.logs.iter_mut().filter_map(|unit| match unit {
            Unit::Memory(device) => Some(device),
            Unit::Emulated(device) => {
                device.power_cut(random);
                None
            }
        });
        let memory: Vec<_> = logs.chain([&mut self.data, &mut self.double_write, &mut self.database_log]).collect();
        for device in memory {
            let before = std::mem::replace(device, device.fork());
            device.power_cut(random);
            before.power_cut(random);
        }
    }

    /// Gives power. The devices are to be [started](Start::start) before they answer.
    pub fn power_on(&mut self) -> Start {
        assert!(!self.has_power(), "the power was cut before");
        self.power = Power::on();
        let powered = |device: Arc<dyn Device>| -> Arc<dyn Device> {
            Arc::new(Powered { device, power: Arc::clone(&self.power) })
        };
        let log = |unit: &Unit| match unit {
            Unit::Memory(device) => powered(Arc::clone(device) as _),
            Unit::Emulated(device) => powered(Arc::clone(device) as _),
        };
        let emulated = self.logs.iter().filter_map(|unit| match unit {
            Unit::Memory(_) => None,
            Unit::Emulated(device) => Some(Arc::clone(device)),
        });
        Start {
            power: Arc::clone(&self.power),
            logs: self.logs.iter().map(log).collect(),
            database: Devices {
                data: powered(Arc::clone(&self.data) as _),
                double_write: Some(powered(Arc::clone(&self.double_write) as _)),
                log: vec![powered(Arc::clone(&self.database_log) as _)],
            },
            emulated: emulated.collect(),
        }
    }

    /// One of the log devices becomes late, hangs, or is as it was, if there is power. Returns whether only a power cut helps.
    pub fn disturb(&self, random: &mut Random) -> bool {
        if !self.has_power() {
            return false;
        }
        let disturbance = random.u32(0..3);
        let database_log = Unit::Memory(Arc::clone(&self.database_log));
        match self.logs.get(random.usize(0..=self.logs.len())).unwrap_or(&database_log) {
            Unit::Memory(device) => {
                device.clear_faults();
                match disturbance {
                    0 => device.inject(Fault::SlowWrites { by: Duration::from_millis(random.u64(1..20)) }),
                    1 => device.inject(Fault::HangWrites),
                    _ => {}
                }
                false
            }
            Unit::Emulated(device) => {
                device.set_hung(disturbance == 0);
                disturbance == 0
            }
        }
    }

    /// Ends what [`disturb`](Self::disturb) did.
    pub fn calm(&self) {
        self.database_log.clear_faults();
        for unit in &self.logs {
            if let Unit::Memory(device) = unit {
                device.clear_faults();
            }
        }
    }

    /// One of the raft log's devices is gone for good, unless it is the last one. Without power only.
    pub fn lose_log_device(&mut self, random: &mut Random) -> bool {
        let has_more = self.logs.len() > 1;
        if has_more {
            self.logs.remove(random.usize(0..self.logs.len()));
        }
        has_more
    }
}

/// What a node starts with.
pub struct Start {
    pub power: Arc<Power>,
    pub logs: Vec<Arc<dyn Device>>,
    pub database: Devices,
    emulated: Vec<Arc<EmulatedDevice>>,
}

impl Start {
    /// Waits until all devices answer.
    pub fn start(&self) -> Result<()> {
        let start = |device: &Arc<EmulatedDevice>| {
            let device = Arc::clone(device);
            spawn("start", move || device.power_on())
        };
        let starts: Vec<_> = self.emulated.iter().map(start).collect();
        starts.into_iter().try_for_each(|start| start.join_or_panic().map(drop))
    }
}

/// A device as long as the machine has power.
#[derive(Debug)]
struct Powered {
    device: Arc<dyn Device>,
    power: Arc<Power>,
}

impl Powered {
    fn operate<T>(&self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let lost = || Error::power_lost(self.device.name(), 0, 0);
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
