//! Values too large for a leaf, in a chain of pages of their own.
//!
//! Body of an overflow page: next page u64 (0 in the last), bytes here u32, bytes. A chain belongs to one leaf entry
//! and is written once, in one record, so all of its pages have the same LSN; it is read and freed under that leaf's
//! latch, so it cannot change meanwhile.

use super::{Tree, damaged};
use crate::buffer::ChangeGroup;
use crate::error::Result;
use crate::limits::MAX_VALUE_BYTES;
use crate::page::{Change, PageId, PageKind, header, slots};

const NEXT_BYTES: usize = 8;
const HEAD_BYTES: usize = NEXT_BYTES + 4;

/// The value bytes that one overflow page holds.
pub(super) fn part_bytes(page_size: usize) -> usize {
    slots::capacity(page_size) - HEAD_BYTES
}

/// The overflow pages of a value of so many bytes.
pub(super) fn pages(value_bytes: usize, page_size: usize) -> usize {
    value_bytes.div_ceil(part_bytes(page_size))
}

impl Tree {
    /// Writes a value into fresh pages and returns the first.
    pub(super) fn write_chain(&self, group: &mut ChangeGroup, value: &[u8]) -> Result<PageId> {
        // From the end, so that each page knows the next one.
        let mut next = PageId(0);
        for part in value.chunks(part_bytes(self.pool.page_size())).rev() {
            let id = self.space.allocate(group, self.owner)?;
            let index = group.add(self.pool.pin_new(id)?.write());
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

    /// Reads a chain of `length` bytes.
    pub(super) fn read_chain(&self, length: u32, first: PageId) -> Result<Vec<u8>> {
        let mut value = Vec::with_capacity((length as usize).min(MAX_VALUE_BYTES));
        self.walk_chain(length, first, |_, part| value.extend_from_slice(part))?;
        Ok(value)
    }

    /// The pages of a chain of `length` bytes.
    pub(super) fn chain_pages(&self, length: u32, first: PageId) -> Result<Vec<PageId>> {
        let mut pages = Vec::new();
        self.walk_chain(length, first, |id, _| pages.push(id))?;
        Ok(pages)
    }

    /// Gives the pages of chains back, in ascending order: that of the latches on the space maps.
    pub(super) fn free_chains(&self, group: &mut ChangeGroup, mut pages: Vec<PageId>) -> Result<()> {
        pages.sort_unstable();
        pages.into_iter().try_for_each(|page| self.space.free(group, page))
    }

    /// Visits the pages of a chain with the bytes that each holds. Every page brings the end nearer, so no damage makes
    /// this endless.
    fn walk_chain(&self, length: u32, first: PageId, mut visit: impl FnMut(PageId, &[u8])) -> Result<()> {
        let (mut missing, mut id) = (length as usize, first);
        let mut lsn = None;
        while missing > 0 {
            let page = self.pool.read(id)?;
            if header::kind(&page)? != PageKind::Overflow {
                return Err(damaged(&page, "a part of a large value was expected here"));
            }
            self.check_owner(&page)?;
            // A device that loses a write leaves a part of another value, sound by itself.
            if *lsn.get_or_insert(header::lsn(&page)) != header::lsn(&page) {
                return Err(damaged(&page, "this part of a large value was not written together with its first part"));
            }
            let (next, part) = decode(&page).ok_or_else(|| damaged(&page, "its part of a large value is malformed"))?;
            missing = match missing.checked_sub(part.len()) {
                Some(rest) if !part.is_empty() && (rest == 0) == (next.0 == 0) => rest,
                _ => {
                    return Err(damaged(
                        &page,
                        &format!("a value of {length} bytes does not end where its length says"),
                    ));
                }
            };
            visit(id, part);
            id = next;
        }
        Ok(())
    }
}

/// The next page and the bytes of an overflow page.
fn decode(page: &[u8]) -> Option<(PageId, &[u8])> {
    let (next, rest) = header::body(page).split_first_chunk::<NEXT_BYTES>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let part = rest.get(..u32::from_le_bytes(*length) as usize)?;
    Some((PageId(u64::from_le_bytes(*next)), part))
}
