//! etcd's own program against three members, where it is installed (`apt-get install etcd-client`).

use std::process::{Command, Stdio};

use crate::common::{Cluster, free_port, options};

/// Runs it with all endpoints. Returns what it prints.
async fn run(endpoints: &str, arguments: &[&str]) -> String {
    let mut command = Command::new("etcdctl");
    command.env("ETCDCTL_API", "3").args(["--endpoints", endpoints]).args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output()).await.expect("no panic").expect("it runs");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn etcdctl_finds_a_cluster() {
    let is_there = Command::new("etcdctl").arg("version").env("ETCDCTL_API", "3").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no etcdctl");
        return;
    }
    let cluster = Cluster::start(&["a", "b", "c"]).await;
    let endpoints: Vec<_> = cluster.running.values().map(|running| running.address.clone()).collect();
    let all = endpoints.join(",");
    assert_eq!(run(&all, &["put", "greeting", "hello"]).await, "OK\n");
    for endpoint in &endpoints {
        assert_eq!(run(endpoint, &["get", "greeting"]).await, "greeting\nhello\n");
    }
    let members = run(&all, &["member", "list"]).await;
    assert_eq!(members.lines().count(), 3, "{members}");
    for (name, urls) in &cluster.config.members {
        assert!(members.contains(&format!("started, {name}, {}, ", urls[0])), "{members}");
    }
    let status = run(&all, &["endpoint", "status"]).await;
    assert_eq!(status.lines().filter(|line| line.contains(", true, false, ")).count(), 1, "one leads: {status}");
    let health = run(&all, &["endpoint", "health"]).await;
    assert_eq!(health.matches("is healthy").count(), 3, "{health}");
    let hashes = run(&all, &["endpoint", "hashkv"]).await;
    let hashes: Vec<_> = hashes.lines().filter_map(|line| line.split(", ").nth(1)).collect();
    assert!(hashes.len() == 3 && hashes.iter().all(|hash| *hash == hashes[0]), "{hashes:?}");
    for name in ["a", "b", "c"] {
        let id = cluster.running[name].id();
        let moved = run(&all, &["move-leader", &format!("{id:x}")]).await;
        let is_there = cluster.running[name].client().await.status().await.leader == id;
        assert!(is_there && (moved.contains("Leadership transferred") || moved.is_empty()), "{moved}");
    }
    for (number, endpoint) in endpoints.iter().enumerate() {
        let saved = cluster.directory.path().join(format!("saved {number}"));
        let told = run(endpoint, &["snapshot", "save", &saved.display().to_string()]).await;
        assert!(told.contains("Snapshot saved at"), "{told}");
        let restored = cluster.directory.path().join(format!("restored {number}"));
        tantalum_server::restore(saved, &restored, &options()).await.expect("it is a snapshot");
        let node = tantalum_server::Node::open(restored, options()).await.expect("it is a member");
        assert!(!node.has_others().await.expect("it runs"));
        node.close().await.expect("it closes");
    }
    let url = format!("http://127.0.0.1:{}", free_port());
    let added = run(&all, &["member", "add", "d", "--learner", &format!("--peer-urls={url}")]).await;
    assert!(added.contains("added to cluster") && added.contains("ETCD_INITIAL_CLUSTER_STATE=\"existing\""), "{added}");
    let id = added.split_whitespace().nth(1).expect("it has a number").to_owned();
    let promoted = run(&all, &["member", "promote", &id]).await;
    assert!(promoted.contains("can only promote a learner member which is in sync with leader"), "{promoted}");
    let updated = run(&all, &["member", "update", &id, "--peer-urls=http://127.0.0.1:1"]).await;
    assert!(updated.contains("updated in cluster"), "{updated}");
    let removed = run(&all, &["member", "remove", &id]).await;
    assert!(removed.contains("removed from cluster"), "{removed}");
    assert_eq!(run(&all, &["lock", "mutex", "echo", "locked"]).await, "locked\n");
    cluster.stop().await;
}
