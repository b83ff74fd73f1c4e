//! What stands in the raft log, and the answers of the store to it.

use std::fmt;

use prost::Message;
use serde::de::{Error as _, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::api::etcdserverpb as pb;
use crate::member::Member;
use crate::mvcc::Keyspace;
use crate::refusal::Refusal;

openraft::declare_raft_types!(
    /// The types that openraft is used with.
    pub Config: D = Command, R = Answer, Node = Member
);

/// A node's handle to openraft.
pub(crate) type Raft = openraft::Raft<Config, tantalum_raft::openraft_storage::StateMachine<Config, Keyspace>>;

/// A request, as the members of the cluster agree on it. Nothing that a command does depends on anything but the command and the store.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Command {
    /// Writes a key.
    Put(Encoded<pb::PutRequest>),
    /// Deletes keys.
    DeleteRange(Encoded<pb::DeleteRangeRequest>),
    /// Compares, and then reads and writes.
    Txn(Encoded<pb::TxnRequest>),
    /// Gives up the history before a revision.
    Compact {
        /// The revision.
        revision: i64,
    },
    /// Deletes some of what compaction has given up.
    Sweep {
        /// Revisions that are looked at, at most.
        revisions: u32,
    },
    /// Makes a lease.
    LeaseGrant {
        /// Its number.
        id: i64,
        /// Seconds.
        ttl_s: i64,
    },
    /// Ends a lease, and deletes its keys: asked for by a client, or by the leader when it has expired.
    LeaseRevoke {
        /// Its number.
        id: i64,
    },
    /// Sets or resets an alarm.
    Alarm(Encoded<pb::AlarmRequest>),
    /// A part of a command that is too large for one entry of the log. The first replaces what was left of an earlier one.
    Part {
        /// The member that proposes the command.
        member: u64,
        /// Its number, from 0.
        number: u32,
        /// Bytes of the command.
        bytes: Bytes,
    },
    /// The command of which these were the parts.
    Assembled {
        /// The member that proposes the command.
        member: u64,
        /// How many parts there were.
        parts: u32,
    },
}

/// The answer to a [`Command`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// To [`Command::Put`].
    Put(Encoded<pb::PutResponse>),
    /// To [`Command::DeleteRange`].
    DeleteRange(Encoded<pb::DeleteRangeResponse>),
    /// To [`Command::Txn`].
    Txn(Encoded<pb::TxnResponse>),
    /// To [`Command::Alarm`].
    Alarm(Encoded<pb::AlarmResponse>),
    /// To [`Command::Compact`], [`Command::LeaseGrant`] and [`Command::LeaseRevoke`].
    Done {
        /// The revision of the store then.
        revision: i64,
    },
    /// To [`Command::Sweep`].
    Swept {
        /// Whether nothing is left to delete.
        is_finished: bool,
    },
    /// To entries of raft's own, and parts.
    Nothing,
    /// The request cannot be done, and nothing was changed.
    Refused(Refusal),
}

impl fmt::Display for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Command::Put(_) => "put",
            Command::DeleteRange(_) => "delete range",
            Command::Txn(_) => "txn",
            Command::Compact { .. } => "compact",
            Command::Sweep { .. } => "sweep",
            Command::LeaseGrant { .. } => "lease grant",
            Command::LeaseRevoke { .. } => "lease revoke",
            Command::Alarm(_) => "alarm",
            Command::Part { .. } => "part",
            Command::Assembled { .. } => "assembled",
        };
        f.write_str(name)
    }
}

/// A message of etcd's, which serde has as the bytes of its protobuf.
///
/// ```
/// use tantalum_server::Encoded;
/// use tantalum_server::api::etcdserverpb::PutRequest;
///
/// let put = Encoded(PutRequest { key: b"a".to_vec(), ..Default::default() });
/// assert_eq!(put.0.key, b"a");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Encoded<M>(pub M);

impl<M: Message> Serialize for Encoded<M> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0.encode_to_vec())
    }
}

impl<'de, M: Message + Default> Deserialize<'de> for Encoded<M> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Encoded<M>, D::Error> {
        let bytes = Bytes::deserialize(deserializer)?;
        M::decode(&bytes.0[..]).map(Encoded).map_err(D::Error::custom)
    }
}

/// Bytes, which serde has as such and not as a sequence of numbers.
///
/// ```
/// assert_eq!(tantalum_server::Bytes(vec![1, 2]).0.len(), 2);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Bytes(pub Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
        deserializer.deserialize_byte_buf(BytesVisitor)
    }
}

struct BytesVisitor;

impl<'de> Visitor<'de> for BytesVisitor {
    type Value = Bytes;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("bytes")
    }

    fn visit_bytes<E>(self, bytes: &[u8]) -> Result<Bytes, E> {
        Ok(Bytes(bytes.to_vec()))
    }

    fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<Bytes, E> {
        Ok(Bytes(bytes))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut bytes: A) -> Result<Bytes, A::Error> {
        let mut all = Vec::new();
        while let Some(byte) = bytes.next_element()? {
            all.push(byte);
        }
        Ok(Bytes(all))
    }
}
