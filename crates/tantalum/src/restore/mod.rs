//! Point-in-time recovery: a base backup of the pages, and the archive of the log from there on, give every later state of
//! a database ("FlashLogging", section 3.7).
//!
//! What is restored is a database of its own: it has a new identity, and its log begins, with a new identity too, where
//! the replay ended. So neither its log's devices nor its archive can be taken for those of the original, which may live
//! on, and the two can grow apart without ever being mixed. LSNs go on, since the pages bear them.

mod base_backup;
mod coverage;
mod manifest;
mod target;

use std::{
    fs::File,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tantalum_device::{AlignedBuffer, Device, FileDevice};
use tantalum_log::{ArchiveReader, ArchiveTarget, ArchivedRecord, Lsn, inspect_archive};
use tantalum_store::{PageId, Superblock, page::header};

pub(crate) use base_backup::run as base_backup;
pub use base_backup::{BaseBackup, RestorePhase, RestoreProgress};
use manifest::{Manifest, PAGES};
use target::PageTarget;

use crate::{
    backup::whole_directory,
    buffer::BufferPool,
    db::Remaking,
    error::{self, Result},
    recovery::Replay,
};

/// To which state a database is restored.
///
/// ```
/// assert_eq!(tantalum::RestoreTarget::default(), tantalum::RestoreTarget::End);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RestoreTarget {
    /// To the archive's end.
    #[default]
    End,
    /// With every change that the log has before this position; where it lies within a record, without that record.
    Lsn(Lsn),
    /// To this time by the wall clock. Nothing that was begun later is there; everything is there that was acknowledged
    /// half a second earlier, or before.
    Time(SystemTime),
}

/// Restores a database from a base backup and the archive of its log.
///
/// ```no_run
/// use std::time::{Duration, UNIX_EPOCH};
/// use tantalum::{Db, Restore, RestoreTarget};
///
/// let db = Db::builder().log_archive("/archive/accounts").open("accounts.db")?;
/// db.base_backup("/backups/accounts", &mut |_| {})?;
/// // ... and some day later:
/// let before_the_mishap = UNIX_EPOCH + Duration::from_secs(1_790_000_000);
/// let restored = Restore::new("/backups/accounts", "/archive/accounts")
///     .target(RestoreTarget::Time(before_the_mishap))
///     .run("accounts-restored.db")?;
/// println!("restored up to LSN {}", restored.end_lsn);
/// # Ok::<(), tantalum::Error>(())
/// ```
#[must_use]
pub struct Restore {
    backup: PathBuf,
    archive: Archive,
    target: RestoreTarget,
    progress: Option<Box<dyn FnMut(RestoreProgress) + Send>>,
}

enum Archive {
    Path(PathBuf),
    Device(Arc<dyn Device>),
}

/// What was restored, from [`Restore::run`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Restored {
    /// Every change before it is there, and none behind it.
    pub end_lsn: Lsn,
    /// The time of the last change that was repeated; that of the backup if there was none.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub time: SystemTime,
    /// Records of the log that were repeated.
    pub records: u64,
    /// Commits among them.
    pub commits: u64,
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(time: &SystemTime, serializer: S) -> Result<S::Ok, S::Error> {
    serde::Serialize::serialize(&tantalum_rt::rfc3339(*time), serializer)
}

impl Restore {
    /// A restoring of the base backup in the directory `backup`, with the archive in the directory, or on the block device,
    /// `archive`.
    pub fn new(backup: impl Into<PathBuf>, archive: impl Into<PathBuf>) -> Self {
        let (backup, archive) = (backup.into(), Archive::Path(archive.into()));
        Self { backup, archive, target: RestoreTarget::End, progress: None }
    }

    /// As [`new`](Self::new), with an archive on a device that is open.
    pub fn with_archive_on(backup: impl Into<PathBuf>, archive: Arc<dyn Device>) -> Self {
        Self { archive: Archive::Device(archive), ..Self::new(backup, "") }
    }

    /// To which state. Default: to the archive's end.
    pub fn target(mut self, target: RestoreTarget) -> Self {
        self.target = target;
        self
    }

    /// Called again and again meanwhile.
    pub fn progress(mut self, callback: impl FnMut(RestoreProgress) + Send + 'static) -> Self {
        self.progress = Some(Box::new(callback));
        self
    }

    /// Restores into the new directory `to`, which is there as a whole or not at all: until the end it has `.partial` appended
    /// to its name. The archive and the backup stay as they are; the original database may be open.
    ///
    /// # Errors
    /// [`InvalidInput`](crate::ErrorKind::InvalidInput) or [`NotArchived`](crate::ErrorKind::NotArchived) if the archive does
    /// not lead there from the backup without a gap, before anything is written; what is damaged, by file and offset;
    /// [`AlreadyExists`](crate::ErrorKind::AlreadyExists).
    pub fn run(self, to: impl AsRef<Path>) -> Result<Restored> {
        let Self { backup, archive, target, progress } = self;
        let manifest = Manifest::read(&backup)?;
        let archive = archive.open()?;
        let inspection = inspect_archive(&archive)?;
        if inspection.log_id != manifest.log_id {
            let (archive, found, expected) = (inspection.name, inspection.log_id, manifest.log_id);
            return Err(tantalum_log::error::foreign_archive(archive, found, expected));
        }
        coverage::check(&inspection, &manifest, target)?;
        let mut progress = progress.unwrap_or_else(|| Box::new(|_| {}));
        whole_directory(to.as_ref(), |partial| {
            Restoring { backup: &backup, manifest: &manifest, archive: &archive, target, report: &mut *progress }
                .into_directory(partial)
        })
    }
}

impl Archive {
    fn open(self) -> Result<ArchiveTarget> {
        match self {
            Self::Device(device) => Ok(ArchiveTarget::Device(device)),
            Self::Path(path) if path.is_dir() => Ok(ArchiveTarget::Directory(path)),
            Self::Path(path) => {
                Ok(ArchiveTarget::Device(Arc::new(FileDevice::open(&path, tantalum_device::Access::ReadOnly)?)))
            }
        }
    }
}

impl Manifest {
    fn taken(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_micros(self.taken_us)
    }
}

struct Restoring<'a> {
    backup: &'a Path,
    manifest: &'a Manifest,
    archive: &'a ArchiveTarget,
    target: RestoreTarget,
    report: &'a mut dyn FnMut(RestoreProgress),
}

impl Restoring<'_> {
    fn into_directory(mut self, directory: &Path) -> Result<Restored> {
        let manifest = self.manifest;
        let remaking = Remaking::begin(directory, &manifest.settings, manifest.page_size, manifest.store_kind)?;
        let superblock = remaking.superblock(manifest.protection);
        let store = remaking.store(&superblock)?;
        match superblock.segments {
            None => self.copy_pages(&mut target::InPlace::new(&*remaking.devices.data))?,
            Some(_) => {
                tantalum_store::format(&superblock, &*remaking.devices.data)?;
                store.recover()?;
                self.copy_pages(&mut target::Stored::new(&*store))?;
            }
        }
        let options = manifest.settings.pool_options(manifest.page_size, superblock.protection);
        let pool = BufferPool::new(store, &options);
        let restored = self.replay(&pool)?;
        // From here on the database is like one after any recovery.
        pool.attach_log(remaking.new_log(superblock.log_id, restored.end_lsn)?);
        pool.checkpoint()?;
        let session = Some(pool.log().stats().epoch);
        Superblock { session, ..superblock }.write(&*remaking.devices.data)?;
        pool.log().close()?;
        remaking.end()?;
        Ok(restored)
    }

    /// Stores the pages of the backup.
    fn copy_pages(&mut self, pages: &mut dyn PageTarget) -> Result<()> {
        const CHUNK_BYTES: usize = 1 << 20;
        let path = self.backup.join(PAGES);
        let failed = |error| error::io(&path, "read", error);
        let mut file = File::open(&path).map_err(failed)?;
        let total_bytes = self.manifest.pages * u64::from(self.manifest.page_size);
        let found = file.metadata().map_err(failed)?.len();
        if found != total_bytes {
            let what =
                format!("{}: has {found} bytes, the backup has {total_bytes}; use another backup", path.display());
            return Err(error::restore(what));
        }
        pages.make_room(self.manifest.pages, total_bytes)?;
        let mut chunk = AlignedBuffer::zeroed(CHUNK_BYTES);
        let mut done_bytes = 0;
        while done_bytes < total_bytes {
            (self.report)(RestoreProgress { phase: RestorePhase::Copy, done_bytes, total_bytes });
            let bytes = (total_bytes - done_bytes).min(CHUNK_BYTES as u64) as usize;
            file.read_exact(&mut chunk[..bytes]).map_err(failed)?;
            if self.check_pages(&path, done_bytes, &chunk[..bytes])? {
                pages.put(done_bytes, &chunk[..bytes])?;
            }
            done_bytes += bytes as u64;
        }
        (self.report)(RestoreProgress { phase: RestorePhase::Copy, done_bytes, total_bytes });
        pages.end()
    }

    /// Refuses pages that are not as they were stored. False if none ever was.
    fn check_pages(&self, path: &Path, offset: u64, pages: &[u8]) -> Result<bool> {
        let page_size = self.manifest.page_size as usize;
        let mut is_any = false;
        for (n, page) in pages.chunks(page_size).enumerate().filter(|(_, page)| page.iter().any(|byte| *byte != 0)) {
            is_any = true;
            let offset = offset + (n * page_size) as u64;
            let id = PageId(offset / page_size as u64);
            if let Err(what) = header::verify(page, id) {
                return Err(error::corrupt(path.display(), id, offset, what));
            }
        }
        Ok(is_any)
    }

    /// Repeats the archive's changes up to the target.
    fn replay(&mut self, pool: &BufferPool) -> Result<Restored> {
        let (start, consistent) = (Lsn::new(self.manifest.start_lsn), Lsn::new(self.manifest.end_lsn));
        let mut reader = ArchiveReader::open(self.archive, start)?;
        let mut replay = Replay::onto_copies(consistent);
        let (mut end, mut time) = (start, self.manifest.taken());
        while let Some(archived) = reader.next_record()? {
            if !self.includes(&archived, consistent) {
                break;
            }
            let ArchivedRecord { record, time: at } = archived;
            if record.start != end {
                let what = format!("a record starts at LSN {}, but the one before ended at LSN {end}", record.start);
                return Err(error::corrupt_record(record.start, what));
            }
            replay.apply(pool, &record)?;
            end = record.end;
            time = time.max(at);
            let progress = reader.progress();
            let (done_bytes, total_bytes) = (progress.done_bytes, progress.total_bytes);
            (self.report)(RestoreProgress { phase: RestorePhase::Replay, done_bytes, total_bytes });
        }
        if end < consistent {
            // It was there when the coverage was checked.
            let (archive, from, to) = (self.archive.name(), end, reader.gap_end().unwrap_or(consistent));
            return Err(tantalum_log::error::not_archived(archive, from, to));
        }
        let redo = replay.done();
        Ok(Restored { end_lsn: end, time, records: redo.records, commits: redo.commits })
    }

    /// Whether a record belongs to the state that is wanted. What makes the pages suit each other does in any case.
    fn includes(&self, archived: &ArchivedRecord, consistent: Lsn) -> bool {
        let end = archived.record.end;
        end <= consistent
            || match self.target {
                RestoreTarget::End => true,
                RestoreTarget::Lsn(lsn) => end <= lsn,
                RestoreTarget::Time(time) => archived.time <= time,
            }
    }
}
