//! A base backup: the pages as they are while transactions go on, to be made consistent by the log from there on.
//!
//! A checkpoint comes first, so the pages hold every change from before it. Then each is copied as it is stored, at
//! whatever moment. Since a page is stored only when the log is durable and archived up to its last change, all changes
//! that any copied page may hold are in the archive when the copying is over.

use std::{
    fs::File,
    io::{BufWriter, Seek, SeekFrom, Write},
    path::Path,
    time::{Duration, SystemTime},
};

use tantalum_log::{Log, Lsn};
use tantalum_store::{Load, Logging, PageId, PageKind, PageStore, page::header, sweep};

use super::manifest::{Manifest, PAGES, VERSION};
use crate::{
    backup::whole_directory,
    db::Db,
    error::{self, Error, ErrorKind, Result},
    space::Space,
};

/// How far a base backup is, or a restoring of one.
///
/// ```
/// use tantalum::{RestorePhase, RestoreProgress};
/// let progress = RestoreProgress { phase: RestorePhase::Copy, done_bytes: 1, total_bytes: 2 };
/// assert!(progress.done_bytes <= progress.total_bytes);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct RestoreProgress {
    /// What is being done.
    pub phase: RestorePhase,
    /// Bytes done in this phase.
    pub done_bytes: u64,
    /// Bytes to do in this phase, an estimate from above.
    pub total_bytes: u64,
}

/// What a base backup, or a restoring of one, is doing.
///
/// ```
/// assert_ne!(tantalum::RestorePhase::Copy, tantalum::RestorePhase::Replay);
/// ```
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RestorePhase {
    /// Copying pages.
    Copy,
    /// Repeating the changes of the archive.
    Replay,
}

/// A base backup that was made, from [`Db::base_backup`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct BaseBackup {
    /// The archive is needed from this LSN on. Segments that hold only what lies before can be removed when this is the oldest
    /// backup that is kept.
    pub start_lsn: u64,
    /// The earliest state that can be restored from it.
    pub end_lsn: u64,
    /// The same as a time, in microseconds since 1970.
    pub time_us: u64,
    /// Bytes of the pages.
    pub bytes: u64,
}

/// A page that is being stored reads as damaged until it is. So often it is read again, after so long each.
const TORN_READS_MAX: u32 = 1000;
const TORN_READ_PAUSE: Duration = Duration::from_millis(1);

/// Makes a base backup of `db` in the new directory `to`.
pub fn run(db: &Db, to: &Path, report: &mut dyn FnMut(RestoreProgress)) -> Result<BaseBackup> {
    whole_directory(to, |partial| {
        std::fs::create_dir(partial).map_err(|error| error::io(partial, "create", error))?;
        copy(db, partial, report)
    })
}

fn copy(db: &Db, to: &Path, report: &mut dyn FnMut(RestoreProgress)) -> Result<BaseBackup> {
    let (pool, superblock) = (db.pool(), db.superblock());
    if pool.store().logging() == Logging::CommitStatus {
        let what = "a base backup is brought up to date by changes from the log, and this page store leaves none there; \
                    make a backup of rows instead";
        return Err(error::restore(what));
    }
    let _floor = db.space().begin_base_backup();
    let start_lsn = {
        let _operation = db.begin_operation()?;
        pool.checkpoint()?
    };
    check_archived(pool.log(), start_lsn)?;
    let pages = copy_pages(db, &to.join(PAGES), report)?;
    let end_lsn = pool.log().end_lsn();
    pool.log().flush_archived(end_lsn)?;
    // It may have been set aside meanwhile.
    check_archived(pool.log(), start_lsn)?;
    // Closing does not wait for the copy: of pages that were read later, others may have changed some.
    db.operations().check_open()?;
    let taken = tantalum_rt::wall_clock().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let time_us = u64::try_from(taken.as_micros()).unwrap_or(u64::MAX);
    let manifest = Manifest {
        version: VERSION,
        log_id: superblock.log_id,
        page_size: superblock.page_size,
        store_kind: superblock.store_kind,
        protection: superblock.protection,
        pages,
        start_lsn: start_lsn.get(),
        end_lsn: end_lsn.get(),
        taken_us: time_us,
        settings: db.settings().without_places(),
    };
    manifest.write(to)?;
    let Manifest { start_lsn, end_lsn, .. } = manifest;
    Ok(BaseBackup { start_lsn, end_lsn, time_us, bytes: pages * u64::from(superblock.page_size) })
}

/// Refuses a backup that no archive follows: the pages alone are no state of the database.
fn check_archived(log: &Log, start: Lsn) -> Result<()> {
    let Some(archive) = log.stats().archive else {
        let what = "a base backup is followed by the archive of the log, and this database has none; set log_archive, \
                    or make a backup of rows instead";
        return Err(error::restore(what));
    };
    if let Some(cause) = archive.set_aside {
        return Err(Error::new(
            ErrorKind::Missing,
            format!(
                "{archive}: the archive was set aside: {cause}; open the database again, then make a backup",
                archive = archive.name
            ),
        )
        .with_source(cause));
    }
    if archive.run_start_lsn > start {
        let (from, to) = (start, archive.run_start_lsn);
        return Err(tantalum_log::error::not_archived(archive.name, from, to));
    }
    Ok(())
}

/// Copies the pages that the store has room for when this begins: of pages that come later the log has every change. Returns
/// how many.
fn copy_pages(db: &Db, to: &Path, report: &mut dyn FnMut(RestoreProgress)) -> Result<u64> {
    let store = &**db.pool().store();
    let failed = |error| error::io(to, "write", error);
    let (pages, page_size) = (store.capacity_pages(), store.page_size());
    let bytes_of = |pages: u64| pages * page_size as u64;
    let file = File::create_new(to).map_err(failed)?;
    file.set_len(bytes_of(pages)).map_err(failed)?;
    let mut out = BufWriter::with_capacity(1 << 20, file);
    let mut written = 0;
    let report = &mut |done_bytes, total_bytes| {
        report(RestoreProgress { phase: RestorePhase::Copy, done_bytes, total_bytes });
    };
    sweep(store, report, |id, found, page| {
        db.operations().check_open()?;
        if !belongs_in_backup(store, db.space(), id, found?, page)? {
            return Ok(());
        }
        if id.0 != written {
            out.seek(SeekFrom::Start(bytes_of(id.0))).map_err(failed)?;
        }
        written = id.0 + 1;
        out.write_all(page).map_err(failed)
    })?;
    let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
    file.sync_all().map_err(failed)?;
    Ok(pages)
}

/// Whether a page belongs into the backup, which then is as it was stored: one that is being stored is read again. One that was
/// never stored does not, nor a scratch page, whole or torn: before it is used, the log formats it.
fn belongs_in_backup(
    store: &dyn PageStore,
    space: &Space,
    id: PageId,
    mut found: Load,
    page: &mut [u8],
) -> Result<bool> {
    let is_scratch =
        |page: &[u8]| header::kind(page).is_ok_and(|kind| kind == PageKind::Free) && header::lsn(page) == Lsn::ZERO;
    for _ in 1..TORN_READS_MAX {
        match found {
            Load::Page => return Ok(!is_scratch(page)),
            Load::NeverWritten => return Ok(false),
            Load::Damaged(_) if space.is_free(id)? => return Ok(false),
            Load::Damaged(_) => tantalum_rt::sleep(TORN_READ_PAUSE),
        }
        found = store.load(id, page)?;
    }
    match found {
        Load::Page => Ok(!is_scratch(page)),
        Load::NeverWritten => Ok(false),
        Load::Damaged(what) => {
            let (file, offset) = (store.name(), id.0.saturating_mul(page.len() as u64));
            Err(error::corrupt(file, id, offset, what))
        }
    }
}
