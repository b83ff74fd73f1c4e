//! Which experiments run, and what each expects.

use super::{
    Run, Settings, choice, cores, durassd, early_lock_release, file_systems, flash_logging, in_page_logging,
    log_structured, protections, space_use, today, transactions,
};
use crate::{error::Result, finding::Findings, published::Published};

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
    pub(super) run: Run,
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
        crate::published::find(self.id).expect("a test finds every experiment's id among the published results")
    }

    /// Runs it. `progress` is told what is measured now.
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
        for published in crate::published::all().iter().chain(crate::published::goals()) {
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
