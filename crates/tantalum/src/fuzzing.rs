//! The decoders of bytes that come from devices, for fuzzers. Not part of the API.
//!
//! Random bytes never get past a checksum, so each is tried as it is, and again with its checksum put right.

use crate::{
    page::{PAGE_SIZES, change, header, record::GroupRecord, slots},
    store::{Superblock, in_place::double_write},
    tree::decode_node,
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

/// Verifies a page as after a read, then reads all that a tree reads of it. `bytes` has the length of a page.
///
/// # Panics
/// When a page that verifies is not as its header says.
pub fn page(bytes: &mut [u8], id: u64) {
    if !PAGE_SIZES.contains(&bytes.len()) {
        return;
    }
    let id = crate::PageId(id);
    let _found = header::verify(bytes, id);
    header::seal(bytes);
    if header::verify(bytes, header::page_id(bytes)).is_err() {
        return;
    }
    for slot in 0..slots::count(bytes) {
        let _cell = slots::cell(bytes, slot);
    }
    decode_node(bytes);
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
