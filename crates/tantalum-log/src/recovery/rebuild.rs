//! A log whose devices are all lost, on new ones, from its archive alone.
//!
//! The new devices are formatted as empty devices of the same log whose newest epoch starts where the archive ends. Then
//! the log is opened like any other: the archive is read first, and the devices have nothing to add.
//!
//! The slots come last. So if this is interrupted, either no device is one of the log yet, and it can be done again on the
//! same devices; or all are, and the log can be opened.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use tantalum_device::{Access, Device};

use super::{Recovery, RecoveryProgress, archived, open};
use crate::archive::Archive;
use crate::create::{Last, format_devices};
use crate::format::slot::{EpochStart, MAX_EPOCHS, Slot};
use crate::{LogOptions, Lsn, Result, error};

/// Epochs that the archive may not have heard of. An old device that is found again must not bear a number that is used
/// once more.
const UNHEARD_EPOCHS: u64 = 1 << 20;

/// A log that is lost, as far as its archive has it. From [`Log::rebuild`](crate::Log::rebuild).
///
/// Nothing is written before [`onto`](Self::onto): an owner that stored more than the archive has, because the archive was
/// set aside, looks at [`end_lsn`](Self::end_lsn) and leaves it at that.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{ArchiveOptions, Log, LogOptions};
/// # let archive = ArchiveOptions::on_device(MemoryDevice::new("archive", 4 << 20));
/// # let options = LogOptions { archive: Some(archive), ..LogOptions::default() };
/// # let lost: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("lost", 1 << 20)];
/// # Log::create(7, lost.clone(), options.clone())?;
/// # drop(Log::open(lost, options.clone(), &mut |_| {})?.finish()?);
/// # let fresh: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("fresh", 1 << 20)];
/// let rebuild = Log::rebuild(options, &mut |_| {})?;
/// let end = rebuild.end_lsn();
/// let recovery = rebuild.onto(fresh, &mut |_| {})?;
/// assert_eq!(recovery.end_lsn(), end);
/// # Ok::<(), tantalum_log::Error>(())
/// ```
#[derive(Debug)]
pub struct Rebuild {
    options: LogOptions,
    archive: Archive,
    slot: Slot,
    run_start: Lsn,
    end: Lsn,
}

pub(crate) fn rebuild(options: LogOptions, progress: &mut dyn FnMut(RecoveryProgress)) -> Result<Rebuild> {
    options.check()?;
    let Some(archive_options) = &options.archive else { return Err(error::missing_archive(Lsn::ZERO)) };
    let Some(archive) = Archive::find(archive_options, Access::ReadWrite)? else {
        return Err(error::not_an_archive(archive_options.target.name(), "there is nothing"));
    };
    archive.store.control().flush()?;
    // Whether the log needed it or not, there is nothing else now.
    let slot = Slot { needs_archive: true, ..archive.slot()?.clone() };
    let scanned = archived::scan(&archive, &slot, &Arc::new(AtomicI64::new(0)), progress)?;
    let (run_start, end) = scanned.as_ref().map_or((Lsn::ZERO, Lsn::ZERO), |scanned| (scanned.run_start, scanned.end));
    if let Some(damage) = scanned.and_then(|scanned| scanned.scan.damage.first().cloned()) {
        return Err(damage.into());
    }
    if run_start > slot.checkpoint {
        return Err(error::not_archived(archive.store.name(), slot.checkpoint, run_start));
    }
    Ok(Rebuild { options, archive, slot, run_start, end })
}

impl Rebuild {
    /// The archive's name.
    pub fn archive(&self) -> &str {
        self.archive.store.name()
    }

    /// Where the archive ends, and the log will.
    pub fn end_lsn(&self) -> Lsn {
        self.end
    }

    /// The epoch that everything bears which the log's owner has stamped, or a newer one; `None` if nothing was.
    pub fn stamped_epoch(&self) -> Option<u64> {
        self.slot.stamped
    }

    /// Makes the log on `devices`, and returns what there is to recover. Everything on them is lost.
    ///
    /// # Errors
    /// As [`Log::create`](crate::Log::create) and [`Log::open`](crate::Log::open). It can be done again.
    pub fn onto(self, devices: Vec<Arc<dyn Device>>, progress: &mut dyn FnMut(RecoveryProgress)) -> Result<Recovery> {
        let Rebuild { options, archive, slot, run_start, end } = self;
        let mut epochs = slot.epochs.clone();
        let epoch = slot.newest().epoch + UNHEARD_EPOCHS;
        epochs.retain(|older| older.start < end);
        epochs.push(EpochStart { epoch, start: end });
        epochs.drain(..epochs.len().saturating_sub(MAX_EPOCHS));
        let slot = Slot {
            sequence: slot.sequence + 1,
            epochs,
            clean_end: None,
            not_needed: 0,
            archive_run: Some(run_start),
            mirrored_from: None,
            ..slot
        };
        format_devices(&devices, &options, &slot, &[Arc::clone(archive.store.control())], Last::Slots)?;
        open(devices, options, progress)
    }
}
