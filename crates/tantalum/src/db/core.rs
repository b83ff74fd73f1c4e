//! What an open database consists of below its transactions, and how it ends.
//!
//! Invariants:
//! - the tasks in the background stop before the log is closed, and after all operations that may need them
//! - the directory stays locked until nothing is written to the database's devices any more

use std::sync::Arc;

use tantalum_device::Capabilities;
use tantalum_log::{Log, LogStats};
use tantalum_rt::Mutex;
use tantalum_store::{Protection, Superblock};

use super::{
    Devices,
    barriers::BarrierPolicy,
    catalog::Catalog,
    files::Directory,
    log_devices::{LogDevices, LogGrower},
    operations::{Operation, Operations},
};
use crate::{
    buffer::{BufferPool, Cleaner, PageCleaning},
    error::{self, Error, Result},
    options::Settings,
    recovery::{Checkpointer, Opened, RecoveryStats},
    space::{Grower, Space},
};

/// An open database without its transactions.
pub(crate) struct Core {
    pub settings: Settings,
    pub superblock: Superblock,
    pub pool: BufferPool,
    pub space: Space,
    pub catalog: Catalog,
    /// What recovery did.
    pub redo: RecoveryStats,
    pub data_capabilities: Capabilities,
    pub barriers: Arc<BarrierPolicy>,
    /// Nothing is changed but by recovery, in memory.
    pub is_read_only: bool,
    pub log_devices: Arc<LogDevices>,
    pub operations: Operations,
    /// Held by the task that checks the database.
    pub checks: Mutex<()>,
    tasks: Mutex<Option<Tasks>>,
    /// What else is to end with the database, before its tasks.
    companions: Mutex<Vec<Box<dyn Send>>>,
    /// Locked until the database is closed.
    directory: Mutex<Option<Directory>>,
}

/// What is particular to an opening.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CoreKind {
    /// Nothing is changed but by recovery, in memory.
    pub is_read_only: bool,
    /// A copy that is to be small.
    pub is_copy: bool,
}

/// The tasks in the background, in the order in which they stop.
struct Tasks {
    /// None where the log has its size.
    _log_grower: Option<LogGrower>,
    _checkpointer: Checkpointer,
    _grower: Grower,
    /// None where the task that reads a page cleans.
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
        CoreKind { is_read_only, is_copy }: CoreKind,
        directory: Option<Directory>,
    ) -> Result<Self> {
        let Opened { pool, space, redo } = opened;
        // First: reading the catalog may change it, which needs clean frames and log space.
        let log_devices = Arc::new(log_devices);
        let record = {
            let log_devices = Arc::clone(&log_devices);
            move |stats: &LogStats| log_devices.follow(stats)
        };
        let checkpointer = Checkpointer::start(&pool, redo.has_applied() && !is_read_only, record);
        let cleaner = (settings.page_cleaning() == PageCleaning::Ahead).then(|| Cleaner::start(&pool));
        let tasks = Tasks {
            // It waits for checkpoints.
            _log_grower: LogGrower::start(&log_devices, &pool, is_copy),
            _checkpointer: checkpointer,
            _grower: Grower::start(&space),
            _cleaner: cleaner,
        };
        let catalog = Catalog::open(&pool, &space)?;
        let core = Self {
            settings,
            superblock,
            pool,
            space,
            catalog,
            redo,
            data_capabilities: devices.data.capabilities(),
            barriers: Arc::clone(&log_devices.barriers),
            is_read_only,
            log_devices,
            operations: Operations::default(),
            checks: Mutex::default(),
            tasks: Mutex::new(Some(tasks)),
            companions: Mutex::default(),
            directory: Mutex::new(directory),
        };
        core.trusted_by_setting().iter().for_each(|trusted| tantalum_rt::tracing::warn!("{trusted}"));
        Ok(core)
    }

    pub fn log(&self) -> &Log {
        self.pool.log()
    }

    /// What is trusted against what the devices say, a sentence each.
    pub fn trusted_by_setting(&self) -> Vec<String> {
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
    /// [`Closed`](crate::ErrorKind::Closed) after [`close`](Self::close), and the cause when a panic has stopped the database.
    pub fn check_open(&self) -> Result<()> {
        self.check_not_closed()?;
        self.pool.check_poison()
    }

    /// As [`check_open`](Self::check_open), for what needs no pages.
    ///
    /// # Errors
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn check_not_closed(&self) -> Result<()> {
        self.operations.check_open()
    }

    /// Begins an operation that changes something; it ends when what is returned is dropped.
    ///
    /// # Errors
    /// As [`check_open`](Self::check_open); [`ReadOnly`](crate::ErrorKind::ReadOnly).
    pub fn begin_operation(&self) -> Result<Operation<'_>> {
        self.pool.check_poison()?;
        self.check_writable()?;
        self.operations.begin()
    }

    /// # Errors
    /// [`ReadOnly`](crate::ErrorKind::ReadOnly).
    pub fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(error::read_only()) } else { Ok(()) }
    }

    /// What was read, unless the database was closed meanwhile: its devices may be in use by another then.
    pub fn if_open<T, E: Into<Error>>(&self, read: Result<T, E>) -> Result<T> {
        self.check_open()?;
        read.map_err(E::into)
    }

    /// Gives back what the log has grown by: a file of the size with which logs begin takes its place. Returns how many bytes; 0 where
    /// nothing was to be done, or could not: see [`LogDevices::shrink`].
    ///
    /// # Errors
    /// When a page or the log cannot be written, or the smaller file cannot be made: the log stays as it is, or has both files until
    /// the next try or open. [`ReadOnly`](crate::ErrorKind::ReadOnly), [`Closed`](crate::ErrorKind::Closed).
    pub fn shrink_log(&self) -> Result<u64> {
        let _operation = self.begin_operation()?;
        // A large record waits while the log waits for a checkpoint: so that has little to do then.
        self.pool.checkpoint()?;
        self.log_devices.shrink(self.log())
    }

    /// Has `companion` dropped when the database is closed.
    pub fn keep(&self, companion: impl Send + 'static) {
        self.companions.lock().push(Box::new(companion));
    }

    /// Drops all companions, and those that they had kept meanwhile: a task that one of them waits for may start another.
    fn drop_companions(&self) {
        loop {
            // The lock is not held while one waits for its task.
            let companions = std::mem::take(&mut *self.companions.lock());
            if companions.is_empty() {
                return;
            }
        }
    }

    /// Refuses new operations, waits for those under way, stores everything and ends the log cleanly, once.
    ///
    /// # Errors
    /// When pages cannot be stored, or the log cannot be ended; where both fail, the kind is that of the first. The database is
    /// closed all the same.
    pub fn close(&self) -> Result<()> {
        let mut tasks = self.tasks.lock();
        let Some(tasks) = tasks.take() else { return Ok(()) };
        // Before the tasks stop: a commit may wait for room in the log, or for a clean frame.
        self.operations.close();
        self.drop_companions();
        drop(tasks);
        // What was changed goes with the devices' overlays.
        let stored = if self.is_read_only { Ok(()) } else { self.pool.checkpoint().map(drop) };
        // A read that has begun before may evict a page that could not be stored.
        self.pool.end_stores();
        self.pool.store().close();
        let ended = self.log().close();
        drop(self.directory.lock().take());
        match (stored, ended) {
            (Ok(()), ended) => ended,
            (Err(stored), Ok(())) => Err(stored),
            (Err(stored), Err(log)) => {
                let what = format!(
                    "the database could not be closed cleanly: not all pages could be stored: {stored}; and the log could not be \
                     ended: {log}; the next open recovers it"
                );
                Err(Error::new(stored.kind(), what).with_source(stored))
            }
        }
    }

    /// Ends the database as a crash would: nothing more is stored, and the next open recovers it. The directory stays locked
    /// until the last reference to this `Core` is dropped.
    pub fn abandon(&self) {
        self.operations.refuse();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use tantalum_device::{Device, MemoryDevice};
    use tantalum_rt::{Simulation, spawn};

    use super::*;
    use crate::Db;

    /// Waits, when it is dropped, for a task of the database that starts a further one.
    struct StartsAnother(Db, Arc<AtomicBool>);

    struct Further(Arc<AtomicBool>);

    impl Drop for StartsAnother {
        fn drop(&mut self) {
            let (db, is_dropped) = (self.0.clone(), Arc::clone(&self.1));
            spawn("further", move || db.core().keep(Further(is_dropped))).join().unwrap();
        }
    }

    impl Drop for Further {
        fn drop(&mut self) {
            self.0.store(true, Ordering::SeqCst);
        }
    }

    #[test]
    fn a_task_that_is_started_while_the_database_closes_is_stopped_too() {
        let run = || {
            let data: Arc<dyn Device> = MemoryDevice::new("data", 1 << 20);
            let double_write: Arc<dyn Device> = MemoryDevice::new("area", 1 << 20);
            let log: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("log", 2 << 20)];
            let devices = Devices { data, double_write: Some(double_write), log };
            let db = Db::builder().buffer_pool_bytes(64 * 4096).open_on(devices).unwrap();
            let is_dropped = Arc::new(AtomicBool::new(false));
            db.keep(StartsAnother(db.clone(), Arc::clone(&is_dropped)));
            db.close().unwrap();
            assert!(is_dropped.load(Ordering::SeqCst));
        };
        Simulation::new(0).run(run).expect_finished();
    }
}
