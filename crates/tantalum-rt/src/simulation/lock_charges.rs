//! What locks cost in virtual time, and how long tasks waited for them.
//!
//! Computing takes no virtual time, so locks are held for none, and none could ever be short. Once a task has called
//! [`charge_locks`], every acquisition of a [`Mutex`](crate::Mutex) or an [`RwLock`](crate::RwLock) takes its holder time of a
//! core, while it holds the lock; and the next task gets the same lock no sooner than [`LockCharges::word`] after the one
//! before, as two cores cannot change the same word of memory at once.

use std::{collections::BTreeMap, panic::Location, time::Duration};

use super::{current, state::Wait};
use crate::{clock::nanos, collections::HashMap};

/// What the simulation charges for locks; see [`charge_locks`].
///
/// ```
/// use std::{sync::Arc, time::Duration};
/// use tantalum_rt::{Mutex, Scheduling, Simulation, now, spawn};
/// use tantalum_rt::simulation::{LockCharges, charge_locks, lock_uses};
///
/// let charges = LockCharges { exclusive: Duration::from_nanos(100), ..LockCharges::default() };
/// let (took, uses) = Simulation::new(1)
///     .scheduling(Scheduling::InOrder)
///     .cores(4)
///     .run(move || {
///         charge_locks(charges);
///         let counter = Arc::new(Mutex::new(0));
///         let count = || {
///             let counter = Arc::clone(&counter);
///             spawn("counts", move || (0..10).for_each(|_| *counter.lock() += 1))
///         };
///         let tasks: Vec<_> = (0..4).map(|_| count()).collect();
///         tasks.into_iter().for_each(|task| task.join().expect("it does not panic"));
///         (now().as_nanos(), lock_uses())
///     })
///     .expect_finished();
/// assert_eq!(took, 40 * 100); // four cores, but one lock
/// assert_eq!(uses[0].acquisitions, 40);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockCharges {
    /// For what is done while a mutex is held, or an `RwLock` for writing.
    pub exclusive: Duration,
    /// For what is done while an `RwLock` is held for reading, beside other readers.
    pub shared: Duration,
    /// For changing the lock itself when it is taken and released, which readers do one after the other, too.
    pub word: Duration,
}

/// How a place in the program uses locks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LockUse {
    /// Where the lock is asked for.
    pub place: &'static Location<'static>,
    /// Times that it was given.
    pub acquisitions: u64,
    /// Times that it was waited for: it was held, or another task was just taking it.
    pub waits: u64,
    /// How long that took, together. Waiting for a core does not count.
    pub waited: Duration,
}

/// From now on, the simulation charges this for locks, and counts their uses; a task keeps its core from one piece of work to
/// the next, until it waits for something else than a core, or begins a [`work`](crate::work) of its own while others want
/// a core. What [`lock_unswitched`](crate::lock_unswitched) locks stays free: it belongs to what outlives the simulation, such
/// as the model of a device. Outside a simulation it does nothing.
///
/// Called again, it begins to count anew.
///
/// What is charged is the same for each acquisition, since the simulation cannot know how long a section takes. Locks that are held
/// while others are taken are held for longer, by what is charged for those and by the [`work`](crate::work) of their holder. What
/// it costs to sleep and be woken is not charged.
pub fn charge_locks(charges: LockCharges) {
    if let Some(world) = current() {
        world.state.borrow_mut().locks = Some(Ledger::new(charges));
    }
}

/// How locks were used since [`charge_locks`], the place with the longest waits first. Empty outside a simulation, or if it
/// does not charge for locks.
pub fn lock_uses() -> Vec<LockUse> {
    let Some(world) = current() else { return Vec::new() };
    let state = world.state.borrow();
    let mut uses: Vec<_> = state.locks.iter().flat_map(|ledger| ledger.uses.values()).copied().collect();
    // The sort is stable: places that were waited for alike stay in the order of their names.
    uses.sort_by_key(|used| std::cmp::Reverse(used.waited));
    uses
}

/// Charges, and what they led to.
pub(super) struct Ledger {
    exclusive_ns: u64,
    shared_ns: u64,
    word_ns: u64,
    /// Until when a lock's word is being changed, by the lock's address. Entries of the past mean nothing, so that it does
    /// not matter if another lock comes to lie at the same address; never iterated.
    words_busy_until_ns: HashMap<usize, u64>,
    /// By file, line and column.
    uses: BTreeMap<(&'static str, u32, u32), LockUse>,
}

impl Ledger {
    fn new(charges: LockCharges) -> Self {
        Self {
            exclusive_ns: nanos(charges.exclusive),
            shared_ns: nanos(charges.shared),
            word_ns: nanos(charges.word),
            words_busy_until_ns: HashMap::default(),
            uses: BTreeMap::new(),
        }
    }

    /// A task on a core takes the lock at `address`, for which it has waited so long. Returns for how long that occupies the core.
    pub(super) fn take(
        &mut self,
        now_ns: u64,
        address: usize,
        wait: Wait,
        waited_ns: u64,
        place: &'static Location<'static>,
    ) -> u64 {
        let busy_until_ns = self.words_busy_until_ns.entry(address).or_insert(0);
        let word_wait_ns = busy_until_ns.saturating_sub(now_ns);
        *busy_until_ns = now_ns + word_wait_ns + self.word_ns;
        let used = self.uses.entry((place.file(), place.line(), place.column()));
        let used = used.or_insert(LockUse { place, acquisitions: 0, waits: 0, waited: Duration::ZERO });
        let waited_ns = waited_ns + word_wait_ns;
        used.acquisitions += 1;
        used.waits += u64::from(waited_ns > 0);
        used.waited += Duration::from_nanos(waited_ns);
        let section_ns = if wait == Wait::Read { self.shared_ns } else { self.exclusive_ns };
        word_wait_ns + self.word_ns + section_ns
    }
}
