//! What a power cut leaves of writes that were acknowledged, in the way of diskchecker.
//!
//! [`write`](fn@write) writes blocks at random, each durably, and reports each that was acknowledged, to another machine. After the plug was
//! pulled, [`check`] reads all blocks and holds them against the [`Record`] of what was reported. Every 512 bytes of a block name the
//! write that they belong to, which distinguishes an old block from a torn one.

mod block;
mod record;

use serde::Serialize;
use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::Random;

use self::block::{PART_BYTES, sequence_of};
pub use self::record::{Header, Record, RecordError};
use crate::error::Result;

/// Writes blocks at random, each by itself, until `report` says that it is enough. `report` is called for each write when it has
/// returned: its number, from 1 on, and its slot.
///
/// # Errors
/// The first error of the device; of a device that loses power that is how it ends.
pub fn write(device: &dyn Device, header: &Header, mut report: impl FnMut(u64, u64) -> bool) -> Result<()> {
    let durability = if header.is_durable { Durability::Durable } else { Durability::Cached };
    let mut random = Random::with_seed(header.run);
    let mut buffer = AlignedBuffer::zeroed(header.block_bytes as usize);
    for sequence in 1.. {
        let slot = random.u64(..header.slots);
        block::fill(&mut buffer, header.run, sequence, slot);
        device.write(slot * header.block_bytes, &[&buffer], durability)?;
        if !report(sequence, slot) {
            break;
        }
    }
    Ok(())
}

/// What is there of what was reported.
///
/// ```
/// use tantalum_device::{Device, MemoryDevice};
/// use tantalum_lab::probe::power_cut::{self, Header, Record};
///
/// let device = MemoryDevice::new("memory", 1 << 20);
/// let header = Header { run: 1, block_bytes: 4096, slots: 256, is_durable: true };
/// let mut record = Record::new(header);
/// power_cut::write(&*device, &header, |sequence, slot| {
///     record.take(&format!("{sequence} {slot}")).expect("that is a line of a record");
///     sequence < 1000
/// })?;
/// let outcome = power_cut::check(&*device, &record)?;
/// assert!(outcome.is_kept() && outcome.reported == 1000);
/// # Ok::<(), tantalum_lab::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Outcome {
    /// Writes that were reported.
    pub reported: u64,
    /// Slots that they went to.
    pub slots: u64,
    /// Slots that hold the newest write reported, or a later one, in all their parts.
    pub kept: u64,
    /// Slots in which a part is older than the newest write reported, or of no write at all: acknowledged, and lost.
    pub lost: u64,
    /// Slots that hold parts of two writes, both not older than what was reported: one that was under way, torn.
    pub torn: u64,
    /// The first byte of the first slot that lost something.
    pub first_lost_offset: Option<u64>,
}

impl Outcome {
    /// Whether all that was acknowledged is there.
    pub fn is_kept(&self) -> bool {
        self.lost == 0
    }
}

/// Reads every slot that was reported, and compares.
///
/// # Errors
/// The first error of the device: also if it is smaller than it was.
pub fn check(device: &dyn Device, record: &Record) -> Result<Outcome> {
    let header = record.header;
    let mut outcome = Outcome { reported: record.last(), ..Outcome::default() };
    let mut buffer = AlignedBuffer::zeroed(header.block_bytes as usize);
    for (slot, newest) in record.newest() {
        let offset = slot * header.block_bytes;
        device.read(offset, &mut buffer)?;
        let parts = (0..).zip(buffer.chunks_exact(PART_BYTES));
        let sequences: Vec<u64> = parts.map(|(number, part)| sequence_of(part, header.run, slot, number)).collect();
        outcome.slots += 1;
        match (sequences.iter().min(), sequences.iter().max()) {
            (Some(&oldest), Some(_)) if oldest < newest => {
                outcome.lost += 1;
                outcome.first_lost_offset.get_or_insert(offset);
            }
            (oldest, latest) if oldest == latest => outcome.kept += 1,
            _ => outcome.torn += 1,
        }
    }
    Ok(outcome)
}
