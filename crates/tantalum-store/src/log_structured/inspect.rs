//! Showing what stands in a segment.

use super::{
    Shared,
    layout::Place,
    segments::State,
    summary::{Entry, Summary},
};
use crate::{AppendInspection, EntryInspection, Error, Result, SegmentInspection};

impl Shared {
    /// Shows a segment.
    ///
    /// # Errors
    /// [`Error::Option`] if there is no such segment, or when the device cannot read.
    pub(super) fn inspect(&self, segment: u32) -> Result<SegmentInspection> {
        let mut inspection = {
            let table = self.table.read();
            let count = table.segments.count();
            if segment >= count {
                let what = format!("segment {segment}: {} has segments 0 to {}", self.device.name(), count - 1);
                return Err(Error::Option { what });
            }
            let found = table.segments.get(segment);
            let state = match found.state() {
                State::Free | State::Discarding => "free",
                State::Open => "open",
                State::Closed if found.live_blocks() == 0 => "empty",
                State::Closed if found.is_stuck => "stuck",
                State::Closed => "closed",
            };
            SegmentInspection {
                segment,
                offset_bytes: self.layout.place(segment, 0).offset(),
                state: state.into(),
                blocks: self.layout.segment_blocks(),
                live_blocks: found.live_blocks(),
                appends: Vec::new(),
            }
        };
        let mut block = 0;
        let mut last = 0;
        // An earlier use of the segment shows behind the last append of the present one.
        while block < self.layout.segment_blocks()
            && let Some(summary) = self.summary_at(segment, block)?.filter(|found| found.sequence > last)
        {
            last = summary.sequence;
            inspection.appends.push(self.inspect_append(&summary));
            block += summary.blocks(self.layout.page_blocks());
        }
        Ok(inspection)
    }

    fn inspect_append(&self, summary: &Summary) -> AppendInspection {
        let table = self.table.read();
        let start = self.layout.place(summary.segment, summary.block);
        let entry = |(at, entry): (u32, &Entry)| {
            let place: Place = start.plus(at);
            let (kind, number, lsn, is_live) = match *entry {
                Entry::Page { id, lsn, .. } => ("page", id.0, Some(lsn.get()), table.map.get(id) == Some(place)),
                Entry::Map { level, index } => {
                    let block = table.map.level(usize::from(level)).get(index as usize);
                    let kind = if level == 0 { "map" } else { "directory" };
                    (kind, index, None, block.and_then(|block| block.at()) == Some(place))
                }
            };
            EntryInspection { block: summary.block + at, kind: kind.into(), number, lsn, is_live }
        };
        AppendInspection {
            block: summary.block,
            sequence: summary.sequence,
            stream: summary.stream.name().into(),
            is_of_this_session: summary.session == table.session,
            filler_blocks: summary.filler_blocks,
            entries: summary.at(self.layout.page_blocks()).map(entry).collect(),
        }
    }
}
