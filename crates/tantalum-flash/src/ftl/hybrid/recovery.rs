//! The map, rebuilt from the flash after a loss of power.
//!
//! Every page tells in its spare area which page of the host it is and when it was written. A unit that has one block,
//! programmed in order, is found as it was; one with a log beside it, with torn pages, or with a part of a page in the
//! scratch unit, is copied from the newest of all. Blocks whose pages are all found elsewhere as new or newer go first,
//! so that recoveries that are cut themselves leave nothing behind.

use std::collections::BTreeMap;

use tantalum_device::sparse::PIECE_BYTES;

use super::{Hybrid, Image, KIND_SCRATCH, KIND_UNIT, NONE, spare};
use crate::Nanos;
use crate::nand::PageState;

/// The newest copy of a page.
#[derive(Debug, Clone, Copy)]
struct Version {
    sequence: u64,
    place: u32,
}

/// What was found in one block of a unit.
#[derive(Debug)]
struct Found {
    block: u32,
    /// By page of the unit.
    versions: Vec<Option<Version>>,
    /// Whether it could be the unit's only block.
    is_in_order: bool,
}

impl Found {
    fn holds(&self, index: usize, sequence: u64) -> bool {
        self.versions[index].is_some_and(|version| version.sequence >= sequence)
    }

    fn pages(&self) -> usize {
        self.versions.iter().flatten().count()
    }
}

/// The newest part of a page in the scratch unit.
#[derive(Debug, Clone, Copy)]
struct Part {
    version: Version,
    filled: usize,
}

#[derive(Debug, Default)]
struct Survey {
    units: BTreeMap<u32, Vec<Found>>,
    parts: BTreeMap<u32, Part>,
    scratch: Vec<u32>,
    /// Blocks without a page that can be read.
    junk: Vec<u32>,
}

impl Hybrid {
    /// Power returns: the map is rebuilt from the spare areas. Returns when that is done.
    pub fn power_on(&mut self, now: Nanos) -> Nanos {
        self.map.fill(NONE);
        self.logs.clear();
        self.free.clear();
        self.stale.iter_mut().for_each(Vec::clear);
        (self.scratch, self.scratch_used) = (None, 0);
        self.sequence = 1;
        self.settled_at = now;
        self.is_dead = false;
        let blocks = self.nand.geometry().blocks_per_plane;
        let good: Vec<u32> = (0..blocks).filter(|&block| !self.is_bad(block)).collect();
        self.good_blocks = good.len() as u32;
        let mut survey = Survey::default();
        for block in good {
            let read = self.nand.read(now, self.page_at(block, 0), 0);
            self.settled_at = self.settled_at.max(read);
            self.inspect(block, &mut survey);
        }
        for block in std::mem::take(&mut survey.junk) {
            self.erase_block(block);
        }
        for found in survey.units.values_mut() {
            self.drop_redundant(found);
        }
        let touched: Vec<u32> = survey.parts.keys().map(|page| page / self.unit_pages).collect();
        for unit in touched {
            survey.units.entry(unit).or_default();
        }
        for (unit, found) in std::mem::take(&mut survey.units) {
            self.restore(unit, found, &survey.parts);
        }
        for block in survey.scratch {
            self.erase_block(block);
        }
        self.settled_at
    }

    /// Reads the spare areas of a block.
    fn inspect(&mut self, block: u32, survey: &mut Survey) {
        let mut found = Found { block, versions: Vec::new(), is_in_order: true };
        let (mut owner, mut is_scratch, mut is_ended, mut torn) = (None, false, false, 0);
        for position in 0..self.unit_pages {
            let place = self.page_at(block, position);
            let spare = *self.nand.spare(place);
            let [page, filled, ..] = spare.units;
            torn += u64::from(spare.state == PageState::Torn);
            if spare.state != PageState::Programmed {
                found.is_in_order &= spare.state == PageState::Erased;
                is_ended = true;
                continue;
            }
            let version = Version { sequence: spare.sequence, place };
            self.sequence = self.sequence.max(spare.sequence);
            if spare.kind == KIND_SCRATCH {
                is_scratch = true;
                let part = Part { version, filled: filled as usize };
                let newest = survey.parts.entry(page).or_insert(part);
                if newest.version.sequence < spare.sequence {
                    *newest = part;
                }
                continue;
            }
            debug_assert_eq!(spare.kind, KIND_UNIT);
            if page / self.unit_pages >= self.map.len() as u32 {
                continue;
            }
            found.versions.resize(self.unit_pages as usize, None);
            owner = Some(page / self.unit_pages);
            let index = page % self.unit_pages;
            found.is_in_order &= index == position && !is_ended;
            let newest = found.versions[index as usize].get_or_insert(version);
            if newest.sequence <= spare.sequence {
                *newest = version;
            }
        }
        self.counters.torn_found += torn;
        match owner {
            Some(unit) => survey.units.entry(unit).or_default().push(found),
            None if is_scratch => survey.scratch.push(block),
            None => survey.junk.push(block),
        }
    }

    /// Erases blocks that hold nothing of which there is not a copy, as new or newer, in another.
    fn drop_redundant(&mut self, found: &mut Vec<Found>) {
        found.sort_by_key(|block| (block.is_in_order, block.pages()));
        let mut number = 0;
        while number < found.len() {
            let others = || found.iter().enumerate().filter(|&(other, _)| other != number).map(|(_, block)| block);
            let mut versions = found[number].versions.iter().enumerate();
            let is_redundant = versions.all(|(index, version)| {
                version.is_none_or(|version| others().any(|block| block.holds(index, version.sequence)))
            });
            if is_redundant {
                self.erase_block(found.remove(number).block);
            } else {
                number += 1;
            }
        }
    }

    /// Makes a unit whole: maps its block as it is, or copies the newest of each page.
    fn restore(&mut self, unit: u32, found: Vec<Found>, parts: &BTreeMap<u32, Part>) {
        let newest = |index: u32| {
            let versions = found.iter().filter_map(|block| block.versions[index as usize]);
            versions.max_by_key(|version| version.sequence)
        };
        let part = |index: u32| {
            let part = parts.get(&(unit * self.unit_pages + index))?;
            newest(index).is_none_or(|page| page.sequence < part.version.sequence).then_some(*part)
        };
        let wanted: Vec<(Option<Version>, Option<Part>)> =
            (0..self.unit_pages).map(|index| (newest(index), part(index))).collect();
        let has_parts = wanted.iter().any(|(_, part)| part.is_some());
        match &found[..] {
            [] if !has_parts => return,
            [only] if only.is_in_order && !has_parts => {
                self.map[unit as usize] = only.block;
                return;
            }
            _ => {}
        }
        self.counters.full_merges += 1;
        if self.free.is_empty() {
            self.is_dead = true;
            return;
        }
        let (start, target) = (self.settled_at, self.allocate(self.settled_at));
        let end = wanted.iter().rposition(|(page, part)| page.is_some() || part.is_some()).map_or(0, |last| last + 1);
        for (index, (page, part)) in wanted.into_iter().take(end).enumerate() {
            let (mut image, mut ready, mut sequence): (Image, _, _) = ([0; PIECE_BYTES], start, 0);
            for (version, len) in [page.map(|page| (page, PIECE_BYTES)), part.map(|part| (part.version, part.filled))]
                .into_iter()
                .flatten()
            {
                ready = ready.max(self.nand.read(start, version.place, PIECE_BYTES as u32));
                self.load(version.place, &mut image, len);
                sequence = version.sequence;
            }
            let page = unit * self.unit_pages + index as u32;
            self.program(ready, target, index as u32, spare(KIND_UNIT, page, NONE, sequence), &image);
        }
        self.map[unit as usize] = target;
        for block in found {
            self.erase_block(block.block);
        }
    }
}
