//! `tantalum lab trace`: what in-page logging would make of a run; and what it has in common with `lab io-trace`: files to read, and
//! where the result goes.

use std::path::{Path, PathBuf};

use serde::Serialize;
use tantalum_lab::trace::{
    Reader,
    pages::{self, Analysis, Operations, WINDOW},
};
use tantalum_report::{Progress, Table, Unit, plot::Plot, units};

use crate::error::{Error, Out, Result};

#[derive(clap::Args)]
pub struct Arguments {
    /// What `tantalum bench tpcc --trace` wrote; several to compare them.
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Changes that a log sector takes. Default: as many as have room in 512 bytes on average, as in the paper.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=512))]
    records_per_sector: Option<u32>,
    #[command(flatten)]
    output: Output,
}

pub fn run(arguments: &Arguments) -> Result<()> {
    let analysis = |file: &Path| Ok(Analysis::of(|| Reader::open(file), arguments.records_per_sector)?);
    let traces = analyse("lab trace", &arguments.files, analysis)?;
    let mut out = Out::new();
    traces.iter().try_for_each(|trace| show(&mut out, trace))?;
    arguments.output.draw("", || pages::plots(&traces))?;
    arguments.output.write(&traces)
}

fn show(out: &mut Out, trace: &Analysis) -> Result<()> {
    out.line(format_args!(
        "\n{}: pages of {}, {} of them, a buffer pool of {}",
        trace.label,
        units::bytes(trace.page_bytes.into()),
        units::count(trace.pages),
        units::bytes(trace.buffer_pool_bytes)
    ))?;
    let mut table = Table::new(["operation", "records", "share", "average bytes"]);
    let all = trace.changes();
    let mut row = |name: &str, operations: Operations| {
        table.row([
            name.to_owned(),
            units::count(operations.count),
            format!("{:.2}%", 100.0 * operations.count as f64 / all.count.max(1) as f64),
            format!("{:.1}", operations.average_bytes()),
        ]);
    };
    for (name, operations) in [
        ("insert", trace.inserts),
        ("update", trace.updates),
        ("delete", trace.deletes),
        ("whole page", trace.wholes),
        ("total", all),
    ] {
        row(name, operations);
    }
    out.line(table)?;
    let locality = &trace.locality;
    out.line(format_args!(
        "{} page writes; of {WINDOW} in a row {:.2} go to different pages and {:.2} to different erase units",
        units::count(trace.page_writes),
        locality.distinct_pages,
        locality.distinct_units
    ))?;
    out.line(format_args!(
        "the {} pages with most changes have {:.1}% of them, the {} with most writes {:.1}%",
        locality.changes.top.len(),
        100.0 * locality.changes.share_of_top,
        locality.writes.top.len(),
        100.0 * locality.writes.share_of_top
    ))?;
    out.line(format_args!(
        "{} sector writes with {} records a sector; {} if a sector takes as many bytes as it has",
        units::count(trace.by_count.sector_writes),
        trace.records_per_sector,
        units::count(trace.by_bytes.sector_writes)
    ))?;
    let mut table =
        Table::new(["log region", "pages a unit", "merges", "t_IPL", "t_Conv, 0.9", "t_Conv, 0.5", "space"]);
    let seconds = |seconds: f64| format!("{} s", units::number(seconds));
    for region in &trace.by_count.regions {
        table.row([
            units::bytes(region.region_bytes.into()),
            region.pages_per_unit.to_string(),
            units::count(region.merges),
            seconds(trace.by_count.seconds(region)),
            seconds(trace.conventional_seconds(0.9)),
            seconds(trace.conventional_seconds(0.5)),
            units::bytes(trace.database_bytes(region)),
        ]);
    }
    out.line(table)
}

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
