//! Hints of the [`BufferPool`]: in which frame the leaf of a key was found before, so that a search need not descend the tree.
//!
//! A hint says no more than that: the frame may hold another page by now, and the page may have other keys. A task that follows a
//! hint latches the frame and checks the page. So hints need no lock, and are never taken back.

use std::{
    hash::{BuildHasher, Hash},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use tantalum_device::ask_for_huge_pages;
use tantalum_rt::{collections::FixedState, prefetch};
use tantalum_store::page::slots;

use super::{BufferPool, frame::PageView};

/// Hints for each frame, of 8 bytes each: 64 bytes for a page of 4096 or more.
const PER_FRAME: usize = 8;

/// Hints of a set, in one cache line: a key's hint is in either.
const WAYS: usize = 2;

const COUNTERS: usize = 64;

/// What a hint is for: the hash of a position in a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HintKey(u64);

impl HintKey {
    /// Equal positions have equal keys, and others hardly ever.
    pub fn new(position: impl Hash) -> Self {
        Self(FixedState::default().hash_one(position))
    }

    /// The hash.
    pub fn hash(self) -> u64 {
        self.0
    }

    /// What tells apart the keys of one set. Not 0.
    fn tag(self) -> u16 {
        (self.0 >> 48) as u16 | 1
    }
}

/// Where a key's page was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    pub frame: u32,
    /// The entry of the page that was wanted.
    pub entry: u16,
}

impl BufferPool {
    /// The page that the hint for a key leads to, latched for reading, and the entry that was wanted of it. Both may be others by
    /// now: check the page, and if it is still the right one, call [`note_hint`](Self::note_hint). `None` without a hint.
    pub fn hinted_page(&self, key: HintKey) -> Option<(PageView<'_>, usize)> {
        let Hint { frame: index, entry } = self.shared.hints.find(key)?;
        let frame = self.shared.frames.get(index as usize)?;
        let content = match frame.latch.try_read() {
            Some(content) => content,
            // A task that reads another page into the frame holds the latch for as long as the device takes.
            None if !frame.state.is_loaded() => return None,
            None => frame.latch.read(),
        };
        content.is_present().then(|| (PageView::new(frame, index, content), entry.into()))
    }

    /// Has the processor fetch what following the hints for some keys reads, for all of them at the same time: one after the other, each
    /// would wait for memory several times.
    pub fn prefetch_hinted(&self, keys: &[HintKey]) {
        let shared = &*self.shared;
        keys.iter().for_each(|key| prefetch(shared.hints.set(*key).as_ptr()));
        let hinted = |key: &HintKey| {
            let Hint { frame, entry } = shared.hints.find(*key)?;
            Some((shared.frames.get(frame as usize)?, usize::from(entry)))
        };
        keys.iter().filter_map(hinted).for_each(|(frame, _)| prefetch(frame));
        for (frame, entry) in keys.iter().filter_map(hinted) {
            prefetch(Arc::as_ptr(&frame.latch));
            let bytes = frame.bytes_at.load(Ordering::Relaxed);
            // The header, the slot that was wanted, and the end, where the fences of most pages are.
            for offset in [0, slots::entry_offset(entry), shared.page_size - 1] {
                prefetch(bytes.wrapping_add(offset));
            }
        }
    }

    /// Whether there is a hint for a key.
    pub fn has_hint(&self, key: HintKey) -> bool {
        self.shared.hints.find(key).is_some()
    }

    /// Whether each frame has had a page: before that, next to no page is evicted.
    pub fn has_been_full(&self) -> bool {
        // The list of free frames gives the last one last.
        self.shared.frames.last().is_some_and(|frame| !frame.bytes_at.load(Ordering::Relaxed).is_null())
    }

    /// Notes which page is the right one for a key, and which of its entries was wanted. If a [hint](Self::hinted_page) led to the
    /// page, `hinted` is the entry that came with it.
    pub fn note_hint(&self, key: HintKey, page: &PageView<'_>, entry: usize, hinted: Option<usize>) {
        if hinted.is_some() {
            page.frame.touch();
            self.shared.hints.count_hit(key);
        }
        if hinted != Some(entry) {
            // A page has fewer slots than that.
            let entry = u16::try_from(entry).unwrap_or(u16::MAX);
            self.shared.hints.note(key, Hint { frame: page.index, entry });
        }
    }
}

/// The hints of a pool: a set-associative cache.
#[derive(Debug)]
pub(super) struct Hints {
    /// Each a frame, an entry and a tag; 0 if there is none.
    slots: Box<[AtomicU64]>,
    /// How often hints led to the right page, in parts that are not often counted at the same time.
    hits: Box<[Counter]>,
}

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(super) struct Counter(pub AtomicU64);

impl Hints {
    /// For a pool of so many frames.
    pub fn new(frames: usize) -> Self {
        // Zeros that are not touched take no memory.
        let slots = vec![0; (frames * PER_FRAME).next_power_of_two()];
        ask_for_huge_pages(&slots);
        Self {
            slots: slots.into_iter().map(AtomicU64::new).collect(),
            hits: (0..COUNTERS).map(|_| Counter::default()).collect(),
        }
    }

    /// The hint for a key.
    pub fn find(&self, key: HintKey) -> Option<Hint> {
        let hints = self.set(key).iter().map(|slot| slot.load(Ordering::Relaxed));
        hints.into_iter().find_map(|hint| (hint as u16 == key.tag()).then(|| decode(hint)))
    }

    /// Replaces the hint for a key, or the older one of the key's set.
    pub fn note(&self, key: HintKey, hint: Hint) {
        let set = self.set(key);
        let own = set.iter().find(|slot| slot.load(Ordering::Relaxed) as u16 == key.tag());
        let slot = own.unwrap_or_else(|| {
            // The newest comes first: a key that is sought once gives way to one that is sought again.
            set[1].store(set[0].load(Ordering::Relaxed), Ordering::Relaxed);
            &set[0]
        });
        slot.store(encode(hint, key.tag()), Ordering::Relaxed);
    }

    /// Counts a hint that led to the right page.
    pub fn count_hit(&self, key: HintKey) {
        self.hits[key.0 as usize % COUNTERS].0.fetch_add(1, Ordering::Relaxed);
    }

    /// How often hints led to the right page.
    pub fn hits(&self) -> u64 {
        self.hits.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    fn set(&self, key: HintKey) -> &[AtomicU64] {
        let first = key.0 as usize & (self.slots.len() - 1) & !(WAYS - 1);
        &self.slots[first..first + WAYS]
    }
}

fn encode(hint: Hint, tag: u16) -> u64 {
    u64::from(hint.frame) << 32 | u64::from(hint.entry) << 16 | u64::from(tag)
}

fn decode(hint: u64) -> Hint {
    Hint { frame: (hint >> 32) as u32, entry: (hint >> 16) as u16 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_noted_last_is_found() {
        let hints = Hints::new(16);
        let (key, other) = (HintKey::new(b"key"), HintKey::new(b"other"));
        assert_eq!(hints.find(key), None);
        hints.note(key, Hint { frame: u32::MAX, entry: u16::MAX });
        hints.note(key, Hint { frame: 3, entry: 5 });
        hints.note(other, Hint { frame: 0, entry: 0 });
        assert_eq!(hints.find(key), Some(Hint { frame: 3, entry: 5 }));
        assert_eq!(hints.find(other), Some(Hint { frame: 0, entry: 0 }));
    }

    #[test]
    fn a_set_has_two_hints_and_a_third_replaces_the_older() {
        let hints = Hints::new(16);
        let keys = [1u64, 2, 3].map(|number| HintKey(number << 50 | 6));
        for (frame, key) in (0..).zip(keys) {
            hints.note(key, Hint { frame, entry: 0 });
        }
        let frames = keys.map(|key| hints.find(key).map(|hint| hint.frame));
        assert_eq!(frames, [None, Some(1), Some(2)]);
    }
}
