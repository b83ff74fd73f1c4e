//! The log on real files, with real threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tantalum_device::{Access, Device, FileDevice, Partition};
use tantalum_log::{ArchiveOptions, Error, Log, LogOptions};
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
                    let record = loop {
                        match log.append(&[&n.to_le_bytes(), &bytes]) {
                            Ok(record) => break record,
                            Err(Error::Full { .. }) => log.wait_for_space(bytes.len() + 4).expect("space"),
                            Err(error) => panic!("{error}"),
                        }
                    };
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
    let mut recovery = Log::rebuild(create_files(&new, 1, 4 << 20), options, &mut |_| {})
        .expect("what was not removed carries the log from the checkpoint on");
    assert_eq!((recovery.checkpoint_lsn(), recovery.end_lsn()), (checkpoint, end));
    let mut records = 0;
    while recovery.next_record().expect("read").is_some() {
        records += 1;
    }
    assert_eq!(records, 20);
}
