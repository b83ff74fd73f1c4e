//! Space accounting: the devices can always take every appended record, without the owner's help.
//!
//! An append is admitted only if the log, as it is, can take everything that is buffered and not yet placed on a
//! device, in the worst packing, even if one device is lost. Otherwise the owner's checkpoint, which needs the log
//! flushed, could wait for space that only that checkpoint would free.
//!
//! Each section takes at least [`Layout::assured_section_bytes`](crate::layout::Layout::assured_section_bytes) bytes
//! of requests, whatever their sizes. With `G` the sum of what the healthy devices' sections still take in that sense,
//! `O` the charges of all data not placed, and for each device `d` its share `g(d)` and the request in flight on it
//! `f(d)`, admission keeps
//!
//! - `O <= G`, and
//! - with several devices, `O + f(d) <= G - g(d)` for each `d`.
//!
//! With two copies kept, the second rule is [`spare_for_copies`], and the first is [`room_for_copies`].
//!
//! An owner may have part of that kept for records that let its checkpoint go on
//! ([`Log::append_to_relieve`](crate::Log::append_to_relieve)). Those keep the first rule only: the reserve of the second rule is
//! better used up than kept for ever. If a device is lost just then, the record waits until there is room.
//!
//! Placing a request of charge `c` in `b <= c` bytes on `d` lowers `O` by `c` and `g(d)` by at most `b`, so it keeps
//! both. The difference of the two sides is one number, which appends lower without a lock.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};

use crate::format::{BLOCK, request};

/// What a group of records costs beyond its bytes: the request's header, and padding.
pub(crate) const GROUP_CHARGE: u64 = (request::HEADER_BYTES + BLOCK - 1) as u64;

/// The most bytes that may be buffered and not placed, whatever the devices could take: it bounds memory.
pub(crate) const MAX_BUFFERED_BYTES: u64 = 64 << 20;

/// The bytes that appends may still take.
#[derive(Debug, Default)]
pub(crate) struct Space {
    available: AtomicI64,
    /// Tasks that wait for space. An append that gives back a part of its charge must wake them.
    waiting: AtomicUsize,
}

impl Space {
    /// Takes `charge` bytes, or nothing.
    pub(crate) fn take(&self, charge: u64) -> bool {
        let charge = charge as i64;
        let lower = |available: i64| (available >= charge).then(|| available - charge);
        self.available.fetch_update(Ordering::SeqCst, Ordering::SeqCst, lower).is_ok()
    }

    /// Gives back `charge` bytes. True if a task waits for them.
    #[must_use]
    pub(crate) fn give_back(&self, charge: u64) -> bool {
        self.available.fetch_add(charge as i64, Ordering::SeqCst);
        self.waiting.load(Ordering::SeqCst) > 0
    }

    /// Moves the bound by `delta` bytes, which may be negative.
    pub(crate) fn shift(&self, delta: i64) {
        self.available.fetch_add(delta, Ordering::SeqCst);
    }

    pub(crate) fn has(&self, charge: u64) -> bool {
        self.available() >= charge as i64
    }

    /// The bytes that appends may still take. Less than none if they took what is kept for relief or for the loss of a device.
    pub(crate) fn available(&self) -> i64 {
        self.available.load(Ordering::SeqCst)
    }

    /// Announces a waiter. It must announce itself before it looks whether there is space.
    pub(crate) fn begin_wait(&self) {
        self.waiting.fetch_add(1, Ordering::SeqCst);
    }

    pub(crate) fn end_wait(&self) {
        self.waiting.fetch_sub(1, Ordering::SeqCst);
    }

    pub(crate) fn has_waiters(&self) -> bool {
        self.waiting.load(Ordering::SeqCst) > 0
    }
}

/// What one device contributes to the bound.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Share {
    /// Request bytes that its sections certainly take.
    pub(crate) assured: u64,
    /// Bytes of the request under way, which another device must take if this one fails.
    pub(crate) in_flight: u64,
}

/// What the devices certainly take, even if one of them is lost: the right sides of both rules of the module's head.
pub(crate) fn spare(shares: impl Iterator<Item = Share> + Clone) -> i64 {
    let total: u64 = shares.clone().map(|share| share.assured).sum();
    if shares.clone().count() < 2 {
        return total as i64;
    }
    let one_lost = shares.map(|share| (total - share.assured) as i64 - share.in_flight as i64).min();
    one_lost.map_or(0, |one_lost| one_lost.min(total as i64))
}

/// What the devices certainly take twice, each time on other hardware, whatever takes which request and even if one piece
/// of hardware is lost. `shares` are those of each piece, all its devices together.
///
/// Each piece alone must be able to take all that is not placed: then it does not matter which ones do. What is under way
/// on one that is lost goes to another, unless only one is left, which has, or is given, all of it anyway.
pub(crate) fn spare_for_copies(shares: &[Share]) -> i64 {
    let least = shares.iter().map(|share| share.assured as i64).min().unwrap_or(0);
    let in_flight = shares.iter().map(|share| share.in_flight as i64).max().unwrap_or(0);
    if shares.len() > 2 { least - in_flight } else { least }
}

/// As [`spare_for_copies`], if no hardware is lost: there are two pieces each of which can take all that is not placed.
pub(crate) fn room_for_copies(shares: &[Share]) -> i64 {
    let mut assured: Vec<_> = shares.iter().map(|share| share.assured as i64).collect();
    assured.sort_unstable();
    assured.iter().rev().nth(1).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_survives_the_loss_of_any_one_device() {
        let share = |assured, in_flight| Share { assured, in_flight };
        assert_eq!(spare([share(100, 7)].into_iter()), 100);
        assert_eq!(spare([share(100, 7), share(30, 5)].into_iter()), 23);
        assert_eq!(spare([share(100, 0), share(100, 40), share(100, 0)].into_iter()), 160);
        assert_eq!(spare([share(0, 0), share(0, 9)].into_iter()), -9);
        assert_eq!(spare(std::iter::empty()), 0);
    }

    #[test]
    fn two_copies_fit_whichever_devices_take_them() {
        let share = |assured, in_flight| Share { assured, in_flight };
        assert_eq!(spare_for_copies(&[share(100, 7), share(30, 5)]), 30);
        assert_eq!(spare_for_copies(&[share(100, 7), share(30, 5), share(40, 0)]), 23);
        assert_eq!(spare_for_copies(&[]), 0);
        assert_eq!(room_for_copies(&[share(0, 0), share(100, 9), share(30, 0), share(0, 5)]), 30);
        assert_eq!(room_for_copies(&[share(100, 0)]), 0);
    }

    #[test]
    fn taking_is_all_or_nothing() {
        let space = Space::default();
        space.shift(10);
        assert!(!space.take(11));
        assert!(space.take(10));
        assert!(!space.has(1));
        assert!(!space.give_back(4));
        assert!(space.has(4));
    }
}
