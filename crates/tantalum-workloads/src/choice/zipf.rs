//! Zipf's distribution: the k-th favourite is chosen in proportion to 1 / k^shape.
//!
//! By the method of Gray et al., "Quickly Generating Billion-Record Synthetic Databases" (SIGMOD 1994), which LinkBench
//! and YCSB use too: the first two favourites have their exact shares, the others those of a power law.

use tantalum_rt::Random;

/// Terms of the normalizing sum that are added one by one; the rest is an integral.
const SUMMED: u64 = 10_000;

/// Chooses ranks from 0, the favourite.
///
/// ```
/// use tantalum_rt::Random;
/// use tantalum_workloads::choice::{Scatter, Zipf};
///
/// let (zipf, scatter, mut random) = (Zipf::new(1000, 0.99), Scatter::new(1000, 7), Random::with_seed(1));
/// let row = scatter.place(zipf.choose(&mut random));
/// assert!(row < 1000);
/// ```
#[derive(Clone, Debug)]
pub struct Zipf {
    count: u64,
    shape: f64,
    sum: f64,
    eta: f64,
}

impl Zipf {
    /// Of `count` things; `shape` lies between 0 and 1.
    ///
    /// # Panics
    /// If there is no thing, or the shape is not between 0 and 1, both excluded.
    pub fn new(count: u64, shape: f64) -> Self {
        assert!(count > 0 && shape > 0.0 && shape < 1.0, "{count} things with shape {shape}");
        let sum = harmonic(count, shape);
        let eta = (1.0 - (2.0 / count as f64).powf(1.0 - shape)) / (1.0 - harmonic(2, shape) / sum);
        Self { count, shape, sum, eta }
    }

    /// A rank below the count.
    pub fn choose(&self, random: &mut Random) -> u64 {
        let share = random.f64();
        let scaled = share * self.sum;
        if scaled < 1.0 {
            return 0;
        }
        if scaled < 1.0 + 0.5f64.powf(self.shape) {
            return 1;
        }
        let position = (self.eta * share - self.eta + 1.0).powf(1.0 / (1.0 - self.shape));
        ((self.count as f64 * position) as u64).min(self.count - 1)
    }
}

/// The sum of 1 / k^shape for k from 1 to `count`.
fn harmonic(count: u64, shape: f64) -> f64 {
    let term = |k: f64| k.powf(-shape);
    let summed: f64 = (1..=count.min(SUMMED)).map(|k| term(k as f64)).sum();
    if count <= SUMMED {
        return summed;
    }
    let (from, to) = (SUMMED as f64, count as f64);
    let integral = (to.powf(1.0 - shape) - from.powf(1.0 - shape)) / (1.0 - shape);
    summed + integral + (term(to) - term(from)) / 2.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_the_same_with_the_integral() {
        for shape in [0.5, 0.606, 0.8, 0.99] {
            let exact: f64 = (1..=200_000u32).map(|k| f64::from(k).powf(-shape)).sum();
            assert!((harmonic(200_000, shape) / exact - 1.0).abs() < 1e-6, "{shape}");
        }
    }

    #[test]
    fn favourites_come_in_proportion() {
        let (zipf, mut random) = (Zipf::new(1000, 0.99), Random::with_seed(3));
        let mut counts = vec![0u32; 1000];
        (0..200_000).for_each(|_| counts[zipf.choose(&mut random) as usize] += 1);
        let expected = |rank: usize| 200_000.0 / ((rank + 1) as f64).powf(0.99) / harmonic(1000, 0.99);
        for rank in [0, 1] {
            assert!((f64::from(counts[rank]) / expected(rank) - 1.0).abs() < 0.05, "{rank}: {}", counts[rank]);
        }
        // The others follow a curve that is right over many ranks.
        let (some, wanted): (u32, f64) = (counts[100..200].iter().sum(), (100..200).map(expected).sum());
        assert!((f64::from(some) / wanted - 1.0).abs() < 0.1, "{some} {wanted}");
    }

    #[test]
    fn few_things_are_all_chosen() {
        for count in 1..=3u64 {
            let (zipf, mut random) = (Zipf::new(count, 0.8), Random::with_seed(1));
            let mut seen = vec![false; count as usize];
            (0..200).for_each(|_| seen[zipf.choose(&mut random) as usize] = true);
            assert!(seen.iter().all(|&seen| seen), "{count}");
        }
    }
}
