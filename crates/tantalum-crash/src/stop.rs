//! What ends a transaction, a check, or a start of the database: how severe each error of the engine is.

use std::error::Error as _;

use tantalum::{Error, ErrorKind};

use crate::{history::Event, session::Contradiction};

/// Why a transaction went no further.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The engine refused, as it may: a deadlock, a conflict, too large a transaction.
    Refused(&'static str),
    /// The engine reports a failure that only a device can be the cause of.
    Failed(Error),
    /// The engine has stopped because a panic was injected.
    Poisoned(Error),
    /// What must not happen on sound devices.
    Odd(String),
    /// The engine's own check found something wrong.
    Unsound(String),
    /// What must never happen.
    Violation(String),
}

/// Whether the database was closed. That its log was, under an operation, is a failure, and so is what that led to.
pub(crate) fn is_closed(error: &Error) -> bool {
    error.kind() == ErrorKind::Closed && error.about().is_none() && error.source().is_none()
}

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match error.kind() {
            ErrorKind::Deadlock => Self::Refused("deadlocks"),
            ErrorKind::LockTimeout => Self::Refused("lock time-outs"),
            ErrorKind::WriteConflict => Self::Refused("write conflicts"),
            // Tables are dropped by the client that made them.
            ErrorKind::InUse => Self::Refused("tables that are loaded in bulk"),
            ErrorKind::TransactionTooLarge => Self::Refused("transactions too large"),
            // Any other cause is a device's.
            ErrorKind::SnapshotTooOld
                if error.cause::<Error>().is_some_and(|cause| cause.kind() == ErrorKind::StoreFull) =>
            {
                Self::Refused("snapshots given up")
            }
            ErrorKind::Poisoned | ErrorKind::OutcomeUnknown if error.first_cause().kind() == ErrorKind::Poisoned => {
                Self::Poisoned(error)
            }
            _ => Self::Failed(error),
        }
    }
}

impl From<Contradiction> for Stop {
    fn from(contradiction: Contradiction) -> Self {
        Self::Odd(contradiction)
    }
}

impl Stop {
    /// Whether a commit may have taken place.
    pub fn leaves_outcome_open(&self) -> bool {
        matches!(self, Self::Failed(error) | Self::Poisoned(error) if error.kind() == ErrorKind::OutcomeUnknown)
    }

    /// As the history has it.
    pub fn into_event(self) -> Event {
        match self {
            Self::Refused(why) => Event::Violation(format!("refused where nothing stands against it: {why}")),
            Self::Failed(error) => Event::Reported(error.to_string()),
            Self::Poisoned(error) => Event::Poisoned(error.to_string()),
            Self::Odd(what) => Event::Oddity(what),
            Self::Unsound(what) => Event::Unsound(what),
            Self::Violation(what) => Event::Violation(what),
        }
    }
}
