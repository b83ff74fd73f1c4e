//! What a change leaves of a cell and what it makes new: a list of edits that turns the old cell into the new one.
//!
//! An edit keeps bytes of the old cell, leaves out the next ones, and adds others in their place. What follows the last edit is kept.
//!
//! Invariant: a patch is applied only to the cell that it was computed from. A page's changes are applied in the order of its LSNs,
//! none left out, so the slot has that cell; the patch bears half of the cell's checksum, by which it refuses any other one.
//!
//! Encoding: checksum of the old cell, its low half (2); number of edits (1); for each edit the bytes kept, left out and added
//! (varints), and the bytes that are added.

use super::{
    change::{ChangeError, take_bytes, take_number, take_u8},
    varint,
};

/// Edits of a cell, known to be well-formed; whether they suit a cell is known when they are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch<'a> {
    /// Of the cell that the edits are made of.
    checksum: u16,
    count: u8,
    /// Bytes of the cell that the edits keep or leave out.
    used: usize,
    /// Whether each edit adds as many bytes as it leaves out.
    overwrites: bool,
    /// Encoded.
    edits: &'a [u8],
}

/// Bytes are kept, then others take the place of some.
#[derive(Clone, Copy, Debug)]
struct Edit<'a> {
    kept: usize,
    left_out: usize,
    added: &'a [u8],
}

impl<'a> Edit<'a> {
    fn take(bytes: &mut &'a [u8]) -> Result<Self, &'static str> {
        let (kept, left_out) = (take_number::<u16>(bytes)?, take_number::<u16>(bytes)?);
        Ok(Self { kept: kept.into(), left_out: left_out.into(), added: take_bytes(bytes)? })
    }
}

impl<'a> Patch<'a> {
    /// Takes a patch off the front of `bytes`.
    pub(super) fn take(bytes: &mut &'a [u8]) -> Result<Self, &'static str> {
        let checksum = u16::from_le_bytes([take_u8(bytes)?, take_u8(bytes)?]);
        let count = take_u8(bytes)?;
        let (edits, mut used, mut overwrites) = (*bytes, 0, true);
        for _ in 0..count {
            let edit = Edit::take(bytes)?;
            used += edit.kept + edit.left_out;
            overwrites &= edit.added.len() == edit.left_out;
        }
        Ok(Self { checksum, count, used, overwrites, edits: &edits[..edits.len() - bytes.len()] })
    }

    /// Appends the encoding.
    pub(super) fn encode_into(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.checksum.to_le_bytes());
        out.push(self.count);
        out.extend_from_slice(self.edits);
    }

    fn edits(&self) -> impl Iterator<Item = Edit<'a>> + use<'a> {
        let mut rest = self.edits;
        (0..self.count).map(move |_| Edit::take(&mut rest).expect("take() has checked the edits"))
    }

    /// Whether `cell` is the one that the patch is for.
    pub(super) fn check(&self, cell: &[u8]) -> Result<(), ChangeError> {
        if checksum(cell) != self.checksum {
            return Err(ChangeError::OtherCell);
        }
        let (used, len) = (self.used, cell.len());
        if used > len { Err(ChangeError::BeyondCell { used, len }) } else { Ok(()) }
    }

    /// Whether each edit adds as many bytes as it leaves out.
    pub(super) fn overwrites(&self) -> bool {
        self.overwrites
    }

    /// Changes a cell that was checked, if the patch [overwrites](Self::overwrites).
    pub(super) fn overwrite(&self, cell: &mut [u8]) {
        let mut rest = cell;
        for edit in self.edits() {
            let (changed, after) = rest[edit.kept..].split_at_mut(edit.left_out);
            changed.copy_from_slice(edit.added);
            rest = after;
        }
    }

    /// Makes the new cell of one that was checked.
    pub(super) fn apply(&self, cell: &[u8]) -> Vec<u8> {
        let mut new = Vec::with_capacity(cell.len() + self.edits.len());
        let mut rest = cell;
        for edit in self.edits() {
            let (kept, after) = rest.split_at(edit.kept);
            new.extend_from_slice(kept);
            new.extend_from_slice(edit.added);
            rest = &after[edit.left_out..];
        }
        new.extend_from_slice(rest);
        new
    }
}

fn checksum(cell: &[u8]) -> u16 {
    crc32c::crc32c(cell) as u16
}

/// Bytes of a patch without edits.
const HEAD_BYTES: usize = 3;

/// What an edit takes beside the bytes that it adds, at least.
const EDIT_BYTES_MIN: usize = 3;

/// So many equal bytes between two edits are not worth another edit: they are added, too.
const BRIDGED_BYTES: usize = EDIT_BYTES_MIN;

/// Appends the patch that turns `old` into `new`, if it takes less than so many bytes. If not, appends some of it and returns false.
pub(super) fn encode(out: &mut Vec<u8>, old: &[u8], new: &[u8], less_than_bytes: usize) -> bool {
    let start = out.len();
    out.extend_from_slice(&[0; HEAD_BYTES]);
    let mut edits = Edits { out, end: start + less_than_bytes, count: 0, known: (0, 0), pending: None, new };
    if !edits.add_all(old) {
        return false;
    }
    let ([low, high], count) = (checksum(old).to_le_bytes(), edits.count);
    out[start..start + HEAD_BYTES].copy_from_slice(&[low, high, count]);
    out.len() < start + less_than_bytes
}

/// Finds the edits and appends them.
struct Edits<'a> {
    out: &'a mut Vec<u8>,
    /// The encoding ends before this.
    end: usize,
    count: u8,
    /// Where the last edit that was appended ends, in the old and in the new cell.
    known: (usize, usize),
    /// The edit that may still grow: where it begins and ends in both.
    pending: Option<[(usize, usize); 2]>,
    new: &'a [u8],
}

impl Edits<'_> {
    /// Adds all edits that turn `old` into the new cell. False if they do not fit.
    fn add_all(&mut self, old: &[u8]) -> bool {
        let new = self.new;
        if old.len() == new.len() {
            return self.add_overwrites(old, new, (0, 0)) && self.append_pending();
        }
        // One edit takes up the difference of the lengths.
        let common = old.len().min(new.len());
        let (shift, after_old, after_new) = (shift_at(old, new), old.len() - common, new.len() - common);
        self.add_overwrites(&old[..shift], &new[..shift], (0, 0))
            && self.add([(shift, shift), (shift + after_old, shift + after_new)])
            && self.add_overwrites(
                &old[shift + after_old..],
                &new[shift + after_new..],
                (shift + after_old, shift + after_new),
            )
            && self.append_pending()
    }

    /// Adds an edit for each run of bytes that differ in parts of the same length, which begin at `offset` in the cells.
    fn add_overwrites(&mut self, old: &[u8], new: &[u8], offset: (usize, usize)) -> bool {
        let mut at = equal_from(old, new, 0);
        while at < old.len() {
            let end = different_from(old, new, at);
            if !self.add([(offset.0 + at, offset.1 + at), (offset.0 + end, offset.1 + end)]) {
                return false;
            }
            at = equal_from(old, new, end);
        }
        true
    }

    /// Adds an edit behind those before: together with the last one if hardly anything lies between.
    fn add(&mut self, edit: [(usize, usize); 2]) -> bool {
        match &mut self.pending {
            Some([_, end]) if edit[0].0 - end.0 <= BRIDGED_BYTES => *end = edit[1],
            _ => {
                if !self.append_pending() {
                    return false;
                }
                self.pending = Some(edit);
            }
        }
        true
    }

    fn append_pending(&mut self) -> bool {
        let Some([start, end]) = self.pending.take() else { return true };
        let added = &self.new[start.1..end.1];
        if self.count == u8::MAX || self.out.len() + EDIT_BYTES_MIN + added.len() >= self.end {
            return false;
        }
        varint::put(self.out, (start.0 - self.known.0) as u64);
        varint::put(self.out, (end.0 - start.0) as u64);
        varint::put(self.out, added.len() as u64);
        self.out.extend_from_slice(added);
        self.count += 1;
        self.known = end;
        true
    }
}

/// The place of the difference between the lengths of two cells at which about the fewest bytes differ: before it, both are compared
/// from their beginnings, and after it from their ends.
fn shift_at(old: &[u8], new: &[u8]) -> usize {
    let common = old.len().min(new.len());
    let (old_end, new_end) = (&old[old.len() - common..], &new[new.len() - common..]);
    let (old, new) = (&old[..common], &new[..common]);
    let begins = old.as_chunks().0.iter().zip(new.as_chunks().0);
    let ends = old_end.as_chunks().0.iter().zip(new_end.as_chunks().0);
    let (mut cost, mut least, mut shift) = (0, 0, 0);
    for ((begin, end), at) in begins.zip(ends).zip(1..) {
        cost += differing_bytes(begin) - differing_bytes(end);
        if cost < least {
            (least, shift) = (cost, at * 8);
        }
    }
    // Within the next eight bytes it may be better still.
    equal_from(old, new, shift)
}

/// How many of eight bytes differ.
fn differing_bytes((a, b): (&[u8; 8], &[u8; 8])) -> i64 {
    const LOW_BITS: u64 = u64::from_le_bytes([0x7f; 8]);
    let bits = u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
    let ones = ((((bits & LOW_BITS) + LOW_BITS) | bits) >> 7) & LOW;
    (ones.wrapping_mul(LOW) >> 56) as i64
}

/// The end of the equal bytes from `at` on.
fn equal_from(old: &[u8], new: &[u8], mut at: usize) -> usize {
    while let (Some(a), Some(b)) = (block(old, at), block(new, at))
        && a == b
    {
        at += BLOCK_BYTES;
    }
    while at < old.len() {
        let equal = differing_bits(old, new, at).trailing_zeros() as usize / 8;
        at += equal;
        if equal < 8 {
            break;
        }
    }
    at.min(old.len())
}

/// The end of the bytes from `at` on that all differ.
fn different_from(old: &[u8], new: &[u8], mut at: usize) -> usize {
    const HIGH: u64 = LOW << 7;
    while let (Some(a), Some(b)) = (block(old, at), block(new, at))
        && !a.iter().zip(b).fold(false, |any, (a, b)| any | (a == b))
    {
        at += BLOCK_BYTES;
    }
    loop {
        let bits = differing_bits(old, new, at);
        // The highest bit of the first byte that is zero is the lowest that is set.
        let zeros = bits.wrapping_sub(LOW) & !bits & HIGH;
        if zeros != 0 {
            return at + zeros.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
}

/// The lowest bit of each of eight bytes.
const LOW: u64 = u64::from_le_bytes([1; 8]);

const BLOCK_BYTES: usize = 32;

fn block(bytes: &[u8], at: usize) -> Option<&[u8; BLOCK_BYTES]> {
    bytes.get(at..)?.first_chunk()
}

/// Which of eight bytes differ; bytes beyond the end do not.
fn differing_bits(old: &[u8], new: &[u8], at: usize) -> u64 {
    word(old, at) ^ word(new, at)
}

fn word(bytes: &[u8], at: usize) -> u64 {
    let rest = bytes.get(at..).unwrap_or_default();
    let word = rest.first_chunk().copied().unwrap_or_else(|| {
        let mut word = [0; 8];
        word[..rest.len()].copy_from_slice(rest);
        word
    });
    u64::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    /// The patch of a cell, encoded, if it is shorter than the new cell.
    fn patch_of(old: &[u8], new: &[u8]) -> Option<Vec<u8>> {
        let mut out = b"before".to_vec();
        encode(&mut out, old, new, new.len()).then(|| out.split_off(6))
    }

    fn apply(patch: &[u8], cell: &[u8]) -> Result<Vec<u8>, ChangeError> {
        let mut rest = patch;
        let patch = Patch::take(&mut rest).expect("it was encoded");
        assert!(rest.is_empty());
        patch.check(cell)?;
        let new = patch.apply(cell);
        if patch.overwrites() {
            let mut cell = cell.to_vec();
            patch.overwrite(&mut cell);
            assert_eq!(cell, new);
        }
        Ok(new)
    }

    /// A cell, and what some edits at random places make of it.
    fn edited() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
        let edits = vec((any::<prop::sample::Index>(), 0..40usize, vec(any::<u8>(), 0..40), any::<bool>()), 0..5);
        (vec(0..3u8, 0..700), edits).prop_map(|(old, edits)| {
            let mut new = old.clone();
            for (at, left_out, mut added, keeps_length) in edits {
                let at = at.index(new.len() + 1);
                let end = (at + left_out).min(new.len());
                if keeps_length {
                    added.resize(end - at, 7);
                }
                new.splice(at..end, added);
            }
            (old, new)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn a_patch_gives_the_new_cell_and_is_shorter((old, new) in edited()) {
            if let Some(patch) = patch_of(&old, &new) {
                prop_assert!(patch.len() < new.len());
                prop_assert_eq!(apply(&patch, &old), Ok(new));
            }
        }

        #[test]
        fn any_two_cells_have_a_right_patch_or_none(old in vec(any::<u8>(), 0..300), new in vec(any::<u8>(), 0..300)) {
            if let Some(patch) = patch_of(&old, &new) {
                prop_assert_eq!(apply(&patch, &old), Ok(new));
            }
        }

        #[test]
        fn ends_of_runs_are_exact(old in vec(0..2u8, 0..200), new in vec(0..2u8, 200), from in 0..200usize) {
            let new = &new[..old.len()];
            let from = from.min(old.len());
            let run = |equal: bool| (from..old.len()).find(|&at| (old[at] == new[at]) != equal).unwrap_or(old.len());
            prop_assert_eq!(equal_from(&old, new, from), run(true));
            prop_assert_eq!(different_from(&old, new, from), run(false));
        }
    }

    #[test]
    fn what_changes_in_a_few_places_takes_a_few_bytes() {
        let old: Vec<u8> = (0..4096u32).map(|at| ((at * at) >> 5) as u8).collect();
        let mut new = old.clone();
        new[..8].fill(1);
        new[1000..1100].fill(2);
        new[4095] ^= 1;
        let patch = patch_of(&old, &new).expect("it is shorter");
        assert!(patch.len() <= HEAD_BYTES + 109 + 3 * 5, "{}", patch.len());
        // A number before and one behind the place where it grows.
        new.splice(2000..2000, [3; 20]);
        new[3000] ^= 1;
        let patch = patch_of(&old, &new).expect("it is shorter");
        assert!(patch.len() <= HEAD_BYTES + 130 + 5 * 5, "{}", patch.len());
        new.drain(1000..1100);
        let patch = patch_of(&new, &old).expect("it is shorter");
        assert_eq!(apply(&patch, &new), Ok(old));
    }

    #[test]
    fn another_cell_is_refused() {
        let old: Vec<u8> = (0..100u8).map(|at| at.wrapping_mul(7)).collect();
        let patch = patch_of(&old, &[&old[..50], &[1], &old[51..]].concat()).expect("it is shorter");
        for (at, byte) in (0..old.len()).flat_map(|at| (1..=255).map(move |byte| (at, byte))) {
            let mut other = old.clone();
            other[at] ^= byte;
            assert_eq!(apply(&patch, &other), Err(ChangeError::OtherCell), "byte {at} ^ {byte}");
        }
        for len in 0..old.len() {
            assert_eq!(apply(&patch, &old[..len]), Err(ChangeError::OtherCell));
        }
    }

    #[test]
    fn more_edits_than_a_patch_counts_are_none() {
        let (old, mut new) = ([0; 256 * 8], [0; 256 * 8]);
        new.chunks_mut(8).take(255).for_each(|chunk| chunk[0] = 1);
        assert_eq!(apply(&patch_of(&old, &new).expect("there are 255 edits"), &old).as_deref(), Ok(&new[..]));
        new[255 * 8] = 1;
        assert_eq!(patch_of(&old, &new), None);
    }

    #[test]
    fn what_is_no_patch_is_refused_by_name() {
        let (old, new) = ([5; 40], [[5; 20], [6; 20]].concat());
        let patch = patch_of(&old, &new).expect("it is shorter");
        for end in 0..patch.len() {
            assert!(Patch::take(&mut &patch[..end]).is_err(), "{end}");
        }
        let mut beyond = patch.clone();
        beyond[HEAD_BYTES] = 21;
        assert_eq!(apply(&beyond, &old), Err(ChangeError::BeyondCell { used: 41, len: 40 }));
        let mut huge = patch[..HEAD_BYTES].to_vec();
        varint::put(&mut huge, 1 << 16);
        huge.extend_from_slice(&[0, 0]);
        assert_eq!(Patch::take(&mut huge.as_slice()), Err("a number is too large"));
    }
}
