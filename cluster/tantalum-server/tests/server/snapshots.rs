//! Snapshots, and members that begin with one.

use std::path::Path;
use std::process::Command;

use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::restore;

use crate::common::{Client, Server, options};

/// Saves a snapshot.
pub async fn save(client: &mut Client, file: &Path) {
    let mut blobs = client.maintenance.snapshot(pb::SnapshotRequest {}).await.expect("it sends").into_inner();
    let mut bytes = Vec::new();
    while let Some(next) = blobs.message().await.expect("the stream is whole") {
        bytes.extend(next.blob);
    }
    assert_eq!(bytes.len() % 512, 32);
    std::fs::write(file, bytes).expect("it is written");
}

async fn hash(client: &mut Client) -> (u32, i64) {
    let request = pb::HashKvRequest { revision: 0 };
    let found = client.maintenance.hash_kv(request).await.expect("it is hashed").into_inner();
    (found.hash, found.compact_revision)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_begins_with_the_store_of_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("saved");
    let server = Server::start(&directory.path().join("first"), options()).await;
    let mut client = server.client().await;
    client.lease.lease_grant(pb::LeaseGrantRequest { id: 7, ttl: 600 }).await.expect("it is new");
    for n in 0..200 {
        let lease = if n > 140 && n % 10 == 3 { 7 } else { 0 };
        let key = format!("k{}", n % 60).into_bytes();
        let put = pb::PutRequest { key, value: vec![n as u8; 3000], lease, ..Default::default() };
        client.kv.put(put).await.expect("it is put");
    }
    client.delete("k1", "k2").await;
    client.kv.compact(pb::CompactionRequest { revision: 100, physical: true }).await.expect("it is done");
    save(&mut client, &file).await;
    let (before, identity) = (hash(&mut client).await, server.node.identity());
    client.put("later", "").await;
    server.stop().await;

    let place = directory.path().join("second");
    let restored = restore(&file, &place, &options()).await.expect("it is restored");
    assert!(restored.member_id != identity.member_id && restored.cluster_id != identity.cluster_id);
    let server = Server::start(&place, options()).await;
    let mut client = server.client().await;
    assert_eq!((server.node.identity(), hash(&mut client).await), (restored, before));
    assert_eq!((client.get("later").await, client.get("k1").await), (None, None));
    let past = pb::RangeRequest { key: b"k1".to_vec(), revision: 183, ..Default::default() };
    assert_eq!(client.kv.range(past).await.expect("it is there").into_inner().count, 1);
    let held = pb::LeaseTimeToLiveRequest { id: 7, keys: true };
    let held = client.lease.lease_time_to_live(held).await.expect("it is there").into_inner();
    assert_eq!((held.granted_ttl, held.keys.len()), (600, 5));
    assert_eq!(client.put("next", "").await, 203);
    server.stop().await;
    // It is there again after a restart, and not restored over.
    let refused = restore(&file, &place, &options()).await.expect_err("it has a member");
    assert!(refused.to_string().contains("has a member already"), "{refused}");
    let server = Server::start(&place, options()).await;
    assert_eq!(server.client().await.get("next").await, Some(Vec::new()));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_whole_snapshot_makes_no_member() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("saved");
    let server = Server::start(&directory.path().join("first"), options()).await;
    let mut client = server.client().await;
    client.put("a", vec![1; 2000]).await;
    save(&mut client, &file).await;
    server.stop().await;
    let whole = std::fs::read(&file).expect("it is there");
    let place = directory.path().join("second");
    let changed = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 1;
        bytes
    };
    for (bytes, expected) in [
        (Vec::new(), "is not a snapshot, or was cut off"),
        (vec![7; 512 + 32], "is damaged"),
        (whole[..whole.len() - 1].to_vec(), "was cut off"),
        (whole[..whole.len() - 512].to_vec(), "is damaged"),
        (changed(0), "is damaged"),
        (changed(700), "is damaged"),
        (changed(whole.len() - 1), "is damaged"),
    ] {
        std::fs::write(&file, bytes).expect("it is written");
        let refused = restore(&file, &place, &options()).await.expect_err("it is refused").to_string();
        assert!(refused.contains(expected) && refused.contains("saved"), "{refused}");
        assert!(!place.exists());
    }
    let missing = restore(directory.path().join("nothing"), &place, &options()).await.expect_err("there is none");
    assert!(missing.to_string().contains("cannot open the snapshot"), "{missing}");
    std::fs::write(&file, &whole).expect("it is written");
    std::fs::create_dir(&place).expect("it is made");
    std::fs::write(place.join("mine"), "").expect("it is written");
    let taken = restore(&file, &place, &options()).await.expect_err("it has a file").to_string();
    assert!(taken.contains("it has mine and no member.toml"), "{taken}");
    // By the program, and after an attempt that did not come to its end.
    std::fs::create_dir_all(directory.path().join("third.unfinished/state")).expect("it is made");
    let run = |place: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tantalum-server"));
        command.arg("restore").arg(&file).arg(place).output().expect("it runs")
    };
    let third = directory.path().join("third");
    let done = run(&third);
    assert!(done.status.success() && String::from_utf8_lossy(&done.stdout).contains("restored"), "{done:?}");
    let again = run(&third);
    assert!(!again.status.success() && String::from_utf8_lossy(&again.stderr).contains("has a member already"));
    assert!(!directory.path().join("third.unfinished").exists());
}

/// Of etcd 3.4, after 60 puts of ten keys, some with lease 7, a deletion, and compaction at revision 30.
const OF_ETCD: &[u8] = include_bytes!("etcd-3.4.snapshot");

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_begins_with_a_snapshot_of_etcds() {
    let directory = tempfile::tempdir().expect("a directory");
    let (file, place) = (directory.path().join("saved"), directory.path().join("member"));
    std::fs::write(&file, &OF_ETCD[..OF_ETCD.len() - 1]).expect("it is written");
    let refused = restore(&file, &place, &options()).await.expect_err("it is cut off");
    assert!(refused.to_string().contains("was cut off"), "{refused}");
    let mut changed = OF_ETCD.to_vec();
    changed[9000] ^= 1;
    std::fs::write(&file, &changed).expect("it is written");
    let refused = restore(&file, &place, &options()).await.expect_err("it is changed");
    assert!(refused.to_string().contains("its checksum is another") && !place.exists(), "{refused}");
    std::fs::write(&file, OF_ETCD).expect("it is written");
    restore(&file, &place, &options()).await.expect("it is whole");
    let server = Server::start(&place, options()).await;
    let mut client = server.client().await;
    // What etcd said.
    assert_eq!(hash(&mut client).await, (213_663_796, 30));
    assert_eq!((client.get("key 9").await, client.get("key 3").await), (Some(b"value 59".to_vec()), None));
    let past = |revision| pb::RangeRequest { key: b"key 3".to_vec(), revision, ..Default::default() };
    let found = client.kv.range(past(40)).await.expect("it is kept").into_inner();
    assert_eq!((&found.kvs[0].value[..], found.kvs[0].version), (&b"value 33"[..], 4));
    assert!(client.kv.range(past(29)).await.is_err());
    let held = pb::LeaseTimeToLiveRequest { id: 7, keys: true };
    let held = client.lease.lease_time_to_live(held).await.expect("it is there").into_inner();
    assert_eq!((held.granted_ttl, held.keys), (7200, vec![b"key 5".to_vec()]));
    assert_eq!(client.put("next", "").await, 63);
    server.stop().await;
}
