//! The numbers of a trace of pages, and what its header says; docs/understand/format.md describes them. Pure, and safe on numbers that
//! may be anything.

use tantalum::PageOperation;

use super::{Header, Record};
use crate::framing::{Damage, FIXED_BYTES, Head, field, u32_at, u64_at};

/// A record is one number: the kind in the lowest bits, then the bytes, then the page.
const KIND_BITS: u32 = 3;
const BYTES_BITS: u32 = 21;
const PAGE_SHIFT: u32 = KIND_BITS + BYTES_BITS;

const WRITE: u64 = 0;
const INSERT: u64 = 1;
const UPDATE: u64 = 2;
const DELETE: u64 = 3;
const WHOLE: u64 = 4;

/// `None` if a number does not fit its bits.
pub(super) fn encode_record(record: &Record) -> Option<u64> {
    let (kind, page, bytes) = match *record {
        Record::Write { page } => (WRITE, page, 0),
        Record::Change { page, operation, bytes } => {
            let kind = match operation {
                PageOperation::Insert => INSERT,
                PageOperation::Update => UPDATE,
                PageOperation::Delete => DELETE,
                PageOperation::Whole => WHOLE,
            };
            (kind, page, u64::from(bytes))
        }
    };
    let fits = bytes >> BYTES_BITS == 0 && page >> (u64::BITS - PAGE_SHIFT) == 0;
    fits.then_some(kind | bytes << KIND_BITS | page << PAGE_SHIFT)
}

pub(super) fn decode_record(number: u64) -> Result<Record, Damage> {
    let page = number >> PAGE_SHIFT;
    let bytes = (number >> KIND_BITS) as u32 & ((1 << BYTES_BITS) - 1);
    let operation = match number & ((1 << KIND_BITS) - 1) {
        WRITE if bytes == 0 => return Ok(Record::Write { page }),
        WRITE => return field("a write's length", bytes.into()),
        INSERT => PageOperation::Insert,
        UPDATE => PageOperation::Update,
        DELETE => PageOperation::Delete,
        WHOLE => PageOperation::Whole,
        kind => return field("a record's kind", kind),
    };
    Ok(Record::Change { page, operation, bytes })
}

pub(super) fn encode_header(header: &Header) -> Head {
    let mut fixed = [0; FIXED_BYTES];
    fixed[..4].copy_from_slice(&header.page_bytes.to_le_bytes());
    fixed[8..].copy_from_slice(&header.buffer_pool_bytes.to_le_bytes());
    Head { fixed, text: header.label.clone() }
}

pub(super) fn decode_header(head: Head) -> Result<Header, Damage> {
    let page_bytes = u32_at(&head.fixed, 0);
    if !page_bytes.is_power_of_two() || !(512..=1 << 20).contains(&page_bytes) {
        return field("the page size", page_bytes.into());
    }
    Ok(Header { page_bytes, buffer_pool_bytes: u64_at(&head.fixed, 8), label: head.text })
}
