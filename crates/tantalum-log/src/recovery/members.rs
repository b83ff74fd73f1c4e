//! Identifying the given devices by their superblocks and the newest slot.

use std::sync::Arc;

use tantalum_device::Device;

use super::missing::refuse;
use crate::archive::Archive;
use crate::create::check_devices;
use crate::format::slot::{Slot, SlotMember};
use crate::format::superblock::Superblock;
use crate::format::{BLOCK, DecodeError};
use crate::layout::{Layout, SUPERBLOCKS, slot_offset};
use crate::{Damage, Error, ErrorKind, LogLayout, Lsn, Result, error};

/// A device of the log; or its hiding area, which recovery treats as a device ("FlashLogging", section 3.4).
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) device: Arc<dyn Device>,
    pub(crate) superblock: Superblock,
    /// The main area's, or the hiding area's.
    pub(crate) layout: Layout,
    pub(crate) is_hiding: bool,
    /// Bits of the devices that it stands for: itself, or those of an array.
    pub(crate) covers: u64,
    /// What its two slots hold, if valid, in the order of their offsets; of an array, if all its devices have the same.
    pub(crate) slots: [Option<Slot>; 2],
}

impl Member {
    /// An area of a running log's device, for reading. Nothing else of its superblock than the identities is known, nor its slots.
    pub(crate) fn of_running(
        log_id: u128,
        device_id: u64,
        device: &Arc<dyn Device>,
        layout: Layout,
        is_hiding: bool,
    ) -> Member {
        let superblock = Superblock {
            log_id,
            ordinal: 0,
            device_id,
            layout: LogLayout::default(),
            stripe_devices: 1,
            block_bytes: layout.block_bytes as u32,
            section_bytes: layout.section_bytes as u32,
            section_count: layout.section_count as u32,
            hiding_section_count: 0,
            area_bytes: 0,
        };
        Member { device: Arc::clone(device), superblock, layout, is_hiding, covers: 0, slots: [None, None] }
    }

    /// As the slots list it.
    pub(crate) fn listed(&self) -> SlotMember {
        SlotMember::new(self.superblock.ordinal, self.superblock.device_id)
    }
}

/// The devices of a log that could be read, by ordinal, and what they agree on.
#[derive(Debug)]
pub(crate) struct Members {
    pub(crate) log_id: u128,
    pub(crate) members: Vec<Member>,
    /// The newest slot; it says which devices the log has.
    pub(crate) slot: Slot,
    /// Why a device that was given cannot be one of them.
    pub(super) unreadable: Option<Error>,
}

impl Members {
    /// The layout that all superblocks name.
    pub(crate) fn layout(&self) -> LogLayout {
        self.members.first().map_or_else(LogLayout::default, |member| member.superblock.layout)
    }

    /// Whether its devices make an array.
    pub(super) fn is_array(&self) -> bool {
        matches!(self.layout(), LogLayout::Striped { .. })
    }

    /// Whether the newest slot says that a device holds nothing needed.
    pub(crate) fn is_superfluous(&self, ordinal: u32) -> bool {
        self.slot.not_needed & 1 << ordinal != 0
    }

    /// Drops a device that turned out to be unusable; the error if it is needed.
    pub(crate) fn exclude(&mut self, ordinal: u32, error: Error) -> Result<()> {
        if !self.may_lack(ordinal) {
            return Err(error);
        }
        self.members.retain(|member| member.superblock.ordinal != ordinal);
        Ok(())
    }

    /// Whether nothing is lost without this device, beside those that are not here.
    pub(super) fn may_lack(&self, ordinal: u32) -> bool {
        self.is_superfluous(ordinal) || self.tolerates(self.missing_bits() | 1 << ordinal)
    }

    /// Whether nothing is lost with these devices, by their bits: they are not needed, or the log is mirrored and they are
    /// on one piece of hardware.
    pub(super) fn tolerates(&self, lost: u64) -> bool {
        let needed = lost & !self.slot.not_needed;
        let mut lost = self.slot.members.iter().filter(|member| needed & 1 << member.ordinal != 0);
        match lost.next() {
            None => true,
            Some(first) => self.is_mirrored() && lost.all(|other| other.hardware == first.hardware),
        }
    }

    /// Whether everything behind the checkpoint is on two pieces of hardware.
    pub(super) fn is_mirrored(&self) -> bool {
        self.slot.mirrored_from.is_some_and(|from| from <= self.slot.checkpoint)
    }

    /// All that is to be scanned: the devices' main areas, then their hiding areas.
    pub(crate) fn areas(&self) -> Vec<Member> {
        let hiding = |member: &Member| {
            let layout = Layout::of_hiding(&member.superblock)?;
            Some(Member { layout, is_hiding: true, ..member.clone() })
        };
        self.members.iter().cloned().chain(self.members.iter().filter_map(hiding)).collect()
    }

    /// The bits of devices that are here, and that an earlier session went on without.
    pub(crate) fn lagging_bits(&self) -> u64 {
        let lags = |member: &&Member| check_epoch("", &member.slots, &self.slot).is_err();
        self.members.iter().filter(lags).fold(0, |bits, member| bits | member.covers) & self.slot.not_needed
    }

    /// The bits of the devices that are not here.
    pub(crate) fn missing_bits(&self) -> u64 {
        let all = self.slot.members.iter().fold(0, |bits, member| bits | 1 << member.ordinal);
        self.members.iter().fold(all, |bits, member| bits & !member.covers)
    }
}

/// Reads the identities of the devices, given in any order, and finds the newest slot. Every device that may hold
/// something needed must be there, but for one piece of hardware of a mirrored log; and none that the log does not have.
pub(crate) fn identify(devices: &[Arc<dyn Device>], archive: Option<&Archive>) -> Result<Members> {
    let members = identify_present(devices, archive)?;
    let missing = members.missing_bits() & !members.slot.not_needed;
    if members.tolerates(missing) { assemble(members) } else { Err(refuse(members, missing, archive)) }
}

/// As [`identify`], whatever is missing.
pub(super) fn identify_present(devices: &[Arc<dyn Device>], archive: Option<&Archive>) -> Result<Members> {
    check_devices(devices)?;
    let mut members: Vec<Member> = Vec::new();
    let mut unreadable = None;
    for device in devices {
        let member = match read_member(device) {
            Ok(member) => member,
            Err(error)
                if matches!(error.kind(), ErrorKind::NotAMember | ErrorKind::Unsupported | ErrorKind::Mismatch) =>
            {
                return Err(error);
            }
            // Unreadable. Decided below: the device may be one that is not needed, or whose formatting was interrupted.
            Err(error) => {
                unreadable.get_or_insert(error);
                continue;
            }
        };
        check_belongs(&member, &members)?;
        members.push(member);
    }
    members.sort_by_key(|member| member.superblock.ordinal);
    let Some(first) = members.first() else { return Err(unreadable.unwrap_or_else(error::no_devices)) };
    let log_id = first.superblock.log_id;
    if let Some(archive) = archive.filter(|archive| archive.log_id() != log_id) {
        return Err(archive.foreign(log_id));
    }
    let archived = archive.iter().flat_map(|archive| archive.slots.iter().flatten());
    let Some(slot) = Slot::newest_of(slots(&members).chain(archived)).cloned() else {
        return Err(Damage {
            device: first.device.name().into(),
            offset: slot_offset(0),
            lsn: Some(Lsn::ZERO),
            what: "no device has a valid checkpoint slot".into(),
        }
        .into());
    };
    leave_out_left(&mut members, &slot);
    members.iter().try_for_each(|member| check_listed(member, &slot))?;
    members.iter().try_for_each(|member| check_present(member, &slot))?;
    if let Some(archive) = archive.filter(|_| slot.archive_run.is_some()) {
        check_epoch(archive.store.name(), &archive.slots, &slot)?;
    }
    Ok(Members { log_id, members, slot, unreadable })
}

/// The slots on the devices.
pub(super) fn slots(members: &[Member]) -> impl Iterator<Item = &Slot> {
    members.iter().flat_map(|member| member.slots.iter().flatten())
}

/// Leaves out the devices that left the log in the newest slot, where only the archive has that: a crash came before the devices had it too,
/// so nothing else tells that they were given as the log's.
fn leave_out_left(members: &mut Vec<Member>, newest: &Slot) {
    let Some(on_devices) = Slot::newest_of(slots(members)).cloned() else { return };
    let lists = |slot: &Slot, member: &Member| {
        slot.members.iter().any(|listed| listed.device_id == member.superblock.device_id)
    };
    // Without the devices that the log has instead, the error is to say what is missing.
    if members.iter().any(|member| lists(newest, member)) {
        members.retain(|member| lists(newest, member) || !lists(&on_devices, member));
    }
}

/// Refuses a device that the newest slot does not list: what stands on it is old, or nothing.
fn check_listed(member: &Member, slot: &Slot) -> Result<()> {
    let own = &member.superblock;
    let device = member.device.name();
    match slot.members.iter().find(|listed| listed.device_id == own.device_id) {
        None => Err(Error::new(
            ErrorKind::NotAMember,
            format!(
                "{device}: is no device of log {:032x} (any more): the log does not list device identity {:016x} (superblock at offset 0); leave the device out, or add it to the running log, which formats it",
                own.log_id, own.device_id
            ),
        )
        .with_subject(device)),
        Some(&SlotMember { ordinal, .. }) if ordinal != own.ordinal => {
            let what = format!("it says that the device is number {}, but the log knows it as {ordinal}", own.ordinal);
            Err(error::damaged_superblock(device, SUPERBLOCKS[1], what))
        }
        Some(_) => Ok(()),
    }
}

/// Refuses a device that was left behind by a session of which everything needed bears the number: it is an old copy.
fn check_present(member: &Member, slot: &Slot) -> Result<()> {
    match slot.not_needed & 1 << member.superblock.ordinal {
        0 => check_epoch(member.device.name(), &member.slots, slot),
        // The log went on without it.
        _ => Ok(()),
    }
}

fn check_epoch(name: &str, own: &[Option<Slot>; 2], newest: &Slot) -> Result<()> {
    let own = Slot::newest_of(own.iter().flatten()).map(|slot| slot.newest().epoch);
    match (own, newest.stamped) {
        (Some(found), Some(expected)) if found < expected => Err(Error::new(
            ErrorKind::Stale,
            format!(
                "{name}: is a copy from session {found} of the log, which had reached session {expected} everywhere; put the present one in its place, or restore a backup"
            ),
        )
        .with_subject(name)),
        // Damaged slots say nothing.
        _ => Ok(()),
    }
}

pub(super) fn read_member(device: &Arc<dyn Device>) -> Result<Member> {
    let superblock = read_superblock(device.as_ref())?;
    let bytes = device.capacity_bytes();
    if bytes < superblock.area_bytes {
        return Err(error::too_short(device.name(), bytes, superblock.area_bytes));
    }
    let (found, expected) = (device.capabilities().logical_block, superblock.block_bytes);
    if found > expected {
        return Err(error::unsupported_block(device.name(), found, expected));
    }
    let mut block = vec![0; BLOCK];
    let mut slots = [None, None];
    for (parity, slot) in slots.iter_mut().enumerate() {
        device.read(slot_offset(parity as u64), &mut block)?;
        *slot = Slot::decode(&block).ok().filter(|slot| slot.log_id == superblock.log_id);
    }
    let (layout, covers) = (Layout::of(&superblock), 1 << superblock.ordinal);
    Ok(Member { device: Arc::clone(device), superblock, layout, is_hiding: false, covers, slots })
}

/// Reads the superblock, or its copy if the first is damaged.
pub(crate) fn read_superblock(device: &dyn Device) -> Result<Superblock> {
    let name = device.name();
    if device.capacity_bytes() < SUPERBLOCKS[1] + BLOCK as u64 {
        return Err(error::not_a_log(name));
    }
    let mut block = vec![0; BLOCK];
    let mut failures = Vec::new();
    for offset in SUPERBLOCKS {
        device.read(offset, &mut block)?;
        match Superblock::decode(&block) {
            Ok(superblock) => return Ok(superblock),
            Err(error) => failures.push((offset, error)),
        }
    }
    for &(offset, error) in &failures {
        if let Some(error) = error::of_version(error, name, offset) {
            return Err(error);
        }
    }
    match failures.iter().find(|(_, error)| *error != DecodeError::Magic) {
        None => Err(error::not_a_log(name)),
        Some((_, error)) => Err(error::damaged_superblock(name, SUPERBLOCKS[1], error)),
    }
}

fn check_belongs(member: &Member, others: &[Member]) -> Result<()> {
    let device = member.device.name();
    let own = &member.superblock;
    if let Some(first) = others.first() {
        let expected = first.superblock.log_id;
        if own.log_id != expected {
            return Err(error::foreign_device(device, own.log_id, expected));
        }
        if own.layout != first.superblock.layout {
            let what = format!("its layout is {}, that of others {}", own.layout, first.superblock.layout);
            return Err(error::damaged_superblock(device, SUPERBLOCKS[1], what));
        }
    }
    match others.iter().find(|other| other.superblock.device_id == own.device_id) {
        None => Ok(()),
        Some(other) => Err(error::duplicate_device(own.ordinal, other.device.name(), device)),
    }
}

/// Replaces the devices of a striped log, all of which are there, by their array.
fn assemble(mut members: Members) -> Result<Members> {
    let Some(first) = members.members.first() else { return Ok(members) };
    if first.layout.depth == 1 {
        return Ok(members);
    }
    if let Some(other) = members.members.iter().find(|other| other.layout.depth != members.members.len()) {
        let (found, expected) = (members.members.len(), other.layout.depth);
        let what = format!("it is one of {expected} devices of an array, but the log has {found}");
        return Err(error::damaged_superblock(other.device.name(), SUPERBLOCKS[1], what));
    }
    let devices: Vec<_> = members.members.iter().map(|member| Arc::clone(&member.device)).collect();
    let device = first.superblock.layout.array(&devices)?.remove(0);
    let common = |place: usize| {
        let slot = members.members[0].slots[place].as_ref()?;
        members.members.iter().all(|member| member.slots[place].as_ref() == Some(slot)).then(|| slot.clone())
    };
    let covers = members.members.iter().fold(0, |bits, member| bits | member.covers);
    let slots = [common(0), common(1)];
    members.members = vec![Member { device, slots, covers, ..first.clone() }];
    Ok(members)
}

/// What a device is to a log, from [`standings`].
///
/// ```
/// # use std::sync::Arc;
/// # use tantalum_device::{Device, MemoryDevice};
/// # use tantalum_log::{Log, LogOptions, Standing, standings};
/// let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("log", 1 << 20), MemoryDevice::new("new", 1 << 20)];
/// Log::create(7, devices[..1].to_vec(), LogOptions::default())?;
/// let standings = standings(7, &devices);
/// assert!(matches!(standings[0], Standing::Member { ordinal: 0, .. }));
/// assert!(matches!(standings[1], Standing::NoLog));
/// # Ok::<(), tantalum_log::Error>(())
/// ```
#[non_exhaustive]
#[derive(Clone, Debug)]
pub enum Standing {
    /// The log has it.
    Member {
        /// Its place in the log.
        ordinal: u32,
        /// Its identity.
        device_id: u64,
    },
    /// It was formatted for the log, which does not list it: it was removed, or never joined.
    NotListed,
    /// It belongs to another log.
    Foreign {
        /// That log.
        log_id: u128,
    },
    /// No log was ever on it.
    NoLog,
    /// It cannot be read, or not understood.
    Unknown {
        /// Why.
        error: Error,
    },
}

/// What each of `devices` is to the log `log_id`, by the newest slot that is on any of them. Reads only.
///
/// With too few of the log's devices this may be an old state of affairs; [`Log::open`](crate::Log::open) tells.
pub fn standings(log_id: u128, devices: &[Arc<dyn Device>]) -> Vec<Standing> {
    let found: Vec<_> = devices.iter().map(read_member).collect();
    let own = |member: &&Member| member.superblock.log_id == log_id;
    let members: Vec<Member> = found.iter().flatten().filter(own).cloned().collect();
    let listed = Slot::newest_of(slots(&members)).map_or(&[][..], |slot| &slot.members);
    let standing = |found: Result<Member>| match found {
        Ok(Member { superblock, .. }) if superblock.log_id != log_id => Standing::Foreign { log_id: superblock.log_id },
        Ok(Member { superblock, .. }) => match listed.iter().find(|listed| listed.device_id == superblock.device_id) {
            Some(listed) => Standing::Member { ordinal: listed.ordinal, device_id: listed.device_id },
            None => Standing::NotListed,
        },
        Err(error) if error.kind() == ErrorKind::NotAMember => Standing::NoLog,
        Err(error) => Standing::Unknown { error },
    };
    found.into_iter().map(standing).collect()
}
