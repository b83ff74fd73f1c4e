//! A key-value store that speaks etcd's v3 API: revisions and history, transactions, watches, leases.
//!
//! [`Node`] is a member: raft's log in a [`tantalum_raft::RaftLog`], the store in a [`tantalum::Db`], openraft between them, also with
//! one member alone. [`serve`] answers clients, [`serve_peers`] the other members.
//!
//! ```
//! # tokio::runtime::Runtime::new().unwrap().block_on(async {
//! use tantalum_server::api::etcdserverpb::{PutRequest, RangeRequest, kv_client::KvClient};
//! use tantalum_server::{Node, NodeOptions, serve};
//!
//! let directory = tempfile::tempdir()?;
//! let options = NodeOptions { raft_log_bytes: 8 << 20, state_log_bytes: 8 << 20, ..NodeOptions::default() };
//! let node = Node::open(directory.path().join("member"), options).await?;
//! let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
//! let address = listener.local_addr()?;
//! let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
//! let server = tokio::spawn(serve(node.clone(), listener, async move { drop(stopped.await) }));
//!
//! let mut client = KvClient::connect(format!("http://{address}")).await?;
//! client.put(PutRequest { key: b"a".to_vec(), value: b"1".to_vec(), ..Default::default() }).await?;
//! let found = client.range(RangeRequest { key: b"a".to_vec(), ..Default::default() }).await?.into_inner();
//! assert_eq!((found.count, &found.kvs[0].value[..]), (1, &b"1"[..]));
//! drop((client, stop));
//! server.await??;
//! node.close().await?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! # }).unwrap();
//! ```

/// What etcd's protos say, with clients and servers.
#[allow(missing_docs, clippy::all)]
pub mod api {
    /// Keys, values and events.
    pub mod mvccpb {
        tonic::include_proto!("mvccpb");
    }
    /// Requests, responses and services.
    pub mod etcdserverpb {
        tonic::include_proto!("etcdserverpb");
    }
    /// Locks.
    pub mod v3lockpb {
        tonic::include_proto!("v3lockpb");
    }
    /// Elections.
    pub mod v3electionpb {
        tonic::include_proto!("v3electionpb");
    }
    pub(crate) mod peer {
        tonic::include_proto!("tantalum.peer.v1");
    }
}

mod auto_compaction;
mod bootstrap;
mod cluster_config;
mod command;
mod directory;
mod feed;
mod leader;
mod lease;
mod log_space;
mod member;
mod membership;
mod monitoring;
mod mvcc;
mod node;
mod options;
mod peers;
mod quota;
mod refusal;
mod rounds;
mod server;
mod service;
mod snapshot;
mod tls;
mod watch;

pub use auto_compaction::AutoCompaction;
pub use cluster_config::ClusterConfig;
pub use command::{Answer, Bytes, Command, Config, Encoded};
pub use directory::Identity;
pub use member::Member;
pub use monitoring::serve_monitoring;
pub use node::Node;
pub use options::{Bootstrap, NodeOptions};
pub use peers::serve_peers;
pub use refusal::Refusal;
pub use server::serve;
pub use snapshot::restore;
pub use tls::Tls;
