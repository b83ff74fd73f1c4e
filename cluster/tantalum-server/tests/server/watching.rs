//! Watches as a client sees them.

use crate::common::{Server, Watching, options};
use tantalum_server::NodeOptions;
use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::api::etcdserverpb::watch_request::RequestUnion;
use tantalum_server::api::mvccpb::Event;

fn create(key: &str, range_end: &str, start_revision: i64) -> pb::WatchCreateRequest {
    pb::WatchCreateRequest { key: key.into(), range_end: range_end.into(), start_revision, ..Default::default() }
}

/// So many events, of one response or more.
async fn next_events(watching: &mut Watching, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        events.extend(watching.next().await.events);
    }
    events
}

/// Key, revision, whether it was deleted.
fn describe(event: &Event) -> (String, i64, bool) {
    let key_value = event.kv.as_ref().expect("it has a key");
    (String::from_utf8(key_value.key.clone()).expect("text"), key_value.mod_revision, event.r#type == 1)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watchers_see_every_event_once_whenever_they_begin() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    let mut client = server.client().await;
    let mut writer = server.client().await;
    let writing = tokio::spawn(async move {
        for n in 0..300 {
            writer.put(&format!("k{}", n % 7), n.to_string()).await;
            if n % 10 == 9 {
                writer.delete("k0", "").await;
            }
        }
        writer.put("last", "").await
    });
    let mut watching = client.watching().await;
    let mut created = 0;
    let mut seen: Vec<Vec<(String, i64, bool)>> = vec![Vec::new(); 20];
    let mut ended = 0;
    watching.create(create("", "\0", 1)).await;
    while ended < 20 {
        let response = watching.next().await;
        let id = response.watch_id as usize;
        if response.created {
            assert_eq!(id, created);
            created += 1;
        }
        seen[id].extend(response.events.iter().map(describe));
        ended += usize::from(!response.events.is_empty() && seen[id].last().is_some_and(|last| last.0 == "last"));
        if response.created && created < 20 {
            watching.create(create("", "\0", 1)).await;
        }
    }
    let last = writing.await.expect("no panic");
    assert_eq!(seen[0].len() as i64, last - 1);
    assert!(seen[0].iter().map(|event| event.1).eq(2..=last));
    assert!(seen.iter().all(|events| *events == seen[0]));
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watches_tell_what_was_before_are_cancelled_and_end_at_compaction() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = Server::start(directory.path(), options()).await;
    let mut client = server.client().await;
    for value in ["1", "2", "3"] {
        client.put("a", value).await;
    }
    client.delete("a", "").await;
    let mut watching = client.watching().await;
    watching.create(pb::WatchCreateRequest { prev_kv: true, watch_id: 5, ..create("a", "", 2) }).await;
    let made = watching.next().await;
    assert!(made.created && made.watch_id == 5 && crate::common::revision(&made.header) == 5);
    let events = next_events(&mut watching, 4).await;
    let before = |event: &Event| event.prev_kv.as_ref().map(|key_value| key_value.value.clone());
    let values = [None, Some(b"1".to_vec()), Some(b"2".to_vec()), Some(b"3".to_vec())];
    assert_eq!(events.iter().map(before).collect::<Vec<_>>(), values);
    assert_eq!(describe(&events[3]), ("a".to_owned(), 5, true));

    watching.create(pb::WatchCreateRequest { watch_id: 5, ..create("a", "", 2) }).await;
    let twice = watching.next().await;
    assert!(twice.created && twice.canceled && twice.watch_id == -1);
    assert_eq!(twice.cancel_reason, "mvcc: duplicate watch ID provided on the WatchStream");
    watching.send(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: 5 })).await;
    let cancelled = watching.next().await;
    assert!(cancelled.canceled && cancelled.watch_id == 5 && cancelled.compact_revision == 0);

    client.kv.compact(pb::CompactionRequest { revision: 4, physical: true }).await.expect("it is done");
    watching.create(create("a", "", 3)).await;
    assert!(watching.next().await.created);
    let late = watching.next().await;
    assert!(late.canceled && late.compact_revision == 4, "{late:?}");
    watching.create(create("a", "", 4)).await;
    assert!(watching.next().await.created);
    let events: Vec<_> = next_events(&mut watching, 2).await.iter().map(describe).collect();
    assert_eq!(events, [("a".to_owned(), 4, false), ("a".to_owned(), 5, true)]);
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_told_and_large_responses_are_cut() {
    let directory = tempfile::tempdir().expect("a directory");
    let interval = std::time::Duration::from_millis(50);
    let options = NodeOptions { watch_progress_interval: interval, max_request_bytes: 20_000, ..options() };
    let server = Server::start(directory.path(), options.clone()).await;
    let mut client = server.client().await;
    let mut watching = client.watching().await;
    watching.create(create("quiet", "", 0)).await;
    assert!(watching.next().await.created);
    client.put("a", "").await;
    watching.send(RequestUnion::ProgressRequest(pb::WatchProgressRequest {})).await;
    let progress = watching.next().await;
    assert_eq!((progress.watch_id, crate::common::revision(&progress.header), progress.events.len()), (-1, 2, 0));
    watching.create(pb::WatchCreateRequest { progress_notify: true, ..create("also quiet", "", 0) }).await;
    assert!(watching.next().await.created);
    let progress = watching.next().await;
    assert_eq!((progress.watch_id, crate::common::revision(&progress.header), progress.events.len()), (1, 2, 0));
    watching.send(RequestUnion::CancelRequest(pb::WatchCancelRequest { watch_id: 1 })).await;
    while !watching.next().await.canceled {}

    let operation = |n: u8| {
        let put = pb::PutRequest { key: vec![b'f', n], value: vec![n; 1000], ..Default::default() };
        pb::RequestOp { request: Some(pb::request_op::Request::RequestPut(put)) }
    };
    for first in [0, 15, 30, 45] {
        let success = (first..first + 15).map(operation).collect();
        client.kv.txn(pb::TxnRequest { success, ..Default::default() }).await.expect("it is done");
    }
    // The events are read from the store now, all at once.
    drop((watching, client));
    server.stop().await;
    let server = Server::start(directory.path(), options).await;
    let mut watching = server.client().await.watching().await;
    watching.create(pb::WatchCreateRequest { fragment: true, ..create("f", "g", 1) }).await;
    assert!(watching.next().await.created);
    let mut parts = vec![watching.next().await];
    while parts.last().is_some_and(|part| part.fragment) {
        parts.push(watching.next().await);
    }
    assert!(parts.len() >= 4);
    assert_eq!(parts.iter().map(|part| part.events.len()).sum::<usize>(), 60);
    server.stop().await;
}
