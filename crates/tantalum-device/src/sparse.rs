//! Bytes in memory of which zeros take no space, and which are cheap to clone: pieces are shared until one of the two changes.

use std::ops::Range;
use std::sync::Arc;

/// Bytes of a piece.
pub const PIECE_BYTES: usize = 4096;

/// The bytes of one piece; `None` for zeros.
pub type Piece = Option<Arc<[u8; PIECE_BYTES]>>;

/// Pieces per chunk of the index: a chunk is allocated when one of its pieces is.
const CHUNK_PIECES: usize = 512;

type Chunk = Option<Box<[Piece]>>;

/// Bytes by offset, zero until written. Ranges lie within their length.
///
/// ```
/// let mut first = tantalum_device::sparse::SparseBytes::zeroed(1 << 40); // a terabyte costs nothing
/// first.write(5000, b"old");
/// let second = first.clone();
/// first.write(5000, b"new");
/// let mut read = [0; 5];
/// second.read(4999, &mut read);
/// assert_eq!(&read, b"\0old\0");
/// ```
#[derive(Debug, Clone)]
pub struct SparseBytes {
    chunks: Vec<Chunk>,
    len: u64,
}

impl SparseBytes {
    /// So many zeros.
    pub fn zeroed(len: u64) -> Self {
        let mut bytes = Self { chunks: Vec::new(), len: 0 };
        bytes.grow(len);
        bytes
    }

    /// How many there are.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether there are none at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends zeros until there are so many.
    pub fn grow(&mut self, len: u64) {
        self.chunks.resize(len.div_ceil((PIECE_BYTES * CHUNK_PIECES) as u64) as usize, None);
        self.len = len;
    }

    /// Cuts off what lies behind so many bytes.
    pub fn shrink(&mut self, len: u64) {
        let chunk_bytes = (PIECE_BYTES * CHUNK_PIECES) as u64;
        let kept = len.next_multiple_of(chunk_bytes).min(self.len);
        self.clear(len, (kept - len) as usize);
        self.chunks.truncate(len.div_ceil(chunk_bytes) as usize);
        self.len = len;
    }

    /// Fills `buffer` from `offset`.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        for Part { unit: piece, start, range } in parts(offset, buffer.len(), PIECE_BYTES) {
            let target = &mut buffer[range];
            match self.piece(piece as usize) {
                Some(bytes) => target.copy_from_slice(&bytes[start..start + target.len()]),
                None => target.fill(0),
            }
        }
    }

    /// Stores `bytes` at `offset`.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        for Part { unit: piece, start, range } in parts(offset, bytes.len(), PIECE_BYTES) {
            let bytes = &bytes[range];
            let slot = self.slot(piece as usize);
            match <&[u8; PIECE_BYTES]>::try_from(bytes) {
                Ok(whole) => *slot = piece_in(slot.take(), whole),
                Err(_) => {
                    let piece = slot.get_or_insert_with(|| Arc::new([0; PIECE_BYTES]));
                    Arc::make_mut(piece)[start..start + bytes.len()].copy_from_slice(bytes);
                }
            }
        }
    }

    /// Stores zeros.
    pub fn clear(&mut self, offset: u64, len: usize) {
        for Part { unit: piece, start, range } in parts(offset, len, PIECE_BYTES) {
            if range.len() == PIECE_BYTES {
                self.replace(piece as usize, None);
            } else if self.piece(piece as usize).is_some() {
                self.write(piece * PIECE_BYTES as u64 + start as u64, &vec![0; range.len()]);
            }
        }
    }

    /// The piece of this number.
    pub fn piece(&self, piece: usize) -> &Piece {
        const ZEROS: &Piece = &None;
        match &self.chunks[piece / CHUNK_PIECES] {
            Some(chunk) => &chunk[piece % CHUNK_PIECES],
            None => ZEROS,
        }
    }

    /// Replaces the piece of this number, and returns what was there.
    pub fn replace(&mut self, piece: usize, new: Piece) -> Piece {
        match &new {
            None if self.chunks[piece / CHUNK_PIECES].is_none() => None,
            _ => std::mem::replace(self.slot(piece), new),
        }
    }

    fn slot(&mut self, piece: usize) -> &mut Piece {
        let chunk = &mut self.chunks[piece / CHUNK_PIECES];
        &mut chunk.get_or_insert_with(|| (0..CHUNK_PIECES).map(|_| None).collect())[piece % CHUNK_PIECES]
    }
}

/// A piece holding a copy of `bytes`.
pub fn piece_of(bytes: &[u8; PIECE_BYTES]) -> Piece {
    piece_in(None, bytes)
}

/// The same, in memory that was a piece before.
pub fn piece_in(used: Piece, bytes: &[u8; PIECE_BYTES]) -> Piece {
    if bytes.as_chunks::<8>().0.iter().all(|word| *word == [0; 8]) {
        return None;
    }
    let mut piece = used.unwrap_or_else(|| Arc::new([0; PIECE_BYTES]));
    match Arc::get_mut(&mut piece) {
        Some(unshared) => *unshared = *bytes,
        None => piece = Arc::new(*bytes),
    }
    Some(piece)
}

/// A part of a range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The unit that it lies in.
    pub unit: u64,
    /// Its first byte within the unit.
    pub start: usize,
    /// Its bytes, counted from the beginning of the range.
    pub range: Range<usize>,
}

/// The parts of `len` bytes from `offset`, in units of so many bytes.
#[inline]
pub fn parts(offset: u64, len: usize, unit_bytes: usize) -> impl Iterator<Item = Part> {
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
    fn ranges_across_pages_are_read_as_written() {
        let mut image = SparseBytes::zeroed(3 * PIECE_BYTES as u64);
        let bytes: Vec<u8> = (0..6000).map(|i| (i % 251) as u8 + 1).collect();
        image.write(3584, &bytes);
        let before = image.clone();
        image.clear(4096, 4096);
        let mut read = vec![0; 6000];
        before.read(3584, &mut read);
        assert_eq!(read, bytes);
        image.read(3584, &mut read);
        assert_eq!(read[..512], bytes[..512]);
        assert!(read[512..4608].iter().all(|&byte| byte == 0));
        assert_eq!(read[4608..], bytes[4608..]);
    }

    #[test]
    fn a_range_is_split_at_the_ends_of_units() {
        let found: Vec<_> = parts(30, 75, 50).map(|part| (part.unit, part.start, part.range)).collect();
        assert_eq!(found, [(0, 30, 0..20), (1, 0, 20..70), (2, 0, 70..75)]);
        assert_eq!(parts(50, 50, 50).collect::<Vec<_>>(), [Part { unit: 1, start: 0, range: 0..50 }]);
        assert_eq!(parts(30, 0, 50).next(), None);
    }
}
