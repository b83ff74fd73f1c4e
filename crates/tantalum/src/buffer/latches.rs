//! What tasks hold while they wait for something: the classes of the table in ARCHITECTURE.md, checked in debug builds.

use tantalum_rt::{Held, HeldClass, hold, holds_none};
use tantalum_store::{PageKind, page::header};

const INNER: HeldClass = HeldClass::briefly(0, "the latch of an inner page");
const LEAF: HeldClass = HeldClass::briefly(1, "the latch of a leaf");
const OVERFLOW: HeldClass = HeldClass::briefly(2, "the latch of an overflow page");
const SPACE_MAP: HeldClass = HeldClass::briefly(3, "the latch of a space map");
const FRESH: HeldClass = HeldClass::briefly(4, "the latch of a page that stands for nothing yet");
/// The right to store a batch of pages.
pub(super) const WRITE_PERMIT: HeldClass = HeldClass::new(5, "a permit to write pages");
/// What keeps snapshots from beginning.
pub const SNAPSHOT_GATE: HeldClass = HeldClass::briefly(6, "the gate of snapshots");

fn class_of(page: &[u8]) -> HeldClass {
    match header::kind(page) {
        Ok(PageKind::Inner) => INNER,
        Ok(PageKind::Leaf) => LEAF,
        Ok(PageKind::Overflow) => OVERFLOW,
        Ok(PageKind::SpaceMap) => SPACE_MAP,
        Ok(PageKind::Free) | Err(_) => FRESH,
    }
}

/// The task has latched a page without waiting.
#[inline]
pub(super) fn latched_at_once(page: &[u8]) -> Held {
    // Asked only where it is checked.
    hold(if cfg!(debug_assertions) { class_of(page) } else { FRESH })
}

/// The task has latched a page that was a leaf before, and has waited for it for a short time at most.
#[inline]
#[track_caller]
pub(super) fn latched_further_leaf(page: &[u8]) -> Held {
    holds_none(&[OVERFLOW, SPACE_MAP, WRITE_PERMIT], "the latch of a leaf");
    latched_at_once(page)
}

/// The task has latched a page that it has just allocated.
#[inline]
pub(super) fn latched_new() -> Held {
    hold(FRESH)
}

/// The task has latched a page that it was ready to wait for: in the order of latches, and without a write permit.
#[inline]
#[track_caller]
pub(super) fn latched(page: &[u8]) -> Held {
    if cfg!(debug_assertions) {
        let later: &[HeldClass] = match class_of(page) {
            INNER => &[LEAF, OVERFLOW, SPACE_MAP, WRITE_PERMIT],
            LEAF => &[OVERFLOW, SPACE_MAP, WRITE_PERMIT],
            OVERFLOW => &[SPACE_MAP, WRITE_PERMIT],
            _ => &[WRITE_PERMIT],
        };
        holds_none(later, "a latch");
    }
    latched_at_once(page)
}
