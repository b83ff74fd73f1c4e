//! What the records of the log say: an entry of a group, the state of a group, or that a group is gone.
//!
//! A record begins with a mark, its kind and the group. Numbers are little-endian. The log has a checksum over its records, so a record
//! that does not decode belongs to something else, or to another version.

use tantalum_log::{Error, ErrorKind, Lsn, Result};

/// The mark of version 1.
const MARK: [u8; 3] = *b"rl\x01";

const ENTRY: u8 = 1;
const MOVED_ENTRY: u8 = 2;
const STATE: u8 = 3;
const REMOVED: u8 = 4;

const HEAD_BYTES: usize = 12;
/// Bytes of an entry's record before the entry.
pub(crate) const ENTRY_HEAD_BYTES: usize = HEAD_BYTES + 16;

/// An entry's record: the head, behind which the bytes of the entry follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct EntryHead {
    pub(crate) group: u64,
    pub(crate) index: u64,
    pub(crate) term: u64,
    /// Whether it is a copy of a record that a checkpoint passes.
    pub(crate) is_moved: bool,
}

impl EntryHead {
    pub(crate) fn encode(&self) -> [u8; ENTRY_HEAD_BYTES] {
        let mut bytes = [0; ENTRY_HEAD_BYTES];
        bytes[..HEAD_BYTES].copy_from_slice(&head(if self.is_moved { MOVED_ENTRY } else { ENTRY }, self.group));
        bytes[HEAD_BYTES..HEAD_BYTES + 8].copy_from_slice(&self.index.to_le_bytes());
        bytes[HEAD_BYTES + 8..].copy_from_slice(&self.term.to_le_bytes());
        bytes
    }
}

/// All that a group has beside its entries. A record has all of it, and replaces the one before: entries outside of
/// `first..end` are gone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct State {
    /// The index of the first entry, and the one behind the last.
    pub(crate) first: u64,
    pub(crate) end: u64,
    /// The last entry that was purged.
    pub(crate) purged: Option<Purged>,
    pub(crate) vote: Option<Box<[u8]>>,
    pub(crate) committed: Option<Box<[u8]>>,
}

/// The last entry that was purged, and a note of the caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Purged {
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) note: Box<[u8]>,
}

impl State {
    pub(crate) fn encode(&self, group: u64) -> Vec<u8> {
        let mut bytes = head(STATE, group).to_vec();
        bytes.extend(self.first.to_le_bytes());
        bytes.extend(self.end.to_le_bytes());
        encode_option(&mut bytes, self.vote.as_deref());
        encode_option(&mut bytes, self.committed.as_deref());
        encode_option(&mut bytes, self.purged.as_ref().map(|purged| &*purged.note));
        if let Some(purged) = &self.purged {
            bytes.extend(purged.index.to_le_bytes());
            bytes.extend(purged.term.to_le_bytes());
        }
        bytes
    }
}

/// The record of a group that is gone.
pub(crate) fn encode_removed(group: u64) -> [u8; HEAD_BYTES] {
    head(REMOVED, group)
}

fn head(kind: u8, group: u64) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    bytes[..3].copy_from_slice(&MARK);
    bytes[3] = kind;
    bytes[4..].copy_from_slice(&group.to_le_bytes());
    bytes
}

/// Behind a length plus one, or 0.
fn encode_option(bytes: &mut Vec<u8>, option: Option<&[u8]>) {
    bytes.extend(option.map_or(0, |option| option.len() as u32 + 1).to_le_bytes());
    bytes.extend(option.unwrap_or_default());
}

/// A decoded record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Decoded<'b> {
    Entry(EntryHead, &'b [u8]),
    State(u64, State),
    Removed(u64),
}

/// Reads the record that starts at `at`.
pub(crate) fn decode(bytes: &[u8], at: Lsn) -> Result<Decoded<'_>> {
    let refuse = |what: &str| corrupt(at, what);
    let mark = bytes.get(..MARK.len()).unwrap_or(bytes);
    if mark != MARK {
        return Err(match mark.strip_prefix(&MARK[..2]) {
            Some([version]) => {
                let what = format!(
                    "the raft log has records of version {version} (LSN {at}), this program reads version {} only; use another version of it",
                    MARK[2]
                );
                Error::new(ErrorKind::Unsupported, what)
            }
            _ => refuse("it is not one of a raft log"),
        });
    }
    let mut rest = Rest(&bytes[MARK.len()..]);
    let short = || refuse("it is too short");
    let kind = rest.take(1).ok_or_else(short)?[0];
    let group = rest.u64().ok_or_else(short)?;
    let decoded = match kind {
        ENTRY | MOVED_ENTRY => {
            let (index, term) = (rest.u64().ok_or_else(short)?, rest.u64().ok_or_else(short)?);
            if index == u64::MAX {
                return Err(refuse("no entry has its index"));
            }
            return Ok(Decoded::Entry(EntryHead { group, index, term, is_moved: kind == MOVED_ENTRY }, rest.0));
        }
        STATE => Decoded::State(group, rest.state().ok_or_else(short)?),
        REMOVED => Decoded::Removed(group),
        _ => return Err(refuse(&format!("its kind {kind} is unknown"))),
    };
    if let Decoded::State(_, state) = &decoded
        && (state.first > state.end || state.purged.as_ref().is_some_and(|purged| purged.index >= state.first))
    {
        return Err(refuse("its indexes contradict each other"));
    }
    if rest.0.is_empty() { Ok(decoded) } else { Err(refuse("it is too long")) }
}

/// The error for a record, intact as bytes, that cannot be part of a raft log.
pub(crate) fn corrupt(at: Lsn, what: &str) -> Error {
    let what = format!(
        "the record at LSN {at} of the raft log cannot be used: {what}; if these are the devices of a raft log, restore the node from another"
    );
    Error::new(ErrorKind::Corrupt, what)
}

/// What is not decoded yet.
struct Rest<'b>(&'b [u8]);

impl<'b> Rest<'b> {
    fn take(&mut self, bytes: usize) -> Option<&'b [u8]> {
        let (taken, rest) = self.0.split_at_checked(bytes)?;
        self.0 = rest;
        Some(taken)
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn option(&mut self) -> Option<Option<Box<[u8]>>> {
        let length = u32::from_le_bytes(self.take(4)?.try_into().ok()?);
        Some(match length.checked_sub(1) {
            Some(length) => Some(self.take(length as usize)?.into()),
            None => None,
        })
    }

    fn state(&mut self) -> Option<State> {
        let (first, end) = (self.u64()?, self.u64()?);
        let (vote, committed) = (self.option()?, self.option()?);
        let purged = match self.option()? {
            Some(note) => Some(Purged { note, index: self.u64()?, term: self.u64()? }),
            None => None,
        };
        Some(State { first, end, purged, vote, committed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> [State; 3] {
        let purged = Some(Purged { index: 4, term: 2, note: b"".as_slice().into() });
        let vote = Some(b"for whom".as_slice().into());
        [
            State::default(),
            State { first: 5, end: 9, purged, vote, committed: None },
            State { first: 0, end: 0, purged: None, vote: None, committed: Some([7; 200].as_slice().into()) },
        ]
    }

    #[test]
    fn what_is_encoded_is_decoded() {
        let at = Lsn::new(10);
        for is_moved in [false, true] {
            let head = EntryHead { group: 7, index: 3, term: 2, is_moved };
            let bytes = [&head.encode()[..], b"an entry"].concat();
            assert_eq!(decode(&bytes, at).expect("intact"), Decoded::Entry(head, b"an entry"));
        }
        for state in states() {
            assert_eq!(decode(&state.encode(u64::MAX), at).expect("intact"), Decoded::State(u64::MAX, state));
        }
        assert_eq!(decode(&encode_removed(1), at).expect("intact"), Decoded::Removed(1));
    }

    #[test]
    fn whatever_is_cut_or_changed_is_refused_or_means_something_else() {
        for state in states() {
            let bytes = state.encode(3);
            for len in 0..bytes.len() {
                let error = decode(&bytes[..len], Lsn::new(77)).expect_err("it is cut");
                assert_eq!(error.kind(), ErrorKind::Corrupt);
                assert!(error.to_string().contains("LSN 77"), "{error}");
            }
            let longer = [&bytes[..], b"x"].concat();
            assert!(decode(&longer, Lsn::ZERO).is_err_and(|error| error.to_string().contains("too long")));
            for at in 0..bytes.len() {
                let mut changed = bytes.clone();
                changed[at] ^= 0x40;
                if let Ok(decoded) = decode(&changed, Lsn::ZERO) {
                    assert_ne!(decoded, Decoded::State(3, state.clone()));
                }
            }
        }
    }

    #[test]
    fn another_version_is_named() {
        let mut bytes = encode_removed(1);
        bytes[2] = 9;
        let error = decode(&bytes, Lsn::ZERO).expect_err("not of this version");
        assert_eq!(error.kind(), ErrorKind::Unsupported);
        assert!(error.to_string().contains("version 9"), "{error}");
        assert!(decode(b"a log record", Lsn::ZERO).is_err_and(|error| error.kind() == ErrorKind::Corrupt));
    }
}
