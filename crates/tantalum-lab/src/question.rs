//! What the papers asked, in a few words: the crate's second data file, read.

use std::sync::OnceLock;

use serde::Deserialize;

use crate::published::Published;

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

fn all() -> &'static [Question] {
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

impl Published {
    /// What it answers.
    pub fn question(&self) -> &'static Question {
        let question = all().iter().find(|question| question.id == self.id);
        question.expect("a test finds the question of everything that is published")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::published;

    #[test]
    fn everything_published_answers_a_question_of_its_own() {
        let asked: Vec<&str> = all().iter().map(|question| question.id.as_str()).collect();
        let published = published::all().iter().chain(published::goals());
        let published: Vec<&str> = published.map(|published| published.id.as_str()).collect();
        assert_eq!(asked, published, "in the same order");
        for question in all() {
            assert!(!question.title.is_empty() && question.asks.ends_with(['?', '.']), "{question:?}");
            assert!(!question.title.contains(|digit: char| digit.is_ascii_digit()), "numbers are data: {question:?}");
        }
    }
}
