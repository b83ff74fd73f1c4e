//! The network: messages are late, lost, doubled, and overtake each other; links are cut.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use raft::eraftpb::{Message, MessageType};
use tantalum_rt::{Condvar, Mutex, Random, sleep, spawn};

/// What a node has to do next.
pub enum Event {
    Tick,
    Message(Message),
    /// The snapshot that was sent to this node came there, or not.
    SnapshotSent(u64, bool),
    /// What this ready said is durable, and these messages may go.
    Persisted(u64, Vec<Message>, tantalum_raft::Result<()>),
    /// A request of a client, with its number.
    Request(usize, super::Request),
    /// The run is over.
    End,
}

/// Where events for one start of a node come. Closed when its power is cut.
#[derive(Default)]
pub struct Inbox {
    state: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    events: VecDeque<Event>,
    is_closed: bool,
}

impl Inbox {
    pub fn push(&self, event: Event) {
        let mut state = self.state.lock();
        // A node that is behind ticks once.
        let is_behind = matches!(event, Event::Tick) && state.events.iter().any(|event| matches!(event, Event::Tick));
        if !state.is_closed && !is_behind {
            state.events.push_back(event);
        }
        drop(state);
        self.changed.notify_all();
    }

    /// The next event; `None` when the power is cut.
    pub fn pop(&self) -> Option<Event> {
        let mut state = self.state.lock();
        while state.events.is_empty() && !state.is_closed {
            self.changed.wait(&mut state);
        }
        if state.is_closed { None } else { state.events.pop_front() }
    }

    pub fn close(&self) {
        let mut state = self.state.lock();
        state.is_closed = true;
        state.events.clear();
        drop(state);
        self.changed.notify_all();
    }
}

/// All links.
pub struct Network {
    state: Mutex<State>,
}

struct State {
    random: Random,
    /// Of nodes that have power.
    inboxes: BTreeMap<u64, Arc<Inbox>>,
    cut: BTreeSet<(u64, u64)>,
    /// Of a thousand messages, so many are lost, and as many doubled.
    lost_permille: u32,
    /// A usual delay.
    delay_us: u64,
}

impl Network {
    pub fn new(mut random: Random) -> Arc<Network> {
        let (lost_permille, delay_us) = ([0, 5, 30][random.usize(0..3)], [100, 300, 1000][random.usize(0..3)]);
        let state = State { random, inboxes: BTreeMap::new(), cut: BTreeSet::new(), lost_permille, delay_us };
        Arc::new(Network { state: Mutex::new(state) })
    }

    pub fn connect(&self, node: u64, inbox: Arc<Inbox>) {
        self.state.lock().inboxes.insert(node, inbox);
    }

    pub fn disconnect(&self, node: u64) {
        if let Some(inbox) = self.state.lock().inboxes.remove(&node) {
            inbox.close();
        }
    }

    pub fn inbox(&self, node: u64) -> Option<Arc<Inbox>> {
        self.state.lock().inboxes.get(&node).cloned()
    }

    /// Cuts links at random.
    pub fn cut_links(&self, nodes: u64) {
        let mut state = self.state.lock();
        let alone = state.random.u64(1..=nodes);
        let (in_one_direction, to_it) = (state.random.bool(), state.random.bool());
        for other in (1..=nodes).filter(|other| *other != alone) {
            if !in_one_direction || to_it {
                state.cut.insert((other, alone));
            }
            if !in_one_direction || !to_it {
                state.cut.insert((alone, other));
            }
        }
    }

    pub fn mend_links(&self) {
        self.state.lock().cut.clear();
    }

    /// From now on all messages arrive.
    pub fn be_reliable(&self) {
        let mut state = self.state.lock();
        state.cut.clear();
        (state.lost_permille, state.delay_us) = (0, 200);
    }

    /// Sends a message of a node that has power.
    pub fn send(self: &Arc<Self>, message: Message) {
        let mut delays = Vec::new();
        {
            let mut state = self.state.lock();
            let State { random, cut, lost_permille, delay_us, .. } = &mut *state;
            let mut delay = || {
                let usual = random.u64(20..=*delay_us);
                Duration::from_micros(if random.u32(0..30) == 0 { usual * 10 } else { usual })
            };
            let (once, again) = (delay(), delay());
            let is_cut = cut.contains(&(message.from, message.to));
            if !is_cut && random.u32(0..1000) >= *lost_permille {
                delays.push(once);
            }
            match message.get_msg_type() {
                _ if is_cut => {}
                // One that a follower hands on would be made twice.
                MessageType::MsgPropose => {}
                // A node that voted, and has forgotten it, may be asked by another candidate.
                MessageType::MsgRequestVote if random.bool() => delays.push(again * 10),
                _ if random.u32(0..1000) < *lost_permille => delays.push(again),
                _ => {}
            }
        }
        if delays.is_empty() {
            self.report(&message, false);
        }
        for delay in delays {
            let (network, message) = (Arc::clone(self), message.clone());
            spawn("message", move || {
                sleep(delay);
                let inbox = network.inbox(message.to);
                network.report(&message, inbox.is_some());
                if let Some(inbox) = inbox {
                    inbox.push(Event::Message(message));
                }
            });
        }
    }

    /// raft-rs wants to know whether a snapshot came there.
    fn report(&self, message: &Message, came: bool) {
        if message.get_msg_type() == MessageType::MsgSnapshot
            && let Some(inbox) = self.inbox(message.from)
        {
            inbox.push(Event::SnapshotSent(message.to, came));
        }
    }
}
