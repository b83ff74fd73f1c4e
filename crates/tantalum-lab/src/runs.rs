//! Experiments that have run, in a JSON file and back.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    finding::Findings,
    published::{self, Published},
};

/// An experiment that has run.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// What it repeats.
    pub published: &'static Published,
    /// What decided addresses and chance.
    pub seed: u64,
    /// What came out.
    pub findings: Findings,
}

/// Version of the JSON; raised when a field changes its meaning or goes away, not when one is added.
const FORMAT: u32 = 1;

#[derive(Serialize, Deserialize)]
struct File {
    /// Raised when a field changes its meaning or goes away.
    format: u32,
    /// The seed of all experiments.
    seed: u64,
    /// Each experiment.
    experiments: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
struct Entry {
    /// Its name for `lab run`.
    id: String,
    /// From the published numbers, for readers without them.
    #[serde(default)]
    place: String,
    /// What it repeats.
    #[serde(default)]
    what: String,
    /// What it found.
    findings: Findings,
}

/// Runs with this seed as the text of a JSON file.
///
/// ```
/// assert!(tantalum_lab::runs::to_json(42, &[]).expect("numbers and texts").starts_with("{\n  \"format\": 1"));
/// ```
///
/// # Errors
/// [`Error::Json`], which numbers and texts do not cause.
pub fn to_json(seed: u64, runs: &[Run]) -> Result<String> {
    let entry = |run: &Run| {
        let Published { id, place, what, .. } = run.published;
        Entry { id: id.clone(), place: place.clone(), what: what.clone(), findings: run.findings.clone() }
    };
    let file = File { format: FORMAT, seed, experiments: runs.iter().map(entry).collect() };
    Ok(tantalum_report::json::to_text(&file)?)
}

/// Reads runs from a file that holds what [`to_json`] wrote.
///
/// # Errors
/// [`Error::Json`] if the file cannot be read or is damaged, [`Error::Runs`] if it is of another version of this program.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Run>> {
    let path = path.as_ref();
    let refuse = |why| Error::Runs { path: path.to_owned(), why };
    // The version first: what follows may be another's.
    #[derive(Deserialize)]
    struct Version {
        format: u32,
    }
    let Version { format } = tantalum_report::from_json_file(path)?;
    if format != FORMAT {
        return Err(refuse(format!("it has format {format}, and this program reads format {FORMAT}")));
    }
    let File { seed, experiments, .. } = tantalum_report::from_json_file(path)?;
    let mut runs: Vec<Run> = Vec::new();
    for Entry { id, findings, .. } in experiments {
        let published = published::find(&id)
            .ok_or_else(|| refuse(format!("it has an experiment {id:?}, which this program does not know")))?;
        if runs.iter().any(|run| run.published.id == id) {
            return Err(refuse(format!("it has the experiment {id} twice")));
        }
        runs.push(Run { published, seed, findings });
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Basis, Bound, Comparison, Statement};
    use tantalum_report::plot::{Axis, Plot, Series, Unit};

    fn run(id: &str) -> Run {
        let series = vec![Series::line("a", vec![(1.0, 2.0), (3.0, f64::NAN)])];
        let axis = || Axis::log("x", Unit::Number);
        let findings = Findings {
            configuration: vec!["a line".into()],
            comparisons: vec![
                Comparison::new("never", Bound::Range(1.0, 2.5), f64::INFINITY, "KiB", Basis::Predicted),
                Comparison::new("unpublished", Bound::Unpublished, 0.1, "", Basis::Fitted),
            ],
            statements: vec![Statement::new("says", false, "found")],
            plots: vec![Plot::new("t", axis(), Axis::names("", ["one"]), series)],
        };
        Run { published: published::find(id).unwrap(), seed: 7, findings }
    }

    fn written(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("results.json");
        std::fs::write(&path, text).unwrap();
        (directory, path)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let mut runs = vec![run("fl.fig6.outliers"), run("fl.fig3.disk_small_write")];
        let (_directory, path) = written(&to_json(7, &runs).unwrap());
        // What is not finite has no place in a plot, and none in JSON.
        runs.iter_mut().for_each(|run| run.findings.plots[0].series[0].points.truncate(1));
        assert_eq!(read(&path).unwrap(), runs);
    }

    #[test]
    fn damage_is_named_and_never_a_panic() {
        let whole = to_json(7, &[run("fl.fig6.outliers")]).unwrap();
        for end in 0..whole.trim_end().len() {
            let (_directory, path) = written(&whole[..end]);
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains("results.json") && error.contains("write it again"), "{error}");
        }
    }

    #[test]
    fn what_this_program_does_not_know_is_refused() {
        let whole = to_json(7, &[run("fl.fig6.outliers")]).unwrap();
        for (from, to, expected) in [
            ("\"format\": 1", "\"format\": 2", "format 2"),
            ("fl.fig6.outliers", "fl.fig6.inliers", "\"fl.fig6.inliers\""),
        ] {
            let (_directory, path) = written(&whole.replace(from, to));
            let error = read(&path).unwrap_err().to_string();
            assert!(error.contains(expected) && error.contains("lab run"), "{error}");
        }
        let twice = to_json(7, &[run("fl.fig6.outliers"), run("fl.fig6.outliers")]).unwrap();
        let (_directory, path) = written(&twice);
        assert!(read(&path).unwrap_err().to_string().contains("twice"));
    }
}
