//! Every number that the papers publish, and what it answers: the crate's data files, read.

use std::sync::OnceLock;

use serde::{
    Deserialize, Serialize,
    de::{
        DeserializeOwned, IntoDeserializer,
        value::{Error, StrDeserializer},
    },
};

use crate::finding::Bound;

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

/// The one with this name, which an experiment knows.
///
/// # Panics
/// If there is none: a test runs through all experiments.
pub(crate) fn of(id: &str) -> &'static Published {
    find(id).unwrap_or_else(|| panic!("{id} is not published"))
}

/// A text of a table as what an experiment takes it for.
///
/// # Panics
/// If it is nothing of this type: it would be measured as something else.
pub(crate) fn typed<T: DeserializeOwned>(text: &str) -> T {
    let deserializer: StrDeserializer<'_, Error> = text.into_deserializer();
    T::deserialize(deserializer).unwrap_or_else(|error| panic!("published.toml: {error}"))
}

/// The one with this name, published or a goal.
pub fn find(id: &str) -> Option<&'static Published> {
    all().iter().chain(goals()).find(|published| published.id == id)
}

impl Published {
    /// The paper that published it; for a goal, what stands for one.
    pub fn paper(&self) -> &'static Paper {
        let paper = papers().iter().find(|paper| self.id.split_once('.').is_some_and(|(of, _)| of == paper.id));
        paper.expect("a test finds the paper of everything that is published")
    }

    /// The published number, range or bound.
    ///
    /// # Panics
    /// If it is a table or a statement: an experiment knows what is published of it.
    pub fn bound(&self) -> Bound {
        match (self.kind, self.value, self.from, self.to) {
            (Kind::Value, Some(value), ..) => Bound::Value(value),
            (Kind::Max, Some(value), ..) => Bound::Max(value),
            (Kind::Min, Some(value), ..) => Bound::Min(value),
            (Kind::Range, _, Some(from), Some(to)) => Bound::Range(from, to),
            _ => panic!("{} has no single number", self.id),
        }
    }

    /// The same, but the number alone.
    ///
    /// # Panics
    /// As [`Published::bound`], and if it is a range.
    pub fn number(&self) -> f64 {
        self.value.unwrap_or_else(|| panic!("{} has no single number", self.id))
    }

    /// The rows of a table: what each is about, and its numbers.
    pub fn table(&'static self) -> Vec<(Vec<&'static str>, Vec<f64>)> {
        let text = |cell: &'static Cell| if let Cell::Text(text) = cell { Some(text.as_str()) } else { None };
        let number = |cell: &'static Cell| if let Cell::Number(number) = cell { Some(*number) } else { None };
        let row = |cells: &'static Vec<Cell>| {
            (cells.iter().filter_map(text).collect(), cells.iter().filter_map(number).collect())
        };
        self.rows.iter().map(row).collect()
    }

    /// The numbers of one column of a table, from the top.
    ///
    /// # Panics
    /// If there is no such column.
    pub fn column(&self, name: &str) -> Vec<f64> {
        let at = self.columns.iter().position(|column| column == name);
        let at = at.unwrap_or_else(|| panic!("{} has no column {name}", self.id));
        let number = |row: &Vec<Cell>| match row.get(at) {
            Some(Cell::Number(number)) => *number,
            _ => panic!("{}: the column {name} is not of numbers", self.id),
        };
        self.rows.iter().map(number).collect()
    }

    /// A number of a table: in the row of this text, or texts, and this column.
    ///
    /// # Panics
    /// If there is no such row or column.
    pub fn cell(&'static self, row: &[&str], column: &str) -> f64 {
        let at = self.table().iter().position(|(texts, _)| texts == row);
        self.column(column)[at.unwrap_or_else(|| panic!("{} has no row {row:?}", self.id))]
    }

    /// The place in the paper.
    pub fn section(&self) -> &str {
        self.place.split_once(", ").map_or(self.place.as_str(), |(_, section)| section)
    }

    /// What it answers.
    pub fn question(&self) -> &'static Question {
        let question = questions().iter().find(|question| question.id == self.id);
        question.expect("a test finds the question of everything that is published")
    }
}

/// A paper, as a whole.
///
/// ```
/// let paper = tantalum_lab::published::find("fl.fig3.disk_small_write").expect("it is published").paper();
/// assert_eq!(paper.name, "FlashLogging");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Paper {
    /// What the ids of its results begin with.
    pub id: String,
    /// The name that it goes by here.
    pub name: String,
    /// What of it this engine and these devices reproduce.
    pub reproduces: String,
    /// What they do not, and why.
    pub deviates: String,
}

/// All papers in their order, then the goals of this project.
fn papers() -> &'static [Paper] {
    #[derive(Deserialize)]
    struct File {
        paper: Vec<Paper>,
    }
    static ALL: OnceLock<Vec<Paper>> = OnceLock::new();
    ALL.get_or_init(|| {
        let text = include_str!("../data/papers.toml");
        toml::from_str::<File>(text).expect("a test reads the crate's own data file").paper
    })
}

/// What a published result answers.
///
/// ```
/// let disk = tantalum_lab::published::find("fl.fig3.disk_small_write").expect("published in FlashLogging");
/// assert_eq!(disk.question().title, "A small write to a disk");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Question {
    /// Of what was published.
    pub id: String,
    /// A headline.
    pub title: String,
    /// The question, in a sentence or two.
    pub asks: String,
}

fn questions() -> &'static [Question] {
    #[derive(Deserialize)]
    struct File {
        question: Vec<Question>,
    }
    static ALL: OnceLock<Vec<Question>> = OnceLock::new();
    ALL.get_or_init(|| {
        let text = include_str!("../data/questions.toml");
        toml::from_str::<File>(text).expect("a test reads the crate's own data file").question
    })
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
            assert!(
                !is.paper().reproduces.is_empty() && !is.section().ends_with(".txt") && !is.what.is_empty(),
                "{id}"
            );
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

    #[test]
    fn everything_published_answers_a_question_of_its_own() {
        let asked: Vec<&str> = questions().iter().map(|question| question.id.as_str()).collect();
        let published = all().iter().chain(goals());
        let published: Vec<&str> = published.map(|published| published.id.as_str()).collect();
        assert_eq!(asked, published, "in the same order");
        for question in questions() {
            assert!(!question.title.is_empty() && question.asks.ends_with(['?', '.']), "{question:?}");
            assert!(!question.title.contains(|digit: char| digit.is_ascii_digit()), "numbers are data: {question:?}");
        }
    }
}
