//! Which of many things a client picks: skewed choices, and permutations that scatter the favourites.

mod scatter;
mod zipf;

pub use scatter::Scatter;
pub use zipf::Zipf;

use tantalum_rt::Random;

/// A length whose logarithm is normal with a deviation of 1 around that of `median`, at most `longest`.
pub fn log_normal(random: &mut Random, median: f64, longest: usize) -> usize {
    // Box and Muller's way to a normal variable; 1 - u keeps the logarithm finite.
    let radius = (-2.0 * (1.0 - random.f64()).ln()).sqrt();
    let normal = radius * (std::f64::consts::TAU * random.f64()).cos();
    // Saturates where it is too large.
    ((median * normal.exp()) as usize).min(longest)
}

/// 1 with probability `p`, 2 with `p (1 - p)`, and so on; at most `most`.
pub(crate) fn geometric(random: &mut Random, p: f64, most: usize) -> usize {
    let mut count = 1;
    while count < most && random.f64() >= p {
        count += 1;
    }
    count
}

/// So many bytes from `first` to `last`, for contents that no workload interprets.
pub(crate) fn bytes(random: &mut Random, length: usize, first: u8, last: u8) -> Vec<u8> {
    (0..length).map(|_| random.u8(first..=last)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_their_median_and_limit() {
        let mut random = Random::with_seed(1);
        let mut lengths: Vec<usize> = (0..20_001).map(|_| log_normal(&mut random, 128.0, 4000)).collect();
        lengths.sort_unstable();
        assert!((122..=134).contains(&lengths[10_000]), "{}", lengths[10_000]);
        // One deviation up is a factor of e.
        let at_one_deviation = lengths[16_827] as f64 / lengths[10_000] as f64;
        assert!((2.6..2.85).contains(&at_one_deviation), "{at_one_deviation}");
        assert!(lengths[20_000] <= 4000);
    }

    #[test]
    fn counts_have_their_mean_and_limit() {
        let mut random = Random::with_seed(1);
        let counts: Vec<usize> = (0..20_000).map(|_| geometric(&mut random, 0.382, 128)).collect();
        let mean = counts.iter().sum::<usize>() as f64 / 20_000.0;
        assert!((2.55..2.69).contains(&mean), "1 / 0.382, not {mean}");
        assert!((0..100).all(|_| geometric(&mut random, 0.0, 5) == 5));
    }
}
