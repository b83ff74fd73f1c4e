//! A checkpoint slot of the log.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::{decode_repaired, stamp};
use tantalum_log::format::slot::Slot;

fuzz_target!(|input: Vec<u8>| {
    let _ = Slot::decode(&input);
    let mut bytes = input;
    stamp(&mut bytes, b"TNTLSLOT");
    let Some(decoded) = decode_repaired(&mut bytes, Slot::decode) else { return };
    let block = decoded.encode();
    assert_eq!(Slot::decode(&block).expect("what is encoded can be decoded"), decoded);
});
