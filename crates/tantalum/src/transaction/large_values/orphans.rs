//! Finds values that take pages for nothing: in a value tree, but named by no row and without a mark. For the check, beside writers.

use std::collections::BTreeMap;

use super::{ValueTree, parse_piece_key, piece_key};
use crate::{
    error::{Error, Result},
    transaction::{Value, staging::StagedWrite},
    tree::{LeafPosition, Reference, Tree},
};

/// More are not looked for.
const ORPHANS_MAX: usize = 100;

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

    fn iter(&self) -> impl Iterator<Item = u64> {
        let bits = |(at, bits): (&u64, &u64)| {
            let (at, bits) = (*at, *bits);
            (0..64).filter(move |bit| bits >> bit & 1 == 1).map(move |bit| at * 64 + bit)
        };
        self.0.iter().flat_map(bits)
    }
}

/// Shows every large value that is named by rows.
pub(crate) type Named<'a> = &'a dyn Fn(&mut dyn FnMut(Reference)) -> Result<()>;

impl ValueTree {
    /// Values that no row names and that are not marked. `named` shows staged rows before those of the table, which they go to.
    ///
    /// Rows change while they are looked through. A value that none seemed to name may have come to a row that was looked at before.
    /// So there is a second round: a value of a row stays there until it is marked.
    pub(crate) fn orphans(&self, named: Named<'_>) -> Result<Vec<u64>> {
        let mut suspects: Option<Numbers> = None;
        for _ in 0..2 {
            let marked = self.marked()?;
            let mut left = Numbers::default();
            match &suspects {
                None => self.pieces(&mut |id| left.insert(id))?,
                Some(suspects) => suspects.iter().for_each(|id| left.insert(id)),
            }
            marked.iter().for_each(|id| left.remove(id));
            named(&mut |reference| left.remove(reference.id))?;
            self.marked()?.iter().for_each(|id| left.remove(id));
            suspects = Some(left);
        }
        let suspects = suspects.unwrap_or_default();
        let mut orphans = Vec::new();
        for id in suspects.iter() {
            if orphans.len() < ORPHANS_MAX && self.has_pieces(id)? {
                orphans.push(id);
            }
        }
        Ok(orphans)
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
