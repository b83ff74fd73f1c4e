//! What raft-rs asks of its storage: entries that are there, compacted or not there yet, snapshots, and a state to start with.
#![cfg(feature = "raft-rs")]

use std::sync::Arc;

use protobuf::Message;
use raft::eraftpb::{ConfChange, ConfChangeType, ConfState, Entry, EntryType, HardState};
use raft::{Config, Error as RaftError, GetEntriesContext, RawNode, StateRole, Storage, StorageError};
use tantalum::{Db, Table, Transaction};
use tantalum_device::{Device, MemoryDevice};
use tantalum_raft::raft_rs_storage::{NodeLog, StateMachine};
use tantalum_raft::{ErrorKind, RaftLog, RaftLogOptions};
use tempfile::TempDir;

/// What one node has.
struct Place {
    directory: TempDir,
    devices: Vec<Arc<dyn Device>>,
}

impl Place {
    fn new() -> Place {
        let devices: Vec<Arc<dyn Device>> = vec![MemoryDevice::new("raft", 2 << 20)];
        RaftLog::create(devices.clone(), &RaftLogOptions::default()).expect("create");
        Place { directory: tempfile::tempdir().expect("a directory"), devices }
    }

    fn open_log(&self) -> RaftLog {
        RaftLog::open(self.devices.clone(), &RaftLogOptions { cache_bytes: 0, ..Default::default() }).expect("open")
    }

    fn open_machine(&self) -> StateMachine {
        let db = Db::builder().log_bytes(8 << 20).open(self.directory.path().join("db")).expect("open");
        let machine = StateMachine::new(db, 1, &["words"]).expect("its table");
        machine.initialize(&ConfState::from((vec![1], vec![]))).expect("initialize");
        machine
    }

    fn open(&self) -> NodeLog {
        NodeLog::open(self.open_log().group(1), self.open_machine()).expect("they belong together")
    }
}

fn start(storage: NodeLog) -> RawNode<NodeLog> {
    let applied = storage.machine().applied().expect("read").index;
    let logger = slog::Logger::root(slog::Discard, slog::o!());
    RawNode::new(&Config { applied, ..Config::new(1) }, storage, &logger).expect("it starts")
}

/// Applies entries: words to the table, and changes of the configuration.
fn apply(node: &mut RawNode<NodeLog>, entries: &[Entry]) {
    let mut conf_state = None;
    for entry in entries.iter().filter(|entry| entry.get_entry_type() == EntryType::EntryConfChange) {
        let change = ConfChange::parse_from_bytes(&entry.data).expect("it is one");
        conf_state = Some(node.apply_conf_change(&change).expect("it may be"));
    }
    let put = |transaction: &mut Transaction, tables: &[Table], entry: &Entry| {
        transaction.put(&tables[0], &entry.data, entry.index.to_le_bytes())
    };
    node.store().machine().apply(entries, conf_state.as_ref(), put).expect("apply");
}

/// Does all that there is to do, durably.
fn handle(node: &mut RawNode<NodeLog>) {
    while node.has_ready() {
        let mut ready = node.ready();
        apply(node, &ready.take_committed_entries());
        let end = node.mut_store().persist(&ready).expect("persist");
        node.store().group().log().flush(end).expect("flush");
        let mut light = node.advance_append(ready);
        apply(node, &light.take_committed_entries());
        let applied = node.store().machine().applied().expect("read").index;
        node.advance_apply_to(applied);
    }
}

fn refused<T: std::fmt::Debug>(result: raft::Result<T>) -> StorageError {
    match result {
        Err(RaftError::Store(error)) => error,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_node_goes_on_where_it_was() {
    let place = Place::new();
    let mut node = start(place.open());
    assert_eq!(refused(node.store().snapshot(0, 2)), StorageError::SnapshotTemporarilyUnavailable);
    node.campaign().expect("it may");
    handle(&mut node);
    assert_eq!(node.raft.state, StateRole::Leader);
    for word in ["a", "b", "c"] {
        node.propose(vec![7], word.into()).expect("it leads");
        handle(&mut node);
    }
    let term = node.raft.term;
    drop(node);

    let node = start(place.open());
    let storage = node.store();
    let state = storage.initial_state().expect("read");
    assert_eq!(state.hard_state, HardState { term, vote: 1, commit: 4, ..HardState::default() });
    assert_eq!(state.conf_state.voters, [1]);
    let read = |range: std::ops::Range<u64>, bytes| {
        storage.entries(range.start, range.end, bytes, GetEntriesContext::empty(false))
    };
    let entries = read(1..5, None).expect("read");
    let found: Vec<_> =
        entries.iter().map(|entry| (entry.index, entry.term, &entry.data[..], &entry.context[..])).collect();
    let context = &[7][..];
    assert_eq!(
        found,
        [(1, term, &b""[..], &b""[..]), (2, term, b"a", context), (3, term, b"b", context), (4, term, b"c", context)]
    );
    assert_eq!(read(2..5, Some(0)).expect("at least one").len(), 1);
    assert_eq!(refused(read(2..6, None)), StorageError::Unavailable);
    assert_eq!(refused(storage.term(5)), StorageError::Unavailable);
    assert_eq!((storage.term(0).expect("of none"), storage.term(4).expect("there")), (0, term));

    storage.compact(2).expect("compact");
    assert_eq!((storage.first_index().expect("read"), storage.last_index().expect("read")), (3, 4));
    assert_eq!(storage.term(2).expect("of the last one"), term);
    assert_eq!(refused(read(2..4, None)), StorageError::Compacted);
    assert_eq!(refused(storage.term(1)), StorageError::Compacted);
    storage.compact(1).expect("it was before");
    // What was not applied stays.
    storage.compact(100).expect("compact");
    assert_eq!((storage.first_index().expect("read"), storage.last_index().expect("read")), (5, 4));
    assert_eq!(refused(storage.snapshot(5, 2)), StorageError::SnapshotTemporarilyUnavailable);
    let snapshot = storage.snapshot(4, 2).expect("all that there is");
    assert_eq!((snapshot.get_metadata().index, snapshot.get_metadata().term), (4, term));
}

#[test]
fn the_configuration_is_that_of_the_entry_applied_last() {
    let place = Place::new();
    let mut node = start(place.open());
    node.campaign().expect("it may");
    handle(&mut node);
    let change = ConfChange { node_id: 2, change_type: ConfChangeType::AddLearnerNode, ..ConfChange::default() };
    node.propose_conf_change(vec![], change).expect("it leads");
    handle(&mut node);
    node.propose(vec![], "a".into()).expect("it leads");
    handle(&mut node);
    drop(node);
    let storage = place.open();
    let expected = ConfState::from((vec![1], vec![2]));
    assert_eq!(storage.initial_state().expect("read").conf_state, expected);
    assert_eq!(*storage.snapshot(0, 2).expect("there is one").get_metadata().get_conf_state(), expected);
}

#[test]
fn a_snapshot_that_a_crash_interrupted_is_completed() {
    let place = Place::new();
    let mut node = start(place.open());
    node.campaign().expect("it may");
    handle(&mut node);
    let term = node.raft.term;
    // Its rows come to the database, and not one entry to the log.
    let words: Vec<_> =
        (2..9).map(|index| Entry { index, term, data: index.to_string().into(), ..Entry::default() }).collect();
    node.store().machine().apply(&words, None, |_, _, _| Ok(())).expect("apply");
    drop(node);
    let storage = place.open();
    assert_eq!((storage.first_index().expect("read"), storage.last_index().expect("read")), (9, 8));
    assert_eq!(storage.term(8).expect("of the snapshot"), term);
    assert_eq!(storage.initial_state().expect("read").hard_state.commit, 8);
    assert_eq!(start(storage).raft.raft_log.last_index(), 8);
}

#[test]
fn what_does_not_belong_together_is_refused() {
    let (place, other) = (Place::new(), Place::new());
    let mut node = start(place.open());
    node.campaign().expect("it may");
    for word in ["a", "b", "c"] {
        handle(&mut node);
        node.propose(vec![], word.into()).expect("it leads");
    }
    handle(&mut node);
    let error = node.store().machine().apply(&[Entry { index: 3, ..Entry::default() }], None, |_, _, _| Ok(()));
    let error = error.expect_err("it was applied before");
    assert_eq!(error.kind(), ErrorKind::InvalidInput);
    assert!(error.to_string().contains("entry 3 cannot be applied"), "{error}");
    node.store().compact(3).expect("compact");
    let end = node.store().group().log().stats().log.end_lsn;
    node.store().group().log().flush(end).expect("flush");
    drop(node);
    let error = NodeLog::open(place.open_log().group(1), other.open_machine()).expect_err("another database");
    assert_eq!(error.kind(), ErrorKind::Corrupt);
    assert!(error.to_string().contains("begins with entry 4, its state machine has come to entry 0"), "{error}");
}

#[test]
fn a_full_log_is_told_and_the_same_ready_is_persisted_later() {
    let place = Place::new();
    let mut node = start(place.open());
    node.campaign().expect("it may");
    handle(&mut node);
    let mut fulls = 0;
    for n in 0..200u32 {
        node.propose(vec![], vec![n as u8; 8000]).expect("it leads");
        let mut ready = node.ready();
        let committed = ready.take_committed_entries();
        node.store().machine().apply(&committed, None, |_, _, _| Ok(())).expect("apply");
        let end = match node.mut_store().persist(&ready) {
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::LogFull, "{error}");
                fulls += 1;
                node.store().compact(u64::MAX).expect("compact");
                node.mut_store().persist(&ready).expect("there is space")
            }
            Ok(end) => end,
        };
        node.store().group().log().flush(end).expect("flush");
        let mut light = node.advance_append(ready);
        node.store().machine().apply(&light.take_committed_entries(), None, |_, _, _| Ok(())).expect("apply");
        let applied = node.store().machine().applied().expect("read").index;
        node.advance_apply_to(applied);
    }
    assert!(fulls > 2 && node.store().last_index().expect("read") == 201, "{fulls}");
}
