//! The logs of FlashLogging's experiments: their devices, how they are written, and what the original server's mutex costs.

use std::{collections::BTreeMap, sync::Arc};

use tantalum::{Builder, LogHiding};
use tantalum_device::{Device, Durability, Ending, Partition, Request, RequestKind, RequestObserver};
use tantalum_flash::{EmulatedDevice, Kind, Profile, ssd::CacheMode};
use tantalum_log::{ArchiveOptions, LogLayout, LogOptions};
use tantalum_rt::{Condvar, Mutex};

use super::{in_use, page_cache::PageCache};
use crate::{
    error::Result,
    micro::{self, Data},
};

/// A log: what it lies on, and how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct LogSetup {
    /// The profile of each drive.
    pub profile: &'static str,
    /// Drives.
    pub drives: u32,
    /// Partitions of each.
    pub partitions: u32,
    /// How the log lies on them.
    pub layout: LogLayout,
    /// What happens to late writes.
    pub hiding: LogHiding,
    /// Whether the log is created with hiding areas, if it hides. A drive without one takes a late request only if it has not
    /// taken a newer one: naive hiding, which the paper compares with.
    pub has_hiding_areas: bool,
    /// Whether it is archived on a disk.
    pub has_archive: bool,
    /// How it is written.
    pub writer: Writer,
    /// On how many devices a request must be durable before it counts.
    pub copies: u8,
}

/// How a log is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Writer {
    /// MySQL 5.0: to a file, with a mutex held that every change needs.
    Original,
    /// FlashLogging as in the paper: each commit that finds its records in no request yet makes one of its own, and
    /// requests wait for a device one after the other (section 3.5, Figure 8).
    Paper,
    /// Tantalum: what commits while no device is free shares the next request.
    Ours,
}

/// Of the log, as in the paper.
const LOG_BYTES: u64 = 900 << 20;

/// A block of the log, as in the paper (section 3.5).
const LOG_BLOCK_BYTES: u32 = 512;

/// Capacity of a USB drive: no more than the log needs. A smaller one behaves the same.
const USB_BYTES: u64 = 1 << 30;

/// The disk of the archive, and how much of it is used.
const ARCHIVE: (&str, u64) = ("hdd-10k", 4 << 30);

/// What a log lies on.
pub(crate) struct Built {
    pub devices: Vec<Arc<dyn Device>>,
    pub archive: Option<Arc<dyn Device>>,
}

impl LogSetup {
    /// The original server's log, a file on one drive: each write begins with the block in which the last one ended, and is made
    /// with the log's mutex held.
    pub const fn original(profile: &'static str) -> Self {
        let writer = Writer::Original;
        Self { writer, layout: LogLayout::Single, ..Self::paper(profile, 1) }
    }

    /// The paper's, on so many drives, without hiding and without an archive.
    pub const fn paper(profile: &'static str, drives: u32) -> Self {
        Self {
            profile,
            drives,
            partitions: 1,
            layout: LogLayout::FlashLogging,
            hiding: LogHiding::Off,
            has_hiding_areas: true,
            has_archive: false,
            writer: Writer::Paper,
            copies: 1,
        }
    }

    /// Tantalum's, on so many drives, as it is by default.
    pub const fn ours(profile: &'static str, drives: u32) -> Self {
        Self { hiding: LogHiding::On, writer: Writer::Ours, ..Self::paper(profile, drives) }
    }

    /// The same, each drive in so many partitions.
    pub const fn in_partitions(self, partitions: u32) -> Self {
        Self { partitions, ..self }
    }

    /// The same, in this layout.
    pub const fn with_layout(self, layout: LogLayout) -> Self {
        Self { layout, ..self }
    }

    /// The same, with late writes treated so.
    pub const fn with_hiding(self, hiding: LogHiding) -> Self {
        Self { hiding, ..self }
    }

    /// The same, created without hiding areas.
    pub const fn without_hiding_areas(self) -> Self {
        Self { has_hiding_areas: false, ..self }
    }

    /// The same, with an archival disk.
    pub const fn with_archive(self) -> Self {
        Self { has_archive: true, ..self }
    }

    /// The same, with each request on two devices.
    pub const fn mirrored(self) -> Self {
        Self { copies: 2, ..self }
    }

    /// What the log is created with.
    pub fn options_at_creation(&self, archive: Option<&Arc<dyn Device>>) -> LogOptions {
        let hiding = if self.has_hiding_areas { self.hiding } else { LogHiding::Off };
        LogOptions { hiding: hiding.into(), ..self.options(archive) }
    }

    /// What the log is opened with.
    pub fn options(&self, archive: Option<&Arc<dyn Device>>) -> LogOptions {
        LogOptions {
            layout: self.layout,
            block_bytes: Some(self.block_bytes()),
            hiding: self.hiding.into(),
            request_per_flush: self.writer == Writer::Paper,
            group_commit_delay: false,
            archive: archive.map(|disk| ArchiveOptions::on_device(Arc::clone(disk))),
            copies: self.copies,
            ..LogOptions::default()
        }
    }

    /// The paper's, or the drive's if that is larger.
    fn block_bytes(&self) -> u32 {
        match Profile::named(self.profile).map(|profile| profile.device) {
            Ok(Kind::SolidState(drive)) => LOG_BLOCK_BYTES.max(drive.interface.logical_block),
            _ => LOG_BLOCK_BYTES,
        }
    }

    /// The same, for a server that opens a log which was created before.
    pub fn on_server(&self, server: Builder, archive: Option<&Arc<dyn Device>>) -> Builder {
        let server =
            server.expert(|expert| expert.log_hiding(self.hiding).log_request_per_flush(self.writer == Writer::Paper));
        let server = server.log_copies(self.copies);
        match archive {
            Some(disk) => server.expert(|expert| expert.log_archive_on(Arc::clone(disk))),
            None => server,
        }
    }

    /// New devices, in use: written once before.
    pub fn build(&self) -> Result<Built> {
        let mut devices = Vec::new();
        for number in 0..self.drives {
            devices.extend(self.drive(number)?);
        }
        let archive = || -> Result<Arc<dyn Device>> {
            let (name, bytes) = ARCHIVE;
            Ok(EmulatedDevice::new("archive", Profile::named(name)?.with_capacity(bytes).build()?))
        };
        Ok(Built { devices, archive: self.has_archive.then(archive).transpose()? })
    }

    /// The partitions of a new drive. No two drives are alike in what chance decides; one whose number is that of none of
    /// the log's is there to take the place of another.
    pub fn drive(&self, number: u32) -> Result<Vec<Arc<dyn Device>>> {
        let mut profile = in_use(Profile::named(self.profile)?);
        match &mut profile.device {
            Kind::UsbDrive(drive) => drive.ftl.seed = drive.ftl.seed.wrapping_add(number.into()),
            Kind::CloudVolume(volume) => volume.seed = volume.seed.wrapping_add(number.into()),
            // "The write caches of the logging devices are disabled" (section 5.1): those that power failures empty.
            Kind::SolidState(drive) if drive.capacitors.is_none() => drive.cache.mode = CacheMode::WriteThrough,
            _ => {}
        }
        let is_solid_state = matches!(profile.device, Kind::SolidState(_));
        if matches!(profile.device, Kind::UsbDrive(_)) {
            profile = profile.with_capacity(USB_BYTES);
        }
        let drive: Arc<dyn Device> = EmulatedDevice::new(self.profile, profile.build()?);
        let bytes = LOG_BYTES / u64::from(self.drives);
        if is_solid_state {
            micro::fill(&drive, 0..bytes, Data::Zeros, &|_| ())?;
        }
        let area: Arc<dyn Device> = Arc::new(Partition::new(drive, 0..bytes)?);
        let area = if self.writer == Writer::Original { PageCache::over(area) } else { area };
        if self.partitions == 1 {
            return Ok(vec![area]);
        }
        let parts = Partition::split(area, self.partitions as usize)?;
        Ok(parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Device>).collect())
    }
}

/// The original server's log mutex, held while the log is written.
///
/// InnoDB 5.0 writes its log with the log's mutex held (`log_write_up_to`), for as long as the device takes where the log
/// is opened for synchronous writes, as in the paper (sections 2.1 and 5.1). Every change of a page needs the same mutex to
/// append its record: while the log is written, threads that change pages wait. That is why so few transactions
/// share a write there (Figure 2). A thread gets the mutex in the order in which it asked.
#[derive(Debug, Default)]
pub(super) struct LogMutex {
    is_held: Mutex<bool>,
    released: Condvar,
    inside: Inside,
}

/// The threads inside InnoDB: at most 8 at a time (`innodb_thread_concurrency`, whose default that is from MySQL 5.0.21 on), others
/// wait first come, first served. A thread is not inside while it waits for a row lock or for the log at its commit
/// (`innobase_commit` leaves first), but while it waits for the log's mutex. Here a thread enters anew for each call, not for
/// each 500. With the paper's log no thread inside waits for anything but the processor, which has fewer threads: nothing changes.
#[derive(Debug, Default)]
struct Inside {
    threads: Mutex<Threads>,
    left: Condvar,
}

#[derive(Debug, Default)]
struct Threads {
    inside: usize,
    waiting: usize,
}

impl Inside {
    const MOST: usize = 8;

    fn enter(&self) {
        let mut threads = self.threads.lock();
        if threads.inside < Self::MOST {
            threads.inside += 1;
        } else {
            // A thread that leaves hands its place over.
            threads.waiting += 1;
            self.left.wait(&mut threads);
        }
    }

    fn leave(&self) {
        let mut threads = self.threads.lock();
        if threads.waiting > 0 {
            threads.waiting -= 1;
            self.left.notify_one();
        } else {
            threads.inside -= 1;
        }
    }
}

impl LogMutex {
    /// Takes the mutex for a write.
    pub fn acquire(&self) {
        self.pass_and(|is_held| *is_held = true);
    }

    /// Gives it back.
    pub fn release(&self) {
        *self.is_held.lock() = false;
        self.released.notify_all();
    }

    /// A call of a client to InnoDB: `work`, and if it `changes` pages, an append to the log.
    pub fn call(&self, changes: bool, work: impl FnOnce()) {
        self.inside.enter();
        work();
        if changes {
            self.pass();
        }
        self.inside.leave();
    }

    /// Waits until the mutex is free: takes it for an instant.
    fn pass(&self) {
        self.pass_and(|_| ());
    }

    fn pass_and(&self, then: impl FnOnce(&mut bool)) {
        let mut is_held = self.is_held.lock();
        while *is_held {
            self.released.wait(&mut is_held);
        }
        then(&mut is_held);
    }
}

/// How many writes there were of each size in bytes.
pub(crate) type FlushSizes = BTreeMap<u64, u64>;

/// Counts durable writes, and has them hold the original server's log mutex.
#[derive(Debug)]
pub(super) struct FlushMeter {
    mutex: Option<Arc<LogMutex>>,
    sizes: Mutex<FlushSizes>,
}

/// Of requests during which the mutex is held, and of others.
const HOLDING: u64 = 1;
const FREE: u64 = 0;

impl FlushMeter {
    pub fn new(mutex: Option<Arc<LogMutex>>) -> Self {
        Self { mutex, sizes: Mutex::default() }
    }

    /// The writes since the last call.
    pub fn take(&self) -> FlushSizes {
        std::mem::take(&mut *self.sizes.lock())
    }
}

impl RequestObserver for FlushMeter {
    fn began(&self, request: Request) -> u64 {
        self.submitted(request);
        match &self.mutex {
            Some(mutex) if request.kind == RequestKind::Write(Durability::Durable) => {
                mutex.acquire();
                HOLDING
            }
            _ => FREE,
        }
    }

    /// The original server submits its checkpoints only, for which it does not hold the mutex: a log on one piece of hardware
    /// writes requests in the blocking call.
    fn submitted(&self, request: Request) -> u64 {
        if request.kind == RequestKind::Write(Durability::Durable) {
            *self.sizes.lock().entry(request.len).or_default() += 1;
        }
        FREE
    }

    fn ended(&self, number: u64, _ending: Ending) {
        if let (HOLDING, Some(mutex)) = (number, &self.mutex) {
            mutex.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tantalum_rt::{Scheduling, Simulation, now, sleep, spawn};

    use super::*;

    /// When each of twelve calls, begun at once, ends in milliseconds, if the log is written for 10 ms and a call works for 1.
    fn ends(changes: bool) -> Vec<u128> {
        let run = move || {
            let mutex = Arc::new(LogMutex::default());
            mutex.acquire();
            let call = |number| {
                let mutex = Arc::clone(&mutex);
                spawn(format!("client {number}"), move || {
                    mutex.call(changes, || sleep(Duration::from_millis(1)));
                    now().as_nanos() as u128 / 1_000_000
                })
            };
            let calls: Vec<_> = (0..12).map(call).collect();
            sleep(Duration::from_millis(10));
            mutex.release();
            calls.into_iter().map(|call| call.join().expect("it does not panic")).collect()
        };
        Simulation::new(1).scheduling(Scheduling::InOrder).run(run).expect_finished()
    }

    #[test]
    fn threads_that_wait_for_the_log_mutex_keep_others_out() {
        assert_eq!(ends(false), [[1; 8].as_slice(), &[2; 4]].concat(), "eight at a time");
        assert_eq!(ends(true), [[10; 8].as_slice(), &[11; 4]].concat(), "until the log is written");
    }
}
