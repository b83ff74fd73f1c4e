//! Formatting devices: as a new log, as new devices of one that is recovered from its archive, or for a log that runs.

use std::sync::Arc;

use tantalum_device::{Access, Device, Durability, Error, Hardware};
use tantalum_rt::{Random, random_seed};

use crate::archive::Archive;
use crate::format::slot::{EpochStart, Slot, SlotMember};
use crate::format::superblock::{FIXED_BLOCKS, Superblock, area_bytes_of};
use crate::format::{BLOCK, MAX_DEVICES};
use crate::layout::{Layout, SUPERBLOCKS, slot_offset};
use crate::{Hiding, LogLayout, LogOptions, Lsn, Result, error};

/// Formats `devices` as a new, empty log that begins at `start`, and makes its archive. Its first epoch follows `epoch`.
pub(crate) fn create(
    log_id: u128,
    start: Lsn,
    epoch: u64,
    devices: &[Arc<dyn Device>],
    options: &LogOptions,
) -> Result<()> {
    let slot = Slot {
        log_id,
        sequence: 1,
        checkpoint: start,
        epochs: vec![EpochStart { epoch, start }],
        clean_end: Some(start),
        not_needed: 0,
        archive_run: options.archive.is_some().then_some(start),
        needs_archive: false,
        mirrored_from: (options.copies > 1).then_some(Lsn::ZERO),
        stamped: None,
        members: Vec::new(),
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
    format_devices(devices, options, &slot, beside.as_slice(), Last::Superblocks)
}

/// Which structures are written last when devices are formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Last {
    /// Devices formatted in part are no log.
    Superblocks,
    /// Devices formatted in part are not listed by the log, or all of them are: for one that exists.
    Slots,
}

/// Formats `devices` as the empty devices of the log that `slot` describes, and makes them its members; the slot goes to
/// the devices `beside` them too.
pub(crate) fn format_devices(
    devices: &[Arc<dyn Device>],
    options: &LogOptions,
    slot: &Slot,
    beside: &[Arc<dyn Device>],
    last: Last,
) -> Result<()> {
    options.check()?;
    check_devices(devices)?;
    let logical = devices.iter().map(|device| device.capabilities().logical_block).max().unwrap_or(0);
    let block_bytes = Layout::block_bytes(options.block_bytes, options.layout, logical)?;
    options.layout.check(devices.len(), block_bytes)?;
    let written = options.layout.array(devices)?;
    let smallest = written.iter().map(|device| device.capacity_bytes()).min().unwrap_or(0);
    let division = Division {
        layout: options.layout,
        stripe_devices: if written.len() < devices.len() { devices.len() as u32 } else { 1 },
        block_bytes,
        section_bytes: Layout::section_bytes(options.section_bytes, smallest)?,
        hides: hides(options.layout, options.hiding, devices.iter().map(|device| device.hardware())),
    };
    if options.copies > 1 && !stand_on_several(devices.iter().map(|device| device.hardware())) {
        let expected = "its devices must stand on at least two pieces of hardware";
        return Err(error::invalid_option("copies", options.copies.into(), expected));
    }
    let mut members: Vec<_> =
        (0..).zip(new_ids(devices.len())).map(|(ordinal, id)| SlotMember::new(ordinal, id)).collect();
    group_by_hardware(&mut members, |member| devices.get(member.ordinal as usize).map(|device| device.hardware()));
    let divide = |(device, &member): (&Arc<dyn Device>, _)| division.superblock(slot.log_id, member, &**device);
    let superblocks = written.iter().zip(&members).map(divide).collect::<Result<Vec<_>>>()?;

    for (device, superblock) in written.iter().zip(&superblocks) {
        blank(&**device, superblock)?;
    }
    let write_slots = || {
        for sequence in [slot.sequence, slot.sequence + 1] {
            let block = Slot { sequence, members: members.clone(), ..slot.clone() }.encode();
            for device in devices.iter().chain(beside) {
                device.write(slot_offset(sequence), &[&block], Durability::Durable)?;
            }
        }
        Ok(())
    };
    let write_superblocks = || {
        for (at, (device, &SlotMember { ordinal, device_id, .. })) in devices.iter().zip(&members).enumerate() {
            // All devices of an array have its superblock, with their own ordinals and identities.
            let superblock = *superblocks.get(at).unwrap_or(&superblocks[0]);
            write_superblock(&**device, &Superblock { ordinal, device_id, ..superblock })?;
        }
        Ok(())
    };
    match last {
        Last::Superblocks => write_slots().and_then(|()| write_superblocks()),
        Last::Slots => write_superblocks().and_then(|()| write_slots()),
    }
}

/// Formats a device for a log that runs. It is none of the log before a slot lists it, and there is no slot on it yet.
pub(crate) fn format(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    blank(device, superblock)?;
    write_superblock(device, superblock)
}

/// What the superblocks of a log's devices have in common.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Division {
    pub(crate) layout: LogLayout,
    pub(crate) stripe_devices: u32,
    pub(crate) block_bytes: u32,
    pub(crate) section_bytes: u32,
    /// Whether devices have hiding areas where there is room.
    pub(crate) hides: bool,
}

impl Division {
    /// The superblock of a device, or of an array.
    pub(crate) fn superblock(&self, log_id: u128, member: SlotMember, device: &dyn Device) -> Result<Superblock> {
        if device.capabilities().zones.is_some() {
            return Err(Error::has_zones(device.name(), "put the log elsewhere"));
        }
        let &Division { layout, stripe_devices, block_bytes, section_bytes, hides } = self;
        let (main, hiding) = Layout::section_counts(device.name(), device.capacity_bytes(), section_bytes, hides)?;
        let sections = u64::from(main) + u64::from(hiding);
        Ok(Superblock {
            log_id,
            ordinal: member.ordinal,
            device_id: member.device_id,
            layout,
            stripe_devices,
            block_bytes,
            section_bytes,
            section_count: main,
            hiding_section_count: hiding,
            area_bytes: area_bytes_of(layout, stripe_devices, section_bytes.into(), sections),
        })
    }
}

/// Whether devices that are formatted for a log on this hardware get hiding areas.
pub(crate) fn hides(layout: LogLayout, hiding: Hiding, hardware: impl Iterator<Item = Hardware>) -> bool {
    layout == LogLayout::FlashLogging && hiding == Hiding::On && stand_on_several(hardware)
}

/// Takes note of which members share hardware. Of what is not here, the old note stays.
pub(crate) fn group_by_hardware(members: &mut [SlotMember], hardware_of: impl Fn(&SlotMember) -> Option<Hardware>) {
    let mut firsts: Vec<(Hardware, u64)> = Vec::new();
    for member in members {
        let Some(hardware) = hardware_of(member) else { continue };
        let first = firsts.iter().find(|(other, _)| *other == hardware).map(|&(_, id)| id);
        member.hardware = first.unwrap_or_else(|| {
            firsts.push((hardware, member.device_id));
            member.device_id
        });
    }
}

/// Identities for `count` devices.
pub(crate) fn new_ids(count: usize) -> Vec<u64> {
    let mut random = Random::with_seed(random_seed());
    (0..count).map(|_| random.u64(1..)).collect()
}

/// Makes sure, durably, that nothing on the device can be taken for a structure that is written later.
fn blank(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    let zeros = vec![0; FIXED_BLOCKS as usize * BLOCK];
    device.write(0, &[&zeros], Durability::Cached)?;
    for area in [Layout::of(superblock)].into_iter().chain(Layout::of_hiding(superblock)) {
        for number in 0..area.section_count {
            device.write(area.section(number).start, &[&zeros[..2 * BLOCK]], Durability::Cached)?;
        }
    }
    device.flush()
}

fn write_superblock(device: &dyn Device, superblock: &Superblock) -> Result<()> {
    // The copy first: garbage that a power cut leaves in the first block then has a whole copy beside it.
    for offset in SUPERBLOCKS.into_iter().rev() {
        device.write(offset, &[&superblock.encode()], Durability::Durable)?;
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
        return Err(error::no_devices());
    }
    if devices.len() > MAX_DEVICES {
        return Err(error::too_many_devices(devices.len(), MAX_DEVICES));
    }
    for device in devices {
        let found = device.capabilities().logical_block;
        if found == 0 || !(BLOCK as u32).is_multiple_of(found) {
            return Err(error::unsupported_block(device.name(), found, BLOCK as u32));
        }
    }
    Ok(())
}
