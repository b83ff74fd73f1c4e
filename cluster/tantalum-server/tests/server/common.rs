//! A server in this process, and clients of it.

use std::path::Path;
use std::time::Duration;

use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::api::etcdserverpb::cluster_client::ClusterClient;
use tantalum_server::api::etcdserverpb::kv_client::KvClient;
use tantalum_server::api::etcdserverpb::lease_client::LeaseClient;
use tantalum_server::api::etcdserverpb::maintenance_client::MaintenanceClient;
use tantalum_server::api::etcdserverpb::watch_client::WatchClient;
use tantalum_server::api::v3electionpb::election_client::ElectionClient;
use tantalum_server::api::v3lockpb::lock_client::LockClient;
use tantalum_server::{Node, NodeOptions, serve};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// A node that serves.
pub struct Server {
    pub node: Node,
    pub address: String,
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

/// Small, so that requests are cut and logs go round.
pub fn options() -> NodeOptions {
    NodeOptions {
        raft_log_bytes: 4 << 20,
        state_log_bytes: 8 << 20,
        buffer_pool_bytes: 16 << 20,
        heartbeat_ms: 50,
        client_urls: vec!["http://here:2379".to_owned()],
        ..NodeOptions::default()
    }
}

impl Server {
    pub async fn start(directory: &Path, options: NodeOptions) -> Server {
        let node = Node::open(directory, options).await.expect("it starts");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it listens").to_string();
        let (stop, stopped) = oneshot::channel();
        let task = tokio::spawn(serve(node.clone(), listener, async move { drop(stopped.await) }));
        Server { node, address, stop, task }
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.address).await
    }

    pub async fn stop(self) {
        drop(self.stop);
        self.task.await.expect("no panic").expect("it served");
        self.node.close().await.expect("it closes");
    }
}

/// Clients of all services.
#[derive(Clone)]
pub struct Client {
    pub kv: KvClient<Channel>,
    pub watch: WatchClient<Channel>,
    pub lease: LeaseClient<Channel>,
    pub maintenance: MaintenanceClient<Channel>,
    pub cluster: ClusterClient<Channel>,
    pub lock: LockClient<Channel>,
    pub election: ElectionClient<Channel>,
    pub channel: Channel,
}

/// A watch stream.
pub struct Watching {
    pub requests: mpsc::Sender<pb::WatchRequest>,
    pub responses: Streaming<pb::WatchResponse>,
}

impl Client {
    pub async fn connect(address: &str) -> Client {
        Client::try_connect(address).await.expect("it serves")
    }

    pub async fn try_connect(address: &str) -> Result<Client, tonic::transport::Error> {
        let channel = Channel::from_shared(format!("http://{address}")).expect("an address").connect().await?;
        Ok(Client {
            kv: KvClient::new(channel.clone()).max_decoding_message_size(64 << 20),
            watch: WatchClient::new(channel.clone()),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone()),
            cluster: ClusterClient::new(channel.clone()),
            lock: LockClient::new(channel.clone()),
            election: ElectionClient::new(channel.clone()),
            channel,
        })
    }

    /// Puts. Returns the revision.
    pub async fn put(&mut self, key: &str, value: impl Into<Vec<u8>>) -> i64 {
        let request = pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() };
        revision(&self.kv.put(request).await.expect("it is put").into_inner().header)
    }

    pub async fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let request = pb::RangeRequest { key: key.into(), ..Default::default() };
        self.kv.range(request).await.expect("it is read").into_inner().kvs.pop().map(|found| found.value)
    }

    pub async fn delete(&mut self, key: &str, range_end: &str) -> i64 {
        let request = pb::DeleteRangeRequest { key: key.into(), range_end: range_end.into(), prev_kv: false };
        self.kv.delete_range(request).await.expect("it is deleted").into_inner().deleted
    }

    pub async fn watching(&mut self) -> Watching {
        self.watching_with(Vec::new()).await
    }

    /// A watch stream with its first requests, without which etcd does not answer.
    pub async fn watching_with(&mut self, first: Vec<pb::WatchCreateRequest>) -> Watching {
        let (requests, stream) = mpsc::channel(8);
        for request in first {
            let request_union = Some(pb::watch_request::RequestUnion::CreateRequest(request));
            requests.send(pb::WatchRequest { request_union }).await.expect("they are few");
        }
        let responses =
            self.watch.watch(tokio_stream::wrappers::ReceiverStream::new(stream)).await.expect("it watches");
        Watching { requests, responses: responses.into_inner() }
    }
}

impl Watching {
    pub async fn create(&self, request: pb::WatchCreateRequest) {
        self.send(pb::watch_request::RequestUnion::CreateRequest(request)).await;
    }

    pub async fn send(&self, request: pb::watch_request::RequestUnion) {
        self.requests.send(pb::WatchRequest { request_union: Some(request) }).await.expect("the stream is open");
    }

    pub async fn next(&mut self) -> pb::WatchResponse {
        let next = tokio::time::timeout(Duration::from_secs(60), self.responses.message()).await;
        next.expect("something comes").expect("the stream is whole").expect("the stream is open")
    }
}

pub fn revision(header: &Option<pb::ResponseHeader>) -> i64 {
    header.as_ref().expect("each response has one").revision
}

/// Code and message of a refusal.
pub fn refused<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, String) {
    let status = result.expect_err("it is refused");
    (status.code(), status.message().to_owned())
}
