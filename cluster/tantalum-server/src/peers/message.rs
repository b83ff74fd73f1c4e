//! What a member asks the leader to do, and its answer. Raft's own messages are openraft's.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tonic::Status;

use crate::command::{Answer, Command};
use crate::lease::TimeToLive;
use crate::membership::{Listed, MembersChange};
use crate::refusal::Refusal;

/// A request that only the leader can do.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LeaderRequest {
    /// Has the cluster agree on a command.
    Propose(Command),
    /// Up to which entry a read must see what was applied, to see all that was acknowledged before.
    ReadIndex,
    LeaseRenew {
        id: i64,
    },
    LeaseTimeToLive {
        id: i64,
    },
    /// The leases that live.
    LeaseIds,
    ChangeMembers(MembersChange),
}

/// What the leader answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum LeaderAnswer {
    /// It does not lead; nothing was done.
    NotLeader,
    /// It was not done, or is not known to be done: the refusal says which.
    Refused(Refusal),
    /// A command was applied, as the entry with this index.
    Proposed {
        index: u64,
        answer: Answer,
    },
    ReadIndex(u64),
    /// Seconds; `None` if there is no such lease.
    Renewed(Option<i64>),
    TimeToLive(Option<TimeToLive>),
    LeaseIds(Vec<i64>),
    /// The members after a change, which the entry with this index made. `id` is the member that it concerned.
    Members {
        index: u64,
        id: u64,
        members: Vec<Listed>,
    },
}

impl LeaderRequest {
    /// Whether it changes nothing, so that it can be asked again whatever became of it.
    pub fn is_read(&self) -> bool {
        match self {
            LeaderRequest::Propose(_) | LeaderRequest::ChangeMembers(_) => false,
            LeaderRequest::ReadIndex
            | LeaderRequest::LeaseRenew { .. }
            | LeaderRequest::LeaseTimeToLive { .. }
            | LeaderRequest::LeaseIds => true,
        }
    }
}

pub fn encode(value: &impl Serialize) -> Result<Vec<u8>, Status> {
    postcard::to_stdvec(value).map_err(|error| Status::internal(format!("a message cannot be encoded: {error}")))
}

/// Decodes what another member sent.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Status> {
    postcard::from_bytes(bytes).map_err(|error| {
        Status::invalid_argument(format!("a message cannot be decoded: {error}; run the same version on all members"))
    })
}
