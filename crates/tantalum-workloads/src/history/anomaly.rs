//! What a check can find, in words.

use std::fmt::{self, Debug, Display};

use super::{TransactionIndex, Version};

/// Why one transaction must come before another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Dependency<K> {
    /// The second read a version that the first wrote.
    WriteRead(K),
    /// The second wrote a later version of a key that the first wrote.
    WriteWrite(K),
    /// The second wrote a later version of a key that the first read (also: read as absent, alone or in a range).
    ReadWrite(K),
    /// The second began after the first had ended.
    RealTime,
}

/// One edge of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step<K> {
    /// The transaction that must come first.
    pub from: TransactionIndex,
    /// The one that must come after it.
    pub to: TransactionIndex,
    /// Why.
    pub dependency: Dependency<K>,
}

/// One violation. Transactions are named by their place in the history.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Anomaly<K> {
    /// No serial order exists: each step's first transaction must come before its second, and the last leads back.
    Cycle(Vec<Step<K>>),
    /// `reader` saw a write of the aborted transaction `writer`.
    DirtyRead {
        /// The transaction that read.
        reader: TransactionIndex,
        /// The transaction that wrote.
        writer: TransactionIndex,
        /// What.
        key: K,
    },
    /// `reader` saw a value that `writer` itself replaced before it committed.
    IntermediateRead {
        /// The transaction that read.
        reader: TransactionIndex,
        /// The transaction that wrote.
        writer: TransactionIndex,
        /// What.
        key: K,
    },
    /// `reader` saw a version that was never written under this key.
    UnwrittenRead {
        /// The transaction that read.
        reader: TransactionIndex,
        /// What.
        key: K,
        /// The version seen.
        version: Version,
    },
    /// `reader` missed a key that was there from the start and that no counted transaction deleted.
    ImpossibleAbsence {
        /// The transaction that read.
        reader: TransactionIndex,
        /// What.
        key: K,
    },
    /// `reader` did not see its own earlier write.
    OwnWriteUnseen {
        /// The transaction that read.
        reader: TransactionIndex,
        /// What.
        key: K,
    },
    /// Two writes bear the same version: the recording is wrong.
    DuplicateVersion {
        /// The version.
        version: Version,
    },
    /// Two committed transactions bear the same commit sequence.
    DuplicateSequence {
        /// One of them.
        first: TransactionIndex,
        /// The other.
        second: TransactionIndex,
        /// The sequence of both.
        sequence: u64,
    },
}

impl<K: Debug> Display for Anomaly<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cycle(steps) => {
                write!(f, "not serializable, a cycle of {} transactions:", steps.len())?;
                steps.iter().try_for_each(|step| write!(f, "\n  {step}"))
            }
            Self::DirtyRead { reader, writer, key } => {
                write!(f, "dirty read: transaction {reader} saw {key:?} of the aborted transaction {writer}")
            }
            Self::IntermediateRead { reader, writer, key } => {
                write!(
                    f,
                    "intermediate read: transaction {reader} saw a value of {key:?} that transaction {writer} replaced before its commit"
                )
            }
            Self::UnwrittenRead { reader, key, version } => {
                write!(f, "transaction {reader} read version {version} of {key:?}, which no transaction wrote")
            }
            Self::ImpossibleAbsence { reader, key } => {
                write!(f, "transaction {reader} found no {key:?}, which was there from the start and never deleted")
            }
            Self::OwnWriteUnseen { reader, key } => {
                write!(f, "transaction {reader} did not see its own write of {key:?}")
            }
            Self::DuplicateVersion { version } => {
                write!(f, "version {version} was written twice: the recording is wrong")
            }
            Self::DuplicateSequence { first, second, sequence } => {
                write!(f, "transactions {first} and {second} both bear commit sequence {sequence}")
            }
        }
    }
}

impl<K: Debug> Display for Step<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { from, to, dependency } = self;
        match dependency {
            Dependency::WriteRead(key) => write!(f, "{from} before {to}: {to} read {key:?} as written by {from}"),
            Dependency::WriteWrite(key) => write!(f, "{from} before {to}: {to} wrote {key:?} after {from} did"),
            Dependency::ReadWrite(key) => {
                write!(f, "{from} before {to}: {from} read {key:?} as it was before {to} wrote it")
            }
            Dependency::RealTime => write!(f, "{from} before {to}: {from} had ended when {to} began"),
        }
    }
}
