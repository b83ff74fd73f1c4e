//! The numbers of a trace of requests; docs/understand/format.md describes them. Pure, and safe on numbers that may be anything.

use tantalum_device::{Durability, Ending, Request, RequestKind};

use super::Record;
use crate::framing::{Damage, field};

/// Numbers of a record: when and what, how long and on which device, where and how much.
pub(super) const RECORD_NUMBERS: usize = 3;

/// Offsets and lengths are in these: no device has smaller blocks.
const SECTOR: u64 = 512;

const KIND_BITS: u32 = 4;
const ENDING_BITS: u32 = 4;
const TIME_SHIFT: u32 = KIND_BITS + ENDING_BITS;
const DEVICE_BITS: u32 = 16;
const LENGTH_BITS: u32 = 24;

const KINDS: [RequestKind; 6] = [
    RequestKind::Read,
    RequestKind::Write(Durability::Cached),
    RequestKind::Write(Durability::Durable),
    RequestKind::Write(Durability::Delivered),
    RequestKind::Flush,
    RequestKind::Discard,
];
const ENDINGS: [Ending; 3] = [Ending::Done, Ending::Failed, Ending::Unknown];

/// `None` if a number does not fit its bits, or a length is in no whole sectors.
pub(super) fn encode_record(record: &Record) -> Option<[u64; RECORD_NUMBERS]> {
    let Record { device, began_ns, took_ns, request: Request { kind, offset, len }, ending } = *record;
    let kind = KINDS.iter().position(|known| *known == kind)? as u64;
    let ending = ENDINGS.iter().position(|known| *known == ending)? as u64;
    let is_whole = offset.is_multiple_of(SECTOR) && len.is_multiple_of(SECTOR);
    let (offset, len) = (offset / SECTOR, len / SECTOR);
    let fits = |number: u64, bits: u32| number >> bits == 0;
    let all_fit = fits(began_ns, u64::BITS - TIME_SHIFT)
        && fits(took_ns, u64::BITS - DEVICE_BITS)
        && fits(offset, u64::BITS - LENGTH_BITS)
        && fits(len, LENGTH_BITS);
    (is_whole && all_fit).then_some([
        began_ns << TIME_SHIFT | ending << KIND_BITS | kind,
        took_ns << DEVICE_BITS | u64::from(device),
        offset << LENGTH_BITS | len,
    ])
}

/// # Panics
/// When these are not the numbers of one record.
pub(super) fn decode_record(numbers: &[u64]) -> Result<Record, Damage> {
    let [what, who, place] = *numbers else { panic!("a record has {RECORD_NUMBERS} numbers, not {}", numbers.len()) };
    let number = what & ((1 << KIND_BITS) - 1);
    let Some(&kind) = KINDS.get(number as usize) else { return field("a request's kind", number) };
    let number = what >> KIND_BITS & ((1 << ENDING_BITS) - 1);
    let Some(&ending) = ENDINGS.get(number as usize) else { return field("a request's ending", number) };
    let (offset, len) = (place >> LENGTH_BITS, place & ((1 << LENGTH_BITS) - 1));
    Ok(Record {
        device: (who & ((1 << DEVICE_BITS) - 1)) as u16,
        began_ns: what >> TIME_SHIFT,
        took_ns: who >> DEVICE_BITS,
        request: Request { kind, offset: offset * SECTOR, len: len * SECTOR },
        ending,
    })
}
