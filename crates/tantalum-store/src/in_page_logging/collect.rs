//! From the pieces in log sectors back to whole changes, and from those to pages.

use std::collections::BTreeMap;

use tantalum_log::Lsn;

use super::sector::Piece;
use crate::{
    Change,
    page::{change, header},
};

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
