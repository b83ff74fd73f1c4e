//! Medians over the rounds, ratios of the two logs, and all of it as tables of 80 columns and as JSON.

use serde::Serialize;
use tantalum_report::{Table, units};

use crate::append::Drive;
use crate::arguments::{Arguments, Workload};
use crate::compare::{Case, Contender};
use crate::job::Outcome;
use crate::store::Kind;

/// A figure over the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Spread {
    /// The one in the middle.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The greatest.
    pub max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Option<Spread> {
        let mut values: Vec<_> = values.filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = values.first().zip(values.last())?;
        let middle = values.len() / 2;
        let median =
            if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] };
        Some(Spread { median, min, max })
    }
}

/// What is told of a run; each is a figure of the outcome.
#[derive(Serialize)]
pub struct Figures<T> {
    /// Entries in a second.
    pub entries_per_second: T,
    /// Latency of an append of a ready until it is durable, or of the read of a range: the median, in microseconds.
    pub p50_us: T,
    /// Its 99th percentile.
    pub p99_us: T,
    /// Its 99.9th percentile.
    pub p999_us: T,
    /// Processor time for an entry, in microseconds.
    pub cpu_us_per_entry: T,
    /// Bytes written to the device for each entry, by the device's counter if it has one: with the file system's metadata, and what
    /// other processes write.
    pub written_bytes_per_entry: T,
    /// The same by the process's own counter.
    pub process_written_bytes_per_entry: T,
    /// Bytes fetched from the device for each entry.
    pub fetched_bytes_per_entry: T,
    /// The most memory that the process has had.
    pub peak_memory_bytes: T,
}

impl Figures<f64> {
    fn of(outcome: &Outcome) -> Figures<f64> {
        let counted = &outcome.counted;
        let (used, entries) = (&counted.used, counted.entries as f64);
        let [p50_us, p99_us, p999_us] = counted.latency_us.unwrap_or([f64::NAN; 3]);
        Figures {
            entries_per_second: entries / counted.seconds,
            p50_us,
            p99_us,
            p999_us,
            cpu_us_per_entry: used.cpu_seconds * 1e6 / entries,
            written_bytes_per_entry: used.device_written_bytes.unwrap_or(used.process_written_bytes) as f64 / entries,
            process_written_bytes_per_entry: used.process_written_bytes as f64 / entries,
            fetched_bytes_per_entry: used.process_read_bytes as f64 / entries,
            peak_memory_bytes: outcome.peak_memory_bytes as f64,
        }
    }
}

impl Figures<Option<Spread>> {
    /// Of a figure of each round, that of one log by that of the other's same round if `base` is given.
    fn over(outcomes: &[Outcome], base: Option<&[Outcome]>) -> Figures<Option<Spread>> {
        let rounds: Vec<_> = outcomes.iter().map(Figures::of).collect();
        let base: Option<Vec<_>> = base.map(|base| base.iter().map(Figures::of).collect());
        let spread = |figure: fn(&Figures<f64>) -> f64| {
            let values = rounds.iter().enumerate().map(|(round, figures)| {
                figure(figures) / base.as_ref().map_or(1.0, |base| base.get(round).map_or(f64::NAN, figure))
            });
            Spread::of(values)
        };
        Figures {
            entries_per_second: spread(|figures| figures.entries_per_second),
            p50_us: spread(|figures| figures.p50_us),
            p99_us: spread(|figures| figures.p99_us),
            p999_us: spread(|figures| figures.p999_us),
            cpu_us_per_entry: spread(|figures| figures.cpu_us_per_entry),
            written_bytes_per_entry: spread(|figures| figures.written_bytes_per_entry),
            process_written_bytes_per_entry: spread(|figures| figures.process_written_bytes_per_entry),
            fetched_bytes_per_entry: spread(|figures| figures.fetched_bytes_per_entry),
            peak_memory_bytes: spread(|figures| figures.peak_memory_bytes),
        }
    }
}

/// The result of a comparison.
#[derive(Serialize)]
pub struct Results<'a> {
    /// The options, with defaults.
    pub arguments: &'a Arguments,
    /// In the order in which they were run.
    pub cases: Vec<Measured>,
}

/// The result of a case.
#[derive(Serialize)]
pub struct Measured {
    /// What was done.
    pub workload: Workload,
    /// Groups of the log.
    pub groups: u64,
    /// Medians of each contender.
    pub medians: Vec<(Contender, Figures<Option<Spread>>)>,
    /// Each way of tantalum-raft over one of raft-engine's.
    pub ratios: Vec<Ratio>,
    /// Why rounds did not go well.
    pub errors: Vec<String>,
    /// All that was counted.
    pub rounds: Vec<(Contender, Vec<Outcome>)>,
}

/// A way of tantalum-raft over one of raft-engine's.
#[derive(Serialize)]
pub struct Ratio {
    /// The way of tantalum-raft.
    pub drive: Option<Drive>,
    /// The way of raft-engine.
    pub over: Option<Drive>,
    /// tantalum-raft's figures by those of raft-engine in the same round.
    pub figures: Figures<Option<Spread>>,
}

impl Measured {
    fn of(case: Case) -> Measured {
        let Case { workload, groups, rounds, errors } = case;
        let medians: Vec<_> =
            rounds.iter().map(|(contender, outcomes)| (*contender, Figures::over(outcomes, None))).collect();
        let of = |log| rounds.iter().filter(move |(contender, _)| contender.log == log);
        let ratio = |own: &(Contender, Vec<Outcome>), other: &(Contender, Vec<Outcome>)| Ratio {
            drive: own.0.drive,
            over: other.0.drive,
            figures: Figures::over(&own.1, Some(&other.1)),
        };
        // Asynchronous appends are over each way of raft-engine, the others over the same.
        let ratios = of(Kind::TantalumRaft).flat_map(|own| {
            let same = move |(other, _): &&(Contender, Vec<Outcome>)| {
                own.0.drive == Some(Drive::Async) || other.drive == own.0.drive
            };
            of(Kind::RaftEngine).filter(same).map(move |other| ratio(own, other))
        });
        let ratios = ratios.collect();
        Measured { workload, groups, medians, ratios, errors, rounds }
    }
}

impl<'a> Results<'a> {
    /// Of all cases.
    pub fn new(arguments: &'a Arguments, cases: Vec<Case>) -> Results<'a> {
        Results { arguments, cases: cases.into_iter().map(Measured::of).collect() }
    }

    /// All tables, none wider than 80 columns.
    pub fn to_text(&self) -> String {
        let Arguments { rounds, seconds, entry_bytes, ready_entries, entries, .. } = self.arguments;
        let mut text = format!("Medians of {rounds} rounds\n");
        for case in &self.cases {
            text += &match case.workload {
                Workload::Append => format!(
                    "\nappend, {} groups: readies of {ready_entries} x {entry_bytes} bytes, {seconds} s\n",
                    case.groups
                ),
                Workload::Replay => {
                    format!("\nreplay: a log of {} entries of {entry_bytes} bytes is opened\n", units::count(*entries))
                }
                Workload::Read => format!("\nread: ranges of 32 entries of {entry_bytes} bytes, {seconds} s\n"),
            };
            text += &format!("{}\n{}", speed(case), cost(case));
            if !case.ratios.is_empty() {
                text += &format!("\ntantalum-raft / raft-engine, of each round: median (min..max)\n{}", ratios(case));
            }
            case.errors.iter().for_each(|error| text += &format!("failed: {error}\n"));
        }
        text
    }
}

fn cell(spread: Option<Spread>, write: impl Fn(f64) -> String) -> String {
    spread.map_or_else(|| "-".to_owned(), |spread| write(spread.median))
}

fn time(us: f64) -> String {
    units::duration_ns((us * 1e3) as u64)
}

fn bytes(number: f64) -> String {
    units::bytes(number.round() as u64)
}

fn range(spread: Option<Spread>) -> String {
    let number = |number: f64| units::count(number.round() as u64);
    spread.map_or_else(|| "-".to_owned(), |Spread { min, max, .. }| format!("{}..{}", number(min), number(max)))
}

fn speed(case: &Measured) -> String {
    let mut table = Table::new(["", "entries/s", "min..max", "p50", "p99", "p99.9"]);
    for (contender, figures) in &case.medians {
        let rate = cell(figures.entries_per_second, |rate| units::count(rate.round() as u64));
        let latencies = [figures.p50_us, figures.p99_us, figures.p999_us].map(|latency| cell(latency, time));
        table.row([[contender.name(), rate, range(figures.entries_per_second)].to_vec(), latencies.to_vec()].concat());
    }
    table.to_plain()
}

fn cost(case: &Measured) -> String {
    let mut table = Table::new(["for each entry", "CPU", "written", "fetched", "peak memory"]);
    for (contender, figures) in &case.medians {
        let transferred = [figures.written_bytes_per_entry, figures.fetched_bytes_per_entry, figures.peak_memory_bytes];
        let [written, fetched, memory] = transferred.map(|figure| cell(figure, bytes));
        table.row([contender.name(), cell(figures.cpu_us_per_entry, time), written, fetched, memory]);
    }
    table.to_plain()
}

fn ratios(case: &Measured) -> String {
    let ratio = |spread: Option<Spread>| {
        spread.map_or_else(|| "-".to_owned(), |Spread { median, min, max }| format!("{median:.2} ({min:.2}..{max:.2})"))
    };
    let mut table = Table::new(["", "entries/s", "CPU", "written"]);
    for Ratio { drive, over, figures } in &case.ratios {
        let name = drive.zip(*over).map(|(drive, over)| format!("{} / {}", drive.name(), over.name()));
        let figures = [figures.entries_per_second, figures.cpu_us_per_entry, figures.written_bytes_per_entry];
        table.row([vec![name.unwrap_or_default()], figures.map(ratio).to_vec()].concat());
    }
    table.to_plain()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::append::Counted;
    use crate::meter::Used;

    fn outcome(entries: u64) -> Outcome {
        let used = Used { cpu_seconds: 1.0, device_written_bytes: Some(1 << 40), ..Used::default() };
        let counted = Counted { seconds: 2.0, entries, latency_us: Some([1555.0, 25_555.0, 999_000.0]), used };
        Outcome { counted, peak_memory_bytes: 1000 << 20 }
    }

    fn case() -> Case {
        let contender = |log, drive| Contender { log, drive: Some(drive) };
        let of = |entries: [u64; 3]| entries.into_iter().map(outcome).collect();
        let rounds = vec![
            (contender(Kind::RaftEngine, Drive::Each), of([1000, 2000, 4000])),
            (contender(Kind::RaftEngine, Drive::Batched), of([2000, 2000, 8000])),
            (contender(Kind::TantalumRaft, Drive::Each), of([2000, 5000, 12_000])),
            (contender(Kind::TantalumRaft, Drive::Async), of([40_000, 40_000, 160_000])),
        ];
        Case { workload: Workload::Append, groups: 256, rounds, errors: vec!["round 9: lost".to_owned()] }
    }

    #[test]
    fn ratios_are_those_of_one_round() {
        let measured = Measured::of(case());
        let ways: Vec<_> = measured.ratios.iter().map(|ratio| (ratio.drive, ratio.over)).collect();
        let (each, batched, asynchronous) = (Some(Drive::Each), Some(Drive::Batched), Some(Drive::Async));
        assert_eq!(ways, [(each, each), (asynchronous, each), (asynchronous, batched)]);
        let spread = Spread { median: 2.5, min: 2.0, max: 3.0 };
        assert_eq!(measured.ratios[0].figures.entries_per_second, Some(spread));
        assert_eq!(measured.ratios[0].figures.peak_memory_bytes.map(|spread| spread.max), Some(1.0));
        assert_eq!(measured.medians[0].1.entries_per_second.map(|spread| spread.median), Some(1000.0));
    }

    #[test]
    fn tables_fit_80_columns_and_absent_figures_are_dashes() {
        let arguments = Arguments::parse_from(["raft"]);
        let mut replay = case();
        replay.workload = Workload::Replay;
        for (_, outcomes) in &mut replay.rounds {
            outcomes.iter_mut().for_each(|outcome| outcome.counted.latency_us = None);
        }
        let text = Results::new(&arguments, vec![case(), replay]).to_text();
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("failed: round 9: lost") && text.contains("2.50 (2.00..3.00)"), "{text}");
        let absent = text.lines().filter(|line| line.trim_end().ends_with('-')).count();
        assert_eq!(absent, 4, "{text}");
    }
}
