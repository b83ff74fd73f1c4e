//! What an open database consists of below its transactions, and how it ends.
//!
//! Invariant: the tasks in the background stop before the log is closed, and the directory stays locked until all is over.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use tantalum_device::Capabilities;
use tantalum_log::{Log, LogStats};
use tantalum_rt::Mutex;

use super::{Devices, barriers::BarrierPolicy, catalog::Catalog, files::Directory, log_devices::LogDevices};
use crate::{
    buffer::{BufferPool, Cleaner, PageCleaning},
    error::{Error, Result},
    options::Settings,
    recovery::{Checkpointer, Opened, Redo},
    store::{Protection, Space, Superblock},
};

/// An open database without its transactions.
pub(crate) struct Core {
    pub settings: Settings,
    pub superblock: Superblock,
    pub pool: BufferPool,
    pub space: Space,
    pub catalog: Catalog,
    /// What recovery did.
    pub redo: Redo,
    pub data_capabilities: Capabilities,
    pub barriers: Arc<BarrierPolicy>,
    pub log_devices: Arc<LogDevices>,
    is_closed: AtomicBool,
    tasks: Mutex<Option<Tasks>>,
    /// What else is to end with the database, before its tasks.
    companions: Mutex<Vec<Box<dyn Send>>>,
    _directory: Option<Directory>,
}

/// The tasks in the background, in the order in which they stop.
struct Tasks {
    _checkpointer: Checkpointer,
    /// None where whoever reads a page cleans.
    _cleaner: Option<Cleaner>,
}

impl Core {
    /// Starts the database's tasks and reads its catalog.
    pub fn start(
        settings: Settings,
        superblock: Superblock,
        opened: Opened,
        devices: &Devices,
        log_devices: LogDevices,
        barriers: Arc<BarrierPolicy>,
        directory: Option<Directory>,
    ) -> Result<Self> {
        let Opened { pool, space, redo } = opened;
        // First: reading the catalog may change it, which needs clean frames and log space.
        let log_devices = Arc::new(log_devices);
        let record = {
            let log_devices = Arc::clone(&log_devices);
            move |stats: &LogStats| log_devices.follow(stats)
        };
        let cleaner = (settings.page_cleaning() == PageCleaning::Ahead).then(|| Cleaner::start(&pool));
        let tasks = Tasks { _checkpointer: Checkpointer::start(&pool, &redo, record), _cleaner: cleaner };
        let catalog = Catalog::open(&pool, &space)?;
        let core = Self {
            settings,
            superblock,
            pool,
            space,
            catalog,
            redo,
            data_capabilities: devices.data.capabilities(),
            barriers,
            log_devices,
            is_closed: AtomicBool::new(false),
            tasks: Mutex::new(Some(tasks)),
            companions: Mutex::default(),
            _directory: directory,
        };
        core.on_users_word().iter().for_each(|trusted| tracing::warn!("{trusted}"));
        Ok(core)
    }

    pub fn log(&self) -> &Log {
        self.pool.log()
    }

    /// What is trusted against what the devices say, a sentence each.
    pub fn on_users_word(&self) -> Vec<String> {
        let (page, atomic) = (self.superblock.page_size, self.data_capabilities.atomic_write_bytes);
        let is_torn =
            self.superblock.protection == Protection::Device && !self.data_capabilities.writes_atomically(page);
        let torn = is_torn.then(|| {
            let data = self.pool.store().name();
            format!(
                "torn_page_protection = trust-device: {data} writes {atomic} bytes atomically as far as it says, a page has {page}; a \
                 power cut may damage pages"
            )
        });
        let trusted = self.barriers.summary().trusted.into_iter().map(|device| {
            format!("barriers = trust-device: {device} is never flushed; a power cut may cost acknowledged commits and damage pages")
        });
        torn.into_iter().chain(trusted).collect()
    }

    /// # Errors
    /// [`Error::Closed`] after [`close`](Self::close).
    pub fn check_open(&self) -> Result<()> {
        if self.is_closed.load(Ordering::Acquire) { Err(Error::Closed) } else { Ok(()) }
    }

    /// Has `companion` dropped when the database is closed.
    pub fn keep(&self, companion: impl Send + 'static) {
        self.companions.lock().push(Box::new(companion));
    }

    /// Stores everything and ends the log cleanly, once.
    pub fn close(&self) -> Result<()> {
        let mut tasks = self.tasks.lock();
        let Some(tasks) = tasks.take() else { return Ok(()) };
        self.is_closed.store(true, Ordering::Release);
        drop(std::mem::take(&mut *self.companions.lock()));
        drop(tasks);
        let stored = self.pool.checkpoint().map(|_| self.pool.store().close());
        self.log().close()?;
        stored
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        // A panic may have left pages half changed in memory; the log alone is trusted then.
        if tantalum_rt::panicking() {
            return;
        }
        if let Err(error) = self.close() {
            tracing::error!(%error, "the database could not be closed cleanly; the next open recovers it");
        }
    }
}
