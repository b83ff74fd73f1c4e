//! Which connection may write a SQLite database. Nothing here blocks but [`WriteLock::sleep`], which SQLite's busy handler calls through
//! the VFS's `xSleep`: two connections of one thread cannot wait for each other for longer than their time-out. It does not say for what
//! it sleeps: that is the database that last refused its thread the lock.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{Arc, Weak},
    time::Duration,
};

use tantalum_rt::{Condvar, Instant, Mutex, now};

use crate::{client::Remote, database::Database};

/// For so long a lock that was given to a waiting connection is kept for it. It comes for it at once, unless its program gave up waiting.
const PROMISE: Duration = Duration::from_millis(20);

/// A connection, by number.
pub(crate) type ConnectionId = u64;

/// Why a connection did not get the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// Another connection has it, or is about to take it.
    Busy,
    /// It is free, but there were commits that the connection does not see.
    Stale,
}

/// The lock, and how many commits there were under it.
#[derive(Default)]
pub(crate) struct WriteLock {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holder: Option<ConnectionId>,
    /// It is free, but kept for a connection that has waited for it, until then.
    promised: Option<(ConnectionId, Instant)>,
    commits: u64,
    /// Connections that sleep, by when they first asked.
    sleepers: BTreeMap<Place, Sleeper>,
    next_place: u64,
}

/// A place in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(u64);

struct Sleeper {
    connection: ConnectionId,
    wake: Arc<Condvar>,
}

impl State {
    /// Whether the lock is kept for another connection.
    fn is_kept_from(&mut self, connection: ConnectionId) -> bool {
        if self.promised.is_some_and(|(_, until)| until <= now()) {
            self.promised = None;
        }
        self.promised.is_some_and(|(other, _)| other != connection)
    }

    fn promise(&mut self, connection: ConnectionId) {
        self.promised = Some((connection, now() + PROMISE));
    }
}

impl WriteLock {
    /// How many commits there were. A view that is begun after this shows at least so many.
    pub fn commits(&self) -> u64 {
        self.state.lock().commits
    }

    /// Takes the lock for a connection whose view shows `seen` commits, or for one that has no view yet. A connection that is refused
    /// gets a place in the line, which it keeps until it has had the lock.
    pub fn try_acquire(
        &self,
        connection: ConnectionId,
        seen: Option<u64>,
        place: &mut Option<Place>,
    ) -> Result<(), Refusal> {
        let mut state = self.state.lock();
        let refusal = if state.holder.is_some() || state.is_kept_from(connection) {
            Refusal::Busy
        } else if seen.is_some_and(|seen| seen != state.commits) {
            Refusal::Stale
        } else {
            state.holder = Some(connection);
            state.promised = None;
            *place = None;
            return Ok(());
        };
        if place.is_none() {
            *place = Some(Place(state.next_place));
            state.next_place += 1;
        }
        Err(refusal)
    }

    /// Notes a commit of the connection that has the lock.
    pub fn count_commit(&self) {
        self.state.lock().commits += 1;
    }

    /// Gives the lock back, and wakes the connection that has slept for it longest.
    pub fn release(&self, connection: ConnectionId) {
        let mut state = self.state.lock();
        assert_eq!(state.holder, Some(connection), "only the holder gives the lock back");
        state.holder = None;
        if let Some((_, sleeper)) = state.sleepers.pop_first() {
            state.promise(sleeper.connection);
            sleeper.wake.notify_one();
        }
    }

    /// Whether any connection has the lock.
    pub fn is_held(&self) -> bool {
        self.state.lock().holder.is_some()
    }

    /// Sleeps until the lock is kept for the connection, for `at_most`.
    pub fn sleep(&self, connection: ConnectionId, place: Place, at_most: Duration) {
        let mut state = self.state.lock();
        if state.holder.is_none() && !state.is_kept_from(connection) {
            return state.promise(connection);
        }
        let wake = Arc::new(Condvar::new());
        state.sleepers.insert(place, Sleeper { connection, wake: Arc::clone(&wake) });
        let until = now() + at_most;
        while state.sleepers.contains_key(&place) {
            let left = until.duration_since(now());
            if left.is_zero() {
                state.sleepers.remove(&place);
                return;
            }
            wake.wait_for(&mut state, left);
        }
    }
}

/// What this thread was refused.
enum Wanted {
    Here {
        database: Weak<Database>,
        connection: ConnectionId,
        place: Place,
    },
    /// In another process, which knows it.
    Elsewhere(Weak<Remote>),
}

thread_local! {
    static WANTED: RefCell<Option<Wanted>> = const { RefCell::new(None) };
}

/// Notes that a connection of this thread was refused the write lock.
pub(crate) fn note_refusal(database: &Arc<Database>, connection: ConnectionId, place: Option<Place>) {
    let wanted = place.map(|place| Wanted::Here { database: Arc::downgrade(database), connection, place });
    WANTED.with(|cell| *cell.borrow_mut() = wanted);
}

/// Notes that a connection of this thread was refused the write lock by another process.
pub(crate) fn note_refusal_elsewhere(remote: &Arc<Remote>) {
    WANTED.with(|cell| *cell.borrow_mut() = Some(Wanted::Elsewhere(Arc::downgrade(remote))));
}

/// Notes that a connection of this thread got its lock.
pub(crate) fn forget_refusal() {
    WANTED.with(|cell| *cell.borrow_mut() = None);
}

/// `xSleep`: until the connection's turn comes, at most so long.
pub(crate) fn sleep_in_turn(at_most: Duration) {
    let wanted = WANTED.with(|cell| cell.borrow_mut().take());
    let has_slept = match wanted {
        Some(Wanted::Here { database, connection, place }) => {
            database.upgrade().map(|database| database.write_lock.sleep(connection, place, at_most)).is_some()
        }
        Some(Wanted::Elsewhere(remote)) => remote.upgrade().map(|remote| remote.await_turn(at_most)).is_some(),
        None => false,
    };
    if !has_slept {
        tantalum_rt::sleep(at_most);
    }
}

#[cfg(test)]
mod tests {
    use tantalum_rt::{Simulation, sleep, spawn};

    use super::*;

    #[test]
    fn the_lock_goes_to_one_that_has_seen_all_commits() {
        let lock = WriteLock::default();
        let (mut first, mut second) = (None, None);
        assert_eq!(lock.try_acquire(1, Some(0), &mut first), Ok(()));
        assert_eq!(lock.try_acquire(2, Some(0), &mut second), Err(Refusal::Busy));
        lock.count_commit();
        lock.release(1);
        assert_eq!(lock.try_acquire(2, Some(0), &mut second), Err(Refusal::Stale));
        assert_eq!(lock.try_acquire(2, Some(1), &mut second), Ok(()));
        assert_eq!(second, None, "it had its turn");
    }

    #[test]
    fn a_sleeper_has_the_lock_kept_for_it() {
        Simulation::new(1)
            .run(|| {
                let lock = Arc::new(WriteLock::default());
                let (mut first, mut second, mut third) = (None, None, None);
                lock.try_acquire(1, None, &mut first).unwrap();
                lock.try_acquire(2, None, &mut second).unwrap_err();
                let place = second.unwrap();
                let sleeper = spawn("sleeper", {
                    let lock = Arc::clone(&lock);
                    move || lock.sleep(2, place, Duration::from_secs(60))
                });
                sleep(Duration::from_secs(1));
                lock.release(1);
                assert_eq!(lock.try_acquire(3, None, &mut third), Err(Refusal::Busy));
                sleeper.join().unwrap();
                assert_eq!(lock.try_acquire(2, None, &mut second), Ok(()));
                lock.release(2);
                assert_eq!(lock.try_acquire(3, None, &mut third), Ok(()), "no task sleeps");
            })
            .expect_finished();
    }

    #[test]
    fn one_that_does_not_come_for_the_lock_loses_it() {
        Simulation::new(1)
            .run(|| {
                let lock = WriteLock::default();
                let (mut first, mut second) = (Some(Place(7)), None);
                lock.sleep(1, Place(7), Duration::from_secs(60));
                assert_eq!(lock.try_acquire(2, None, &mut second), Err(Refusal::Busy));
                sleep(PROMISE);
                assert_eq!(lock.try_acquire(2, None, &mut second), Ok(()));
                assert_eq!(lock.try_acquire(1, None, &mut first), Err(Refusal::Busy));
            })
            .expect_finished();
    }

    #[test]
    fn a_free_lock_is_kept_for_one_that_would_sleep() {
        let lock = WriteLock::default();
        let (mut stale, mut other) = (None, None);
        lock.count_commit();
        assert_eq!(lock.try_acquire(1, Some(0), &mut stale), Err(Refusal::Stale));
        lock.sleep(1, stale.unwrap(), Duration::from_secs(60));
        assert_eq!(lock.try_acquire(1, Some(1), &mut stale), Ok(()));
        lock.release(1);
        assert_eq!(lock.try_acquire(2, Some(1), &mut other), Ok(()));
    }
}
