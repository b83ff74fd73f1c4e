//! From what the devices hold to one log: which requests count, in which order, and where the log ends.

use std::cmp::Reverse;

use super::members::Members;
use super::scan::Scan;
use crate::format::request::RequestHeader;
use crate::format::slot::EpochStart;
use crate::{Damage, Lsn};

/// The requests of one log, in LSN order without gaps.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// (device, index of its scan).
    pub(crate) order: Vec<(usize, usize)>,
    pub(crate) end: Lsn,
    pub(crate) damage: Vec<Damage>,
}

/// Whether a request was left behind by a crash: a later epoch started before its end, which recovery had not reached.
///
/// Such a request may be intact; replaying it would mix records that nobody was promised into a log that went on
/// without them.
pub(crate) fn is_void(request: &RequestHeader, epochs: &[EpochStart]) -> bool {
    epochs.iter().any(|later| later.epoch > request.epoch && later.start < request.end())
}

/// Merges the scans from the checkpoint to the first gap.
pub(crate) fn merge(members: &Members, scans: &[Scan]) -> Merged {
    let slot = &members.slot;
    let mut candidates = Vec::new();
    for (device, scan) in scans.iter().enumerate() {
        for (index, found) in scan.found.iter().enumerate() {
            let header = &found.request.header;
            if header.end() > slot.checkpoint && !is_void(header, &slot.epochs) {
                candidates.push((header.start, Reverse(header.epoch), device, index));
            }
        }
    }
    candidates.sort_unstable();

    let mut merged = Merged { order: Vec::new(), end: slot.checkpoint, damage: Vec::new() };
    let mut last_epoch = 0;
    for (start, Reverse(epoch), device, index) in candidates {
        let header = &scans[device].found[index].request.header;
        if start > merged.end {
            break; // the first gap: nothing behind it was acknowledged
        }
        if header.end() <= merged.end || (start < merged.end && epoch < last_epoch) {
            continue; // the same request once more, or one of an epoch that lost
        }
        if start < merged.end && !merged.order.is_empty() {
            let what = format!("the request of epoch {epoch} overlaps that of epoch {last_epoch} before it");
            merged.damage.push(members.members[device].damage(header.offset, start, what));
            continue;
        }
        last_epoch = epoch;
        merged.end = header.end();
        merged.order.push((device, index));
    }
    check_end(members, scans, &mut merged);
    merged
}

/// Nothing may testify that the log went on behind the end that was found.
fn check_end(members: &Members, scans: &[Scan], merged: &mut Merged) {
    let (slot, end) = (&members.slot, merged.end);
    let Some(first) = members.members.first() else { return };
    let slot_damage = |what: String| first.damage(crate::layout::slot_offset(slot.sequence), end, what);
    if let Some(clean_end) = slot.clean_end.filter(|clean_end| *clean_end != end) {
        let what = format!("the log was closed at LSN {clean_end}, but its records end at LSN {end}");
        merged.damage.push(slot_damage(what));
    }
    let newest = slot.newest();
    if newest.start > end {
        let what = format!("epoch {} started at LSN {}, but the records end at LSN {end}", newest.epoch, newest.start);
        merged.damage.push(slot_damage(what));
    }
    for (member, scan) in members.members.iter().zip(scans) {
        let (durable, offset) = scan.witness;
        if durable > end {
            let what = format!(
                "a request says that everything before LSN {durable} was durable, but the records end at LSN {end}"
            );
            merged.damage.push(member.damage(offset, end, what));
        }
    }
}
