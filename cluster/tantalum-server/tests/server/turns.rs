//! Locks and elections: callers that have a turn, wait for it, or are refused.

use std::time::Duration;

use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::api::v3electionpb as election;
use tantalum_server::api::v3lockpb as lock;
use tokio::time::sleep;
use tonic::Code;

use crate::common::{Client, Server, options, refused};

async fn grant(client: &mut Client, id: i64) {
    client.lease.lease_grant(pb::LeaseGrantRequest { id, ttl: 600 }).await.expect("it is new");
}

async fn keys(client: &mut Client, prefix: &str) -> Vec<String> {
    let end = format!("{}0", prefix.trim_end_matches('/'));
    let all = pb::RangeRequest { key: prefix.into(), range_end: end.into(), ..Default::default() };
    let found = client.kv.range(all).await.expect("they are read").into_inner().kvs;
    found.into_iter().map(|row| String::from_utf8(row.key).expect("text")).collect()
}

/// Waits until there are so many keys.
async fn until_keys(client: &mut Client, prefix: &str, count: usize) {
    while keys(client, prefix).await.len() != count {
        sleep(Duration::from_millis(5)).await;
    }
}

fn locking(client: &Client, lease: i64) -> tokio::task::JoinHandle<Result<lock::LockResponse, tonic::Status>> {
    let mut client = client.clone();
    tokio::spawn(async move {
        let request = lock::LockRequest { name: b"door".into(), lease };
        client.lock.lock(request).await.map(tonic::Response::into_inner)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_goes_to_the_next_that_still_waits() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    let mut client = server.client().await;
    for lease in [0xa1, 0xb2, 0xc3, 0xd4] {
        grant(&mut client, lease).await;
    }
    let first = locking(&client, 0xa1).await.expect("no panic").expect("nothing is before it");
    assert_eq!(first.key, b"door/a1");
    let again = locking(&client, 0xa1).await.expect("no panic").expect("it has the lock");
    assert_eq!(again.key, first.key);
    // They wait in this order; the first goes away, and the lease of the second ends.
    let gone = locking(&client, 0xb2);
    until_keys(&mut client, "door/", 2).await;
    let ended = locking(&client, 0xc3);
    until_keys(&mut client, "door/", 3).await;
    let last = locking(&client, 0xd4);
    until_keys(&mut client, "door/", 4).await;
    gone.abort();
    until_keys(&mut client, "door/", 3).await;
    client.lease.lease_revoke(pb::LeaseRevokeRequest { id: 0xc3 }).await.expect("it is there");
    assert_eq!(keys(&mut client, "door/").await, ["door/a1", "door/d4"]);
    assert!(!ended.is_finished() && !last.is_finished());
    client.lock.unlock(lock::UnlockRequest { key: first.key }).await.expect("it is given up");
    assert_eq!(last.await.expect("no panic").expect("it is its turn").key, b"door/d4");
    assert_eq!(refused(ended.await.expect("no panic")), (Code::Unknown, "mutex: session is expired".to_owned()));
    // Without a lease, the server makes one; the lock goes over when the lease before it ends.
    let own = locking(&client, 0);
    until_keys(&mut client, "door/", 2).await;
    client.lease.lease_revoke(pb::LeaseRevokeRequest { id: 0xd4 }).await.expect("it is there");
    let own = own.await.expect("no panic").expect("it is its turn").key;
    assert_eq!(keys(&mut client, "door/").await, [String::from_utf8(own).expect("text")]);
    // Waiting ends with the server.
    let waiting = locking(&client, 0xa1);
    until_keys(&mut client, "door/", 2).await;
    server.stop().await;
    assert!(waiting.await.expect("no panic").is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leaders_are_observed_in_turn_with_all_that_they_proclaim() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    let mut client = server.client().await;
    let named = || election::LeaderRequest { name: b"chair".into() };
    assert_eq!(refused(client.election.leader(named()).await), (Code::Unknown, "election: no leader".to_owned()));
    let mut observed = client.election.observe(named()).await.expect("it observes").into_inner();
    let mut campaigns = Vec::new();
    for lease in [1, 2, 3] {
        grant(&mut client, lease).await;
        let mut client_of = client.clone();
        campaigns.push(tokio::spawn(async move {
            let value = format!("{lease} leads").into_bytes();
            let request = election::CampaignRequest { name: b"chair".into(), lease, value };
            client_of.election.campaign(request).await.expect("it is elected").into_inner().leader
        }));
        until_keys(&mut client, "chair/", lease as usize).await;
    }
    let mut expected = Vec::new();
    let mut last = None;
    for (lease, campaign) in (1..).zip(campaigns) {
        let leader = campaign.await.expect("no panic");
        let key = leader.clone().expect("it has a key");
        assert_eq!((&key.key[..], key.lease), (format!("chair/{lease}").as_bytes(), lease));
        expected.push(format!("{lease} leads"));
        for value in ["more", "and more"] {
            let request = election::ProclaimRequest { leader: leader.clone(), value: value.into() };
            client.election.proclaim(request).await.expect("it leads");
            expected.push(value.to_owned());
        }
        let current = client.election.leader(named()).await.expect("one leads").into_inner().kv;
        let current = current.expect("it has a key");
        assert_eq!((current.key, current.value), (key.key, b"and more".to_vec()));
        while !expected.is_empty() {
            let seen = observed.message().await.expect("the stream is whole").expect("it goes on");
            assert_eq!(String::from_utf8(seen.kv.expect("one leads").value).expect("text"), expected.remove(0));
        }
        client.election.resign(election::ResignRequest { leader: leader.clone() }).await.expect("it is done");
        last = leader;
    }
    let request = election::ProclaimRequest { leader: last, value: b"still".into() };
    let not_leader = (Code::Unknown, "election: not leader".to_owned());
    assert_eq!(refused(client.election.proclaim(request).await), not_leader);
    let nothing = client.election.resign(election::ResignRequest { leader: None }).await;
    assert_eq!(refused(nothing), (Code::Unknown, "\"leader\" field must be provided".to_owned()));
    server.stop().await;
    assert!(!matches!(observed.message().await, Ok(Some(_))));
}
