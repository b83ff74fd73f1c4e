//! Merging the scans of all devices to one log: which requests count, in which order, and where the log ends.

use std::cmp::Reverse;

use super::members::Member;
use super::scan::Scan;
use crate::format::request::RequestHeader;
use crate::format::slot::{EpochStart, Slot};
use crate::{Damage, Lsn};

/// The requests of one log, in LSN order without gaps.
#[derive(Debug, Default)]
pub(crate) struct Merged {
    /// (scan, index in it).
    pub(crate) order: Vec<(usize, usize)>,
    pub(crate) end: Lsn,
    pub(crate) damage: Vec<Damage>,
}

/// Whether a request was left behind by a crash: a later epoch started before its end, which recovery had not reached.
///
/// Such a request may be intact; replaying it would mix records that were never acknowledged into a log that went on
/// without them.
pub(crate) fn is_void(request: &RequestHeader, epochs: &[EpochStart]) -> bool {
    epochs.iter().any(|later| later.epoch > request.epoch && later.start < request.end())
}

/// Merges the scans from the checkpoint to the first gap.
pub(crate) fn merge(slot: &Slot, areas: &[Member], scans: &[Scan]) -> Merged {
    let mut candidates = Vec::new();
    for (at, scan) in scans.iter().enumerate() {
        for (index, found) in scan.found.iter().enumerate() {
            let header = &found.request.header;
            if header.end() > slot.checkpoint && !is_void(header, &slot.epochs) {
                // The longer first: the archive's requests are several of the devices' at once.
                candidates.push((header.start, Reverse(header.epoch), Reverse(header.end()), at, index));
            }
        }
    }
    candidates.sort_unstable();

    let mut merged = Merged { order: Vec::new(), end: slot.checkpoint, damage: Vec::new() };
    let mut last_epoch = 0;
    for (start, Reverse(epoch), _, at, index) in candidates {
        let found = &scans[at].found[index];
        let header = &found.request.header;
        if start > merged.end {
            break; // the first gap: nothing behind it was acknowledged
        }
        if header.end() <= merged.end || (start < merged.end && epoch < last_epoch) {
            continue; // the same request once more, or one of an epoch that lost
        }
        if start < merged.end && !merged.order.is_empty() {
            let what = format!("the request of epoch {epoch} overlaps that of epoch {last_epoch} before it");
            let (device, offset) = (found.device.name().into(), header.offset);
            merged.damage.push(Damage { device, offset, lsn: Some(start), what });
            continue;
        }
        last_epoch = epoch;
        merged.end = header.end();
        merged.order.push((at, index));
    }
    check_end(slot, areas, scans, &mut merged);
    merged
}

/// Nothing may testify that the log went on behind the end that was found.
fn check_end(slot: &Slot, areas: &[Member], scans: &[Scan], merged: &mut Merged) {
    let end = merged.end;
    let Some(first) = areas.first() else { return };
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
    for scan in scans {
        let (durable, offset) = scan.witness;
        if durable > end {
            let what = format!(
                "a request says that everything before LSN {durable} was durable, but the records end at LSN {end}"
            );
            merged.damage.push(Damage { device: scan.name.clone(), offset, lsn: Some(end), what });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tantalum_device::{Device, MemoryDevice};

    use super::*;
    use crate::format::request::DecodedRequest;
    use crate::recovery::members::identify;
    use crate::recovery::scan::Found;
    use crate::{Log, LogOptions};

    fn request(epoch: u64, start: u64, end: u64) -> RequestHeader {
        RequestHeader {
            device_tag: 0,
            epoch,
            sequence: 0,
            section: 0,
            offset: 0,
            start: Lsn::new(start),
            stream_lsn: Lsn::ZERO,
            durable_lsn: Lsn::ZERO,
            payload_bytes: (end - start) as u32,
            time_us: 0,
        }
    }

    /// Merges requests, given by device as (epoch, start, end), and returns those that count and the end.
    fn merged(
        checkpoint: u64,
        epochs: &[(u64, u64)],
        devices: [&[(u64, u64, u64)]; 2],
    ) -> (Vec<(u64, u64, u64)>, u64, usize) {
        let memory: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("a", 1 << 20), MemoryDevice::new("b", 1 << 20)];
        Log::create(1, memory.clone(), LogOptions::default()).expect("create");
        let mut members = identify(&memory, None).expect("identify");
        members.slot.checkpoint = Lsn::new(checkpoint);
        members.slot.clean_end = None;
        let epoch = |&(epoch, start): &(u64, u64)| EpochStart { epoch, start: Lsn::new(start) };
        members.slot.epochs = epochs.iter().map(epoch).collect();
        let scan = |requests: &[(u64, u64, u64)]| {
            let found = |&(epoch, start, end): &(u64, u64, u64)| Found {
                request: DecodedRequest { header: request(epoch, start, end), whole_checksum: 0 },
                payload: None,
                device: Arc::clone(&memory[0]),
            };
            Scan { found: requests.iter().map(found).collect(), ..Scan::default() }
        };
        let scans = devices.map(scan);
        let merged = merge(&members.slot, &members.members, &scans);
        let header = |&(device, index): &(usize, usize)| &scans[device].found[index].request.header;
        let order = merged.order.iter().map(header).map(|h| (h.epoch, h.start.get(), h.end().get())).collect();
        (order, merged.end.get(), merged.damage.len())
    }

    #[test]
    fn a_request_is_void_if_a_later_epoch_started_below_its_end() {
        let epochs = [(1, 0), (3, 100)].map(|(epoch, start)| EpochStart { epoch, start: Lsn::new(start) });
        assert!(!is_void(&request(1, 50, 100), &epochs), "recovered before epoch 3 started");
        assert!(is_void(&request(1, 50, 101), &epochs));
        assert!(is_void(&request(2, 100, 200), &epochs), "epoch 2 left nothing that was recovered");
        assert!(!is_void(&request(3, 100, 200), &epochs));
        assert!(!is_void(&request(4, 0, 200), &epochs), "only later epochs count");
    }

    #[test]
    fn requests_are_taken_in_order_up_to_the_first_gap() {
        let a = [(1, 0, 10), (1, 20, 30), (1, 40, 50)];
        let b = [(1, 10, 20), (1, 20, 30)];
        assert_eq!(merged(0, &[(1, 0)], [&a, &b]), (vec![(1, 0, 10), (1, 10, 20), (1, 20, 30)], 30, 0));
        // The checkpoint lies within a request, and what is below it does not matter.
        assert_eq!(merged(15, &[(1, 0)], [&a, &b]), (vec![(1, 10, 20), (1, 20, 30)], 30, 0));
        assert_eq!(merged(30, &[(1, 0)], [&a, &b]), (vec![], 30, 0));
    }

    #[test]
    fn an_archive_request_stands_for_those_that_it_covers() {
        let archive = [(1, 0, 30), (2, 30, 50)];
        let device = [(1, 0, 10), (1, 20, 30), (1, 30, 40), (1, 40, 50), (2, 50, 60)];
        let expected = (vec![(1, 0, 30), (2, 30, 50), (2, 50, 60)], 60, 0);
        assert_eq!(merged(0, &[(1, 0), (2, 50)], [&device, &archive]), expected);
        assert_eq!(merged(12, &[(1, 0), (2, 50)], [&device, &archive]), expected);
    }

    #[test]
    fn the_highest_epoch_wins_even_where_no_epoch_start_is_remembered() {
        let a = [(3, 10, 20), (3, 20, 40)];
        let b = [(2, 0, 10), (4, 10, 20), (4, 20, 30)];
        assert_eq!(merged(0, &[(5, 30)], [&a, &b]), (vec![(2, 0, 10), (4, 10, 20), (4, 20, 30)], 30, 0));
    }

    #[test]
    fn overlaps_and_an_end_below_the_newest_epoch_are_damage() {
        assert_eq!(merged(0, &[(1, 0)], [&[(1, 0, 10)], &[(1, 5, 15)]]).2, 1);
        assert_eq!(merged(0, &[(1, 0), (2, 20)], [&[(1, 0, 10)], &[]]).2, 1);
    }
}
