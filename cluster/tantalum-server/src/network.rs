//! The way to other members. A cluster has one member so far: no other is reached.

use std::future::Future;

use openraft::alias::{SnapshotOf, VoteOf};
use openraft::error::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, VoteRequest, VoteResponse};
use openraft::{AnyError, BasicNode};
use tantalum_raft::StateSnapshot;

use crate::command::Config;

/// Knows no other member.
pub(crate) struct NoPeers;

/// The way to a member that is not known.
pub(crate) struct Nowhere(u64);

impl Nowhere {
    fn unreachable(&self) -> Unreachable<Config> {
        Unreachable::new(&AnyError::error(format!("member {} is not known", self.0)))
    }
}

impl RaftNetworkFactory<Config> for NoPeers {
    type Network = Nowhere;

    async fn new_client(&mut self, member: u64, _node: &BasicNode) -> Nowhere {
        Nowhere(member)
    }
}

impl RaftNetworkV2<Config> for Nowhere {
    type SnapshotData = StateSnapshot;

    async fn append_entries(
        &mut self,
        _request: AppendEntriesRequest<Config>,
        _option: RPCOption,
    ) -> Result<AppendEntriesResponse<Config>, RPCError<Config>> {
        Err(self.unreachable().into())
    }

    async fn vote(
        &mut self,
        _request: VoteRequest<Config>,
        _option: RPCOption,
    ) -> Result<VoteResponse<Config>, RPCError<Config>> {
        Err(self.unreachable().into())
    }

    async fn full_snapshot(
        &mut self,
        _vote: VoteOf<Config>,
        _snapshot: SnapshotOf<Config, StateSnapshot>,
        _cancel: impl Future<Output = ReplicationClosed> + Send + 'static,
        _option: RPCOption,
    ) -> Result<SnapshotResponse<Config>, StreamingError<Config>> {
        Err(self.unreachable().into())
    }
}
