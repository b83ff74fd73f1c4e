//! What operators see and set: quota, compaction by itself, metrics, health.

use std::time::Duration;

use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::{AutoCompaction, NodeOptions, serve_monitoring};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tonic::Code;

use crate::common::{Server, options, refused, revision};

/// The status line and the text of an answer over HTTP.
async fn fetch(address: &str, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.expect("it serves");
    let request = format!("GET {path} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.expect("it answers");
    let (head, text) = answer.split_once("\r\n\r\n").expect("it has a head");
    (head.lines().next().expect("it has a status").to_owned(), text.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_store_refuses_what_needs_space_until_room_is_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let options = NodeOptions { quota_bytes: Some(24 << 20), ..options() };
    let server = Server::start(directory.path(), options).await;
    let mut client = server.client().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
    let monitoring = listener.local_addr().expect("it listens").to_string();
    let serving = tokio::spawn(serve_monitoring(server.node.clone(), listener, std::future::pending()));
    assert_eq!(fetch(&monitoring, "/health").await.1, r#"{"health":"true","reason":""}"#);

    let put =
        |n: usize| pb::PutRequest { key: format!("k{n}").into(), value: vec![n as u8; 1 << 20], ..Default::default() };
    let mut taken = 0;
    let full = loop {
        match client.kv.put(put(taken)).await {
            Ok(_) => taken += 1,
            Err(status) => break status,
        }
        assert!(taken < 24, "the quota has no room for so many");
    };
    assert_eq!((full.code(), full.message()), (Code::ResourceExhausted, "etcdserver: mvcc: database space exceeded"));
    assert!(taken > 8, "{taken}");
    let grant = client.lease.lease_grant(pb::LeaseGrantRequest { id: 1, ttl: 100 }).await;
    assert_eq!(refused(grant).0, Code::ResourceExhausted);
    let (status, text) = fetch(&monitoring, "/health").await;
    assert!(status.contains("503"), "{status}");
    assert_eq!(text, r#"{"health":"false","reason":"ALARM NOSPACE"}"#);
    assert!(fetch(&monitoring, "/readyz").await.0.contains("503"));
    assert!(fetch(&monitoring, "/livez").await.0.contains("200"));

    // Reading, deleting, compaction and defragmentation go on, and make room.
    assert_eq!(client.get("k0").await.map(|value| value.len()), Some(1 << 20));
    assert_eq!(client.delete("k", "l").await, taken as i64);
    let status = client.maintenance.status(pb::StatusRequest {}).await.expect("it is told").into_inner();
    let last = revision(&status.header);
    client.kv.compact(pb::CompactionRequest { revision: last, physical: true }).await.expect("it is done");
    client.maintenance.defragment(pb::DefragmentRequest {}).await.expect("it is done");
    assert_eq!(refused(client.kv.put(put(0)).await).0, Code::ResourceExhausted, "the alarm stays until it is reset");
    let disarm = pb::AlarmRequest { action: 2, member_id: server.node.identity().member_id, alarm: 1 };
    client.maintenance.alarm(disarm).await.expect("it is reset");
    client.kv.put(put(0)).await.expect("there is room");

    let (status, text) = fetch(&monitoring, "/metrics").await;
    assert!(status.contains("200"), "{status}");
    let value = |name: &str| -> f64 {
        let line = text.lines().find(|line| line.split(' ').next() == Some(name));
        line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
    };
    assert_eq!((value("etcd_server_has_leader"), value("etcd_server_is_leader")), (1.0, 1.0));
    assert_eq!(value("etcd_debugging_mvcc_compact_revision"), last as f64);
    assert_eq!(value("etcd_debugging_mvcc_current_revision"), last as f64 + 1.0);
    assert_eq!(value("etcd_server_quota_backend_bytes"), (24 << 20) as f64);
    assert!(value("etcd_mvcc_db_total_size_in_bytes") < (24 << 20) as f64);
    assert!(value("etcd_server_proposals_applied_total") > 10.0);
    assert!(text.contains("tantalum_log_records{database=\"state\"}"), "{text}");
    assert!(fetch(&monitoring, "/nothing").await.0.contains("404"));
    serving.abort();
    drop(serving.await);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_history_is_given_up_by_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let auto_compaction = AutoCompaction::Periodic(Duration::from_millis(100));
    let server = Server::start(directory.path(), NodeOptions { auto_compaction, ..options() }).await;
    let mut client = server.client().await;
    let last = (0..20).map(|n| n.to_string());
    let mut at = 1;
    for value in last {
        at = client.put("k", value).await;
    }
    let past = pb::RangeRequest { key: b"k".to_vec(), revision: at - 1, ..Default::default() };
    while client.kv.range(past.clone()).await.is_ok() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let compacted = refused(client.kv.range(past).await);
    assert_eq!(compacted, (Code::OutOfRange, "etcdserver: mvcc: required revision has been compacted".to_owned()));
    assert_eq!(client.get("k").await, Some(b"19".to_vec()));
    server.stop().await;
}

#[test]
fn arguments_that_say_nothing_are_refused_before_anything_is_made() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("member");
    let anywhere = "--listen=127.0.0.1:0";
    for (arguments, expected) in [
        (&[anywhere, "--auto-compaction-retention=soon"][..], "write a time as 30m or 1h30m, or hours as 8"),
        (&[anywhere, "--auto-compaction-retention=99999999999999999"], "write a time as 30m"),
        (
            &[anywhere, "--auto-compaction-mode=revision", "--auto-compaction-retention=-5"],
            "write how many revisions to keep",
        ),
        (&[anywhere, "--listen-metrics=nowhere"], "name another address with --listen-metrics"),
        (&["--listen=127.0.0.1:http"], "name another address with --listen"),
    ] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_tantalum-server"));
        let output = command.arg("serve").arg(&path).args(arguments).output().expect("it runs");
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(expected), "{arguments:?}: {text}");
        assert!(!path.exists(), "{arguments:?}");
    }
}
