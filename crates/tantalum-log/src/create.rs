//! Formatting devices: as a new log, or as new devices of one that is recovered from its archive.

use std::sync::Arc;

use tantalum_device::{Access, Device, Durability, Hardware};

use crate::archive::Archive;
use crate::format::slot::{EpochStart, Slot};
use crate::format::superblock::{Superblock, area_bytes_of};
use crate::format::{BLOCK, MAX_DEVICES};
use crate::layout::{Layout, SUPERBLOCKS, slot_offset};
use crate::{Error, Hiding, LogLayout, LogOptions, Lsn, Result, striped};

/// Formats `devices` as a new, empty log, and makes its archive.
pub(crate) fn create(log_id: u128, devices: &[Arc<dyn Device>], options: &LogOptions) -> Result<()> {
    let slot = Slot {
        log_id,
        sequence: 1,
        checkpoint: Lsn::ZERO,
        epochs: vec![EpochStart { epoch: 1, start: Lsn::ZERO }],
        clean_end: Some(Lsn::ZERO),
        not_needed: 0,
        archive_run: None,
    };
    options.check()?;
    let archive = match &options.archive {
        None => None,
        Some(options) => match Archive::find(options, Access::ReadWrite)? {
            Some(archive) if archive.log_id() != log_id => return Err(archive.foreign(log_id)),
            _ => Some(Archive::create(options, log_id)?),
        },
    };
    let beside = archive.map(|archive| Arc::clone(archive.store.control()));
    format_devices(devices, options, &slot, beside.as_slice())
}

/// Formats `devices` as the empty devices of the log that `slot` describes; the slot goes to the devices `beside` them
/// too. The superblocks are written last, so that devices formatted in part are no log.
pub(crate) fn format_devices(
    devices: &[Arc<dyn Device>],
    options: &LogOptions,
    slot: &Slot,
    beside: &[Arc<dyn Device>],
) -> Result<()> {
    options.check()?;
    check_devices(devices)?;
    let logical = devices.iter().map(|device| device.capabilities().logical_block).max().unwrap_or(0);
    let block_bytes = Layout::block_bytes(options.block_bytes, options.layout, logical)?;
    options.layout.check(devices.len(), block_bytes)?;
    let written = striped::array(options.layout, devices)?;
    let smallest = written.iter().map(|device| device.capacity_bytes()).min().unwrap_or(0);
    let section_bytes = Layout::section_bytes(options.section_bytes, smallest)?;
    let hides = options.layout == LogLayout::FlashLogging
        && options.hiding == Hiding::On
        && stand_on_several(devices.iter().map(|device| device.hardware()));
    let describe = |ordinal: usize, device: &Arc<dyn Device>| {
        let (main, hiding) = Layout::section_counts(device.name(), device.capacity_bytes(), section_bytes, hides)?;
        let device_count = devices.len() as u32;
        let sections = u64::from(main) + u64::from(hiding);
        Ok(Superblock {
            log_id: slot.log_id,
            ordinal: ordinal as u32,
            device_count,
            layout: options.layout,
            block_bytes,
            section_bytes,
            section_count: main,
            hiding_section_count: hiding,
            area_bytes: area_bytes_of(options.layout, device_count, section_bytes.into(), sections),
        })
    };
    let superblocks =
        written.iter().enumerate().map(|(at, device)| describe(at, device)).collect::<Result<Vec<_>>>()?;

    let zeros = vec![0; 2 * BLOCK];
    for (device, superblock) in written.iter().zip(&superblocks) {
        for offset in SUPERBLOCKS {
            device.write(offset, &[&zeros[..BLOCK]], Durability::Cached)?;
        }
        for area in [Layout::of(superblock)].into_iter().chain(Layout::of_hiding(superblock)) {
            for number in 0..area.section_count {
                device.write(area.section(number).start, &[&zeros], Durability::Cached)?;
            }
        }
        device.flush()?;
    }
    for sequence in [slot.sequence, slot.sequence + 1] {
        let block = Slot { sequence, ..slot.clone() }.encode();
        for device in devices.iter().chain(beside) {
            device.write(slot_offset(sequence), &[&block], Durability::Durable)?;
        }
    }
    for (ordinal, device) in devices.iter().enumerate() {
        // All devices of an array have its superblock, with their own ordinals.
        let superblock = superblocks.get(ordinal).unwrap_or(&superblocks[0]);
        let superblock = Superblock { ordinal: ordinal as u32, ..*superblock };
        for offset in SUPERBLOCKS {
            device.write(offset, &[&superblock.encode()], Durability::Durable)?;
        }
    }
    Ok(())
}

/// Whether not all devices are, or are parts of, the same hardware, so that one can stand in for another.
pub(crate) fn stand_on_several(mut hardware: impl Iterator<Item = Hardware>) -> bool {
    let first = hardware.next();
    hardware.any(|other| Some(other) != first)
}

/// Refuses devices that cannot carry a log, whatever is on them.
pub(crate) fn check_devices(devices: &[Arc<dyn Device>]) -> Result<()> {
    if devices.is_empty() {
        return Err(Error::NoDevices);
    }
    if devices.len() > MAX_DEVICES {
        return Err(Error::TooManyDevices { count: devices.len(), limit: MAX_DEVICES });
    }
    for device in devices {
        let found = device.capabilities().logical_block;
        if found == 0 || !(BLOCK as u32).is_multiple_of(found) {
            return Err(Error::UnsupportedBlock { device: device.name().into(), found, expected: BLOCK as u32 });
        }
    }
    Ok(())
}
