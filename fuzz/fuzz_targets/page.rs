//! A page as read from the data device, of any size, and everything that a tree reads of it.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, u64, Vec<u8>)| {
    let (size, id, mut bytes) = input;
    bytes.resize(4096 << (size % 3), 0);
    tantalum::internals::decode_page(&mut bytes, id);
});
