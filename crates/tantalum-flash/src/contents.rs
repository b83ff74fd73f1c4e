//! What a medium holds: a sparse store of pieces, in memory or in a file.
//!
//! All-zero pieces cost nothing, and a copy of a piece shares its bytes. A file that fails is remembered: the store
//! then reads as zeros, and its owner reports [`Contents::failure`] to the host.

use std::sync::Arc;

use tantalum_device::sparse::{PIECE_BYTES, Piece, SparseBytes, piece_of};

use crate::MediaError;
use crate::file_backed::MediumFile;

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
    Memory(SparseBytes),
    /// An area of a file, from its first byte there.
    File {
        file: Arc<MediumFile>,
        base: u64,
    },
}

impl Contents {
    /// Zeros in memory.
    pub fn in_memory(len: u64) -> Self {
        Self { store: Store::Memory(SparseBytes::zeroed(len)), len }
    }

    /// The next area of a file.
    pub(crate) fn in_file(file: &Arc<MediumFile>, len: u64) -> Self {
        Self { store: Store::File { base: file.allocate(len), file: Arc::clone(file) }, len }
    }

    /// The next area of the same file, for what a medium keeps beside its contents; `None` in memory.
    pub(crate) fn beside(&self, len: u64) -> Option<Self> {
        match &self.store {
            Store::Memory(_) => None,
            Store::File { file, .. } => Some(Self::in_file(file, len)),
        }
    }

    /// A second store with the same bytes, independent from here on, and cheap: the two share each piece until one of them
    /// changes it. `None` for one in a file.
    ///
    /// ```
    /// let mut first = tantalum_flash::Contents::in_memory(1 << 20);
    /// first.write(0, b"old");
    /// let second = first.fork().expect("in memory");
    /// first.write(0, b"new");
    /// let mut read = [0; 3];
    /// second.read(0, &mut read);
    /// assert_eq!(&read, b"old");
    /// ```
    pub fn fork(&self) -> Option<Self> {
        match &self.store {
            Store::Memory(bytes) => Some(Self { store: Store::Memory(bytes.clone()), len: self.len }),
            Store::File { .. } => None,
        }
    }

    /// Whether the device begins to exist. One whose file was there before is powered on instead.
    pub(crate) fn is_new(&self) -> bool {
        match &self.store {
            Store::Memory(_) => true,
            Store::File { file, .. } => file.is_new(),
        }
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
            Store::File { file, .. } => file.failure(),
        }
    }

    /// Fills `buffer` from `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the contents.
    pub fn read(&self, offset: u64, buffer: &mut [u8]) {
        self.check(offset, buffer.len());
        match &self.store {
            Store::Memory(memory) => memory.read(offset, buffer),
            Store::File { file, base } => file.read(base + offset, buffer),
        }
    }

    /// Stores `bytes` at `offset`.
    ///
    /// # Panics
    /// If the range does not lie within the contents.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.check(offset, bytes.len());
        match &mut self.store {
            Store::Memory(memory) => memory.write(offset, bytes),
            Store::File { file, base } => file.write(*base + offset, bytes),
        }
    }

    /// The piece of this number, shared.
    pub(crate) fn piece(&self, piece: usize) -> Piece {
        match &self.store {
            Store::Memory(memory) => memory.piece(piece).clone(),
            Store::File { .. } => {
                let mut bytes = [0; PIECE_BYTES];
                self.read((piece * PIECE_BYTES) as u64, &mut bytes);
                piece_of(&bytes)
            }
        }
    }

    /// Replaces the piece of this number, and returns what was there.
    pub(crate) fn replace(&mut self, piece: usize, new: Piece) -> Piece {
        match &mut self.store {
            Store::Memory(memory) => memory.replace(piece, new),
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
        let file = MediumFile::open(&directory.path().join("medium"), "test").unwrap();
        let first = Contents::in_file(&file, 1 << 20);
        let second = first.beside(1 << 20).unwrap();
        exercise(first);
        exercise(second);
    }
}
