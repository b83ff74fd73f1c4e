//! The program `tantalum-server`.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tantalum_server::{
    AutoCompaction, Bootstrap, ClusterConfig, Node, NodeOptions, Tls, restore, serve, serve_monitoring, serve_peers,
};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::watch;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::prelude::*;

/// A key-value store with etcd's v3 API, on one node or several.
#[derive(Parser)]
#[command(version)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Serves the store that a directory has, as the only member of a cluster or as one of several.
    ///
    /// Three members on one machine: a file cluster.toml with
    ///
    ///     [members]
    ///     a = "http://127.0.0.1:2380"
    ///     b = "http://127.0.0.1:2480"
    ///     c = "http://127.0.0.1:2580"
    ///
    /// and, for each, `tantalum-server serve --cluster cluster.toml --name a --listen 127.0.0.1:2379 DIR`.
    #[command(verbatim_doc_comment)]
    Serve(Box<Serve>),
    /// Makes a member's directory with the store that a snapshot has (`etcdctl snapshot save`): for the only member of a new cluster, or, with
    /// --cluster or --initial-cluster, for one of several, each of which is made so from the same snapshot and then served with the same flags.
    Restore(Box<Restore>),
}

/// Which members there are, and which of them it is.
#[derive(Args)]
struct Members {
    /// The member's name.
    #[arg(long, default_value_t = NodeOptions::default().name)]
    name: String,
    /// A file of the members that the cluster begins with: TOML, [members], and name = "http://HOST:PORT" for each, at which the others
    /// reach it; before it, token = "..." if clusters of the same URLs are to be told apart. Read when the directory is made.
    #[arg(long, conflicts_with_all = ["initial_cluster", "initial_cluster_token"])]
    cluster: Option<PathBuf>,
    /// The same as etcd has it: a=http://10.0.0.1:2380,b=http://10.0.0.2:2380.
    #[arg(long)]
    initial_cluster: Option<String>,
    /// Tells clusters apart that have the same URLs.
    #[arg(long, default_value = ClusterConfig::DEFAULT_TOKEN)]
    initial_cluster_token: String,
}

/// What the directory has, and how much of it.
#[derive(Args)]
struct Files {
    /// File for raft's log, which must not exist when the directory is made; given twice, with files on two devices, a write that one
    /// device holds up is given to the other [default: raft-log in the directory].
    #[arg(long)]
    raft_log_device: Vec<PathBuf>,
    /// Bytes of each file of raft's log, when the directory is made; the same for all members.
    #[arg(long, default_value_t = NodeOptions::default().raft_log_bytes)]
    raft_log_bytes: u64,
    /// Bytes of the log of the store's database.
    #[arg(long, default_value_t = NodeOptions::default().state_log_bytes)]
    state_log_bytes: u64,
    /// Bytes of the store's buffer pool.
    #[arg(long, default_value_t = NodeOptions::default().buffer_pool_bytes)]
    buffer_pool_bytes: u64,
}

#[derive(Args)]
struct Restore {
    /// The snapshot's file.
    snapshot: PathBuf,
    /// The member's directory; made, or empty.
    directory: PathBuf,
    #[command(flatten)]
    members: Members,
    #[command(flatten)]
    files: Files,
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
    #[command(flatten)]
    members: Members,
    /// Whether the cluster is made, or is there and this member was added to it (member add).
    #[arg(long, value_enum, default_value_t = ClusterState::New)]
    initial_cluster_state: ClusterState,
    /// PEM file with the certificate that clients are shown; then they must use https.
    #[arg(long, requires = "key_file")]
    cert_file: Option<PathBuf>,
    /// PEM file with its private key.
    #[arg(long, requires = "cert_file")]
    key_file: Option<PathBuf>,
    /// PEM file with authorities that clients' certificates must be from; with --client-cert-auth.
    #[arg(long, requires = "cert_file")]
    trusted_ca_file: Option<PathBuf>,
    /// Clients must show a certificate.
    #[arg(long, requires = "trusted_ca_file")]
    client_cert_auth: bool,
    /// PEM file with the certificate that other members are shown; then members' URLs are https://HOST:PORT.
    #[arg(long, requires_all = ["peer_key_file", "peer_trusted_ca_file"])]
    peer_cert_file: Option<PathBuf>,
    /// PEM file with its private key.
    #[arg(long, requires = "peer_cert_file")]
    peer_key_file: Option<PathBuf>,
    /// PEM file with authorities that other members' certificates must be from.
    #[arg(long, requires = "peer_cert_file")]
    peer_trusted_ca_file: Option<PathBuf>,
    /// Other members must show a certificate when they connect.
    #[arg(long, requires = "peer_cert_file")]
    peer_client_cert_auth: bool,
    /// Address and port to serve other members at [default: those of this member's URL; without one, no others can be added].
    #[arg(long)]
    listen_peer: Option<String>,
    /// URL at which other members reach this one, if it begins alone [default: that of --listen-peer].
    #[arg(long, requires = "listen_peer", conflicts_with_all = ["cluster", "initial_cluster"])]
    advertise_peer_url: Vec<String>,
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
    #[command(flatten)]
    files: Files,
}

/// So long calls of other members may still take when the program stops.
const PEERS_LEAVE: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, ValueEnum)]
enum CompactionMode {
    Periodic,
    Revision,
}

#[derive(Clone, Copy, ValueEnum)]
enum ClusterState {
    New,
    Existing,
}

/// What the member is made as, if its directory is not there.
fn bootstrap(members: &Members, state: ClusterState) -> std::io::Result<Bootstrap> {
    let config = match (&members.cluster, &members.initial_cluster) {
        (Some(file), _) => {
            let text = std::fs::read_to_string(file).map_err(|error| {
                std::io::Error::new(error.kind(), format!("{}: cannot read the members: {error}", file.display()))
            })?;
            ClusterConfig::from_toml(&text)?
        }
        (None, Some(flag)) => ClusterConfig::from_flag(flag, &members.initial_cluster_token)?,
        (None, None) => return Ok(Bootstrap::Alone),
    };
    config.peer_urls(&members.name)?;
    Ok(match state {
        ClusterState::New => Bootstrap::New(config),
        ClusterState::Existing => Bootstrap::Join(config),
    })
}

/// The options that say what a directory is made as.
fn options_of(members: Members, files: Files, bootstrap: Bootstrap) -> NodeOptions {
    NodeOptions {
        name: members.name,
        bootstrap,
        raft_log_devices: files.raft_log_device,
        raft_log_bytes: files.raft_log_bytes,
        state_log_bytes: files.state_log_bytes,
        buffer_pool_bytes: files.buffer_pool_bytes,
        ..NodeOptions::default()
    }
}

/// Where other members are served, and the URLs at which they reach this one if it begins alone.
async fn listen_to_peers(
    arguments: &Serve,
    bootstrap: &Bootstrap,
) -> Result<(Option<TcpListener>, Vec<String>), Box<dyn std::error::Error>> {
    let own = match bootstrap {
        Bootstrap::Alone => None,
        Bootstrap::New(config) | Bootstrap::Join(config) => config.peer_urls(&arguments.members.name)?.first(),
    };
    let authority = own.map(|url| {
        let url = url.strip_prefix("https://").or(url.strip_prefix("http://")).unwrap_or(url);
        url.trim_end_matches('/').to_owned()
    });
    let Some(address) = arguments.listen_peer.clone().or(authority) else { return Ok((None, Vec::new())) };
    let listener = listen(&address, "--listen-peer").await?;
    let mut urls = arguments.advertise_peer_url.clone();
    if urls.is_empty() && own.is_none() {
        urls.push(url_of(arguments.peer_cert_file.is_some(), listener.local_addr()?));
    }
    Ok((Some(listener), urls))
}

fn url_of(has_tls: bool, address: SocketAddr) -> String {
    format!("{}://{address}", if has_tls { "https" } else { "http" })
}

/// TLS as the arguments of one side have it.
fn tls(
    (certificate, key): (&Option<PathBuf>, &Option<PathBuf>),
    trusted_ca: &Option<PathBuf>,
    demands_certificates: bool,
) -> Option<Tls> {
    let tls = Tls::new(certificate.clone()?, key.clone()?);
    let tls = trusted_ca.iter().fold(tls, |tls, file| tls.trusted_ca(file));
    Some(if demands_certificates { tls.demand_certificates() } else { tls })
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
    let logged = Targets::new().with_target("tantalum_server", LevelFilter::WARN);
    let log = tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_filter(logged);
    tracing_subscriber::registry().with(log).init();
    let done = match Arguments::parse().command {
        Command::Serve(arguments) => serve_until_told(*arguments).await,
        Command::Restore(arguments) => restore_into(*arguments).await,
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tantalum-server: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn restore_into(arguments: Restore) -> Result<(), Box<dyn std::error::Error>> {
    let Restore { snapshot, directory, members, files } = arguments;
    let bootstrap = bootstrap(&members, ClusterState::New)?;
    let identity = restore(&snapshot, &directory, &options_of(members, files, bootstrap)).await?;
    let (member, cluster) = (identity.member_id, identity.cluster_id);
    println!("restored {} into {}: member {member:x} of cluster {cluster:x}", snapshot.display(), directory.display());
    Ok(())
}

/// Serves until the program is interrupted or terminated.
async fn serve_until_told(arguments: Serve) -> Result<(), Box<dyn std::error::Error>> {
    let auto_compaction = auto_compaction(arguments.auto_compaction_mode, &arguments.auto_compaction_retention)?;
    let bootstrap = bootstrap(&arguments.members, arguments.initial_cluster_state)?;
    let listener = listen(&arguments.listen, "--listen").await?;
    let (peer_listener, peer_urls) = listen_to_peers(&arguments, &bootstrap).await?;
    let monitoring = match &arguments.listen_metrics {
        Some(address) => Some(listen(address, "--listen-metrics").await?),
        None => None,
    };
    let address = listener.local_addr()?;
    let client_tls =
        tls((&arguments.cert_file, &arguments.key_file), &arguments.trusted_ca_file, arguments.client_cert_auth);
    let peer_tls = tls(
        (&arguments.peer_cert_file, &arguments.peer_key_file),
        &arguments.peer_trusted_ca_file,
        arguments.peer_client_cert_auth,
    );
    let mut client_urls = arguments.advertise_client_url;
    if client_urls.is_empty() {
        client_urls.push(url_of(client_tls.is_some(), address));
    }
    let options = NodeOptions {
        client_urls,
        peer_urls,
        client_tls,
        peer_tls,
        max_request_bytes: arguments.max_request_bytes,
        max_txn_operations: arguments.max_txn_ops,
        quota_bytes: match arguments.quota_backend_bytes {
            0 => NodeOptions::default().quota_bytes,
            bytes => u64::try_from(bytes).ok(),
        },
        auto_compaction,
        watch_progress_interval: Duration::from_secs(arguments.watch_progress_notify_interval_s),
        heartbeat_ms: arguments.heartbeat_interval_ms,
        ..options_of(arguments.members, arguments.files, bootstrap)
    };
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    let node = Node::open(arguments.directory, options).await?;
    if peer_listener.is_none() && node.has_others().await? {
        node.close().await?;
        let what = "its cluster has other members, which must reach this one: say --listen-peer HOST:PORT, or name the cluster as before";
        return Err(what.into());
    }
    println!("serving clients at {address}");
    let (stopping, stopped) = watch::channel(());
    let until_stopped = || {
        let mut stopped = stopped.clone();
        async move { drop(stopped.changed().await) }
    };
    if let Some(listener) = monitoring {
        println!("serving metrics at {}", listener.local_addr()?);
        // It fails only with its listener, which clients do not need.
        tokio::spawn(serve_monitoring(node.clone(), listener, until_stopped()));
    }
    // Others are served longer than clients, whose last requests may need them.
    let (clients_gone, gone) = watch::channel(());
    let peers = peer_listener.map(|listener| {
        if let Ok(address) = listener.local_addr() {
            println!("serving members at {address}");
        }
        let mut gone = gone.clone();
        tokio::spawn(serve_peers(node.clone(), listener, async move { drop(gone.changed().await) }))
    });
    let mut ended = None;
    let stop = async {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            why = node.until_ended() => ended = Some(why),
        }
        node.hand_over().await;
        drop(stopping);
    };
    serve(node.clone(), listener, stop).await?;
    drop((stopped, clients_gone));
    if let Some(peers) = peers {
        // Connections of members that hang are not waited for.
        let _ = tokio::time::timeout(PEERS_LEAVE, peers).await;
    }
    let closed = node.close().await;
    match ended {
        Some(why) => Err(why.into()),
        None => Ok(closed?),
    }
}
