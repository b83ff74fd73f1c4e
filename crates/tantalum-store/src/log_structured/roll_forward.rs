//! The appends of a stream behind a checkpoint (Rosenblum and Ousterhout, section 4.2: roll-forward).
//!
//! A stream ends at the first summary that is not of its session, or not younger than the one before; or whose pages are not all
//! there: that append was under way, and nobody was told that its pages are stored. But if another follows it, it was not: then
//! its pages are damaged, and whoever reads them hears of it.

use tantalum_device::AlignedBuffer;

use super::{
    Shared,
    layout::BLOCK_BYTES,
    root::Position,
    summary::{Entry, Stream, Summary},
};
use crate::{Error, Result, page::header};

/// What is behind a checkpoint in a stream.
#[derive(Debug, Default)]
pub struct Followed {
    /// The appends, in their order.
    pub appends: Vec<Summary>,
    /// The segments that have any.
    pub segments: Vec<u32>,
}

impl Shared {
    /// Follows a stream from a position on.
    ///
    /// # Errors
    /// When the device cannot read. [`Error::Corrupt`] when appends follow one whose summary is damaged.
    pub(super) fn follow(&self, stream: Stream, session: u64, from: Position, segments: u32) -> Result<Followed> {
        let mut followed = Followed::default();
        // The append whose pages are not all there, if the last one's are not.
        let mut is_torn = false;
        let mut at = from;
        if at.block > 0 {
            followed.segments.push(at.segment);
        }
        loop {
            if !self.layout.has_room(at.block) {
                // The one that was open after it is named by its own first append.
                at = Position { segment: at.next, block: 0, ..at };
            }
            if at.segment >= segments {
                break;
            }
            let summary = self.summary_at(at.segment, at.block)?;
            let Some(summary) = summary.filter(|found| is_next(found, stream, session, at)) else {
                self.expect_end(stream, session, at, segments)?;
                break;
            };
            let blocks = summary.blocks(self.layout.page_blocks());
            let Some(next) = summary.next.filter(|_| at.block + blocks <= self.layout.segment_blocks()) else { break };
            is_torn = !self.is_whole(&summary)?;
            at = Position { block: at.block + blocks, next, after: summary.sequence, ..at };
            followed.segments.push(summary.segment);
            followed.appends.push(summary);
        }
        if is_torn {
            followed.appends.pop();
        }
        followed.segments.dedup();
        Ok(followed)
    }

    /// The summary that begins in a block, if one does.
    pub(super) fn summary_at(&self, segment: u32, block: u32) -> Result<Option<Summary>> {
        let mut bytes = AlignedBuffer::zeroed(BLOCK_BYTES);
        self.device.read(self.layout.place(segment, block).offset(), &mut bytes)?;
        let found = Summary::decode(&bytes, self.database);
        Ok(found.filter(|found| (found.segment, found.block) == (segment, block)))
    }

    /// Whether all pages of an append are there, as they were appended.
    fn is_whole(&self, summary: &Summary) -> Result<bool> {
        let page_bytes = self.layout.page_bytes();
        let mut bytes = AlignedBuffer::zeroed(summary.entries.len() * page_bytes);
        let start = self.layout.place(summary.segment, summary.block).plus(1);
        self.device.read(start.offset(), &mut bytes)?;
        let is_there = |(entry, page): (&Entry, &[u8])| match *entry {
            Entry::Page { id, lsn, crc, .. } => {
                header::checksum(page) == crc && header::lsn(page) == lsn && header::verify(page, id).is_ok()
            }
            Entry::Map { .. } => false,
        };
        Ok(summary.entries.iter().zip(bytes.chunks_exact(page_bytes)).all(is_there))
    }

    /// Nothing may follow where a stream ends: of appends under way there is one.
    fn expect_end(&self, stream: Stream, session: u64, at: Position, segments: u32) -> Result<()> {
        let rest = (at.block + 1..self.layout.segment_blocks()).map(|block| (at.segment, block));
        let next = (at.next < segments).then_some((at.next, 0));
        let rest_blocks = self.layout.segment_blocks() - at.block;
        let mut bytes = AlignedBuffer::zeroed(rest_blocks as usize * BLOCK_BYTES);
        self.device.read(self.layout.place(at.segment, at.block).offset(), &mut bytes)?;
        let of_segment = rest.zip(bytes.chunks_exact(BLOCK_BYTES).skip(1)).filter_map(|((segment, block), bytes)| {
            Summary::decode(bytes, self.database).filter(|found| (found.segment, found.block) == (segment, block))
        });
        let of_next = next.map(|(segment, block)| self.summary_at(segment, block)).transpose()?.flatten();
        let is_later =
            |found: &Summary| found.stream == stream && found.session == session && found.sequence > at.after;
        match of_segment.chain(of_next).find(is_later) {
            None => Ok(()),
            Some(later) => Err(Error::Superblock {
                file: self.device.name().into(),
                what: format!(
                    "a segment summary was expected at byte {} and is damaged: append {} follows at byte {}; restore the \
                     database from a backup",
                    self.layout.place(at.segment, at.block).offset(),
                    later.sequence,
                    self.layout.place(later.segment, later.block).offset()
                ),
            }),
        }
    }
}

fn is_next(found: &Summary, stream: Stream, session: u64, at: Position) -> bool {
    found.stream == stream && found.session == session && found.sequence > at.after
}
