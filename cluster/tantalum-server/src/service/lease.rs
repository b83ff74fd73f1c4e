//! Leases: made and ended by the cluster, counted by the leader.

use std::pin::Pin;

use futures_util::{Stream, StreamExt, stream};
use tokio::sync::watch;
use tonic::{Request, Response, Status, Streaming};

use super::kv::unexpected;
use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::lease_server;
use crate::command::{Answer, Command};
use crate::node::Node;
use crate::peers::{LeaderAnswer, LeaderRequest};

/// The service, of a node.
pub struct Lease {
    node: Node,
    stopped: watch::Receiver<bool>,
}

impl Lease {
    /// Streams end when `stopped` is true.
    pub fn new(node: Node, stopped: watch::Receiver<bool>) -> Lease {
        Lease { node, stopped }
    }
}

#[tonic::async_trait]
impl lease_server::Lease for Lease {
    type LeaseKeepAliveStream = Pin<Box<dyn Stream<Item = Result<pb::LeaseKeepAliveResponse, Status>> + Send>>;

    async fn lease_grant(
        &self,
        request: Request<pb::LeaseGrantRequest>,
    ) -> Result<Response<pb::LeaseGrantResponse>, Status> {
        let pb::LeaseGrantRequest { ttl, id } = request.into_inner();
        let id = if id == 0 { fastrand::i64(1..) } else { id };
        let ttl_s = ttl.max(self.node.options().min_lease_ttl_s());
        match self.node.propose(Command::LeaseGrant { id, ttl_s }).await? {
            Answer::Done { revision } => {
                let header = self.node.header(revision);
                Ok(Response::new(pb::LeaseGrantResponse { header, id, ttl: ttl_s, error: String::new() }))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn lease_revoke(
        &self,
        request: Request<pb::LeaseRevokeRequest>,
    ) -> Result<Response<pb::LeaseRevokeResponse>, Status> {
        let id = request.into_inner().id;
        match self.node.propose(Command::LeaseRevoke { id }).await? {
            Answer::Done { revision } => {
                Ok(Response::new(pb::LeaseRevokeResponse { header: self.node.header(revision) }))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn lease_keep_alive(
        &self,
        request: Request<Streaming<pb::LeaseKeepAliveRequest>>,
    ) -> Result<Response<Self::LeaseKeepAliveStream>, Status> {
        let (node, mut stopped) = (self.node.clone(), self.stopped.clone());
        let answers = stream::unfold((request.into_inner(), node), |(mut requests, node)| async move {
            let answer = match requests.next().await? {
                Ok(pb::LeaseKeepAliveRequest { id }) => renew(&node, id).await,
                Err(status) => Err(status),
            };
            Some((answer, (requests, node)))
        });
        let until_stopped = answers.take_until(async move { drop(stopped.wait_for(|stopped| *stopped).await) });
        Ok(Response::new(Box::pin(until_stopped)))
    }

    async fn lease_time_to_live(
        &self,
        request: Request<pb::LeaseTimeToLiveRequest>,
    ) -> Result<Response<pb::LeaseTimeToLiveResponse>, Status> {
        let pb::LeaseTimeToLiveRequest { id, keys } = request.into_inner();
        let LeaderAnswer::TimeToLive(left) = self.node.ask_leader(LeaderRequest::LeaseTimeToLive { id }).await? else {
            return Err(wrong());
        };
        self.node.catch_up().await?;
        let wants_keys = keys && left.is_some();
        let read = self
            .node
            .read(move |view| Ok((view.revision()?, if wants_keys { view.lease_keys(id)? } else { Vec::new() })));
        let (revision, keys) = read.await?;
        let (ttl, granted_ttl) = left.map_or((-1, 0), |left| (left.remaining_s, left.granted_s));
        let header = self.node.header(revision);
        Ok(Response::new(pb::LeaseTimeToLiveResponse { header, id, ttl, granted_ttl, keys }))
    }

    async fn lease_leases(
        &self,
        _request: Request<pb::LeaseLeasesRequest>,
    ) -> Result<Response<pb::LeaseLeasesResponse>, Status> {
        let LeaderAnswer::LeaseIds(ids) = self.node.ask_leader(LeaderRequest::LeaseIds).await? else {
            return Err(wrong());
        };
        self.node.catch_up().await?;
        let revision = self.node.read(|view| Ok(view.revision()?)).await?;
        let leases = ids.into_iter().map(|id| pb::LeaseStatus { id }).collect();
        Ok(Response::new(pb::LeaseLeasesResponse { header: self.node.header(revision), leases }))
    }
}

/// The leader answered another question: a bug.
fn wrong() -> Status {
    Status::internal("the leader answered another question about leases")
}

/// Renews a lease. The revision of the answer is from before: a client never hears of a renewal at a revision at which the lease was gone.
async fn renew(node: &Node, id: i64) -> Result<pb::LeaseKeepAliveResponse, Status> {
    let revision = node.read(|view| Ok(view.revision()?)).await?;
    let LeaderAnswer::Renewed(ttl) = node.ask_leader(LeaderRequest::LeaseRenew { id }).await? else {
        return Err(wrong());
    };
    Ok(pb::LeaseKeepAliveResponse { header: node.header(revision), id, ttl: ttl.unwrap_or(0) })
}
