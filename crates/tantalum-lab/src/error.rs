//! Why the lab could not measure, or not read what was measured.

use std::path::PathBuf;

use crate::trace::Damage;

/// A result of the lab.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the lab could not measure, or not read what was measured. Each message says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A device, the log, the engine or a workload failed.
    #[error(transparent)]
    Engine(#[from] tantalum::Error),
    /// Results could not be written as JSON or read back.
    #[error(transparent)]
    Json(#[from] tantalum_report::Error),
    /// A file of results is not of this program.
    #[error("the results in {path:?} cannot be used: {why}; write them again with tantalum lab run ID --json FILE")]
    Runs {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The tables of a document cannot be written.
    #[error("the document's tables cannot be written: {0}")]
    Document(String),
    /// A trace cannot be read.
    #[error("cannot read {name}: {source}; check that the file exists and may be read")]
    TraceInput {
        /// The file.
        name: String,
        /// What the system says.
        source: std::io::Error,
    },
    /// A trace is damaged, or is none.
    #[error(
        "{name} cannot be analysed: at byte {at} {damage}; write it again with tantalum bench tpcc --trace FILE, or tantalum bench tpcc --io-trace FILE"
    )]
    Trace {
        /// The file.
        name: String,
        /// Where the damaged part begins.
        at: u64,
        /// What is wrong.
        damage: Damage,
    },
    /// A trace could not be written into memory.
    #[error("a trace of an experiment cannot be kept: {0}; report it, this is a defect")]
    TraceOutput(#[from] std::io::Error),
    /// The job cannot run on this device.
    #[error("the job ({job}) cannot run on {device}: {why}")]
    Job {
        /// The job, as it prints.
        job: String,
        /// The device's name.
        device: String,
        /// What is wrong and what would be right.
        why: String,
    },
}
