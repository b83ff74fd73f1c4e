//! Appending: pages, their summary before them, as one write.

use tantalum_device::{AlignedBuffer, Durability};
use tantalum_log::Lsn;

use super::{
    Shared,
    counters::Counters,
    layout::{BLOCK_BYTES, Place},
    nilfs2,
    summary::{ENTRIES_MAX, Entry, Stream, Summary},
    table::Slot,
};
use crate::{MetadataWrites, PageId, Result, page::header};

/// A page to append.
#[derive(Clone, Copy, Debug)]
pub struct Item<'a> {
    /// Which.
    pub id: PageId,
    /// Its bytes, sealed.
    pub bytes: &'a [u8],
    /// Where cleaning read it.
    pub from: Option<Place>,
    /// When it was stored, if it is moved.
    pub stamp: u64,
}

impl Item<'_> {
    fn lsn(&self) -> Lsn {
        header::lsn(self.bytes)
    }
}

impl Shared {
    /// Appends as many of the pages as go into one append, durably, and notes where they are. Returns how many.
    ///
    /// One task at a time appends to a stream.
    pub(super) fn append(&self, slot: Slot, items: &[Item<'_>]) -> Result<usize> {
        let layout = self.layout;
        let room = layout.segment_blocks() - slot.block - 1;
        let fit = (room / layout.page_blocks()) as usize;
        let items = &items[..items.len().min(fit).min(ENTRIES_MAX)];
        assert!(!items.is_empty(), "a segment is left when no page fits any more");
        let is_hot = slot.stream == Stream::Hot;
        let filler_blocks = match self.metadata_writes {
            MetadataWrites::Nilfs2 if is_hot => {
                let blocks = nilfs2::metadata_blocks(items.iter().map(|item| item.id), layout.page_blocks());
                blocks.min(room - items.len() as u32 * layout.page_blocks())
            }
            _ => 0,
        };
        let page_blocks = items.len() as u32 * layout.page_blocks();
        let entry = |item: &Item<'_>| Entry::Page {
            id: item.id,
            lsn: item.lsn(),
            crc: header::checksum(item.bytes),
            from: item.from,
        };
        let stamp = items.iter().map(|item| item.stamp).max().unwrap_or(0);
        let summary = Summary {
            session: slot.session,
            sequence: slot.sequence,
            stream: slot.stream,
            segment: slot.segment,
            block: slot.block,
            next: slot.next,
            stamp,
            entries: items.iter().map(entry).collect(),
            filler_blocks,
        };
        let blocks = summary.blocks(layout.page_blocks());
        let mut buffer = AlignedBuffer::zeroed(blocks as usize * BLOCK_BYTES);
        summary.encode(&mut buffer, self.database);
        for (item, place) in items.iter().zip(buffer[BLOCK_BYTES..].chunks_exact_mut(layout.page_bytes())) {
            place.copy_from_slice(item.bytes);
        }
        let offset = layout.place(slot.segment, slot.block).offset();
        self.device.write(offset, &[&buffer], Durability::Durable)?;
        let mut table = self.table.write();
        table.apply(&summary, &layout);
        table.advance(&slot, blocks);
        drop(table);
        let counters = &self.counters;
        Counters::add(&counters.appends, 1);
        Counters::add(&counters.bytes_written, buffer.len() as u64);
        Counters::add(&counters.filler_bytes_written, u64::from(filler_blocks) * BLOCK_BYTES as u64);
        let moved_or_stored = if is_hot { &counters.pages_stored } else { &counters.pages_moved };
        Counters::add(moved_or_stored, items.len() as u64);
        debug_assert_eq!(blocks, 1 + page_blocks + filler_blocks);
        Ok(items.len())
    }
}
