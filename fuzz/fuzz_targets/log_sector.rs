//! A log sector.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Vec<u8>| {
    let mut bytes = input;
    tantalum_store::fuzzing::log_sector(&mut bytes);
    bytes.resize(512, 0);
    tantalum_store::fuzzing::log_sector(&mut bytes);
});
