//! The members, and changes of them: the leader proposes these, one after the other.
//!
//! A member that is added first learns. One that is to vote becomes a voter when it has what the leader has ([`Node::keep_members`]),
//! so a cluster never waits for a member that was not started.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use openraft::async_runtime::Instant as _;
use openraft::error::{ClientWriteError, RaftError};
use openraft::raft::Precondition;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft::{ChangeMembers, RaftMetrics};
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, sleep, timeout_at};
use tonic::Status;

use crate::cluster_config::is_url;
use crate::command::Config;
use crate::member::Member;
use crate::node::Node;
use crate::peers::{LeaderAnswer, LeaderRequest};
use crate::refusal::Refusal;

/// A change that waits for another one looks again after this.
const RETRY: Duration = Duration::from_millis(20);
/// After this, it is looked again whether the members are as they are to be.
const LOOK: Duration = Duration::from_millis(200);
/// A learner that lacks more entries than this, or more than a tenth of the log, as in etcd, is not in sync.
const LAG_ENTRIES: u64 = 1000;

type Changes = ChangeMembers<u64, Member>;
pub(crate) type Membership = openraft::Membership<u64, Member>;

/// A change of the members.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum MembersChange {
    Add {
        peer_urls: Vec<String>,
        is_learner: bool,
    },
    Promote {
        id: u64,
    },
    Remove {
        id: u64,
    },
    Update {
        id: u64,
        peer_urls: Vec<String>,
    },
    /// A member says what it is, when it was started. Its peer URLs count if it has none.
    Publish {
        id: u64,
        member: Member,
    },
}

/// A member, as it is listed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Listed {
    pub id: u64,
    pub member: Member,
    pub is_learner: bool,
}

fn listed(membership: &Membership) -> Vec<Listed> {
    let voters: BTreeSet<u64> = membership.voter_ids().collect();
    let list =
        |(id, member): (&u64, &Member)| Listed { id: *id, member: member.clone(), is_learner: !voters.contains(id) };
    membership.nodes().map(list).collect()
}

fn set(id: u64, member: Member) -> Changes {
    ChangeMembers::SetNodes(BTreeMap::from([(id, member)]))
}

/// What a leader knows of the others.
struct Health {
    last_index: u64,
    /// Up to which entry each has the log.
    matched: BTreeMap<u64, u64>,
    /// Those that answered within an election timeout.
    answering: BTreeSet<u64>,
}

impl Health {
    fn is_in_sync(&self, id: u64) -> bool {
        let Some(matched) = self.matched.get(&id) else { return false };
        let lag = self.last_index.saturating_sub(*matched);
        self.answering.contains(&id) && lag <= LAG_ENTRIES && lag * 10 <= self.last_index
    }
}

impl MembersChange {
    /// The change that raft is to make, if the members are as they are now. `None` if they are as they are to be.
    fn plan(&self, new_id: u64, now: &Membership, health: &Health) -> Result<Option<Changes>, Refusal> {
        let find = |id: u64| now.get_node(&id).cloned().ok_or(Refusal::MemberNotFound);
        let voters: BTreeSet<u64> = now.voter_ids().collect();
        let are_new = |id: u64, urls: &[String]| {
            if urls.is_empty() || !urls.iter().all(|url| is_url(url)) {
                return Err(Refusal::BadMemberUrls);
            }
            let mut others = now.nodes().filter(|(other, _)| **other != id).flat_map(|(_, member)| &member.peer_urls);
            match others.any(|url| urls.contains(url)) {
                true => Err(Refusal::PeerUrlExists),
                false => Ok(()),
            }
        };
        // Those that were started, and those that answer, would still be a majority.
        let is_enough = |voters: &BTreeSet<u64>| {
            let started = voters.iter().filter(|id| now.get_node(id).is_some_and(|member| !member.name.is_empty()));
            let answering = voters.intersection(&health.answering);
            let quorum = voters.len() / 2 + 1;
            match (started.count() >= quorum, answering.count() >= quorum) {
                (false, _) => Err(Refusal::NotEnoughStarted),
                (_, false) => Err(Refusal::Unhealthy),
                _ => Ok(()),
            }
        };
        match self {
            MembersChange::Add { peer_urls, is_learner } => {
                are_new(new_id, peer_urls)?;
                if !is_learner && !voters.is_subset(&health.answering) {
                    return Err(Refusal::Unhealthy);
                }
                let member = Member { peer_urls: peer_urls.clone(), becomes_voter: !is_learner, ..Member::default() };
                Ok(Some(ChangeMembers::AddNodes(BTreeMap::from([(new_id, member)]))))
            }
            MembersChange::Promote { id } => {
                find(*id)?;
                if voters.contains(id) {
                    return Err(Refusal::MemberNotLearner);
                }
                if !health.is_in_sync(*id) {
                    return Err(Refusal::LearnerNotReady);
                }
                Ok(Some(ChangeMembers::AddVoterIds(BTreeSet::from([*id]))))
            }
            MembersChange::Remove { id } => {
                find(*id)?;
                let gone = BTreeSet::from([*id]);
                if !voters.contains(id) {
                    return Ok(Some(ChangeMembers::RemoveNodes(gone)));
                }
                is_enough(&voters.difference(&gone).copied().collect())?;
                Ok(Some(ChangeMembers::RemoveVoters(gone)))
            }
            MembersChange::Update { id, peer_urls } => {
                let member = find(*id)?;
                are_new(*id, peer_urls)?;
                let updated = Member { peer_urls: peer_urls.clone(), ..member.clone() };
                Ok((updated != member).then(|| set(*id, updated)))
            }
            MembersChange::Publish { id, member: published } => {
                let member = find(*id)?;
                let peer_urls = if member.peer_urls.is_empty() { &published.peer_urls } else { &member.peer_urls };
                let updated = Member {
                    name: published.name.clone(),
                    client_urls: published.client_urls.clone(),
                    peer_urls: peer_urls.clone(),
                    becomes_voter: member.becomes_voter,
                };
                Ok((updated != member).then(|| set(*id, updated)))
            }
        }
    }

    fn id(&self, new_id: u64) -> u64 {
        match self {
            MembersChange::Add { .. } => new_id,
            MembersChange::Promote { id }
            | MembersChange::Remove { id }
            | MembersChange::Update { id, .. }
            | MembersChange::Publish { id, .. } => *id,
        }
    }
}

/// Why a leader did not change the members.
enum Unchanged {
    NotLeader,
    /// Another change is under way, or came before.
    TryAgain,
    Refused(Refusal),
}

impl Node {
    /// The members, as this one has applied them, by their numbers.
    pub(crate) fn listed_members(&self) -> Vec<Listed> {
        let metrics = self.raft().metrics();
        let members = metrics.borrow_watched().committed_membership_config.clone();
        listed(members.membership())
    }

    /// The members, as the entry with this index left them, or a later one.
    pub(crate) async fn members_at_least(&self, index: u64) -> Result<Vec<Listed>, Status> {
        let mut metrics = self.raft().metrics();
        while metrics.borrow_watched().last_applied.is_none_or(|applied| applied.index < index) {
            metrics.changed().await.map_err(|_| Refusal::Stopped)?;
        }
        Ok(self.listed_members())
    }

    /// Changes the members. Returns the one that it concerned, and all.
    pub(crate) async fn change_members(&self, change: MembersChange) -> Result<(u64, Vec<Listed>), Status> {
        match self.ask_leader(LeaderRequest::ChangeMembers(change)).await? {
            LeaderAnswer::Members { index, id, members } => {
                let own_id = self.identity().member_id;
                if members.iter().any(|listed| listed.id == own_id) {
                    self.members_at_least(index).await?;
                }
                Ok((id, members))
            }
            other => Err(Status::internal(format!("the leader answered with {other:?}"))),
        }
    }

    /// Whether another member has answered the leader, which this one is, within an election timeout.
    pub(crate) fn answers(&self, metrics: &RaftMetrics<Config>, id: u64) -> bool {
        let heard = metrics.heartbeat.as_ref().and_then(|of| of.get(&id).copied().flatten());
        heard.is_some_and(|at| at.elapsed() < self.options().election_timeout())
    }

    fn health(&self) -> Health {
        let metrics = self.raft().metrics();
        let metrics = metrics.borrow_watched();
        let others = metrics.heartbeat.iter().flatten().map(|(id, _)| *id);
        let matched = metrics.replication.iter().flatten();
        Health {
            last_index: metrics.last_log_index.unwrap_or(0),
            matched: matched.filter_map(|(id, matched)| Some((*id, matched.as_ref()?.index))).collect(),
            answering: others.filter(|id| self.answers(&metrics, *id)).chain([metrics.id]).collect(),
        }
    }

    /// Changes the members, if this one leads.
    pub(crate) async fn lead_members_change(&self, change: &MembersChange, deadline: Instant) -> LeaderAnswer {
        let new_id = fastrand::u64(1..=i64::MAX as u64);
        loop {
            match timeout_at(deadline, self.try_change_members(change, new_id)).await {
                Ok(Ok(answer)) => return answer,
                Ok(Err(Unchanged::NotLeader)) => return LeaderAnswer::NotLeader,
                Ok(Err(Unchanged::Refused(refusal))) => return LeaderAnswer::Refused(refusal),
                Ok(Err(Unchanged::TryAgain)) if Instant::now() < deadline => sleep(RETRY).await,
                Ok(Err(Unchanged::TryAgain)) | Err(_) => return LeaderAnswer::Refused(Refusal::TimedOut),
            }
        }
    }

    async fn try_change_members(&self, change: &MembersChange, new_id: u64) -> Result<LeaderAnswer, Unchanged> {
        // A leader that is none any more knows old members.
        let read = self.lead_read_index().await.ok_or(Unchanged::NotLeader)?;
        let (now, at) = {
            let metrics = self.raft().metrics();
            let metrics = metrics.borrow_watched();
            let is_applied = metrics.last_applied.is_some_and(|applied| applied.index >= read);
            // What another change makes of them is certain when it is committed.
            if !is_applied || metrics.membership_config.log_id() != metrics.committed_membership_config.log_id() {
                return Err(Unchanged::TryAgain);
            }
            (metrics.membership_config.membership().clone(), *metrics.membership_config.log_id())
        };
        let id = change.id(new_id);
        let Some(changes) = change.plan(new_id, &now, &self.health()).map_err(Unchanged::Refused)? else {
            return Ok(LeaderAnswer::Members { index: read, id, members: listed(&now) });
        };
        let (index, after) = self.write_members(changes, at).await?;
        // A leader that is removed notices when it has stepped down.
        if let (MembersChange::Remove { .. }, Some(member)) = (change, now.get_node(&id).cloned())
            && id != self.identity().member_id
        {
            let peers = self.peers_handle();
            tokio::spawn(async move { peers.tell_removed(id, &member).await });
        }
        Ok(LeaderAnswer::Members { index, id, members: listed(&after) })
    }

    /// Has raft change the members, if nothing changed them since `at`.
    async fn write_members(
        &self,
        changes: Changes,
        at: Option<openraft::alias::LogIdOf<Config>>,
    ) -> Result<(u64, Membership), Unchanged> {
        let unchanged = Precondition::LastMembershipLogId { last_membership_log_id: at };
        match self.raft().change_membership_if(changes, false, [unchanged]).await {
            Ok(written) => Ok((written.log_id.index, written.membership.unwrap_or_default())),
            Err(RaftError::Fatal(_)) => Err(Unchanged::Refused(Refusal::Stopped)),
            Err(RaftError::APIError(error)) => Err(match error {
                ClientWriteError::ForwardToLeader(_) => Unchanged::NotLeader,
                ClientWriteError::LogEntryDiscarded(_) => Unchanged::Refused(Refusal::LeaderFailed),
                ClientWriteError::PreconditionFailed(_) | ClientWriteError::ChangeMembershipError(_) => {
                    Unchanged::TryAgain
                }
            }),
        }
    }

    /// Keeps the members as they are to be, for ever: publishes this one; as the leader, has learners vote that are to, and ends changes
    /// that an earlier leader began; connects to those that are members; notices when this one is none any more.
    pub(crate) async fn keep_members(weak: crate::node::WeakNode) {
        let mut was_member = false;
        loop {
            let Some(node) = weak.upgrade() else { return };
            let (effective, committed, leads) = {
                let metrics = node.raft().metrics();
                let metrics = metrics.borrow_watched();
                // Raft's vote for a leader that was removed stays.
                let leads = metrics.state.is_leader();
                (metrics.membership_config.clone(), metrics.committed_membership_config.clone(), leads)
            };
            let id = node.identity().member_id;
            effective.nodes().for_each(|(other, member)| node.peers().learn(*other, member));
            node.peers().keep_only(|other| effective.membership().get_node(&other).is_some());
            let is_in = committed.membership().get_node(&id).is_some();
            if was_member && !is_in && !leads {
                node.peers().note_removed();
            }
            was_member |= is_in;
            // Failures are tried again.
            if is_in {
                let _ = node.publish().await;
            }
            if leads && effective.log_id() == committed.log_id() {
                let is_joint = effective.membership().get_joint_config().len() > 1;
                let health = node.health();
                let ready = listed(effective.membership())
                    .into_iter()
                    .filter(|listed| listed.is_learner && listed.member.becomes_voter && health.is_in_sync(listed.id));
                let ready: BTreeSet<u64> = ready.map(|listed| listed.id).collect();
                if is_joint || !ready.is_empty() {
                    let _ = node.write_members(ChangeMembers::AddVoterIds(ready), *effective.log_id()).await;
                }
            }
            drop(node);
            sleep(LOOK).await;
        }
    }

    /// Has the cluster know this member's name and URLs, if it is one.
    pub(crate) async fn publish(&self) -> Result<(), Status> {
        let id = self.identity().member_id;
        let options = self.options();
        let known = self.listed_members().into_iter().find(|listed| listed.id == id);
        let is_as = |member: &Member| {
            let has_peer_urls = !member.peer_urls.is_empty() || options.peer_urls.is_empty();
            member.name == options.name && member.client_urls == options.client_urls && has_peer_urls
        };
        if known.is_some_and(|listed| is_as(&listed.member)) {
            return Ok(());
        }
        let member = Member {
            name: options.name.clone(),
            peer_urls: options.peer_urls.clone(),
            client_urls: options.client_urls.clone(),
            becomes_voter: false,
        };
        self.change_members(MembersChange::Publish { id, member }).await.map(drop)
    }
}
