//! A log record that changes pages, applied to a page that may be anything; and the change of one cell into another, as it is logged.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: (u8, Vec<u8>, Vec<u8>)| {
    let (size, record, mut page) = input;
    tantalum_store::fuzzing::replaced_cell(&page, &record);
    page.resize(4096 << (size % 3), 0);
    tantalum_store::fuzzing::group_record(&record, &mut page);
});
