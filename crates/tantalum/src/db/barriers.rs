//! Which devices are told to flush their caches. Decided at each open, by the devices that are there now.
//!
//! A barrier concerns the cache of one device, so each device is asked for itself: the order of writes to different devices,
//! and to one whose cache survives, is kept by waiting for the first before the second begins.

use std::{collections::BTreeMap, fmt, sync::Arc};

use tantalum_device::{Device, WithoutBarriers, WriteCache};
use tantalum_log::ArchiveTarget;
use tantalum_rt::Mutex;

use super::{DeviceUse, Devices, Wrap};
use crate::{
    error::{Error, ErrorKind, Result},
    options::Barriers,
};

/// Which devices are told to flush their caches, in [`Stats`](crate::Stats): all that the database has used since it was
/// opened. An archive in a directory is not among them; it is always flushed.
///
/// ```
/// # let dir = tempfile::tempdir()?;
/// let db = tantalum::Db::builder().log_bytes(8 << 20).open(dir.path().join("db"))?;
/// let barriers = db.stats()?.barriers;
/// assert_eq!(barriers.setting, tantalum::Barriers::Auto);
/// assert!(barriers.trusted.is_empty()); // never without being asked to
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BarrierSummary {
    /// What was asked for.
    pub setting: Barriers,
    /// Devices that are.
    pub sent_to: Vec<String>,
    /// Devices that are not, because they say that what they have completed survives a power cut.
    pub spared: Vec<String>,
    /// Devices that are not on the user's word alone, against what they say.
    pub trusted: Vec<String>,
}

/// The decision for each device, and what is put before it.
pub(crate) struct BarrierPolicy {
    setting: Barriers,
    wrap: Option<Wrap>,
    decided: Mutex<BTreeMap<String, Decision>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    Sent,
    Spared,
    Trusted,
}

impl BarrierPolicy {
    pub fn new(setting: Barriers, wrap: Option<Wrap>) -> Arc<Self> {
        Arc::new(Self { setting, wrap, decided: Mutex::default() })
    }

    /// The device as the database uses it. What is put before it sees what goes to the device, so no flush that is spared.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) if it needs barriers and may have none.
    pub fn over(&self, used_for: DeviceUse, device: Arc<dyn Device>) -> Result<Arc<dyn Device>> {
        let device = match &self.wrap {
            Some(wrap) => wrap(used_for, device),
            None => device,
        };
        let capabilities = device.capabilities();
        // What lies in the page cache is not on the device, whatever that says.
        let says = if capabilities.direct { capabilities.write_cache } else { WriteCache::Unknown };
        let decision = match (self.setting, says) {
            (Barriers::On, _) | (Barriers::Auto, WriteCache::Volatile | WriteCache::Unknown) => Decision::Sent,
            (_, WriteCache::None) => Decision::Spared,
            (Barriers::TrustDevice, _) => Decision::Trusted,
            (Barriers::Off, _) => {
                return Err(Error::new(
                    ErrorKind::Unsupported,
                    format!(
                        "{device}: barriers cannot be off, since it says that its write cache is {says}; leave the setting barriers out, or set it \
         to trust-device if you know that what this device has completed survives a power cut",
                        device = device.name()
                    ),
                ));
            }
        };
        if decision == Decision::Trusted {
            tantalum_rt::tracing::warn!(
                device = device.name(),
                write_cache = %says,
                "barriers = trust-device: this device is never flushed, on the user's word; if it loses its cache in a power cut, \
                 acknowledged commits are lost"
            );
        }
        self.decided.lock().insert(device.name().into(), decision);
        Ok(match decision {
            Decision::Sent => device,
            Decision::Spared | Decision::Trusted => Arc::new(WithoutBarriers::new(device)),
        })
    }

    /// All of a database's devices as it uses them.
    pub fn over_all(&self, devices: Devices) -> Result<Devices> {
        let Devices { data, double_write, log } = devices;
        Ok(Devices {
            data: self.over(DeviceUse::Data, data)?,
            double_write: double_write.map(|area| self.over(DeviceUse::DoubleWrite, area)).transpose()?,
            log: log.into_iter().map(|device| self.over(DeviceUse::Log, device)).collect::<Result<_>>()?,
        })
    }

    /// The archive as the log uses it. The files of one in a directory come and go, which a file system has to record.
    pub fn over_archive(&self, archive: ArchiveTarget) -> Result<ArchiveTarget> {
        Ok(match archive {
            ArchiveTarget::Device(device) => ArchiveTarget::Device(self.over(DeviceUse::Archive, device)?),
            directory => directory,
        })
    }

    /// A device is used no more.
    pub fn forget(&self, name: &str) {
        self.decided.lock().remove(name);
    }

    pub fn summary(&self) -> BarrierSummary {
        let decided = self.decided.lock();
        let named = |wanted| {
            let named = decided.iter().filter(|(_, decision)| **decision == wanted);
            named.map(|(name, _)| name.clone()).collect()
        };
        BarrierSummary {
            setting: self.setting,
            sent_to: named(Decision::Sent),
            spared: named(Decision::Spared),
            trusted: named(Decision::Trusted),
        }
    }
}

impl fmt::Debug for BarrierPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BarrierPolicy").field("setting", &self.setting).finish_non_exhaustive()
    }
}
