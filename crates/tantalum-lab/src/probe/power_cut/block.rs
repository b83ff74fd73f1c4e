//! A block that knows which write it is of, in every part that a power cut could leave alone.

use tantalum_rt::Random;

/// What no device writes in parts.
pub(super) const PART_BYTES: usize = 512;
/// Run, sequence, slot and the number of the part, before the checksum.
const STAMP_BYTES: usize = 32;
const CHECKSUM_AT: usize = PART_BYTES - 4;

/// Fills a block for a write.
pub(super) fn fill(block: &mut [u8], run: u64, sequence: u64, slot: u64) {
    for (number, part) in block.chunks_exact_mut(PART_BYTES).enumerate() {
        let mut random = Random::with_seed(run ^ sequence.rotate_left(32) ^ slot.rotate_left(16) ^ number as u64);
        random.fill(&mut part[STAMP_BYTES..CHECKSUM_AT]);
        for (at, field) in [run, sequence, slot, number as u64].into_iter().enumerate() {
            part[at * 8..at * 8 + 8].copy_from_slice(&field.to_le_bytes());
        }
        let checksum = crc32c::crc32c(&part[..CHECKSUM_AT]);
        part[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
    }
}

/// The sequence of the write that a part is of; 0 if it is of no write of the run to this slot.
pub(super) fn sequence_of(part: &[u8], run: u64, slot: u64, number: usize) -> u64 {
    let field = |at: usize| u64::from_le_bytes(part[at * 8..at * 8 + 8].try_into().expect("a slice of eight bytes"));
    let stored = u32::from_le_bytes(part[CHECKSUM_AT..].try_into().expect("a slice of four bytes"));
    let is_ours = field(0) == run && field(2) == slot && field(3) == number as u64;
    if is_ours && crc32c::crc32c(&part[..CHECKSUM_AT]) == stored { field(1) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_name_their_write_and_damage_is_no_write() {
        let mut block = vec![0; 4 * PART_BYTES];
        fill(&mut block, 7, 9, 3);
        let sequence =
            |block: &[u8], number: usize| sequence_of(&block[number * PART_BYTES..][..PART_BYTES], 7, 3, number);
        assert!((0..4).all(|number| sequence(&block, number) == 9));
        block[PART_BYTES + 100] ^= 1;
        assert_eq!((sequence(&block, 0), sequence(&block, 1)), (9, 0));
        assert_eq!(sequence_of(&block[..PART_BYTES], 8, 3, 0), 0, "another run");
        assert_eq!(sequence_of(&block[..PART_BYTES], 7, 4, 0), 0, "another slot");
        assert_eq!(sequence_of(&[0; PART_BYTES], 0, 0, 0), 0, "zeros");
    }
}
