//! The sessions of the log that a [`Medium`] was opened in: behind the superblock and its copy, in the erase units 0 and 1.
//!
//! Flash writes nothing twice, so each session adds a sector in both units, and a unit that is full is erased and begun anew with
//! its copy of the superblock. A device that is written over has one sector for it in each.
//!
//! Invariants: unit 1 is written first, durably, so that one of the two is whole at any time; what flash has tried to program is used
//! up, whatever came of it.
//!
//! Sector: CRC-32C of the rest up to byte 16, seeded with the store's number (4); magic (4); session (8); zeros.

use tantalum_device::{AlignedBuffer, Durability};

use super::{geometry::RESERVED_UNITS, medium::Medium};
use crate::{Result, Superblock, error};

const MAGIC: [u8; 4] = *b"SESN";
const BYTES: usize = 16;

fn checksum(sector: &[u8], store: u64) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&store.to_le_bytes()), &sector[4..BYTES])
}

fn encode(session: u64, store: u64, sector: &mut [u8]) {
    sector[4..8].copy_from_slice(&MAGIC);
    sector[8..BYTES].copy_from_slice(&session.to_le_bytes());
    let crc = checksum(sector, store);
    sector[..4].copy_from_slice(&crc.to_le_bytes());
}

fn decode(sector: &[u8], store: u64) -> Option<u64> {
    let is_one = sector[4..8] == MAGIC && sector[..4] == checksum(sector, store).to_le_bytes();
    is_one.then(|| u64::from_le_bytes(sector[8..BYTES].try_into().expect("eight bytes")))
}

/// The sessions in one unit.
struct Found {
    newest: Option<u64>,
    /// The first sector that can be written.
    next: usize,
}

impl Medium {
    /// The newest session that is noted; `None` if none is.
    ///
    /// # Errors
    /// When the device cannot read.
    pub fn session(&self) -> Result<Option<u64>> {
        let found = (0..RESERVED_UNITS).map(|unit| Ok(self.find_sessions(unit)?.newest)).collect::<Result<Vec<_>>>()?;
        Ok(found.into_iter().flatten().max())
    }

    /// Notes a session, durably.
    ///
    /// # Errors
    /// When the device cannot read or write. Older ones are still there.
    pub fn stamp(&self, session: u64) -> Result<()> {
        (0..RESERVED_UNITS).rev().try_for_each(|unit| self.stamp_unit(unit, session))
    }

    fn stamp_unit(&self, unit: u32, session: u64) -> Result<()> {
        let mut next = self.find_sessions(unit)?.next;
        // Nothing is noted before the superblock: one that was cut short is written again.
        if next == self.session_sectors() || (next == 0 && self.superblock_in(unit)?.is_none()) {
            self.begin_anew(unit)?;
            next = 0;
        }
        let mut sector = AlignedBuffer::zeroed(self.geometry.sector_bytes);
        encode(session, self.store, &mut sector);
        self.write(self.session_at(unit, next), &sector, Durability::Durable)
    }

    /// Erases a unit that is full, and copies the superblock into it from the other one.
    fn begin_anew(&self, unit: u32) -> Result<()> {
        let Some(block) = self.superblock_in(RESERVED_UNITS - 1 - unit)? else {
            let (file, place) = (self.device.name().to_owned(), if unit == 0 { "second" } else { "first" });
            let what = format!(
                "the {place} erase unit is to get a new copy of the superblock, and the other copy is damaged; restore the database \
                 from a backup"
            );
            return Err(error::superblock(file, what));
        };
        self.erase(unit)?;
        self.write(self.geometry.unit_at(unit), &block, Durability::Durable)
    }

    /// The block of the superblock at a unit's start, if it is whole.
    fn superblock_in(&self, unit: u32) -> Result<Option<AlignedBuffer>> {
        let mut block = AlignedBuffer::zeroed(Superblock::BYTES);
        let is_read = self.read_sector(self.geometry.unit_at(unit), &mut block)?;
        Ok((is_read && Superblock::decode(&block).is_ok()).then_some(block))
    }

    fn find_sessions(&self, unit: u32) -> Result<Found> {
        let mut sector = AlignedBuffer::zeroed(self.geometry.sector_bytes);
        let sectors = self.session_sectors();
        if !self.erases() {
            self.read(self.session_at(unit, 0), &mut sector)?;
            return Ok(Found { newest: decode(&sector, self.store), next: 0 });
        }
        // Used ones come before all blank ones.
        let (mut next, mut blank) = (0, sectors);
        while next < blank {
            let middle = next.midpoint(blank);
            let is_blank = self.read_sector(self.session_at(unit, middle), &mut sector)? && self.is_blank(&sector);
            if is_blank { blank = middle } else { next = middle + 1 }
        }
        for at in (0..next).rev() {
            if self.read_sector(self.session_at(unit, at), &mut sector)?
                && let Some(session) = decode(&sector, self.store)
            {
                return Ok(Found { newest: Some(session), next });
            }
        }
        Ok(Found { newest: None, next })
    }

    fn session_sectors(&self) -> usize {
        match self.erases() {
            true => (self.geometry.unit_bytes - Superblock::BYTES) / self.geometry.sector_bytes,
            // Never full.
            false => usize::MAX,
        }
    }

    fn session_at(&self, unit: u32, sector: usize) -> u64 {
        let behind = Superblock::BYTES.next_multiple_of(self.geometry.sector_bytes);
        self.geometry.unit_at(unit) + (behind + sector * self.geometry.sector_bytes) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use tantalum_device::{Device, MemoryDevice, MemoryProfile};
    use tantalum_flash::{EmulatedDevice, Profile};
    use tantalum_rt::{Random, Simulation, power_cut, sleep, spawn};

    use super::*;
    use crate::{Protection, StoreKind, UnitSizes, in_page_logging::Geometry};

    const GEOMETRY: Geometry =
        Geometry { page_bytes: 8192, unit_bytes: 128 << 10, region_bytes: 8192, sector_bytes: 512 };

    fn superblock() -> Superblock {
        Superblock {
            database_id: 1,
            log_id: 2,
            page_size: 8192,
            store_kind: StoreKind::InPageLogging,
            units: Some(UnitSizes { unit: 128 << 10, region: 8192, sector: 512 }),
            double_write_slots: 1,
            segments: None,
            compressed_pages: false,
            lifetime_streams: false,
            protection: Protection::Store,
            session: None,
        }
    }

    fn check(device: Arc<dyn Device>, sessions: std::ops::Range<u64>) {
        let medium = Medium::new(device.clone(), GEOMETRY, 7).unwrap();
        for session in sessions {
            medium.stamp(session).unwrap();
            assert_eq!(medium.session().unwrap(), Some(session));
            assert_eq!(Superblock::read(&*device).unwrap(), Some(superblock()));
        }
    }

    #[test]
    fn sessions_are_noted_on_flash_and_on_devices_that_are_written_over() {
        Simulation::new(1)
            .run(|| {
                let profile = Profile::named("nand-k9wag08u1a").unwrap().with_capacity(1 << 20);
                let flash = EmulatedDevice::new("flash", profile.build().unwrap());
                let profile = MemoryProfile { logical_block: 512, ..MemoryProfile::default() };
                let memory = MemoryDevice::with_profile("memory", 1 << 20, profile);
                for device in [flash as Arc<dyn Device>, memory] {
                    superblock().write(&*device).unwrap();
                    let medium = Medium::new(device.clone(), GEOMETRY, 7).unwrap();
                    assert_eq!(medium.session().unwrap(), None);
                    // More than two units have room for.
                    check(device.clone(), 1..600);
                    let other = Medium::new(device, GEOMETRY, 8).unwrap();
                    assert_eq!(other.session().unwrap(), None, "those of another store");
                }
            })
            .expect_finished();
    }

    /// Whatever a power cut interrupts, a session that was noted is not forgotten, nor the superblock.
    #[test]
    fn a_session_that_was_noted_survives_power_cuts_on_flash() {
        let profile = Profile::named("nand-k9wag08u1a").unwrap().with_capacity(1 << 20);
        let make = move || {
            let flash = EmulatedDevice::new("flash", profile.build().unwrap());
            superblock().write(&*flash).unwrap();
            flash
        };
        let flash = Simulation::new(0).run(make).expect_finished();
        let (mut random, mut clock) = (Random::with_seed(1), Duration::from_secs(1));
        let noted = Arc::new(AtomicU64::new(0));
        for life in 0..400 {
            let (flash, noted) = (flash.clone(), noted.clone());
            let (cut, mut random) = (random.u64(1..20_000), random.fork());
            let outcome = Simulation::new(life).start_at(clock).run(move || {
                flash.power_on().unwrap();
                let medium = Medium::new(flash.clone(), GEOMETRY, 7).unwrap();
                let found = medium.session().unwrap().unwrap_or(0);
                let known = noted.load(Ordering::Relaxed);
                assert!((known..known + 2).contains(&found), "{found} is noted, of {known}");
                assert_eq!(Superblock::read(&*flash).unwrap(), Some(superblock()));
                let task = {
                    let noted = noted.clone();
                    spawn("stamps", move || {
                        for session in found + 1.. {
                            noted.store(session - 1, Ordering::Relaxed);
                            medium.stamp(session).unwrap();
                            noted.store(session, Ordering::Relaxed);
                        }
                    })
                };
                sleep(Duration::from_micros(cut));
                drop(task);
                flash.power_cut(&mut random);
                power_cut()
            });
            if let tantalum_rt::Outcome::<()>::PowerCut { at } = outcome {
                clock = at;
            }
        }
        assert!(noted.load(Ordering::Relaxed) > 600, "both units were begun anew");
    }
}
