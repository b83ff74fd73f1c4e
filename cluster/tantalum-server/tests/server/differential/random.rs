//! Random requests: what clients send, and what they should not.

use fastrand::Rng;
use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::api::etcdserverpb::compare::TargetUnion;
use tantalum_server::api::etcdserverpb::request_op::Request;

/// A request of any service that answers at once.
#[derive(Clone, Debug)]
pub enum Call {
    Range(pb::RangeRequest),
    Put(pb::PutRequest),
    DeleteRange(pb::DeleteRangeRequest),
    Txn(pb::TxnRequest),
    Compact(pb::CompactionRequest),
    Grant(pb::LeaseGrantRequest),
    Revoke(pb::LeaseRevokeRequest),
    KeepAlive(pb::LeaseKeepAliveRequest),
    TimeToLive(pb::LeaseTimeToLiveRequest),
    Leases,
    HashKv(pb::HashKvRequest),
}

const KEYS: [&[u8]; 9] = [b"a", b"a\0", b"a\0\x01", b"ab", b"b", b"b\xff", b"b\xff\xff", b"c", b"\0"];

fn key(random: &mut Rng) -> Vec<u8> {
    if random.u8(..) == 0 { Vec::new() } else { KEYS[random.usize(..KEYS.len())].to_vec() }
}

fn range_end(random: &mut Rng) -> Vec<u8> {
    match random.u8(..6) {
        0..3 => Vec::new(),
        3 => vec![0],
        _ => key(random),
    }
}

/// A revision near the last one, of the past or not there yet.
fn revision(random: &mut Rng, last: i64) -> i64 {
    if random.bool() { 0 } else { last + random.i64(-12..2) }
}

fn rarely(random: &mut Rng) -> bool {
    random.u8(..8) == 0
}

fn range(random: &mut Rng, last: i64) -> pb::RangeRequest {
    let (sort_order, sort_target) = (random.i32(0..3), random.i32(0..5));
    let bound = |random: &mut Rng| if rarely(random) { last - random.i64(0..10) } else { 0 };
    // Rows that are equal in what is sorted by come in any order from etcd, so all of them are asked for.
    let is_sorted_by_key = sort_order == 0 || sort_target == 0;
    pb::RangeRequest {
        key: key(random),
        range_end: range_end(random),
        limit: if is_sorted_by_key && random.bool() { random.i64(-1..4) } else { 0 },
        revision: revision(random, last),
        sort_order,
        sort_target,
        serializable: random.bool(),
        keys_only: rarely(random),
        count_only: rarely(random),
        min_mod_revision: bound(random),
        max_mod_revision: bound(random),
        min_create_revision: bound(random),
        max_create_revision: bound(random),
    }
}

fn put(random: &mut Rng) -> pb::PutRequest {
    let (ignore_value, ignore_lease) = (rarely(random), rarely(random));
    let clean = random.u8(..4) > 0;
    let value = (0..random.usize(..4)).map(|_| random.u8(..)).collect();
    let lease = if random.u8(..3) == 0 { random.i64(0..5) } else { 0 };
    pb::PutRequest {
        key: key(random),
        value: if ignore_value && clean { Vec::new() } else { value },
        lease: if ignore_lease && clean { 0 } else { lease },
        prev_kv: random.bool(),
        ignore_value,
        ignore_lease,
    }
}

fn delete(random: &mut Rng) -> pb::DeleteRangeRequest {
    pb::DeleteRangeRequest { key: key(random), range_end: range_end(random), prev_kv: random.bool() }
}

fn compare(random: &mut Rng, last: i64) -> pb::Compare {
    let near = last - random.i64(0..8);
    let value = (0..random.usize(..2)).map(|_| random.u8(..)).collect();
    let (target, target_union) = match random.i32(0..5) {
        0 => (0, TargetUnion::Version(random.i64(0..4))),
        1 => (1, TargetUnion::CreateRevision(if random.bool() { 0 } else { near })),
        2 => (2, TargetUnion::ModRevision(near)),
        3 => (3, TargetUnion::Value(value)),
        _ => (4, TargetUnion::Lease(random.i64(0..4))),
    };
    pb::Compare {
        result: random.i32(0..4),
        target,
        key: key(random),
        range_end: if rarely(random) { range_end(random) } else { Vec::new() },
        target_union: Some(target_union),
    }
}

fn txn(random: &mut Rng, last: i64, depth: u32) -> pb::TxnRequest {
    let side = |random: &mut Rng| (0..random.usize(..4)).map(|_| operation(random, last, depth)).collect();
    pb::TxnRequest {
        compare: (0..random.usize(..3)).map(|_| compare(random, last)).collect(),
        success: side(random),
        failure: side(random),
    }
}

fn operation(random: &mut Rng, last: i64, depth: u32) -> pb::RequestOp {
    let request = match random.u8(..10) {
        0..3 => Request::RequestRange(range(random, last)),
        3..7 => Request::RequestPut(put(random)),
        7 | 8 => Request::RequestDeleteRange(match delete(random) {
            // etcd does not see that it meets a put of the same transaction, which it refuses with any other end.
            all if all.range_end == [0] => pb::DeleteRangeRequest { range_end: b"c".into(), ..all },
            delete => delete,
        }),
        _ if depth < 2 => Request::RequestTxn(txn(random, last, depth + 1)),
        _ => return pb::RequestOp { request: None },
    };
    pb::RequestOp { request: Some(request) }
}

/// A request to a store with this last revision, compacted at another.
pub fn call(random: &mut Rng, last: i64, compacted: i64) -> Call {
    // Not 0, for which each server chooses a number.
    let id = random.i64(1..5);
    match random.u8(..40) {
        0..9 => Call::Range(range(random, last)),
        9..20 => Call::Put(put(random)),
        20..24 => Call::DeleteRange(delete(random)),
        24..32 => Call::Txn(txn(random, last, 0)),
        32 => Call::Compact(pb::CompactionRequest { revision: last + random.i64(-15..2), physical: random.bool() }),
        33 => Call::Grant(pb::LeaseGrantRequest { id, ttl: random.i64(1000..9000) }),
        34 => Call::Revoke(pb::LeaseRevokeRequest { id }),
        35 => Call::KeepAlive(pb::LeaseKeepAliveRequest { id }),
        36 => Call::TimeToLive(pb::LeaseTimeToLiveRequest { id, keys: random.bool() }),
        37 => Call::Leases,
        _ => {
            let revision = revision(random, last);
            // The hash at the compacted revision is told since etcd 3.6.
            Call::HashKv(pb::HashKvRequest { revision: if revision == compacted { 0 } else { revision } })
        }
    }
}
