//! A trace of page changes and page writes.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::replace;
use tantalum_lab::{
    Error,
    trace::{Damage, Reader, Record, Writer},
};

fuzz_target!(|input: Vec<u8>| {
    let mut bytes = input;
    let _ = read(&bytes);
    if let Some(start) = bytes.get_mut(4..14) {
        start[..8].copy_from_slice(b"TNTLTRCE");
        start[8..].copy_from_slice(&1u16.to_le_bytes());
    }
    // The header's checksum, and those of some chunks.
    for _ in 0..8 {
        match read(&bytes) {
            Err(Error::Trace { at, damage: Damage::Checksum { stored, computed }, .. }) => {
                replace(&mut bytes[at as usize..][..4], stored.to_le_bytes(), computed.to_le_bytes());
            }
            _ => break,
        }
    }
    let Ok((header, records)) = read(&bytes) else { return };
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
