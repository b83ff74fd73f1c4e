//! openraft's way to other members, over gRPC.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures_util::Stream;
use openraft::alias::{SnapshotOf, VoteOf};
use openraft::error::{NetworkError, RPCError, ReplicationClosed, StreamingError, Timeout, Unreachable};
use openraft::network::{RPCOption, RPCTypes, RaftNetworkFactory, RaftNetworkV2, stream_append_sequential};
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest, TransferLeaderResponse,
    VoteRequest, VoteResponse,
};
use serde::de::DeserializeOwned;
use tantalum_raft::StateSnapshot;
use tonic::{Code, Response, Status};

use super::message::{decode, encode};
use super::{Lane, Peers, entries_stream, snapshot_stream, was_not_sent};
use crate::api::peer as pb;
use crate::command::Config;
use crate::member::Member;

/// Makes the ways to members.
pub struct Network {
    pub peers: Arc<Peers>,
}

/// The way to one member.
pub struct Way {
    pub(super) peers: Arc<Peers>,
    pub(super) to: u64,
    lane: Lane,
    /// The member is of a version that knows no stream of entries.
    pub(super) sends_one_by_one: bool,
}

impl Network {
    fn way(&self, to: u64, node: &Member, lane: Lane) -> Way {
        self.peers.learn(to, node);
        Way { peers: Arc::clone(&self.peers), to, lane, sends_one_by_one: false }
    }
}

impl RaftNetworkFactory<Config> for Network {
    type Network = Way;

    async fn new_client(&mut self, to: u64, node: &Member) -> Way {
        self.way(to, node, Lane::Entries)
    }

    async fn new_heartbeat_client(&mut self, to: u64, node: &Member) -> Way {
        self.way(to, node, Lane::Heartbeats)
    }

    async fn new_snapshot_client(&mut self, to: u64, node: &Member) -> Way {
        self.way(to, node, Lane::Snapshots)
    }
}

impl Way {
    /// What openraft gets to know of a call that failed.
    pub(super) fn failed(&self, status: &Status) -> RPCError<Config> {
        self.peers.failed(self.to);
        if status.code() == Code::PermissionDenied {
            // Only a member that knows that this one was removed says so.
            self.peers.note_removed();
        }
        let identity = self.peers.identity;
        if status.code() == Code::FailedPrecondition
            && self.peers.is_news((identity.cluster_id, self.to, identity.member_id))
        {
            tracing::warn!("member {:x} refused a message: {}", self.to, status.message());
        }
        match was_not_sent(status) || status.code() == Code::FailedPrecondition {
            true => Unreachable::from_string(status.message()).into(),
            false => NetworkError::from_string(status.message()).into(),
        }
    }

    /// Openraft's error of a member that did not answer in time.
    pub(super) fn timed_out(&self, action: RPCTypes, timeout: Duration) -> RPCError<Config> {
        self.peers.failed(self.to);
        Timeout { action, id: self.peers.identity.member_id, target: self.to, timeout }.into()
    }

    async fn answered<T: DeserializeOwned>(
        &self,
        action: RPCTypes,
        timeout: Duration,
        call: impl Future<Output = Result<Response<pb::Answer>, Status>>,
    ) -> Result<T, RPCError<Config>> {
        match tokio::time::timeout(timeout, call).await {
            Ok(Ok(answer)) => decode(&answer.into_inner().body).map_err(|status| self.failed(&status)),
            Ok(Err(status)) => Err(self.failed(&status)),
            Err(_) => Err(self.timed_out(action, timeout)),
        }
    }

    pub(super) fn entries(&self, request: &AppendEntriesRequest<Config>) -> Result<pb::Entries, RPCError<Config>> {
        let AppendEntriesRequest { vote, prev_log_id, entries, leader_commit } = request;
        let head = encode(&(vote, prev_log_id, leader_commit)).map_err(|status| self.failed(&status))?;
        let entries = entries.iter().map(encode).collect::<Result<_, _>>().map_err(|status| self.failed(&status))?;
        Ok(pb::Entries { address: self.peers.address(self.to), head, entries })
    }

    fn message(&self, body: &impl serde::Serialize) -> Result<pb::Message, RPCError<Config>> {
        Ok(self.peers.message(self.to, encode(body).map_err(|status| self.failed(&status))?))
    }

    pub(super) fn client(
        &self,
        lane: Lane,
    ) -> Result<pb::peer_client::PeerClient<tonic::transport::Channel>, RPCError<Config>> {
        self.peers.client(self.to, lane).map_err(|status| Unreachable::from_string(status.message()).into())
    }
}

impl RaftNetworkV2<Config> for Way {
    type SnapshotData = StateSnapshot;

    async fn append_entries(
        &mut self,
        request: AppendEntriesRequest<Config>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<Config>, RPCError<Config>> {
        // Entries wait for the other's device; openraft allows them the time of a heartbeat.
        let timeout = match request.entries.is_empty() {
            true => option.soft_ttl(),
            false => option.soft_ttl().max(self.peers.connector.patience),
        };
        let message = self.entries(&request)?;
        let mut client = self.client(self.lane)?;
        self.answered(RPCTypes::AppendEntries, timeout, client.append(message)).await
    }

    fn stream_append<'s, S>(&'s mut self, input: S, option: RPCOption) -> entries_stream::Appending<'s>
    where
        S: Stream<Item = AppendEntriesRequest<Config>> + Send + Unpin + 'static,
    {
        match self.lane {
            Lane::Entries if !self.sends_one_by_one => Box::pin(entries_stream::send(self, Box::pin(input))),
            // A heartbeat is one message.
            _ => stream_append_sequential(self, input, option),
        }
    }

    async fn vote(
        &mut self,
        request: VoteRequest<Config>,
        option: RPCOption,
    ) -> Result<VoteResponse<Config>, RPCError<Config>> {
        let (message, mut client) = (self.message(&request)?, self.client(Lane::Heartbeats)?);
        self.answered(RPCTypes::Vote, option.soft_ttl(), client.vote(message)).await
    }

    async fn pre_vote(
        &mut self,
        request: VoteRequest<Config>,
        option: RPCOption,
    ) -> Result<VoteResponse<Config>, RPCError<Config>> {
        let (message, mut client) = (self.message(&request)?, self.client(Lane::Heartbeats)?);
        self.answered(RPCTypes::Vote, option.soft_ttl(), client.pre_vote(message)).await
    }

    async fn full_snapshot(
        &mut self,
        vote: VoteOf<Config>,
        snapshot: SnapshotOf<Config, StateSnapshot>,
        cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Config>, StreamingError<Config>> {
        let head = encode(&(vote, &snapshot.meta)).map_err(|status| self.failed(&status))?;
        let first = pb::SnapshotPart { address: self.peers.address(self.to), head, rows: Vec::new() };
        let mut client = self.client(Lane::Snapshots)?;
        // However long it takes: the connection ends when the other is gone.
        let sent = client.install_snapshot(snapshot_stream::parts(first, snapshot.snapshot));
        tokio::select! {
            answer = sent => match answer {
                Ok(answer) => Ok(decode(&answer.into_inner().body).map_err(|status| self.failed(&status))?),
                Err(status) => Err(self.failed(&status).into()),
            },
            closed = cancel => Err(closed.into()),
        }
    }

    async fn transfer_leader(
        &mut self,
        request: TransferLeaderRequest<Config>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<Config>, RPCError<Config>> {
        let (message, mut client) = (self.message(&request)?, self.client(Lane::Heartbeats)?);
        self.answered(RPCTypes::TransferLeader, option.soft_ttl(), client.transfer_leader(message)).await
    }
}
