//! Every number that the papers publish: the crate's data file, read.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// One published result.
///
/// ```
/// let disk = tantalum_lab::published::find("fl.fig3.disk_small_write").expect("published in FlashLogging");
/// assert_eq!((disk.value, disk.unit.as_deref()), (Some(6.0), Some("ms")));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Published {
    /// Its name here: the paper, the figure or table, what.
    pub id: String,
    /// The paper's file and the place in it.
    #[serde(rename = "where")]
    pub place: String,
    /// What was measured.
    pub what: String,
    /// How it is published.
    pub kind: Kind,
    /// Of the numbers, except in a table, whose columns name theirs.
    pub unit: Option<String>,
    /// A value, a maximum or a minimum.
    pub value: Option<f64>,
    /// A range's begin.
    pub from: Option<f64>,
    /// A range's end.
    pub to: Option<f64>,
    /// A table's header.
    #[serde(default)]
    pub columns: Vec<String>,
    /// A table's rows.
    #[serde(default)]
    pub rows: Vec<Vec<Cell>>,
}

/// How a result is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// A single number.
    Value,
    /// From one number to another.
    Range,
    /// "Up to" a number.
    Max,
    /// "At least" a number.
    Min,
    /// Rows and columns of numbers.
    Table,
    /// A statement only: which is better, rises, falls.
    Shape,
}

/// A place in a table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// What a row is about.
    Text(String),
}

/// All of them, in the order of the papers.
pub fn all() -> &'static [Published] {
    static ALL: OnceLock<Vec<Published>> = OnceLock::new();
    ALL.get_or_init(|| read(include_str!("../data/published.toml")))
}

/// What no paper publishes and is measured all the same: goals of this project, on today's hardware.
pub fn goals() -> &'static [Published] {
    static GOALS: OnceLock<Vec<Published>> = OnceLock::new();
    GOALS.get_or_init(|| read(include_str!("../data/goals.toml")))
}

fn read(text: &str) -> Vec<Published> {
    #[derive(Deserialize)]
    struct File {
        published: Vec<Published>,
    }
    toml::from_str::<File>(text).expect("a test reads the crate's own data files").published
}

/// The one with this name, published or a goal.
pub fn find(id: &str) -> Option<&'static Published> {
    all().iter().chain(goals()).find(|published| published.id == id)
}

impl Published {
    /// The paper, by the name that it goes by here; or that there is none.
    pub fn paper(&self) -> &'static str {
        match self.id.split('.').next() {
            Some("fl") => "FlashLogging",
            Some("ds") => "DuraSSD",
            Some("ipl") => "In-Page Logging",
            Some("fs") => "File systems on SSD",
            Some("now") => "Today's hardware",
            _ => "unknown",
        }
    }

    /// The place in the paper.
    pub fn section(&self) -> &str {
        self.place.split_once(", ").map_or(self.place.as_str(), |(_, section)| section)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_file_is_well_formed() {
        let ids: BTreeSet<_> = all().iter().map(|published| &published.id).collect();
        assert_eq!((ids.len(), all().len()), (54, 54), "each id once");
        assert!(goals().iter().all(|goal| goal.id.starts_with("now.") && !ids.contains(&goal.id)));
        for published in all().iter().chain(goals()) {
            let (id, is) = (&published.id, published);
            assert!(is.paper() != "unknown" && !is.section().ends_with(".txt") && !is.what.is_empty(), "{id}");
            let has = (is.value.is_some(), is.from.is_some() && is.to.is_some(), !is.columns.is_empty());
            let expected = match is.kind {
                Kind::Value | Kind::Max | Kind::Min => (true, false, false),
                Kind::Range => (false, true, false),
                Kind::Table => (false, false, true),
                Kind::Shape => (false, false, false),
            };
            assert_eq!(has, expected, "{id}");
            assert!(is.rows.iter().all(|row| row.len() == is.columns.len()), "{id}");
            assert_eq!(is.unit.is_some(), !matches!(is.kind, Kind::Table | Kind::Shape), "{id}");
        }
    }

    #[test]
    fn nothing_published_was_altered() {
        let checksum = crc32c::crc32c(include_bytes!("../data/published.toml"));
        assert_eq!(checksum, 0xa01f_fbdc, "a number may change only because the paper says so, never to fit a result");
    }
}
