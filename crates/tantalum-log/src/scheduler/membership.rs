//! Membership: the devices that belong to the log, and how they join and leave it while it runs.
//!
//! The slots list the log's devices; the newest slot decides. Whatever the moment of a crash, the log can be opened with
//! the devices that it had before the change or with those after it:
//!
//! - A device that *joins* is formatted first, which takes from it every record and slot that it may hold, and gives it an
//!   identity that nothing listed before. Then a slot that lists it goes to itself, then to all devices, and only
//!   then does it take requests. So a log opened without it has lost nothing.
//! - A device that *leaves* takes no more requests, and waits for a checkpoint at or above everything that it was ever
//!   given. Then a slot that does not list it goes to the others. So whether or not it is listed after a crash, nothing
//!   that it holds is needed; and what it holds is refused later, because its identity is not listed.
//!
//! Both slots of each device are written, so that a damaged one cannot undo the change.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tantalum_device::Device;
use tantalum_rt::MutexGuard;

use super::mirror::reserve;
use super::placement::Placement;
use super::{Scheduler, SlotWriter, State};
use crate::area::Resume;
use crate::create::{Division, check_devices, format, hides, new_ids};
use crate::format::MAX_DEVICES;
use crate::format::slot::SlotMember;
use crate::format::superblock::Superblock;
use crate::layout::Layout;
use crate::log_device::{Duty, LogDevice};
use crate::recovery::members::read_superblock;
use crate::stats::{HidingStats, LogDeviceStats, micros};
use crate::{Error, ErrorKind, LogLayout, Lsn, Result, error};

/// Which devices belong to the log, those that are not here included. Guarded by the state's lock.
pub(super) struct Membership {
    /// As the slots list them, by ordinal; of an array, itself.
    pub(super) listed: Vec<SlotMember>,
    /// A device was set aside and no checkpoint has made it superfluous yet.
    pub(super) aside_is_needed: bool,
    /// Why the owner's last checkpoint failed, if a change of the devices waits for one and has not been told yet.
    pub(super) failed_checkpoint: Option<Arc<dyn std::error::Error + Send + Sync>>,
    /// Smaller devices join when a checkpoint covers everything before this position.
    pub(super) awaited_checkpoint: Option<Lsn>,
    /// The hiding counters of the devices that have left.
    pub(super) hidden_by_departed: HidingStats,
}

impl Membership {
    pub(super) fn new(listed: Vec<SlotMember>, aside_is_needed: bool) -> Membership {
        let hidden_by_departed = HidingStats::default();
        Membership { listed, aside_is_needed, failed_checkpoint: None, awaited_checkpoint: None, hidden_by_departed }
    }

    fn member(&self, ordinal: u32) -> Result<SlotMember> {
        let found = self.listed.iter().find(|member| member.ordinal == ordinal);
        found.copied().ok_or_else(|| error::no_such_device(ordinal))
    }

    /// Bits of the devices that hold nothing needed once `checkpoint` is durable: set aside, and wholly below it or held by
    /// others.
    pub(super) fn not_needed(&self, placement: &Placement, checkpoint: Lsn) -> u64 {
        let others_have_all = placement.others_have_all(checkpoint);
        let is_not_needed = |member: &&SlotMember| match placement.device(member.device_id) {
            None => true,
            Some(device) => !device.is_healthy() && (device.max_end() <= checkpoint || others_have_all),
        };
        self.listed.iter().filter(is_not_needed).fold(0, |bits, member| bits | 1 << member.ordinal)
    }

    /// The counters of each device, by ordinal.
    pub(super) fn stats(&self, placement: &mut Placement) -> Vec<LogDeviceStats> {
        let describe = |&SlotMember { ordinal, device_id, .. }: &SlotMember| match placement.device_mut(device_id) {
            None => LogDeviceStats {
                ordinal,
                device_id,
                set_aside: Some(error::absent(ordinal)),
                ..LogDeviceStats::default()
            },
            Some(device) => LogDeviceStats {
                name: device.device().name().into(),
                ordinal,
                device_id,
                set_aside: device.set_aside.clone(),
                is_changing: device.is_healthy() && device.duty != Duty::Serving,
                writes: device.writes,
                bytes: device.bytes,
                busy_us: micros(device.busy),
                still_writing: device.still_writing(),
                hiding: device.hidden,
            },
        };
        self.listed.iter().map(describe).collect()
    }
}

/// A device that is to join.
pub(super) struct Newcomer {
    device: Arc<dyn Device>,
    pub(super) superblock: Superblock,
}

impl Newcomer {
    fn member(&self) -> SlotMember {
        SlotMember::new(self.superblock.ordinal, self.superblock.device_id)
    }
}

impl Scheduler {
    /// Makes `devices` part of the log; see [`Log::add_devices`](crate::Log::add_devices).
    pub(crate) fn add_devices(&self, devices: &[Arc<dyn Device>]) -> Result<Vec<u32>> {
        let _change = self.begin_change()?;
        self.check_newcomers(devices, &[], None)?;
        self.join(self.enlist(devices, None)?)
    }

    /// Takes devices out of the log; see [`Log::remove_devices`](crate::Log::remove_devices).
    pub(crate) fn remove_devices(&self, ordinals: &[u32]) -> Result<()> {
        let _change = self.begin_change()?;
        self.leave(ordinals)
    }

    /// Puts devices in the place of others; see [`Log::replace_devices`](crate::Log::replace_devices).
    pub(crate) fn replace_devices(&self, old: &[u32], new: &[Arc<dyn Device>]) -> Result<Vec<u32>> {
        let _change = self.begin_change()?;
        self.check_listed(old)?;
        if self.check_newcomers(new, old, None)? {
            // The same devices, formatted anew: they must have left before.
            self.leave(old)?;
            self.check_newcomers(new, &[], None)?; // what was under way when they left may have hung
            return self.join(self.enlist(new, None)?);
        }
        let ordinals = self.join(self.enlist(new, None)?)?;
        self.leave(old)?;
        Ok(ordinals)
    }

    /// As many requests as the devices that are here may have under way.
    pub(crate) fn worker_count(&self) -> usize {
        self.lock()
            .placement
            .devices
            .iter()
            .filter(|device| device.is_present())
            .map(|device| device.main.layout.depth)
            .sum()
    }

    pub(super) fn can_give_up(&self) -> bool {
        self.can_give_up.load(Ordering::Relaxed)
    }

    pub(super) fn is_striped(&self) -> bool {
        matches!(self.layout, LogLayout::Striped { .. })
    }

    pub(super) fn begin_change(&self) -> Result<MutexGuard<'_, ()>> {
        if self.layout != LogLayout::FlashLogging {
            return Err(error::fixed_devices(self.layout));
        }
        self.change.try_lock().ok_or_else(error::change_under_way)
    }

    /// Refuses devices that the log does not have.
    pub(super) fn check_listed(&self, ordinals: &[u32]) -> Result<()> {
        let state = self.lock();
        ordinals.iter().try_for_each(|&ordinal| state.membership.member(ordinal).map(drop))
    }

    /// Refuses devices that cannot join: unsuited ones, ones of this log but for those to be `replaced`, and ones on
    /// which a write of this session may still land. True if one of the `replaced` is among them. `sections` as for
    /// [`division`](Self::division).
    pub(super) fn check_newcomers(
        &self,
        devices: &[Arc<dyn Device>],
        replaced: &[u32],
        sections: Option<u32>,
    ) -> Result<bool> {
        use ErrorKind::{Corrupt, NotAMember, Unsupported};
        check_devices(devices)?;
        self.lock().check_running()?;
        let mut is_in_place = false;
        let division = self.division(devices, sections)?;
        for device in devices {
            let (found, expected) = (device.capabilities().logical_block, division.block_bytes);
            if found > expected {
                return Err(error::unsupported_block(device.name(), found, expected));
            }
            division.superblock(self.log_id, SlotMember::new(0, 1), &**device)?;
            let superblock = match read_superblock(&**device) {
                Ok(superblock) => superblock,
                // It holds no log, or none that can be read. Any other failure is the device's.
                Err(error) if matches!(error.kind(), NotAMember | Unsupported | Corrupt) => continue,
                Err(error) => return Err(error),
            };
            let mut state = self.lock();
            let former = state.placement.devices.iter_mut().find(|device| device.device_id == superblock.device_id);
            if former.is_some_and(|device| device.still_writing() > 0) {
                return Err(error::still_writing(device.name()));
            }
            let is_listed = |member: &&SlotMember| member.device_id == superblock.device_id;
            match state.membership.listed.iter().find(is_listed).map(|member| member.ordinal) {
                Some(ordinal) if replaced.contains(&ordinal) => is_in_place = true,
                Some(ordinal) => {
                    return Err(Error::new(
                        ErrorKind::AlreadyExists,
                        format!(
                            "{}: is device {ordinal} of this log already; add another one, or replace it by itself to format it anew",
                            device.name()
                        ),
                    ));
                }
                None => {}
            }
        }
        Ok(is_in_place)
    }

    /// Blocks as on the log's other devices. Sections as the newcomers' size suggests, since the others may have begun small,
    /// but no smaller than theirs: the largest request must fit everywhere. Unless a log that shrinks gives their
    /// `sections`.
    fn division(&self, newcomers: &[Arc<dyn Device>], sections: Option<u32>) -> Result<Division> {
        let capacity = newcomers.iter().map(|device| device.capacity_bytes()).min().unwrap_or(0);
        let of_capacity = Layout::section_bytes(self.options.section_bytes, capacity)?;
        let state = self.lock();
        let layouts = || healthy(&state.placement).map(|device| device.main.layout);
        let smallest = layouts().map(|layout| (layout.section_bytes, layout.block_bytes)).min();
        let (least, block_bytes) = smallest.ok_or_else(error::no_devices)?;
        let section_bytes = sections.map_or(least.max(of_capacity.into()), u64::from);
        let present = state.placement.devices.iter().filter(|device| device.is_present()).map(|device| device.hardware);
        let hardware = present.chain(newcomers.iter().map(|device| device.hardware()));
        Ok(Division {
            layout: self.layout,
            stripe_devices: 1,
            block_bytes: block_bytes as u32,
            section_bytes: section_bytes as u32,
            hides: hides(self.layout, self.options.hiding, hardware),
        })
    }

    pub(super) fn join(&self, newcomers: Vec<Newcomer>) -> Result<Vec<u32>> {
        let ordinals = newcomers.iter().map(|newcomer| newcomer.superblock.ordinal).collect();
        self.format(&newcomers)?;
        let mut slots = self.slots.lock();
        if slots.is_closed() {
            return Err(error::closed());
        }
        let places = self.begin_joining(newcomers)?;
        slots.describe(&self.lock());
        let results = self.write_slot_on(slots.advance(), &places, None);
        if let Err(error) = results.into_iter().collect::<Result<()>>() {
            self.retire(&mut self.lock(), &places);
            // A newcomer may hold a slot that lists the others: no slot of the log may be older.
            self.announce(&mut slots)?;
            return Err(error);
        }
        self.announce(&mut slots)?;
        let mut state = self.lock();
        for at in places {
            state.placement.devices[at].duty = Duty::Serving;
        }
        self.rebalance_devices(&mut state);
        Ok(ordinals)
    }

    /// Finds the newcomers' places in the log. They have `sections` of so many bytes, if that is given.
    pub(super) fn enlist(&self, devices: &[Arc<dyn Device>], sections: Option<u32>) -> Result<Vec<Newcomer>> {
        let state = self.lock();
        let count = state.membership.listed.len() + devices.len();
        if count > MAX_DEVICES {
            return Err(error::too_many_devices(count, MAX_DEVICES));
        }
        let is_free = |ordinal: &u32| state.membership.listed.iter().all(|member| member.ordinal != *ordinal);
        let ordinals: Vec<u32> = (0..MAX_DEVICES as u32).filter(is_free).take(devices.len()).collect();
        drop(state);
        let division = self.division(devices, sections)?;
        let newcomer = |((device, ordinal), device_id): ((&Arc<dyn Device>, u32), u64)| {
            let superblock = division.superblock(self.log_id, SlotMember::new(ordinal, device_id), &**device)?;
            Ok(Newcomer { device: Arc::clone(device), superblock })
        };
        devices.iter().zip(ordinals).zip(new_ids(devices.len())).map(newcomer).collect()
    }

    /// Formats the newcomers, and makes sure that they are as many devices as they have names.
    fn format(&self, newcomers: &[Newcomer]) -> Result<()> {
        for newcomer in newcomers {
            format(&*newcomer.device, &newcomer.superblock)?;
        }
        for newcomer in newcomers {
            let found = read_superblock(&*newcomer.device)?.device_id;
            if let Some(other) = newcomers.iter().find(|other| other.superblock.device_id == found)
                && found != newcomer.superblock.device_id
            {
                let (first, second) = (newcomer.device.name(), other.device.name());
                return Err(error::duplicate_device(newcomer.superblock.ordinal, first, second));
            }
        }
        Ok(())
    }

    /// Adds the newcomers to the devices; they take no requests yet. Returns their indexes.
    fn begin_joining(&self, newcomers: Vec<Newcomer>) -> Result<Vec<usize>> {
        let mut state = self.lock();
        state.check_running()?;
        let mut places = Vec::new();
        for newcomer in newcomers {
            let (member, superblock) = (newcomer.member(), newcomer.superblock);
            let mut device = LogDevice::new(newcomer.device, member, Layout::of(&superblock), Resume::default());
            if let Some(hiding) = Layout::of_hiding(&superblock) {
                device = device.with_hiding(hiding, Resume::default());
            }
            device.expect_latencies(&self.options);
            device.duty = Duty::Joining;
            device.main.reserve = reserve(&self.options);
            // A write that was given up must still be known by the device that it may land on.
            let is_vacant = |old: &mut LogDevice| !old.is_present() && !old.is_still_writing();
            match state.placement.devices.iter_mut().position(is_vacant) {
                Some(at) => {
                    state.placement.devices[at] = device;
                    places.push(at);
                }
                None => {
                    state.placement.devices.push(device);
                    places.push(state.placement.devices.len() - 1);
                }
            }
            state.membership.listed.push(member);
        }
        state.membership.listed.sort_by_key(|member| member.ordinal);
        Ok(places)
    }

    /// Makes the list of devices durable on all of them.
    fn announce(&self, slots: &mut SlotWriter) -> Result<()> {
        self.write_slot(slots)?;
        self.write_slot(slots)
    }

    pub(super) fn leave(&self, ordinals: &[u32]) -> Result<()> {
        self.begin_leaving(ordinals)?;
        let left = self.wait_until_superfluous(ordinals).and_then(|()| self.delist(ordinals));
        if left.is_err() {
            let mut state = self.lock();
            state.placement.leaving(ordinals).for_each(|device| device.duty = Duty::Serving);
            self.rebalance_devices(&mut state);
        }
        left
    }

    /// From now on the space on the leaving devices is not counted on, so that appended records fit on the others.
    fn begin_leaving(&self, ordinals: &[u32]) -> Result<()> {
        let mut state = self.lock();
        state.check_running()?;
        for &ordinal in ordinals {
            state.membership.member(ordinal)?;
        }
        state.placement.check_others_serve(ordinals)?;
        for device in &mut state.placement.devices {
            if device.is_present() && ordinals.contains(&device.ordinal) {
                device.duty = Duty::Draining;
            }
        }
        state.membership.failed_checkpoint = None;
        self.rebalance_devices(&mut state);
        Ok(())
    }

    /// Blocks until nothing is under way on the devices, and a checkpoint covers all that they hold.
    fn wait_until_superfluous(&self, ordinals: &[u32]) -> Result<()> {
        let mut state = self.lock();
        loop {
            state.check_running()?;
            state.placement.check_others_serve(ordinals)?;
            // What was appended fits on the others now.
            if self.space.has(0) {
                state.placement.leaving(ordinals).for_each(|device| device.duty = Duty::Leaving);
            }
            let checkpoint = state.checkpoint;
            if state.placement.leaving(ordinals).all(|device| device.is_superfluous(checkpoint)) {
                return Ok(());
            }
            if let Some(cause) = state.membership.failed_checkpoint.take() {
                return Err(error::checkpoint_failed("the devices stay in the log: what they hold", cause));
            }
            self.pressure.notify_all();
            self.wake_writers(&mut state);
            self.leaving.wait(&mut state);
        }
    }

    /// Ends the wait for a checkpoint that may never come; see
    /// [`Log::report_failed_checkpoint`](crate::Log::report_failed_checkpoint).
    pub(crate) fn report_failed_checkpoint(&self, cause: Arc<dyn std::error::Error + Send + Sync>) {
        let mut state = self.lock();
        if state.placement.leaving_awaits_checkpoint(state.checkpoint) || state.shrinking_awaits_checkpoint() {
            state.membership.failed_checkpoint = Some(cause);
            self.leaving.notify_all();
        }
    }

    /// Takes devices that are superfluous from the list, and lets them go.
    fn delist(&self, ordinals: &[u32]) -> Result<()> {
        let mut slots = self.slots.lock();
        if slots.is_closed() {
            return Err(error::closed());
        }
        let mut state = self.lock();
        state.check_running()?;
        state.placement.check_others_serve(ordinals)?;
        let is_here = |device: &LogDevice| device.is_present() && ordinals.contains(&device.ordinal);
        let places: Vec<usize> =
            (0..state.placement.devices.len()).filter(|&at| is_here(&state.placement.devices[at])).collect();
        for &at in &places {
            assert!(
                state.placement.devices[at].is_superfluous(slots.checkpoint()),
                "nothing on a device that leaves is needed"
            );
            state.placement.devices[at].duty = Duty::Left;
        }
        state.membership.listed.retain(|member| !ordinals.contains(&member.ordinal));
        assert!(!state.membership.listed.is_empty(), "a log has devices");
        drop(state);
        let announced = self.announce(&mut slots);
        if announced.is_ok() {
            // The devices themselves should say so, too. Those that cannot are refused all the same.
            let healthy: Vec<usize> =
                places.iter().copied().filter(|&at| self.lock().placement.devices[at].is_healthy()).collect();
            self.write_slot_on(slots.current(), &healthy, None);
        }
        let mut state = self.lock();
        self.retire(&mut state, &places);
        announced
    }

    /// Lets go of devices that the log does not list.
    fn retire(&self, state: &mut State, places: &[usize]) {
        for &at in places {
            let id = state.placement.devices[at].device_id;
            state.membership.listed.retain(|member| member.device_id != id);
            state.placement.devices[at].retire();
            let hidden = std::mem::take(&mut state.placement.devices[at].hidden);
            state.membership.hidden_by_departed.add(&hidden);
        }
        let mut present = state.placement.devices.iter().filter(|device| device.is_present());
        let is_aside = present.any(|device| !device.is_healthy());
        state.membership.aside_is_needed &=
            is_aside || state.archive.as_ref().is_some_and(|archive| !archive.is_healthy());
        self.rebalance_devices(state);
    }

    /// Recomputes everything that depends on which devices serve.
    pub(super) fn rebalance_devices(&self, state: &mut State) {
        self.can_give_up.store(state.placement.has_other_hardware(), Ordering::Relaxed);
        self.settle_pairs(state);
        self.raise_request_payload(state);
        self.rebalance(state, 0);
        self.wake_writers(state);
    }

    /// Requests may be as large as the devices take that may get them in this session.
    fn raise_request_payload(&self, state: &State) {
        let of_devices = healthy(&state.placement).map(|device| device.main.layout.max_payload_bytes()).min();
        let now = of_devices.map_or(0, |bytes| bytes.min(self.max_payload_bytes));
        assert!(of_devices.is_none() || now >= self.request_payload(), "no device takes less than requests may have");
        self.request_payload.fetch_max(now, Ordering::AcqRel);
        self.growing.notify_all();
    }
}

/// The devices that may get requests in this session.
fn healthy(placement: &Placement) -> impl Iterator<Item = &LogDevice> {
    placement.devices.iter().filter(|device| device.is_present() && device.is_healthy())
}

impl LogDevice {
    /// Whether the device gets no more requests and a checkpoint covers those that it got.
    fn is_superfluous(&self, checkpoint: Lsn) -> bool {
        !self.takes_requests() && !self.is_busy() && self.max_end() <= checkpoint
    }
}
