//! An archive on a device: equal segments as a circle, behind the control area.

use std::ops::Range;
use std::sync::Arc;

use tantalum_device::{Device, Durability, Error};

use super::reader::blank;
use super::store::{Place, Segment, Store};
use crate::format::BLOCK;
use crate::format::archive::{ArchiveSuperblock, CONTROL_BYTES, MIN_SEGMENTS, SegmentHeader};
use crate::format::superblock::MIN_SECTION_BYTES;
use crate::{Lsn, Result, error};

/// Segments are no larger than this unless the options ask for it.
const DEFAULT_MAX_BYTES: u64 = 64 << 20;

/// The headers are read so many times at most, while a running log overwrites them.
const LISTINGS: u32 = 8;

#[derive(Debug)]
pub(crate) struct Circle {
    device: Arc<dyn Device>,
    superblock: ArchiveSuperblock,
}

impl Circle {
    /// The archive that `superblock` says is on `device`.
    pub(crate) fn new(device: Arc<dyn Device>, superblock: ArchiveSuperblock) -> Result<Circle> {
        let expected = CONTROL_BYTES + u64::from(superblock.segment_bytes) * u64::from(superblock.segment_count);
        let bytes = device.capacity_bytes();
        if bytes < expected {
            return Err(error::too_short(device.name(), bytes, expected));
        }
        Ok(Circle { device, superblock })
    }

    /// How an archive of `log_id` would divide the device.
    pub(crate) fn divide(device: &dyn Device, log_id: u128, segment_bytes: Option<u32>) -> Result<ArchiveSuperblock> {
        if device.capabilities().zones.is_some() {
            return Err(Error::has_zones(device.name(), "put the archive of the log elsewhere"));
        }
        let area = device.capacity_bytes().saturating_sub(CONTROL_BYTES);
        let share = (area / 16).min(DEFAULT_MAX_BYTES) / BLOCK as u64 * BLOCK as u64;
        let segment_bytes = segment_bytes.unwrap_or((share as u32).max(MIN_SECTION_BYTES));
        let count = area / u64::from(segment_bytes);
        if count < u64::from(MIN_SEGMENTS) {
            let needed = CONTROL_BYTES + u64::from(MIN_SEGMENTS) * u64::from(segment_bytes);
            let bytes = device.capacity_bytes();
            return Err(error::area_too_small(device.name(), bytes, needed));
        }
        let segment_count = u32::try_from(count).unwrap_or(u32::MAX);
        Ok(ArchiveSuperblock { log_id, segment_bytes, segment_count })
    }

    /// Blanks the headers of all segments.
    pub(crate) fn blank(&self) -> Result<()> {
        for position in 0..u64::from(self.superblock.segment_count) {
            blank(&*self.device, self.range(position).start, Durability::Cached)?;
        }
        self.device.flush()
    }

    fn range(&self, position: u64) -> Range<u64> {
        let bytes = u64::from(self.superblock.segment_bytes);
        let start = CONTROL_BYTES + position * bytes;
        start..start + bytes
    }

    /// The segments by number. A running log that writes several meanwhile may leave a gap.
    fn list(&self) -> Result<Vec<Segment>> {
        let mut segments = Vec::new();
        for position in 0..u64::from(self.superblock.segment_count) {
            let place = self.place(position);
            // A position whose header is damaged or was never written: its neighbours' numbers and LSNs show a loss.
            let Ok(header) = place.read_header(self.superblock.log_id)? else { continue };
            if header.number % u64::from(self.superblock.segment_count) == position {
                segments.push(Segment { place, header: Ok(header), start: header.start });
            }
        }
        segments.sort_by_key(|segment| segment.header.map_or(0, |header| header.number));
        Ok(segments)
    }

    fn place(&self, number: u64) -> Place {
        let position = number % u64::from(self.superblock.segment_count);
        Place { device: Arc::clone(&self.device), range: self.range(position) }
    }
}

impl Store for Circle {
    fn name(&self) -> &str {
        self.device.name()
    }

    fn control(&self) -> &Arc<dyn Device> {
        &self.device
    }

    fn superblock(&self) -> &ArchiveSuperblock {
        &self.superblock
    }

    fn segments(&self, from: Option<Lsn>, _writable: bool) -> Result<Vec<Segment>> {
        let mut segments = self.list()?;
        for attempt in 1.. {
            let Some(gap) = numbers(&segments).rposition(|(number, next)| number + 1 < next) else { break };
            let again = self.list()?;
            if numbers(&again).eq(numbers(&segments)) {
                break;
            }
            if attempt == LISTINGS {
                // What lies before is overwritten sooner than it could be read.
                segments.drain(..=gap);
                break;
            }
            segments = again;
        }
        // The oldest may be overwritten in part, by a write that the power cut off.
        let first = from.and_then(|from| segments.iter().rposition(|segment| segment.start <= from));
        segments.drain(..first.unwrap_or(0));
        Ok(segments)
    }

    fn place_before(&self, header: &SegmentHeader) -> (String, u64) {
        (self.name().to_owned(), self.place(header.number.saturating_sub(1)).range.start)
    }

    fn place_behind(&self, number: u64) -> Option<Place> {
        Some(self.place(number + 1))
    }

    fn create(&self, number: u64, _start: Lsn, _bytes: u64) -> Result<Place> {
        Ok(self.place(number))
    }

    fn extend(&self, _place: &Place, _bytes: u64) -> Result<()> {
        Ok(())
    }

    fn remove(&self, segment: &Segment) -> Result<()> {
        segment.place.device.write(segment.place.range.start, &[&[0; BLOCK]], Durability::Durable)
    }
}

/// The numbers of each two neighbours.
fn numbers(segments: &[Segment]) -> impl DoubleEndedIterator<Item = (u64, u64)> + ExactSizeIterator {
    let number = |segment: &Segment| segment.header.map_or(0, |header| header.number);
    segments.windows(2).map(move |pair| (number(&pair[0]), number(&pair[1])))
}
