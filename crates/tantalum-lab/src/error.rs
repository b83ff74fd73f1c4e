//! Why the lab could not measure.

/// A result of the lab.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the lab could not measure. Each message says what, where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed.
    #[error(transparent)]
    Device(#[from] tantalum_device::Error),
    /// An emulated device cannot be made.
    #[error(transparent)]
    Flash(#[from] tantalum_flash::Error),
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
