//! Merges ("In-Page Logging", section 3.3, Algorithm 1, and section 5.3, Algorithm 3).
//!
//! A merge writes a unit anew: changes of committed groups go into the pages, those of aborted groups are dropped, those of
//! active groups are carried over, in the fewest sectors that hold them. The new version counts from the moment when its header
//! and the sectors carried into it are whole; only then is the old one's place freed.

use std::sync::Arc;

use tantalum_device::{AlignedBuffer, Durability};
use tantalum_log::Lsn;

use super::{
    InPageStore,
    load::{Collected, Collection, apply},
    physical::{Physical, Taken},
    sector::{Packed, Piece, SectorHead, pack},
    unit::{Home, Index, SectorInfo, Unit},
    unit_counters::Counters,
    unit_header::{UnitHeader, UnitKind},
};
use crate::{PageId, Result, Status, page::header};

/// So many units are tried, one after the other, until one can be written.
const ATTEMPTS: usize = 4;

/// Which free unit a merge takes.
pub(super) type Choice = fn(&Physical) -> Option<Taken>;

/// What a merge makes of the pages of an old version.
pub(super) struct Merged {
    /// All pages, each in its place.
    image: AlignedBuffer,
    /// Those that there are, a bit each.
    present: u64,
    /// The changes of active groups.
    active: Vec<Collection>,
    /// Records of committed groups that were applied.
    applied: usize,
    /// Records of aborted groups.
    dropped: usize,
}

impl InPageStore {
    /// Merges a unit that is locked and ready, and adds changes to its sectors. A unit that was never written is begun.
    /// If it fails, the unit is as before.
    pub(super) fn merge(&self, unit: &mut Unit, incoming: &[Piece<'_>], choice: Choice) -> Result<()> {
        let merged = self.merge_pages(unit)?;
        let carried =
            merged.active.iter().map(|change| Piece::whole(change.page.into(), change.position, &change.bytes));
        let mut packed = pack(carried.chain(incoming.iter().copied()), self.medium.geometry.sector_bytes);
        let sequence = self.next_sequence();
        packed.seal(SectorHead { logical: unit.logical, sequence, counted: 0 }, self.medium.store);
        let home = match self.write_version(unit.logical, sequence, &merged, &packed, choice) {
            Ok(home) => home,
            Err(error) => {
                // Sectors that have overflowed belong to a version that will never be.
                let dead = self.overflow.lock().release(sequence);
                dead.into_iter().for_each(|unit| self.physical.give_back(Taken { is_erased: false, ..unit }));
                return Err(error);
            }
        };
        Counters::add(&self.counters.merges, 1);
        Counters::add(&self.counters.merges_with_carry, usize::from(!merged.active.is_empty()));
        Counters::add(&self.counters.records_carried, merged.active.len());
        Counters::add(&self.counters.records_applied, merged.applied);
        Counters::add(&self.counters.records_dropped, merged.dropped);
        match unit.home.replace(home) {
            Some(old) => self.free_version(&old),
            None => {
                Counters::add(&self.counters.units_begun, 1);
                Ok(())
            }
        }
    }

    /// The old version is superseded, durably.
    fn free_version(&self, old: &Home) -> Result<()> {
        let mut dead = self.overflow.lock().release(old.sequence);
        let erase_count = self.physical.erase_count(old.physical);
        dead.push(Taken { physical: old.physical, erase_count, is_erased: false });
        dead.into_iter().try_for_each(|unit| self.free_unit(unit))
    }

    /// Makes of a unit that is ready what a merge would write. Nothing is changed.
    pub(super) fn merge_pages(&self, unit: &Unit) -> Result<Merged> {
        let geometry = self.medium.geometry;
        let image = AlignedBuffer::zeroed(geometry.pages() * geometry.page_bytes);
        let mut merged = Merged { image, present: 0, active: Vec::new(), applied: 0, dropped: 0 };
        let Some(home) = &unit.home else { return Ok(merged) };
        let damaged = |what: String| self.damaged(unit.logical, home.physical, what);
        self.read_pages(unit.logical, home, &mut merged)?;
        let (session, mut collected) = (self.session(), Collected::default());
        // Read once: then a page's changes are committed up to some place, and active from there on.
        let horizon = session.horizon.committed_through();
        let mut dropped = 0;
        let mut sectors = home.index().sectors.clone();
        self.read_sectors(&mut sectors, home.sequence, &mut |sector| {
            for piece in sector.pieces() {
                match session.status(piece.position, horizon)? {
                    Status::Aborted => dropped += usize::from(piece.offset == 0),
                    Status::Committed | Status::Active => collected.add(&piece),
                }
            }
            Ok(())
        })?
        .map_err(damaged)?;
        let changes = collected.finish().map_err(damaged)?;
        let mut changed = 0u64;
        merged.dropped = dropped;
        for change in changes {
            if session.status(change.position, horizon).map_err(damaged)? == Status::Active {
                merged.active.push(change);
                continue;
            }
            let (index, bytes) = (usize::from(change.page), geometry.page_bytes);
            let follows_active = merged.active.last().is_some_and(|active| active.page == change.page);
            assert!(!follows_active, "of a page's changes, active ones follow all committed ones");
            let page = &mut merged.image[index * bytes..(index + 1) * bytes];
            if merged.present >> index & 1 == 0 {
                header::clear(page, self.page_id(unit.logical, index));
                merged.present |= 1 << index;
            }
            apply(page, change.position, &change.bytes).map_err(damaged)?;
            changed |= 1 << index;
            merged.applied += 1;
        }
        for index in (0..geometry.pages()).filter(|index| changed >> index & 1 == 1) {
            header::seal(&mut merged.image[index * geometry.page_bytes..(index + 1) * geometry.page_bytes]);
        }
        Ok(merged)
    }

    fn page_id(&self, logical: u32, index: usize) -> PageId {
        PageId(u64::from(logical) * self.medium.geometry.pages() as u64 + index as u64)
    }

    /// Reads the pages that a version has, and checks them: damage must not be written anew as if it were none.
    fn read_pages(&self, logical: u32, home: &Home, merged: &mut Merged) -> Result<()> {
        let geometry = self.medium.geometry;
        for run in runs(home.pages, geometry.pages()) {
            let bytes = run.start * geometry.page_bytes..run.end * geometry.page_bytes;
            self.medium.read(geometry.page_at(home.physical, run.start), &mut merged.image[bytes])?;
            for index in run {
                let page = &merged.image[index * geometry.page_bytes..(index + 1) * geometry.page_bytes];
                header::verify(page, self.page_id(logical, index))
                    .map_err(|what| self.damaged(logical, home.physical, format!("page {index} of it: {what}")))?;
            }
        }
        merged.present = home.pages;
        Ok(())
    }

    /// Writes a version, durably and complete.
    fn write_version(
        &self,
        logical: u32,
        sequence: u64,
        merged: &Merged,
        packed: &Packed,
        choice: Choice,
    ) -> Result<Home> {
        let geometry = self.medium.geometry;
        let carried = packed.len().min(geometry.sectors());
        let mut sectors = Vec::with_capacity(packed.len());
        // Before the header: it makes them count.
        self.write_overflow(logical, sequence, packed, carried, &mut sectors)?;
        let taken = self
            .write_unit(choice, |taken| self.write_home(taken, logical, sequence, merged, packed.bytes(0..carried)))?;
        sectors.extend(packed.summaries[..carried].iter().enumerate().map(|(number, summary)| SectorInfo {
            at: geometry.sector_at(taken.physical, number),
            summary: *summary,
            counted: 0,
        }));
        Counters::add(&self.counters.sectors_written, carried);
        let index = Some(Index { sectors, next: carried });
        Ok(Home { physical: taken.physical, sequence, pages: merged.present, index, overflow: Vec::new(), tallied: 0 })
    }

    /// Takes a unit and writes it; another if it is that which fails.
    pub(super) fn write_unit(&self, choice: Choice, write: impl Fn(Taken) -> Result<()>) -> Result<Taken> {
        let mut failed = Vec::new();
        let result = loop {
            let taken = match self.take_unit(choice) {
                Ok(taken) => taken,
                Err(error) => break Err(error),
            };
            match write(taken) {
                Ok(()) => break Ok(taken),
                Err(error) => failed.push((taken, error)),
            }
            match failed.last() {
                Some((_, error)) if failed.len() < ATTEMPTS && error.is_io() => {
                    tantalum_rt::tracing::warn!(unit = taken.physical, %error, "a unit cannot be written; another is taken");
                    Counters::add(&self.counters.failed_writes, 1);
                }
                last => break Err(last.map_or_else(|| self.full(), |(_, error)| error.clone())),
            }
        };
        // Not before: they would be taken again.
        failed.into_iter().for_each(|(unit, _)| self.physical.give_back(Taken { is_erased: false, ..unit }));
        let taken = result?;
        self.physical.note_taken_wear(taken);
        Ok(taken)
    }

    fn write_home(&self, taken: Taken, logical: u32, sequence: u64, merged: &Merged, carried: &[u8]) -> Result<()> {
        let geometry = self.medium.geometry;
        for run in runs(merged.present, geometry.pages()) {
            let bytes = run.start * geometry.page_bytes..run.end * geometry.page_bytes;
            Counters::add(&self.counters.bytes_written, bytes.len());
            let at = geometry.page_at(taken.physical, run.start);
            self.medium.write(at, &merged.image[bytes], Durability::Cached)?;
        }
        self.medium.flush()?;
        tantalum_rt::interleave();
        let mut block = AlignedBuffer::zeroed(geometry.sector_bytes + carried.len());
        let header = UnitHeader {
            kind: UnitKind::Home,
            physical: taken.physical,
            logical,
            erase_count: taken.erase_count,
            carried: (carried.len() / geometry.sector_bytes) as u32,
            sequence,
            pages: merged.present,
        };
        header.encode(&mut block[..geometry.sector_bytes], self.medium.store);
        block[geometry.sector_bytes..].copy_from_slice(carried);
        Counters::add(&self.counters.bytes_written, block.len());
        self.medium.write(geometry.header_at(taken.physical), &block, Durability::Durable)
    }

    /// Writes the sectors from `from` on into overflow units, durably, and adds what they are to `sectors`.
    pub(super) fn write_overflow(
        &self,
        logical: u32,
        sequence: u64,
        packed: &Packed,
        mut from: usize,
        sectors: &mut Vec<SectorInfo>,
    ) -> Result<()> {
        let geometry = self.medium.geometry;
        let counted = packed.counted();
        let mut failures = 0;
        while from < packed.len() {
            let mut overflow = self.overflow.lock();
            let wanted = packed.len() - from;
            let Some(run) = overflow.reserve(wanted, geometry.overflow_sectors(), sequence, logical) else {
                overflow.add(self.begin_overflow_unit()?);
                continue;
            };
            drop(overflow);
            let bytes = packed.bytes(from..from + run.count);
            match self.medium.write(geometry.overflow_at(run.physical, run.first), bytes, Durability::Durable) {
                Err(error) if failures < ATTEMPTS && error.is_io() => {
                    tantalum_rt::tracing::warn!(unit = run.physical, %error, "log sectors cannot be written; others are taken");
                    Counters::add(&self.counters.failed_writes, 1);
                    failures += 1;
                    continue;
                }
                written => written?,
            }
            Counters::add(&self.counters.overflow_sectors_written, run.count);
            Counters::add(&self.counters.bytes_written, bytes.len());
            sectors.extend((0..run.count).map(|number| SectorInfo {
                at: geometry.overflow_at(run.physical, run.first + number),
                summary: packed.summaries[from + number],
                counted,
            }));
            from += run.count;
        }
        Ok(())
    }

    fn begin_overflow_unit(&self) -> Result<Taken> {
        let sequence = self.next_sequence();
        self.write_unit(Physical::take, |taken| {
            let header = UnitHeader {
                kind: UnitKind::Overflow,
                physical: taken.physical,
                logical: 0,
                erase_count: taken.erase_count,
                carried: 0,
                sequence,
                pages: 0,
            };
            let mut block = AlignedBuffer::zeroed(self.medium.geometry.sector_bytes);
            header.encode(&mut block, self.medium.store);
            Counters::add(&self.counters.bytes_written, block.len());
            self.medium.write(self.medium.geometry.unit_at(taken.physical), &block, Durability::Durable)
        })
    }

    /// Whether a group at this position, of this session, is active.
    pub(super) fn is_active(&self, position: Lsn, horizon: Lsn) -> bool {
        self.session().status(position, horizon) == Ok(Status::Active)
    }

    /// A buffer that a device can write from, with these bytes.
    pub(super) fn buffer_of(bytes: &[u8]) -> Arc<AlignedBuffer> {
        Arc::new(AlignedBuffer::copy_from(bytes))
    }
}

/// The runs of bits that are set, of the first `len`.
fn runs(bits: u64, len: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    let is_set = move |index: usize| index < len && bits >> index & 1 == 1;
    let starts = (0..len).filter(move |&index| is_set(index) && (index == 0 || !is_set(index - 1)));
    starts.map(move |start| start..(start..=len).find(|&index| !is_set(index)).unwrap_or(len))
}

#[cfg(test)]
mod tests {
    use super::runs;

    #[test]
    fn runs_are_found() {
        let all = |bits, len| runs(bits, len).map(|run| (run.start, run.end)).collect::<Vec<_>>();
        assert_eq!(all(0, 15), []);
        assert_eq!(all(0b1_1101, 5), [(0, 1), (2, 5)]);
        assert_eq!(all(u64::MAX, 64), [(0, 64)]);
        assert_eq!(all(1 << 63, 64), [(63, 64)]);
    }
}
