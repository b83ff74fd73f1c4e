//! The log record of a store that keeps changes itself: how far change groups are committed.
//!
//! Record: tag; the position up to which this session's groups are committed; the highest number of a commit; the first past
//! session that is known; the watermark of each past session that has one.

use tantalum_log::Lsn;

use super::{
    change::{take_number, take_u8},
    varint,
};

/// The first byte of a status record.
pub const TAG: u8 = 2;

/// What a status record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusRecord {
    /// All groups of its session up to this position are committed.
    pub through: Lsn,
    /// The highest number of a commit.
    pub last_commit: u64,
    /// The first past session that is known.
    pub oldest: u64,
    /// How far past sessions were committed.
    pub past: Vec<Lsn>,
}

/// Appends a status record.
pub fn encode(out: &mut Vec<u8>, through: Lsn, last_commit: u64, past: (u64, impl Iterator<Item = Lsn>)) {
    out.push(TAG);
    let (oldest, past) = past;
    for number in [through.get(), last_commit, oldest].into_iter().chain(past.map(Lsn::get)) {
        varint::put(out, number);
    }
}

impl StatusRecord {
    /// Reads a whole record.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn decode(mut bytes: &[u8]) -> Result<Self, &'static str> {
        if take_u8(&mut bytes)? != TAG {
            return Err("a status record was expected");
        }
        let through = Lsn::new(take_number(&mut bytes)?);
        let (last_commit, oldest) = (take_number(&mut bytes)?, take_number(&mut bytes)?);
        let mut past = Vec::new();
        while !bytes.is_empty() {
            past.push(Lsn::new(take_number(&mut bytes)?));
        }
        Ok(Self { through, last_commit, oldest, past })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_record_is_read_back_and_others_are_refused() {
        let mut bytes = Vec::new();
        let past = [Lsn::new(1 << 40 | 7), Lsn::new(3 << 40)];
        encode(&mut bytes, Lsn::new(5 << 40 | 9), 77, (1, past.into_iter()));
        let record = StatusRecord { through: Lsn::new(5 << 40 | 9), last_commit: 77, oldest: 1, past: past.to_vec() };
        assert_eq!(StatusRecord::decode(&bytes), Ok(record));
        assert!(StatusRecord::decode(&bytes[..bytes.len() - 1]).is_err(), "its last number does not end");
        assert!(StatusRecord::decode(&[1, 0, 0]).is_err());
        assert!(StatusRecord::decode(&[]).is_err());
    }
}
