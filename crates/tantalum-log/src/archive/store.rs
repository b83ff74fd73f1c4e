//! Where an archive's segments are: a directory's files, or positions on a device.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use tantalum_device::Device;

use crate::format::archive::{ArchiveSuperblock, SegmentHeader};
use crate::format::{BLOCK, DecodeError};
use crate::{Lsn, Result};

/// The bytes that a segment may take, on a device or in a file.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) range: Range<u64>,
}

/// A segment that a store holds.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) place: Place,
    /// The header, or what is wrong with it.
    pub(crate) header: Result<SegmentHeader, DecodeError>,
    /// Where it starts, as its name tells if its header cannot.
    pub(crate) start: Lsn,
}

/// Keeps segments.
pub(crate) trait Store: Send + Sync + fmt::Debug {
    /// The directory's path or the device's name.
    fn name(&self) -> &str;

    /// Holds the superblocks and slots, at the same offsets as a log device.
    fn control(&self) -> &Arc<dyn Device>;

    fn superblock(&self) -> &ArchiveSuperblock;

    /// The segments, by number; those with damaged headers stand where their names put them. With `from`, at least the
    /// newest that starts at or before it and all later ones. To be flushed, they must be `writable`.
    fn segments(&self, from: Option<Lsn>, writable: bool) -> Result<Vec<Segment>>;

    /// Where, by name and offset, the segment before this one was.
    fn place_before(&self, header: &SegmentHeader) -> (String, u64);

    /// Where the segment after the segment `number` would be, if that is known before it is created.
    fn place_behind(&self, number: u64) -> Option<Place>;

    /// A place for the segment `number`, with room for `bytes` at once. Whatever lies there is given up.
    fn create(&self, number: u64, start: Lsn, bytes: u64) -> Result<Place>;

    /// Makes room for `bytes` of a segment that was created.
    fn extend(&self, place: &Place, bytes: u64) -> Result<()>;

    /// Removes a segment for good.
    fn remove(&self, segment: &Segment) -> Result<()>;
}

impl Place {
    /// Bytes that there are.
    pub(crate) fn bytes(&self) -> u64 {
        self.range.end.min(self.device.capacity_bytes()).saturating_sub(self.range.start)
    }

    /// Reads the segment's first block.
    pub(crate) fn read_header(&self, log_id: u128) -> Result<Result<SegmentHeader, DecodeError>> {
        let mut block = vec![0; BLOCK];
        if self.range.end - self.range.start < BLOCK as u64 {
            return Ok(Err(DecodeError::Short { found: 0, needed: BLOCK }));
        }
        self.device.read(self.range.start, &mut block)?;
        Ok(SegmentHeader::decode(&block).and_then(|header| match header.log_id == log_id {
            true => Ok(header),
            false => Err(DecodeError::Field { field: "log identity", value: header.log_id as u64 }),
        }))
    }
}
