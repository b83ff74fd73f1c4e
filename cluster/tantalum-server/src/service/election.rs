//! Election: the leader is the key under an election's name that was made first; its value is what the leader proclaims.

use std::pin::Pin;

use futures_util::Stream;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::turns::{Turn, Turns, as_told};
use crate::api::mvccpb::KeyValue;
use crate::api::v3electionpb as election;
use crate::api::v3electionpb::election_server;
use crate::node::Node;

/// Proclamations that wait for a slow client, at most; then its stream waits.
const WAITING: usize = 16;

/// The service, of a node.
pub struct Election {
    node: Node,
    stopped: watch::Receiver<bool>,
}

impl Election {
    /// Callers that wait are refused, and streams end, when `stopped` is true.
    pub fn new(node: Node, stopped: watch::Receiver<bool>) -> Election {
        Election { node, stopped }
    }
}

/// The turn of a leader that a request names.
fn turn_of(leader: Option<election::LeaderKey>) -> Result<Turn, Status> {
    match leader {
        Some(election::LeaderKey { key, rev, lease, .. }) => Ok(Turn { key, created: rev, lease }),
        None => Err(Status::unknown("\"leader\" field must be provided")),
    }
}

#[tonic::async_trait]
impl election_server::Election for Election {
    type ObserveStream = Pin<Box<dyn Stream<Item = Result<election::LeaderResponse, Status>> + Send>>;

    async fn campaign(
        &self,
        request: Request<election::CampaignRequest>,
    ) -> Result<Response<election::CampaignResponse>, Status> {
        let election::CampaignRequest { name, lease, value } = request.into_inner();
        let turns = Turns::new(self.node.clone(), &name);
        let (turn, header) = turns.take(lease, &value, &mut self.stopped.clone()).await.map_err(as_told)?;
        let Turn { key, created, lease } = turn;
        let leader = Some(election::LeaderKey { name, key, rev: created, lease });
        Ok(Response::new(election::CampaignResponse { header, leader }))
    }

    async fn proclaim(
        &self,
        request: Request<election::ProclaimRequest>,
    ) -> Result<Response<election::ProclaimResponse>, Status> {
        let election::ProclaimRequest { leader, value } = request.into_inner();
        let (header, leads) = turn_of(leader)?.set(&self.node, &value).await.map_err(as_told)?;
        match leads {
            true => Ok(Response::new(election::ProclaimResponse { header })),
            false => Err(Status::unknown("election: not leader")),
        }
    }

    async fn leader(
        &self,
        request: Request<election::LeaderRequest>,
    ) -> Result<Response<election::LeaderResponse>, Status> {
        self.node.catch_up().await?;
        let (revision, leader) = Turns::new(self.node.clone(), &request.get_ref().name).first().await?;
        match leader {
            Some(kv) => {
                Ok(Response::new(election::LeaderResponse { header: self.node.header(revision), kv: Some(kv) }))
            }
            None => Err(Status::unknown("election: no leader")),
        }
    }

    async fn observe(
        &self,
        request: Request<election::LeaderRequest>,
    ) -> Result<Response<Self::ObserveStream>, Status> {
        self.node.catch_up().await?;
        let turns = Turns::new(self.node.clone(), &request.get_ref().name);
        // Before the answer: whatever is proclaimed after it is seen.
        let first = turns.first().await?;
        let (responses, stream) = mpsc::channel(WAITING);
        let (node, stopped) = (self.node.clone(), self.stopped.clone());
        tokio::spawn(async move {
            let gone = responses.clone();
            let observed = tokio::select! {
                observed = observe(node, turns, first, stopped, responses.clone()) => observed,
                () = gone.closed() => Ok(()),
            };
            if let Err(status) = observed {
                // A client that is gone need not know.
                let _ = responses.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }

    async fn resign(
        &self,
        request: Request<election::ResignRequest>,
    ) -> Result<Response<election::ResignResponse>, Status> {
        let header = turn_of(request.into_inner().leader)?.end(&self.node).await.map_err(as_told)?;
        Ok(Response::new(election::ResignResponse { header }))
    }
}

/// Sends what leaders proclaim, from one at a revision on, until the node stops or the client is gone.
async fn observe(
    node: Node,
    turns: Turns,
    mut current: (i64, Option<KeyValue>),
    mut stopped: watch::Receiver<bool>,
    responses: mpsc::Sender<Result<election::LeaderResponse, Status>>,
) -> Result<(), Status> {
    loop {
        let (revision, mut leader) = current;
        if let Some(kv) = leader.clone() {
            let header = node.header(revision);
            let _ = responses.send(Ok(election::LeaderResponse { header, kv: Some(kv) })).await;
        }
        let mut events = turns.events(revision + 1);
        'of_this_leader: while let Some(found) = events.next(&mut stopped).await? {
            for event in found {
                match &leader {
                    Some(leader) if leader.key != event.key_value.key => continue,
                    Some(_) if event.is_delete => break 'of_this_leader,
                    _ if event.is_delete => continue,
                    _ => {}
                }
                let header = node.header(event.revision.main);
                leader = Some(event.key_value.clone());
                let _ = responses.send(Ok(election::LeaderResponse { header, kv: Some(event.key_value) })).await;
            }
        }
        current = turns.first().await?;
    }
}
