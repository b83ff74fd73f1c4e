//! The transactions that hold a key's lock. Nearly always that is one, for which nothing is allocated.

use super::{Mode, TransactionId};

/// The holders of a key's lock, each once.
#[derive(Debug, Default)]
pub(super) struct Holders {
    /// `None` only if there are no `others`.
    first: Option<(TransactionId, Mode)>,
    others: Vec<(TransactionId, Mode)>,
}

impl Holders {
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    pub fn iter(&self) -> impl Iterator<Item = (TransactionId, Mode)> {
        self.first.iter().chain(&self.others).copied()
    }

    /// Notes how `owner` holds the lock from now on.
    pub fn set(&mut self, owner: TransactionId, mode: Mode) {
        if self.first.is_none() {
            self.first = Some((owner, mode));
            return;
        }
        match self.first.iter_mut().chain(&mut self.others).find(|(holder, _)| *holder == owner) {
            Some(held) => held.1 = mode,
            None => self.others.push((owner, mode)),
        }
    }

    /// Takes `owner` out, if it is one of them.
    pub fn remove(&mut self, owner: TransactionId) {
        if self.first.is_some_and(|(holder, _)| holder == owner) {
            self.first = self.others.pop();
        } else {
            self.others.retain(|(holder, _)| *holder != owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_goes_the_others_stay() {
        let all: Vec<_> = [1, 2, 3].map(TransactionId).into();
        for goes in all.clone() {
            let mut holders = Holders::default();
            assert!(holders.is_empty());
            all.iter().for_each(|owner| holders.set(*owner, Mode::Shared));
            holders.set(all[0], Mode::Exclusive);
            holders.remove(TransactionId(9));
            assert_eq!(holders.iter().count(), 3);
            holders.remove(goes);
            let mut left: Vec<_> = holders.iter().collect();
            left.sort();
            let mode = |owner| if owner == all[0] { Mode::Exclusive } else { Mode::Shared };
            let expected: Vec<_> = all.iter().filter(|o| **o != goes).map(|o| (*o, mode(*o))).collect();
            assert_eq!(left, expected);
            all.iter().for_each(|owner| holders.remove(*owner));
            assert!(holders.is_empty());
        }
    }
}
