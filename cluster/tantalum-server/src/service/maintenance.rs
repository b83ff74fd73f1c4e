//! Maintenance: status, hashes, alarms, snapshots, and giving back space.

use std::io::{self, BufWriter, Write};

use openraft::type_config::async_runtime::WatchReceiver;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::kv::unexpected;
use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::maintenance_server;
use crate::command::{Answer, Command, Encoded};
use crate::mvcc;
use crate::node::{Node, blocking};
use crate::snapshot;

/// The version of etcd whose API this is: clients choose by it what they ask for.
const ETCD_VERSION: &str = "3.6.0";

/// Bytes of a snapshot in a message.
const BLOB_BYTES: usize = 64 << 10;

/// The service, of a node.
pub struct Maintenance {
    node: Node,
}

impl Maintenance {
    pub fn new(node: Node) -> Maintenance {
        Maintenance { node }
    }
}

/// Sends what is written as the blobs of a snapshot.
struct Blobs {
    header: Option<pb::ResponseHeader>,
    responses: mpsc::Sender<Result<pb::SnapshotResponse, Status>>,
}

impl Write for Blobs {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let response = pb::SnapshotResponse {
            header: self.header,
            blob: bytes.to_vec(),
            version: ETCD_VERSION.to_owned(),
            // Not known before the end.
            remaining_bytes: 0,
        };
        self.responses.blocking_send(Ok(response)).map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[tonic::async_trait]
impl maintenance_server::Maintenance for Maintenance {
    type SnapshotStream = ReceiverStream<Result<pb::SnapshotResponse, Status>>;

    async fn snapshot(&self, _request: Request<pb::SnapshotRequest>) -> Result<Response<Self::SnapshotStream>, Status> {
        let snapshot = self.node.snapshot().await?;
        let revision = self.node.read(|view| Ok(view.revision()?)).await?;
        let (responses, stream) = mpsc::channel(2);
        let blobs = Blobs { header: self.node.header(revision), responses: responses.clone() };
        tokio::task::spawn_blocking(move || {
            if let Err(error) = snapshot::write(&snapshot, BufWriter::with_capacity(BLOB_BYTES, blobs)) {
                // A client that is gone need not know.
                let _ = responses.blocking_send(Err(internal(error)));
            }
        });
        Ok(Response::new(ReceiverStream::new(stream)))
    }

    async fn alarm(&self, request: Request<pb::AlarmRequest>) -> Result<Response<pb::AlarmResponse>, Status> {
        match self.node.propose(Command::Alarm(Encoded(request.into_inner()))).await? {
            Answer::Alarm(Encoded(mut response)) => {
                response.header = self.node.complete(response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn status(&self, _request: Request<pb::StatusRequest>) -> Result<Response<pb::StatusResponse>, Status> {
        let (revision, alarms) = self.node.read(|view| Ok((view.revision()?, view.alarms()?))).await?;
        let db = self.node.db().clone();
        let stats = blocking(move || db.stats()).await.map_err(internal)?.map_err(internal)?;
        let metrics = self.node.raft().metrics().borrow_watched().clone();
        let is_voter = metrics.membership_config.voter_ids().any(|voter| voter == metrics.id);
        let index = |id: Option<openraft::alias::LogIdOf<crate::command::Config>>| id.map_or(0, |id| id.index);
        let describe =
            |alarm: pb::AlarmMember| format!("memberID:{} alarm:{} ", alarm.member_id, alarm.alarm().as_str_name());
        Ok(Response::new(pb::StatusResponse {
            header: self.node.header(revision),
            version: ETCD_VERSION.to_owned(),
            db_size: stats.store.capacity_bytes as i64,
            db_size_quota: self.node.options().quota_bytes.map_or(0, |bytes| i64::try_from(bytes).unwrap_or(i64::MAX)),
            leader: metrics.current_leader.unwrap_or(0),
            raft_index: metrics.last_log_index.unwrap_or(0),
            raft_term: metrics.current_term,
            raft_applied_index: index(metrics.last_applied),
            errors: alarms.into_iter().map(describe).collect(),
            is_learner: !is_voter,
            ..pb::StatusResponse::default()
        }))
    }

    async fn defragment(
        &self,
        _request: Request<pb::DefragmentRequest>,
    ) -> Result<Response<pb::DefragmentResponse>, Status> {
        self.node.defragment().await?;
        Ok(Response::new(pb::DefragmentResponse::default()))
    }

    async fn move_leader(
        &self,
        request: Request<pb::MoveLeaderRequest>,
    ) -> Result<Response<pb::MoveLeaderResponse>, Status> {
        self.node.move_leader(request.into_inner().target_id).await?;
        Ok(Response::new(pb::MoveLeaderResponse::default()))
    }

    async fn hash(&self, _request: Request<pb::HashRequest>) -> Result<Response<pb::HashResponse>, Status> {
        let (revision, hash) = self.node.read(|view| Ok((view.revision()?, mvcc::hash_all(view)?))).await?;
        Ok(Response::new(pb::HashResponse { header: self.node.header(revision), hash }))
    }

    async fn hash_kv(&self, request: Request<pb::HashKvRequest>) -> Result<Response<pb::HashKvResponse>, Status> {
        let wanted = request.into_inner().revision;
        let read = self.node.read(move |view| Ok((view.revision()?, mvcc::hash_keys(view, wanted)?)));
        let (current, mvcc::KeysHash { hash, revision, compacted }) = read.await?;
        Ok(Response::new(pb::HashKvResponse {
            header: self.node.header(current),
            hash,
            compact_revision: compacted,
            hash_revision: revision,
        }))
    }
}

fn internal(error: impl std::fmt::Display) -> Status {
    Status::internal(format!("the database of this member failed: {error}"))
}
