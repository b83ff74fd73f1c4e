//! What is probed: a device, or in a simulation an emulated one.

use std::{path::Path, sync::Arc, time::Duration};

use tantalum_device::{Access, Device, FileDevice};
use tantalum_lab::{
    micro::Data,
    probe::{self, Effort, Found, Plan},
};
use tantalum_report::units;
use tantalum_rt::{Scheduling, Simulation};

use crate::{
    device::{
        emulated::{self, Emulated},
        overwrite, place,
    },
    error::{Error, Result},
    progress::{Stage, Watch, watched},
};

/// Fewer bytes hide everything in a cache.
const LEAST_BYTES: u64 = 32 << 20;
/// The part of all time that making a file may take.
const CREATION: f64 = 0.15;

pub enum Subject {
    /// A device that may be written to; a new file, if so many bytes went into making it.
    Writable { device: Arc<dyn Device>, creation_bytes: u64, creation_time: Duration },
    /// One that is only read.
    ReadOnly(Arc<dyn Device>),
    /// One that is made in a simulation.
    Emulated { emulated: Box<Emulated>, _contents: Option<place::Contents> },
}

impl Subject {
    pub fn open(path: &Path, effort: Effort, size_bytes: u64, destructive: bool) -> Result<Self> {
        if let Some(emulated) = emulated::find(path)? {
            let contents = emulated.file.clone().map(|file| place::Contents::of(file, destructive)).transpose()?;
            return Ok(Self::Emulated { emulated: Box::new(emulated), _contents: contents });
        }
        if path.exists() && !path.is_dir() {
            return Ok(match destructive {
                true => Self::Writable {
                    device: Arc::new(overwrite::open(path)?),
                    creation_bytes: 0,
                    creation_time: Duration::ZERO,
                },
                false => Self::ReadOnly(Arc::new(FileDevice::open(path, Access::ReadOnly)?)),
            });
        }
        let started = tantalum_rt::now();
        let time = Duration::from_secs(effort.seconds()).mul_f64(CREATION);
        let size_bytes = size_bytes - size_bytes % 4096;
        if size_bytes < LEAST_BYTES {
            return Err(too_small(path, size_bytes));
        }
        let device = place::create_within(path, LEAST_BYTES, size_bytes, time)?;
        let creation_bytes = device.capacity_bytes();
        Ok(Self::Writable { device, creation_bytes, creation_time: started.elapsed() })
    }

    /// What may be done to it.
    pub fn plan(&self, effort: Effort, size_bytes: u64, seed: u64) -> Result<Plan> {
        let (capacity_bytes, name) = match self {
            Self::Writable { device, .. } | Self::ReadOnly(device) => {
                (device.capacity_bytes(), device.name().to_owned())
            }
            Self::Emulated { emulated, .. } => (emulated.device()?.capacity_bytes(), emulated.name.clone()),
        };
        let end = size_bytes.min(capacity_bytes);
        let end = end - end % (1 << 20);
        if end < LEAST_BYTES {
            return Err(too_small(Path::new(&name), end));
        }
        let plan = Plan { seed, ..Plan::new(effort, 0..end) };
        Ok(match self {
            Self::Writable { creation_time, .. } => Plan { time: plan.time.saturating_sub(*creation_time), ..plan },
            Self::ReadOnly(_) => plan.read_only(),
            // Emulated devices never look at the bytes, and hold zeros without memory.
            Self::Emulated { .. } => Plan { data: Data::Zeros, ..plan },
        })
    }

    /// Bytes that went into making the file.
    pub fn creation_bytes(&self) -> u64 {
        match self {
            Self::Writable { creation_bytes, .. } => *creation_bytes,
            _ => 0,
        }
    }

    pub fn is_emulated(&self) -> bool {
        matches!(self, Self::Emulated { .. })
    }

    pub fn probe(&self, plan: &Plan) -> Result<Found> {
        match self {
            Self::Writable { device, .. } | Self::ReadOnly(device) => {
                watched(|watch| Ok(probe::probe(device, plan, &|stage| show(&watch, stage))?))
            }
            Self::Emulated { emulated, .. } => {
                let (emulated, plan) = (emulated.clone(), plan.clone());
                watched(move |watch| {
                    let run = move || Ok(probe::probe(&emulated.new_device()?, &plan, &|stage| show(&watch, stage))?);
                    Simulation::new(0).scheduling(Scheduling::InOrder).run(run).expect_finished()
                })
            }
        }
    }
}

fn show(watch: &Watch, stage: probe::Stage) {
    let percent = stage.elapsed.as_millis() * 100 / stage.at_most.as_millis().max(1);
    let (done, remark) = (percent.min(100) as u64, stage.doing.to_owned());
    watch.show(Stage { label: "probing, percent of the time", done, total: Some(100), remark });
}

fn too_small(path: &Path, bytes: u64) -> Error {
    let (bytes, least) = (units::bytes(bytes), units::bytes(LEAST_BYTES));
    Error::Other(format!(
        "{bytes} of {} are too few to tell a device from its cache; give it at least {least}",
        path.display()
    ))
}
