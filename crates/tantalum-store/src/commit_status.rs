//! What became of change groups: committed, active, or aborted by a crash.
//!
//! Groups depend on those published before them, since a change names the slots that earlier ones left. So the committed
//! groups of a session are a prefix of those it published, and their statuses are one number: the watermark. ("Design of
//! Flash-Based DBMS: An In-Page Logging Approach", section 5.1, keeps a record for each transaction.)

use std::{collections::BTreeMap, fmt::Debug, sync::Arc};

use tantalum_log::Lsn;

use super::position;

/// What became of a change group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Its status is durable.
    Committed,
    /// It was published in this session; its status is not durable yet.
    Active,
    /// It was active when its session ended in a crash.
    Aborted,
}

/// How far the groups of past sessions were committed.
///
/// Invariant: every session from `oldest` on that is not there has committed nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Watermarks {
    by_epoch: BTreeMap<u64, Lsn>,
    oldest: u64,
}

impl Watermarks {
    /// Everything up to `position`, in its session, is committed.
    pub fn commit(&mut self, position: Lsn) {
        let watermark = self.by_epoch.entry(position::epoch_of(position)).or_default();
        *watermark = position.max(*watermark);
    }

    /// Whether a group of a past session is committed; `None` when that is not known any more.
    pub fn is_committed(&self, position: Lsn) -> Option<bool> {
        let epoch = position::epoch_of(position);
        (epoch >= self.oldest).then(|| self.by_epoch.get(&epoch).is_some_and(|watermark| position <= *watermark))
    }

    /// Forgets the sessions before `epoch`: no change names them any more.
    pub fn forget_before(&mut self, epoch: u64) {
        self.oldest = self.oldest.max(epoch);
        self.by_epoch = self.by_epoch.split_off(&self.oldest);
    }

    /// The first session that is known.
    pub fn oldest(&self) -> u64 {
        self.oldest
    }

    /// The watermarks, by session.
    pub fn iter(&self) -> impl Iterator<Item = Lsn> {
        self.by_epoch.values().copied()
    }

    /// How many sessions have one.
    pub fn count(&self) -> usize {
        self.by_epoch.len()
    }
}

/// Tells how far the present session is committed.
pub trait Horizon: Send + Sync + Debug {
    /// Every group of this session up to this position is committed, durably. Only grows.
    fn committed_through(&self) -> Lsn;
}

/// What a store has to know of sessions to tell what became of a group.
#[derive(Clone, Debug)]
pub struct Session {
    /// The present one.
    pub epoch: u64,
    /// The past ones.
    pub past: Watermarks,
    /// How far the present one is committed.
    pub horizon: Arc<dyn Horizon>,
}

impl Session {
    /// What became of a group, when the present session is committed up to `horizon`.
    ///
    /// # Errors
    /// When it cannot be: the group is of a session that is forgotten, or has not begun.
    pub fn status(&self, position: Lsn, horizon: Lsn) -> Result<Status, String> {
        let epoch = position::epoch_of(position);
        if epoch == self.epoch {
            return Ok(if position <= horizon { Status::Committed } else { Status::Active });
        }
        match self.past.is_committed(position).filter(|_| epoch < self.epoch) {
            Some(true) => Ok(Status::Committed),
            Some(false) => Ok(Status::Aborted),
            None => {
                Err(format!("it names session {epoch}; known are those from {} to {}", self.past.oldest(), self.epoch))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct At(Lsn);

    impl Horizon for At {
        fn committed_through(&self) -> Lsn {
            self.0
        }
    }

    fn at(epoch: u64, count: u64) -> Lsn {
        Lsn::new(position::start_of(epoch).get() + count)
    }

    #[test]
    fn a_group_is_committed_up_to_its_sessions_watermark() {
        let mut past = Watermarks::default();
        past.commit(at(3, 10));
        past.commit(at(3, 7));
        past.commit(at(5, 2));
        let session = Session { epoch: 6, past, horizon: Arc::new(At(at(6, 4))) };
        let status = |epoch, count| session.status(at(epoch, count), session.horizon.committed_through());
        assert_eq!(status(3, 10), Ok(Status::Committed));
        assert_eq!(status(3, 11), Ok(Status::Aborted));
        assert_eq!(status(4, 1), Ok(Status::Aborted), "it committed nothing");
        assert_eq!(status(5, 2), Ok(Status::Committed));
        assert_eq!(status(6, 4), Ok(Status::Committed));
        assert_eq!(status(6, 5), Ok(Status::Active));
        assert!(status(7, 1).is_err());
    }

    #[test]
    fn what_is_forgotten_is_neither_committed_nor_aborted() {
        let mut past = Watermarks::default();
        past.commit(at(3, 10));
        past.commit(at(5, 1));
        past.forget_before(4);
        assert_eq!(past.is_committed(at(3, 1)), None);
        assert_eq!(past.is_committed(at(4, 1)), Some(false));
        assert_eq!((past.count(), past.oldest(), past.iter().count()), (1, 4, 1));
        let session = Session { epoch: 6, past, horizon: Arc::new(At(Lsn::ZERO)) };
        assert!(session.status(at(3, 1), Lsn::ZERO).unwrap_err().contains("session 3"));
    }
}
