//! The machine that loses its power: devices that outlive it.

mod fuse;
mod miniature;

use std::{sync::Arc, time::Duration};

use tantalum::Devices;
use tantalum_device::{Device, MemoryDevice, Partition};
use tantalum_flash::{
    EmulatedDevice, Profile,
    faults::{FaultKind, FaultLog},
};
use tantalum_rt::{Random, Simulation, spawn};

pub(crate) use fuse::Fuse;
pub(crate) use miniature::miniature;

use crate::config::{Config, Drive, DriveKind};
use fuse::Wired;

/// The devices of one seed. They keep their contents from round to round, as far as power cuts let them.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    data: Unit,
    double_write: Option<Unit>,
    logs: Vec<Unit>,
    spares: Vec<Unit>,
    archive: Option<Unit>,
    log_partitions: Option<usize>,
}

/// One device.
#[derive(Clone, Debug)]
enum Unit {
    Memory(Arc<MemoryDevice>),
    Emulated(Arc<EmulatedDevice>, Arc<FaultLog>),
}

impl Machine {
    /// # Errors
    /// What is wrong with a profile.
    pub fn new(config: &Arc<Config>) -> Result<Self, tantalum_flash::Error> {
        // Devices count time from where they are made: here the beginning of the virtual clock.
        let config = Arc::clone(config);
        Simulation::new(0).run(move || Self::assemble(&config)).expect_finished()
    }

    fn assemble(config: &Config) -> Result<Self, tantalum_flash::Error> {
        let (logs, spares) = Self::log_units(config)?;
        let data_bytes = match config.data.kind {
            DriveKind::Memory(_) => config.first_data_bytes,
            DriveKind::Emulated { .. } => config.data_bytes,
        };
        let archive = config.archive.as_ref().map(|archive| {
            let bytes = logs.iter().map(|unit| unit.device().capacity_bytes()).sum::<u64>() * archive.logs;
            Unit::new(&archive.drive, bytes)
        });
        Ok(Self {
            data: Unit::new(&config.data, data_bytes)?,
            double_write: match &config.double_write {
                Some(drive) => Some(Unit::new(drive, config.double_write_bytes)?),
                None => None,
            },
            archive: archive.transpose()?,
            logs,
            spares,
            log_partitions: config.log.partitions(),
        })
    }

    /// New devices for the log, and those that may join it.
    fn log_units(config: &Config) -> Result<(Vec<Unit>, Vec<Unit>), tantalum_flash::Error> {
        let bytes = config.log_bytes * config.log.partitions().unwrap_or(1) as u64;
        let make = |drives: &[Drive]| drives.iter().map(|drive| Unit::new(drive, bytes)).collect::<Result<_, _>>();
        Ok((make(&config.logs)?, make(&config.spares)?))
    }

    /// The same machine at this time, whose log devices are lost and were replaced by new ones.
    ///
    /// # Errors
    /// What is wrong with a profile.
    pub fn with_new_logs(&self, config: &Arc<Config>, now: Duration) -> Result<Self, tantalum_flash::Error> {
        let config = Arc::clone(config);
        let made = Simulation::new(0).start_at(now).run(move || Self::log_units(&config)).expect_finished();
        let (logs, spares) = made?;
        let (data, double_write, archive) = (self.data.clone(), self.double_write.clone(), self.archive.clone());
        Ok(Self { data, double_write, logs, spares, archive, log_partitions: self.log_partitions })
    }

    /// The devices as the engine is given them; `fuse` burns with every operation on any of them.
    pub fn devices(&self, fuse: &Arc<Fuse>) -> tantalum_device::Result<Devices> {
        let wired = |unit: &Unit| wired(unit, fuse);
        let mut log: Vec<_> = self.logs.iter().map(wired).collect();
        if let Some(n) = self.log_partitions {
            let partitions = Partition::split(Arc::clone(&log[0]), n)?;
            log = partitions.into_iter().map(|partition| Arc::new(partition) as Arc<dyn Device>).collect();
        }
        let data = Arc::new(Wired { device: self.data.device(), fuse: Arc::clone(fuse), has_head: true });
        Ok(Devices { data, double_write: self.double_write.as_ref().map(wired), log })
    }

    /// The device of the archive.
    pub fn archive(&self, fuse: &Arc<Fuse>) -> Option<Arc<dyn Device>> {
        self.archive.as_ref().map(|unit| wired(unit, fuse))
    }

    /// The devices that may become log devices.
    pub fn spares(&self, fuse: &Arc<Fuse>) -> Vec<Arc<dyn Device>> {
        self.spares.iter().map(|unit| wired(unit, fuse)).collect()
    }

    /// Cuts the power: what was not durable is lost, or torn, or there, as `random` has it.
    pub fn power_cut(&self, random: &mut Random) {
        for unit in self.units() {
            match unit {
                Unit::Memory(device) => device.power_cut(random),
                Unit::Emulated(device, _) => device.power_cut(random),
            }
        }
    }

    /// The same with a blank device in the place of one that the log may have.
    ///
    /// # Errors
    /// What is wrong with a profile.
    pub fn without_a_log_device(&self, config: &Config, random: &mut Random) -> Result<Self, tantalum_flash::Error> {
        let mut machine = self.clone();
        let at = random.usize(0..machine.logs.len() + machine.spares.len());
        let drive = config.logs.iter().chain(&config.spares).nth(at);
        let unit = machine.logs.iter_mut().chain(&mut machine.spares).nth(at);
        if let (Some(drive), Some(unit)) = (drive, unit) {
            *unit = Unit::new(drive, config.log_bytes)?;
        }
        Ok(machine)
    }

    /// Lets the power return, and waits until all devices answer.
    pub fn power_on(&self) {
        let emulated = self.units().filter_map(|unit| match unit {
            Unit::Memory(_) => None,
            Unit::Emulated(device, _) => Some(Arc::clone(device)),
        });
        let starts: Vec<_> =
            emulated.map(|device| spawn(format!("start-{}", device.name()), move || device.power_on())).collect();
        for start in starts {
            let result = start.join().expect("a start does not panic");
            result.expect("power is cut by the end of the simulation, not before");
        }
    }

    /// How often each fault has happened, on all devices.
    pub fn faults(&self) -> impl Iterator<Item = (FaultKind, u64)> {
        let count = |kind| self.logs_of_faults().map(|(_, log)| log.count(kind)).sum();
        FaultKind::ALL.into_iter().map(move |kind| (kind, count(kind)))
    }

    /// The latest faults of all devices, so many at most, each with its device.
    pub fn latest_faults(&self, count: usize) -> Vec<String> {
        let of_device = |(name, log): (&str, &FaultLog)| {
            log.events().into_iter().map(|event| (event.at, format!("{name}: {event}"))).collect::<Vec<_>>()
        };
        let mut faults: Vec<_> = self.logs_of_faults().flat_map(of_device).collect();
        faults.sort_by_key(|&(at, _)| at);
        let older = faults.len().saturating_sub(count);
        faults.split_off(older).into_iter().map(|(_, fault)| fault).collect()
    }

    /// Power cuts at which capacitors were empty before everything was dumped.
    pub fn dump_overruns(&self) -> u64 {
        let overruns = |unit: &Unit| match unit {
            Unit::Memory(_) => 0,
            Unit::Emulated(device, _) => device.counters().dump_overruns,
        };
        self.units().map(overruns).sum()
    }

    fn units(&self) -> impl Iterator<Item = &Unit> {
        self.logs.iter().chain([&self.data]).chain(&self.double_write).chain(&self.spares).chain(&self.archive)
    }

    fn logs_of_faults(&self) -> impl Iterator<Item = (&str, &FaultLog)> {
        self.units().filter_map(|unit| match unit {
            Unit::Memory(_) => None,
            Unit::Emulated(device, log) => Some((device.name(), &**log)),
        })
    }
}

fn wired(unit: &Unit, fuse: &Arc<Fuse>) -> Arc<dyn Device> {
    Arc::new(Wired { device: unit.device(), fuse: Arc::clone(fuse), has_head: false })
}

impl Unit {
    fn new(drive: &Drive, bytes: u64) -> Result<Self, tantalum_flash::Error> {
        match &drive.kind {
            DriveKind::Memory(profile) => {
                Ok(Self::Memory(MemoryDevice::with_profile(&*drive.name, bytes, profile.clone())))
            }
            DriveKind::Emulated { profile, sends_barriers } => {
                let (model, log) = Profile::clone(profile).with_capacity(bytes).build_logged()?;
                let device = match sends_barriers {
                    true => EmulatedDevice::new(&*drive.name, model),
                    false => EmulatedDevice::without_barriers(&*drive.name, model),
                };
                Ok(Self::Emulated(device, log))
            }
        }
    }

    fn device(&self) -> Arc<dyn Device> {
        match self {
            Self::Memory(device) => Arc::clone(device) as Arc<dyn Device>,
            Self::Emulated(device, _) => Arc::clone(device) as Arc<dyn Device>,
        }
    }
}
