//! The map after a power cut: from the journal, from a dump if there is one, and from spare areas.
//!
//! For every sector the youngest word counts. A place that the journal names is believed only if the page there is
//! whole and still holds that sector; of the pages themselves, those younger than the journal's word for their sector.

use super::{BlockUse, PageMapped, kind};
use crate::Nanos;
use crate::nand::{NO_UNIT, PageState};
use tantalum_device::sparse::PIECE_BYTES;

/// A list of changes of the map from outside the journal, with its sequence number.
pub(crate) type Changes = (u64, Vec<(u32, u32)>);

impl PageMapped {
    /// Power is about to fail: takes back what has not begun at `now`, so that the map in memory is that of `now`. What
    /// is under way goes on.
    pub(crate) fn retract(&mut self, now: Nanos) {
        for earlier in std::mem::take(&mut self.moves).into_iter().rev().filter(|earlier| earlier.start >= now) {
            self.map[earlier.unit as usize] = earlier.from;
            self.journal.note(earlier.unit);
        }
        // What journal pages that are never written would have told is to be told again.
        for page in self.nand.not_begun(now) {
            let spare = *self.nand.spare(page);
            if spare.kind == kind::DELTA {
                let pairs = pairs(&self.page_words(page), spare.units[0]);
                pairs.into_iter().for_each(|(unit, _)| self.journal.note(unit));
            }
        }
        self.nand.retract(now);
    }

    /// Rebuilds everything from flash and lists of changes from a dump, and makes all blocks usable again. Returns when that is done.
    pub fn recover(&mut self, now: Nanos, dumped: &[Changes]) -> Nanos {
        self.is_read_only = self.ring_is_worn_out();
        let (mut words, journal_done) = self.read_journal(now);
        let journaled: Vec<u32> = words.iter().map(|&(_, slot)| slot).collect();
        for (sequence, changes) in dumped {
            apply(&mut words, *sequence, changes);
        }
        let scanned = self.scan(journal_done, &mut words);
        // What is written from now on is younger than the dump too, should recovery begin again.
        self.sequence = dumped.iter().map(|&(sequence, _)| sequence).fold(self.sequence, u64::max);
        self.adopt(&words, &journaled);
        let done = self.reopen(scanned);
        self.set_spares_aside();
        if self.is_read_only {
            self.programs_done = done;
            return done;
        }
        self.restart_journal(done)
    }

    /// The place of each sector by the journal, with the sequence number of that word.
    fn read_journal(&mut self, now: Nanos) -> (Vec<(u64, u32)>, Nanos) {
        let mut done = now;
        let mut pages = Vec::new();
        for (index, block) in self.layout.journal_blocks.clone().into_iter().enumerate() {
            self.journal.youngest[index] = 0;
            for page in self.written_pages(block) {
                done = done.max(self.nand.read(now, page, self.layout.geometry.page_bytes));
                let spare = self.nand.spare(page);
                if spare.state == PageState::Programmed {
                    self.journal.youngest[index] = self.journal.youngest[index].max(spare.sequence);
                    pages.push((spare.sequence, page));
                }
            }
        }
        pages.sort_unstable();
        let mut words = vec![(0, NO_UNIT); self.map.len()];
        for (sequence, page) in pages {
            let spare = *self.nand.spare(page);
            let bytes = self.page_words(page);
            self.sequence = self.sequence.max(sequence);
            if spare.kind == kind::MAP {
                let first = spare.units[0] as usize * self.layout.map_page_entries as usize;
                for (word, slot) in words.iter_mut().skip(first).zip(bytes) {
                    *word = (sequence, !slot);
                }
                if let Some(base) = self.journal.bases.get_mut(spare.units[0] as usize) {
                    *base = sequence;
                }
            } else {
                apply(&mut words, sequence, &pairs(&bytes, spare.units[0]));
            }
        }
        (words, done)
    }

    /// A page's data as words.
    pub(crate) fn page_words(&self, page: u32) -> Vec<u32> {
        let mut words = Vec::with_capacity(self.layout.map_page_entries as usize);
        for index in 0..self.layout.page_sectors as usize {
            match self.nand.piece(page, index) {
                Some(piece) => words.extend(piece.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))),
                None => words.extend([0; PIECE_BYTES / 4]),
            }
        }
        words
    }

    /// Lets data pages that are younger than the journal's word speak. Reads a page of every block, and all pages of
    /// those blocks that were written after the journal.
    fn scan(&mut self, now: Nanos, words: &mut [(u64, u32)]) -> Nanos {
        let journaled = self.sequence;
        let mut done = now;
        for plane in 0..self.layout.geometry.planes() {
            for block in self.layout.data_blocks(plane) {
                let pages = self.written_pages(block);
                let is_young = pages.clone().any(|page| self.nand.spare(page).sequence > journaled);
                let to_read = if is_young { pages.len() } else { pages.len().min(1) };
                for page in pages.clone().take(to_read) {
                    done = done.max(self.nand.read(now, page, 0));
                }
                for page in pages {
                    let spare = *self.nand.spare(page);
                    if spare.state != PageState::Programmed || spare.kind != kind::DATA {
                        continue;
                    }
                    self.sequence = self.sequence.max(spare.sequence);
                    for index in 0..self.layout.page_sectors {
                        if let Some(word) = words.get_mut(spare.units[index as usize] as usize)
                            && word.0 < spare.sequence
                        {
                            *word = (spare.sequence, page * self.layout.page_sectors + index);
                        }
                    }
                }
            }
        }
        done
    }

    /// Takes the map over, with all that is derived from it.
    fn adopt(&mut self, words: &[(u64, u32)], journaled: &[u32]) {
        self.blocks.fill(BlockUse::default());
        self.moves.clear();
        for plane in &mut self.planes {
            *plane = super::Plane::new(Vec::new(), self.mapping.placement_handles);
        }
        self.journal.clear();
        for (unit, &(sequence, slot)) in words.iter().enumerate() {
            self.map[unit] = NO_UNIT;
            let (page, index) = self.layout.place(slot);
            if slot == NO_UNIT || page >= self.layout.geometry.pages() {
                continue;
            }
            let spare = self.nand.spare(page);
            let is_here = spare.state == PageState::Programmed
                && spare.kind == kind::DATA
                && spare.units[index] == unit as u32
                && spare.sequence <= sequence;
            if is_here {
                self.map[unit] = slot;
                let block = self.layout.geometry.block_of(page);
                self.blocks[block as usize].valid += 1;
                self.planes[self.layout.geometry.plane_of(block) as usize].valid += 1;
            }
        }
        for (unit, slot) in journaled.iter().enumerate() {
            if self.map[unit] != *slot {
                self.journal.note(unit as u32);
            }
        }
    }

    /// Sorts blocks into free, open and closed ones, and erases those that hold nothing.
    fn reopen(&mut self, now: Nanos) -> Nanos {
        let mut done = now;
        let pages = self.layout.geometry.pages_per_block;
        for plane in 0..self.layout.geometry.planes() {
            let mut partial = Vec::new();
            for block in self.layout.data_blocks(plane) {
                let written = self.written_pages(block);
                self.blocks[block as usize].youngest =
                    written.clone().map(|page| self.nand.spare(page).sequence).max().unwrap_or(0);
                match self.nand.block(block).next_page {
                    _ if self.nand.block(block).is_bad => {}
                    0 => self.planes[plane as usize].free.push(block),
                    _ if self.blocks[block as usize].valid == 0 => {
                        done = done.max(self.free_block(plane, block, now));
                    }
                    next if next < pages => partial.push((next, block)),
                    _ => {}
                }
            }
            // The emptiest goes to collection, which must never lack room.
            partial.sort_unstable();
            let mut partial = partial.into_iter().map(|(_, block)| block);
            self.planes[plane as usize].survivors = partial.next();
            self.planes[plane as usize].host.iter_mut().for_each(|host| *host = partial.next());
        }
        done
    }

    /// Lets the journal go on after its youngest page, with all that it does not say yet.
    fn restart_journal(&mut self, now: Nanos) -> Nanos {
        self.programs_done = now;
        let ring = (0..self.layout.journal_blocks.len()).filter(|&index| !self.is_bad_in_ring(index));
        let youngest = ring.max_by_key(|&index| self.journal.youngest[index]);
        self.journal.head = youngest.expect("the ring has blocks");
        // Not clean if the cut came while it was being cleaned.
        self.clean_next(now);
        self.advance_journal(now);
        self.sync(now)
    }

    fn written_pages(&self, block: u32) -> std::ops::Range<u32> {
        let first = block * self.layout.geometry.pages_per_block;
        first..first + self.nand.block(block).next_page
    }
}

/// Lets a list of changes speak, where nothing younger has.
fn apply(words: &mut [(u64, u32)], sequence: u64, changes: &[(u32, u32)]) {
    for &(unit, slot) in changes {
        if let Some(word) = words.get_mut(unit as usize)
            && word.0 < sequence
        {
            *word = (sequence, slot);
        }
    }
}

/// The first `count` pairs of words.
pub(crate) fn pairs(words: &[u32], count: u32) -> Vec<(u32, u32)> {
    words.as_chunks::<2>().0.iter().take(count as usize).map(|&[unit, slot]| (unit, slot)).collect()
}
