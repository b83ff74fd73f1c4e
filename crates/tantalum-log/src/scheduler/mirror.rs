//! Mirrored logging: a request is done when devices on two pieces of hardware have it.
//!
//! A request's records stay here as they were appended until it is done. Each device that is given it writes a copy with
//! headers of its own into its main area. An idle device takes the oldest request that lacks a copy; a new request is begun
//! only when none lacks one, so that a slow device makes requests larger and not more. A copy that is late is hidden like
//! any late write ([`hiding`](super::hiding)); the copy of a third device counts, as it is on other hardware.
//!
//! Only copies on healthy devices count. If fewer than two pieces of hardware are left, the log goes on with one copy, and
//! reports it: to stop would make a mirror of two less available than one device.
//!
//! Invariants:
//! - a request is given to no device on hardware that has it or is writing it;
//! - it is complete when as many pieces of hardware have it as the log has, up to two;
//! - the space that its appends took is held until that many were given it;
//! - everything durable from [`Mirror::from`] on is on two pieces of hardware.

use std::collections::BTreeMap;
use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Hardware};

use super::placement::{Placement, distinct};
use super::write::{Job, Outcome};
use super::{Scheduler, State};
use crate::format::request::HEADER_BYTES;
use crate::group::Source;
use crate::log_device::{LogDevice, Target};
use crate::space::GROUP_CHARGE;
use crate::{LogOptions, Lsn};

/// Sections of each device that are kept for the copies that recovery makes. What a crash leaves without a second copy fits
/// in one, and recovery can use no section that has been begun.
pub(super) fn reserve(options: &LogOptions) -> u64 {
    u64::from(usize::from(options.copies) >= COPIES)
}

/// Pieces of hardware that have each request.
pub(crate) const COPIES: usize = 2;

/// The state of a log that keeps two copies.
#[derive(Debug, Default)]
pub(super) struct Mirror {
    /// Requests that a device was given and that are not complete, by LSN.
    pairs: BTreeMap<Lsn, Pair>,
    /// Everything durable from here on is on two pieces of hardware. `None` while only one is left.
    from: Option<Lsn>,
    /// The hardware that was lost when one piece was left, which has everything that the other had from here on.
    broken: Option<(Lsn, Hardware)>,
    /// Requests that were done with one copy.
    single: u64,
}

/// A request on its way to several devices.
#[derive(Debug)]
struct Pair {
    end: Lsn,
    /// The records, behind room for headers. Writes copy it.
    records: Arc<AlignedBuffer>,
    /// Indexes of the devices that have it.
    done: Vec<usize>,
    /// How many pieces of hardware could have it when it was begun. One that comes later need not.
    copies: usize,
    /// Whether the space that its appends took is held.
    is_charged: bool,
}

impl Pair {
    /// Bytes of header and payload, without padding.
    fn bytes(&self, start: Lsn) -> u64 {
        HEADER_BYTES as u64 + self.end.bytes_since(start)
    }

    fn charge(&self, start: Lsn) -> u64 {
        self.end.bytes_since(start) + GROUP_CHARGE
    }
}

impl Mirror {
    /// A mirror that is whole from `from` on.
    pub(super) fn new(from: Option<Lsn>) -> Mirror {
        Mirror { from, ..Mirror::default() }
    }

    /// Everything durable from here on is on two pieces of hardware; `None` while only one is left.
    pub(super) fn from(&self) -> Option<Lsn> {
        self.from
    }

    /// Requests that were done with one copy.
    pub(super) fn single(&self) -> u64 {
        self.single
    }

    /// Whether all that `lost` hardware holds behind `checkpoint` is on the one piece that was left, too.
    fn has_all_of(&self, lost: Hardware, checkpoint: Lsn) -> bool {
        self.broken.is_some_and(|(from, broken_by)| broken_by == lost && from <= checkpoint)
            && self.from.is_none_or(|from| from > checkpoint)
    }

    /// Whether a checkpoint would make the mirror whole.
    pub(super) fn awaits_checkpoint(&self, checkpoint: Lsn) -> bool {
        self.from.is_some_and(|from| from > checkpoint)
    }
}

impl Scheduler {
    /// Whether the log keeps two copies.
    pub(super) fn is_mirrored(&self) -> bool {
        usize::from(self.options.copies) >= COPIES
    }

    /// The oldest request that lacks a copy and has a device for it, or else a new one, to be written to that device.
    pub(super) fn next_copy(&self, state: &mut State, wanted: Lsn) -> Option<Job> {
        if let Some((start, index)) = state.placement.lacking_with_device() {
            return Some(self.give_copy(state, start, index));
        }
        if state.placement.lacks_copies() {
            return None;
        }
        let index = self.device_for_next(state, wanted)?;
        let request = state.commits.queue.pop_front()?;
        let (start, records_bytes) = (request.start, request.payload_bytes());
        let copies = state.placement.copies_needed();
        let pair = Pair {
            end: request.end,
            records: Arc::new(request.source.take(records_bytes, &self.pool)),
            done: Vec::new(),
            copies,
            is_charged: true,
        };
        let mirror = state.placement.mirror.as_mut().expect("only a log that keeps two copies asks for them");
        let before = mirror.pairs.insert(start, pair);
        assert!(before.is_none(), "a request is begun once");
        Some(self.give_copy(state, start, index))
    }

    fn give_copy(&self, state: &mut State, start: Lsn, index: usize) -> Job {
        let pair = state.placement.pair(start).expect("what lacks a copy is not complete");
        let source = Source::Borrowed(Arc::clone(&pair.records));
        let request = (start, pair.end, source);
        assert!(
            !state.placement.placed(start, pair).contains(&state.placement.devices[index].hardware),
            "copies are on different hardware"
        );
        let job = self.start_job(state, index, Target::Main, request, false);
        let released = self.settle_charge(state, start);
        self.rebalance(state, released);
        job
    }

    /// Holds the space that the appends of a request took as long as it lacks a copy. Returns the bytes that were given up.
    fn settle_charge(&self, state: &mut State, start: Lsn) -> u64 {
        let Some(pair) = state.placement.pair(start) else { return 0 };
        let (lacks, was_charged, charge) = (state.placement.lacks(start, pair), pair.is_charged, pair.charge(start));
        if let Some(pair) = state.placement.mirror.as_mut().and_then(|mirror| mirror.pairs.get_mut(&start)) {
            pair.is_charged = lacks;
        }
        match (was_charged, lacks) {
            (true, false) => charge,
            (false, true) => {
                self.space.shift(-(charge as i64));
                0
            }
            _ => 0,
        }
    }

    /// Takes note of a write that ended well. True if its request is complete now, which it was not before.
    pub(super) fn note_copy(&self, state: &mut State, outcome: &Outcome) -> bool {
        let is_healthy = state.placement.devices[outcome.device_index].is_healthy();
        let Some(mirror) = &mut state.placement.mirror else { return true };
        let pair = mirror.pairs.get_mut(&outcome.start).expect("a request that is not complete lacks a copy");
        if is_healthy {
            pair.done.push(outcome.device_index);
        }
        state.placement.has_enough(outcome.start) && self.end_pair(state, outcome.start)
    }

    /// Forgets a request that is complete.
    fn end_pair(&self, state: &mut State, start: Lsn) -> bool {
        let is_single = state.placement.pair(start).is_some_and(|pair| state.placement.done_on(pair).len() < COPIES);
        let Some(mirror) = &mut state.placement.mirror else { return false };
        let Some(pair) = mirror.pairs.remove(&start) else { return false };
        mirror.single += u64::from(is_single);
        if pair.is_charged {
            let charge = pair.charge(start);
            self.rebalance(state, charge);
        }
        self.pool.give_back(pair.records);
        true
    }

    /// Takes note of devices that came, left or failed: their copies no longer count, and fewer than two may be possible.
    pub(super) fn settle_pairs(&self, state: &mut State) {
        let hardware = state.placement.hardware_in_use().len();
        let lost = state.placement.only_lost(state.checkpoint);
        let (devices, sealed_end) = (&state.placement.devices, state.commits.sealed_end);
        let Some(mirror) = &mut state.placement.mirror else { return };
        match (hardware >= COPIES, mirror.from) {
            (false, Some(from)) => (mirror.from, mirror.broken) = (None, lost.map(|lost| (from, lost))),
            // What is sealed later is given to two.
            (true, None) => mirror.from = Some(sealed_end),
            _ => {}
        }
        for pair in mirror.pairs.values_mut() {
            pair.done.retain(|&at| devices[at].is_healthy());
        }
        let starts: Vec<Lsn> = mirror.pairs.keys().copied().collect();
        let mut released = 0;
        for start in starts {
            let end = state.placement.pair(start).map(|pair| pair.end);
            if let Some(end) = end.filter(|_| state.placement.has_enough(start)) {
                self.end_pair(state, start);
                self.note_complete(state, start, end);
            } else {
                released += self.settle_charge(state, start);
            }
        }
        self.rebalance(state, released);
        for waiter in self.advance_durable(state, Lsn::ZERO) {
            waiter.wake_done();
        }
    }
}

impl Placement {
    /// The hardware of the devices that were set aside and hold what is behind `checkpoint`, if that is one piece.
    fn only_lost(&self, checkpoint: Lsn) -> Option<Hardware> {
        let present = self.devices.iter().filter(|device| device.is_present());
        let lost = present.filter(|device| !device.is_healthy() && device.max_end() > checkpoint);
        if let [lost] = distinct(lost)[..] { Some(lost) } else { None }
    }

    /// Devices that were set aside hold what is behind `checkpoint`, but nothing that is not on one that is healthy.
    pub(super) fn others_have_all(&self, checkpoint: Lsn) -> bool {
        let has_all_of = |mirror: &Mirror| Some(mirror.has_all_of(self.only_lost(checkpoint)?, checkpoint));
        self.mirror.as_ref().and_then(has_all_of).unwrap_or(false)
    }

    fn pair(&self, start: Lsn) -> Option<&Pair> {
        self.mirror.as_ref()?.pairs.get(&start)
    }

    /// The hardware of the devices that take requests.
    fn hardware_in_use(&self) -> Vec<Hardware> {
        distinct(self.devices.iter().filter(|device| device.takes_requests()))
    }

    /// How many pieces of hardware must have a request.
    fn copies_needed(&self) -> usize {
        self.hardware_in_use().len().clamp(1, COPIES)
    }

    fn done_on(&self, pair: &Pair) -> Vec<Hardware> {
        distinct(pair.done.iter().map(|&at| &self.devices[at]).filter(|device| device.is_healthy()))
    }

    /// Hardware that has the request, or is writing it.
    fn placed(&self, start: Lsn, pair: &Pair) -> Vec<Hardware> {
        let healthy = self.devices.iter().enumerate().filter(|(_, device)| device.is_healthy());
        let with_it = healthy.filter(|(at, device)| pair.done.contains(at) || device.is_writing(start));
        distinct(with_it.map(|(_, device)| device))
    }

    /// Hardware that has a request which is not complete: it need not write it again.
    pub(super) fn has_copy(&self, start: Lsn, hardware: Hardware) -> bool {
        self.pair(start).is_some_and(|pair| self.done_on(pair).contains(&hardware))
    }

    fn has_enough(&self, start: Lsn) -> bool {
        self.pair(start).is_some_and(|pair| self.done_on(pair).len() >= pair.copies.min(self.copies_needed()))
    }

    fn lacks(&self, start: Lsn, pair: &Pair) -> bool {
        self.placed(start, pair).len() < pair.copies.min(self.copies_needed())
    }

    /// Requests that were begun and lack a copy, by LSN. More than one only after a device failed.
    fn lacking(&self) -> impl Iterator<Item = (Lsn, &Pair)> {
        let pairs = self.mirror.iter().flat_map(|mirror| &mirror.pairs);
        pairs.map(|(&start, pair)| (start, pair)).filter(|&(start, pair)| self.lacks(start, pair))
    }

    fn lacks_copies(&self) -> bool {
        self.lacking().next().is_some()
    }

    /// The oldest request that lacks a copy and that an idle device could take, and that device.
    fn lacking_with_device(&self) -> Option<(Lsn, usize)> {
        self.lacking().find_map(|(start, pair)| {
            let placed = self.placed(start, pair);
            let takes_it = |device: &LogDevice| !placed.contains(&device.hardware);
            Some((start, self.choose(pair.bytes(start), takes_it)?))
        })
    }

    /// Where the oldest begun request starts that lacks a copy and has a device for it.
    pub(super) fn next_copy_start(&self) -> Option<Lsn> {
        self.lacking_with_device().map(|(start, _)| start)
    }

    /// Whether a new request may be begun.
    pub(super) fn may_begin(&self) -> bool {
        !self.lacks_copies()
    }

    /// Bytes of requests that are not complete and that this hardware has or is writing, if they lack no copy: if it is
    /// lost, other hardware must take them.
    pub(super) fn given(&self, hardware: Hardware) -> u64 {
        let pairs = self.mirror.iter().flat_map(|mirror| &mirror.pairs).filter(|(_, pair)| !pair.is_charged);
        pairs
            .filter(|&(&start, pair)| self.placed(start, pair).contains(&hardware))
            .map(|(&start, pair)| pair.charge(start))
            .sum()
    }
}
