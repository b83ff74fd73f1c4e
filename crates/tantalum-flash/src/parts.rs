//! A range of bytes in parts that lie in one unit each: a page, a piece, a segment.

use std::ops::Range;

/// A part of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    /// The unit that it lies in.
    pub unit: u64,
    /// Its first byte within the unit.
    pub start: usize,
    /// Its bytes, counted from the beginning of the range.
    pub range: Range<usize>,
}

/// The parts of `len` bytes from `offset`, in units of so many bytes.
#[inline]
pub(crate) fn parts(offset: u64, len: usize, unit_bytes: usize) -> impl Iterator<Item = Part> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let absolute = offset + at as u64;
        let start = (absolute % unit_bytes as u64) as usize;
        let range = at..len.min(at + unit_bytes - start);
        at = range.end;
        (!range.is_empty()).then_some(Part { unit: absolute / unit_bytes as u64, start, range })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_split_at_the_ends_of_units() {
        let found: Vec<_> = parts(30, 75, 50).map(|part| (part.unit, part.start, part.range)).collect();
        assert_eq!(found, [(0, 30, 0..20), (1, 0, 20..70), (2, 0, 70..75)]);
        assert_eq!(parts(50, 50, 50).collect::<Vec<_>>(), [Part { unit: 1, start: 0, range: 0..50 }]);
        assert_eq!(parts(30, 0, 50).next(), None);
    }
}
