//! etcd's own program, where it is installed (`apt-get install etcd-client`).

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use crate::common::{Server, options};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn etcdctl_finds_an_etcd() {
    let is_there = Command::new("etcdctl").arg("version").env("ETCDCTL_API", "3").stdout(Stdio::null()).status();
    if !is_there.is_ok_and(|status| status.success()) {
        eprintln!("skipped: there is no etcdctl");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    let address = server.address.clone();
    let saved = directory.path().join("saved").display().to_string();
    let restored = directory.path().join("restored");
    let (file, place) = (saved.clone(), restored.clone());
    let session = move || {
        let run = |arguments: &[&str], input: &str| {
            let mut child = Command::new("etcdctl")
                .env("ETCDCTL_API", "3")
                .args(["--endpoints", &address])
                .args(arguments)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .expect("it runs");
            std::io::Write::write_all(&mut child.stdin.take().expect("it is piped"), input.as_bytes())
                .expect("it reads");
            let output = child.wait_with_output().expect("it ends");
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).into_owned()
        };
        assert_eq!(run(&["put", "greeting", "hello"], ""), "OK\n");
        assert_eq!(run(&["get", "greeting"], ""), "greeting\nhello\n");
        assert_eq!(run(&["put", "--prev-kv", "greeting", "good day"], ""), "OK\ngreeting\nhello\n");
        assert_eq!(run(&["get", "--rev", "2", "--print-value-only", "greeting"], ""), "hello\n");
        let txn = "value(\"greeting\") = \"good day\"\n\nput done yes\n\nput done no\n\n";
        assert_eq!(run(&["txn"], txn), "SUCCESS\n\nOK\n");
        assert_eq!(run(&["get", "", "--from-key", "--keys-only"], ""), "done\n\ngreeting\n\n");
        assert_eq!(run(&["del", "--prefix", "gree"], ""), "1\n");
        let mut watching = Command::new("etcdctl")
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &address, "watch", "--rev", "2", "greeting"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs");
        let events = BufReader::new(watching.stdout.take().expect("it is piped")).lines();
        let events: Vec<_> = events.take(8).map(|line| line.expect("text")).collect();
        assert_eq!(events, ["PUT", "greeting", "hello", "PUT", "greeting", "good day", "DELETE", "greeting"]);
        watching.kill().expect("it runs");
        watching.wait().expect("it ends");
        assert_eq!(run(&["compact", "5"], ""), "compacted revision 5\n");
        assert!(run(&["get", "--rev", "2", "greeting"], "").contains("required revision has been compacted"));
        let lease = run(&["lease", "grant", "100"], "");
        let id = lease.split(' ').nth(1).expect("it has a number").to_owned();
        assert_eq!(run(&["put", "--lease", &id, "held", "1"], ""), "OK\n");
        assert!(run(&["lease", "timetolive", "--keys", &id], "").contains("attached keys([held])"));
        assert!(run(&["lease", "keep-alive", "--once", &id], "").contains("keepalived with TTL(100)"));
        assert_eq!(run(&["lease", "revoke", &id], ""), format!("lease {id} revoked\n"));
        assert_eq!(run(&["get", "held"], ""), "");
        // Locks are made of leases, transactions and watches.
        assert_eq!(run(&["lock", "mutex", "echo", "locked"], ""), "locked\n");
        assert!(run(&["member", "list"], "").contains("started, default, , http://here:2379"));
        assert!(run(&["endpoint", "health"], "").contains("is healthy"));
        assert!(run(&["endpoint", "status"], "").contains("3.6.0"));
        assert!(run(&["endpoint", "hashkv"], "").contains(','));
        assert!(run(&["defrag"], "").contains("Finished defragmenting"));
        assert_eq!(run(&["alarm", "list"], ""), "");
        assert!(run(&["snapshot", "save", &saved], "").contains("Snapshot saved at"));
        assert!(run(&["user", "list"], "").contains("etcdserver: not capable"));
    };
    tokio::task::spawn_blocking(session).await.expect("it goes as it should");
    server.stop().await;
    tantalum_server::restore(file, &place, &options()).await.expect("it is a snapshot");
    let server = Server::start(&restored, options()).await;
    assert_eq!(server.client().await.get("done").await, Some(b"yes".to_vec()));
    server.stop().await;
}
