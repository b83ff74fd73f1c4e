//! Entries on their way to a member: a stream of messages, of which several are under way, so that neither the network nor the other's
//! device is waited for before the next one goes.
//!
//! Invariant: openraft's requests live no longer than its answers, which own both. It waits for a lock that a request holds while there is
//! nothing to send.

use std::collections::VecDeque;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt};
use openraft::alias::LogIdOf;
use openraft::error::{RPCError, Unreachable};
use openraft::network::RPCTypes;
use openraft::raft::{AppendEntriesRequest, AppendEntriesResponse, StreamAppendResult};
use prost::Message;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Status, Streaming};

use super::Lane;
use super::message::decode;
use super::network::Way;
use crate::api::peer as pb;
use crate::command::Config;

/// Messages that are under way, at most: while they are, later entries gather for the next one.
const MAX_UNDER_WAY: usize = 16;
/// Bytes that are under way, at most, unless one message has more.
const MAX_BYTES_UNDER_WAY: usize = 8 << 20;

type Answered = Result<StreamAppendResult<Config>, RPCError<Config>>;
/// What openraft wants of a stream of appends.
pub type Appending<'w> = BoxFuture<'w, Result<BoxStream<'w, Answered>, RPCError<Config>>>;

/// A message that has no answer yet: the entries before its first and its last.
struct UnderWay {
    before: Option<LogIdOf<Config>>,
    last: Option<LogIdOf<Config>>,
    bytes: usize,
    sent_at: Instant,
}

struct Sending<'w> {
    way: &'w Way,
    /// `None` when openraft has no more.
    requests: Option<BoxStream<'static, AppendEntriesRequest<Config>>>,
    /// Has place for all that may be under way.
    messages: mpsc::Sender<pb::Entries>,
    answers: Streaming<pb::Answer>,
    under_way: VecDeque<UnderWay>,
    patience: Duration,
}

/// Sends what openraft wants to be appended. The answers end with the first that is no success of all entries: what was sent behind it
/// does not follow what the other has.
pub async fn send<'w>(
    way: &'w mut Way,
    requests: BoxStream<'static, AppendEntriesRequest<Config>>,
) -> Result<BoxStream<'w, Answered>, RPCError<Config>> {
    let patience = way.peers.connector.patience;
    let (messages, sent) = mpsc::channel(MAX_UNDER_WAY);
    let mut client = way.client(Lane::Entries)?;
    let opened = timeout(patience, client.append_stream(ReceiverStream::new(sent))).await;
    let answers = match opened.map_err(|_| way.timed_out(RPCTypes::AppendEntries, patience))? {
        Ok(answers) => answers.into_inner(),
        Err(status) => {
            way.sends_one_by_one |= status.code() == Code::Unimplemented;
            return Err(way.failed(&status));
        }
    };
    let requests = Some(requests);
    let sending = Sending { way, requests, messages, answers, under_way: VecDeque::new(), patience };
    let answers = stream::unfold(Some(sending), |sending| async move {
        let mut sending = sending?;
        let (answer, goes_on) = sending.next_answer().await?;
        Some((answer, goes_on.then_some(sending)))
    });
    Ok(answers.boxed())
}

impl Sending<'_> {
    fn has_place(&self) -> bool {
        let bytes: usize = self.under_way.iter().map(|message| message.bytes).sum();
        self.under_way.len() < MAX_UNDER_WAY && bytes < MAX_BYTES_UNDER_WAY
    }

    /// Sends until there is an answer, and whether others may follow it; `None` if nothing more is to be sent.
    async fn next_answer(&mut self) -> Option<(Answered, bool)> {
        loop {
            if self.requests.is_none() && self.under_way.is_empty() {
                return None;
            }
            let has_place = self.has_place();
            let deadline = self.under_way.front().map(|oldest| oldest.sent_at + self.patience);
            let request = async {
                match &mut self.requests {
                    Some(requests) if has_place => requests.next().await,
                    _ => std::future::pending().await,
                }
            };
            let too_late = async {
                match deadline {
                    Some(deadline) => sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                answer = self.answers.message() => return Some(self.answered(answer)),
                request = request => match request.map(|request| self.send(&request)) {
                    Some(Ok(())) => {}
                    Some(Err(error)) => return Some((Err(error), false)),
                    None => self.requests = None,
                },
                () = too_late => return Some((Err(self.way.timed_out(RPCTypes::AppendEntries, self.patience)), false)),
            }
        }
    }

    fn send(&mut self, request: &AppendEntriesRequest<Config>) -> Result<(), RPCError<Config>> {
        let message = self.way.entries(request)?;
        let last = request.entries.last().map(|entry| entry.log_id).or(request.prev_log_id);
        let (bytes, sent_at) = (message.encoded_len(), Instant::now());
        // It has place, unless the stream has ended.
        self.messages.try_send(message).map_err(|_| self.ended())?;
        self.under_way.push_back(UnderWay { before: request.prev_log_id, last, bytes, sent_at });
        Ok(())
    }

    fn answered(&mut self, answer: Result<Option<pb::Answer>, Status>) -> (Answered, bool) {
        let decoded = match answer {
            Ok(Some(answer)) => decode::<AppendEntriesResponse<Config>>(&answer.body),
            Ok(None) => return (Err(self.ended()), false),
            Err(status) => Err(status),
        };
        let answer = match decoded {
            Ok(answer) => answer,
            Err(status) => return (Err(self.way.failed(&status)), false),
        };
        let Some(UnderWay { before, last, .. }) = self.under_way.pop_front() else {
            let status = Status::internal("a member answered what it was not asked");
            return (Err(self.way.failed(&status)), false);
        };
        if matches!(answer, AppendEntriesResponse::Conflict) && before.is_none() {
            let status = Status::internal("a member has a conflict before the first entry");
            return (Err(self.way.failed(&status)), false);
        }
        let result = answer.into_stream_result(before, last);
        let is_whole = result.as_ref().is_ok_and(|matching| *matching == last);
        (Ok(result), is_whole)
    }

    /// The other has ended the stream: it stops.
    fn ended(&self) -> RPCError<Config> {
        self.way.peers.failed(self.way.to);
        Unreachable::from_string("the member has ended the stream of entries").into()
    }
}

#[cfg(test)]
mod tests;
