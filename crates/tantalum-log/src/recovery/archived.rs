//! The archive's part of recovery: read first, it saves reading the devices; then it gets what it lacks.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;
use std::time::Duration;

use tantalum_device::Device;

use super::Recovery;
use super::merge::Merged;
use super::progress::{RecoveryPhase, RecoveryProgress, in_parallel};
use super::read::payload;
use super::scan::{Scan, Scope};
use crate::archive::{Archive, Batch, JOINED_US, Resume, Scanned, Writer};
use crate::format::slot::Slot;
use crate::format::wall_clock_us;
use crate::scheduler::StartArchive;
use crate::{ArchiveOptions, Error, ErrorKind, Lsn, Result};

/// Reads the archive from the checkpoint on, or from where its newest run starts: that run was begun because nothing before it
/// was needed any more, and takes the places of older segments. One that is not needed does not count if it is damaged or ends
/// too early.
pub(super) fn scan(
    archive: &Archive,
    slot: &Slot,
    memory: &Arc<AtomicI64>,
    report: &mut dyn FnMut(RecoveryProgress),
) -> Result<Option<Scanned>> {
    let (checkpoint, epoch) = (slot.checkpoint, slot.newest().epoch);
    let from = checkpoint.max(slot.archive_run.unwrap_or_default());
    let segments = archive.segments(from)?;
    let total = segments.iter().map(|segment| segment.place.bytes()).sum();
    let job = (archive.clone(), slot.clone(), segments, Arc::clone(memory));
    let mut scanned = in_parallel(&[job], RecoveryPhase::Archive, total, report, move |job, progress| {
        let (archive, slot, segments, memory) = job;
        let (memory, progress) = (Arc::clone(memory), Arc::clone(progress));
        archive.scan(segments, &slot.epochs, &Scope { checkpoint: from, epoch, memory, progress })
    });
    let mut scanned = scanned.pop().expect("one archive gives one scan")?;
    let is_damaged = |scanned: &&mut Scanned| !scanned.scan.damage.is_empty();
    if let Some(scanned) = scanned.as_mut().filter(is_damaged).filter(|_| !slot.needs_archive) {
        // What follows starts a new run.
        scanned.forget(scanned.run_start);
    }
    if let Some(run_start) = slot.archive_run
        && scanned.as_ref().is_none_or(|scanned| scanned.run_start < run_start)
    {
        // The run was begun, and nothing written to it yet.
        scanned.get_or_insert_default().forget(run_start);
    }
    let end = scanned.as_ref().map_or(Lsn::ZERO, |scanned| scanned.end);
    if slot.needs_archive && end < checkpoint {
        return Err(Error::new(
            ErrorKind::NotArchived,
            format!(
                "{}: the archive ends at LSN {end}, but LSN {checkpoint} and what follows was archived; it is damaged, or an old copy: put the right one in its place",
                archive.store.name()
            ),
        ));
    }
    Ok(scanned)
}

/// The archive that a log is opened with, and what it lacks.
#[derive(Debug)]
pub(super) struct FoundArchive {
    /// `None` if there is none yet.
    archive: Option<Archive>,
    scanned: Option<Scanned>,
    /// Requests that the devices hold behind the archive's end, which they continue: (scan, index).
    behind: Option<Vec<(usize, usize)>>,
    /// Records below it may be in the archive only.
    only_here: Lsn,
}

impl FoundArchive {
    pub(super) fn new(
        archive: Option<Archive>,
        scanned: Option<Scanned>,
        scans: &[Scan],
        merged: &Merged,
        only_here: Lsn,
    ) -> FoundArchive {
        let end = scanned.as_ref().map(|scanned| scanned.end);
        let header = |&&(scan, index): &&(usize, usize)| &scans[scan].found[index].request.header;
        let behind = end.and_then(|end| {
            let behind: Vec<_> = merged.order.iter().filter(|at| header(at).end() > end).copied().collect();
            let continues = behind.first().map_or(merged.end == end, |first| header(&first).start == end);
            continues.then_some(behind)
        });
        FoundArchive { archive, scanned, behind, only_here }
    }

    /// The archive, if there is one.
    pub(super) fn archive(&self) -> Option<&Archive> {
        self.archive.as_ref()
    }

    /// Makes the archive if there is none, and finds where it goes on. It has no slot of the new epoch yet.
    pub(super) fn open(self, recovery: &Recovery, epoch: u64) -> Result<OpenArchive> {
        let options = recovery.options.archive.clone().expect("an archive was found as the options say");
        let archive = match self.archive {
            Some(archive) => archive,
            None => Archive::create(&options, recovery.members.log_id)?,
        };
        let (next_number, next_sequence) =
            self.scanned.as_ref().map_or((0, 0), |scanned| (scanned.next_number, scanned.next_sequence));
        let resume = match (self.scanned, &self.behind) {
            (Some(scanned), Some(_)) => Resume {
                epoch,
                next_number,
                next_sequence,
                end: scanned.end,
                run_start: scanned.run_start,
                used: scanned.segments.into(),
            },
            // Records before are in the archive no more, or never were.
            _ => {
                let (end, run_start) = (recovery.end, recovery.end);
                Resume { epoch, next_number, next_sequence, end, run_start, used: Default::default() }
            }
        };
        let writer = Writer::new(archive.store, resume);
        let bytes = |&(scan, index): &(usize, usize)| recovery.scans[scan].found[index].request.header.payload_bytes;
        let largest = self.behind.iter().flatten().map(bytes).max().unwrap_or(0);
        writer.check_takes(largest as usize)?;
        Ok(OpenArchive { writer, options, behind: self.behind.unwrap_or_default(), only_here: self.only_here })
    }
}

/// An archive that can be written to.
pub(super) struct OpenArchive {
    writer: Writer,
    options: ArchiveOptions,
    behind: Vec<(usize, usize)>,
    only_here: Lsn,
}

impl OpenArchive {
    pub(super) fn control(&self) -> &Arc<dyn Device> {
        self.writer.store().control()
    }

    /// Records below it may be in the archive only.
    pub(super) fn only_here(&self) -> Lsn {
        self.only_here
    }

    pub(super) fn run_start(&self) -> Lsn {
        self.writer.run_start()
    }

    /// Archives what the devices hold behind the archive's end. An archive that fails is set aside.
    ///
    /// # Errors
    /// When a device of the log cannot be read: the owner needs what is there as well, and must store nothing of what follows.
    pub(super) fn catch_up(mut self, scans: &[Scan], checkpoint: Lsn, timeout: Duration) -> Result<StartArchive> {
        let behind = std::mem::take(&mut self.behind);
        let failure = self.archive(&behind, scans, checkpoint, timeout)?.err();
        Ok(StartArchive { writer: self.writer, options: self.options, only_here: self.only_here, failure })
    }

    /// Fails if a device of the log does; returns how it went with the archive.
    fn archive(
        &mut self,
        behind: &[(usize, usize)],
        scans: &[Scan],
        checkpoint: Lsn,
        timeout: Duration,
    ) -> Result<Result<()>> {
        let (mut pieces, mut bytes, mut bytes_max) = (Vec::new(), 0, 0);
        let (mut first_us, mut last_us) = (0, 0);
        for &(scan, index) in behind {
            let found = &scans[scan].found[index];
            let header = &found.request.header;
            let (payload_bytes, time_us) = (header.payload_bytes as usize, header.time_us);
            let joins = bytes + payload_bytes <= bytes_max && time_us.abs_diff(first_us) <= JOINED_US;
            if !joins && !pieces.is_empty() {
                if let Err(error) = self.append(&std::mem::take(&mut pieces), last_us, checkpoint, timeout) {
                    return Ok(Err(error));
                }
                bytes = 0;
            }
            if pieces.is_empty() {
                (first_us, bytes_max) = (time_us, self.writer.payload_limit(payload_bytes));
            }
            last_us = time_us;
            bytes += payload_bytes;
            pieces.push(payload(scans, found)?);
        }
        Ok(if pieces.is_empty() { Ok(()) } else { self.append(&pieces, last_us, checkpoint, timeout) })
    }

    fn append(&mut self, pieces: &[Box<[u8]>], time_us: u64, checkpoint: Lsn, timeout: Duration) -> Result<()> {
        let time_us = if time_us == 0 { wall_clock_us() } else { time_us };
        let durable = self.writer.end();
        self.writer.append(&Batch { pieces, durable, time_us }, checkpoint, timeout).map(drop)
    }
}
