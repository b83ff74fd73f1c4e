//! The API as a client sees it: KV, leases, maintenance, members, and what is refused how.

use crate::common::{Client, Server, options, refused, revision};
use tantalum_server::NodeOptions;
use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::api::etcdserverpb::request_op::Request;
use tantalum_server::api::etcdserverpb::response_op::Response;
use tonic::Code;

fn put(key: &str) -> pb::PutRequest {
    pb::PutRequest { key: key.into(), ..Default::default() }
}

fn key(key: &str) -> pb::RangeRequest {
    pb::RangeRequest { key: key.into(), ..Default::default() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_written_read_compacted_and_still_there_after_a_restart() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("member");
    let server = Server::start(&path, options()).await;
    let mut client = server.client().await;
    assert_eq!((client.put("a", "1").await, client.put("a", "2").await, client.put("b", "3").await), (2, 3, 4));
    let past = pb::RangeRequest { revision: 2, ..key("a") };
    assert_eq!(client.kv.range(past.clone()).await.expect("it is there").into_inner().kvs[0].value, b"1");
    let serializable = pb::RangeRequest { serializable: true, range_end: b"z".to_vec(), ..key("a") };
    assert_eq!(client.kv.range(serializable).await.expect("it is there").into_inner().count, 2);
    let replaced = pb::PutRequest { prev_kv: true, value: b"4".to_vec(), ..put("a") };
    let response = client.kv.put(replaced).await.expect("it is put").into_inner();
    assert_eq!(response.prev_kv.expect("it was there").value, b"2");

    // A transaction with one inside: if a has version 3, write c and read it again.
    let compare = pb::Compare {
        key: b"a".to_vec(),
        target: pb::compare::CompareTarget::Version as i32,
        target_union: Some(pb::compare::TargetUnion::Version(3)),
        ..Default::default()
    };
    let operation = |request| pb::RequestOp { request: Some(request) };
    let inner = pb::TxnRequest { failure: vec![operation(Request::RequestRange(key("b")))], ..Default::default() };
    let inner = pb::TxnRequest { compare: vec![pb::Compare { key: b"z".to_vec(), ..compare.clone() }], ..inner };
    let txn = pb::TxnRequest {
        compare: vec![compare],
        success: vec![
            operation(Request::RequestPut(put("c"))),
            operation(Request::RequestRange(key("c"))),
            operation(Request::RequestTxn(inner)),
        ],
        failure: vec![],
    };
    let done = client.kv.txn(txn).await.expect("it is done").into_inner();
    assert!(done.succeeded);
    assert_eq!(revision(&done.header), 6);
    let responses: Vec<_> = done.responses.into_iter().map(|response| response.response.expect("it says")).collect();
    let [Response::ResponsePut(_), Response::ResponseRange(read), Response::ResponseTxn(inner)] = &responses[..] else {
        panic!("{responses:?}");
    };
    assert_eq!((read.kvs[0].mod_revision, inner.succeeded), (6, false));

    let compact = pb::CompactionRequest { revision: 5, physical: true };
    client.kv.compact(compact).await.expect("it is done");
    assert_eq!(refused(client.kv.compact(compact).await).0, Code::OutOfRange);
    assert_eq!(
        refused(client.kv.range(past.clone()).await),
        (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted".to_owned())
    );
    let defragmented = client.maintenance.defragment(pb::DefragmentRequest {}).await.expect("it is done").into_inner();
    assert_eq!(defragmented, pb::DefragmentResponse::default(), "it has no header in etcd");
    let hash_of = |client: &mut Client| {
        let mut maintenance = client.maintenance.clone();
        async move { maintenance.hash_kv(pb::HashKvRequest { revision: 0 }).await.expect("it is hashed").into_inner() }
    };
    let hash = hash_of(&mut client).await;
    assert_eq!((hash.compact_revision, hash.hash_revision), (5, 6));
    let identity = server.node.identity();
    server.stop().await;

    let server = Server::start(&path, options()).await;
    let mut client = server.client().await;
    assert_eq!(server.node.identity(), identity);
    let again = hash_of(&mut client).await;
    assert_eq!((again.hash, again.compact_revision, again.hash_revision), (hash.hash, 5, 6));
    assert_eq!(refused(client.kv.range(past).await).0, Code::OutOfRange);
    assert_eq!((client.get("a").await, client.put("d", "").await), (Some(b"4".to_vec()), 7));
    assert_eq!((client.delete("a", "c").await, client.delete("a", "c").await), (2, 0));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_is_refused_with_etcds_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    let mut client = server.client().await;
    client.put("a", "1").await;
    let invalid = |message: &str| (Code::InvalidArgument, format!("etcdserver: {message}"));
    assert_eq!(refused(client.kv.range(key("")).await), invalid("key is not provided"));
    assert_eq!(refused(client.kv.put(put("")).await), invalid("key is not provided"));
    let sorted = pb::RangeRequest { sort_target: 9, ..key("a") };
    assert_eq!(refused(client.kv.range(sorted).await), invalid("invalid sort option"));
    let both = pb::PutRequest { ignore_value: true, value: b"1".to_vec(), ..put("a") };
    assert_eq!(refused(client.kv.put(both).await), invalid("value is provided"));
    let both = pb::PutRequest { ignore_lease: true, lease: 1, ..put("a") };
    assert_eq!(refused(client.kv.put(both).await), invalid("lease is provided"));
    assert_eq!(
        refused(client.kv.put(pb::PutRequest { ignore_value: true, ..put("b") }).await),
        invalid("key not found")
    );
    let none = (Code::NotFound, "etcdserver: requested lease not found".to_owned());
    assert_eq!(refused(client.kv.put(pb::PutRequest { lease: 5, ..put("a") }).await), none);
    assert_eq!(refused(client.lease.lease_revoke(pb::LeaseRevokeRequest { id: 5 }).await), none);
    let operation = pb::RequestOp { request: Some(Request::RequestPut(put("k"))) };
    let twice = pb::TxnRequest { success: vec![operation.clone(); 2], ..Default::default() };
    assert_eq!(refused(client.kv.txn(twice).await), invalid("duplicate key given in txn request"));
    let many = pb::TxnRequest { success: vec![operation; 129], ..Default::default() };
    assert_eq!(refused(client.kv.txn(many).await), invalid("too many operations in txn request"));
    let future = pb::RangeRequest { revision: 3, ..key("a") };
    let message = "etcdserver: mvcc: required revision is a future revision".to_owned();
    assert_eq!(refused(client.kv.range(future).await), (Code::OutOfRange, message.clone()));
    let compact = pb::CompactionRequest { revision: 3, physical: false };
    assert_eq!(refused(client.kv.compact(compact).await), (Code::OutOfRange, message));
    let long = pb::PutRequest { key: vec![b'k'; 3000], ..Default::default() };
    assert_eq!(refused(client.kv.put(long.clone()).await), invalid("request is too large"));
    let found = client.kv.range(pb::RangeRequest { key: long.key.clone(), ..Default::default() }).await;
    assert_eq!(found.expect("no such key").into_inner().count, 0);
    let deleted = client.kv.delete_range(pb::DeleteRangeRequest { key: long.key, ..Default::default() }).await;
    assert_eq!(deleted.expect("no such key").into_inner().deleted, 0);
    let granted = pb::LeaseGrantRequest { ttl: 9_000_000_001, id: 0 };
    assert_eq!(
        refused(client.lease.lease_grant(granted).await),
        (Code::OutOfRange, "etcdserver: too large lease TTL".to_owned())
    );

    // Nothing was changed.
    assert_eq!((client.get("a").await, client.put("a", "2").await), (Some(b"1".to_vec()), 3));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn large_requests_are_taken_up_to_the_limit_and_the_log_goes_round() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    let client = server.client().await;
    // Entries of raft's log have 32 KiB at most here, and 680 KiB of them fit.
    let writers = (0..4u8).map(|writer| {
        let mut client = client.clone();
        tokio::spawn(async move {
            for round in 0..12u8 {
                client.put(&format!("large {writer}"), vec![writer ^ round; 400_000]).await;
                client.put(&format!("small {writer}"), vec![round; 20_000]).await;
            }
        })
    });
    for writer in writers.collect::<Vec<_>>() {
        writer.await.expect("no panic");
    }
    let mut client = server.client().await;
    for writer in 0..4u8 {
        assert_eq!(client.get(&format!("large {writer}")).await, Some(vec![writer ^ 11; 400_000]));
        assert_eq!(client.get(&format!("small {writer}")).await, Some(vec![11; 20_000]));
    }
    let of = |bytes: usize| pb::PutRequest { value: vec![7; bytes], ..put("limit") };
    // Key and lengths take 11 bytes.
    client.kv.put(of((3 << 19) - 11)).await.expect("it is the largest");
    let larger = client.kv.put(of((3 << 19) - 10)).await;
    assert_eq!(refused(larger), (Code::InvalidArgument, "etcdserver: request is too large".to_owned()));
    assert_eq!(client.get("limit").await.map(|value| value.len()), Some((3 << 19) - 11));
    server.stop().await;
    let server = Server::start(directory.path(), options()).await;
    let mut client = server.client().await;
    assert_eq!(client.get("large 3").await, Some(vec![3 ^ 11; 400_000]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_hold_keys_until_they_are_revoked_or_expire() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    let mut client = server.client().await;
    let granted = client.lease.lease_grant(pb::LeaseGrantRequest { ttl: 600, id: 7 }).await.expect("it is new");
    assert_eq!((granted.get_ref().id, granted.get_ref().ttl), (7, 600));
    let again = client.lease.lease_grant(pb::LeaseGrantRequest { ttl: 600, id: 7 }).await;
    assert_eq!(refused(again), (Code::FailedPrecondition, "etcdserver: lease already exists".to_owned()));
    // The shortest is longer than an election, here of 0.75 s.
    let short =
        client.lease.lease_grant(pb::LeaseGrantRequest { ttl: 0, id: 0 }).await.expect("it is new").into_inner();
    assert!(short.id > 0 && short.ttl == 1, "{short:?}");
    for (key, lease) in [("a", 7), ("b", 7), ("c", short.id)] {
        client.kv.put(pb::PutRequest { lease, ..put(key) }).await.expect("the lease is there");
    }
    let asked = pb::LeaseTimeToLiveRequest { id: 7, keys: true };
    let left = client.lease.lease_time_to_live(asked).await.expect("it is there").into_inner();
    assert!((500..=600).contains(&left.ttl) && left.granted_ttl == 600);
    assert_eq!(left.keys, [b"a".to_vec(), b"b".to_vec()]);
    let mut watching = client.watching().await;
    let watched = pb::WatchCreateRequest { key: b"c".to_vec(), start_revision: 1, ..Default::default() };
    watching.create(pb::WatchCreateRequest { filters: vec![0], ..watched }).await;
    assert!(watching.next().await.created);
    let expired = watching.next().await.events.pop().expect("the key is deleted");
    assert_eq!((expired.r#type, client.get("c").await), (1, None));
    let gone = client.lease.lease_time_to_live(pb::LeaseTimeToLiveRequest { id: short.id, keys: true }).await;
    assert_eq!(gone.expect("that is no error").into_inner().ttl, -1);
    let mut kept = client
        .lease
        .lease_keep_alive(tokio_stream::iter([7, short.id].map(|id| pb::LeaseKeepAliveRequest { id })))
        .await
        .expect("it is taken")
        .into_inner();
    for (id, ttl) in [(7, 600), (short.id, 0)] {
        let answer = kept.message().await.expect("the stream is whole").expect("there is an answer");
        assert_eq!((answer.id, answer.ttl), (id, ttl));
    }
    let listed = client.lease.lease_leases(pb::LeaseLeasesRequest {}).await.expect("it is listed").into_inner();
    assert_eq!(listed.leases, [pb::LeaseStatus { id: 7 }]);
    server.stop().await;

    let server = Server::start(directory.path(), options()).await;
    let mut client = server.client().await;
    client.lease.lease_revoke(pb::LeaseRevokeRequest { id: 7 }).await.expect("it is still there");
    assert_eq!((client.get("a").await, client.get("b").await), (None, None));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_status_alarms_and_auth_are_answered() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = NodeOptions { name: "one".to_owned(), ..options() };
    let server = Server::start(directory.path(), options).await;
    let mut client = server.client().await;
    let id = server.node.identity().member_id;
    let listed = client.cluster.member_list(pb::MemberListRequest { linearizable: true }).await.expect("it is listed");
    let listed = listed.into_inner();
    assert_eq!((listed.members[0].id, &listed.members[0].name[..]), (id, "one"));
    assert_eq!(listed.members[0].client_ur_ls, ["http://here:2379"]);
    let header = listed.header.expect("it has one");
    assert_eq!((header.cluster_id, header.member_id), (server.node.identity().cluster_id, id));
    let alarm = pb::AlarmRequest { action: 1, member_id: id, alarm: 1 };
    client.maintenance.alarm(alarm).await.expect("it is set");
    let status = client.maintenance.status(pb::StatusRequest {}).await.expect("it is told").into_inner();
    assert_eq!(status.leader, id);
    assert!(status.db_size > 0 && status.raft_index >= status.raft_applied_index && status.raft_term > 0);
    assert_eq!(status.errors, [format!("memberID:{id} alarm:NOSPACE ")]);
    assert_eq!(
        refused(client.kv.put(put("a")).await),
        (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded".to_owned())
    );
    client.maintenance.alarm(pb::AlarmRequest { action: 2, ..alarm }).await.expect("it is reset");
    assert_eq!(client.put("a", "").await, 2);
    let hash = client.maintenance.hash(pb::HashRequest {}).await.expect("it is hashed").into_inner();
    client.put("b", "").await;
    assert_ne!(client.maintenance.hash(pb::HashRequest {}).await.expect("it is hashed").into_inner().hash, hash.hash);

    // Auth is refused as a whole, so any message does.
    let mut auth = tonic::client::Grpc::new(client.channel.clone());
    for (path, message) in [
        ("/etcdserverpb.Auth/UserAdd", "etcdserver: not capable"),
        ("/etcdserverpb.Auth/Authenticate", "etcdserver: authentication is not enabled"),
    ] {
        auth.ready().await.expect("it serves");
        let codec = tonic_prost::ProstCodec::<pb::HashRequest, pb::HashResponse>::default();
        let answer = auth.unary(tonic::Request::new(pb::HashRequest {}), path.parse().expect("a path"), codec).await;
        assert_eq!(refused(answer), (Code::FailedPrecondition, message.to_owned()));
    }
    server.stop().await;
}
