//! Declaring a device of a closed log lost: the log goes on without it if nothing on it is needed.
//!
//! A log refuses to open without any device that may hold something needed, because that device may come back with newer
//! records than all others. When the operator declares it lost, that is ruled out. It remains to find out whether the others have
//! everything, which they tell after an orderly end.

use std::sync::Arc;

use tantalum_device::{Device, Durability};

use super::members::{Members, identify_present};
use super::missing::{lacks, missing_device};
use super::{RecoveryProgress, survey};
use crate::archive::Archive;
use crate::format::slot::{Slot, SlotMember};
use crate::layout::slot_offset;
use crate::{Error, ErrorKind, LogLayout, LogOptions, Result, error};

/// A device that is lost, for [`Log::give_up`](crate::Log::give_up).
///
/// ```
/// use tantalum_log::LostDevice;
/// assert_ne!(LostDevice::Ordinal(1), LostDevice::Identities(vec![1]));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostDevice {
    /// By its place in the log.
    Ordinal(u32),
    /// By the identities that the log knows: several if it was cut into partitions. Those that the log does not list do not
    /// matter.
    Identities(Vec<u64>),
}

impl LostDevice {
    fn is(&self, member: &SlotMember) -> bool {
        match self {
            LostDevice::Ordinal(ordinal) => member.ordinal == *ordinal,
            LostDevice::Identities(ids) => ids.contains(&member.device_id),
        }
    }
}

pub(crate) fn give_up(
    devices: &[Arc<dyn Device>],
    options: &LogOptions,
    lost: &LostDevice,
    progress: &mut dyn FnMut(RecoveryProgress),
) -> Result<()> {
    options.check()?;
    let archive = match &options.archive {
        Some(options) => Archive::find(options, options.access())?,
        None => None,
    };
    let members = identify_present(devices, archive.as_ref())?;
    if members.layout() != LogLayout::FlashLogging {
        return Err(error::fixed_devices(members.layout()));
    }
    let bits = bits_of(&members, lost)?;
    let missing = members.missing_bits() & !members.slot.not_needed;
    if bits & !members.slot.not_needed == 0 || members.tolerates(missing) {
        return Ok(());
    }
    if members.slot.needs_archive && archive.is_none() {
        return Err(error::missing_archive(members.slot.checkpoint));
    }
    let read = survey(members, archive.as_ref(), 0, progress)?;
    let lacking = lacks(&read);
    if !lacking.is_nothing() {
        return Err(missing_device(&read.members, missing, lacking));
    }
    let damage = read.scans.iter().flat_map(|scan| &scan.damage).chain(&read.merged.damage).next();
    if let Some(damage) = damage.cloned() {
        return Err(damage.into());
    }
    let slot = read.members.slot;
    let there = read.members.members.iter().map(|member| &member.device);
    let there: Vec<_> = there.chain(archive.iter().map(|archive| archive.store.control())).collect();
    // Both slots of each, so that a damaged one does not bring the device back.
    for sequence in [slot.sequence + 1, slot.sequence + 2] {
        let block = Slot { sequence, not_needed: slot.not_needed | bits, ..slot.clone() }.encode();
        for device in &there {
            device.write(slot_offset(sequence), &[&block], Durability::Durable)?;
        }
    }
    Ok(())
}

/// The bits of the lost device in the slots; none if the log does not list it.
fn bits_of(members: &Members, lost: &LostDevice) -> Result<u64> {
    let there = members.members.iter().find(|member| lost.is(&member.listed()));
    if let Some(member) = there {
        return Err(Error::new(
            ErrorKind::InUse,
            format!(
                "{}: device {} of the log is there; open the log with it, and take it out of the running log",
                member.device.name(),
                member.superblock.ordinal
            ),
        ));
    }
    let listed = members.slot.members.iter().filter(|member| lost.is(member));
    let bits = listed.fold(0, |bits, member| bits | 1 << member.ordinal);
    match lost {
        LostDevice::Ordinal(ordinal) if bits == 0 => Err(error::no_such_device(*ordinal)),
        _ => Ok(bits),
    }
}
