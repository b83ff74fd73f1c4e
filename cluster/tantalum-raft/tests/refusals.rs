//! What is wrong is named: devices that are none of a raft log, records that contradict each other, calls that cannot be.

use std::sync::Arc;

use tantalum_device::{Device, Fault, MemoryDevice};
use tantalum_log::{Log, LogOptions};
use tantalum_raft::{Entry, Error, ErrorKind, RaftLog, RaftLogOptions};

fn device() -> Vec<Arc<dyn Device>> {
    vec![MemoryDevice::new("raft", 1 << 20)]
}

fn options() -> RaftLogOptions {
    RaftLogOptions { cache_bytes: 0, ..RaftLogOptions::default() }
}

/// A log with these records, as the format has them.
fn open_with(records: &[Vec<u8>]) -> Result<RaftLog, Error> {
    let devices = device();
    Log::create(1, devices.clone(), LogOptions::default())?;
    let log = Log::open(devices.clone(), LogOptions::default(), &mut |_| {})?.finish()?;
    for record in records {
        log.flush(log.append(&[record])?.end)?;
    }
    log.close()?;
    RaftLog::open(devices, &options())
}

fn head(kind: u8, group: u64) -> Vec<u8> {
    [b"rl\x01", &[kind][..], &group.to_le_bytes()].concat()
}

fn entry(kind: u8, group: u64, index: u64, term: u64) -> Vec<u8> {
    [head(kind, group), index.to_le_bytes().to_vec(), term.to_le_bytes().to_vec(), b"bytes".to_vec()].concat()
}

fn state(group: u64, first: u64, end: u64) -> Vec<u8> {
    [head(3, group), first.to_le_bytes().to_vec(), end.to_le_bytes().to_vec(), vec![0; 12]].concat()
}

#[test]
fn records_that_contradict_each_other_are_refused_with_their_position() {
    let whole = open_with(&[state(1, 5, 5), entry(1, 1, 5, 1), entry(1, 1, 6, 1), state(1, 5, 6), entry(1, 1, 6, 2)]);
    assert_eq!(whole.expect("it is as it should be").group(1).entries(0..9, usize::MAX).expect("read").len(), 2);
    // An entry that was rewritten comes behind those that follow it.
    let moved = open_with(&[entry(1, 1, 6, 1), entry(2, 1, 5, 1), state(1, 5, 7)]);
    assert_eq!(moved.expect("it is as it should be").group(1).bounds().indexes, 5..7);
    let cases = [
        (vec![b"a row of a table".to_vec()], "not one of a raft log"),
        (vec![b"".to_vec()], "not one of a raft log"),
        (vec![head(9, 1)], "kind 9 is unknown"),
        (vec![head(1, 1)], "too short"),
        (vec![entry(1, 4, 5, 1)], "group 4 has entries and no state"),
        (vec![state(1, 5, 5), entry(1, 1, 5, 1), entry(1, 1, 5, 2)], "follows entry 5, which was not truncated"),
        (
            vec![state(1, 5, 5), entry(1, 1, 5, 1), entry(1, 1, 7, 1)],
            "entry 6 of group 1, which it counts on, is missing",
        ),
        (vec![state(1, 5, 7), entry(1, 1, 5, 1)], "entry 6 of group 1, which it counts on, is missing"),
        (vec![state(1, 5, 5), entry(1, 1, 6, 1)], "entry 5 of group 1, which it counts on, is missing"),
        (vec![state(1, 5, 5), entry(1, 1, 5, 1), entry(2, 1, 5, 2)], "with another term"),
        (vec![state(1, 5, 4)], "contradict each other"),
    ];
    for (records, expected) in cases {
        let error = open_with(&records).expect_err(expected);
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
        assert!(error.to_string().contains(expected) && error.to_string().contains("LSN"), "{error}");
    }
    let newer = open_with(&[b"rl\x02 what comes later".to_vec()]).expect_err("of another version");
    assert_eq!(newer.kind(), ErrorKind::Unsupported);
}

#[test]
fn calls_that_cannot_be_are_refused_and_change_nothing() {
    let devices = device();
    let error = RaftLog::open(devices.clone(), &options()).expect_err("it was never formatted");
    assert_eq!(error.kind(), ErrorKind::NotAMember);
    let small: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("small", 512 << 10)];
    let error = RaftLog::create(small, &options()).expect_err("it is too small");
    assert!(error.kind() == ErrorKind::InvalidInput && error.to_string().starts_with("small: "), "{error}");
    RaftLog::create(devices.clone(), &options()).expect("create");
    let log = RaftLog::open(devices, &options()).expect("open");
    let group = log.group(3);
    let live = || log.stats().live_bytes;
    assert!(log.groups().is_empty());
    group.append(&[Entry::new(4, 1, *b"a")]).expect("append");
    let (before, bounds) = (live(), group.bounds());
    let refused = |result: Result<tantalum_raft::Lsn, Error>, kind: ErrorKind| {
        let error = result.expect_err("it cannot be");
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains("group 3"), "{error}");
        assert_eq!((live(), group.bounds()), (before, bounds.clone()));
    };
    refused(group.append(&[Entry::new(6, 1, *b"b")]), ErrorKind::InvalidInput);
    refused(group.append(&[Entry::new(4, 1, *b"b")]), ErrorKind::InvalidInput);
    refused(group.append(&[Entry::new(5, 1, *b"b"), Entry::new(7, 1, *b"b")]), ErrorKind::InvalidInput);
    refused(group.append(&[Entry::new(u64::MAX, 1, *b"b")]), ErrorKind::InvalidInput);
    refused(group.purge(u64::MAX, 1, b""), ErrorKind::InvalidInput);
    refused(group.append(&[Entry::new(5, 1, vec![0; log.max_entry_bytes() + 1])]), ErrorKind::TooLarge);
    refused(group.set_vote(&[0; 1025]), ErrorKind::TooLarge);
    group.append(&[Entry::new(5, 1, vec![7; log.max_entry_bytes()])]).expect("it is the largest");

    // A group that was removed begins anew, for those that ask for it anew.
    let other = log.group(3);
    group.remove().expect("remove");
    assert_eq!(live(), 0);
    for error in
        [other.append(&[Entry::new(6, 1, *b"b")]), other.remove()].map(|result| result.expect_err("it is gone"))
    {
        assert_eq!(error.kind(), ErrorKind::NotFound, "{error}");
    }
    assert_eq!(other.entries(0..9, 9).expect_err("it is gone").kind(), ErrorKind::NotFound);
    log.group(3).append(&[Entry::new(0, 9, *b"c")]).expect("append");
    assert_eq!(log.groups(), [3]);
    log.close().expect("close");
    assert_eq!(log.group(3).set_vote(b"").expect_err("it is closed").kind(), ErrorKind::Closed);
}

#[test]
fn a_log_whose_devices_fail_refuses_and_is_opened_again() {
    let memory = MemoryDevice::new("raft", 1 << 20);
    let devices: Vec<Arc<dyn Device>> = vec![memory.clone()];
    RaftLog::create(devices.clone(), &options()).expect("create");
    let log = RaftLog::open(devices.clone(), &options()).expect("open");
    let group = log.group(1);
    log.flush(group.append(&[Entry::new(1, 1, *b"a")]).expect("append")).expect("flush");
    memory.inject(Fault::FailWrites { after: 0 });
    let end = group.append(&[Entry::new(2, 1, *b"b")]).expect("it is in memory");
    let (tell, told) = std::sync::mpsc::channel();
    log.on_durable(end, move |outcome| tell.send(outcome.map_err(|error| error.kind())).unwrap_or_default());
    assert_eq!(told.iter().next(), Some(Err(ErrorKind::Poisoned)));
    assert_eq!(log.flush(end).expect_err("it is not durable").kind(), ErrorKind::Poisoned);
    assert_eq!(group.append(&[Entry::new(3, 1, *b"c")]).expect_err("it failed").kind(), ErrorKind::Poisoned);
    let found = group.entries(1..9, usize::MAX).expect("what there is can be read");
    assert_eq!(found, [Entry::new(1, 1, *b"a"), Entry::new(2, 1, *b"b")]);
    memory.clear_faults();
    drop((log, group));
    let log = RaftLog::open(devices, &options()).expect("open");
    let found = log.group(1).entries(1..9, usize::MAX).expect("read");
    assert_eq!(found[0], Entry::new(1, 1, *b"a"));
}
