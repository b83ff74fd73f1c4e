//! Writes until the power goes.

use tantalum_device::{AlignedBuffer, Device, Durability};
use tantalum_rt::Random;

use super::{block, record::Header};
use crate::error::Result;

/// Writes blocks at random, each by itself, until `report` says that it is enough. `report` is told of each write when it has
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
