//! What an experiment found, beside what was published.

use serde::{Deserialize, Deserializer, Serialize};
use tantalum_report::plot::Plot;

/// A result of one run of an experiment.
///
/// ```
/// use tantalum_lab::finding::{Basis, Bound, Comparison};
///
/// let rate = Comparison::new("durassd, 4 KiB", Bound::Value(225.0), 248.0, "IOPS", Basis::Predicted);
/// assert_eq!(rate.deviation(), Some(23.0 / 225.0));
/// let ratio = Comparison::new("usb-a over disk", Bound::Range(1.2, 9.4), 4.0, "ratio", Basis::Predicted);
/// assert_eq!(ratio.deviation(), Some(0.0));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// Which cell, line or device.
    pub what: String,
    /// What the paper says.
    pub published: Bound,
    /// What came out here; infinite if that is never reached.
    #[serde(deserialize_with = "finite_or_never")]
    pub measured: f64,
    /// Of both.
    pub unit: String,
    /// Whether the model was made to give this number.
    pub basis: Basis,
}

/// A published number, or what is published of it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bound {
    /// This.
    Value(f64),
    /// Between the two, both included.
    Range(f64, f64),
    /// Not above.
    Max(f64),
    /// Not below.
    Min(f64),
    /// No number.
    Unpublished,
}

/// Where agreement comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The published number was used to choose a parameter of the model.
    Fitted,
    /// It was not.
    Predicted,
}

/// Something that the paper says, and whether it holds here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statement {
    /// What the paper says.
    pub says: String,
    /// Whether it came out here.
    pub holds: bool,
    /// What came out here.
    pub found: String,
}

/// All that an experiment found.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct Findings {
    /// How it was set up, a line each.
    pub configuration: Vec<String>,
    /// Published and measured numbers.
    pub comparisons: Vec<Comparison>,
    /// Published statements.
    pub statements: Vec<Statement>,
    /// Where a curve says more than the numbers: one plot for each of the paper's, its axes logarithmic where the
    /// paper's are.
    #[serde(default)]
    pub plots: Vec<Plot>,
}

impl Findings {
    /// Nothing found yet, set up so.
    pub fn new(configuration: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self { configuration: configuration.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// Adds a number that no parameter was chosen by, beside its published one.
    pub fn compared(&mut self, what: impl Into<String>, published: Bound, measured: f64, unit: &str) {
        self.comparisons.push(Comparison::new(what, published, measured, unit, Basis::Predicted));
    }

    /// Adds a number of which none is published.
    pub fn measured(&mut self, what: impl Into<String>, measured: f64, unit: &str) {
        self.compared(what, Bound::Unpublished, measured, unit);
    }

    /// Adds a published statement beside what was found.
    pub fn states(&mut self, says: impl Into<String>, holds: bool, found: impl Into<String>) {
        self.statements.push(Statement::new(says, holds, found));
    }
}

impl Comparison {
    /// A number beside its published one.
    pub fn new(what: impl Into<String>, published: Bound, measured: f64, unit: &str, basis: Basis) -> Self {
        Self { what: what.into(), published, measured, unit: unit.to_owned(), basis }
    }

    /// How far the measured number is from what was published, as a share of the published number: 0.1 is ten percent
    /// above. 0 within a range or on the right side of a bound; `None` where no number is published.
    pub fn deviation(&self) -> Option<f64> {
        let from = |bound: f64| (self.measured - bound) / bound;
        Some(match self.published {
            Bound::Value(value) => from(value),
            Bound::Range(low, _) if self.measured < low => from(low),
            Bound::Range(_, high) | Bound::Max(high) if self.measured > high => from(high),
            Bound::Min(low) if self.measured < low => from(low),
            Bound::Range(..) | Bound::Max(_) | Bound::Min(_) => 0.0,
            Bound::Unpublished => return None,
        })
    }
}

/// JSON has no number that is not finite and `null` is written for it.
fn finite_or_never<'de, D: Deserializer<'de>>(deserializer: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or(f64::INFINITY))
}

impl Statement {
    /// A published statement beside what was found.
    pub fn new(says: impl Into<String>, holds: bool, found: impl Into<String>) -> Self {
        Self { says: says.into(), holds, found: found.into() }
    }
}

impl std::fmt::Display for Bound {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(value) => write!(f, "{value}"),
            Self::Range(low, high) => write!(f, "{low} to {high}"),
            Self::Max(high) => write!(f, "up to {high}"),
            Self::Min(low) => write!(f, "at least {low}"),
            Self::Unpublished => write!(f, "-"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deviations_are_shares_of_what_was_published() {
        let of = |published, measured| Comparison::new("", published, measured, "", Basis::Fitted).deviation();
        assert_eq!(of(Bound::Value(10.0), 8.0), Some(-0.2));
        assert_eq!(of(Bound::Range(10.0, 20.0), 5.0), Some(-0.5));
        assert_eq!(of(Bound::Range(10.0, 20.0), 15.0), Some(0.0));
        assert_eq!(of(Bound::Range(10.0, 20.0), 25.0), Some(0.25));
        assert_eq!(of(Bound::Max(10.0), 5.0), Some(0.0));
        assert_eq!(of(Bound::Max(10.0), 15.0), Some(0.5));
        assert_eq!(of(Bound::Min(10.0), 15.0), Some(0.0));
        assert_eq!(of(Bound::Min(10.0), 5.0), Some(-0.5));
        assert_eq!(of(Bound::Unpublished, 5.0), None);
    }
}
