//! Checking: every unit can be read and merged, its header says what is known of it, and every physical unit has one use.
//!
//! A unit is looked at under its lock, which keeps others from storing changes in it meanwhile. The uses of all units are compared
//! at one moment between two batches of changes, in memory: no changes are stored for as long as that takes.

use std::collections::BTreeSet;

use tantalum_device::AlignedBuffer;

use super::{
    InPageStore,
    header::{UnitHeader, UnitKind},
    unit::{Home, Unit},
};
use crate::{Error, Result};

impl InPageStore {
    /// Tells what is wrong with units.
    ///
    /// # Errors
    /// When the device cannot read.
    pub(super) fn check_units(&self, found: &mut dyn FnMut(String)) -> Result<()> {
        let units = self.units.read().len() as u32;
        for logical in 0..units {
            let checked = self.ready_unit(logical).and_then(|unit| {
                // What can be merged can be read.
                self.merge_pages(&unit)?;
                unit.home.as_ref().map_or(Ok(None), |home| self.check_header(&unit, home))
            });
            match checked {
                Ok(problem) => problem.into_iter().for_each(&mut *found),
                Err(error @ Error::Corrupt { .. }) => found(error.to_string()),
                Err(error) => return Err(error),
            }
        }
        self.misuses().into_iter().for_each(found);
        Ok(())
    }

    /// Whether a unit's header is the one of its present version.
    fn check_header(&self, unit: &Unit, home: &Home) -> Result<Option<String>> {
        let geometry = self.medium.geometry;
        let mut sector = AlignedBuffer::zeroed(geometry.sector_bytes);
        let at = geometry.header_at(home.physical);
        let is_whole = self.medium.read_sector(at, &mut sector)?;
        let header = UnitHeader::decode(&sector, self.medium.store, home.physical).filter(|_| is_whole);
        let is_present = header.is_some_and(|header| {
            (header.kind, header.logical, header.sequence, header.pages)
                == (UnitKind::Home, unit.logical, home.sequence, home.pages)
        });
        let (physical, logical, sequence) = (home.physical, unit.logical, home.sequence);
        let expected = format!("the header of unit {logical}, version {sequence}");
        Ok((!is_present).then(|| format!("erase unit {physical}, byte {at}: expected {expected}, found {header:?}")))
    }

    /// Physical units that are used twice, or not as the list of free ones has it.
    fn misuses(&self) -> Vec<String> {
        let (mut problems, mut used) = (Vec::new(), BTreeSet::new());
        // Nothing is taken, moved or freed meanwhile. A unit that is added has no place yet.
        let _alone = self.placing.lock();
        let units: Vec<_> = self.units.read().iter().cloned().collect();
        let overflow = self.overflow.lock();
        let places =
            |unit: &Unit| [unit.home.as_ref().map(|home| home.physical), unit.scratch.map(|taken| taken.physical)];
        let homes = units.iter().flat_map(|unit| places(&unit.read())).flatten();
        for physical in homes.chain(overflow.units()) {
            if !used.insert(physical) {
                problems.push(format!("erase unit {physical} is used twice"));
            }
        }
        self.physical.check(&used, &mut |what| problems.push(what));
        problems
    }
}
