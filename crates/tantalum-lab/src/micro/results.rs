//! The results of one benchmark, for people, for programs, and as a plot.

use std::{fmt::Display, sync::Arc};

use serde::Serialize;
use tantalum_device::Device;
use tantalum_report::{
    Table,
    plot::{Axis, Plot, Series, Unit},
    units,
};

use super::{Benchmark, Kind, Latency, Load, Measured, Outliers, Pattern, Summary, run, run_flash};
use crate::error::Result;

/// The results of one benchmark.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Results {
    /// The benchmark's name.
    pub name: &'static str,
    /// What it shows.
    pub what: &'static str,
    /// What is different from row to row.
    pub varies: &'static str,
    /// A row for each of its jobs.
    pub rows: Vec<Row>,
}

/// The result of one job.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// What is different from the other rows.
    pub label: String,
    /// What was done.
    pub job: Load,
    /// In a few numbers.
    pub summary: Summary,
    /// Response times of the flushes, if there were any.
    pub flush: Option<Latency>,
    /// Those of the second of two streams; the summary is then of both.
    pub second_stream: Option<Latency>,
    /// Response times in order that 0, 1, ... 100 percent do not exceed.
    pub percentiles_ns: Vec<u64>,
    /// Of durable sequential writes: what stands out.
    pub outliers: Option<Outliers>,
    /// Each response time, where a benchmark is about them.
    pub each_ns: Option<Vec<u64>>,
}

/// Runs a benchmark's jobs, one after the other. `progress` is called with the job, and how many of its requests have begun.
///
/// # Errors
/// As [`run`].
pub fn execute(device: &Arc<dyn Device>, benchmark: &Benchmark, progress: &dyn Fn(&str, u64)) -> Result<Results> {
    let row = |(label, job): &(String, Load)| {
        let measured = match job {
            Load::Blocks(job) => run(device, job, &|begun| progress(label, begun))?,
            Load::Flash(job) => run_flash(device, job)?,
        };
        Ok(Row::new(label.clone(), job.clone(), &measured, benchmark.name == "back-to-back"))
    };
    let rows = benchmark.jobs.iter().map(row).collect::<Result<_>>()?;
    Ok(Results { name: benchmark.name, what: benchmark.what, varies: benchmark.varies, rows })
}

impl Row {
    fn new(label: String, job: Load, measured: &Measured, keep_each: bool) -> Self {
        let some = |latency: Latency| (latency.count > 0).then_some(latency);
        let writes_ns = measured.writes_ns();
        let is_log = matches!(&job, Load::Blocks(job) if job.threads == 1 && job.reads_percent == 0 && job.pattern == Pattern::Sequential);
        Self {
            summary: measured.summary(),
            flush: some(measured.latency_of(|sample| sample.kind == Kind::Flush)),
            second_stream: some(measured.latency_of(|sample| sample.stream == 1)),
            percentiles_ns: measured.percentiles_ns(),
            outliers: is_log.then(|| Outliers::of(&writes_ns)),
            each_ns: keep_each.then_some(writes_ns),
            label,
            job,
        }
    }
}

impl Results {
    /// As a table; and what does not fit it, a line each.
    pub fn table(&self) -> (Table, Vec<String>) {
        let header = [self.varies, "per second", "MB/s", "mean", "p50", "p99", "p99.9", "max"];
        let mut table = Table::new(header);
        let mut notes = Vec::new();
        for row in &self.rows {
            let summary = &row.summary;
            table.row(cells(&row.label, summary.per_second, summary.bytes_per_second / 1e6, &summary.latency));
            if let Some(second) = &row.second_stream {
                let share = second.count as f64 / summary.operations.max(1) as f64 * summary.per_second;
                let megabytes = share * f64::from(row.job.request_bytes()) / 1e6;
                table.row(cells("  of these, the second", share, megabytes, second));
            }
            if let (Some(outliers), Some(_)) = (&row.outliers, &row.each_ns) {
                notes.push(format!("{}: {}", row.label, describe(outliers)));
            }
        }
        (table, notes)
    }

    /// As a plot, where there is something to see: rates over sizes, response times in order or by percent.
    pub fn plot(&self, device: &str) -> Option<Plot> {
        let numbered = |times: &[u64]| (0..).zip(times).map(|(n, &time)| (f64::from(n), time as f64)).collect();
        let of_rows = |x: &dyn Fn(&Row) -> Option<f64>, y: &dyn Fn(&Row) -> f64| {
            let points = self.rows.iter().filter_map(|row| Some((x(row)?, y(row))));
            vec![Series::line(self.name, points.collect())]
        };
        let time = |title: &str| Axis::log(title, Unit::Nanoseconds);
        let number = |title: &str| Axis::log(title, Unit::Number);
        let megabytes = |row: &Row| row.summary.bytes_per_second / 1e6;
        let rate = |row: &Row| row.summary.per_second;
        let (x, y, series) = match (self.name, self.varies) {
            ("back-to-back", _) => {
                let dots =
                    |row: &Row| Series::dots(&row.label, row.each_ns.as_deref().map(numbered).unwrap_or_default());
                (Axis::linear("write", Unit::Number), time("response time"), self.rows.iter().map(dots).collect())
            }
            ("response-times", _) => {
                let curve = |row: &Row| Series::line(&row.label, numbered(&row.percentiles_ns));
                let series = self.rows.iter().map(curve).collect();
                (Axis::linear("percent of requests", Unit::Number), time("response time at most"), series)
            }
            _ if self.rows.len() < 2 => return None,
            (_, "request") => {
                let series = of_rows(&|row| Some(row.job.request_bytes().into()), &megabytes);
                (Axis::log("request", Unit::Bytes), number("MB/s"), series)
            }
            (_, "threads" | "planes") => {
                let series = of_rows(&|row| Some(row.job.tasks().into()), &rate);
                (number(self.varies), number("requests per second"), series)
            }
            (_, "writes per flush") => {
                let series = of_rows(&|row| row.label.parse().ok(), &rate);
                (number(self.varies), number("writes per second"), series)
            }
            _ => return None,
        };
        Some(Plot::new(format!("{device}: {}", self.what), x, y, series))
    }
}

fn cells(label: &str, per_second: f64, megabytes: f64, latency: &Latency) -> [String; 8] {
    let time = |nanoseconds: u64| units::duration_ns(nanoseconds);
    [
        label.to_owned(),
        if per_second < 100.0 { format!("{per_second:.1}") } else { units::count(per_second.round() as u64) },
        format!("{megabytes:.2}"),
        time(latency.mean_ns.round() as u64),
        time(latency.p50_ns),
        time(latency.p99_ns),
        time(latency.p999_ns),
        time(latency.max_ns),
    ]
}

fn describe(outliers: &Outliers) -> impl Display {
    if outliers.count == 0 {
        return "no write takes more than twice the mean".to_owned();
    }
    format!(
        "{} outliers ({:.2}%), {:.1} times a normal write (the longest {:.1}); {:.1}% of writes near one of the two; \
         one in {:.1} writes, spacing varies by {:.0}%; predicted by count: {:.2}",
        outliers.count,
        outliers.share * 100.0,
        outliers.times_normal,
        outliers.longest_times_normal,
        outliers.bimodal * 100.0,
        outliers.gap_mean,
        outliers.gap_variation * 100.0,
        outliers.predictable,
    )
}
