//! What the commands that analyse traces have in common: files to read, and where the result goes.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tantalum_report::{Progress, Unit, plot::Plot};

use crate::error::{Error, Result};

/// Where a result goes beside the terminal.
#[derive(clap::Args)]
pub struct Output {
    /// Write the result as JSON; docs/use/json.md explains its fields.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write plots into this directory, as SVG files.
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// The JSON output.
#[derive(Serialize)]
struct Outcome<'a, T> {
    format: u32,
    traces: &'a [T],
}

/// Raised when a field changes its meaning or goes away, not when one is added.
const FORMAT: u32 = 1;

/// Analyses each file, and shows how far that is.
pub fn analyse<T>(command: &str, files: &[PathBuf], analysis: impl Fn(&Path) -> Result<T>) -> Result<Vec<T>> {
    let progress = Progress::open_ended(command, Unit::Things);
    let mut traces = Vec::new();
    for file in files {
        progress.remark(&file.display().to_string());
        traces.push(analysis(file)?);
        progress.add(1);
    }
    progress.finish();
    Ok(traces)
}

impl Output {
    /// Writes what was found, as JSON if that is asked for.
    pub fn write<T: Serialize>(&self, traces: &[T]) -> Result<()> {
        match &self.json {
            Some(path) => Ok(tantalum_report::to_json_file(path, &Outcome { format: FORMAT, traces })?),
            None => Ok(()),
        }
    }

    /// Writes the plots that have something to draw, if that is asked for: files that are called after their titles.
    pub fn draw(&self, prefix: &str, plots: impl FnOnce() -> Vec<Plot>) -> Result<()> {
        let Some(directory) = &self.plot else { return Ok(()) };
        std::fs::create_dir_all(directory).map_err(|error| Error::file("create", directory, error))?;
        for plot in plots() {
            if let Some(svg) = plot.to_svg() {
                let title = plot.title.to_lowercase();
                let words = title.split(|letter: char| !letter.is_alphanumeric()).filter(|word| !word.is_empty());
                let path = directory.join(format!("{prefix}{}.svg", words.collect::<Vec<_>>().join("-")));
                std::fs::write(&path, svg).map_err(|error| Error::file("write", &path, error))?;
            }
        }
        Ok(())
    }
}
