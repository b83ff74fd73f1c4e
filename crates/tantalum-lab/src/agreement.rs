//! How well what was found agrees with what was published: counted the same way everywhere.

use std::ops::AddAssign;

use crate::finding::{Basis, Bound, Comparison, Findings};

/// How far a number is from the published one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agreement {
    /// Not more than 10 %, or within a published range or bound.
    Within10,
    /// Not more than 25 %.
    Within25,
    /// More.
    Beyond,
}

/// Numbers by how far off they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    /// Of [`Agreement::Within10`].
    pub within_10: usize,
    /// Of [`Agreement::Within25`].
    pub within_25: usize,
    /// Of [`Agreement::Beyond`].
    pub beyond: usize,
}

/// What came of the numbers and statements of one result, or of several.
///
/// ```
/// use tantalum_lab::{agreement::{Agreement, Tally}, finding::{Basis, Bound, Comparison, Findings}};
///
/// let rate = Comparison::new("durassd", Bound::Value(225.0), 248.0, "IOPS", Basis::Predicted);
/// let tally = Tally::of(&Findings { comparisons: vec![rate], ..Findings::default() });
/// assert_eq!((tally.numbers(), tally.worst()), (1, Some(Agreement::Within25)));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tally {
    /// Single numbers that parameters were chosen by.
    pub fitted_values: Count,
    /// Single numbers that none was chosen by.
    pub predicted_values: Count,
    /// Ranges and bounds that parameters were chosen by.
    pub fitted_bounds: Count,
    /// Ranges and bounds that none was chosen by.
    pub predicted_bounds: Count,
    /// Statements that hold.
    pub holding: usize,
    /// All statements.
    pub statements: usize,
}

impl Comparison {
    /// How far the number is off; `None` where none is published.
    pub fn agreement(&self) -> Option<Agreement> {
        // As much more as floating point may add to a number that is on the edge.
        let off = self.deviation()?.abs() - 1e-9;
        Some(match off {
            _ if off <= 0.1 => Agreement::Within10,
            _ if off <= 0.25 => Agreement::Within25,
            _ => Agreement::Beyond,
        })
    }
}

impl Count {
    /// All of them.
    pub fn all(&self) -> usize {
        self.within_10 + self.within_25 + self.beyond
    }

    fn add(&mut self, agreement: Agreement) {
        *match agreement {
            Agreement::Within10 => &mut self.within_10,
            Agreement::Within25 => &mut self.within_25,
            Agreement::Beyond => &mut self.beyond,
        } += 1;
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.within_10 += other.within_10;
        self.within_25 += other.within_25;
        self.beyond += other.beyond;
    }
}

impl Tally {
    /// Of one result.
    pub fn of(findings: &Findings) -> Self {
        let mut tally = Self::default();
        for comparison in &findings.comparisons {
            let Some(agreement) = comparison.agreement() else { continue };
            let count = match (comparison.basis, comparison.published) {
                (Basis::Fitted, Bound::Value(_)) => &mut tally.fitted_values,
                (Basis::Fitted, _) => &mut tally.fitted_bounds,
                (Basis::Predicted, Bound::Value(_)) => &mut tally.predicted_values,
                (Basis::Predicted, _) => &mut tally.predicted_bounds,
            };
            count.add(agreement);
        }
        tally.statements = findings.statements.len();
        tally.holding = findings.statements.iter().filter(|statement| statement.holds).count();
        tally
    }

    /// All numbers that have a published one beside them, by how far off they are.
    pub fn count(&self) -> Count {
        let mut count = self.fitted_values;
        [self.predicted_values, self.fitted_bounds, self.predicted_bounds].into_iter().for_each(|more| count += more);
        count
    }

    /// How many numbers have a published one beside them.
    pub fn numbers(&self) -> usize {
        self.count().all()
    }

    /// Numbers that no parameter was chosen by.
    pub fn predicted(&self) -> Count {
        let mut count = self.predicted_values;
        count += self.predicted_bounds;
        count
    }

    /// How many of these parameters were chosen by.
    pub fn fitted(&self) -> usize {
        self.fitted_values.all() + self.fitted_bounds.all()
    }

    /// The worst of what was found, a statement that does not hold being as bad as a number can be. `None` if there is
    /// nothing to judge.
    pub fn worst(&self) -> Option<Agreement> {
        let count = self.count();
        match () {
            () if count.beyond > 0 || self.holding < self.statements => Some(Agreement::Beyond),
            () if count.within_25 > 0 => Some(Agreement::Within25),
            () if count.within_10 > 0 || self.statements > 0 => Some(Agreement::Within10),
            () => None,
        }
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.fitted_values += other.fitted_values;
        self.predicted_values += other.predicted_values;
        self.fitted_bounds += other.fitted_bounds;
        self.predicted_bounds += other.predicted_bounds;
        self.holding += other.holding;
        self.statements += other.statements;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Statement;

    fn number(published: Bound, measured: f64, basis: Basis) -> Comparison {
        Comparison::new("", published, measured, "", basis)
    }

    #[test]
    fn edges_belong_to_the_better_side() {
        let of = |measured| number(Bound::Value(10.0), measured, Basis::Predicted).agreement();
        for (measured, expected) in [
            (11.0, Agreement::Within10),
            (9.0, Agreement::Within10),
            (11.1, Agreement::Within25),
            (7.5, Agreement::Within25),
            (12.6, Agreement::Beyond),
            (f64::INFINITY, Agreement::Beyond),
            (f64::NAN, Agreement::Beyond),
        ] {
            assert_eq!(of(measured), Some(expected), "{measured}");
        }
        assert_eq!(number(Bound::Max(10.0), 1.0, Basis::Fitted).agreement(), Some(Agreement::Within10));
        assert_eq!(number(Bound::Unpublished, 1.0, Basis::Fitted).agreement(), None);
    }

    #[test]
    fn each_number_is_counted_once_where_it_belongs() {
        let mut findings = Findings {
            comparisons: vec![
                number(Bound::Value(10.0), 10.0, Basis::Fitted),
                number(Bound::Value(10.0), 11.5, Basis::Predicted),
                number(Bound::Range(1.0, 2.0), 4.0, Basis::Predicted),
                number(Bound::Min(1.0), 4.0, Basis::Fitted),
                number(Bound::Unpublished, 4.0, Basis::Fitted),
            ],
            ..Findings::default()
        };
        let tally = Tally::of(&findings);
        assert_eq!((tally.numbers(), tally.fitted(), tally.statements), (4, 2, 0));
        assert_eq!(tally.count(), Count { within_10: 2, within_25: 1, beyond: 1 });
        assert_eq!((tally.predicted_bounds.beyond, tally.predicted_values.within_25), (1, 1));
        assert_eq!(tally.worst(), Some(Agreement::Beyond));
        findings.comparisons.truncate(2);
        findings.statements = vec![Statement::new("", true, "")];
        assert_eq!(Tally::of(&findings).worst(), Some(Agreement::Within25));
        findings.statements.push(Statement::new("", false, ""));
        assert_eq!(Tally::of(&findings).worst(), Some(Agreement::Beyond), "a statement that does not hold");
        let mut both = tally;
        both += Tally::of(&findings);
        assert_eq!((both.numbers(), both.statements, both.holding), (6, 2, 1));
        assert_eq!(Tally::default().worst(), None);
    }
}
