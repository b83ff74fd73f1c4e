//! The gRPC server of a node, and the service that it refuses as a whole.

use std::convert::Infallible;
use std::future::{Future, Ready, ready};
use std::io;
use std::task::{Context, Poll};

use http::{Request, Response};
use tokio::net::TcpListener;
use tonic::Status;
use tonic::body::Body;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::service::InterceptorLayer;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tower_service::Service;

use crate::api::etcdserverpb::cluster_server::ClusterServer;
use crate::api::etcdserverpb::kv_server::KvServer;
use crate::api::etcdserverpb::lease_server::LeaseServer;
use crate::api::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::api::etcdserverpb::watch_server::WatchServer;
use crate::api::v3electionpb::election_server::ElectionServer;
use crate::api::v3lockpb::lock_server::LockServer;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::service::{Cluster, Election, Kv, Lease, Lock, Maintenance};
use crate::watch::Watch;

/// What a message may have beyond a request.
const OVERHEAD_BYTES: usize = 512 << 10;

/// Serves etcd's v3 API of a node at `listener`, until `stop` is ready; then waits for requests that are under way. Streams end with
/// the connection.
///
/// # Errors
/// Those of the listener.
pub async fn serve(node: Node, listener: TcpListener, stop: impl Future<Output = ()>) -> io::Result<()> {
    let limit = node.options().max_request_bytes.saturating_add(OVERHEAD_BYTES);
    let (stopping, stopped) = tokio::sync::watch::channel(false);
    let stop = async move {
        stop.await;
        stopping.send_replace(true);
    };
    let of = node.clone();
    let with_leader = InterceptorLayer::new(move |request: tonic::Request<()>| {
        match requires_leader(request.metadata()) && !of.has_leader() {
            true => Err(Refusal::NoLeader.into()),
            false => Ok(request),
        }
    });
    let mut server = Server::builder();
    if let Some(tls) = node.client_tls() {
        server = server.tls_config(tls).map_err(io::Error::other)?;
    }
    server
        .layer(with_leader)
        .add_service(KvServer::new(Kv::new(node.clone())).max_decoding_message_size(limit))
        .add_service(WatchServer::new(Watch::new(node.clone(), stopped.clone())))
        .add_service(LeaseServer::new(Lease::new(node.clone(), stopped.clone())))
        .add_service(LockServer::new(Lock::new(node.clone(), stopped.clone())))
        .add_service(ElectionServer::new(Election::new(node.clone(), stopped)))
        .add_service(MaintenanceServer::new(Maintenance::new(node.clone())))
        .add_service(ClusterServer::new(Cluster::new(node)))
        .add_service(Auth)
        .serve_with_incoming_shutdown(TcpIncoming::from(listener).with_nodelay(Some(true)), stop)
        .await
        .map_err(io::Error::other)
}

/// Whether a client wants no answer of a member that has no leader: etcd's clients say so beside their requests.
pub(crate) fn requires_leader(metadata: &MetadataMap) -> bool {
    metadata.get("hasleader").is_some_and(|value| value == "true")
}

/// Auth: there are no users, roles and tokens, so every call is refused, with etcd's own message.
#[derive(Clone)]
struct Auth;

impl NamedService for Auth {
    const NAME: &'static str = "etcdserverpb.Auth";
}

impl Service<Request<Body>> for Auth {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let refusal = match request.uri().path() {
            "/etcdserverpb.Auth/Authenticate" => Refusal::AuthNotEnabled,
            _ => Refusal::NotCapable,
        };
        ready(Ok(Status::from(refusal).into_http()))
    }
}
