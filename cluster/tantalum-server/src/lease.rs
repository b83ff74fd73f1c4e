//! How long leases still live. Every member counts, from when it heard of a lease or of its renewal; only the leader's count has
//! consequences: it proposes to revoke what has expired. A member that becomes leader begins anew, so a lease never ends early, and a
//! change of leaders or a restart makes it live longer. The monotonic clock counts, so setting a member's clock does nothing.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// So many leases are revoked at the same time.
const REVOKED_AT_A_TIME: usize = 64;
/// After this, an expired lease that could not be revoked is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// As good as never.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The leases, with the time that each has left.
#[derive(Default)]
pub(crate) struct Lessor {
    counts: Mutex<Counts>,
    /// The next lease to expire may be another.
    changed: Notify,
}

#[derive(Default)]
struct Counts {
    leases: HashMap<i64, Lease>,
    /// When to look at which lease.
    order: BTreeSet<(Instant, i64)>,
    /// The last term for which all began anew.
    term: Option<u64>,
}

struct Lease {
    ttl_s: i64,
    deadline: Instant,
    /// Its place in `order`.
    look_at: Instant,
}

/// A lease's time to live, in whole seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TimeToLive {
    pub granted_s: i64,
    pub remaining_s: i64,
}

impl Counts {
    fn set(&mut self, id: i64, ttl_s: i64, now: Instant) {
        self.remove(id);
        let deadline = now + Duration::from_secs(ttl_s.max(0) as u64).min(LONGEST);
        self.order.insert((deadline, id));
        self.leases.insert(id, Lease { ttl_s, deadline, look_at: deadline });
    }

    fn remove(&mut self, id: i64) {
        if let Some(lease) = self.leases.remove(&id) {
            self.order.remove(&(lease.look_at, id));
        }
    }

    /// Expired leases, which are looked at again later.
    fn take_expired(&mut self, now: Instant) -> Vec<i64> {
        let mut expired = Vec::new();
        while expired.len() < REVOKED_AT_A_TIME {
            let Some(&(look_at, id)) = self.order.first().filter(|(look_at, _)| *look_at <= now) else { break };
            self.order.remove(&(look_at, id));
            if let Some(lease) = self.leases.get_mut(&id) {
                lease.look_at = now + RETRY;
                self.order.insert((lease.look_at, id));
                expired.push(id);
            }
        }
        expired
    }
}

impl Lessor {
    fn counts(&self) -> MutexGuard<'_, Counts> {
        // No panic leaves the counts half changed.
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A lease was made, or was found when the member started.
    pub fn granted(&self, id: i64, ttl_s: i64) {
        self.counts().set(id, ttl_s, Instant::now());
        self.changed.notify_one();
    }

    /// The leases are others, as a snapshot has them, each with its whole time.
    pub fn replaced(&self, leases: Vec<(i64, i64)>) {
        let now = Instant::now();
        let mut counts = self.counts();
        *counts = Counts { term: counts.term, ..Counts::default() };
        leases.into_iter().for_each(|(id, ttl_s)| counts.set(id, ttl_s, now));
        drop(counts);
        self.changed.notify_one();
    }

    /// A lease is gone.
    pub fn revoked(&self, id: i64) {
        self.counts().remove(id);
    }

    /// Begins a lease's time anew. Returns its seconds; `None` if it is gone or has expired.
    pub fn renew(&self, id: i64) -> Option<i64> {
        let now = Instant::now();
        let mut counts = self.counts();
        let ttl_s = counts.leases.get(&id).filter(|lease| lease.deadline > now)?.ttl_s;
        counts.set(id, ttl_s, now);
        Some(ttl_s)
    }

    /// What a lease has left.
    pub fn time_to_live(&self, id: i64) -> Option<TimeToLive> {
        let now = Instant::now();
        let counts = self.counts();
        let lease = counts.leases.get(&id).filter(|lease| lease.deadline > now)?;
        let remaining_s = (lease.deadline - now).as_secs() as i64;
        Some(TimeToLive { granted_s: lease.ttl_s, remaining_s: remaining_s.min(lease.ttl_s) })
    }

    /// The leases that live, those that expire first in front.
    pub fn ids(&self) -> Vec<i64> {
        let now = Instant::now();
        let counts = self.counts();
        let living =
            counts.order.iter().filter(|(_, id)| counts.leases.get(id).is_some_and(|lease| lease.deadline > now));
        living.map(|(_, id)| *id).collect()
    }

    /// This member leads in a term: all leases begin anew when it is a later one, since others may have renewed them before. Without
    /// this, no answer about a lease counts.
    pub fn lead_in(&self, term: u64) {
        let now = Instant::now();
        let mut counts = self.counts();
        if counts.term < Some(term) {
            counts.term = Some(term);
            let all: Vec<_> = counts.leases.iter().map(|(id, lease)| (*id, lease.ttl_s)).collect();
            all.into_iter().for_each(|(id, ttl_s)| counts.set(id, ttl_s, now));
        }
    }

    /// Has expired leases revoked, while this member leads, for ever. `leads_in` is the term in which it does, with what `revoke` is to
    /// know of that: a lease that has expired for one leader may be renewed by the next.
    pub async fn expire<L: Clone, F: Future<Output = ()>>(
        self: Arc<Self>,
        leads_in: impl Fn() -> Option<(u64, L)>,
        revoke: impl Fn(i64, L) -> F,
    ) {
        loop {
            let leads = leads_in();
            let mut expired = Vec::new();
            if let Some((term, leadership)) = &leads {
                self.lead_in(*term);
                let ids = self.counts().take_expired(Instant::now());
                expired.extend(ids.into_iter().map(|id| revoke(id, leadership.clone())));
            }
            let leads = leads.is_some();
            if !expired.is_empty() {
                join_all(expired).await;
                continue;
            }
            let first = self.counts().order.first().map(|(look_at, _)| *look_at);
            // Also to see whether it leads.
            let wake_up = Instant::now() + RETRY;
            let wake_up = first.filter(|_| leads).map_or(wake_up, |first| first.min(wake_up));
            // Either way, it looks again.
            let _ = timeout_at(wake_up, self.changed.notified()).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn leases_expire_in_turn_and_live_on_when_they_are_renewed() {
        let lessor = Arc::new(Lessor::default());
        let revoked = Arc::new(Mutex::new(Vec::new()));
        let begin = Instant::now();
        let expire = {
            let (lessor, revoked) = (Arc::clone(&lessor), Arc::clone(&revoked));
            let gone = Arc::clone(&lessor);
            lessor.expire(
                || Some((1, ())),
                move |id, ()| {
                    revoked.lock().expect("no panic").push((id, begin.elapsed().as_secs()));
                    gone.revoked(id);
                    std::future::ready(())
                },
            )
        };
        let task = tokio::spawn(expire);
        for (id, ttl_s) in [(1, 10), (2, 5), (3, 20)] {
            lessor.granted(id, ttl_s);
        }
        tokio::time::sleep(Duration::from_millis(3500)).await;
        assert_eq!(lessor.renew(1), Some(10));
        assert_eq!(lessor.time_to_live(3), Some(TimeToLive { granted_s: 20, remaining_s: 16 }));
        assert_eq!(lessor.ids(), [2, 1, 3]);
        tokio::time::sleep(Duration::from_secs(30)).await;
        assert_eq!(*revoked.lock().expect("no panic"), [(2, 5), (1, 13), (3, 20)]);
        assert_eq!((lessor.renew(1), lessor.time_to_live(3)), (None, None));
        task.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn leases_that_another_leader_renewed_live_when_this_one_begins() {
        let lessor = Lessor::default();
        lessor.granted(1, 10);
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(lessor.time_to_live(1), None);
        lessor.lead_in(5);
        assert_eq!(lessor.time_to_live(1).map(|left| left.remaining_s), Some(10));
        tokio::time::sleep(Duration::from_secs(4)).await;
        lessor.lead_in(5);
        assert_eq!(lessor.time_to_live(1).map(|left| left.remaining_s), Some(6));
        lessor.replaced(vec![(2, 30)]);
        assert_eq!((lessor.renew(1), lessor.renew(2)), (None, Some(30)));
    }
}
