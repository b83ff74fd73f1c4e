//! Reading a page: what was last merged, and the changes since ("In-Page Logging", section 3.2), which are put together from the pieces
//! in log sectors.

use std::collections::BTreeMap;

use tantalum_device::AlignedBuffer;
use tantalum_log::Lsn;
use tantalum_rt::ArcRwLockReadGuard;

use super::{
    InPageStore,
    sector::{Piece, Sector},
    unit::{Home, SectorInfo, Unit},
    unit_counters::Counters,
};
use crate::{
    Change, Load, PageId, PageStore, Result, Status,
    page::{change, header},
};

impl InPageStore {
    /// Reads a page as the present session sees it: with the changes of committed groups and of active ones, without those of
    /// groups that a crash aborted.
    ///
    /// # Errors
    /// When the device cannot read. Damage is no error here.
    pub(super) fn load_page(&self, id: PageId, page: &mut [u8]) -> Result<Load> {
        let found = match self.place_of(id) {
            Some((logical, index)) => self.ready_unit(logical)?.map(|unit| (unit, index)),
            None => None,
        };
        let Some((unit, index)): Option<(ArcRwLockReadGuard<Unit>, usize)> = found else {
            return Ok(Load::Damaged(format!(
                "it lies beyond the end of the store, which has room for {} pages; perhaps the file was truncated",
                self.capacity_pages()
            )));
        };
        if let Some(scratch) = &unit.scratch {
            return self.load_scratch(scratch, id, index, page);
        }
        let Some(home) = &unit.home else { return Ok(Load::NeverWritten) };
        Counters::add(&self.counters.pages_loaded, 1);
        let is_present = home.pages >> index & 1 == 1;
        if is_present {
            Counters::add(&self.counters.bytes_loaded, page.len());
            self.medium.read(self.medium.geometry.page_at(home.physical, index), page)?;
            if let Err(what) = header::verify(page, id) {
                return Ok(Load::Damaged(what));
            }
        } else {
            header::clear(page, id);
        }
        match self.apply_changes(home, index, page)? {
            Err(what) => Ok(Load::Damaged(what)),
            Ok(0) if !is_present => Ok(Load::NeverWritten),
            Ok(_) => Ok(Load::Page),
        }
    }

    /// Applies what the sectors of a version hold for a page. Returns how many groups changed it, or what is wrong.
    fn apply_changes(&self, home: &Home, index: usize, page: &mut [u8]) -> Result<Result<usize, String>> {
        let mut sectors: Vec<SectorInfo> =
            home.index().sectors.iter().filter(|sector| sector.summary.pages >> index & 1 == 1).copied().collect();
        if sectors.is_empty() {
            return Ok(Ok(0));
        }
        let (session, mut collected) = (self.session(), Collected::default());
        let horizon = session.horizon.committed_through();
        let read = self.read_sectors(&mut sectors, home.sequence, &mut |sector| {
            for piece in sector.pieces().filter(|piece| usize::from(piece.page) == index) {
                if session.status(piece.position, horizon)? != Status::Aborted {
                    collected.add(&piece);
                }
            }
            Ok(())
        })?;
        Counters::add(&self.counters.pages_with_changes, 1);
        Counters::add(&self.counters.sectors_loaded, sectors.len());
        Counters::add(&self.counters.bytes_loaded, sectors.len() * self.medium.geometry.sector_bytes);
        let apply_all = || {
            let changes = read.and_then(|()| collected.finish())?;
            changes.iter().try_for_each(|change| apply(page, change.position, &change.bytes))?;
            Ok(changes.len())
        };
        Ok(apply_all())
    }

    /// Reads sectors of a version, neighbours at once, and shows each. Returns what is wrong, if it is.
    pub(super) fn read_sectors(
        &self,
        sectors: &mut [SectorInfo],
        sequence: u64,
        visit: &mut dyn FnMut(&Sector<'_>) -> Result<(), String>,
    ) -> Result<Result<(), String>> {
        let sector_bytes = self.medium.geometry.sector_bytes;
        sectors.sort_unstable_by_key(|sector| sector.at);
        for run in sectors.chunk_by(|a, b| a.at + sector_bytes as u64 == b.at) {
            let mut buffer = AlignedBuffer::zeroed(run.len() * sector_bytes);
            self.medium.read(run[0].at, &mut buffer)?;
            for (sector, info) in buffer.chunks_exact(sector_bytes).zip(run) {
                let found = Sector::decode(sector, self.medium.store).filter(|found| found.head.sequence == sequence);
                let shown = match found {
                    Some(found) => visit(&found),
                    None => Err("it is not the one that was written there".to_owned()),
                };
                if let Err(what) = shown {
                    return Ok(Err(format!("its log sector at byte {}: {what}", info.at)));
                }
            }
        }
        Ok(Ok(()))
    }
}

/// Pieces of changes, by page and position.
#[derive(Debug, Default)]
pub struct Collected {
    changes: BTreeMap<(u8, Lsn), Parts>,
}

#[derive(Debug)]
struct Parts {
    total: usize,
    /// Each with its offset.
    parts: Vec<(usize, Vec<u8>)>,
}

/// All that one group changes in one page.
#[derive(Debug, PartialEq, Eq)]
pub struct Collection {
    /// The page, counted within its unit.
    pub page: u8,
    /// The change group.
    pub position: Lsn,
    /// The changes, encoded.
    pub bytes: Vec<u8>,
}

impl Collected {
    /// Adds a piece. Pieces may come in any order, and more than once.
    pub fn add(&mut self, piece: &Piece<'_>) {
        let new = || Parts { total: piece.total, parts: Vec::new() };
        let parts = self.changes.entry((piece.page, piece.position)).or_insert_with(new);
        parts.parts.push((piece.offset, piece.bytes.to_vec()));
    }

    /// The whole changes: by page, and in the order of their groups.
    ///
    /// # Errors
    /// Says which change is not whole.
    pub fn finish(self) -> Result<Vec<Collection>, String> {
        let whole = |((page, position), parts): ((u8, Lsn), Parts)| match parts.join() {
            Some(bytes) => Ok(Collection { page, position, bytes }),
            None => Err(format!("of the changes at position {position} to its page {page}, a part is missing")),
        };
        self.changes.into_iter().map(whole).collect()
    }
}

impl Parts {
    fn join(mut self) -> Option<Vec<u8>> {
        self.parts.sort_unstable_by_key(|(offset, _)| *offset);
        let mut bytes = Vec::new();
        for (offset, part) in self.parts {
            // What was written twice is there already.
            let known = bytes.len().checked_sub(offset)?;
            bytes.extend_from_slice(part.get(known..).unwrap_or_default());
        }
        (bytes.len() == self.total).then_some(bytes)
    }
}

/// Applies a group's changes to a page, which is then as new as the group.
///
/// # Errors
/// Says why not: the page or the changes are damaged.
pub fn apply(page: &mut [u8], position: Lsn, mut changes: &[u8]) -> Result<(), String> {
    let old = header::lsn(page);
    if old >= position {
        return Err(format!("page {} is as new as {old}, and has changes at {position}", header::page_id(page)));
    }
    while !changes.is_empty() {
        let change = Change::decode(&mut changes)
            .map_err(|what| format!("a change at position {position} is malformed: {what}"))?;
        change::apply(page, &change)
            .map_err(|error| format!("page {} cannot take a change: {error}", header::page_id(page)))?;
    }
    header::set_lsn(page, position);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: usize, bytes: &[u8]) -> Piece<'_> {
        Piece { page: 2, position: Lsn::new(9), total: 6, offset, bytes }
    }

    fn join(pieces: &[Piece<'_>]) -> Result<Vec<Collection>, String> {
        let mut collected = Collected::default();
        pieces.iter().for_each(|piece| collected.add(piece));
        collected.finish()
    }

    #[test]
    fn parts_are_joined_in_any_order_and_counted_once() {
        let whole = vec![Collection { page: 2, position: Lsn::new(9), bytes: b"abcdef".to_vec() }];
        assert_eq!(join(&[piece(4, b"ef"), piece(0, b"abcd")]).as_ref(), Ok(&whole));
        assert_eq!(join(&[piece(0, b"abc"), piece(3, b"def"), piece(0, b"abcdef")]).as_ref(), Ok(&whole));
        assert_eq!(join(&[piece(0, b"abcd"), piece(2, b"cd"), piece(3, b"def")]).as_ref(), Ok(&whole));
    }

    #[test]
    fn a_missing_part_is_seen() {
        for parts in [&[piece(0, b"abc")][..], &[piece(0, b"abc"), piece(4, b"ef")], &[piece(4, b"ef")]] {
            assert!(join(parts).unwrap_err().contains("a part is missing"));
        }
    }
}
