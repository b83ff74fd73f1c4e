//! A member: its storage, raft, and the tasks beside.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use openraft::error::{InitializeError, RaftError};
use openraft::storage::RaftStateMachine;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft::{ReadPolicy, SnapshotPolicy};
use tantalum::Db;
use tantalum_raft::openraft_storage::{LogStore, StateMachine};
use tantalum_raft::{RaftLog, StateSnapshot};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tonic::Status;
use tonic::transport::ServerTlsConfig;

use crate::api::etcdserverpb::ResponseHeader;
use crate::bootstrap;
use crate::command::{Answer, Command, Config, Raft};
use crate::directory::{Identity, MemberFile, Storage, mark_removed, read_member};
use crate::feed::{Batch, Feed, Found};
use crate::lease::Lessor;
use crate::log_space::LogSpace;
use crate::membership::Membership;
use crate::mvcc::{self, Keyspace, TABLES, View};
use crate::options::NodeOptions;
use crate::peers::{Connector, Network, Peers};
use crate::quota::Quota;
use crate::refusal::{Failed, Refusal};
use crate::rounds::Rounds;
use crate::tls::Loaded;

/// The raft group that the store is.
pub(crate) const GROUP: u64 = 1;
/// Revisions that one entry has compaction look at.
const SWEPT_AT_A_TIME: u32 = 500;
/// Bytes of events that are read at a time.
const EVENT_BYTES: usize = 1 << 20;
/// After this, compaction is tried again that could not go on.
const SWEEP_RETRY: Duration = Duration::from_secs(1);

/// A member of a cluster. Clones are handles to the same member.
///
/// What was acknowledged is safe whether it is [closed](Self::close) or not; without, its files stay open until openraft's tasks have seen
/// that the last handle is gone. The example is at the crate.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    path: PathBuf,
    options: NodeOptions,
    client_tls: Option<ServerTlsConfig>,
    peer_tls: Option<ServerTlsConfig>,
    raft: Raft,
    state: StateMachine<Config, Keyspace>,
    log: RaftLog,
    space: Arc<LogSpace>,
    lessor: Arc<Lessor>,
    feed: Arc<Feed>,
    peers: Arc<Peers>,
    /// Held while a command is proposed in parts.
    parts: tokio::sync::Mutex<()>,
    /// Compaction has something to delete.
    compacted: Arc<Notify>,
    quota: Quota,
    reads: ReadRounds,
    tasks: Mutex<Vec<AbortHandle>>,
}

/// Rounds in which a majority confirms a leader, each for all reads that came before it.
#[derive(Default)]
pub(crate) struct ReadRounds {
    /// Of this member, while it leads: the index of the last entry that reads must see; `None` if it leads no more.
    pub led: Rounds<Option<u64>>,
    /// Of another that leads, which is asked for that index.
    pub asked: Rounds<Result<u64, Status>>,
}

/// A handle that does not keep the member open.
pub(crate) struct WeakNode(Weak<Inner>);

impl WeakNode {
    pub fn upgrade(&self) -> Option<Node> {
        self.0.upgrade().map(|inner| Node { inner })
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.end_tasks();
    }
}

impl Inner {
    fn end_tasks(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.drain(..).for_each(|task| task.abort());
    }
}

impl Node {
    /// Starts the member that `path` has, or makes one there, as [`NodeOptions::bootstrap`] says, if it has nothing. The only member of a
    /// cluster has begun to lead when this returns. Others need [`serve_peers`](crate::serve_peers) to find a leader; until then,
    /// requests wait for one.
    ///
    /// # Errors
    /// What is wrong with the directory or the options, with what to do about it; what other members refuse; what a device or raft
    /// reports.
    pub async fn open(path: impl Into<PathBuf>, options: NodeOptions) -> io::Result<Node> {
        let (path, with) = (path.into(), options.clone());
        let tls = blocking(move || Loaded::of(&with)).await??;
        let looked_at = path.clone();
        let new = match blocking(move || read_member(&looked_at)).await?? {
            Some(found) => found,
            None => bootstrap::plan(&options, tls.to_members.clone()).await?,
        };
        let (place, with) = (path.clone(), options.clone());
        let Storage { member, log, db } = blocking(move || Storage::open(&place, &with, || new)).await??;
        let identity = Identity { member_id: member.member_id, cluster_id: member.cluster_id };
        let lessor = Arc::new(Lessor::default());
        let group = log.group(GROUP);
        let state =
            StateMachine::new(db, GROUP, &TABLES, Keyspace::new(Arc::clone(&lessor))).map_err(io::Error::other)?;
        // What raft applies from now on, leases and feed hear of.
        let (db, tables) = (state.db().clone(), state.tables().to_vec());
        let read = move || mvcc::read_store(&db, &tables, |view| Ok((view.revision()?, view.leases()?)));
        let (revision, leases) = blocking(read).await?.map_err(failed_to_start)?;
        leases.into_iter().for_each(|(id, ttl_s)| lessor.granted(id, ttl_s));
        let connector = Connector { patience: options.election_timeout(), tls: tls.to_members };
        let peers = Arc::new(Peers::new(identity, connector, options.max_request_bytes));
        let network = Network { peers: Arc::clone(&peers) };
        let config = Arc::new(raft_config(identity, &options).validate().map_err(io::Error::other)?);
        let store = LogStore::new(group.clone());
        let raft =
            Raft::new(identity.member_id, config, network, store, state.clone()).await.map_err(io::Error::other)?;
        let quota = Quota::new(options.quota_bytes);
        let inner = Inner {
            identity,
            path,
            options,
            client_tls: tls.for_clients,
            peer_tls: tls.for_members,
            raft,
            log,
            space: Arc::new(LogSpace::new(group)),
            lessor,
            feed: Arc::new(Feed::new(revision)),
            peers,
            state,
            parts: tokio::sync::Mutex::default(),
            compacted: Arc::default(),
            quota,
            reads: ReadRounds::default(),
            tasks: Mutex::default(),
        };
        Node { inner: Arc::new(inner) }.start(&member).await
    }

    /// Has raft begin, and starts what runs beside.
    async fn start(self, member: &MemberFile) -> io::Result<Node> {
        let Inner { identity, raft, options, space, .. } = &*self.inner;
        let id = identity.member_id;
        if !member.is_joined {
            match raft.initialize(member.first_members(options)).await {
                Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
                Err(error) => return Err(io::Error::other(error)),
            }
        }
        let is_alone = self.ask_raft(move |members| members.voter_ids().eq([id])).await?;
        if is_alone {
            // There is no other to wait for.
            raft.trigger().elect(false).await.map_err(io::Error::other)?;
            raft.wait(None).current_leader(id, "it is the only member").await.map_err(io::Error::other)?;
            raft.ensure_linearizable(ReadPolicy::ReadIndex).await.map_err(io::Error::other)?;
            space.begin_purged(raft).await?;
        }
        self.start_tasks();
        if is_alone {
            self.publish().await.map_err(|status| io::Error::other(status.message().to_owned()))?;
        }
        Ok(self)
    }

    fn downgrade(&self) -> WeakNode {
        WeakNode(Arc::downgrade(&self.inner))
    }

    /// The tasks know the node weakly: they end with its last handle.
    fn start_tasks(&self) {
        let Inner { raft, space, lessor, .. } = &*self.inner;
        let (weak, leading) = (self.downgrade(), self.downgrade());
        let revoke = move |id, leadership| {
            let node = weak.upgrade();
            async move {
                if let Some(node) = node {
                    node.revoke_expired(id, leadership).await;
                }
            }
        };
        let expire = Arc::clone(lessor).expire(move || leading.upgrade()?.leadership(), revoke);
        let sweep = sweep_when_compacted(self.downgrade(), raft.clone(), Arc::clone(&self.inner.compacted));
        let (of, to) = (self.downgrade(), self.downgrade());
        let revision = move || {
            let node = of.upgrade();
            async move { node?.read(|view| Ok(view.revision()?)).await.ok() }
        };
        let compact = move |revision| {
            let node = to.upgrade();
            async move {
                if let Some(node) = node {
                    // The next one makes up for a failure; a refusal says that it is compacted already.
                    let _ = node.propose(Command::Compact { revision }).await;
                    node.sweep_later();
                }
            }
        };
        let leader = raft.clone();
        let auto_compact = self.inner.options.auto_compaction.run(move || leader.is_leader(), revision, compact);
        let purge = Arc::clone(space).keep_purged(raft.clone());
        let feed = feed_events(raft.clone(), self.inner.state.clone(), Arc::clone(&self.inner.feed));
        let tasks = [
            tokio::spawn(expire),
            tokio::spawn(sweep),
            tokio::spawn(auto_compact),
            tokio::spawn(purge),
            tokio::spawn(feed),
            tokio::spawn(Node::keep_members(self.downgrade())),
        ];
        let mut running = self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        running.extend(tasks.map(|task| task.abort_handle()));
    }

    /// Waits until this member can do nothing any more though it was not closed: because it was removed from its cluster, and then its
    /// directory is marked, or because a device or raft failed. Returns which of these, and what to do.
    pub async fn until_ended(&self) -> String {
        let mut removed = self.inner.peers.removed();
        let mut metrics = self.inner.raft.metrics();
        let failed = async {
            loop {
                if let Err(error) = &metrics.borrow_watched().running_state {
                    return error.to_string();
                }
                if metrics.changed().await.is_err() {
                    return "raft has stopped".to_owned();
                }
            }
        };
        let id = self.inner.identity.member_id;
        tokio::select! {
            error = failed => format!("member {id:x} has failed: {error}; see to that, and start it again"),
            _ = removed.wait_for(|removed| *removed) => {
                let path = self.inner.path.clone();
                if let Ok(Err(error)) = blocking(move || mark_removed(&path)).await {
                    tracing::warn!("the directory of a removed member could not be marked: {error}");
                }
                format!("member {id:x} was removed from its cluster; to have it back, add it anew with an empty directory")
            }
        }
    }

    /// What raft itself knows of the members: its metrics come a little later.
    async fn ask_raft<T: Send + 'static>(&self, ask: impl FnOnce(&Membership) -> T + Send + 'static) -> io::Result<T> {
        let asked = self.inner.raft.with_raft_state(|state| ask(state.membership_state.effective().membership())).await;
        asked.map_err(io::Error::other)
    }

    /// Whether the cluster has other members.
    ///
    /// # Errors
    /// If the member has failed.
    pub async fn has_others(&self) -> io::Result<bool> {
        let id = self.inner.identity.member_id;
        self.ask_raft(move |members| members.nodes().any(|(other, _)| *other != id)).await
    }

    /// The member's identity.
    pub fn identity(&self) -> Identity {
        self.inner.identity
    }

    /// What it was told.
    pub fn options(&self) -> &NodeOptions {
        &self.inner.options
    }

    /// Stops the member, with everything durable. Later requests are refused.
    ///
    /// # Errors
    /// What could not be made durable; what was acknowledged is safe all the same.
    pub async fn close(self) -> io::Result<()> {
        self.inner.end_tasks();
        self.inner.raft.shutdown().await.map_err(io::Error::other)?;
        let (log, db) = (self.inner.log.clone(), self.inner.state.db().clone());
        blocking(move || {
            log.close().map_err(io::Error::other)?;
            db.close().map_err(io::Error::other)
        })
        .await?
    }

    pub(crate) fn client_tls(&self) -> Option<ServerTlsConfig> {
        self.inner.client_tls.clone()
    }

    pub(crate) fn peer_tls(&self) -> Option<ServerTlsConfig> {
        self.inner.peer_tls.clone()
    }

    pub(crate) fn lessor(&self) -> &Lessor {
        &self.inner.lessor
    }

    pub(crate) fn feed(&self) -> &Feed {
        &self.inner.feed
    }

    pub(crate) fn raft(&self) -> &Raft {
        &self.inner.raft
    }

    /// The store as it is now, to be sent elsewhere.
    pub(crate) async fn snapshot(&self) -> Result<StateSnapshot, Status> {
        let mut state = self.inner.state.clone();
        let snapshot = state.get_current_snapshot().await.map_err(|error| Status::internal(error.to_string()))?;
        Ok(snapshot.ok_or(Refusal::NoLeader)?.snapshot)
    }

    pub(crate) fn db(&self) -> &Db {
        self.inner.state.db()
    }

    pub(crate) fn peers(&self) -> &Peers {
        &self.inner.peers
    }

    pub(crate) fn peers_handle(&self) -> Arc<Peers> {
        Arc::clone(&self.inner.peers)
    }

    pub(crate) fn space(&self) -> &LogSpace {
        &self.inner.space
    }

    pub(crate) fn quota(&self) -> &Quota {
        &self.inner.quota
    }

    pub(crate) fn read_rounds(&self) -> &ReadRounds {
        &self.inner.reads
    }

    /// Held while a command is written in parts.
    pub(crate) fn parts(&self) -> &tokio::sync::Mutex<()> {
        &self.inner.parts
    }

    /// Reads the store of this member, as it is now.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(View<'_>) -> Result<T, Failed> + Send + 'static,
    ) -> Result<T, Status> {
        let state = self.inner.state.clone();
        let result = blocking(move || mvcc::read_store(state.db(), state.tables(), read)).await;
        Ok(result.map_err(|error| Status::internal(error.to_string()))??)
    }

    /// The events from a revision on, some of those up to another.
    pub(crate) async fn events(&self, from: i64, to: i64) -> Result<Found, Status> {
        if let Some(batch) = self.inner.feed.batch_with(from) {
            return Ok(Found::Events(batch));
        }
        let read = self.read(move |view| {
            let compacted = view.compacted()?;
            if from < compacted {
                return Ok(Found::Compacted(compacted));
            }
            let (events, to) = view.events(from, to, EVENT_BYTES)?;
            Ok(Found::Events(Batch { from, to, events: Arc::from(events) }))
        });
        read.await
    }

    /// Deletes what compaction gave up, to the end.
    pub(crate) async fn sweep(&self) -> Result<(), Status> {
        let is_finished =
            self.read(|view| Ok(view.swept()? >= mvcc::Revision::first_of(view.compacted()? + 1))).await?;
        let mut is_finished = is_finished;
        while !is_finished {
            let answer = self.propose(Command::Sweep { revisions: SWEPT_AT_A_TIME }).await?;
            is_finished = matches!(answer, Answer::Swept { is_finished: true });
        }
        Ok(())
    }

    /// Moves what lies behind free space to the front, and cuts the store's file off.
    pub(crate) async fn defragment(&self) -> Result<(), Status> {
        let db = self.db().clone();
        let done = blocking(move || db.compact(&mut |_| {})).await;
        self.inner.quota.forget();
        match done {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Status::from(Failed::from(error))),
            Err(error) => Err(Status::internal(error.to_string())),
        }
    }

    /// Has what compaction gave up deleted in the background.
    pub(crate) fn sweep_later(&self) {
        self.inner.compacted.notify_one();
    }

    /// A header with this revision.
    pub(crate) fn header(&self, revision: i64) -> Option<ResponseHeader> {
        let Identity { member_id, cluster_id } = self.inner.identity;
        let raft_term = self.inner.raft.metrics().borrow_watched().current_term;
        Some(ResponseHeader { cluster_id, member_id, revision, raft_term })
    }

    /// Completes the header of a response of the store's.
    pub(crate) fn complete(&self, header: Option<ResponseHeader>) -> Option<ResponseHeader> {
        self.header(header.map_or(0, |header| header.revision))
    }
}

fn raft_config(identity: Identity, options: &NodeOptions) -> openraft::Config {
    openraft::Config {
        cluster_name: format!("{:x}", identity.cluster_id),
        heartbeat_interval: options.heartbeat_ms,
        election_timeout_min: options.heartbeat_ms * 10,
        election_timeout_max: options.heartbeat_ms * 20,
        // `LogSpace` asks for snapshots and purges, by bytes.
        snapshot_policy: SnapshotPolicy::Never,
        enable_pre_vote: Some(true),
        // The state may lack after a crash what was committed, and so may the note of it: leading begins with an election, whose first
        // entry commits all that is there.
        enable_leader_restore: Some(false),
        // A member that is back is not left waiting for a whole election.
        backoff: format!("{0}ms {0}ms {0}ms", options.heartbeat_ms),
        // What a member misses comes in few messages; `LogStore` limits their bytes.
        max_payload_entries: 1024,
        ..openraft::Config::default()
    }
}

/// Has deleted what compaction gave up: what this member was asked to, and, when it begins to lead, what others have not finished.
async fn sweep_when_compacted(weak: WeakNode, raft: Raft, compacted: Arc<Notify>) {
    let (mut led, mut is_due) = (false, false);
    while let Some(node) = weak.upgrade() {
        let leads = raft.is_leader();
        is_due |= leads && !led;
        led = leads;
        if is_due && node.sweep().await.is_ok() {
            is_due = false;
        }
        drop(node);
        is_due |= timeout(SWEEP_RETRY, compacted.notified()).await.is_ok();
    }
}

/// Reads the events of what was applied while there are watchers, until the node stops.
async fn feed_events(raft: Raft, state: StateMachine<Config, Keyspace>, feed: Arc<Feed>) {
    let mut applied = raft.watch_apply_progress();
    loop {
        // What came while there were none, watchers read themselves, if they want it.
        let is_behind = feed.until_subscribed().await;
        let (from, of) = (feed.revision() + 1, state.clone());
        let read = move || {
            mvcc::read_store(of.db(), of.tables(), |view| {
                let revision = view.revision()?;
                if from <= revision && (is_behind || from < view.compacted()?) {
                    // Of these, some may be deleted: a snapshot came from another member, or compaction was faster.
                    return Ok(Some((None, revision)));
                }
                if revision < from {
                    return Ok(None);
                }
                let (events, to) = view.events(from, revision, EVENT_BYTES)?;
                Ok(Some((Some(events), to)))
            })
        };
        match blocking(read).await {
            Ok(Ok(Some((Some(events), to)))) => feed.push(Batch { from, to, events: events.into() }),
            Ok(Ok(Some((None, to)))) => feed.skip_to(to),
            Ok(Ok(None)) => {
                if applied.changed().await.is_err() {
                    return;
                }
            }
            // The database is closed, or has failed: so will everything else.
            Ok(Err(_)) | Err(_) => return,
        }
    }
}

/// Runs what may block where it may.
pub(crate) async fn blocking<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> io::Result<T> {
    tokio::task::spawn_blocking(run).await.map_err(io::Error::other)
}

fn failed_to_start(failed: Failed) -> io::Error {
    io::Error::other(Status::from(failed).message().to_owned())
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("identity", &self.inner.identity).finish_non_exhaustive()
    }
}
