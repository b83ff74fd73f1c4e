//! A set of pages, a bit for each page of the store.

use crate::PageId;

/// Pages, by number.
#[derive(Clone, Debug, Default)]
pub struct PageSet {
    words: Vec<u64>,
    len: u64,
}

impl PageSet {
    /// The pages, in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = PageId> {
        bits(self.words.iter().copied().enumerate())
    }

    /// The last of the pages.
    pub fn last(&self) -> Option<PageId> {
        let word = self.words.iter().rposition(|word| *word != 0)?;
        Some(PageId(word as u64 * 64 + u64::from(63 - self.words[word].leading_zeros())))
    }

    /// Adds a page. Returns whether it was not there.
    pub fn insert(&mut self, id: PageId) -> bool {
        let (word, bit) = ((id.0 / 64) as usize, 1 << (id.0 % 64));
        if self.words.len() <= word {
            self.words.resize(word + 1, 0);
        }
        let is_new = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.len += u64::from(is_new);
        is_new
    }

    /// Whether a page is there.
    pub fn contains(&self, id: PageId) -> bool {
        self.words.get((id.0 / 64) as usize).is_some_and(|word| word & (1 << (id.0 % 64)) != 0)
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.len
    }

    /// Those that `other` lacks, in ascending order.
    pub fn missing_in<'s>(&'s self, other: &'s Self) -> impl Iterator<Item = PageId> + 's {
        let words = self.words.iter().enumerate();
        bits(words.map(|(at, word)| (at, word & !other.words.get(at).copied().unwrap_or(0))))
    }
}

/// The pages of words, each with its place.
fn bits(words: impl Iterator<Item = (usize, u64)>) -> impl Iterator<Item = PageId> {
    words.filter(|(_, word)| *word != 0).flat_map(|(at, word)| {
        (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| PageId(at as u64 * 64 + bit))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_set_lacks_is_told_in_order() {
        let set = |ids: &[u64]| {
            let mut set = PageSet::default();
            ids.iter().for_each(|id| assert!(set.insert(PageId(*id))));
            set
        };
        let (mut a, b) = (set(&[700, 3, 64, 63]), set(&[3, 5]));
        assert!(!a.insert(PageId(64)) && a.count() == 4);
        assert_eq!((a.last(), PageSet::default().last()), (Some(PageId(700)), None));
        assert!(a.contains(PageId(700)) && !a.contains(PageId(701)) && !a.contains(PageId(1 << 40)));
        assert_eq!(a.missing_in(&b).map(|id| id.0).collect::<Vec<_>>(), [63, 64, 700]);
        assert_eq!(b.missing_in(&a).map(|id| id.0).collect::<Vec<_>>(), [5]);
    }
}
