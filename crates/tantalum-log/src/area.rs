//! A ring of sections and the append position in it: which section and block the next request takes, and which sections
//! are free. A device has a main area and possibly a hiding area, each with its own section and sequence numbers.
//!
//! Invariants:
//! - sections are used in the order of their numbers;
//! - a section is reused only when every request in it ends at or below a durable checkpoint;
//! - placed requests never overlap one another nor a section that is needed, and each lies in one section;
//! - request sequence numbers have no gaps;
//! - in a hiding area LSNs never decrease.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::Lsn;
use crate::format::BLOCK;
use crate::format::section::{MAX_ENTRIES, StrideEntry};
use crate::group::Tail;
use crate::layout::Layout;

/// A section that holds something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct UsedSection {
    pub(crate) number: u64,
    /// No request up to the section's end has a larger end.
    pub(crate) max_end: Lsn,
}

/// Where an area goes on: what recovery found in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Resume {
    /// The number of the next section.
    pub(crate) next_number: u64,
    /// The sequence number of the next request.
    pub(crate) next_sequence: u64,
    /// The largest end LSN in the area.
    pub(crate) stream_lsn: Lsn,
    /// The sections that hold something needed, in order, without gaps up to the next number.
    pub(crate) used: VecDeque<UsedSection>,
}

/// Where one request goes.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// The request's offset on the device, in bytes.
    pub(crate) offset: u64,
    pub(crate) section: u64,
    pub(crate) sequence: u64,
    /// The largest end LSN in the area before it.
    pub(crate) stream_lsn: Lsn,
    pub(crate) layout: Layout,
    pub(crate) tail: Arc<Tail>,
    /// Present if the request opens its section: what the section's header says about the previous one.
    pub(crate) opens: Option<Vec<StrideEntry>>,
}

/// The section that is being filled.
#[derive(Clone, Debug)]
struct Open {
    number: u64,
    /// The section's first unused byte, counted from its start.
    next: u64,
    entries: Vec<StrideEntry>,
}

/// A device's main area or its hiding area.
#[derive(Debug)]
pub(crate) struct Area {
    pub(crate) layout: Layout,
    is_hiding: bool,
    /// Free sections that no request opens: where two copies are kept, one is for the copies that recovery makes.
    pub(crate) reserve: u64,
    resume: Resume,
    open: Option<Open>,
    tail: Arc<Tail>,
}

impl Area {
    pub(crate) fn main(layout: Layout, resume: Resume) -> Area {
        Area::new(layout, resume, false)
    }

    pub(crate) fn hiding(layout: Layout, resume: Resume) -> Area {
        Area::new(layout, resume, true)
    }

    fn new(layout: Layout, resume: Resume, is_hiding: bool) -> Area {
        let area = Area { layout, is_hiding, reserve: 0, resume, open: None, tail: Arc::default() };
        area.check();
        area
    }

    /// The largest end LSN ever given to the area.
    pub(crate) fn max_end(&self) -> Lsn {
        self.resume.stream_lsn
    }

    /// Whether a request that starts at `start` keeps LSNs in this area from decreasing.
    pub(crate) fn keeps_order(&self, start: Lsn) -> bool {
        start >= self.resume.stream_lsn
    }

    /// Sections that hold nothing needed.
    pub(crate) fn free_sections(&self) -> u64 {
        self.layout.section_count - self.resume.used.len() as u64
    }

    /// Whether a request may open a section.
    pub(crate) fn can_open_section(&self) -> bool {
        self.free_sections() > self.reserve
    }

    /// Whether a request of `bytes` bytes of header and payload fits the open section.
    pub(crate) fn fits_open(&self, bytes: u64) -> bool {
        let bytes = self.layout.request_bytes(bytes);
        self.open.as_ref().is_some_and(|open| open.next + bytes <= self.layout.section_bytes)
    }

    /// Whether a request of `bytes` bytes of header and payload fits the area.
    pub(crate) fn has_room(&self, bytes: u64) -> bool {
        self.fits_open(bytes) || self.can_open_section()
    }

    /// Request bytes that the area certainly takes, whatever their sizes.
    pub(crate) fn assured_bytes(&self) -> u64 {
        let section = self.layout.assured_section_bytes();
        let open = self.open.as_ref().map_or(0, |open| section.saturating_sub(open.next - BLOCK as u64));
        open + section * self.free_sections().saturating_sub(self.reserve)
    }

    /// As [`assured_bytes`](Self::assured_bytes), of an empty area.
    pub(crate) fn assured_bytes_when_empty(&self) -> u64 {
        self.layout.assured_section_bytes() * (self.layout.section_count - self.reserve)
    }

    /// Bytes of the sections in use, the unwritten rest of the open one not included.
    pub(crate) fn used_bytes(&self) -> u64 {
        let rest = self.open.as_ref().map_or(0, |open| self.layout.section_bytes - open.next);
        self.resume.used.len() as u64 * self.layout.section_bytes - rest
    }

    /// Gives a request of `bytes` bytes of header and payload that reaches from `start` to `end` its place.
    ///
    /// # Panics
    /// If there is no room, or LSNs in a hiding area would decrease.
    pub(crate) fn place(&mut self, bytes: u64, start: Lsn, end: Lsn) -> Place {
        assert!(!self.is_hiding || self.keeps_order(start), "LSNs in a hiding area never decrease");
        let opens = (!self.fits_open(bytes)).then(|| self.open_section());
        let bytes = self.layout.request_bytes(bytes);
        assert!(bytes <= self.layout.max_request_bytes(), "requests are sealed before they are too large");
        let stride = self.layout.section_bytes.div_ceil(BLOCK as u64).div_ceil(MAX_ENTRIES as u64) * BLOCK as u64;
        let open = self.open.as_mut().expect("a section was opened if none had room");
        let section = self.layout.section(open.number);
        let place = Place {
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
        place
    }

    /// Moves on to the next section and returns what its header says about the one before.
    fn open_section(&mut self) -> Vec<StrideEntry> {
        assert!(self.can_open_section(), "a request is placed where there is room for it");
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

    fn layout(alignment: u64, block_bytes: u64) -> Layout {
        Layout { base: 16384, section_bytes: 65536, section_count: 4, alignment, block_bytes, depth: 1 }
    }

    fn area(alignment: u64, block_bytes: u64) -> Area {
        Area::main(layout(alignment, block_bytes), Resume::default())
    }

    fn place(area: &mut Area, blocks: u64, end: u64) -> Place {
        area.place(blocks * 4096, Lsn::new(end - 1), Lsn::new(end))
    }

    #[test]
    #[should_panic(expected = "never decrease")]
    fn a_hiding_area_refuses_a_request_older_than_its_newest() {
        let mut hiding = Area::hiding(layout(4096, 4096), Resume::default());
        place(&mut hiding, 1, 10);
        place(&mut hiding, 1, 10);
    }

    #[test]
    fn requests_fill_a_section_and_move_on() {
        let mut area = area(4096, 4096);
        let first = place(&mut area, 4, 10);
        assert_eq!((first.offset, first.section, first.opens), (16384 + 4096, 0, Some(vec![])));
        for n in 1..3 {
            assert_eq!(place(&mut area, 4, 10 + n).section, 0);
        }
        let second = place(&mut area, 4, 13);
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
            let mut area = area(alignment, block_bytes);
            let at_most = [16384, 5000, 700][random.usize(0..3)];
            loop {
                let before = area.assured_bytes();
                let bytes = random.u64(97..=at_most);
                if !area.has_room(bytes) {
                    assert!(before < area.layout.request_bytes(bytes));
                    break;
                }
                area.place(bytes, Lsn::new(0), Lsn::new(1));
                assert!(area.assured_bytes() + area.layout.request_bytes(bytes) >= before);
            }
        }
    }

    #[test]
    fn sections_are_freed_by_checkpoints_only() {
        let mut area = area(4096, 4096);
        let mut end = 0;
        while area.has_room(16384) {
            end += 10;
            place(&mut area, 4, end);
        }
        assert_eq!(area.free_sections(), 0);
        area.release(Lsn::new(29));
        assert_eq!(area.free_sections(), 0, "the first section ends at 30");
        area.release(Lsn::new(30));
        assert_eq!(area.free_sections(), 1);
        area.release(Lsn::new(end));
        assert_eq!(area.free_sections(), 3, "the open section stays");
        assert_eq!(place(&mut area, 4, end + 10).offset, 16384 + 4096, "around the circle");
    }
}
