//! The striped layout: the log's devices as one ("FlashLogging", section 3.3).
//!
//! Above this file it is a log of one device, an array, on which as many requests are under way at a time as it has
//! devices. Each device keeps its own superblock; the array writes slots to all of them.
//!
//! A power cut may leave any of the requests under way torn and others, placed later, whole. So that recovery can tell
//! that from damage, the request that opens a section is under way by itself ([`crate::log_device`]): when a section
//! opens, all before it is durable, and what is torn can only lie in the last section. There the log ends before the
//! first request that is not intact. That it was never acknowledged is witnessed by the headers of those behind it,
//! which say what was durable when they were composed.

use std::sync::Arc;

use tantalum_device::{Device, Striped};

use crate::format::BLOCK;
use crate::format::superblock::FIXED_BLOCKS;
use crate::layout::SUPERBLOCKS;
use crate::recovery::members::{Member, Members};
use crate::{Error, LogLayout, Result};

/// What a log of this layout on these devices, in the order of their ordinals, is written to.
pub(crate) fn array(layout: LogLayout, devices: &[Arc<dyn Device>]) -> Result<Vec<Arc<dyn Device>>> {
    let LogLayout::Striped { unit_bytes } = layout else { return Ok(devices.to_vec()) };
    Ok(vec![Arc::new(Striped::new(devices.to_vec(), unit_bytes, FIXED_BLOCKS * BLOCK as u64)?)])
}

/// Replaces the devices of a striped log, all of which are there, by their array.
pub(crate) fn assemble(mut members: Members) -> Result<Members> {
    let Some(first) = members.members.first() else { return Ok(members) };
    if first.layout.depth == 1 {
        return Ok(members);
    }
    if let Some(other) = members.members.iter().find(|other| other.layout.depth != members.members.len()) {
        let (found, expected) = (members.members.len(), other.layout.depth);
        let what = format!("it is one of {expected} devices of an array, but the log has {found}");
        return Err(Error::DamagedSuperblock { device: other.device.name().into(), offset: SUPERBLOCKS[1], what });
    }
    let devices: Vec<_> = members.members.iter().map(|member| Arc::clone(&member.device)).collect();
    let device = array(first.superblock.layout, &devices)?.remove(0);
    let newest = |parity: usize| {
        let slots = members.members.iter().filter_map(|member| member.slots[parity].clone());
        slots.max_by_key(|slot| (slot.newest().epoch, slot.sequence))
    };
    let covers = members.members.iter().fold(0, |bits, member| bits | member.covers);
    let slots = [newest(0), newest(1)];
    members.members = vec![Member { device, slots, covers, ..first.clone() }];
    Ok(members)
}
