//! Round trips, and arbitrary bytes.

use proptest::prelude::*;

use super::archive::{ArchiveSuperblock, SegmentHeader};
use super::request::{HEADER_BYTES, RequestHeader};
use super::section::{MAX_ENTRIES, SectionHeader, StrideEntry};
use super::slot::{EpochStart, MAX_EPOCHS, Slot, SlotMember};
use super::superblock::{Superblock, area_bytes_of};
use super::*;
use crate::{LogLayout, Lsn};

fn ascending(len: usize) -> impl Strategy<Value = Vec<u64>> {
    prop::collection::btree_set(0..NUMBER_LIMIT, 1..=len).prop_map(|set| set.into_iter().collect())
}

fn numbers<const N: usize>() -> impl Strategy<Value = [u64; N]> {
    prop::array::uniform(0..NUMBER_LIMIT)
}

fn request() -> impl Strategy<Value = (RequestHeader, Vec<u8>)> {
    let payload = prop::collection::vec(any::<u8>(), 1..9000);
    (payload, numbers::<5>(), 0..NUMBER_LIMIT, numbers::<3>()).prop_map(|(payload, ids, start, lsns)| {
        let header = RequestHeader {
            device_tag: ids[0],
            epoch: ids[1],
            sequence: ids[2],
            section: ids[3],
            offset: ids[4],
            start: Lsn::new(start),
            stream_lsn: Lsn::new(lsns[0]),
            durable_lsn: Lsn::new(lsns[1]),
            payload_bytes: payload.len() as u32,
            time_us: lsns[2],
        };
        (header, payload)
    })
}

fn decode_all(bytes: &[u8]) {
    let _ = Superblock::decode(bytes);
    let _ = Slot::decode(bytes);
    let _ = SectionHeader::decode(bytes);
    let _ = ArchiveSuperblock::decode(bytes);
    let _ = SegmentHeader::decode(bytes);
    if let Ok(request) = RequestHeader::decode(bytes) {
        let _ = request.check_payload(bytes);
    }
    let mut rest = bytes;
    while let Ok(record) = request::decode_record(rest) {
        rest = &rest[request::FRAME_BYTES + record.len()..];
    }
}

proptest! {
    #[test]
    fn superblocks_round_trip(
        log_id: u128, device_id in 1u64.., count in 1u32..=64, ordinal: u32, blocks in 16u32..8192, sections in 4u32..9999,
        kind in 0usize..3, block in 9u32..=12, units in 1u32..=64, hiding in prop_oneof![Just(0u32), 2u32..99],
    ) {
        let unit_bytes = units << block;
        let layout = [LogLayout::FlashLogging, LogLayout::Single, LogLayout::Striped { unit_bytes }][kind];
        let hiding = if layout == LogLayout::FlashLogging { hiding } else { 0 };
        let stripe_devices = if kind == 2 { count } else { 1 };
        let superblock = Superblock {
            log_id,
            ordinal: ordinal % if kind == 2 { count } else { 64 },
            device_id,
            layout,
            stripe_devices,
            block_bytes: 1 << block,
            section_bytes: blocks * BLOCK as u32,
            section_count: sections,
            hiding_section_count: hiding,
            area_bytes: area_bytes_of(layout, stripe_devices, u64::from(blocks) * BLOCK as u64, (sections + hiding).into()),
        };
        prop_assert_eq!(Superblock::decode(&superblock.encode()), Ok(superblock));
    }

    #[test]
    fn slots_round_trip(
        log_id: u128, [sequence, checkpoint, end, run, from] in numbers::<5>(), clean: bool, not_needed: u64, archived: bool,
        needs_archive: bool, mirrored: bool, is_stamped: bool, hardware: u64,
        epochs in ascending(MAX_EPOCHS), starts in ascending(MAX_EPOCHS),
        ordinals in prop::collection::btree_set(0u32..64, 1..=64),
        ids in prop::collection::btree_set(1u64.., 64),
    ) {
        let stamped = epochs.first().copied().filter(|_| is_stamped);
        let epochs = epochs.into_iter().zip(starts);
        let members = ordinals.iter().copied().zip(ids);
        let slot = Slot {
            log_id,
            sequence,
            checkpoint: Lsn::new(checkpoint),
            epochs: epochs.map(|(epoch, start)| EpochStart { epoch, start: Lsn::new(start) }).collect(),
            clean_end: clean.then(|| Lsn::new(end.max(checkpoint))),
            not_needed: not_needed & ordinals.iter().fold(0, |bits, ordinal| bits | 1 << ordinal),
            archive_run: (archived || needs_archive).then(|| Lsn::new(run)),
            needs_archive,
            mirrored_from: mirrored.then(|| Lsn::new(from)),
            stamped,
            members: members.map(|(ordinal, device_id)| SlotMember { ordinal, device_id, hardware }).collect(),
        };
        prop_assert_eq!(Slot::decode(&slot.encode()), Ok(slot));
    }

    #[test]
    fn archive_superblocks_round_trip(log_id: u128, blocks in 16u32..8192, segments in 4u32..9999, in_directory: bool) {
        let segment_count = if in_directory { 0 } else { segments };
        let superblock = ArchiveSuperblock { log_id, segment_bytes: blocks * BLOCK as u32, segment_count };
        prop_assert_eq!(ArchiveSuperblock::decode(&superblock.encode()), Ok(superblock));
    }

    #[test]
    fn segment_headers_round_trip(log_id: u128, [number, epoch, first_sequence, start, before, time_us] in numbers::<6>()) {
        let (start, run_start) = (Lsn::new(start), Lsn::new(start.min(before)));
        let header = SegmentHeader { log_id, number, epoch, first_sequence, start, run_start, time_us };
        let mut block = vec![0xff; BLOCK];
        header.encode(&mut block);
        prop_assert_eq!(SegmentHeader::decode(&block), Ok(header));
    }

    #[test]
    fn section_headers_round_trip(
        log_id: u128, device_id: u64, is_hiding: bool, ids in numbers::<4>(),
        blocks in prop::collection::btree_set(any::<u32>(), 0..=MAX_ENTRIES), lsns in ascending(MAX_ENTRIES),
    ) {
        let previous = blocks.into_iter().zip(lsns);
        let header = SectionHeader {
            log_id,
            device_id,
            is_hiding,
            number: ids[0],
            epoch: ids[1],
            first_sequence: ids[2],
            stream_lsn: Lsn::new(ids[3]),
            previous: previous.map(|(at, lsn)| StrideEntry { at, stream_lsn: Lsn::new(lsn) }).collect(),
        };
        let mut block = vec![0xff; BLOCK];
        header.encode(&mut block);
        prop_assert_eq!(SectionHeader::decode(&block), Ok(header));
    }

    #[test]
    fn requests_round_trip_and_every_flip_shows((header, payload) in request(), position: prop::sample::Index, bit in 0u32..8) {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(&payload);
        header.encode(&mut bytes);
        let decoded = RequestHeader::decode(&bytes).expect("what was encoded decodes");
        prop_assert_eq!(decoded.header, header);
        prop_assert_eq!(decoded.check_payload(&bytes), Ok(()));

        bytes[position.index(HEADER_BYTES + payload.len())] ^= 1u8 << bit;
        let still_valid = RequestHeader::decode(&bytes).is_ok_and(|decoded| decoded.check_payload(&bytes).is_ok());
        prop_assert!(!still_valid);
    }

    #[test]
    fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..5000)) {
        decode_all(&bytes);
    }

    #[test]
    fn damaged_structures_never_panic((header, payload) in request(), cut: prop::sample::Index, flips in prop::collection::vec((0usize..200, any::<u8>()), 0..8)) {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes.extend_from_slice(&payload);
        header.encode(&mut bytes);
        for (at, value) in flips {
            if let Some(byte) = bytes.get_mut(at) { *byte ^= value; }
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        decode_all(&bytes);
    }
}

#[test]
fn another_version_is_told_from_damage() {
    let superblock = Superblock {
        log_id: 1,
        ordinal: 0,
        device_id: 1,
        layout: LogLayout::FlashLogging,
        stripe_devices: 1,
        block_bytes: 4096,
        section_bytes: 65536,
        section_count: 4,
        hiding_section_count: 0,
        area_bytes: 65536 * 4 + 4 * BLOCK as u64,
    };
    let mut block = superblock.encode();
    block[8] = 9;
    assert_eq!(Superblock::decode(&block), Err(DecodeError::NewerVersion { found: 9 }));
    block[8] = 1;
    assert_eq!(Superblock::decode(&block), Err(DecodeError::OlderVersion { found: 1 }));
    block[8] = VERSION as u8;
    block[20] ^= 1;
    assert!(matches!(Superblock::decode(&block), Err(DecodeError::Checksum { .. })));
    block[0] = 0;
    assert_eq!(Superblock::decode(&block), Err(DecodeError::Magic));
}

#[test]
fn a_slot_with_impossible_members_is_refused() {
    let member = SlotMember::new;
    let decode = |members: Vec<SlotMember>, not_needed| {
        let epochs = vec![EpochStart { epoch: 1, start: Lsn::ZERO }];
        let checkpoint = Lsn::ZERO;
        let slot = Slot {
            log_id: 1,
            sequence: 1,
            checkpoint,
            epochs,
            clean_end: None,
            not_needed,
            archive_run: None,
            needs_archive: false,
            mirrored_from: None,
            stamped: None,
            members,
        };
        Slot::decode(&slot.encode())
    };
    let field = |result| match result {
        Err(DecodeError::Field { field, .. }) => field,
        other => panic!("{other:?}"),
    };
    assert!(decode(vec![member(0, 7), member(63, 8)], 1 << 63).is_ok());
    assert_eq!(field(decode(vec![member(1, 7), member(0, 8)], 0)), "member order");
    assert_eq!(field(decode(vec![member(1, 7), member(1, 8)], 0)), "member order");
    assert_eq!(field(decode(vec![member(64, 7)], 0)), "member ordinal");
    assert_eq!(field(decode(vec![member(0, 7), member(1, 7)], 0)), "member identity");
    assert_eq!(field(decode(vec![member(0, 0)], 0)), "member identity");
    assert_eq!(field(decode(vec![member(0, 7)], 2)), "devices not needed");
    let mut no_members = Slot {
        log_id: 1,
        sequence: 1,
        checkpoint: Lsn::ZERO,
        epochs: vec![EpochStart { epoch: 1, start: Lsn::ZERO }],
        clean_end: None,
        not_needed: 0,
        archive_run: None,
        needs_archive: false,
        mirrored_from: None,
        stamped: None,
        members: vec![member(0, 7)],
    }
    .encode();
    no_members[80..84].fill(0);
    assert_eq!(field(Slot::decode(&no_members)), "member count");
}
