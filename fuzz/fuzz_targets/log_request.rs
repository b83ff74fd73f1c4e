//! A log request: header, payload, and the records in it.

#![no_main]

use libfuzzer_sys::fuzz_target;
use tantalum_fuzz::{decode_repaired, stamp};
use tantalum_log::format::request::{self, HEADER_BYTES, RequestHeader};

fuzz_target!(|input: Vec<u8>| {
    let _ = RequestHeader::decode(&input);
    let _ = request::decode_record(&input);
    let mut bytes = input;
    stamp(&mut bytes, b"TNTLREQS");
    // A payload as long as the input lets a fuzzer reach what lies behind the header.
    if let Some(payload_bytes) = bytes.len().checked_sub(HEADER_BYTES) {
        bytes[10..12].copy_from_slice(&(HEADER_BYTES as u16).to_le_bytes());
        bytes[12..16].copy_from_slice(&(payload_bytes as u32).to_le_bytes());
    }
    let decode = |bytes: &[u8]| RequestHeader::decode(bytes).and_then(|found| found.check_payload(bytes).map(|()| found));
    let Some(request) = decode_repaired(&mut bytes, decode) else { return };
    assert_eq!(request.header.end().get() - request.header.start.get(), u64::from(request.header.payload_bytes));
    assert!(bytes.len() as u64 >= request.header.bytes(), "a payload that was checked is there");
    let mut again = bytes.clone();
    request.header.encode(&mut again);
    let decoded = RequestHeader::decode(&again).expect("what is encoded can be decoded");
    assert_eq!(decoded.header, request.header);
    // Every record takes some of what is left, so this ends.
    let mut rest = &bytes[HEADER_BYTES..][..request.header.payload_bytes as usize];
    while let Ok(record) = request::decode_record(rest) {
        let taken = record.len() + request::FRAME_BYTES;
        assert!(taken <= rest.len());
        rest = &rest[taken..];
    }
});
