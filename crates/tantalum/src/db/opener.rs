//! The door through which devices come that are neither files nor block devices. The engine knows none of them.

use std::{error::Error as StdError, path::Path, sync::Arc};

use tantalum_device::Device;

/// A device that a database's settings name.
#[non_exhaustive]
#[derive(Clone, Copy, Debug)]
pub struct DeviceRequest<'a> {
    /// As it stands in the settings.
    pub name: &'a str,
    /// The database's directory, where relative paths start.
    pub directory: &'a Path,
    /// Whether the device may be made if it does not exist; a new one reads as zeros.
    pub may_create: bool,
    /// How many bytes of the device are used, where that is known before it is open.
    pub bytes: Option<u64>,
}

impl<'a> DeviceRequest<'a> {
    /// A request for `bytes` of `name` of the database in `directory`.
    pub fn new(name: &'a str, directory: &'a Path, may_create: bool, bytes: Option<u64>) -> Self {
        Self { name, directory, may_create, bytes }
    }
}

/// What an opener answers: the device, or why it cannot be opened; `None` where the name is a path, for the engine to
/// open.
pub type Opened = Option<Result<Arc<dyn Device>, Box<dyn StdError + Send + Sync>>>;

/// Opens the devices that a database's settings name, where they are not paths. See
/// [`Expert::device_opener`](crate::Expert::device_opener).
///
/// Closures are openers:
///
/// ```
/// use std::sync::Arc;
///
/// use tantalum::DeviceRequest;
/// use tantalum_device::{Device, MemoryDevice};
///
/// # let dir = tempfile::tempdir()?;
/// let memory = |request: DeviceRequest<'_>| {
///     let name = request.name.strip_prefix("memory:")?;
///     Some(Ok(MemoryDevice::new(name, 16 << 20) as Arc<dyn Device>))
/// };
/// let db = tantalum::Db::builder()
///     .expert(|expert| expert.device_opener(memory))
///     .data_device("memory:data")
///     .log_devices(["memory:log"])
///     .log_bytes(8 << 20)
///     .open(dir.path())?;
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait DeviceOpener: Send {
    /// Opens the device, if its name is one of this opener's. Each call opens one more.
    ///
    /// # Errors
    /// Whatever keeps it from being opened, in words that say what to do.
    fn open(&self, request: DeviceRequest<'_>) -> Opened;
}

impl<F: Fn(DeviceRequest<'_>) -> Opened + Send> DeviceOpener for F {
    fn open(&self, request: DeviceRequest<'_>) -> Opened {
        self(request)
    }
}
