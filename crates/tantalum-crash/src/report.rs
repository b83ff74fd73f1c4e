//! What a search did, added up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts of one seed, or of many.
///
/// ```
/// let mut total = tantalum_crash::Report::default();
/// total.add(&tantalum_crash::Report::default());
/// assert_eq!(total.seeds, 0);
/// ```
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Report {
    /// Seeds that passed.
    pub seeds: u64,
    /// What happened, by name.
    pub counts: BTreeMap<String, u64>,
    /// Seeds by what they ran on: a name like `protection double-write` for every choice.
    pub configurations: BTreeMap<String, u64>,
    /// A hash of everything that happened; two runs of the same seeds give the same.
    pub fingerprint: u64,
}

impl Report {
    /// Adds another report. The fingerprint of the sum does not depend on the order.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        for (name, n) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += n;
        }
        for (name, n) in &other.configurations {
            *self.configurations.entry(name.clone()).or_default() += n;
        }
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
    }

    /// Adds to a count.
    pub(crate) fn count(&mut self, name: &str, n: u64) {
        if n > 0 {
            *self.counts.entry(name.to_owned()).or_default() += n;
        }
    }

    /// Notes a choice that the seed made.
    pub(crate) fn configured(&mut self, name: String) {
        *self.configurations.entry(name).or_default() += 1;
    }
}

/// Why a seed failed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Failure {
    /// The seed that repeats it.
    pub seed: u64,
    /// What it ran on.
    pub configuration: String,
    /// The round it failed in, from 0.
    pub round: usize,
    /// What was violated, or what panicked.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, configuration, round, what } = self;
        write!(
            f,
            "seed {seed}, round {round}: {what}\n  with {configuration}\n  repeat it with: tantalum crash --seeds {seed}..{}",
            seed.saturating_add(1)
        )
    }
}

impl std::error::Error for Failure {}
