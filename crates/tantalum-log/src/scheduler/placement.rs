//! Placement: the log's devices, what is under way on them, and which device takes a request.
//!
//! Invariants:
//! - a device keeps its index; that of one that has left is used again once no write of this session may land on it;
//! - the serving devices can take everything that was appended and not placed, even if one of them is lost
//!   ([`space`](crate::space));
//! - a request goes to an idle device with room for it, and to no device on hardware that has it or is writing it.

use std::time::Duration;

use tantalum_device::Hardware;

use super::mirror::{COPIES, Mirror};
use crate::create::stand_on_several;
use crate::log_device::{Duty, LogDevice};
use crate::space::{self, Share};
use crate::{Error, ErrorKind, Lsn, Result};

/// The devices and the requests under way. Guarded by the state's lock.
pub(super) struct Placement {
    /// The devices that are here; of an array, itself.
    pub(super) devices: Vec<LogDevice>,
    /// Present if the log keeps two copies.
    pub(super) mirror: Option<Mirror>,
    pub(super) under_way: UnderWayCount,
    /// How many devices failed or hung in this session.
    pub(super) set_aside: usize,
    /// Requests that were written again because their device failed or hung.
    pub(super) reissued: u64,
}

/// Writes under way on all devices together.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct UnderWayCount {
    pub(super) writes: u64,
    pub(super) record_bytes: u64,
}

impl Placement {
    pub(super) fn new(devices: Vec<LogDevice>, mirror: Option<Mirror>) -> Placement {
        let set_aside = devices.iter().filter(|device| !device.is_healthy()).count();
        Placement { devices, mirror, under_way: UnderWayCount::default(), set_aside, reissued: 0 }
    }

    /// The idle device to write to: among those of which `takes_it` holds and that are about as fast as the fastest, the
    /// one with the most room.
    ///
    /// Room is spread, because what one device alone could take is not counted on (see [`space`](crate::space)); but a
    /// request does not wait for a slow device just to spread it.
    pub(super) fn choose(&self, bytes: u64, takes_it: impl Fn(&LogDevice) -> bool) -> Option<usize> {
        let is_usable = |device: &LogDevice| device.is_idle() && takes_it(device) && device.has_room(bytes);
        let usable = || self.devices.iter().enumerate().filter(|(_, device)| is_usable(device));
        let mut few = usable().map(|(index, _)| index);
        let first = few.next()?;
        if few.next().is_none() {
            return Some(first);
        }
        let fastest = usable().map(|(_, device)| device.latency).min()?;
        let near = usable().filter(|(_, device)| device.latency <= fastest * 2);
        near.max_by_key(|(index, device)| (device.share().assured, usize::MAX - index)).map(|(index, _)| index)
    }

    /// Whether a write of the request that starts at `start` is under way.
    pub(super) fn is_writing(&self, start: Lsn) -> bool {
        self.devices.iter().any(|device| device.is_writing(start))
    }

    /// Takes note of how long a write took. The latencies of the other devices fade a little, so that a device that was slow
    /// once is tried again some time.
    pub(super) fn learn_latency(&mut self, written: usize, took: Duration) {
        for (index, device) in self.devices.iter_mut().enumerate() {
            device.latency = match index == written {
                true if device.latency.is_zero() => took,
                true => (device.latency * 7 + took) / 8,
                false => device.latency * 255 / 256,
            };
        }
    }

    /// The device of the log with this identity, if it is here.
    pub(super) fn device(&self, device_id: u64) -> Option<&LogDevice> {
        self.devices.iter().find(|device| device.is_present() && device.device_id == device_id)
    }

    /// As [`device`](Self::device), to be changed.
    pub(super) fn device_mut(&mut self, device_id: u64) -> Option<&mut LogDevice> {
        self.devices.iter_mut().find(|device| device.is_present() && device.device_id == device_id)
    }

    /// Whether the one device stands for several.
    pub(super) fn is_array(&self) -> bool {
        self.devices.iter().any(|device| device.main.layout.depth > 1)
    }

    /// Whether the devices stand on more than one piece of hardware, so that a write can move to another.
    pub(super) fn has_other_hardware(&self) -> bool {
        let here = self.devices.iter().filter(|device| device.is_present());
        stand_on_several(here.map(|device| device.hardware))
    }

    /// Healthy devices whose space is counted on.
    fn serving(&self) -> impl Iterator<Item = &LogDevice> + Clone {
        self.devices.iter().filter(|device| device.is_healthy() && device.duty == Duty::Serving)
    }

    /// Request bytes that the serving devices together certainly take.
    pub(super) fn assured_bytes(&self) -> u64 {
        self.serving().map(|device| device.main.assured_bytes()).sum()
    }

    /// What the serving devices certainly take of what is not placed, by the rule for one copy or for two: with
    /// [`LogDevice::share`] now, with [`LogDevice::share_when_empty`] if they were empty.
    pub(super) fn spare(&self, share: impl Fn(&LogDevice) -> Share + Clone) -> i64 {
        match self.shares_for_copies(share.clone()) {
            Some(shares) => space::spare_for_copies(&shares),
            None => space::spare(self.serving().map(share)),
        }
    }

    /// What the serving devices certainly take of what is not placed, by the rule for one copy or for two, if none is lost.
    pub(super) fn room(&self) -> i64 {
        match self.shares_for_copies(LogDevice::share) {
            Some(shares) => space::room_for_copies(&shares),
            None => self.assured_bytes() as i64,
        }
    }

    /// The share of each piece of hardware with serving devices, if there are enough of them for two copies, and these are kept.
    fn shares_for_copies(&self, share: impl Fn(&LogDevice) -> Share) -> Option<Vec<Share>> {
        self.mirror.as_ref()?;
        let mut pieces: Vec<(Hardware, Share)> = Vec::new();
        for device in self.serving() {
            let (hardware, share) = (device.hardware, share(device));
            match pieces.iter_mut().find(|(other, _)| *other == hardware) {
                Some((_, sum)) => sum.assured += share.assured,
                None => pieces.push((hardware, Share { in_flight: self.given(hardware), ..share })),
            }
        }
        (pieces.len() >= COPIES).then(|| pieces.into_iter().map(|(_, share)| share).collect())
    }

    /// What the serving devices can take beside the largest request under way on one that leaves: it may fail.
    pub(super) fn room_for_leaving(&self) -> i64 {
        let leaving = self.devices.iter().filter(|device| device.duty != Duty::Serving);
        let in_flight = leaving.map(|device| device.share().in_flight).filter(|&bytes| bytes > 0).max();
        in_flight.map_or(i64::MAX, |bytes| self.assured_bytes() as i64 - bytes as i64)
    }

    /// Those of the devices that are here and still on their way out.
    pub(super) fn leaving(&mut self, ordinals: &[u32]) -> impl Iterator<Item = &mut LogDevice> {
        let is_leaving = |device: &&mut LogDevice| matches!(device.duty, Duty::Draining | Duty::Leaving);
        self.devices.iter_mut().filter(is_leaving).filter(|device| ordinals.contains(&device.ordinal))
    }

    /// Whether a device that is to leave waits for a checkpoint above `checkpoint`.
    pub(super) fn leaving_awaits_checkpoint(&self, checkpoint: Lsn) -> bool {
        self.devices.iter().any(|device| match device.duty {
            Duty::Draining => true,
            Duty::Leaving => device.max_end() > checkpoint,
            Duty::Serving | Duty::Joining | Duty::Left => false,
        })
    }

    /// Refuses to let devices go that are needed to take requests, or the second copies of them.
    pub(super) fn check_others_serve(&self, ordinals: &[u32]) -> Result<()> {
        let goes = |device: &&LogDevice| ordinals.contains(&device.ordinal);
        let others = distinct(self.serving().filter(|device| !goes(device))).len();
        let copies = if self.mirror.is_some() { COPIES } else { 1 };
        let with_them = self.devices.iter().filter(|device| device.is_healthy() && device.duty != Duty::Left);
        if others >= copies.min(distinct(with_them).len()).max(1) {
            return Ok(());
        }
        let here = self.devices.iter().find(|device| device.is_present() && goes(device));
        let name = here.map_or("an absent device", |device| device.device().name());
        let why = match others {
            0 => "no other device of the log is healthy; add one first",
            _ => "the log keeps two copies and no two other pieces of hardware are healthy; add a device first",
        };
        let what = format!("{name}: cannot be removed, {why}, or replace this one by another");
        Err(Error::new(ErrorKind::InUse, what))
    }

    /// Lets devices that were to leave serve on if the others are too few. The task that removes them finds out.
    pub(super) fn keep_enough_serving(&mut self, copies: usize) {
        if distinct(self.serving()).len() >= copies {
            return;
        }
        for device in &mut self.devices {
            if device.is_healthy() && matches!(device.duty, Duty::Draining | Duty::Leaving) {
                device.duty = Duty::Serving;
            }
        }
    }

    /// Whether a device is left that is healthy and belongs to the log.
    pub(super) fn has_healthy(&self) -> bool {
        self.devices.iter().any(|device| device.is_healthy() && device.duty != Duty::Left)
    }
}

/// The hardware that these stand on.
pub(super) fn distinct<'a>(devices: impl Iterator<Item = &'a LogDevice>) -> Vec<Hardware> {
    let mut found = Vec::new();
    for device in devices {
        if !found.contains(&device.hardware) {
            found.push(device.hardware);
        }
    }
    found
}
