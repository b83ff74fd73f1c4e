//! Checking: the map and what is known of segments say the same.

use std::collections::{BTreeMap, BTreeSet};

use super::{Shared, segments::State};

impl Shared {
    /// Tells what is wrong.
    pub(super) fn check_table(&self, found: &mut dyn FnMut(String)) {
        // Nothing of it changes meanwhile: the lock is that of every change.
        let table = self.table.read();
        let mut places = BTreeSet::new();
        let mut live: BTreeMap<u32, (u32, u32)> = BTreeMap::new();
        for (id, place) in table.map.pages() {
            let Some((segment, block)) = self.layout.segment_of(place) else {
                found(format!("page {id} is said to be at byte {}, before the first segment", place.offset()));
                continue;
            };
            if !places.insert(place) {
                found(format!("page {id} is said to be at byte {}, where another is", place.offset()));
            }
            if block == 0 || segment >= table.segments.count() {
                found(format!("page {id} is said to be at byte {}, where no page can be", place.offset()));
                continue;
            }
            live.entry(segment).or_default().0 += self.layout.page_blocks();
        }
        for (_, place) in table.map.blocks() {
            if let Some((segment, _)) = self.layout.segment_of(place) {
                live.entry(segment).or_default().1 += 1;
            }
        }
        for (number, segment) in table.segments.iter() {
            let (pages, map) = live.get(&number).copied().unwrap_or_default();
            // Of the map, a checkpoint that is under way has blocks in two places.
            if segment.page_blocks != pages || segment.map_blocks < map {
                let (counted_pages, counted_map) = (segment.page_blocks, segment.map_blocks);
                found(format!(
                    "segment {number} has {pages} blocks of pages and {map} of the map, and is taken to have {counted_pages} and \
                     {counted_map}"
                ));
            }
            if segment.live_blocks() > 0 && matches!(segment.state(), State::Free | State::Discarding) {
                found(format!("segment {number} is taken to be free, and has {} live blocks", segment.live_blocks()));
            }
        }
    }
}
