//! Why a request was not done: etcd's codes and messages, to the byte, since clients match on them.

use serde::{Deserialize, Serialize};
use tonic::{Code, Status};

/// Declares the refusals, each with its code and message.
macro_rules! refusals {
    ($($(#[$doc:meta])+ $name:ident $code:ident $message:literal;)+) => {
        /// Why a request was not done. Becomes the gRPC status that etcd answers with.
        ///
        /// ```
        /// let status = tonic::Status::from(tantalum_server::Refusal::EmptyKey);
        /// assert_eq!(status.code(), tonic::Code::InvalidArgument);
        /// assert_eq!(status.message(), "etcdserver: key is not provided");
        /// ```
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        #[non_exhaustive]
        pub enum Refusal {
            $($(#[$doc])+ $name,)+
        }

        impl Refusal {
            /// etcd's message.
            pub fn message(self) -> &'static str {
                match self {
                    $(Refusal::$name => $message,)+
                }
            }

            /// etcd's code.
            pub fn code(self) -> Code {
                match self {
                    $(Refusal::$name => Code::$code,)+
                }
            }
        }
    };
}

refusals! {
    /// A request names no key.
    EmptyKey InvalidArgument "etcdserver: key is not provided";
    /// A put that ignores value or lease, of a key that is not there; or an operation of a transaction that says nothing.
    KeyNotFound InvalidArgument "etcdserver: key not found";
    /// A put has a value and says to ignore it.
    ValueProvided InvalidArgument "etcdserver: value is provided";
    /// A put has a lease and says to ignore it.
    LeaseProvided InvalidArgument "etcdserver: lease is provided";
    /// A transaction has more operations than the server takes.
    TooManyOperations InvalidArgument "etcdserver: too many operations in txn request";
    /// A transaction writes a key twice.
    DuplicateKey InvalidArgument "etcdserver: duplicate key given in txn request";
    /// A range is to be sorted by something unknown.
    InvalidSortOption InvalidArgument "etcdserver: invalid sort option";
    /// The history does not go back as far.
    Compacted OutOfRange "etcdserver: mvcc: required revision has been compacted";
    /// The revision does not exist yet.
    FutureRevision OutOfRange "etcdserver: mvcc: required revision is a future revision";
    /// The alarm for space is on.
    NoSpace ResourceExhausted "etcdserver: mvcc: database space exceeded";
    /// There is no such lease.
    LeaseNotFound NotFound "etcdserver: requested lease not found";
    /// The lease exists.
    LeaseExists FailedPrecondition "etcdserver: lease already exists";
    /// A lease is to live too long.
    LeaseTtlTooLarge OutOfRange "etcdserver: too large lease TTL";
    /// A request, or a key in it, has more bytes than the server takes.
    RequestTooLarge InvalidArgument "etcdserver: request is too large";
    /// The alarm for corruption is on.
    Corrupt DataLoss "etcdserver: corrupt cluster";
    /// Users, roles and tokens are not served.
    NotCapable FailedPrecondition "etcdserver: not capable";
    /// A token is asked for, and there are none.
    AuthNotEnabled FailedPrecondition "etcdserver: authentication is not enabled";
    /// A leader is known, and did not answer in time; a request that changes something may have been done.
    TimedOut Unavailable "etcdserver: request timed out";
    /// The leader changed while the request was under way; it may have been done.
    LeaderFailed Unavailable "etcdserver: request timed out, possibly due to previous leader failure";
    /// The leader was lost while the request was under way; it may have been done.
    ConnectionLost Unavailable "etcdserver: request timed out, possibly due to connection lost";
    /// Only the leader does this.
    NotLeader FailedPrecondition "etcdserver: not leader";
    /// The member cannot become the leader.
    BadTransferee FailedPrecondition "etcdserver: bad leader transferee";
    /// There is no such member.
    MemberNotFound NotFound "etcdserver: member not found";
    /// A member has these URLs.
    PeerUrlExists FailedPrecondition "etcdserver: Peer URLs already exists";
    /// Members' URLs are none.
    BadMemberUrls InvalidArgument "etcdserver: given member URLs are invalid";
    /// The member to promote is a voter.
    MemberNotLearner FailedPrecondition "etcdserver: can only promote a learner member";
    /// The member to promote lacks too much.
    LearnerNotReady FailedPrecondition "etcdserver: can only promote a learner member which is in sync with leader";
    /// The change would leave too few members that were ever started.
    NotEnoughStarted FailedPrecondition "etcdserver: re-configuration failed due to not enough started members";
    /// The change would leave too few members that answer.
    Unhealthy Unavailable "etcdserver: unhealthy cluster";
    /// No leader is known.
    NoLeader Unavailable "etcdserver: no leader";
    /// The node stops, or has failed.
    Stopped Unavailable "etcdserver: server stopped";
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.message())
    }
}

impl std::error::Error for Refusal {}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        Status::new(refusal.code(), refusal.message())
    }
}

/// Why the store did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The database failed.
    Database(tantalum::Error),
    /// The request cannot be done.
    Refused(Refusal),
}

impl From<tantalum::Error> for Failed {
    fn from(error: tantalum::Error) -> Failed {
        Failed::Database(error)
    }
}

impl From<Refusal> for Failed {
    fn from(refusal: Refusal) -> Failed {
        Failed::Refused(refusal)
    }
}

impl From<Failed> for Status {
    fn from(failed: Failed) -> Status {
        match failed {
            Failed::Database(error) => Status::internal(format!("the database of this member failed: {error}")),
            Failed::Refused(refusal) => refusal.into(),
        }
    }
}
