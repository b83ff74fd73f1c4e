//! A trace of requests to devices.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::read_repaired;
use tantalum_lab::{
    Error,
    io_trace::{Analysis, Reader, Record, Summary, Writer},
};

fuzz_target!(|input: Vec<u8>| {
    let mut bytes = input;
    let Some((label, records, summary)) = read_repaired(&mut bytes, b"TNTLIOTR", read) else { return };
    let mut writer = Writer::new(Vec::new(), &label).expect("a label that was read can be written");
    records.iter().for_each(|&record| writer.push(record).expect("what was read can be written"));
    let again = writer.finish(&summary).expect("memory takes it");
    assert_eq!(read(&again).expect("what is written can be read"), (label, records, summary));
    Analysis::of(Reader::new("again", &again[..]).expect("it was read")).expect("what can be read can be analysed");
});

fn read(bytes: &[u8]) -> Result<(String, Vec<Record>, Summary), Error> {
    let mut reader = Reader::new("input", bytes)?;
    let records = reader.by_ref().collect::<Result<_, _>>()?;
    let summary = reader.summary().cloned().expect("all records were read");
    Ok((reader.label().to_owned(), records, summary))
}
