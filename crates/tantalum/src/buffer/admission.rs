//! How much may be changed that no status record covers yet.
//!
//! All of it is active, and the store must have room for it beside what is committed. So a group is admitted only while there
//! is room; else the committing thread waits for a round. Small groups have a share of their own: a large one would else find
//! no room for as long as small ones come and go.

use std::sync::atomic::{AtomicU64, Ordering};

/// The part of all room that only small groups take.
const SMALL_SHARE: usize = 4;
/// A small group takes at most this part of the small ones' room.
const SMALL_PART: usize = 4;

/// Bytes of changes, small groups' and large ones', since the session began.
pub type Sums = [u64; 2];

/// The bytes that one group's changes can have, where all that is active can have `limit`.
pub const fn largest_group(limit: usize) -> usize {
    limit - limit / SMALL_SHARE
}

/// Counts what is changed and not covered.
#[derive(Debug, Default)]
pub struct Admission {
    admitted: [AtomicU64; 2],
    covered: [AtomicU64; 2],
}

impl Admission {
    /// Counts a group of so many bytes if there is room for it, of `limit` in all.
    ///
    /// # Panics
    /// When it is larger than the [largest](largest_group).
    pub fn admit(&self, bytes: usize, limit: usize) -> bool {
        assert!(bytes <= largest_group(limit), "a group of {bytes} bytes was not refused, with a limit of {limit}");
        let small_room = limit / SMALL_SHARE;
        let (class, room) = match bytes <= small_room / SMALL_PART {
            true => (0, small_room),
            false => (1, limit - small_room),
        };
        let covered = self.covered[class].load(Ordering::SeqCst);
        let add = |admitted: u64| {
            let after = admitted + bytes as u64;
            (after - covered <= room as u64).then_some(after)
        };
        self.admitted[class].fetch_update(Ordering::SeqCst, Ordering::SeqCst, add).is_ok()
    }

    /// What was admitted so far.
    pub fn admitted(&self) -> Sums {
        self.admitted.each_ref().map(|sum| sum.load(Ordering::SeqCst))
    }

    /// What had been admitted then is covered.
    pub fn cover(&self, admitted: Sums) {
        for (covered, admitted) in self.covered.iter().zip(admitted) {
            covered.fetch_max(admitted, Ordering::SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_wait_for_their_own_kind_only() {
        let admission = Admission::default();
        let admitted = |bytes| admission.admit(bytes, 1600);
        assert!(admitted(1200), "the largest");
        assert!(!admitted(101), "it is large, and their room is taken");
        assert!((0..4).all(|_| admitted(100)) && !admitted(1), "small ones have theirs");
        let before = admission.admitted();
        admission.cover(before);
        assert!(admitted(700) && admitted(100));
        admission.cover(before);
        assert!(!admitted(501) && admitted(500), "only what had been admitted is covered");
    }

    #[test]
    #[should_panic(expected = "was not refused")]
    fn a_group_for_which_there_is_never_room_is_refused_before() {
        Admission::default().admit(1201, 1600);
    }
}
