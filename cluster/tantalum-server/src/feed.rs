//! The newest events, read once for all watchers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;

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
        Feed { batches: Mutex::default(), revision: watch::Sender::new(revision) }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // No panic leaves it half changed.
        self.batches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The revision up to which events have come.
    pub fn revision(&self) -> i64 {
        *self.revision.borrow()
    }

    /// Tells of later revisions.
    pub fn subscribe(&self) -> watch::Receiver<i64> {
        self.revision.subscribe()
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
}
