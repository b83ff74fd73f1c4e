//! What must hold of a workload's database: conditions, where they were checked, and where they are broken.

use std::fmt::{self, Display};

use serde::Serialize;

/// Broken places of a condition that are described; the others are only counted.
const DESCRIBED: usize = 5;

/// The result of one condition.
#[derive(Clone, Debug, Serialize)]
pub struct Condition {
    /// From 1; of TPC-C as in clause 3.3.2.
    pub number: usize,
    /// What it demands.
    pub demands: &'static str,
    /// Places where it was checked.
    pub checked: u64,
    /// Places where it does not hold.
    pub broken: u64,
    /// The first of these, in words.
    pub examples: Vec<String>,
}

impl Condition {
    /// Whether it holds everywhere.
    pub fn is_ok(&self) -> bool {
        self.broken == 0
    }
}

impl Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verdict = if self.is_ok() { "ok" } else { "BROKEN" };
        write!(f, "{verdict:6} {:2}  {} ({} checked)", self.number, self.demands, self.checked)?;
        if !self.is_ok() {
            write!(f, ": broken in {} places", self.broken)?;
            self.examples.iter().try_for_each(|example| write!(f, "\n           {example}"))?;
        }
        Ok(())
    }
}

/// The conditions while they are being checked.
pub(crate) struct Verdicts(Vec<Condition>);

impl Verdicts {
    pub(crate) fn new(demands: impl IntoIterator<Item = &'static str>) -> Self {
        let condition = |(demands, number)| Condition { number, demands, checked: 0, broken: 0, examples: Vec::new() };
        Self(demands.into_iter().zip(1..).map(condition).collect())
    }

    pub(crate) fn check(&mut self, number: usize, holds: bool, example: impl FnOnce() -> String) {
        let condition = &mut self.0[number - 1];
        condition.checked += 1;
        if !holds {
            condition.broken += 1;
            if condition.examples.len() < DESCRIBED {
                condition.examples.push(example());
            }
        }
    }

    pub(crate) fn equal(
        &mut self,
        number: usize,
        place: impl FnOnce() -> String,
        left: (&str, i64),
        right: (&str, i64),
    ) {
        let example = || format!("{}: {} = {}, {} = {}", place(), left.0, left.1, right.0, right.1);
        self.check(number, left.1 == right.1, example);
    }

    pub(crate) fn into_conditions(self) -> Vec<Condition> {
        self.0
    }
}
