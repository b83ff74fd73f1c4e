//! A trace of requests to devices.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::replace;
use tantalum_lab::{
    Error,
    io_trace::{Analysis, Reader, Record, Summary, Writer},
    trace::Damage,
};

fuzz_target!(|input: Vec<u8>| {
    let mut bytes = input;
    let _ = read(&bytes);
    if let Some(start) = bytes.get_mut(4..14) {
        start[..8].copy_from_slice(b"TNTLIOTR");
        start[8..].copy_from_slice(&1u16.to_le_bytes());
    }
    // The checksums of the header, of some chunks, and of the summary.
    for _ in 0..8 {
        match read(&bytes) {
            Err(Error::Trace { at, damage: Damage::Checksum { stored, computed }, .. }) => {
                replace(&mut bytes[at as usize..][..4], stored.to_le_bytes(), computed.to_le_bytes());
            }
            _ => break,
        }
    }
    let Ok((label, records, summary)) = read(&bytes) else { return };
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
