//! Inspecting and verifying log devices without changing them.

use std::fmt;
use std::sync::Arc;

use tantalum_device::Device;

use crate::format::BLOCK;
use crate::format::request::HEADER_BYTES;
use crate::format::slot::Slot;
use crate::layout::slot_offset;
use crate::recovery::chunks::read_unaligned;
use crate::recovery::members::{Member, identify};
use crate::recovery::merge::is_void;
use crate::recovery::{Reader, survey};
use crate::{LogLayout, Lsn, Result};

/// The structures on the devices of a log, from [`inspect`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Inspection {
    /// The identity that the devices share.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_hex::<32, _, _>"))]
    pub log_id: u128,
    /// The newest valid checkpoint.
    pub checkpoint_lsn: Lsn,
    /// The newest epoch.
    pub epoch: u64,
    /// The newest slot's clean mark: where the log ended when it was closed.
    pub clean_end_lsn: Option<Lsn>,
    /// How many devices the log has.
    pub device_count: u32,
    /// The devices that were given, by their place in the log.
    pub devices: Vec<DeviceInspection>,
}

/// One device of an [`Inspection`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct DeviceInspection {
    /// The device's name.
    pub name: String,
    /// Its place in the log.
    pub ordinal: u32,
    /// Its identity.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_hex::<16, _, _>"))]
    pub device_id: u64,
    /// How requests are laid out on it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub layout: LogLayout,
    /// Requests are written in multiples of this.
    pub block_bytes: u32,
    /// Bytes of a section.
    pub section_bytes: u32,
    /// Number of sections, those of the hiding area not counted.
    pub section_count: u32,
    /// Number of sections of the hiding area.
    pub hiding_section_count: u32,
    /// The two checkpoint slots; `None` where a slot is invalid.
    pub slots: [Option<SlotInspection>; 2],
    /// The sections, oldest first, those of the hiding area last.
    pub sections: Vec<SectionInspection>,
    /// The requests, oldest first, those of the hiding area last.
    pub requests: Vec<RequestInspection>,
}

/// A valid checkpoint slot.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SlotInspection {
    /// Where it lies on the device, in bytes.
    pub offset: u64,
    /// Its sequence number; the newest of all devices counts.
    pub sequence: u64,
    /// The checkpoint.
    pub checkpoint_lsn: Lsn,
    /// The epoch.
    pub epoch: u64,
    /// Where recent epochs started: (epoch, start).
    #[cfg_attr(feature = "serde", serde(skip))]
    pub epochs: Vec<(u64, Lsn)>,
    /// Where the log ended, if it was closed cleanly.
    pub clean_end_lsn: Option<Lsn>,
    /// Bit `n` set: device `n` holds nothing that is needed.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub not_needed: u64,
    /// The devices of the log: (ordinal, identity).
    #[cfg_attr(feature = "serde", serde(skip))]
    pub members: Vec<(u32, u64)>,
}

/// A section that holds, or held, requests.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SectionInspection {
    /// Where it lies on the device, in bytes.
    pub offset: u64,
    /// Whether it belongs to the hiding area.
    #[cfg_attr(feature = "serde", serde(rename = "area", serialize_with = "as_area"))]
    pub is_hiding: bool,
    /// Its number in its area.
    pub number: u64,
    /// Whether its header is intact.
    pub header_valid: bool,
    /// The largest end LSN on the device before this section.
    pub stream_lsn: Lsn,
}

/// One request on a device.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct RequestInspection {
    /// Where it lies on the device, in bytes.
    pub offset: u64,
    /// Bytes on the device, padding included.
    pub bytes: u64,
    /// Whether it lies in the hiding area: another device was late with it.
    #[cfg_attr(feature = "serde", serde(rename = "area", serialize_with = "as_area"))]
    pub is_hidden: bool,
    /// The session that wrote it.
    pub epoch: u64,
    /// Its number among the area's writes.
    pub sequence: u64,
    /// Its first record's start.
    #[cfg_attr(feature = "serde", serde(rename = "start_lsn"))]
    pub start: Lsn,
    /// Its last record's end.
    #[cfg_attr(feature = "serde", serde(rename = "end_lsn"))]
    pub end: Lsn,
    /// How recovery would classify it.
    pub state: RequestState,
}

/// How recovery classifies a request.
#[non_exhaustive]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum RequestState {
    /// It is replayed.
    Live,
    /// It lies below the checkpoint.
    Released,
    /// It was left behind by a crash, and a later epoch took its place.
    Void,
    /// It lies behind the first gap and was never acknowledged.
    BehindGap,
    /// It is torn or damaged.
    Damaged,
}

/// Something wrong on a device. Errors that report it have it as their [`cause`](crate::Error::cause).
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Damage {
    /// The device's name.
    pub device: String,
    /// Where, in bytes.
    pub offset: u64,
    /// The log position, if it is known.
    pub lsn: Option<Lsn>,
    /// What was expected and found.
    pub what: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Damage {}

/// The result of [`verify`].
#[derive(Clone, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Verification {
    /// Everything that is wrong; empty if recovery would succeed.
    pub damage: Vec<Damage>,
    /// Intact requests behind the checkpoint.
    pub requests: u64,
    /// Records that recovery would deliver.
    pub records: u64,
    /// Their bytes, framing not included.
    pub record_bytes: u64,
    /// Where recovery would start.
    pub checkpoint_lsn: Lsn,
    /// Where recovery would end.
    pub end_lsn: Lsn,
}

/// An identity in so many hexadecimal digits.
#[cfg(feature = "serde")]
pub(crate) fn as_hex<const DIGITS: usize, T: Copy + Into<u128>, S: serde::Serializer>(
    id: &T,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&format_args!("{:0DIGITS$x}", (*id).into()))
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(text: &LogLayout, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(text)
}

#[cfg(feature = "serde")]
fn as_area<S: serde::Serializer>(is_hiding: &bool, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(if *is_hiding { "hiding" } else { "main" })
}

/// Lists all structures on the devices of a log, given in any order. Reads only; may be used on devices of a running
/// log, where it shows a state in motion.
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{Log, LogOptions, inspect, verify};
/// # let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("log", 1 << 20)];
/// # Log::create(7, devices.clone(), LogOptions::default())?;
/// # let log = Log::open(devices.clone(), LogOptions::default(), &mut |_| {})?.finish()?;
/// log.flush(log.append(&[b"a record"])?.end)?;
/// for request in &inspect(&devices)?.devices[0].requests {
///     println!("{:?} {}..{} at byte {}", request.state, request.start, request.end, request.offset);
/// }
/// assert!(verify(&devices)?.damage.is_empty());
/// # Ok::<(), tantalum_log::Error>(())
/// ```
///
/// # Errors
/// Those of identifying the devices, and their read errors.
pub fn inspect(devices: &[Arc<dyn Device>]) -> Result<Inspection> {
    let members = identify(devices, None)?;
    let survey = survey(members, None, 0, &mut |_| {})?;
    let (members, areas, end) = (survey.members, survey.areas, survey.merged.end);
    let slot = &members.slot;
    let describe = |member: &Member| {
        let own = areas.iter().filter(|area| area.superblock.ordinal == member.superblock.ordinal);
        inspect_device(member, own, slot, end)
    };
    Ok(Inspection {
        log_id: members.log_id,
        checkpoint_lsn: slot.checkpoint,
        epoch: slot.newest().epoch,
        clean_end_lsn: slot.clean_end,
        device_count: slot.members.len() as u32,
        devices: members.members.iter().map(describe).collect::<Result<_>>()?,
    })
}

fn inspect_device<'a>(
    member: &Member,
    areas: impl Iterator<Item = &'a Member>,
    slot: &Slot,
    end: Lsn,
) -> Result<DeviceInspection> {
    let (mut sections, mut requests) = (Vec::new(), Vec::new());
    for area in areas {
        for section in area.read_sections(|_| {})?.sections {
            inspect_section(area, section.number, slot, end, &mut requests)?;
            sections.push(SectionInspection {
                offset: area.layout.section(section.number).start,
                is_hiding: area.is_hiding,
                number: section.number,
                header_valid: section.header.is_some(),
                stream_lsn: section.stream_lsn,
            });
        }
    }
    let describe_slot = |parity: usize| {
        member.slots[parity].as_ref().map(|slot| SlotInspection {
            offset: slot_offset(parity as u64),
            sequence: slot.sequence,
            checkpoint_lsn: slot.checkpoint,
            epoch: slot.newest().epoch,
            epochs: slot.epochs.iter().map(|epoch| (epoch.epoch, epoch.start)).collect(),
            clean_end_lsn: slot.clean_end,
            not_needed: slot.not_needed,
            members: slot.members.iter().map(|member| (member.ordinal, member.device_id)).collect(),
        })
    };
    Ok(DeviceInspection {
        name: member.device.name().into(),
        ordinal: member.superblock.ordinal,
        device_id: member.superblock.device_id,
        layout: member.superblock.layout,
        block_bytes: member.superblock.block_bytes,
        section_bytes: member.superblock.section_bytes,
        section_count: member.superblock.section_count,
        hiding_section_count: member.superblock.hiding_section_count,
        slots: [describe_slot(0), describe_slot(1)],
        sections,
        requests,
    })
}

/// Lists a section's requests up to the first block that holds none.
fn inspect_section(
    member: &Member,
    number: u64,
    slot: &Slot,
    end: Lsn,
    requests: &mut Vec<RequestInspection>,
) -> Result<()> {
    let section = member.layout.section(number);
    let mut offset = section.start + BLOCK as u64;
    while offset + HEADER_BYTES as u64 <= section.end {
        let header = read_unaligned(&*member.device, offset, HEADER_BYTES as u64)?;
        let Ok(request) = member.decode_request(&header, offset) else { break };
        let header = request.header;
        let bytes = member.layout.request_bytes(header.bytes());
        if header.section != number || bytes > section.end - offset {
            break;
        }
        let whole = read_unaligned(&*member.device, offset, header.bytes())?;
        let state = match request.check_payload(&whole) {
            Err(_) => RequestState::Damaged,
            Ok(()) if header.end() <= slot.checkpoint => RequestState::Released,
            Ok(()) if is_void(&header, &slot.epochs) => RequestState::Void,
            Ok(()) if header.start >= end => RequestState::BehindGap,
            Ok(()) => RequestState::Live,
        };
        let (epoch, sequence) = (header.epoch, header.sequence);
        requests.push(RequestInspection {
            offset,
            bytes,
            is_hidden: member.is_hiding,
            epoch,
            sequence,
            start: header.start,
            end: header.end(),
            state,
        });
        offset += bytes;
    }
    Ok(())
}

/// Checks all that recovery would read, and reports every damage rather than the first. Reads only.
///
/// # Errors
/// Those of identifying the devices, and their read errors.
pub fn verify(devices: &[Arc<dyn Device>]) -> Result<Verification> {
    let mut survey = survey(identify(devices, None)?, None, 0, &mut |_| {})?;
    let requests = survey.merged.order.len() as u64;
    let checkpoint_lsn = survey.members.slot.checkpoint;
    let mut damage: Vec<Damage> = survey.scans.iter_mut().flat_map(|scan| std::mem::take(&mut scan.damage)).collect();
    damage.append(&mut survey.merged.damage);
    let (mut records, mut record_bytes) = (0, 0);
    let mut reader = Reader::new(survey.merged.order, checkpoint_lsn);
    loop {
        match reader.next(&mut survey.scans) {
            Ok(Some(record)) => {
                records += 1;
                record_bytes += record.bytes.len() as u64;
            }
            Ok(None) => break,
            Err(error) => {
                damage.push(error.cause::<Damage>().cloned().ok_or(error)?);
                break;
            }
        }
    }
    Ok(Verification { damage, requests, records, record_bytes, checkpoint_lsn, end_lsn: survey.merged.end })
}
