//! Where pages were found before, so that they are found again without coming down a tree.
//!
//! A hint says that the answer to a question (such as: which leaf has this key?) was in a frame. It is never more than that:
//! the frame may hold another page by now, and the page may answer other questions. A task that follows a hint latches the frame
//! and looks whether the page answers the question. So hints need no lock, and are never taken back.

use std::{
    hash::{BuildHasher, Hash},
    sync::atomic::{AtomicU64, Ordering},
};

use tantalum_rt::collections::FixedState;

use super::{BufferPool, frame::PageView};

/// Hints for each frame, of 8 bytes each: 64 bytes for a page of 4096 or more.
const PER_FRAME: usize = 8;

/// Hints that a question may be answered by. They are neighbours, in one cache line.
const WAYS: usize = 2;

const COUNTERS: usize = 64;

/// A question that has been asked of the pool's pages, as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Question(u64);

impl Question {
    /// Questions that are equal have equal numbers, and others hardly ever.
    pub fn new(question: impl Hash) -> Self {
        Self(FixedState::default().hash_one(question))
    }

    /// What tells questions apart whose hints have one place. Not 0.
    fn tag(self) -> u16 {
        (self.0 >> 48) as u16 | 1
    }
}

/// Where a question was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hint {
    pub frame: u32,
    /// Which entry of the page it was.
    pub entry: u16,
}

impl BufferPool {
    /// The page that a question was answered by before, latched for reading, and its entry that did so. Both may be others by
    /// now: look, and if the page is still the right one, tell [`found`](Self::found). `None` if nothing is known.
    pub fn guess(&self, question: Question) -> Option<(PageView<'_>, usize)> {
        let Hint { frame: index, entry } = self.shared.hints.find(question)?;
        let frame = self.shared.frames.get(index as usize)?;
        let content = match frame.latch.try_read() {
            Some(content) => content,
            // A task that reads another page into the frame holds the latch for as long as the device takes.
            None if !frame.state.is_loaded() => return None,
            None => frame.latch.read(),
        };
        content.is_present().then(|| (PageView::new(frame, index, content), entry.into()))
    }

    /// Notes that a page answered a question, and which of its entries did. If the page was [guessed](Self::guess), `guessed`
    /// is the entry that came with it.
    pub fn found(&self, question: Question, page: &PageView<'_>, entry: usize, guessed: Option<usize>) {
        if guessed.is_some() {
            page.frame.touch();
            self.shared.hints.count(question);
        }
        if guessed != Some(entry) {
            // A page has fewer slots than that.
            let entry = u16::try_from(entry).unwrap_or(u16::MAX);
            self.shared.hints.note(question, Hint { frame: page.index, entry });
        }
    }
}

/// The hints of a pool.
#[derive(Debug)]
pub(super) struct Hints {
    /// Each a frame, an entry and a tag; 0 if there is none.
    places: Box<[AtomicU64]>,
    /// How often pages were found by them, in parts that are not often counted at the same time.
    followed: Box<[Counter]>,
}

/// On a cache line of its own.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

impl Hints {
    /// For a pool of so many frames.
    pub fn new(frames: usize) -> Self {
        let places = (frames * PER_FRAME).next_power_of_two();
        Self {
            // Zeros that are not touched take no memory.
            places: vec![0; places].into_iter().map(AtomicU64::new).collect(),
            followed: (0..COUNTERS).map(|_| Counter::default()).collect(),
        }
    }

    /// Where the question was answered last, if there is a hint.
    pub fn find(&self, question: Question) -> Option<Hint> {
        let hints = self.ways(question).iter().map(|place| place.load(Ordering::Relaxed));
        hints.into_iter().find_map(|hint| (hint as u16 == question.tag()).then(|| decode(hint)))
    }

    /// Remembers where the question was answered.
    pub fn note(&self, question: Question, hint: Hint) {
        let ways = self.ways(question);
        let its = ways.iter().find(|place| place.load(Ordering::Relaxed) as u16 == question.tag());
        let place = its.unwrap_or_else(|| {
            // The newest comes first: what was asked once gives way to what is asked again.
            ways[1].store(ways[0].load(Ordering::Relaxed), Ordering::Relaxed);
            &ways[0]
        });
        place.store(encode(hint, question.tag()), Ordering::Relaxed);
    }

    /// Counts a page that was found by a hint.
    pub fn count(&self, question: Question) {
        self.followed[question.0 as usize % COUNTERS].0.fetch_add(1, Ordering::Relaxed);
    }

    /// The pages found by hints.
    pub fn followed(&self) -> u64 {
        self.followed.iter().map(|counter| counter.0.load(Ordering::Relaxed)).sum()
    }

    fn ways(&self, question: Question) -> &[AtomicU64] {
        let first = question.0 as usize & (self.places.len() - 1) & !(WAYS - 1);
        &self.places[first..first + WAYS]
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
    fn what_was_noted_last_is_found() {
        let hints = Hints::new(16);
        let (key, other) = (Question::new(b"key"), Question::new(b"other"));
        assert_eq!(hints.find(key), None);
        hints.note(key, Hint { frame: u32::MAX, entry: u16::MAX });
        hints.note(key, Hint { frame: 3, entry: 5 });
        hints.note(other, Hint { frame: 0, entry: 0 });
        assert_eq!(hints.find(key), Some(Hint { frame: 3, entry: 5 }));
        assert_eq!(hints.find(other), Some(Hint { frame: 0, entry: 0 }));
    }

    #[test]
    fn two_questions_share_a_place_and_a_third_takes_the_older_ones() {
        let hints = Hints::new(16);
        let questions = [1u64, 2, 3].map(|number| Question(number << 50 | 6));
        for (frame, question) in (0..).zip(questions) {
            hints.note(question, Hint { frame, entry: 0 });
        }
        let frames = questions.map(|question| hints.find(question).map(|hint| hint.frame));
        assert_eq!(frames, [None, Some(1), Some(2)]);
    }
}
