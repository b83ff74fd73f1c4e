//! Members that are added, promoted, removed and replaced, and those that are refused.

use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::{Bootstrap, ClusterConfig, Node, NodeOptions};
use tonic::Code;

use crate::common::{Client, Cluster, Running, free_port, options, refused, until};

pub fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn add(port: u16, is_learner: bool) -> pb::MemberAddRequest {
    pb::MemberAddRequest { peer_ur_ls: vec![url(port)], is_learner }
}

impl Cluster {
    /// Starts a member that was added at this port.
    pub async fn join(&mut self, name: &str, port: u16) {
        self.config.members.insert(name.to_owned(), vec![url(port)]);
        self.ports.insert(name.to_owned(), port);
        let bootstrap = Bootstrap::Join(self.config.clone());
        let options = NodeOptions { name: name.to_owned(), bootstrap, ..options() };
        let running = Running::start(self.path(name), port, options).await.expect("it joins");
        self.running.insert(name.to_owned(), running);
    }

    /// Restarts a member that joined.
    async fn rejoin(&mut self, name: &str) {
        let options = NodeOptions { name: name.to_owned(), ..options() };
        let running = Running::start(self.path(name), self.ports[name], options).await.expect("it starts");
        self.running.insert(name.to_owned(), running);
    }
}

pub async fn until_voters(client: &Client, count: usize) {
    until("there are as many voters", || {
        let mut client = client.clone();
        async move { client.members().await.iter().filter(|member| !member.is_learner).count() == count }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn learners_are_promoted_when_they_are_in_sync_and_members_are_replaced() {
    let mut cluster = Cluster::start(&["a", "b", "c"]).await;
    let leader = cluster.leader().await;
    let mut client = cluster.client("b").await;
    // Some more than the log keeps.
    for n in 0..100 {
        client.put(&format!("key {n}"), vec![n as u8; 20_000]).await;
    }
    let port = free_port();
    let added = client.cluster.member_add(add(port, true)).await.expect("it is new").into_inner();
    let id = added.member.expect("it is told").id;
    assert_eq!(added.members.len(), 4);
    let not_ready = "etcdserver: can only promote a learner member which is in sync with leader";
    let promote = |id| pb::MemberPromoteRequest { id };
    let refusal = refused(client.cluster.member_promote(promote(id)).await);
    assert_eq!(refusal, (Code::FailedPrecondition, not_ready.to_owned()));
    let again = refused(client.cluster.member_add(add(port, true)).await);
    assert_eq!(again, (Code::FailedPrecondition, "etcdserver: Peer URLs already exists".to_owned()));
    let bad = pb::MemberAddRequest { peer_ur_ls: vec!["here".to_owned()], is_learner: true };
    assert_eq!(refused(client.cluster.member_add(bad).await).0, Code::InvalidArgument);
    assert_eq!(refused(client.cluster.member_promote(promote(5)).await).0, Code::NotFound);
    let voter = promote(cluster.running["a"].id());
    let refusal = refused(client.cluster.member_promote(voter).await);
    assert_eq!(refusal.1, "etcdserver: can only promote a learner member");

    cluster.join("d", port).await;
    assert_eq!(cluster.running["d"].id(), id);
    until("the learner has all", || {
        let client = cluster.client("d");
        async move { client.await.get_here("key 99").await.is_some() }
    })
    .await;
    assert!(cluster.client("d").await.status().await.is_learner);
    let mut of_learner = cluster.client("d").await;
    of_learner.put("through", "a learner").await;
    let move_leader = |target_id| pb::MoveLeaderRequest { target_id };
    let mut of_leader = cluster.client(&leader).await;
    let refusal = refused(of_leader.maintenance.move_leader(move_leader(id)).await);
    assert_eq!(refusal, (Code::FailedPrecondition, "etcdserver: bad leader transferee".to_owned()));
    until("it is promoted", || {
        let mut client = client.clone();
        async move { client.cluster.member_promote(promote(id)).await.is_ok() }
    })
    .await;
    until_voters(&client, 4).await;

    // The leader is removed, and a new member takes its place.
    let gone = cluster.running[&leader].id();
    let mut other = of_learner;
    let left = other.cluster.member_remove(pb::MemberRemoveRequest { id: gone }).await.expect("it is one").into_inner();
    assert!(left.members.len() == 3 && left.members.iter().all(|member| member.id != gone));
    let removed = cluster.running.remove(&leader).expect("it runs");
    let why = tokio::time::timeout(crate::common::PATIENCE, removed.node.until_ended()).await.expect("it hears of it");
    assert!(why.contains("was removed from its cluster"), "{why}");
    removed.crash().await;
    let again = Node::open(cluster.path(&leader), cluster.options_of(&leader, &options())).await;
    assert!(again.expect_err("it is none").to_string().contains("was removed from its cluster"));
    let refusal = refused(other.cluster.member_remove(pb::MemberRemoveRequest { id: gone }).await);
    assert_eq!(refusal, (Code::NotFound, "etcdserver: member not found".to_owned()));
    other.put("after", "1").await;
    let port = free_port();
    other.cluster.member_add(add(port, false)).await.expect("it is new");
    cluster.config.members.remove(&leader);
    cluster.join("e", port).await;
    until_voters(&other, 4).await;
    assert_eq!(cluster.client("e").await.get("after").await, Some(b"1".to_vec()));

    // Restarts need no flags; a member's URL changes.
    cluster.crash("e").await;
    let moved = free_port();
    let id = other.members().await.into_iter().find(|member| member.name == "e").expect("it is one").id;
    let update = pb::MemberUpdateRequest { id, peer_ur_ls: vec![url(moved)] };
    other.cluster.member_update(update).await.expect("it is one");
    cluster.ports.insert("e".to_owned(), moved);
    cluster.rejoin("e").await;
    let revision = other.put("last", "1").await.revision;
    let mut of_e = cluster.client("e").await;
    assert_eq!(of_e.get("last").await, Some(b"1".to_vec()));
    assert!(revision > 0);
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_only_member_gets_others_and_leaves() {
    let mut cluster = Cluster::start(&[]).await;
    let port = free_port();
    cluster.config.members.insert("first".to_owned(), vec![url(port)]);
    cluster.ports.insert("first".to_owned(), port);
    let alone = NodeOptions { name: "first".to_owned(), peer_urls: vec![url(port)], ..options() };
    let running = Running::start(cluster.path("first"), port, alone).await.expect("it starts");
    cluster.running.insert("first".to_owned(), running);
    let mut client = cluster.client("first").await;
    client.put("key", "1").await;
    let only = pb::MemberRemoveRequest { id: cluster.running["first"].id() };
    let refusal = refused(client.cluster.member_remove(only).await);
    let too_few = "etcdserver: re-configuration failed due to not enough started members";
    assert_eq!(refusal, (Code::FailedPrecondition, too_few.to_owned()));
    for (count, name) in [(2, "second"), (3, "third")] {
        let port = free_port();
        client.cluster.member_add(add(port, false)).await.expect("it is new");
        // Though it was not started, requests go on.
        client.put("key", name).await;
        cluster.join(name, port).await;
        until_voters(&client, count).await;
    }
    assert_eq!(cluster.client("third").await.get("key").await, Some(b"third".to_vec()));
    // Asked to be removed itself, it answers.
    client.cluster.member_remove(only).await.expect("two are left");
    let first = cluster.running.remove("first").expect("it runs");
    let why = tokio::time::timeout(crate::common::PATIENCE, first.node.until_ended()).await.expect("it hears of it");
    assert!(why.contains("was removed from its cluster"), "{why}");
    first.crash().await;
    assert_eq!(cluster.client("third").await.get("key").await, Some(b"third".to_vec()));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_leader_moves_where_it_is_told_to() {
    let cluster = Cluster::start(&["a", "b", "c"]).await;
    for name in ["a", "b", "c", "a"] {
        let leader = cluster.leader().await;
        let target_id = cluster.running[name].id();
        let mut client = cluster.client(&leader).await;
        client.put("before", name).await;
        client.maintenance.move_leader(pb::MoveLeaderRequest { target_id }).await.expect("it is a voter");
        assert_eq!(client.get("before").await, Some(name.into()));
        until("all follow it", || {
            let clients = cluster.running.values().map(|running| running.client());
            let clients: Vec<_> = clients.collect();
            async move {
                let mut follow = true;
                for client in clients {
                    follow &= client.await.status().await.leader == target_id;
                }
                follow
            }
        })
        .await;
        for other in ["a", "b", "c"].into_iter().filter(|other| *other != name) {
            let request = pb::MoveLeaderRequest { target_id };
            let refusal = refused(cluster.client(other).await.maintenance.move_leader(request).await);
            assert_eq!(refusal, (Code::FailedPrecondition, "etcdserver: not leader".to_owned()));
        }
    }
    let leader = cluster.leader().await;
    let mut client = cluster.client(&leader).await;
    let refusal = refused(client.maintenance.move_leader(pb::MoveLeaderRequest { target_id: 1 }).await);
    assert_eq!(refusal.1, "etcdserver: bad leader transferee");
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn messages_for_others_change_nothing() {
    let mut cluster = Cluster::start(&["a", "b", "c"]).await;
    let stranger = Cluster::start(&["a"]).await;
    let mut client = cluster.client("a").await;
    client.put("key", "of the cluster").await;
    stranger.client("a").await.put("key", "of the stranger").await;
    until("it has said where clients reach it", || async {
        let members = stranger.client("a").await.members().await;
        members.iter().all(|member| !member.client_ur_ls.is_empty())
    })
    .await;
    let before = stranger.client("a").await.status().await;
    // The members of the one cluster find a member of the other where theirs was.
    let away = if cluster.leader().await == "c" { "b" } else { "c" };
    let port = cluster.ports[away];
    cluster.crash(away).await;
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("it is free again");
    let serving = tokio::spawn(tantalum_server::serve_peers(
        stranger.running["a"].node.clone(),
        listener,
        std::future::pending(),
    ));
    let other = if away == "c" { "b" } else { "c" };
    for n in 0..20 {
        cluster.client(other).await.put("key", format!("{n}")).await;
    }
    let after = stranger.client("a").await.status().await;
    assert_eq!((before.raft_term, before.raft_index, before.leader), (after.raft_term, after.raft_index, after.leader));
    assert_eq!(stranger.client("a").await.get("key").await, Some(b"of the stranger".to_vec()));
    // A new member is told.
    let options = cluster.options_of(away, &options());
    let elsewhere = cluster.directory.path().join("elsewhere");
    let mut config = cluster.config.clone();
    config.members.insert("d".to_owned(), vec![url(free_port())]);
    let other_cluster = NodeOptions { name: "d".to_owned(), bootstrap: Bootstrap::New(config), ..options.clone() };
    let refusal = Node::open(&elsewhere, other_cluster).await.expect_err("it is no member").to_string();
    assert!(refusal.contains("and the cluster that is named is"), "{refusal}");
    serving.abort();
    let _ = serving.await;
    cluster.run(away).await;
    assert_eq!(cluster.client(away).await.get("key").await, Some(b"19".to_vec()));
    cluster.stop().await;
    stranger.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn directories_that_are_mixed_up_are_refused() {
    let mut cluster = Cluster::start(&["a", "b", "c"]).await;
    cluster.client("a").await.put("key", "1").await;
    until("all are known", || async {
        let members = cluster.client("a").await.members().await;
        members.iter().all(|member| !member.client_ur_ls.is_empty())
    })
    .await;
    cluster.crash("a").await;
    let of = |name: &str| cluster.options_of(name, &options());
    let open = |path, options| async move { Node::open(path, options).await.expect_err("it is refused").to_string() };
    let refusal = open(cluster.path("a"), of("b")).await;
    assert!(
        refusal.contains("is the directory of member a, and this one is to be b; name that one's directory"),
        "{refusal}"
    );
    let token = ClusterConfig { token: "another".to_owned(), ..cluster.config.clone() };
    let refusal = open(cluster.path("a"), NodeOptions { bootstrap: Bootstrap::New(token), ..of("a") }).await;
    assert!(refusal.contains("of the cluster that is named is member"), "{refusal}");
    let device = cluster.directory.path().join("log");
    let refusal = open(cluster.path("a"), NodeOptions { raft_log_devices: vec![device], ..of("a") }).await;
    assert!(refusal.contains("lies in its file raft-log, and --raft-log-device names others"), "{refusal}");
    // A member whose directory is lost must not vote as if it had none of its votes.
    let empty = cluster.path("empty");
    let refusal = open(empty.clone(), of("a")).await;
    assert!(refusal.contains("was started before"), "{refusal}");
    let join = |name: &str| NodeOptions { bootstrap: Bootstrap::Join(cluster.config.clone()), ..of(name) };
    assert!(open(empty.clone(), join("a")).await.contains("was started before"));
    let mut with_d = cluster.config.clone();
    with_d.members.insert("d".to_owned(), vec![url(free_port())]);
    let d = NodeOptions { name: "d".to_owned(), bootstrap: Bootstrap::Join(with_d), ..options() };
    let refusal = open(empty.clone(), d).await;
    assert!(refusal.contains("add it first (member add d --peer-urls="), "{refusal}");
    assert!(!empty.join("member.toml").exists());
    cluster.run("a").await;
    assert_eq!(cluster.client("a").await.get("key").await, Some(b"1".to_vec()));
    cluster.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raft_log_lies_on_the_devices_that_are_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let devices = ["one", "two"].map(|name| directory.path().join(name)).to_vec();
    let path = directory.path().join("member");
    let with = NodeOptions { raft_log_devices: devices.clone(), ..options() };
    std::fs::write(&devices[1], "something").expect("it is written");
    let refusal = Node::open(&path, with.clone()).await.expect_err("a file is there").to_string();
    assert!(refusal.contains("is there already"), "{refusal}");
    std::fs::remove_file(&devices[1]).expect("it is there");
    let node = Node::open(&path, with).await.expect("it starts");
    node.close().await.expect("it closes");
    assert!(!path.join("raft-log").exists());
    assert!(devices.iter().all(|device| device.metadata().is_ok_and(|metadata| metadata.len() == 4 << 20)));
    // The directory knows.
    Node::open(&path, options()).await.expect("it starts").close().await.expect("it closes");
}
