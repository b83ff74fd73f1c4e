//! Readers of a running log see its durable records in their order, across power cuts, on all layouts.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tantalum_device::{Device, Durability, MemoryDevice, MemoryProfile};
use tantalum_log::{
    ArchiveOptions, ArchiveReader, ErrorKind, FellBehind, Log, LogLayout, LogOptions, LogReader, Lsn, Record,
    inspect_archive, verify_archive,
};
use tantalum_rt::{Outcome, Random, Simulation, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, lock};

const SECTION_BYTES: u32 = 64 << 10;
const SEGMENT: u64 = 64 << 10;

/// What one seed has.
#[derive(Clone)]
struct Bed {
    log: Vec<Arc<MemoryDevice>>,
    archive: Option<Arc<MemoryDevice>>,
    layout: LogLayout,
    copies: u8,
}

/// What was appended and read, kept across power cuts.
#[derive(Default)]
struct Known {
    appended: BTreeMap<u64, Record>,
    read: Vec<Record>,
    /// Where a reader goes on.
    at: Lsn,
    fell_behind: u32,
    /// Records that were read one by one.
    sought: u32,
}

impl Bed {
    fn new(seed: u64) -> Bed {
        let us = Duration::from_micros;
        let device = |name: String, bytes, salt| {
            let profile = MemoryProfile {
                write_latency: us(20)..us(200 + 300 * (salt % 2)),
                read_latency: us(5)..us(60),
                seed: seed * 16 + salt,
                ..MemoryProfile::default()
            };
            MemoryDevice::with_profile(name, bytes, profile)
        };
        let (count, layout, copies) = match seed % 6 {
            0 => (1, LogLayout::FlashLogging, 1),
            1 => (3, LogLayout::FlashLogging, 1),
            2 => (1, LogLayout::Single, 1),
            3 => (3, LogLayout::Striped { unit_bytes: 16 << 10 }, 1),
            4 => (2, LogLayout::FlashLogging, 2),
            _ => (2, LogLayout::FlashLogging, 1),
        };
        let log = (0..count).map(|n| device(format!("log-{n}"), 1 << 20, n)).collect();
        let archive = (seed % 4 == 1).then(|| device("archive".into(), 16 << 20, 9));
        let bed = Bed { log, archive, layout, copies };
        Log::create(LOG_ID, as_devices(&bed.log), bed.options()).expect("create");
        bed
    }

    fn options(&self) -> LogOptions {
        let archive = self.archive.clone().map(|device| ArchiveOptions {
            segment_bytes: Some(SECTION_BYTES),
            delay: Duration::from_millis(1),
            ..ArchiveOptions::on_device(device)
        });
        let (layout, copies) = (self.layout, self.copies);
        LogOptions { section_bytes: Some(SECTION_BYTES), layout, copies, archive, ..LogOptions::default() }
    }

    fn cut(&self, random: &mut Random) {
        self.log.iter().chain(&self.archive).for_each(|device| device.power_cut(random));
    }
}

/// Appends and flushes records of all sizes, for ever.
fn write(log: &Log, known: &Mutex<Known>, seed: u64) {
    let mut random = Random::with_seed(seed);
    loop {
        let longest = [40, 400, 6000][random.usize(0..3)];
        let bytes = vec![random.u8(..); random.usize(1..longest)];
        let range = match log.append(&[&bytes]) {
            Err(error) if error.kind() == ErrorKind::LogFull => {
                let mut space = log.wait_for_space(bytes.len()).expect("space");
                log.append_requested(&[&bytes], &mut space).expect("it was granted")
            }
            appended => appended.expect("append"),
        };
        lock(known).appended.insert(range.start.get(), Record { start: range.start, end: range.end, bytes });
        if random.u8(0..3) > 0 {
            log.flush(range.end).expect("flush");
        }
        if random.u8(0..6) == 0 {
            sleep(Duration::from_micros(random.u64(1..2000)));
        }
    }
}

/// Reads all that is durable; begins anew where it fell behind.
fn read(reader: &mut LogReader, log: &Log, known: &Mutex<Known>) {
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                let mut known = lock(known);
                known.at = record.end;
                known.read.push(record);
            }
            Ok(None) => return,
            Err(error) if error.kind() == ErrorKind::FellBehind => {
                let FellBehind { oldest } = *error.cause().expect("it says where the log begins");
                assert!(oldest > reader.position() && oldest <= log.durable_lsn());
                {
                    let mut known = lock(known);
                    (known.at, known.fell_behind) = (oldest, known.fell_behind + 1);
                }
                *reader = log.reader(oldest).expect("it is durable");
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads single records, in any order, that are durable and may be overwritten.
fn wander(log: &Log, known: &Mutex<Known>, seed: u64) {
    let mut random = Random::with_seed(seed);
    let mut reader = log.reader(log.durable_lsn()).expect("it is durable");
    loop {
        sleep(Duration::from_micros(random.u64(1..400)));
        let durable = log.durable_lsn();
        let wanted = {
            let known = lock(known);
            let near = known.appended.range(reader.position().get()..).map(|(_, record)| record);
            let any = known.appended.values().filter(|record| record.end <= durable);
            let skipped = random.usize(0..5);
            let wanted = match random.u8(0..3) {
                0 => any.clone().nth(random.usize(0..any.count().max(1))),
                // Of those that are left most often.
                1 => any.rev().nth(20 * skipped),
                _ => near.filter(|record| record.end <= durable).nth(skipped),
            };
            wanted.cloned()
        };
        let Some(wanted) = wanted else { continue };
        reader.seek(wanted.start).expect("it is durable");
        match reader.next_record() {
            Ok(found) => {
                assert_eq!(found, Some(wanted), "seed {seed}");
                lock(known).sought += 1;
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::FellBehind, "seed {seed}: {error}");
                assert!(wanted.start < log.checkpoint_lsn(), "seed {seed}: it is needed");
            }
        }
    }
}

fn run(bed: &Bed, known: &Arc<Mutex<Known>>, seed: u64) {
    let recovery = Log::open(as_devices(&bed.log), bed.options(), &mut |_| {}).expect("open");
    let end = recovery.end_lsn();
    let log = recovery.finish().expect("finish");
    {
        let mut known = lock(known);
        assert!(known.at <= end, "what was read was durable");
        known.appended.retain(|_, record| record.end <= end);
    }
    let at = lock(known).at;
    let mut reader = log.reader(at).expect("it is durable");
    read(&mut reader, &log, known);
    assert_eq!(reader.position(), end, "seed {seed}");
    for n in 0..3 {
        let (log, known) = (log.clone(), Arc::clone(known));
        spawn("writer", move || write(&log, &known, seed * 4 + n));
    }
    spawn("owner", {
        let log = log.clone();
        move || {
            loop {
                if log.wait_for_pressure(Duration::from_millis(1)) {
                    log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
                }
            }
        }
    });
    spawn("wanderer", {
        let (log, known) = (log.clone(), Arc::clone(known));
        move || wander(&log, &known, seed)
    });
    let mut random = Random::with_seed(seed);
    loop {
        if reader.wait(Duration::from_millis(1)).expect("it runs") {
            read(&mut reader, &log, known);
        }
        if random.u8(0..3) == 0 {
            let longest = [300, 3000, 30_000][random.usize(0..3)];
            sleep(Duration::from_micros(random.u64(1..longest)));
        }
        if random.u8(0..8) == 0 {
            reader = log.reader(reader.position()).expect("it is durable");
        }
    }
}

#[test]
fn readers_see_what_is_durable_in_order_across_power_cuts() {
    let (mut records, mut behind, mut sought) = (0, 0, 0);
    for seed in 0..60 {
        let bed = Bed::new(seed);
        let known = Arc::new(Mutex::new(Known::default()));
        let mut random = Random::with_seed(seed);
        for life in 0..4 {
            let (of_run, of_bed) = (Arc::clone(&known), bed.clone());
            let length = Duration::from_micros(random.u64(1000..60_000));
            let simulation = Simulation::new(seed * 4 + life).cores(2).time_limit(Duration::from_secs(600));
            let outcome = simulation.run(move || {
                spawn("power", move || {
                    sleep(length);
                    tantalum_rt::power_cut();
                });
                run(&of_bed, &of_run, seed * 4 + life);
            });
            assert!(matches!(outcome, Outcome::PowerCut { .. }));
            bed.cut(&mut random);
            let mut known = lock(&known);
            let read = std::mem::take(&mut known.read);
            for pair in read.windows(2) {
                assert!(pair[0].end == pair[1].start || pair[0].end < pair[1].start && known.fell_behind > 0);
            }
            for record in &read {
                // The test does not know one whose append had not returned at the cut.
                let appended = known.appended.get(&record.start.get());
                assert!(appended.is_none_or(|appended| appended == record), "seed {seed}, life {life}");
            }
            records += read.len();
        }
        behind += lock(&known).fell_behind;
        sought += lock(&known).sought;
        assert!(bed.archive.is_none() || lock(&known).fell_behind == 0, "seed {seed}: the archive has all");
    }
    assert!(records > 10_000 && behind > 0, "{records} records, fell behind {behind} times");
    assert!(sought > 5000, "{sought} records were sought");
}

#[test]
fn positions_that_are_none_are_refused_and_waits_end_with_the_log() {
    Simulation::new(1)
        .run(|| {
            let bed = Bed::new(0);
            let log =
                Log::open(as_devices(&bed.log), bed.options(), &mut |_| {}).expect("open").finish().expect("finish");
            let end = log.append(&[&[7; 100]]).expect("append").end;
            assert_eq!(log.reader(end).expect_err("not durable").kind(), ErrorKind::InvalidInput);
            log.flush(end).expect("flush");
            let mut within = log.reader(Lsn::new(50)).expect("it is durable");
            assert_eq!(within.next_record().expect_err("no record starts there").kind(), ErrorKind::InvalidInput);
            assert_eq!(within.seek(Lsn::new(end.get() + 1)).expect_err("not durable").kind(), ErrorKind::InvalidInput);
            within.seek(Lsn::ZERO).expect("it is durable");
            assert!(within.next_record().expect("one starts there").is_some());
            let reader = log.reader(end).expect("it is durable");
            assert!(!reader.wait(Duration::from_millis(1)).expect("it runs"));
            let waiting = spawn("reader", move || reader.wait(Duration::from_secs(3600)));
            sleep(Duration::from_millis(1));
            log.close().expect("close");
            let ended = waiting.join().expect("no panic");
            assert_eq!(ended.expect_err("it is closed").kind(), ErrorKind::Closed);
        })
        .expect_finished();
}

/// A log of 1 MiB, archived on a device with room for so many segments.
fn small_log(segments: u64, read_latency: Range<Duration>, seed: u64) -> (Log, Arc<MemoryDevice>, ArchiveOptions) {
    archived_log(MemoryDevice::new("log", 1 << 20), segments, read_latency, seed)
}

fn archived_log(
    device: Arc<MemoryDevice>,
    segments: u64,
    read_latency: Range<Duration>,
    seed: u64,
) -> (Log, Arc<MemoryDevice>, ArchiveOptions) {
    let us = Duration::from_micros;
    let profile = MemoryProfile { write_latency: us(20)..us(60), read_latency, seed, ..MemoryProfile::default() };
    let archive = MemoryDevice::with_profile("archive", (16 << 10) + segments * SEGMENT, profile);
    let archiving =
        ArchiveOptions { segment_bytes: Some(SEGMENT as u32), ..ArchiveOptions::on_device(archive.clone()) };
    let options =
        LogOptions { archive: Some(archiving.clone()), section_bytes: Some(SECTION_BYTES), ..LogOptions::default() };
    let devices = as_devices(&[device]);
    Log::create(LOG_ID, devices.clone(), options.clone()).expect("create");
    let log = Log::open(devices, options, &mut |_| {}).expect("open").finish().expect("finish");
    (log, archive, archiving)
}

/// Appends a record of 10,000 bytes, which needs no room behind it.
fn append_archived(log: &Log) {
    let end = log.append(&[&[7; 10_000]]).expect("append").end;
    log.flush_archived(end).expect("archive");
    log.set_checkpoint(end).expect("checkpoint");
}

#[test]
fn what_an_archive_overwrites_while_it_is_read_is_missing_and_not_damaged() {
    Simulation::new(1)
        .run(|| {
            let (log, archive, archiving) = small_log(64, Duration::ZERO..Duration::ZERO, 1);
            (0..200).for_each(|_| append_archived(&log));
            let mut reader = log.reader(Lsn::ZERO).expect("it is durable");
            let mut archived = ArchiveReader::open(&archiving.target, Lsn::ZERO).expect("it is archived");
            assert!(reader.next_record().expect("it is archived").is_some());
            assert!(archived.next_record().expect("it is archived").is_some());
            // It goes round while the readers rest.
            while inspect_archive(&archiving.target).expect("inspect").segments[0].start < Lsn::new(400_000) {
                append_archived(&log);
            }
            let error = std::iter::from_fn(|| archived.next_record().transpose()).find_map(Result::err);
            assert_eq!(error.expect("it was overwritten").kind(), ErrorKind::NotArchived);
            assert!(verify_archive(&archiving.target, &mut |_| {}).expect("verify").damage.is_empty());
            let error = std::iter::from_fn(|| reader.next_record().transpose()).find_map(Result::err);
            let error = error.expect("it was overwritten");
            assert_eq!(error.kind(), ErrorKind::FellBehind, "{error}");
            let FellBehind { oldest } = *error.cause().expect("it says where the log begins");
            assert!(oldest > reader.position());

            // The next write has come before its header.
            let oldest = &inspect_archive(&archiving.target).expect("inspect").segments[0];
            let mut reader = log.reader(oldest.start).expect("it is durable");
            let mut archived = ArchiveReader::open(&archiving.target, oldest.start).expect("it is archived");
            archive.write(oldest.offset + 4096, &[&[9; 8192]], Durability::Durable).expect("write");
            assert_eq!(archived.next_record().expect_err("it is overwritten").kind(), ErrorKind::NotArchived);
            assert!(verify_archive(&archiving.target, &mut |_| {}).expect("verify").damage.is_empty());
            let error = reader.next_record().expect_err("it is overwritten");
            let FellBehind { oldest } = *error.cause().expect("it says where the log begins");
            assert!(oldest > reader.position());
            assert!(log.reader(oldest).expect("it is durable").next_record().expect("it is archived").is_some());
        })
        .expect_finished();
}

#[test]
fn an_archive_that_goes_round_is_looked_at_without_gaps() {
    for seed in 0..20 {
        let looks = Simulation::new(seed).cores(2).run(move || {
            let (log, _, archiving) = small_log(24, Duration::ZERO..Duration::from_micros(800), seed);
            (0..100).for_each(|_| append_archived(&log));
            let end = Lsn::new(log.end_lsn().get() + 20_000_000);
            let writer = spawn("writer", {
                let log = log.clone();
                move || {
                    while log.end_lsn() < end {
                        append_archived(&log)
                    }
                }
            });
            let mut looks = 0;
            while log.durable_lsn() < end {
                let segments = inspect_archive(&archiving.target).expect("inspect").segments;
                assert!(segments.windows(2).all(|pair| pair[0].end == pair[1].start), "{segments:?}");
                let verification = verify_archive(&archiving.target, &mut |_| {}).expect("verify");
                assert!(verification.damage.is_empty(), "{:?}", verification.damage);
                looks += 1;
            }
            writer.join().expect("no panic");
            looks
        });
        let looks = looks.finished().expect("no power cut");
        assert!(looks > 1, "{looks} looks");
    }
}

/// What one device has overwritten, another may still have: of an archive that cannot be read, only what no device has is missing.
#[test]
fn what_a_device_has_is_read_beside_a_damaged_archive() {
    Simulation::new(1)
        .time_limit(Duration::from_secs(3600))
        .run(|| {
            let us = Duration::from_micros;
            let device = |name, latency| {
                let profile = MemoryProfile { write_latency: us(latency)..us(latency + 1), ..MemoryProfile::default() };
                MemoryDevice::with_profile(name, 1 << 20, profile)
            };
            let archive = MemoryDevice::new("archive", 16 << 20);
            let log = vec![device("fast", 20), device("slow", 400)];
            let bed = Bed { log, archive: Some(archive.clone()), layout: LogLayout::FlashLogging, copies: 1 };
            Log::create(LOG_ID, as_devices(&bed.log), bed.options()).expect("create");
            let log =
                Log::open(as_devices(&bed.log), bed.options(), &mut |_| {}).expect("open").finish().expect("finish");
            let places: Vec<Lsn> = (0..2000)
                .map(|_| {
                    let place = log.append(&[&[7; 2000]]).expect("append");
                    log.flush_archived(place.end).expect("archive");
                    log.set_checkpoint(place.end).expect("checkpoint");
                    place.start
                })
                .collect();
            archive.corrupt(20 << 10, 8 << 20, |bytes| bytes.iter_mut().for_each(|byte| *byte ^= 0xff));
            let is_read = |at: &Lsn| log.reader(*at).expect("it is durable").next_record().is_ok();
            let read: Vec<bool> = places.iter().map(is_read).collect();
            let first = read.iter().position(|is_read| *is_read).expect("the log has some");
            assert!(first > 0, "some are overwritten");
            let missing = read[first..].iter().filter(|is_read| !**is_read).count();
            assert!(
                missing > 0,
                "from record {first} on all are read: no device has records that are older than another's"
            );
        })
        .expect_finished();
}

/// A reader that begins with what the archive alone has, as one for the rows of each large transaction does, reads the headers of the
/// log's sections, and not those of all requests.
#[test]
fn the_log_is_not_looked_through_for_what_it_has_no_more() {
    const READ: Duration = Duration::from_millis(1);
    Simulation::new(1)
        .time_limit(Duration::from_secs(3600))
        .run(|| {
            let profile = MemoryProfile { read_latency: READ..READ, ..MemoryProfile::default() };
            let device = MemoryDevice::with_profile("log", 1 << 20, profile);
            let (log, ..) = archived_log(device, 64, Duration::ZERO..Duration::ZERO, 1);
            (0..200).for_each(|_| append_archived(&log));
            let reads_of_a_reader_from = |at| {
                let begun = tantalum_rt::now();
                let mut reader = log.reader(at).expect("it is durable");
                assert!(reader.next_record().expect("it is there").is_some());
                begun.elapsed().as_millis()
            };
            let of_headers = {
                let begun = tantalum_rt::now();
                drop(log.reader(log.durable_lsn()).expect("it is durable"));
                begun.elapsed().as_millis()
            };
            assert!(of_headers > 5, "{of_headers} reads of the log's headers");
            assert_eq!(reads_of_a_reader_from(Lsn::ZERO), of_headers);
        })
        .expect_finished();
}
