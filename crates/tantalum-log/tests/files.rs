//! The log on real files, with real threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tantalum_device::{Access, Device, FileDevice, Partition};
use tantalum_log::{
    ArchiveOptions, ArchiveReader, ArchiveRetention, Damage, ErrorKind, Log, LogOptions, Lsn, inspect_archive,
    prune_archive, verify_archive,
};
use tantalum_rt::spawn;

fn create_files(directory: &std::path::Path, count: usize, bytes: u64) -> Vec<Arc<dyn Device>> {
    let create = |n| {
        let path = directory.join(format!("log-{n}"));
        Arc::new(FileDevice::create(path, bytes, None).expect("create")) as Arc<dyn Device>
    };
    (0..count).map(create).collect()
}

/// Threads append and flush records, an owner checkpoints; the records behind the last checkpoint are found again.
fn load_and_reopen(devices: Vec<Arc<dyn Device>>, reopen: impl FnOnce() -> Vec<Arc<dyn Device>>, close: bool) {
    let options = LogOptions { section_bytes: Some(65536), ..LogOptions::default() };
    Log::create(1, devices.clone(), options.clone()).expect("create");
    let log = Log::open(devices, options.clone(), &mut |_| {}).expect("open").finish().expect("finish");
    let running = Arc::new(AtomicU64::new(4));
    let clients: Vec<_> = (0..4u8)
        .map(|client| {
            let (log, running) = (log.clone(), Arc::clone(&running));
            spawn(format!("client-{client}"), move || {
                for n in 0..150u32 {
                    let bytes = vec![client; 24 + (n as usize * 37) % 3000];
                    let parts: [&[u8]; 2] = [&n.to_le_bytes(), &bytes];
                    let record = match log.append(&parts) {
                        Err(error) if error.kind() == ErrorKind::LogFull => {
                            let mut space = log.wait_for_space(bytes.len() + 4).expect("space");
                            log.append_requested(&parts, &mut space)
                        }
                        appended => appended,
                    };
                    let record = record.expect("it was granted");
                    match n % 3 {
                        0 => log.flush(record.end).expect("flush"),
                        1 => log.ticket(record.end).expect("ticket").wait().expect("durable"),
                        _ => {}
                    }
                    if n % 3 < 2 {
                        assert!(log.durable_lsn() >= record.end);
                    }
                }
                running.fetch_sub(1, Ordering::AcqRel);
            })
        })
        .collect();
    while running.load(Ordering::Acquire) > 0 {
        if log.wait_for_pressure(std::time::Duration::from_millis(1)) {
            log.set_checkpoint(log.durable_lsn()).expect("checkpoint");
        }
    }
    clients.into_iter().for_each(|client| client.join().expect("no panic"));
    let end = log.end_lsn();
    log.flush(end).expect("flush");
    let (checkpoint, stats) = (log.checkpoint_lsn(), log.stats());
    assert_eq!(stats.records, 600);
    if close {
        log.close().expect("close");
    }
    drop(log);

    let mut recovery = Log::open(reopen(), options, &mut |_| {}).expect("reopen");
    assert_eq!((recovery.was_clean(), recovery.checkpoint_lsn(), recovery.end_lsn()), (close, checkpoint, end));
    let mut position = checkpoint;
    let mut last = [None; 4];
    while let Some(record) = recovery.next_record().expect("readable") {
        assert_eq!(record.start, position);
        position = record.end;
        let (n, client) = (u32::from_le_bytes(record.bytes[..4].try_into().expect("four")), record.bytes[4]);
        assert!(last[client as usize].is_none_or(|last| last + 1 == n), "each client's records in order");
        last[client as usize] = Some(n);
    }
    assert_eq!(position, end);
}

#[test]
fn several_files() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let devices = create_files(directory.path(), 2, 1 << 20);
    let path = directory.path().to_path_buf();
    let open = |n| {
        let device = FileDevice::open(path.join(format!("log-{n}")), Access::ReadWrite).expect("open");
        Arc::new(device) as Arc<dyn Device>
    };
    load_and_reopen(devices, || vec![open(1), open(0)], true);
}

#[test]
fn partitions_of_one_file() {
    let directory = tempfile::tempdir().expect("temporary directory");
    let file = create_files(directory.path(), 1, 1 << 20).remove(0);
    let split = |file: &Arc<dyn Device>| -> Vec<Arc<dyn Device>> {
        let parts = Partition::split(Arc::clone(file), 3).expect("split");
        parts.into_iter().map(|part| Arc::new(part) as Arc<dyn Device>).collect()
    };
    load_and_reopen(split(&file), || split(&file), false);
}

#[test]
fn an_archive_in_a_directory_keeps_what_it_is_told_and_what_is_needed() {
    const KEEP_BYTES: u64 = 256 << 10;
    let dir = tempfile::tempdir().expect("a directory");
    let archive = ArchiveOptions {
        segment_bytes: Some(64 << 10),
        keep_bytes: Some(KEEP_BYTES),
        ..ArchiveOptions::in_directory(dir.path().join("archive"))
    };
    let options = LogOptions { archive: Some(archive), ..LogOptions::default() };
    let devices = create_files(dir.path(), 1, 4 << 20);
    Log::create(9, devices.clone(), options.clone()).expect("create");
    let log = Log::open(devices.clone(), options.clone(), &mut |_| {}).expect("open").finish().expect("start");
    let archived_bytes = || -> u64 {
        let entries = std::fs::read_dir(dir.path().join("archive")).expect("list");
        entries.map(|entry| entry.and_then(|entry| entry.metadata()).expect("look").len()).sum()
    };
    let append = |count: u32| {
        let mut end = log.end_lsn();
        for number in 0..count {
            end = log.append(&[&[number as u8; 10_000]]).expect("append").end;
            log.flush_archived(end).expect("archive");
        }
        end
    };
    append(100);
    assert!(archived_bytes() > 1_000_000, "without a checkpoint everything is needed");
    let checkpoint = log.end_lsn();
    log.set_checkpoint(checkpoint).expect("checkpoint");
    let end = append(20);
    // One more is being filled, and the control file.
    assert!(archived_bytes() <= KEEP_BYTES + (64 << 10) + (64 << 10), "{}", archived_bytes());
    drop(log);

    let new = dir.path().join("new");
    std::fs::create_dir(&new).expect("a directory");
    let mut recovery = Log::rebuild(options, &mut |_| {})
        .and_then(|log| log.onto(create_files(&new, 1, 4 << 20), &mut |_| {}))
        .expect("what was not removed carries the log from the checkpoint on");
    assert_eq!((recovery.checkpoint_lsn(), recovery.end_lsn()), (checkpoint, end));
    let mut records = 0;
    while recovery.next_record().expect("read").is_some() {
        records += 1;
    }
    assert_eq!(records, 20);
}

/// An archive in a directory, of a log that runs, with 100 records of 10,000 bytes.
fn archived(dir: &std::path::Path) -> (Log, ArchiveOptions, Lsn) {
    let archive = ArchiveOptions { segment_bytes: Some(64 << 10), ..ArchiveOptions::in_directory(dir.join("archive")) };
    let options = LogOptions { archive: Some(archive.clone()), ..LogOptions::default() };
    let devices = create_files(dir, 1, 4 << 20);
    Log::create(9, devices.clone(), options.clone()).expect("create");
    let log = Log::open(devices, options, &mut |_| {}).expect("open").finish().expect("start");
    for number in 0..100u8 {
        log.append(&[&[number; 10_000]]).expect("append");
        if number % 3 == 0 {
            log.flush_archived(log.end_lsn()).expect("archive");
        }
    }
    let end = log.end_lsn();
    log.flush_archived(end).expect("archive");
    (log, archive, end)
}

#[test]
fn an_archive_is_looked_at_while_the_log_runs() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, archive, end) = archived(dir.path());
    let inspection = inspect_archive(&archive.target).expect("inspect");
    assert_eq!((inspection.log_id, inspection.checkpoint_lsn, inspection.is_needed), (9, Some(Lsn::ZERO), true));
    let [run] = inspection.runs[..] else { panic!("one run: {:?}", inspection.runs) };
    assert_eq!((run.start, run.end), (Lsn::ZERO, end));
    assert!(run.begun <= run.last && run.last <= tantalum_rt::wall_clock());
    assert!(inspection.segments.len() > 10);
    assert!(inspection.segments.windows(2).all(|pair| pair[0].end == pair[1].start && pair[0].begun <= pair[1].begun));
    let mut reports = Vec::new();
    let verification = verify_archive(&archive.target, &mut |progress| reports.push(progress.percent())).expect("read");
    assert!(verification.damage.is_empty(), "{:?}", verification.damage);
    assert_eq!((verification.records, verification.record_bytes), (100, 1_000_000));
    assert_eq!((verification.runs.len(), verification.runs[0].end), (1, end));
    assert!(reports.is_sorted() && reports.last() == Some(&100));
    drop(log);
}

#[test]
fn records_are_read_from_an_archive_from_any_position_on() {
    let dir = tempfile::tempdir().expect("a directory");
    let (_log, archive, end) = archived(dir.path());
    for from in [0, 1, 50, 99, 100] {
        let mut reader = ArchiveReader::open(&archive.target, Lsn::new(from * 10_004)).expect("open");
        let mut next = from;
        while let Some(archived) = reader.next_record().expect("read") {
            assert_eq!(archived.record.start, Lsn::new(next * 10_004));
            assert_eq!(archived.record.bytes, vec![next as u8; 10_000]);
            next += 1;
        }
        assert_eq!((next, reader.end_lsn(), reader.gap_end()), (100, end, None));
        assert_eq!(reader.progress().percent(), 100);
    }
}

#[test]
fn an_archive_is_pruned_as_far_as_the_checkpoint_lets_it() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, archive, end) = archived(dir.path());
    let prune =
        |retention: &ArchiveRetention, dry_run| prune_archive(&archive.target, retention, dry_run).expect("prune");
    let nothing = ArchiveRetention { keep_bytes: Some(0), before: Some(end), ..ArchiveRetention::default() };
    assert!(prune(&nothing, false).removed.is_empty(), "without a checkpoint all of it is needed");
    let checkpoint = Lsn::new(40 * 10_004);
    log.set_checkpoint(checkpoint).expect("checkpoint");
    let before = ArchiveRetention { before: Some(Lsn::new(20 * 10_004)), ..ArchiveRetention::default() };
    let would = prune(&before, true);
    assert!(would.removed.last().is_some_and(|last| last.end <= Lsn::new(20 * 10_004)));
    assert_eq!(prune(&before, true).removed, would.removed, "a dry run removes nothing");
    assert_eq!(prune(&before, false).removed, would.removed);
    assert!(prune(&before, false).removed.is_empty());
    let first = would.removed.last().expect("something went").end;
    assert_eq!(inspect_archive(&archive.target).expect("inspect").runs[0].start, first);
    let error = ArchiveReader::open(&archive.target, Lsn::ZERO).map(drop);
    assert!(
        matches!(&error, Err(error) if error.to_string().contains(&format!("lacks the records from LSN 0 up to LSN {first};"))),
        "{error:?}"
    );

    let pruned = prune(&nothing, false);
    assert_eq!(pruned.needed_lsn, checkpoint);
    assert!(pruned.removed.iter().all(|segment| segment.end <= checkpoint) && pruned.kept > 5);
    assert!(verify_archive(&archive.target, &mut |_| {}).expect("verify").damage.is_empty());
    // The log that runs does not mind, and what it needs is there.
    log.flush_archived(log.append(&[b"one more"]).expect("append").end).expect("archive");
    assert!(log.stats().archive.is_some_and(|archive| archive.set_aside.is_none()));
    drop(log);
    let options = LogOptions { archive: Some(archive), ..LogOptions::default() };
    let new = dir.path().join("new");
    std::fs::create_dir(&new).expect("a directory");
    let recovery =
        Log::rebuild(options, &mut |_| {}).and_then(|log| log.onto(create_files(&new, 1, 4 << 20), &mut |_| {}));
    let recovery = recovery.expect("rebuild");
    assert_eq!(recovery.checkpoint_lsn(), checkpoint);
}

#[test]
fn damage_of_an_archive_is_named_by_file_and_offset() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, archive, _) = archived(dir.path());
    drop(log);
    let segments = inspect_archive(&archive.target).expect("inspect").segments;
    let damaged = |file: &str, offset: u64| {
        let mut bytes = std::fs::read(file).expect("read");
        let was = bytes[offset as usize];
        bytes[offset as usize] ^= 1;
        std::fs::write(file, &bytes).expect("write");
        let result = verify_archive(&archive.target, &mut |_| {}).expect("verify");
        bytes[offset as usize] = was;
        std::fs::write(file, &bytes).expect("write");
        result
    };
    for (segment, offset) in [(0, 20), (3, 4096 + 30), (5, 4096 + 200), (segments.len() - 2, 70)] {
        let file = &segments[segment].place;
        let found = damaged(file, offset).damage;
        assert!(
            found.iter().any(|damage| damage.device == *file && damage.offset == offset / 4096 * 4096),
            "{found:?}"
        );
    }
    assert!(verify_archive(&archive.target, &mut |_| {}).expect("verify").damage.is_empty());
    // A segment that is gone.
    std::fs::remove_file(&segments[4].place).expect("remove");
    let found = verify_archive(&archive.target, &mut |_| {}).expect("verify").damage;
    assert!(
        found.iter().any(|damage| damage.device == segments[3].place && damage.what.contains("missing")),
        "{found:?}"
    );
    let mut reader = ArchiveReader::open(&archive.target, Lsn::ZERO).expect("open");
    let error = loop {
        match reader.next_record() {
            Ok(Some(archived)) => assert!(archived.record.end <= segments[3].end),
            Ok(None) => panic!("the damage is passed by"),
            Err(error) => break error,
        }
    };
    assert!(error.cause::<Damage>().is_some_and(|damage| damage.device == segments[3].place), "{error}");
}
