//! A device of a running log: its areas, the requests under way on it, and what was measured of it.
//!
//! Invariants:
//! - one request is under way at a time, both areas together, so that only the last request of an area can be torn; on an array
//!   there may be several;
//! - of several requests under way none opens a section;
//! - a device leaves only when no request is under way on it.

use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Device, Hardware, PendingWrite};
use tantalum_rt::Instant;

use crate::area::{Area, Place, Resume};
use crate::format::slot::SlotMember;
use crate::latency::LatencyTable;
use crate::layout::Layout;
use crate::space::Share;
use crate::{Error, HidingStats, LogOptions, Lsn, error};

/// Which of a device's areas takes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Main,
    Hiding,
}

/// A request that is under way on a device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// Where its records start. A request under way on several devices has the same start on each.
    pub(crate) start: Lsn,
    /// Bytes on the device, padding included.
    pub(crate) bytes: u64,
    pub(crate) since: Instant,
    /// Whether it opens a section.
    pub(crate) opens: bool,
    /// Whether another device was given it before and is late with it.
    pub(crate) is_reissued: bool,
    /// When another device turned out to be first.
    pub(crate) overtaken: Option<Instant>,
}

/// What a device does for the log, as long as it is healthy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Duty {
    /// It takes requests.
    Serving,
    /// It gets every slot, and no request before all devices know that it belongs to the log.
    Joining,
    /// It is to leave, but still takes requests: without it, the others could not take all that was appended.
    Draining,
    /// It takes no more requests, and leaves once a checkpoint covers what it holds.
    Leaving,
    /// The slots no longer list it.
    Left,
}

/// One device of a running log.
pub(crate) struct LogDevice {
    /// Absent once the device has left.
    device: Option<Arc<dyn Device>>,
    pub(crate) hardware: Hardware,
    pub(crate) ordinal: u32,
    pub(crate) device_id: u64,
    pub(crate) main: Area,
    pub(crate) hiding: Option<Area>,
    /// Why it gets no more requests until the log is opened again or the device replaced: it failed or hung.
    pub(crate) set_aside: Option<Error>,
    pub(crate) duty: Duty,
    /// Writes that hung and were given up. They may still land.
    given_up: Vec<Box<dyn PendingWrite>>,
    in_flight: Vec<InFlight>,
    /// How many requests may be under way.
    queue_depth: usize,
    /// Averages by size, to tell outliers.
    pub(crate) latencies: LatencyTable,
    pub(crate) hidden: HidingStats,
    /// Smoothed duration of a write, for choosing among idle devices.
    pub(crate) latency: Duration,
    pub(crate) writes: u64,
    pub(crate) bytes: u64,
    pub(crate) busy: Duration,
}

impl LogDevice {
    pub(crate) fn new(device: Arc<dyn Device>, member: SlotMember, layout: Layout, resume: Resume) -> LogDevice {
        LogDevice {
            hardware: device.hardware(),
            device: Some(device),
            ordinal: member.ordinal,
            device_id: member.device_id,
            main: Area::main(layout, resume),
            hiding: None,
            latencies: LatencyTable::default(),
            hidden: HidingStats::default(),
            set_aside: None,
            duty: Duty::Serving,
            given_up: Vec::new(),
            in_flight: Vec::new(),
            queue_depth: layout.depth,
            latency: Duration::ZERO,
            writes: 0,
            bytes: 0,
            busy: Duration::ZERO,
        }
    }

    /// Gives the device a hiding area, which goes on at `resume`.
    pub(crate) fn with_hiding(self, layout: Layout, resume: Resume) -> LogDevice {
        LogDevice { hiding: Some(Area::hiding(layout, resume)), ..self }
    }

    /// Lets an array take all requests that there are, and not only as many as it has devices: each of its devices then finds its
    /// next piece behind requests that are for others, as the paper's workers do, which skip requests that do not belong to
    /// their device ("FlashLogging", section 3.3).
    pub(crate) fn look_ahead(&mut self) {
        if self.main.layout.depth > 1 {
            self.queue_depth = usize::MAX;
        }
    }

    /// Takes over the measured latencies of the device, if there are any.
    pub(crate) fn expect_latencies(&mut self, options: &LogOptions) {
        if let Some(measured) = options.characteristics.get(self.device().name()) {
            self.latencies = LatencyTable::measured(&measured.write_latency);
        }
    }

    /// As the slots list the device.
    pub(crate) fn listed(&self) -> SlotMember {
        SlotMember::new(self.ordinal, self.device_id)
    }

    /// The device.
    ///
    /// # Panics
    /// If it has left the log.
    pub(crate) fn device(&self) -> &Arc<dyn Device> {
        self.device.as_ref().expect("the caller asked whether the device is present")
    }

    /// Whether the device has not left.
    pub(crate) fn is_present(&self) -> bool {
        self.device.is_some()
    }

    /// Lets go of the device, for good.
    pub(crate) fn retire(&mut self) {
        assert!(!self.is_busy(), "a device leaves when no request is under way on it");
        self.device = None;
        self.hiding = None;
        self.duty = Duty::Left;
        self.set_aside = Some(error::absent(self.ordinal));
    }

    /// Remembers a write that was given up.
    pub(crate) fn give_up(&mut self, write: Box<dyn PendingWrite>) {
        self.given_up.push(write);
    }

    /// Writes that were given up and may still land on the device.
    pub(crate) fn still_writing(&mut self) -> u64 {
        self.given_up.retain_mut(|write| !write.is_done());
        self.given_up.len() as u64
    }

    /// Whether a write of this session may still land on the device.
    pub(crate) fn is_still_writing(&mut self) -> bool {
        self.is_busy() || self.still_writing() > 0
    }

    /// Whether nothing is wrong with the device.
    pub(crate) fn is_healthy(&self) -> bool {
        self.set_aside.is_none()
    }

    /// Whether the device is healthy and takes requests.
    pub(crate) fn takes_requests(&self) -> bool {
        self.is_healthy() && matches!(self.duty, Duty::Serving | Duty::Draining)
    }

    /// Whether the device takes requests, and one more now.
    pub(crate) fn is_idle(&self) -> bool {
        self.takes_requests() && self.in_flight.len() < self.queue_depth
    }

    /// Whether a request is under way on the device.
    pub(crate) fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Gives a request of `bytes` bytes of header and payload that reaches from `start` to `end` its place.
    ///
    /// # Panics
    /// If the device is not idle, or as [`Area::place`].
    pub(crate) fn place(&mut self, target: Target, bytes: u64, start: Lsn, end: Lsn) -> Place {
        assert!(self.is_idle(), "a device takes no more requests than it may");
        let area = match target {
            Target::Main => &mut self.main,
            Target::Hiding => self.hiding.as_mut().expect("a hiding area is chosen only where there is one"),
        };
        area.place(bytes, start, end)
    }

    /// Places a request, as [`place`](Self::place), which is under way from now on.
    pub(crate) fn begin_request(
        &mut self,
        target: Target,
        bytes: u64,
        (start, end): (Lsn, Lsn),
        is_reissued: bool,
        now: Instant,
    ) -> Place {
        let place = self.place(target, bytes, start, end);
        let (bytes, opens) = (self.main.layout.request_bytes(bytes), place.opens.is_some());
        let is_alone = self.in_flight.is_empty();
        assert!(
            is_alone || !opens && !self.in_flight.iter().any(|other| other.opens),
            "no section opens beside others"
        );
        self.in_flight.push(InFlight { start, bytes, since: now, opens, is_reissued, overtaken: None });
        place
    }

    /// Takes note that the request that starts at `start` is no longer under way.
    ///
    /// # Panics
    /// If it was not.
    pub(crate) fn end_request(&mut self, start: Lsn) -> InFlight {
        let at = self.in_flight.iter().position(|request| request.start == start);
        self.in_flight.swap_remove(at.expect("a request is under way from its placement until it is complete"))
    }

    /// Takes note that another device was first with the request that starts at `start`, if it is under way here.
    pub(crate) fn overtake(&mut self, start: Lsn, now: Instant) {
        for request in self.in_flight.iter_mut().filter(|request| request.start == start) {
            request.overtaken = Some(now);
        }
    }

    /// Whether the request that starts at `start` is under way on the device.
    pub(crate) fn is_writing(&self, start: Lsn) -> bool {
        self.in_flight.iter().any(|request| request.start == start)
    }

    /// The largest end LSN ever given to the device.
    pub(crate) fn max_end(&self) -> Lsn {
        self.hiding.as_ref().map_or(self.main.max_end(), |hiding| self.main.max_end().max(hiding.max_end()))
    }

    /// Whether a request of `bytes` bytes of header and payload has a place in the main area now: a request that opens a
    /// section is under way by itself.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        match self.main.fits_open(bytes) {
            true => !self.in_flight.iter().any(|request| request.opens),
            false => self.main.can_open_section() && (self.in_flight.is_empty() || self.main.layout.depth == 1),
        }
    }

    /// What the device contributes to the bound on what may be appended, as long as it serves.
    pub(crate) fn share(&self) -> Share {
        // A re-issued request is under way elsewhere too: if this device is lost, no other has to take it.
        let own = self.in_flight.iter().filter(|request| !request.is_reissued);
        Share { assured: self.main.assured_bytes(), in_flight: own.map(|request| request.bytes).sum() }
    }

    /// What it would contribute if it were empty.
    pub(crate) fn share_when_empty(&self) -> Share {
        Share { assured: self.main.assured_bytes_when_empty(), in_flight: 0 }
    }

    /// Frees the sections in which every request ends at or below a checkpoint that is durable.
    pub(crate) fn release(&mut self, checkpoint: Lsn) {
        self.main.release(checkpoint);
        self.hiding.iter_mut().for_each(|hiding| hiding.release(checkpoint));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tantalum_device::MemoryDevice;

    fn device(depth: usize) -> LogDevice {
        let (section_bytes, section_count) = (65536, 4);
        let layout = Layout { base: 16384, section_bytes, section_count, alignment: 512, block_bytes: 512, depth };
        LogDevice::new(MemoryDevice::new("d", 1 << 20), SlotMember::new(0, 1), layout, Resume::default())
    }

    #[test]
    fn a_hiding_area_has_sections_of_its_own_and_counts_for_the_device() {
        let device = device(1);
        let layout = Layout { base: device.main.layout.end(), section_count: 2, ..device.main.layout };
        let mut device = device.with_hiding(layout, Resume::default());
        device.place(Target::Main, 4096, Lsn::new(9), Lsn::new(10));
        assert_eq!(device.place(Target::Hiding, 4096, Lsn::new(20), Lsn::new(30)).offset, layout.base + 4096);
        let hiding = device.hiding.as_ref().expect("given");
        assert!(!hiding.keeps_order(Lsn::new(29)) && hiding.keeps_order(Lsn::new(30)));
        assert_eq!(device.max_end().get(), 30);
        assert_eq!(
            device.share().assured,
            device.share_when_empty().assured - 4096,
            "only the main area is counted on"
        );
        device.release(Lsn::new(30));
        assert_eq!(device.hiding.expect("given").free_sections(), 1, "the open section stays");
    }

    #[test]
    fn an_array_that_looks_ahead_takes_more_requests_than_it_has_devices() {
        let begin = |device: &mut LogDevice, start: u64| {
            let range = (Lsn::new(start), Lsn::new(start + 1));
            device.begin_request(Target::Main, 512, range, false, tantalum_rt::now());
        };
        for (depth, most) in [(1, 1), (2, 9)] {
            let mut device = device(depth);
            device.look_ahead();
            begin(&mut device, 0);
            device.end_request(Lsn::new(0));
            (1..=most).for_each(|start| begin(&mut device, start));
            assert_eq!(device.is_idle(), depth > 1, "{depth}");
        }
    }

    #[test]
    fn a_request_that_opens_a_section_is_under_way_by_itself() {
        let mut device = device(3);
        let begin = |device: &mut LogDevice, start: u64| {
            let range = (Lsn::new(start), Lsn::new(start + 1));
            device.begin_request(Target::Main, 16384, range, false, tantalum_rt::now()).opens
        };
        assert!(begin(&mut device, 1).is_some());
        assert!(device.is_idle() && !device.has_room(16384), "the first one opens a section");
        device.end_request(Lsn::new(1));
        assert_eq!((begin(&mut device, 2), begin(&mut device, 3)), (None, None));
        assert!(device.is_idle() && !device.has_room(16384), "the fourth one opens the next");
        assert!(device.has_room(8192));
        device.end_request(Lsn::new(3));
        assert!(!device.has_room(16384));
        device.end_request(Lsn::new(2));
        assert!(begin(&mut device, 4).is_some());
        assert_eq!(device.share().in_flight, 16384);
    }
}
