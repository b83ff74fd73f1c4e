//! Watch: events as they come, or from a revision that is not compacted.
//!
//! One task serves each stream ([`stream`]): it takes requests, and whenever there is a later revision brings its watchers there
//! ([`watchers`]). It gets events from the [feed](crate::feed), or from the store if they are older.

mod stream;
mod watchers;

use std::pin::Pin;

use futures_util::Stream;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use crate::api::etcdserverpb as pb;
use crate::api::etcdserverpb::watch_server;
use crate::node::Node;
use crate::refusal::Refusal;
use crate::server::requires_leader;

/// Responses that wait for a slow client, at most; then its stream waits.
const WAITING_RESPONSES: usize = 16;

/// So often in turn no leader is found before a stream that needs one ends, an election timeout each, as in etcd.
const LEADERLESS: u32 = 3;

/// Waits until a member has been without a leader for some time; for ever, if there is no member that matters.
async fn until_leaderless(node: Option<Node>) {
    let Some(node) = node else { return std::future::pending().await };
    let mut without = 0;
    while without < LEADERLESS {
        tokio::time::sleep(node.options().election_timeout()).await;
        without = if node.has_leader() { 0 } else { without + 1 };
    }
}

/// The service, of a node.
pub struct Watch {
    node: Node,
    stopped: watch::Receiver<bool>,
}

impl Watch {
    /// Streams end when `stopped` is true.
    pub fn new(node: Node, stopped: watch::Receiver<bool>) -> Watch {
        Watch { node, stopped }
    }
}

#[tonic::async_trait]
impl watch_server::Watch for Watch {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<pb::WatchResponse, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<Streaming<pb::WatchRequest>>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let (responses, stream) = mpsc::channel(WAITING_RESPONSES);
        let (node, mut stopped) = (self.node.clone(), self.stopped.clone());
        let leaderless = until_leaderless(requires_leader(request.metadata()).then(|| node.clone()));
        tokio::spawn(async move {
            let failed = responses.clone();
            let served = tokio::select! {
                served = stream::serve(node, request.into_inner(), responses) => served,
                () = leaderless => Err(Refusal::NoLeader.into()),
                _ = stopped.wait_for(|stopped| *stopped) => Ok(()),
            };
            if let Err(status) = served {
                // A client that is gone need not know.
                let _ = failed.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(stream))))
    }
}
