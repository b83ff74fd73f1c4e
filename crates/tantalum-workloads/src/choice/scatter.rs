//! A permutation that can be undone: where among all places the favourite of a rank lies.

use tantalum_rt::Random;

/// Groups of places, or as many as there are places.
const GROUPS: u64 = 1024;

/// Spreads the ranks 0, 1, 2, ... over as many places as LinkBench does (`InvertibleShuffler.java`): a rank stays in the group of those
/// that are 1024 apart, in which all are rotated by a number of the group's. So neighbours in a group are about as popular.
///
/// ```
/// let scatter = tantalum_workloads::choice::Scatter::new(10_000, 3);
/// assert_eq!(scatter.rank(scatter.place(4)), 4);
/// ```
#[derive(Clone, Debug)]
pub struct Scatter {
    count: u64,
    /// By how many members each group is rotated.
    rotations: Vec<u64>,
}

impl Scatter {
    /// Of `count` places; another for each seed.
    ///
    /// # Panics
    /// If there is no place.
    pub fn new(count: u64, seed: u64) -> Self {
        assert!(count > 0, "there is a place");
        let (mut random, groups) = (Random::with_seed(seed), GROUPS.min(count));
        Self { count, rotations: (0..groups).map(|_| random.u64(0..count / groups)).collect() }
    }

    /// The place of a rank, which is below the count.
    pub fn place(&self, rank: u64) -> u64 {
        self.rotate(rank, false)
    }

    /// The rank at a place, which is below the count.
    pub fn rank(&self, place: u64) -> u64 {
        self.rotate(place, true)
    }

    fn rotate(&self, at: u64, is_back: bool) -> u64 {
        debug_assert!(at < self.count);
        let groups = self.rotations.len() as u64;
        let (group, member) = (at % groups, at / groups);
        let members = self.count / groups + u64::from(group < self.count % groups);
        let by = self.rotations[group as usize];
        (member + if is_back { members - by } else { by }) % members * groups + group
    }
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
