//! What the lab found, as one page that needs nothing else: an honest summary, then every result beside the paper's.

pub mod markdown;
mod picture;
mod result;
mod summary;

use tantalum_report::html::{Element, Html, Page, element};

use crate::{
    agreement::{Agreement, Tally},
    finding::Comparison,
    published,
    runs::Run,
};

/// A page about these runs, in the order of the papers, the goals of this project last.
///
/// The same runs give the same page, to the byte: it holds neither the time nor the name of the machine.
///
/// ```
/// let page = tantalum_lab::report::page(&[]);
/// assert!(page.to_html().contains("fl.fig3.disk_small_write"), "what is not there is named too");
/// ```
pub fn page(runs: &[Run]) -> Page {
    let runs = in_order(runs.iter().collect());
    let mut page = Page::new("Tantalum lab report");
    page.add(summary::summary(&runs));
    for group in runs.chunk_by(|one, other| one.published.paper() == other.published.paper()) {
        if let Some(first) = group.first() {
            page.add(element("h2").with(&first.published.paper().name));
        }
        group.iter().for_each(|run| page.add(result::article(run)));
    }
    let version = env!("CARGO_PKG_VERSION");
    page.add(element("footer").with(format!("Written by tantalum {version}, lab report.")));
    page
}

/// In the order of the papers, the goals of this project last.
fn in_order(mut runs: Vec<&Run>) -> Vec<&Run> {
    let place = |run: &&Run| {
        published::all().iter().chain(published::goals()).position(|published| published.id == run.published.id)
    };
    runs.sort_by_key(place);
    runs
}

/// The place of a result in the page.
fn anchor(run: &Run) -> String {
    format!("#{}", run.published.id)
}

/// In a word or two, how a result came out.
fn verdict(tally: &Tally) -> Element {
    let count = tally.count();
    let failing = tally.statements - tally.holding;
    let (class, says) = match tally.worst() {
        None => ("", "nothing to compare".to_owned()),
        Some(Agreement::Within10) if tally.numbers() == 0 => ("good", "as stated".to_owned()),
        Some(Agreement::Within10) => ("good", "within 10 %".to_owned()),
        Some(Agreement::Within25) => ("fair", "within 25 %".to_owned()),
        Some(Agreement::Beyond) if count.beyond == 0 => {
            ("poor", counted(failing, "statement fails", "statements fail"))
        }
        Some(Agreement::Beyond) if failing == 0 => ("poor", format!("{} of {} off", count.beyond, count.all())),
        Some(Agreement::Beyond) => (
            "poor",
            format!("{} of {} off, {}", count.beyond, count.all(), counted(failing, "statement", "statements")),
        ),
    };
    chip(class, says)
}

fn chip(class: &str, says: impl Into<Html>) -> Element {
    element("span").class(format!("chip {class}").trim_end()).with(says)
}

/// `1 number`, `2 numbers`.
fn counted(count: usize, one: &str, more: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { more })
}

/// A measured number, or that there is none.
fn measured(comparison: &Comparison) -> String {
    if comparison.measured.is_finite() {
        tantalum_report::units::number(comparison.measured)
    } else {
        "never".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::{Basis, Bound, Findings, Statement};

    fn verdict_of(numbers: &[f64], statements: &[bool]) -> String {
        let number = |&value: &f64| Comparison::new("", Bound::Value(1.0), value, "", Basis::Predicted);
        let findings = Findings {
            comparisons: numbers.iter().map(number).collect(),
            statements: statements.iter().map(|&holds| Statement::new("", holds, "")).collect(),
            ..Findings::default()
        };
        let html = Html::from(verdict(&Tally::of(&findings)));
        html.as_str().split(['<', '>']).nth(2).unwrap().to_owned()
    }

    #[test]
    fn verdicts_say_the_worst() {
        let cases = [
            (&[][..], &[][..], "nothing to compare"),
            (&[], &[true], "as stated"),
            (&[1.05], &[true], "within 10 %"),
            (&[1.05, 0.85], &[], "within 25 %"),
            (&[1.05, 0.5], &[true], "1 of 2 off"),
            (&[1.05], &[true, false], "1 statement fails"),
            (&[0.1, 3.0], &[false, false], "2 of 2 off, 2 statements"),
        ];
        for (numbers, statements, expected) in cases {
            assert_eq!(verdict_of(numbers, statements), expected);
        }
    }

    #[test]
    fn what_is_never_reached_is_no_number() {
        let never = Comparison::new("", Bound::Value(32.0), f64::INFINITY, "KiB", Basis::Predicted);
        assert_eq!(measured(&never), "never");
    }
}
