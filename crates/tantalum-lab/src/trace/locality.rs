//! Where a trace's changes and writes go ("In-Page Logging", section 4.2.2, Figure 4).

use std::collections::{HashMap, VecDeque};

use serde::Serialize;

use super::pages::ERASE_UNIT_BYTES;

/// Consecutive page writes that are looked at together, as in the paper.
pub const WINDOW: usize = 16;
/// Pages and erase units of Figure 4.
const TOP_PAGES: usize = 2000;
const TOP_UNITS: usize = 100;

/// Where changes and writes go.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Locality {
    /// Changes by page, of the 2000 with the most (Figure 4a).
    pub changes: Shares,
    /// Writes by page, of the 2000 with the most (4b).
    pub writes: Shares,
    /// Writes by erase unit without a log region, of the 100 with the most (4c).
    pub unit_writes: Shares,
    /// Of 16 consecutive writes, how many go to different pages, on average.
    pub distinct_pages: f64,
    /// The same for erase units.
    pub distinct_units: f64,
    /// The chance that all 16 go to different pages.
    pub all_pages_distinct: f64,
    /// The same for erase units.
    pub all_units_distinct: f64,
}

/// How something is distributed over the places that have most of it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shares {
    /// Places that have any.
    pub places: u64,
    /// How much there is altogether.
    pub total: u64,
    /// The share of those that have most.
    pub share_of_top: f64,
    /// How much each of those has, in descending order.
    pub top: Vec<u64>,
}

impl Shares {
    fn of(counts: HashMap<u64, u64>, top: usize) -> Self {
        let (places, total) = (counts.len() as u64, counts.values().sum::<u64>());
        let mut counts: Vec<u64> = counts.into_values().collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts.truncate(top);
        let share_of_top = counts.iter().sum::<u64>() as f64 / total.max(1) as f64;
        Self { places, total, share_of_top, top: counts }
    }
}

/// Counts while a trace is read.
pub(super) struct Counting {
    pages_per_unit: u64,
    changes: HashMap<u64, u64>,
    writes: HashMap<u64, u64>,
    units: HashMap<u64, u64>,
    pages: Window,
    last_units: Window,
}

impl Counting {
    pub fn new(page_bytes: u32) -> Self {
        Self {
            pages_per_unit: u64::from(ERASE_UNIT_BYTES / page_bytes).max(1),
            changes: HashMap::new(),
            writes: HashMap::new(),
            units: HashMap::new(),
            pages: Window::default(),
            last_units: Window::default(),
        }
    }

    pub fn change(&mut self, page: u64) {
        *self.changes.entry(page).or_default() += 1;
    }

    pub fn write(&mut self, page: u64) {
        let unit = page / self.pages_per_unit;
        *self.writes.entry(page).or_default() += 1;
        *self.units.entry(unit).or_default() += 1;
        self.pages.push(page);
        self.last_units.push(unit);
    }

    pub fn end(self) -> Locality {
        Locality {
            changes: Shares::of(self.changes, TOP_PAGES),
            writes: Shares::of(self.writes, TOP_PAGES),
            unit_writes: Shares::of(self.units, TOP_UNITS),
            distinct_pages: self.pages.mean(),
            distinct_units: self.last_units.mean(),
            all_pages_distinct: self.pages.share_of_full(),
            all_units_distinct: self.last_units.share_of_full(),
        }
    }
}

/// A window that slides over places.
#[derive(Default)]
struct Window {
    last: VecDeque<u64>,
    /// Windows seen, the different places in all of them, and those whose places are all different.
    windows: u64,
    distinct: u64,
    full: u64,
}

impl Window {
    fn push(&mut self, place: u64) {
        self.last.push_back(place);
        if self.last.len() > WINDOW {
            self.last.pop_front();
        }
        if self.last.len() == WINDOW {
            let is_first = |&(at, place): &(usize, &u64)| self.last.iter().take(at).all(|other| other != place);
            let distinct = self.last.iter().enumerate().filter(is_first).count();
            self.windows += 1;
            self.distinct += distinct as u64;
            self.full += u64::from(distinct == WINDOW);
        }
    }

    fn mean(&self) -> f64 {
        self.distinct as f64 / self.windows.max(1) as f64
    }

    fn share_of_full(&self) -> f64 {
        self.full as f64 / self.windows.max(1) as f64
    }
}
