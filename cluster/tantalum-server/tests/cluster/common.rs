//! Clusters in this process, and clients of their members.

use std::collections::BTreeMap;
use std::future::Future;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::time::Duration;

use tantalum_server::api::etcdserverpb as pb;
use tantalum_server::api::etcdserverpb::cluster_client::ClusterClient;
use tantalum_server::api::etcdserverpb::kv_client::KvClient;
use tantalum_server::api::etcdserverpb::lease_client::LeaseClient;
use tantalum_server::api::etcdserverpb::maintenance_client::MaintenanceClient;
use tantalum_server::api::etcdserverpb::watch_client::WatchClient;
use tantalum_server::{Bootstrap, ClusterConfig, Node, NodeOptions, serve, serve_peers};
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// Nothing takes longer.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Small, so that requests are cut and logs go round.
pub fn options() -> NodeOptions {
    NodeOptions {
        raft_log_bytes: 4 << 20,
        state_log_bytes: 8 << 20,
        buffer_pool_bytes: 8 << 20,
        heartbeat_ms: 100,
        client_urls: vec!["http://here:2379".to_owned()],
        ..NodeOptions::default()
    }
}

/// Waits until something holds.
pub async fn until<F: Future<Output = bool>>(what: &str, mut holds: impl FnMut() -> F) {
    let waited = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waited).await.unwrap_or_else(|_| panic!("it never comes: {what}"));
}

/// A port that nothing of this machine listens at, and that no other caller here gets: below those of outgoing connections.
pub fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    loop {
        let from_pid = std::process::id().wrapping_mul(97) as u16;
        let port = 10_000 + from_pid.wrapping_add(NEXT.fetch_add(1, SeqCst)) % 20_000;
        if std::net::TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// What runs until it is stopped.
struct Serving {
    stop: oneshot::Sender<()>,
    task: JoinHandle<std::io::Result<()>>,
}

impl Serving {
    fn start<F: Future<Output = std::io::Result<()>> + Send + 'static>(
        serve: impl FnOnce(oneshot::Receiver<()>) -> F,
    ) -> Serving {
        let (stop, stopped) = oneshot::channel();
        Serving { stop, task: tokio::spawn(serve(stopped)) }
    }

    async fn stop(self) {
        drop(self.stop);
        let served = tokio::time::timeout(PATIENCE, self.task).await.expect("connections end");
        served.expect("no panic").expect("it served");
    }
}

/// A member that runs.
pub struct Running {
    pub node: Node,
    pub address: String,
    port: u16,
    clients: Serving,
    /// `None` while others do not reach it.
    peers: Option<Serving>,
}

impl Running {
    pub async fn start(directory: PathBuf, port: u16, options: NodeOptions) -> std::io::Result<Running> {
        let peers = TcpListener::bind(("127.0.0.1", port)).await?;
        let clients = TcpListener::bind("127.0.0.1:0").await?;
        let address = clients.local_addr()?.to_string();
        let node = Node::open(directory, options).await?;
        let of = node.clone();
        let clients = Serving::start(|stopped| serve(of, clients, async move { drop(stopped.await) }));
        let mut running = Running { node, address, port, clients, peers: None };
        running.serve_peers(peers);
        Ok(running)
    }

    fn serve_peers(&mut self, listener: TcpListener) {
        let node = self.node.clone();
        self.peers = Some(Serving::start(|stopped| serve_peers(node, listener, async move { drop(stopped.await) })));
    }

    /// Has no other member reach it.
    pub async fn cut_off(&mut self) {
        self.peers.take().expect("it is reached").stop().await;
    }

    pub async fn reach_again(&mut self) {
        self.serve_peers(TcpListener::bind(("127.0.0.1", self.port)).await.expect("it is free still"));
    }

    pub fn id(&self) -> u64 {
        self.node.identity().member_id
    }

    pub async fn client(&self) -> Client {
        Client::connect(&self.address).await
    }

    /// Ends the member without handing over what it leads.
    pub async fn crash(self) {
        self.clients.stop().await;
        if let Some(peers) = self.peers {
            peers.stop().await;
        }
        self.node.close().await.expect("it closes");
    }
}

/// A cluster with members by their names.
pub struct Cluster {
    pub directory: TempDir,
    pub config: ClusterConfig,
    pub ports: BTreeMap<String, u16>,
    pub running: BTreeMap<String, Running>,
}

impl Cluster {
    /// Starts a cluster of these members.
    pub async fn start(names: &[&str]) -> Cluster {
        Cluster::start_with(names, &options()).await
    }

    pub async fn start_with(names: &[&str], options: &NodeOptions) -> Cluster {
        let mut ports = BTreeMap::new();
        let mut members = BTreeMap::new();
        for name in names {
            let port = free_port();
            ports.insert((*name).to_owned(), port);
            members.insert((*name).to_owned(), vec![format!("http://127.0.0.1:{port}")]);
        }
        let config = ClusterConfig { token: "test".to_owned(), members };
        let directory = tempfile::tempdir().expect("a directory");
        let mut cluster = Cluster { directory, config, ports, running: BTreeMap::new() };
        for name in names {
            cluster.run_with(name, options).await;
        }
        cluster
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub fn options_of(&self, name: &str, options: &NodeOptions) -> NodeOptions {
        let bootstrap = Bootstrap::New(self.config.clone());
        NodeOptions { name: name.to_owned(), bootstrap, ..options.clone() }
    }

    /// Starts a member.
    pub async fn run(&mut self, name: &str) {
        self.run_with(name, &options()).await;
    }

    pub async fn run_with(&mut self, name: &str, options: &NodeOptions) {
        let options = self.options_of(name, options);
        let running = Running::start(self.path(name), self.ports[name], options).await.expect("it starts");
        self.running.insert(name.to_owned(), running);
    }

    pub async fn crash(&mut self, name: &str) {
        self.running.remove(name).expect("it runs").crash().await;
    }

    pub async fn client(&self, name: &str) -> Client {
        self.running[name].client().await
    }

    /// The name of the member that leads, as the members that run see it.
    pub async fn leader(&self) -> String {
        let mut found = None;
        let deadline = tokio::time::Instant::now() + PATIENCE;
        while found.is_none() {
            assert!(tokio::time::Instant::now() < deadline, "no member leads");
            for name in self.running.keys() {
                let status = self.client(name).await.status().await;
                if status.leader == self.running[name].id() {
                    found = Some(name.clone());
                }
            }
        }
        found.expect("it was found")
    }

    pub async fn stop(mut self) {
        for name in self.running.keys().cloned().collect::<Vec<_>>() {
            self.crash(&name).await;
        }
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
}

/// A watch stream.
pub struct Watching {
    _requests: mpsc::Sender<pb::WatchRequest>,
    responses: Streaming<pb::WatchResponse>,
}

impl Client {
    pub async fn connect(address: &str) -> Client {
        let endpoint = Channel::from_shared(format!("http://{address}")).expect("an address");
        Client::over(endpoint.connect().await.expect("it serves"))
    }

    pub fn over(channel: Channel) -> Client {
        Client {
            kv: KvClient::new(channel.clone()).max_decoding_message_size(64 << 20),
            watch: WatchClient::new(channel.clone()),
            lease: LeaseClient::new(channel.clone()),
            maintenance: MaintenanceClient::new(channel.clone()),
            cluster: ClusterClient::new(channel),
        }
    }

    /// Puts. Returns the header.
    pub async fn put(&mut self, key: &str, value: impl Into<Vec<u8>>) -> pb::ResponseHeader {
        let request = pb::PutRequest { key: key.into(), value: value.into(), ..Default::default() };
        self.kv.put(request).await.expect("it is put").into_inner().header.expect("each response has one")
    }

    pub async fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        self.find(key, false).await
    }

    /// Reads from what the member has.
    pub async fn get_here(&mut self, key: &str) -> Option<Vec<u8>> {
        self.find(key, true).await
    }

    async fn find(&mut self, key: &str, serializable: bool) -> Option<Vec<u8>> {
        let request = pb::RangeRequest { key: key.into(), serializable, ..Default::default() };
        self.kv.range(request).await.expect("it is read").into_inner().kvs.pop().map(|found| found.value)
    }

    pub async fn status(&mut self) -> pb::StatusResponse {
        self.maintenance.status(pb::StatusRequest {}).await.expect("it is told").into_inner()
    }

    /// The members, as a majority has them.
    pub async fn members(&mut self) -> Vec<pb::Member> {
        let request = pb::MemberListRequest { linearizable: true };
        self.cluster.member_list(request).await.expect("they are listed").into_inner().members
    }

    /// Watches a key's events from a revision on; from 0, later ones.
    pub async fn watch(&mut self, key: &str, start_revision: i64) -> Watching {
        self.watch_with(key, start_revision, &[]).await
    }

    pub async fn watch_requiring_leader(&mut self, key: &str) -> Watching {
        self.watch_with(key, 0, &[("hasleader", "true")]).await
    }

    async fn watch_with(
        &mut self,
        key: &str,
        start_revision: i64,
        metadata: &[(&'static str, &'static str)],
    ) -> Watching {
        let create = pb::WatchCreateRequest { key: key.into(), start_revision, ..Default::default() };
        let (requests, stream) = mpsc::channel(8);
        let request_union = Some(pb::watch_request::RequestUnion::CreateRequest(create));
        requests.send(pb::WatchRequest { request_union }).await.expect("the stream is open");
        let mut stream = tonic::Request::new(tokio_stream::wrappers::ReceiverStream::new(stream));
        for (name, value) in metadata {
            stream.metadata_mut().insert(*name, value.parse().expect("text"));
        }
        let mut responses = self.watch.watch(stream).await.expect("it watches").into_inner();
        let created = responses.message().await.expect("the stream is whole").expect("the stream is open");
        assert!(created.created && !created.canceled, "{created:?}");
        Watching { _requests: requests, responses }
    }
}

impl Watching {
    pub async fn next(&mut self) -> pb::WatchResponse {
        let next = tokio::time::timeout(PATIENCE, self.responses.message()).await;
        next.expect("something comes").expect("the stream is whole").expect("the stream is open")
    }

    /// Waits until the stream ends.
    pub async fn end(&mut self) -> Result<(), Status> {
        while tokio::time::timeout(PATIENCE, self.responses.message()).await.expect("it ends")?.is_some() {}
        Ok(())
    }

    /// The values of the next so many events.
    pub async fn values(&mut self, count: usize) -> Vec<String> {
        let mut values = Vec::new();
        while values.len() < count {
            for event in self.next().await.events {
                let value = event.kv.expect("it has a key").value;
                values.push(String::from_utf8(value).expect("text"));
            }
        }
        values
    }
}

/// Code and message of a refusal.
pub fn refused<T: std::fmt::Debug>(result: Result<T, Status>) -> (Code, String) {
    let status = result.expect_err("it is refused");
    (status.code(), status.message().to_owned())
}
