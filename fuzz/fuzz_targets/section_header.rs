//! The header block of a log section.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::{decode_repaired, stamp};
use tantalum_log::format::{BLOCK, section::SectionHeader};

fuzz_target!(|input: Vec<u8>| {
    let _ = SectionHeader::decode(&input);
    let mut bytes = input;
    stamp(&mut bytes, b"TNTLSECT");
    let Some(decoded) = decode_repaired(&mut bytes, SectionHeader::decode) else { return };
    let mut block = [0; BLOCK];
    decoded.encode(&mut block);
    assert_eq!(SectionHeader::decode(&block).expect("what is encoded can be decoded"), decoded);
});
