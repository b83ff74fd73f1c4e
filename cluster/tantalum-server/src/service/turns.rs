//! Turns: keys under a prefix, of which the one that was made first has its turn. Locks and elections are made of them, as in etcd's
//! package `concurrency`, so that its clients and these services can wait for each other.

use tokio::sync::watch;
use tonic::Status;

use super::kv::unexpected;
use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::compare::{CompareResult, CompareTarget, TargetUnion};
use crate::api::etcdserverpb::request_op::Request;
use crate::api::etcdserverpb::response_op::Response;
use crate::api::mvccpb::KeyValue;
use crate::command::{Answer, Command, Encoded};
use crate::feed::Found;
use crate::mvcc::{Event, Fetch, Keys, View};
use crate::node::Node;
use crate::refusal::Refusal;

/// Seconds that a lease lives that is made for a caller without one, as in etcd.
const TTL_S: i64 = 60;

/// The turns under a name, at a node.
#[derive(Clone)]
pub struct Turns {
    node: Node,
    prefix: Vec<u8>,
}

/// A key that waits for its turn, or has it.
#[derive(Clone, Debug)]
pub struct Turn {
    pub key: Vec<u8>,
    /// The revision that made the key.
    pub created: i64,
    pub lease: i64,
}

/// Gives up a turn when it is dropped, unless it is kept: its caller is gone.
struct GivesUp(Option<(Node, Turn)>);

impl Drop for GivesUp {
    fn drop(&mut self) {
        if let Some((node, turn)) = self.0.take() {
            tokio::spawn(async move {
                // If it fails, the key goes with its lease.
                let _ = turn.end(&node).await;
            });
        }
    }
}

/// The header's revision.
fn revision(header: &Option<pb::ResponseHeader>) -> i64 {
    header.as_ref().map_or(0, |header| header.revision)
}

/// What etcd's services tell when the client that they are made of fails: its message, without its code.
pub fn as_told(status: Status) -> Status {
    Status::unknown(status.message())
}

fn operation(request: Request) -> pb::RequestOp {
    pb::RequestOp { request: Some(request) }
}

/// Whether a key was made by a revision; by 0, whether it is not there.
fn was_created(key: &[u8], revision: i64) -> pb::Compare {
    pb::Compare {
        result: CompareResult::Equal as i32,
        target: CompareTarget::Create as i32,
        key: key.to_vec(),
        target_union: Some(TargetUnion::CreateRevision(revision)),
        range_end: Vec::new(),
    }
}

async fn run(node: &Node, request: pb::TxnRequest) -> Result<pb::TxnResponse, Status> {
    super::check::txn(&request, node.options().max_txn_operations)?;
    match node.propose(Command::Txn(Encoded(request))).await? {
        Answer::Txn(Encoded(mut response)) => {
            response.header = node.complete(response.header);
            Ok(response)
        }
        other => Err(unexpected(&other)),
    }
}

impl Turn {
    /// Sets the value of the key, if it is still the same. Returns the header, and whether it was.
    pub async fn set(&self, node: &Node, value: &[u8]) -> Result<(Option<pb::ResponseHeader>, bool), Status> {
        let put =
            pb::PutRequest { key: self.key.clone(), value: value.to_vec(), lease: self.lease, ..Default::default() };
        self.change(node, Request::RequestPut(put)).await
    }

    /// Deletes the key, if it is still the same. Returns the header.
    pub async fn end(&self, node: &Node) -> Result<Option<pb::ResponseHeader>, Status> {
        let delete = pb::DeleteRangeRequest { key: self.key.clone(), ..Default::default() };
        Ok(self.change(node, Request::RequestDeleteRange(delete)).await?.0)
    }

    async fn change(&self, node: &Node, request: Request) -> Result<(Option<pb::ResponseHeader>, bool), Status> {
        let compare = vec![was_created(&self.key, self.created)];
        let done = run(node, pb::TxnRequest { compare, success: vec![operation(request)], failure: vec![] }).await?;
        Ok((done.header, done.succeeded))
    }
}

impl Turns {
    /// The turns under a name.
    pub fn new(node: Node, name: &[u8]) -> Turns {
        Turns { node, prefix: [name, b"/"].concat() }
    }

    fn keys(&self) -> Keys {
        // A prefix ends with '/', after which '0' comes.
        let end = [&self.prefix[..self.prefix.len() - 1], b"0"].concat();
        Keys::new(&self.prefix, &end)
    }

    /// The lease that a caller brings, or a new one if it is 0.
    async fn lease(&self, lease: i64) -> Result<i64, Status> {
        if lease != 0 {
            return Ok(lease);
        }
        let id = fastrand::i64(1..);
        let ttl_s = TTL_S.max(self.node.options().min_lease_ttl_s());
        match self.node.propose(Command::LeaseGrant { id, ttl_s }).await? {
            Answer::Done { .. } => Ok(id),
            other => Err(unexpected(&other)),
        }
    }

    /// Makes the key of a lease with a value, or finds it, and waits until it is its turn. A caller that goes away gives it up. Returns
    /// also the last header.
    ///
    /// # Errors
    /// Those of the requests; when the node stops.
    pub async fn take(
        &self,
        lease: i64,
        value: &[u8],
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<(Turn, Option<pb::ResponseHeader>), Status> {
        let lease = self.lease(lease).await?;
        let key = [&self.prefix[..], format!("{lease:x}").as_bytes()].concat();
        let put = pb::PutRequest { key: key.clone(), value: value.to_vec(), lease, ..Default::default() };
        let get = pb::RangeRequest { key: key.clone(), ..Default::default() };
        let request = pb::TxnRequest {
            compare: vec![was_created(&key, 0)],
            success: vec![operation(Request::RequestPut(put))],
            failure: vec![operation(Request::RequestRange(get))],
        };
        let made = run(&self.node, request).await?;
        let before = made.responses.into_iter().find_map(|response| match response.response {
            Some(Response::ResponseRange(found)) => found.kvs.into_iter().next(),
            _ => None,
        });
        let created = before.as_ref().map_or(revision(&made.header), |before| before.create_revision);
        let turn = Turn { key, created, lease };
        let mut gives_up = GivesUp(Some((self.node.clone(), turn.clone())));
        if before.is_some_and(|before| before.value != value) {
            turn.set(&self.node, value).await?;
        }
        let waited = self.wait(&turn, stopped).await?;
        gives_up.0 = None;
        Ok((turn, waited.or(made.header)))
    }

    /// Waits until no key is there that was made before. Returns a header, if that was not so at once.
    async fn wait(
        &self,
        turn: &Turn,
        stopped: &mut watch::Receiver<bool>,
    ) -> Result<Option<pb::ResponseHeader>, Status> {
        let (keys, created) = (self.keys(), turn.created);
        let mut header = None;
        loop {
            let of = keys.clone();
            let last_before = move |view: View<'_>| {
                let found = view.range(&of, 0, Fetch::Keys)?.key_values.into_iter();
                let before = found.filter(|row| row.create_revision < created);
                Ok((view.revision()?, before.max_by_key(|row| row.create_revision)))
            };
            let (at, before) = self.node.read(last_before).await?;
            let Some(before) = before else { return Ok(header) };
            self.until_deleted(&before.key, at, stopped).await?;
            header = self.node.header(self.node.feed().revision());
        }
    }

    /// Waits until a key that is there at a revision is deleted.
    async fn until_deleted(&self, key: &[u8], at: i64, stopped: &mut watch::Receiver<bool>) -> Result<(), Status> {
        let mut events = Events::new(self.node.clone(), Keys::single(key), at + 1);
        loop {
            match events.next(stopped).await? {
                Some(found) if !found.iter().any(|event| event.is_delete) => {}
                // If they are given up, the store shows what came of them.
                Some(_) | None => return Ok(()),
            }
        }
    }

    /// The events of all keys under the name, from a revision on.
    pub fn events(&self, from: i64) -> Events {
        Events::new(self.node.clone(), self.keys(), from)
    }

    /// The key whose turn it is, and the store's revision.
    pub async fn first(&self) -> Result<(i64, Option<KeyValue>), Status> {
        let keys = self.keys();
        let first = move |view: View<'_>| {
            let found = view.range(&keys, 0, Fetch::Keys)?.key_values.into_iter();
            let first = found.min_by_key(|row| row.create_revision);
            let first = first.map_or(Ok(None), |row| view.get(&row.key))?;
            Ok((view.revision()?, first))
        };
        self.node.read(first).await
    }
}

/// The events of some keys, as they come.
pub struct Events {
    node: Node,
    keys: Keys,
    next: i64,
}

impl Events {
    fn new(node: Node, keys: Keys, next: i64) -> Events {
        Events { node, keys, next }
    }

    /// Waits for the next events, which may be none. `None` if they are given up by compaction.
    ///
    /// # Errors
    /// When the store cannot be read; when the node stops.
    pub async fn next(&mut self, stopped: &mut watch::Receiver<bool>) -> Result<Option<Vec<Event>>, Status> {
        let mut revisions = self.node.feed().subscribe();
        let from = self.next;
        let to = tokio::select! {
            reached = revisions.wait_for(|revision| *revision >= from) => reached.map(|revision| *revision).ok(),
            _ = stopped.wait_for(|stopped| *stopped) => None,
        };
        match self.node.events(from, to.ok_or(Refusal::Stopped)?).await? {
            Found::Events(batch) => {
                self.next = batch.to + 1;
                let wanted = |event: &&Event| event.revision.main >= from && self.keys.contains(&event.key_value.key);
                Ok(Some(batch.events.iter().filter(wanted).cloned().collect()))
            }
            Found::Compacted(_) => Ok(None),
        }
    }
}
