use std::{sync::Arc, time::Duration};

use proptest::prelude::*;
use tantalum::DeviceUse;
use tantalum_device::{AlignedBuffer, Durability, Ending, MemoryDevice, MemoryProfile, Request, RequestKind};
use tantalum_rt::{Simulation, sleep};

use super::*;
use crate::{error::Error, framing::assert_damage_is_refused, trace};

fn summary(devices: usize) -> Summary {
    let device =
        |number| TracedDevice { used_for: "data".into(), name: format!("disk {number}"), capacity_bytes: 1 << 30 };
    let totals = Totals { transactions: Some(10), ..Totals::default() };
    Summary { duration_ns: 5_000_000_000, devices: (0..devices).map(device).collect(), totals }
}

fn written(records: &[Record]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), "a läbel").unwrap();
    records.iter().for_each(|&record| writer.push(record).unwrap());
    writer.finish(&summary(3)).unwrap()
}

fn read(bytes: &[u8]) -> Result<(Vec<Record>, Summary), Error> {
    let mut reader = Reader::new("t", bytes)?;
    let records = reader.by_ref().collect::<Result<_, _>>()?;
    assert!(reader.next().is_none(), "it ends once");
    Ok((records, reader.summary().expect("all was read").clone()))
}

fn record() -> impl Strategy<Value = Record> {
    use RequestKind::*;
    let kind = prop_oneof![
        Just(Read),
        Just(Write(Durability::Cached)),
        Just(Write(Durability::Durable)),
        Just(Write(Durability::Delivered)),
        Just(Flush),
        Just(Discard)
    ];
    let ending = prop_oneof![Just(Ending::Done), Just(Ending::Failed), Just(Ending::Unknown)];
    (kind, ending, 0..3u16, 0..1u64 << 56, 0..1u64 << 48, 0..1u64 << 40, 0..1u64 << 24).prop_map(
        |(kind, ending, device, began_ns, took_ns, offset, len)| {
            let request = Request { kind, offset: offset * 512, len: len * 512 };
            Record { device, began_ns, took_ns, request, ending }
        },
    )
}

proptest! {
    #[test]
    fn what_is_written_is_read(records in prop::collection::vec(record(), 0..3000)) {
        prop_assert_eq!(read(&written(&records)).unwrap(), (records, summary(3)));
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

fn at(device: u16, began_ns: u64, kind: RequestKind, offset: u64, len: u64) -> Record {
    Record { device, began_ns, took_ns: 1000, request: Request { kind, offset, len }, ending: Ending::Done }
}

const WRITE: RequestKind = RequestKind::Write(Durability::Cached);

#[test]
fn damage_is_named_with_its_place_and_what_to_do() {
    let bytes = written(&[at(0, 0, WRITE, 0, 512); 2000]);
    let header = 32 + "a läbel".len();
    let message = |bytes: &[u8]| read(bytes).unwrap_err().to_string();
    let cases = [
        (message(&[]), "byte 0 it ends too early"),
        (message(&bytes[..header + 100]), "byte 40 it ends too early"),
        (message(&[&bytes[..], &[0]].concat()), "something follows its end"),
        (message(b"something that is no trace at all, but long enough"), "does not begin as a trace does"),
        (message(&bytes[..bytes.len() - 1]), "it ends too early"),
        // 1365 records of three numbers are a chunk.
        (message(&[&bytes[..header], &bytes[header + 16 + 1365 * 24..]].concat()), "records before a chunk"),
    ];
    for (message, expected) in cases {
        assert!(message.contains(expected) && message.contains("bench tpcc --io-trace"), "{message}, not {expected}");
    }
}

#[test]
fn a_trace_of_the_other_kind_is_named() {
    let header = trace::Header { page_bytes: 4096, buffer_pool_bytes: 1 << 20, label: String::new() };
    let pages = trace::Writer::new(Vec::new(), &header).unwrap().finish().unwrap();
    let message = read(&pages).unwrap_err().to_string();
    assert!(message.contains("trace of page changes") && message.contains("tantalum lab trace"), "{message}");
    let message = trace::Reader::new("t", &written(&[])[..]).unwrap_err().to_string();
    assert!(message.contains("requests to devices") && message.contains("tantalum lab io-trace"), "{message}");
}

#[test]
fn a_summary_that_lies_is_refused() {
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    writer.push(at(1, 0, WRITE, 0, 512)).unwrap();
    let message = read(&writer.finish(&summary(1)).unwrap()).unwrap_err().to_string();
    assert!(message.contains("a record's device has the impossible value 1"), "{message}");
}

#[test]
fn what_does_not_fit_is_refused() {
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    for bad in
        [at(0, 0, WRITE, 1, 512), at(0, 0, WRITE, 0, 1), at(0, 1 << 56, WRITE, 0, 0), at(0, 0, WRITE, 0, 8 << 30)]
    {
        assert!(writer.push(bad).unwrap_err().to_string().contains("does not fit"), "{bad:?}");
    }
    assert!(writer.push(Record { took_ns: 1 << 48, ..at(0, 0, WRITE, 0, 0) }).is_err());
    assert!(Writer::new(Vec::new(), &"x".repeat(256)).is_err());
}

fn analyse(records: &[Record]) -> Analysis {
    Analysis::of(Reader::new("t", &written(records)[..]).unwrap()).unwrap()
}

#[test]
fn orders_are_found_as_requests_began_whatever_ended_first() {
    let appends = [at(0, 30, WRITE, 8192, 4096), at(0, 10, WRITE, 0, 4096), at(0, 20, WRITE, 4096, 4096)];
    let order = analyse(&appends).devices[0].writes;
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
    let analysis = analyse(&mixed);
    let Order { requests, sequential, ascending } = analysis.devices[0].writes;
    assert_eq!((requests, sequential, ascending), (4, 1, 2));
    assert_eq!((analysis.devices[0].reads.requests, analysis.devices[1].writes.requests), (1, 1));
}

#[test]
fn more_records_than_are_held_back_are_counted_once_each() {
    let records: Vec<_> = (0..100_000).map(|number| at(0, number * 10, WRITE, number * 512, 512)).collect();
    let analysis = analyse(&records);
    let [device, ..] = &analysis.devices[..] else { panic!("{analysis:?}") };
    assert_eq!((device.writes.requests, device.writes.sequential), (100_000, 99_999));
    assert_eq!(device.written_bytes(), 512 * 100_000);
    let dots = plots(&analysis)[0].series[1].clone();
    assert_eq!(dots.name, "writes, one of 8");
    assert_eq!(dots.points.len(), 100_000 / 8);
    assert_eq!(dots.points[1], (80.0, 8.0 * 512.0), "evenly thinned out");
}

#[test]
fn sizes_latencies_and_relations() {
    let failed = Record { ending: Ending::Failed, ..at(0, 4, WRITE, 0, 512) };
    let unknown = Record { ending: Ending::Unknown, took_ns: 1 << 40, ..at(0, 5, WRITE, 0, 512) };
    let slow = Record { took_ns: 50_000, ..at(0, 3, WRITE, 0, 5120) };
    let records =
        [at(0, 1, WRITE, 0, 4096), at(0, 2, WRITE, 0, 4096), slow, failed, unknown, at(0, 6, RequestKind::Flush, 0, 0)];
    let mut writer = Writer::new(Vec::new(), "").unwrap();
    records.iter().for_each(|&record| writer.push(record).unwrap());
    let totals = Totals {
        transactions: Some(2),
        page_bytes: Some(1024),
        pages_read: None,
        pages_stored: Some(7),
        changed_bytes: Some(1024),
        media: vec![Medium { name: "m".into(), reads: 0, writes: 1, host_bytes: 10, medium_bytes: 2048 }],
    };
    let bytes = writer.finish(&Summary { totals, ..summary(1) }).unwrap();
    let analysis = Analysis::of(Reader::new("t", &bytes[..]).unwrap()).unwrap();
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
fn a_recorder_writes_what_begins_while_it_is_on() {
    const MS: Duration = Duration::from_millis(1);
    let bytes = Simulation::new(7).run(|| {
        let profile = MemoryProfile { write_latency: MS..MS, ..MemoryProfile::default() };
        let recorder = Recorder::new();
        let device = recorder.trace(DeviceUse::Log, MemoryDevice::with_profile("log-0", 1 << 20, profile));
        let submit = |offset| {
            let buffer = Arc::new(AlignedBuffer::zeroed(4096));
            device.submit(offset, buffer, 0..4096, Durability::Durable).unwrap()
        };
        device.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
        let mut before = submit(4096);
        recorder.begin(Writer::new(Vec::new(), "").unwrap());
        before.wait(None).unwrap().unwrap();
        sleep(MS);
        device.write(8192, &[&[1; 4096]], Durability::Cached).unwrap();
        let pending = submit(12288);
        let bytes = recorder.finish(Totals::default()).unwrap();
        drop(pending);
        device.flush().unwrap();
        bytes
    });
    let (records, summary) = read(&bytes.expect_finished()).unwrap();
    let cached = RequestKind::Write(Durability::Cached);
    let written = Record {
        device: 0,
        began_ns: 2_000_000,
        took_ns: 1_000_000,
        request: Request { kind: cached, offset: 8192, len: 4096 },
        ending: Ending::Done,
    };
    let request = Request { kind: RequestKind::Write(Durability::Durable), offset: 12288, len: 4096 };
    let unknown = Record { began_ns: 3_000_000, took_ns: 0, request, ending: Ending::Unknown, ..written };
    assert_eq!(records, [written, unknown]);
    let device = TracedDevice { used_for: "log".into(), name: "log-0".into(), capacity_bytes: 1 << 20 };
    assert_eq!((summary.duration_ns, summary.devices), (3_000_000, vec![device]));
}

#[test]
fn a_recorder_keeps_the_first_failure_and_the_device_goes_on() {
    struct Full;
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            // The header has room, the first chunk has not.
            if bytes.len() > 100 { Err(std::io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let recorder = Recorder::new();
    let device = recorder.trace(DeviceUse::Data, MemoryDevice::new("d", 1 << 20));
    recorder.begin(Writer::new(Full, "").unwrap());
    for _ in 0..3000 {
        device.write(0, &[&[1; 4096]], Durability::Cached).unwrap();
    }
    let failed = recorder.finish(Totals::default()).map(drop);
    assert_eq!(failed.unwrap_err().kind(), std::io::ErrorKind::StorageFull);
}
