//! Copies of pages, in memory that a thread uses again: taking a few KiB from the heap and giving it back costs more than filling it.

use std::{
    cell::RefCell,
    ops::{Deref, DerefMut},
};

/// Copies that each thread keeps memory for.
const KEPT: usize = 4;

thread_local! {
    static KEPT_PAGES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A copy of a page, or nothing.
#[derive(Debug, Default)]
pub struct PageCopy(Vec<u8>);

impl PageCopy {
    /// A copy of a page.
    pub fn of(page: &[u8]) -> Self {
        let mut copy = Self::default();
        copy.fill(page);
        copy
    }

    /// Copies another page, in the place of what was copied before.
    pub fn fill(&mut self, page: &[u8]) {
        if self.0.capacity() == 0 {
            self.0 = KEPT_PAGES.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        self.0.clear();
        self.0.extend_from_slice(page);
    }
}

impl Drop for PageCopy {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        if bytes.capacity() == 0 {
            return;
        }
        // A thread that ends keeps nothing any more.
        _ = KEPT_PAGES.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(bytes);
            }
        });
    }
}

impl Deref for PageCopy {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for PageCopy {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_used_again_holds_the_new_page_alone() {
        let mut first = PageCopy::of(&[1; 4096]);
        first[0] = 9;
        assert_eq!(first.len(), 4096);
        drop(first);
        drop(PageCopy::default());
        assert_eq!(*PageCopy::of(&[2; 8]), [2; 8]);
        let is_kept = |kept: &Vec<Vec<u8>>| !kept.is_empty() && kept.len() <= KEPT && kept[0].capacity() >= 4096;
        assert!(KEPT_PAGES.with_borrow(is_kept));
    }
}
