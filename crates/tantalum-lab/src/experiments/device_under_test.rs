//! The device under test: a fresh emulated device for each measurement, in a simulation of its own.

use std::{ops::Range, sync::Arc};

use serde::Deserialize;
use tantalum_device::Device;
use tantalum_flash::{EmulatedDevice, Kind, Profile, disk, ssd};
use tantalum_rt::Simulation;

use crate::{
    error::Result,
    finding::Basis,
    micro::{self, Data, Job, Measured, Together},
    scenario::in_use,
};

/// How a device is built and made ready.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeviceUnderTest {
    /// The profile's name.
    pub profile: &'static str,
    /// What is different from the profile.
    pub cache: Cache,
    /// Bytes of the device; `None` as the profile has it. A smaller one behaves the same and is written full sooner.
    pub capacity_bytes: Option<u64>,
    /// Bytes of a solid-state drive's buffer for writes; `None` as the profile has it.
    pub pool_bytes: Option<u64>,
    /// Bytes of it that are used, from its begin; no more than it has.
    pub used_bytes: u64,
    /// Whether these are written once before. Drives with a log-block translation layer are built so, all of them.
    pub is_filled: bool,
    /// Requests of the same kind before those that are measured: so many that caches are as full as they will be.
    pub warm_up: u64,
    /// For addresses, and chance in the model.
    pub seed: u64,
}

/// What the paper's host did with the write cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub(super) enum Cache {
    /// As the profile has it.
    #[serde(skip)]
    AsProfile,
    /// Off: writes end on the medium.
    #[serde(rename = "off")]
    Off,
    /// On.
    #[serde(rename = "on")]
    On,
    /// On, and the host sends no flushes.
    #[serde(rename = "on, no barrier")]
    NoBarrier,
}

impl DeviceUnderTest {
    /// A profile as it is, all of it used, written once before.
    pub fn new(profile: &'static str, seed: u64) -> Self {
        Self {
            profile,
            cache: Cache::AsProfile,
            capacity_bytes: None,
            pool_bytes: None,
            used_bytes: u64::MAX,
            is_filled: true,
            warm_up: 0,
            seed,
        }
    }

    /// Runs a job on a new device. The job's range, seed and data follow from the device.
    ///
    /// # Errors
    /// As [`micro::run`], and if there is no such profile.
    pub fn measure(&self, job: Job) -> Result<Measured> {
        let tested = *self;
        let profile = self.load()?;
        let run = move || {
            let device = tested.device(&profile)?;
            let range = tested.range(&*device);
            let job = Job { range, seed: tested.seed, data: Data::Zeros, ..job };
            if tested.warm_up > 0 {
                micro::run(&device, &Job { operations: tested.warm_up, seed: !tested.seed, ..job.clone() }, &|_| ())?;
            }
            micro::run(&device, &job, &|_| ())
        };
        Simulation::new(self.seed).run(run).expect_finished()
    }

    /// Writes to two new devices at once: bytes a second.
    ///
    /// # Errors
    /// As [`DeviceUnderTest::measure`].
    pub fn measure_two(&self, load: Together) -> Result<f64> {
        let tested = *self;
        let profile = self.load()?;
        let run = move || micro::run_together(&[tested.device(&profile)?, tested.device(&profile)?], load);
        Simulation::new(self.seed).run(run).expect_finished()
    }

    /// Whether what was published by this id was used to choose the profile's parameters.
    ///
    /// # Errors
    /// As [`DeviceUnderTest::measure`].
    pub fn basis(&self, id: &str) -> Result<Basis> {
        self.basis_of_cell(id, "", "")
    }

    /// Whether a cell of a published table was. The profile names the id, and after a colon, if it was not all of it,
    /// which cells.
    ///
    /// # Errors
    /// As [`DeviceUnderTest::measure`].
    pub fn basis_of_cell(&self, id: &str, row: &str, cell: &str) -> Result<Basis> {
        let is_fitted = Profile::named(self.profile)?.fitted.iter().any(|fitted| match fitted.split_once(':') {
            None => fitted == id,
            Some((fitted, cells)) => fitted == id && names_cell(cells, row, cell),
        });
        Ok(if is_fitted { Basis::Fitted } else { Basis::Predicted })
    }

    /// Bytes of the buffer for writes, if it is a solid-state drive that has one.
    ///
    /// # Errors
    /// If there is no such profile.
    pub fn pool_bytes(&self) -> Result<Option<u64>> {
        Ok(match self.load()?.device {
            Kind::SolidState(drive) => Some(drive.cache.pool_bytes),
            _ => None,
        })
    }

    fn load(&self) -> Result<Profile> {
        let mut profile = Profile::named(self.profile)?;
        if let (Kind::SolidState(drive), Some(pool_bytes)) = (&mut profile.device, self.pool_bytes) {
            drive.cache.pool_bytes = pool_bytes;
        }
        if let Some(capacity_bytes) = self.capacity_bytes {
            profile = profile.with_capacity(capacity_bytes);
        }
        if self.is_filled {
            profile = in_use(profile);
        }
        let is_on = match self.cache {
            Cache::AsProfile => return Ok(profile),
            Cache::Off => false,
            Cache::On | Cache::NoBarrier => true,
        };
        match &mut profile.device {
            Kind::SolidState(drive) if is_on => drive.cache.mode = ssd::CacheMode::WriteBack,
            Kind::SolidState(drive) => drive.cache.mode = ssd::CacheMode::WriteThrough,
            Kind::HardDisk(disk) if is_on => disk.write_cache = disk::CacheMode::On,
            Kind::HardDisk(disk) => disk.write_cache = disk::CacheMode::Off,
            _ => {}
        }
        Ok(profile)
    }

    /// A new device, filled if that is wanted.
    fn device(&self, profile: &Profile) -> Result<Arc<dyn Device>> {
        let model = profile.build()?;
        let device: Arc<dyn Device> = match self.cache {
            Cache::NoBarrier => EmulatedDevice::without_barriers(self.profile, model),
            _ => EmulatedDevice::new(self.profile, model),
        };
        if self.is_filled && !matches!(profile.device, Kind::UsbDrive(_) | Kind::BlockSsd(_)) {
            micro::fill(&device, self.range(&*device), Data::Zeros, &|_| ())?;
        }
        Ok(device)
    }

    fn range(&self, device: &dyn Device) -> Range<u64> {
        let end = self.used_bytes.min(device.capacity_bytes());
        0..end - end % u64::from(device.capabilities().logical_block)
    }
}

/// Whether a list such as `durassd on, 0 and 1; durassd off, 0` names this cell of this row.
fn names_cell(cells: &str, row: &str, cell: &str) -> bool {
    cells.split(';').any(|group| {
        let mut parts = group.split(", ").flat_map(|part| part.split(" and ")).map(str::trim);
        parts.next() == Some(row) && parts.any(|part| part == cell)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fitted_cells_are_recognised() {
        let cells = " durassd on, 0 and 1; durassd off, 0";
        for (row, cell) in [("durassd on", "0"), ("durassd on", "1"), ("durassd off", "0")] {
            assert!(names_cell(cells, row, cell), "{row} {cell}");
        }
        assert!(!names_cell(cells, "durassd off", "1") && !names_cell(cells, "durassd", "0"));
        let tested = DeviceUnderTest::new("durassd", 1);
        assert_eq!(tested.basis_of_cell("ds.table1.fsync_frequency", "durassd on", "0").unwrap(), Basis::Fitted);
        assert_eq!(tested.basis_of_cell("ds.table1.fsync_frequency", "durassd on", "64").unwrap(), Basis::Predicted);
    }
}
