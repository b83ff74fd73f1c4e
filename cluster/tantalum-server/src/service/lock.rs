//! Lock: a lock is had by the key under its name that was made first.

use tokio::sync::watch;
use tonic::{Request, Response, Status};

use super::kv::unexpected;
use super::turns::{Turns, as_told};
use crate::api::etcdserverpb as pb;
use crate::api::v3lockpb as lock;
use crate::api::v3lockpb::lock_server;
use crate::command::{Answer, Command, Encoded};
use crate::node::Node;

/// The service, of a node.
pub struct Lock {
    node: Node,
    stopped: watch::Receiver<bool>,
}

impl Lock {
    /// Callers that wait are refused when `stopped` is true.
    pub fn new(node: Node, stopped: watch::Receiver<bool>) -> Lock {
        Lock { node, stopped }
    }
}

#[tonic::async_trait]
impl lock_server::Lock for Lock {
    async fn lock(&self, request: Request<lock::LockRequest>) -> Result<Response<lock::LockResponse>, Status> {
        let lock::LockRequest { name, lease } = request.into_inner();
        let turns = Turns::new(self.node.clone(), &name);
        let (turn, header) = turns.take(lease, b"", &mut self.stopped.clone()).await.map_err(as_told)?;
        // Its lease may have ended while it waited.
        let (key, created) = (turn.key.clone(), turn.created);
        let there = self.node.read(move |view| Ok(view.get(&key)?)).await?;
        match there.is_some_and(|row| row.create_revision == created) {
            true => Ok(Response::new(lock::LockResponse { header, key: turn.key })),
            false => Err(Status::unknown("mutex: session is expired")),
        }
    }

    async fn unlock(&self, request: Request<lock::UnlockRequest>) -> Result<Response<lock::UnlockResponse>, Status> {
        let delete = pb::DeleteRangeRequest { key: request.into_inner().key, ..Default::default() };
        super::check::delete_range(&delete).map_err(|refusal| as_told(refusal.into()))?;
        match self.node.propose(Command::DeleteRange(Encoded(delete))).await.map_err(as_told)? {
            Answer::DeleteRange(Encoded(response)) => {
                Ok(Response::new(lock::UnlockResponse { header: self.node.complete(response.header) }))
            }
            other => Err(unexpected(&other)),
        }
    }
}
