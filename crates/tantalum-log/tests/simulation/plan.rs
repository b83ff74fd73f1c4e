//! What a seed decides of a run: devices, options, load, and what may go wrong.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tantalum_device::{Device, MemoryDevice, MemoryProfile};
use tantalum_log::{ArchiveOptions, Hiding, LogLayout, LogOptions};
use tantalum_rt::Random;

/// A generator for `seed`. Small seeds are spread first: neighbours would begin alike.
pub fn random(seed: u64) -> Random {
    Random::with_seed((seed ^ 0x5851_f42d_4c95_7f2d).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29))
}

/// Locks what outlives a simulation. Never held where tasks may switch.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no task panics while it holds the lock")
}

pub const LOG_ID: u128 = 0x1234_5678_9abc_def0_0fed_cba9_8765_4321;

/// What one seed decides.
#[derive(Clone, Debug)]
pub struct Plan {
    pub seed: u64,
    pub layout: LogLayout,
    pub devices: usize,
    /// The devices' logical block.
    pub logical_block: u32,
    /// What requests are written in.
    pub block_bytes: Option<u32>,
    pub sections: u64,
    pub clients: u64,
    pub rounds: u64,
    /// Whether devices may fail or hang.
    pub faults: bool,
    /// Whether devices stall now and then instead.
    pub stalls: bool,
    /// When the log is created, which decides whether it has hiding areas, and when it is opened.
    pub hiding: [Hiding; 2],
    /// Devices that may join while the log runs. If there are any, devices also leave.
    pub spares: usize,
    /// The mean of a record's bytes.
    pub record_bytes: u64,
    /// Whether all records are of one size, so that what a crash leaves behind has the LSNs of what comes later.
    pub one_size: bool,
    pub buffer_bytes: usize,
    /// How long the owner takes at most before it checkpoints, once that is due.
    pub checkpoint_delay_us: u64,
    /// Whether the log is archived, on the last of the devices.
    pub archive: bool,
    /// One in so many power cuts takes all log devices, never to be seen again; 0 for none.
    pub loses_devices_one_in: u8,
    /// On how many devices a request must be. With two, a power cut may take one device.
    pub copies: u8,
}

impl Plan {
    pub fn new(seed: u64, layout: LogLayout) -> Plan {
        let mut random = random(seed);
        let devices = match (random.usize(1..=4), layout) {
            (_, LogLayout::Single) => 1,
            (devices, LogLayout::FlashLogging | LogLayout::Striped { .. }) => devices,
        };
        // In the other layouts one device's failure ends the log.
        let is_array = devices > 1 && layout == LogLayout::FlashLogging;
        let faults = is_array && random.bool();
        let logical_block = if seed.is_multiple_of(2) { 512 } else { 4096 };
        Plan {
            seed,
            layout,
            devices,
            logical_block,
            block_bytes: seed.is_multiple_of(4).then_some(logical_block),
            sections: random.u64(4..=9),
            clients: random.u64(1..=5),
            rounds: random.u64(2..=6),
            faults,
            stalls: is_array && !faults && random.u8(0..4) > 0,
            hiding: match random.usize(0..5) {
                0..3 => [Hiding::On, Hiding::On],
                3 => [Hiding::Off, Hiding::On],
                _ => [Hiding::Off, Hiding::Off],
            },
            record_bytes: [20, 300, 3000, 12000][random.usize(0..4)],
            buffer_bytes: [1 << 20, 5000][random.usize(0..2)],
            one_size: random.bool(),
            checkpoint_delay_us: [200, 10_000][random.usize(0..2)],
            archive: false,
            loses_devices_one_in: 0,
            copies: 1,
            spares: 0,
        }
    }

    /// The same with devices that come and go.
    pub fn with_spares(self) -> Plan {
        Plan { spares: 1 + self.seed as usize % 2, ..self }
    }

    /// The same with an archive, which a power cut may leave alone.
    pub fn with_archive(self) -> Plan {
        let mut random = random(self.seed ^ 0xa2c);
        let loses_devices_one_in = [0, 2, 4][random.usize(0..3)];
        let faults = random.bool();
        Plan { archive: true, loses_devices_one_in, faults, stalls: self.stalls && !faults, ..self }
    }

    /// The same with two copies of everything.
    pub fn mirrored(self) -> Plan {
        Plan { copies: 2, devices: self.devices.max(2 + self.seed as usize % 2), ..self }
    }

    /// Whether a power cut may take a device with its copy of the log.
    pub fn may_lose(&self) -> bool {
        self.copies > 1 && self.spares == 0
    }

    /// Those that are or may become log devices.
    pub fn log_devices<'a>(&self, devices: &'a [Arc<MemoryDevice>]) -> &'a [Arc<MemoryDevice>] {
        &devices[..self.devices + self.spares]
    }

    /// Those on which a log is put.
    pub fn first_devices<'a>(&self, devices: &'a [Arc<MemoryDevice>]) -> &'a [Arc<MemoryDevice>] {
        &devices[..self.devices]
    }

    pub fn options(&self, devices: &[Arc<MemoryDevice>]) -> LogOptions {
        let archive = devices.get(self.devices + self.spares).map(|device| ArchiveOptions {
            segment_bytes: Some(64 << 10),
            delay: Duration::from_micros([100, 2000, 20_000][self.seed as usize % 3]),
            lag_bytes: 1 << 20,
            ..ArchiveOptions::on_device(device.clone())
        });
        LogOptions {
            archive,
            section_bytes: Some(64 << 10),
            layout: self.layout,
            block_bytes: self.block_bytes,
            buffer_bytes: self.buffer_bytes,
            hang_timeout: Duration::from_millis(if self.stalls { 30 } else { 3 }),
            recovery_memory_bytes: if self.seed.is_multiple_of(3) { 10_000 } else { 1 << 20 },
            hiding: self.hiding[1],
            request_per_flush: self.seed.is_multiple_of(7),
            group_commit_delay: !self.seed.is_multiple_of(5),
            copies: self.copies,
            ..LogOptions::default()
        }
    }

    pub fn create_devices(&self) -> Vec<Arc<MemoryDevice>> {
        let us = Duration::from_micros;
        let device = |n: usize| {
            let slow = if self.seed.is_multiple_of(5) && n > 0 { 10 } else { 1 };
            let profile = MemoryProfile {
                write_latency: us(40)..us(200 * slow),
                read_latency: us(1)..us(20),
                flush_latency: us(1)..us(100),
                logical_block: self.logical_block,
                seed: self.seed * 31 + n as u64,
                ..MemoryProfile::default()
            };
            MemoryDevice::with_profile(format!("log-{n}"), (4 + self.sections * 16) * 4096, profile)
        };
        let archive = self.archive.then(|| {
            let latency_us = [20, 100, 900][self.seed as usize / 3 % 3];
            let profile = MemoryProfile {
                write_latency: us(latency_us)..us(3 * latency_us),
                read_latency: us(1)..us(20),
                flush_latency: us(1)..us(100),
                seed: self.seed * 31 + 99,
                ..MemoryProfile::default()
            };
            MemoryDevice::with_profile("archive", (4 + (self.sections + self.seed % 20) * 16) * 4096, profile)
        });
        (0..self.devices + self.spares).map(device).chain(archive).collect()
    }
}

pub fn as_devices(devices: &[Arc<MemoryDevice>]) -> Vec<Arc<dyn Device>> {
    devices.iter().map(|device| Arc::clone(device) as Arc<dyn Device>).collect()
}
