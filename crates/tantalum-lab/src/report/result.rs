//! One result: what the paper asked, what it says, what came out here.

use tantalum_report::html::{Column, Element, Html, element, figure, table};

use super::{chip, counted, measured, summary::basis, verdict};
use crate::{
    agreement::{Agreement, Tally},
    finding::{Basis, Bound, Comparison, Findings, Statement},
    runs::Run,
};

/// Rows of a table that are shown at once; a longer one is folded away.
const SHOWN: usize = 40;

pub(super) fn article(run: &Run) -> Element {
    let Run { published, seed, findings } = run;
    let question = published.question();
    let tally = Tally::of(findings);
    let mut place =
        element("p").class("small soft").with(format!("{}, {} · ", published.paper().name, published.section()));
    place = place.with(element("code").with(&published.id));
    let chips = [verdict(&tally), basis(&tally)].map(|chip| element("li").with(chip));
    let figures = Html::from_iter(findings.plots.iter().map(figure));
    element("article")
        .attribute("id", &published.id)
        .with(element("h3").with(&question.title))
        .with(place)
        .with(element("p").with(&question.asks))
        .with(element("ul").class("chips").with(Html::from_iter(chips)))
        .with(statements(&findings.statements))
        .with(figures)
        .with(numbers(findings))
        .with(set_up(&published.what, &findings.configuration))
        .with(element("pre").with(format!("tantalum lab run {} --seed {seed}", published.id)))
}

fn statements(statements: &[Statement]) -> Option<Element> {
    let item = |statement: &Statement| {
        let holds = if statement.holds { chip("good", "✓ holds") } else { chip("poor", "✗ does not hold") };
        let found = element("div").class("small soft").with(format!("Found: {}", statement.found));
        let says = element("div").with(capital(&statement.says)).with(found);
        element("li").with(element("div").with(holds)).with(says)
    };
    (!statements.is_empty()).then(|| element("ul").class("says").with(Html::from_iter(statements.iter().map(item))))
}

/// Published and measured side by side.
fn numbers(findings: &Findings) -> Option<Html> {
    let comparisons = &findings.comparisons;
    let first = comparisons.first()?;
    // What is the same in every row is said once, above.
    let is_published = comparisons.iter().any(|comparison| comparison.published != Bound::Unpublished);
    let is_one_unit = comparisons.iter().all(|comparison| comparison.unit == first.unit);
    let is_one_basis = comparisons.iter().all(|comparison| comparison.basis == first.basis);
    let unit = |title: &str| if is_one_unit { format!("{title}, {}", first.unit) } else { title.to_owned() };
    let with_unit = |text: String, comparison: &Comparison| {
        if is_one_unit || text == "-" { text } else { format!("{text} {}", comparison.unit) }
    };
    let mut columns = vec![("what".to_owned(), Column::Text)];
    if is_published {
        columns.push((unit("published"), Column::Number));
    }
    columns.push((unit("measured"), Column::Number));
    if is_published {
        columns.push(("deviation".to_owned(), Column::Number));
        if !is_one_basis {
            columns.push(("basis".to_owned(), Column::Text));
        }
    }
    let row = |comparison: &Comparison| {
        let mut row = vec![Html::from(&comparison.what)];
        if is_published {
            row.push(with_unit(bound(comparison.published), comparison).into());
        }
        row.push(with_unit(measured(comparison), comparison).into());
        if is_published {
            row.push(deviation(comparison));
            row.push(if comparison.basis == Basis::Fitted { "fitted".into() } else { "predicted".into() });
        }
        row.truncate(columns.len());
        row
    };
    let table = table(&columns, comparisons.iter().map(row));
    if comparisons.len() <= SHOWN {
        return Some(table.into());
    }
    let says = if is_published { "published and measured" } else { "measured" };
    let says = format!("All {}, {says}", counted(comparisons.len(), "number", "numbers"));
    Some(element("details").with(element("summary").with(says)).with(table).into())
}

fn deviation(comparison: &Comparison) -> Html {
    let Some((share, agreement)) = comparison.deviation().zip(comparison.agreement()) else {
        return Html::from("-");
    };
    let class = match agreement {
        Agreement::Within10 => "good",
        Agreement::Within25 => "fair",
        Agreement::Beyond => "poor",
    };
    let says = match comparison.published {
        Bound::Range(..) | Bound::Max(_) | Bound::Min(_) if share == 0.0 => "inside".to_owned(),
        _ if !share.is_finite() => "never".to_owned(),
        _ => format!("{:+.1} %", share * 100.0),
    };
    chip(class, says).into()
}

fn bound(bound: Bound) -> String {
    let number = |value: f64| {
        // As published: no digit more, no digit less.
        let text = value.to_string();
        if value >= 10_000.0 && value.fract() == 0.0 { tantalum_report::units::number(value) } else { text }
    };
    match bound {
        Bound::Value(value) => number(value),
        Bound::Range(low, high) => format!("{} to {}", number(low), number(high)),
        Bound::Max(high) => format!("up to {}", number(high)),
        Bound::Min(low) => format!("at least {}", number(low)),
        Bound::Unpublished => "-".to_owned(),
    }
}

fn set_up(what: &str, configuration: &[String]) -> Element {
    let lines = configuration.iter().map(|line| element("li").with(capital(line)));
    element("details")
        .with(element("summary").with("What exactly is published, and how it was set up here"))
        .with(element("p").class("small").with(format!("Published: {what}.")))
        .with(element("ul").class("plain small").with(Html::from_iter(lines)))
}

/// With a capital at the begin, unless the first word is a name of its own: of a device.
fn capital(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    let mut characters = text.chars();
    match characters.next() {
        Some(first) if word.chars().all(|character| character.is_ascii_lowercase()) => {
            first.to_uppercase().chain(characters).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_numbers_stay_as_they_are() {
        assert_eq!(bound(Bound::Range(1.2, 9.4)), "1.2 to 9.4");
        assert_eq!(bound(Bound::Value(49009.0)), "49,009");
        assert_eq!(bound(Bound::Value(0.112)), "0.112");
        assert_eq!(bound(Bound::Value(4291.0)), "4291");
    }

    #[test]
    fn sentences_begin_with_a_capital_and_names_stay() {
        assert_eq!(capital("most writes are fast"), "Most writes are fast");
        assert_eq!(capital("usb-c has the largest gap"), "usb-c has the largest gap");
        assert_eq!(capital("4 KiB writes"), "4 KiB writes");
        assert_eq!(capital(""), "");
    }
}
