//! Entries that a leader sends here: as many are taken as raft's log has space for, and the answer says how many.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use futures_util::stream::{self, Stream, StreamExt};
use openraft::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse};
use tokio::sync::{OwnedSemaphorePermit, mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;

use super::locked;
use super::message::{decode, encode};
use super::service::failed;
use crate::api::peer as pb;
use crate::command::Config;
use crate::node::Node;

/// Answers that wait for their way back.
const WAITING: usize = 16;

/// What stands before the entries of an append: vote, the entry before them, and what is committed.
type Head = (VoteOf<Config>, Option<LogIdOf<Config>>, Option<LogIdOf<Config>>);

/// What is to be known of a message until it is answered.
struct Taken {
    /// The last entry that was taken, if others were not.
    cut_behind: Option<LogIdOf<Config>>,
    /// Kept until the entries are in the log.
    _space: Option<OwnedSemaphorePermit>,
}

/// What raft is asked for, once there is space for it.
async fn take(node: &Node, message: pb::Entries) -> Result<(AppendEntriesRequest<Config>, Taken), Status> {
    let pb::Entries { address, head, entries } = message;
    node.peers().check(address)?;
    let (vote, prev_log_id, leader_commit): Head = decode(&head)?;
    let (taken, space) = node.space().admit_replicated(&entries).await?;
    let is_cut = taken < entries.len();
    let entries: Vec<EntryOf<Config>> = entries[..taken].iter().map(|entry| decode(entry)).collect::<Result<_, _>>()?;
    let before = prev_log_id.as_ref().map(|before| before.index);
    let indexes = [before].into_iter().chain(entries.iter().map(|entry| Some(entry.log_id.index)));
    let follow =
        |(before, index): (Option<u64>, Option<u64>)| before.map_or(Some(0), |before| before.checked_add(1)) == index;
    if !indexes.clone().zip(indexes.skip(1)).all(follow) {
        return Err(Status::invalid_argument("the entries of a message do not follow one another"));
    }
    let cut_behind = if is_cut { entries.last().map(|entry| entry.log_id) } else { None };
    Ok((AppendEntriesRequest { vote, prev_log_id, entries, leader_commit }, Taken { cut_behind, _space: space }))
}

fn answer(node: &Node, mut appended: AppendEntriesResponse<Config>, taken: &Taken) -> Result<pb::Answer, Status> {
    if !matches!(appended, AppendEntriesResponse::HigherVote(_)) {
        node.peers().note_heard();
    }
    if taken.cut_behind.is_some() && appended.is_success() {
        appended = AppendEntriesResponse::PartialSuccess(taken.cut_behind);
    }
    Ok(pb::Answer { body: encode(&appended)? })
}

/// Appends what one message has, durably.
pub async fn append(node: &Node, message: pb::Entries) -> Result<pb::Answer, Status> {
    let (request, taken) = take(node, message).await?;
    let appended = node.raft().append_entries(request).await.map_err(failed)?;
    answer(node, appended, &taken)
}

/// Appends what messages have; each is answered, in their order, when its entries are durable, while later ones are appended. It ends with
/// the messages, when `stopped` is true, and behind the first answer that is no success of all entries.
///
/// If the leader is gone, a message that waits for space is given up; what raft has begun is finished, and takes space until then.
pub fn append_all(
    node: Node,
    messages: impl Stream<Item = Result<pb::Entries, Status>> + Send + Unpin + 'static,
    mut stopped: watch::Receiver<bool>,
) -> ReceiverStream<Result<pb::Answer, Status>> {
    let (answers, receiver) = mpsc::channel(WAITING);
    tokio::spawn(async move {
        let unanswered = Arc::new(Mutex::new(VecDeque::new()));
        let refused = Arc::new(Mutex::new(None));
        let requests = requests(node.clone(), messages, Arc::clone(&unanswered), Arc::clone(&refused));
        let (leader, leader_is_gone) = oneshot::channel::<()>();
        let mut leader = Some(leader);
        let requests = requests.take_until(async move {
            tokio::select! {
                _ = stopped.wait_for(|stopped| *stopped) => {}
                _ = leader_is_gone => {}
            }
        });
        let mut appended = std::pin::pin!(node.raft().stream_append(requests));
        loop {
            let result = tokio::select! {
                result = appended.next() => result,
                () = answers.closed(), if leader.is_some() => {
                    leader = None;
                    continue;
                }
            };
            let Some(result) = result else { break };
            let taken = locked(&unanswered).pop_front();
            let taken = taken.ok_or_else(|| Status::internal("raft answered what it was not asked"));
            let answered = match (taken, result) {
                (Ok(taken), Ok(result)) => answer(&node, result.into(), &taken),
                (Err(status), _) => Err(status),
                (_, Err(fatal)) => Err(failed(fatal)),
            };
            // A leader that is gone needs no answer.
            let _ = answers.send(answered).await;
        }
        let refused = locked(&refused).take();
        if let Some(status) = refused {
            let _ = answers.send(Err(status)).await;
        }
    });
    ReceiverStream::new(receiver)
}

/// What raft is asked for, message by message, up to the first of which not all can be taken. Why one is refused is left in `refused`.
fn requests(
    node: Node,
    messages: impl Stream<Item = Result<pb::Entries, Status>> + Send + Unpin + 'static,
    unanswered: Arc<Mutex<VecDeque<Taken>>>,
    refused: Arc<Mutex<Option<Status>>>,
) -> impl Stream<Item = AppendEntriesRequest<Config>> + Send + 'static {
    stream::unfold(Some((node, messages)), move |state| {
        let (unanswered, refused) = (Arc::clone(&unanswered), Arc::clone(&refused));
        async move {
            let (node, mut messages) = state?;
            // Where the connection has ended, no answer comes back either.
            let message = messages.next().await?.ok()?;
            match take(&node, message).await {
                Ok((request, taken)) => {
                    let is_whole = taken.cut_behind.is_none();
                    locked(&unanswered).push_back(taken);
                    Some((request, is_whole.then_some((node, messages))))
                }
                Err(status) => {
                    *locked(&refused) = Some(status);
                    None
                }
            }
        }
    })
}

#[cfg(test)]
mod tests;
