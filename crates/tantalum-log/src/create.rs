//! Formatting devices as a new log.

use std::sync::Arc;

use tantalum_device::{Device, Durability, Hardware};

use crate::format::slot::{EpochStart, Slot};
use crate::format::superblock::Superblock;
use crate::format::{BLOCK, MAX_DEVICES};
use crate::layout::{Layout, SUPERBLOCKS, slot_offset};
use crate::{Error, Hiding, LogOptions, Lsn, Result};

/// Formats `devices`. The superblocks are written last, so that devices formatted in part are no log.
pub(crate) fn create(log_id: u128, devices: &[Arc<dyn Device>], options: &LogOptions) -> Result<()> {
    options.check()?;
    check_devices(devices)?;
    let smallest = devices.iter().map(|device| device.capacity_bytes()).min().unwrap_or(0);
    let section_bytes = Layout::section_bytes(options.section_bytes, smallest)?;
    let hides = options.hiding == Hiding::On && stand_on_several(devices.iter().map(|device| device.hardware()));
    let divide =
        |device: &Arc<dyn Device>| Layout::divide(device.name(), device.capacity_bytes(), section_bytes, hides);
    let layouts = devices.iter().map(divide).collect::<Result<Vec<_>>>()?;

    let zeros = vec![0; 2 * BLOCK];
    for (device, (main, hiding)) in devices.iter().zip(&layouts) {
        for offset in SUPERBLOCKS {
            device.write(offset, &[&zeros[..BLOCK]], Durability::Cached)?;
        }
        for area in [main].into_iter().chain(hiding) {
            for number in 0..area.section_count {
                device.write(area.section(number).start, &[&zeros], Durability::Cached)?;
            }
        }
        device.flush()?;
    }
    for sequence in 1..=2 {
        let slot = Slot {
            log_id,
            sequence,
            checkpoint: Lsn::ZERO,
            epochs: vec![EpochStart { epoch: 1, start: Lsn::ZERO }],
            clean_end: Some(Lsn::ZERO),
            not_needed: 0,
        };
        for device in devices {
            device.write(slot_offset(sequence), &[&slot.encode()], Durability::Durable)?;
        }
    }
    for (ordinal, (device, (main, hiding))) in devices.iter().zip(&layouts).enumerate() {
        let superblock = Superblock {
            log_id,
            ordinal: ordinal as u32,
            device_count: devices.len() as u32,
            section_bytes,
            section_count: main.section_count as u32,
            hiding_section_count: hiding.map_or(0, |hiding| hiding.section_count as u32),
            area_bytes: hiding.unwrap_or(*main).end(),
        };
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
