//! Writing chains of overflow pages as versions before value trees did: this version reads and frees them.

use tantalum_store::{Change, PageId, PageKind, page::slots};

use super::Tree;
use crate::{buffer::ChangeGroup, error::GroupResult};

const HEAD_BYTES: usize = 8 + 4;

/// The value bytes that one overflow page holds.
fn part_bytes(page_size: usize) -> usize {
    slots::capacity(page_size) - HEAD_BYTES
}

impl Tree {
    /// Writes a value into fresh pages and returns the first.
    pub(in crate::tree) fn write_chain(&self, group: &mut ChangeGroup, value: &[u8]) -> GroupResult<PageId> {
        // From the end, so that each page knows the next one.
        let mut next = PageId(0);
        for part in value.chunks(part_bytes(self.pool.page_size())).rev() {
            let id = self.space.allocate(group, self.owner)?;
            let index = group.add_new(id)?;
            let mut body = Vec::with_capacity(HEAD_BYTES + part.len());
            body.extend_from_slice(&next.0.to_le_bytes());
            body.extend_from_slice(&(part.len() as u32).to_le_bytes());
            body.extend_from_slice(part);
            group.change(index, Change::Format { kind: PageKind::Overflow, level: 0, owner: self.owner })?;
            group.change(index, Change::WriteBytes { offset: 0, bytes: &body })?;
            next = id;
        }
        Ok(next)
    }
}
