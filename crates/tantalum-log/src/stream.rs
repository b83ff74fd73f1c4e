//! One device's append position: which section and block the next request takes, and which sections are free.
//!
//! A device with a hiding area has a second stream, for requests that another device is late with ("FlashLogging",
//! section 3.4). It has sections and numbers of its own, and in it LSNs never decrease.
//!
//! Invariants: sections are used in the order of their numbers; one is reused only when every request in it ends at or
//! below a durable checkpoint; placed requests never overlap one another nor a section that is needed; a request lies
//! in one section; request sequence numbers have no gaps; and of several requests under way none opens a section.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tantalum_device::{Device, Hardware, PendingWrite};
use tantalum_rt::Instant;

use crate::format::BLOCK;
use crate::format::section::{MAX_ENTRIES, StrideEntry};
use crate::format::slot::SlotMember;
use crate::latency::LatencyTable;
use crate::layout::Layout;
use crate::space::Share;
use crate::tail::Tail;
use crate::{DeviceState, Error, HidingStats, LogOptions, Lsn};

/// A section that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedSection {
    pub(crate) number: u64,
    /// No request up to the section's end has a larger end.
    pub(crate) max_end: Lsn,
}

/// Where a stream goes on: what recovery found on the device.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resume {
    /// The number of the next section.
    pub(crate) next_number: u64,
    /// The sequence number of the next request.
    pub(crate) next_sequence: u64,
    /// The largest end LSN on the device.
    pub(crate) stream_lsn: Lsn,
    /// The sections that hold something needed, in order, without gaps up to the next number.
    pub(crate) used: VecDeque<UsedSection>,
}

/// Where one request goes.
#[derive(Clone, Debug)]
pub(crate) struct Placement {
    /// The request's offset on the device, in bytes.
    pub(crate) offset: u64,
    pub(crate) section: u64,
    pub(crate) sequence: u64,
    /// The largest end LSN on the device before it.
    pub(crate) stream_lsn: Lsn,
    pub(crate) layout: Layout,
    pub(crate) tail: Arc<Tail>,
    /// Present if the request opens its section: what the section's header says about the previous one.
    pub(crate) opens: Option<Vec<StrideEntry>>,
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

/// The section that is being filled.
#[derive(Clone, Debug)]
struct Open {
    number: u64,
    /// The section's first unused byte, counted from its start.
    next: u64,
    entries: Vec<StrideEntry>,
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

/// One device of a running log, or its hiding area.
pub(crate) struct Stream {
    /// Absent once the device has left.
    device: Option<Arc<dyn Device>>,
    pub(crate) hardware: Hardware,
    pub(crate) ordinal: u32,
    pub(crate) device_id: u64,
    pub(crate) layout: Layout,
    /// The device's hiding area, if it has one. Its state, latencies and counters are not used but the device's.
    pub(crate) hiding: Option<Box<Stream>>,
    is_hiding: bool,
    pub(crate) state: DeviceState,
    pub(crate) duty: Duty,
    /// Writes that hung and were given up. They may still land.
    given_up: Vec<Box<dyn PendingWrite>>,
    /// At most as many as the layout's depth, in whichever area: with a depth of one only the last request of an area can
    /// be torn.
    in_flight: Vec<InFlight>,
    /// Averages by size, to tell outliers.
    pub(crate) latencies: LatencyTable,
    pub(crate) hidden: HidingStats,
    /// Smoothed duration of a write, for choosing among idle devices.
    pub(crate) latency: Duration,
    pub(crate) writes: u64,
    pub(crate) bytes: u64,
    pub(crate) busy: Duration,
    /// Free sections that no request opens: where two copies are kept, one is for the copies that recovery makes.
    pub(crate) reserve: u64,
    resume: Resume,
    open: Option<Open>,
    tail: Arc<Tail>,
}

impl Stream {
    pub(crate) fn new(device: Arc<dyn Device>, member: SlotMember, layout: Layout, resume: Resume) -> Stream {
        let stream = Stream {
            hardware: device.hardware(),
            device: Some(device),
            ordinal: member.ordinal,
            device_id: member.device_id,
            layout,
            hiding: None,
            is_hiding: false,
            latencies: LatencyTable::default(),
            hidden: HidingStats::default(),
            state: DeviceState::Healthy,
            duty: Duty::Serving,
            given_up: Vec::new(),
            in_flight: Vec::new(),
            latency: Duration::ZERO,
            writes: 0,
            bytes: 0,
            busy: Duration::ZERO,
            reserve: 0,
            resume,
            open: None,
            tail: Arc::default(),
        };
        stream.check();
        stream
    }

    /// Gives the device a hiding area, which goes on at `resume`.
    pub(crate) fn with_hiding(mut self, layout: Layout, resume: Resume) -> Stream {
        let hiding = Stream::new(Arc::clone(self.device()), self.listed(), layout, resume);
        self.hiding = Some(Box::new(Stream { is_hiding: true, ..hiding }));
        self
    }

    /// Takes over what was measured of the device, if anything was.
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
        self.device.as_ref().expect("only who asks whether it is present asks for the device")
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
        self.state = DeviceState::SetAside { cause: Error::Absent { ordinal: self.ordinal } };
    }

    /// Keeps a write that was given up in mind.
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

    /// Whether the device is healthy and takes requests.
    pub(crate) fn takes_requests(&self) -> bool {
        self.state.is_healthy() && matches!(self.duty, Duty::Serving | Duty::Draining)
    }

    /// Whether the device takes requests, and one more now.
    pub(crate) fn is_idle(&self) -> bool {
        self.takes_requests() && self.in_flight.len() < self.layout.depth
    }

    /// Whether a request is under way on the device.
    pub(crate) fn is_busy(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Takes note that a request of `bytes` bytes that was given its place here, or in the hiding area, is under way.
    pub(crate) fn begin_request(&mut self, start: Lsn, bytes: u64, opens: bool, is_reissued: bool, now: Instant) {
        let bytes = self.layout.request_bytes(bytes);
        self.in_flight.push(InFlight { start, bytes, since: now, opens, is_reissued, overtaken: None });
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
        self.hiding.as_ref().map_or(self.resume.stream_lsn, |hiding| self.resume.stream_lsn.max(hiding.max_end()))
    }

    /// Whether a request that starts at `start` keeps LSNs in this area from decreasing.
    pub(crate) fn keeps_order(&self, start: Lsn) -> bool {
        start >= self.resume.stream_lsn
    }

    /// Sections that hold nothing needed.
    pub(crate) fn free_sections(&self) -> u64 {
        self.layout.section_count - self.resume.used.len() as u64
    }

    /// Whether a request of `bytes` bytes of header and payload has a place now: what opens a section is under way by
    /// itself.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        match self.fits_open(self.layout.request_bytes(bytes)) {
            true => !self.in_flight.iter().any(|request| request.opens),
            false => self.free_sections() > self.reserve && (self.in_flight.is_empty() || self.layout.depth == 1),
        }
    }

    fn fits_open(&self, bytes: u64) -> bool {
        self.open.as_ref().is_some_and(|open| open.next + bytes <= self.layout.section_bytes)
    }

    /// What the device contributes to the bound on what may be appended, as long as it serves.
    pub(crate) fn share(&self) -> Share {
        let section = self.layout.assured_section_bytes();
        let open = self.open.as_ref().map_or(0, |open| section.saturating_sub(open.next - BLOCK as u64));
        // What was re-issued here is under way elsewhere: if this device is lost, nobody has to take it.
        let own = self.in_flight.iter().filter(|request| !request.is_reissued);
        let in_flight = own.map(|request| request.bytes).sum();
        Share { assured: open + section * self.free_sections().saturating_sub(self.reserve), in_flight }
    }

    /// What it would contribute if it were empty.
    pub(crate) fn share_when_empty(&self) -> Share {
        let sections = self.layout.section_count - self.reserve;
        Share { assured: self.layout.assured_section_bytes() * sections, in_flight: 0 }
    }

    /// Bytes of the main area's sections in use, the unwritten rest of the open one not included.
    pub(crate) fn used_bytes(&self) -> u64 {
        let rest = self.open.as_ref().map_or(0, |open| self.layout.section_bytes - open.next);
        self.resume.used.len() as u64 * self.layout.section_bytes - rest
    }

    /// Gives a request of `bytes` bytes of header and payload that reaches from `start` to `end` its place.
    ///
    /// # Panics
    /// If there is no room, the device is not idle, or LSNs in a hiding area would decrease.
    pub(crate) fn place(&mut self, bytes: u64, start: Lsn, end: Lsn) -> Placement {
        assert!(self.is_idle() && self.has_room(bytes), "a request is placed where there is room for it");
        assert!(!self.is_hiding || self.keeps_order(start), "LSNs in a hiding area never decrease");
        let bytes = self.layout.request_bytes(bytes);
        assert!(bytes <= self.layout.max_request_bytes(), "requests are sealed before they are too large");
        let opens = (!self.fits_open(bytes)).then(|| self.open_section());
        let stride = self.layout.section_bytes.div_ceil(BLOCK as u64).div_ceil(MAX_ENTRIES as u64) * BLOCK as u64;
        let open = self.open.as_mut().expect("a section was opened if none had room");
        let section = self.layout.section(open.number);
        let placement = Placement {
            offset: section.start + open.next,
            section: open.number,
            sequence: self.resume.next_sequence,
            stream_lsn: self.resume.stream_lsn,
            layout: self.layout,
            tail: Arc::clone(&self.tail),
            opens,
        };
        if open.entries.last().is_none_or(|last| open.next / stride > u64::from(last.at) / stride) {
            open.entries.push(StrideEntry { at: open.next as u32, stream_lsn: self.resume.stream_lsn });
        }
        open.next += bytes;
        assert!(section.start + open.next <= section.end, "a request lies in one section");
        self.resume.next_sequence += 1;
        self.resume.stream_lsn = self.resume.stream_lsn.max(end);
        let used = self.resume.used.back_mut().expect("the open section is in use");
        used.max_end = used.max_end.max(self.resume.stream_lsn);
        placement
    }

    /// Moves on to the next section and returns what its header says about the one before.
    fn open_section(&mut self) -> Vec<StrideEntry> {
        assert!(self.free_sections() > 0, "a section is opened only if one is free");
        let number = self.resume.next_number;
        let previous = self.open.replace(Open { number, next: BLOCK as u64, entries: Vec::new() });
        self.resume.next_number += 1;
        self.resume.used.push_back(UsedSection { number, max_end: self.resume.stream_lsn });
        self.check();
        previous.map_or_else(Vec::new, |previous| previous.entries)
    }

    /// Frees the sections in which every request ends at or below a checkpoint that is durable.
    pub(crate) fn release(&mut self, checkpoint: Lsn) {
        let open = self.open.as_ref().map(|open| open.number);
        while self.resume.used.front().is_some_and(|used| used.max_end <= checkpoint && Some(used.number) != open) {
            self.resume.used.pop_front();
        }
        self.check();
        if let Some(hiding) = &mut self.hiding {
            hiding.release(checkpoint);
        }
    }

    /// The sections in use end right before the next number, without gaps, and fit the circle.
    fn check(&self) {
        let used = &self.resume.used;
        assert!(used.len() as u64 <= self.layout.section_count, "sections in use must fit the device");
        let expected = self.resume.next_number.checked_sub(used.len() as u64);
        let first = used.front().map_or(expected, |first| Some(first.number));
        assert_eq!(first, expected, "sections in use have consecutive numbers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tantalum_device::MemoryDevice;

    fn stream(alignment: u64, block_bytes: u64) -> Stream {
        let device = MemoryDevice::new("d", 1 << 20);
        let layout = Layout { base: 16384, section_bytes: 65536, section_count: 4, alignment, block_bytes, depth: 1 };
        Stream::new(device, SlotMember::new(0, 1), layout, Resume::default())
    }

    fn place(stream: &mut Stream, blocks: u64, end: u64) -> Placement {
        stream.place(blocks * 4096, Lsn::new(end - 1), Lsn::new(end))
    }

    fn hiding(stream: &Stream) -> Layout {
        Layout { base: stream.layout.end(), section_count: 2, ..stream.layout }
    }

    #[test]
    fn a_hiding_area_has_sections_of_its_own_and_counts_for_the_device() {
        let stream = stream(4096, 4096);
        let layout = hiding(&stream);
        let mut stream = stream.with_hiding(layout, Resume::default());
        place(&mut stream, 1, 10);
        let hiding = stream.hiding.as_mut().expect("given");
        assert_eq!(hiding.place(4096, Lsn::new(20), Lsn::new(30)).offset, layout.base + 4096);
        assert!(!hiding.keeps_order(Lsn::new(29)) && hiding.keeps_order(Lsn::new(30)));
        assert_eq!(stream.max_end().get(), 30);
        assert_eq!(stream.share().assured, 4 * 49152 - 4096, "only the main area is counted on");
        stream.release(Lsn::new(30));
        assert_eq!(stream.hiding.expect("given").free_sections(), 1, "the open section stays");
    }

    #[test]
    #[should_panic(expected = "never decrease")]
    fn a_hiding_area_refuses_what_is_older_than_what_it_has() {
        let stream = stream(4096, 4096);
        let layout = hiding(&stream);
        let mut hiding = stream.with_hiding(layout, Resume::default()).hiding.expect("given");
        place(&mut hiding, 1, 10);
        place(&mut hiding, 1, 10);
    }

    #[test]
    fn requests_fill_a_section_and_move_on() {
        let mut stream = stream(4096, 4096);
        let first = place(&mut stream, 4, 10);
        assert_eq!((first.offset, first.section, first.opens), (16384 + 4096, 0, Some(vec![])));
        for n in 1..3 {
            assert_eq!(place(&mut stream, 4, 10 + n).section, 0);
        }
        let second = place(&mut stream, 4, 13);
        assert_eq!((second.section, second.sequence, second.stream_lsn.get()), (1, 3, 12));
        let starts: Vec<u32> = second.opens.expect("a new section").iter().map(|entry| entry.at / 4096).collect();
        assert_eq!(starts, [1, 5, 9]);
    }

    #[test]
    fn every_section_takes_what_it_is_assured_to_take() {
        // Whatever the sizes, the share falls by at most the bytes placed, and a positive share means room.
        for seed in 0..300 {
            let mut random = tantalum_rt::Random::with_seed(seed);
            let (alignment, block_bytes) = [(4096, 4096), (512, 512), (8, 512)][seed as usize % 3];
            let mut stream = stream(alignment, block_bytes);
            let at_most = [16384, 5000, 700][random.usize(0..3)];
            loop {
                let before = stream.share().assured;
                let bytes = random.u64(97..=at_most);
                if !stream.has_room(bytes) {
                    assert!(before < stream.layout.request_bytes(bytes));
                    break;
                }
                stream.place(bytes, Lsn::new(0), Lsn::new(1));
                assert!(stream.share().assured + stream.layout.request_bytes(bytes) >= before);
            }
        }
    }

    #[test]
    fn what_opens_a_section_is_under_way_by_itself() {
        let mut stream = stream(512, 512);
        stream.layout.depth = 3;
        let place = |stream: &mut Stream, start: u64| {
            let opens = stream.place(16384, Lsn::new(start), Lsn::new(start + 1)).opens;
            stream.begin_request(Lsn::new(start), 16384, opens.is_some(), false, tantalum_rt::now());
            opens
        };
        assert!(place(&mut stream, 1).is_some());
        assert!(stream.is_idle() && !stream.has_room(16384), "the first one opens a section");
        stream.end_request(Lsn::new(1));
        assert_eq!((place(&mut stream, 2), place(&mut stream, 3)), (None, None));
        assert!(stream.is_idle() && !stream.has_room(16384), "the fourth one opens the next");
        assert!(stream.has_room(8192));
        stream.end_request(Lsn::new(3));
        assert!(!stream.has_room(16384));
        stream.end_request(Lsn::new(2));
        assert!(place(&mut stream, 4).is_some());
        assert_eq!(stream.share().in_flight, 16384);
    }

    #[test]
    fn sections_are_freed_by_checkpoints_only() {
        let mut stream = stream(4096, 4096);
        let mut end = 0;
        while stream.has_room(16384) {
            end += 10;
            place(&mut stream, 4, end);
        }
        assert_eq!(stream.free_sections(), 0);
        stream.release(Lsn::new(29));
        assert_eq!(stream.free_sections(), 0, "the first section ends at 30");
        stream.release(Lsn::new(30));
        assert_eq!(stream.free_sections(), 1);
        stream.release(Lsn::new(end));
        assert_eq!(stream.free_sections(), 3, "the open section stays");
        assert_eq!(place(&mut stream, 4, end + 10).offset, 16384 + 4096, "around the circle");
    }
}
