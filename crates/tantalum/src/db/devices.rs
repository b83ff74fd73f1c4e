//! The devices of a database, and what an embedder does with them: opens those that are neither files nor block devices, which the
//! engine does not know; and puts devices of its own before them, to count, trace, throttle or encrypt.

use std::{error::Error as StdError, fmt, path::Path, sync::Arc};

use tantalum_device::{Access, Device, MemoryLimit, Overlay, Partition, SharedFlushes};
use tantalum_store::{DoubleWrite, StoreKind, Superblock};

use crate::{
    error::{self, Result},
    options::Settings,
};

/// The devices of a database, for [`Builder::open_on`](crate::Builder::open_on).
///
/// ```
/// use tantalum_device::MemoryDevice;
///
/// let devices = tantalum::Devices {
///     data: MemoryDevice::new("data", 4 << 20),
///     double_write: Some(MemoryDevice::new("doublewrite", 1 << 20)),
///     log: vec![MemoryDevice::new("log-0", 4 << 20), MemoryDevice::new("log-1", 4 << 20)],
/// };
/// let db = tantalum::Db::builder().open_on(devices)?;
/// # db.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Devices {
    /// Where the pages are.
    pub data: Arc<dyn Device>,
    /// The double-write area, where that protection is used.
    pub double_write: Option<Arc<dyn Device>>,
    /// The log's devices, in any order.
    pub log: Vec<Arc<dyn Device>>,
}

impl Devices {
    /// A database whose pages and double-write area share one device of fixed size: the area is its end. If there is a database
    /// already, it says how large that is.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) when the device has no room for anything beside the area, and what
    /// [`Error`](crate::Error) says of a damaged superblock or a device that cannot be read.
    pub fn on_data_device(device: Arc<dyn Device>, page_size: u32, log: Vec<Arc<dyn Device>>) -> Result<Self> {
        let superblock = Superblock::read(&*device)?;
        Self::in_place_on(device, page_size, superblock.as_ref(), log)
    }

    /// The same devices, of which none changes: what is written to them stays in `memory`.
    pub(crate) fn with_writes_in(self, memory: &Arc<MemoryLimit>) -> Self {
        let over = |device| Arc::new(Overlay::new(device, Arc::clone(memory))) as Arc<dyn Device>;
        let Self { data, double_write, log } = self;
        Self { data: over(data), double_write: double_write.map(over), log: log.into_iter().map(over).collect() }
    }

    /// A database on one device of fixed size beside its log's: pages, and what their store needs with them.
    pub(crate) fn on_data_device_for(
        device: Arc<dyn Device>,
        settings: &Settings,
        superblock: Option<&Superblock>,
        log: Vec<Arc<dyn Device>>,
    ) -> Result<Self> {
        let new = (settings.page_store(), settings.page_size());
        match superblock.map_or(new, |superblock| (superblock.store_kind, superblock.page_size)) {
            (StoreKind::InPlace, page_size) => Self::in_place_on(device, page_size, superblock, log),
            (StoreKind::InPageLogging | StoreKind::LogStructured, _) => {
                Ok(Self { data: device, double_write: None, log })
            }
        }
    }

    fn in_place_on(
        device: Arc<dyn Device>,
        page_size: u32,
        superblock: Option<&Superblock>,
        log: Vec<Arc<dyn Device>>,
    ) -> Result<Self> {
        if device.capabilities().zones.is_some() {
            return Err(error::has_zones(device.name()));
        }
        let (capacity, page) = (device.capacity_bytes(), u64::from(page_size));
        let slots = match superblock {
            Some(superblock) => superblock.double_write_slots,
            None => DoubleWrite::slots_at_end(capacity, page_size as usize),
        };
        let area_bytes = DoubleWrite::area_bytes(page_size as usize, slots);
        let data_bytes = capacity.saturating_sub(area_bytes) / page * page;
        if data_bytes < area_bytes {
            let (name, needed) = (device.name(), 2 * area_bytes + page);
            let what = format!("data_device: {name} has {capacity} bytes, a database needs at least {needed}");
            return Err(error::option(what));
        }
        // A flush is for both of them.
        let device = SharedFlushes::of(device);
        let area = Partition::new(Arc::clone(&device), data_bytes..data_bytes + area_bytes)?;
        let data = Partition::new(device, 0..data_bytes)?;
        Ok(Self { data: Arc::new(data), double_write: Some(Arc::new(area)), log })
    }
}

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
    /// Whether the device is written to.
    pub access: Access,
}

impl<'a> DeviceRequest<'a> {
    /// A request for `bytes` of `name` of the database in `directory`, to read and write.
    pub fn new(name: &'a str, directory: &'a Path, may_create: bool, bytes: Option<u64>) -> Self {
        Self { name, directory, may_create, bytes, access: Access::ReadWrite }
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
