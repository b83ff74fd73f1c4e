//! Which experiments run, and what each expects.

use super::{
    Run, Settings, choice, cores, durassd, early_lock_release, file_systems, flash_logging, in_page_logging,
    log_structured, protections, space_use, today, transactions,
};
use crate::{
    error::Result,
    finding::Findings,
    published::{Cell, Kind, Published},
};

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
    /// What was published, in the experiment's own words.
    pub expected: Expected,
    /// The profiles of the devices that it runs on.
    pub profiles: &'static [&'static str],
    pub(super) run: Run,
}

/// A published result, as an experiment expects it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expected {
    /// A number and its unit.
    Value(f64, &'static str),
    /// From one number to another.
    Range(f64, f64, &'static str),
    /// Up to a number.
    Max(f64, &'static str),
    /// At least a number.
    Min(f64, &'static str),
    /// A header, and rows: texts, then numbers.
    Table(&'static [&'static str], &'static [(&'static [Text], &'static [f64])]),
    /// A statement only.
    Shape,
}

/// What a row of a table is about.
pub type Text = &'static str;

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

impl Expected {
    /// Whether this is what the data file says.
    pub fn is(&self, published: &Published) -> bool {
        let unit = published.unit.as_deref();
        match *self {
            Self::Value(value, of) => (Kind::Value, Some(value), Some(of)) == (published.kind, published.value, unit),
            Self::Max(value, of) => (Kind::Max, Some(value), Some(of)) == (published.kind, published.value, unit),
            Self::Min(value, of) => (Kind::Min, Some(value), Some(of)) == (published.kind, published.value, unit),
            Self::Range(from, to, of) => {
                (Kind::Range, Some(from), Some(to), Some(of)) == (published.kind, published.from, published.to, unit)
            }
            Self::Table(columns, rows) => {
                let cells = |(texts, numbers): &(&[Text], &[f64])| -> Vec<Cell> {
                    let texts = texts.iter().map(|&text| Cell::Text(text.to_owned()));
                    texts.chain(numbers.iter().map(|&number| Cell::Number(number))).collect()
                };
                published.kind == Kind::Table
                    && published.columns == columns
                    && published.rows == rows.iter().map(cells).collect::<Vec<_>>()
            }
            Self::Shape => published.kind == Kind::Shape,
        }
    }
}

#[cfg(test)]
mod tests {
    use tantalum_flash::Profile;

    use super::*;

    #[test]
    fn every_experiment_expects_what_was_published() {
        for experiment in all() {
            assert!(experiment.expected.is(experiment.published()), "{}", experiment.id);
        }
    }

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
    fn another_number_unit_or_kind_is_seen() {
        let published = crate::published::find("fl.fig3.disk_small_write").unwrap();
        assert!(Expected::Value(6.0, "ms").is(published));
        for other in [Expected::Value(6.1, "ms"), Expected::Value(6.0, "us"), Expected::Max(6.0, "ms"), Expected::Shape]
        {
            assert!(!other.is(published), "{other:?}");
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
