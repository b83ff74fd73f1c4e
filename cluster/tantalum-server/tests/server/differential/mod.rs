//! Random requests to this server and to etcd: the same answers, revisions, refusals and events. `SEEDS=A..B` runs other seeds.

mod etcd;
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;

use fastrand::Rng;
use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::api::etcdserverpb::response_op::Response as Answer;
use tantalum_server::api::mvccpb::{Event, KeyValue};
use tantalum_server::api::{v3electionpb as election, v3lockpb as lock};
use tonic::{Code, Response, Status};

use self::etcd::Etcd;
use self::random::Call;
use crate::common::{Client, Server, Watching, options};

/// Requests of a seed.
const REQUESTS: usize = 250;
/// The last key that is written, which ends what watchers wait for.
const LAST: &[u8] = b"z";

/// A read of one key.
pub fn read_of(key: &[u8]) -> pb::RangeRequest {
    pb::RangeRequest { key: key.to_vec(), ..Default::default() }
}

/// An answer as text, without what differs between two clusters, or the refusal. And the revision in it.
type Told = Result<(String, i64), (Code, String)>;

fn told<T: Debug>(
    answer: Result<Response<T>, Status>,
    header: impl FnOnce(&mut T) -> &mut Option<pb::ResponseHeader>,
) -> Told {
    let mut answer = answer.map_err(|status| (status.code(), status.message().to_owned()))?.into_inner();
    let header = header(&mut answer).as_mut().expect("each answer has a header");
    (header.cluster_id, header.member_id, header.raft_term) = (0, 0, 0);
    let revision = header.revision;
    Ok((format!("{answer:?}"), revision))
}

/// Puts rows in one order that etcd returns in any.
fn in_order(request: &pb::RangeRequest, rows: &mut [KeyValue]) {
    let sorted_by = |row: &KeyValue| match request.sort_target {
        1 => (row.version, Vec::new()),
        2 => (row.create_revision, Vec::new()),
        3 => (row.mod_revision, Vec::new()),
        4 => (0, row.value.clone()),
        _ => (0, row.key.clone()),
    };
    let has_order = |rows: &mut std::slice::Windows<'_, KeyValue>| match request.sort_order {
        2 => rows.all(|pair| sorted_by(&pair[0]) >= sorted_by(&pair[1])),
        1 => rows.all(|pair| sorted_by(&pair[0]) <= sorted_by(&pair[1])),
        _ => true,
    };
    // Without a value in the answer, its order by value cannot be seen.
    let is_hidden = request.keys_only && request.sort_target == 4;
    assert!(is_hidden || has_order(&mut rows.windows(2)), "{request:?}: {rows:?}");
    rows.sort_by(|a, b| a.key.cmp(&b.key));
}

fn txn_in_order(request: &pb::TxnRequest, response: &mut pb::TxnResponse) {
    let side = if response.succeeded { &request.success } else { &request.failure };
    for (operation, answer) in side.iter().zip(&mut response.responses) {
        match (&operation.request, &mut answer.response) {
            (Some(pb::request_op::Request::RequestRange(range)), Some(Answer::ResponseRange(answer))) => {
                in_order(range, &mut answer.kvs);
            }
            (Some(pb::request_op::Request::RequestTxn(txn)), Some(Answer::ResponseTxn(answer))) => {
                txn_in_order(txn, answer);
            }
            _ => {}
        }
    }
}

async fn ask(client: &mut Client, call: Call) -> Told {
    match call {
        Call::Range(request) => {
            let answer = client.kv.range(request.clone()).await.map(|mut answer| {
                in_order(&request, &mut answer.get_mut().kvs);
                answer
            });
            told(answer, |answer| &mut answer.header)
        }
        Call::Put(request) => told(client.kv.put(request).await, |answer| &mut answer.header),
        Call::DeleteRange(request) => told(client.kv.delete_range(request).await, |answer| &mut answer.header),
        Call::Txn(request) => {
            let answer = client.kv.txn(request.clone()).await.map(|mut answer| {
                txn_in_order(&request, answer.get_mut());
                answer
            });
            told(answer, |answer| &mut answer.header)
        }
        Call::Compact(request) => told(client.kv.compact(request).await, |answer| &mut answer.header),
        Call::Grant(request) => told(client.lease.lease_grant(request).await, |answer| &mut answer.header),
        Call::Revoke(request) => told(client.lease.lease_revoke(request).await, |answer| &mut answer.header),
        Call::KeepAlive(request) => {
            let answers = client.lease.lease_keep_alive(tokio_stream::iter([request])).await;
            let answer = match answers {
                Ok(answers) => answers.into_inner().message().await,
                Err(status) => Err(status),
            };
            told(answer.map(|answer| Response::new(answer.expect("there is one"))), |answer| &mut answer.header)
        }
        Call::TimeToLive(request) => {
            let answer = client.lease.lease_time_to_live(request).await.map(|mut answer| {
                let left = answer.get_mut();
                // Time goes by.
                assert!(left.ttl == -1 || (left.granted_ttl - 300..=left.granted_ttl).contains(&left.ttl), "{left:?}");
                left.ttl = left.ttl.min(0);
                left.keys.sort();
                answer
            });
            told(answer, |answer| &mut answer.header)
        }
        Call::Leases => {
            let answer = client.lease.lease_leases(pb::LeaseLeasesRequest {}).await.map(|mut answer| {
                answer.get_mut().leases.sort_by_key(|lease| lease.id);
                answer
            });
            told(answer, |answer| &mut answer.header)
        }
        Call::HashKv(request) => {
            let answer = client.maintenance.hash_kv(request).await.map(|mut answer| {
                // Not told before etcd 3.6.
                answer.get_mut().hash_revision = 0;
                answer
            });
            told(answer, |answer| &mut answer.header)
        }
    }
}

/// Watchers from revision `from` on, with all that they may ask for. The first five are told of the last key.
async fn watch(client: &mut Client, from: i64) -> Watching {
    let all = pb::WatchCreateRequest { key: vec![0], range_end: vec![0], start_revision: from, ..Default::default() };
    let first = vec![
        all.clone(),
        pb::WatchCreateRequest { prev_kv: true, fragment: true, ..all.clone() },
        pb::WatchCreateRequest { filters: vec![NO_PUT], watch_id: 77, ..all.clone() },
        pb::WatchCreateRequest { filters: vec![NO_DELETE], ..all.clone() },
        pb::WatchCreateRequest { key: b"ab".into(), range_end: b"z\0".into(), ..all.clone() },
        // Refused: the number is taken.
        pb::WatchCreateRequest { watch_id: 77, ..all.clone() },
    ];
    client.watching_with(first).await
}

const NO_PUT: i32 = 0;
const NO_DELETE: i32 = 1;

/// What a watcher was told: that it was made and that it was cancelled, with the oldest revision and the reason, and events.
type Seen = BTreeMap<i64, (Vec<(bool, bool, i64, String)>, Vec<Event>)>;

/// All that the watchers are told until each has heard of the last key.
async fn seen(watching: &mut Watching) -> Seen {
    let mut seen = Seen::new();
    let mut waiting = BTreeSet::from([0, 1, 2, 3, 77]);
    let mut cancelled = false;
    while !waiting.is_empty() || !cancelled {
        let response = watching.next().await;
        let (states, events) = seen.entry(response.watch_id).or_default();
        if response.created || response.canceled {
            cancelled |= response.canceled;
            let state = (response.created, response.canceled, response.compact_revision, response.cancel_reason);
            states.push(state);
        }
        // It is put, and then deleted, which one watcher is not told.
        let ends = |event: &Event| {
            event.kv.as_ref().is_some_and(|row| row.key == LAST) && (event.r#type == 1 || response.watch_id == 2)
        };
        if response.events.iter().any(ends) {
            waiting.remove(&response.watch_id);
        }
        events.extend(response.events);
    }
    seen
}

/// A member that begins with etcd's snapshot has what etcd has, at each revision.
async fn compare_with_import(directory: &tempfile::TempDir, etcd: &mut Client, compacted: i64) {
    let (file, place) = (directory.path().join("saved"), directory.path().join("imported"));
    crate::snapshots::save(etcd, &file).await;
    tantalum_server::restore(&file, &place, &options()).await.expect("it is a snapshot");
    let server = Server::start(&place, options()).await;
    let ours = &mut server.client().await;
    let all = |revision| pb::RangeRequest { key: vec![0], range_end: vec![0], revision, ..Default::default() };
    let last = crate::common::revision(&etcd.kv.range(all(0)).await.expect("it is read").into_inner().header);
    for revision in compacted.max(1)..=last {
        let call = || Call::Range(all(revision));
        assert_eq!(ask(etcd, call()).await, ask(ours, call()).await, "etcd first: revision {revision}");
    }
    let holds = |id| Call::TimeToLive(pb::LeaseTimeToLiveRequest { id, keys: true });
    for call in (1..5).map(holds).chain([Call::Leases, Call::Range(all(compacted - 1))]) {
        assert_eq!(ask(etcd, call.clone()).await, ask(ours, call.clone()).await, "etcd first: {call:?}");
    }
    if !has_no_key(ours, last).await {
        let call = || Call::HashKv(pb::HashKvRequest { revision: 0 });
        assert_eq!(ask(etcd, call()).await, ask(ours, call()).await, "etcd first: hash");
    }
    server.stop().await;
}

/// Takes turns in all ways that need no other caller. Returns what was told.
async fn take_turns(client: &mut Client) -> Vec<Told> {
    let mut all = Vec::new();
    for id in [0x2a, 0x2b] {
        client.lease.lease_grant(pb::LeaseGrantRequest { id, ttl: 600 }).await.expect("it is new");
    }
    for (name, lease) in [("door", 0x2a), ("door", 0x2a), ("gate", 0x2a), ("", 0x2b), ("door", 77)] {
        let answer = client.lock.lock(lock::LockRequest { name: name.into(), lease }).await;
        all.push(told(answer, |answer| &mut answer.header));
    }
    for key in ["door/2a", "door/2a", ""] {
        let answer = client.lock.unlock(lock::UnlockRequest { key: key.into() }).await;
        all.push(told(answer, |answer| &mut answer.header));
    }
    let mut leader = None;
    for (name, lease, value) in [("chair", 0x2a, "a"), ("chair", 0x2a, "a"), ("chair", 0x2a, "b"), ("chair", 77, "")] {
        let request = election::CampaignRequest { name: name.into(), lease, value: value.into() };
        let answer = client.election.campaign(request).await;
        if let Ok(answer) = &answer {
            leader.clone_from(&answer.get_ref().leader);
        }
        all.push(told(answer, |answer| &mut answer.header));
    }
    let other = leader.clone().map(|leader| election::LeaderKey { rev: 1, ..leader });
    let named = |name: &str| election::LeaderRequest { name: name.into() };
    let mut observed = client.election.observe(named("chair")).await.expect("it observes").into_inner();
    all.push(told(client.election.leader(named("chair")).await, |answer| &mut answer.header));
    for leader in [leader.clone(), other.clone(), None] {
        let answer = client.election.proclaim(election::ProclaimRequest { leader, value: b"c".into() }).await;
        all.push(told(answer, |answer| &mut answer.header));
    }
    for leader in [other, leader.clone(), leader, None] {
        let answer = client.election.resign(election::ResignRequest { leader }).await;
        all.push(told(answer, |answer| &mut answer.header));
    }
    all.push(told(client.election.leader(named("chair")).await, |answer| &mut answer.header));
    let values = [observed.message().await, observed.message().await].map(|seen| {
        let seen = seen.expect("the stream is whole").expect("it goes on");
        seen.kv.expect("there is a leader").value
    });
    assert_eq!(values, [b"b", b"c"]);
    all
}

async fn has_no_key(client: &mut Client, revision: i64) -> bool {
    let all = pb::RangeRequest { key: vec![0], range_end: vec![0], revision, count_only: true, ..Default::default() };
    client.kv.range(all).await.is_ok_and(|found| found.get_ref().count == 0)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn etcd_gives_the_same_answers() {
    let chosen = std::env::var("SEEDS").unwrap_or_else(|_| "0..4".to_owned());
    let (from, to) = chosen.split_once("..").expect("SEEDS is A..B");
    for seed in from.parse::<u64>().expect("a number")..to.parse().expect("a number") {
        let directory = tempfile::tempdir().expect("a directory");
        let Some(etcd) = Etcd::start(directory.path()).await else {
            eprintln!("skipped: there is no etcd");
            return;
        };
        let server = Server::start(&directory.path().join("member"), options()).await;
        let mut clients = [etcd.client().await, server.client().await];
        let mut random = Rng::with_seed(seed);
        // Behind the first revision, so that no compaction overtakes them.
        let mut early = [watch(&mut clients[0], 2).await, watch(&mut clients[1], 2).await];
        let (mut last, mut compacted, mut refusals) = (1, 0, 0);
        for number in 0..REQUESTS {
            let call = random::call(&mut random, last, compacted);
            if let Call::HashKv(request) = &call
                && compacted > 0
                && has_no_key(&mut clients[1], request.revision).await
            {
                // etcd takes what compaction left then, and whether it sees all that compaction did is a matter of time.
                continue;
            }
            let answers = [ask(&mut clients[0], call.clone()).await, ask(&mut clients[1], call.clone()).await];
            assert_eq!(answers[0], answers[1], "etcd first: request {number} of seed {seed}: {call:?}");
            match (&answers[0], call) {
                (Ok((_, revision)), Call::Compact(request)) => (last, compacted) = (*revision, request.revision),
                (Ok((_, revision)), _) => last = *revision,
                (Err(_), _) => refusals += 1,
            }
        }
        assert!(last > 50 && (5..REQUESTS / 2).contains(&refusals), "{last} revisions, {refusals} refusals");
        for client in &mut clients {
            client.kv.put(pb::PutRequest { key: LAST.into(), ..Default::default() }).await.expect("it is put");
            let delete = pb::DeleteRangeRequest { key: LAST.into(), ..Default::default() };
            client.kv.delete_range(delete).await.expect("it is deleted");
        }
        compare_with_import(&directory, &mut clients[0], compacted).await;
        let [of_etcd, ours] = &mut early;
        let [of_etcd, ours] = [seen(of_etcd).await, seen(ours).await];
        assert_eq!(of_etcd, ours, "what etcd's watchers saw first: seed {seed}");
        drop((clients, early));
        server.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn etcd_gives_the_same_turns() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(etcd) = Etcd::start(directory.path()).await else {
        eprintln!("skipped: there is no etcd");
        return;
    };
    let server = Server::start(&directory.path().join("member"), options()).await;
    let (of_etcd, ours) = (take_turns(&mut etcd.client().await).await, take_turns(&mut server.client().await).await);
    for (number, pair) in of_etcd.iter().zip(&ours).enumerate() {
        assert_eq!(pair.0, pair.1, "etcd first: call {number}");
    }
    assert_eq!(of_etcd.len(), ours.len());
    server.stop().await;
}
