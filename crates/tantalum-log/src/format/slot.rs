//! The checkpoint slot: what recovery must know before it looks at any request.
//!
//! Each device has two, written in turn, so that a torn write leaves the one before. The valid slot with the largest
//! sequence number over all devices counts.

use super::{BLOCK, DecodeError, Decoder, Encoder, MAX_DEVICES, VERSION, check, check_numbers};
use crate::Lsn;

const MAGIC: u64 = u64::from_le_bytes(*b"TNTLSLOT");

/// The most epochs that a slot remembers.
pub const MAX_EPOCHS: usize = 100;

const CLEAN: u32 = 1;
const NEEDS_ARCHIVE: u32 = 2;
const MIRRORED: u32 = 4;
const ARCHIVED: u32 = 8;
const STAMPED: u32 = 16;

/// A checkpoint, the epochs that matter behind it, and the devices of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slot {
    /// The log's identity.
    pub log_id: u128,
    /// Grows with every slot that is written.
    pub sequence: u64,
    /// Recovery starts here.
    pub checkpoint: Lsn,
    /// Where epochs started, oldest first: all above the checkpoint, and the newest at or below it. Never empty.
    pub epochs: Vec<EpochStart>,
    /// The end of the log, if it was closed.
    pub clean_end: Option<Lsn>,
    /// Bit `n` is set if device `n` was set aside and holds nothing that is needed.
    pub not_needed: u64,
    /// Where the archive's present run starts, of which nothing need be written yet; `None` without an archive that goes on.
    pub archive_run: Option<Lsn>,
    /// Records behind the checkpoint may be in the archive only, so that the log cannot be opened without it. Then the run's
    /// start is known.
    pub needs_archive: bool,
    /// Everything durable from here on is on two pieces of hardware; `None` if that is not promised of anything.
    pub mirrored_from: Option<Lsn>,
    /// Every device that holds something needed, the archive if its run goes on, and all that the log's owner stamps bear this
    /// epoch or a newer one: one that bears an older is an old copy. `None` if that is not known of any epoch.
    pub stamped: Option<u64>,
    /// The devices of the log, by ordinal. Never empty. A device that is not among them is none of the log, whatever
    /// stands on it.
    pub members: Vec<SlotMember>,
}

/// A device of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotMember {
    /// Its place in the log.
    pub ordinal: u32,
    /// Its identity, as in its superblock.
    pub device_id: u64,
    /// The hardware that it was on last: the identity of the first member there.
    pub hardware: u64,
}

impl SlotMember {
    /// A device of which it is not known that it shares hardware with others.
    pub fn new(ordinal: u32, device_id: u64) -> SlotMember {
        SlotMember { ordinal, device_id, hardware: device_id }
    }
}

/// A session of the log: every open starts one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EpochStart {
    /// The session's number.
    pub epoch: u64,
    /// Where the log ended when the session began.
    pub start: Lsn,
}

impl Slot {
    /// The newest epoch.
    pub fn newest(&self) -> EpochStart {
        *self.epochs.last().expect("a slot always holds an epoch: decoding and every constructor check it")
    }

    /// The newest of a log's slots. A slot of a newer epoch replaces those that an interrupted change, or devices that are
    /// lost, left behind.
    pub fn newest_of<'a>(slots: impl Iterator<Item = &'a Slot>) -> Option<&'a Slot> {
        slots.max_by_key(|slot| (slot.newest().epoch, slot.sequence))
    }

    /// The block that holds the slot.
    ///
    /// # Panics
    /// If there is no epoch or more than [`MAX_EPOCHS`], or no member or more than [`MAX_DEVICES`].
    pub fn encode(&self) -> [u8; BLOCK] {
        assert!((1..=MAX_EPOCHS).contains(&self.epochs.len()), "a slot holds 1 to {MAX_EPOCHS} epochs");
        assert!((1..=MAX_DEVICES).contains(&self.members.len()), "a slot holds 1 to {MAX_DEVICES} members");
        let mut block = [0; BLOCK];
        let mut encoder = Encoder::new(&mut block);
        encoder.u64(MAGIC);
        encoder.u16(VERSION);
        encoder.u16(self.epochs.len() as u16);
        encoder.u128(self.log_id);
        encoder.u64(self.sequence);
        encoder.u64(self.checkpoint.get());
        let flag = |is_set: bool, flag: u32| u32::from(is_set) * flag;
        encoder.u32(
            flag(self.clean_end.is_some(), CLEAN)
                | flag(self.needs_archive, NEEDS_ARCHIVE)
                | flag(self.mirrored_from.is_some(), MIRRORED)
                | flag(self.archive_run.is_some(), ARCHIVED)
                | flag(self.stamped.is_some(), STAMPED),
        );
        encoder.u64(self.clean_end.unwrap_or_default().get());
        encoder.u64(self.not_needed);
        encoder.u64(self.archive_run.unwrap_or_default().get());
        encoder.u64(self.mirrored_from.unwrap_or_default().get());
        encoder.u32(self.members.len() as u32);
        for member in &self.members {
            encoder.u32(member.ordinal);
            encoder.u64(member.device_id);
            encoder.u64(member.hardware);
        }
        for epoch in &self.epochs {
            encoder.u64(epoch.epoch);
            encoder.u64(epoch.start.get());
        }
        self.stamped.into_iter().for_each(|epoch| encoder.u64(epoch));
        encoder.checksum();
        block
    }

    /// Reads and checks a slot.
    pub fn decode(bytes: &[u8]) -> Result<Slot, DecodeError> {
        let mut decoder = Decoder::new(bytes);
        decoder.preamble(MAGIC)?;
        let count = decoder.u16()?;
        check((1..=MAX_EPOCHS as u16).contains(&count), "epoch count", count.into())?;
        let log_id = decoder.u128()?;
        let (sequence, checkpoint) = (decoder.u64()?, Lsn::new(decoder.u64()?));
        let (flags, clean_end, not_needed) = (decoder.u32()?, Lsn::new(decoder.u64()?), decoder.u64()?);
        let (archive_run, mirrored_from) = (Lsn::new(decoder.u64()?), Lsn::new(decoder.u64()?));
        let member_count = decoder.u32()?;
        check((1..=MAX_DEVICES as u32).contains(&member_count), "member count", member_count.into())?;
        let mut members = Vec::with_capacity(member_count as usize);
        for _ in 0..member_count {
            let (ordinal, device_id, hardware) = (decoder.u32()?, decoder.u64()?, decoder.u64()?);
            members.push(SlotMember { ordinal, device_id, hardware });
        }
        let mut epochs = Vec::with_capacity(count.into());
        for _ in 0..count {
            epochs.push(EpochStart { epoch: decoder.u64()?, start: Lsn::new(decoder.u64()?) });
        }
        let stamped = if flags & STAMPED != 0 { Some(decoder.u64()?) } else { None };
        decoder.checksum()?;
        check(flags & !(CLEAN | NEEDS_ARCHIVE | MIRRORED | ARCHIVED | STAMPED) == 0, "flags", flags.into())?;
        check(flags & NEEDS_ARCHIVE == 0 || flags & ARCHIVED != 0, "archive needed, and without a run", flags.into())?;
        check_numbers([sequence, checkpoint.get(), clean_end.get(), archive_run.get(), mirrored_from.get()])?;
        check_numbers(epochs.iter().flat_map(|epoch| [epoch.epoch, epoch.start.get()]))?;
        let ascending = epochs.is_sorted_by(|a, b| a.epoch < b.epoch && a.start < b.start);
        check(ascending, "epoch order", 0)?;
        let newest = epochs.last().map_or(0, |newest| newest.epoch);
        check(stamped.is_none_or(|epoch| epoch <= newest), "stamped epoch", stamped.unwrap_or_default())?;
        let clean_end = (flags & CLEAN != 0).then_some(clean_end);
        check(clean_end.is_none_or(|end| end >= checkpoint), "clean end", clean_end.unwrap_or_default().get())?;
        let archive_run = (flags & ARCHIVED != 0).then_some(archive_run);
        let needs_archive = flags & NEEDS_ARCHIVE != 0;
        let mirrored_from = (flags & MIRRORED != 0).then_some(mirrored_from);
        check_members(&members)?;
        let listed = members.iter().fold(0, |bits, member| bits | 1 << member.ordinal);
        check(not_needed & !listed == 0, "devices not needed", not_needed)?;
        Ok(Slot {
            log_id,
            sequence,
            checkpoint,
            epochs,
            clean_end,
            not_needed,
            archive_run,
            needs_archive,
            mirrored_from,
            stamped,
            members,
        })
    }
}

/// Members stand in the order of their ordinals, and no two are the same device.
fn check_members(members: &[SlotMember]) -> Result<(), DecodeError> {
    check(members.is_sorted_by(|a, b| a.ordinal < b.ordinal), "member order", 0)?;
    for (at, member) in members.iter().enumerate() {
        check((member.ordinal as usize) < MAX_DEVICES, "member ordinal", member.ordinal.into())?;
        let is_first = members[..at].iter().all(|other| other.device_id != member.device_id);
        check(member.device_id != 0 && is_first, "member identity", member.device_id)?;
    }
    Ok(())
}
