//! A trace of page changes, page writes and requests to devices.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::read_repaired;
use tantalum_lab::{
    Error,
    trace::{Event, Header, Reader, Summary, Writer, pages, requests},
};

fuzz_target!(|input: Vec<u8>| {
    let mut bytes = input;
    let Some((header, events, summary)) = read_repaired(&mut bytes, read) else { return };
    let mut writer = Writer::new(Vec::new(), &header).expect("a header that was read can be written");
    events.iter().for_each(|&event| writer.push(event).expect("what was read can be written"));
    let again = writer.finish(&summary).expect("memory takes it");
    assert_eq!(read(&again).expect("what is written can be read"), (header.clone(), events, summary.clone()));
    let open = || Reader::new("again", &again[..]);
    assert_eq!(pages::Analysis::of(open, None).is_ok(), header.database.is_some());
    let has_requests = header.database.is_none() || !summary.devices.is_empty();
    assert_eq!(requests::Analysis::of(open().expect("it was read")).is_ok(), has_requests);
});

fn read(bytes: &[u8]) -> Result<(Header, Vec<Event>, Summary), Error> {
    let mut reader = Reader::new("input", bytes)?;
    let events = reader.by_ref().collect::<Result<_, _>>()?;
    let summary = reader.summary().cloned().expect("all events were read");
    Ok((reader.header().clone(), events, summary))
}
