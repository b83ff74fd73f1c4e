//! Retention: removing the oldest segments of an archive in a directory, once they are too many or too old.
//!
//! Invariant: a segment that a checkpoint still needs is never removed.

use std::time::Duration;

use super::inspect::ArchiveSegment;
use super::reader::Archive;
use super::store::{Segment, Store};
use super::{ArchiveOptions, ArchiveTarget};
use crate::format::wall_clock_us;
use crate::{Error, ErrorKind, Lsn, Result};

/// What of an archive is to be kept, for [`prune_archive`]. A segment goes if any of these lets it go.
///
/// ```
/// use tantalum_log::ArchiveRetention;
/// let retention = ArchiveRetention { keep_bytes: Some(10 << 30), ..ArchiveRetention::default() };
/// assert!(retention.before.is_none());
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArchiveRetention {
    /// The oldest segments go while all take more bytes than this.
    pub keep_bytes: Option<u64>,
    /// Segments go when all that they hold is older than this.
    pub keep_time: Option<Duration>,
    /// Segments go when all that they hold lies before this position: where a base backup begins, for example.
    pub before: Option<Lsn>,
}

/// What [`prune_archive`] removed, or would.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct PrunedArchive {
    /// Whether it was a dry run, which removes nothing.
    pub dry_run: bool,
    /// The segments, oldest first.
    pub removed: Vec<ArchiveSegment>,
    /// How many segments stay.
    pub kept: u64,
    /// The bytes that they take.
    pub kept_bytes: u64,
    /// The archive's checkpoint: what reaches beyond it stays in any case.
    pub needed_lsn: Lsn,
}

/// Removes the oldest segments of an archive in a directory, as far as `retention` lets them go and no checkpoint needs
/// them. With `dry_run`, only says which. The log may be open meanwhile.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{ArchiveOptions, ArchiveRetention, Log, LogOptions, prune_archive};
/// # let dir = tempfile::tempdir()?;
/// let archive = ArchiveOptions::in_directory(dir.path().join("archive"));
/// let options = LogOptions { archive: Some(archive.clone()), ..LogOptions::default() };
/// let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("log", 1 << 20)];
/// Log::create(7, devices.clone(), options.clone())?;
/// let log = Log::open(devices, options, &mut |_| {})?.finish()?;
/// log.flush_archived(log.append(&[b"a record"])?.end)?;
/// let retention = ArchiveRetention { keep_bytes: Some(0), ..ArchiveRetention::default() };
/// assert!(prune_archive(&archive.target, &retention, false)?.removed.is_empty()); // no checkpoint lets it go
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Unsupported`], those of finding the archive, and [`ErrorKind::Io`] when a file cannot be removed: the older
/// ones are gone then.
pub fn prune_archive(target: &ArchiveTarget, retention: &ArchiveRetention, dry_run: bool) -> Result<PrunedArchive> {
    if let ArchiveTarget::Device(device) = target {
        return Err(Error::new(
            ErrorKind::Unsupported,
            format!(
                "{}: an archive on a device is a circle whose newest segment overwrites the oldest that no checkpoint needs; there is nothing to remove",
                device.name()
            ),
        ));
    }
    let archive = Archive::open(target)?;
    // What was durable last: a running log may be further, and needs less.
    let needed_lsn = archive.slot()?.checkpoint;
    let segments = archive.store.segments(None, false)?;
    let count = superfluous(&segments, retention, needed_lsn, wall_clock_us());
    let (goes, stays) = segments.split_at(count);
    if !dry_run {
        goes.iter().try_for_each(|segment| archive.store.remove(segment))?;
    }
    let end_of = |at: usize| segments.get(at + 1).map_or(segments[at].start, |next| next.start);
    Ok(PrunedArchive {
        dry_run,
        removed: goes.iter().enumerate().map(|(at, segment)| ArchiveSegment::new(segment, end_of(at))).collect(),
        kept: stays.len() as u64,
        kept_bytes: stays.iter().map(|segment| segment.place.bytes()).sum(),
        needed_lsn,
    })
}

/// Removes what `options` no longer keep and `checkpoint` does not need.
pub(crate) fn prune(store: &dyn Store, options: &ArchiveOptions, checkpoint: Lsn) -> Result<()> {
    let &ArchiveOptions { keep_bytes, keep_time, .. } = options;
    let retention = ArchiveRetention { keep_bytes, keep_time, before: None };
    if retention == ArchiveRetention::default() || matches!(options.target, ArchiveTarget::Device(_)) {
        return Ok(());
    }
    let segments = store.segments(None, false)?;
    for segment in &segments[..superfluous(&segments, &retention, checkpoint, wall_clock_us())] {
        store.remove(segment)?;
    }
    Ok(())
}

/// How many of the oldest segments go.
fn superfluous(segments: &[Segment], retention: &ArchiveRetention, checkpoint: Lsn, now_us: u64) -> usize {
    let mut bytes: u64 = segments.iter().map(|segment| segment.place.bytes()).sum();
    let oldest_us = retention.keep_time.map(|keep| now_us.saturating_sub(keep.as_micros() as u64));
    let goes = |pair: &[Segment]| {
        let (segment, next) = (&pair[0], &pair[1]);
        // A damaged header tells nothing: the segment stays until it is looked at.
        let Ok(header) = &next.header else { return false };
        let is_too_old = oldest_us.is_some_and(|oldest| header.time_us < oldest);
        let is_too_much = retention.keep_bytes.is_some_and(|keep| bytes > keep);
        let is_before = retention.before.is_some_and(|before| header.start <= before);
        bytes -= segment.place.bytes();
        // All that it holds lies before the next one's start, and was archived before that one began.
        header.start <= checkpoint && (is_too_old || is_too_much || is_before)
    };
    segments.windows(2).map(goes).take_while(|goes| *goes).count()
}

#[cfg(test)]
mod tests {
    use tantalum_device::MemoryDevice;

    use super::*;
    use crate::archive::store::Place;
    use crate::format::DecodeError;
    use crate::format::archive::SegmentHeader;

    /// Segments of 4096 bytes, each holding 100 bytes of the log, begun a second after the one before.
    fn segments(count: u64) -> Vec<Segment> {
        let segment = |number| Segment {
            place: Place { device: MemoryDevice::new("s", 4096), range: 0..4096 },
            header: Ok(SegmentHeader {
                log_id: 1,
                number,
                epoch: 1,
                first_sequence: number,
                start: Lsn::new(100 * number),
                run_start: Lsn::ZERO,
                time_us: 1_000_000 * number,
            }),
            start: Lsn::new(100 * number),
        };
        (0..count).map(segment).collect()
    }

    fn retention(keep_bytes: Option<u64>, keep_s: Option<u64>) -> ArchiveRetention {
        ArchiveRetention { keep_bytes, keep_time: keep_s.map(Duration::from_secs), before: None }
    }

    #[test]
    fn the_oldest_go_when_they_are_too_many_or_too_old() {
        let (all, end) = (segments(10), Lsn::new(1000));
        let gone = |retention: ArchiveRetention, checkpoint| superfluous(&all, &retention, checkpoint, 10_000_000);
        assert_eq!(gone(retention(Some(4 * 4096), None), end), 6);
        assert_eq!(gone(retention(Some(4 * 4096 + 1), None), end), 6);
        assert_eq!(gone(retention(Some(40 * 4096), None), end), 0);
        assert_eq!(gone(retention(Some(0), None), end), 9, "the newest is being written");
        assert_eq!(gone(retention(None, Some(7)), end), 2, "the third began seven seconds ago or earlier, not before");
        assert_eq!(gone(retention(Some(8 * 4096), Some(5)), end), 4, "whichever is stricter");
        let before = ArchiveRetention { before: Some(Lsn::new(399)), ..retention(None, None) };
        assert_eq!(gone(before, end), 3, "the fourth holds what lies right before");
    }

    #[test]
    fn what_a_checkpoint_needs_stays() {
        let mut all = segments(10);
        let keep_nothing = retention(Some(0), Some(0));
        let gone = |all: &[Segment], checkpoint| superfluous(all, &keep_nothing, Lsn::new(checkpoint), 10_000_000);
        assert_eq!(gone(&all, 0), 0);
        assert_eq!(gone(&all, 299), 2);
        assert_eq!(gone(&all, 300), 3);
        all[2].header = Err(DecodeError::Magic);
        assert_eq!(gone(&all, 300), 1, "what the third holds is not known");
    }
}
