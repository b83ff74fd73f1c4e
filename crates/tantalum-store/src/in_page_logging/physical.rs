//! Which physical units are free, and how worn each is.
//!
//! Invariants:
//! - a unit is free, taken, or bad; it is freed by the task that has taken it, when nothing on it is needed any more
//! - what may be active never becomes less while the store is open, so the reserve does not either

use std::collections::BTreeSet;

use tantalum_rt::Mutex;

use super::geometry::RESERVED_UNITS;

/// The part of all units that is never given to pages.
const RESERVE_PART: u32 = 32;

/// A unit that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Which.
    pub physical: u32,
    /// How often it was erased, as far as is known.
    pub erase_count: u32,
    /// Whether it was erased since it was last written.
    pub is_erased: bool,
}

/// All physical units.
#[derive(Debug)]
pub struct Physical {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    units: Vec<Unit>,
    /// Free units, the least worn first.
    free: BTreeSet<(u32, u32)>,
    /// Units that are never given to pages: merges and overflow take them.
    reserve: u32,
    /// While there is one, a free unit before this one is taken, since the end is to be given back.
    preferred_before: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    erase_count: u32,
    place: Place,
    /// The highest logical unit of which it may bear a header as of a version, present or not. On a device that does not erase, one
    /// stays when the unit is freed.
    bears: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free { is_erased: bool },
    Taken,
    Bad,
}

impl State {
    /// Units without those of the superblock.
    fn usable(&self) -> u32 {
        (self.units.len() as u32).saturating_sub(RESERVED_UNITS)
    }
}

/// Counts of physical units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PhysicalCounts {
    /// All, without those of the superblock.
    pub units: u32,
    /// Free ones.
    pub free: u32,
    /// Those that failed.
    pub bad: u32,
    /// Erases of the least worn.
    pub erases_min: u32,
    /// Erases of the most worn.
    pub erases_max: u32,
    /// Erases of all together.
    pub erases_sum: u64,
}

impl Physical {
    /// No units yet, of which so many at least will never be given to pages.
    pub fn new(reserve_min: u32) -> Self {
        let (units, free) = (Vec::new(), BTreeSet::new());
        Self { state: Mutex::new(State { units, free, reserve: reserve_min, preferred_before: None }) }
    }

    /// Makes it known that there are `units` units in all; new ones are free and not erased.
    pub fn grow(&self, units: u32) {
        let mut state = self.state.lock();
        state.preferred_before = None;
        for physical in state.units.len() as u32..units {
            let place = if physical < RESERVED_UNITS { Place::Taken } else { Place::Free { is_erased: false } };
            state.units.push(Unit { erase_count: 0, place, bears: None });
            if physical >= RESERVED_UNITS {
                state.free.insert((0, physical));
            }
        }
        state.reserve = state.reserve.max(state.usable() / RESERVE_PART);
    }

    /// So many units are left, the others were free.
    pub fn shrink(&self, units: u32) {
        let mut state = self.state.lock();
        for (physical, unit) in (units..).zip(state.units.split_off(units as usize)) {
            assert!(state.free.remove(&(unit.erase_count, physical)), "a unit that is cut off is free");
        }
    }

    /// Has units before this one taken first, until the store grows.
    pub fn prefer_before(&self, end: u32) {
        self.state.lock().preferred_before = Some(end);
    }

    /// Free units before this one.
    pub fn free_before(&self, end: u32) -> usize {
        self.state.lock().free.iter().filter(|(_, physical)| *physical < end).count()
    }

    /// The unit behind the last one that is not free.
    pub fn used_end(&self) -> u32 {
        let state = self.state.lock();
        let last = state.units.iter().rposition(|unit| !matches!(unit.place, Place::Free { .. }));
        last.map_or(0, |last| last as u32 + 1)
    }

    /// How many units so many logical units need.
    pub fn units_for(&self, logical_units: u32) -> u32 {
        RESERVED_UNITS.saturating_add(self.reserve()).saturating_add(logical_units)
    }

    /// A unit is about to bear, or was found to bear, a header as of a version of this logical unit.
    pub fn note_header(&self, physical: u32, logical: u32) {
        let bears = &mut self.state.lock().units[physical as usize].bears;
        *bears = (*bears).max(Some(logical));
    }

    /// Such a header was written, over any that it bore before.
    pub fn note_only_header(&self, physical: u32, logical: u32) {
        self.state.lock().units[physical as usize].bears = Some(logical);
    }

    /// A unit bears no such header.
    pub fn note_no_header(&self, physical: u32) {
        self.state.lock().units[physical as usize].bears = None;
    }

    /// The units that may bear the header of a logical unit from this one on.
    pub fn bearing_from(&self, logical: u32) -> Vec<u32> {
        let state = self.state.lock();
        let bearing = (0..).zip(&state.units).filter(|(_, unit)| unit.bears.is_some_and(|bears| bears >= logical));
        bearing.map(|(physical, _)| physical).collect()
    }

    /// Notes, at opening, that a free unit is in use.
    pub fn claim(&self, physical: u32, erase_count: u32) {
        let mut state = self.state.lock();
        let old = state.units[physical as usize];
        assert!(state.free.remove(&(old.erase_count, physical)), "a unit is claimed once");
        state.units[physical as usize] = Unit { erase_count, place: Place::Taken, ..old };
    }

    /// Notes, at opening, how worn a free unit is.
    pub fn note_wear(&self, physical: u32, erase_count: u32) {
        let mut state = self.state.lock();
        let old = state.units[physical as usize];
        if state.free.remove(&(old.erase_count, physical)) {
            state.free.insert((erase_count, physical));
            state.units[physical as usize].erase_count = erase_count;
        }
    }

    /// Notes, at opening, that units of which nothing is known are as worn as the average.
    pub fn assume_average_wear(&self) {
        let mut state = self.state.lock();
        let known: Vec<u64> =
            state.units.iter().map(|unit| unit.erase_count.into()).filter(|count| *count > 0).collect();
        let average = (known.iter().sum::<u64>() / known.len().max(1) as u64) as u32;
        let unknown: Vec<_> = state.free.iter().copied().filter(|(count, _)| *count == 0).collect();
        for (count, physical) in unknown {
            state.free.remove(&(count, physical));
            state.free.insert((average, physical));
            state.units[physical as usize].erase_count = average;
        }
    }

    /// Takes the least worn free unit.
    pub fn take(&self) -> Option<Taken> {
        self.take_from(|free, suits| free.iter().find(|unit| suits(unit)).copied())
    }

    /// Takes the most worn free unit: for what will lie there for long.
    pub fn take_most_worn(&self) -> Option<Taken> {
        self.take_from(|free, suits| free.iter().rfind(|unit| suits(unit)).copied())
    }

    fn take_from(
        &self,
        choose: impl Fn(&BTreeSet<(u32, u32)>, &dyn Fn(&(u32, u32)) -> bool) -> Option<(u32, u32)>,
    ) -> Option<Taken> {
        let mut state = self.state.lock();
        let preferred = state.preferred_before.and_then(|end| choose(&state.free, &|(_, physical)| *physical < end));
        let (erase_count, physical) = preferred.or_else(|| choose(&state.free, &|_| true))?;
        state.free.remove(&(erase_count, physical));
        let unit = &mut state.units[physical as usize];
        let Place::Free { is_erased } = unit.place else { unreachable!("it is in the list of free units") };
        unit.place = Place::Taken;
        Some(Taken { physical, erase_count, is_erased })
    }

    /// Frees a unit that was taken. Nothing on it is needed any more.
    pub fn give_back(&self, unit: Taken) {
        let mut state = self.state.lock();
        let slot = &mut state.units[unit.physical as usize];
        assert_eq!(slot.place, Place::Taken, "a unit is freed once, by the task that took it");
        *slot = Unit { erase_count: unit.erase_count, place: Place::Free { is_erased: unit.is_erased }, ..*slot };
        state.free.insert((unit.erase_count, unit.physical));
    }

    /// A unit that was taken is in use: it keeps its count.
    pub fn note_taken_wear(&self, taken: Taken) {
        self.state.lock().units[taken.physical as usize].erase_count = taken.erase_count;
    }

    /// Erases of the most worn free unit.
    pub fn most_worn_free(&self) -> Option<u32> {
        self.state.lock().free.last().map(|(erase_count, _)| *erase_count)
    }

    /// A unit that was taken is never used again.
    pub fn retire(&self, physical: u32) {
        let slot = &mut self.state.lock().units[physical as usize];
        assert_eq!(slot.place, Place::Taken, "a unit that is retired was taken");
        slot.place = Place::Bad;
    }

    /// How often a unit was erased.
    pub fn erase_count(&self, physical: u32) -> u32 {
        self.state.lock().units[physical as usize].erase_count
    }

    /// Free units.
    pub fn free(&self) -> u32 {
        self.state.lock().free.len() as u32
    }

    /// Units that are never given to pages.
    pub fn reserve(&self) -> u32 {
        self.state.lock().reserve
    }

    /// Logical units that there is room for.
    pub fn logical_units(&self) -> u32 {
        let state = self.state.lock();
        state.usable().saturating_sub(state.reserve)
    }

    /// What does not suit the units that are in use. The caller keeps others from taking or freeing units.
    pub fn check(&self, used: &BTreeSet<u32>, found: &mut dyn FnMut(String)) {
        let state = self.state.lock();
        for (physical, unit) in state.units.iter().enumerate().skip(RESERVED_UNITS as usize) {
            let (physical, is_used) = (physical as u32, used.contains(&(physical as u32)));
            let is_listed = state.free.contains(&(unit.erase_count, physical));
            if is_used != (unit.place == Place::Taken) || is_listed != matches!(unit.place, Place::Free { .. }) {
                let use_ = if is_used { "in use" } else { "not in use" };
                found(format!("erase unit {physical} is {use_}, and taken for {:?}", unit.place));
            }
        }
    }

    /// Counts.
    pub fn counts(&self) -> PhysicalCounts {
        let state = self.state.lock();
        let used = state.units.get(RESERVED_UNITS as usize..).unwrap_or_default();
        let wear = || used.iter().map(|unit| unit.erase_count);
        PhysicalCounts {
            units: used.len() as u32,
            free: state.free.len() as u32,
            bad: used.iter().filter(|unit| unit.place == Place::Bad).count() as u32,
            erases_min: wear().min().unwrap_or(0),
            erases_max: wear().max().unwrap_or(0),
            erases_sum: wear().map(u64::from).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_worn_unit_is_taken_first() {
        let physical = Physical::new(8);
        physical.grow(6);
        physical.claim(3, 9);
        physical.note_wear(2, 5);
        physical.assume_average_wear();
        // 4 and 5 are taken to be as worn as the average of 5 and 9.
        let taken = physical.take().unwrap();
        assert_eq!(taken, Taken { physical: 2, erase_count: 5, is_erased: false });
        assert_eq!(physical.take_most_worn().unwrap().physical, 5);
        physical.give_back(Taken { erase_count: 10, is_erased: true, ..taken });
        let counts = PhysicalCounts { units: 4, free: 2, bad: 0, erases_min: 7, erases_max: 10, erases_sum: 33 };
        assert_eq!(physical.counts(), counts);
        physical.retire(3);
        assert_eq!(physical.counts().bad, 1);
    }

    #[test]
    #[should_panic(expected = "freed once")]
    fn a_unit_is_freed_once() {
        let physical = Physical::new(8);
        physical.grow(4);
        let taken = physical.take().unwrap();
        physical.give_back(taken);
        physical.give_back(taken);
    }

    #[test]
    fn pages_never_get_the_reserve() {
        let physical = Physical::new(8);
        physical.grow(2 + 32);
        assert_eq!((physical.reserve(), physical.logical_units()), (8, 24));
        physical.grow(2 + 640);
        assert_eq!((physical.reserve(), physical.logical_units()), (20, 620));
    }
}
