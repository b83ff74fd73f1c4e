//! Cluster: the members, and changes of them.

use tonic::{Request, Response, Status};

use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::cluster_server;
use crate::membership::{Listed, MembersChange};
use crate::node::Node;

/// The service, of a node.
pub struct Cluster {
    node: Node,
}

fn to_etcds(members: Vec<Listed>) -> Vec<pb::Member> {
    let member = |Listed { id, member, is_learner }| pb::Member {
        id,
        name: member.name,
        peer_ur_ls: member.peer_urls,
        client_ur_ls: member.client_urls,
        is_learner,
    };
    members.into_iter().map(member).collect()
}

impl Cluster {
    pub fn new(node: Node) -> Cluster {
        Cluster { node }
    }

    /// A header; as in etcd, without a revision.
    fn header(&self) -> Option<pb::ResponseHeader> {
        self.node.header(0)
    }

    async fn change(&self, change: MembersChange) -> Result<Vec<pb::Member>, Status> {
        Ok(to_etcds(self.node.change_members(change).await?.1))
    }
}

#[tonic::async_trait]
impl cluster_server::Cluster for Cluster {
    async fn member_add(
        &self,
        request: Request<pb::MemberAddRequest>,
    ) -> Result<Response<pb::MemberAddResponse>, Status> {
        let pb::MemberAddRequest { peer_ur_ls, is_learner } = request.into_inner();
        let (id, members) = self.node.change_members(MembersChange::Add { peer_urls: peer_ur_ls, is_learner }).await?;
        let members = to_etcds(members);
        let member = members.iter().find(|member| member.id == id).cloned();
        Ok(Response::new(pb::MemberAddResponse { header: self.header(), member, members }))
    }

    async fn member_remove(
        &self,
        request: Request<pb::MemberRemoveRequest>,
    ) -> Result<Response<pb::MemberRemoveResponse>, Status> {
        let members = self.change(MembersChange::Remove { id: request.into_inner().id }).await?;
        Ok(Response::new(pb::MemberRemoveResponse { header: self.header(), members }))
    }

    async fn member_update(
        &self,
        request: Request<pb::MemberUpdateRequest>,
    ) -> Result<Response<pb::MemberUpdateResponse>, Status> {
        let pb::MemberUpdateRequest { id, peer_ur_ls } = request.into_inner();
        let members = self.change(MembersChange::Update { id, peer_urls: peer_ur_ls }).await?;
        Ok(Response::new(pb::MemberUpdateResponse { header: self.header(), members }))
    }

    async fn member_promote(
        &self,
        request: Request<pb::MemberPromoteRequest>,
    ) -> Result<Response<pb::MemberPromoteResponse>, Status> {
        let members = self.change(MembersChange::Promote { id: request.into_inner().id }).await?;
        Ok(Response::new(pb::MemberPromoteResponse { header: self.header(), members }))
    }

    async fn member_list(
        &self,
        request: Request<pb::MemberListRequest>,
    ) -> Result<Response<pb::MemberListResponse>, Status> {
        let members = match request.into_inner().linearizable {
            true => self.node.members_at_least(self.node.catch_up().await?).await?,
            false => self.node.listed_members(),
        };
        Ok(Response::new(pb::MemberListResponse { header: self.header(), members: to_etcds(members) }))
    }
}
