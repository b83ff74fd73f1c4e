//! `--simulate`: a whole benchmark in one simulation, in virtual time.
//!
//! Promise: the same arguments give the same result, to the byte, on every machine.

use std::{path::Path, sync::Arc, time::Duration};

use clap::Args;
use serde::Serialize;
use tantalum::{Devices, StoreKind};
use tantalum_device::{Device, MemoryDevice, MemoryProfile, Partition, TearUnit};
use tantalum_flash::EmulatedSpec;
use tantalum_report::units;
use tantalum_rt::{Instant, Scheduling, Simulation};

use super::parse_duration;
use crate::{
    emulator::{Emulator, Stalled},
    error::{Error, Result},
    progress::{Watch, watched},
};

#[derive(Args, Clone, Debug)]
pub struct Simulate {
    /// Run in virtual time, with the database on emulated devices: --log and --data take emulated:PROFILE. Without them
    /// log and data lie on ideal devices, which take no time.
    #[arg(long, conflicts_with_all = ["dir", "keep", "reuse"])]
    simulate: bool,
    /// Virtual cores.
    #[arg(long, requires = "simulate", default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=1024))]
    cores: u16,
    /// What each attempt at a transaction takes of a virtual core, such as 80us. Default: 100us for tpcc, 10us for kv.
    #[arg(long, requires = "simulate", value_name = "DURATION", value_parser = parse_duration)]
    cpu_per_transaction: Option<Duration>,
}

/// In what world a benchmark runs.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(tag = "clock", rename_all = "kebab-case")]
pub enum World {
    /// On threads, in real time.
    Real,
    /// In a simulation.
    Virtual {
        /// Virtual cores.
        cores: u16,
        /// What each attempt takes of one.
        cpu_per_transaction_us: f64,
    },
}

/// How long a simulation took.
#[derive(Clone, Copy)]
pub struct Speed {
    simulated: Duration,
    real: Duration,
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (simulated, real) = (self.simulated.as_secs_f64(), self.real.as_secs_f64());
        let rate = simulated / real.max(1e-9);
        write!(f, "virtual time: {simulated:.1} s simulated in {real:.1} s, {rate:.2} simulated seconds a second")
    }
}

impl Simulate {
    pub fn is_on(&self) -> bool {
        self.simulate
    }

    /// What an attempt is charged, where the workload's default is `default`.
    pub fn cpu_per_attempt(&self, default: Duration) -> Duration {
        self.cpu_per_transaction.unwrap_or(default)
    }

    /// The world that is asked for.
    pub fn world(&self, default_cpu: Duration) -> World {
        match self.simulate {
            false => World::Real,
            true => World::Virtual {
                cores: self.cores,
                cpu_per_transaction_us: self.cpu_per_attempt(default_cpu).as_nanos() as f64 / 1e3,
            },
        }
    }

    /// Runs `body` in its world, and shows meanwhile how far it is.
    pub fn run<T: 'static>(
        &self,
        seed: u64,
        body: impl FnOnce(&Watch) -> Result<T> + 'static,
    ) -> Result<(T, Option<Speed>)> {
        if !self.simulate {
            return Ok((watched(|watch| body(&watch))?, None));
        }
        // In order: interleavings at random are for searching, and slow.
        let simulation = Simulation::new(seed)
            .scheduling(Scheduling::InOrder)
            .cores(usize::from(self.cores))
            .stack_size(STACK_BYTES);
        let start = tantalum_rt::now();
        let (result, simulated) = watched(move |watch| {
            let root = move || (body(&watch), tantalum_rt::now().duration_since(Instant::from_nanos(0)));
            let (result, simulated) = simulation.run(root).expect_finished();
            Ok((result?, simulated))
        })?;
        Ok((result, Some(Speed { simulated, real: start.elapsed() })))
    }
}

/// Only what a task touches takes memory.
const STACK_BYTES: usize = 1 << 20;

/// Of a data device that grows: so many segments of the default size that a log-structured store can begin.
const LOG_STRUCTURED_BYTES: u64 = 64 << 20;

/// What the devices of a simulated database are to be.
pub struct Wanted<'a> {
    pub page_size: u32,
    pub log_bytes: u64,
    pub log_partitions: u32,
    pub page_store: StoreKind,
    pub data: Option<&'a Path>,
    pub log: &'a [std::path::PathBuf],
}

impl Wanted<'_> {
    /// Makes the devices, within the simulation.
    pub fn devices(&self, emulator: &Emulator) -> Result<Devices> {
        let mut log: Vec<Arc<dyn Device>> = Vec::new();
        for path in self.log {
            log.push(new_device(emulator, path)?);
        }
        if log.is_empty() {
            log.push(ideal("ideal log", self.log_bytes));
        }
        let log = divide(log, self.log_bytes, self.log_partitions)?;
        match (self.data, self.page_store) {
            (Some(path), StoreKind::InPlace) => {
                Ok(Devices::on_data_device(new_device(emulator, path)?, self.page_size, log)?)
            }
            (Some(path), _) => Ok(Devices { data: new_device(emulator, path)?, double_write: None, log }),
            (None, StoreKind::LogStructured) => {
                Ok(Devices { data: ideal("ideal data", LOG_STRUCTURED_BYTES), double_write: None, log })
            }
            (None, _) => Ok(Devices { data: ideal("ideal data", 1 << 20), double_write: None, log }),
        }
    }
}

/// The first `bytes` of each device, cut into partitions.
pub fn divide(devices: Vec<Arc<dyn Device>>, bytes: u64, partitions: u32) -> Result<Vec<Arc<dyn Device>>> {
    let mut divided: Vec<Arc<dyn Device>> = Vec::new();
    for device in devices {
        let used = bytes.min(device.capacity_bytes()) / 4096 * 4096;
        let used: Arc<dyn Device> = match used == device.capacity_bytes() {
            true => device,
            false => Arc::new(Partition::new(device, 0..used)?),
        };
        match partitions {
            1 => divided.push(used),
            count => {
                let parts = Partition::split(used, count as usize)?;
                divided.extend(parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Device>));
            }
        }
    }
    Ok(divided)
}

/// An emulated device without contents.
pub fn new_device(emulator: &Emulator, path: &Path) -> Result<Arc<dyn Device>> {
    let name = path.display().to_string();
    if let Some(stalled) = Stalled::parse(&name).transpose()? {
        return Ok(stalled.wrap(new_device(emulator, Path::new(stalled.device))?));
    }
    if let Some(Ok(EmulatedSpec { file: Some(file), .. })) = EmulatedSpec::parse(&name)
        && file.exists()
    {
        return Err(Error::Other(format!(
            "{name}: a simulation begins with new devices, and {} exists; remove it, or name another",
            file.display()
        )));
    }
    match emulator.open(&name, Path::new(""), true)? {
        Some(device) => Ok(device),
        None => Err(Error::Other(format!(
            "--simulate runs on emulated devices, which {name} is not; write emulated:PROFILE (`tantalum device list` \
             lists the profiles)"
        ))),
    }
}

/// A device that takes no time, keeps everything and tears nothing.
fn ideal(name: &str, bytes: u64) -> Arc<dyn Device> {
    let profile = MemoryProfile { volatile_cache: false, tears: TearUnit::Atomic(1 << 20), ..MemoryProfile::default() };
    MemoryDevice::with_profile(name, bytes, profile)
}

/// A line for the first of the output.
pub fn clock_line(world: &World) -> String {
    match world {
        World::Real => "real time".to_owned(),
        World::Virtual { cores, cpu_per_transaction_us } => {
            let cpu = units::duration_ns((cpu_per_transaction_us * 1e3) as u64);
            format!("virtual time, {cores} virtual cores, {cpu} of one for each attempt at a transaction")
        }
    }
}
