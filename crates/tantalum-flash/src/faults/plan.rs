//! What is to go wrong: by rate, or at a chosen moment.

use std::collections::BTreeMap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use super::{FaultKind, text};
use crate::{Error, Nanos, Result, Shape};

/// The faults of one device. The same plan and the same calls give the same faults.
///
/// ```
/// use tantalum_flash::faults::{FaultKind, Plan, Planned, When};
/// let plan = Plan::parse("plan.toml", r#"
///     seed = 7
///     [rates]
///     lose-subset = 0.5
///     [[fault]]
///     write = 3
///     range = [0, 65536]
///     kind = "lost-write"
/// "#)?;
/// let by_hand = Plan::new(7)
///     .with_rate(FaultKind::LoseSubset, 0.5)
///     .with_fault(Planned::new(When::Write(3), FaultKind::LostWrite).within(0..65536));
/// assert_eq!(plan, by_hand);
/// assert_eq!(Plan::parse("again", &plan.to_toml())?, plan);
/// # Ok::<(), tantalum_flash::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "text::PlanText", into = "text::PlanText")]
pub struct Plan {
    /// Where the plan's own randomness begins.
    pub seed: u64,
    /// By kind, the probability that it happens on each occasion: from 0 to 1.
    pub rates: BTreeMap<FaultKind, f64>,
    /// Faults at chosen moments.
    pub faults: Vec<Planned>,
}

/// A fault at a chosen moment: armed when its time comes, it happens on the first occasions from then on.
#[derive(Debug, Clone, PartialEq)]
pub struct Planned {
    /// When it is armed.
    pub when: When,
    /// The bytes that it concerns: other operations and other writes at stake are neither counted nor harmed.
    pub range: Option<Range<u64>>,
    /// On how many occasions it happens.
    pub times: u64,
    /// What happens.
    pub kind: FaultKind,
    /// How exactly.
    pub parameters: Parameters,
}

/// When a planned fault is armed. Operations are counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum When {
    /// With the first operation or power cut at this time or later.
    At(Nanos),
    /// With an operation of any kind.
    Operation(u64),
    /// With a write, of those that touch the range.
    Write(u64),
    /// With a read, of those that touch the range.
    Read(u64),
    /// With a flush command.
    Flush(u64),
    /// With a power cut.
    Cut(u64),
}

/// What a planned fault leaves open or not; [`FaultKind::doc`] names what a kind takes, and its default.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Parameters {
    /// The place, in bytes from the beginning of the device.
    pub offset: Option<u64>,
    /// How long.
    pub delay: Option<Nanos>,
    /// How far back.
    pub back: Option<Nanos>,
    /// Which share, from 0 to 1.
    pub share: Option<f64>,
    /// How many bytes.
    pub bytes: Option<u64>,
    /// How many bits.
    pub bits: Option<u32>,
}

impl Planned {
    /// A fault that happens once, anywhere.
    pub fn new(when: When, kind: FaultKind) -> Self {
        Self { when, range: None, times: 1, kind, parameters: Parameters::default() }
    }

    /// The same, within a range.
    pub fn within(self, range: Range<u64>) -> Self {
        Self { range: Some(range), ..self }
    }

    /// The same, on so many occasions.
    pub fn times(self, times: u64) -> Self {
        Self { times, ..self }
    }
}

impl Plan {
    /// A plan without faults.
    pub fn new(seed: u64) -> Self {
        Self { seed, ..Self::default() }
    }

    /// The same, with a kind of fault at this rate.
    pub fn with_rate(mut self, kind: FaultKind, rate: f64) -> Self {
        self.rates.insert(kind, rate);
        self
    }

    /// The same, with one more fault at a chosen moment.
    pub fn with_fault(mut self, fault: Planned) -> Self {
        self.faults.push(fault);
        self
    }

    /// Whether nothing can go wrong.
    pub fn is_empty(&self) -> bool {
        self.faults.is_empty() && self.rates.values().all(|&rate| rate == 0.0)
    }

    /// Reads a plan from TOML. `name` is used in messages.
    ///
    /// # Errors
    /// [`Error::FaultPlan`]: a key that is unknown or missing, or a value that makes no sense.
    pub fn parse(name: &str, text: &str) -> Result<Self> {
        toml::from_str(text).map_err(|error| Error::FaultPlan {
            file: name.to_owned(),
            line: error.span().map(|span| 1 + text[..span.start.min(text.len())].matches('\n').count()),
            problem: error.message().to_owned(),
        })
    }

    /// The plan as TOML, which [`Plan::parse`] reads.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("a plan has string keys, numbers, and tables after them")
    }

    /// Whether a device of this shape can have these faults. `name` is used in messages.
    ///
    /// # Errors
    /// [`Error::FaultPlan`]: the first key that is wrong, and what is allowed.
    pub fn check(&self, name: &str, shape: &Shape) -> Result<()> {
        let problem = text::PlanText::from(self.clone()).problem(Some(shape));
        match problem {
            None => Ok(()),
            Some(problem) => Err(Error::FaultPlan { file: name.to_owned(), line: None, problem }),
        }
    }
}
