//! What a search did, added up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tantalum_flash::faults::FaultKind;

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
    /// Schedules in them: a power cut, a recovery that completed, and its check by the model.
    pub schedules: u64,
    /// What happened, by name.
    pub counts: BTreeMap<String, u64>,
    /// Seeds by what they ran on: a name like `protection double-write` for every choice.
    pub configurations: BTreeMap<String, u64>,
    /// By profile, what ran on machines that have such a device.
    pub profiles: BTreeMap<String, ProfileCounts>,
    /// By kind of fault, what happened and what came of it.
    pub faults: BTreeMap<String, FaultCounts>,
    /// A hash of everything that happened; two runs of the same seeds give the same.
    pub fingerprint: u64,
}

/// What ran on machines that have a device of one profile.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ProfileCounts {
    /// Seeds that passed.
    pub seeds: u64,
    /// Schedules in them.
    pub schedules: u64,
}

/// What came of one kind of fault. A schedule with several kinds counts for each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct FaultCounts {
    /// Faults that happened.
    pub injected: u64,
    /// Schedules with such a fault after which all guarantees held and no operation had failed.
    pub survived: u64,
    /// Schedules in which the engine reported an error, and nothing was lost without one.
    pub reported: u64,
    /// Schedules in which something was lost and the engine could not know.
    pub lost: u64,
}

impl Report {
    /// Adds another report. The fingerprint of the sum does not depend on the order.
    pub fn add(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.schedules += other.schedules;
        for (name, n) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += n;
        }
        for (name, n) in &other.configurations {
            *self.configurations.entry(name.clone()).or_default() += n;
        }
        for (name, other) in &other.profiles {
            let counts = self.profiles.entry(name.clone()).or_default();
            counts.seeds += other.seeds;
            counts.schedules += other.schedules;
        }
        for (name, other) in &other.faults {
            let counts = self.faults.entry(name.clone()).or_default();
            counts.injected += other.injected;
            counts.survived += other.survived;
            counts.reported += other.reported;
            counts.lost += other.lost;
        }
        self.fingerprint = self.fingerprint.wrapping_add(other.fingerprint);
    }

    /// Adds to a count.
    pub(crate) fn count(&mut self, name: &str, n: u64) {
        if n > 0 {
            *self.counts.entry(name.to_owned()).or_default() += n;
        }
    }

    /// The counts of a kind of fault.
    pub(crate) fn fault(&mut self, kind: FaultKind) -> &mut FaultCounts {
        self.faults.entry(kind.name().to_owned()).or_default()
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
    /// The profiles of its devices.
    pub profiles: Vec<String>,
    /// What it ran on.
    pub configuration: String,
    /// The round it failed in, from 0.
    pub round: usize,
    /// What was violated, or what panicked.
    pub what: String,
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { seed, configuration, round, what, .. } = self;
        write!(f, "seed {seed}, round {round}: {what}\n  with {configuration}")
    }
}

impl std::error::Error for Failure {}
