//! The gRPC server of a node.

use std::future::Future;
use std::io;

use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::api::etcdserverpb::cluster_server::ClusterServer;
use crate::api::etcdserverpb::kv_server::KvServer;
use crate::api::etcdserverpb::lease_server::LeaseServer;
use crate::api::etcdserverpb::maintenance_server::MaintenanceServer;
use crate::api::etcdserverpb::watch_server::WatchServer;
use crate::node::Node;
use crate::service::{Auth, Cluster, Kv, Lease, Maintenance};
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
    Server::builder()
        .tcp_nodelay(true)
        .add_service(KvServer::new(Kv::new(node.clone())).max_decoding_message_size(limit))
        .add_service(WatchServer::new(Watch::new(node.clone(), stopped.clone())))
        .add_service(LeaseServer::new(Lease::new(node.clone(), stopped)))
        .add_service(MaintenanceServer::new(Maintenance::new(node.clone())))
        .add_service(ClusterServer::new(Cluster::new(node)))
        .add_service(Auth)
        .serve_with_incoming_shutdown(TcpListenerStream::new(listener), stop)
        .await
        .map_err(io::Error::other)
}
