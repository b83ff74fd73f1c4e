//! Which simulation the caller runs in, if any.
//!
//! Invariant: the thread-local pointer is set exactly while a run on this OS thread lasts, and the world it points to
//! lives longer than that.

#![allow(unsafe_code)]

use std::{
    cell::Cell,
    marker::PhantomData,
    ops::Deref,
    ptr::{self, NonNull},
    sync::atomic::{AtomicUsize, Ordering},
};

use super::world::World;

/// Simulations running in this process, on any thread.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    static CURRENT: Cell<*const World> = const { Cell::new(ptr::null()) };
}

/// Whether any thread of the process runs a simulation: what a fast path may ask first, as it is one load of memory
/// that no thread writes in production.
#[inline]
pub(crate) fn any_running() -> bool {
    // Relaxed: a simulation's own thread sees its own increment, and no other thread acts on it.
    RUNNING.load(Ordering::Relaxed) != 0
}

/// The simulation that the caller is a task of.
#[inline]
pub(crate) fn current() -> Option<Current> {
    if any_running() { current_on_this_thread() } else { None }
}

#[cold]
fn current_on_this_thread() -> Option<Current> {
    // A thread whose locals are already gone is no simulation's.
    let world = CURRENT.try_with(Cell::get).ok()?;
    NonNull::new(world.cast_mut()).map(|world| Current { world, not_send: PhantomData })
}

/// A reference to the world of the running simulation, held by its own tasks only.
#[derive(Clone, Copy)]
pub(crate) struct Current {
    world: NonNull<World>,
    not_send: PhantomData<*const World>,
}

impl Deref for Current {
    type Target = World;

    fn deref(&self) -> &World {
        // SAFETY: made only from the thread-local pointer, so by code on a stack of this run: such code executes only
        // while `Entered` lives, which borrows the world. The type is not Send, and is never stored in the crate.
        unsafe { self.world.as_ref() }
    }
}

/// Makes a world the current one of this OS thread until dropped.
pub(super) struct Entered<'a> {
    _world: &'a World,
}

impl<'a> Entered<'a> {
    /// # Panics
    /// Inside another simulation.
    pub(super) fn new(world: &'a World) -> Self {
        assert!(
            CURRENT.with(Cell::get).is_null(),
            "a simulation cannot be run inside another: its tasks would wait for each other's threads"
        );
        CURRENT.set(world);
        RUNNING.fetch_add(1, Ordering::Relaxed);
        Self { _world: world }
    }
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        CURRENT.set(ptr::null());
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}
