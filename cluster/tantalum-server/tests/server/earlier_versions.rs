//! Directories of members that earlier versions made, as they are in `fixtures/`: this version serves them, or refuses them by name.
//!
//! For those of a new version: run the ignored test in a checkout of that version, with FIXTURES naming a directory, and add what it
//! writes. Version 1 is the first one.

use std::path::{Path, PathBuf};
use std::process::Command;

use tantalum_server::api::etcdserverpb as pb;
use tonic::Code;

use crate::common::{Client, Server, options, refused, revision};

/// What HashKV makes of the keys.
const HASH: u32 = 3_860_828_802;
const LAST_REVISION: i64 = 64;

fn fixture(version: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/server/fixtures").join(format!("{version}-{name}.tar.gz"))
}

fn tar(arguments: &[&str], file: &Path, directory: &Path) {
    let ran = Command::new("tar").args(arguments).arg(file).arg("-C").arg(directory).arg(".").status();
    assert!(ran.expect("tar is there").success(), "tar {arguments:?} {}", file.display());
}

fn value(n: u32) -> Vec<u8> {
    format!("value {n}").into_bytes()
}

/// 60 puts to 20 keys, of which one is large and some have a lease; three keys are deleted, and half of the history is compacted.
async fn fill(client: &mut Client) {
    client.lease.lease_grant(pb::LeaseGrantRequest { id: 7, ttl: 1_000_000 }).await.expect("it is new");
    for n in 0..60 {
        let lease = if n >= 50 { 7 } else { 0 };
        let put =
            pb::PutRequest { key: format!("k{:02}", n % 20).into(), value: value(n), lease, ..Default::default() };
        client.kv.put(put).await.expect("it is put");
    }
    assert_eq!(client.delete("k03", "k06").await, 3);
    client.put("large", vec![b'x'; 300_000]).await;
    assert_eq!(client.put("last", "one").await, LAST_REVISION);
    let compact = pb::CompactionRequest { revision: 30, physical: true };
    client.kv.compact(compact).await.expect("it is done");
}

async fn check(client: &mut Client) {
    let all = pb::RangeRequest { key: vec![0], range_end: vec![0], ..Default::default() };
    let found = client.kv.range(all.clone()).await.expect("it is read").into_inner();
    assert_eq!((found.count, revision(&found.header)), (19, LAST_REVISION));
    assert_eq!(client.get("k07").await, Some(value(47)));
    assert_eq!(client.get("k04").await, None);
    assert_eq!(client.get("large").await.map(|value| value.len()), Some(300_000));
    let at = |revision| pb::RangeRequest { key: b"k04".to_vec(), revision, ..Default::default() };
    let past = client.kv.range(at(40)).await.expect("it is kept").into_inner();
    assert_eq!(past.kvs[0].value, value(24));
    assert_eq!(refused(client.kv.range(at(29)).await).0, Code::OutOfRange, "it was compacted");
    let held = pb::LeaseTimeToLiveRequest { id: 7, keys: true };
    let held = client.lease.lease_time_to_live(held).await.expect("it is there").into_inner();
    assert_eq!((held.granted_ttl, held.keys.len()), (1_000_000, 10));
    let request = pb::HashKvRequest { revision: LAST_REVISION };
    let hash = client.maintenance.hash_kv(request).await.expect("it is hashed").into_inner();
    assert_eq!((hash.hash, hash.compact_revision), (HASH, 30));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_of_earlier_versions_go_on() {
    for version in ["1"] {
        for name in ["closed", "killed"] {
            let directory = tempfile::tempdir().expect("a directory");
            tar(&["-xzf"], &fixture(version, name), directory.path());
            let server = Server::start(directory.path(), options()).await;
            let mut client = server.client().await;
            check(&mut client).await;
            assert_eq!(client.put("next", "").await, LAST_REVISION + 1);
            server.stop().await;
            let server = Server::start(directory.path(), options()).await;
            assert_eq!(server.client().await.get("next").await, Some(Vec::new()), "{version}, {name}");
            server.stop().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "makes the fixtures of this version, in a directory named by the variable FIXTURES"]
async fn make_fixtures() {
    let target = PathBuf::from(std::env::var_os("FIXTURES").expect("FIXTURES names a directory"));
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    fill(&mut server.client().await).await;
    // What a kill of the process leaves: all that was written, while nothing is.
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    tar(&["--exclude=LOCK", "-Sczf"], &target.join("killed.tar.gz"), directory.path());
    server.stop().await;
    tar(&["--exclude=LOCK", "-Sczf"], &target.join("closed.tar.gz"), directory.path());
}
