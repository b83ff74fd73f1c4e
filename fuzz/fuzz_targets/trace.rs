//! A trace of page changes and page writes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::read_repaired;
use tantalum_lab::{
    Error,
    trace::{Reader, Record, Writer},
};

fuzz_target!(|input: Vec<u8>| {
    let mut bytes = input;
    let Some((header, records)) = read_repaired(&mut bytes, b"TNTLTRCE", read) else { return };
    let mut writer = Writer::new(Vec::new(), &header).expect("a label that was read can be written");
    records.iter().for_each(|&record| writer.push(record).expect("what was read can be written"));
    let again = writer.finish().expect("memory takes it");
    assert_eq!(read(&again).expect("what is written can be read"), (header, records));
});

fn read(bytes: &[u8]) -> Result<(tantalum_lab::trace::Header, Vec<Record>), Error> {
    let reader = Reader::new("input", bytes)?;
    let header = reader.header().clone();
    Ok((header, reader.collect::<Result<_, _>>()?))
}
