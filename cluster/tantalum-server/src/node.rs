//! A member: its storage, raft, and the tasks beside.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use openraft::error::{ClientWriteError, InitializeError, RaftError};
use openraft::storage::RaftStateMachine;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft::{BasicNode, ReadPolicy, SnapshotPolicy};
use tantalum::Db;
use tantalum_raft::openraft_storage::{LogStore, StateMachine};
use tantalum_raft::{RaftLog, StateSnapshot};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tonic::Status;

use crate::api::etcdserverpb::alarm_request::AlarmAction;
use crate::api::etcdserverpb::{AlarmRequest, AlarmType, ResponseHeader};
use crate::command::{Answer, Command, Config, Encoded, Raft};
use crate::directory::{Identity, Storage};
use crate::feed::{Batch, Feed, Found};
use crate::lease::Lessor;
use crate::log_space::LogSpace;
use crate::mvcc::{self, Keyspace, TABLES, View};
use crate::network::NoPeers;
use crate::options::NodeOptions;
use crate::quota::Quota;
use crate::refusal::{Failed, Refusal};

/// The raft group that the store is.
pub(crate) const GROUP: u64 = 1;
/// Revisions that one entry has compaction look at.
const SWEPT_AT_A_TIME: u32 = 500;
/// Bytes of events that are read at a time.
const EVENT_BYTES: usize = 1 << 20;
/// A part of a command that is cut has so many bytes, at most.
const MAX_PART_BYTES: usize = 512 << 10;
/// After this, compaction is tried again that could not go on.
const SWEEP_RETRY: Duration = Duration::from_secs(1);

/// A member of a cluster, of one so far. Clones are handles to the same member.
///
/// What was acknowledged is safe whether it is [closed](Self::close) or not; without, its files stay open until openraft's tasks have seen
/// that the last handle is gone. The example is at the crate.
#[derive(Clone)]
pub struct Node {
    inner: Arc<Inner>,
}

struct Inner {
    identity: Identity,
    options: NodeOptions,
    raft: Raft,
    state: StateMachine<Config, Keyspace>,
    log: RaftLog,
    space: Arc<LogSpace>,
    lessor: Arc<Lessor>,
    feed: Arc<Feed>,
    /// Held while a command is proposed in parts.
    parts: tokio::sync::Mutex<()>,
    /// Compaction has something to delete.
    compacted: Arc<Notify>,
    quota: Quota,
    tasks: Mutex<Vec<AbortHandle>>,
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
    /// Starts the member that `path` has, or makes a new cluster of one there if it has nothing. Returns when requests can be served.
    ///
    /// # Errors
    /// What is wrong with the directory or the options, with what to do about it; what a device or raft reports.
    pub async fn open(path: impl Into<PathBuf>, options: NodeOptions) -> io::Result<Node> {
        let (path, with) = (path.into(), options.clone());
        let storage = blocking(move || Storage::open(&path, &with)).await??;
        let Storage { identity, log, db } = storage;
        let lessor = Arc::new(Lessor::default());
        let group = log.group(GROUP);
        let state =
            StateMachine::new(db, GROUP, &TABLES, Keyspace::new(Arc::clone(&lessor))).map_err(io::Error::other)?;
        let config = openraft::Config {
            cluster_name: format!("{:x}", identity.cluster_id),
            heartbeat_interval: options.heartbeat_ms,
            election_timeout_min: options.heartbeat_ms * 10,
            election_timeout_max: options.heartbeat_ms * 20,
            // `LogSpace` asks for snapshots and purges, by bytes.
            snapshot_policy: SnapshotPolicy::Never,
            enable_pre_vote: Some(true),
            ..openraft::Config::default()
        };
        let config = Arc::new(config.validate().map_err(io::Error::other)?);
        let store = LogStore::new(group.clone());
        let raft =
            Raft::new(identity.member_id, config, NoPeers, store, state.clone()).await.map_err(io::Error::other)?;
        let quota = Quota::new(options.quota_bytes);
        let inner = Inner {
            identity,
            options,
            raft,
            log,
            space: Arc::new(LogSpace::new(group)),
            lessor,
            feed: Arc::new(Feed::new(0)),
            state,
            parts: tokio::sync::Mutex::default(),
            compacted: Arc::default(),
            quota,
            tasks: Mutex::default(),
        };
        Node::start(inner).await
    }

    /// Waits until it leads, and starts what runs beside.
    async fn start(mut inner: Inner) -> io::Result<Node> {
        let id = inner.identity.member_id;
        let members = BTreeMap::from([(id, BasicNode::default())]);
        match inner.raft.initialize(members).await {
            Ok(()) | Err(RaftError::APIError(InitializeError::NotAllowed(_))) => {}
            Err(error) => return Err(io::Error::other(error)),
        }
        // There is no other to wait for.
        inner.raft.trigger().elect(false).await.map_err(io::Error::other)?;
        inner.raft.wait(None).current_leader(id, "it is the only member").await.map_err(io::Error::other)?;
        inner.raft.ensure_linearizable(ReadPolicy::ReadIndex).await.map_err(io::Error::other)?;
        let (db, tables) = (inner.state.db().clone(), inner.state.tables().to_vec());
        let read = move || mvcc::read_store(&db, &tables, |view| Ok((view.revision()?, view.leases()?)));
        let (revision, leases) = blocking(read).await?.map_err(failed_to_start)?;
        leases.into_iter().for_each(|(id, ttl_s)| inner.lessor.granted(id, ttl_s));
        inner.feed = Arc::new(Feed::new(revision));
        let node = Node { inner: Arc::new(inner) };
        node.start_tasks();
        Ok(node)
    }

    /// The tasks know the node weakly: they end with its last handle.
    fn start_tasks(&self) {
        let Inner { raft, space, lessor, .. } = &*self.inner;
        let weak = Arc::downgrade(&self.inner);
        let revoke = move |id| {
            let node = weak.upgrade().map(|inner| Node { inner });
            async move {
                if let Some(node) = node {
                    // Refused if a client has revoked it; a failure is tried again.
                    let _ = node.propose(Command::LeaseRevoke { id }).await;
                }
            }
        };
        let leader = raft.clone();
        let expire = Arc::clone(lessor).expire(move || leader.is_leader(), revoke);
        let (weak, compacted) = (Arc::downgrade(&self.inner), Arc::clone(&self.inner.compacted));
        let sweep = async move {
            while let Some(inner) = weak.upgrade() {
                let node = Node { inner };
                let swept = node.sweep().await;
                drop(node);
                match swept {
                    Ok(()) => compacted.notified().await,
                    Err(_) => sleep(SWEEP_RETRY).await,
                }
            }
        };
        let (of, to) = (Arc::downgrade(&self.inner), Arc::downgrade(&self.inner));
        let revision = move || {
            let node = of.upgrade().map(|inner| Node { inner });
            async move { node?.read(|view| Ok(view.revision()?)).await.ok() }
        };
        let compact = move |revision| {
            let node = to.upgrade().map(|inner| Node { inner });
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
        ];
        let mut running = self.inner.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        running.extend(tasks.map(|task| task.abort_handle()));
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

    /// Has the cluster agree on a command, and returns the store's answer once it is durable.
    pub(crate) async fn propose(&self, command: Command) -> Result<Answer, Status> {
        if mvcc::request_bytes(&command) > self.inner.options.max_request_bytes {
            return Err(Refusal::RequestTooLarge.into());
        }
        if mvcc::takes_space(&command) {
            self.check_quota(mvcc::request_bytes(&command) as u64).await?;
        }
        let encoded = postcard::to_stdvec(&command).map_err(|error| Status::internal(error.to_string()))?;
        let space = self.inner.space.max_command_bytes();
        let answer = if encoded.len() <= space {
            self.append(command, encoded.len()).await?
        } else {
            drop(command);
            let _alone = self.inner.parts.lock().await;
            // What postcard adds to a part.
            let part_bytes = space.saturating_sub(32).min(MAX_PART_BYTES);
            let (parts, assembled) = mvcc::parts_of(self.inner.identity.member_id, &encoded, part_bytes);
            for part in parts {
                self.append(part, part_bytes).await?;
            }
            self.append(assembled, 0).await?
        };
        match answer {
            Answer::Refused(refusal) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }

    /// Sets the alarm for space if the store's file may not have so many bytes more.
    async fn check_quota(&self, more: u64) -> Result<(), Status> {
        let has_room = self.inner.quota.has_room(self.db(), more).await;
        if has_room.map_err(|error| Status::internal(error.to_string()))? {
            return Ok(());
        }
        let member_id = self.inner.identity.member_id;
        let alarm = AlarmRequest { action: AlarmAction::Activate as i32, member_id, alarm: AlarmType::Nospace as i32 };
        self.append(Command::Alarm(Encoded(alarm)), 0).await?;
        Err(Refusal::NoSpace.into())
    }

    async fn append(&self, command: Command, bytes: usize) -> Result<Answer, Status> {
        let _space = self.inner.space.admit(bytes).await.map_err(|_| Refusal::Stopped)?;
        match self.inner.raft.client_write(command).await {
            Ok(written) => Ok(written.data),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => Err(Refusal::NoLeader.into()),
            Err(RaftError::APIError(error)) => Err(Status::unavailable(error.to_string())),
            Err(RaftError::Fatal(_)) => Err(Refusal::Stopped.into()),
        }
    }

    /// Waits until this member has everything that was acknowledged before.
    pub(crate) async fn catch_up(&self) -> Result<(), Status> {
        match self.inner.raft.ensure_linearizable(ReadPolicy::ReadIndex).await {
            Ok(_) => Ok(()),
            Err(RaftError::Fatal(_)) => Err(Refusal::Stopped.into()),
            Err(RaftError::APIError(_)) => Err(Refusal::NoLeader.into()),
        }
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

/// Reads the events of what was applied, until the node stops.
async fn feed_events(raft: Raft, state: StateMachine<Config, Keyspace>, feed: Arc<Feed>) {
    let mut applied = raft.watch_apply_progress();
    loop {
        let (from, of) = (feed.revision() + 1, state.clone());
        let read = move || {
            mvcc::read_store(of.db(), of.tables(), |view| {
                let revision = view.revision()?;
                let batch = if revision < from { None } else { Some(view.events(from, revision, EVENT_BYTES)?) };
                Ok(batch)
            })
        };
        match blocking(read).await {
            Ok(Ok(Some((events, to)))) => feed.push(Batch { from, to, events: events.into() }),
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
