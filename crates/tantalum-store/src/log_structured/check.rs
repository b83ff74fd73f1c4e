//! Checking: the map and what is known of segments say the same.
//!
//! Both are copied at one moment, and compared afterwards: the store stands still for as long as it takes to copy eight bytes a
//! page in memory.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    Shared,
    segments::{Segment, State},
};

impl Shared {
    /// Tells what is wrong.
    pub(super) fn check_table(&self, found: &mut dyn FnMut(String)) {
        let (map, segments) = {
            // Nothing of it changes meanwhile: the lock is that of every change.
            let table = self.table.read();
            let known = |segment: &Segment| (segment.page_blocks, segment.map_blocks, segment.state());
            let segments: Vec<_> = table.segments.iter().map(|(_, segment)| known(segment)).collect();
            (table.map.clone(), segments)
        };
        let mut places = BTreeSet::new();
        let mut live: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (id, place) in map.pages() {
            let Some((segment, block)) = self.layout.segment_of(place) else {
                found(format!("page {id} is said to be at byte {}, before the first segment", place.offset()));
                continue;
            };
            if !places.insert(place) {
                found(format!("page {id} is said to be at byte {}, where another is", place.offset()));
            }
            if block == 0 || segment as usize >= segments.len() {
                found(format!("page {id} is said to be at byte {}, where no page can be", place.offset()));
                continue;
            }
            live.entry(segment).or_default().0 += self.layout.page_blocks();
        }
        for (_, place) in map.blocks() {
            if let Some((segment, _)) = self.layout.segment_of(place) {
                live.entry(segment).or_default().1 += 1;
            }
        }
        for (number, (page_blocks, map_blocks, state)) in (0..).zip(segments) {
            let (pages, map) = live.get(&number).copied().unwrap_or_default();
            // Of the map, a checkpoint that is under way has blocks in two places.
            if page_blocks != pages || map_blocks < map {
                found(format!(
                    "segment {number} has {pages} blocks of pages and {map} of the map, and is taken to have {page_blocks} and \
                     {map_blocks}"
                ));
            }
            if page_blocks + map_blocks > 0 && matches!(state, State::Free | State::Discarding) {
                let blocks = page_blocks + map_blocks;
                found(format!("segment {number} is taken to be free, and has {blocks} live blocks"));
            }
        }
    }
}
