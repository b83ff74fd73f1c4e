//! Results of a paper at a glance: every number that has a published one beside it, measured over published.

use tantalum_report::plot::{Ratio, Ratios};

use crate::{
    agreement::Tally,
    finding::{Basis, Comparison},
    runs::Run,
};

/// A row for each result, in the order given.
pub(super) fn ratios(title: &str, runs: &[&Run]) -> Ratios {
    let mut ratios = Ratios::new(title, "measured / published");
    for run in runs {
        ratios.row(&run.published.question().title, run.findings.comparisons.iter().filter_map(ratio).collect());
    }
    ratios
}

/// 1 within a range, or on the right side of a bound.
fn ratio(comparison: &Comparison) -> Option<Ratio> {
    let ratio = Ratio::new(1.0 + comparison.deviation()?);
    Some(if comparison.basis == Basis::Fitted { ratio.hollow() } else { ratio })
}

/// How many numbers and statements agree, in a sentence.
pub(super) fn agreement(runs: &[&Run]) -> String {
    let mut tally = Tally::default();
    runs.iter().for_each(|run| tally += Tally::of(&run.findings));
    let predicted = tally.predicted();
    let (near, numbers) = (predicted.all() - predicted.beyond, predicted.all());
    let Tally { holding, statements, .. } = tally;
    format!("{near} of {numbers} predicted numbers come within 25 %, {holding} of {statements} statements hold.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        finding::{Bound, Findings, Statement},
        published,
    };

    #[test]
    fn numbers_and_statements_are_counted_and_drawn() {
        let number = |measured, basis| Comparison::new("", Bound::Value(100.0), measured, "", basis);
        let (predicted, fitted) = (Basis::Predicted, Basis::Fitted);
        let within = Comparison::new("", Bound::Min(3.0), 70.0, "", predicted);
        let findings = Findings {
            comparisons: vec![number(125.0, predicted), number(126.0, predicted), number(10.0, fitted), within],
            statements: vec![Statement::new("a", true, ""), Statement::new("b", false, "")],
            ..Findings::default()
        };
        let run = Run { published: &published::all()[0], seed: 42, findings };
        assert_eq!(agreement(&[&run]), "2 of 3 predicted numbers come within 25 %, 1 of 2 statements hold.");
        let svg = ratios("a paper", &[&run]).to_svg().expect("there are numbers");
        // The legend has one of each.
        let drawn = ["mark", "hollow"].map(|class| svg.matches(&format!("class=\"{class}\"")).count() - 1);
        assert_eq!(drawn, [3, 1]);
    }
}
