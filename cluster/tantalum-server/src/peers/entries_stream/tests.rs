//! A leader that sends, and members that are played.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use openraft::EntryPayload;
use openraft::alias::{EntryOf, VoteOf};
use openraft::network::{RPCOption, RaftNetworkFactory, RaftNetworkV2};
use openraft::raft::StreamAppendError;
use openraft::testing::log_id;
use tokio::net::TcpListener;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response};

use super::*;
use crate::api::peer::peer_server::{Peer, PeerServer};
use crate::command::{Bytes, Command};
use crate::directory::Identity;
use crate::member::Member;
use crate::peers::message::encode;
use crate::peers::{Connector, Network, Peers};

const LEADER: u64 = 7;
const FOLLOWER: u64 = 8;

/// A member that takes messages, and answers what the test says.
struct Played {
    received: mpsc::UnboundedSender<pb::Entries>,
    /// Of the one stream; `None` in a version that knows none.
    answers: Mutex<Option<mpsc::UnboundedReceiver<pb::Answer>>>,
}

/// What the test sees of it.
struct Other {
    received: mpsc::UnboundedReceiver<pb::Entries>,
    answers: mpsc::UnboundedSender<pb::Answer>,
}

fn not_played<T>() -> Result<Response<T>, Status> {
    Err(Status::unimplemented("it is not played"))
}

fn answer(answer: &AppendEntriesResponse<Config>) -> pb::Answer {
    pb::Answer { body: encode(answer).expect("it can be encoded") }
}

#[tonic::async_trait]
impl Peer for Played {
    type AppendStreamStream = BoxStream<'static, Result<pb::Answer, Status>>;

    async fn append(&self, request: Request<pb::Entries>) -> Result<Response<pb::Answer>, Status> {
        self.received.send(request.into_inner()).expect("the test goes on");
        Ok(Response::new(answer(&AppendEntriesResponse::Success)))
    }

    async fn append_stream(
        &self,
        request: Request<Streaming<pb::Entries>>,
    ) -> Result<Response<Self::AppendStreamStream>, Status> {
        let Some(answers) = self.answers.lock().expect("a lock").take() else { return not_played() };
        let (mut messages, received) = (request.into_inner(), self.received.clone());
        tokio::spawn(async move {
            while let Ok(Some(message)) = messages.message().await {
                if received.send(message).is_err() {
                    return;
                }
            }
        });
        Ok(Response::new(UnboundedReceiverStream::new(answers).map(Ok).boxed()))
    }

    async fn vote(&self, _: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        not_played()
    }

    async fn pre_vote(&self, _: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        not_played()
    }

    async fn transfer_leader(&self, _: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        not_played()
    }

    async fn install_snapshot(&self, _: Request<Streaming<pb::SnapshotPart>>) -> Result<Response<pb::Answer>, Status> {
        not_played()
    }

    async fn forward(&self, _: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        not_played()
    }

    async fn removed(&self, _: Request<pb::Message>) -> Result<Response<pb::Answer>, Status> {
        not_played()
    }

    async fn members(&self, _: Request<pb::MembersRequest>) -> Result<Response<pb::MembersResponse>, Status> {
        not_played()
    }
}

/// A member, and the leader's way to it, which waits so long for an answer.
async fn play(knows_streams: bool, patience: Duration) -> (Way, Other) {
    let (received, messages) = mpsc::unbounded_channel();
    let (answers, to_be_given) = mpsc::unbounded_channel();
    let played = Played { received, answers: Mutex::new(knows_streams.then_some(to_be_given)) };
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let service = PeerServer::new(played).max_decoding_message_size(usize::MAX);
    tokio::spawn(Server::builder().add_service(service).serve_with_incoming(TcpIncoming::from(listener)));
    let identity = Identity { member_id: LEADER, cluster_id: 1 };
    let peers = Peers::new(identity, Connector { patience, tls: None }, 1 << 20);
    let member = Member { peer_urls: vec![url], ..Member::default() };
    let way = Network { peers: Arc::new(peers) }.new_client(FOLLOWER, &member).await;
    (way, Other { received: messages, answers })
}

const LONG: Duration = Duration::from_secs(60);

fn id(index: u64) -> LogIdOf<Config> {
    log_id::<Config>(1, LEADER, index)
}

/// Requests of one entry each, of so many bytes, behind the first entry; and how many of them were asked for.
fn requests(count: u64, bytes: usize) -> (BoxStream<'static, AppendEntriesRequest<Config>>, Arc<AtomicUsize>) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let request = move |index| {
        counter.fetch_add(1, Ordering::SeqCst);
        let payload = EntryPayload::Normal(Command::Part { member: LEADER, number: 0, bytes: Bytes(vec![1; bytes]) });
        AppendEntriesRequest {
            vote: VoteOf::<Config>::new_committed(1, LEADER),
            prev_log_id: Some(id(index - 1)),
            entries: vec![EntryOf::<Config> { log_id: id(index), payload }],
            leader_commit: None,
        }
    };
    (stream::iter((1..=count).map(request)).boxed(), asked)
}

impl Other {
    async fn receive(&mut self, messages: usize) {
        for _ in 0..messages {
            self.received.recv().await.expect("a message");
        }
    }

    fn answer(&self, what: AppendEntriesResponse<Config>) {
        self.answers.send(answer(&what)).expect("the stream goes on");
    }
}

fn expect_taken(answered: Option<Answered>, index: u64) {
    let taken = answered.expect("an answer").expect("no failure").expect("it was taken");
    assert_eq!(taken, Some(id(index)));
}

#[tokio::test]
async fn messages_go_before_answers_come() {
    let (mut way, mut other) = play(true, LONG).await;
    let mut answers = send(&mut way, requests(3, 10).0).await.expect("a stream");
    let (first, ()) = tokio::join!(answers.next(), async {
        other.receive(3).await;
        (0..3).for_each(|_| other.answer(AppendEntriesResponse::Success));
    });
    expect_taken(first, 1);
    expect_taken(answers.next().await, 2);
    expect_taken(answers.next().await, 3);
    assert!(answers.next().await.is_none(), "there is nothing more to send");
}

#[tokio::test]
async fn so_many_are_under_way_at_most() {
    let (mut way, mut other) = play(true, LONG).await;
    let (requests, asked) = requests(100, 10);
    let mut answers = send(&mut way, requests).await.expect("a stream");
    let (first, ()) = tokio::join!(answers.next(), async {
        other.receive(MAX_UNDER_WAY).await;
        assert_eq!(asked.load(Ordering::SeqCst), MAX_UNDER_WAY);
        other.answer(AppendEntriesResponse::Success);
    });
    expect_taken(first, 1);
    let (second, ()) = tokio::join!(answers.next(), async {
        other.receive(1).await;
        assert_eq!(asked.load(Ordering::SeqCst), MAX_UNDER_WAY + 1);
        other.answer(AppendEntriesResponse::Success);
    });
    expect_taken(second, 2);
}

#[tokio::test]
async fn so_many_bytes_are_under_way_at_most() {
    let (mut way, mut other) = play(true, LONG).await;
    let (requests, asked) = requests(3, MAX_BYTES_UNDER_WAY);
    let mut answers = send(&mut way, requests).await.expect("a stream");
    for index in 1..=3 {
        let (answered, ()) = tokio::join!(answers.next(), async {
            other.receive(1).await;
            assert_eq!(asked.load(Ordering::SeqCst), index as usize);
            other.answer(AppendEntriesResponse::Success);
        });
        expect_taken(answered, index);
    }
}

#[tokio::test]
async fn nothing_counts_behind_what_was_not_taken() {
    let (mut way, mut other) = play(true, LONG).await;
    let mut answers = send(&mut way, requests(3, 10).0).await.expect("a stream");
    let (first, ()) = tokio::join!(answers.next(), async {
        other.receive(3).await;
        other.answer(AppendEntriesResponse::Success);
        other.answer(AppendEntriesResponse::Conflict);
        other.answer(AppendEntriesResponse::Success);
    });
    expect_taken(first, 1);
    let refused = answers.next().await.expect("an answer").expect("no failure").expect_err("a conflict");
    assert!(matches!(&refused, StreamAppendError::Conflict(before) if *before == id(1)), "{refused:?}");
    assert!(answers.next().await.is_none());

    // Of the other messages, too, what was taken in part is the end.
    let (mut way, mut other) = play(true, LONG).await;
    let mut answers = send(&mut way, requests(2, 10).0).await.expect("a stream");
    let (first, ()) = tokio::join!(answers.next(), async {
        other.receive(2).await;
        other.answer(AppendEntriesResponse::PartialSuccess(Some(id(0))));
    });
    assert_eq!(first.expect("an answer").expect("no failure").expect("it was taken in part"), Some(id(0)));
    assert!(answers.next().await.is_none());
}

#[tokio::test]
async fn a_member_that_does_not_answer_is_waited_for_no_longer_than_it_may_take() {
    let (mut way, other) = play(true, Duration::from_millis(200)).await;
    let mut answers = send(&mut way, requests(1, 10).0).await.expect("a stream");
    let answered = answers.next().await.expect("a failure");
    assert!(matches!(answered, Err(RPCError::Timeout(_))), "{answered:?}");
    assert!(answers.next().await.is_none());
    drop(other);
}

#[tokio::test]
async fn a_stream_that_the_member_ends_is_a_failure() {
    let (mut way, mut other) = play(true, LONG).await;
    let mut answers = send(&mut way, requests(1, 10).0).await.expect("a stream");
    let (answered, ()) = tokio::join!(answers.next(), async {
        other.receive(1).await;
        other.answers = mpsc::unbounded_channel().0;
    });
    let answered = answered.expect("a failure");
    assert!(matches!(answered, Err(RPCError::Unreachable(_))), "{answered:?}");
    assert!(answers.next().await.is_none());
}

#[tokio::test]
async fn a_member_that_answers_what_it_was_not_asked_is_not_heeded() {
    let (mut way, other) = play(true, LONG).await;
    let mut answers = send(&mut way, stream::pending().boxed()).await.expect("a stream");
    other.answer(AppendEntriesResponse::Success);
    let answered = answers.next().await.expect("a failure");
    assert!(matches!(answered, Err(RPCError::Network(_))), "{answered:?}");
    assert!(answers.next().await.is_none());
}

#[tokio::test]
async fn a_member_that_knows_no_stream_gets_one_message_after_the_other() {
    let (mut way, mut other) = play(false, LONG).await;
    let option = || RPCOption::new(LONG);
    assert!(way.stream_append(requests(2, 10).0, option()).await.is_err(), "it says that it knows none");
    let mut answers = way.stream_append(requests(2, 10).0, option()).await.expect("a stream");
    expect_taken(answers.next().await, 1);
    expect_taken(answers.next().await, 2);
    assert!(answers.next().await.is_none());
    other.receive(2).await;
}
