//! A log record of change groups' statuses.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: Vec<u8>| {
    tantalum_store::fuzzing::status_record(&input);
});
