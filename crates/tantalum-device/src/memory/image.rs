//! Bytes in memory that are cheap to clone: pages shared until one is written, none for zeros.

use std::sync::Arc;

const PAGE_BYTES: usize = 4096;

type Page = [u8; PAGE_BYTES];

/// The contents of a medium.
#[derive(Clone)]
pub(super) struct Image {
    /// `None` is a page of zeros.
    pages: Vec<Option<Arc<Page>>>,
    len: u64,
}

impl Image {
    pub(super) fn zeroed(len: u64) -> Self {
        let mut image = Self { pages: Vec::new(), len: 0 };
        image.grow(len);
        image
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn grow(&mut self, len: u64) {
        self.pages.resize(len.div_ceil(PAGE_BYTES as u64) as usize, None);
        self.len = len;
    }

    /// Fills `buffer` from `offset`; the range lies within the image.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) {
        for (page, start, at) in spans(offset, buffer.len()) {
            let piece = &mut buffer[at];
            match &self.pages[page] {
                Some(bytes) => piece.copy_from_slice(&bytes[start..start + piece.len()]),
                None => piece.fill(0),
            }
        }
    }

    /// Stores `bytes` at `offset`; the range lies within the image.
    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        for (page, start, at) in spans(offset, bytes.len()) {
            let piece = &bytes[at];
            let page = self.pages[page].get_or_insert_with(|| Arc::new([0; PAGE_BYTES]));
            Arc::make_mut(page)[start..start + piece.len()].copy_from_slice(piece);
        }
    }

    /// Stores zeros.
    pub(super) fn clear(&mut self, offset: u64, len: usize) {
        for (page, start, at) in spans(offset, len) {
            if at.len() == PAGE_BYTES {
                self.pages[page] = None;
            } else if let Some(bytes) = &mut self.pages[page] {
                Arc::make_mut(bytes)[start..start + at.len()].fill(0);
            }
        }
    }
}

/// The pages that a range touches: page, first byte in it, and the part of the range that lies in it.
fn spans(offset: u64, len: usize) -> impl Iterator<Item = (usize, usize, std::ops::Range<usize>)> {
    let mut at = 0;
    std::iter::from_fn(move || {
        if at == len {
            return None;
        }
        let absolute = offset as usize + at;
        let start = absolute % PAGE_BYTES;
        let piece = at..len.min(at + PAGE_BYTES - start);
        at = piece.end;
        Some((absolute / PAGE_BYTES, start, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_across_pages_are_read_as_written() {
        let mut image = Image::zeroed(3 * PAGE_BYTES as u64);
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
}
