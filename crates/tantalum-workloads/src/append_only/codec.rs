//! Numbers in blocks, and checksums over them.

/// The little-endian number of the first bytes of `bytes` from `at` on.
///
/// # Panics
/// If they are not there: callers give blocks of fixed size.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// As [`u64_at`], of four bytes.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

/// Puts into the first four bytes a checksum of all others.
pub(super) fn seal(bytes: &mut [u8]) {
    let crc = crc32c::crc32c(&bytes[4..]);
    bytes[..4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether the first four bytes are a checksum of all others.
pub(super) fn is_sealed(bytes: &[u8]) -> bool {
    bytes.len() > 4 && crc32c::crc32c(&bytes[4..]) == u32_at(bytes, 0)
}
