//! What a medium holds: a sparse store of pieces, in memory or in a file.
//!
//! All-zero pieces cost nothing, and a copy of a piece shares its bytes. A file that fails is remembered: the store
//! then reads as zeros, and its owner reports [`Contents::failure`] to the host.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;

use crate::{Error, MediaError, Result};

/// Bytes of a piece.
pub const PIECE_BYTES: usize = 4096;

/// The bytes of one piece; `None` for zeros.
pub type Piece = Option<Arc<[u8; PIECE_BYTES]>>;

/// Bytes by offset, zero until written.
///
/// ```
/// let mut contents = tantalum_flash::Contents::in_memory(1 << 40); // a terabyte costs nothing
/// contents.write(5000, b"tantalum");
/// let mut read = [0; 10];
/// contents.read(4999, &mut read);
/// assert_eq!(&read, b"\0tantalum\0");
/// ```
#[derive(Debug)]
pub struct Contents {
    store: Store,
    len: u64,
}

#[derive(Debug)]
enum Store {
    Memory(Vec<Chunk>),
    File { file: File, failure: std::cell::RefCell<Option<MediaError>> },
}

/// Pieces per chunk of the index: a chunk is allocated when one of its pieces is.
const CHUNK_PIECES: usize = 512;

type Chunk = Option<Box<[Piece]>>;

impl Contents {
    /// Zeros in memory.
    pub fn in_memory(len: u64) -> Self {
        let chunks = len.div_ceil((PIECE_BYTES * CHUNK_PIECES) as u64) as usize;
        Self { store: Store::Memory((0..chunks).map(|_| None).collect()), len }
    }

    /// The bytes of a file, which is made (sparse) if it is not there, and locked while it is open.
    ///
    /// # Errors
    /// [`Error::File`], also if another process uses the file; [`Error::WrongSize`] if a file of another size is there.
    pub fn in_file(path: &Path, len: u64) -> Result<Self> {
        let failed = |operation| move |source| Error::File { path: path.to_owned(), operation, source };
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path);
        let file = file.map_err(failed("open"))?;
        file.try_lock().map_err(|error| failed("lock")(error.into()))?;
        let found = file.metadata().map_err(failed("inspect"))?.len();
        match found {
            0 => file.set_len(len).map_err(failed("extend"))?,
            found if found != len => return Err(Error::WrongSize { path: path.to_owned(), found, expected: len }),
            _ => {}
        }
        Ok(Self { store: Store::File { file, failure: std::cell::RefCell::new(None) }, len })
    }

    /// Size in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first failure of the file behind it.
    pub fn failure(&self) -> Option<MediaError> {
        match &self.store {
            Store::Memory(_) => None,
            Store::File { failure, .. } => failure.borrow().clone(),
        }
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the contents.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.check(offset, buffer.len());
        match &self.store {
            Store::Memory(chunks) => {
                for (piece, start, at) in spans(offset, buffer.len()) {
                    let target = &mut buffer[at];
                    match memory_piece(chunks, piece) {
                        Some(bytes) => target.copy_from_slice(&bytes[start..start + target.len()]),
                        None => target.fill(0),
                    }
                }
            }
            Store::File { file, .. } => {
                let result = file.read_exact_at(buffer, offset);
                if result.is_err() {
                    buffer.fill(0);
                }
                self.note(result);
            }
        }
    }

    /// Stores `bytes` at `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the contents.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len());
        match &mut self.store {
            Store::Memory(chunks) => {
                for (piece, start, at) in spans(offset, bytes.len()) {
                    let bytes = &bytes[at];
                    let slot = memory_slot(chunks, piece);
                    match <&[u8; PIECE_BYTES]>::try_from(bytes) {
                        Ok(whole) => *slot = piece_of(whole),
                        Err(_) => {
                            let piece = slot.get_or_insert_with(|| Arc::new([0; PIECE_BYTES]));
                            Arc::make_mut(piece)[start..start + bytes.len()].copy_from_slice(bytes);
                        }
                    }
                }
            }
            Store::File { file, .. } => {
                let result = file.write_all_at(bytes, offset);
                self.note(result);
            }
        }
    }

    /// The piece of this number, shared.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn piece(&self, piece: usize) -> Piece {
        match &self.store {
            Store::Memory(chunks) => memory_piece(chunks, piece).clone(),
            Store::File { .. } => {
                let mut bytes = [0; PIECE_BYTES];
                self.read((piece * PIECE_BYTES) as u64, &mut bytes);
                piece_of(&bytes)
            }
        }
    }

    /// Replaces the piece of this number, and returns what was there.
    ///
    /// # Panics
    /// If there is no such piece.
    pub fn replace(&mut self, piece: usize, new: Piece) -> Piece {
        match &mut self.store {
            Store::Memory(chunks) => match &new {
                None if chunks[piece / CHUNK_PIECES].is_none() => None,
                _ => std::mem::replace(memory_slot(chunks, piece), new),
            },
            Store::File { .. } => {
                let old = self.piece(piece);
                if old != new {
                    self.write((piece * PIECE_BYTES) as u64, new.as_deref().unwrap_or(&[0; PIECE_BYTES]));
                }
                old
            }
        }
    }

    fn check(&self, offset: u64, len: usize) {
        let fits = offset.checked_add(len as u64).is_some_and(|end| end <= self.len);
        assert!(fits, "bytes {offset} to {offset} + {len} lie within the {} bytes of the contents", self.len);
    }

    fn note(&self, result: std::io::Result<()>) {
        if let (Err(error), Store::File { failure, .. }) = (result, &self.store) {
            failure.borrow_mut().get_or_insert_with(|| MediaError::File { message: error.to_string() });
        }
    }
}

/// A piece holding a copy of `bytes`.
pub(crate) fn piece_of(bytes: &[u8; PIECE_BYTES]) -> Piece {
    let is_zero = bytes.as_chunks::<8>().0.iter().all(|word| *word == [0; 8]);
    (!is_zero).then(|| Arc::new(*bytes))
}

fn memory_piece(chunks: &[Chunk], piece: usize) -> &Piece {
    const ZEROS: &Piece = &None;
    match &chunks[piece / CHUNK_PIECES] {
        Some(chunk) => &chunk[piece % CHUNK_PIECES],
        None => ZEROS,
    }
}

fn memory_slot(chunks: &mut [Chunk], piece: usize) -> &mut Piece {
    let chunk = &mut chunks[piece / CHUNK_PIECES];
    &mut chunk.get_or_insert_with(|| (0..CHUNK_PIECES).map(|_| None).collect())[piece % CHUNK_PIECES]
}

/// The pieces that a range touches: piece, first byte in it, and the part of the range that lies in it.
fn spans(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let absolute = offset + at as u64;
        let start = (absolute % PIECE_BYTES as u64) as usize;
        let part = at..len.min(at + PIECE_BYTES - start);
        at = part.end;
        Some(((absolute / PIECE_BYTES as u64) as usize, start, part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exercise(mut contents: Contents) {
        let bytes: Vec<u8> = (0..9000).map(|i| (i % 251) as u8 + 1).collect();
        contents.write(3000, &bytes);
        let mut read = vec![9; 9000];
        contents.read(3000, &mut read);
        assert_eq!(read, bytes);
        let second = contents.piece(1);
        assert_eq!(second.as_deref().map(|piece| piece[0]), Some(bytes[1096]));
        assert_eq!(contents.replace(1, None), second);
        contents.read(3000, &mut read);
        assert!(read[1096..5192].iter().all(|&byte| byte == 0));
        assert_eq!(read[5192..], bytes[5192..]);
        assert_eq!(contents.failure(), None);
    }

    #[test]
    fn memory_and_file_hold_what_was_written() {
        exercise(Contents::in_memory(1 << 30));
        let directory = tempfile::tempdir().unwrap();
        exercise(Contents::in_file(&directory.path().join("contents"), 1 << 20).unwrap());
    }

    #[test]
    fn a_file_is_found_again_and_its_size_is_checked() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("contents");
        Contents::in_file(&path, 8192).unwrap().write(5, b"kept");
        let again = Contents::in_file(&path, 8192).unwrap();
        let mut read = [0; 4];
        again.read(5, &mut read);
        assert_eq!(&read, b"kept");
        assert!(matches!(Contents::in_file(&path, 8192), Err(Error::File { operation: "lock", .. })));
        drop(again);
        assert!(matches!(Contents::in_file(&path, 4096), Err(Error::WrongSize { .. })));
    }
}
