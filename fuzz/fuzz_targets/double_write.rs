//! The header of the double-write area.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Vec<u8>| {
    let mut bytes = input;
    tantalum_store::fuzzing::double_write_header(&mut bytes);
    bytes.resize(4096, 0);
    tantalum_store::fuzzing::double_write_header(&mut bytes);
});
