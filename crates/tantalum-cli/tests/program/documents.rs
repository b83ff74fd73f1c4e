//! Every link and anchor of the documents is alive, the book has every page, and what sources and `--help` name is there.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Component, Path, PathBuf},
};

#[test]
fn links_of_documents_are_alive() {
    let root = root();
    let documents = files_of(&root, &["md"]);
    assert!(documents.len() > 20, "{documents:?}");
    let mut broken = Vec::new();
    for document in &documents {
        let text = with_includes(document);
        for target in links(&text) {
            if let Err(what) = check_link(document, target) {
                broken.push(format!("{}: {target}: {what}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

#[test]
fn the_book_has_every_page_once() {
    let docs = root().join("docs");
    let summary = docs.join("SUMMARY.md");
    let text = fs::read_to_string(&summary).unwrap();
    let listed: Vec<PathBuf> = links(&text).into_iter().map(|target| resolve(&summary, target)).collect();
    let pages: BTreeSet<PathBuf> = files_of(&docs, &["md"]).into_iter().filter(|page| *page != summary).collect();
    for page in &pages {
        let times = listed.iter().filter(|entry| *entry == page).count();
        assert_eq!(times, 1, "{} is in SUMMARY.md {times} times", page.display());
    }
    for entry in listed {
        assert!(pages.contains(&entry), "SUMMARY.md names {}, which is not there", entry.display());
    }
}

#[test]
fn documents_that_sources_name_are_there() {
    let root = root();
    let mut broken = Vec::new();
    for file in files_of(&root, &["md", "rs", "toml", "patch", "yml", ""]) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        for (name, anchor) in named_documents(&text) {
            let path = root.join(name);
            if !path.is_file() || anchor.is_some_and(|anchor| !anchors(&with_includes(&path)).contains(anchor)) {
                let anchor = anchor.map_or(String::new(), |anchor| format!("#{anchor}"));
                broken.push(format!("{} names {name}{anchor}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "{}", broken.join("\n"));
}

/// Settings that only comparisons need are left out.
#[test]
fn the_page_on_tuning_has_every_setting_as_it_is() {
    let text = fs::read_to_string(root().join("docs/use/tuning.md")).unwrap();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').map(str::trim).collect())
        .collect();
    for setting in tantalum::SETTINGS.iter().filter(|setting| !setting.help.contains("For comparisons")) {
        let name = format!("`{}`", setting.name);
        let row = rows.iter().find(|row| row[1].split(", ").any(|cell| cell == name));
        let row = row.unwrap_or_else(|| panic!("docs/use/tuning.md lacks {name}"));
        assert_eq!(row[2], setting.default, "the default of {name}");
        assert_eq!(row[3].contains("**fixed**"), setting.is_fixed, "whether {name} is fixed");
    }
    for row in rows.iter().filter(|row| !row[1].ends_with("(builder only)")) {
        for name in row[1].split(", ").map(|cell| cell.trim_matches('`')) {
            assert!(tantalum::SETTINGS.iter().any(|setting| setting.name == name), "{name} is no setting");
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The files below `directory` with one of these extensions, without build results and version control.
fn files_of(directory: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy();
        if path.is_dir() {
            if !["target", ".git", "book", "corpus", "artifacts"].contains(&&*name) {
                found.extend(files_of(&path, extensions));
            }
        } else if extensions.contains(&path.extension().unwrap_or_default().to_str().unwrap()) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// The text of a document, with `{{#include FILE}}` or `{{#include FILE:ANCHOR}}` replaced as mdBook does.
fn with_includes(document: &Path) -> String {
    let mut text = String::new();
    for line in fs::read_to_string(document).unwrap().lines() {
        match line.strip_prefix("{{#include ").and_then(|rest| rest.strip_suffix("}}")) {
            None => text.push_str(line),
            Some(what) => {
                let (file, anchor) = what.split_once(':').map_or((what, None), |(file, anchor)| (file, Some(anchor)));
                let included = with_includes(&resolve(document, file));
                text.push_str(&anchor.map_or(included.clone(), |anchor| anchored(&included, anchor)));
            }
        }
        text.push('\n');
    }
    text
}

fn anchored(text: &str, anchor: &str) -> String {
    let begin = text.split_once(&format!("ANCHOR: {anchor} ")).unwrap_or_else(|| panic!("no anchor {anchor}")).1;
    let end = format!("<!-- ANCHOR_END: {anchor} ");
    let part = begin.split_once(&end).unwrap_or_else(|| panic!("the anchor {anchor} does not end")).0;
    part.split_once('\n').unwrap().1.to_owned()
}

/// The path that a relative link in `document` means, without an anchor.
fn resolve(document: &Path, target: &str) -> PathBuf {
    let target = target.split_once('#').map_or(target, |(path, _)| path);
    if target.is_empty() {
        return document.to_owned();
    }
    let mut path = document.parent().unwrap().to_owned();
    for component in Path::new(target).components() {
        match component {
            Component::ParentDir => assert!(path.pop()),
            Component::CurDir => {}
            component => path.push(component),
        }
    }
    path
}

fn check_link(document: &Path, target: &str) -> Result<(), &'static str> {
    if target.contains("://") {
        return Ok(());
    }
    let path = resolve(document, target);
    let docs = root().join("docs");
    let bounds = if document.starts_with(&docs) { docs } else { root() };
    if !path.starts_with(bounds) {
        return Err("leads out of the book, or out of the repository");
    }
    if !path.exists() {
        return Err("is not there");
    }
    match target.split_once('#') {
        Some((_, anchor)) if !anchors(&with_includes(&path)).contains(anchor) => Err("there is no such heading"),
        _ => Ok(()),
    }
}

/// The lines of a document outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The targets of all links: `[text](target)`, `![text](target)` and `[name]: target`. What only looks like one in inline code
/// is left out. `[name]` or `[text][name]` without a definition counts as a link to `name`, which is not there.
fn links(text: &str) -> Vec<&str> {
    let mut targets = Vec::new();
    let mut defined = BTreeSet::new();
    let mut used = BTreeSet::new();
    for line in prose(text) {
        if let Some((name, target)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]: ")) {
            defined.insert(name);
            targets.push(target.trim());
            continue;
        }
        for part in without_code(line) {
            for (at, _) in part.match_indices("](") {
                if let Some((target, _)) = part[at + 2..].split_once(')') {
                    targets.push(target);
                }
            }
            for (at, _) in part.match_indices(']') {
                let is_other = part[at + 1..].starts_with(['(', '[']);
                if !is_other && let Some((_, name)) = part[..at].rsplit_once('[') {
                    used.insert(name);
                }
            }
        }
    }
    targets.extend(used.difference(&defined));
    targets
}

/// The parts of a line that are no inline code, which stands between two backticks. A link whose text is code stays one: `](`
/// follows its code.
fn without_code(line: &str) -> impl Iterator<Item = &str> {
    let is_open = line.matches('`').count() % 2 == 1;
    line.split('`').step_by(if is_open { 1 } else { 2 })
}

/// The anchors of a document's headings, as GitHub and mdBook make them.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let mut anchors = BTreeSet::new();
    for line in prose(text) {
        let title = line.trim_start_matches('#');
        if title.len() == line.len() || !title.starts_with(' ') {
            continue;
        }
        let slug: String = title
            .trim()
            .to_lowercase()
            .chars()
            .filter(|c| c.is_alphanumeric() || " -_".contains(*c))
            .map(|c| if c == ' ' { '-' } else { c })
            .collect();
        let count = counts.entry(slug.clone()).or_default();
        anchors.insert(if *count == 0 { slug } else { format!("{slug}-{count}") });
        *count += 1;
    }
    anchors
}

/// Every path of a document below `docs` that a text names, with its anchor.
fn named_documents(text: &str) -> Vec<(&str, Option<&str>)> {
    let is_of_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("docs/") {
        let rest = &text[at..];
        let end = rest.find(|c| !is_of_path(c)).unwrap_or(rest.len());
        let Some(length) = rest[..end].find(".md") else { continue };
        let (name, rest) = rest.split_at(length + ".md".len());
        let anchor = rest.strip_prefix('#').map(|rest| {
            let end = rest.find(|c| !is_of_path(c) || c == '.').unwrap_or(rest.len());
            &rest[..end]
        });
        found.push((name, anchor));
    }
    found
}

#[test]
fn anchors_are_those_of_github() {
    let found = anchors("# Db stat\n## `log inspect`, briefly\n```\n# no\n```\n## Db stat\n#no\n");
    assert_eq!(found, ["db-stat", "db-stat-1", "log-inspect-briefly"].map(String::from).into());
}

#[test]
fn links_are_found_where_they_are() {
    let text = "[a](b.md#c) `[x](y)` [`code`](d) ![p](e.svg)\n```\n[no](no)\n```\n[f][g] text\n[g]: h.md\n";
    assert_eq!(links(text), ["b.md#c", "d", "e.svg", "h.md"]);
    // In two pieces, since this file is searched too.
    let named = ["see docs", "/a/b.md#c-d. And docs", "/e.md"].concat();
    let found: Vec<_> = named_documents(&named).into_iter().map(|(name, anchor)| (&name[4..], anchor)).collect();
    assert_eq!(found, [("/a/b.md", Some("c-d")), ("/e.md", None)]);
}
