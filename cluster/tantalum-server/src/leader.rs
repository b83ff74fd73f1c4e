//! What only the leader can do, asked by any member: by a call if it leads itself, and else over the peer network.
//!
//! Invariant: a command is proposed again only if it was certainly not proposed before. So it is applied once at most; a caller that is
//! told that it is not known asks the store.

use std::time::Duration;

use openraft::async_runtime::Instant as _;
use openraft::error::{ClientWriteError, LinearizableReadError, RaftError};
use openraft::impls::ProgressResponder;
use openraft::type_config::async_runtime::WatchReceiver;
use openraft::{RaftMetrics, ReadPolicy};
use tokio::time::{Instant, timeout_at};
use tonic::Status;

use crate::api::etcdserverpb::alarm_request::AlarmAction;
use crate::api::etcdserverpb::{AlarmRequest, AlarmType};
use crate::command::{Answer, Command, Config, Encoded};
use crate::mvcc;
use crate::node::Node;
use crate::peers::{LeaderAnswer, LeaderRequest, NoAnswer};
use crate::refusal::Refusal;

/// What raft knows a leadership by: no other has the same.
pub(crate) type Leadership = openraft::alias::CommittedLeaderIdOf<Config>;

/// A part of a command that is cut has so many bytes, at most.
const MAX_PART_BYTES: usize = 512 << 10;
/// After this, a leader is asked again that was none, or could not be reached, unless there is another before.
const RETRY: Duration = Duration::from_millis(20);

/// As good as no limit.
const UNLIMITED: Duration = Duration::from_secs(86_400);

/// Why a command was not applied, as far as is known.
enum NotWritten {
    /// It is in no log, and never will be.
    Certainly,
    Maybe(Refusal),
}

fn is_only_voter(metrics: &RaftMetrics<Config>) -> bool {
    metrics.state.is_leader() && metrics.membership_config.voter_ids().eq([metrics.id])
}

fn unexpected(answer: &LeaderAnswer) -> Status {
    Status::internal(format!("the leader answered with {answer:?}"))
}

impl Node {
    /// Has the cluster agree on a command, and returns the store's answer once it is durable and applied here.
    pub(crate) async fn propose(&self, command: Command) -> Result<Answer, Status> {
        let bytes = mvcc::request_bytes(&command);
        if bytes > self.options().max_request_bytes {
            return Err(Refusal::RequestTooLarge.into());
        }
        if mvcc::takes_space(&command) {
            self.check_quota(bytes as u64).await?;
        }
        match self.agree(command).await? {
            Answer::Refused(refusal) => Err(refusal.into()),
            answer => Ok(answer),
        }
    }

    async fn agree(&self, command: Command) -> Result<Answer, Status> {
        match self.ask_leader(LeaderRequest::Propose(command)).await? {
            LeaderAnswer::Proposed { index, answer } => {
                // So that what this member shows next has it. It is done, however long that takes.
                let _ = tokio::time::timeout(self.options().request_timeout(), self.until_applied(index)).await;
                Ok(answer)
            }
            other => Err(unexpected(&other)),
        }
    }

    /// Sets the alarm for space if the store's file may not have so many bytes more.
    async fn check_quota(&self, more: u64) -> Result<(), Status> {
        let has_room = self.quota().has_room(self.db(), more).await;
        if has_room.map_err(|error| Status::internal(error.to_string()))? {
            return Ok(());
        }
        let member_id = self.identity().member_id;
        let alarm = AlarmRequest { action: AlarmAction::Activate as i32, member_id, alarm: AlarmType::Nospace as i32 };
        self.agree(Command::Alarm(Encoded(alarm))).await?;
        Err(Refusal::NoSpace.into())
    }

    /// Waits until this member has everything that was acknowledged before. Returns the index of the entry up to which it has.
    pub(crate) async fn catch_up(&self) -> Result<u64, Status> {
        let index = match self.leader() == Some(self.identity().member_id) {
            // A leader has rounds of its own, which it shares with those that ask it.
            true => self.ask_read_index().await?,
            false => self.share_read_index().await?,
        };
        let applied = tokio::time::timeout(self.options().request_timeout(), self.until_applied(index)).await;
        applied.unwrap_or_else(|_| Err(Refusal::TimedOut.into()))?;
        Ok(index)
    }

    /// Asks the leader up to which entry reads must see.
    async fn ask_read_index(&self) -> Result<u64, Status> {
        match self.ask_leader(LeaderRequest::ReadIndex).await? {
            LeaderAnswer::ReadIndex(index) => Ok(index),
            other => Err(unexpected(&other)),
        }
    }

    /// As [`ask_read_index`](Self::ask_read_index), together with all that wait for the same.
    async fn share_read_index(&self) -> Result<u64, Status> {
        let node = self.clone();
        let ask = move || {
            let node = node.clone();
            async move { node.ask_read_index().await }
        };
        match timeout_at(self.deadline(), self.read_rounds().asked.join(ask)).await {
            Ok(asked) => asked.unwrap_or_else(|| Err(Refusal::Stopped.into())),
            Err(_) if self.leader().is_some() => Err(Refusal::TimedOut.into()),
            Err(_) => Err(Refusal::NoLeader.into()),
        }
    }

    /// Waits until this member has applied the entry with this index.
    pub(crate) async fn until_applied(&self, index: u64) -> Result<(), Status> {
        let mut applied = self.raft().watch_apply_progress();
        while applied.get().is_none_or(|applied| applied.index < index) {
            applied.changed().await.map_err(|_| Refusal::Stopped)?;
        }
        Ok(())
    }

    fn leader(&self) -> Option<u64> {
        self.raft().server_metrics().borrow_watched().current_leader
    }

    /// Whether there is a leader, as far as can be known: one that this member heard of lately, or itself, if a majority answers.
    pub(crate) fn has_leader(&self) -> bool {
        let lately = 2 * self.options().election_timeout();
        let metrics = self.raft().metrics();
        let metrics = metrics.borrow_watched();
        if metrics.current_leader != Some(metrics.id) {
            return metrics.current_leader.is_some() && self.peers().has_heard_within(lately);
        }
        is_only_voter(&metrics) || metrics.last_quorum_acked.is_some_and(|at| at.elapsed() < lately)
    }

    /// Has the leader do something; waits for one while there is none.
    ///
    /// # Errors
    /// What the leader refuses it with; `no leader` or `request timed out` if that takes too long.
    pub(crate) async fn ask_leader(&self, request: LeaderRequest) -> Result<LeaderAnswer, Status> {
        let deadline = self.deadline();
        let mut encoded = None;
        loop {
            let leader = self.leader();
            match leader {
                Some(id) if id == self.identity().member_id => match self.lead(&request, deadline).await {
                    LeaderAnswer::NotLeader => {}
                    LeaderAnswer::Refused(refusal) => return Err(refusal.into()),
                    answer => return Ok(answer),
                },
                Some(id) => {
                    let body = match &encoded {
                        Some(body) => Vec::clone(body),
                        None => encoded.insert(crate::peers::encoded(&request)?).clone(),
                    };
                    match self.forward(id, body, &request, deadline).await {
                        Ok(LeaderAnswer::NotLeader) => {}
                        Ok(LeaderAnswer::Refused(refusal)) => return Err(refusal.into()),
                        Ok(answer) => return Ok(answer),
                        Err(NoAnswer::DidNothing) => {}
                        Err(NoAnswer::Unknown) if request.is_read() => {}
                        Err(NoAnswer::Unknown) if Instant::now() >= deadline => return Err(Refusal::TimedOut.into()),
                        Err(NoAnswer::Unknown) if self.leader() != leader => return Err(Refusal::LeaderFailed.into()),
                        Err(NoAnswer::Unknown) => return Err(Refusal::ConnectionLost.into()),
                    }
                }
                None => {}
            }
            if Instant::now() >= deadline {
                return Err(if leader.is_some() { Refusal::TimedOut } else { Refusal::NoLeader }.into());
            }
            self.until_another_leader(leader, deadline).await?;
        }
    }

    /// Until when a request is waited for. A member that needs no other has nothing to wait for but its own devices.
    fn deadline(&self) -> Instant {
        let is_alone = is_only_voter(&self.raft().metrics().borrow_watched());
        Instant::now() + if is_alone { UNLIMITED } else { self.options().request_timeout() }
    }

    /// Asks a leader, for as long as it leads; what changes something is waited for a little longer.
    async fn forward(
        &self,
        leader: u64,
        body: Vec<u8>,
        request: &LeaderRequest,
        deadline: Instant,
    ) -> Result<LeaderAnswer, NoAnswer> {
        let asked = self.peers().forward(leader, body, deadline);
        let superseded = async {
            // Other metrics change with every entry.
            let mut metrics = self.raft().server_metrics();
            while metrics.borrow_watched().current_leader == Some(leader) {
                if metrics.changed().await.is_err() {
                    return;
                }
            }
            if !request.is_read() {
                tokio::time::sleep(self.options().election_timeout()).await;
            }
        };
        tokio::select! {
            answer = asked => answer,
            () = superseded => Err(NoAnswer::Unknown),
        }
    }

    /// Waits until there is another leader, or, if there is one, for a moment.
    async fn until_another_leader(&self, leader: Option<u64>, deadline: Instant) -> Result<(), Status> {
        let until = if leader.is_some() { deadline.min(Instant::now() + RETRY) } else { deadline };
        let mut metrics = self.raft().server_metrics();
        let changed = async {
            while metrics.borrow_watched().current_leader == leader {
                metrics.changed().await.map_err(|_| Refusal::Stopped)?;
            }
            Ok::<(), Refusal>(())
        };
        match timeout_at(until, changed).await {
            Ok(Err(refusal)) => Err(refusal.into()),
            Ok(Ok(())) | Err(_) => Ok(()),
        }
    }

    /// Does what only the leader can, for as long as a request may take.
    pub(crate) async fn lead_until_timeout(&self, request: LeaderRequest) -> LeaderAnswer {
        self.lead(&request, self.deadline()).await
    }

    async fn lead(&self, request: &LeaderRequest, deadline: Instant) -> LeaderAnswer {
        let led = async {
            match request {
                LeaderRequest::Propose(command) => match self.write(command).await {
                    Ok((index, answer)) => LeaderAnswer::Proposed { index, answer },
                    Err(NotWritten::Certainly) => LeaderAnswer::NotLeader,
                    Err(NotWritten::Maybe(refusal)) => LeaderAnswer::Refused(refusal),
                },
                LeaderRequest::ChangeMembers(change) => self.lead_members_change(change, deadline).await,
                read => match self.lead_read_index().await {
                    Some(index) => self.lead_read(read, index).await,
                    None => LeaderAnswer::NotLeader,
                },
            }
        };
        timeout_at(deadline, led).await.unwrap_or(LeaderAnswer::Refused(Refusal::TimedOut))
    }

    /// Answers from what the leader's memory has, after a majority has confirmed that it leads.
    async fn lead_read(&self, request: &LeaderRequest, index: u64) -> LeaderAnswer {
        if matches!(request, LeaderRequest::ReadIndex) {
            return LeaderAnswer::ReadIndex(index);
        }
        let (Ok(()), Some((term, _))) = (self.until_applied(index).await, self.leadership()) else {
            return LeaderAnswer::NotLeader;
        };
        self.lessor().lead_in(term);
        match request {
            LeaderRequest::LeaseRenew { id } => LeaderAnswer::Renewed(self.lessor().renew(*id)),
            LeaderRequest::LeaseTimeToLive { id } => LeaderAnswer::TimeToLive(self.lessor().time_to_live(*id)),
            LeaderRequest::LeaseIds => LeaderAnswer::LeaseIds(self.lessor().ids()),
            LeaderRequest::ReadIndex | LeaderRequest::Propose(_) | LeaderRequest::ChangeMembers(_) => {
                LeaderAnswer::ReadIndex(index)
            }
        }
    }

    /// The term in which this member leads, and what raft knows its leadership by.
    pub(crate) fn leadership(&self) -> Option<(u64, Leadership)> {
        let leadership = self.raft().as_leader().ok()?.to_committed_leader_id();
        Some((leadership.term, leadership))
    }

    /// Ends a lease that has expired, if this member still leads as it did then. A failure is tried again.
    pub(crate) async fn revoke_expired(&self, id: i64, leadership: Leadership) {
        let Ok(_space) = self.space().admit(0).await else { return };
        let (responder, applied) = ProgressResponder::complete_only();
        let write = self.raft().write(Command::LeaseRevoke { id }).responder(responder).with_leader(leadership);
        if write.await.is_ok() {
            let _ = applied.await;
        }
    }

    /// Up to which entry reads must see, if a majority confirms that this member leads: in a round that starts after this call.
    pub(crate) async fn lead_read_index(&self) -> Option<u64> {
        let raft = self.raft().clone();
        let confirm = move || {
            let raft = raft.clone();
            async move {
                match raft.get_read_log_id(ReadPolicy::ReadIndex).await {
                    Ok((read, _applied)) => Some(read.index()),
                    Err(
                        RaftError::Fatal(_)
                        | RaftError::APIError(
                            LinearizableReadError::ForwardToLeader(_) | LinearizableReadError::QuorumNotEnough(_),
                        ),
                    ) => None,
                }
            }
        };
        self.read_rounds().led.join(confirm).await.flatten()
    }

    /// Writes a command to raft's log, as one entry or in parts. Returns the index of the entry that was applied, and the answer.
    async fn write(&self, command: &Command) -> Result<(u64, Answer), NotWritten> {
        let encoded = crate::peers::encoded(command).map_err(|_| NotWritten::Maybe(Refusal::RequestTooLarge))?;
        let space = self.space().max_command_bytes();
        if encoded.len() <= space {
            return self.append(command.clone(), encoded.len()).await;
        }
        // What postcard adds to a part.
        let part_bytes = space.saturating_sub(32).min(MAX_PART_BYTES);
        let (parts, assembled) = mvcc::parts_of(self.identity().member_id, &encoded, part_bytes);
        // Only the leader cuts commands, one at a time: its parts follow one another in the log, and the first one replaces what is
        // left of an earlier command. Without the last entry, the parts change nothing that can be read.
        let _alone = self.parts().lock().await;
        for part in parts {
            self.append(part, part_bytes).await.map_err(|failed| match failed {
                NotWritten::Maybe(Refusal::Stopped) => NotWritten::Maybe(Refusal::Stopped),
                NotWritten::Certainly | NotWritten::Maybe(_) => NotWritten::Certainly,
            })?;
        }
        self.append(assembled, 0).await
    }

    async fn append(&self, command: Command, bytes: usize) -> Result<(u64, Answer), NotWritten> {
        let _space = self.space().admit(bytes).await.map_err(|_| NotWritten::Maybe(Refusal::Stopped))?;
        match self.raft().client_write(command).await {
            Ok(written) => Ok((written.log_id.index, written.data)),
            Err(RaftError::APIError(ClientWriteError::ForwardToLeader(_))) => Err(NotWritten::Certainly),
            Err(RaftError::APIError(ClientWriteError::LogEntryDiscarded(_))) => {
                Err(NotWritten::Maybe(Refusal::LeaderFailed))
            }
            Err(RaftError::APIError(
                ClientWriteError::ChangeMembershipError(_) | ClientWriteError::PreconditionFailed(_),
            )) => Err(NotWritten::Certainly),
            Err(RaftError::Fatal(_)) => Err(NotWritten::Maybe(Refusal::Stopped)),
        }
    }

    /// Hands leadership to a member, if this one leads, and waits until that member leads.
    ///
    /// # Errors
    /// etcd's, if this member does not lead, or the other cannot, or does not in time.
    pub(crate) async fn move_leader(&self, to: u64) -> Result<(), Status> {
        let id = self.identity().member_id;
        if !self.raft().is_leader() {
            return Err(Refusal::NotLeader.into());
        }
        if to == id {
            return Ok(());
        }
        let is_voter = self.raft().voter_ids().any(|voter| voter == to);
        if !is_voter {
            return Err(Refusal::BadTransferee.into());
        }
        // A leader that begins to hand over takes no writes until there is another; one that has just begun to lead has no answers yet.
        let answering = async {
            while !self.answers(&self.raft().metrics().borrow_watched(), to) {
                tokio::time::sleep(RETRY).await;
            }
        };
        let answers = tokio::time::timeout(self.options().election_timeout(), answering).await;
        answers.map_err(|_| Status::from(Refusal::Unhealthy))?;
        self.raft().trigger().transfer_leader(to).await.map_err(|_| Refusal::Stopped)?;
        let deadline = Instant::now() + self.options().request_timeout();
        while self.leader() != Some(to) {
            if Instant::now() >= deadline {
                return Err(Refusal::TimedOut.into());
            }
            let leader = self.leader();
            self.until_another_leader(leader, deadline).await?;
        }
        Ok(())
    }

    /// Hands leadership over, if this member leads, to the one that has most of the log, so that clients need not wait for an election
    /// when it stops. Returns when another leads, or is not to be had.
    pub async fn hand_over(&self) {
        let id = self.identity().member_id;
        let successor = {
            let metrics = self.raft().metrics();
            let metrics = metrics.borrow_watched();
            let voters: Vec<u64> = metrics.membership_config.voter_ids().filter(|voter| *voter != id).collect();
            let answers = |voter: &u64| self.answers(&metrics, *voter);
            let matched = |voter: &u64| metrics.replication.as_ref().and_then(|of| of.get(voter).copied().flatten());
            voters.into_iter().filter(answers).max_by_key(matched)
        };
        let Some(successor) = successor.filter(|_| self.raft().is_leader()) else { return };
        if self.raft().trigger().transfer_leader(successor).await.is_err() {
            return;
        }
        let deadline = Instant::now() + 3 * self.options().election_timeout();
        while self.leader().is_none_or(|leader| leader == id) && Instant::now() < deadline {
            if self.until_another_leader(self.leader(), deadline).await.is_err() {
                return;
            }
        }
    }
}
