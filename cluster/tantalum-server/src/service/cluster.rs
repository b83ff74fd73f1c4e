//! Cluster: the members.

use tonic::{Request, Response, Status};

use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::cluster_server;
use crate::node::Node;

/// The service, of a node.
pub struct Cluster {
    node: Node,
}

impl Cluster {
    pub fn new(node: Node) -> Cluster {
        Cluster { node }
    }
}

#[tonic::async_trait]
impl cluster_server::Cluster for Cluster {
    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        if request.into_inner().linearizable {
            self.node.catch_up().await?;
        }
        let options = self.node.options();
        let member = pb::Member {
            id: self.node.identity().member_id,
            name: options.name.clone(),
            peer_ur_ls: Vec::new(),
            client_ur_ls: options.client_urls.clone(),
            is_learner: false,
        };
        // As in etcd, without a revision.
        Ok(Response::new(pb::MemberListResponse { header: self.node.header(0), members: vec![member] }))
    }
}
