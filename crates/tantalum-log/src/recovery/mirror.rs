//! The second copies that a log keeps: which of them are there, and making those that are not.
//!
//! A crash leaves requests of which one device has a copy: the other's was under way. What recovery delivers must survive
//! the loss of any device from then on, so the missing copies are made before anything is delivered for good. They bear
//! the epoch of the request that they are a copy of, as if that session had made them: until the new epoch begins, a crash
//! leaves nothing but more copies.

use std::collections::BTreeMap;
use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Durability, Hardware};

use super::Recovery;
use super::read::payload;
use super::scan::Found;
use crate::format::request::{HEADER_BYTES, RequestHeader};
use crate::format::section::SectionHeader;
use crate::format::{BLOCK, round_up};
use crate::group::{PREFIX_BYTES, compose};
use crate::layout::device_tag;
use crate::scheduler::COPIES;
use crate::stream::Stream;
use crate::{DeviceState, Error, Lsn, Result};

/// So many bytes of requests are copied at most: where a device is gone there may be much to copy, and a checkpoint is
/// quicker.
const COPIED_BYTES_MAX: u64 = 16 << 20;

/// From where on everything is on two pieces of hardware once missing copies are made on `streams`: the checkpoint, or the
/// end if some cannot be made. `None` if there is only one piece.
pub(super) fn restore(recovery: &Recovery, streams: &mut [Stream]) -> Option<Lsn> {
    let (checkpoint, end) = (recovery.members.slot.checkpoint, recovery.end);
    let is_whole = recovery.order.as_ref().is_some_and(|order| make_copies(recovery, order, streams));
    let healthy = || streams.iter().filter(|stream| stream.state.is_healthy());
    let first = healthy().next()?.hardware;
    let are_several = healthy().any(|stream| stream.hardware != first);
    are_several.then_some(if is_whole { checkpoint } else { end })
}

/// Makes the copies that are missing of the requests in `order`. False if some cannot be made.
fn make_copies(recovery: &Recovery, order: &[(usize, usize)], streams: &mut [Stream]) -> bool {
    let holders = holders(recovery);
    let (mut left, mut is_whole) = (COPIED_BYTES_MAX, true);
    for &(scan, index) in order {
        let found = &recovery.scans[scan].found[index];
        let header = &found.request.header;
        let on = holders.get(&key(header)).map_or(&[][..], Vec::as_slice);
        if on.len() >= COPIES {
            continue;
        }
        match left.checked_sub(header.bytes()).filter(|_| copy(recovery, found, on, streams)) {
            Some(rest) => left = rest,
            None => is_whole = false,
        }
    }
    is_whole
}

/// A request; its records are the same wherever it is found.
fn key(header: &RequestHeader) -> (Lsn, Lsn, u64) {
    (header.start, header.end(), header.epoch)
}

/// The hardware that each request was found on.
fn holders(recovery: &Recovery) -> BTreeMap<(Lsn, Lsn, u64), Vec<Hardware>> {
    let mut holders: BTreeMap<_, Vec<Hardware>> = BTreeMap::new();
    for (area, scan) in recovery.areas.iter().zip(&recovery.scans) {
        let hardware = area.device.hardware();
        for found in &scan.found {
            let on = holders.entry(key(&found.request.header)).or_default();
            if !on.contains(&hardware) {
                on.push(hardware);
            }
        }
    }
    holders
}

/// Copies a request to a device on other hardware than it is `on`. False if none can take it. One that fails is set aside.
fn copy(recovery: &Recovery, found: &Found, on: &[Hardware], streams: &mut [Stream]) -> bool {
    let header = &found.request.header;
    let bytes = header.bytes();
    loop {
        let fits = |stream: &Stream| bytes <= stream.layout.max_request_bytes() && stream.has_room(bytes);
        let takes_it = |stream: &&mut Stream| stream.is_idle() && !on.contains(&stream.hardware) && fits(stream);
        let Some(stream) = streams.iter_mut().filter(takes_it).max_by_key(|stream| stream.share().assured) else {
            return false;
        };
        let Ok(records) = payload(&recovery.scans, found) else { return false };
        match write(recovery, header, &records, stream) {
            Ok(()) => return true,
            Err(error) => stream.state = DeviceState::SetAside { cause: error },
        }
    }
}

fn write(recovery: &Recovery, header: &RequestHeader, records: &[u8], stream: &mut Stream) -> Result<()> {
    let log_id = recovery.members.log_id;
    let placement = stream.place((HEADER_BYTES + records.len()) as u64, header.start, header.end());
    let section = placement.opens.map(|previous| SectionHeader {
        log_id,
        device_id: stream.device_id,
        is_hiding: false,
        number: placement.section,
        epoch: header.epoch,
        first_sequence: placement.sequence,
        stream_lsn: placement.stream_lsn,
        previous,
    });
    let header = RequestHeader {
        device_tag: device_tag(log_id, stream.device_id),
        sequence: placement.sequence,
        section: placement.section,
        offset: placement.offset,
        stream_lsn: placement.stream_lsn,
        ..*header
    };
    let mut buffer = AlignedBuffer::zeroed(round_up(PREFIX_BYTES + records.len()) + BLOCK);
    buffer[PREFIX_BYTES..PREFIX_BYTES + records.len()].copy_from_slice(records);
    let range = compose(&mut buffer, &header, section.as_ref(), &placement.layout, &placement.tail);
    let offset = header.offset + range.start as u64 - BLOCK as u64;
    let (bytes, timeout) = (range.len() as u64, recovery.options.hang_timeout);
    let mut pending = stream.device().submit(offset, Arc::new(buffer), range, Durability::Durable)?;
    match pending.wait(Some(timeout)) {
        Some(result) => Ok(result?),
        None => {
            let device = stream.device().name().into();
            stream.give_up(pending);
            Err(Error::DeviceHung { device, offset, bytes, timeout })
        }
    }
}
