//! The program `tantalum-server`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use tantalum_server::{Node, NodeOptions, serve};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};

/// Serves a key-value store with etcd's v3 API, on one node.
#[derive(Parser)]
#[command(version)]
struct Arguments {
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

#[tokio::main]
async fn main() -> ExitCode {
    match run(Arguments::parse()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tantalum-server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run(arguments: Arguments) -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind(&arguments.listen).await.map_err(|error| {
        format!("cannot listen at {}: {error}; name another address with --listen", arguments.listen)
    })?;
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
        watch_progress_interval: Duration::from_secs(arguments.watch_progress_notify_interval_s),
        heartbeat_ms: arguments.heartbeat_interval_ms,
    };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let node = Node::open(arguments.directory, options).await?;
    println!("serving clients at {address}");
    let stop = async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    };
    serve(node.clone(), listener, stop).await?;
    node.close().await?;
    Ok(())
}
