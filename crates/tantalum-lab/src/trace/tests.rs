use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tantalum::{DeviceUse, PageChange, PageId, PageObserver, PageOperation};
use tantalum_device::{AlignedBuffer, Durability, Ending, MemoryDevice, MemoryProfile, Request, RequestKind};
use tantalum_rt::{Simulation, sleep};

use super::{
    pages::{ERASE_UNIT_BYTES, REGION_BYTES},
    requests::{Order, SizeClass},
    *,
};
use crate::error::Error;

fn header() -> Header {
    let database = Some(Database { page_bytes: 8192, buffer_pool_bytes: 20 << 20 });
    Header { label: "a läbel".into(), database }
}

fn summary(devices: usize) -> Summary {
    let device =
        |number| TracedDevice { used_for: "data".into(), name: format!("disk {number}"), capacity_bytes: 1 << 30 };
    let totals = Totals { transactions: Some(10), ..Totals::default() };
    Summary { duration_ns: 5_000_000_000, devices: (0..devices).map(device).collect(), totals }
}

fn written_with(header: &Header, summary: &Summary, events: &[Event]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), header).unwrap();
    events.iter().for_each(|&event| writer.push(event).unwrap());
    writer.finish(summary).unwrap()
}

fn written(events: &[Event]) -> Vec<u8> {
    written_with(&header(), &summary(3), events)
}

fn read(bytes: &[u8]) -> Result<(Header, Vec<Event>, Summary), Error> {
    let mut reader = Reader::new("t", bytes)?;
    let events = reader.by_ref().collect::<Result<_, _>>()?;
    assert!(reader.next().is_none(), "it ends once");
    Ok((reader.header().clone(), events, reader.summary().expect("all was read").clone()))
}

fn update(page: u64) -> Event {
    Event::Change { page, operation: PageOperation::Update, bytes: 50 }
}

fn event() -> impl Strategy<Value = Event> {
    use PageOperation::*;
    let operation = prop_oneof![Just(Insert), Just(Update), Just(Delete), Just(Whole)];
    let change = (0..1u64 << 39, operation, 0..1u32 << 21);
    let change = change.prop_map(|(page, operation, bytes)| Event::Change { page, operation, bytes });
    let kind = prop_oneof![
        Just(RequestKind::Read),
        Just(RequestKind::Write(Durability::Cached)),
        Just(RequestKind::Write(Durability::Durable)),
        Just(RequestKind::Write(Durability::Delivered)),
        Just(RequestKind::Flush),
        Just(RequestKind::Discard)
    ];
    let ending = prop_oneof![Just(Ending::Done), Just(Ending::Failed), Just(Ending::Unknown)];
    let request = (kind, ending, 0..3u16, 0..1u64 << 56, 0..1u64 << 48, 0..1u64 << 40, 0..1u64 << 24);
    let request = request.prop_map(|(kind, ending, device, began_ns, took_ns, offset, len)| {
        let request = Request { kind, offset: offset * 512, len: len * 512 };
        Event::Request(TracedRequest { device, began_ns, took_ns, request, ending })
    });
    prop_oneof![change, (0..1u64 << 39).prop_map(|page| Event::Write { page }), request]
}

proptest! {
    #[test]
    fn what_is_written_is_read(events in prop::collection::vec(event(), 0..5000)) {
        prop_assert_eq!(read(&written(&events)).unwrap(), (header(), events, summary(3)));
    }

    #[test]
    fn damage_is_an_error(at: prop::sample::Index, bit in 0..8u8, events in prop::collection::vec(event(), 0..40)) {
        let mut bytes = written(&events);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(read(&bytes).is_err(), "bit {} of byte {} is wrong", bit, at);
        prop_assert!(read(&bytes[..at]).is_err(), "cut off at byte {}", at);
    }

    #[test]
    fn anything_is_read_or_refused(bytes: Vec<u8>) {
        prop_assert!(read(&bytes).is_err());
    }
}

fn at(device: u16, began_ns: u64, kind: RequestKind, offset: u64, len: u64) -> TracedRequest {
    TracedRequest { device, began_ns, took_ns: 1000, request: Request { kind, offset, len }, ending: Ending::Done }
}

const WRITE: RequestKind = RequestKind::Write(Durability::Cached);

fn message(bytes: &[u8]) -> String {
    read(bytes).unwrap_err().to_string()
}

#[test]
fn damage_is_named_with_its_place_and_what_to_do() {
    let bytes = written(&(0..5000).map(update).collect::<Vec<_>>());
    let header = 16 + 16 + serde_json::to_vec(&header()).unwrap().len();
    // A block begins where the three numbers of a request may no longer fit into the one before.
    let block = 16 + 8 * 4094;
    let without_first = [&bytes[..header], &bytes[header + block..]].concat();
    let cases = [
        (message(&[]), "byte 0 it ends too early".to_owned()),
        (message(&bytes[..header + 100]), format!("byte {header} it ends too early")),
        (message(&[&bytes[..], &[0]].concat()), "something follows its end".to_owned()),
        (message(b"something that is no trace at all, but long enough"), "does not begin as a trace does".to_owned()),
        (message(&bytes[..bytes.len() - 1]), "it ends too early".to_owned()),
        (message(&without_first), format!("byte {header} a block's place has the impossible value {}", header + block)),
    ];
    for (message, expected) in cases {
        assert!(message.contains(&expected) && message.contains("tantalum bench"), "{message}, not {expected}");
    }
}

/// The begin of both formats of version 1: a checksum, a magic number, the version, the label's length, 16 bytes more.
#[test]
fn traces_of_version_1_are_refused_by_name() {
    for magic in [b"TNTLTRCE", b"TNTLIOTR"] {
        let mut bytes = [&[0; 4], &magic[..], &[1, 0], &[0; 18]].concat();
        let checksum = crc32c::crc32c(&bytes[4..]).to_le_bytes();
        bytes[..4].copy_from_slice(&checksum);
        let message = message(&bytes);
        assert!(message.contains("format version 1") && message.contains("reads version 2"), "{message}");
    }
}

#[test]
fn a_trace_without_what_is_analysed_is_named() {
    let pages = written_with(&header(), &Summary::default(), &[update(1)]);
    let message = requests::Analysis::of(Reader::new("t", &pages[..]).unwrap()).unwrap_err().to_string();
    assert!(message.contains("page changes") && message.contains("tantalum lab trace"), "{message}");
    let requests = written_with(&Header::new(""), &summary(1), &[]);
    let message = pages::Analysis::of(|| Reader::new("t", &requests[..]), None).unwrap_err().to_string();
    assert!(message.contains("requests to devices") && message.contains("tantalum lab io-trace"), "{message}");
}

#[test]
fn a_summary_that_lies_is_refused() {
    let bytes = written_with(&header(), &summary(1), &[Event::Request(at(1, 0, WRITE, 0, 512))]);
    let message = message(&bytes);
    assert!(message.contains("a request's device has the impossible value 1"), "{message}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let requests =
        [at(0, 0, WRITE, 1, 512), at(0, 0, WRITE, 0, 1), at(0, 1 << 56, WRITE, 0, 0), at(0, 0, WRITE, 0, 8 << 30)];
    let slow = TracedRequest { took_ns: 1 << 48, ..at(0, 0, WRITE, 0, 0) };
    let long = Event::Change { page: 1, operation: PageOperation::Whole, bytes: 1 << 21 };
    let requests = requests.into_iter().chain([slow]).map(Event::Request);
    for bad in requests.chain([Event::Write { page: 1 << 39 }, long]) {
        assert!(writer.push(bad).unwrap_err().to_string().contains("does not fit"), "{bad:?}");
    }
    assert!(Writer::new(Vec::new(), &Header::new("x".repeat(2 << 20))).is_err());
    let nothing = read(&writer.finish(&summary(0)).unwrap()).unwrap();
    assert_eq!(nothing.1, []);
}

#[test]
fn a_recorder_writes_as_many_page_changes_as_it_is_asked_for() {
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
    let insert = |page| Event::Change { page, operation: PageOperation::Insert, bytes: 9 };
    let events = read(&recorder.finish(Totals::default()).unwrap()).unwrap().1;
    assert_eq!(events, [insert(2), Event::Write { page: 3 }, insert(4)]);
}

#[test]
fn a_recorder_keeps_the_first_failure_and_the_database_goes_on() {
    let recorder = Recorder::new();
    recorder.begin(Writer::new(Vec::new(), &header()).unwrap(), 10);
    recorder.written(PageId(1 << 40));
    recorder.written(PageId(1));
    assert!(recorder.is_full());
    assert!(recorder.finish(Totals::default()).unwrap_err().to_string().contains("does not fit"));
}

fn pages_of(events: &[Event], records_per_sector: Option<u32>) -> pages::Analysis {
    let bytes = written(events);
    pages::Analysis::of(|| Reader::new("t", &bytes[..]), records_per_sector).unwrap()
}

/// The paper's pseudo-code, line by line, for one size of the region.
fn algorithm_2(records: &[Event], most_records: u32, most_sectors: u32, pages_per_unit: u64) -> (u64, u64) {
    let (mut log_count, mut sector_count) =
        (std::collections::BTreeMap::<u64, u32>::new(), std::collections::BTreeMap::<u64, u32>::new());
    let (mut sector_writes, mut merges) = (0, 0);
    for event in records {
        let (page, is_write) = match *event {
            Event::Write { page } => (page, true),
            Event::Change { page, .. } => (page, false),
            Event::Request(_) => continue,
        };
        let count = log_count.entry(page).or_default();
        if is_write || *count >= most_records {
            let sectors = sector_count.entry(page / pages_per_unit).or_default();
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
        let make = |(page, is_write)| if is_write { Event::Write { page } } else { update(page) };
        let records: Vec<Event> = records.into_iter().map(make).collect();
        let simulated = pages_of(&records, Some(most)).by_count;
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
    let change = |bytes| Event::Change { page: 1, operation: PageOperation::Whole, bytes };
    // 300 and 300 do not share a sector; 1100 bytes are two full ones and a part.
    for (records, expected) in [
        (vec![change(300), change(200)], 0),
        (vec![change(300), change(300)], 1),
        (vec![change(1100)], 2),
        (vec![change(1100), Event::Write { page: 1 }], 3),
        (vec![Event::Write { page: 1 }], 0),
        (vec![change(1), Event::Write { page: 1 }, Event::Write { page: 1 }], 1),
    ] {
        assert_eq!(pages_of(&records, None).by_bytes.sector_writes, expected, "{records:?}");
    }
}

#[test]
fn formulas_and_locality_are_the_papers() {
    // 16 sectors fit into the region of 8 KiB; the 17th merges.
    let mut records: Vec<Event> = (0..17).map(|_| Event::Write { page: 3 }).collect();
    let analysis = pages_of(&records, None);
    let region = analysis.by_count.smallest().unwrap();
    assert_eq!((region.pages_per_unit, region.merges), (15, 1));
    assert!((analysis.by_count.seconds(region) - (17.0 * 200e-6 + 20e-3)).abs() < 1e-12);
    assert!((analysis.conventional_seconds(0.5) - 17.0 * 10e-3).abs() < 1e-12);
    assert_eq!((analysis.pages, analysis.database_bytes(region)), (4, 128 << 10));
    assert_eq!((analysis.locality.distinct_pages, analysis.locality.all_pages_distinct), (1.0, 0.0));

    records = (0..64).map(|page| Event::Write { page }).collect();
    let locality = pages_of(&records, None).locality;
    assert_eq!((locality.distinct_pages, locality.all_pages_distinct), (16.0, 1.0));
    // Sixteen pages are a unit: a window holds pages of two, or of one when it begins with the first of one.
    assert!((locality.distinct_units - (4.0 + 45.0 * 2.0) / 49.0).abs() < 1e-12, "{}", locality.distinct_units);
    assert_eq!((locality.unit_writes.top, locality.unit_writes.places), (vec![16; 4], 4));
}

fn requests_of(requests: &[TracedRequest]) -> requests::Analysis {
    let events: Vec<Event> = requests.iter().copied().map(Event::Request).collect();
    requests::Analysis::of(Reader::new("t", &written(&events)[..]).unwrap()).unwrap()
}

#[test]
fn orders_are_found_as_requests_began_whatever_ended_first() {
    let appends = [at(0, 30, WRITE, 8192, 4096), at(0, 10, WRITE, 0, 4096), at(0, 20, WRITE, 4096, 4096)];
    let order = requests_of(&appends).devices[0].writes;
    assert_eq!((order.requests, order.sequential, order.ascending), (3, 2, 2));
    assert_eq!(order.sequential_share(), Some(2.0 / 3.0));

    // Of one moment by address; each device and direction for itself.
    let mixed = [
        at(0, 5, WRITE, 4096, 512),
        at(0, 5, WRITE, 0, 4096),
        at(0, 6, RequestKind::Read, 512, 512),
        at(1, 7, WRITE, 0, 512),
        at(0, 8, WRITE, 8192, 512),
        at(0, 9, WRITE, 0, 512),
    ];
    let analysis = requests_of(&mixed);
    let Order { requests, sequential, ascending } = analysis.devices[0].writes;
    assert_eq!((requests, sequential, ascending), (4, 1, 2));
    assert_eq!((analysis.devices[0].reads.requests, analysis.devices[1].writes.requests), (1, 1));
}

#[test]
fn more_records_than_are_held_back_are_counted_once_each() {
    let records: Vec<_> = (0..100_000).map(|number| at(0, number * 10, WRITE, number * 512, 512)).collect();
    let analysis = requests_of(&records);
    let [device, ..] = &analysis.devices[..] else { panic!("{analysis:?}") };
    assert_eq!((device.writes.requests, device.writes.sequential), (100_000, 99_999));
    assert_eq!(device.written_bytes(), 512 * 100_000);
    let dots = requests::plots(&analysis)[0].series[1].clone();
    assert_eq!(dots.name, "writes, one of 8");
    assert_eq!(dots.points.len(), 100_000 / 8);
    assert_eq!(dots.points[1], (80.0, 8.0 * 512.0), "evenly thinned out");
}

#[test]
fn sizes_latencies_and_relations() {
    let failed = TracedRequest { ending: Ending::Failed, ..at(0, 4, WRITE, 0, 512) };
    let unknown = TracedRequest { ending: Ending::Unknown, took_ns: 1 << 40, ..at(0, 5, WRITE, 0, 512) };
    let slow = TracedRequest { took_ns: 50_000, ..at(0, 3, WRITE, 0, 5120) };
    let records =
        [at(0, 1, WRITE, 0, 4096), at(0, 2, WRITE, 0, 4096), slow, failed, unknown, at(0, 6, RequestKind::Flush, 0, 0)];
    let totals = Totals {
        transactions: Some(2),
        page_bytes: Some(1024),
        pages_read: None,
        pages_stored: Some(7),
        changed_bytes: Some(1024),
        media: vec![Medium { name: "m".into(), reads: 0, writes: 1, host_bytes: 10, medium_bytes: 2048 }],
    };
    let bytes = written_with(&Header::new(""), &Summary { totals, ..summary(1) }, &records.map(Event::Request));
    let analysis = requests::Analysis::of(Reader::new("t", &bytes[..]).unwrap()).unwrap();
    let [write, flush] = &analysis.devices[0].operations[..] else { panic!("{analysis:?}") };
    assert_eq!((write.requests, write.bytes, write.failed, write.unknown), (5, 14336, 1, 1));
    let class = |up_to_bytes, requests| SizeClass { up_to_bytes, requests };
    assert_eq!(write.sizes, [class(512, 2), class(4096, 2), class(8192, 1)]);
    let latency = write.latency.unwrap();
    assert!((latency.p50_us - 1.0).abs() < 0.02 && (latency.max_us - 50.0).abs() < 1.0, "{latency:?}");
    assert_eq!((flush.requests, flush.sizes.len()), (1, 0));
    let each = analysis.per_transaction.unwrap();
    assert_eq!((each.pages_stored, each.writes, each.written_bytes, each.flushes), (Some(3.5), 2.5, 7168.0, 0.5));
    assert_eq!(analysis.written_over_stored, Some(2.0));
    assert_eq!(analysis.written_over_changed, Some(14.0));
    assert_eq!(analysis.media_over_changed, Some(2.0));
}

#[test]
fn a_recorder_writes_the_requests_that_begin_while_it_is_on() {
    const MS: Duration = Duration::from_millis(1);
    let bytes = Simulation::new(7).run(|| {
        let profile = MemoryProfile { write_latency: MS..MS, ..MemoryProfile::default() };
        let recorder = Recorder::new();
        let device = recorder.observe(DeviceUse::Log, MemoryDevice::with_profile("log-0", 1 << 20, profile));
        let submit = |offset| {
            let buffer = Arc::new(AlignedBuffer::zeroed(4096));
            device.submit(offset, buffer, 0..4096, Durability::Durable).unwrap()
        };
        device.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
        let mut before = submit(4096);
        recorder.begin(Writer::new(Vec::new(), &Header::new("")).unwrap(), 0);
        before.wait(None).unwrap().unwrap();
        sleep(MS);
        device.write(8192, &[&[1; 4096]], Durability::Cached).unwrap();
        let pending = submit(12288);
        let bytes = recorder.finish(Totals::default()).unwrap();
        drop(pending);
        device.flush().unwrap();
        bytes
    });
    let (_, events, summary) = read(&bytes.expect_finished()).unwrap();
    let cached = RequestKind::Write(Durability::Cached);
    let written = TracedRequest {
        device: 0,
        began_ns: 2_000_000,
        took_ns: 1_000_000,
        request: Request { kind: cached, offset: 8192, len: 4096 },
        ending: Ending::Done,
    };
    let request = Request { kind: RequestKind::Write(Durability::Durable), offset: 12288, len: 4096 };
    let unknown = TracedRequest { began_ns: 3_000_000, took_ns: 0, request, ending: Ending::Unknown, ..written };
    assert_eq!(events, [written, unknown].map(Event::Request));
    let device = TracedDevice { used_for: "log".into(), name: "log-0".into(), capacity_bytes: 1 << 20 };
    assert_eq!((summary.duration_ns, summary.devices), (3_000_000, vec![device]));
}

#[test]
fn a_recorder_keeps_the_failure_of_its_output_and_the_device_goes_on() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // The header has room, the first chunk has not.
            if bytes.len() > 1000 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let recorder = Recorder::new();
    let device = recorder.observe(DeviceUse::Data, MemoryDevice::new("d", 1 << 20));
    recorder.begin(Writer::new(Full, &Header::new("")).unwrap(), 0);
    for _ in 0..3000 {
        device.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
    }
    let failed = recorder.finish(Totals::default()).map(drop);
    assert_eq!(failed.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}
