//! Writes that take far longer than the rest, and whether one could have known (FlashLogging, section 3.4).

use serde::Serialize;

/// What stands out among the response times of back-to-back writes.
///
/// As in FlashLogging, a write is an outlier if it takes more than twice the mean.
///
/// ```
/// use tantalum_lab::micro::Outliers;
///
/// let every_tenth: Vec<u64> = (0..1000).map(|n| if n % 10 == 9 { 50_000 } else { 100 }).collect();
/// let outliers = Outliers::of(&every_tenth);
/// assert_eq!((outliers.count, outliers.share, outliers.times_normal), (100, 0.1, 500.0));
/// assert_eq!((outliers.gap_mean, outliers.gap_variation), (10.0, 0.0));
/// assert_eq!(outliers.predictable, 1.0);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Outliers {
    /// How many.
    pub count: u64,
    /// Their share of all writes.
    pub share: f64,
    /// Their mean over the mean of the others.
    pub times_normal: f64,
    /// The longest over the mean of the others.
    pub longest_times_normal: f64,
    /// Share of writes within a factor of two of either mean: near 1 if the distribution has two modes and nothing else.
    pub bimodal: f64,
    /// Mean number of writes from one outlier to the next.
    pub gap_mean: f64,
    /// Standard deviation of that over its mean.
    pub gap_variation: f64,
    /// How well the count of writes since the last outlier tells the next: a predictor learns from the first half the gap
    /// that comes most often, names in the second half the write at that gap an outlier, and this is
    /// the share of outliers that it names, times the share of its namings that are outliers, square root of (1: all
    /// known; near `share`: chance).
    pub predictable: f64,
}

impl Outliers {
    /// Of writes of one size, in order.
    pub fn of(writes_ns: &[u64]) -> Self {
        let limit = 2.0 * mean(writes_ns.iter().copied());
        let is_outlier: Vec<bool> = writes_ns.iter().map(|&time| time as f64 > limit).collect();
        let count = is_outlier.iter().filter(|&&is| is).count();
        if count == 0 {
            return Self::default();
        }
        let of =
            |wanted: bool| writes_ns.iter().zip(&is_outlier).filter(move |(_, is)| **is == wanted).map(|(&t, _)| t);
        let (slow, normal) = (mean(of(true)), mean(of(false)).max(1.0));
        let near = |time: u64, centre: f64| (centre / 2.0..=centre * 2.0).contains(&(time as f64));
        let in_a_mode = writes_ns.iter().filter(|&&time| near(time, slow) || near(time, normal)).count();
        let gaps = gaps(&is_outlier);
        let gap_mean = mean(gaps.iter().copied());
        let variance = gaps.iter().map(|&gap| (gap as f64 - gap_mean).powi(2)).sum::<f64>() / gaps.len().max(1) as f64;
        Self {
            count: count as u64,
            share: count as f64 / writes_ns.len() as f64,
            times_normal: slow / normal,
            longest_times_normal: of(true).max().unwrap_or_default() as f64 / normal,
            bimodal: in_a_mode as f64 / writes_ns.len() as f64,
            gap_mean,
            gap_variation: if gap_mean > 0.0 { variance.sqrt() / gap_mean } else { 0.0 },
            predictable: predictable(&is_outlier),
        }
    }
}

fn mean(numbers: impl Iterator<Item = u64>) -> f64 {
    let (mut sum, mut count) = (0u128, 0u64);
    for number in numbers {
        sum += u128::from(number);
        count += 1;
    }
    if count == 0 { 0.0 } else { sum as f64 / count as f64 }
}

/// From each outlier to the next.
fn gaps(is_outlier: &[bool]) -> Vec<u64> {
    let places: Vec<u64> = (0u64..).zip(is_outlier).filter(|(_, is)| **is).map(|(place, _)| place).collect();
    places.windows(2).map(|pair| pair[1] - pair[0]).collect()
}

fn predictable(is_outlier: &[bool]) -> f64 {
    let (learn, test) = is_outlier.split_at(is_outlier.len() / 2);
    let Some(usual) = most_common(gaps(learn)) else { return 0.0 };
    // Before the second half's first outlier the count is not known.
    let mut since: Option<u64> = None;
    let (mut named, mut hit, mut outliers) = (0u32, 0u32, 0u32);
    for &is in test {
        since = since.map(|count| count + 1);
        let says = since == Some(usual);
        if since.is_some() {
            named += u32::from(says);
            outliers += u32::from(is);
            hit += u32::from(says && is);
        }
        if is {
            since = Some(0);
        }
    }
    if hit == 0 { 0.0 } else { (f64::from(hit) / f64::from(named) * f64::from(hit) / f64::from(outliers)).sqrt() }
}

fn most_common(mut numbers: Vec<u64>) -> Option<u64> {
    numbers.sort_unstable();
    numbers.chunk_by(|a, b| a == b).max_by_key(|run| run.len()).map(|run| run[0])
}

#[cfg(test)]
mod tests {
    use tantalum_rt::Random;

    use super::*;

    #[test]
    fn equal_times_have_no_outliers() {
        assert_eq!(Outliers::of(&[100; 50]), Outliers::default());
        assert_eq!(Outliers::of(&[]), Outliers::default());
    }

    #[test]
    fn outliers_by_chance_cannot_be_predicted() {
        let mut random = Random::with_seed(3);
        let times: Vec<u64> = (0..5000).map(|_| if random.u8(..20) == 0 { 40_000 } else { 400 }).collect();
        let outliers = Outliers::of(&times);
        assert!((0.04..0.06).contains(&outliers.share), "{outliers:?}");
        assert!(outliers.times_normal == 100.0 && outliers.bimodal == 1.0, "{outliers:?}");
        assert!(outliers.gap_variation > 0.8 && outliers.predictable < 0.15, "{outliers:?}");
    }
}
