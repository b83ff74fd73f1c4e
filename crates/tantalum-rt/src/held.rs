//! What a task holds while it runs, for rules about what may be waited for meanwhile. Checked in debug builds; in others nothing of
//! it is there.
//!
//! A program names its [`HeldClass`]es (the latches of one kind of page, the right to do some work), [`hold`]s one for as long as
//! the task has such a thing, and says [`may_wait`] where the task may block for long: for a device, for room, for another
//! task's work. A class that is held [`briefly`](HeldClass::briefly) must not be held there. [`holds_none`] says the same of chosen
//! classes, for an order of locks.

use std::marker::PhantomData;

#[cfg(debug_assertions)]
use crate::simulation;

/// The most classes of a program.
pub const MOST_CLASSES: usize = 16;

/// A kind of thing that tasks hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldClass {
    number: u8,
    name: &'static str,
    is_brief: bool,
}

impl HeldClass {
    /// A class with a number of its own, below [`MOST_CLASSES`], whose things may be held while their task waits.
    pub const fn new(number: u8, name: &'static str) -> Self {
        assert!((number as usize) < MOST_CLASSES, "the number of a class is too large");
        Self { number, name, is_brief: false }
    }

    /// As [`new`](Self::new), but nothing of this class may be held at [`may_wait`].
    pub const fn briefly(number: u8, name: &'static str) -> Self {
        Self { is_brief: true, ..Self::new(number, name) }
    }
}

/// The task holds something of a class until this is dropped, by the same task.
#[derive(Debug)]
#[must_use = "the thing is held only as long as this lives"]
pub struct Held {
    #[cfg(debug_assertions)]
    class: HeldClass,
    of_this_task: PhantomData<*const ()>,
}

/// Notes that the task holds something of a class.
///
/// ```
/// use tantalum_rt::{HeldClass, hold, may_wait};
///
/// const PAGE_LATCH: HeldClass = HeldClass::briefly(0, "a page's latch");
/// let held = hold(PAGE_LATCH);
/// // ... what needs the latch; may_wait("a device") would panic here in a debug build ...
/// drop(held);
/// may_wait("a device");
/// ```
#[inline]
pub fn hold(class: HeldClass) -> Held {
    #[cfg(debug_assertions)]
    with_counts(|counts| counts.add(class));
    #[cfg(not(debug_assertions))]
    let _ = class;
    Held {
        #[cfg(debug_assertions)]
        class,
        of_this_task: PhantomData,
    }
}

/// The task may block here for long.
///
/// # Panics
/// In debug builds, when the task holds something that may be held [`briefly`](HeldClass::briefly) only.
#[inline]
#[track_caller]
pub fn may_wait(for_what: &str) {
    #[cfg(debug_assertions)]
    refuse(for_what, |class| class.is_brief);
    #[cfg(not(debug_assertions))]
    let _ = for_what;
}

/// The task may wait here for something that a task that holds one of `classes` must not wait for.
///
/// # Panics
/// In debug builds, when the task holds something of these classes.
#[inline]
#[track_caller]
pub fn holds_none(classes: &[HeldClass], for_what: &str) {
    #[cfg(debug_assertions)]
    refuse(for_what, |class| classes.contains(&class));
    #[cfg(not(debug_assertions))]
    let _ = (classes, for_what);
}

#[cfg(debug_assertions)]
impl Drop for Held {
    fn drop(&mut self) {
        with_counts(|counts| counts.remove(self.class));
    }
}

/// How many things of each class a task holds.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts([Option<(HeldClass, usize)>; MOST_CLASSES]);

#[cfg(debug_assertions)]
impl Counts {
    fn add(&mut self, class: HeldClass) {
        let (known, count) = self.0[class.number as usize].get_or_insert((class, 0));
        assert_eq!(*known, class, "two classes have one number");
        *count += 1;
    }

    fn remove(&mut self, class: HeldClass) {
        let (_, count) = self.0[class.number as usize].as_mut().expect("what is let go of was held");
        *count = count.checked_sub(1).expect("what is let go of was held by this task");
    }
}

#[cfg(debug_assertions)]
#[track_caller]
fn refuse(for_what: &str, is_refused: impl Fn(HeldClass) -> bool) {
    // What is dropped while a panic unwinds may wait as it must.
    if crate::panicking() {
        return;
    }
    let held = with_counts(|counts| *counts);
    let held = held.0.iter().flatten().find(|(class, count)| *count > 0 && is_refused(*class));
    if let Some((class, _)) = held {
        panic!("the task waits for {for_what} while it holds {}", class.name);
    }
}

/// Shows `f` the counts of the running task: of a simulation they are with the task, since its tasks share a thread.
#[cfg(debug_assertions)]
fn with_counts<R>(f: impl FnOnce(&mut Counts) -> R) -> R {
    use std::cell::RefCell;
    thread_local! {
        static COUNTS: RefCell<Counts> = const { RefCell::new(Counts([None; MOST_CLASSES])) };
    }
    match simulation::current() {
        Some(world) => world.with_held(f),
        None => COUNTS.with_borrow_mut(f),
    }
}

#[cfg(all(test, debug_assertions))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Simulation, sleep, spawn};

    const LATCH: HeldClass = HeldClass::briefly(0, "a latch");
    const TURN: HeldClass = HeldClass::new(1, "a turn");

    #[test]
    #[should_panic(expected = "waits for a device while it holds a latch")]
    fn who_holds_a_latch_must_not_wait() {
        let _turn = hold(TURN);
        let _latch = hold(LATCH);
        may_wait("a device");
    }

    #[test]
    #[should_panic(expected = "waits for a frame while it holds a turn")]
    fn an_order_is_kept() {
        let _turn = hold(TURN);
        may_wait("a device");
        holds_none(&[LATCH], "a frame");
        holds_none(&[LATCH, TURN], "a frame");
    }

    #[test]
    fn each_task_of_a_simulation_holds_its_own() {
        Simulation::new(1)
            .run(|| {
                let other = spawn("holds a latch", || {
                    let _latch = hold(LATCH);
                    sleep(Duration::from_millis(2));
                });
                sleep(Duration::from_millis(1));
                may_wait("a device");
                drop(hold(LATCH));
                holds_none(&[LATCH], "a frame");
                other.join().expect("it does not panic");
            })
            .expect_finished();
    }
}
