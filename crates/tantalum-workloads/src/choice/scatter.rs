//! A permutation that can be undone: where among all places the favourite of a rank lies.

use tantalum_rt::Random;

/// Spreads the ranks 0, 1, 2, ... over as many places, by steps that pass through all of them.
///
/// ```
/// let scatter = tantalum_workloads::choice::Scatter::new(10, 3);
/// assert_eq!(scatter.rank(scatter.place(4)), 4);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    count: u64,
    step: u64,
    offset: u64,
    /// `step * unstep` is 1, modulo the count.
    unstep: u64,
}

impl Scatter {
    /// Of `count` places; another for each seed.
    ///
    /// # Panics
    /// If there is no place.
    pub fn new(count: u64, seed: u64) -> Self {
        assert!(count > 0, "there is a place");
        let mut random = Random::with_seed(seed);
        loop {
            // Of any count of two or more, a good part is coprime to it.
            let step = if count == 1 { 1 } else { random.u64(1..count) };
            if let Some(unstep) = inverse(step, count) {
                return Self { count, step, offset: random.u64(0..count), unstep };
            }
        }
    }

    /// The place of a rank, which is below the count.
    pub fn place(&self, rank: u64) -> u64 {
        debug_assert!(rank < self.count);
        let place = u128::from(rank) * u128::from(self.step) + u128::from(self.offset);
        (place % u128::from(self.count)) as u64
    }

    /// The rank at a place, which is below the count.
    pub fn rank(&self, place: u64) -> u64 {
        debug_assert!(place < self.count);
        let moved = u128::from(place) + u128::from(self.count - self.offset);
        (moved % u128::from(self.count) * u128::from(self.unstep) % u128::from(self.count)) as u64
    }
}

/// What undoes a multiplication by `step` modulo `count`; `None` if they have a common divisor.
fn inverse(step: u64, count: u64) -> Option<u64> {
    let (mut rest, mut next) = (i128::from(count), i128::from(step % count.max(1)));
    let (mut factor, mut next_factor) = (0i128, 1i128);
    if count == 1 {
        return Some(0);
    }
    while next != 0 {
        let quotient = rest / next;
        (rest, next) = (next, rest - quotient * next);
        (factor, next_factor) = (next_factor, factor - quotient * next_factor);
    }
    (rest == 1).then(|| factor.rem_euclid(i128::from(count)) as u64)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_rank_has_a_place_of_its_own(count in 1u64..500, seed: u64) {
            let scatter = Scatter::new(count, seed);
            let mut taken = vec![false; count as usize];
            for rank in 0..count {
                let place = scatter.place(rank);
                prop_assert!(!std::mem::replace(&mut taken[place as usize], true));
                prop_assert_eq!(scatter.rank(place), rank);
            }
        }

        #[test]
        fn it_can_be_undone_among_many(count in 1u64..=u64::MAX, seed: u64, rank: u64) {
            let scatter = Scatter::new(count, seed);
            prop_assert_eq!(scatter.rank(scatter.place(rank % count)), rank % count);
        }
    }
}
