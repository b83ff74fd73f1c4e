//! The report as a page: complete, well-formed, in need of nothing else; and in a browser no wider than the screen.

use std::sync::OnceLock;

use crate::chromium::{Chromium, Scheme};
use tantalum_lab::{
    experiments::{self, Settings},
    finding::{Basis, Bound, Comparison, Findings, Statement},
    published, report,
    runs::Run,
};
use tantalum_report::plot::{Axis, Plot, Series, Unit};

/// Experiments that take no time to speak of, of three papers; statements, ranges, numbers and bars among them.
const QUICK: [&str; 5] = [
    "fl.fig3.disk_small_write",
    "fl.fig3.flash_over_disk_small_writes",
    "fl.fig7.two_streams",
    "ipl.table1.access_times",
    "fs.mtron.sequential",
];

/// Texts that would be tags, attributes or links without escaping.
const HOSTILE: &str = "\"><script src='http://example.org/x.js'></script>&amp;<b";

/// What an experiment could say at worst: everything long, many, hostile or not finite.
fn worst(id: &str) -> Run {
    let long = format!("{HOSTILE} {}", "a-word-without-end".repeat(20));
    let comparison = |number: u32| {
        let published = match number % 5 {
            0 => Bound::Value(1e12),
            1 => Bound::Range(-1.0, 123_456.789),
            2 => Bound::Max(0.000_001),
            3 => Bound::Min(1e300),
            _ => Bound::Unpublished,
        };
        let measured = if number.is_multiple_of(7) { f64::INFINITY } else { f64::from(number) };
        let basis = if number.is_multiple_of(2) { Basis::Fitted } else { Basis::Predicted };
        Comparison::new(format!("{number} {long}"), published, measured, HOSTILE, basis)
    };
    let names = |count: usize| (0..count).map(|number| format!("configuration {number} {HOSTILE}"));
    let lines = |count: usize| {
        let points = |number: usize| (0..9).map(|x| (f64::from(1 << x), (number * 50 + x as usize) as f64)).collect();
        names(count).enumerate().map(|(number, name)| Series::line(name, points(number))).collect()
    };
    let axis = || Axis::log(HOSTILE, Unit::Number);
    let bars = names(3).map(|name| Series::bars(name, [1.0, 2e9, f64::NAN, -5.0, 0.0]).published()).collect();
    let findings = Findings {
        configuration: vec![long.clone(); 2],
        comparisons: (0..50).map(comparison).collect(),
        statements: [true, false].map(|holds| Statement::new(&long, holds, &long)).into(),
        plots: vec![
            Plot::new(&long, axis(), axis(), lines(12)),
            Plot::new(HOSTILE, axis(), Axis::linear("", Unit::Nanoseconds), lines(2)),
            Plot::new("", Axis::names("", names(8)), Axis::linear(HOSTILE, Unit::Bytes), bars),
            Plot::new("nothing", axis(), axis(), Vec::new()),
        ],
    };
    Run { published: published::find(id).unwrap(), seed: u64::MAX, findings }
}

/// A page of quick experiments and of the worst that a file of results could hold.
fn page() -> &'static str {
    static PAGE: OnceLock<String> = OnceLock::new();
    PAGE.get_or_init(|| {
        let run = |id: &str| {
            let experiment = experiments::find(id).unwrap();
            let findings = experiment.run(Settings::default(), &|_| ()).unwrap();
            Run { published: experiment.published(), seed: Settings::default().seed, findings }
        };
        let mut runs = QUICK.map(run).to_vec();
        runs.push(worst("fl.fig13.striping_loss"));
        report::page(&runs).to_html()
    })
}

/// The tags of a page in order, each with its attributes; every text between them is checked.
fn tags(html: &str) -> Vec<(&str, Vec<(&str, &str)>)> {
    let mut tags = Vec::new();
    let mut rest = html.strip_prefix("<!DOCTYPE html>").expect("it says what it is");
    while let Some((text, after)) = rest.split_once('<') {
        check_text(text);
        // A style sheet is no text, and ends at its end tag.
        let (tag, after) = after.split_once('>').expect("a tag ends");
        rest = if tag == "style" { &after[after.find("</style>").expect("a style sheet ends")..] } else { after };
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        tags.push((name, attributes_of(attributes.trim_end_matches('/'))));
        if tag.ends_with('/') {
            tags.push(("/", Vec::new()));
        }
    }
    check_text(rest);
    tags
}

fn attributes_of(mut text: &str) -> Vec<(&str, &str)> {
    let mut attributes = Vec::new();
    while !text.trim().is_empty() {
        let (name, after) = text.split_once("=\"").expect("attributes have quoted values");
        let (value, after) = after.split_once('"').expect("quotes are closed");
        check_text(value);
        attributes.push((name.trim(), value));
        text = after;
    }
    attributes
}

/// No half entity, no tag, no control character.
fn check_text(text: &str) {
    assert!(!text.contains(['<', '>']) && !text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
    for entity in text.split('&').skip(1) {
        let name = entity.split(';').next().unwrap();
        assert!(["amp", "lt", "gt", "quot", "#39"].contains(&name), "&{name} in {text}");
    }
}

#[test]
fn the_page_is_well_formed() {
    let mut open: Vec<&str> = Vec::new();
    let mut ids = Vec::new();
    for (name, attributes) in tags(page()) {
        match name.strip_prefix('/') {
            Some("") => drop(open.pop()),
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None => open.push(name),
        }
        ids.extend(attributes.iter().filter(|attribute| attribute.0 == "id").map(|attribute| attribute.1));
    }
    assert_eq!(open, [""; 0], "what is opened is closed");
    let count = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), count, "each id once");
}

#[test]
fn the_page_needs_nothing_else() {
    let ids: Vec<String> = tags(page())
        .iter()
        .flat_map(|tag| &tag.1)
        .filter(|attribute| attribute.0 == "id")
        .map(|attribute| format!("#{}", attribute.1))
        .collect();
    for (name, attributes) in tags(page()) {
        assert!(!["script", "link", "iframe", "img", "image", "use", "object", "base", "a:"].contains(&name), "{name}");
        for (attribute, value) in attributes {
            assert!(
                !attribute.starts_with("on") && !["src", "srcset", "xlink:href"].contains(&attribute),
                "{attribute}"
            );
            let is_link = attribute == "href";
            assert!(!is_link || ids.iter().any(|id| id == value), "a link leads to a place in the page: {value}");
        }
    }
    // As text a hostile name may stand in the page; the style sheet has no excuse.
    let style = page().split_once("<style>").unwrap().1.split_once("</style>").unwrap().0;
    assert!(!style.contains("url(") && !style.contains("@import") && !style.contains("http"));
    assert!(page().contains("default-src 'none'"), "and a browser would refuse it");
}

#[test]
fn everything_published_is_named_and_what_ran_can_be_repeated() {
    for published in published::all() {
        assert!(page().contains(&format!(">{}<", published.id)), "{}", published.id);
    }
    for id in QUICK {
        assert!(page().contains(&format!("tantalum lab run {id} --seed 42")), "{id}");
        assert!(page().contains(&format!("href=\"#{id}\"")) && page().contains(&format!("id=\"{id}\"")), "{id}");
    }
    let summary = page().split_once("<article").unwrap().0;
    assert!(summary.contains(&format!("<b>6<small> of {}</small></b>", published::all().len())));
}

#[test]
fn the_same_runs_give_the_same_page() {
    let runs = [worst("fs.fig9.intel"), worst("fl.fig1.ideal_over_disk")];
    let mut other = runs.clone();
    other.reverse();
    assert_eq!(report::page(&runs).to_html(), report::page(&other).to_html(), "in the order of the papers");
}

#[test]
fn nothing_is_wider_than_the_screen() {
    let Some(chromium) = Chromium::find() else {
        println!("skipped: no Chromium here; install it, or name one in CHROMIUM, to see the report in a browser");
        return;
    };
    let directory = tempfile::tempdir().unwrap();
    for scheme in [Scheme::Light, Scheme::Dark] {
        for width in [1280, 390] {
            let seen = chromium.look(directory.path(), page(), width, scheme);
            assert_eq!((seen.width, seen.scheme), (width, scheme), "what was asked for");
            assert_eq!(seen.too_wide, [""; 0], "{width} {scheme:?}");
            assert_eq!(seen.screenshot_width, width, "{width} {scheme:?}");
        }
    }
    let [light, dark] =
        [Scheme::Light, Scheme::Dark].map(|scheme| chromium.look(directory.path(), page(), 390, scheme));
    assert_ne!(light.background, dark.background);
}
