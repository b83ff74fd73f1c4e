//! What other members send here.

use std::future::Future;
use std::io;

use openraft::alias::{SnapshotMetaOf, SnapshotOf, VoteOf};
use openraft::raft::VoteRequest;
use openraft::type_config::async_runtime::WatchReceiver;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status, Streaming};

use super::message::{LeaderRequest, decode, encode};
use super::{WINDOW_BYTES, appending, snapshot_stream};
use crate::api::peer as pb;
use crate::api::peer::peer_server::{Peer, PeerServer};
use crate::command::Config;
use crate::node::Node;
use crate::refusal::Refusal;

/// Serves the other members of a node's cluster at `listener`, until `stop` is ready.
///
/// ```no_run
/// # async fn run() -> std::io::Result<()> {
/// use tantalum_server::{Bootstrap, ClusterConfig, Node, NodeOptions, serve_peers};
///
/// let cluster = ClusterConfig::from_flag("a=http://10.0.0.1:2380,b=http://10.0.0.2:2380,c=http://10.0.0.3:2380", "token")?;
/// let options = NodeOptions { name: "a".to_owned(), bootstrap: Bootstrap::New(cluster), ..NodeOptions::default() };
/// let listener = tokio::net::TcpListener::bind("10.0.0.1:2380").await?;
/// let node = Node::open("member", options).await?;
/// serve_peers(node, listener, std::future::pending()).await
/// # }
/// ```
///
/// # Errors
/// Those of the listener.
pub async fn serve_peers(node: Node, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
    let limit = node.peers().max_message_bytes();
    let patience = node.options().election_timeout();
    let (stopping, stopped) = watch::channel(false);
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let mut server = Server::builder();
    if let Some(tls) = node.peer_tls() {
        server = server.tls_config(tls).map_err(io::Error::other)?;
    }
    server
        .http2_keepalive_interval(Some(patience))
        .http2_keepalive_timeout(Some(patience))
        .initial_connection_window_size(WINDOW_BYTES.0)
        .initial_stream_window_size(WINDOW_BYTES.1)
        .add_service(PeerServer::new(Service { node, stopped }).max_decoding_message_size(limit))
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), stop)
        .await
        .map_err(io::Error::other)
}

/// The service, of a node.
struct Service {
    node: Node,
    /// Streams of entries end when it is true.
    stopped: watch::Receiver<bool>,
}

fn answer(value: &impl serde::Serialize) -> Result<Response<pb::Answer>, Status> {
    Ok(Response::new(pb::Answer { body: encode(value)? }))
}

pub(super) fn failed(error: impl std::fmt::Display) -> Status {
    Status::unavailable(format!("raft has stopped on this member: {error}"))
}

impl Service {
    /// Sender and contents of a message that is for this member.
    fn open<T: serde::de::DeserializeOwned>(&self, request: Request<pb::Message>) -> Result<(u64, T), Status> {
        let message = request.into_inner();
        let from = self.node.peers().check(message.address)?;
        Ok((from, decode(&message.body)?))
    }

    /// Tells a member that it was removed, if that is certain: the membership without it is committed, and later than all that it has.
    /// Numbers are not given again.
    fn refuse_removed(&self, from: u64, request: &VoteRequest<Config>) -> Result<(), Status> {
        let metrics = self.node.raft().metrics();
        let members = metrics.borrow_watched().committed_membership_config.clone();
        let is_member = members.membership().get_node(&from).is_some();
        match is_member || members.log_id().is_none() || request.last_log_id >= *members.log_id() {
            true => Ok(()),
            false => Err(Status::permission_denied(format!("member {from:x} was removed from the cluster"))),
        }
    }
}

#[tonic::async_trait]
impl Peer for Service {
    type AppendStreamStream = ReceiverStream<Result<pb::Answer, Status>>;

    async fn append(&self, request: Request<pb::Entries>) -> Result<Response<pb::Answer>, Status> {
        Ok(Response::new(appending::append(&self.node, request.into_inner()).await?))
    }

    async fn append_stream(
        &self,
        request: Request<Streaming<pb::Entries>>,
    ) -> Result<Response<Self::AppendStreamStream>, Status> {
        Ok(Response::new(appending::append_all(self.node.clone(), request.into_inner(), self.stopped.clone())))
    }

    async fn vote(&self, request: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        let (from, request) = self.open(request)?;
        self.refuse_removed(from, &request)?;
        answer(&self.node.raft().vote(request).await.map_err(failed)?)
    }

    async fn pre_vote(&self, request: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        let (from, request) = self.open(request)?;
        self.refuse_removed(from, &request)?;
        answer(&self.node.raft().pre_vote(request).await.map_err(failed)?)
    }

    async fn transfer_leader(&self, request: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        let (_, request) = self.open(request)?;
        let handled = self.node.raft().handle_transfer_leader(request).await;
        answer(&handled.map_err(|_| Status::from(Refusal::Stopped))?)
    }

    async fn install_snapshot(
        &self,
        request: Request<Streaming<pb::SnapshotPart>>,
    ) -> Result<Response<pb::Answer>, Status> {
        let mut parts = request.into_inner();
        let first = parts.message().await?.ok_or_else(|| Status::invalid_argument("a snapshot has no first part"))?;
        self.node.peers().check(first.address)?;
        let (vote, meta): (VoteOf<Config>, SnapshotMetaOf<Config>) = decode(&first.head)?;
        let (rows, received) = snapshot_stream::receive();
        while let Some(part) = parts.message().await? {
            if rows.send(part.rows).await.is_err() {
                // It is refused already.
                break;
            }
        }
        drop(rows);
        let received = received.await.map_err(|error| Status::internal(error.to_string()))?;
        let snapshot = received.map_err(|error| Status::aborted(error.to_string()))?;
        let snapshot = SnapshotOf::<Config, _> { meta, snapshot };
        answer(&self.node.raft().install_full_snapshot(vote, snapshot).await.map_err(failed)?)
    }

    async fn forward(&self, request: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        let (_, request): (_, LeaderRequest) = self.open(request)?;
        // What was begun is finished also if the member that asks is gone.
        let node = self.node.clone();
        let led = tokio::spawn(async move { node.lead_until_timeout(request).await });
        answer(&led.await.map_err(|error| Status::internal(error.to_string()))?)
    }

    async fn removed(&self, request: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        self.node.peers().check(request.into_inner().address)?;
        self.node.peers().note_removed();
        Ok(Response::new(pb::Answer::default()))
    }

    async fn members(&self, _request: Request<pb::MembersRequest>) -> Result<Response<pb::MembersResponse>, Status> {
        let members = self.node.listed_members().into_iter().map(|listed| pb::Member {
            id: listed.id,
            name: listed.member.name,
            peer_urls: listed.member.peer_urls,
            client_urls: listed.member.client_urls,
        });
        Ok(Response::new(pb::MembersResponse { cluster: self.node.identity().cluster_id, members: members.collect() }))
    }
}
