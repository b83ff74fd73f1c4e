//! What a node can be told.

use std::path::PathBuf;
use std::time::Duration;

use crate::auto_compaction::AutoCompaction;
use crate::cluster_config::ClusterConfig;
use crate::tls::Tls;

/// What a member is made as where there is none yet. Afterwards its directory knows.
///
/// ```
/// use tantalum_server::{Bootstrap, ClusterConfig, NodeOptions};
///
/// let config = ClusterConfig::from_flag("a=http://10.0.0.1:2380,b=http://10.0.0.2:2380", "token")?;
/// let options = NodeOptions { name: "a".to_owned(), bootstrap: Bootstrap::New(config), ..NodeOptions::default() };
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Bootstrap {
    /// The only member of a new cluster.
    #[default]
    Alone,
    /// The one with the node's name, of a new cluster.
    New(ClusterConfig),
    /// The one with the node's name, of a cluster to which it was added (`member add`), as are the others.
    Join(ClusterConfig),
}

/// Options of [`Node::open`](crate::Node::open).
///
/// ```
/// let options = tantalum_server::NodeOptions::default();
/// assert_eq!((options.max_request_bytes, options.max_txn_operations), (3 << 19, 128));
/// ```
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// The member's name, as `member list` shows it. Default `default`.
    pub name: String,
    /// The URLs at which clients reach it, as `member list` shows them. Default none.
    pub client_urls: Vec<String>,
    /// The URLs at which other members reach it, of a member that begins [alone](Bootstrap::Alone); later ones are the cluster's to
    /// change (`member update`). Default none: then no others can be added.
    pub peer_urls: Vec<String>,
    /// TLS with clients, by [`serve`](crate::serve). Default none.
    pub client_tls: Option<Tls>,
    /// TLS between members: all must have it, with authorities that their certificates are from, and URLs with `https`. Default none.
    pub peer_tls: Option<Tls>,
    /// What it is made as. Default [`Bootstrap::Alone`].
    pub bootstrap: Bootstrap,
    /// The files that raft's log lies in, fixed when the directory is made; they must not exist then. With two, on devices of their
    /// own, a write that one of them holds up is given to the other. Default none: a file in the directory.
    pub raft_log_devices: Vec<PathBuf>,
    /// Bytes of each file that raft's log lies in, fixed when the directory is made. An entry has at most a 128th of it, and 1 MiB;
    /// larger requests are cut. All members need the same. Default 128 MiB, at least 4 MiB.
    pub raft_log_bytes: u64,
    /// Bytes of the log of the store's database. Default 256 MiB.
    pub state_log_bytes: u64,
    /// Bytes of the store's buffer pool. Default 256 MiB.
    pub buffer_pool_bytes: u64,
    /// Bytes of a request, at most. Default 1.5 MiB, as etcd's `--max-request-bytes`.
    pub max_request_bytes: usize,
    /// Operations of a transaction, at most, on each of its sides. Default 128, as etcd's `--max-txn-ops`.
    pub max_txn_operations: usize,
    /// Bytes that the store's file may have; beyond, the alarm for space is set. `None` is no quota. Default 2 GiB, as etcd's
    /// `--quota-backend-bytes`.
    pub quota_bytes: Option<u64>,
    /// When the history is given up without being asked to. Default never, as etcd's `--auto-compaction-retention`.
    pub auto_compaction: AutoCompaction,
    /// How often watchers that asked for it hear how far they are, while nothing else comes. Default 10 minutes, as etcd's
    /// `--watch-progress-notify-interval`.
    pub watch_progress_interval: Duration,
    /// Milliseconds between the leader's heartbeats. An election takes ten times as long. Default 100, as etcd's
    /// `--heartbeat-interval`.
    pub heartbeat_ms: u64,
}

impl Default for NodeOptions {
    fn default() -> NodeOptions {
        NodeOptions {
            name: "default".to_owned(),
            client_urls: Vec::new(),
            peer_urls: Vec::new(),
            client_tls: None,
            peer_tls: None,
            bootstrap: Bootstrap::Alone,
            raft_log_devices: Vec::new(),
            raft_log_bytes: 128 << 20,
            state_log_bytes: 256 << 20,
            buffer_pool_bytes: 256 << 20,
            max_request_bytes: 3 << 19,
            max_txn_operations: 128,
            quota_bytes: Some(2 << 30),
            auto_compaction: AutoCompaction::Off,
            watch_progress_interval: Duration::from_secs(600),
            heartbeat_ms: 100,
        }
    }
}

impl NodeOptions {
    /// After so long without a leader, members elect one.
    pub(crate) fn election_timeout(&self) -> Duration {
        Duration::from_millis(self.heartbeat_ms.saturating_mul(10))
    }

    /// So long a request waits for a leader and its answer, as in etcd.
    pub(crate) fn request_timeout(&self) -> Duration {
        Duration::from_secs(5) + 2 * self.election_timeout()
    }

    /// The shortest time to live of a lease, in seconds: longer than an election, so that leases outlive one.
    pub(crate) fn min_lease_ttl_s(&self) -> i64 {
        i64::try_from((15 * self.heartbeat_ms).div_ceil(1000)).unwrap_or(i64::MAX)
    }
}
