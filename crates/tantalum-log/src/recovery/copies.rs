//! Restoring second copies: which requests of a mirrored log lack one, and making it.
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
use crate::log_device::{LogDevice, Target};
use crate::scheduler::COPIES;
use crate::{Lsn, Result, error};

/// Bytes of requests that are copied at most: where a device is gone there may be much to copy, and a checkpoint is
/// quicker.
const COPIED_BYTES_MAX: u64 = 16 << 20;

/// From where on everything is on two pieces of hardware once missing copies are made on `devices`: the checkpoint, or the
/// end if some cannot be made. `None` if there is only one piece.
///
/// # Errors
/// When what is durable nowhere cannot be copied: that of the device that has it, and failed to flush it.
pub(super) fn restore(recovery: &Recovery, devices: &mut [LogDevice]) -> Result<Option<Lsn>> {
    let (checkpoint, end) = (recovery.members.slot.checkpoint, recovery.end);
    let is_whole = match &recovery.order {
        Some(order) => make_copies(recovery, order, devices)?,
        None => recovery.unflushed.first().map_or(Ok(false), |(_, error)| Err(error.clone()))?,
    };
    let healthy = || devices.iter().filter(|device| device.is_healthy());
    let Some(first) = healthy().next().map(|device| device.hardware) else { return Ok(None) };
    let are_several = healthy().any(|device| device.hardware != first);
    Ok(are_several.then_some(if is_whole { checkpoint } else { end }))
}

/// Makes the copies that are missing of the requests in `order`. False if some cannot be made.
fn make_copies(recovery: &Recovery, order: &[(usize, usize)], devices: &mut [LogDevice]) -> Result<bool> {
    let holders = holders(recovery);
    let (mut left, mut is_whole) = (COPIED_BYTES_MAX, true);
    for &(scan, index) in order {
        let found = &recovery.scans[scan].found[index];
        let header = &found.request.header;
        let mut on = holders.get(&key(header)).cloned().unwrap_or_default();
        while on.len() < COPIES {
            let rest = left.checked_sub(header.bytes());
            // What is durable nowhere is copied, however much it is.
            let copied = (rest.is_some() || on.is_empty()).then(|| copy(recovery, found, &on, devices)).flatten();
            let Some(hardware) = copied else {
                if let Some((_, error)) = recovery.unflushed.first().filter(|_| on.is_empty()) {
                    return Err(error.clone());
                }
                is_whole = false;
                break;
            };
            on.push(hardware);
            left = rest.unwrap_or(0);
        }
    }
    Ok(is_whole)
}

/// A request; its records are the same wherever it is found.
fn key(header: &RequestHeader) -> (Lsn, Lsn, u64) {
    (header.start, header.end(), header.epoch)
}

/// The hardware that each request was found on, where it is durable.
fn holders(recovery: &Recovery) -> BTreeMap<(Lsn, Lsn, u64), Vec<Hardware>> {
    let mut holders: BTreeMap<_, Vec<Hardware>> = BTreeMap::new();
    let areas = recovery.areas.iter().zip(&recovery.scans);
    for (area, scan) in areas.filter(|(area, _)| recovery.unflushed(area.superblock.ordinal).is_none()) {
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

/// Copies a request to a device on other hardware than it is `on`, and says to which. `None` if none can take it. One that fails is set
/// aside.
fn copy(recovery: &Recovery, found: &Found, on: &[Hardware], devices: &mut [LogDevice]) -> Option<Hardware> {
    let header = &found.request.header;
    let bytes = header.bytes();
    loop {
        let fits = |device: &LogDevice| bytes <= device.main.layout.max_request_bytes() && device.has_room(bytes);
        let takes_it = |device: &&mut LogDevice| device.is_idle() && !on.contains(&device.hardware) && fits(device);
        let device = devices.iter_mut().filter(takes_it).max_by_key(|device| device.share().assured)?;
        let records = payload(&recovery.scans, found).ok()?;
        match write(recovery, header, &records, device) {
            Ok(()) => return Some(device.hardware),
            Err(error) => device.set_aside = Some(error),
        }
    }
}

fn write(recovery: &Recovery, header: &RequestHeader, records: &[u8], device: &mut LogDevice) -> Result<()> {
    let log_id = recovery.members.log_id;
    let place = device.place(Target::Main, (HEADER_BYTES + records.len()) as u64, header.start, header.end());
    let section = place.opens.map(|previous| SectionHeader {
        log_id,
        device_id: device.device_id,
        is_hiding: false,
        number: place.section,
        epoch: header.epoch,
        first_sequence: place.sequence,
        stream_lsn: place.stream_lsn,
        previous,
    });
    let header = RequestHeader {
        device_tag: device_tag(log_id, device.device_id),
        sequence: place.sequence,
        section: place.section,
        offset: place.offset,
        stream_lsn: place.stream_lsn,
        ..*header
    };
    let mut buffer = AlignedBuffer::zeroed(round_up(PREFIX_BYTES + records.len()) + BLOCK);
    buffer[PREFIX_BYTES..PREFIX_BYTES + records.len()].copy_from_slice(records);
    let range = compose(&mut buffer, &header, section.as_ref(), &place.layout, &place.tail);
    let offset = header.offset + range.start as u64 - BLOCK as u64;
    let (bytes, timeout) = (range.len() as u64, recovery.options.hang_timeout);
    let mut pending = device.device().submit(offset, Arc::new(buffer), range, Durability::Durable)?;
    match pending.wait(Some(timeout)) {
        Some(result) => result,
        None => {
            device.give_up(pending);
            Err(error::device_hung(device.device().name(), offset, bytes, timeout))
        }
    }
}
