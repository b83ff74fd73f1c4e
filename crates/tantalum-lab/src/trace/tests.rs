use proptest::prelude::*;
use tantalum::{PageChange, PageId, PageObserver, PageOperation};

use super::*;
use crate::{error::Error, framing::assert_damage_is_refused};

fn header() -> Header {
    Header { page_bytes: 8192, buffer_pool_bytes: 20 << 20, label: "a läbel".into() }
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    records.iter().for_each(|&record| writer.push(record).unwrap());
    writer.finish().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Record>, Error> {
    Reader::new("t", bytes)?.collect()
}

fn update(page: u64) -> Record {
    Record::Change { page, operation: PageOperation::Update, bytes: 50 }
}

fn record() -> impl Strategy<Value = Record> {
    use PageOperation::*;
    let operation = prop_oneof![Just(Insert), Just(Update), Just(Delete), Just(Whole)];
    let change = (0..1u64 << 40, operation, 0..1u32 << 21);
    let change = change.prop_map(|(page, operation, bytes)| Record::Change { page, operation, bytes });
    prop_oneof![change, (0..1u64 << 40).prop_map(|page| Record::Write { page })]
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(record(), 0..9000)) {
        prop_assert_eq!(read(&written(&records)).unwrap(), records);
    }

    #[test]
    fn damage_is_an_error(at: prop::sample::Index, bit in 0..8u8, records in prop::collection::vec(record(), 0..40)) {
        assert_damage_is_refused(written(&records), at, bit, |bytes| read(bytes).is_err());
    }

    #[test]
    fn anything_is_read_or_refused(bytes: Vec<u8>) {
        prop_assert!(read(&bytes).is_err());
    }
}

#[test]
fn chunks_out_of_place_and_what_follows_the_end_are_refused() {
    let records: Vec<_> = (0..5000).map(update).collect();
    let bytes = written(&records);
    assert_eq!(read(&bytes).unwrap().len(), 5000);
    let (start, chunk) = (32 + "a läbel".len(), 16 + 8 * 4096);
    let without_first = [&bytes[..start], &bytes[start + chunk..]].concat();
    let message = read(&without_first).unwrap_err().to_string();
    assert!(message.contains("records before a chunk") && message.contains("byte 40"), "{message}");
    let message = read(&[&bytes[..], &[0]].concat()).unwrap_err().to_string();
    assert!(message.contains("follows"), "{message}");
    let message = read(&bytes[..bytes.len() - 16]).unwrap_err().to_string();
    assert!(message.contains("too early"), "{message}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    assert!(writer.push(Record::Write { page: 1 << 40 }).is_err());
    assert!(writer.push(Record::Change { page: 1, operation: PageOperation::Whole, bytes: 1 << 21 }).is_err());
    assert!(Writer::new(Vec::new(), &Header { label: "x".repeat(256), ..header() }).is_err());
}

#[test]
fn a_recorder_writes_what_it_is_asked_for() {
    let recorder = Recorder::new();
    let change = PageChange { operation: PageOperation::Insert, bytes: 9 };
    recorder.written(PageId(1));
    recorder.begin(Writer::new(Vec::new(), &header()).unwrap(), 2);
    recorder.changed(PageId(2), change);
    recorder.written(PageId(3));
    assert!(!recorder.is_full());
    recorder.changed(PageId(4), change);
    assert!(recorder.is_full());
    recorder.written(PageId(5));
    let insert = |page| Record::Change { page, operation: PageOperation::Insert, bytes: 9 };
    assert_eq!(read(&recorder.finish().unwrap()).unwrap(), [insert(2), Record::Write { page: 3 }, insert(4)]);
}

#[test]
fn a_recorder_keeps_the_first_failure_and_the_database_goes_on() {
    let recorder = Recorder::new();
    recorder.begin(Writer::new(Vec::new(), &header()).unwrap(), 10);
    recorder.written(PageId(1 << 40));
    recorder.written(PageId(1));
    assert!(recorder.is_full() && recorder.finish().unwrap_err().to_string().contains("does not fit"));
}

fn analyse(records: &[Record], records_per_sector: Option<u32>) -> Analysis {
    let bytes = written(records);
    Analysis::of(|| Reader::new("t", &bytes[..]), records_per_sector).unwrap()
}

/// The paper's pseudo-code, line by line, for one size of the region.
fn algorithm_2(records: &[Record], most_records: u32, most_sectors: u32, pages_per_unit: u64) -> (u64, u64) {
    let (mut log_count, mut sector_count) =
        (std::collections::BTreeMap::<u64, u32>::new(), std::collections::BTreeMap::<u64, u32>::new());
    let (mut sector_writes, mut merges) = (0, 0);
    for record in records {
        let count = log_count.entry(record.page()).or_default();
        let is_write = matches!(record, Record::Write { .. });
        if is_write || *count >= most_records {
            let sectors = sector_count.entry(record.page() / pages_per_unit).or_default();
            if *sectors >= most_sectors {
                merges += 1;
                *sectors = 0;
            }
            *sectors += 1;
            sector_writes += 1;
            *count = 0;
        }
        *count += u32::from(!is_write);
    }
    (sector_writes, merges)
}

proptest! {
    #[test]
    fn the_simulator_is_algorithm_2(
        records in prop::collection::vec((0..100u64, prop::bool::weighted(0.3)), 0..3000),
        most in 1..12u32,
    ) {
        let make = |(page, is_write)| if is_write { Record::Write { page } } else { update(page) };
        let records: Vec<Record> = records.into_iter().map(make).collect();
        let simulated = analyse(&records, Some(most)).by_count;
        prop_assert_eq!(simulated.regions.len(), REGION_BYTES.len());
        for region in &simulated.regions {
            let pages = (ERASE_UNIT_BYTES - region.region_bytes) / 8192;
            prop_assert_eq!(region.pages_per_unit, pages);
            let expected = algorithm_2(&records, most, region.region_bytes / 512, pages.into());
            prop_assert_eq!((simulated.sector_writes, region.merges), expected);
        }
    }
}

#[test]
fn sectors_by_bytes_take_what_fits() {
    let change = |bytes| Record::Change { page: 1, operation: PageOperation::Whole, bytes };
    // 300 and 300 do not share a sector; 1100 bytes are two full ones and a part.
    for (records, expected) in [
        (vec![change(300), change(200)], 0),
        (vec![change(300), change(300)], 1),
        (vec![change(1100)], 2),
        (vec![change(1100), Record::Write { page: 1 }], 3),
        (vec![Record::Write { page: 1 }], 0),
        (vec![change(1), Record::Write { page: 1 }, Record::Write { page: 1 }], 1),
    ] {
        assert_eq!(analyse(&records, None).by_bytes.sector_writes, expected, "{records:?}");
    }
}

#[test]
fn formulas_and_locality_are_the_papers() {
    // 16 sectors fit into the region of 8 KiB; the 17th merges.
    let mut records: Vec<Record> = (0..17).map(|_| Record::Write { page: 3 }).collect();
    let analysis = analyse(&records, None);
    let region = analysis.by_count.smallest().unwrap();
    assert_eq!((region.pages_per_unit, region.merges), (15, 1));
    assert!((analysis.by_count.seconds(region) - (17.0 * 200e-6 + 20e-3)).abs() < 1e-12);
    assert!((analysis.conventional_seconds(0.5) - 17.0 * 10e-3).abs() < 1e-12);
    assert_eq!((analysis.pages, analysis.database_bytes(region)), (4, 128 << 10));
    assert_eq!((analysis.locality.distinct_pages, analysis.locality.all_pages_distinct), (1.0, 0.0));

    records = (0..64).map(|page| Record::Write { page }).collect();
    let locality = analyse(&records, None).locality;
    assert_eq!((locality.distinct_pages, locality.all_pages_distinct), (16.0, 1.0));
    // Sixteen pages are a unit: a window holds pages of two, or of one when it begins with the first of one.
    assert!((locality.distinct_units - (4.0 + 45.0 * 2.0) / 49.0).abs() < 1e-12, "{}", locality.distinct_units);
    assert_eq!((locality.unit_writes.top, locality.unit_writes.places), (vec![16; 4], 4));
}
