//! Single requests: sorting and filters, comparisons, alarms, commands in parts, hashes.

use super::*;
use crate::api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::api::etcdserverpb::range_request::{SortOrder, SortTarget};
use crate::api::etcdserverpb::request_op::Request;

/// Keys a to e: values in the opposite order, d written twice.
fn letters() -> Store {
    let store = Store::new();
    for (key, value) in [("a", "9"), ("b", "8"), ("c", "7"), ("d", "x"), ("e", "5"), ("d", "6")] {
        store.apply(&Command::Put(Encoded(put(key, value))));
    }
    store
}

fn all() -> pb::RangeRequest {
    pb::RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() }
}

fn names(response: &pb::RangeResponse) -> String {
    response.kvs.iter().map(|key_value| String::from_utf8_lossy(&key_value.key).into_owned()).collect()
}

#[test]
fn ranges_are_sorted_filtered_and_cut_off() {
    let store = letters();
    let found = |request: pb::RangeRequest| names(&store.range(&request).expect("it can be read"));
    let sorted = |target: SortTarget, order: SortOrder, limit| {
        found(pb::RangeRequest { sort_target: target as i32, sort_order: order as i32, limit, ..all() })
    };
    assert_eq!(sorted(SortTarget::Key, SortOrder::None, 0), "abcde");
    assert_eq!(sorted(SortTarget::Key, SortOrder::Descend, 2), "ed");
    assert_eq!(sorted(SortTarget::Value, SortOrder::Ascend, 0), "edcba");
    assert_eq!(sorted(SortTarget::Mod, SortOrder::Ascend, 0), "abced");
    assert_eq!(sorted(SortTarget::Create, SortOrder::Descend, 3), "edc");
    assert_eq!(sorted(SortTarget::Version, SortOrder::Descend, 1), "d");
    assert_eq!(found(pb::RangeRequest { min_mod_revision: 4, ..all() }), "cde");
    assert_eq!(found(pb::RangeRequest { max_mod_revision: 6, limit: 2, ..all() }), "ab");
    assert_eq!(found(pb::RangeRequest { min_create_revision: 3, max_create_revision: 5, ..all() }), "bcd");
    assert_eq!(found(pb::RangeRequest { key: b"z".to_vec(), range_end: b"a".to_vec(), ..all() }), "");
    let counted = store.range(&pb::RangeRequest { count_only: true, limit: 2, ..all() }).expect("it can be read");
    assert_eq!((counted.count, counted.kvs.len(), counted.more), (5, 0, false));
    let cut = store.range(&pb::RangeRequest { limit: 5, ..all() }).expect("it can be read");
    assert_eq!((cut.count, cut.kvs.len(), cut.more), (5, 5, false));
    let past = store.range(&pb::RangeRequest { revision: 5, ..all() }).expect("it can be read");
    assert_eq!((names(&past), past.header.expect("it has one").revision), ("abcd".to_owned(), 7));
}

#[test]
fn comparisons_see_the_store_before() {
    let store = letters();
    let holds = |key: &str, range_end: &str, result: CompareResult, target_union: TargetUnion| {
        let target = match target_union {
            TargetUnion::Version(_) => CompareTarget::Version,
            TargetUnion::CreateRevision(_) => CompareTarget::Create,
            TargetUnion::ModRevision(_) => CompareTarget::Mod,
            TargetUnion::Value(_) => CompareTarget::Value,
            TargetUnion::Lease(_) => CompareTarget::Lease,
        };
        let compare = pb::Compare {
            result: result as i32,
            target: target as i32,
            key: key.into(),
            range_end: range_end.into(),
            target_union: Some(target_union),
        };
        let request = pb::TxnRequest { compare: vec![compare], ..Default::default() };
        store.read(|view| read(view, &request)).expect("it can be read").succeeded
    };
    use CompareResult::{Equal, Greater, Less, NotEqual};
    assert!(holds("d", "", Equal, TargetUnion::Version(2)) && !holds("d", "", Less, TargetUnion::Version(2)));
    assert!(holds("d", "", Greater, TargetUnion::CreateRevision(4)));
    assert!(holds("d", "", Equal, TargetUnion::ModRevision(7)));
    assert!(holds("d", "", Equal, TargetUnion::Value(b"6".to_vec())) && holds("d", "", Equal, TargetUnion::Lease(0)));
    assert!(holds("nothing", "", Equal, TargetUnion::Version(0)));
    assert!(!holds("nothing", "", NotEqual, TargetUnion::Value(b"6".to_vec())), "there is no value to compare");
    assert!(holds("a", "e", Less, TargetUnion::ModRevision(8)) && !holds("a", "e", Less, TargetUnion::ModRevision(7)));
}

#[test]
fn a_refused_transaction_changes_nothing() {
    let store = letters();
    let operation = |request| pb::RequestOp { request: Some(request) };
    let first = operation(Request::RequestPut(put("a", "new")));
    let refusals = [
        (Request::RequestPut(pb::PutRequest { lease: 7, ..put("b", "") }), Refusal::LeaseNotFound),
        (Request::RequestPut(pb::PutRequest { ignore_value: true, ..put("z", "") }), Refusal::KeyNotFound),
        (Request::RequestRange(pb::RangeRequest { revision: 8, ..all() }), Refusal::FutureRevision),
    ];
    for (request, expected) in refusals {
        let inner = pb::TxnRequest { success: vec![operation(request)], ..Default::default() };
        let success = vec![first.clone(), operation(Request::RequestTxn(inner))];
        let answer = store.apply(&Command::Txn(Encoded(pb::TxnRequest { success, ..Default::default() })));
        assert!(matches!(answer, Answer::Refused(refusal) if refusal == expected), "{answer:?}");
    }
    assert_eq!(store.read(|view| Ok(view.revision()?)), Ok(7));
}

#[test]
fn alarms_refuse_what_would_make_things_worse() {
    let store = letters();
    let alarm = |action: pb::alarm_request::AlarmAction, alarm: pb::AlarmType| {
        let request = pb::AlarmRequest { action: action as i32, member_id: 5, alarm: alarm as i32 };
        match store.apply(&Command::Alarm(Encoded(request))) {
            Answer::Alarm(Encoded(response)) => response.alarms.len(),
            other => panic!("{other:?}"),
        }
    };
    use pb::AlarmType::{Corrupt, None, Nospace};
    use pb::alarm_request::AlarmAction::{Activate, Deactivate, Get};
    let refused = |command: Command| match store.apply(&command) {
        Answer::Refused(refusal) => Some(refusal),
        _ => Option::None,
    };
    let delete = Command::DeleteRange(Encoded(pb::DeleteRangeRequest { key: b"a".to_vec(), ..Default::default() }));
    assert_eq!((alarm(Activate, None), alarm(Activate, Nospace), alarm(Get, None)), (0, 1, 1));
    assert_eq!(refused(Command::Put(Encoded(put("a", "")))), Some(Refusal::NoSpace));
    assert_eq!(refused(Command::LeaseGrant { id: 1, ttl_s: 5 }), Some(Refusal::NoSpace));
    assert_eq!(refused(delete.clone()), Option::None);
    assert_eq!((alarm(Activate, Corrupt), alarm(Get, Nospace), alarm(Get, None)), (1, 1, 2));
    assert_eq!(refused(delete), Some(Refusal::Corrupt));
    assert_eq!((alarm(Deactivate, Corrupt), alarm(Deactivate, Nospace), alarm(Deactivate, Nospace)), (1, 1, 0));
    assert_eq!(refused(Command::Put(Encoded(put("a", "")))), Option::None);
}

#[test]
fn a_command_in_parts_is_done_once_it_is_whole() {
    let store = Store::new();
    let large = Command::Put(Encoded(put("large", &"v".repeat(10_000))));
    let encoded = postcard::to_stdvec(&large).expect("it can be encoded");
    // One that was given up.
    let (parts, _) = parts_of(3, &vec![7; 9000], 700);
    parts.iter().take(9).for_each(|part| drop(store.apply(part)));
    let (parts, assembled) = parts_of(3, &encoded, 1000);
    assert_eq!(parts.len(), 11);
    for part in &parts {
        assert!(matches!(store.apply(part), Answer::Nothing));
    }
    let Answer::Put(Encoded(response)) = store.apply(&assembled) else { panic!("it is a put") };
    assert_eq!(response.header.expect("it has one").revision, 2);
    let found = store.read(|view| Ok(view.get(b"large")?)).expect("it can be read").expect("it is there");
    assert_eq!(found.value, "v".repeat(10_000).into_bytes());
}

#[test]
fn the_hash_of_keys_is_etcds() {
    let store = Store::new();
    // CRC-32C of the name of etcd's bucket.
    let empty = store.read(|view| hash_keys(view, 0)).expect("it can be hashed");
    assert_eq!(empty, KeysHash { hash: crc32c::crc32c(b"key"), revision: 1, compacted: -1 });
    store.apply(&Command::Put(Encoded(put("a", "b"))));
    let row = b"\0\0\0\0\0\0\0\x02_\0\0\0\0\0\0\0\0";
    let key_value = b"\x0a\x01a\x10\x02\x18\x02\x20\x01\x2a\x01b";
    let hash = crc32c::crc32c(&[&b"key"[..], row, key_value].concat());
    assert_eq!(store.read(|view| hash_keys(view, 0)).map(|found| found.hash), Ok(hash));
    assert_eq!(store.read(|view| hash_keys(view, 1)).map(|found| found.hash), Ok(empty.hash));
    assert_eq!(store.read(|view| hash_keys(view, 3)), Err(Refusal::FutureRevision));
    let all = store.read(|view| Ok(hash_all(view)?)).expect("it can be hashed");
    store.apply(&Command::LeaseGrant { id: 1, ttl_s: 5 });
    assert_ne!(store.read(|view| Ok(hash_all(view)?)), Ok(all));
}
