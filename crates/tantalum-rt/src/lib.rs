//! Time, tasks, locks and waiting: on real threads, or simulated with a virtual clock.
//!
//! Everything that waits goes through this crate, so the same compiled code runs in two worlds:
//!
//! - **real**: a thin layer over `parking_lot` and `std::thread`. Nothing has to be set up, and an uncontended lock
//!   costs what `parking_lot`'s costs.
//! - **simulated**: inside [`Simulation::run`] every task is a coroutine on one OS thread, time is virtual, and the
//!   order in which tasks run is decided by a seed. The same seed gives the same run, to the byte.
//!
//! Only the slow path of a primitive asks in which world it is.
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use tantalum_rt::{Mutex, Simulation, now, sleep, spawn};
//!
//! fn program() -> u64 {
//!     let total = Arc::new(Mutex::new(0));
//!     let workers: Vec<_> = (1..=3)
//!         .map(|n| {
//!             let total = Arc::clone(&total);
//!             spawn(format!("worker-{n}"), move || {
//!                 sleep(Duration::from_millis(n));
//!                 *total.lock() += n;
//!             })
//!         })
//!         .collect();
//!     for worker in workers {
//!         worker.join().expect("no worker panics");
//!     }
//!     *total.lock()
//! }
//!
//! assert_eq!(program(), 6); // on threads
//! let took = Simulation::new(42)
//!     .run(|| {
//!         let start = now();
//!         assert_eq!(program(), 6);
//!         start.elapsed()
//!     })
//!     .expect_finished();
//! assert_eq!(took, Duration::from_millis(3)); // exactly, whatever machine this is
//! ```
//!
//! # What code must keep to, to run in a simulation
//!
//! - Wait only through this crate. Blocking the OS thread in another way stops every task.
//! - Never spin without [`yield_now`]: nothing else runs meanwhile.
//! - Thread-locals are shared by all tasks. Do not hold a borrow of one across anything in this crate: every lock,
//!   unlock and wait may switch tasks.
//! - A lock belongs to one simulation, or to real threads: do not share it between two simulations that run at the
//!   same time, nor between one and real threads.
//! - Let nothing depend on addresses or on the order of `std`'s hash maps; see [`collections`].

#[cfg(not(target_os = "linux"))]
compile_error!(
    "Tantalum runs on Linux only: it waits on futexes, and writes by direct I/O. Build it for a target such as x86_64-unknown-linux-gnu."
);

mod clock;
pub mod collections;
mod held;
mod prefetch;
mod random;
pub mod simulation;
mod statistics;
mod sync;
mod task;
pub mod tracing;

pub use clock::{Instant, now, rfc3339, sleep, wall_clock};
pub use held::{Held, HeldClass, MOST_CLASSES, hold, holds_none, may_wait};
pub use prefetch::prefetch;
pub use random::{Random, random_seed};
pub use simulation::{Outcome, Scheduling, Simulation};
pub use statistics::Since;
pub use sync::*;
pub use task::{
    JoinHandle, available_cores, interleave, interleave_in_device, is_simulated, list_tasks, panicking, power_cut,
    spawn, task_name, work, yield_now,
};
