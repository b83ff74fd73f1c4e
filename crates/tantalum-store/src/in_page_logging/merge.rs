//! Merges ("In-Page Logging", section 3.3, Algorithm 1, and section 5.3, Algorithm 3).
//!
//! A merge writes a unit anew: changes of committed groups go into the pages, those of aborted groups are dropped, those of
//! active groups are carried over, in the fewest sectors that hold them. The new version counts from the moment when its header
//! and the sectors carried into it are whole; only then is the old one's place freed.

use std::{cell::Cell, sync::Arc};

use tantalum_device::{AlignedBuffer, Durability};
use tantalum_log::Lsn;

use super::{
    InPageStore,
    load::{Collected, Collection, apply},
    physical::{Physical, Taken},
    sector::{Packed, Piece, SectorHead, pack},
    unit::{Home, InDoubt, Index, SectorInfo, Unit},
    unit_counters::Counters,
    unit_header::{UnitHeader, UnitKind},
};
use crate::{Error, PageId, Result, Status, page::header};

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

/// Units that could not be written, and were not given back.
struct Unwritten {
    error: Error,
    units: Vec<Taken>,
}

impl From<Error> for Unwritten {
    fn from(error: Error) -> Self {
        Self { error, units: Vec::new() }
    }
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
        let version = UnitHeader {
            kind: UnitKind::Home,
            physical: 0,
            logical: unit.logical,
            erase_count: 0,
            carried: packed.len().min(self.medium.geometry.sectors()) as u32,
            sequence,
            attempt: 0,
            pages: merged.present,
        };
        let may_count = Cell::new(false);
        let home = match self.write_version(&version, &merged, &packed, choice, &may_count) {
            Ok(home) => home,
            Err(Unwritten { error, units }) => {
                if may_count.get() {
                    let in_doubt = unit.in_doubt.get_or_insert_default();
                    in_doubt.sequences.push(sequence);
                    in_doubt.units.extend(units);
                } else {
                    // Sectors that have overflowed belong to a version that will never be.
                    let dead = self.overflow.lock().release(sequence);
                    dead.into_iter().chain(units).for_each(|unit| self.give_back(unit));
                }
                return Err(error);
            }
        };
        Counters::add(&self.counters.merges, 1);
        Counters::add(&self.counters.merges_with_carry, usize::from(!merged.active.is_empty()));
        Counters::add(&self.counters.records_carried, merged.active.len());
        Counters::add(&self.counters.records_applied, merged.applied);
        Counters::add(&self.counters.records_dropped, merged.dropped);
        match unit.home.replace(home) {
            Some(old) => self.free_version(old.sequence, old.physical)?,
            None => Counters::add(&self.counters.units_begun, 1),
        }
        self.free_doubtful(unit)
    }

    /// An old version is superseded, durably.
    pub(super) fn free_version(&self, sequence: u64, physical: u32) -> Result<()> {
        let mut dead = self.overflow.lock().release(sequence);
        let erase_count = self.physical.erase_count(physical);
        dead.push(Taken { physical, erase_count, is_erased: false });
        dead.into_iter().try_for_each(|unit| self.free_unit(unit))
    }

    /// Versions that may have counted do not, since there is a newer one, or none is left.
    pub(super) fn free_doubtful(&self, unit: &mut Unit) -> Result<()> {
        let Some(InDoubt { sequences, units }) = unit.in_doubt.take() else { return Ok(()) };
        let mut overflow = self.overflow.lock();
        let dead: Vec<_> = sequences.into_iter().flat_map(|sequence| overflow.release(sequence)).collect();
        drop(overflow);
        dead.into_iter().chain(units).try_for_each(|unit| self.free_unit(unit))
    }

    fn give_back(&self, unit: Taken) {
        self.physical.give_back(Taken { is_erased: false, ..unit });
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

    /// Writes a version, durably and complete. `may_count` is set when its header may have been written.
    fn write_version(
        &self,
        version: &UnitHeader,
        merged: &Merged,
        packed: &Packed,
        choice: Choice,
        may_count: &Cell<bool>,
    ) -> Result<Home, Unwritten> {
        let geometry = self.medium.geometry;
        let carried = version.carried as usize;
        let mut sectors = Vec::with_capacity(packed.len());
        // Before the header: it makes them count.
        self.write_overflow(version.logical, version.sequence, packed, carried, &mut sectors)?;
        let (taken, attempt) = self.write_unit(choice, |taken, attempt| {
            self.physical.note_header(taken.physical, version.logical);
            self.write_pages(taken, merged)?;
            tantalum_rt::interleave();
            may_count.set(true);
            let (physical, erase_count) = (taken.physical, taken.erase_count);
            self.write_header(&UnitHeader { physical, erase_count, attempt, ..*version }, packed.bytes(0..carried))
        })?;
        self.physical.note_only_header(taken.physical, version.logical);
        sectors.extend(packed.summaries[..carried].iter().enumerate().map(|(number, summary)| SectorInfo {
            at: geometry.sector_at(taken.physical, number),
            summary: *summary,
            counted: 0,
        }));
        Counters::add(&self.counters.sectors_written, carried);
        let index = Some(Index { sectors, next: carried });
        Ok(Home {
            physical: taken.physical,
            sequence: version.sequence,
            attempt,
            pages: merged.present,
            index,
            overflow: Vec::new(),
            tallied: 0,
        })
    }

    /// Takes a unit and writes it; another if it is that which fails. `write` is told how many have failed.
    fn write_unit(&self, choice: Choice, write: impl Fn(Taken, u16) -> Result<()>) -> Result<(Taken, u16), Unwritten> {
        // Given back when it is over: they would be taken again.
        let mut units = Vec::new();
        loop {
            let taken = match self.take_unit(choice) {
                Ok(taken) => taken,
                Err(error) => return Err(Unwritten { error, units }),
            };
            let error = match write(taken, units.len() as u16) {
                Ok(()) => {
                    let attempt = units.len() as u16;
                    units.into_iter().for_each(|unit| self.give_back(unit));
                    self.physical.note_taken_wear(taken);
                    return Ok((taken, attempt));
                }
                Err(error) => error,
            };
            units.push(taken);
            if units.len() == ATTEMPTS || !error.is_io() {
                return Err(Unwritten { error, units });
            }
            tantalum_rt::tracing::warn!(unit = taken.physical, %error, "a unit cannot be written; another is taken");
            Counters::add(&self.counters.failed_writes, 1);
        }
    }

    /// As [`write_unit`](Self::write_unit), for what counts only if this succeeds.
    pub(super) fn write_other_unit(&self, write: impl Fn(Taken) -> Result<()>) -> Result<Taken> {
        let written = self.write_unit(Physical::take, |taken, _| write(taken));
        written.map(|(taken, _)| taken).map_err(|Unwritten { error, units }| {
            units.into_iter().for_each(|unit| self.give_back(unit));
            error
        })
    }

    fn write_pages(&self, taken: Taken, merged: &Merged) -> Result<()> {
        let geometry = self.medium.geometry;
        for run in runs(merged.present, geometry.pages()) {
            let bytes = run.start * geometry.page_bytes..run.end * geometry.page_bytes;
            Counters::add(&self.counters.bytes_written, bytes.len());
            let at = geometry.page_at(taken.physical, run.start);
            self.medium.write(at, &merged.image[bytes], Durability::Cached)?;
        }
        self.medium.flush()
    }

    /// Writes the header of a version and the sectors that are carried into it, durably.
    fn write_header(&self, header: &UnitHeader, carried: &[u8]) -> Result<()> {
        let geometry = self.medium.geometry;
        let mut block = AlignedBuffer::zeroed(geometry.sector_bytes + carried.len());
        header.encode(&mut block[..geometry.sector_bytes], self.medium.store);
        block[geometry.sector_bytes..].copy_from_slice(carried);
        Counters::add(&self.counters.bytes_written, block.len());
        self.medium.write(geometry.header_at(header.physical), &block, Durability::Durable)
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
        self.write_other_unit(|taken| {
            let header = UnitHeader {
                kind: UnitKind::Overflow,
                physical: taken.physical,
                logical: 0,
                erase_count: taken.erase_count,
                carried: 0,
                sequence,
                attempt: 0,
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
