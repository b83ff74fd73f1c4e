//! The decoders of bytes that come from devices, for fuzzers. Not part of the API.
//!
//! Random bytes never get past a checksum, so each is tried as it is, and again with its checksum put right.

use crate::{
    Change, PAGE_SIZES, PageId, PageKind, Superblock, TableId,
    in_page_logging::{load::Collected, sector::Sector, unit_header::UnitHeader},
    in_place::double_write,
    log_structured::{layout::Place, map::MapBlock, root::Root, summary::Summary},
    page::{
        change, header,
        record::GroupRecord,
        slots,
        status_record::{self, StatusRecord},
    },
};

/// Decodes a log record and applies its changes to `page`, as redo would: to a page that was verified, or is blank.
///
/// # Panics
/// When a page is not sound after a change.
pub fn group_record(record: &[u8], page: &mut [u8]) {
    header::seal(page);
    let id = header::page_id(page);
    if header::verify(page, id).is_err() {
        header::clear(page, id);
    }
    let Ok(group) = GroupRecord::decode(record) else { return };
    for (_, changes) in group.pages() {
        for change in changes {
            // A refusal is an answer; only a panic is not.
            let _refused = change::apply(page, &change);
            header::seal(page);
            let damage = header::verify(page, header::page_id(page)).err();
            assert!(damage.is_none(), "{damage:?} after {change:?}");
        }
    }
}

/// Logs that a cell of a page is replaced, and applies what the log has.
///
/// # Panics
/// When the page is not the same as with the new cell, or the log has more than the new cell.
pub fn replaced_cell(old: &[u8], new: &[u8]) {
    let mut page = vec![0; 16384];
    header::clear(&mut page, PageId(0));
    let fits = |cell: &[u8]| cell[..cell.len().min(5000)].to_vec();
    let (old, new) = (fits(old), fits(new));
    let insert = |page: &mut [u8]| {
        change::apply(page, &Change::Format { kind: PageKind::Leaf, level: 0, owner: TableId(1) })?;
        change::apply(page, &Change::InsertSlot { slot: 0, cell: &old })
    };
    insert(&mut page).expect("an empty page has room for it");
    let replace = Change::ReplaceSlot { slot: 0, cell: &new };
    let (mut logged, mut whole) = (Vec::new(), Vec::new());
    replace.encode_for(&page, &mut logged);
    replace.encode_into(&mut whole);
    assert!(logged.len() <= whole.len());
    let mut expected = page.clone();
    change::apply(&mut expected, &replace).expect("the page has room for it");
    let change = Change::decode(&mut logged.as_slice()).expect("what was encoded can be decoded");
    change::apply(&mut page, &change).expect("the page is as it was");
    assert!(page == expected, "{change:?}");
}

/// Verifies a page as after a read, then reads its slots, and lets `decode` read what more a tree reads of it. `bytes` has the length
/// of a page.
///
/// # Panics
/// When a page that verifies is not as its header says.
pub fn page(bytes: &mut [u8], id: u64, decode: impl FnOnce(&[u8])) {
    if !PAGE_SIZES.iter().any(|size| *size as usize == bytes.len()) {
        return;
    }
    let id = PageId(id);
    let _found = header::verify(bytes, id);
    header::seal(bytes);
    if header::verify(bytes, header::page_id(bytes)).is_err() {
        return;
    }
    for slot in 0..slots::count(bytes) {
        let _cell = slots::cell(bytes, slot);
    }
    decode(bytes);
}

/// Decodes the header of a double-write area.
///
/// # Panics
/// When what is decoded is not encoded to the same again.
pub fn double_write_header(bytes: &mut [u8]) {
    let _found = double_write::Header::decode(bytes);
    double_write::Header::repair_checksum(bytes);
    if let Some(header) = double_write::Header::decode(bytes) {
        assert_eq!(double_write::Header::decode(&header.encode()), Some(header));
    }
}

/// Decodes a superblock.
///
/// # Panics
/// When what is decoded is not encoded to the same again.
pub fn superblock(bytes: &mut [u8]) {
    let _found = Superblock::decode(bytes);
    Superblock::repair_checksum(bytes);
    if let Ok(superblock) = Superblock::decode(bytes) {
        assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }
}

/// Decodes a log record of change groups' statuses.
///
/// # Panics
/// When what is decoded is not encoded to the same again.
pub fn status_record(record: &[u8]) {
    if let Ok(found) = StatusRecord::decode(record) {
        let mut again = Vec::new();
        status_record::encode(&mut again, found.through, found.last_commit, (found.oldest, found.past.iter().copied()));
        assert_eq!(StatusRecord::decode(&again), Ok(found));
    }
}

/// The number of the store that fuzzers look at.
const STORE: u64 = 7;

/// Decodes the header of an erase unit of in-page logging.
///
/// # Panics
/// When what is decoded is not encoded to the same again.
pub fn unit_header(bytes: &mut [u8]) {
    let Some(physical) = bytes.get(12..16) else { return };
    let physical = u32::from_le_bytes([physical[0], physical[1], physical[2], physical[3]]);
    let _found = UnitHeader::decode(bytes, STORE, physical);
    UnitHeader::repair_checksum(bytes, STORE);
    if let Some(header) = UnitHeader::decode(bytes, STORE, physical) {
        let mut block = [0; 512];
        header.encode(&mut block, STORE);
        assert_eq!(UnitHeader::decode(&block, STORE, physical), Some(header));
    }
}

/// Decodes a log sector of in-page logging, and puts the changes in it together.
///
/// # Panics
/// When what is decoded is not as its summary says.
pub fn log_sector(bytes: &mut [u8]) {
    let _found = Sector::decode(bytes, STORE);
    Sector::repair_checksum(bytes, STORE);
    let Some(sector) = Sector::decode(bytes, STORE) else { return };
    let (summary, mut collected) = (sector.summary(), Collected::default());
    for piece in sector.pieces() {
        assert!(summary.pages >> piece.page & 1 == 1 && summary.first <= piece.position);
        assert!(piece.position <= summary.last && piece.bytes.len() <= bytes.len());
        collected.add(&piece);
    }
    // Parts may be missing; only a panic is no answer.
    let _changes = collected.finish();
}

/// Decodes the summary of an append to a log-structured store, a block of its map, and the map's root.
///
/// # Panics
/// When what is decoded is not encoded to the same again.
pub fn segment_block(bytes: &mut [u8]) {
    const DATABASE: u128 = STORE as u128;
    const PAGE_UNITS: u32 = 16;
    let Some(index) = bytes.get(32..36) else { return };
    let number = (0, u32::from_le_bytes([index[0], index[1], index[2], index[3]]) as usize);
    let mut again = [0; 4096];
    let _found = (
        Summary::decode(bytes, DATABASE, PAGE_UNITS),
        MapBlock::decode(bytes, number, DATABASE, PAGE_UNITS),
        Root::decode(bytes, DATABASE),
    );
    // Else the version and the identity would have to be guessed.
    for version in [2u16, 1] {
        if bytes.len() >= 4096 {
            bytes[12..14].copy_from_slice(&version.to_le_bytes());
            bytes[16..32].copy_from_slice(&DATABASE.to_le_bytes());
        }
        Summary::repair_checksum(bytes);
        if let Some(summary) = Summary::decode(bytes, DATABASE, PAGE_UNITS) {
            let extents = summary.extents(Place(9));
            assert!(extents.count() == summary.entries.len() && summary.blocks() > summary.filler_blocks);
            summary.encode(&mut again, DATABASE, PAGE_UNITS);
            assert_eq!(Summary::decode(&again, DATABASE, PAGE_UNITS), Some(summary));
        }
        MapBlock::repair_checksum(bytes);
        if let Some(block) = MapBlock::decode(bytes, number, DATABASE, PAGE_UNITS) {
            block.encode(number, DATABASE, PAGE_UNITS, &mut again);
            assert_eq!(MapBlock::decode(&again, number, DATABASE, PAGE_UNITS), Some(block));
        }
    }
    Root::repair_checksum(bytes);
    if let Some(root) = Root::decode(bytes, DATABASE) {
        assert_eq!(Root::decode(&root.encode(DATABASE), DATABASE), Some(root));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn whatever_a_device_returns_is_decoded_or_refused(mut bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
            status_record(&bytes);
            replaced_cell(&bytes, &bytes[bytes.len() / 3..]);
            unit_header(&mut bytes.clone());
            log_sector(&mut bytes.clone());
            bytes.resize(4096, 0);
            segment_block(&mut bytes);
        }
    }
}
