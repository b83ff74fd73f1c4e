//! Medians over the rounds, ratios to the first server, and all of it as tables and as JSON.

use serde::Serialize;
use tantalum_report::{Table, units};

use crate::arguments::{Arguments, Contender, Workload};
use crate::compare::Case;

/// What is told of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Figure {
    /// Operations in a second.
    PerSecond,
    /// Latency of an operation: the median, in microseconds.
    P50Us,
    /// Its 99th percentile.
    P99Us,
    /// Its 99.9th percentile.
    P999Us,
    /// Processor time of all servers for an operation, in microseconds.
    CpuUs,
    /// Bytes that all servers had written for an operation.
    WrittenBytes,
    /// Operations that failed.
    Failures,
    /// How long it took.
    Seconds,
    /// What the first node has in memory.
    ResidentBytes,
    /// By how much the term grew.
    Elections,
    /// How often a disk stalled.
    Stalls,
}

/// The figures of a run.
pub type Outcome = Vec<(Figure, f64)>;

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
    fn of(mut values: Vec<f64>) -> Option<Spread> {
        values.retain(|value| value.is_finite());
        values.sort_by(f64::total_cmp);
        let (&min, &max) = values.first().zip(values.last())?;
        let middle = values.len() / 2;
        let median =
            if values.len().is_multiple_of(2) { (values[middle - 1] + values[middle]) / 2.0 } else { values[middle] };
        Some(Spread { median, min, max })
    }
}

impl Figure {
    fn title(self) -> &'static str {
        match self {
            Figure::PerSecond => "ops/s",
            Figure::P50Us => "p50",
            Figure::P99Us => "p99",
            Figure::P999Us => "p99.9",
            Figure::CpuUs => "CPU/op",
            Figure::WrittenBytes => "written/op",
            Figure::Failures => "failed",
            Figure::Seconds => "seconds",
            Figure::ResidentBytes => "memory",
            Figure::Elections => "elections",
            Figure::Stalls => "stalls",
        }
    }

    fn text(self, value: f64) -> String {
        match self {
            Figure::P50Us | Figure::P99Us | Figure::P999Us | Figure::CpuUs => units::duration_ns((value * 1e3) as u64),
            Figure::WrittenBytes | Figure::ResidentBytes => units::bytes(value.round() as u64),
            Figure::Seconds => format!("{value:.2}"),
            Figure::PerSecond | Figure::Failures | Figure::Elections | Figure::Stalls => {
                units::count(value.round() as u64)
            }
        }
    }

    /// Whether a ratio says something.
    fn is_compared(self) -> bool {
        !matches!(self, Figure::Failures | Figure::Elections | Figure::Stalls)
    }
}

/// The result of a comparison.
#[derive(Serialize)]
pub struct Results<'a> {
    /// The command.
    pub command: String,
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
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Clients, of those workloads that have them.
    pub clients: Option<usize>,
    /// Of each server, over the rounds.
    pub medians: Vec<(Contender, Vec<(Figure, Spread)>)>,
    /// Each server's figures by the first server's in the same round.
    pub ratios: Vec<(Contender, Vec<(Figure, Spread)>)>,
    /// Why rounds did not go well.
    pub errors: Vec<String>,
    /// All that was measured.
    pub rounds: Vec<(Contender, Vec<Outcome>)>,
}

fn value(outcome: &Outcome, figure: Figure) -> Option<f64> {
    outcome.iter().find(|(of, _)| *of == figure).map(|(_, value)| *value)
}

/// Figures over the rounds, by those of the same rounds of `base` if it is given.
fn spreads(outcomes: &[Outcome], base: Option<&[Outcome]>) -> Vec<(Figure, Spread)> {
    let figures = outcomes.first().into_iter().flatten().map(|(figure, _)| *figure);
    let of = |figure: Figure| {
        let ratio = |(round, outcome): (usize, &Outcome)| {
            let divisor = match base {
                Some(base) => value(base.get(round)?, figure)?,
                None => 1.0,
            };
            Some(value(outcome, figure)? / divisor)
        };
        let values = outcomes.iter().enumerate().filter_map(ratio).collect();
        Some((figure, Spread::of(values)?))
    };
    figures.filter(|figure| base.is_none() || figure.is_compared()).filter_map(of).collect()
}

impl Measured {
    fn of(case: Case) -> Measured {
        let Case { workload, nodes, clients, rounds, errors } = case;
        let medians = rounds.iter().map(|(contender, outcomes)| (*contender, spreads(outcomes, None))).collect();
        // With a round that failed, rounds of two servers cannot be told to be the same.
        let is_whole = rounds.iter().all(|(_, outcomes)| Some(outcomes.len()) == rounds.first().map(|of| of.1.len()));
        let ratios = match rounds.split_first() {
            Some(((_, base), others)) if is_whole => {
                others.iter().map(|(contender, outcomes)| (*contender, spreads(outcomes, Some(base)))).collect()
            }
            _ => Vec::new(),
        };
        Measured { workload, nodes, clients, medians, ratios, errors, rounds }
    }

    fn title(&self) -> String {
        let nodes = if self.nodes == 1 { "1 node".to_owned() } else { format!("{} nodes", self.nodes) };
        let clients = self.clients.map_or_else(String::new, |clients| format!(", {clients} clients"));
        format!("{}, {nodes}{clients}", self.workload.name())
    }
}

impl<'a> Results<'a> {
    /// Of all cases.
    pub fn new(arguments: &'a Arguments, cases: Vec<Case>) -> Results<'a> {
        let command = std::env::args().skip(1).fold("server".to_owned(), |command, argument| command + " " + &argument);
        Results { command, arguments, cases: cases.into_iter().map(Measured::of).collect() }
    }

    /// All tables.
    pub fn to_text(&self) -> String {
        let Arguments { rounds, seconds, value_bytes, keys, .. } = self.arguments;
        let mut text = format!(
            "{}\nMedians of {rounds} rounds; loads of {seconds} s, {} keys of 16 bytes, values of {value_bytes}\n",
            self.command,
            units::count(*keys)
        );
        for case in &self.cases {
            text += &format!("\n{}\n", case.title());
            text += &table(&case.medians, |figure, spread| figure.text(spread.median));
            if case.ratios.iter().any(|(_, figures)| !figures.is_empty()) {
                let base = case.medians.first().map_or_else(String::new, |(contender, _)| contender.name());
                text += &format!("by {base}, of each round: median (least..greatest)\n");
                text +=
                    &table(&case.ratios, |_, Spread { median, min, max }| format!("{median:.2} ({min:.2}..{max:.2})"));
            }
            case.errors.iter().for_each(|error| text += &format!("failed: {error}\n"));
        }
        text
    }
}

fn table(of: &[(Contender, Vec<(Figure, Spread)>)], text: impl Fn(Figure, Spread) -> String) -> String {
    let mut figures: Vec<_> = of.iter().flat_map(|(_, spreads)| spreads.iter().map(|(figure, _)| *figure)).collect();
    figures.sort();
    figures.dedup();
    let titles = std::iter::once("").chain(figures.iter().map(|figure| figure.title()));
    let mut table = Table::new(titles);
    for (contender, spreads) in of {
        let cell = |figure: &Figure| {
            let spread = spreads.iter().find(|(of, _)| of == figure);
            spread.map_or_else(|| "-".to_owned(), |(figure, spread)| text(*figure, *spread))
        };
        table.row([contender.name()].into_iter().chain(figures.iter().map(cell)));
    }
    table.to_plain()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    fn case(of_tantalum: &[f64]) -> Case {
        let outcomes = |rates: &[f64]| {
            rates.iter().map(|rate| vec![(Figure::PerSecond, *rate), (Figure::Failures, 0.0)]).collect::<Vec<_>>()
        };
        let rounds =
            vec![(Contender::Etcd, outcomes(&[100.0, 200.0, 400.0])), (Contender::Tantalum, outcomes(of_tantalum))];
        Case { workload: Workload::Put, nodes: 3, clients: Some(16), rounds, errors: vec!["round 9: lost".to_owned()] }
    }

    #[test]
    fn ratios_are_those_of_one_round() {
        let measured = Measured::of(case(&[200.0, 500.0, 1200.0]));
        let spread = Spread { median: 2.5, min: 2.0, max: 3.0 };
        assert_eq!(measured.ratios, [(Contender::Tantalum, vec![(Figure::PerSecond, spread)])]);
        assert_eq!(measured.medians[0].1[0].1.median, 200.0);
        assert_eq!(Measured::of(case(&[200.0, 500.0])).ratios, []);
    }

    #[test]
    fn tables_say_what_failed() {
        let arguments = Arguments::parse_from(["server"]);
        let text = Results::new(&arguments, vec![case(&[200.0, 500.0, 1200.0]), case(&[])]).to_text();
        assert!(text.contains("put, 3 nodes, 16 clients") && text.contains("failed: round 9: lost"), "{text}");
        assert!(text.contains("2.50 (2.00..3.00)"), "{text}");
        assert!(
            text.lines().any(|line| line.trim_start().starts_with("tantalum") && line.trim_end().ends_with('-')),
            "{text}"
        );
    }
}
