//! A member that follows, and leaders that are played.

use futures_util::StreamExt;
use openraft::EntryPayload;
use openraft::testing::log_id;
use tempfile::TempDir;
use tonic::Code;

use super::*;
use crate::cluster_config::ClusterConfig;
use crate::command::{Bytes, Command};
use crate::options::{Bootstrap, NodeOptions};

/// Terms and numbers of members that lead, one after the other: later than the term in which the member itself would have been elected.
const FIRST: (u64, u64) = (100, 7);
const SECOND: (u64, u64) = (101, 8);

/// A member whose others do not answer, so that it never leads.
struct Follower {
    node: Node,
    before: LogIdOf<Config>,
    stopping: watch::Sender<bool>,
    _directory: TempDir,
}

/// What a leader sends, until this is dropped, and what it gets.
struct Leader {
    messages: mpsc::UnboundedSender<Result<pb::Entries, Status>>,
    answers: ReceiverStream<Result<pb::Answer, Status>>,
}

impl Follower {
    async fn new() -> Follower {
        let directory = tempfile::tempdir().expect("a directory");
        let config = ClusterConfig::from_flag("a=http://127.0.0.1:1,b=http://127.0.0.1:2,c=http://127.0.0.1:3", "t");
        let options = NodeOptions {
            name: "a".to_owned(),
            bootstrap: Bootstrap::New(config.expect("three members")),
            raft_log_bytes: 4 << 20,
            state_log_bytes: 8 << 20,
            buffer_pool_bytes: 8 << 20,
            ..NodeOptions::default()
        };
        let node = Node::open(directory.path().join("a"), options).await.expect("it opens");
        let stopping = watch::Sender::new(false);
        let mut follower = Follower { node, before: log_id::<Config>(0, 0, 0), stopping, _directory: directory };
        follower.before = follower.last().await.expect("the cluster's first entry");
        follower
    }

    async fn last(&self) -> Option<LogIdOf<Config>> {
        self.node.raft().with_raft_state(|state| state.log_ids.last().copied()).await.expect("raft runs")
    }

    /// The terms of the entries behind the cluster's first.
    async fn terms(&self) -> Vec<u64> {
        let last = self.last().await.expect("it has entries").index;
        let terms = self.node.raft().with_raft_state(move |state| {
            (1..=last).map(|index| state.log_ids.get(index).expect("an entry").committed_leader_id().term).collect()
        });
        terms.await.expect("raft runs")
    }

    fn lead(&self) -> Leader {
        let (messages, mut receiver) = mpsc::unbounded_channel();
        let messages_of = stream::poll_fn(move |context| receiver.poll_recv(context));
        let answers = append_all(self.node.clone(), messages_of, self.stopping.subscribe());
        Leader { messages, answers }
    }

    /// A message of a leader in a term: so many entries of so many bytes, behind another.
    fn message(&self, (term, leader): (u64, u64), before: LogIdOf<Config>, entries: u64, bytes: usize) -> pb::Entries {
        let identity = self.node.identity();
        let address = Some(pb::Address { cluster: identity.cluster_id, from: leader, to: identity.member_id });
        let head: Head = (VoteOf::<Config>::new_committed(term, leader), Some(before), None);
        let entry = |index| EntryOf::<Config> {
            log_id: log_id::<Config>(term, leader, index),
            payload: EntryPayload::Normal(Command::Part { member: leader, number: 0, bytes: Bytes(vec![1; bytes]) }),
        };
        let encoded = |index| encode(&entry(index)).expect("it can be encoded");
        let entries = (before.index + 1..).take(entries as usize).map(encoded).collect();
        pb::Entries { address, head: encode(&head).expect("it can be encoded"), entries }
    }
}

impl Leader {
    /// A message is lost if the member has ended the stream because of one before it, which may happen at any time.
    fn send(&self, message: pb::Entries) {
        let _lost = self.messages.send(Ok(message));
    }

    async fn answer(&mut self) -> Option<Result<AppendEntriesResponse<Config>, Status>> {
        let answer = self.answers.next().await?;
        Some(answer.map(|answer| decode(&answer.body).expect("it can be decoded")))
    }

    async fn expect(&mut self, expected: AppendEntriesResponse<Config>) {
        assert_eq!(self.answer().await.expect("an answer").expect("no refusal"), expected);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_under_way_are_answered_in_their_order() {
    let follower = Follower::new().await;
    let mut leader = follower.lead();
    let first = follower.before.index;
    // None waits for the answer to the one before.
    leader.send(follower.message(FIRST, follower.before, 3, 10));
    leader.send(follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 3), 1, 10));
    leader.send(follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 4), 0, 10));
    for _ in 0..3 {
        leader.expect(AppendEntriesResponse::Success).await;
    }
    assert_eq!(follower.last().await, Some(log_id::<Config>(FIRST.0, FIRST.1, first + 4)));
    follower.stopping.send_replace(true);
    assert!(leader.answer().await.is_none(), "the stream ends when the member stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_appended_behind_a_gap() {
    let follower = Follower::new().await;
    let mut leader = follower.lead();
    let first = follower.before.index;
    leader.send(follower.message(FIRST, follower.before, 1, 10));
    leader.send(follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 2), 1, 10));
    leader.send(follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 3), 1, 10));
    leader.expect(AppendEntriesResponse::Success).await;
    leader.expect(AppendEntriesResponse::Conflict).await;
    assert!(leader.answer().await.is_none(), "nothing is answered behind a conflict");
    assert_eq!(follower.last().await, Some(log_id::<Config>(FIRST.0, FIRST.1, first + 1)));
    // Another stream goes on from there, and may repeat what was there.
    let mut leader = follower.lead();
    leader.send(follower.message(FIRST, follower.before, 4, 10));
    leader.expect(AppendEntriesResponse::Success).await;
    assert_eq!(follower.last().await, Some(log_id::<Config>(FIRST.0, FIRST.1, first + 4)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_has_no_space_is_cut_and_those_behind_it_are_not_taken() {
    let follower = Follower::new().await;
    let mut leader = follower.lead();
    let first = follower.before.index;
    leader.send(follower.message(FIRST, follower.before, 10, 30_000));
    leader.send(follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 10), 1, 10));
    let answer = leader.answer().await.expect("an answer").expect("no refusal");
    let AppendEntriesResponse::PartialSuccess(Some(taken)) = answer else { panic!("not cut: {answer:?}") };
    assert!((first + 1..first + 10).contains(&taken.index), "{taken}");
    assert!(leader.answer().await.is_none(), "nothing is answered behind a message that was cut");
    assert_eq!(follower.last().await, Some(taken));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_does_not_take_the_answers_before_it() {
    let follower = Follower::new().await;
    let first = follower.before.index;
    let misdirected = pb::Entries {
        address: Some(pb::Address { cluster: 1, from: 2, to: 3 }),
        ..follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 1), 1, 10)
    };
    let mut disordered = follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 1), 3, 10);
    disordered.entries.swap(0, 1);
    for (refused, code) in [(misdirected, Code::FailedPrecondition), (disordered, Code::InvalidArgument)] {
        let mut leader = follower.lead();
        leader.send(follower.message(FIRST, follower.before, 1, 10));
        leader.send(refused);
        leader.send(follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 1), 1, 10));
        leader.expect(AppendEntriesResponse::Success).await;
        let refusal = leader.answer().await.expect("an answer").expect_err("it is refused");
        assert_eq!(refusal.code(), code, "{refusal}");
        assert!(leader.answer().await.is_none());
        assert_eq!(follower.last().await, Some(log_id::<Config>(FIRST.0, FIRST.1, first + 1)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_and_one_of_an_earlier_leader_change_nothing_later() {
    let follower = Follower::new().await;
    let first = follower.before.index;
    let mut earlier = follower.lead();
    earlier.send(follower.message(FIRST, follower.before, 3, 10));
    earlier.expect(AppendEntriesResponse::Success).await;
    // This one breaks while it waits for its answer.
    let broken = follower.lead();
    broken.send(follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 3), 2, 10));
    broken.messages.send(Err(Status::unavailable("the connection has ended"))).expect("the stream goes on");
    drop(broken);
    // Another leader has the first entry alone, and the earlier leader does not know yet.
    let mut later = follower.lead();
    later.send(follower.message(SECOND, log_id::<Config>(FIRST.0, FIRST.1, first + 1), 2, 10));
    later.expect(AppendEntriesResponse::Success).await;
    earlier.send(follower.message(FIRST, log_id::<Config>(FIRST.0, FIRST.1, first + 3), 5, 10));
    let vote = VoteOf::<Config>::new_committed(SECOND.0, SECOND.1);
    earlier.expect(AppendEntriesResponse::HigherVote(vote)).await;
    assert!(earlier.answer().await.is_none());
    later.send(follower.message(SECOND, log_id::<Config>(SECOND.0, SECOND.1, first + 3), 1, 10));
    later.expect(AppendEntriesResponse::Success).await;
    assert_eq!(follower.terms().await[first as usize..], [FIRST.0, SECOND.0, SECOND.0, SECOND.0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_waits_for_space_is_given_up_with_its_leader() {
    let follower = Follower::new().await;
    let first = follower.before.index;
    let large = follower.message(FIRST, follower.before, 10, 30_000);
    let (_, all_space) = follower.node.space().admit_replicated(&large.entries).await.expect("there is space");
    let leader = follower.lead();
    leader.send(large);
    let messages = leader.messages.clone();
    drop(leader);
    // The member lets go of the messages while there is no space.
    messages.closed().await;
    drop(all_space);
    let mut leader = follower.lead();
    leader.send(follower.message(FIRST, follower.before, 1, 10));
    leader.expect(AppendEntriesResponse::Success).await;
    assert_eq!(follower.last().await, Some(log_id::<Config>(FIRST.0, FIRST.1, first + 1)));
}
