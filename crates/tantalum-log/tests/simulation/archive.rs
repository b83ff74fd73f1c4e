//! The archive: what it completes, and what its failure costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tantalum_device::{Device, Fault, MemoryDevice, MemoryProfile};
use tantalum_log::{ArchiveOptions, ArchiveTarget, Error, ErrorKind, Log, LogOptions, Lsn};
use tantalum_rt::{now, sleep, spawn};

use crate::plan::{LOG_ID, as_devices, random};
use crate::steps::{read, simulate};

const HANG: Duration = Duration::from_millis(5);

pub fn device(name: &str, bytes: u64, latency_us: u64) -> Arc<MemoryDevice> {
    let us = Duration::from_micros;
    let profile = MemoryProfile { write_latency: us(latency_us)..us(latency_us + 50), ..MemoryProfile::default() };
    MemoryDevice::with_profile(name, bytes, profile)
}

/// Log devices and an archive.
#[derive(Clone)]
pub struct Bed {
    pub log: Vec<Arc<MemoryDevice>>,
    pub archive: Arc<MemoryDevice>,
    pub copies: u8,
}

impl Bed {
    pub fn new(count: usize, archive_us: u64) -> Bed {
        let log = (0..count).map(|n| device(&format!("log-{n}"), 1 << 20, 50)).collect();
        Bed { log, archive: device("archive", 2 << 20, archive_us), copies: 1 }.created()
    }

    /// Two devices, and everything on both.
    pub fn mirrored() -> Bed {
        let bed = Bed::new(2, 100);
        Bed { archive: device("archive", 2 << 20, 100), copies: 2, ..bed }.created()
    }

    fn created(self) -> Bed {
        Log::create(LOG_ID, as_devices(&self.log), self.options()).expect("create");
        self
    }

    fn archive_options(&self) -> ArchiveOptions {
        let delay = Duration::from_millis(1);
        ArchiveOptions { segment_bytes: Some(65536), delay, ..ArchiveOptions::on_device(self.archive.clone()) }
    }

    pub fn options(&self) -> LogOptions {
        LogOptions { archive: Some(self.archive_options()), ..self.options_without() }
    }

    fn options_without(&self) -> LogOptions {
        let copies = self.copies;
        LogOptions { section_bytes: Some(65536), hang_timeout: HANG, copies, ..LogOptions::default() }
    }

    pub fn open(&self) -> Result<(Log, Vec<Vec<u8>>), Error> {
        read(Log::open(as_devices(&self.log), self.options(), &mut |_| {})?)
    }

    pub fn lose_log(&mut self) {
        self.log = self.log.iter().map(|lost| device(lost.name(), 1 << 20, 50)).collect();
    }

    /// On new log devices.
    pub fn rebuild(&mut self) -> Result<(Log, Vec<Vec<u8>>), Error> {
        self.lose_log();
        read(Log::rebuild(self.options(), &mut |_| {})?.onto(as_devices(&self.log), &mut |_| {})?)
    }

    /// After a power cut.
    pub fn cut(&self, seed: u64) -> Bed {
        let mut random = random(seed);
        let mut cut = |device: &Arc<MemoryDevice>| {
            let fork = device.fork();
            fork.power_cut(&mut random);
            fork
        };
        Bed { log: self.log.iter().map(&mut cut).collect(), archive: cut(&self.archive), copies: self.copies }
    }
}

pub fn append(log: &Log, n: u64, bytes: usize) -> Lsn {
    log.append(&[&n.to_le_bytes(), &vec![n as u8; bytes]]).expect("append").end
}

pub fn numbers(records: &[Vec<u8>]) -> Vec<u64> {
    records.iter().map(|record| u64::from_le_bytes(record[..8].try_into().expect("eight bytes"))).collect()
}

fn is_set_aside(log: &Log) -> bool {
    log.stats().archive.is_some_and(|archive| archive.set_aside.is_some())
}

/// Begins to flush a record while every write of the only log device takes 900 ms longer, and then appends enough that the
/// archive writes at once. Returns how long the flushes took.
fn flushed_in(bed: &Bed, log: &Log, first: u64) -> Duration {
    bed.log[0].inject(Fault::SlowWrites { by: Duration::from_millis(900) });
    let start = now();
    let slow = {
        let (log, end) = (log.clone(), append(log, first, 100));
        spawn("slow", move || log.flush(end).expect("flush"))
    };
    sleep(Duration::from_micros(10));
    let ends: Vec<_> = (first + 1..first + 10).map(|n| append(log, n, 4000)).collect();
    log.flush(ends[8]).expect("flush");
    slow.join().expect("no panic");
    start.elapsed()
}

#[test]
fn the_archive_completes_what_the_devices_are_too_slow_for() {
    simulate(20, |seed| {
        let bed = Bed::new(1, 100);
        let (log, _) = bed.open().expect("open");
        // So that the device is known.
        let known = 10 * (seed % 2);
        for n in 0..known {
            log.flush(append(&log, n, 100)).expect("flush");
        }
        let took = flushed_in(&bed, &log, known);
        let patience = Duration::from_millis(if known > 0 { 2 } else { 50 });
        assert!(took < patience, "no task waits in the write of the only device: {took:?}");
        assert!(log.stats().archive.expect("an archive").completed > 0);
        let after = bed.cut(seed);
        after.log[0].clear_faults();
        drop(log);

        let without = Log::open(as_devices(&after.log), after.options_without(), &mut |_| {});
        assert!(
            matches!(&without, Err(error) if error.kind() == ErrorKind::NotArchived),
            "the archive alone has the records"
        );
        let (_, records) = after.open().expect("open");
        assert_eq!(numbers(&records), (0..known + 10).collect::<Vec<_>>());
    });
}

#[test]
fn an_archive_that_fails_is_set_aside_and_the_next_session_goes_on_with_it() {
    simulate(40, |seed| {
        let mut bed = Bed::new(2, 100);
        let (log, _) = bed.open().expect("open");
        log.flush_archived(append(&log, 0, 100)).expect("flush");
        let fault = if seed % 2 == 0 { Fault::HangWrites } else { Fault::FailWrites { after: seed % 4 } };
        bed.archive.inject(fault);
        for n in 1..40 {
            let start = now();
            log.flush(append(&log, n, 3000)).expect("commits go on");
            assert!(start.elapsed() < HANG, "no task waits for the archive");
        }
        log.flush_archived(log.end_lsn()).expect("does not wait for what was set aside");
        assert!(is_set_aside(&log));
        let Some(cause) = log.stats().archive.and_then(|archive| archive.set_aside) else { panic!("set aside") };
        assert!(cause.to_string().contains("archive"), "{cause}");
        drop(log);

        bed = bed.cut(seed);
        bed.archive.clear_faults();
        let (log, records) = bed.open().expect("open");
        assert_eq!(numbers(&records), (0..40).collect::<Vec<_>>());
        let archive = log.stats().archive.expect("an archive");
        assert!(archive.set_aside.is_none());
        assert_eq!(archive.run_start_lsn, Lsn::ZERO, "the devices still had what it lacks");
        drop(log);
        assert_eq!(numbers(&bed.rebuild().expect("rebuild").1), (0..40).collect::<Vec<_>>());
    });
}

#[test]
fn an_archive_that_missed_what_checkpoints_released_starts_a_new_run() {
    simulate(20, |seed| {
        let mut bed = Bed::new(2, 100);
        let (log, _) = bed.open().expect("open");
        log.flush_archived(append(&log, 0, 100)).expect("flush");
        bed.archive.inject(Fault::FailWrites { after: 0 });
        for n in 1..200 {
            let end = append(&log, n, 10_000);
            log.flush(end).expect("flush");
            log.set_checkpoint(end).expect("checkpoint");
        }
        let gap_end = log.end_lsn();
        drop(log);
        bed = bed.cut(seed);
        bed.archive.clear_faults();

        // Nothing in it is needed, so the log opens without it as well.
        let (log, records) =
            read(Log::open(as_devices(&bed.log), bed.options_without(), &mut |_| {}).expect("open")).expect("read");
        assert!(records.is_empty());
        drop(log);
        let (log, _) = bed.open().expect("open");
        assert_eq!(log.stats().archive.expect("an archive").run_start_lsn, gap_end);
        drop(log);
        // A run of which nothing is written yet is one all the same.
        let (log, _) = bed.open().expect("open");
        assert_eq!(log.stats().archive.expect("an archive").run_start_lsn, gap_end);
        log.flush_archived(append(&log, 200, 10)).expect("flush");
        drop(log);
        assert_eq!(numbers(&bed.rebuild().expect("rebuild").1), [200]);
    });
}

/// Session after session ends in a power cut, and hardly any has a checkpoint: the archive must take what the log holds beyond its end
/// whatever the requests' sizes are, or appends must have stopped before.
#[test]
fn an_archive_has_room_for_what_it_lacks_whenever_the_log_is_opened() {
    let (fulls, behind) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    simulate(60, {
        let (fulls, behind) = (Arc::clone(&fulls), Arc::clone(&behind));
        move |seed| {
            let mut random = random(seed);
            let log: Vec<_> = (0..2).map(|n| device(&format!("log-{n}"), 4 << 20, 50)).collect();
            let archive = device("archive", (4 + 16 * random.u64(4..40)) * 4096, [200, 1500][seed as usize % 2]);
            let mut bed = Bed { log, archive, copies: 1 }.created();
            let (mut n, mut checkpoint) = (0, Lsn::ZERO);
            for _ in 0..12 {
                if random.bool() {
                    // An opening that is cut off, perhaps when it has archived a part.
                    let cut_off = bed.clone();
                    let opening = spawn("opening", move || drop(cut_off.open().expect("open")));
                    sleep(Duration::from_micros(random.u64(0..8000)));
                    bed = bed.cut(random.u64(..));
                    opening.join().expect("no panic");
                }
                let (log, records) = bed.open().expect("open");
                assert!(records.len() as u64 <= n);
                let stats = log.stats().archive.expect("an archive");
                assert!(stats.set_aside.is_none(), "{:?}", stats.set_aside);
                assert_eq!(log.archived_lsn(), Some(log.end_lsn()), "what was behind is archived");
                for _ in 0..random.u64(0..200) {
                    let bytes = [10, 1000, 5000, log.max_record_bytes() - 8][random.usize(0..4)];
                    match log.append(&[&n.to_le_bytes(), &vec![n as u8; bytes]]) {
                        Ok(_) => n += 1,
                        Err(error) if error.kind() == ErrorKind::LogFull => {
                            fulls.fetch_add(1, Ordering::Relaxed);
                            break;
                        }
                        Err(error) => panic!("{error}"),
                    }
                    match random.u8(0..4) {
                        0 => log.flush(log.end_lsn()).expect("flush"),
                        1 => sleep(Duration::from_micros(random.u64(0..1000))),
                        _ => {}
                    }
                }
                log.flush(log.end_lsn()).expect("flush");
                behind.fetch_add(log.stats().archive.expect("an archive").behind_bytes, Ordering::Relaxed);
                assert!(!is_set_aside(&log));
                if random.u8(0..8) == 0 {
                    checkpoint = log.end_lsn();
                    log.set_checkpoint(checkpoint).expect("checkpoint");
                    log.wait_for_space(log.max_record_bytes()).expect("a checkpoint makes room");
                }
                drop(log);
                bed = bed.cut(random.u64(..));
            }
            let (log, _) = bed.rebuild().expect("the archive has everything from the checkpoint on");
            assert!(log.end_lsn() >= checkpoint);
        }
    });
    let (fulls, behind) = (fulls.load(Ordering::Relaxed), behind.load(Ordering::Relaxed));
    assert!(fulls > 50 && behind > 1 << 20, "{fulls} times full, {behind} bytes behind");
}

/// The owner of the log stores nothing that a working archive lacks: else a log that is made anew from it would not suit.
#[test]
fn what_the_archive_lacks_when_the_log_fails_is_not_said_to_be_archived() {
    simulate(10, |seed| {
        let bed = Bed::new(1, 3000);
        let (log, _) = bed.open().expect("open");
        let durable = append(&log, 0, 100);
        log.flush(durable).expect("flush");
        bed.log[0].inject(Fault::FailWrites { after: 0 });
        let lost = append(&log, 1, 100);
        assert!(matches!(log.flush(lost), Err(error) if error.kind() == ErrorKind::Poisoned));
        if seed % 2 == 0 {
            // Longer than an archive may take that hangs.
            sleep(4 * HANG);
        }
        assert!(log.archived_lsn() < Some(durable) && log.durable_lsn() >= durable);
        let archived = log.flush_archived(durable);
        assert!(matches!(&archived, Err(error) if error.kind() == ErrorKind::Poisoned), "{archived:?}");
        assert!(!is_set_aside(&log));
    });
}

#[test]
fn a_slow_archive_holds_up_appends_before_memory_is_short() {
    simulate(5, |_| {
        let bed = Bed::new(2, 4000);
        let archive = ArchiveOptions { lag_bytes: 1 << 20, ..bed.archive_options() };
        let archive = ArchiveOptions { target: ArchiveTarget::Device(device("large", 64 << 20, 4000)), ..archive };
        let log = vec![device("log", 32 << 20, 10)];
        let options = LogOptions { archive: Some(archive), ..bed.options_without() };
        Log::create(LOG_ID, as_devices(&log), options.clone()).expect("create");
        let log = Log::open(as_devices(&log), options, &mut |_| {}).expect("open").finish().expect("finish");
        let mut fulls = 0;
        for n in 0..2000 {
            while let Err(error) = log.append(&[&[n as u8; 4000]]) {
                assert!(error.kind() == ErrorKind::LogFull, "{error}");
                fulls += 1;
                drop(log.wait_for_space(4000).expect("space"));
            }
            assert!(log.stats().archive.expect("an archive").behind_bytes <= (1 << 20) + 8000);
        }
        assert!(fulls > 0 && !is_set_aside(&log));
    });
}

#[test]
fn an_archive_can_be_attached_while_the_log_runs() {
    simulate(20, |seed| {
        let mut bed = Bed::new(2, 100);
        bed.archive = device("archive", 2 << 20, 100);
        Log::create(LOG_ID, as_devices(&bed.log), bed.options_without()).expect("create");
        let opened = Log::open(as_devices(&bed.log), bed.options_without(), &mut |_| {}).expect("open");
        let log = opened.finish().expect("finish");
        let writer = {
            let log = log.clone();
            spawn("writer", move || (0..60).for_each(|n| log.flush(append(&log, n, 500)).expect("flush")))
        };
        sleep(Duration::from_micros(random(seed).u64(0..3000)));
        log.attach_archive(&bed.archive_options()).expect("attach");
        let run_start = log.stats().archive.expect("an archive").run_start_lsn;
        let again = log.attach_archive(&bed.archive_options());
        assert!(matches!(again, Err(error) if error.kind() == ErrorKind::InUse));
        writer.join().expect("no panic");
        log.flush_archived(log.end_lsn()).expect("flush");
        drop(log);
        let after = bed.cut(seed);
        let early = after.clone().rebuild();
        if run_start > Lsn::ZERO {
            let missing = format!("lacks the records from LSN 0 up to LSN {run_start};");
            assert!(matches!(early, Err(error) if error.to_string().contains(&missing)));
        }
        let (log, records) = after.open().expect("open");
        assert_eq!(numbers(&records), (0..60).collect::<Vec<_>>());
        log.set_checkpoint(run_start).expect("checkpoint");
        drop(log);
        let mut after = after.cut(seed);
        let (log, records) = after.rebuild().expect("rebuild");
        assert_eq!(log.end_lsn().bytes_since(run_start), 512 * records.len() as u64);
    });
}

/// What the log needs from the checkpoint on is on its devices, so the new run takes segments of the old one.
#[test]
fn a_new_run_may_overwrite_the_old_one_before_a_checkpoint() {
    simulate(20, |seed| {
        let log: Vec<_> = (0..2).map(|n| device(&format!("log-{n}"), 4 << 20, 50)).collect();
        let bed = Bed { log, archive: device("archive", (4 + 8 * 16) * 4096, 100), copies: 1 }.created();
        let (log, _) = bed.open().expect("open");
        (0..25).for_each(|n| log.flush_archived(append(&log, n, 10_000)).expect("flush"));
        bed.archive.inject(Fault::FailWrites { after: 0 });
        log.flush_archived(append(&log, 25, 10)).expect("does not wait for what was set aside");
        assert!(is_set_aside(&log));
        bed.archive.clear_faults();
        log.attach_archive(&bed.archive_options()).expect("attach");
        let more = random(seed).u64(1..26);
        (26..26 + more).for_each(|n| log.flush_archived(append(&log, n, 10_000)).expect("flush"));
        drop(log);
        let (log, records) = bed.cut(seed).open().expect("open");
        assert_eq!(numbers(&records), (0..26 + more).collect::<Vec<_>>());
        assert!(!is_set_aside(&log));
    });
}

#[test]
fn archives_are_told_from_others_and_from_what_is_none() {
    let bed = Bed::new(1, 10);
    let (log, _) = bed.open().expect("open");
    log.flush_archived(append(&log, 0, 100)).expect("flush");
    log.close().expect("close");
    drop(log);

    let other = Bed { log: vec![device("other", 1 << 20, 10)], ..bed.clone() };
    Log::create(99, as_devices(&other.log), other.options_without()).expect("create");
    assert!(matches!(other.open(), Err(error) if error.kind() == ErrorKind::Mismatch));
    let created = Log::create(99, as_devices(&other.log), other.options());
    assert!(matches!(&created, Err(error) if error.kind() == ErrorKind::Mismatch), "an archive is not overwritten");

    let noise = device("noise", 1 << 20, 10);
    noise.corrupt(0, 20_000, |bytes| bytes.fill(7));
    let with_noise = Bed { archive: noise, ..bed.clone() };
    assert!(
        matches!(with_noise.open(), Err(error) if error.kind() == ErrorKind::NotArchived && error.to_string().starts_with("noise: "))
    );
    let tiny = Bed { archive: device("tiny", 100_000, 10), ..bed.clone() };
    assert!(
        matches!(tiny.open(), Err(error) if error.to_string().contains("are needed with these sections; enlarge it") && error.to_string().starts_with("tiny: "))
    );

    // A copy of the first superblock is enough.
    bed.archive.corrupt(100, 10, |bytes| bytes.fill(7));
    bed.archive.corrupt(0, 4096, |bytes| bytes.fill(0));
    assert!(bed.open().is_ok());
    bed.archive.corrupt(4120, 10, |bytes| bytes.fill(7));
    let error = bed.open().map(drop).unwrap_err();
    assert!(
        error.to_string().contains("not an archive of a log: ") && error.to_string().contains("damaged"),
        "{error}"
    );
}

#[test]
fn a_creation_that_was_cut_off_is_made_anew_whatever_it_left_of_its_last_write() {
    let made = Bed::new(1, 10);
    let image = made.archive.image();
    // Only the superblock's copy is written to a device that is still blank; any of its sectors may be garbage.
    for sector in 0..8 {
        let archive = device("archive", 2 << 20, 10);
        archive.corrupt(4096, 4096, |bytes| bytes.copy_from_slice(&image[4096..8192]));
        archive.corrupt(4096 + 512 * sector, 512, |bytes| bytes.fill(0xA5));
        let bed = Bed { archive, ..made.clone() };
        Log::create(LOG_ID, as_devices(&bed.log), bed.options()).expect("create");
        let (log, _) = bed.open().expect("open");
        log.flush_archived(append(&log, 0, 100)).expect("flush");
    }
    // What others may have there is left alone, be it in one place only: a partition table, or a file system's superblock.
    for offset in [0, 446, 1024, 8192, 65_600] {
        let archive = device("archive", 2 << 20, 10);
        archive.corrupt(offset, 8, |bytes| bytes.fill(0xA5));
        let bed = Bed { archive: archive.clone(), ..made.clone() };
        assert!(matches!(bed.open(), Err(error) if error.kind() == ErrorKind::NotArchived), "byte {offset}");
        assert_eq!(archive.image()[offset as usize..][..8], [0xA5; 8]);
    }
}

#[test]
fn creating_an_archive_again_leaves_it_one_at_every_moment() {
    let mut failed = 0;
    for after in 0..20 {
        let bed = Bed::new(1, 10);
        let (log, _) = bed.open().expect("open");
        log.flush_archived(append(&log, 0, 100)).expect("flush");
        log.close().expect("close");
        drop(log);
        bed.archive.inject(Fault::FailWrites { after });
        failed += u32::from(Log::create(LOG_ID, as_devices(&bed.log), bed.options()).is_err());
        bed.archive.clear_faults();
        Log::create(LOG_ID, as_devices(&bed.log), bed.options()).expect("it is still an archive of this log, or blank");
        assert!(bed.open().is_ok());
    }
    assert!(failed > 3, "creating takes some writes, not {failed}");
}

#[test]
fn every_flipped_byte_of_the_archive_is_reported_or_harmless() {
    let bed = Bed::new(1, 10);
    let mut expected = 0;
    for session in 0..3 {
        let (log, records) = bed.open().expect("open");
        assert_eq!(records.len() as u64, expected);
        for n in 0..30 {
            append(&log, expected + n, 900);
            if n % 7 == 0 {
                log.flush_archived(log.end_lsn()).expect("flush");
            }
        }
        expected += 30;
        log.flush_archived(log.end_lsn()).expect("flush");
        if session == 1 {
            log.close().expect("close");
        }
    }
    let image = bed.archive.image();
    let interesting = |offset: &usize| {
        let block = offset / 4096 * 4096;
        image[block..].starts_with(b"TNTL") && offset - block < 130 || offset.is_multiple_of(4093)
    };
    let (mut harmless, mut reported) = (0, 0);
    for offset in (0..image.len()).filter(interesting) {
        let mut fork = Bed { archive: bed.archive.fork(), ..bed.clone() };
        fork.archive.corrupt(offset as u64, 1, |bytes| bytes[0] ^= 1 << (offset % 8));
        match fork.rebuild() {
            // The last write may be torn for all that can be known.
            Ok((_, records)) => {
                assert!(numbers(&records) == (0..records.len() as u64).collect::<Vec<_>>(), "byte {offset}");
                assert!(records.len() as u64 >= expected - 9, "byte {offset}: {} records", records.len());
                harmless += 1;
            }
            Err(error) => {
                assert!(error.to_string().contains("archive"), "byte {offset}: {error}");
                reported += 1;
            }
        }
    }
    assert!(harmless > 100 && reported > 100, "{harmless} harmless, {reported} reported");
}

/// What the archive lacks when the log is opened comes from the log's devices. If one of them cannot be read then, the owner
/// must not go on as if the archive had failed: it would store what it was given of those records.
#[test]
fn the_archive_catches_up_with_what_was_read_or_the_log_does_not_open() {
    simulate(20, |seed| {
        let bed = Bed::new(1, 100);
        let (log, _) = bed.open().expect("open");
        (0..20).for_each(|n| log.flush(append(&log, n, 1000)).expect("flush"));
        log.flush_archived(log.end_lsn()).expect("archived");
        // The archive is late with the rest.
        bed.archive.inject(Fault::SlowWrites { by: Duration::from_secs(100) });
        (20..40).for_each(|n| log.flush(append(&log, n, 1000)).expect("flush"));
        let mut after = bed.cut(seed);
        drop(log);
        after.archive.clear_faults();

        // Nothing is kept in memory, so all must be read again.
        let options = LogOptions { recovery_memory_bytes: 1, ..after.options() };
        let mut recovery = Log::open(as_devices(&after.log), options, &mut |_| {}).expect("open");
        after.log[0].inject(Fault::FailReads { after: seed % 5 });
        let error = recovery
            .begin_epoch(|_| Ok::<(), tantalum_log::Error>(()))
            .expect_err("a device of the log cannot be read");
        assert!(error.to_string().contains("log-0"), "{error}");
        drop(recovery);
        after.log[0].clear_faults();

        // What is in memory need not be read.
        let mut recovery = Log::open(as_devices(&after.log), after.options(), &mut |_| {}).expect("open");
        after.log[0].inject(Fault::FailReads { after: 0 });
        recovery.begin_epoch(|_| Ok::<(), tantalum_log::Error>(())).expect("begin");
        drop(recovery);
        let (log, records) = after.rebuild().expect("the archive has everything");
        assert_eq!(numbers(&records), (0..40).collect::<Vec<_>>());
        assert!(!is_set_aside(&log));
    });
}
