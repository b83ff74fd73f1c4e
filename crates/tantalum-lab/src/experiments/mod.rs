//! The papers' experiments that run here, each by the id of what was published.
//!
//! An experiment takes the numbers that it compares with from [`published`]. It runs on emulated devices in
//! virtual time, so that the same seed finds the same on every machine.

mod choice;
mod cores;
mod device_under_test;
mod durassd;
mod early_lock_release;
mod file_systems;
mod flash_logging;
mod flash_writes;
mod in_page_logging;
mod log_structured;
mod protections;
mod space_use;
mod today;
mod transactions;

use crate::{
    error::Result,
    finding::Findings,
    published::{self, Published},
};

/// The settings of all experiments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// Decides addresses and chance in the models.
    pub seed: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self { seed: 42 }
    }
}

/// What an experiment is: its settings, and what is called with what is measured now.
type Run = fn(Settings, &dyn Fn(&str)) -> Result<Findings>;

/// An experiment that runs here.
///
/// ```
/// let experiment = tantalum_lab::experiments::find("fs.intel.gap_write").expect("it runs");
/// assert_eq!(experiment.published().section(), "section III-B");
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Experiment {
    /// Of what was published.
    pub id: &'static str,
    /// The profiles of the devices that it runs on.
    pub profiles: &'static [&'static str],
    run: Run,
}

/// All experiments, in the order of the papers, those without a paper last.
pub fn all() -> impl Iterator<Item = &'static Experiment> {
    let papers = [
        flash_logging::EXPERIMENTS,
        transactions::EXPERIMENTS,
        durassd::EXPERIMENTS,
        in_page_logging::EXPERIMENTS,
        in_page_logging::TRACES,
        in_page_logging::ENGINE,
        file_systems::EXPERIMENTS,
        log_structured::EXPERIMENTS,
        today::EXPERIMENTS,
        protections::EXPERIMENTS,
        space_use::EXPERIMENTS,
        flash_writes::EXPERIMENTS,
        choice::EXPERIMENTS,
        early_lock_release::EXPERIMENTS,
        cores::EXPERIMENTS,
    ];
    papers.into_iter().flatten()
}

/// The one with this id.
pub fn find(id: &str) -> Option<&'static Experiment> {
    all().find(|experiment| experiment.id == id)
}

impl Experiment {
    /// What the paper says.
    pub fn published(&self) -> &'static Published {
        published::find(self.id).expect("a test finds every experiment's id among the published results")
    }

    /// Runs it. `progress` is called with what is measured now.
    ///
    /// # Errors
    /// [`Error`](crate::Error) if a device cannot be built or fails: a defect of a profile.
    pub fn run(&self, settings: Settings, progress: &dyn Fn(&str)) -> Result<Findings> {
        (self.run)(settings, progress)
    }
}

#[cfg(test)]
mod tests {
    use tantalum_flash::Profile;

    use super::*;

    #[test]
    fn everything_published_has_an_experiment_on_devices_that_are_there() {
        for published in published::all().iter().chain(published::goals()) {
            let experiment = find(&published.id).unwrap_or_else(|| panic!("{} does not run", published.id));
            for profile in experiment.profiles {
                assert!(Profile::names().any(|name| name == *profile), "{}: {profile}", published.id);
            }
        }
    }

    #[test]
    fn ids_are_distinct() {
        let mut ids: Vec<_> = all().map(|experiment| experiment.id).collect();
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), count);
    }
}
