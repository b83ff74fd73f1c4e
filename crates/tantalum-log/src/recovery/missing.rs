//! What goes with the devices that are missing: which records nothing that is there holds.

use std::fmt;
use std::sync::Arc;

use super::members::Members;
use super::merge::is_void;
use super::{Survey, survey};
use crate::archive::Archive;
use crate::{Error, Lsn, LsnRange};

/// So many ranges are named in a message.
const RANGES_NAMED: usize = 16;

/// The records that a log lacks without a device that is missing, as far as what is there can tell: in
/// [`Error::MissingDevice`].
///
/// ```
/// use tantalum_log::{Lsn, LsnRange, MissingRecords};
/// let range = LsnRange { start: Lsn::new(100), end: Lsn::new(250) };
/// let missing = MissingRecords { ranges: vec![range], from: Lsn::new(400) };
/// assert_eq!(missing.to_string(), "the records at LSN 100 to 250, and any from LSN 400 on");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRecords {
    /// What lies between records that are there, or between them and what is known to have been durable. In order, with
    /// gaps between them.
    pub ranges: Vec<LsnRange>,
    /// Whether records followed, from here on, nothing that is there can tell.
    pub from: Lsn,
}

impl fmt::Display for MissingRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.ranges.iter().take(RANGES_NAMED);
        let mut named = named.map(|range| format!("{} to {}", range.start, range.end)).collect::<Vec<_>>();
        if let more @ 1.. = self.ranges.len().saturating_sub(RANGES_NAMED) {
            named.push(format!("{more} more ranges"));
        }
        match named.is_empty() {
            true => write!(f, "any records from LSN {} on", self.from),
            false => write!(f, "the records at LSN {}, and any from LSN {} on", named.join(", "), self.from),
        }
    }
}

/// The error for a log of which `missing` devices, by their bits, are needed and not there. Reads what is.
pub(super) fn refuse(members: Members, missing: u64, archive: Option<&Archive>) -> Error {
    let (ordinal, count) = (missing.trailing_zeros(), members.slot.members.len() as u32);
    let checkpoint = members.slot.checkpoint;
    let reason = members.unreadable.clone().map(Arc::new);
    // An array that is not whole cannot be read at all.
    let read = if members.is_array() { None } else { survey(members, archive, 0, &mut |_| {}).ok() };
    let missing = read.map_or(MissingRecords { ranges: Vec::new(), from: checkpoint }, |read| lacks(&read));
    Error::MissingDevice { ordinal, count, missing, reason }
}

/// What lies behind the checkpoint and was not found, up to the last that testifies of records.
fn lacks(read: &Survey) -> MissingRecords {
    let slot = &read.members.slot;
    let headers = read.scans.iter().flat_map(|scan| &scan.found).map(|found| &found.request.header);
    let mut found: Vec<(Lsn, Lsn)> =
        headers.filter(|header| !is_void(header, &slot.epochs)).map(|header| (header.start, header.end())).collect();
    // That so much was durable is known without its records.
    let witnesses = read.scans.iter().map(|scan| scan.witness.0);
    let known = witnesses.chain([slot.newest().start]).chain(slot.clean_end).max().unwrap_or_default();
    found.push((known, known));
    found.sort_unstable();
    let (mut ranges, mut from) = (Vec::new(), slot.checkpoint);
    for (start, end) in found {
        if start > from {
            ranges.push(LsnRange { start: from, end: start });
        }
        from = from.max(end);
    }
    MissingRecords { ranges, from }
}
