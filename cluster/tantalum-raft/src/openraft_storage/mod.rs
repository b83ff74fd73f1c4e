//! Storage for [openraft] 0.10: [`LogStore`] keeps a node's log in a [`Group`](crate::Group), [`StateMachine`] its state in a
//! [`tantalum::Db`].
//!
//! Version 0.10 of openraft has only been published as alpha; the one that this is made for is pinned. The stable 0.9 waits for each
//! append to be durable before it makes the next one.
//!
//! Both need tokio: what may block, as a read of a device, is done by `tokio::task::spawn_blocking`. What is stored is encoded by
//! postcard, so requests of types that describe themselves (`serde_json::Value`) cannot be.

mod log_store;
mod state_machine;

use std::io;

pub use log_store::LogStore;
pub use state_machine::{Application, SnapshotBuilder, StateMachine};

use crate::{Error, ErrorKind, Result};

/// Runs what may block where it may.
async fn blocking<T: Send + 'static>(run: impl FnOnce() -> Result<T> + Send + 'static) -> io::Result<T> {
    match tokio::task::spawn_blocking(run).await {
        Ok(result) => result.map_err(io_error),
        Err(error) => Err(io::Error::other(error)),
    }
}

fn encode(value: &impl serde::Serialize) -> Result<Vec<u8>> {
    postcard::to_stdvec(value).map_err(|error| {
        let what = format!("what raft stores cannot be encoded: {error}");
        Error::new(ErrorKind::InvalidInput, what).with_source(error)
    })
}

/// Decodes `what`.
fn decode<T: serde::de::DeserializeOwned>(bytes: &[u8], what: impl std::fmt::Display) -> Result<T> {
    postcard::from_bytes(bytes).map_err(|error| {
        let what = format!(
            "{what} cannot be decoded: {error}; the node runs with another type configuration than before, or is damaged"
        );
        Error::new(ErrorKind::Corrupt, what).with_source(error)
    })
}

fn io_error(error: Error) -> io::Error {
    io::Error::other(error)
}
