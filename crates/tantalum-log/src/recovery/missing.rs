//! The records that are missing with missing devices, for the error that names them.

use std::fmt;

use super::members::Members;
use super::merge::is_void;
use super::{Survey, survey};
use crate::archive::Archive;
use crate::{Error, ErrorKind, Lsn, LsnRange};

/// So many ranges are named in a message.
const RANGES_NAMED: usize = 16;

/// The records that a log lacks without a device that is missing, as far as what is there can tell: in
/// [`MissingDevice`].
///
/// ```
/// use tantalum_log::{Lsn, LsnRange, MissingRecords};
/// let range = LsnRange { start: Lsn::new(100), end: Lsn::new(250) };
/// let missing = MissingRecords { ranges: vec![range], from: Some(Lsn::new(400)) };
/// assert_eq!(missing.to_string(), "the records at LSN 100 to 250, and any from LSN 400 on");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingRecords {
    /// What lies between records that are there, or between them and what is known to have been durable. In order, with
    /// gaps between them.
    pub ranges: Vec<LsnRange>,
    /// Whether records followed, from here on, nothing that is there can tell. `None` after an orderly end of the log:
    /// none followed.
    pub from: Option<Lsn>,
}

impl MissingRecords {
    /// Whether the log has all its records without the device.
    ///
    /// ```
    /// let missing = tantalum_log::MissingRecords { ranges: Vec::new(), from: None };
    /// assert!(missing.is_nothing() && missing.to_string() == "nothing that is needed");
    /// ```
    pub fn is_nothing(&self) -> bool {
        self.ranges.is_empty() && self.from.is_none()
    }
}

impl fmt::Display for MissingRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = self.ranges.iter().take(RANGES_NAMED);
        let mut named = named.map(|range| format!("{} to {}", range.start, range.end)).collect::<Vec<_>>();
        if let more @ 1.. = self.ranges.len().saturating_sub(RANGES_NAMED) {
            named.push(format!("{more} more ranges"));
        }
        match (named.is_empty(), self.from) {
            (true, None) => f.write_str("nothing that is needed"),
            (true, Some(from)) => write!(f, "any records from LSN {from} on"),
            (false, None) => write!(f, "the records at LSN {}", named.join(", ")),
            (false, Some(from)) => write!(f, "the records at LSN {}, and any from LSN {from} on", named.join(", ")),
        }
    }
}

/// The cause of an error of kind [`Missing`](crate::ErrorKind::Missing): a device is missing that holds records which are needed.
#[derive(Clone, Debug)]
pub struct MissingDevice {
    /// The device's place in the log, from 0; of several that are missing, the first.
    pub ordinal: u32,
    /// How many devices the log has.
    pub count: u32,
    /// What no other device has.
    pub missing: MissingRecords,
    /// Why a device that was given is not taken for it.
    pub reason: Option<Error>,
}

impl fmt::Display for MissingDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ordinal, count, missing, reason } = self;
        let because = reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        let remedy = if missing.is_nothing() { "give up those that are lost" } else { "restore a backup" };
        write!(
            f,
            "log device {ordinal} of {count} is missing{because}, and with it {missing}; pass all devices of the log, or {remedy}"
        )
    }
}

impl std::error::Error for MissingDevice {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.reason.as_ref().map(|reason| reason as _)
    }
}

/// The error for a log of which `missing` devices, by their bits, are needed and not there. Reads what is.
pub(super) fn refuse(members: Members, missing: u64, archive: Option<&Archive>) -> Error {
    let unknown = MissingRecords { ranges: Vec::new(), from: Some(members.slot.checkpoint) };
    let without = missing_device(&members, missing, unknown);
    // An array that is not whole cannot be read at all.
    let read = if members.is_array() { None } else { survey(members, archive, 0, &mut |_| {}).ok() };
    read.map_or(without, |read| missing_device(&read.members, missing, lacks(&read)))
}

/// The error for a log without the `missing` devices, by their bits, and therefore without the records that are `lacking`.
pub(super) fn missing_device(members: &Members, missing: u64, lacking: MissingRecords) -> Error {
    let (ordinal, count) = (missing.trailing_zeros(), members.slot.members.len() as u32);
    let detail = MissingDevice { ordinal, count, missing: lacking, reason: members.unreadable.clone() };
    Error::new(ErrorKind::Missing, detail.to_string()).with_source(detail)
}

/// What lies behind the checkpoint and was not found, up to the last that testifies of records.
pub(super) fn lacks(read: &Survey) -> MissingRecords {
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
    MissingRecords { ranges, from: slot.clean_end.is_none().then_some(from) }
}
