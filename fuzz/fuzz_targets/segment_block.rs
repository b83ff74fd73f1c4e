//! The blocks of a log-structured store: summaries, the map, its root.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Vec<u8>| {
    let mut bytes = input;
    tantalum_store::fuzzing::segment_block(&mut bytes);
    bytes.resize(4096, 0);
    tantalum_store::fuzzing::segment_block(&mut bytes);
});
