//! Storage for [raft-rs](raft) 0.7: [`NodeLog`] keeps a node's log in a [`Group`](crate::Group), [`StateMachine`] its state in a
//! [`tantalum::Db`].
//!
//! raft-rs leaves the loop to the program: what a [`Ready`](raft::Ready) says is kept by [`NodeLog::persist`], its committed entries are
//! applied by [`StateMachine::apply`], and what must not be sent before it is durable waits for the log's
//! [`on_durable`](crate::RaftLog::on_durable). The example is at [`NodeLog`].

mod node_log;
mod state_machine;

pub use node_log::NodeLog;
pub use state_machine::StateMachine;

use crate::{Error, ErrorKind, Result};

fn encode(message: &impl protobuf::Message) -> Result<Vec<u8>> {
    message.write_to_bytes().map_err(|error| {
        let what = format!("what raft stores cannot be encoded: {error}");
        Error::new(ErrorKind::InvalidInput, what).with_source(error)
    })
}

/// Decodes `what`.
fn decode<M: protobuf::Message>(bytes: &[u8], what: std::fmt::Arguments<'_>) -> Result<M> {
    M::parse_from_bytes(bytes).map_err(|error| {
        let what = format!("{what} cannot be decoded: {error}; another library wrote it, or it is damaged");
        Error::new(ErrorKind::Corrupt, what).with_source(error)
    })
}
