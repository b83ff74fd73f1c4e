//! What can go wrong in a workload.

/// The result of a workload's step.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a workload stopped.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The engine refused or failed.
    #[error(transparent)]
    Engine(#[from] tantalum::Error),
    /// A device refused or failed while its raw speed was measured.
    #[error(transparent)]
    Device(#[from] tantalum_device::Error),
    /// A row does not decode: something else wrote to the table.
    #[error(
        "table {table}: a row of {length} bytes is damaged at byte {at}: {expected} expected; load the database anew"
    )]
    Row {
        /// The table.
        table: &'static str,
        /// The row's length.
        length: usize,
        /// Where decoding stopped.
        at: usize,
        /// What should have been there.
        expected: &'static str,
    },
    /// A row that the workload itself loads or writes is not there.
    #[error("table {table}: the row with key {key:02x?} is missing; load the database anew")]
    Missing {
        /// The table.
        table: &'static str,
        /// Its key.
        key: Vec<u8>,
    },
    /// The database in the directory was loaded with other parameters.
    #[error("the database was loaded with {found}, but {wanted} is asked for; give the same, or another directory")]
    Parameters {
        /// What is there.
        found: String,
        /// What was asked for.
        wanted: String,
    },
    /// A parameter is out of its range.
    #[error("{name} = {value} is not possible: {expected}")]
    OutOfRange {
        /// The parameter.
        name: &'static str,
        /// Its value.
        value: String,
        /// What is possible.
        expected: &'static str,
    },
    /// A device holds no append-only tree, or a damaged one.
    #[error("{device}, byte {offset}: {what}; create the tree anew, or give the device that holds it")]
    Damaged {
        /// The device.
        device: String,
        /// Where on it.
        offset: u64,
        /// What is wrong.
        what: &'static str,
    },
    /// An append-only tree has come to the end of its device.
    #[error(
        "the append-only tree has filled {device}, all of {capacity} bytes, and never uses space again: give it a larger device"
    )]
    Full {
        /// The device.
        device: String,
        /// Its size.
        capacity: u64,
    },
    /// A workload of another crate failed.
    #[error("{what}")]
    Client {
        /// What it says.
        what: String,
        /// Whether the same transaction may succeed when it is tried again.
        is_retryable: bool,
    },
    /// A client's task panicked; the panic was printed.
    #[error("{task} panicked; the message is above")]
    Panicked {
        /// The task.
        task: String,
    },
}

impl Error {
    /// Whether the same transaction may succeed when it is tried again: deadlock victims, lock timeouts, conflicts.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Engine(error) => error.is_retryable(),
            Self::Client { is_retryable, .. } => *is_retryable,
            _ => false,
        }
    }
}
