//! What a tree decodes of bytes that come from devices, for fuzzers. Not part of the API.

use crate::tree::decode_node;

/// Verifies a page as after a read, then reads all that a tree reads of it. `bytes` has the length of a page.
///
/// # Panics
/// When a page that verifies is not as its header says.
pub fn page(bytes: &mut [u8], id: u64) {
    tantalum_store::fuzzing::page(bytes, id, decode_node);
}
