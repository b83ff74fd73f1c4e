//! Changes of pages on their way to a store that keeps changes: a page's in-memory log sector.

use tantalum_log::Lsn;

/// What change groups did to one page since it was last stored, in their order.
///
/// Invariant: positions ascend.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PageChanges {
    bytes: Vec<u8>,
    /// Each group's position, and where its changes end.
    groups: Vec<(Lsn, usize)>,
}

impl PageChanges {
    /// What a group's changes of a page take in a store beyond their own bytes, about.
    pub const OVERHEAD_BYTES: usize = 32;

    /// Adds what the group at `position` does to the page: changes, encoded.
    ///
    /// # Panics
    /// When positions do not ascend.
    pub fn push(&mut self, position: Lsn, changes: &[u8]) {
        assert!(self.groups.last().is_none_or(|(last, _)| *last < position), "a page's groups ascend");
        make_room(&mut self.bytes, changes.len());
        self.bytes.extend_from_slice(changes);
        make_room(&mut self.groups, 1);
        self.groups.push((position, self.bytes.len()));
    }

    /// Puts changes back that were taken and not stored: they come before those that are there.
    ///
    /// # Panics
    /// When positions do not ascend.
    pub fn put_back(&mut self, mut earlier: PageChanges) {
        for (position, changes) in self.iter() {
            earlier.push(position, changes);
        }
        *self = earlier;
    }

    /// The groups and their changes.
    pub fn iter(&self) -> impl Iterator<Item = (Lsn, &[u8])> + Clone {
        self.groups.iter().enumerate().map(|(index, &(position, end))| {
            let start = index.checked_sub(1).map_or(0, |before| self.groups[before].1);
            (position, &self.bytes[start..end])
        })
    }

    /// The position of the first group.
    pub fn first(&self) -> Option<Lsn> {
        self.groups.first().map(|(position, _)| *position)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    /// Bytes of memory for them, about.
    pub fn memory_bytes(&self) -> usize {
        self.bytes.capacity() + self.groups.capacity() * size_of::<(Lsn, usize)>()
    }
}

/// Room for more, and a little for what comes then: a vector that doubles is a quarter empty on average, and there is one for
/// each dirty page.
fn make_room<T>(vector: &mut Vec<T>, more: usize) {
    let (used, spare) = (vector.len(), vector.capacity() - vector.len());
    if spare < more {
        vector.reserve_exact(more.max(used / 8));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_memory_is_spare() {
        let mut changes = PageChanges::default();
        let mut bytes = 0;
        for position in 1..500 {
            changes.push(Lsn::new(position), &[1; 40]);
            bytes += 40 + size_of::<(Lsn, usize)>();
            assert!(changes.memory_bytes() <= bytes + bytes / 8 + 40, "{position}");
        }
    }

    #[test]
    fn what_is_put_back_comes_first() {
        let mut changes = PageChanges::default();
        changes.push(Lsn::new(1), b"one");
        changes.push(Lsn::new(3), b"");
        let taken = std::mem::take(&mut changes);
        changes.push(Lsn::new(4), b"four");
        changes.put_back(taken);
        let all: Vec<_> = changes.iter().collect();
        assert_eq!(all, [(Lsn::new(1), &b"one"[..]), (Lsn::new(3), b""), (Lsn::new(4), b"four")]);
        assert!(!changes.is_empty() && changes.memory_bytes() >= 7);
    }

    #[test]
    #[should_panic(expected = "ascend")]
    fn a_group_changes_a_page_once() {
        let mut changes = PageChanges::default();
        changes.push(Lsn::new(2), b"a");
        changes.push(Lsn::new(2), b"b");
    }
}
