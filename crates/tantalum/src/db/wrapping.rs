//! Devices between the engine and its own, which an embedder puts there: to count, trace, throttle or encrypt.

use std::{fmt, sync::Arc};

use tantalum_device::Device;

/// What a database uses a device for.
///
/// ```
/// assert_eq!(tantalum::DeviceUse::DoubleWrite.to_string(), "double-write");
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceUse {
    /// Its pages.
    Data,
    /// The double-write area beside them.
    DoubleWrite,
    /// Its log; each partition is a device.
    Log,
    /// The log's archive.
    Archive,
}

impl DeviceUse {
    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Data => "data",
            Self::DoubleWrite => "double-write",
            Self::Log => "log",
            Self::Archive => "archive",
        }
    }
}

impl fmt::Display for DeviceUse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is put before a device.
pub(crate) type Wrap = Arc<dyn Fn(DeviceUse, Arc<dyn Device>) -> Arc<dyn Device> + Send + Sync>;
