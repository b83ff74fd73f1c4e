//! The log's handle: creating and opening a log, and everything that a running log does.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::Device;
use tantalum_rt::{JoinHandle, Mutex, spawn};

use crate::archive::Writer;
use crate::layout::Layout;
use crate::scheduler::{Scheduler, Start, StartArchive};
use crate::{
    ArchiveOptions, LogLayout, LogOptions, LogReader, LogStats, Lsn, LsnRange, Rebuild, Recovery, RecoveryProgress,
    Result, Ticket, create, recovery,
};

/// A running log. Clones are handles to the same log; all methods may be called by many tasks at once.
///
/// When the last handle is dropped without [`Log::close`], the log stops as in a crash: what was flushed is safe, what
/// was only appended may or may not be found at the next open.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{Log, LogOptions};
/// let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("a", 1 << 20), MemoryDevice::new("b", 1 << 20)];
/// Log::create(7, devices.clone(), LogOptions::default())?;
/// let log = Log::open(devices, LogOptions::default(), &mut |_| {})?.finish()?;
///
/// let record = log.append(&[b"a record"])?;
/// log.flush(record.end)?;
/// assert_eq!(log.durable_lsn(), record.end);
///
/// log.set_checkpoint(record.end)?; // nothing before is needed any more
/// log.close()?;
/// # Ok::<(), tantalum_log::Error>(())
/// ```
#[derive(Clone)]
pub struct Log {
    handle: Arc<Handle>,
}

/// What the last handle's drop ends.
struct Handle {
    scheduler: Arc<Scheduler>,
    workers: Mutex<Vec<JoinHandle<()>>>,
    archiver: Mutex<Option<JoinHandle<()>>>,
}

impl Drop for Handle {
    fn drop(&mut self) {
        // Not joined: this may run while a panic unwinds, and a device may hang.
        self.scheduler.stop_workers();
    }
}

impl Log {
    /// Formats `devices` as a new, empty log. Everything on them is lost; the log is durable when this returns.
    ///
    /// `log_id` tells this log's devices from those of others; choose it at random, and never twice. The order of the
    /// devices does not matter later.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) for options and devices that do not suit,
    /// [`Unsupported`](crate::ErrorKind::Unsupported) for their blocks, those of finding an archive, or a device's own error.
    pub fn create(log_id: u128, devices: Vec<Arc<dyn Device>>, options: LogOptions) -> Result<()> {
        create::create(log_id, Lsn::ZERO, 1, &devices, &options)
    }

    /// As [`create`](Self::create), for a log whose records start at `start`: its owner has the state that the records of another
    /// log led to, up to there, and continues on its own. `session` is the newest session number in the files that belong to it,
    /// 1 if there are none.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tantalum_device::{Device, MemoryDevice};
    /// # use tantalum_log::{Log, LogOptions, Lsn};
    /// let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("new", 1 << 20)];
    /// Log::create_at(7, Lsn::new(1 << 40), 1, devices.clone(), LogOptions::default())?;
    /// let log = Log::open(devices, LogOptions::default(), &mut |_| {})?.finish()?;
    /// assert_eq!(log.append(&[b"a record"])?.start, Lsn::new(1 << 40));
    /// # Ok::<(), tantalum_log::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_at(
        log_id: u128,
        start: Lsn,
        session: u64,
        devices: Vec<Arc<dyn Device>>,
        options: LogOptions,
    ) -> Result<()> {
        create::create(log_id, start, session, &devices, &options)
    }

    /// Reads what is on the devices of a log, given in any order, and returns what there is to recover.
    ///
    /// No write of an earlier session may still be under way: a process that ended, or a log whose handles and tickets
    /// are all dropped, with no hung device.
    ///
    /// Nothing is written but a flush of each device, so that what is read now is still there after a power cut.
    /// `progress` is called from this task.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput). An error for devices that are foreign, missing, twice there,
    /// truncated or of a newer format, and [`Corrupt`](crate::ErrorKind::Corrupt) if anything is damaged that was, or may
    /// have been, acknowledged. A read error is never taken for the log's end.
    pub fn open(
        devices: Vec<Arc<dyn Device>>,
        options: LogOptions,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<Recovery> {
        recovery::open(devices, options, progress)
    }

    /// Reads the archive that `options` name, to make a log anew whose devices are lost ([`Rebuild::onto`]).
    ///
    /// The log ends where its archive ends: what was durable and not archived ([`LogStats::archive`]) is lost with the old
    /// devices, which must not be used any more. It can be done again if it is interrupted.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tantalum_device::{Device, MemoryDevice};
    /// # use tantalum_log::{ArchiveOptions, Log, LogOptions};
    /// let disk = MemoryDevice::new("archive", 4 << 20);
    /// let options = LogOptions { archive: Some(ArchiveOptions::on_device(disk)), ..LogOptions::default() };
    /// let flash: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("flash", 1 << 20)];
    /// Log::create(7, flash.clone(), options.clone())?;
    /// let log = Log::open(flash, options.clone(), &mut |_| {})?.finish()?;
    /// log.flush_archived(log.append(&[b"a record"])?.end)?;
    /// drop(log);
    ///
    /// let fresh: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("fresh", 1 << 20)];
    /// let mut recovery = Log::rebuild(options, &mut |_| {})?.onto(fresh, &mut |_| {})?;
    /// assert_eq!(recovery.next_record()?.map(|record| record.bytes), Some(b"a record".to_vec()));
    /// # Ok::<(), tantalum_log::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`Log::open`], about the archive; [`NotArchived`](crate::ErrorKind::NotArchived) if there is none, or it does not
    /// reach back to the checkpoint.
    pub fn rebuild(options: LogOptions, progress: &mut dyn FnMut(RecoveryProgress)) -> Result<Rebuild> {
        recovery::rebuild(options, progress)
    }

    /// Lets a closed log be opened without a device that is lost for good: from now on nothing on that device counts. Then take it
    /// out of the log ([`remove_devices`](Self::remove_devices)). Nothing is changed if the log opens without it as it is.
    ///
    /// The caller makes sure that the remaining devices are current: that the log did not go on with the lost device alone.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tantalum_device::{Device, MemoryDevice};
    /// # use tantalum_log::{Log, LogOptions, LostDevice};
    /// # let device = |name| MemoryDevice::new(name, 1 << 20) as Arc<dyn Device>;
    /// let (kept, lost) = (device("kept"), device("lost"));
    /// Log::create(7, vec![kept.clone(), lost.clone()], LogOptions::default())?;
    /// let log = Log::open(vec![kept.clone(), lost], LogOptions::default(), &mut |_| {})?.finish()?;
    /// log.set_checkpoint(log.durable_lsn())?;
    /// log.close()?;
    ///
    /// assert!(Log::open(vec![kept.clone()], LogOptions::default(), &mut |_| {}).is_err());
    /// Log::give_up(&[kept.clone()], &LogOptions::default(), &LostDevice::Ordinal(1), &mut |_| {})?;
    /// let log = Log::open(vec![kept], LogOptions::default(), &mut |_| {})?.finish()?;
    /// log.remove_devices(&[1])?;
    /// # Ok::<(), tantalum_log::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Missing`](crate::ErrorKind::Missing), which names the records, if some that are needed are on no device that is
    /// there, or if that cannot be known, as the log was not closed; [`InUse`](crate::ErrorKind::InUse) if the device is
    /// there, [`NotFound`](crate::ErrorKind::NotFound), [`Unsupported`](crate::ErrorKind::Unsupported), and those of
    /// [`open`](Self::open). Nothing is changed then.
    pub fn give_up(
        devices: &[Arc<dyn Device>],
        options: &LogOptions,
        lost: &recovery::LostDevice,
        progress: &mut dyn FnMut(RecoveryProgress),
    ) -> Result<()> {
        recovery::give_up(devices, options, lost, progress)
    }

    pub(crate) fn start(start: Start, archive: Option<StartArchive>) -> Log {
        let scheduler = Arc::new(Scheduler::new(start, archive.as_ref()));
        let archive = archive.filter(|archive| archive.failure.is_none());
        let archiver = Mutex::new(archive.map(|archive| spawn_archiver(&scheduler, archive.writer)));
        let log = Log { handle: Arc::new(Handle { archiver, scheduler, workers: Mutex::new(Vec::new()) }) };
        log.spawn_workers();
        log
    }

    /// Makes the workers as many as the requests that the devices may have under way.
    fn spawn_workers(&self) {
        let mut workers = self.handle.workers.lock();
        for n in workers.len()..self.scheduler().worker_count() {
            let scheduler = Arc::clone(self.scheduler());
            workers.push(spawn(format!("log-worker-{n}"), move || {
                let guard = scheduler.poison_unless_ended("a worker wrote");
                scheduler.run_worker();
                guard.end();
            }));
        }
    }

    pub(crate) fn scheduler(&self) -> &Arc<Scheduler> {
        &self.handle.scheduler
    }

    /// The log's identity.
    pub fn log_id(&self) -> u128 {
        self.scheduler().log_id
    }

    /// How the log lies on its devices.
    pub fn layout(&self) -> LogLayout {
        self.scheduler().layout()
    }

    /// Appends the concatenation of `parts` as one record and returns where it lies. The record is in memory only;
    /// [`Log::flush`] its end to make it durable. Records have the order of their LSNs, and a record is never split.
    ///
    /// Never blocks on a device or on space, so it may be called with latches held.
    ///
    /// # Errors
    /// - [`LogFull`](crate::ErrorKind::LogFull): no room. Release what a checkpoint may need, call [`Log::wait_for_space`], and
    ///   [append with it](Log::append_requested).
    /// - [`TooLarge`](crate::ErrorKind::TooLarge): the parts exceed [`Log::max_record_bytes`].
    /// - [`Poisoned`](crate::ErrorKind::Poisoned), [`Closed`](crate::ErrorKind::Closed).
    pub fn append(&self, parts: &[&[u8]]) -> Result<LsnRange> {
        let scheduler = self.scheduler();
        // It does not overtake appends that wait for space.
        scheduler.append_if(parts, |charge| !scheduler.space.has_waiters() && scheduler.space.take(charge))
    }

    /// The largest record in bytes.
    pub fn max_record_bytes(&self) -> usize {
        self.scheduler().max_record_bytes()
    }

    /// Whether a log made on larger devices would take larger records. If not, its buffers or its archive allow no more.
    pub fn devices_bound_records(&self) -> bool {
        self.scheduler().devices_bound_records()
    }

    /// Blocks until everything before `lsn` is durable: it survives a power cut. Concurrent callers share writes
    /// ("FlashLogging", section 3.5).
    ///
    /// # Errors
    /// - [`InvalidInput`](crate::ErrorKind::InvalidInput): `lsn` was never appended.
    /// - [`Poisoned`](crate::ErrorKind::Poisoned): no device is left to write to. The records may or may not be found at
    ///   the next open.
    pub fn flush(&self, lsn: Lsn) -> Result<()> {
        self.scheduler().flush(lsn)
    }

    /// Everything before this position survives a power cut. Only grows.
    pub fn durable_lsn(&self) -> Lsn {
        self.scheduler().durable()
    }

    /// Where the next record starts.
    pub fn end_lsn(&self) -> Lsn {
        self.scheduler().end()
    }

    /// Where recovery would start.
    pub fn checkpoint_lsn(&self) -> Lsn {
        self.scheduler().checkpoint()
    }

    /// Reads the durable records from `from` on, where a durable record starts or ends, while the log runs; those that the devices have
    /// no more from the archive, if there is one. What it has not read may be overwritten, or removed with its device.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) if the log is not durable so far.
    pub fn reader(&self, from: Lsn) -> Result<LogReader> {
        LogReader::new(Arc::clone(self.scheduler()), from)
    }

    /// Whether the records before `lsn`, which were durable in session `epoch`, are part of this log still: no later session began
    /// without them, as one does when the log was rebuilt from its archive.
    pub fn has_kept(&self, epoch: u64, lsn: Lsn) -> bool {
        let epochs = self.scheduler().epochs();
        epoch <= self.epoch()
            && lsn <= self.durable_lsn()
            && epochs.iter().all(|later| later.epoch <= epoch || later.start >= lsn)
    }

    /// The session's number: raised by each open.
    pub fn epoch(&self) -> u64 {
        self.scheduler().epoch
    }

    /// Has everything before `lsn` written in the background and returns a ticket that tells when it is durable.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), [`Poisoned`](crate::ErrorKind::Poisoned).
    pub fn ticket(&self, lsn: Lsn) -> Result<Ticket> {
        self.scheduler().want(lsn)?;
        Ok(Ticket { scheduler: Arc::clone(self.scheduler()), lsn })
    }

    /// Declares that no record before `lsn` is needed any more, and frees the sections that hold only such. When it
    /// returns, the checkpoint is in a slot of every healthy device. A checkpoint below the present one leaves it as
    /// it is. Needs no log space.
    ///
    /// `lsn` is a record's start or end. Recovery delivers the records that start at or after it.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), [`Poisoned`](crate::ErrorKind::Poisoned),
    /// [`Closed`](crate::ErrorKind::Closed).
    pub fn set_checkpoint(&self, lsn: Lsn) -> Result<()> {
        self.scheduler().set_checkpoint(lsn)
    }

    /// Blocks until a checkpoint is due, and returns true; or false after `timeout`, and if the log is poisoned or
    /// closed.
    ///
    /// One is due when more than half of the log is used, when a device was set aside whose records are still needed,
    /// when a hiding area is full, and when a caller waits for space.
    pub fn wait_for_pressure(&self, timeout: Duration) -> bool {
        self.scheduler().wait_for_pressure(timeout)
    }

    /// Tells the log that its owner tried to checkpoint and could not, for this cause. Devices that wait for a checkpoint
    /// to leave stay then, and the call that removes them gets an error with this source, and its kind, instead of waiting
    /// for a checkpoint that may never come. The pressure stays: the owner may try again.
    pub fn report_failed_checkpoint(&self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) {
        self.scheduler().report_failed_checkpoint(cause.into().into());
    }

    /// Lets every [`wait_for_pressure`](Self::wait_for_pressure) that would still wait return false at once, the present
    /// and the later ones: for an owner that stops its checkpoints.
    pub fn end_pressure_waits(&self) {
        self.scheduler().end_pressure_waits();
    }

    /// Whether a record of `bytes` bytes, which [`max_record_bytes`](Self::max_record_bytes) allows, is too large for the log's
    /// present devices: append it after [`wait_until_grown`](Self::wait_until_grown).
    pub fn must_grow_for(&self, bytes: usize) -> bool {
        self.scheduler().must_grow_for(bytes)
    }

    /// Blocks until the log's owner has put devices in the place of its own that take a record of `bytes` bytes.
    ///
    /// # Errors
    /// [`TooLarge`](crate::ErrorKind::TooLarge) if no owner lets the log grow; what the owner
    /// [reported](Self::report_growth); [`Poisoned`](crate::ErrorKind::Poisoned), [`Closed`](crate::ErrorKind::Closed).
    pub fn wait_until_grown(&self, bytes: usize) -> Result<()> {
        self.scheduler().wait_until_grown(bytes)
    }

    /// Says that a task of the owner [waits for growth](Self::wait_for_growth) from now on, or, with `false`, lets that wait end.
    pub fn set_growth_owner(&self, is_there: bool) {
        self.scheduler().set_growth_owner(is_there);
    }

    /// Blocks until the log is too small: a record waits that its devices do not take, or it fills by half more than once a minute.
    /// Returns how many bytes a request must have for the records that wait, 0 if none waits; `None` if there is no
    /// [owner](Self::set_growth_owner), or the log is closed or poisoned.
    ///
    /// The owner then replaces devices by larger ones ([`replace_devices`](Self::replace_devices)), and reports what came of it.
    pub fn wait_for_growth(&self) -> Option<usize> {
        self.scheduler().wait_for_growth()
    }

    /// Blocks the task that prepares growth, so that commits have the device meanwhile: for `pause`, but no longer than until a record
    /// waits for growth, the [owner](Self::set_growth_owner) leaves, or the log is closed or poisoned.
    pub fn pause_growth(&self, pause: Duration) {
        self.scheduler().pause_growth(pause);
    }

    /// Tells the log that its owner let it grow, or could not: then records that wait for it fail. The log is not said to
    /// fill too soon again for a while that doubles, from a second to ten minutes, by each failure.
    pub fn report_growth(&self, result: Result<()>) {
        self.scheduler().report_growth(result);
    }

    /// The request bytes that devices of `device_bytes` take, as [`wait_for_growth`](Self::wait_for_growth) counts them.
    pub fn request_bytes_on(device_bytes: u64) -> usize {
        Layout::default_payload_bytes(device_bytes)
    }

    /// Begins to archive the running log, which has no archive or whose archive was set aside. The archive is made if there
    /// is none; one of this log is gone on with, behind a gap. What was appended before is not archived: a base backup
    /// that is to be followed by the archive begins after this.
    ///
    /// # Errors
    /// [`InUse`](crate::ErrorKind::InUse) if the log has one, [`Mismatch`](crate::ErrorKind::Mismatch) if it is another
    /// log's, [`NotArchived`](crate::ErrorKind::NotArchived) if something else is there,
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput), [`Closed`](crate::ErrorKind::Closed),
    /// [`Poisoned`](crate::ErrorKind::Poisoned), or the error of a device.
    pub fn attach_archive(&self, options: &ArchiveOptions) -> Result<()> {
        let mut archiver = self.handle.archiver.lock();
        let writer = self.scheduler().attach_archive(options)?;
        *archiver = Some(spawn_archiver(self.scheduler(), writer));
        Ok(())
    }

    /// Everything before this position is durable in the archive, too. `None` without an archive that works.
    pub fn archived_lsn(&self) -> Option<Lsn> {
        self.scheduler().archived()
    }

    /// Blocks until everything before `lsn` is durable, in the archive too if there is one that works. What is not to be
    /// lost even with all log devices waits for this.
    ///
    /// # Errors
    /// As [`Log::flush`]; [`Poisoned`](crate::ErrorKind::Poisoned) also if the log failed when the records were durable,
    /// and not yet archived.
    pub fn flush_archived(&self, lsn: Lsn) -> Result<()> {
        self.flush(lsn)?;
        self.scheduler().wait_archived(lsn)
    }

    /// Makes `devices` part of the running log: formats them, has all devices know of them, and then uses them. They join
    /// together or not at all. Returns their ordinals, which those of devices that left may be. Everything on `devices`
    /// is lost.
    ///
    /// After a crash meanwhile the log opens with its devices from before, or with those and all of `devices`; [`Log::open`]
    /// refuses by name what does not belong to it.
    ///
    /// # Errors
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists) if the log has the device,
    /// [`Busy`](crate::ErrorKind::Busy) if a write that was given up, or another change of devices, is under way,
    /// those of [`Log::create`], or a device's own error; the log then goes on as before.
    /// [`Poisoned`](crate::ErrorKind::Poisoned), [`Closed`](crate::ErrorKind::Closed).
    pub fn add_devices(&self, devices: &[Arc<dyn Device>]) -> Result<Vec<u32>> {
        let added = self.scheduler().add_devices(devices);
        self.spawn_workers();
        added
    }

    /// Takes devices out of the running log, healthy ones, ones that were set aside, and ones that are not there. They
    /// get no more requests; when a checkpoint covers those that they hold, no device lists them any more, and they are
    /// let go. Blocks until the owner has checkpointed, for which it is under pressure ([`Log::wait_for_pressure`]).
    ///
    /// What a removed device holds is refused from then on, also when it is given to [`Log::open`].
    ///
    /// # Errors
    /// [`NotFound`](crate::ErrorKind::NotFound), [`InUse`](crate::ErrorKind::InUse) if no other healthy device is left,
    /// now or while it waits, [`Busy`](crate::ErrorKind::Busy), or the error of a checkpoint that its owner
    /// [reports](Self::report_failed_checkpoint) meanwhile; the devices then serve as before.
    /// [`Poisoned`](crate::ErrorKind::Poisoned), [`Closed`](crate::ErrorKind::Closed).
    pub fn remove_devices(&self, ordinals: &[u32]) -> Result<()> {
        self.scheduler().remove_devices(ordinals)
    }

    /// Puts devices into the place of others: adds `new`, then removes `old`. If `new` are the devices that the log
    /// knows as `old`, it removes and formats them before it uses them again. Returns the ordinals of `new`.
    ///
    /// # Errors
    /// Those of [`Log::add_devices`] and [`Log::remove_devices`]. The statistics tell how far it came.
    pub fn replace_devices(&self, old: &[u32], new: &[Arc<dyn Device>]) -> Result<Vec<u32>> {
        let replaced = self.scheduler().replace_devices(old, new);
        self.spawn_workers();
        replaced
    }

    /// Puts smaller devices in the place of `old`, with sections of `section_bytes`. Records that they do not take
    /// [wait for growth](Self::wait_until_grown) from the beginning, and what was appended before must be covered by a checkpoint, for
    /// which the owner is under pressure, before they join. If a record waits for growth until then, nothing is changed, and the
    /// result is `None`. Otherwise returns the ordinals of `new`.
    ///
    /// When the log has shrunk, it is not said to fill too soon for ten seconds.
    ///
    /// # Errors
    /// Those of [`Log::replace_devices`]; [`InvalidInput`](crate::ErrorKind::InvalidInput) if `new` are devices of the log. If `old`
    /// cannot leave, the log has both.
    pub fn shrink_devices(&self, old: &[u32], new: &[Arc<dyn Device>], section_bytes: u32) -> Result<Option<Vec<u32>>> {
        let shrunk = self.scheduler().shrink_devices(old, new, section_bytes);
        self.spawn_workers();
        shrunk
    }

    /// Whether a log that has grown onto devices of `device_bytes` takes every record that
    /// [`max_record_bytes`](Self::max_record_bytes) allows.
    pub fn takes_all_on(&self, device_bytes: u64) -> bool {
        self.scheduler().takes_all_on(device_bytes)
    }

    /// Stops the log for good, as the loss of its last device does: every waiter and every later call that needs the devices gets
    /// [`Poisoned`](crate::ErrorKind::Poisoned) with the first cause. For an owner that no longer holds what its records say.
    ///
    /// ```
    /// # use std::sync::Arc;
    /// # use tantalum_device::{Device, MemoryDevice};
    /// # use tantalum_log::{ErrorKind, Log, LogOptions};
    /// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("a", 1 << 20)];
    /// # Log::create(7, devices.clone(), LogOptions::default())?;
    /// # let log = Log::open(devices, LogOptions::default(), &mut |_| {})?.finish()?;
    /// log.append(&[b"a record"])?;
    /// log.poison("the owner could not apply the record");
    /// assert!(matches!(log.append(&[b"another"]), Err(error) if error.kind() == ErrorKind::Poisoned));
    /// assert!(matches!(log.close(), Err(error) if error.kind() == ErrorKind::Poisoned));
    /// # Ok::<(), tantalum_log::Error>(())
    /// ```
    pub fn poison(&self, what: impl Into<String>) {
        self.scheduler().stop(what.into());
    }

    /// Counters and positions, taken at one instant except for those that appends move.
    pub fn stats(&self) -> LogStats {
        self.scheduler().stats()
    }

    /// Makes everything durable, in the archive too, records in both slots of every device that the log ended here, and stops the
    /// workers. Later calls of `append` get [`Closed`](crate::ErrorKind::Closed); closing again does nothing.
    ///
    /// # Errors
    /// [`Poisoned`](crate::ErrorKind::Poisoned), or the error of a device.
    pub fn close(&self) -> Result<()> {
        if !self.scheduler().close()? {
            return Ok(());
        }
        // Then a new log on other devices could go on from the archive alone.
        let archived = self.scheduler().wait_archived(self.end_lsn());
        self.scheduler().stop_workers();
        if let Some(archiver) = self.handle.archiver.lock().take()
            && self.archived_lsn().is_some()
        {
            // One that was set aside may hang.
            archiver.join_or_panic();
        }
        std::mem::take(&mut *self.handle.workers.lock()).into_iter().for_each(JoinHandle::join_or_panic);
        archived?;
        self.scheduler().mark_clean()
    }
}

fn spawn_archiver(scheduler: &Arc<Scheduler>, writer: Writer) -> JoinHandle<()> {
    let scheduler = Arc::clone(scheduler);
    spawn("log-archiver", move || {
        let guard = scheduler.poison_unless_ended("the log was being archived");
        scheduler.run_archive(writer);
        guard.end();
    })
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (durable, end) = (self.durable_lsn(), self.end_lsn());
        f.debug_struct("Log").field("log_id", &self.log_id()).field("durable", &durable).field("end", &end).finish()
    }
}
