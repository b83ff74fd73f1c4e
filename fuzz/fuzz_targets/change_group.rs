//! A log record that changes pages, applied to a page that may be anything.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>, Vec<u8>)| {
    let (size, record, mut page) = input;
    page.resize(4096 << (size % 3), 0);
    tantalum_store::fuzzing::group_record(&record, &mut page);
});
