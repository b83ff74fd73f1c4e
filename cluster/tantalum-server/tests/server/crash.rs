//! The program, killed at any moment: what it acknowledged is there when it runs again.

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::common::Client;
use tantalum_server::api::etcdserverpb as pb;

/// The program, and its address.
fn run(directory: &Path) -> (Child, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tantalum-server"));
    let sizes = [
        "--raft-log-bytes=4194304",
        "--state-log-bytes=8388608",
        "--buffer-pool-bytes=16777216",
        "--heartbeat-interval-ms=50",
    ];
    let mut child = command
        .arg("serve")
        .arg(directory)
        .arg("--listen=127.0.0.1:0")
        .args(sizes)
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("it is piped")).read_line(&mut line).expect("it says where");
    let address = line.trim().strip_prefix("serving clients at ").expect("it serves").to_owned();
    (child, address)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_acknowledged_survives_kills() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("member");
    let mut acknowledged = 0u64;
    let mut last_revision = 1;
    for round in 0..5u64 {
        let (mut child, address) = run(&path);
        let mut client = Client::connect(&address).await;
        let found = client
            .get("count")
            .await
            .map_or(0, |value| String::from_utf8(value).expect("text").parse().expect("a number"));
        assert!(found == acknowledged || found == acknowledged + 1, "{found} after {acknowledged}");
        let request = pb::RangeRequest { key: b"entry ".to_vec(), range_end: b"entry!".to_vec(), ..Default::default() };
        let entries = client.kv.range(request).await.expect("it is read").into_inner();
        assert_eq!(entries.count as u64, found, "both writes of a transaction, or none");
        assert!(crate::common::revision(&entries.header) >= last_revision);
        acknowledged = found;
        // Killed in the middle of a write.
        let end = acknowledged + 20 + round * 7;
        let mut killed = false;
        loop {
            let next = acknowledged + 1;
            let put = |key: String, value: String| pb::RequestOp {
                request: Some(pb::request_op::Request::RequestPut(pb::PutRequest {
                    key: key.into_bytes(),
                    value: value.into_bytes(),
                    ..Default::default()
                })),
            };
            let success =
                vec![put("count".to_owned(), next.to_string()), put(format!("entry {next:06}"), "e".repeat(9000))];
            let mut kv = client.kv.clone();
            let write = tokio::spawn(async move { kv.txn(pb::TxnRequest { success, ..Default::default() }).await });
            if next == end {
                child.kill().expect("it runs");
                killed = true;
            }
            match write.await.expect("no panic") {
                Ok(done) => {
                    acknowledged = next;
                    last_revision = crate::common::revision(&done.into_inner().header);
                }
                Err(_) => {
                    assert!(killed, "no write fails before");
                    break;
                }
            }
            if killed {
                break;
            }
        }
        child.wait().expect("it has ended");
    }
    assert!(acknowledged > 100);
}

#[test]
fn directories_that_are_not_a_members_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::write(directory.path().join("something"), "").expect("it is written");
    let refused = || {
        let output = Command::new(env!("CARGO_BIN_EXE_tantalum-server"))
            .arg("serve")
            .arg(directory.path())
            .arg("--listen=127.0.0.1:0")
            .output()
            .expect("it runs");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    let message = refused();
    assert!(message.contains("is not a member's directory, it has something"), "{message}");
    std::fs::write(directory.path().join("member.toml"), "member_id = 1").expect("it is written");
    let message = refused();
    assert!(message.contains("member.toml: is not what a member has written"), "{message}");
}
