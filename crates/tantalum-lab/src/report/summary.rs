//! The begin of the page: how much of what was published runs, how near it comes, and what is left out.

use std::collections::BTreeSet;

use tantalum_report::html::{self, Column, Element, Html, element, strip, table};

use super::{anchor, chip, counted, picture, verdict};
use crate::{
    agreement::{Agreement, Count, Tally},
    finding::{Basis, Findings},
    published::{self, Published},
    runs::Run,
};

pub(super) fn summary(runs: &[&Run]) -> Html {
    let tallies: Vec<Tally> = runs.iter().map(|run| Tally::of(&run.findings)).collect();
    let mut all = Tally::default();
    tallies.iter().for_each(|&tally| all += tally);
    let like = |wanted| tallies.iter().filter(|tally| tally.worst() == wanted).count();
    let [close, near, off] =
        [Agreement::Within10, Agreement::Within25, Agreement::Beyond].map(|wanted| like(Some(wanted)));
    Html::default()
        .and(element("h1").with("Tantalum lab report"))
        .and(element("p").class("lead").with(lead(runs)))
        .and(tiles(&[
            (runs.iter().filter(is_published).count(), published::all().len(), "published results run here"),
            (close, runs.len(), "come within 10 %, every number and statement"),
            (near, runs.len(), "come within 25 %"),
            (off, runs.len(), "have a number further off, or a statement that fails"),
            (all.holding, all.statements, "statements about order and shape hold"),
            (all.fitted(), all.numbers(), "numbers are fitted; the others are predicted"),
        ]))
        .and(papers(runs))
        .and(reading())
        .and(numbers(&all))
        .and(overview(runs, &tallies))
        .and(missing(runs))
}

fn is_published(run: &&&Run) -> bool {
    published::all().iter().any(|published| published.id == run.published.id)
}

fn lead(runs: &[&Run]) -> String {
    let seeds: BTreeSet<u64> = runs.iter().map(|run| run.seed).collect();
    let seeds: Vec<String> = seeds.into_iter().map(|seed| seed.to_string()).collect();
    let seeds = match &seeds[..] {
        [] => String::new(),
        [seed] => format!(", with seed {seed}"),
        seeds => format!(", with seeds {}", seeds.join(", ")),
    };
    format!(
        "What four papers measured on storage devices and databases, measured again on emulated devices in virtual \
         time{seeds}. Everything is shown as it came out, what deviates too."
    )
}

fn tiles(tiles: &[(usize, usize, &str)]) -> Element {
    let tile = |&(count, of, says): &(usize, usize, &str)| {
        let number = element("b").with(count.to_string()).with(element("small").with(format!(" of {of}")));
        element("li").with(number).with(element("span").with(says))
    };
    element("ul").class("tiles").with(Html::from_iter(tiles.iter().map(tile)))
}

/// Each paper in a line and a picture.
fn papers(runs: &[&Run]) -> Html {
    let of_paper = |runs: &[&Run]| {
        let paper = runs[0].published.paper();
        let picture = html::ratios(&picture::ratios(&paper.name, runs))?;
        let line = element("p")
            .with(picture::agreement(runs))
            .with(element("b").with(" Reproduced: "))
            .with(&paper.reproduces)
            .with(element("b").with(" Not reproduced: "))
            .with(&paper.deviates);
        Some(Html::from(element("h4").with(&paper.name)).and(line).and(picture))
    };
    let groups = runs.chunk_by(|one, other| one.published.paper() == other.published.paper());
    Html::from_iter(groups.filter_map(of_paper))
}

fn reading() -> Html {
    let terms = [
        (
            "Fitted",
            "a parameter of an emulated device, or of the experiment, was chosen by this very number. That it agrees proves little.",
        ),
        ("Predicted", "no parameter was chosen by it. That it agrees is evidence."),
        (
            "Deviation",
            "(measured - published) / published. Where the paper gives a range or a bound (\"up to\", \"at least\"), it is zero \
             inside; such numbers are easier to meet and are counted apart.",
        ),
    ];
    let item = |(term, says): (&str, &str)| element("li").with(element("b").with(term)).with(format!(": {says}"));
    Html::from(element("ul").class("plain").with(Html::from_iter(terms.map(item))))
}

/// How many numbers are how far off, single numbers apart from ranges and bounds, fitted apart from predicted.
fn numbers(all: &Tally) -> Html {
    let rows = [
        ("Predicted single numbers", all.predicted_values),
        ("Predicted ranges and bounds", all.predicted_bounds),
        ("Fitted single numbers", all.fitted_values),
        ("Fitted ranges and bounds", all.fitted_bounds),
        ("All", all.count()),
    ];
    let row = |(what, count): (&str, Count)| {
        let of = |part: usize| match count.all() {
            0 => "-".to_owned(),
            all => format!("{part} ({:.0} %)", part as f64 / all as f64 * 100.0),
        };
        let counts = [count.all().to_string(), of(count.within_10), of(count.within_25), of(count.beyond)];
        [what.to_owned()].into_iter().chain(counts).map(Html::from).collect()
    };
    let columns = [
        ("", Column::Text),
        ("count", Column::Number),
        ("within 10 % or inside", Column::Number),
        ("10 to 25 % off", Column::Number),
        ("further off", Column::Number),
    ];
    Html::from(element("h4").with("Every number that has a published one beside it"))
        .and(table(&columns, rows.map(row)))
}

/// A line for each result.
fn overview(runs: &[&Run], tallies: &[Tally]) -> Html {
    if runs.is_empty() {
        return Html::default();
    }
    let row = |(run, tally): (&&Run, &Tally)| {
        let published = run.published;
        let link = element("a").attribute("href", &anchor(run)).with(&published.question().title);
        let place = format!("{}, {}", published.paper().name, published.section());
        let title = Html::from(link).and(element("div").class("small soft").with(place));
        vec![title, verdict(tally).into(), basis(tally).into(), ratios(&run.findings)]
    };
    let columns = [
        ("Result", Column::Text),
        ("Came out", Column::Text),
        ("Basis", Column::Extra),
        ("Measured over published, a third to three times", Column::Extra),
    ];
    Html::from(element("h4").with("Result by result"))
        .and(table(&columns, runs.iter().zip(tallies).map(row)))
        .and(element("p").class("small soft extra").with(
            "Each dot is a number; hollow ones are fitted. The line is the published number, the bands are 10 % and 25 % around it.",
        ))
}

/// Whether the numbers of a result are fitted.
pub(super) fn basis(tally: &Tally) -> Element {
    let says = match (tally.fitted(), tally.numbers()) {
        (_, 0) => "statements only".to_owned(),
        (0, _) => "predicted".to_owned(),
        (fitted, all) if fitted == all => "fitted".to_owned(),
        (fitted, all) => format!("{fitted} of {all} fitted"),
    };
    chip("", says)
}

fn ratios(findings: &Findings) -> Html {
    let of = |comparison: &crate::finding::Comparison| {
        Some((1.0 + comparison.deviation()?, comparison.basis == Basis::Fitted))
    };
    let ratios: Vec<(f64, bool)> = findings.comparisons.iter().filter_map(of).collect();
    if ratios.is_empty() {
        return Html::default();
    }
    let label = format!("{} measured over published", counted(ratios.len(), "number,", "numbers,"));
    strip(&label, &ratios)
}

/// What the page does not have, by name.
fn missing(runs: &[&Run]) -> Html {
    let is_here = |published: &Published| runs.iter().any(|run| run.published.id == published.id);
    let left_out: Vec<&Published> = published::all().iter().filter(|published| !is_here(published)).collect();
    let mut html = Html::default();
    if left_out.is_empty() {
        return html;
    }
    let item = |published: &&Published| {
        let place = format!(" ({}, {})", published.paper().name, published.section());
        let name = element("code").with(&published.id);
        element("li").with(format!("{}: ", published.question().title)).with(name).with(place)
    };
    let says = format!("Left out of this report: {} of {}", left_out.len(), published::all().len());
    html.add(element("h4").with(says));
    html.add(element("ul").class("plain small").with(Html::from_iter(left_out.iter().map(item))));
    html
}
