//! Which physical units are free, and how worn each is.
//!
//! Invariant: a unit is free, taken, or bad; it is freed by the task that has taken it, when nothing on it is needed any more.

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
    /// The least units that are never given to pages: merges and overflow take them.
    reserve_min: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    units: Vec<Unit>,
    /// Free units, the least worn first.
    free: BTreeSet<(u32, u32)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unit {
    erase_count: u32,
    place: Place,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Free { is_erased: bool },
    Taken,
    Bad,
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
        Self { reserve_min, state: Mutex::default() }
    }

    /// Makes it known that there are `units` units in all; new ones are free and not erased.
    pub fn grow(&self, units: u32) {
        let mut state = self.state.lock();
        for physical in state.units.len() as u32..units {
            let place = if physical < RESERVED_UNITS { Place::Taken } else { Place::Free { is_erased: false } };
            state.units.push(Unit { erase_count: 0, place });
            if physical >= RESERVED_UNITS {
                state.free.insert((0, physical));
            }
        }
    }

    /// Notes, at opening, that a free unit is in use.
    pub fn claim(&self, physical: u32, erase_count: u32) {
        let mut state = self.state.lock();
        let old = state.units[physical as usize];
        assert!(state.free.remove(&(old.erase_count, physical)), "a unit is claimed once");
        state.units[physical as usize] = Unit { erase_count, place: Place::Taken };
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
        self.take_from(|free| free.first().copied())
    }

    /// Takes the most worn free unit: for what will lie there for long.
    pub fn take_most_worn(&self) -> Option<Taken> {
        self.take_from(|free| free.last().copied())
    }

    fn take_from(&self, choose: impl FnOnce(&BTreeSet<(u32, u32)>) -> Option<(u32, u32)>) -> Option<Taken> {
        let mut state = self.state.lock();
        let (erase_count, physical) = choose(&state.free)?;
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
        *slot = Unit { erase_count: unit.erase_count, place: Place::Free { is_erased: unit.is_erased } };
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
        let units = self.usable();
        (units / RESERVE_PART).max(self.reserve_min)
    }

    /// Logical units that there is room for.
    pub fn logical_units(&self) -> u32 {
        self.usable().saturating_sub(self.reserve())
    }

    fn usable(&self) -> u32 {
        (self.state.lock().units.len() as u32).saturating_sub(RESERVED_UNITS)
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
