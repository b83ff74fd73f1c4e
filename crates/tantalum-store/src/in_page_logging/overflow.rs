//! Log sectors that find no room in the region of their own unit ("In-Page Logging", section 5.3, Algorithm 3).
//!
//! Overflow units take sectors of any unit, one behind the other. A sector is needed for as long as the version of the
//! unit that it names is the present one; a merge ends that without a write. A unit of which no sector is needed is freed.

use std::collections::BTreeMap;

use super::physical::Taken;

/// The overflow units.
#[derive(Debug, Default)]
pub struct Overflow {
    /// The one that is written, and its next sector.
    current: Option<(u32, usize)>,
    units: BTreeMap<u32, OverflowUnit>,
}

#[derive(Debug)]
struct OverflowUnit {
    taken: Taken,
    /// The versions whose sectors it holds, by their sequence.
    live: BTreeMap<u64, Live>,
}

/// What a version has in an overflow unit.
#[derive(Debug)]
struct Live {
    logical: u32,
    sectors: usize,
}

impl OverflowUnit {
    fn add(&mut self, sequence: u64, logical: u32, sectors: usize) {
        self.live.entry(sequence).or_insert(Live { logical, sectors: 0 }).sectors += sectors;
    }
}

/// A run of sectors in an overflow unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Run {
    /// The unit.
    pub physical: u32,
    /// The sector in the unit that the first goes to.
    pub first: usize,
    /// How many.
    pub count: usize,
}

impl Overflow {
    /// Gives out places for at most `count` sectors of a version; none if a unit must be added first.
    pub fn reserve(&mut self, count: usize, capacity: usize, sequence: u64, logical: u32) -> Option<Run> {
        let (physical, next) = self.current.as_mut()?;
        let run = Run { physical: *physical, first: *next, count: count.min(capacity - *next) };
        *next += run.count;
        let unit = self.units.get_mut(physical).expect("the current unit is one of them");
        unit.add(sequence, logical, run.count);
        if *next == capacity {
            self.current = None;
        }
        Some(run)
    }

    /// Adds a unit, which is written from now on.
    pub fn add(&mut self, taken: Taken) {
        assert!(self.current.is_none(), "an overflow unit is filled before the next is begun");
        self.current = Some((taken.physical, 0));
        self.found(taken);
    }

    /// Adds a unit that opening has found. It is not written any more.
    pub fn found(&mut self, taken: Taken) {
        self.units.insert(taken.physical, OverflowUnit { taken, live: BTreeMap::new() });
    }

    /// A unit holds sectors of a version that is the present one.
    pub fn note_live(&mut self, physical: u32, sequence: u64, logical: u32) {
        let unit = self.units.get_mut(&physical).expect("the unit was found before its sectors");
        unit.add(sequence, logical, 1);
    }

    /// A version is no longer needed. Returns the units that are not needed any more either, which are the caller's.
    pub fn release(&mut self, sequence: u64) -> Vec<Taken> {
        for unit in self.units.values_mut() {
            unit.live.remove(&sequence);
        }
        self.take_dead()
    }

    /// The units that are not needed, which are the caller's.
    pub fn take_dead(&mut self) -> Vec<Taken> {
        let current = self.current.map(|(physical, _)| physical);
        let is_dead = |physical: &u32, unit: &mut OverflowUnit| unit.live.is_empty() && Some(*physical) != current;
        self.units.extract_if(.., is_dead).map(|(_, unit)| unit.taken).collect()
    }

    /// The unit that is written is not any more, if it is this or one behind.
    pub fn close_from(&mut self, physical: u32) {
        self.current.take_if(|(current, _)| *current >= physical);
    }

    /// The units that are not written any more, that first which the fewest versions need.
    pub fn victims(&self) -> Vec<u32> {
        let mut victims: Vec<(usize, u32)> =
            self.closed().map(|(physical, unit)| (unit.live.len(), physical)).collect();
        victims.sort_unstable();
        victims.into_iter().map(|(_, physical)| physical).collect()
    }

    /// The unit that is written is left alone: were it closed whenever room is short, each that follows would hold little.
    fn closed(&self) -> impl Iterator<Item = (u32, &OverflowUnit)> {
        let current = self.current.map(|(physical, _)| physical);
        self.units
            .iter()
            .map(|(physical, unit)| (*physical, unit))
            .filter(move |(physical, _)| Some(*physical) != current)
    }

    /// The logical units whose merge would free a unit.
    pub fn needed_by(&self, physical: u32) -> Vec<u32> {
        let live = self.units.get(&physical).map(|unit| &unit.live);
        let mut logical: Vec<u32> = live.into_iter().flat_map(BTreeMap::values).map(|live| live.logical).collect();
        logical.sort_unstable();
        logical.dedup();
        logical
    }

    /// Whether there are fewer units when what is needed of those that are not written any more is written anew, together.
    pub fn is_scattered(&self, capacity: usize) -> bool {
        let (mut units, mut sectors) = (0, 0);
        for (_, unit) in self.closed() {
            units += 1;
            sectors += unit.live.values().map(|live| live.sectors).sum::<usize>();
        }
        self.begun_by(sectors, capacity) < units
    }

    /// How many units so many sectors begin.
    pub fn begun_by(&self, sectors: usize, capacity: usize) -> usize {
        let room = self.current.map_or(0, |(_, next)| capacity - next);
        sectors.saturating_sub(room).div_ceil(capacity)
    }

    /// The units.
    pub fn units(&self) -> impl Iterator<Item = u32> {
        self.units.keys().copied()
    }

    /// How many units there are.
    pub fn len(&self) -> usize {
        self.units.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taken(physical: u32) -> Taken {
        Taken { physical, erase_count: 1, is_erased: true }
    }

    #[test]
    fn a_unit_is_freed_with_the_last_version_that_needs_it() {
        let mut overflow = Overflow::default();
        assert_eq!(overflow.reserve(3, 4, 10, 1), None);
        overflow.add(taken(7));
        assert_eq!(overflow.reserve(3, 4, 10, 1), Some(Run { physical: 7, first: 0, count: 3 }));
        assert_eq!(overflow.release(10), [], "it is still written");
        assert_eq!(overflow.reserve(3, 4, 11, 2), Some(Run { physical: 7, first: 3, count: 1 }));
        assert_eq!(overflow.reserve(2, 4, 11, 2), None, "it is full");
        overflow.add(taken(8));
        assert_eq!(overflow.reserve(2, 4, 11, 2), Some(Run { physical: 8, first: 0, count: 2 }));
        assert_eq!(overflow.victims(), [7], "the other is still written");
        assert_eq!((overflow.needed_by(8), overflow.needed_by(9)), (vec![2], vec![]));
        assert_eq!(overflow.reserve(2, 4, 12, 3), Some(Run { physical: 8, first: 2, count: 2 }));
        assert_eq!(overflow.victims(), [7, 8]);
        assert_eq!(overflow.release(11), [taken(7)]);
        assert_eq!(overflow.release(12), [taken(8)]);
        assert_eq!(overflow.len(), 0);
    }

    #[test]
    fn units_that_hold_little_are_scattered_while_fewer_would_do() {
        let mut overflow = Overflow::default();
        for (physical, sequence) in [(7, 10), (8, 20)] {
            overflow.add(taken(physical));
            overflow.reserve(2, 4, sequence, physical);
            assert_eq!((overflow.begun_by(2, 4), overflow.begun_by(3, 4), overflow.begun_by(7, 4)), (0, 1, 2));
            overflow.reserve(2, 4, sequence + 1, physical);
        }
        assert!(!overflow.is_scattered(4), "they are full");
        assert_eq!((overflow.release(10), overflow.release(20)), (vec![], vec![]));
        assert!(overflow.is_scattered(4), "one has room for all");
        overflow.note_live(7, 11, 7);
        assert!(!overflow.is_scattered(4), "five sectors take two");
        overflow.add(taken(9));
        overflow.reserve(3, 4, 30, 9);
        assert!(overflow.is_scattered(4), "the one that is written has room for the fifth");
    }
}
