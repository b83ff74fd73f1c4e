//! The newest events, read once for all watchers, while there are any.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::mvcc::{Event, REVISION_BYTES};

/// Bytes of events that are kept.
const KEPT_BYTES: usize = 16 << 20;

/// The events of whole revisions, from one to another.
#[derive(Clone)]
pub(crate) struct Batch {
    pub from: i64,
    pub to: i64,
    pub events: Arc<[Event]>,
}

/// What a member has of the revisions from one on.
pub(crate) enum Found {
    Events(Batch),
    /// They are given up; with the compacted revision.
    Compacted(i64),
}

/// The batches of events that came last. They follow one another without a gap.
pub(crate) struct Feed {
    batches: Mutex<Kept>,
    revision: watch::Sender<i64>,
    /// There may be a subscriber where there was none.
    subscribed: Notify,
}

#[derive(Default)]
struct Kept {
    batches: VecDeque<Batch>,
    bytes: usize,
}

impl Batch {
    fn bytes(&self) -> usize {
        let of = |event: &Event| event.key_value.key.len() + event.key_value.value.len() + REVISION_BYTES * 8;
        self.events.iter().map(of).sum()
    }
}

impl Feed {
    /// Of a store that is at this revision.
    pub fn new(revision: i64) -> Feed {
        Feed { batches: Mutex::default(), revision: watch::Sender::new(revision), subscribed: Notify::new() }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // No panic leaves it half changed.
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision up to which events have come.
    pub fn revision(&self) -> i64 {
        *self.revision.borrow()
    }

    /// Tells of later revisions. Of a feed that had no subscriber, the first may be one that the store has had for long.
    pub fn subscribe(&self) -> watch::Receiver<i64> {
        let revisions = self.revision.subscribe();
        self.subscribed.notify_one();
        revisions
    }

    /// Waits until there is a subscriber. Returns whether there was none.
    pub async fn until_subscribed(&self) -> bool {
        let mut has_waited = false;
        while self.revision.receiver_count() == 0 {
            has_waited = true;
            self.subscribed.notified().await;
        }
        has_waited
    }

    /// Adds the batch that follows.
    pub fn push(&self, batch: Batch) {
        let to = batch.to;
        let mut kept = self.kept();
        kept.bytes += batch.bytes();
        kept.batches.push_back(batch);
        while kept.bytes > KEPT_BYTES {
            let Some(oldest) = kept.batches.pop_front() else { break };
            kept.bytes -= oldest.bytes();
        }
        drop(kept);
        self.revision.send_replace(to);
    }

    /// Goes on behind a revision: the events before it that have not come are given up.
    pub fn skip_to(&self, revision: i64) {
        *self.kept() = Kept::default();
        self.revision.send_replace(revision);
    }

    /// The batch with a revision, if it is kept.
    pub fn batch_with(&self, revision: i64) -> Option<Batch> {
        let kept = self.kept();
        let index = kept.batches.partition_point(|batch| batch.to < revision);
        kept.batches.get(index).filter(|batch| batch.from <= revision).cloned()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::api::mvccpb::KeyValue;
    use crate::mvcc::Revision;

    #[test]
    fn the_oldest_batches_give_way() {
        let feed = Feed::new(1);
        for from in (2..200).step_by(3) {
            let key_value = KeyValue { key: b"k".to_vec(), value: vec![0; 1 << 20], ..KeyValue::default() };
            let event = Event { revision: Revision { main: from, sub: 0 }, is_delete: false, key_value };
            feed.push(Batch { from, to: from + 2, events: Arc::from([event]) });
            assert_eq!(feed.revision(), from + 2);
        }
        assert!(feed.batch_with(2).is_none() && feed.batch_with(203).is_none());
        for revision in 170..=199 {
            let batch = feed.batch_with(revision).expect("it is kept");
            assert!((batch.from..=batch.to).contains(&revision));
        }
        assert!(feed.kept().bytes <= KEPT_BYTES);
    }

    #[test]
    fn nothing_is_waited_for_while_there_is_a_subscriber() {
        let feed = Feed::new(1);
        let mut waiting = std::pin::pin!(feed.until_subscribed());
        assert_eq!(waiting.as_mut().now_or_never(), None);
        let revisions = feed.subscribe();
        assert_eq!(waiting.now_or_never(), Some(true));
        assert_eq!(feed.until_subscribed().now_or_never(), Some(false));
        drop(revisions);
        // What the subscriber left behind is no other one.
        assert_eq!(feed.until_subscribed().now_or_never(), None);
    }
}
