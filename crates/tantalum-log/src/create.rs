//! Formatting devices: as a new log, or as new devices of one that is recovered from its archive.

use std::sync::Arc;

use tantalum_device::{Access, Device, Durability};

use crate::archive::Archive;
use crate::format::slot::{EpochStart, Slot};
use crate::format::superblock::Superblock;
use crate::format::{BLOCK, MAX_DEVICES};
use crate::layout::{Layout, SUPERBLOCKS, slot_offset};
use crate::{Error, LogOptions, Lsn, Result};

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
    let smallest = devices.iter().map(|device| device.capacity_bytes()).min().unwrap_or(0);
    let section_bytes = Layout::section_bytes(options.section_bytes, smallest)?;
    let divide = |device: &Arc<dyn Device>| Layout::divide(device.name(), device.capacity_bytes(), section_bytes);
    let layouts = devices.iter().map(divide).collect::<Result<Vec<_>>>()?;

    let zeros = vec![0; 2 * BLOCK];
    for (device, layout) in devices.iter().zip(&layouts) {
        for offset in SUPERBLOCKS {
            device.write(offset, &[&zeros[..BLOCK]], Durability::Cached)?;
        }
        for number in 0..layout.section_count {
            device.write(layout.section(number).start, &[&zeros], Durability::Cached)?;
        }
        device.flush()?;
    }
    for sequence in [slot.sequence, slot.sequence + 1] {
        let block = Slot { sequence, ..slot.clone() }.encode();
        for device in devices.iter().chain(beside) {
            device.write(slot_offset(sequence), &[&block], Durability::Durable)?;
        }
    }
    for (ordinal, (device, layout)) in devices.iter().zip(&layouts).enumerate() {
        let superblock = Superblock {
            log_id: slot.log_id,
            ordinal: ordinal as u32,
            device_count: devices.len() as u32,
            section_bytes,
            section_count: layout.section_count as u32,
            area_bytes: layout.area_bytes(),
        };
        for offset in SUPERBLOCKS {
            device.write(offset, &[&superblock.encode()], Durability::Durable)?;
        }
    }
    Ok(())
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
