//! The program `tantalum-server`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tantalum_server::{AutoCompaction, Node, NodeOptions, restore, serve, serve_monitoring};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;

/// A key-value store with etcd's v3 API, on one node.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves the store that a directory has.
    Serve(Serve),
    /// Makes a directory with the store that a snapshot has (`etcdctl snapshot save`), for the only member of a new cluster.
    Restore {
        /// The snapshot's file.
        snapshot: PathBuf,
        /// The member's directory; made, or empty.
        directory: PathBuf,
    },
}

#[derive(Args)]
struct Serve {
    /// The member's directory; made if it is not there.
    directory: PathBuf,
    /// Address and port to serve clients at; port 0 takes a free one.
    #[arg(long, default_value = "127.0.0.1:2379")]
    listen: String,
    /// URL at which clients reach it, as `member list` shows it [default: that of --listen].
    #[arg(long)]
    advertise_client_url: Vec<String>,
    /// The member's name.
    #[arg(long, default_value_t = NodeOptions::default().name)]
    name: String,
    /// Bytes of a request, at most.
    #[arg(long, default_value_t = NodeOptions::default().max_request_bytes)]
    max_request_bytes: usize,
    /// Operations of a transaction, at most.
    #[arg(long, default_value_t = NodeOptions::default().max_txn_operations)]
    max_txn_ops: usize,
    /// Address and port to serve metrics and health at, over HTTP: /metrics, /health, /livez, /readyz [default: not served].
    #[arg(long)]
    listen_metrics: Option<String>,
    /// Bytes that the store's file may have; then nothing is taken that needs space. 0 is the default, less than 0 no quota.
    #[arg(long, default_value_t = 2 << 30, allow_negative_numbers = true)]
    quota_backend_bytes: i64,
    /// What --auto-compaction-retention counts.
    #[arg(long, value_enum, default_value_t = CompactionMode::Periodic)]
    auto_compaction_mode: CompactionMode,
    /// How much of the history is kept when it is given up by itself: a time, as 30m or 8 (hours), or a number of revisions. 0 keeps
    /// all.
    #[arg(long, default_value = "0")]
    auto_compaction_retention: String,
    /// Seconds after which a watcher that asked for it hears how far it is, while nothing else comes.
    #[arg(long, default_value_t = NodeOptions::default().watch_progress_interval.as_secs())]
    watch_progress_notify_interval_s: u64,
    /// Milliseconds between the leader's heartbeats.
    #[arg(long, default_value_t = NodeOptions::default().heartbeat_ms)]
    heartbeat_interval_ms: u64,
    /// Bytes of raft's log, when the directory is made.
    #[arg(long, default_value_t = NodeOptions::default().raft_log_bytes)]
    raft_log_bytes: u64,
    /// Bytes of the log of the store's database.
    #[arg(long, default_value_t = NodeOptions::default().state_log_bytes)]
    state_log_bytes: u64,
    /// Bytes of the store's buffer pool.
    #[arg(long, default_value_t = NodeOptions::default().buffer_pool_bytes)]
    buffer_pool_bytes: u64,
}

#[derive(Clone, Copy, ValueEnum)]
enum CompactionMode {
    Periodic,
    Revision,
}

/// When compaction comes by itself.
fn auto_compaction(mode: CompactionMode, retention: &str) -> Result<AutoCompaction, String> {
    match mode {
        CompactionMode::Periodic => {
            let hours = retention.parse().ok().and_then(|hours: u64| hours.checked_mul(3600)).map(Duration::from_secs);
            let kept = hours.map_or_else(|| humantime::parse_duration(retention), Ok).map_err(|error| {
                format!("--auto-compaction-retention {retention}: {error}; write a time as 30m or 1h30m, or hours as 8")
            })?;
            Ok(AutoCompaction::Periodic(kept))
        }
        CompactionMode::Revision => match retention.parse() {
            Ok(kept) if kept >= 0 => Ok(AutoCompaction::Revisions(kept)),
            _ => Err(format!("--auto-compaction-retention {retention}: write how many revisions to keep, as 1000")),
        },
    }
}

/// Listens at an address that an argument names.
async fn listen(address: &str, argument: &str) -> Result<TcpListener, String> {
    let listening = TcpListener::bind(address).await;
    listening.map_err(|error| format!("cannot listen at {address}: {error}; name another address with {argument}"))
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = match Arguments::parse().command {
        Command::Serve(arguments) => serve_until_told(arguments).await,
        Command::Restore { snapshot, directory } => restore_into(snapshot, directory).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tantalum-server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn restore_into(snapshot: PathBuf, directory: PathBuf) -> Result<(), Box<dyn std::error::Error>> {
    let identity = restore(&snapshot, &directory, &NodeOptions::default()).await?;
    let (member, cluster) = (identity.member_id, identity.cluster_id);
    println!("restored {} into {}: member {member:x} of cluster {cluster:x}", snapshot.display(), directory.display());
    Ok(())
}

/// Serves until the program is interrupted or terminated.
async fn serve_until_told(arguments: Serve) -> Result<(), Box<dyn std::error::Error>> {
    let auto_compaction = auto_compaction(arguments.auto_compaction_mode, &arguments.auto_compaction_retention)?;
    let listener = listen(&arguments.listen, "--listen").await?;
    let monitoring = match &arguments.listen_metrics {
        Some(address) => Some(listen(address, "--listen-metrics").await?),
        None => None,
    };
    let address = listener.local_addr()?;
    let mut client_urls = arguments.advertise_client_url;
    if client_urls.is_empty() {
        client_urls.push(format!("http://{address}"));
    }
    let options = NodeOptions {
        name: arguments.name,
        client_urls,
        raft_log_bytes: arguments.raft_log_bytes,
        state_log_bytes: arguments.state_log_bytes,
        buffer_pool_bytes: arguments.buffer_pool_bytes,
        max_request_bytes: arguments.max_request_bytes,
        max_txn_operations: arguments.max_txn_ops,
        quota_bytes: match arguments.quota_backend_bytes {
            0 => NodeOptions::default().quota_bytes,
            bytes => u64::try_from(bytes).ok(),
        },
        auto_compaction,
        watch_progress_interval: Duration::from_secs(arguments.watch_progress_notify_interval_s),
        heartbeat_ms: arguments.heartbeat_interval_ms,
    };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let node = Node::open(arguments.directory, options).await?;
    println!("serving clients at {address}");
    let (stopping, stopped) = watch::channel(());
    if let Some(listener) = monitoring {
        println!("serving metrics at {}", listener.local_addr()?);
        let mut stopped = stopped.clone();
        // It fails only with its listener, which clients do not need.
        tokio::spawn(serve_monitoring(node.clone(), listener, async move { drop(stopped.changed().await) }));
    }
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        drop(stopping);
    };
    serve(node.clone(), listener, stop).await?;
    drop(stopped);
    node.close().await?;
    Ok(())
}
