//! The decoders of bytes that come from devices, for fuzzers. Not part of the API.

use crate::{
    page::{change, header, record::GroupRecord},
    store::{Superblock, in_place::double_write},
};

/// Decodes a log record and applies its changes to `page`, as redo would.
pub fn group_record(record: &[u8], page: &mut [u8]) {
    let Ok(group) = GroupRecord::decode(record) else { return };
    for (_, changes) in group.pages() {
        for change in changes {
            // A refusal is an answer; only a panic is not.
            let _refused = change::apply(page, &change);
        }
    }
}

/// Verifies a page as after a read, and reads every slot of it whether it verifies or not.
pub fn page(bytes: &mut [u8], id: u64) {
    let _found = header::verify(bytes, crate::PageId(id));
    for slot in 0..crate::page::slots::count(bytes) {
        let _cell = crate::page::slots::cell(bytes, slot);
    }
}

/// Decodes the header of a double-write area.
pub fn double_write_header(bytes: &[u8]) -> bool {
    double_write::Header::decode(bytes).is_some()
}

/// Decodes a superblock.
pub fn superblock(bytes: &[u8]) -> bool {
    Superblock::decode(bytes).is_ok()
}
