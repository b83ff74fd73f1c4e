//! Pages on their way to the store.

use std::{ops::Range, sync::Arc};

use tantalum_device::AlignedBuffer;

use crate::{PageId, page::header};

/// Copies of pages, one behind the other in memory that devices can write from.
///
/// Invariant: the pages' numbers ascend.
#[derive(Clone, Debug)]
pub struct PageBatch {
    page_size: usize,
    room: usize,
    may_tear: bool,
    ids: Vec<PageId>,
    buffer: Arc<AlignedBuffer>,
}

impl PageBatch {
    /// The most pages in a batch.
    pub const MAX_PAGES: usize = 64;

    /// An empty batch.
    pub fn new(page_size: usize) -> Self {
        Self::with_room(page_size, Self::MAX_PAGES)
    }

    /// An empty batch of at most so many pages.
    ///
    /// # Panics
    /// When they are more than a batch can have.
    pub fn with_room(page_size: usize, room: usize) -> Self {
        assert!(room <= Self::MAX_PAGES, "a batch has at most {} pages, not {room}", Self::MAX_PAGES);
        Self {
            page_size,
            room,
            may_tear: false,
            ids: Vec::with_capacity(room),
            buffer: Arc::new(AlignedBuffer::zeroed(page_size * room)),
        }
    }

    /// Whether a power cut may tear these pages, since redo makes them anew from the log alone. The store has never got them in a
    /// batch that may not tear. False unless set.
    pub fn may_tear(&self) -> bool {
        self.may_tear
    }

    /// See [`may_tear`](Self::may_tear).
    pub fn set_may_tear(&mut self, may_tear: bool) {
        self.may_tear = may_tear;
    }

    /// How many pages there is room for.
    pub fn room(&self) -> usize {
        self.room
    }

    /// Whether there is room for no more.
    pub fn is_full(&self) -> bool {
        self.ids.len() == self.room
    }

    /// Makes the batch empty again. Memory that a device may still read from is left to that device.
    pub fn clear(&mut self) {
        self.ids.clear();
        self.may_tear = false;
        if Arc::get_mut(&mut self.buffer).is_none() {
            self.buffer = Arc::new(AlignedBuffer::zeroed(self.page_size * self.room));
        }
    }

    /// Adds a copy of `page`.
    ///
    /// # Panics
    /// When the batch is full, not cleared since it was stored, or the pages' numbers do not ascend.
    pub fn push(&mut self, id: PageId, page: &[u8]) {
        assert!(self.ids.last().is_none_or(|last| *last < id), "the pages of a batch ascend");
        assert!(!self.is_full(), "there is room for no more than {} pages", self.room);
        assert_eq!(header::page_id(page), id, "a page carries its own number");
        let range = self.range(self.ids.len()..self.ids.len() + 1);
        let buffer = Arc::get_mut(&mut self.buffer).expect("clear() lets go of memory that is in use");
        buffer[range].copy_from_slice(page);
        self.ids.push(id);
    }

    /// Computes the checksums of all pages: the last step before the batch is stored.
    pub fn seal(&mut self) {
        let buffer = Arc::get_mut(&mut self.buffer).expect("clear() lets go of memory that is in use");
        for page in buffer.chunks_exact_mut(self.page_size).take(self.ids.len()) {
            header::seal(page);
        }
    }

    /// The pages' numbers.
    pub fn ids(&self) -> &[PageId] {
        &self.ids
    }

    /// The pages, one behind the other.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[self.range(0..self.ids.len())]
    }

    /// Each page with its number.
    pub fn pages(&self) -> impl Iterator<Item = (PageId, &[u8])> {
        self.ids.iter().copied().zip(self.bytes().chunks_exact(self.page_size))
    }

    /// Where some of the pages stand in [`buffer`](Self::buffer).
    pub fn range(&self, pages: Range<usize>) -> Range<usize> {
        pages.start * self.page_size..pages.end * self.page_size
    }

    /// The memory that holds the pages.
    pub fn buffer(&self) -> &Arc<AlignedBuffer> {
        &self.buffer
    }
}
