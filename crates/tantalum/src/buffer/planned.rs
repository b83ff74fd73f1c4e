//! Memory for pages as they are planned, kept by each thread for its next groups: taking a few KiB from the heap and giving it
//! back costs more than filling it.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A thread keeps so many.
const KEPT: usize = 4;

thread_local! {
    static KEPT_PAGES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// A page as it will be.
#[derive(Debug)]
pub(super) struct Planned(Vec<u8>);

impl Planned {
    /// A copy of a page.
    pub fn of(page: &[u8]) -> Self {
        let mut bytes = KEPT_PAGES.with_borrow_mut(Vec::pop).unwrap_or_default();
        bytes.clear();
        bytes.extend_from_slice(page);
        Self(bytes)
    }
}

impl Drop for Planned {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        // A thread that ends keeps nothing any more.
        _ = KEPT_PAGES.try_with(|kept| {
            let mut kept = kept.borrow_mut();
            if kept.len() < KEPT {
                kept.push(bytes);
            }
        });
    }
}

impl Deref for Planned {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Planned {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_planned_before_is_not_in_the_next() {
        let mut first = Planned::of(&[1; 4096]);
        first[0] = 9;
        assert_eq!(first.len(), 4096);
        drop(first);
        assert_eq!(*Planned::of(&[2; 8]), [2; 8]);
        assert!(KEPT_PAGES.with_borrow(|kept| (1..=KEPT).contains(&kept.len())));
    }
}
