//! Requests to any member, while members fail and come back.

use tantalum_server::api::etcdserverpb as pb;
use tokio_stream::StreamExt;
use tonic::Code;

use crate::common::{Cluster, until};

/// The names of the members, the leader first.
async fn leader_first(cluster: &Cluster) -> Vec<String> {
    let leader = cluster.leader().await;
    let others = cluster.running.keys().filter(|name| **name != leader).cloned();
    [leader.clone()].into_iter().chain(others).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn each_member_serves_every_request() {
    let cluster = Cluster::start(&["a", "b", "c"]).await;
    let mut revisions = Vec::new();
    for (number, name) in ["a", "b", "c"].into_iter().enumerate() {
        let mut client = cluster.client(name).await;
        let header = client.put("key", format!("put through {name}")).await;
        assert_eq!(header.member_id, cluster.running[name].id());
        revisions.push((header.cluster_id, header.revision));
        assert_eq!(header.revision, number as i64 + 2);
        // What a member has acknowledged, it has.
        assert_eq!(client.get_here("key").await, Some(format!("put through {name}").into_bytes()));
        for other in ["a", "b", "c"] {
            let found = cluster.client(other).await.get("key").await;
            assert_eq!(found, Some(format!("put through {name}").into_bytes()), "by {other}");
        }
    }
    assert!(revisions.iter().all(|(cluster, _)| *cluster == revisions[0].0));
    // Larger than an entry: the leader cuts it.
    let value = |name: &str| name.repeat(600_000).into_bytes();
    let mut writing = Vec::new();
    for name in ["a", "b", "c", "a", "b", "c"] {
        let mut client = cluster.client(name).await;
        let value = value(name);
        writing.push(tokio::spawn(async move { client.put(name, value).await }));
    }
    for put in writing {
        put.await.expect("no panic");
    }
    for name in ["a", "b", "c"] {
        assert_eq!(cluster.client("b").await.get(name).await, Some(value(name)));
    }
    let mut client = cluster.client("a").await;
    let mut hashes = Vec::new();
    let revision = client.put("last", "1").await.revision;
    for name in ["a", "b", "c"] {
        let mut client = cluster.client(name).await;
        client.get("last").await;
        let request = pb::HashKvRequest { revision };
        hashes.push(client.maintenance.hash_kv(request).await.expect("it is computed").into_inner().hash);
        let status = client.status().await;
        assert!(status.leader != 0 && !status.is_learner && status.raft_term > 0, "{status:?}");
    }
    assert!(hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    let members = client.members().await;
    assert_eq!(members.len(), 3);
    for member in &members {
        assert_eq!(member.peer_ur_ls, cluster.config.members[&member.name]);
        assert!(!member.is_learner);
    }
    until("all have said where clients reach them", || async {
        let members = cluster.client("a").await.members().await;
        members.iter().all(|member| member.client_ur_ls == ["http://here:2379"])
    })
    .await;
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn leases_and_watches_work_through_followers_and_outlive_the_leader() {
    let mut cluster = Cluster::start(&["a", "b", "c"]).await;
    let [leader, follower, other] = <[String; 3]>::try_from(leader_first(&cluster).await).expect("three");
    let mut client = cluster.client(&follower).await;
    let grant = |id, ttl| pb::LeaseGrantRequest { id, ttl };
    client.lease.lease_grant(grant(1, 600)).await.expect("it is new");
    client.lease.lease_grant(grant(2, 2)).await.expect("it is new");
    for (key, lease) in [("kept", 1), ("lost", 2)] {
        let put = pb::PutRequest { key: key.into(), value: key.into(), lease, ..Default::default() };
        client.kv.put(put).await.expect("it is put");
    }
    let mut watching = cluster.client(&other).await.watch("kept", 1).await;
    assert_eq!(watching.values(1).await, ["kept"]);
    let request = pb::LeaseTimeToLiveRequest { id: 1, keys: true };
    let left = client.lease.lease_time_to_live(request).await.expect("it is there").into_inner();
    assert!(left.ttl > 500 && left.granted_ttl == 600 && left.keys == [b"kept"], "{left:?}");
    let listed = client.lease.lease_leases(pb::LeaseLeasesRequest {}).await.expect("it is told").into_inner();
    assert!(listed.leases.iter().any(|lease| lease.id == 1));
    let renewals = tokio_stream::iter([1, 77].map(|id| pb::LeaseKeepAliveRequest { id }));
    let renewed = client.lease.lease_keep_alive(renewals).await.expect("it is renewed").into_inner();
    let ttls: Vec<_> = renewed.map(|renewed| renewed.expect("it is answered").ttl).collect().await;
    assert_eq!(ttls, [600, 0]);

    cluster.crash(&leader).await;
    let put = pb::PutRequest { key: b"kept".to_vec(), value: b"later".to_vec(), lease: 1, ..Default::default() };
    client.kv.put(put).await.expect("it is put");
    assert_eq!(watching.values(1).await, ["later"]);
    until("the lease that is not renewed ends", || {
        let mut client = client.clone();
        async move { client.get("lost").await.is_none() }
    })
    .await;
    let left = client.lease.lease_time_to_live(request).await.expect("it is there").into_inner();
    assert!(left.ttl > 500, "{left:?}");
    cluster.run(&leader).await;
    until("the member that was away has all", || {
        let client = cluster.client(&leader);
        async move { client.await.get_here("kept").await == Some(b"later".to_vec()) }
    })
    .await;
    let request = pb::LeaseRevokeRequest { id: 1 };
    cluster.client(&leader).await.lease.lease_revoke(request).await.expect("it is there");
    assert_eq!(client.get("kept").await, None);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_member_that_missed_more_than_the_log_keeps_gets_a_snapshot() {
    let mut cluster = Cluster::start(&["a", "b", "c"]).await;
    let [leader, away, other] = <[String; 3]>::try_from(leader_first(&cluster).await).expect("three");
    let mut client = cluster.client(&leader).await;
    client.lease.lease_grant(pb::LeaseGrantRequest { id: 1, ttl: 600 }).await.expect("it is new");
    client.put("first", "1").await;
    cluster.client(&away).await.get("first").await;
    cluster.crash(&away).await;
    client.lease.lease_grant(pb::LeaseGrantRequest { id: 2, ttl: 600 }).await.expect("it is new");
    client.lease.lease_revoke(pb::LeaseRevokeRequest { id: 1 }).await.expect("it is there");
    // Several times what the log may keep.
    for n in 0..200 {
        client.put(&format!("key {n}"), vec![n as u8; 20_000]).await;
    }
    let revision = client.put("last", "1").await.revision;
    client.kv.compact(pb::CompactionRequest { revision: revision - 1, physical: true }).await.expect("it is done");
    cluster.run(&away).await;
    let mut late = cluster.client(&away).await;
    assert_eq!(late.get("last").await, Some(b"1".to_vec()));
    assert_eq!(late.get_here("key 199").await, Some(vec![199; 20_000]));
    // Its part in a majority.
    cluster.crash(&other).await;
    late.put("after", "2").await;
    assert_eq!(client.get("after").await, Some(b"2".to_vec()));
    // As the leader, it has the leases of the snapshot.
    cluster
        .client(&leader)
        .await
        .maintenance
        .move_leader(pb::MoveLeaderRequest { target_id: cluster.running[&away].id() })
        .await
        .expect("it leads");
    let left = late.lease.lease_time_to_live(pb::LeaseTimeToLiveRequest { id: 2, keys: false }).await;
    assert_eq!(left.expect("it is told").into_inner().granted_ttl, 600);
    let left = late.lease.lease_time_to_live(pb::LeaseTimeToLiveRequest { id: 1, keys: false }).await;
    assert_eq!(left.expect("it is told").into_inner().ttl, -1);
    let mut hashes = Vec::new();
    for name in [&leader, &away] {
        let mut client = cluster.client(name).await;
        client.get("after").await;
        hashes
            .push(client.maintenance.hash_kv(pb::HashKvRequest { revision: 0 }).await.expect("computed").into_inner());
    }
    assert_eq!(hashes[0].hash, hashes[1].hash, "{hashes:?}");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn without_a_majority_requests_end_with_etcds_errors() {
    let mut cluster = Cluster::start(&["a", "b", "c"]).await;
    let [leader, second, third] = <[String; 3]>::try_from(leader_first(&cluster).await).expect("three");
    cluster.client(&leader).await.put("key", "1").await;
    let mut client = cluster.client(&third).await;
    assert_eq!(client.get("key").await, Some(b"1".to_vec()));
    cluster.crash(&leader).await;
    cluster.crash(&second).await;
    let put = pb::PutRequest { key: b"key".to_vec(), value: b"2".to_vec(), ..Default::default() };
    let read = pb::RangeRequest { key: b"key".to_vec(), ..Default::default() };
    let mut other = client.clone();
    let (put, read) = tokio::join!(client.kv.put(put), other.kv.range(read));
    for (code, message) in [crate::common::refused(put), crate::common::refused(read)] {
        assert_eq!(code, Code::Unavailable);
        assert!(
            message == "etcdserver: no leader" || message.starts_with("etcdserver: request timed out"),
            "{message}"
        );
    }
    assert_eq!(client.get_here("key").await, Some(b"1".to_vec()), "what the member has, it serves");
    cluster.run(&second).await;
    until("two of three go on", || {
        let mut client = client.clone();
        let put = pb::PutRequest { key: b"key".to_vec(), value: b"3".to_vec(), ..Default::default() };
        async move { client.kv.put(put).await.is_ok() }
    })
    .await;
    assert_eq!(cluster.client(&second).await.get("key").await, Some(b"3".to_vec()));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn watchers_of_a_member_that_gets_a_snapshot_miss_nothing_unawares() {
    let mut cluster = Cluster::start(&["a", "b", "c"]).await;
    let [leader, away, other] = <[String; 3]>::try_from(leader_first(&cluster).await).expect("three");
    let mut client = cluster.client(&leader).await;
    let mut of_away = cluster.client(&away).await;
    let mut watching = of_away.watch("key", 0).await;
    let mut values = Vec::new();
    for is_compacted in [false, true] {
        let value = format!("before, {is_compacted}");
        client.put("key", value.clone()).await;
        assert_eq!(watching.values(1).await, [value]);
        cluster.running.get_mut(&away).expect("it runs").cut_off().await;
        values.clear();
        for n in 0..200 {
            values.push(format!("{n:020000}"));
            client.put("key", values[n].clone()).await;
        }
        if is_compacted {
            let revision = client.put("other", "1").await.revision;
            client.kv.compact(pb::CompactionRequest { revision, physical: true }).await.expect("it is done");
        }
        cluster.running.get_mut(&away).expect("it runs").reach_again().await;
        if !is_compacted {
            assert_eq!(watching.values(200).await, values);
        }
    }
    // They are told what is given up, as the clients of etcd are.
    let ended = watching.next().await;
    assert!(ended.canceled && ended.compact_revision > 0, "{ended:?}");
    let mut watching = of_away.watch("key", ended.compact_revision).await;
    cluster.client(&other).await.put("key", "after").await;
    assert_eq!(watching.values(1).await, ["after"]);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_require_a_leader_are_told_when_there_is_none() {
    let mut cluster = Cluster::start(&["a", "b", "c"]).await;
    let [_, follower, _] = <[String; 3]>::try_from(leader_first(&cluster).await).expect("three");
    let mut client = cluster.client(&follower).await;
    client.put("key", "1").await;
    let requiring = |request: pb::RangeRequest| {
        let mut request = tonic::Request::new(request);
        request.metadata_mut().insert("hasleader", "true".parse().expect("text"));
        request
    };
    let here = || pb::RangeRequest { key: b"key".to_vec(), serializable: true, ..Default::default() };
    client.kv.range(requiring(here())).await.expect("there is a leader");
    let mut watching = client.watch_requiring_leader("key").await;
    cluster.running.get_mut(&follower).expect("it runs").cut_off().await;
    let no_leader = (Code::Unavailable, "etcdserver: no leader".to_owned());
    assert_eq!(crate::common::refused(watching.end().await), no_leader);
    assert_eq!(crate::common::refused(client.kv.range(requiring(here())).await), no_leader);
    assert_eq!(client.get_here("key").await, Some(b"1".to_vec()), "others are served");
    cluster.running.get_mut(&follower).expect("it runs").reach_again().await;
    until("there is a leader again", || {
        let mut client = client.clone();
        let request = requiring(here());
        async move { client.kv.range(request).await.is_ok() }
    })
    .await;
    cluster.stop().await;
}
