//! The superblocks of the log and of the data device.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::{decode_repaired, stamp};
use tantalum_log::format::superblock::Superblock;

fuzz_target!(|input: Vec<u8>| {
    let _ = Superblock::decode(&input);
    let mut bytes = input;
    stamp(&mut bytes, b"TNTLMLOG");
    if let Some(decoded) = decode_repaired(&mut bytes, Superblock::decode) {
        let again = Superblock::decode(&decoded.encode()).expect("what is encoded can be decoded");
        assert_eq!(again, decoded);
    }
    tantalum_store::fuzzing::superblock(&mut bytes);
    bytes.resize(4096, 0);
    tantalum_store::fuzzing::superblock(&mut bytes);
});
