//! How many log sectors each version has, written down when the database is closed.
//!
//! The last sectors of a version are counted by no later one: damaged, they would pass for what a power cut has torn. So closing
//! writes the counts into free units, which stay free; opening looks at them if they are still there. A version only ever gets
//! more sectors, so what they say is true for as long as the version is the present one, whatever has happened since.

use tantalum_device::{AlignedBuffer, Durability};

use super::{
    InPageStore,
    physical::Taken,
    unit_counters::Counters,
    unit_header::{UnitHeader, UnitKind},
};
use crate::Result;

/// CRC-32C of the rest, seeded with the store's number (4); magic (2); how many tallies (2).
const HEAD_BYTES: usize = 8;
const MAGIC: [u8; 2] = *b"TS";
/// Logical unit (4); sectors (4); sequence (8).
const TALLY_BYTES: usize = 16;

/// What a version had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tally {
    logical: u32,
    sectors: u32,
    sequence: u64,
}

impl InPageStore {
    /// Writes down how many log sectors there are. Nothing depends on it but that damage to the last ones is noticed, so a
    /// failure is no more than traced.
    pub(super) fn write_tallies(&self) {
        let geometry = self.medium.geometry;
        let _placing = self.placing.lock();
        let tallies = self.tallies();
        let in_unit = geometry.overflow_sectors() * in_sector(geometry.sector_bytes);
        let set = self.next_sequence();
        let mut taken = Vec::new();
        for part in tallies.chunks(in_unit) {
            match self.write_other_unit(|unit| self.write_tally_unit(unit, set, part)) {
                Ok(unit) => taken.push(unit),
                Err(error) => {
                    tantalum_rt::tracing::warn!(%error, "the log sectors of units cannot be counted for the next session");
                    break;
                }
            }
        }
        // Not before: they would be taken again.
        taken.into_iter().for_each(|unit| self.physical.give_back(Taken { is_erased: false, ..unit }));
    }

    fn tallies(&self) -> Vec<Tally> {
        let units: Vec<_> = self.units.read().iter().cloned().collect();
        let tally = |unit: &std::sync::Arc<tantalum_rt::RwLock<super::Unit>>| {
            let unit = unit.read();
            let home = unit.home.as_ref()?;
            // Of a unit that was not used, no more is known than what was written down before.
            let sectors = home.index.as_ref().map_or(home.tallied, |index| index.sectors.len());
            (sectors > 0).then_some(Tally { logical: unit.logical, sectors: sectors as u32, sequence: home.sequence })
        };
        units.iter().filter_map(tally).collect()
    }

    fn write_tally_unit(&self, taken: Taken, set: u64, tallies: &[Tally]) -> Result<()> {
        let geometry = self.medium.geometry;
        let parts = tallies.chunks(in_sector(geometry.sector_bytes));
        let mut block = AlignedBuffer::zeroed((1 + parts.len()) * geometry.sector_bytes);
        let (head, sectors) = block.split_at_mut(geometry.sector_bytes);
        let header = UnitHeader {
            kind: UnitKind::Tally,
            physical: taken.physical,
            logical: 0,
            erase_count: taken.erase_count,
            carried: parts.len() as u32,
            sequence: self.next_sequence(),
            attempt: 0,
            pages: set,
        };
        header.encode(head, self.medium.store);
        for (sector, part) in sectors.chunks_exact_mut(geometry.sector_bytes).zip(parts) {
            encode(part, sector, self.medium.store);
        }
        Counters::add(&self.counters.bytes_written, block.len());
        self.medium.write(geometry.unit_at(taken.physical), &block, Durability::Durable)
    }

    /// Takes note of the newest tallies, of those that were found. Those that cannot be read are missed, no more.
    pub(super) fn read_tallies(&self, headers: &[UnitHeader]) -> Result<()> {
        let geometry = self.medium.geometry;
        let newest = headers.iter().map(|header| header.pages).max();
        for header in headers.iter().filter(|header| Some(header.pages) == newest) {
            let count = (header.carried as usize).min(geometry.overflow_sectors());
            let mut sectors = AlignedBuffer::zeroed(count * geometry.sector_bytes);
            if !self.medium.read_sector(geometry.overflow_at(header.physical, 0), &mut sectors)? {
                continue;
            }
            let parts = sectors.chunks_exact(geometry.sector_bytes);
            for tally in parts.filter_map(|sector| decode(sector, self.medium.store)).flatten() {
                let unit = self.find_unit(tally.logical);
                let Some(unit) = unit else { continue };
                if let Some(home) = unit.write().home.as_mut().filter(|home| home.sequence == tally.sequence) {
                    home.tallied = tally.sectors as usize;
                }
            }
        }
        Ok(())
    }
}

/// Tallies in a sector.
const fn in_sector(sector_bytes: usize) -> usize {
    (sector_bytes - HEAD_BYTES) / TALLY_BYTES
}

fn checksum(sector: &[u8], store: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&store.to_le_bytes()), &sector[4..])
}

/// Writes tallies into a blank sector.
fn encode(tallies: &[Tally], sector: &mut [u8], store: u64) {
    sector[4..6].copy_from_slice(&MAGIC);
    sector[6..8].copy_from_slice(&(tallies.len() as u16).to_le_bytes());
    for (place, tally) in sector[HEAD_BYTES..].chunks_exact_mut(TALLY_BYTES).zip(tallies) {
        place[..4].copy_from_slice(&tally.logical.to_le_bytes());
        place[4..8].copy_from_slice(&tally.sectors.to_le_bytes());
        place[8..].copy_from_slice(&tally.sequence.to_le_bytes());
    }
    let crc = checksum(sector, store);
    sector[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Reads what [`encode`] wrote; `None` if it is something else, or damaged.
fn decode(sector: &[u8], store: u64) -> Option<Vec<Tally>> {
    let u32_at = |bytes: &[u8], at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    if sector.get(4..6)? != MAGIC || u32_at(sector, 0)? != checksum(sector, store) {
        return None;
    }
    let count = usize::from(u16::from_le_bytes(sector.get(6..8)?.try_into().ok()?));
    let places = sector.get(HEAD_BYTES..)?.chunks_exact(TALLY_BYTES);
    let tally = |place: &[u8]| {
        let sequence = u64::from_le_bytes(place.get(8..16)?.try_into().ok()?);
        Some(Tally { logical: u32_at(place, 0)?, sectors: u32_at(place, 4)?, sequence })
    };
    (count <= places.len()).then(|| places.take(count).filter_map(tally).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tallies_are_read_back_only_whole_and_of_the_same_store() {
        let tallies: Vec<_> =
            (0..31).map(|logical| Tally { logical, sectors: logical + 1, sequence: 1 << 40 | 7 }).collect();
        let mut sector = [0; 512];
        assert_eq!(in_sector(sector.len()), tallies.len());
        encode(&tallies, &mut sector, 9);
        assert_eq!(decode(&sector, 9).as_ref(), Some(&tallies));
        assert_eq!(decode(&sector, 8), None);
        for bit in 0..sector.len() * 8 {
            sector[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&sector, 9), None, "bit {bit}");
            sector[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(decode(&sector[..5], 9), None);
    }
}
