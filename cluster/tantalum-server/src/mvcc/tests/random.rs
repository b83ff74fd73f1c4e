//! Random operations: the store and the model agree on every answer, at all revisions, and on what compaction leaves.

use proptest::prelude::*;

use super::model::{Model, Operation, Outcome};
use super::*;
use crate::api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::api::etcdserverpb::request_op::Request;
use crate::api::etcdserverpb::response_op::Response;
use crate::mvcc::compaction;

/// What is done to a store.
#[derive(Clone, Debug)]
enum Step {
    Run(Operation),
    Grant(i64),
    Revoke(i64),
    /// So many revisions before the last.
    Compact(i64),
    Sweep(u32),
}

const KEYS: [&[u8]; 7] = [b"a", b"a\0", b"a\0\x01", b"ab", b"b", b"b\xff", b"c"];

fn key() -> impl Strategy<Value = Vec<u8>> {
    prop::sample::select(&KEYS[..]).prop_map(<[u8]>::to_vec)
}

fn keys() -> impl Strategy<Value = Keys> {
    let end = prop_oneof![Just(Vec::new()), Just(vec![0]), key()];
    (key(), end).prop_map(|(start, end)| Keys::new(&start, &end))
}

fn simple() -> impl Strategy<Value = Operation> {
    let put = (key(), any::<[u8; 2]>(), 0..4i64, 0..6u8).prop_map(|(key, value, lease, ignores)| {
        let (ignore_value, ignore_lease) = (ignores == 0, ignores == 1);
        let value = if ignore_value { Vec::new() } else { value.to_vec() };
        Operation::Put { key, value, lease: if ignore_lease { 0 } else { lease }, ignore_value, ignore_lease }
    });
    prop_oneof![4 => put, 2 => keys().prop_map(Operation::Delete), 1 => keys().prop_map(Operation::Read)]
}

fn operation() -> impl Strategy<Value = Operation> {
    simple().prop_recursive(2, 12, 3, |inner| {
        let side = || prop::collection::vec(inner.clone(), 0..4);
        (key(), 0..3i64, side(), side()).prop_map(|(key, version, success, failure)| Operation::Txn {
            key,
            version,
            success,
            failure,
        })
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => operation().prop_map(Step::Run),
        1 => (1..4i64).prop_map(Step::Grant),
        1 => (1..4i64).prop_map(Step::Revoke),
        1 => (-1..12i64).prop_map(Step::Compact),
        1 => (1..9u32).prop_map(Step::Sweep),
    ]
}

fn request_of(operation: &Operation) -> Request {
    let ends = |keys: &Keys| {
        let range_end = match &keys.end {
            KeysEnd::Single => Vec::new(),
            KeysEnd::Before(end) => end.clone(),
            KeysEnd::Unbounded => vec![0],
        };
        (keys.start.clone(), range_end)
    };
    match operation.clone() {
        Operation::Put { key, value, lease, ignore_value, ignore_lease } => {
            Request::RequestPut(pb::PutRequest { key, value, lease, prev_kv: true, ignore_value, ignore_lease })
        }
        Operation::Delete(keys) => {
            let (key, range_end) = ends(&keys);
            Request::RequestDeleteRange(pb::DeleteRangeRequest { key, range_end, prev_kv: true })
        }
        Operation::Read(keys) => {
            let (key, range_end) = ends(&keys);
            Request::RequestRange(pb::RangeRequest { key, range_end, ..Default::default() })
        }
        Operation::Txn { key, version, success, failure } => {
            let wrap = |side: Vec<Operation>| -> Vec<pb::RequestOp> {
                side.iter().map(|inner| pb::RequestOp { request: Some(request_of(inner)) }).collect()
            };
            let compare = pb::Compare {
                key,
                target: CompareTarget::Version as i32,
                result: CompareResult::Equal as i32,
                target_union: Some(TargetUnion::Version(version)),
                range_end: Vec::new(),
            };
            let (success, failure) = (wrap(success), wrap(failure));
            Request::RequestTxn(pb::TxnRequest { compare: vec![compare], success, failure })
        }
    }
}

fn outcome_of(response: Response) -> Outcome {
    match response {
        Response::ResponsePut(response) => Outcome::Put(response.prev_kv),
        Response::ResponseDeleteRange(response) => {
            assert_eq!(response.deleted as usize, response.prev_kvs.len());
            Outcome::Deleted(response.prev_kvs)
        }
        Response::ResponseRange(response) => Outcome::Read(response.kvs),
        Response::ResponseTxn(response) => {
            let outcomes = response.responses.into_iter();
            Outcome::Txn(response.succeeded, outcomes.filter_map(|inner| inner.response.map(outcome_of)).collect())
        }
    }
}

/// Runs an operation as a command, or as a read. Returns also the revision of the answer.
fn run(store: &Store, operation: &Operation) -> Result<(Outcome, i64), Refusal> {
    let revision = |header: &Option<pb::ResponseHeader>| header.as_ref().expect("it has one").revision;
    let answer = match request_of(operation) {
        Request::RequestRange(request) => {
            let response = store.range(&request)?;
            let revision = revision(&response.header);
            return Ok((outcome_of(Response::ResponseRange(response)), revision));
        }
        Request::RequestPut(request) => store.apply(&Command::Put(Encoded(request))),
        Request::RequestDeleteRange(request) => store.apply(&Command::DeleteRange(Encoded(request))),
        Request::RequestTxn(request) => store.apply(&Command::Txn(Encoded(request))),
    };
    let (revision, response) = match answer {
        Answer::Refused(refusal) => return Err(refusal),
        Answer::Put(Encoded(response)) => (revision(&response.header), Response::ResponsePut(response)),
        Answer::DeleteRange(Encoded(response)) => (revision(&response.header), Response::ResponseDeleteRange(response)),
        Answer::Txn(Encoded(response)) => (revision(&response.header), Response::ResponseTxn(response)),
        other => panic!("{other:?}"),
    };
    Ok((outcome_of(response), revision))
}

/// Whether etcd takes it: no key is written twice.
fn is_valid(operation: &Operation) -> bool {
    match request_of(operation) {
        Request::RequestTxn(request) => crate::service::check_txn(&request, 128).is_ok(),
        _ => true,
    }
}

fn done(answer: Answer) -> Result<(), Refusal> {
    match answer {
        Answer::Refused(refusal) => Err(refusal),
        _ => Ok(()),
    }
}

fn take(store: &Store, model: &mut Model, step: &Step) {
    match step {
        Step::Run(operation) if !is_valid(operation) => {}
        Step::Run(operation) => {
            let expected = model.run(operation);
            assert_eq!(run(store, operation), expected.map(|outcome| (outcome, model.revision)), "{operation:?}");
        }
        Step::Grant(id) => {
            assert_eq!(done(store.apply(&Command::LeaseGrant { id: *id, ttl_s: 60 })), model.grant(*id));
        }
        Step::Revoke(id) => assert_eq!(done(store.apply(&Command::LeaseRevoke { id: *id })), model.revoke(*id)),
        Step::Compact(back) => {
            let revision = model.revision - back;
            assert_eq!(done(store.apply(&Command::Compact { revision })), model.compact(revision));
        }
        Step::Sweep(revisions) => drop(store.apply(&Command::Sweep { revisions: *revisions })),
    }
}

/// All revisions, all ranges, events and leases.
fn compare(store: &Store, model: &Model) {
    for main in model.compacted.max(1)..=model.revision {
        for start in KEYS {
            for end in KEYS.into_iter().chain([&b""[..], &[0]]) {
                let keys = Keys::new(start, end);
                let state = model.states[&main].values();
                let expected: Vec<_> = state.filter(|key_value| keys.contains(&key_value.key)).cloned().collect();
                let all =
                    pb::RangeRequest { key: start.into(), range_end: end.into(), revision: main, ..Default::default() };
                let found = store.range(&all).expect("it is not compacted");
                assert_eq!((found.count as usize, found.more), (expected.len(), false));
                assert_eq!(found.kvs, expected, "{keys:?} at {main}");
                let few = pb::RangeRequest { limit: 2, keys_only: true, ..all };
                let found = store.range(&few).expect("it is not compacted");
                assert_eq!((found.count as usize, found.more), (expected.len(), expected.len() > 2));
                let without_value = |key_value: &crate::api::mvccpb::KeyValue| crate::api::mvccpb::KeyValue {
                    value: Vec::new(),
                    ..key_value.clone()
                };
                assert_eq!(found.kvs, expected.iter().take(2).map(without_value).collect::<Vec<_>>());
            }
        }
    }
    let at = |revision| store.range(&pb::RangeRequest { key: b"a".to_vec(), revision, ..Default::default() }).map(drop);
    assert_eq!(at(model.revision + 1), Err(Refusal::FutureRevision));
    assert!(model.compacted <= 1 || at(model.compacted - 1) == Err(Refusal::Compacted));

    let from = model.compacted.max(1);
    let (events, to) = store.read(|view| Ok(view.events(from, model.revision, usize::MAX)?)).expect("they are there");
    let found = events.into_iter().map(|event| (event.revision.main, event.key_value.key, event.is_delete)).collect();
    let changes = model.changes.range(from..);
    let expected =
        changes.flat_map(|(main, changes)| changes.iter().map(|(key, is_delete)| (*main, key.clone(), *is_delete)));
    let visible = |events: Vec<(i64, Vec<u8>, bool)>| -> Vec<_> {
        // Of the compacted revision itself, a key may have its last change alone.
        let is_replaced = |index: usize| {
            let (main, key, _) = &events[index];
            events[index + 1..].iter().any(|later| later.0 == *main && later.1 == *key)
        };
        let kept = (0..events.len()).filter(|index| events[*index].0 != model.compacted || !is_replaced(*index));
        kept.map(|index| events[index].clone()).collect()
    };
    assert_eq!((visible(found), to), (visible(expected.collect()), model.revision));
    let leases = store.read(|view| {
        let leases = view.leases()?.into_iter();
        Ok(leases.map(|(id, _)| Ok((id, view.lease_keys(id)?))).collect::<tantalum::Result<Vec<_>>>()?)
    });
    let held = |id: &i64| {
        let held = model.state().values().filter(|key_value| key_value.lease == *id);
        (*id, held.map(|key_value| key_value.key.clone()).collect::<Vec<_>>())
    };
    assert_eq!(leases.expect("they are there"), model.leases.iter().map(held).collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_store_does_what_the_model_does(steps in prop::collection::vec(step(), 1..60)) {
        let store = Store::new();
        let mut model = Model::new();
        for (number, step) in steps.iter().enumerate() {
            take(&store, &mut model, step);
            if number % 20 == 19 {
                compare(&store, &model);
            }
        }
        let hashes = || -> Vec<_> {
            let revisions = model.compacted.max(1)..=model.revision;
            revisions.map(|revision| store.read(|view| hash_keys(view, revision)).expect("it is not compacted")).collect()
        };
        let before = hashes();
        while let Answer::Swept { is_finished: false } = store.apply(&Command::Sweep { revisions: 3 }) {}
        prop_assert_eq!(before, hashes(), "how far compaction is makes no difference");
        compare(&store, &model);
        let kept = model.kept_revisions();
        prop_assert_eq!(store.rows(), (kept.clone(), kept));
    }
}

#[test]
fn a_sweep_that_is_interrupted_by_another_compaction_goes_on() {
    let store = Store::new();
    for n in 0..40 {
        store.apply(&Command::Put(Encoded(put(["a", "b"][n % 2], &n.to_string()))));
    }
    store.apply(&Command::Compact { revision: 20 });
    assert!(matches!(store.apply(&Command::Sweep { revisions: 5 }), Answer::Swept { is_finished: false }));
    store.apply(&Command::Compact { revision: 30 });
    let mut transaction = store.db.begin().expect("begin");
    let mut sweeps = 0;
    while !compaction::sweep(&mut transaction, &store.tables, 5).expect("the database works") {
        sweeps += 1;
    }
    transaction.commit().expect("commit");
    assert!((3..=6).contains(&sweeps), "{sweeps}");
    let mains: Vec<_> = store.rows().0.into_iter().map(|revision| revision.main).collect();
    assert_eq!(mains, (29..=41).collect::<Vec<_>>());
}
