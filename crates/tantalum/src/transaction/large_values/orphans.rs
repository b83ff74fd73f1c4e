//! Finds values in a value tree that are wrong: named by no row and without a mark, so that they take pages for nothing; or not whole,
//! though they have no mark. For the check, beside writers.

use std::collections::BTreeMap;

use super::{ValueTree, parse_piece_key, piece_key};
use crate::{
    error::{Error, Result},
    transaction::{Value, staging::StagedWrite},
    tree::{LeafPosition, Reference, Tree},
};

/// More are not looked for.
const WRONG_MAX: usize = 100;

/// A value that is wrong, and how.
type Wrong = (u64, &'static str);

/// Numbers of values, 64 to an entry.
#[derive(Default)]
struct Numbers(BTreeMap<u64, u64>);

impl Numbers {
    fn insert(&mut self, id: u64) {
        *self.0.entry(id / 64).or_default() |= 1 << (id % 64);
    }

    fn remove(&mut self, id: u64) {
        if let Some(bits) = self.0.get_mut(&(id / 64)) {
            *bits &= !(1 << (id % 64));
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn iter(&self) -> impl Iterator<Item = u64> {
        let bits = |(at, bits): (&u64, &u64)| {
            let (at, bits) = (*at, *bits);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        };
        self.0.iter().flat_map(bits)
    }
}

/// The pieces that a walk through a value tree has come by, in the order of their keys.
#[derive(Default)]
pub(crate) struct PiecesSeen {
    values: Numbers,
    /// Values of which a piece seemed to be missing before another. One that is deleted meanwhile is among them.
    torn: Numbers,
    /// The value of the last piece, and where that ends.
    last: Option<(u64, u32)>,
}

impl PiecesSeen {
    /// A row with this key, and so many bytes of its value.
    pub(crate) fn saw(&mut self, key: &[u8], bytes: usize) {
        let Some((id, end)) = parse_piece_key(key) else { return };
        let begin = self.last.filter(|(last, _)| *last == id).map_or(0, |(_, end)| end);
        let has_all_before = u64::from(begin) + bytes as u64 == u64::from(end);
        if !has_all_before {
            self.torn.insert(id);
        }
        self.values.insert(id);
        self.last = Some((id, end));
    }
}

/// Shows every large value that is named by rows.
pub(crate) type Named<'a> = &'a dyn Fn(&mut dyn FnMut(Reference)) -> Result<()>;

impl ValueTree {
    /// Values that are not marked, and that no row names, or of which a piece is missing. `named` shows staged rows before those of the
    /// table, which they go to.
    ///
    /// Rows change while they are looked through. A value that none seemed to name may have come to a row that was looked at before.
    /// So there is a second round: a value of a row stays there until it is marked.
    pub(crate) fn wrong_values(&self, seen: PiecesSeen, named: Named<'_>) -> Result<Vec<Wrong>> {
        let PiecesSeen { values: mut suspects, torn, .. } = seen;
        for _ in 0..2 {
            self.marked()?.iter().for_each(|id| suspects.remove(id));
            named(&mut |reference| suspects.remove(reference.id))?;
            self.marked()?.iter().for_each(|id| suspects.remove(id));
        }
        let mut wrong = Vec::new();
        for id in suspects.iter() {
            if wrong.len() < WRONG_MAX && self.has_pieces(id)? {
                wrong.push((id, "is named by no row, and not marked"));
            }
        }
        for id in torn.iter() {
            // Marked values are those that are being written or deleted. A mark goes when all pieces are there, or with the last one.
            if wrong.len() < WRONG_MAX && self.mark(id)?.is_none() && self.is_torn(id)? && self.mark(id)?.is_none() {
                wrong.push((id, "is not whole, and not marked"));
            }
        }
        Ok(wrong)
    }

    /// The values that are marked now, and perhaps some that were marked since.
    fn marked(&self) -> Result<Numbers> {
        let mut marked = Numbers::default();
        // Its number is above those of all values that are there.
        let next = self.next_id()?;
        self.marks(0, &mut |id, _| {
            marked.insert(id);
            id < next
        })?;
        Ok(marked)
    }

    /// Whether a piece of a value is missing before another that is there.
    fn is_torn(&self, id: u64) -> Result<bool> {
        let mut seen = PiecesSeen::default();
        self.rows(&piece_key(id, 0), &piece_key(id + 1, 0), &mut |key, bytes| {
            seen.saw(key, bytes.len());
            seen.torn.is_empty()
        })?;
        Ok(!seen.torn.is_empty())
    }

    fn has_pieces(&self, id: u64) -> Result<bool> {
        let mut found = false;
        self.rows(&piece_key(id, 0), &piece_key(id + 1, 0), &mut |key, _| {
            found = parse_piece_key(key).is_some();
            !found
        })?;
        Ok(found)
    }
}

/// Shows the large values that the rows of a table name, or those of a staging table. Rows that come meanwhile may be shown or not.
pub(crate) fn references_in(tree: &Tree, is_staging: bool, show: &mut dyn FnMut(Reference)) -> Result<()> {
    // Rows beyond it have come since.
    let end = tree.end_key()?;
    let mut next = Some(Vec::new());
    while let Some(from) = next.filter(|from| *from <= end) {
        next = tree.read_leaf(LeafPosition::Containing(&from), |leaf| {
            for index in leaf.lower_bound(&from)?..leaf.len() {
                let reference = match is_staging {
                    false => leaf.reference(index)?,
                    // One whose bytes do not stand in the leaf names none: versions before value trees wrote it.
                    true => match leaf.stored_bytes(index)? {
                        Some(bytes) => StagedWrite::decode(Value::from(bytes))?.and_then(|write| write.reference()),
                        None => None,
                    },
                };
                reference.into_iter().for_each(&mut *show);
            }
            Ok::<_, Error>(leaf.upper().map(<[u8]>::to_vec))
        })??;
    }
    Ok(())
}
