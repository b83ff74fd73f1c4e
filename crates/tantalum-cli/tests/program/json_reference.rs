//! `docs/use/json.md` is generated: every field of the JSON outputs, as doc comments explain them.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

/// A command, and the heading, name and file of the struct that it writes.
const OUTPUTS: [(&str, &str, &str, &str); 33] = [
    ("`db stat`", "Stats", "Stats", "tantalum/src/stats.rs"),
    ("`db check`", "CheckReport", "CheckReport", "tantalum/src/check.rs"),
    ("`db tables`, a list", "Size of a table", "TableSize", "tantalum/src/control/rows.rs"),
    ("`db scan`, a line each", "Row", "Row", "tantalum-cli/src/db/rows.rs"),
    ("`db dump --format jsonl`, a line each", "ExportedRow", "ExportedRow", "tantalum-cli/src/db/export.rs"),
    ("`db changes`, a line each", "ChangeLine", "ChangeLine", "tantalum-cli/src/db/changes.rs"),
    ("`db feed list`, a list", "FeedEntry", "FeedEntry", "tantalum-cli/src/db/changes.rs"),
    ("`db inspect --unit`", "UnitInspection", "UnitInspection", "tantalum-store/src/inspection.rs"),
    ("`db inspect --segment`", "SegmentInspection", "SegmentInspection", "tantalum-store/src/inspection.rs"),
    ("`db compact`", "CompactReport", "CompactReport", "tantalum/src/db/compact.rs"),
    ("`db backup --base`", "BaseBackup", "BaseBackup", "tantalum/src/restore/base_backup.rs"),
    ("`db restore`", "Restored", "Restored", "tantalum/src/restore/mod.rs"),
    ("`top`, a line at each interval", "Reading", "Reading", "tantalum-cli/src/top/reading.rs"),
    (
        "`log add-device`, `remove-device`, `replace-device`, a list",
        "LogDeviceStats",
        "LogDeviceStats",
        "tantalum-log/src/stats.rs",
    ),
    ("`log rebuild`", "RecoveryStats", "RecoveryStats", "tantalum/src/recovery/redo.rs"),
    ("`log inspect`", "Inspection", "Inspection", "tantalum-log/src/inspect.rs"),
    ("`log verify`", "Verification", "Verification", "tantalum-log/src/inspect.rs"),
    ("`log archive list`", "ArchiveInspection", "ArchiveInspection", "tantalum-log/src/archive/inspect.rs"),
    ("`log archive verify`", "ArchiveVerification", "ArchiveVerification", "tantalum-log/src/archive/inspect.rs"),
    ("`log archive prune`", "PrunedArchive", "PrunedArchive", "tantalum-log/src/archive/retention.rs"),
    ("`device show`", "Device", "Found", "tantalum-cli/src/device/show.rs"),
    ("`device show PROFILE`", "Profile", "Shown", "tantalum-cli/src/device/emulated.rs"),
    ("`device bench`", "Device benchmark", "Report", "tantalum-cli/src/device/bench.rs"),
    ("`probe`", "Probe", "Report", "tantalum-cli/src/probe/mod.rs"),
    ("`probe powercut-check`", "Power-cut check", "Outcome", "tantalum-lab/src/probe/power_cut/mod.rs"),
    ("`lab run`", "Lab run", "File", "tantalum-lab/src/runs.rs"),
    ("`lab trace`, a list in `traces`", "Trace of pages", "Analysis", "tantalum-lab/src/trace/pages.rs"),
    ("`lab io-trace`, a list in `traces`", "Trace of requests", "Analysis", "tantalum-lab/src/trace/requests.rs"),
    ("`bench`", "Benchmark", "Outcome", "tantalum-cli/src/bench/benchmark.rs"),
    ("`bench tpcc`, `linkbench`, `ycsb` besides", "Run", "Run", "tantalum-cli/src/bench/benchmark.rs"),
    ("`bench kv` besides", "Key-value results", "Results", "tantalum-cli/src/bench/kv.rs"),
    ("`bench ycsb --store append-only`", "Append-only tree", "Outcome", "tantalum-cli/src/bench/documents.rs"),
    ("`crash`", "Crash search", "Summary", "tantalum-cli/src/crash/mod.rs"),
];

const HEAD: &str = "\
# JSON output

Fields may be added; none is renamed or removed without a new major version of the program, or a higher `format` where an output
has one. A field's name says its unit: `bytes`, `us`, `ns`, `seconds`; an `lsn` is a position in the log, a `share` a part of 1.

This page is generated from doc comments: `WRITE_DOCS=1 cargo test -p tantalum-cli --test program json_reference`.

| command | fields |
|---|---|
";

/// A struct or enum that is serialized.
struct Declared {
    file: PathBuf,
    is_enum: bool,
    doc: String,
    /// What stands between its braces.
    lines: Vec<String>,
}

struct Field {
    name: String,
    of: String,
    doc: String,
    is_flat: bool,
}

/// A struct in the page.
#[derive(Clone)]
struct Section {
    heading: String,
    name: String,
    file: PathBuf,
}

struct Reference {
    declared: BTreeMap<String, Vec<Declared>>,
    sections: Vec<Section>,
}

#[test]
fn the_page_on_json_is_what_the_doc_comments_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let generated = Reference::of(&root.join("crates")).page();
    let page = root.join("docs/use/json.md");
    if std::env::var_os("WRITE_DOCS").is_some() {
        fs::write(&page, &generated).unwrap();
    }
    let is_same = fs::read_to_string(&page).unwrap() == generated;
    assert!(is_same, "docs/use/json.md is old: WRITE_DOCS=1 cargo test -p tantalum-cli --test program json_reference");
}

impl Reference {
    fn of(crates: &Path) -> Self {
        let section = |(_, heading, name, file): (&str, &str, &str, &str)| Section {
            heading: heading.into(),
            name: name.into(),
            file: file.into(),
        };
        let mut reference = Self { declared: BTreeMap::new(), sections: OUTPUTS.map(section).into() };
        let mut directories = vec![crates.to_owned()];
        while let Some(directory) = directories.pop() {
            for entry in fs::read_dir(directory).unwrap() {
                let path = entry.unwrap().path();
                match path.extension() {
                    None if path.is_dir() => directories.push(path),
                    Some(extension) if extension == "rs" => reference.read(&path, path.strip_prefix(crates).unwrap()),
                    _ => {}
                }
            }
        }
        reference
    }

    /// Notes what a file declares.
    fn read(&mut self, path: &Path, file: &Path) {
        let text = fs::read_to_string(path).unwrap();
        let (mut doc, mut attributes, mut lines) = (Vec::new(), String::new(), text.lines());
        while let Some(line) = lines.next() {
            let code = line.trim_start();
            let visible = code.split_once(") ").filter(|_| code.starts_with("pub(")).map_or(code, |(_, code)| code);
            let mut words = visible.trim_start_matches("pub ").split([' ', '<']);
            let kind = words.next().filter(|kind| ["struct", "enum"].contains(kind) && code.ends_with('{'));
            if let Some(text) = code.strip_prefix("///") {
                doc.push(text.trim());
            } else if code.starts_with("#[") {
                attributes += code;
            } else {
                if let Some(kind) = kind.filter(|_| attributes.contains("Serialize")) {
                    let end = format!("{}}}", &line[..line.len() - code.len()]);
                    let lines = lines.by_ref().take_while(|line| *line != end).map(|line| line.trim().to_owned());
                    let lines: Vec<String> = lines.collect();
                    // What a macro makes is not declared where the macro is.
                    if !lines.iter().any(|line| line.contains('$')) {
                        let (is_enum, doc) = (kind == "enum", first_paragraph(&doc));
                        let declared = Declared { file: file.into(), is_enum, doc, lines };
                        self.declared.entry(words.next().unwrap().to_owned()).or_default().push(declared);
                    }
                }
                (doc, attributes) = (Vec::new(), String::new());
            }
        }
    }

    /// What a path stands for in `file`: declared there, or once in the crate that it names or that is the file's, or once
    /// anywhere.
    fn resolve(&self, path: &str, file: &Path) -> Option<&Declared> {
        let named =
            path.split("::").next().filter(|first| first.starts_with("tantalum")).map(|first| first.replace('_', "-"));
        let (file, all) = (named.as_deref().map_or(file, Path::new), self.declared.get(last(path))?);
        let here = all.iter().find(|declared| declared.file == file);
        let mut same_crate = all.iter().filter(|declared| declared.file.iter().next() == file.iter().next());
        let in_crate = same_crate.next().filter(|_| same_crate.next().is_none());
        here.or(in_crate).or_else(|| all.first().filter(|_| all.len() == 1))
    }

    fn page(mut self) -> String {
        let mut page = HEAD.to_owned();
        for (command, _, name, file) in OUTPUTS {
            page += &format!("| {command} | {} |\n", self.link(name, Path::new(file)));
        }
        let mut at = 0;
        while let Some(Section { heading, name, file }) = self.sections.get(at).cloned() {
            let declared = self.resolve(&name, &file).unwrap_or_else(|| panic!("{name} is not in {}", file.display()));
            page += &format!("\n## {heading}\n\n{}\n\n| field | meaning |\n|---|---|\n", declared.doc);
            page += &self.rows(&name, &file);
            at += 1;
        }
        page
    }

    /// A link to the section on a struct, which is added if there is none.
    fn link(&mut self, name: &str, file: &Path) -> String {
        let known = self.sections.iter().find(|section| section.name == name && section.file == file);
        let heading = known.map(|section| section.heading.clone()).unwrap_or_else(|| {
            let stem = file.file_stem().filter(|stem| *stem != "mod").or_else(|| file.parent()?.file_name()).unwrap();
            let is_taken = self.sections.iter().any(|section| section.heading == name);
            let heading = if is_taken { format!("{name} of {}", stem.display()) } else { name.to_owned() };
            self.sections.push(Section { heading: heading.clone(), name: name.to_owned(), file: file.into() });
            heading
        });
        format!("[{heading}](#{})", heading.to_lowercase().replace(' ', "-"))
    }

    /// The rows of a struct's fields.
    fn rows(&mut self, name: &str, file: &Path) -> String {
        let mut rows = String::new();
        for Field { name, of, doc, is_flat } in self.resolve(name, file).map(fields).unwrap_or_default() {
            let (inner, is_list) = inner(&of);
            let inner_file = self.resolve(inner, file).map(|declared| declared.file.clone());
            if is_flat && let Some(file) = inner_file {
                rows += &self.rows(last(inner), &file);
                continue;
            }
            assert!(!doc.is_empty(), "{name} of {} has no doc comment", file.display());
            if is_flat {
                rows += &format!("| ... | {doc} |\n");
                continue;
            }
            let values = self.resolve(inner, file).filter(|declared| declared.is_enum).map(values);
            let more = match (values, inner_file) {
                (Some(values), _) => values,
                (None, Some(file)) => self.link(last(inner), &file) + if is_list { ", a list" } else { "" },
                (None, None) => String::new(),
            };
            rows += &format!("| `{name}` | {} |\n", format!("{doc} {more}").trim());
        }
        rows
    }
}

/// The type in options, lists and references, and whether it is a list.
fn inner(of: &str) -> (&str, bool) {
    let mut of = of.trim_start_matches('&').trim_start_matches("'a ");
    let mut is_list = false;
    loop {
        is_list |= of.starts_with("Vec<") || of.starts_with('[');
        let element = of.strip_prefix('[').and_then(|of| of.trim_end_matches(']').split(';').next());
        let wrapped = ["Option<", "Vec<", "Box<"].iter().find_map(|open| of.strip_prefix(open)?.strip_suffix('>'));
        let Some(inside) = wrapped.or(element) else { break };
        of = inside;
    }
    (of.split('<').next().unwrap(), is_list)
}

fn last(path: &str) -> &str {
    path.rsplit("::").next().unwrap()
}

/// The serialized fields of a struct, also of one that `statistics!` declares.
fn fields(declared: &Declared) -> Vec<Field> {
    let (mut found, mut doc, mut attributes) = (Vec::new(), Vec::new(), String::new());
    for line in &declared.lines {
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if line.starts_with("#[") {
            attributes += line;
        } else if let Some(field) = line.strip_suffix(',') {
            let field = field.strip_prefix("pub ").unwrap_or(field);
            let (name, of) = field.split_once(": ").unwrap_or((field, "u64"));
            let renamed = attributes.split_once("rename = \"").and_then(|(_, rest)| rest.split('"').next());
            if !attributes.contains("serde(skip)") {
                let (name, of) = (renamed.unwrap_or(name).to_owned(), of.to_owned());
                found.push(Field { name, of, doc: first_paragraph(&doc), is_flat: attributes.contains("flatten") });
            }
            (doc, attributes) = (Vec::new(), String::new());
        }
    }
    found
}

/// The values of an enum, as they are serialized; nothing of one whose variants have contents.
fn values(declared: &Declared) -> String {
    let code = declared.lines.iter().filter(|line| !line.starts_with(['/', '#']));
    let names: Option<Vec<String>> = code.map(|line| line.strip_suffix(',').map(kebab)).collect();
    names
        .filter(|names| names.iter().all(|name| !name.contains([':', '('])))
        .map_or_else(String::new, |names| format!("`{}`.", names.join("`, `")))
}

fn kebab(name: &str) -> String {
    let parts = name.chars().map(|c| if c.is_uppercase() { format!("-{}", c.to_lowercase()) } else { c.to_string() });
    parts.collect::<String>().trim_start_matches('-').to_owned()
}

/// The first paragraph of a doc comment, with the names of linked items.
fn first_paragraph(doc: &[&str]) -> String {
    let lines: Vec<&str> = doc.iter().copied().take_while(|line| !line.is_empty()).collect();
    let mut text = lines.join(" ").replace('|', "\\|");
    while let Some(at) = text.find("](") {
        let end = text[at..].find(')').map_or(text.len(), |end| at + end + 1);
        text.replace_range(at..end, "]");
    }
    text.replace("[`", "`").replace("`]", "`")
}
