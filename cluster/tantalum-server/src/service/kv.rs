//! KV: range, put, delete, transaction, compaction.

use tonic::{Request, Response, Status};

use super::check;
use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::kv_server;
use crate::command::{Answer, Command, Encoded};
use crate::mvcc;
use crate::node::Node;

/// The service, of a node.
pub struct Kv {
    node: Node,
}

impl Kv {
    pub fn new(node: Node) -> Kv {
        Kv { node }
    }
}

/// The store answered another question: a bug.
pub fn unexpected(answer: &Answer) -> Status {
    Status::internal(format!("the store answered with {answer:?}"))
}

#[tonic::async_trait]
impl kv_server::Kv for Kv {
    async fn range(&self, request: Request<pb::RangeRequest>) -> Result<Response<pb::RangeResponse>, Status> {
        let request = request.into_inner();
        check::range(&request)?;
        if !request.serializable {
            self.node.catch_up().await?;
        }
        let mut response = self.node.read(move |view| mvcc::range(view, &request, view.revision()?)).await?;
        response.header = self.node.complete(response.header);
        Ok(Response::new(response))
    }

    async fn put(&self, request: Request<pb::PutRequest>) -> Result<Response<pb::PutResponse>, Status> {
        let request = request.into_inner();
        check::put(&request)?;
        match self.node.propose(Command::Put(Encoded(request))).await? {
            Answer::Put(Encoded(mut response)) => {
                response.header = self.node.complete(response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn delete_range(
        &self,
        request: Request<pb::DeleteRangeRequest>,
    ) -> Result<Response<pb::DeleteRangeResponse>, Status> {
        let request = request.into_inner();
        check::delete_range(&request)?;
        match self.node.propose(Command::DeleteRange(Encoded(request))).await? {
            Answer::DeleteRange(Encoded(mut response)) => {
                response.header = self.node.complete(response.header);
                Ok(Response::new(response))
            }
            other => Err(unexpected(&other)),
        }
    }

    async fn txn(&self, request: Request<pb::TxnRequest>) -> Result<Response<pb::TxnResponse>, Status> {
        let request = request.into_inner();
        check::txn(&request, self.node.options().max_txn_operations)?;
        let mut response = if mvcc::is_read_only(&request) {
            if !mvcc::is_serializable(&request) {
                self.node.catch_up().await?;
            }
            self.node.read(move |view| mvcc::read(view, &request)).await?
        } else {
            match self.node.propose(Command::Txn(Encoded(request))).await? {
                Answer::Txn(Encoded(response)) => response,
                other => return Err(unexpected(&other)),
            }
        };
        response.header = self.node.complete(response.header);
        Ok(Response::new(response))
    }

    async fn compact(
        &self,
        request: Request<pb::CompactionRequest>,
    ) -> Result<Response<pb::CompactionResponse>, Status> {
        let request = request.into_inner();
        match self.node.propose(Command::Compact { revision: request.revision }).await? {
            Answer::Done { revision } => {
                if request.physical {
                    self.node.sweep().await?;
                } else {
                    self.node.sweep_later();
                }
                Ok(Response::new(pb::CompactionResponse { header: self.node.header(revision) }))
            }
            other => Err(unexpected(&other)),
        }
    }
}
