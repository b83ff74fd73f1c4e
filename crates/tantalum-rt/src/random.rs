//! Randomness that a simulation can repeat.

use std::hash::{BuildHasher, Hasher, RandomState};

use crate::simulation;

/// A small, fast, seedable generator; not for secrets. Seed it from [`random_seed`], or from a seed that is reported.
pub use fastrand::Rng as Random;

/// A seed that no caller chose: from the operating system, or in a simulation the next of the stream that its seed fixes.
///
/// ```
/// use tantalum_rt::{Random, Simulation, random_seed};
///
/// let mut random = Random::with_seed(random_seed());
/// assert!(random.u32(..10) < 10);
///
/// let draw = || Simulation::new(1).run(random_seed).expect_finished();
/// assert_eq!(draw(), draw());
/// ```
pub fn random_seed() -> u64 {
    match simulation::current() {
        Some(world) => world.random_seed(),
        None => RandomState::new().build_hasher().finish(),
    }
}
