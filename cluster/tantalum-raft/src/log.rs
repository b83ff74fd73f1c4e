//! The log's handle: creating, opening and closing it, and waiting for it.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tantalum_device::Device;
use tantalum_log::{Error, ErrorKind, Log, LogOptions, LogReader, LogStats, Lsn, Result, SpaceRequest};
use tantalum_rt::{JoinHandle, Mutex, spawn, task_name};

use crate::cache::Cache;
use crate::group::{Group, GroupCell};
use crate::notifier::Notifier;
use crate::record::ENTRY_HEAD_BYTES;
use crate::replay::replay;
use crate::rewrite::Rewriter;

/// The log lies in so many sections, if its devices are large enough: the space that is lost at their ends is then small.
const SECTIONS: u64 = 32;
const SECTION_BYTES: (u64, u64) = (64 << 10, 16 << 20);
/// The smallest device of a raft log.
const MIN_DEVICE_BYTES: u64 = 1 << 20;
/// What a request takes beyond its records, at most.
const REQUEST_OVERHEAD: u64 = 4192;

/// Options of [`RaftLog::create`] and [`RaftLog::open`].
///
/// ```
/// let options = tantalum_raft::RaftLogOptions { cache_bytes: 1 << 20, ..Default::default() };
/// assert_eq!(options.log.copies, 1);
/// ```
#[derive(Clone, Debug)]
pub struct RaftLogOptions {
    /// Those of the log below, as its copies and the hang time-out. By default, its sections are a 32nd of the smallest device.
    pub log: LogOptions,
    /// Bytes of the newest entries that are kept in memory, of all groups together. What is not durable yet is kept beyond it. Default
    /// 64 MiB.
    pub cache_bytes: usize,
}

impl Default for RaftLogOptions {
    fn default() -> RaftLogOptions {
        RaftLogOptions { log: LogOptions::default(), cache_bytes: 64 << 20 }
    }
}

/// The raft logs of any number of groups, in one flash log. Clones are handles to the same log, as are its [`Group`]s; all methods may
/// be called by many tasks at once.
///
/// When the last handle is dropped without [`close`](Self::close), the log stops as in a crash: what was flushed is safe, the rest may
/// or may not be there when it is opened again.
///
/// ```
/// use std::sync::Arc;
/// use tantalum_device::{Device, MemoryDevice};
/// use tantalum_raft::{Entry, RaftLog, RaftLogOptions};
///
/// let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("raft", 4 << 20)];
/// RaftLog::create(devices.clone(), &RaftLogOptions::default())?;
/// let log = RaftLog::open(devices.clone(), &RaftLogOptions::default())?;
/// let end = log.group(7).append(&[Entry::new(1, 1, *b"an entry")])?;
/// log.flush(end)?; // durable now
/// drop(log);
///
/// let log = RaftLog::open(devices, &RaftLogOptions::default())?;
/// assert_eq!(log.group(7).entries(1..2, usize::MAX)?, [Entry::new(1, 1, *b"an entry")]);
/// # Ok::<(), tantalum_raft::Error>(())
/// ```
#[derive(Clone)]
pub struct RaftLog {
    pub(crate) inner: Arc<Inner>,
}

/// What the last handle's drop ends.
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    name: String,
    tasks: Mutex<Vec<JoinHandle<()>>>,
}

/// What handles and tasks share.
pub(crate) struct Shared {
    pub(crate) log: Log,
    pub(crate) groups: Mutex<BTreeMap<u64, Arc<GroupCell>>>,
    pub(crate) cache: Cache,
    /// Readers of the log that no task uses.
    pub(crate) readers: Mutex<Vec<LogReader>>,
    pub(crate) notifier: Notifier,
    pub(crate) rewriter: Rewriter,
    pub(crate) live: Live,
}

/// How much of the log is needed, in bytes of records.
#[derive(Default)]
pub(crate) struct Live {
    bytes: AtomicU64,
    /// Entries may take it up to here; states of groups an eighth more.
    limit: AtomicU64,
}

/// Counters and positions of a raft log.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_raft::{RaftLog, RaftLogOptions};
/// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("raft", 4 << 20)];
/// # RaftLog::create(devices.clone(), &RaftLogOptions::default())?;
/// let log = RaftLog::open(devices, &RaftLogOptions::default())?;
/// let stats = log.stats();
/// assert!(stats.live_bytes < stats.live_limit_bytes && stats.groups == 0);
/// # Ok::<(), tantalum_raft::Error>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RaftLogStats {
    /// Groups that have a vote or entries.
    pub groups: u64,
    /// Bytes of the records that are needed: entries that were neither purged nor truncated, and the state of each group.
    pub live_bytes: u64,
    /// So many such bytes may be needed before [`Group::append`] finds the log full. It follows the devices.
    pub live_limit_bytes: u64,
    /// Records, and bytes of them, that were appended again so that a checkpoint could pass them.
    pub rewritten: (u64, u64),
    /// Those of the log below.
    pub log: LogStats,
}

static OPENED: AtomicU64 = AtomicU64::new(0);

impl RaftLog {
    /// Formats `devices`, of 1 MiB or more each, as a new, empty log. Everything on them is lost; the log is durable when this returns.
    ///
    /// # Errors
    /// [`InvalidInput`](ErrorKind::InvalidInput) for options and devices that do not suit, or a device's own error.
    pub fn create(devices: Vec<Arc<dyn Device>>, options: &RaftLogOptions) -> Result<()> {
        check(options)?;
        if let Some(small) = devices.iter().find(|device| device.capacity_bytes() < MIN_DEVICE_BYTES) {
            let what = format!(
                "{}: {} bytes are too few for a raft log, which needs {MIN_DEVICE_BYTES} on each device; enlarge it",
                small.name(),
                small.capacity_bytes()
            );
            return Err(Error::new(ErrorKind::InvalidInput, what));
        }
        let smallest = devices.iter().map(|device| device.capacity_bytes()).min().unwrap_or(0);
        let section = (smallest / SECTIONS / 4096 * 4096).clamp(SECTION_BYTES.0, SECTION_BYTES.1);
        let mut log = options.log.clone();
        log.section_bytes.get_or_insert(section as u32);
        let id = u128::from(tantalum_rt::random_seed()) << 64 | u128::from(tantalum_rt::random_seed());
        Log::create(id, devices, log)
    }

    /// Opens the log on its devices, given in any order, and reads all of its records behind the checkpoint to find the groups.
    ///
    /// No write of an earlier session may still be under way: a process that ended, or a log whose handles are all dropped.
    ///
    /// # Errors
    /// Those of [`Log::open`] for devices that are foreign, missing, damaged; [`Corrupt`](ErrorKind::Corrupt) with the position if the
    /// records are none of a raft log, contradict each other, or if entries are missing;
    /// [`Unsupported`](ErrorKind::Unsupported) if another version wrote them. Nothing is changed then.
    pub fn open(devices: Vec<Arc<dyn Device>>, options: &RaftLogOptions) -> Result<RaftLog> {
        check(options)?;
        let mut recovery = Log::open(devices, options.log.clone(), &mut |_| {})?;
        let (groups, live_bytes) = replay(&mut recovery)?;
        let log = recovery.finish()?;
        let groups = groups.into_iter().map(|(id, state)| (id, Arc::new(GroupCell::new(id, state)))).collect();
        let shared = Arc::new(Shared {
            groups: Mutex::new(groups),
            cache: Cache::new(options.cache_bytes),
            readers: Mutex::default(),
            notifier: Notifier::default(),
            rewriter: Rewriter::default(),
            live: Live { bytes: AtomicU64::new(live_bytes), limit: AtomicU64::new(0) },
            log,
        });
        shared.divide_space();
        let n = OPENED.fetch_add(1, Ordering::Relaxed);
        let name = format!("raft-log-{n}-");
        let start = |what: &str, run: fn(&Shared)| {
            let shared = Arc::clone(&shared);
            spawn(format!("{name}{what}"), move || run(&shared))
        };
        let tasks = vec![
            start("rewriter", |shared| shared.run_rewriter()),
            start("notifier", |shared| shared.notifier.run(&shared.log)),
        ];
        Ok(RaftLog { inner: Arc::new(Inner { shared, name, tasks: Mutex::new(tasks) }) })
    }

    /// The group with this number, which need not have been used before. Nothing is written.
    pub fn group(&self, id: u64) -> Group {
        let mut groups = self.shared().groups.lock();
        let cell = groups.entry(id).or_insert_with(|| Arc::new(GroupCell::new(id, Default::default())));
        Group { log: self.clone(), cell: Arc::clone(cell) }
    }

    /// The numbers of all groups that have a vote or entries, in order.
    pub fn groups(&self) -> Vec<u64> {
        let cells: Vec<_> = self.shared().groups.lock().values().cloned().collect();
        cells.iter().filter(|cell| cell.exists()).map(|cell| cell.id).collect()
    }

    /// Blocks until everything before `lsn` is durable: it survives a power cut. Concurrent callers share writes.
    ///
    /// # Errors
    /// [`Poisoned`](ErrorKind::Poisoned) if no device is left to write to: open the log again to see what it has.
    pub fn flush(&self, lsn: Lsn) -> Result<()> {
        self.shared().log.flush(lsn)
    }

    /// Has everything before `lsn` written, and calls `call` once when it is durable or the log has failed: from a task that does so
    /// for all of the log, in the order of the positions, or from this one if it is known now. It should not take long, since the others
    /// wait meanwhile; a panic of it in that task is caught.
    ///
    /// ```
    /// # use std::sync::{Arc, mpsc};
    /// # use tantalum_device::{Device, MemoryDevice};
    /// # use tantalum_raft::{Entry, RaftLog, RaftLogOptions};
    /// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("raft", 4 << 20)];
    /// # RaftLog::create(devices.clone(), &RaftLogOptions::default())?;
    /// let log = RaftLog::open(devices, &RaftLogOptions::default())?;
    /// let (durable, outcomes) = mpsc::channel();
    /// let end = log.group(1).append(&[Entry::new(1, 1, *b"an entry")])?;
    /// log.on_durable(end, move |outcome| durable.send(outcome.is_ok()).unwrap_or_default());
    /// assert_eq!(outcomes.iter().next(), Some(true));
    /// # Ok::<(), tantalum_raft::Error>(())
    /// ```
    pub fn on_durable(&self, lsn: Lsn, call: impl FnOnce(Result<()>) + Send + 'static) {
        let shared = self.shared();
        shared.notifier.add(&shared.log, lsn, Box::new(call));
    }

    /// The largest entry in bytes.
    pub fn max_entry_bytes(&self) -> usize {
        let shared = self.shared();
        let of_live = shared.live.limit() / 4;
        (shared.log.max_record_bytes() - ENTRY_HEAD_BYTES).min(of_live as usize)
    }

    /// Counters and positions.
    pub fn stats(&self) -> RaftLogStats {
        let shared = self.shared();
        RaftLogStats {
            groups: self.groups().len() as u64,
            live_bytes: shared.live.bytes.load(Ordering::Relaxed),
            live_limit_bytes: shared.live.limit(),
            rewritten: shared.rewriter.rewritten(),
            log: shared.log.stats(),
        }
    }

    /// Makes everything durable, records that the log ended here, and ends its tasks. Later appends get
    /// [`Closed`](ErrorKind::Closed).
    ///
    /// # Errors
    /// [`Poisoned`](ErrorKind::Poisoned), or the error of a device.
    pub fn close(&self) -> Result<()> {
        self.shared().rewriter.end(&self.shared().log);
        let closed = self.shared().log.close();
        self.inner.end_tasks();
        closed
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }
}

fn check(options: &RaftLogOptions) -> Result<()> {
    if options.log.grown_bytes.is_empty() {
        return Ok(());
    }
    let what = "a raft log does not put larger devices in the place of its own (grown_bytes); give it larger ones";
    Err(Error::new(ErrorKind::InvalidInput, what))
}

impl Inner {
    fn end_tasks(&self) {
        self.shared.rewriter.end(&self.shared.log);
        self.shared.notifier.end();
        let tasks = std::mem::take(&mut *self.tasks.lock());
        // A call of the notifier may let go of the last handle: then that task ends behind it.
        if !task_name().starts_with(&self.name) {
            for task in tasks {
                // Panics were reported by the hook.
                drop(task.join());
            }
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end_tasks();
    }
}

impl Shared {
    /// Divides what the log takes: a quarter for what is needed, packed as rewriting packs it, a quarter to rewrite it, and the rest
    /// for what is appended meanwhile, with the ends of sections that cannot be used.
    pub(crate) fn divide_space(&self) {
        let quarter = self.log.capacity() / 4;
        self.log.keep_for_relief(quarter);
        let request = self.log.max_record_bytes() as u64;
        // Any two requests that follow each other hold more than the largest one does.
        let packed =
            |bytes: u64| (u128::from(bytes) * u128::from(request) / u128::from(request + 2 * REQUEST_OVERHEAD)) as u64;
        self.live.limit.store(packed(quarter.saturating_sub(8 * REQUEST_OVERHEAD)), Ordering::Relaxed);
    }

    /// Blocks until there is space for `needed` bytes of the log, or its part that can be had at once.
    ///
    /// # Errors
    /// Why what is needed could not be rewritten, if no space comes for that.
    pub(crate) fn wait_for_space(&self, needed: u64) -> Result<SpaceRequest> {
        let space = self.log.request_space(needed)?;
        while !space.wait(crate::rewrite::RETRY)? {
            self.rewriter.check()?;
        }
        Ok(space)
    }
}

impl Live {
    fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed) / 8 * 7
    }

    /// Adds what entries will take.
    ///
    /// # Errors
    /// [`LogFull`](ErrorKind::LogFull), and nothing is added.
    pub(crate) fn add_entries(&self, bytes: u64) -> Result<()> {
        self.add_up_to(bytes, self.limit(), "entries")
    }

    /// Adds what the state of a group takes more than before.
    ///
    /// # Errors
    /// [`LogFull`](ErrorKind::LogFull), and nothing is added.
    pub(crate) fn add_state(&self, bytes: u64) -> Result<()> {
        self.add_up_to(bytes, self.limit.load(Ordering::Relaxed), "states of groups")
    }

    fn add_up_to(&self, bytes: u64, limit: u64, what: &str) -> Result<()> {
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if bytes == 0 || before.saturating_add(bytes) <= limit {
            return Ok(());
        }
        self.sub(bytes);
        let what = format!(
            "the raft log is full: {before} bytes of its records are needed, and {bytes} more of {what} would exceed {limit}; purge entries that snapshots cover, remove groups, or use larger devices"
        );
        Err(Error::new(ErrorKind::LogFull, what))
    }

    pub(crate) fn sub(&self, bytes: u64) {
        let before = self.bytes.fetch_sub(bytes, Ordering::Relaxed);
        assert!(before >= bytes, "what is not needed any more was counted");
    }
}

impl fmt::Debug for RaftLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RaftLog").field("log", &self.shared().log).finish_non_exhaustive()
    }
}
