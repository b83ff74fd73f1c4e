//! Members that are killed, stopped for a while and cut off from each other at random, whose disks stall, are full or lost, and whose clocks
//! are set, under clients that write, read and watch: what clients saw could have happened one after the other, nothing acknowledged is
//! lost, and watchers see each event once.
//!
//! `FAULTS` is the number of faults, `SEED` what they are drawn from: `FAULTS=200 cargo test --test cluster faults`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use fastrand::Rng;
use tantalum_loop_disk::{Frozen, Full};
use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use tantalum_server::api::etcdserverpb::request_op::Request;
use tantalum_server::api::etcdserverpb::response_op::Response;
use tantalum_server::api::mvccpb::KeyValue;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tonic::Status;

use crate::common::{Client, until};
use crate::history::{Operation, Outcome, check, decode, encode};
use crate::processes::{Processes, connect};
use crate::proxy::Apart;

const CLIENTS: u64 = 5;
const LISTS: u64 = 3;
/// A list has about so many numbers, then another takes its place.
const LIST_APPENDS: u64 = 40;
/// A client takes no answer for one that is unknown after so long.
const CLIENT_PATIENCE: Duration = Duration::from_secs(4);

/// What clients and watchers share.
struct Run {
    endpoints: Vec<String>,
    moment: AtomicU64,
    /// Numbers that were appended, or are to be.
    number: AtomicU64,
    /// Operations that were done.
    done: AtomicU64,
    is_over: AtomicBool,
    operations: Mutex<Vec<Operation>>,
    /// Begin, end and revision of what was done.
    revisions: Mutex<Vec<(u64, u64, i64)>>,
}

impl Run {
    fn now(&self) -> u64 {
        self.moment.fetch_add(1, SeqCst)
    }

    fn note(&self, operation: Operation, revision: i64) {
        if let Outcome::Done { end, .. } = &operation.outcome {
            self.revisions.lock().expect("no panic").push((operation.begin, *end, revision));
            self.done.fetch_add(1, SeqCst);
        }
        self.operations.lock().expect("no panic").push(operation);
    }

    /// A list that is in use.
    fn list(&self, random: &mut Rng) -> String {
        let epoch = self.number.load(SeqCst) / (LISTS * LIST_APPENDS);
        format!("list {} {epoch}", random.u64(..LISTS))
    }
}

fn revision(header: &Option<pb::ResponseHeader>) -> i64 {
    header.as_ref().map_or(0, |header| header.revision)
}

/// The numbers of a list, and the revision that changed it last; of none, nothing and 0.
fn list_of(found: Option<KeyValue>) -> (Vec<u64>, i64) {
    found.map_or((Vec::new(), 0), |found| (decode(&found.value), found.mod_revision))
}

async fn answered<T>(call: impl Future<Output = Result<tonic::Response<T>, Status>>) -> Option<T> {
    timeout(CLIENT_PATIENCE, call).await.ok()?.ok().map(tonic::Response::into_inner)
}

/// Reads a list. Returns its numbers and the revision that changed it last, if there is an answer.
async fn read(run: &Run, client: &mut Client, list: &str) -> Option<(Vec<u64>, i64)> {
    let begin = run.now();
    let request = pb::RangeRequest { key: list.into(), ..Default::default() };
    let mut answer = answered(client.kv.range(request)).await?;
    let (after, changed_at) = list_of(answer.kvs.pop());
    let outcome = Outcome::Done { end: run.now(), after: after.clone() };
    run.note(Operation { list: list.to_owned(), begin, outcome, appends: None }, revision(&answer.header));
    Some((after, changed_at))
}

/// Appends a number to a list, if it is still as it was.
async fn append(run: &Run, client: &mut Client, list: &str, before: &[u64], changed_at: i64) -> bool {
    let number = run.number.fetch_add(1, SeqCst);
    let after = [before, &[number]].concat();
    let put = pb::PutRequest { key: list.into(), value: encode(&after).into(), ..Default::default() };
    let get = pb::RangeRequest { key: list.into(), ..Default::default() };
    let compare = pb::Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Mod as i32,
        key: list.into(),
        target_union: Some(TargetUnion::ModRevision(changed_at)),
        range_end: Vec::new(),
    };
    let request = pb::TxnRequest {
        compare: vec![compare],
        success: vec![pb::RequestOp { request: Some(Request::RequestPut(put)) }],
        failure: vec![pb::RequestOp { request: Some(Request::RequestRange(get)) }],
    };
    let begin = run.now();
    let answer = answered(client.kv.txn(request)).await;
    let end = run.now();
    let operation = |outcome, appends| Operation { list: list.to_owned(), begin, outcome, appends };
    let Some(mut answer) = answer else {
        run.note(operation(Outcome::Unknown, Some(number)), 0);
        return false;
    };
    let at = revision(&answer.header);
    if answer.succeeded {
        run.note(operation(Outcome::Done { end, after }, Some(number)), at);
        return true;
    }
    run.note(operation(Outcome::NotDone, Some(number)), at);
    let Some(Response::ResponseRange(mut found)) = answer.responses.pop().and_then(|response| response.response) else {
        panic!("a range has an answer")
    };
    let (after, _) = list_of(found.kvs.pop());
    run.note(operation(Outcome::Done { end, after }, None), at);
    true
}

/// Reads and appends until the run is over, at another member after each failure.
async fn work(run: Arc<Run>, seed: u64) {
    let mut random = Rng::with_seed(seed);
    let channels: Vec<_> = run.endpoints.iter().map(|url| connect(url)).collect();
    let mut at = random.usize(..channels.len());
    while !run.is_over.load(SeqCst) {
        let mut client = Client::over(channels[at].clone());
        let list = run.list(&mut random);
        let found = read(&run, &mut client, &list).await;
        let is_done = match found {
            Some((before, changed_at)) => append(&run, &mut client, &list, &before, changed_at).await,
            None => false,
        };
        if !is_done || random.u8(..20) == 0 {
            at = random.usize(..channels.len());
            sleep(Duration::from_millis(random.u64(..50))).await;
        }
    }
}

/// Events in their order: revision, key, value.
type Events = Vec<(i64, String, String)>;

/// Watches all lists at a member, again whenever the stream ends, until it has come to a revision, which is 0 as long as it is not known.
async fn watch(url: String, until_revision: Arc<AtomicU64>) -> Events {
    let channel = connect(&url);
    let mut events: Events = Vec::new();
    loop {
        let next = events.last().map_or(1, |(revision, _, _)| revision + 1);
        // It may end in any way; what has come counts.
        let _ = watch_once(channel.clone(), next, &mut events, &until_revision).await;
        let last = until_revision.load(SeqCst) as i64;
        if last > 0 && events.last().is_some_and(|(revision, _, _)| *revision >= last) {
            events.retain(|(revision, _, _)| *revision <= last);
            return events;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

async fn watch_once(
    channel: tonic::transport::Channel,
    start_revision: i64,
    events: &mut Events,
    until_revision: &AtomicU64,
) -> Result<(), Status> {
    let create = pb::WatchCreateRequest {
        key: b"list ".to_vec(),
        range_end: b"list!".to_vec(),
        start_revision,
        ..Default::default()
    };
    let (requests, stream) = tokio::sync::mpsc::channel(1);
    let request_union = Some(pb::watch_request::RequestUnion::CreateRequest(create));
    requests.send(pb::WatchRequest { request_union }).await.map_err(|_| Status::aborted("the stream is gone"))?;
    let stream = tokio_stream::wrappers::ReceiverStream::new(stream);
    let mut client = Client::over(channel).watch;
    let begun = timeout(CLIENT_PATIENCE, client.watch(stream)).await;
    let mut responses = begun.map_err(|_| Status::deadline_exceeded("no stream"))??.into_inner();
    loop {
        let next = match timeout(Duration::from_secs(1), responses.message()).await {
            Ok(next) => next?,
            Err(_) if until_revision.load(SeqCst) > 0 => return Ok(()),
            Err(_) => continue,
        };
        let Some(response) = next else { return Ok(()) };
        assert!(!response.canceled, "nothing is compacted: {response:?}");
        for event in response.events {
            let row = event.kv.expect("it has a key");
            let text = |bytes| String::from_utf8(bytes).expect("text");
            events.push((row.mod_revision, text(row.key), text(row.value)));
        }
    }
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{variable}={text}")))
}

/// One fault, and its end.
async fn fault(processes: &mut Processes, random: &mut Rng) -> String {
    let leader = processes.leader().await.filter(|_| random.bool());
    let member = leader.unwrap_or_else(|| random.usize(..3));
    let others: Vec<usize> = (0..3).filter(|other| *other != member).collect();
    let lasts = Duration::from_millis(random.u64(50..2500));
    let what = match random.u8(..16) {
        0..=3 => {
            processes.kill(member, lasts / 2).await;
            "is killed"
        }
        4..=5 => {
            processes.signal(member, "-STOP");
            sleep(lasts).await;
            processes.signal(member, "-CONT");
            "is stopped"
        }
        6 => {
            processes.signal(member, "-TERM");
            let status = processes.until_ended(member).await;
            assert!(status.success(), "member {member} ended: {status}: {}", processes.log(member));
            processes.run(member);
            "is restarted"
        }
        7..=8 => {
            let apart = if random.bool() { Apart::Held } else { Apart::Cut };
            others.iter().for_each(|other| processes.net.part(member, *other, apart));
            sleep(lasts).await;
            processes.net.join();
            "is cut off"
        }
        9 => {
            processes.net.part(member, others[0], if random.bool() { Apart::Held } else { Apart::Cut });
            sleep(lasts).await;
            processes.net.join();
            "is cut off from one"
        }
        10 => {
            let hour = 3600;
            if !processes.set_clock(member, random.i64(-24 * hour..24 * hour)) {
                return "no clock is set".to_owned();
            }
            "has its clock set"
        }
        kind @ 11.. => {
            let Some(disks) = processes.disks(member) else { return "no disk has a fault".to_owned() };
            match kind {
                11 => {
                    let frozen = Frozen::new(disks.data.path().to_owned()).expect("it is frozen");
                    sleep(lasts).await;
                    drop(frozen);
                    "has a disk that stalls"
                }
                12 => {
                    let frozen = Frozen::new(disks.log.path().to_owned()).expect("it is frozen");
                    sleep(lasts).await;
                    drop(frozen);
                    "has a log device that stalls"
                }
                13 => {
                    disks.log.lose().expect("it is lost");
                    sleep(lasts).await;
                    processes.stop(member).await;
                    processes.disks(member).expect("it has its own").log.recover().expect("it is there again");
                    processes.run(member);
                    "loses a log device"
                }
                _ => {
                    let full = Full::new(disks.data.path()).expect("it is full");
                    // So much is put that its database has to grow, but not so much that many such faults fill it for good.
                    let ends = Instant::now() + lasts;
                    let mut client = Client::over(processes.channel(others[0]));
                    let put = pb::PutRequest { key: b"large".to_vec(), value: vec![1; 50_000], ..Default::default() };
                    for _ in 0..80 {
                        if Instant::now() >= ends || processes.has_ended(member) {
                            break;
                        }
                        answered(client.kv.put(put.clone())).await;
                    }
                    sleep_until(ends).await;
                    drop(full);
                    match processes.run_if_ended(member) {
                        true => "has a full disk, and ends",
                        false => "has a full disk",
                    }
                }
            }
        }
    };
    format!("member {member}{} {what} ({} ms)", if leader.is_some() { ", which leads," } else { "" }, lasts.as_millis())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_clients_see_under_faults_could_have_happened_in_turn() {
    let (faults, seed) = (number("FAULTS", 10), number("SEED", fastrand::u64(..1 << 32)));
    println!("FAULTS={faults} SEED={seed}");
    let mut random = Rng::with_seed(seed);
    let mut processes = Processes::start_with_disks_and_clocks().await;
    let run = Arc::new(Run {
        endpoints: (0..3).map(|member| processes.endpoint(member)).collect(),
        moment: AtomicU64::new(1),
        number: AtomicU64::new(1),
        done: AtomicU64::new(0),
        is_over: AtomicBool::new(false),
        operations: Mutex::default(),
        revisions: Mutex::default(),
    });
    let clients: Vec<_> =
        (0..CLIENTS).map(|number| tokio::spawn(work(Arc::clone(&run), seed.wrapping_add(number)))).collect();
    let until_revision = Arc::new(AtomicU64::new(0));
    let watchers: Vec<_> =
        run.endpoints.iter().map(|url| tokio::spawn(watch(url.clone(), Arc::clone(&until_revision)))).collect();
    for number in 0..faults {
        let what = fault(&mut processes, &mut random).await;
        println!("{number}: {what}");
        // Mostly, the next one comes when the cluster has gone on.
        if random.u8(..4) > 0 {
            let done = run.done.load(SeqCst);
            until("operations go on", || async { run.done.load(SeqCst) > done + 20 }).await;
        }
    }
    run.is_over.store(true, SeqCst);
    for client in clients {
        client.await.expect("no panic");
    }

    // What was under way for a client that gave up may come later: it has no part in this.
    let mut client = Client::over(processes.channel(0));
    let all = pb::RangeRequest { key: b"list ".to_vec(), range_end: b"list!".to_vec(), ..Default::default() };
    let found = client.kv.range(all).await.expect("it serves").into_inner();
    let last_revision = found.kvs.iter().map(|row| row.mod_revision).max().expect("numbers were appended");
    let mut last: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    for row in found.kvs {
        last.insert(String::from_utf8(row.key).expect("text"), decode(&row.value));
    }
    let operations = run.operations.lock().expect("no panic").clone();
    if let Err(what) = check(&operations, &last) {
        panic!("SEED={seed}: {what}");
    }
    check_revisions(&run.revisions.lock().expect("no panic"), seed);
    let appended: usize = last.values().map(Vec::len).sum();
    println!("{} operations, {appended} appends, {} lists", operations.len(), last.len());

    until_revision.store(last_revision as u64, SeqCst);
    let mut seen = Vec::new();
    for watcher in watchers {
        seen.push(timeout(crate::common::PATIENCE, watcher).await.expect("events come").expect("no panic"));
    }
    let again = watch(processes.endpoint(1), Arc::clone(&until_revision)).await;
    assert!(seen.iter().all(|events| *events == again), "SEED={seed}: watchers saw other events");
    let revisions: BTreeSet<i64> = again.iter().map(|(revision, _, _)| *revision).collect();
    assert_eq!((revisions.len(), appended), (again.len(), again.len()), "SEED={seed}: each append is one event");
    let mut hashes = BTreeSet::new();
    for member in 0..3 {
        let mut client = Client::over(processes.channel(member));
        let read = pb::RangeRequest { key: b"list".to_vec(), ..Default::default() };
        client.kv.range(read).await.expect("it serves");
        let request = pb::HashKvRequest { revision: last_revision };
        hashes.insert(client.maintenance.hash_kv(request).await.expect("it is computed").into_inner().hash);
    }
    assert_eq!(hashes.len(), 1, "SEED={seed}: members have other rows");
}

/// No operation has a lower revision than one that had ended before it began.
fn check_revisions(revisions: &[(u64, u64, i64)], seed: u64) {
    let mut ends: Vec<(u64, i64)> = revisions.iter().map(|(_, end, revision)| (*end, *revision)).collect();
    ends.sort_unstable();
    let mut most = 0;
    for (_, revision) in &mut ends {
        most = most.max(*revision);
        *revision = most;
    }
    for (begin, _, revision) in revisions {
        let before = ends.partition_point(|(end, _)| end < begin);
        let at_least = before.checked_sub(1).map_or(0, |at| ends[at].1);
        assert!(*revision >= at_least, "SEED={seed}: revision {revision} after {at_least}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_rolling_restart_fails_no_write() {
    let mut processes = Processes::start().await;
    let is_over = Arc::new(AtomicBool::new(false));
    let writing = {
        let is_over = Arc::clone(&is_over);
        let channels: Vec<_> = (0..3).map(|member| processes.channel(member)).collect();
        tokio::spawn(async move {
            let mut written = 0u64;
            let mut at = 0;
            while !is_over.load(SeqCst) {
                let put =
                    pb::PutRequest { key: b"key".to_vec(), value: encode(&[written]).into(), ..Default::default() };
                match Client::over(channels[at].clone()).kv.put(put).await {
                    Ok(_) => written += 1,
                    // As etcd's clients: another member is asked if this one certainly did not get it.
                    Err(status) if was_not_sent(&status) => at = (at + 1) % 3,
                    Err(status) => panic!("write {written}: {status:?}"),
                }
            }
            written
        })
    };
    for member in 0..3 {
        sleep(Duration::from_millis(300)).await;
        processes.signal(member, "-TERM");
        let status = processes.until_ended(member).await;
        assert!(status.success(), "{status}: {}", processes.log(member));
        processes.run(member);
        let mut client = Client::over(processes.channel(member));
        until("it serves again", || {
            let mut client = client.clone();
            let read = pb::RangeRequest { key: b"key".to_vec(), ..Default::default() };
            async move { client.kv.range(read).await.is_ok() }
        })
        .await;
        client.get("key").await;
    }
    is_over.store(true, SeqCst);
    let written = writing.await.expect("no write fails");
    let mut client = Client::over(processes.channel(0));
    assert_eq!(client.get("key").await.map(|value| decode(&value)), Some(vec![written - 1]));
}

/// Whether a request certainly was not sent: there was no connection, or it was closed before.
fn was_not_sent(status: &Status) -> bool {
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let is_canceled = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        if is_canceled || error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}
