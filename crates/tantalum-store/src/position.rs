//! Positions of change groups where the log holds only their statuses: which session published a group, and as which of
//! its groups.
//!
//! They take the place of LSNs in pages, so they only grow: a session's epoch is higher than all before it, and no position
//! is given out twice, whatever a crash takes back.

use tantalum_log::Lsn;

/// Bits that count the groups of a session; the others are its epoch.
const COUNTER_BITS: u32 = 40;

/// The position before the first group of a session.
pub fn start_of(epoch: u64) -> Lsn {
    assert!(epoch < 1 << (64 - COUNTER_BITS), "a database is opened less than 16 million times");
    Lsn::new(epoch << COUNTER_BITS)
}

/// The session that published a group.
pub fn epoch_of(position: Lsn) -> u64 {
    position.get() >> COUNTER_BITS
}

/// The position after this one.
pub fn next(position: Lsn) -> Lsn {
    let next = Lsn::new(position.get() + 1);
    assert_eq!(epoch_of(next), epoch_of(position), "a session publishes less than 2^40 groups");
    next
}
