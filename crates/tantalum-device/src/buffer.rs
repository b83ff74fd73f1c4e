//! Heap memory that a device can read from and write into without a copy.
//!
//! Invariant: the first byte lies at a multiple of [`ALIGNMENT`], the memory is initialized, and its length never changes.

#![allow(unsafe_code)] // Memory with an alignment of its own, which no safe type allocates.

use std::alloc::{self, Layout};
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;

/// Alignment in bytes of an [`AlignedBuffer`]; every device's direct I/O is content with it.
pub const ALIGNMENT: usize = 4096;

/// An [`AlignedBuffer`] of so many bytes or more lies in huge pages, if the kernel has some and hands them out on request: one
/// translation of addresses then serves 512 pages of a cache.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Bytes on the heap, aligned to [`ALIGNMENT`], of a fixed length.
///
/// ```
/// let mut buffer = tantalum_device::AlignedBuffer::zeroed(8192);
/// buffer[..5].copy_from_slice(b"hello");
/// assert_eq!(buffer.len(), 8192);
/// assert_eq!(buffer.as_ptr() as usize % tantalum_device::ALIGNMENT, 0);
/// ```
pub struct AlignedBuffer {
    start: NonNull<u8>,
    len: usize,
    /// Keeps the memory, of which others may have other parts. `None` if the buffer is empty.
    memory: Option<Arc<Memory>>,
}

/// One allocation.
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the buffer owns its bytes alone, like a `Box<[u8]>`.
unsafe impl Send for AlignedBuffer {}
// SAFETY: a shared reference only reads; writing needs `&mut`.
unsafe impl Sync for AlignedBuffer {}
// SAFETY: nothing but its end is ever done to an allocation, and that by one owner.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

/// Asks the kernel for huge pages for memory that is read at random and was not touched yet. Does nothing for less than
/// [`HUGE_PAGE_BYTES`], and what the kernel cannot do is no error.
///
/// ```
/// let mut table: Vec<u64> = Vec::with_capacity(1 << 20);
/// tantalum_device::ask_for_huge_pages(table.spare_capacity_mut());
/// table.resize(1 << 20, 0);
/// ```
pub fn ask_for_huge_pages<T>(memory: &[T]) {
    let bytes = size_of_val(memory);
    if bytes < HUGE_PAGE_BYTES {
        return;
    }
    let start = memory.as_ptr().cast::<u8>();
    // Whole pages of it.
    let skipped = start.align_offset(ALIGNMENT);
    let pages_bytes = (bytes - skipped) / ALIGNMENT * ALIGNMENT;
    // SAFETY: the range is within the memory, which is borrowed meanwhile; the advice changes no bytes of it.
    _ = unsafe {
        rustix::mm::madvise(start.add(skipped).cast_mut().cast(), pages_bytes, rustix::mm::Advice::LinuxHugepage)
    };
}

impl AlignedBuffer {
    /// A buffer of `len` zero bytes. The length is exact, not rounded up.
    ///
    /// # Panics
    /// If `len` exceeds `isize::MAX` less [`HUGE_PAGE_BYTES`]. Running out of memory aborts, as for `Vec`.
    pub fn zeroed(len: usize) -> Self {
        if len == 0 {
            return Self { start: Self::layout(1).dangling_ptr(), len, memory: None };
        }
        let layout = Self::layout(len);
        // SAFETY: the layout's size is not zero.
        let start = unsafe { alloc::alloc(layout) };
        let Some(start) = NonNull::new(start) else { alloc::handle_alloc_error(layout) };
        // Before the first touch, which decides what pages the memory gets.
        // SAFETY: the allocation has so many bytes, and bytes that may be uninitialized may be borrowed as such.
        ask_for_huge_pages(unsafe { std::slice::from_raw_parts(start.as_ptr().cast::<MaybeUninit<u8>>(), len) });
        // SAFETY: the allocation has so many bytes.
        unsafe { start.as_ptr().write_bytes(0, len) };
        Self { start, len, memory: Some(Arc::new(Memory { start, layout })) }
    }

    /// Cuts the buffer into pieces of `bytes` bytes each, which share its memory: it is freed with the last of them.
    /// Many small aligned allocations would take twice their size.
    ///
    /// # Panics
    /// Unless `bytes` is a positive multiple of [`ALIGNMENT`] and divides the length.
    pub fn into_pieces(self, bytes: usize) -> impl Iterator<Item = AlignedBuffer> {
        assert!(bytes > 0 && bytes.is_multiple_of(ALIGNMENT) && self.len.is_multiple_of(bytes), "pieces are aligned");
        (0..self.len / bytes).map(move |index| Self {
            // SAFETY: the piece lies within the allocation, and no other piece overlaps it.
            start: unsafe { self.start.add(index * bytes) },
            len: bytes,
            memory: self.memory.clone(),
        })
    }

    /// A buffer holding a copy of `bytes`.
    pub fn copy_from(bytes: &[u8]) -> Self {
        let mut buffer = Self::zeroed(bytes.len());
        buffer.copy_from_slice(bytes);
        buffer
    }

    fn layout(len: usize) -> Layout {
        let alignment = if len < HUGE_PAGE_BYTES { ALIGNMENT } else { HUGE_PAGE_BYTES };
        Layout::from_size_align(len, alignment).expect("a buffer's length fits the address space")
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc` with this same layout, and no buffer has any of it any more.
        unsafe { alloc::dealloc(self.start.as_ptr(), self.layout) }
    }
}

impl Deref for AlignedBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: `start` is aligned and valid for `len` initialized bytes while `self` lives (dangling only if empty).
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` is the only way to reach the bytes.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Clone for AlignedBuffer {
    fn clone(&self) -> Self {
        Self::copy_from(self)
    }
}

impl fmt::Debug for AlignedBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AlignedBuffer").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_exact_aligned_and_zero() {
        for len in [0, 1, 511, 4096, 4097, 1 << 20, HUGE_PAGE_BYTES, HUGE_PAGE_BYTES + 5] {
            let buffer = AlignedBuffer::zeroed(len);
            assert_eq!(buffer.len(), len);
            assert_eq!(buffer.as_ptr() as usize % ALIGNMENT, 0);
            assert!(buffer.iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn a_copy_holds_the_bytes_and_is_independent() {
        let first = AlignedBuffer::copy_from(b"abc");
        let mut second = first.clone();
        second[0] = b'x';
        assert_eq!((&first[..], &second[..]), (&b"abc"[..], &b"xbc"[..]));
    }

    #[test]
    fn pieces_are_aligned_disjoint_and_outlive_one_another() {
        let mut whole = AlignedBuffer::zeroed(4 * ALIGNMENT);
        whole[ALIGNMENT] = 7;
        let mut pieces: Vec<_> = whole.into_pieces(ALIGNMENT).collect();
        assert_eq!(pieces.len(), 4);
        pieces[0].fill(1);
        let second = pieces.remove(1);
        drop(pieces);
        assert_eq!((second[0], second[1], second.len()), (7, 0, ALIGNMENT));
        assert_eq!(second.as_ptr() as usize % ALIGNMENT, 0);
    }
}
