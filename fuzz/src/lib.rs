//! Help for fuzz targets: random bytes would never get past a checksum, so it is put right first.

use tantalum_lab::{Error, trace::Damage};
use tantalum_log::format::DecodeError;

/// Decodes `bytes`; when only a checksum is wrong, stores the right one wherever the wrong one stands and decodes again.
/// `decode` is called on the bytes as they are too, so that wrong checksums are tried as well.
pub fn decode_repaired<T>(bytes: &mut [u8], decode: impl Fn(&[u8]) -> Result<T, DecodeError>) -> Option<T> {
    // A request has two checksums, and repairing the inner one breaks the outer one.
    for _ in 0..3 {
        match decode(bytes) {
            Ok(decoded) => return Some(decoded),
            Err(DecodeError::Checksum { stored, computed }) => replace(bytes, stored.to_le_bytes(), computed.to_le_bytes()),
            Err(_) => return None,
        }
    }
    decode(bytes).ok()
}

/// Replaces the last place where `from` stands: a checksum stands behind what it covers.
pub fn replace(bytes: &mut [u8], from: [u8; 4], to: [u8; 4]) {
    if let Some(at) = bytes.windows(4).rposition(|window| window == from) {
        bytes[at..at + 4].copy_from_slice(&to);
    }
}

/// Overwrites the start of `bytes` with a magic number and format version 1, which a fuzzer finds slowly by itself.
pub fn stamp(bytes: &mut [u8], magic: &[u8; 8]) {
    if let Some(start) = bytes.get_mut(..10) {
        start[..8].copy_from_slice(magic);
        start[8..].copy_from_slice(&1u16.to_le_bytes());
    }
}

/// Reads a trace, after its start was put right, and its checksums: those of the start, of the header and of some blocks. The bytes
/// are tried as they are, too.
pub fn read_repaired<T>(bytes: &mut [u8], read: impl Fn(&[u8]) -> Result<T, Error>) -> Option<T> {
    let _ = read(bytes);
    if let Some(start) = bytes.get_mut(4..16) {
        start.copy_from_slice(b"TNTLTRCE\x02\0\0\0");
    }
    for _ in 0..8 {
        match read(bytes) {
            Err(Error::Trace { at, damage: Damage::Checksum { stored, computed }, .. }) => {
                replace(&mut bytes[at as usize..][..4], stored.to_le_bytes(), computed.to_le_bytes());
            }
            other => return other.ok(),
        }
    }
    None
}
