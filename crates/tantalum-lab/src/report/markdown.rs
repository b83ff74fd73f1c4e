//! Tables and pictures of results in a document: what stands between two marker comments is written from runs, and the prose around
//! stays.
//!
//! - `<!-- results fl.* now.tpcc -->`: every number that has a published one beside it, and every statement, of these results.
//! - `<!-- statements fl.* -->`: the statements alone.
//! - `<!-- matrix ds.fig5.linkbench operations/s -->`: the numbers of these results in these units (without one: in any), a row and
//!   a column for each, published numbers in brackets. The column is what stands behind the last `: ` or else the last `, ` of what
//!   was measured.
//! - `<!-- picture ../images/flashlogging.svg fl.* -->`: how many numbers and statements agree, and a picture of all numbers, measured
//!   over published, in an SVG file at this place from the document.
//!
//! Shares are shown as percent.
//!
//! Each ends with `<!-- end -->`.

use std::fmt::Write as _;

use tantalum_report::units::number;

use super::{in_order, picture};
use crate::{
    error::{Error, Result},
    finding::{Basis, Bound, Comparison, Statement},
    runs::Run,
};

const BEGIN: &str = "<!-- ";
const END: &str = "<!-- end -->";
/// What a marker of a picture begins with.
const PICTURE: &str = "picture ";

/// A document with what runs say in it.
#[derive(Debug, PartialEq, Eq)]
pub struct Filled {
    /// The document.
    pub text: String,
    /// The SVG files that it shows: where each lies from the document, and what is in it.
    pub pictures: Vec<(String, String)>,
}

/// Writes the tables and pictures of a document anew.
///
/// # Errors
/// [`Error::Document`] if it has no markers, one without its end, or one for results that are not among `runs`: a table is not
/// emptied because a run is missing.
pub fn fill(document: &str, runs: &[Run]) -> Result<Filled> {
    let (mut text, mut pictures, mut rest) = (String::new(), Vec::new(), document);
    while let Some((before, marker, after)) = next_marker(rest) {
        let Some((_, behind)) = after.split_once(END) else {
            return Err(Error::Document(format!("the marker {marker:?} has no {END:?}")));
        };
        let shown = match marker.strip_prefix(PICTURE) {
            Some(of) => {
                let (shown, picture) = picture_of(of, runs)?;
                pictures.push(picture);
                shown
            }
            None => table_of(marker, runs)?,
        };
        let _ = write!(text, "{before}{BEGIN}{marker} -->\n\n{shown}\n{END}");
        rest = behind;
    }
    if text.is_empty() {
        return Err(Error::Document("it has no marker such as \"<!-- results fl.* -->\"".into()));
    }
    Ok(Filled { text: text + rest, pictures })
}

/// What stands before a marker, the marker's text, and what follows it.
fn next_marker(text: &str) -> Option<(&str, &str, &str)> {
    let at = ["results ", "statements ", "matrix ", PICTURE]
        .iter()
        .filter_map(|kind| text.find(&format!("{BEGIN}{kind}")))
        .min()?;
    let (marker, after) = text[at + BEGIN.len()..].split_once(" -->")?;
    Some((&text[..at], marker, after))
}

fn table_of(marker: &str, runs: &[Run]) -> Result<String> {
    let mut words = marker.split_whitespace();
    let kind = words.next();
    let is_matrix = kind == Some("matrix");
    // Ids have a dot, units have none.
    let (ids, units): (Vec<&str>, Vec<&str>) = words.partition(|word| !is_matrix || word.contains('.'));
    let found = chosen(ids, runs)?;
    Ok(match kind {
        Some("matrix") => matrix(&found, &units),
        Some("statements") => statements(&found),
        _ => [numbers(&found), statements(&found)]
            .into_iter()
            .filter(|table| !table.is_empty())
            .collect::<Vec<_>>()
            .join("\n"),
    })
}

/// The runs of these ids, of which one that ends in `*` stands for all that begin so.
fn chosen<'a>(ids: impl IntoIterator<Item = &'a str>, runs: &[Run]) -> Result<Vec<&Run>> {
    let mut found = Vec::new();
    for id in ids {
        let is_it = |run: &&Run| match id.strip_suffix('*') {
            Some(prefix) => run.published.id.starts_with(prefix),
            None => run.published.id == id,
        };
        let before = found.len();
        found.extend(runs.iter().filter(is_it));
        if found.len() == before {
            return Err(Error::Document(format!("{id} is not among the results; run it, too")));
        }
    }
    Ok(found)
}

/// What stands in the document for a picture, and the file that it shows.
fn picture_of(of: &str, runs: &[Run]) -> Result<(String, (String, String))> {
    let mut words = of.split_whitespace();
    let file = words.next().filter(|file| file.ends_with(".svg") && !file.starts_with('/'));
    let Some(file) = file else {
        return Err(Error::Document(format!("{PICTURE}{of}: name an SVG file, from the document, before the ids")));
    };
    let found = in_order(chosen(words, runs)?);
    let Some(first) = found.first() else {
        return Err(Error::Document(format!("{PICTURE}{of}: name the results behind the file")));
    };
    let title = format!("{}: every number, measured over published", first.published.paper().name);
    let Some(svg) = picture::ratios(&title, &found).to_svg() else {
        return Err(Error::Document(format!("{PICTURE}{of}: no number is published of these results")));
    };
    Ok((format!("![{title}]({file})\n\n{}\n", picture::agreement(&found)), (file.to_owned(), svg + "\n")))
}

/// Numbers of one result with the same published number, range or bound stand in one line.
fn numbers(runs: &[&Run]) -> String {
    let mut lines = String::new();
    for run in runs {
        let mut groups: Vec<Vec<&Comparison>> = Vec::new();
        for comparison in &run.findings.comparisons {
            let is_like = |group: &&mut Vec<&Comparison>| {
                let first = group[0];
                let key = |of: &Comparison| (of.published, of.basis, of.unit.clone());
                key(first) == key(comparison)
            };
            match (comparison.published, groups.iter_mut().find(is_like)) {
                (Bound::Unpublished, _) => {}
                (_, Some(group)) => group.push(comparison),
                (_, None) => groups.push(vec![comparison]),
            }
        }
        for (at, group) in groups.iter().enumerate() {
            lines.push_str(&line(&name_at(at, run), group));
        }
    }
    match lines.is_empty() {
        true => lines,
        false => format!("| result | what | published | measured | deviation |\n|---|---|---|---|---|\n{lines}"),
    }
}

/// The id of a result in its first line; the lines below belong to it.
fn name_at(line: usize, run: &Run) -> String {
    if line == 0 { format!("`{}`", run.published.id) } else { String::new() }
}

fn line(name: &str, group: &[&Comparison]) -> String {
    let first = group[0];
    let what = if group.len() == 1 { first.what.clone() } else { format!("{} numbers", group.len()) };
    let (scale, unit) = shown_as(&first.unit);
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    let published = bound(first.published, scale);
    let measured = span(group.iter().map(|comparison| comparison.measured * scale), number);
    let deviations = group.iter().filter_map(|comparison| comparison.deviation());
    let deviation = span(deviations, |share| match (share * 100.0).round() {
        0.0 => "0".to_owned(),
        percent => format!("{percent:+} %"),
    });
    let basis = if first.basis == Basis::Fitted { " (fitted)" } else { "" };
    let measured_unit = if measured.ends_with("never") { "" } else { &unit };
    format!("| {name} | {} | {published}{unit} | {measured}{measured_unit} | {deviation}{basis} |\n", cell(&what))
}

/// What numbers of a unit are multiplied by in a table, and the unit that stands behind them.
fn shown_as(unit: &str) -> (f64, &str) {
    match unit {
        "ratio" => (1.0, ""),
        "share" | "loss" => (100.0, "%"),
        unit => (1.0, unit),
    }
}

/// What is published of a number.
fn bound(published: Bound, scale: f64) -> String {
    let number = |value: f64| number(value * scale);
    match published {
        Bound::Value(value) => number(value),
        Bound::Range(low, high) => format!("{} to {}", number(low), number(high)),
        Bound::Max(high) => format!("up to {}", number(high)),
        Bound::Min(low) => format!("at least {}", number(low)),
        Bound::Unpublished => String::new(),
    }
}

/// The least and the greatest, or one of them if they read the same.
fn span(values: impl Iterator<Item = f64>, show: impl Fn(f64) -> String) -> String {
    let (least, most) =
        values.fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(value), most.max(value)));
    match [least, most].map(|value| if value.is_finite() { show(value) } else { "never".to_owned() }) {
        [least, most] if least == most => least,
        [least, most] => format!("{least} to {most}"),
    }
}

/// Statements of one result that differ only in what stands before their first `: ` stand in one line.
fn statements(runs: &[&Run]) -> String {
    let mut lines = String::new();
    for run in runs {
        let mut groups: Vec<Vec<&Statement>> = Vec::new();
        for statement in &run.findings.statements {
            let key = |of: &Statement| (of.holds, subject(of).map(|(_, says)| says.to_owned()));
            let is_like = |group: &&mut Vec<&Statement>| subject(group[0]).is_some() && key(group[0]) == key(statement);
            match groups.iter_mut().find(is_like) {
                Some(group) => group.push(statement),
                None => groups.push(vec![statement]),
            }
        }
        for (at, group) in groups.iter().enumerate() {
            let holds = if group[0].holds { "holds" } else { "**does not hold**" };
            let (says, found) = joined(group);
            let _ = writeln!(lines, "| {} | {} | {holds}: {} |", name_at(at, run), cell(&says), cell(&found));
        }
    }
    match lines.is_empty() {
        true => lines,
        false => format!("| result | statement | |\n|---|---|---|\n{lines}"),
    }
}

/// What a statement is about, and what it says.
fn subject(statement: &Statement) -> Option<(&str, &str)> {
    statement.says.split_once(": ")
}

/// What statements of one group say, and what was found for each.
fn joined(group: &[&Statement]) -> (String, String) {
    let first = group[0];
    let (Some((_, says)), true) = (subject(first), group.len() > 1) else {
        return (first.says.clone(), first.found.clone());
    };
    if group.iter().all(|statement| statement.found == first.found) {
        return (says.to_owned(), format!("{} ({} times)", first.found, group.len()));
    }
    let found = group.iter().filter_map(|statement| Some(format!("{}: {}", subject(statement)?.0, statement.found)));
    (says.to_owned(), found.collect::<Vec<_>>().join("; "))
}

fn matrix(runs: &[&Run], units: &[&str]) -> String {
    let (mut rows, mut columns, mut cells) = (Vec::new(), Vec::new(), Vec::new());
    let comparisons = runs.iter().flat_map(|run| &run.findings.comparisons);
    for comparison in comparisons.filter(|comparison| units.is_empty() || units.contains(&&*comparison.unit)) {
        let what = &comparison.what;
        let Some((row, column)) = what.rsplit_once(": ").or_else(|| what.rsplit_once(", ")) else { continue };
        let place = |names: &mut Vec<String>, name: &str| {
            names.iter().position(|known| known == name).unwrap_or_else(|| {
                names.push(name.to_owned());
                names.len() - 1
            })
        };
        let (scale, shown) = shown_as(&comparison.unit);
        let published = match comparison.published {
            Bound::Unpublished => String::new(),
            published => format!(" ({})", bound(published, scale)),
        };
        let shown = if units.len() == 1 || shown.is_empty() { String::new() } else { format!(" {shown}") };
        let value = format!("{}{shown}{published}", number(comparison.measured * scale));
        cells.push((place(&mut rows, row), place(&mut columns, column), value));
    }
    let mut text = format!("| {} |", if let [unit] = units { shown_as(unit).1 } else { "" });
    columns.iter().for_each(|column| text += &format!(" {} |", cell(column)));
    text += &format!("\n|---|{}\n", "---|".repeat(columns.len()));
    for (at, row) in rows.iter().enumerate() {
        text += &format!("| {} |", cell(row));
        for column in 0..columns.len() {
            let value = cells.iter().find(|(row, of, _)| (*row, *of) == (at, column));
            text += &format!(" {} |", value.map_or("", |(.., value)| value));
        }
        text.push('\n');
    }
    text
}

/// Text in a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{finding::Findings, published};

    fn fill(document: &str, runs: &[Run]) -> Result<String> {
        super::fill(document, runs).map(|filled| filled.text)
    }

    fn run(id: &str) -> Run {
        let mut findings = Findings::default();
        findings.compared("ideal over disk", Bound::Value(5.8), 10.72, "ratio");
        for (clients, share) in [(1, 0.0912), (2, 0.2), (4, 0.368)] {
            let what = format!("disk, {clients} clients");
            findings.comparisons.push(Comparison::new(what, Bound::Range(0.112, 0.299), share, "share", Basis::Fitted));
        }
        findings.compared("loss | worst", Bound::Max(0.5), 0.4, "loss");
        findings.measured("1 volume: p50", 0.654, "ms");
        findings.measured("1 volume: p99", 1234.5, "ms");
        findings.measured("2 volumes, hedged: p99", 1.1, "ms");
        findings.states("striping is never better", true, "least loss 20.9%");
        findings.states("units are best", false, "45.8%");
        Run { published: published::find(id).unwrap(), seed: 42, findings }
    }

    const ID: &str = "fl.fig1.ideal_over_disk";

    #[test]
    fn tables_are_replaced_and_prose_stays() {
        let document = "# Results\n\n<!-- results fl.fig1* -->\nold | figures\n<!-- end -->\n\nWhy it deviates.\n\n\
                        <!-- matrix fl.fig1.ideal_over_disk ms --><!-- end -->\nThe end.\n";
        let filled = fill(document, &[run(ID), run("fl.fig2.flush_sizes")]).unwrap();
        let expected = "# Results\n\n<!-- results fl.fig1* -->\n
| result | what | published | measured | deviation |
|---|---|---|---|---|
| `fl.fig1.ideal_over_disk` | ideal over disk | 5.80 | 10.7 | +85 % |
|  | 3 numbers | 11.2 to 29.9 % | 9.12 to 36.8 % | -19 % to +23 % (fitted) |
|  | loss \\| worst | up to 50.0 % | 40.0 % | 0 |

| result | statement | |
|---|---|---|
| `fl.fig1.ideal_over_disk` | striping is never better | holds: least loss 20.9% |
|  | units are best | **does not hold**: 45.8% |

<!-- end -->\n\nWhy it deviates.\n\n<!-- matrix fl.fig1.ideal_over_disk ms -->\n
| ms | p50 | p99 |
|---|---|---|
| 1 volume | 0.654 | 1,235 |
| 2 volumes, hedged |  | 1.10 |

<!-- end -->\nThe end.\n";
        assert_eq!(filled, expected);
        assert_eq!(fill(&filled, &[run(ID)]).unwrap(), filled, "the same runs, the same document");
    }

    #[test]
    fn a_picture_is_a_file_beside_the_document() {
        let filled = super::fill("<!-- picture ../images/fl.svg fl.* -->old<!-- end -->\n", &[run(ID)]).unwrap();
        let line = "1 of 2 predicted numbers come within 25 %, 1 of 2 statements hold.";
        let title = "FlashLogging: every number, measured over published";
        let picture = format!("![{title}](../images/fl.svg)\n\n{line}\n");
        assert_eq!(filled.text, format!("<!-- picture ../images/fl.svg fl.* -->\n\n{picture}\n<!-- end -->\n"));
        let [(file, svg)] = &filled.pictures[..] else { panic!("{:?}", filled.pictures) };
        assert!(file == "../images/fl.svg" && svg.starts_with("<svg") && svg.contains("What a slow log costs"));
    }

    #[test]
    fn a_document_is_not_emptied() {
        let refused = |document: &str| fill(document, &[run(ID)]).unwrap_err().to_string();
        assert!(refused("no markers").contains("no marker"));
        assert!(refused("<!-- results fl.fig1* -->\n| a |").contains("has no"));
        let message = refused("<!-- results fl.fig1* ds.* -->\n<!-- end -->");
        assert!(message.contains("ds.* is not among the results"), "{message}");
        assert!(refused("<!-- matrix fl.fig2.flush_sizes ms -->\n<!-- end -->").contains("fl.fig2.flush_sizes"));
        assert!(refused("<!-- picture fl.* -->\n<!-- end -->").contains("name an SVG file"));
        assert!(refused("<!-- picture /tmp/a.svg fl.* -->\n<!-- end -->").contains("name an SVG file"));
        assert!(refused("<!-- picture a.svg -->\n<!-- end -->").contains("name the results"));
    }

    #[test]
    fn a_matrix_joins_results_and_has_published_numbers_in_brackets() {
        let of = |id: &str, drive: &str, published| {
            let mut run = run(id);
            run.findings = Findings::default();
            run.findings.compared(format!("{drive}, in place"), published, 1234.5, "tpmC");
            run.findings.measured(format!("{drive}: misses"), 0.125, "share");
            run.findings.states("it gains", true, "it does");
            run
        };
        let runs = [of(ID, "mtron", Bound::Value(1954.0)), of("fl.fig2.flush_sizes", "ocz", Bound::Unpublished)];
        let filled = fill("<!-- matrix fl.fig1* fl.fig2.flush_sizes tpmC --><!-- end -->", &runs).unwrap();
        let rows = "| tpmC | in place |\n|---|---|\n| mtron | 1,235 (1,954) |\n| ocz | 1,235 |\n";
        assert!(filled.contains(rows), "{filled}");
        let filled = fill("<!-- matrix fl.fig1* share --><!-- end -->", &runs).unwrap();
        assert!(filled.contains("| % | misses |\n|---|---|\n| mtron | 12.5 |\n"), "{filled}");
        let filled = fill("<!-- matrix fl.fig1* tpmC share --><!-- end -->", &runs).unwrap();
        assert!(filled.contains("| mtron | 1,235 tpmC (1,954) | 12.5 % |\n"), "{filled}");
        let filled = fill("<!-- statements fl.fig2* --><!-- end -->", &runs).unwrap();
        assert!(filled.contains("| `fl.fig2.flush_sizes` | it gains | holds: it does |\n"), "{filled}");
        assert!(!filled.contains("1,235"), "{filled}");
    }

    #[test]
    fn statements_about_several_devices_stand_in_one_line() {
        let mut run = run(ID);
        run.findings = Findings::default();
        for (says, holds, found) in [
            ("usb-a: it gains", true, "1.2 times"),
            ("usb-b: it gains", true, "1.4 times"),
            ("usb-c: it gains", false, "0.9 times"),
            ("usb-a: it rises", true, "it does"),
            ("usb-b: it rises", true, "it does"),
            ("all is well", true, "it is"),
        ] {
            run.findings.states(says, holds, found);
        }
        let filled = fill("<!-- statements fl.fig1* --><!-- end -->", &[run]).unwrap();
        let rows = "| `fl.fig1.ideal_over_disk` | it gains | holds: usb-a: 1.2 times; usb-b: 1.4 times |
|  | usb-c: it gains | **does not hold**: 0.9 times |
|  | it rises | holds: it does (2 times) |
|  | all is well | holds: it is |\n";
        assert!(filled.contains(rows), "{filled}");
    }

    #[test]
    fn what_is_never_reached_says_so() {
        let mut never = run(ID);
        never.findings = Findings::default();
        never.findings.compared("from", Bound::Value(32.0), f64::INFINITY, "KiB");
        never.findings.statements.push(Statement::new("one\nline", true, "a|b"));
        let filled = fill("<!-- results fl.* --><!-- end -->", &[never]).unwrap();
        assert!(filled.contains("| 32.0 KiB | never | never |"), "{filled}");
        assert!(filled.contains("| one line | holds: a\\|b |"), "{filled}");
    }
}
