//! What ends a transaction, a check, or a start of the database: how severe each error of the engine is.

use tantalum::Error;

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

impl From<Error> for Stop {
    fn from(error: Error) -> Self {
        match &error {
            Error::Deadlock { .. } => Self::Refused("deadlocks"),
            Error::LockTimeout { .. } => Self::Refused("lock time-outs"),
            Error::WriteConflict { .. } => Self::Refused("write conflicts"),
            Error::TransactionTooLarge { .. } => Self::Refused("transactions too large"),
            // Any other cause is a device's.
            Error::SnapshotTooOld { cause } if matches!(**cause, Error::DiskFull { .. }) => {
                Self::Refused("snapshots given up")
            }
            Error::Log(cause) | Error::OutcomeUnknown { cause }
                if matches!(cause.first_cause(), tantalum_log::Error::Interrupted { .. }) =>
            {
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
