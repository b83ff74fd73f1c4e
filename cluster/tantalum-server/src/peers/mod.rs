//! The other members: connections to them ([`Peers`]), what openraft sends them ([`network`], and entries by [`entries_stream`]), and what
//! they send here ([`service`], and entries by [`appending`]).
//!
//! Every message names cluster, sender and receiver, and is refused by a member that is not the one meant; see [`Peers::address`].

mod appending;
mod entries_stream;
mod message;
mod network;
mod service;
mod snapshot_stream;

use std::collections::{BTreeMap, BTreeSet};
use std::error::Error;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Status};

pub use message::encode as encoded;
pub use message::{LeaderAnswer, LeaderRequest};
pub use network::Network;
pub use service::serve_peers;

use crate::api::peer as pb;
use crate::api::peer::peer_client::PeerClient;
use crate::directory::Identity;
use crate::member::Member;
use message::decode;

/// Bytes of a message, at most: what is replicated at a time, a largest entry, and what surrounds them.
const MAX_MESSAGE_BYTES: usize = 16 << 20;
/// Bytes of the answer to a forwarded request, at most: a range may have many.
const MAX_ANSWER_BYTES: usize = 1 << 30;
/// Bytes that may be under way in a connection, and in one of its streams.
const WINDOW_BYTES: (u32, u32) = (8 << 20, 2 << 20);
/// So many wrong addresses are remembered, so that each is logged once.
const REMEMBERED: usize = 256;

/// What shares a connection. Heartbeats and votes never wait behind entries and snapshots.
#[derive(Clone, Copy, Debug)]
pub enum Lane {
    Heartbeats,
    Entries,
    Snapshots,
    Requests,
}

const LANES: usize = 4;

/// A member that is known, with its connections, which are made when they are needed.
struct Peer {
    urls: Vec<String>,
    /// Counts up when a URL fails.
    turn: AtomicUsize,
    channels: [Mutex<Option<(usize, Channel)>>; LANES],
}

/// The other members of the cluster, as one member knows them.
pub struct Peers {
    identity: Identity,
    connector: Connector,
    max_request_bytes: usize,
    known: Mutex<BTreeMap<u64, Arc<Peer>>>,
    /// Members have told this one that it is none any more.
    removed: watch::Sender<bool>,
    misdirected: Mutex<BTreeSet<(u64, u64, u64)>>,
    /// When the leader last sent something that was taken.
    heard: Mutex<Option<Instant>>,
}

/// A member did not answer.
#[derive(Debug)]
pub enum NoAnswer {
    /// Certainly it did nothing.
    DidNothing,
    /// It may have done what it was asked to.
    Unknown,
}

impl From<Status> for NoAnswer {
    fn from(status: Status) -> NoAnswer {
        // Members refuse with these codes before they begin anything.
        let is_refused =
            matches!(status.code(), Code::FailedPrecondition | Code::InvalidArgument | Code::Unimplemented);
        if is_refused || was_not_sent(&status) { NoAnswer::DidNothing } else { NoAnswer::Unknown }
    }
}

/// Whether a message certainly was not sent: no connection could be made, or the one that it waited for was closed before.
fn was_not_sent(status: &Status) -> bool {
    let mut cause = status.source();
    while let Some(error) = cause {
        let is_canceled = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_canceled);
        if is_canceled || error.is::<tonic::ConnectError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

/// How other members are reached.
#[derive(Clone)]
pub struct Connector {
    /// A member that does not answer for so long is tried anew.
    pub patience: Duration,
    pub tls: Option<ClientTlsConfig>,
}

impl Connector {
    fn connect(&self, url: &str) -> Result<Channel, Status> {
        let Connector { patience, ref tls } = *self;
        let refuse = |what: String| Status::unavailable(format!("{url}: {what}"));
        let mut endpoint =
            Endpoint::from_shared(url.to_owned()).map_err(|error| refuse(format!("not a URL of a member: {error}")))?;
        // Nothing goes out unencrypted that should not.
        crate::tls::check_scheme([&url.to_owned()], tls.is_some()).map_err(|error| refuse(error.to_string()))?;
        if let Some(tls) = tls {
            endpoint = endpoint.tls_config(tls.clone()).map_err(|error| refuse(error.to_string()))?;
        }
        let endpoint = endpoint
            .connect_timeout(patience)
            .tcp_nodelay(true)
            .http2_keep_alive_interval(patience)
            .keep_alive_timeout(patience)
            .keep_alive_while_idle(true)
            .initial_connection_window_size(WINDOW_BYTES.0)
            .initial_stream_window_size(WINDOW_BYTES.1);
        Ok(endpoint.connect_lazy())
    }
}

impl Peer {
    fn new(urls: Vec<String>) -> Peer {
        Peer { urls, turn: AtomicUsize::new(0), channels: Default::default() }
    }

    fn channel(&self, lane: Lane, connector: &Connector) -> Result<Channel, Status> {
        let turn = self.turn.load(Ordering::Relaxed);
        let mut held = locked(&self.channels[lane as usize]);
        if let Some((made_at, channel)) = &*held
            && (*made_at == turn || self.urls.len() == 1)
        {
            return Ok(channel.clone());
        }
        let url = self.urls.get(turn % self.urls.len().max(1));
        let channel = connector.connect(url.ok_or_else(|| Status::unavailable("the member has no peer URL"))?)?;
        *held = Some((turn, channel.clone()));
        Ok(channel)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No panic leaves what is behind these half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Peers {
    pub fn new(identity: Identity, connector: Connector, max_request_bytes: usize) -> Peers {
        let removed = watch::Sender::new(false);
        let (known, misdirected, heard) = Default::default();
        Peers { identity, connector, max_request_bytes, known, removed, misdirected, heard }
    }

    /// A message that is received has so many bytes, at most.
    fn max_message_bytes(&self) -> usize {
        MAX_MESSAGE_BYTES.max(self.max_request_bytes.saturating_add(1 << 20))
    }

    /// A member is reached at its URLs from now on.
    pub fn learn(&self, id: u64, member: &Member) {
        let mut known = locked(&self.known);
        if known.get(&id).is_none_or(|peer| peer.urls != member.peer_urls) {
            known.insert(id, Arc::new(Peer::new(member.peer_urls.clone())));
        }
    }

    /// Forgets those that are no members.
    pub fn keep_only(&self, is_member: impl Fn(u64) -> bool) {
        locked(&self.known).retain(|id, _| is_member(*id));
    }

    fn client(&self, id: u64, lane: Lane) -> Result<PeerClient<Channel>, Status> {
        let peer = locked(&self.known).get(&id).cloned();
        let peer = peer.ok_or_else(|| Status::unavailable(format!("member {id:x} is not known here")))?;
        let client = PeerClient::new(peer.channel(lane, &self.connector)?);
        Ok(client.max_decoding_message_size(MAX_ANSWER_BYTES).max_encoding_message_size(usize::MAX))
    }

    /// A URL of a member did not answer: the next one is tried.
    fn failed(&self, id: u64) {
        if let Some(peer) = locked(&self.known).get(&id) {
            peer.turn.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn address(&self, to: u64) -> Option<pb::Address> {
        let Identity { member_id, cluster_id } = self.identity;
        Some(pb::Address { cluster: cluster_id, from: member_id, to })
    }

    fn message(&self, to: u64, body: Vec<u8>) -> pb::Message {
        pb::Message { address: self.address(to), body }
    }

    /// The sender of a message that is for this member.
    fn check(&self, address: Option<pb::Address>) -> Result<u64, Status> {
        let address = address.ok_or_else(|| Status::invalid_argument("a message has no address"))?;
        let Identity { member_id, cluster_id } = self.identity;
        if (address.cluster, address.to) == (cluster_id, member_id) {
            return Ok(address.from);
        }
        let pb::Address { cluster, from, to } = address;
        let what = format!(
            "this is member {member_id:x} of cluster {cluster_id:x}, and the message is for member {to:x} of cluster {cluster:x}, \
             from {from:x}; correct the URLs with which members were started, or by member update"
        );
        if self.is_news((cluster, to, from)) {
            tracing::warn!("refused a message: {what}");
        }
        Err(Status::failed_precondition(what))
    }

    /// Whether a wrong address, of a message that came or, as from this member, was sent, is noticed for the first time.
    fn is_news(&self, address: (u64, u64, u64)) -> bool {
        let mut misdirected = locked(&self.misdirected);
        misdirected.len() < REMEMBERED && misdirected.insert(address)
    }

    /// Asks the leader to do something, until a deadline.
    pub async fn forward(&self, to: u64, body: Vec<u8>, deadline: Instant) -> Result<LeaderAnswer, NoAnswer> {
        let mut client = self.client(to, Lane::Requests).map_err(|_| NoAnswer::DidNothing)?;
        let answered = timeout_at(deadline, client.forward(self.message(to, body))).await;
        let answered = answered.unwrap_or_else(|_| Err(Status::deadline_exceeded("the leader did not answer in time")));
        match answered {
            Ok(answer) => decode(&answer.into_inner().body).map_err(|_| NoAnswer::Unknown),
            Err(status) => {
                self.failed(to);
                Err(status.into())
            }
        }
    }

    /// Tells a member, of these URLs, that it is none any more. It may be gone.
    pub async fn tell_removed(&self, id: u64, member: &Member) {
        for url in &member.peer_urls {
            let Ok(channel) = self.connector.connect(url) else { continue };
            let mut client = PeerClient::new(channel);
            let told = client.removed(self.message(id, Vec::new()));
            if matches!(tokio::time::timeout(self.connector.patience, told).await, Ok(Ok(_))) {
                return;
            }
        }
    }

    fn note_heard(&self) {
        *locked(&self.heard) = Some(Instant::now());
    }

    /// Whether the leader has sent something within a time.
    pub fn has_heard_within(&self, time: Duration) -> bool {
        locked(&self.heard).is_some_and(|at| at.elapsed() < time)
    }

    /// This member is none any more.
    pub fn note_removed(&self) {
        self.removed.send_replace(true);
    }

    /// Becomes true when this member is none any more.
    pub fn removed(&self) -> watch::Receiver<bool> {
        self.removed.subscribe()
    }
}

/// The members of the cluster that a member at a URL belongs to.
pub async fn members_at(url: &str, connector: &Connector) -> Result<pb::MembersResponse, Status> {
    let mut client = PeerClient::new(connector.connect(url)?);
    let answered = tokio::time::timeout(connector.patience, client.members(pb::MembersRequest {})).await;
    let answered = answered.map_err(|_| Status::deadline_exceeded("it did not answer in time"))?;
    answered.map(tonic::Response::into_inner)
}
