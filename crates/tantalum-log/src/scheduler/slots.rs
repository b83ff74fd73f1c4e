//! Slots: making a checkpoint durable, and freeing what it releases.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{AlignedBuffer, Device, Durability, Hardware, PendingWrite};

use super::archiver::ArchiveProgress;
use super::mirror::Mirror;
use super::{Scheduler, State};
use crate::create::group_by_hardware;
use crate::format::BLOCK;
use crate::format::slot::{EpochStart, MAX_EPOCHS, Slot, SlotMember};
use crate::layout::slot_offset;
use crate::log_device::{Duty, LogDevice};
use crate::{Error, ErrorKind, Lsn, Result, error};

/// Epochs that a slot remembers at or below the checkpoint.
const KEPT_EPOCHS: usize = MAX_EPOCHS / 2;

/// The newest slot, and whether there may be another.
#[derive(Debug)]
pub(crate) struct SlotWriter {
    slot: Slot,
    closed: bool,
}

impl SlotWriter {
    /// Continues after `slot`.
    pub(crate) fn new(slot: Slot) -> SlotWriter {
        SlotWriter { slot, closed: false }
    }

    pub(crate) fn checkpoint(&self) -> Lsn {
        self.slot.checkpoint
    }

    pub(crate) fn mirrored_from(&self) -> Option<Lsn> {
        self.slot.mirrored_from
    }

    /// Lets the next slot say from where on everything is on two pieces of hardware, and on which the members are.
    pub(crate) fn set_mirrored(&mut self, from: Option<Lsn>, hardware_of: impl Fn(&SlotMember) -> Option<Hardware>) {
        self.slot.mirrored_from = from;
        group_by_hardware(&mut self.slot.members, hardware_of);
    }

    pub(crate) fn members(&self) -> Vec<SlotMember> {
        self.slot.members.clone()
    }

    pub(super) fn epochs(&self) -> &[EpochStart] {
        &self.slot.epochs
    }

    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Starts an epoch at `start`, the end of what was recovered: older requests that reach beyond are void from now on.
    pub(crate) fn begin_epoch(&mut self, start: Lsn, not_needed: u64) -> u64 {
        let epochs = &mut self.slot.epochs;
        let epoch = epochs.last().map_or(0, |newest| newest.epoch) + 1;
        // An epoch that wrote nothing that was kept voids nothing that the new one does not.
        while epochs.last().is_some_and(|newest| newest.start >= start) {
            epochs.pop();
        }
        epochs.push(EpochStart { epoch, start });
        // Far more opens than checkpoints: the oldest goes. At any position that was ever recovered the true request
        // has a higher epoch than what it voided, and wins for that reason too.
        if epochs.len() > MAX_EPOCHS {
            epochs.remove(0);
        }
        self.slot.clean_end = None;
        self.slot.not_needed = not_needed;
        epoch
    }

    /// Lets the next slot say which devices are not needed.
    pub(crate) fn set_not_needed(&mut self, not_needed: u64) {
        self.slot.not_needed = not_needed;
    }

    /// Lets the next slot say that everything which is needed bears the present epoch.
    pub(crate) fn set_stamped(&mut self) {
        self.slot.stamped = Some(self.slot.newest().epoch);
    }

    /// Lets the next slot say where the archive's run starts, and whether the log cannot be opened without it.
    pub(crate) fn set_archive(&mut self, run_start: Option<Lsn>, is_needed: bool) {
        (self.slot.archive_run, self.slot.needs_archive) = (run_start, is_needed);
    }

    /// Keeps of the epochs that started at or below the checkpoint, of which recovery needs one, those that tell a reader of older
    /// records which of them count.
    fn prune_epochs(&mut self) {
        let checkpoint = self.slot.checkpoint;
        let below = self.slot.epochs.partition_point(|epoch| epoch.start <= checkpoint);
        self.slot.epochs.drain(..below.saturating_sub(KEPT_EPOCHS));
    }

    /// Takes over which devices the log has, which of them are not needed, and whether the archive is.
    pub(super) fn describe(&mut self, state: &State) {
        let (checkpoint, is_closed) = (self.slot.checkpoint, self.closed);
        self.slot.not_needed = state.membership.not_needed(&state.placement, checkpoint);
        // An archive that follows two copies never has what they have not.
        let completes = !is_closed && state.placement.mirror.is_none();
        let archive = state.archive.as_ref();
        let is_needed = archive.is_some_and(|archive| archive.is_needed(checkpoint, completes));
        let goes_on = archive.filter(|archive| is_needed || archive.is_healthy());
        self.set_archive(goes_on.map(ArchiveProgress::run_start), is_needed);
        self.slot.mirrored_from = state.placement.mirror.as_ref().and_then(Mirror::from);
        if !state.placement.is_array() {
            self.slot.members.clone_from(&state.membership.listed);
            let hardware = |member: &SlotMember| state.placement.device(member.device_id).map(|device| device.hardware);
            group_by_hardware(&mut self.slot.members, hardware);
        }
    }

    /// The next slot's bytes and its place on every device.
    pub(crate) fn advance(&mut self) -> (u64, Arc<AlignedBuffer>) {
        self.slot.sequence += 1;
        self.current()
    }

    /// The present slot's bytes and its place on every device.
    pub(crate) fn current(&self) -> (u64, Arc<AlignedBuffer>) {
        (slot_offset(self.slot.sequence), Arc::new(AlignedBuffer::copy_from(&self.slot.encode())))
    }
}

/// How the write of a slot to a device ended.
pub(crate) struct SlotOutcome {
    pub(crate) result: Result<()>,
    /// The write, if it hung.
    pub(crate) given_up: Option<Box<dyn PendingWrite>>,
}

/// Writes one slot to all `devices` at once. Returns each device's outcome.
pub(crate) fn write_slots(
    devices: &[Arc<dyn Device>],
    (offset, block): (u64, Arc<AlignedBuffer>),
    timeout: Duration,
) -> Vec<SlotOutcome> {
    let submit = |device: &Arc<dyn Device>| device.submit(offset, Arc::clone(&block), 0..BLOCK, Durability::Durable);
    let pending: Vec<_> = devices.iter().map(submit).collect();
    let wait = |(device, pending): (&Arc<dyn Device>, tantalum_device::Result<Box<dyn PendingWrite>>)| match pending {
        Err(error) => SlotOutcome { result: Err(error), given_up: None },
        Ok(mut pending) => match pending.wait(Some(timeout)) {
            Some(result) => SlotOutcome { result, given_up: None },
            None => {
                let hung = error::device_hung(device.name(), offset, BLOCK as u64, timeout);
                SlotOutcome { result: Err(hung), given_up: Some(pending) }
            }
        },
    };
    devices.iter().zip(pending).map(wait).collect()
}

impl Scheduler {
    /// Makes `lsn` the checkpoint; see [`Log::set_checkpoint`](crate::Log::set_checkpoint).
    pub(crate) fn set_checkpoint(&self, lsn: Lsn) -> Result<()> {
        let durable = self.durable();
        if lsn > durable {
            self.lock().check_failure()?;
            return Err(Error::new(
                ErrorKind::InvalidInput,
                format!(
                    "checkpoint {lsn} lies beyond the durable end of the log at {durable}; flush the log up to it first"
                ),
            ));
        }
        // The archive alone could carry the log from the checkpoint on.
        self.wait_archived(lsn)?;
        let mut slots = self.slots.lock();
        if slots.closed {
            return Err(error::closed());
        }
        slots.slot.checkpoint = slots.slot.checkpoint.max(lsn);
        slots.prune_epochs();
        self.write_slot(&mut slots)?;
        let checkpoint = slots.slot.checkpoint;
        let mut state = self.lock();
        state.checkpoint = checkpoint;
        state.outliers.areas_are_full = false;
        let recorded = slots.slot.not_needed;
        let archive_is_needed = slots.slot.needs_archive && state.archive_control().is_none();
        let mut aside = state.placement.devices.iter().filter(|device| device.is_present() && !device.is_healthy());
        state.membership.aside_is_needed = archive_is_needed || aside.any(|device| recorded & 1 << device.ordinal == 0);
        for device in &mut state.placement.devices {
            device.release(checkpoint);
        }
        self.rebalance(&mut state, 0);
        self.wake_writers(&mut state);
        self.wake_archive();
        Ok(())
    }

    /// Writes the next slot to every healthy device, and to the archive. A device that fails is set aside; one must succeed.
    pub(super) fn write_slot(&self, slots: &mut SlotWriter) -> Result<()> {
        let state = self.lock();
        state.check_failure()?;
        let gets_it = |device: &LogDevice| device.is_healthy() && device.duty != Duty::Left;
        let healthy: Vec<usize> =
            (0..state.placement.devices.len()).filter(|&at| gets_it(&state.placement.devices[at])).collect();
        slots.describe(&state);
        let archive = state.archive_control();
        drop(state);
        let mut results = self.write_slot_on(slots.advance(), &healthy, archive.as_ref());
        let mut state = self.lock();
        if let Some(Err(error)) = archive.and_then(|_| results.pop()) {
            self.set_archive_aside(&mut state, error);
        }
        for (index, result) in healthy.into_iter().zip(results) {
            if let Err(error) = result {
                self.set_aside(&mut state, index, error);
            }
        }
        self.wake_writers(&mut state);
        // Every failure set its device aside; if no device was left, the log is poisoned now.
        state.check_failure()
    }

    /// Writes a slot with what the state says now.
    pub(super) fn refresh_slot(&self) -> Result<()> {
        let mut slots = self.slots.lock();
        if slots.closed { Err(error::closed()) } else { self.write_slot(&mut slots) }
    }

    /// Writes a slot to the log devices at these indexes, and to the device `beside` them. Returns each one's
    /// outcome.
    pub(super) fn write_slot_on(
        &self,
        slot: (u64, Arc<AlignedBuffer>),
        indexes: &[usize],
        beside: Option<&Arc<dyn Device>>,
    ) -> Vec<Result<()>> {
        let state = self.lock();
        let targets =
            indexes.iter().map(|&at| state.placement.devices[at].device()).chain(beside).cloned().collect::<Vec<_>>();
        drop(state);
        let outcomes = write_slots(&targets, slot, self.options.hang_timeout);
        let mut state = self.lock();
        let note = |(at, outcome): (usize, SlotOutcome)| {
            if let (Some(&at), Some(write)) = (indexes.get(at), outcome.given_up) {
                state.placement.devices[at].give_up(write);
            }
            outcome.result
        };
        outcomes.into_iter().enumerate().map(note).collect()
    }

    /// Records in both slots that the log ended cleanly at its durable end. Nothing may be written afterwards.
    pub(crate) fn mark_clean(&self) -> Result<()> {
        let mut slots = self.slots.lock();
        slots.slot.clean_end = Some(self.durable());
        slots.closed = true;
        self.write_slot(&mut slots)?;
        self.write_slot(&mut slots)
    }
}
