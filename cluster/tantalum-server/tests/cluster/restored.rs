//! Members that begin with a snapshot: the only one of a cluster, which others join, and all members of one.

use std::path::Path;
use std::sync::Arc;

use tantalum::Db;
use tantalum_device::{Device, FileDevice};
use tantalum_raft::{RaftLog, RaftLogOptions};
use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::{Bootstrap, Identity, NodeOptions, restore};

use crate::common::{Client, Cluster, Running, free_port, options, until};
use crate::members::{until_voters, url};

impl Client {
    /// Saves a snapshot of what the member has.
    async fn save(&mut self, file: &Path) {
        let mut blobs = self.maintenance.snapshot(pb::SnapshotRequest {}).await.expect("it sends").into_inner();
        let mut bytes = Vec::new();
        while let Some(next) = blobs.message().await.expect("the stream is whole") {
            bytes.extend(next.blob);
        }
        std::fs::write(file, bytes).expect("it is written");
    }

    async fn hash(&mut self) -> u32 {
        let request = pb::HashKvRequest { revision: 0 };
        self.maintenance.hash_kv(request).await.expect("it is hashed").into_inner().hash
    }
}

/// Saves a snapshot of a store with ten keys, and of one with another besides.
async fn save_two(directory: &Path) -> [std::path::PathBuf; 2] {
    let files = ["ten keys", "eleven keys"].map(|name| directory.join(name));
    let saved = Running::start(directory.join("saved"), free_port(), options()).await.expect("it starts");
    let mut client = saved.client().await;
    for n in 0..10 {
        client.put(&format!("key {n}"), vec![n; 100]).await;
    }
    client.save(&files[0]).await;
    client.put("another", "1").await;
    client.save(&files[1]).await;
    saved.crash().await;
    files
}

/// Makes of a restored directory what versions made that had raft's log begin with the first entry.
fn as_of_earlier_versions(directory: &Path) {
    let db = Db::open(directory.join("state")).expect("it opens");
    db.delete_range(&db.table("tantalum-raft").expect("it is there"), ..).expect("it is deleted");
    db.close().expect("it closes");
    let log = directory.join("raft-log");
    std::fs::remove_file(&log).expect("it is there");
    let device: Arc<dyn Device> =
        Arc::new(FileDevice::create(&log, options().raft_log_bytes, None).expect("it is made"));
    RaftLog::create(vec![device], &RaftLogOptions::default()).expect("it is made");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn members_that_join_a_restored_one_have_its_store() {
    for is_of_earlier_version in [false, true] {
        let mut cluster = Cluster::start(&[]).await;
        let [file, _] = save_two(cluster.directory.path()).await;
        let port = free_port();
        cluster.config.members.insert("first".to_owned(), vec![url(port)]);
        cluster.ports.insert("first".to_owned(), port);
        let alone = NodeOptions { name: "first".to_owned(), peer_urls: vec![url(port)], ..options() };
        restore(&file, cluster.path("first"), &alone).await.expect("it is restored");
        if is_of_earlier_version {
            as_of_earlier_versions(&cluster.path("first"));
        }
        let first = Running::start(cluster.path("first"), port, alone).await.expect("it starts");
        cluster.running.insert("first".to_owned(), first);
        let mut client = cluster.client("first").await;
        client.put("later", "1").await;
        for (count, name) in [(2, "second"), (3, "third")] {
            let port = free_port();
            let add = pb::MemberAddRequest { peer_ur_ls: vec![url(port)], is_learner: false };
            client.cluster.member_add(add).await.expect("it is new");
            cluster.join(name, port).await;
            until_voters(&client, count).await;
            until("it has what was written since", || {
                let joined = cluster.client(name);
                async move { joined.await.get_here("later").await.is_some() }
            })
            .await;
            let mut joined = cluster.client(name).await;
            assert_eq!(joined.get_here("key 7").await, Some(vec![7; 100]), "{name}, {is_of_earlier_version}");
            assert_eq!(joined.hash().await, client.hash().await);
        }
        cluster.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn all_members_of_a_new_cluster_begin_with_one_snapshot() {
    let mut cluster = Cluster::start(&[]).await;
    let [file, other] = save_two(cluster.directory.path()).await;
    for name in ["a", "b", "c"] {
        let port = free_port();
        cluster.ports.insert(name.to_owned(), port);
        cluster.config.members.insert(name.to_owned(), vec![url(port)]);
    }
    let mut clusters = Vec::new();
    for (name, file) in [("a", &file), ("b", &file), ("c", &other)] {
        let made = restore(file, cluster.path(name), &cluster.options_of(name, &options())).await;
        let Identity { member_id, cluster_id } = made.expect("it is restored");
        assert_ne!(member_id, cluster_id);
        clusters.push(cluster_id);
    }
    assert!(clusters[0] == clusters[1] && clusters[0] != clusters[2], "the snapshots differ: {clusters:x?}");
    for name in ["a", "b"] {
        cluster.run(name).await;
    }
    let mut client = cluster.client("a").await;
    assert_eq!(client.get("key 7").await, Some(vec![7; 100]));
    assert_eq!(client.put("later", "1").await.revision, 12);
    let listed = client.members().await;
    assert_eq!(listed.len(), 3, "{listed:?}");

    // One with another snapshot is none of them, nor is one with nothing.
    cluster.run("c").await;
    assert_eq!(cluster.client("c").await.get_here("another").await, Some(b"1".to_vec()));
    client.put("later still", "1").await;
    assert_eq!(cluster.client("c").await.get_here("later still").await, None);
    cluster.crash("c").await;
    std::fs::remove_dir_all(cluster.path("c")).expect("it is there");
    let refused = Running::start(cluster.path("c"), cluster.ports["c"], cluster.options_of("c", &options())).await;
    let refused = refused.map(|_| ()).expect_err("it has nothing").to_string();
    assert!(refused.contains(&format!("is of cluster {:x}", clusters[0])), "{refused}");
    assert!(refused.contains("restore this one from the same snapshot"), "{refused}");

    let restored =
        restore(&file, cluster.path("c"), &cluster.options_of("c", &options())).await.expect("it is restored");
    assert_eq!(restored.cluster_id, clusters[0]);
    cluster.run("c").await;
    until("the third has what was written since", || {
        let third = cluster.client("c");
        async move { third.await.get_here("later still").await.is_some() }
    })
    .await;
    // One of the other two may be gone.
    cluster.crash("a").await;
    let mut third = cluster.client("c").await;
    third.put("last", "1").await;
    assert_eq!(third.get("key 3").await, Some(vec![3; 100]));
    let mut second = cluster.client("b").await;
    until("the second has it", || {
        let mut second = second.clone();
        async move { second.get_here("last").await.is_some() }
    })
    .await;
    assert_eq!(third.hash().await, second.hash().await);
    // Members that are added get the store as well.
    cluster.run("a").await;
    let port = free_port();
    let add = pb::MemberAddRequest { peer_ur_ls: vec![url(port)], is_learner: false };
    until("the first is seen again, and another is taken", || {
        let (mut second, add) = (second.clone(), add.clone());
        async move { second.cluster.member_add(add).await.is_ok() }
    })
    .await;
    cluster.join("d", port).await;
    until_voters(&second, 4).await;
    assert_eq!(cluster.client("d").await.get_here("key 5").await, Some(vec![5; 100]));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_member_that_joins_is_not_restored() {
    let cluster = Cluster::start(&[]).await;
    let [file, _] = save_two(cluster.directory.path()).await;
    let mut config = cluster.config.clone();
    config.members.insert("a".to_owned(), vec![url(free_port())]);
    let joins = NodeOptions { name: "a".to_owned(), bootstrap: Bootstrap::Join(config.clone()), ..options() };
    let refused = restore(&file, cluster.path("a"), &joins).await.expect_err("it joins").to_string();
    assert!(refused.contains("gets the store from the others") && !cluster.path("a").exists(), "{refused}");
    let unknown = NodeOptions { name: "b".to_owned(), bootstrap: Bootstrap::New(config), ..options() };
    let refused = restore(&file, cluster.path("b"), &unknown).await.expect_err("it is none").to_string();
    assert!(refused.contains("has no member b") && !cluster.path("b").exists(), "{refused}");
}
