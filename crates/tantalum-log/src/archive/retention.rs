//! What is removed from an archive in a directory: its oldest segments, once they are too many or too old.
//!
//! Invariant: what a checkpoint still needs is never removed, whatever the options say.

use super::store::{Segment, Store};
use super::{ArchiveOptions, ArchiveTarget};
use crate::time::wall_clock_us;
use crate::{Lsn, Result};

/// Removes what `options` no longer keep and `checkpoint` does not need.
pub(crate) fn prune(store: &dyn Store, options: &ArchiveOptions, checkpoint: Lsn) -> Result<()> {
    let keeps_all = options.keep_bytes.is_none() && options.keep_time.is_none();
    if keeps_all || matches!(options.target, ArchiveTarget::Device(_)) {
        return Ok(());
    }
    let segments = store.segments(None, false)?;
    for segment in &segments[..superfluous(&segments, options, checkpoint, wall_clock_us())] {
        store.remove(segment)?;
    }
    Ok(())
}

/// How many of the oldest segments go.
fn superfluous(segments: &[Segment], options: &ArchiveOptions, checkpoint: Lsn, now_us: u64) -> usize {
    let mut bytes: u64 = segments.iter().map(|segment| segment.place.bytes()).sum();
    let oldest_us = options.keep_time.map(|keep| now_us.saturating_sub(keep.as_micros() as u64));
    let goes = |pair: &[Segment]| {
        let (segment, next) = (&pair[0], &pair[1]);
        // A damaged header tells nothing: the segment stays until it is looked at.
        let Ok(header) = &next.header else { return false };
        let is_too_old = oldest_us.is_some_and(|oldest| header.time_us < oldest);
        let is_too_much = options.keep_bytes.is_some_and(|keep| bytes > keep);
        bytes -= segment.place.bytes();
        // All that it holds lies before the next one's start, and was archived before that one began.
        header.start <= checkpoint && (is_too_old || is_too_much)
    };
    segments.windows(2).map(goes).take_while(|goes| *goes).count()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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

    fn options(keep_bytes: Option<u64>, keep_s: Option<u64>) -> ArchiveOptions {
        ArchiveOptions { keep_bytes, keep_time: keep_s.map(Duration::from_secs), ..ArchiveOptions::in_directory("a") }
    }

    #[test]
    fn the_oldest_go_when_they_are_too_many_or_too_old() {
        let (all, end) = (segments(10), Lsn::new(1000));
        let gone = |options: ArchiveOptions, checkpoint| superfluous(&all, &options, checkpoint, 10_000_000);
        assert_eq!(gone(options(Some(4 * 4096), None), end), 6);
        assert_eq!(gone(options(Some(4 * 4096 + 1), None), end), 6);
        assert_eq!(gone(options(Some(40 * 4096), None), end), 0);
        assert_eq!(gone(options(Some(0), None), end), 9, "the newest is being written");
        assert_eq!(gone(options(None, Some(7)), end), 2, "the third began seven seconds ago or earlier, not before");
        assert_eq!(gone(options(Some(8 * 4096), Some(5)), end), 4, "whichever is stricter");
    }

    #[test]
    fn what_a_checkpoint_needs_stays() {
        let mut all = segments(10);
        let keep_nothing = options(Some(0), Some(0));
        let gone = |all: &[Segment], checkpoint| superfluous(all, &keep_nothing, Lsn::new(checkpoint), 10_000_000);
        assert_eq!(gone(&all, 0), 0);
        assert_eq!(gone(&all, 299), 2);
        assert_eq!(gone(&all, 300), 3);
        all[2].header = Err(DecodeError::Magic);
        assert_eq!(gone(&all, 300), 1, "what the third holds is not known");
    }
}
