//! What must hold after a power cut, whatever the interleaving was.
//!
//! Given what the database held when the round began, what every transaction did and saw, and what recovery found,
//! [`judge`] looks for one order of the writing transactions such that
//!
//! 1. every serializable transaction saw exactly what the ones before it in the order left behind (ranges included,
//!    so no phantoms), every snapshot what some moment of the order left, and no transaction overwrote a key that
//!    a snapshot-isolated transaction was about to write;
//! 2. a transaction acknowledged before another began comes before it;
//! 3. some beginning of the order that holds every acknowledged transaction leaves exactly the recovered contents.
//!
//! Rule 3 is durability and atomicity in one: acknowledged means there, unknown means whole or absent, and a
//! transaction survives only with all that precede it in the order. Where the commit's place in the log is known the
//! order is given; the few transactions cut off inside `commit` may stand anywhere, and are searched for.

mod followed;
mod order;
mod readers;
mod remaining;
mod sources;
mod state;

use std::{collections::BTreeMap, fmt};

use crate::{
    content::{Key, Version},
    history::{Fate, Transaction},
};

/// All rows of the database.
pub type Contents = BTreeMap<Key, Version>;

/// Which promise was broken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Rule {
    /// A value was seen that no transaction committed: a rolled back, intermediate, or invented one.
    NoSuchVersion,
    /// What was read fits no order of the transactions.
    Isolation,
    /// The recovered contents are those of no beginning of the order with all acknowledged transactions.
    Durability,
    /// The model gave up: too many orders were possible.
    Undecided,
}

/// A broken promise.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Which promise.
    pub rule: Rule,
    /// What was seen, and what was expected.
    pub detail: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = match self.rule {
            Rule::NoSuchVersion => "a value that was never committed",
            Rule::Isolation => "isolation is broken",
            Rule::Durability => "recovery is wrong",
            Rule::Undecided => "the model could not decide",
        };
        write!(f, "{rule}: {}", self.detail)
    }
}

/// What was found out on the way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Judgement {
    /// Transactions of unknown outcome that turned out to be there.
    pub survived: u64,
    /// Transactions of unknown outcome that turned out to be absent.
    pub lost: u64,
}

/// Checks one round; see the module's head.
///
/// # Errors
/// The promise that was broken.
pub fn judge(initial: &Contents, transactions: &[Transaction], recovered: &Contents) -> Result<Judgement, Violation> {
    sources::check(initial, transactions, recovered)?;
    let order = order::find(initial, transactions, recovered)?;
    let unknown = transactions.iter().filter(|t| t.fate == Fate::Unknown && !t.writes.is_empty()).count() as u64;
    let survivors = &order.writers[..order.survivors];
    let survived = survivors.iter().filter(|&&n| transactions[n].fate == Fate::Unknown).count() as u64;
    Ok(Judgement { survived, lost: unknown - survived })
}

/// A version for a message.
fn show(version: Option<&Version>) -> String {
    version.map_or_else(|| "nothing".to_owned(), Version::to_string)
}

#[cfg(test)]
mod tests;
